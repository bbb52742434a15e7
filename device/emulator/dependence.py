"""Whether what a program does to memory depends on the data that it finds there.

Where it does not, blocks of one kind do the same, and a sample of them counts exactly; where it
does, a sample is an estimate. The analysis follows values, not time: what was ever computed from
data counts as data. So it may call a program dependent that is not, never the other way round.
"""

from __future__ import annotations

from memlab.device.emulator.parser import Address, Register
from memlab.device.emulator.program import Program, Step, reads, writes

_CONTROL = ("branch", "exit", "barrier")
_OWN = ("shared", "local", "param::func")
"""State spaces that hold nothing but what the program itself put there."""
_GIVEN = ("param", "const")
"""Those that are the same for all blocks: at a place that is no data, what they hold is none."""


def depends_on_data(program: Program) -> bool:
    """Say whether an address or a branch of a program depends on values loaded from memory.

    What is loaded from global memory, and what an atomic operation gives back, is data; arguments
    are none.
    """
    read = [frozenset(reads(step)) for step in program.steps]
    written = [tuple(writes(step)) for step in program.steps]
    data: set[str] = set()  # registers, and the names of state spaces that data was stored to
    known = -1
    while len(data) > known:
        known = len(data)
        for index, step in enumerate(program.steps):
            if _loads_data(step, data) or not data.isdisjoint(read[index]):
                if step.row.kind in ("store", "atomic", "reduce"):
                    data.update(_OWN if step.row.space == "generic" else (step.row.space,))
                data.update(written[index])
    return any(not data.isdisjoint(_decisive(step)) for step in program.steps)


def adds_up_globally(program: Program) -> bool:
    """Say whether blocks may put results together, with atomic operations on global memory."""
    return any(
        step.row.kind in ("atomic", "reduce") and step.row.space in ("global", "generic")
        for step in program.steps
    )


def _loads_data(step: Step, data: set[str]) -> bool:
    """Whether an instruction brings data out of memory."""
    kind, space = step.row.kind, step.row.space
    if kind == "atomic":
        return True
    return kind == "load" and space not in _GIVEN and (space not in _OWN or space in data)


def _decisive(step: Step) -> set[str]:
    """The registers that decide where an instruction goes, or what it does to memory."""
    found = {
        operand.base.name
        for operand in step.instruction.operands
        if isinstance(operand, Address) and isinstance(operand.base, Register)
    }
    guard = step.instruction.guard
    if guard is not None and (step.row.space or step.row.kind in _CONTROL):
        found.add(guard)
    return found
