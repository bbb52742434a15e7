"""The special registers that the emulator has (PTX ISA, chapter "Special Registers")."""

from __future__ import annotations

CLOCK_REGISTERS = frozenset(
    f"%{name}"
    for name in ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")
)
"""Registers that hold a later time at each read."""

GRID_WORKSPACE_REGISTERS = ("%envreg2", "%envreg1")
"""The registers with the low and the high word of the address of a `grid_workspace`, which a
cooperative launch has (`cooperative_groups/details/driver_abi.h` of the CUDA Toolkit)."""

EXPLICIT_CLUSTER = "%is_explicit_cluster"
"""The only special register that is a predicate: whether the launch has clusters."""

CLUSTER_REGISTERS = frozenset(
    [f"%{name}.{axis}" for name in ("clusterid", "nclusterid") for axis in "xyz"]
    + [f"%cluster_{name}.{axis}" for name in ("ctaid", "nctaid") for axis in "xyz"]
    + ["%cluster_ctarank", "%cluster_nctarank", EXPLICIT_CLUSTER]
)
"""Registers that tell of a block's cluster."""

THREAD_REGISTERS = CLUSTER_REGISTERS | frozenset(
    [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    + [f"%lanemask_{relation}" for relation in ("eq", "lt", "le", "gt", "ge")]
    + [f"%{name}" for name in ("laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid")]
    + ["%dynamic_smem_size", *GRID_WORKSPACE_REGISTERS]
)
"""Registers that hold one value per thread for the whole run."""


def is_special(register: str) -> bool:
    """Whether a name is one of these registers."""
    return register in CLOCK_REGISTERS or register in THREAD_REGISTERS
