"""Which array an address was meant for, read off the program.

An address that strays into the next array is inside memory all the same. What it was computed from
says where it belongs: the registers are followed from the kernel's pointers, without regard to the
order of instructions. Where several pointers flow together, or one comes from memory, nothing is
said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.program.program import DecodedInstruction, Program, destinations
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    DestinationPair,
    Negated,
    Operand,
    Register,
    Symbol,
    Vector,
)

PointerOrigin: TypeAlias = tuple[str, int]
"""A state space, and one of its arrays by their order in it."""

_POINTER_BYTES = 8
_UNKNOWN_ORIGIN: PointerOrigin = ("", -1)


def find_pointer_origins(
    program: Program, memory: GlobalMemory, parameters: bytes
) -> dict[int, PointerOrigin]:
    """Find the array of each access to global, shared and constant memory.

    Args:
        program: The program.
        memory: What the kernel's pointers point into.
        parameters: The parameter space of the launch.

    Returns:
        Instruction index to array, where it is known.
    """
    at = {each.address: ("global", number) for number, each in enumerate(memory.allocations)}
    named = {each.name: at[memory.find(each.name).address] for each in program.globals}
    for space, places in (("shared", program.shared), ("const", program.const)):
        by_start = sorted(places, key=places.__getitem__)
        named |= {name: (space, number) for number, name in enumerate(by_start)}
    known: dict[str, frozenset[PointerOrigin]] = {}
    changed = True
    while changed:
        changed = False
        for step in program.steps:
            found = _result_origins(step, program, parameters, at, named, known)
            for each in destinations(step) if found else ():
                if isinstance(each, Register):
                    before = known.get(each.name, frozenset())
                    if not found <= before:
                        known[each.name], changed = before | found, True
    meant = {}
    for index, step in enumerate(program.steps):
        for operand in step.instruction.operands:
            if isinstance(operand, Address) and operand.base is not None:
                sources = _operand_origins(operand.base, named, known)
                if len(sources) == 1 and _UNKNOWN_ORIGIN not in sources:
                    (meant[index],) = sources
    return meant


def _result_origins(
    step: DecodedInstruction,
    program: Program,
    parameters: bytes,
    at: Mapping[int, PointerOrigin],
    named: Mapping[str, PointerOrigin],
    known: Mapping[str, frozenset[PointerOrigin]],
) -> frozenset[PointerOrigin]:
    """The arrays that an instruction's result may point into."""
    row, operands = step.row, step.instruction.operands
    if not row.to or row.to[0] == "pred":
        return frozenset()
    if row.space == "param":
        return _argument_origins(operands[1], row.vector, program, parameters, at)
    if row.kind in ("load", "atomic"):
        wide = TYPE_BYTES[row.to[0]] >= _POINTER_BYTES
        return frozenset((_UNKNOWN_ORIGIN,)) if wide else frozenset()
    found: frozenset[PointerOrigin] = frozenset()
    for operand in operands[1:]:
        for each in _scalar_operands(operand):
            found |= _operand_origins(each, named, known)
    return found


def _argument_origins(
    source: Operand,
    count: int,
    program: Program,
    parameters: bytes,
    at: Mapping[int, PointerOrigin],
) -> frozenset[PointerOrigin]:
    """The array that an argument, or a member of one, points to; those of a vector load."""
    if not isinstance(source, Address) or not isinstance(source.base, Symbol):
        return frozenset((_UNKNOWN_ORIGIN,))
    start = program.parameters.get(source.base.name, len(parameters)) + source.offset
    words = [
        int.from_bytes(parameters[start + 8 * each : start + 8 * each + 8], "little")
        for each in range(count)
    ]
    return frozenset(at[each] for each in words if each in at)


def _operand_origins(
    operand: Operand,
    named: Mapping[str, PointerOrigin],
    known: Mapping[str, frozenset[PointerOrigin]],
) -> frozenset[PointerOrigin]:
    if isinstance(operand, Register):
        return known.get(operand.name, frozenset())
    if isinstance(operand, Symbol) and operand.name in named:
        return frozenset((named[operand.name],))
    return frozenset()


def _scalar_operands(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Vector):
        yield from operand.items
    elif isinstance(operand, DestinationPair):
        yield from (operand.first, operand.second)
    else:
        yield operand.register if isinstance(operand, Negated) else operand
