"""The rows of the instruction table: their fields, and how rows are added and found.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces. A row is made when it is
looked up, since a kernel needs few of thousands; going through the table raises an error where two
rows have one opcode. A row holds the kind of an instruction, the types of its destinations and
sources, the function that writes its machine code, and its floating-point operations per lane. The
code generator knows the kinds but no opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). In the types given to `op`, `{0}` stands for the choice
from the first pair of braces, `{1}` for that from the second.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from memlab.device.emulator.isa.values import Lowering

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
            `warp` computes `function(active, *sources)` for the lanes of a warp together;
            `block` does so for the threads of each block, with arrays of shape (blocks, threads);
            `load` and `store` access memory;
            `atomic` reads memory, writes `function(old, *sources)` and returns the old value, a
            single number each;
            `reduce` does the same without returning it;
            `branch`, `exit` and `barrier` decide which lanes run next;
            `arrive` signals a barrier without waiting;
            `trap` ends the run; `print` is `printf`;
            `nothing` only orders memory accesses, or has no effect here;
            `macro` is replaced, before the run, by the instructions of `function(instruction)`;
            `call` is replaced, before the run, by the body of the called function.
        to: Types of the destinations.
        of: Types of the sources, without addresses.
        function: Writes what the instruction computes, from `Value`s to a `Value` or a tuple of
            them; for `block` it computes on arrays, and for `macro` it gives instructions.
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
    function: Lowering | None
    to: str
    of: str
    make: Callable[..., Lowering] | None
    kind: Kind
    more: dict[str, Any]

    def row(self, opcode: str) -> Row | None:
        """The row of an opcode; None if the pattern does not give it."""
        chosen = _chosen(_pieces(self.pattern), opcode)
        if chosen is None:
            return None
        return Row(
            opcode,
            self.kind,
            tuple(self.to.format(*chosen).split()),
            tuple(self.of.format(*chosen).split()),
            self.make(*chosen) if self.make else self.function,
            **self.more,
        )


class RowTable(Mapping[str, Row]):
    """Rows by opcode, each made from its pattern when it is looked up."""

    def __init__(self) -> None:
        self._patterns: dict[str, list[_Pattern]] = {}  # by the first word of their opcodes
        self._rows: dict[str, Row] = {}

    def add(self, pattern: _Pattern) -> None:
        """Add the rows of a pattern."""
        start = _PATTERN_START.match(pattern.pattern)
        for word in {_first_word(opcode) for opcode in _expansions(start[0] if start else "")}:
            self._patterns.setdefault(word, []).append(pattern)

    def __getitem__(self, opcode: str) -> Row:
        if opcode not in self._rows:
            patterns = self._patterns.get(_first_word(opcode), ())
            rows = (pattern.row(opcode) for pattern in patterns)
            row = next((row for row in rows if row is not None), None)
            if row is None:
                raise KeyError(opcode)
            self._rows[opcode] = row
        return self._rows[opcode]

    def __iter__(self) -> Iterator[str]:
        """The opcodes of all patterns.

        Raises:
            ValueError: Two rows have one opcode.
        """
        seen = set()
        for word, patterns in self._patterns.items():
            for opcode in itertools.chain(*(_expansions(one.pattern) for one in patterns)):
                if _first_word(opcode) != word:
                    continue  # the pattern has other first words too
                if opcode in seen:
                    raise ValueError(f"{opcode} has a row already")
                seen.add(opcode)
                yield opcode

    def __len__(self) -> int:
        return sum(1 for _ in self)


_PATTERN_START = re.compile(r"(?:[^. {]|\{[^}]*\})*")
"""A pattern up to the first point or blank that is in no braces."""


def _pieces(pattern: str) -> list[str]:
    """The parts of a pattern outside and inside braces, in turns."""
    return re.split(r"\{([^}]*)\}", pattern)


def _expansions(pattern: str) -> Iterator[str]:
    """The opcodes of a pattern."""
    pieces = _pieces(pattern)
    for chosen in itertools.product(*(piece.split(",") for piece in pieces[1::2])):
        yield "".join(itertools.chain(*itertools.zip_longest(pieces[::2], chosen, fillvalue="")))


def _chosen(pieces: Sequence[str], opcode: str) -> tuple[str, ...] | None:
    """The choices in the braces with which a pattern gives an opcode; None if it does not."""
    plain, *more = pieces
    if not opcode.startswith(plain):
        return None
    rest = opcode[len(plain) :]
    if not more:
        return None if rest else ()
    for choice in more[0].split(","):
        if rest.startswith(choice):
            others = _chosen(more[1:], rest[len(choice) :])
            if others is not None:
                return choice, *others
    return None


def _first_word(opcode: str) -> str:
    """What an opcode begins with, up to its first point or blank."""
    return opcode.partition(" ")[0].partition(".")[0]


TABLE = RowTable()
"""The rows by opcode."""

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
    function: Lowering | None = None,
    to: str = "",
    of: str = "",
    *,
    make: Callable[..., Lowering] | None = None,
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
