"""Whether what a program does to memory depends on the data that it finds there.

Where it does not, blocks of one kind do the same, and a sample of them counts exactly; where it
does, a sample is an estimate. The analysis follows values, not time: what was ever computed from
data counts as data. So it may call a program dependent that is not, never the other way round.
"""

from __future__ import annotations

from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_read,
    registers_written,
)
from memlab.device.emulator.ptx.parser import Address, Immediate, Register

_BLOCK_SPACES = ("shared", "local", "param::func")
"""State spaces that hold nothing but what the program itself put there."""
_CONSTANT_SPACES = ("param", "const")
"""Those that are the same for all blocks: at a place that is no data, what they hold is none."""


def depends_on_data(program: Program) -> bool:
    """Say whether an address or a branch of a program depends on values loaded from memory.

    What is loaded from global memory, and what an atomic operation gives back, is data; arguments
    are none.
    """
    read = [frozenset(registers_read(step)) for step in program.steps]
    written = [tuple(registers_written(step)) for step in program.steps]
    data: set[str] = set()  # registers, and the names of state spaces that data was stored to
    known = -1
    while len(data) > known:
        known = len(data)
        for index, step in enumerate(program.steps):
            if _loads_data(step, data) or not data.isdisjoint(read[index]):
                if step.row.kind in ("store", "atomic", "reduce"):
                    data.update(_BLOCK_SPACES if step.row.space == "generic" else (step.row.space,))
                data.update(written[index])
    return any(not data.isdisjoint(_decision_registers(step)) for step in program.steps)


def decision_sources(program: Program) -> tuple[set[str], set[str]]:
    """Give all that addresses and branches of a program are computed from.

    Returns:
        Registers; and the state spaces of a block's own that such registers are loaded from.
    """
    steps = [
        (step, frozenset(registers_read(step)), frozenset(registers_written(step)))
        for step in program.steps
    ]
    registers: set[str] = set().union(*map(_decision_registers, program.steps))
    spaces: set[str] = set()
    known = -1
    while len(registers) + len(spaces) > known:
        known = len(registers) + len(spaces)
        for step, read, written in steps:
            kind, space = step.row.kind, step.row.space
            found = {"generic": set(_BLOCK_SPACES)}.get(space, {space} & {*_BLOCK_SPACES})
            if kind in ("load", "atomic") and not registers.isdisjoint(written):
                spaces |= found
            stored = kind in ("store", "atomic", "reduce") and not spaces.isdisjoint(found)
            if stored or not registers.isdisjoint(written):
                registers |= read
    return registers, spaces


def sign_only_registers(program: Program) -> set[str]:
    """Give the registers of which only the sign is ever asked, as in `(x | y) < 0`.

    Compilers join comparisons with 0 so; the sign of bitwise operations is that of their sources.
    """
    found = {name for step in program.steps for name in registers_written(step)}
    known = -1
    while len(found) != known:
        known = len(found)
        for step in program.steps:
            passes_on = is_bitwise(step) and found.issuperset(registers_written(step))
            if not (passes_on or _tests_sign(step)):
                found.difference_update(registers_read(step))
    return found


def is_bitwise(step: DecodedInstruction) -> bool:
    """Whether an instruction computes each bit from the same bit of its sources."""
    return step.row.opcode.split(".")[0] in ("and", "or", "xor", "not")


def has_global_atomics(program: Program) -> bool:
    """Say whether blocks may put results together, with atomic operations on global memory."""
    return any(
        step.row.kind in ("atomic", "reduce") and step.row.space in ("global", "generic")
        for step in program.steps
    )


def _loads_data(step: DecodedInstruction, data: set[str]) -> bool:
    """Whether an instruction brings data out of memory."""
    kind, space = step.row.kind, step.row.space
    if kind == "atomic":
        return True
    return (
        kind == "load"
        and space not in _CONSTANT_SPACES
        and (space not in _BLOCK_SPACES or space in data)
    )


def _tests_sign(step: DecodedInstruction) -> bool:
    """Whether an instruction compares one register with 0 or -1 so that the sign alone counts."""
    name, *rest = step.row.opcode.split(".")
    if name != "setp" or rest[-1] not in ("s16", "s32", "s64"):
        return False
    bound = step.instruction.operands[2]
    if not isinstance(bound, Immediate):
        return False
    return (rest[0], bound.bits) in (("lt", 0), ("ge", 0), ("gt", -1), ("le", -1))


def _decision_registers(step: DecodedInstruction) -> set[str]:
    """The registers that decide whether an instruction is done, and where in memory."""
    found = {
        operand.base.name
        for operand in step.instruction.operands
        if isinstance(operand, Address) and isinstance(operand.base, Register)
    }
    if step.instruction.guard is not None:
        found.add(step.instruction.guard)
    return found
