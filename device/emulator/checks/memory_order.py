"""How strong an access is: which two of them can race.

Atomic operations, and what the memory model calls relaxed, acquire or release, do not race with
each other. `volatile` does, but a polling volatile load does not race with an atomic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from memlab.device.emulator.program.program import DecodedInstruction, destinations
from memlab.device.emulator.ptx.parser import Address, Immediate, Operand, Register, Symbol

WEAK, VOLATILE, STRONG = 0, 1, 2
"""Two accesses race unless one is strong and the other at least volatile."""

DEVICE_SCOPE, BLOCK_SCOPE = 0, 1
"""For whom a fence or a release is: other blocks, too, or the thread's own alone."""

SymbolicAddress: TypeAlias = tuple[tuple[str, ...], int]
"""Registers and variables whose sum an address is, in order, and the bytes behind it."""

_STRONG_QUALIFIERS = frozenset(("relaxed", "acquire", "release", "acq_rel", "mmio"))


@dataclass(frozen=True)
class MemoryOrder:
    """What an instruction's qualifiers say of its order.

    Attributes:
        level: `PLAIN`, `VOLATILE` or `STRONG`.
        releases: The scope to which it publishes what lies before it without a fence; None where
            it needs one.
    """

    level: int
    release_scope: int | None


def memory_orders(steps: Sequence[DecodedInstruction]) -> list[MemoryOrder]:
    """The strength of each instruction of a program."""
    guesses = _cas_guess_loads(steps)
    return [
        MemoryOrder(STRONG, None) if index in guesses else _memory_order_of(step)
        for index, step in enumerate(steps)
    ]


def _memory_order_of(step: DecodedInstruction) -> MemoryOrder:
    """Read it off an opcode."""
    words = set(step.instruction.opcode.split("."))
    atomic = step.row.kind in ("atomic", "reduce")
    level = (
        STRONG
        if atomic or words & _STRONG_QUALIFIERS
        else VOLATILE
        if "volatile" in words
        else WEAK
    )
    return MemoryOrder(level, scope_of(step) if words & {"release", "acq_rel"} else None)


def is_fence(step: DecodedInstruction) -> bool:
    """Whether it is `__threadfence` or one of its kind."""
    name = step.row.opcode.split(".")[0]
    return name == "membar" or step.row.opcode in ("fence", "fence.sc")


def scope_of(step: DecodedInstruction) -> int:
    """For whom a fence or a release is; `__threadfence_block` is for the block."""
    return BLOCK_SCOPE if "cta" in step.instruction.opcode.split(".") else DEVICE_SCOPE


def _cas_guess_loads(steps: Sequence[DecodedInstruction]) -> set[int]:
    """Loads of what a compare-and-swap of the same place then compares with.

    Loops around `atomicCAS` begin with one, NVIDIA's own `atomicAdd` for doubles too; where it got
    an old value, the swap does not happen.
    """
    places = _SymbolicAddresses(steps)
    compared: set[tuple[str, SymbolicAddress]] = set()
    for step in steps:
        if step.row.kind == "atomic" and ".cas." in step.row.opcode:
            _, address, compare, _ = step.instruction.operands
            if isinstance(compare, Register) and isinstance(address, Address):
                compared |= {(name, places.of(address)) for name in places.copies(compare.name)}
    found = set()
    for index, step in enumerate(steps):
        match step.row.kind, step.instruction.operands:
            case "load", (Register(to), Address() as address):
                if (to, places.of(address)) in compared:
                    found.add(index)
    return found


class _SymbolicAddresses:
    """Addresses as sums, where registers are sums or copies of others."""

    def __init__(self, steps: Sequence[DecodedInstruction]) -> None:
        registers = [e.name for s in steps for e in destinations(s) if isinstance(e, Register)]
        written = Counter(registers)
        self._sums: dict[str, tuple[Operand, ...]] = {}
        self._copied: dict[str, set[str]] = {}
        for step in steps:
            match step.row.opcode.split("."), step.instruction.operands:
                case ["add" | "cvta", *_], (Register(to), *terms):
                    named = [each.name for each in terms if isinstance(each, Register)]
                    if all(written[each] <= 1 for each in (to, *named)):
                        self._sums[to] = tuple(terms)
                case ["mov", *_], (Register(to), Register(source)):
                    self._copied.setdefault(to, set()).add(source)

    def of(self, address: Address) -> SymbolicAddress:
        """What an address is the sum of, and how far it lies behind that."""
        offset = address.offset
        roots: list[str] = []
        left: list[Operand] = [address.base] if address.base else []
        met: set[str] = set()  # a sum of itself, which nothing began, has no end
        while left:
            match left.pop():
                case Register(name) if name in self._sums and name not in met:
                    met.add(name)
                    left += self._sums[name]
                case Immediate("int", value):
                    offset += value
                case Symbol(name, more):
                    roots.append(name)
                    offset += more
                case other:
                    roots.append(str(other))
        return tuple(sorted(roots)), offset

    def copies(self, register: str) -> set[str]:
        """The registers whose value may come to be in this one, itself among them."""
        found, new = {register}, {register}
        while new:
            new = set().union(*(self._copied.get(each, set()) for each in new)) - found
            found |= new
        return found
