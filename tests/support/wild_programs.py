"""Random PTX programs whose addresses are data: one program serves launches with any addresses.

A program is a loop over clusters of memory instructions. A branch can skip a cluster, for some
lanes or for all. The addresses are read from a table, those of each turn, instruction and thread;
what is loaded goes to an array, with a slot for each of the same. `.loc` numbers the instructions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from memlab.device.emulator.isa.address_space import WINDOWS
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.table import TABLE
from memlab.device.emulator.ptx.parser import TYPE_BYTES
from tests.support.ptx import kernel

ACCESSES, TURNS, MOST_THREADS = 24, 3, 128
"""Instructions of a program, iterations of its loop, and lanes of a launch at most."""
SLOT_BYTES = 32
"""Bytes for what a lane loads in one turn by one instruction."""
PARAMETERS = ("x", "y", "z", "table", "words", "out")
"""The arrays of a launch; `words` has four words for each lane."""
VARIABLE_BYTES = 200
"""Bytes of the variable `g` in global memory."""
_ELEMENTS = 8  # of an instruction at most
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Access:
    """A memory instruction, or one that is carried out as two of them.

    Attributes:
        number: Its number in the program.
        opcode: Its opcode.
        kind: `load`, `store`, `atomic`, `reduce`; `copy` (from global to shared memory), `ldmatrix`
            or `stmatrix`.
        space: The state space of its address.
        element_bytes: Bytes of an element, or of a register of a matrix.
        vector: Elements of a lane, or matrices.
        sources: How many values of each element it takes.
        offset: The immediate offset.
        column: The address register; None where there is none.
        source_column: For a copy, the address register of its source.
        variable: In place of a register, a variable; empty where the offset is the address.
        narrow: Whether the address register has 32 bits.
        shift: What `cvta` adds to the address from the table.
        cvta: The opcode of this `cvta`; empty where there is none.
        guard: `@%p`, `@!%p` or no guard.
    """

    number: int
    opcode: str
    kind: str
    space: str
    element_bytes: int
    vector: int
    sources: int
    offset: int
    column: int | None
    source_column: int | None = None
    variable: str = ""
    narrow: bool = False
    shift: int = 0
    cvta: str = ""
    guard: str = ""

    @property
    def size(self) -> int:
        """Bytes that a lane moves."""
        return 16 if self.kind in ("ldmatrix", "stmatrix") else self.element_bytes * self.vector

    @property
    def is_load(self) -> bool:
        """Whether it only reads at its address."""
        return self.kind in ("load", "ldmatrix")

    @property
    def has_results(self) -> bool:
        """Whether registers get what it reads."""
        return self.kind in ("load", "atomic", "ldmatrix")

    @property
    def is_collective(self) -> bool:
        """Whether all lanes of a warp execute it together."""
        return self.kind in ("ldmatrix", "stmatrix")

    @property
    def columns(self) -> tuple[int, ...]:
        """Its address registers."""
        return tuple(c for c in (self.column, self.source_column) if c is not None)


@dataclass(frozen=True)
class WildProgram:
    """A program.

    Attributes:
        text: The PTX.
        clusters: Its memory instructions, in clusters that a branch can skip.
        columns: How many address registers it has.
        sizes: Bytes of static shared, local and constant memory.
        factors: What element e of a stored value is computed from: `stored_value`.
    """

    text: str
    clusters: tuple[tuple[Access, ...], ...]
    columns: int
    sizes: dict[str, int]
    factors: tuple[int, ...]

    def stored_value(self, access: Access, source: int, element: int, key: int) -> int:
        """What a lane stores in an element: a mixture of its `key`, lane times turns plus turn."""
        if access.sources == 2 and source == 0:
            return 0  # compare-and-swap compares with it
        value = self._mixed(access, element, key)
        if access.element_bytes == 16:
            return self._mixed(access, element + _ELEMENTS, key) << 64 | value
        return value & (1 << 8 * access.element_bytes) - 1

    def _mixed(self, access: Access, place: int, key: int) -> int:
        return key * self.factors[place] + _addend(self.factors, access.number, place) & _MASK


def _addend(factors: tuple[int, ...], number: int, element: int) -> int:
    return factors[number % len(factors)] * (2 * element + 1) & _MASK


@cache
def _rows() -> dict[str, tuple[tuple[Row, ...], ...]]:
    """Loads, stores and atomic operations by state space, grouped by their shape and operation."""
    groups: dict[str, dict[object, list[Row]]] = {}
    for opcode in TABLE:
        if not opcode.startswith(("ld.", "ldu.", "st.", "atom.", "red.")) or " " in opcode:
            continue
        row = TABLE[opcode]
        if row.space in (*WINDOWS, "generic"):
            key = (row.kind, row.vector, row.to, row.of, row.function is None or opcode)
            groups.setdefault(row.space, {}).setdefault(key, []).append(row)
    return {space: tuple(map(tuple, found.values())) for space, found in groups.items()}


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self._random = draw = random.Random(f"program {seed}")
        self._columns = 0
        self.sizes = {
            "shared": draw.choice((1, 16, 100, 1024)),
            "local": draw.choice((1, 8, 64)),
            "const": draw.choice((1, 32, 200)),
        }
        self.factors = tuple(draw.getrandbits(64) | 1 for _ in range(ACCESSES + 1))

    def program(self) -> WildProgram:
        clusters, count = [], 0
        while count < ACCESSES:
            size = min(self._random.choice((1, 1, 2, 3)), ACCESSES - count)
            cluster: list[Access] = []
            for number in range(count, count + size):
                cluster.append(self._access(number, cluster))
            clusters.append(tuple(cluster))
            count += size
        body = "\n".join(self._body(clusters))
        variables = (
            f".const .align 16 .b8 c[{self.sizes['const']}];\n"
            f".global .align 16 .b8 g[{VARIABLE_BYTES}];"
        )
        parameters = ", ".join(f".u64 {name}" for name in PARAMETERS) + ", .u32 chosen"
        text = kernel(body, parameters, variables)
        return WildProgram(text, tuple(clusters), self._columns, self.sizes, self.factors)

    # --- Instructions --------------------------------------------------------------------------

    def _access(self, number: int, before: list[Access]) -> Access:
        """An instruction; it may have the address register of an earlier one of its cluster."""
        draw = self._random
        guard = draw.choice(("", "", "", "@", "@!"))
        if draw.randrange(10) == 0:
            return self._special(number, guard)
        spaces = ["global"] * 4 + ["generic"] * 5 + ["shared"] * 4 + ["local"] * 2
        like = draw.choice(before) if before and draw.randrange(2) == 0 else None
        if like is not None and (like.variable or like.column is None or like.is_collective):
            like = None
        space = like.space if like else draw.choice([*spaces, "const", "param"])
        row = draw.choice(draw.choice(_rows()[space]))
        moved = (row.to if row.kind == "load" else row.of)[0]
        common = {
            "number": number,
            "opcode": row.opcode,
            "kind": row.kind,
            "space": space,
            "element_bytes": TYPE_BYTES[moved],
            "vector": row.vector,
            "sources": 0 if row.kind == "load" else len(row.of),
            "guard": guard,
        }
        size = TYPE_BYTES[moved] * row.vector
        if like is not None:
            offset = like.offset + draw.choice((0, size, -size, 4 * size, 1))
            kept = {name: getattr(like, name) for name in ("column", "narrow", "shift", "cvta")}
            return Access(**common, **kept, offset=offset)
        if draw.randrange(12) == 0 and space != "generic":
            return Access(**common, **self._fixed_place(space, size))
        narrow = space not in ("generic", "global") and draw.randrange(2) == 0
        cvta, shift = ("", 0) if narrow else self._cvta(space)
        offset = self._offset()
        kept = {"column": self._column(), "narrow": narrow, "shift": shift, "cvta": cvta}
        return Access(**common, **kept, offset=offset)

    def _special(self, number: int, guard: str) -> Access:
        """An instruction that is carried out as others."""
        draw = self._random
        kind = draw.choice(("copy", "copy", "ldmatrix", "stmatrix"))
        narrow, offset = draw.randrange(2) == 0, self._offset()
        if kind == "copy":
            size = draw.choice((4, 8, 16))
            cache_operator = "cg" if size == 16 and draw.randrange(2) else "ca"
            opcode = f"cp.async.{cache_operator}.shared.global"
            column, source = self._column(), self._column()
            return Access(
                number, opcode, kind, "shared", 4, size // 4, 0, offset, column, source,
                narrow=narrow, guard=guard,
            )  # fmt: skip
        count, trans = draw.choice((1, 2, 4)), draw.choice(("", ".trans"))
        space = draw.choice(("shared", "generic"))
        suffix = ".shared" if space == "shared" else ""
        opcode = f"{kind}.sync.aligned.m8n8.x{count}{trans}{suffix}.b16"
        narrow = narrow and space == "shared"
        sources = int(kind == "stmatrix")
        return Access(
            number, opcode, kind, space, 4, count, sources, offset, self._column(), narrow=narrow
        )

    def _fixed_place(self, space: str, size: int) -> dict[str, object]:
        """The address of a variable, or a number; most lie inside."""
        draw = self._random
        names = {"global": "g", "shared": "s", "local": "l", "const": "c", "param": ""}
        room = VARIABLE_BYTES if space == "global" else self.sizes.get(space, 8 * len(PARAMETERS))
        inside = draw.randrange(max(room - size, 0) + 1) // size * size
        wild = (room - size + 1, room, -size, -1, 1, 2 * room)
        offset = draw.choice([*[inside] * 12, *wild])
        variable = names[space] if space == "global" else draw.choice((names[space], ""))
        return {"column": None, "variable": variable, "offset": offset}

    def _cvta(self, space: str) -> tuple[str, int]:
        """An opcode by which the address of the table becomes that of a state space."""
        draw = self._random
        if draw.randrange(3):
            return "", 0
        other = draw.choice(list(WINDOWS)) if space == "generic" else space
        window = 0 if other == "global" else WINDOWS[other]
        if space == "generic":
            return f"cvta.{other}.u64", window
        return f"cvta.to.{other}.u64", -window

    def _offset(self) -> int:
        draw = self._random
        near = (0, 0, 0, 0, 4, 16, -16, 64)
        far = (draw.randrange(-(2**31), 2**31), 2**62 - 1024, 1024 - 2**62, 2**40)
        return draw.choice(far) // 16 * 16 if draw.randrange(8) == 0 else draw.choice(near)

    def _column(self) -> int:
        self._columns += 1
        return self._columns - 1

    # --- Text ----------------------------------------------------------------------------------

    def _body(self, clusters: list[list[Access]]) -> Iterator[str]:
        registers = 4 * _ELEMENTS
        yield f"""
.reg .pred %p, %g<3>; .reg .b32 %t<4>, %guards, %skips, %trips, %spare, %turn, %chosen;
.reg .b32 %n<{self._columns}>; .reg .b64 %a<{self._columns}>, %v, %w, %key, %table, %words, %out;
.reg .b16 %h<{registers}>; .reg .b32 %r<{registers}>;
.reg .b64 %d<{registers}>; .reg .b128 %q<{registers}>;
.shared .align 16 .b8 s[{self.sizes["shared"]}];
.local .align 16 .b8 l[{self.sizes["local"]}];
ld.param.u64 %table, [table]; ld.param.u64 %words, [words]; ld.param.u64 %out, [out];
ld.param.u32 %chosen, [chosen];
mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x;
mad.lo.u32 %t0, %t1, %t2, %t0;
mad.wide.u32 %words, %t0, 16, %words;
ld.global.v4.u32 {{%guards, %skips, %trips, %spare}}, [%words];
mad.wide.u32 %table, %t0, 8, %table; mad.wide.u32 %out, %t0, {SLOT_BYTES}, %out;
mul.wide.u32 %key, %t0, {TURNS}; mov.u32 %turn, 0;
Turn:"""
        for number, cluster in enumerate(clusters):
            yield f"and.b32 %t0, %chosen, {1 << number}; setp.eq.u32 %p, %t0, 0;"
            yield f"@%p bra After{number};"
            if not any(access.is_collective for access in cluster):
                yield f"and.b32 %t0, %skips, {1 << number}; setp.ne.u32 %p, %t0, 0;"
                yield f"@%p bra After{number};"
            yield from self._cluster(cluster)
            yield f"After{number}:"
        yield f"""
add.u64 %table, %table, {8 * MOST_THREADS * self._columns};
add.u64 %out, %out, {SLOT_BYTES * MOST_THREADS * ACCESSES};
add.u64 %key, %key, 1; add.u32 %turn, %turn, 1;
setp.lt.u32 %p, %turn, %trips;
@%p bra Turn;
ret;"""

    def _cluster(self, cluster: list[Access]) -> Iterator[str]:
        for column, access in {c: a for a in reversed(cluster) for c in a.columns}.items():
            yield f"ld.global.u64 %a{column}, [%table+{8 * MOST_THREADS * column}];"
            if access.cvta and column == access.column:
                yield f"{access.cvta} %a{column}, %a{column};"
            yield f"cvt.u32.u64 %n{column}, %a{column};"
        for slot, access in enumerate(cluster):
            yield f"and.b32 %t0, %guards, {1 << access.number}; setp.ne.u32 %g{slot}, %t0, 0;"
        for slot, access in enumerate(cluster):
            yield from self._instruction(access, slot)
        for slot, access in enumerate(cluster):
            if access.has_results:
                yield from self._kept_results(access, slot)

    def _instruction(self, access: Access, slot: int) -> Iterator[str]:
        base = access.variable or (f"%{'n' if access.narrow else 'a'}{access.column}")
        address = f"[{base}+{access.offset}]"
        if access.column is None and not access.variable:
            address = f"[0+{access.offset}]"
        operands = [_registers(access, slot)] if access.has_results else []
        operands.append(address)
        if access.kind == "copy":
            operands += [f"[%a{access.source_column}]", str(access.size)]
        for source in range(access.sources):
            yield from self._values(access, source)
            operands.append(_registers(access, 3 if source or access.sources == 1 else 2))
        yield f".loc 1 {access.number + 1} 1"
        yield f"{_guard(access, slot)}{access.opcode} {', '.join(operands)};"
        yield ".loc 1 1000 1"

    def _values(self, access: Access, source: int) -> Iterator[str]:
        """Compute what is stored: `WildProgram.stored_value`."""
        kind, bits = _KINDS[access.element_bytes], 8 * max(access.element_bytes, 2)
        compares = access.sources == 2 and source == 0
        for element in range(access.vector):
            register = f"%{kind}{_ELEMENTS * (2 if compares else 3) + element}"
            if compares:
                yield "mov.b64 %v, 0; mov.b64 %w, 0;"
            else:
                for name, place in (("%v", element), ("%w", element + _ELEMENTS)):
                    if name == "%v" or bits == 128:
                        addend = _addend(self.factors, access.number, place)
                        yield f"mad.lo.u64 {name}, %key, {self.factors[place]:#x}, {addend:#x};"
            if bits == 128:
                yield f"mov.b128 {register}, {{%v, %w}};"
            else:
                opcode = "mov.b64" if bits == 64 else f"cvt.u{bits}.u64"
                yield f"{opcode} {register}, %v;"

    def _kept_results(self, access: Access, slot: int) -> Iterator[str]:
        """Store what was loaded."""
        start = access.number * MOST_THREADS * SLOT_BYTES
        width = access.element_bytes
        count = min(access.vector, 4, max(16 // width, 1))
        for first in range(0, access.vector, count):
            vector = "" if count == 1 else f".v{count}"
            items = _registers(access, slot, first, count)
            place = f"[%out+{start + first * width}]"
            yield f"{_guard(access, slot)}st.global{vector}.b{8 * width} {place}, {items};"


_KINDS = {1: "h", 2: "h", 4: "r", 8: "d", 16: "q"}
"""The registers of an element, by its bytes."""


def _registers(access: Access, slot: int, first: int = 0, count: int | None = None) -> str:
    """The registers of an instruction's elements; each slot has eight."""
    count = access.vector if count is None else count
    kind, start = _KINDS[access.element_bytes], _ELEMENTS * slot + first
    names = [f"%{kind}{start + number}" for number in range(count)]
    return f"{{{', '.join(names)}}}" if count > 1 or access.is_collective else names[0]


def _guard(access: Access, slot: int) -> str:
    return f"{access.guard}%g{slot} " if access.guard else ""


def wild_program(seed: int) -> WildProgram:
    """The program with a number."""
    return _Writer(seed).program()
