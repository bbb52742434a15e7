"""Generic addresses: the window of each state space.

As on a GPU, the window in which a generic address lies tells its state space: shared, local,
constant and parameter memory have windows of their own, and everything else is global. In the
window of shared memory lies that of all blocks of a cluster (distributed shared memory). As on a
GPU, byte 3 of an address is the rank of the block, also where the address is one of the own block's
variables; without a cluster it is 0.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any, TypeAlias

from numpy.typing import NDArray

from memlab.device.emulator.isa.values import U32, Value

Lanes: TypeAlias = NDArray[Any]

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
CONST_WINDOW = 0x7C00_0000_0000
PARAM_WINDOW = 0x7B00_0000_0000
WINDOW_BITS = 40
WINDOW_BYTES = 1 << WINDOW_BITS
"""The windows are aligned and lie far apart, so that a stray address is in none. The values are
this emulator's own: no GPU documents its own."""
WINDOWS = {
    "global": GLOBAL_BASE,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "const": CONST_WINDOW,
    "param": PARAM_WINDOW,
}
"""The first generic address of each state space."""


def is_in_space(space: str, address: Value) -> Value:
    """Whether generic addresses lie in a state space; an address in no window is global."""
    window = address >> WINDOW_BITS
    if space != "global":
        return window == WINDOWS[space] >> WINDOW_BITS
    others = (start >> WINDOW_BITS for name, start in WINDOWS.items() if name != "global")
    return reduce(operator.and_, (window != other for other in others))


RANK_SHIFT = 24
RANK_UNIT = 1 << RANK_SHIFT
"""The distance of the shared memory of two blocks of a cluster: that of the block of rank r begins
at r times this. The machine code of an H200 has it so: `S2R SR_CgaCtaId` and `LEA` of 24 bits make
the address of a variable. No block has so much."""
RANK_BITS = 0xFF
"""The bits of a rank in an address, behind `RANK_SHIFT` others: `mapa` replaces this byte
(`PRMT 0x654`). A cluster has 16 blocks at most."""

UNREACHABLE = 1 << 40
"""What is added to a place in another block's shared memory that an instruction cannot reach."""
REACHES = ("cluster", "own block", "own offset")
"""Which shared memory an instruction accesses: that of any block of the cluster, which the rank in
the address names (`.shared::cluster`, generic addresses); that of its own block, whose rank the
address must have (`.shared`: with another, an H200 ends the launch as an illegal instruction); or
that of its own block, of which the address is an offset without a rank."""
CLUSTER, OWN_BLOCK, OWN_OFFSET = range(len(REACHES))


def map_to_rank(address: Value, rank: Value) -> Value:
    """The address in another block's shared memory that corresponds to an address (`mapa`)."""
    place = (rank & RANK_BITS).to(address.type) << RANK_SHIFT
    return address & ~(RANK_BITS << RANK_SHIFT) | place


def rank_of(address: Value) -> Value:
    """The rank of the block in whose shared memory an address lies (`getctarank`)."""
    return (address >> RANK_SHIFT).to(U32) & RANK_BITS


def is_own_shared(address: Value, rank: Value) -> Value:
    """Whether generic addresses lie in the shared memory of the own block, of this rank."""
    own = rank.to(address.type) + (WINDOWS["shared"] >> RANK_SHIFT)
    return address >> RANK_SHIFT == own


def split_by_space(address: Lanes, lanes: Lanes) -> Iterator[tuple[str, int, Lanes]]:
    """Split lanes by the state space of their generic addresses.

    Args:
        address: Generic addresses, shape (lanes,).
        lanes: The lanes to split, as a mask of the same shape.

    Yields:
        A state space, the generic address of its first byte (0 for global memory), and its lanes
        as a mask: `lanes` itself where all lie in it. An address in no window is global.
    """
    for name, window in WINDOWS.items():
        inside = lanes & (address >= window) & (address < window + WINDOW_BYTES)
        if inside.any():
            rest = lanes & ~inside
            more = bool(rest.any())
            yield name, 0 if name == "global" else window, inside if more else lanes
            if not more:
                return
            lanes = rest
    if lanes.any():
        yield "global", 0, lanes
