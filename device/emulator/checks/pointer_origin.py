"""Pointer origins: the array that an address was computed from, by analysis of the program.

An address that strays into the next array is still inside memory. Its origin tells which array was
meant: registers are followed from the kernel's pointers, without regard to the order of
instructions. If several pointers flow together, or one is loaded from memory, the origin is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.program.program import DecodedInstruction, Program, destinations
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Operand,
    Register,
    Symbol,
    Vector,
)

PointerOrigin: TypeAlias = tuple[str, int]
"""A state space, and the index of one of its arrays."""

_POINTER_BYTES = 8
_UNKNOWN_ORIGIN: PointerOrigin = ("", -1)


def find_pointer_origins(
    program: Program, memory: GlobalMemory, parameters: bytes
) -> dict[int, PointerOrigin]:
    """Find the array of each access to global, shared and constant memory.

    Args:
        program: The program.
        memory: The memory that the kernel's pointers point to.
        parameters: The parameter space of the launch.

    Returns:
        The array by the index of the instruction, where it is known.
    """
    by_address = {
        array.address: ("global", number) for number, array in enumerate(memory.allocations)
    }
    by_symbol = {
        variable.name: by_address[memory.find(variable.name).address]
        for variable in program.globals
    }
    for space, starts in (("shared", program.shared), ("const", program.const)):
        by_start = sorted(starts, key=starts.__getitem__)
        by_symbol |= {name: (space, number) for number, name in enumerate(by_start)}
    by_register: dict[str, frozenset[PointerOrigin]] = {}
    changed = True
    while changed:
        changed = False
        for step in program.steps:
            new = _result_origins(step, program, parameters, by_address, by_symbol, by_register)
            for operand in destinations(step):
                if isinstance(operand, Register):
                    before = by_register.get(operand.name, frozenset())
                    if not new <= before:
                        by_register[operand.name], changed = before | new, True
    origins = {}
    for index, step in enumerate(program.steps):
        for operand in step.instruction.operands:
            if isinstance(operand, Address) and operand.base is not None:
                sources = _operand_origins(operand.base, by_symbol, by_register)
                if len(sources) == 1 and _UNKNOWN_ORIGIN not in sources:
                    (origins[index],) = sources
    return origins


def _result_origins(
    step: DecodedInstruction,
    program: Program,
    parameters: bytes,
    by_address: Mapping[int, PointerOrigin],
    by_symbol: Mapping[str, PointerOrigin],
    by_register: Mapping[str, frozenset[PointerOrigin]],
) -> frozenset[PointerOrigin]:
    """The arrays that an instruction's result may point into."""
    row, operands = step.row, step.instruction.operands
    if not row.to or row.to[0] == "pred":
        return frozenset()
    if row.space == "param":
        return _argument_origins(operands[1], row.vector, program, parameters, by_address)
    if row.kind in ("load", "atomic"):
        wide = TYPE_BYTES[row.to[0]] >= _POINTER_BYTES
        return frozenset((_UNKNOWN_ORIGIN,)) if wide else frozenset()
    origins: frozenset[PointerOrigin] = frozenset()
    for operand in operands[1:]:
        for scalar in _scalar_operands(operand):
            origins |= _operand_origins(scalar, by_symbol, by_register)
    return origins


def _argument_origins(
    source: Operand,
    count: int,
    program: Program,
    parameters: bytes,
    by_address: Mapping[int, PointerOrigin],
) -> frozenset[PointerOrigin]:
    """The array that a pointer argument, or a pointer in one, points to; several for a vector."""
    if not isinstance(source, Address) or not isinstance(source.base, Symbol):
        return frozenset((_UNKNOWN_ORIGIN,))
    start = program.parameters.get(source.base.name, len(parameters)) + source.offset
    pointers = [
        int.from_bytes(parameters[start + 8 * index : start + 8 * index + 8], "little")
        for index in range(count)
    ]
    return frozenset(by_address[pointer] for pointer in pointers if pointer in by_address)


def _operand_origins(
    operand: Operand,
    by_symbol: Mapping[str, PointerOrigin],
    by_register: Mapping[str, frozenset[PointerOrigin]],
) -> frozenset[PointerOrigin]:
    if isinstance(operand, Register):
        return by_register.get(operand.name, frozenset())
    if isinstance(operand, Symbol) and operand.name in by_symbol:
        return frozenset((by_symbol[operand.name],))
    return frozenset()


def _scalar_operands(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Vector):
        yield from operand.items
    else:
        yield operand
