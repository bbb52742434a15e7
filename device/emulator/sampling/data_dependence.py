"""Tells whether a program's control flow or addresses depend on data in memory.

Where they do not, the blocks of a class do the same, and a sample of them counts exactly. Where
they do, a sample gives an estimate. The analysis is flow-insensitive: a register that ever holds a
value computed from data counts as data throughout. So it may call an independent program dependent,
but never a dependent one independent.
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
"""State spaces that hold only values that the block itself stored."""
_CONSTANT_SPACES = ("param", "const")
"""State spaces that are the same for all blocks: a value is data only if its address is."""


def depends_on_data(program: Program) -> bool:
    """Whether an address or a branch of a program depends on values loaded from memory.

    Values loaded from global memory and results of atomic operations are data; arguments are not.
    """
    read = [frozenset(registers_read(step)) for step in program.steps]
    written = [tuple(registers_written(step)) for step in program.steps]
    data: set[str] = set()  # registers, and the names of state spaces that data was stored to
    growing = True
    while growing:
        known = len(data)
        for index, step in enumerate(program.steps):
            if _loads_data(step, data) or not data.isdisjoint(read[index]):
                if step.row.kind in ("store", "atomic", "reduce"):
                    data.update(_BLOCK_SPACES if step.row.space == "generic" else (step.row.space,))
                data.update(written[index])
        growing = len(data) > known
    return any(not data.isdisjoint(_decision_registers(step)) for step in program.steps)


def decision_sources(program: Program) -> tuple[set[str], set[str]]:
    """The sources of a program's branches and addresses.

    Returns:
        Registers; and the state spaces private to a block that such registers are loaded from.
    """
    steps = [
        (step, frozenset(registers_read(step)), frozenset(registers_written(step)))
        for step in program.steps
    ]
    registers: set[str] = set().union(*map(_decision_registers, program.steps))
    spaces: set[str] = set()
    growing = True
    while growing:
        known = len(registers) + len(spaces)
        for step, read, written in steps:
            kind, space = step.row.kind, step.row.space
            accessed = {"generic": set(_BLOCK_SPACES)}.get(space, {space} & {*_BLOCK_SPACES})
            if kind in ("load", "atomic") and not registers.isdisjoint(written):
                spaces |= accessed
            stored = kind in ("store", "atomic", "reduce") and not spaces.isdisjoint(accessed)
            if stored or not registers.isdisjoint(written):
                registers |= read
        growing = len(registers) + len(spaces) > known
    return registers, spaces


def sign_only_registers(program: Program) -> set[str]:
    """The registers that are only ever tested for their sign, as in `(x | y) < 0`.

    Compilers combine comparisons with 0 in this way: the sign of a bitwise operation depends on the
    signs of its sources alone.
    """
    sign_only = {name for step in program.steps for name in registers_written(step)}
    shrinking = True
    while shrinking:
        known = len(sign_only)
        for step in program.steps:
            passes_on = is_bitwise(step) and sign_only.issuperset(registers_written(step))
            if not (passes_on or _tests_sign(step)):
                sign_only.difference_update(registers_read(step))
        shrinking = len(sign_only) < known
    return sign_only


def is_bitwise(step: DecodedInstruction) -> bool:
    """Whether an instruction computes each bit from the same bit of its sources."""
    return step.row.opcode.split(".")[0] in ("and", "or", "xor", "not")


def has_global_atomics(program: Program) -> bool:
    """Whether blocks may combine results by atomic operations on global memory."""
    return any(
        step.row.kind in ("atomic", "reduce") and step.row.space in ("global", "generic")
        for step in program.steps
    )


def _loads_data(step: DecodedInstruction, data: set[str]) -> bool:
    """Whether an instruction loads data."""
    kind, space = step.row.kind, step.row.space
    if kind == "atomic":
        return True
    return (
        kind == "load"
        and space not in _CONSTANT_SPACES
        and (space not in _BLOCK_SPACES or space in data)
    )


def _tests_sign(step: DecodedInstruction) -> bool:
    """Whether an instruction is a comparison of a register with 0 or -1 that tests its sign."""
    name, *rest = step.row.opcode.split(".")
    if name != "setp" or rest[-1] not in ("s16", "s32", "s64"):
        return False
    bound = step.instruction.operands[2]
    if not isinstance(bound, Immediate):
        return False
    return (rest[0], bound.bits) in (("lt", 0), ("ge", 0), ("gt", -1), ("le", -1))


def _decision_registers(step: DecodedInstruction) -> set[str]:
    """The registers that decide whether an instruction is executed, and at which address."""
    registers = {
        operand.base.name
        for operand in step.instruction.operands
        if isinstance(operand, Address) and isinstance(operand.base, Register)
    }
    if step.instruction.guard is not None:
        registers.add(step.instruction.guard)
    return registers
