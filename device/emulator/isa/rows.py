"""The rows of the instruction table: their fields, and how rows are added and found.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces. The rows are made when one
of them is looked up, since a kernel needs few of thousands; a duplicate raises an error then. A row
holds the kind of an instruction, the types of its destinations and sources, the function that it
computes over lanes, and its floating-point operations per lane. The machine knows the kinds but no
opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). In the types given to `op`, `{0}` stands for the choice
from the first pair of braces, `{1}` for that from the second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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


class _Pattern(NamedTuple):
    """The arguments of a call of `op`."""

    pattern: str
    function: Function | None
    to: str
    of: str
    make: Callable[..., Function] | None
    kind: Kind
    more: dict[str, Any]

    def rows(self, word: str) -> Iterator[Row]:
        """The rows of the expansions that begin with a word."""
        for opcode, chosen in _expansions(self.pattern):
            if _first_word(opcode) == word:
                yield Row(
                    opcode,
                    self.kind,
                    tuple(self.to.format(*chosen).split()),
                    tuple(self.of.format(*chosen).split()),
                    self.make(*chosen) if self.make else self.function,
                    **self.more,
                )


class _Table(Mapping[str, Row]):
    """Rows by opcode, made from their patterns when an opcode with the same first word is used."""

    def __init__(self) -> None:
        self._patterns: dict[str, list[_Pattern]] = {}
        self._rows: dict[str, Row] = {}

    def add(self, pattern: _Pattern) -> None:
        """Add the rows of a pattern."""
        start = _PATTERN_START.match(pattern.pattern)
        for word in {_first_word(opcode) for opcode, _ in _expansions(start[0] if start else "")}:
            self._patterns.setdefault(word, []).append(pattern)

    def _expand(self, word: str) -> None:
        """Make the rows that begin with a word.

        Raises:
            ValueError: Two rows have one opcode.
        """
        for pattern in self._patterns.pop(word, ()):
            for row in pattern.rows(word):
                if row.opcode in self._rows:
                    raise ValueError(f"{row.opcode} has a row already")
                self._rows[row.opcode] = row

    def __getitem__(self, opcode: str) -> Row:
        self._expand(_first_word(opcode))
        return self._rows[opcode]

    def __iter__(self) -> Iterator[str]:
        for word in tuple(self._patterns):
            self._expand(word)
        return iter(self._rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_PATTERN_START = re.compile(r"(?:[^. {]|\{[^}]*\})*")
"""A pattern up to the first point or blank that is in no braces."""


def _expansions(pattern: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The opcodes of a pattern, with the choices in its braces."""
    if "{" not in pattern:
        yield pattern, ()
        return
    pieces = re.split(r"\{([^}]*)\}", pattern)
    for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
        parts = itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue=""))
        yield "".join(parts), chosen


def _first_word(opcode: str) -> str:
    """What an opcode begins with, up to its first point or blank."""
    return opcode.partition(" ")[0].partition(".")[0]


TABLE = _Table()
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

    Of two rows with one opcode, the second raises a ValueError when one of them is looked up.

    Args:
        pattern: The opcode with `{a,b}` where it varies, and ` d|p` where it has two destinations.
        function: The function that it computes: see `Row.kind`.
        to: Destination types, separated by blanks.
        of: Source types, separated by blanks.
        make: Makes `function` from the choices in the braces, in place of a fixed one.
        kind: See `Row.kind`.
        **more: The other fields of `Row`.
    """
    TABLE.add(_Pattern(pattern, function, to, of, make, kind, more))


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
