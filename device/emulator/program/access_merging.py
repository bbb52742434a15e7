"""Predicts which neighbouring shared-memory accesses ptxas merges into one wider access.

The hardware counts instructions of the machine code. There, loads of one thread from consecutive
words are one load of 8 or 16 bytes wherever ptxas can prove the alignment, and likewise stores. The
counters must follow. So each access is counted with a width: its own; the group's width for the
access that leads a merged group; 0 for the others in the group.

The rules were derived from cubins that NVRTC 13 makes for compute capability 7.5 to 12.0. A group
has 2 or 4 elements, at most 16 bytes, aligned to its size. Stores need all elements, of 2 bytes or
more. Loads need elements of 4 bytes or more; of four elements, one may be missing. Volatile
accesses are not merged. Not modelled: ptxas also merges some 2-byte loads, depending on the use of
their values, and accesses of basic blocks that it joins by predication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from memlab.device.emulator.isa.table import Row
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
)

_WIDEST_BYTES = 16  # LDS.128 and STS.128 are the widest
_GROUPS = (4, 2)  # elements of one wide access, tried in this order
_LEAST_BYTES = {"load": 4, "store": 2}  # elements narrower than this are not merged
_LEAST_OF_FOUR = {"load": 3, "store": 4}  # elements needed to merge a group of four

_ORDERING = frozenset({"exit", "barrier", "nothing"})  # kinds that accesses are not moved across


class _Pending:
    """Accesses of one direction that may still be merged, by base and element size."""

    def __init__(self, direction: str, alignment: Mapping[str, int]) -> None:
        self.direction, self.alignment = direction, alignment
        self.widths: dict[int, int] = {}
        self._accesses: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    def add(self, index: int, address: Address, size: int) -> None:
        """Add an access of `size` bytes."""
        if address.base is not None and size >= _LEAST_BYTES[self.direction]:
            self._accesses[address.base.name, size].setdefault(address.offset, index)

    def redefine(self, register: str) -> None:
        """Merge the accesses by a register that gets a new value."""
        for base, size in [key for key in self._accesses if key[0] == register]:
            self._merge(base, size, self._accesses.pop((base, size)))

    def flush(self) -> None:
        """Merge all pending accesses."""
        for (base, size), accesses in self._accesses.items():
            self._merge(base, size, accesses)
        self._accesses.clear()

    def _merge(self, base: str, size: int, accesses: Mapping[int, int]) -> None:
        """Cover the offsets with aligned groups, the widest first."""
        remaining = set(accesses)
        for count in _GROUPS:
            width = count * size
            if width > min(_WIDEST_BYTES, self.alignment.get(base, 1)):
                continue
            needed = _LEAST_OF_FOUR[self.direction] if count == 4 else count
            for start in sorted({offset // width * width for offset in remaining}):
                members = sorted(remaining.intersection(range(start, start + width, size)))
                if len(members) >= needed:
                    remaining.difference_update(members)
                    self.widths.update({accesses[member]: 0 for member in members})
                    self.widths[accesses[members[0]]] = width


def merged_widths(
    instructions: Sequence[Instruction],
    rows: Sequence[Row],
    leaders: Iterable[int],
    symbol_alignment: Mapping[str, int],
) -> dict[int, int]:
    """Find the accesses that are merged.

    Args:
        instructions: The instructions of the program.
        rows: Their rows in the instruction table.
        leaders: Positions where basic blocks begin.
        symbol_alignment: Alignment of each shared variable's address in bytes.

    Returns:
        The width in bytes that each merged access is counted with, by its position.
    """
    alignment = {**symbol_alignment, **register_alignment(instructions, symbol_alignment)}
    loads, stores = _Pending("load", alignment), _Pending("store", alignment)
    starts = set(leaders)
    for index, (instruction, row) in enumerate(zip(instructions, rows, strict=True)):
        if index in starts or row.kind in _ORDERING:
            loads.flush()
            stores.flush()
        elif row.space in ("shared", "generic") and row.kind != "lanes":
            # Accesses that may overlap keep their order.
            if row.kind != "load":
                loads.flush()
            if row.kind != "store" or row.space == "generic":
                stores.flush()
        mergeable = row.kind in ("load", "store") and row.space == "shared" and row.vector == 1
        if mergeable and not instruction.guard and "volatile" not in instruction.opcode:
            is_load = row.kind == "load"
            address = instruction.operands[1 if is_load else 0]
            assert isinstance(address, Address)
            size = TYPE_BYTES[(row.to if is_load else row.of)[0]]
            (loads if is_load else stores).add(index, address, size)
        if instruction.operands and isinstance(instruction.operands[0], Register):
            loads.redefine(instruction.operands[0].name)
            stores.redefine(instruction.operands[0].name)
    loads.flush()
    stores.flush()
    return loads.widths | stores.widths


def register_alignment(
    instructions: Sequence[Instruction], symbol_alignment: Mapping[str, int]
) -> dict[str, int]:
    """The largest power of two, up to 16, that provably divides each register's value.

    A fixed-point iteration from 16 downward, so that loop-carried values come out right.
    """
    definitions: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in instructions:
        if instruction.operands and isinstance(instruction.operands[0], Register):
            definitions[instruction.operands[0].name].append(instruction)
    known = dict.fromkeys(definitions, _WIDEST_BYTES)

    def alignment(operand: Operand) -> int:
        if isinstance(operand, Register):
            return known.get(operand.name, 1)
        if isinstance(operand, Immediate):
            return _power_of_two(operand.bits)
        if isinstance(operand, Symbol):
            return min(symbol_alignment.get(operand.name, 1), _power_of_two(operand.offset))
        return 1

    def result(instruction: Instruction) -> int:
        name, _, suffix = instruction.opcode.partition(".")
        sources = instruction.operands[1:]
        if name in ("mov", "cvta", "cvt"):
            return alignment(sources[0])
        if name in ("add", "sub", "or", "min", "max", "selp"):
            return min(map(alignment, sources[:2]))
        if name == "and":
            return max(map(alignment, sources))
        if name == "shl" and isinstance(sources[1], Immediate):
            return alignment(sources[0]) << min(sources[1].bits & 0xFFFF_FFFF, 4)
        if name in ("mul", "mad") and suffix.split(".")[0] in ("lo", "wide"):
            product = alignment(sources[0]) * alignment(sources[1])
            return min([product, *map(alignment, sources[2:])])
        return 1

    changed = True
    while changed:
        changed = False
        for name, instances in definitions.items():
            value = min(_WIDEST_BYTES, *map(result, instances))
            if value < known[name]:
                known[name], changed = value, True
    return known


def _power_of_two(value: int) -> int:
    """The largest power of two, up to 16, that divides a value."""
    return min(value & -value, _WIDEST_BYTES) if value else _WIDEST_BYTES
