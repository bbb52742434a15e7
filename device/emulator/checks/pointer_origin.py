"""Pointer origins: the array that an address was computed from, by analysis of the program.

An address that strays into the next array is still inside memory. Its origin tells which array was
meant: registers are followed from the kernel's pointers, without regard to the order of
instructions. If several pointers flow together, or one is loaded from memory, the origin is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
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

Sources: TypeAlias = frozenset[tuple[str, int | str]]
"""What an address may be computed from: an array of shared or constant memory (its space and
index), a variable in global memory (`global` and its name), or a pointer among the arguments
(`param` and its byte offset)."""

_POINTER_BYTES = 8
_UNKNOWN: PointerOrigin = ("", -1)
_NOTHING: Sources = frozenset()


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
    sources = _find_pointer_sources(program)
    addresses = {variable.name: memory.find(variable.name).address for variable in program.globals}
    known: dict[Sources, set[PointerOrigin]] = {}
    for some in set(sources.values()):
        known[some] = arrays = set()
        for space, which in some:
            address = None
            if isinstance(which, str):
                address = addresses[which]
            elif space == "param":
                pointer = parameters[which : which + _POINTER_BYTES]
                address = int.from_bytes(pointer, "little")
            else:
                arrays.add((space, which))
            number = None if address is None else memory.array_number(address)
            if number is not None:
                arrays.add(("global", number))
    return {
        index: next(iter(known[some]))
        for index, some in sources.items()
        if len(known[some]) == 1 and _UNKNOWN not in known[some]
    }


@lru_cache(maxsize=32)
def _find_pointer_sources(program: Program) -> Mapping[int, Sources]:
    """What the address of each access may be computed from, by the instruction's index."""
    variables: dict[str, Sources] = {
        variable.name: frozenset((("global", variable.name),)) for variable in program.globals
    }
    for space, starts in (("shared", program.shared), ("const", program.const)):
        for number, name in enumerate(sorted(starts, key=starts.__getitem__)):
            variables[name] = frozenset(((space, number),))
    registers: dict[str, Sources] = {}

    def of(operand: Operand) -> Sources:
        if isinstance(operand, Register):
            return registers.get(operand.name, _NOTHING)
        return variables.get(operand.name, _NOTHING) if isinstance(operand, Symbol) else _NOTHING

    changed = True
    while changed:
        changed = False
        for step in program.steps:
            if not step.row.to or step.row.to[0] == "pred":
                continue
            new = _loaded_sources(step, program)
            if new is None:
                operands = step.instruction.operands[1:]
                new = _NOTHING.union(*(of(o) for operand in operands for o in _scalars(operand)))
            for to in destinations(step):
                if isinstance(to, Register) and not new <= of(to):
                    registers[to.name], changed = of(to) | new, True
    return {
        index: of(operand.base)
        for index, step in enumerate(program.steps)
        for operand in step.instruction.operands
        if isinstance(operand, Address) and operand.base is not None and of(operand.base)
    }


def _loaded_sources(step: DecodedInstruction, program: Program) -> Sources | None:
    """The pointers that an instruction may load; None if it computes its result."""
    row = step.row
    if row.space == "param":
        source = step.instruction.operands[1]
        if not isinstance(source, Address) or not isinstance(source.base, Symbol):
            return frozenset((_UNKNOWN,))
        if source.base.name not in program.parameters:
            return _NOTHING
        start = program.parameters[source.base.name] + source.offset
        return frozenset(("param", start + _POINTER_BYTES * n) for n in range(row.vector))
    if row.kind in ("load", "atomic"):
        return frozenset((_UNKNOWN,)) if TYPE_BYTES[row.to[0]] >= _POINTER_BYTES else _NOTHING
    return None


def _scalars(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, Vector):
        yield from operand.items
    else:
        yield operand
