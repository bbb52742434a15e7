"""The rows of the instruction table: their fields, and how rows are added and found.

`op("fma.rn.{f32,f64}", …)` adds a row for each expansion of the braces. A row is made when it is
looked up, since a kernel needs few of thousands; going through the table raises an error where two
rows have one opcode. A row holds the kind of an instruction, the types of its destinations and
sources, the function that writes its machine code, and its floating-point operations per lane. The
code generator knows the kinds but no opcode. An opcode outside the table is refused before launch.

Types are PTX's (`s32`, `f64`, `pred` …). In the types given to `op`, `{0}` stands for the choice
from the first pair of braces, `{1}` for that from the second. A choice may be the name of several:
`integers`, `all_integers` (those of 8 bits too), `bits` or `floats`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from memlab.device.emulator.isa.values import Lowering, element_type, over_packed_parts
from memlab.device.properties import WARP_SIZE

Kind: TypeAlias = (
    Literal["lanes", "warp", "block", "load", "store", "atomic", "reduce", "branch", "exit"]
    | Literal["barrier", "arrive", "trap", "print", "heap", "macro", "call", "nothing"]
)


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
            `trap` ends the run; `print` is `printf`; `heap` is `malloc` or `free`;
            `nothing` only orders memory accesses, or has no effect here;
            `macro` is replaced, before the run, by the instructions of `function(instruction)`;
            `call` is replaced, before the run, by the body of the called function, or by a branch
            to it.
        to: Types of the destinations.
        of: Types of the sources, without addresses.
        function: Writes what the instruction computes, from `Value`s to a `Value` or a tuple of
            them; for `block` it computes on arrays, and for `macro` it gives instructions.
        flops: Floating-point operations per lane; an FMA counts as two, one of a pair as four.
        tensor: For tensor-core instructions, the type of the factors: `tf32`, `fp16`, `bf16` or
            `fp8`.
        space: State space of a memory access; `generic` where the address determines it.
        vector: Elements per lane of a memory access.
        bypass_l1: Whether L1 does not keep the accessed data: loads with `.cg`, `.cv` or `.lu`, and
            whatever has `.L1::no_allocate`.
        evict_first: Whether L1 replaces the accessed data before other data (`.cs`).
        carry: `in`, `out` or `in out`, if the instruction reads or writes the carry flag, which is
            then its last source or destination; the types given to `op` lack it.
        view: `texture` or `surface`, if the instruction accesses memory through such an object;
            `bulk` if the copy engine executes it; `cluster` if it may access the shared memory of
            other blocks, and is no access to `.shared` in the machine code.
        counted: Whether an access to memory is counted among those of the load/store units.
        request_lanes: Of an access to memory, how many neighbouring lanes make one request.
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
    evict_first: bool = False
    carry: str = ""
    view: str = ""
    counted: bool = True
    request_lanes: int = WARP_SIZE


_BRACES = re.compile(r"\{([^}]*)\}")
_SETS = {
    "integers": "s16,u16,s32,u32,s64,u64",
    "all_integers": "s8,u8,s16,u16,s32,u32,s64,u64",
    "bits": "b16,b32,b64",
    "floats": "f32,f64",
}
"""Names that stand for several choices."""


class _Pattern(NamedTuple):
    """The arguments of a call of `op`; of the pattern, the texts around the braces, the choices."""

    texts: list[str]
    choices: list[list[str]]
    types: str
    function: Lowering | None
    choosing: Lowering | None
    fields: Callable[..., dict[str, Any] | None]
    kind: Kind

    def expansions(self) -> Iterator[str]:
        """The opcodes."""
        for chosen in itertools.product(*self.choices):
            if self.fields(*chosen) is not None:
                parts = itertools.zip_longest(self.texts, chosen, fillvalue="")
                yield "".join(itertools.chain(*parts))

    def row(self, opcode: str) -> Row | None:
        """The row of an opcode; None if the pattern does not give it."""
        chosen = _chosen(self.texts, self.choices, opcode)
        fields = None if chosen is None else self.fields(*chosen)
        if chosen is None or fields is None:
            return None
        function, last = self.function, chosen[-1] if chosen else ""
        if self.choosing:
            function = partial(self.choosing, *chosen[:-1], last.removesuffix("x2"))
        if function and last.endswith("x2"):
            function = over_packed_parts(function, element_type(last.removesuffix("x2")))
        of, _, to = self.types.format(*chosen).partition("->")
        carry = fields.get("carry", "")
        types = {
            "to": (*to.split(), "pred") if "out" in carry else tuple(to.split()),
            "of": (*of.split(), "pred") if "in" in carry else tuple(of.split()),
        }
        return Row(opcode, self.kind, function=function, **{**types, **fields})


class RowTable(Mapping[str, Row]):
    """Rows by opcode, each made from its pattern when it is looked up."""

    def __init__(self) -> None:
        self._patterns: dict[str, list[_Pattern]] = {}  # by the first words of their opcodes
        self._rows: dict[str, Row] = {}

    def add(self, pattern: _Pattern) -> None:
        """Add the rows of a pattern."""
        start, *more = pattern.texts
        ends = pattern.choices[0] if more else [""]
        for word in dict.fromkeys((start + end).partition(".")[0] for end in ends):
            self._patterns.setdefault(word, []).append(pattern)

    def __getitem__(self, opcode: str) -> Row:
        if opcode not in self._rows:
            patterns = self._patterns.get(opcode.partition(".")[0], ())
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
            for opcode in itertools.chain(*(pattern.expansions() for pattern in patterns)):
                if opcode.partition(".")[0] != word:
                    continue  # the pattern has other first words too
                if opcode in seen:
                    raise ValueError(f"{opcode} has a row already")
                seen.add(opcode)
                yield opcode

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _chosen(
    texts: Sequence[str], choices: Sequence[Sequence[str]], opcode: str
) -> tuple[str, ...] | None:
    """The choices in the braces with which a pattern gives an opcode; None if it does not."""
    if not opcode.startswith(texts[0]):
        return None
    rest = opcode[len(texts[0]) :]
    if not choices:
        return None if rest else ()
    for choice in choices[0]:
        if rest.startswith(choice):
            others = _chosen(texts[1:], choices[1:], rest[len(choice) :])
            if others is not None:
                return choice, *others
    return None


CLUSTER_VIEW = "cluster"
"""The `Row.view` of accesses that may go to the shared memory of other blocks."""

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
    types: str = "",
    function: Lowering | None = None,
    *,
    choosing: Lowering | None = None,
    fields: Callable[..., dict[str, Any] | None] | None = None,
    kind: Kind = "lanes",
    **more: Any,
) -> None:
    """Add a row for each expansion of a pattern.

    Where the last choice is a packed type (`f16x2`), the function is that of its part (`f16`), and
    is applied to each part.

    Args:
        pattern: The opcode with `{a,b}` where it varies, and ` d|p` where it has two destinations.
            Its first word varies in one pair of braces at most.
        types: Source types, an arrow and destination types: `u32 u32 -> u32`.
        function: The function that it computes: see `Row.kind`.
        choosing: In place of it, a function that takes the choices in the braces before the rest.
        fields: Gives other fields of `Row` from the choices, also in place of `types`; None if they
            give no row.
        kind: See `Row.kind`.
        **more: Other fields of `Row` that are the same for all choices.
    """
    texts = _BRACES.split(pattern)
    choices = [
        ",".join(_SETS.get(name, name) for name in names.split(",")).split(",")
        for names in texts[1::2]
    ]
    fields = fields or (lambda *_: more)
    TABLE.add(_Pattern(texts[::2], choices, types, function, choosing, fields, kind))


def find_row(opcode: str, pair: bool = False) -> Row | None:
    """The row of an opcode, or None; the table need not list qualifiers without effect.

    Args:
        opcode: The opcode as written in the PTX.
        pair: Whether it has two destinations, `d|p`.
    """
    name, *qualifiers = opcode.replace("::cta", "").replace("::entry", "").split(".")
    kept = [
        qualifier
        for qualifier in qualifiers
        if qualifier not in _WITHOUT_EFFECT
        # Of a barrier, `cluster` is no scope but another kind.
        or (name == "barrier" and qualifier == "cluster")
    ]
    end = " d|p" if pair else ""
    return TABLE.get(opcode + end) or TABLE.get(".".join([name, *kept]) + end)
