"""What a row of the instruction table says, and how rows are added and found.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces; a duplicate raises.
A row says what kind of instruction it is, the types of its destinations and sources, what it
computes over lanes and how many floating-point operations a lane does. The machine knows the
kinds and no opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). `{0}` in a type stands for the first brace's choice,
`{1}` for the second's.
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
    """One instruction's meaning.

    Attributes:
        opcode: As NVIDIA spells it, with the suffixes that matter.
        kind: How the machine carries it out. `lanes`: `function(*sources)` lane by lane.
            `warp`: `function(active, *sources)` with every array shaped (warps, 32), `block` the
            same with (blocks, threads). `macro`: `function(instruction)` gives what takes its
            place. `call`: a function, put in its place.
            `load`, `store`: memory. `atomic`: read, combine by `function(old, *sources)`,
            write, give the old value; `reduce`: the same without it. `arrive`: tells a barrier
            without waiting. `trap`: ends the run. `print`: `printf`. `nothing`: ordering only.
        to: Types of the destinations.
        of: Types of the sources, addresses left out.
        function: What is computed.
        flops: Floating-point operations a lane: an FMA is two.
        tensor: Where the tensor cores do them, the type they multiply: `tf32`, `fp16`, `bf16`.
        space: State space of a memory access; `generic` where the address says which.
        vector: Elements a lane moves.
        bypass_l1: Whether the access is not kept in L1 (`.cg`, `.cv`, `.L1::no_allocate`).
        carry: Whether the carry flag goes `in`, `out` or `in out`; it is the last source and the
            last destination.
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
"""Every row by opcode."""

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
"""How the lanes of each PTX type are seen in NumPy; packed halves and bf16 as raw bits."""

# Qualifiers that order memory or hint at caches without changing what is computed or counted.
_WITHOUT_EFFECT = frozenset(
    ["weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"]
    + ["cta", "cluster", "gpu", "sys", "uni", "aligned"]
    + [f"L1::evict_{how}" for how in ("normal", "unchanged", "first", "last")]
    + [f"L2::evict_{how}" for how in ("normal", "unchanged", "first", "last")]
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
        function: What it computes, see `Row.kind`.
        to: Destination types, separated by blanks.
        of: Source types, separated by blanks.
        make: In place of `function`, gives it for the choices of the braces.
        kind: See `Row.kind`.
        **more: The other fields of `Row`.

    Raises:
        ValueError: The opcode has a row already.
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
    """The row of an opcode, or None; qualifiers without effect may be left out of the table.

    Args:
        opcode: As written in the PTX.
        pair: Whether it has two destinations, `d|p`.
    """
    name, *qualifiers = opcode.replace("::cta", "").replace("::entry", "").split(".")
    if name == "barrier" and "cluster" in qualifiers:
        return None  # not a scope there: another barrier
    kept = [each for each in qualifiers if each not in _WITHOUT_EFFECT]
    end = " d|p" if pair else ""
    return TABLE.get(opcode + end) or TABLE.get(".".join([name, *kept]) + end)
