"""The rows of the instruction table: their fields, and how rows are added and found.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces; a duplicate raises an
error. A row holds the kind of an instruction, the types of its destinations and sources, the
function that it computes over lanes, and its floating-point operations per lane. The machine knows
the kinds but no opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). In the types given to `op`, `{0}` stands for the choice
from the first pair of braces, `{1}` for that from the second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from memlab.device.emulator.isa.arithmetic import Function
from memlab.device.emulator.ptx.parser import TYPE_BYTES

Kind = Literal[
    "lanes",
    "warp",
    "block",
    "load",
    "store",
    "atomic",
    "reduce",
    "branch",
    "exit",
    "barrier",
    "arrive",
    "trap",
    "print",
    "macro",
    "call",
    "nothing",
]


@dataclass(frozen=True)
class Row:
    """The meaning of an opcode.

    Attributes:
        opcode: NVIDIA's spelling, with the suffixes that matter.
        kind: How the machine executes the instruction:
            `lanes` computes `function(*sources)` lane by lane;
            `warp` computes `function(active, *sources)` with arrays of shape (warps, 32);
            `block` does the same with arrays of shape (blocks, threads);
            `load` and `store` access memory;
            `atomic` reads memory, writes `function(old, *sources)` and returns the old value;
            `reduce` does the same without returning it;
            `branch`, `exit` and `barrier` decide which lanes run next;
            `arrive` signals a barrier without waiting;
            `trap` ends the run; `print` is `printf`;
            `nothing` only orders memory accesses, or has no effect here;
            `macro` is replaced, before the run, by the instructions of `function(instruction)`;
            `call` is replaced, before the run, by the body of the called function.
        to: Types of the destinations.
        of: Types of the sources, without addresses.
        function: The function that the instruction computes.
        flops: Floating-point operations per lane; an FMA counts as two.
        tensor: For tensor-core instructions, the type of the factors: `tf32`, `fp16` or `bf16`.
        space: State space of a memory access; `generic` where the address determines it.
        vector: Elements per lane of a memory access.
        bypass_l1: Whether L1 does not keep the accessed data (`.cg`, `.cv`, `.L1::no_allocate`).
        carry: `in`, `out` or `in out`, if the instruction reads or writes the carry flag, which is
            then its last source or destination.
    """

    opcode: str
    kind: Kind
    to: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None
    flops: int = 0
    tensor: str = ""
    space: str = ""
    vector: int = 1
    bypass_l1: bool = False
    carry: str = ""


TABLE: dict[str, Row] = {}
"""The rows by opcode."""

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(
        "bool"
        if name == "pred"
        else {"s": "i", "f": "f"}.get(name[0], "u") + str(TYPE_BYTES[name])
        if "x2" not in name and name != "bf16"
        else f"u{TYPE_BYTES[name]}"
    )
    for name in TYPE_BYTES
    if name != "b128"
} | {"b128": np.dtype("V16")}
"""The NumPy type for the lanes of each PTX type; packed halves and bf16 are raw bits."""

# Qualifiers that order memory accesses or hint at caches, without effect on results and counts.
_WITHOUT_EFFECT = frozenset(
    ["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]
    + ["cta", "cluster", "gpu", "sys", "uni", "aligned"]
    + [f"L1::evict_{policy}" for policy in ("normal", "unchanged", "first", "last")]
    + [f"L2::evict_{policy}" for policy in ("normal", "unchanged", "first", "last")]
    + ["L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"]
)


def op(
    pattern: str,
    function: Function | None = None,
    to: str = "",
    of: str = "",
    *,
    make: Callable[..., Function] | None = None,
    kind: Kind = "lanes",
    **more: Any,
) -> None:
    """Add a row for each expansion of a pattern.

    Args:
        pattern: The opcode with `{a,b}` where it varies, and ` d|p` where it has two destinations.
        function: The function that it computes: see `Row.kind`.
        to: Destination types, separated by blanks.
        of: Source types, separated by blanks.
        make: Makes `function` from the choices in the braces, in place of a fixed one.
        kind: See `Row.kind`.
        **more: The other fields of `Row`.

    Raises:
        ValueError: The table has a row for the opcode already.
    """
    pieces = re.split(r"\{([^}]*)\}", pattern)
    for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
        opcode = "".join(itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue="")))
        if opcode in TABLE:
            raise ValueError(f"{opcode} has a row already")
        TABLE[opcode] = Row(
            opcode,
            kind,
            tuple(to.format(*chosen).split()),
            tuple(of.format(*chosen).split()),
            make(*chosen) if make else function,
            **more,
        )


def find_row(opcode: str, pair: bool = False) -> Row | None:
    """The row of an opcode, or None; the table need not list qualifiers without effect.

    Args:
        opcode: The opcode as written in the PTX.
        pair: Whether it has two destinations, `d|p`.
    """
    name, *qualifiers = opcode.replace("::cta", "").replace("::entry", "").split(".")
    if name == "barrier" and "cluster" in qualifiers:
        return None  # here `cluster` is no scope but names another kind of barrier
    kept = [qualifier for qualifier in qualifiers if qualifier not in _WITHOUT_EFFECT]
    end = " d|p" if pair else ""
    return TABLE.get(opcode + end) or TABLE.get(".".join([name, *kept]) + end)
