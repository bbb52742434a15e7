"""Which pointers a kernel reads and writes through, found from its PTX without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from memlab.device.emulator.ptx.parser import (
    Address,
    Instruction,
    Operand,
    PtxError,
    PtxFunction,
    Symbol,
    parse_ptx,
    registers_of,
)


@dataclass(frozen=True)
class ParameterUses:
    """The numbers of the parameters, from 0, that a kernel may use as addresses.

    Attributes:
        stored: Those of stores and atomics.
        loaded: Those of loads and atomics.
    """

    stored: frozenset[int]
    loaded: frozenset[int]


_STORES = ("st.", "red.", "atom.", "wmma.store.", "call", "cp.async.bulk.", "cp.reduce.")
_PLAIN_STORES = ("st.", "wmma.store.", "cp.async.bulk.")
"""Stores that read nothing where they store."""
_BULK_COPY = "cp.async.bulk."
_BULK_LOADS = (".shared::cluster.global", ".shared::cta.global", ".prefetch.")
"""The directions of bulk copies that do not write global memory."""
_LOADS = ("ld.", "ldu.", "wmma.load.", "cp.async.", "prefetch")


@lru_cache(maxsize=32)
def parameter_uses(ptx: str, entry: str) -> ParameterUses | None:
    """The numbers of the parameters that a kernel may use as addresses.

    A value depends on a parameter if it is computed from it, but not if it is loaded from memory.
    A pointer that the kernel keeps in memory, or passes to a function that it calls, counts as one
    that it writes through. So no pointer that is written through is missing, unless the kernel
    loads it from memory that the host has filled.

    Args:
        ptx: The PTX.
        entry: The kernel's name in it.

    Returns:
        The uses; None if the PTX cannot be parsed, or has no such kernel.
    """
    try:
        function = parse_ptx(ptx).entries.get(entry)
    except PtxError:
        return None
    return None if function is None else _uses(function)


def _uses(function: PtxFunction) -> ParameterUses:
    origins = {each.name: frozenset([i]) for i, each in enumerate(function.parameters)}
    steps = [
        (list(_names(each.operands[0])), set(_sources(each)))
        for each in function.instructions
        if len(each.operands) > 1 and not each.opcode.startswith(_STORES)
    ]
    changed = True
    while changed:  # loops carry values back
        changed = False
        for results, sources in steps:
            found = frozenset().union(*(origins.get(name, frozenset()) for name in sources))
            for name in results:
                known = origins.get(name, frozenset())
                if not found <= known:
                    origins[name], changed = known | found, True

    def reached(names: Iterable[str]) -> frozenset[int]:
        return frozenset().union(*(origins.get(name, frozenset()) for name in names))

    code = function.instructions
    return ParameterUses(
        stored=reached(name for each in code for name in _stored_names(each)),
        loaded=reached(name for each in code for name in _loaded_names(each)),
    )


def _is_store(opcode: str) -> bool:
    is_bulk_load = opcode.startswith(_BULK_COPY) and any(each in opcode for each in _BULK_LOADS)
    return opcode.startswith(_STORES) and not is_bulk_load


def _stored_names(instruction: Instruction) -> Iterator[str]:
    """The names in an instruction that stores."""
    if _is_store(instruction.opcode):
        for operand in instruction.operands:
            yield from _names(operand)


def _loaded_names(instruction: Instruction) -> Iterator[str]:
    """The names in the addresses that an instruction reads, and those that it gives away."""
    opcode = instruction.opcode
    if _is_store(opcode):
        is_plain = opcode.startswith(_PLAIN_STORES)
        for operand in instruction.operands[1:] if is_plain else instruction.operands:
            yield from _names(operand)
    elif opcode.startswith(_LOADS) and ".param" not in opcode:
        for operand in instruction.operands:
            if isinstance(operand, Address) or opcode.startswith(_BULK_COPY):
                yield from _names(operand)


def _sources(instruction: Instruction) -> Iterator[str]:
    """The names that an instruction's result is computed from; loads from memory give none."""
    is_load = instruction.opcode.startswith(("ld.", "ldu.")) and ".param" not in instruction.opcode
    for operand in instruction.operands[1:]:
        if not (is_load and isinstance(operand, Address)):
            yield from _names(operand)


def _names(operand: Operand) -> Iterator[str]:
    """The registers and variables of an operand."""
    yield from registers_of(operand)
    named = operand.base if isinstance(operand, Address) else operand
    if isinstance(named, Symbol):
        yield named.name
