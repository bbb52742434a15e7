"""Which pointers a kernel writes through, found from its PTX without running it."""

from __future__ import annotations

from collections.abc import Iterator
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

_STORES = ("st.", "red.", "atom.", "wmma.store.", "call", "cp.async.bulk.", "cp.reduce.")


@lru_cache(maxsize=32)
def stored_parameters(ptx: str, entry: str) -> frozenset[int] | None:
    """The numbers of the parameters that a kernel may use as addresses of stores and atomics.

    A value depends on a parameter if it is computed from it, but not if it is loaded from memory.
    A pointer that the kernel keeps in memory, or passes to a function that it calls, counts as one
    that it writes through. So no pointer that is written through is missing, unless the kernel
    loads it from memory that the host has filled.

    Args:
        ptx: The PTX.
        entry: The kernel's name in it.

    Returns:
        The numbers, from 0; None if the PTX cannot be parsed, or has no such kernel.
    """
    try:
        function = parse_ptx(ptx).entries.get(entry)
    except PtxError:
        return None
    return None if function is None else _stored(function)


def _stored(function: PtxFunction) -> frozenset[int]:
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
    used = (
        name
        for each in function.instructions
        if each.opcode.startswith(_STORES)
        for operand in each.operands
        for name in _names(operand)
    )
    return frozenset().union(*(origins.get(name, frozenset()) for name in used))


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
