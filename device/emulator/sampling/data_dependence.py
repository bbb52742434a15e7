"""Tells whether a program's control flow or addresses depend on data in memory.

Where they do not, the blocks of a class do the same, and a sample of them counts exactly. Where
they do, a sample gives an estimate. The analyses are flow-insensitive: a register that ever holds a
value computed from data counts as data throughout. So they may call an independent program
dependent, but never a dependent one independent.
"""

from __future__ import annotations

from collections.abc import Iterator

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.isa.asynchronous.tensor_copies import MAP_VIEW
from memlab.device.emulator.program.branch_regions import BranchRegions
from memlab.device.emulator.program.program import (
    ATOMIC_KINDS,
    WRITING_KINDS,
    DecodedInstruction,
    Program,
    address_registers,
)
from memlab.device.emulator.ptx.parser import Immediate, Operand, registers_of

_BARRIERS = "mbarrier"
"""Stands for the words of mbarriers, apart from the rest of shared memory: what copies move changes
none of them."""
_MAPS = "tensormap"
"""Stands for tensor maps, where a program changes them."""
_BLOCK_SPACES = frozenset({"shared", "local", "param::func", _BARRIERS})
"""State spaces that hold only values that the block itself stored."""
_CONSTANT_SPACES = ("param", "const")
"""State spaces that are the same for all blocks: a value is data only if its address is."""


def until_stable(
    program: Program, names: set[str]
) -> Iterator[tuple[DecodedInstruction, frozenset[str], frozenset[str]]]:
    """Yield the instructions again and again, until the caller adds no more names to a set.

    Args:
        program: The program.
        names: Names of registers, and of state spaces for what they hold.

    Yields:
        Each instruction, with the registers that it reads and those that it writes.
    """
    steps = [
        (step, frozenset(step.registers_read), frozenset(step.registers_written))
        for step in program.steps
    ]
    known = -1
    while len(names) > known:
        known = len(names)
        yield from steps


def depends_on_data(program: Program) -> bool:
    """Whether an address or a branch of a program depends on values loaded from memory.

    Values loaded from global memory and results of atomic operations are data; arguments are not.
    """
    data = _changed_maps(program)
    for step, read, written in until_stable(program, data):
        if _loads_data(step, data) or not data.isdisjoint(read):
            data |= written
            if step.row.kind in WRITING_KINDS:
                data |= block_spaces(step)
    return any(not data.isdisjoint(_decision_registers(step)) for step in program.steps)


def data_decided_writes(program: Program) -> frozenset[int]:
    """The writes to memory of which data decides whether, how often or where they happen.

    It decides by an address, a guard, or a branch, if the write lies before the place where the
    arms of the branch meet again. What is computed there counts as data, too.
    """
    steps = program.steps
    data, deciding, decided = _changed_maps(program), set[int](), set[int]()
    regions = BranchRegions(steps)
    flows = [(frozenset(s.registers_read), frozenset(s.registers_written)) for s in steps]
    known = (-1, -1)
    while known != (len(data), len(decided)):
        known = len(data), len(decided)
        for index, (step, (read, written)) in enumerate(zip(steps, flows, strict=True)):
            if not data.isdisjoint(_decision_registers(step)) and index not in deciding:
                deciding.add(index)
                decided.add(index)
                if step.row.kind in ("branch", "exit"):
                    decided.update(regions.decided_by(index))
            if index in decided or _loads_data(step, data) or not data.isdisjoint(read):
                data |= written
                if step.row.kind in WRITING_KINDS:
                    data |= block_spaces(step)
    return frozenset(index for index in decided if steps[index].row.kind in WRITING_KINDS)


def decision_sources(program: Program) -> tuple[set[str], set[str]]:
    """The sources of a program's branches and addresses.

    Returns:
        Registers; and the state spaces private to a block that such registers are loaded from.
    """
    names: set[str] = set().union(*map(_decision_registers, program.steps))
    for step, read, written in until_stable(program, names):
        kind, spaces = step.row.kind, block_spaces(step)
        decides = not names.isdisjoint(written)
        if decides and kind in ("load", "atomic"):
            names |= spaces
        if decides or (kind in WRITING_KINDS and not names.isdisjoint(spaces)):
            names |= read
    return names - _BLOCK_SPACES, names & _BLOCK_SPACES


def sign_only_registers(program: Program) -> set[str]:
    """The registers that are only ever tested for their sign, as in `(x | y) < 0`.

    Compilers combine comparisons with 0 in this way: the sign of a bitwise operation depends on the
    signs of its sources alone.
    """
    others: set[str] = set()
    for step, read, written in until_stable(program, others):
        passes_on = is_bitwise(step) and others.isdisjoint(written)
        if not (passes_on or _tests_sign(step)):
            others |= read
    return {name for step in program.steps for name in step.registers_written} - others


def is_bitwise(step: DecodedInstruction) -> bool:
    """Whether an instruction computes each bit from the same bit of its sources."""
    return step.row.opcode.split(".")[0] in ("and", "or", "xor", "not")


def has_global_atomics(program: Program) -> bool:
    """Whether blocks may combine results by atomic operations on global memory."""
    return any(
        step.row.kind in ATOMIC_KINDS and step.row.space in ("global", "generic")
        for step in program.steps
    )


def atomics_decide_paths(program: Program) -> bool:
    """Whether a branch depends on what an atomic operation on global memory returns.

    Then what a thread executes may depend on which others run at the same time.
    """
    found = set[str]()
    for step, read, written in until_stable(program, found):
        returns = step.row.kind == "atomic" and step.row.space in ("global", "generic")
        if returns or not found.isdisjoint(read):
            found |= written
    return any(
        step.row.kind in ("branch", "exit") and not found.isdisjoint(_decision_registers(step))
        for step in program.steps
    )


def block_spaces(step: DecodedInstruction) -> frozenset[str]:
    """The state spaces private to a block that an instruction may access."""
    if step.row.view == MAP_VIEW:
        return frozenset()
    if mbarrier.is_access(step.instruction):
        return frozenset({_BARRIERS})
    spaces = _BLOCK_SPACES - {_BARRIERS}
    return spaces if step.row.space == "generic" else spaces & {step.row.space}


def _changed_maps(program: Program) -> set[str]:
    """The mark of tensor maps as data, where the program writes some itself."""
    writes = (each.row.view == MAP_VIEW and each.row.kind == "store" for each in program.steps)
    return {_MAPS} if any(writes) else set()


def _loads_data(step: DecodedInstruction, data: set[str]) -> bool:
    """Whether an instruction loads data; an address that `malloc` gives is data, too."""
    kind, space = step.row.kind, step.row.space
    if mbarrier.is_access(step.instruction):
        return _BARRIERS in data
    own = space in _CONSTANT_SPACES or (space in _BLOCK_SPACES and space not in data)
    own |= step.row.view == MAP_VIEW and _MAPS not in data
    return kind in ("atomic", "heap") or (kind == "load" and not own)


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
    """The registers that decide whether an instruction is executed, where, and on what size.

    Of a barrier, those that name it and count its threads.
    """
    guard, barrier = step.instruction.guard, step.row.kind in ("barrier", "arrive")
    decides = address_registers(step) | (set() if guard is None else {guard})
    named = step.instruction.operands if barrier else sizes_of(step)
    return decides.union(*map(registers_of, named))


def sizes_of(step: DecodedInstruction) -> tuple[Operand, ...]:
    """The operands from which a bulk copy takes how many bytes it moves."""
    return step.instruction.operands[2:] if is_bulk_access(step.row) else ()
