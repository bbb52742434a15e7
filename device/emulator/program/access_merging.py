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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from memlab.device.emulator.isa.rows import CLUSTER_VIEW
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


class _Key(NamedTuple):
    """What accesses have in common that may be merged: kind, base register and element size."""

    kind: str
    base: str
    size: int


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
    widths: dict[int, int] = {}
    pending: dict[_Key, dict[int, int]] = defaultdict(dict)  # accesses by offset

    def merge(kinds: Collection[str] = tuple(_LEAST_BYTES), base: str = "") -> None:
        for key in [key for key in pending if key.kind in kinds and base in ("", key.base)]:
            widths.update(_merged(key, pending.pop(key), alignment.get(key.base, 1)))

    starts = set(leaders)
    for index, (instruction, row) in enumerate(zip(instructions, rows, strict=True)):
        kind, operands = row.kind, instruction.operands
        if index in starts or kind in _ORDERING:
            merge()
        elif row.space in ("shared", "generic") and kind != "lanes":
            # Accesses that may overlap keep their order.
            keeps = kind == "load" or row.space == "shared"
            merge({*_LEAST_BYTES} - {kind} if keeps else _LEAST_BYTES)
        plain = row.space == "shared" and row.view != CLUSTER_VIEW
        mergeable = kind in _LEAST_BYTES and plain and row.vector == 1
        if mergeable and not instruction.guard and "volatile" not in instruction.opcode:
            address = operands[1 if kind == "load" else 0]
            assert isinstance(address, Address)
            size = TYPE_BYTES[(row.to if kind == "load" else row.of)[0]]
            if address.base is not None and size >= _LEAST_BYTES[kind]:
                key = _Key(kind, address.base.name, size)
                pending[key].setdefault(address.offset, index)
        if operands and isinstance(operands[0], Register):  # it gets a new value
            merge(base=operands[0].name)
    merge()
    return widths


def _merged(key: _Key, accesses: Mapping[int, int], alignment: int) -> dict[int, int]:
    """Cover the offsets of accesses with aligned groups, the widest first; gives the widths."""
    widths, remaining = {}, set(accesses)
    for count in _GROUPS:
        width = count * key.size
        if width > min(_WIDEST_BYTES, alignment):
            continue
        needed = _LEAST_OF_FOUR[key.kind] if count == 4 else count
        for start in sorted({offset // width * width for offset in remaining}):
            members = sorted(remaining.intersection(range(start, start + width, key.size)))
            if len(members) >= needed:
                remaining.difference_update(members)
                widths.update({accesses[member]: 0 for member in members})
                widths[accesses[members[0]]] = width
    return widths


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
        if name in ("mov", "mapa", "cvta", "cvt"):
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
