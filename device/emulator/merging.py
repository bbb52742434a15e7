"""Which neighbouring shared-memory loads ptxas turns into one wider load.

Hardware counts the instructions of the machine code. In it, 4-byte `ld.shared` of one thread
from consecutive words are one 8- or 16-byte load wherever the alignment can be proved; the
counters must follow. What each load counts as is a width: its own, 8 or 16 for the load that
leads a merged group, 0 for the others in the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from memlab.device.emulator.isa import Row
from memlab.device.emulator.parser import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
)

_WIDEST_BYTES = 16  # LDS.128 is the widest shared-memory load


def counted_widths(
    instructions: Sequence[Instruction],
    rows: Sequence[Row],
    leaders: Iterable[int],
    symbol_alignment: Mapping[str, int],
) -> dict[int, int]:
    """Find the loads that are merged.

    Args:
        instructions: The program.
        rows: Their rows in the table.
        leaders: Where basic blocks begin.
        symbol_alignment: Alignment of each shared variable's address, bytes.

    Returns:
        Instruction index to the width in bytes that it counts with, for merged loads only.
    """
    alignment = register_alignment(instructions, symbol_alignment)
    starts = set(leaders)
    widths: dict[int, int] = {}
    pending: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    def flush() -> None:
        for (base, size), loads in pending.items():
            known = alignment.get(base, symbol_alignment.get(base, 1))
            widths.update(_merge(loads, size, known))
        pending.clear()

    for index, (instruction, row) in enumerate(zip(instructions, rows, strict=True)):
        if index in starts:
            flush()
        if row.kind == "load" and row.space == "shared" and row.vector == 1 and not instruction.guard:
            address = instruction.operands[1]
            size = TYPE_BYTES[row.to[0]]
            if isinstance(address, Address) and address.base is not None and size in (4, 8):
                pending[address.base.name, size].setdefault(address.offset, index)
        elif row.kind not in ("lanes", "load") or (row.kind == "store" and row.space == "shared"):
            flush()
        if instruction.operands and isinstance(instruction.operands[0], Register):
            redefined = instruction.operands[0].name
            if any(base == redefined for base, _ in pending):
                flush()
    flush()
    return widths


def _merge(loads: Mapping[int, int], size: int, alignment: int) -> dict[int, int]:
    """Cover offsets with the widest aligned groups, widest first."""
    widths: dict[int, int] = {}
    left = set(loads)
    for width in (16, 8):
        if width <= size or alignment < width:
            continue
        for offset in sorted(left):
            members = [offset + step for step in range(0, width, size)]
            if offset % width == 0 and left.issuperset(members):
                left.difference_update(members)
                widths.update({loads[member]: 0 for member in members})
                widths[loads[offset]] = width
    return widths


def register_alignment(
    instructions: Sequence[Instruction], symbol_alignment: Mapping[str, int]
) -> dict[str, int]:
    """The power of two, up to 16, that divides each register's value for certain.

    Starts from the best and lowers until nothing changes, so loop-carried values are right.
    """
    definitions: dict[str, list[Instruction]] = defaultdict(list)
    for instruction in instructions:
        if instruction.operands and isinstance(instruction.operands[0], Register):
            definitions[instruction.operands[0].name].append(instruction)
    known = dict.fromkeys(definitions, _WIDEST_BYTES)

    def of(operand: Operand) -> int:
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
            return of(sources[0])
        if name in ("add", "sub", "or", "min", "max", "selp"):
            return min(of(each) for each in sources[:2])
        if name == "and":
            return max(of(each) for each in sources)
        if name == "shl" and isinstance(sources[1], Immediate):
            return of(sources[0]) << min(sources[1].bits, 4)
        if name in ("mul", "mad") and suffix.split(".")[0] in ("lo", "wide"):
            product = of(sources[0]) * of(sources[1])
            return min([product, *(of(each) for each in sources[2:])])
        return 1

    changed = True
    while changed:
        changed = False
        for name, instances in definitions.items():
            value = min(min(result(each) for each in instances), _WIDEST_BYTES)
            if value < known[name]:
                known[name], changed = value, True
    return known


def _power_of_two(value: int) -> int:
    return min(value & -value, _WIDEST_BYTES) if value else _WIDEST_BYTES
