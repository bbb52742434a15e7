"""The memory order of accesses: which pairs of them can race.

Atomic operations do not race with each other, nor with accesses that the memory model calls
relaxed, acquire or release, if they are of the same size and the scope of each includes the other's
thread (PTX ISA, "Morally strong operations"). Volatile accesses race with each other, but a
volatile access, such as a polling load, does not race with an atomic operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.codegen.check_layout import (
    BLOCK_SCOPE_BIT,
    LEVEL_MASK,
    SIZE_SHIFT,
    STRONG,
    VOLATILE,
    WEAK,
)
from memlab.device.emulator.isa.asynchronous.bulk_copies import VIEW
from memlab.device.emulator.program.program import (
    ATOMIC_KINDS,
    DecodedInstruction,
    bytes_moved,
    destinations,
)
from memlab.device.emulator.ptx.parser import Address, Immediate, Operand, Register, Symbol

DEVICE_SCOPE, BLOCK_SCOPE = range(2)
"""The scope of a fence or a release: all blocks, or the thread's own block."""

SymbolicAddress: TypeAlias = tuple[tuple[str, ...], int]
"""An address as a sum: the sorted names of registers and variables, and an offset in bytes."""

_STRONG_QUALIFIERS = frozenset(("relaxed", "acquire", "release", "acq_rel", "mmio"))


@dataclass(frozen=True)
class MemoryOrder:
    """The memory order of an instruction, from its qualifiers.

    Attributes:
        level: `WEAK`, `VOLATILE` or `STRONG`.
        release_scope: The scope of a release without a separate fence; None if a fence is needed.
        scope: The scope of a strong access.
        element_bytes: Bytes of an element; 0 where the access goes with those of any size.
    """

    level: int
    release_scope: int | None
    scope: int = DEVICE_SCOPE
    element_bytes: int = 0

    @property
    def packed(self) -> int:
        """Level, scope and size as one number, as the shadow memory keeps it by time."""
        in_block = BLOCK_SCOPE_BIT if self.scope == BLOCK_SCOPE else 0
        return self.level | in_block | self.element_bytes.bit_length() << SIZE_SHIFT


def are_morally_strong(orders: Lanes, others: Lanes | int, in_other_block: Lanes) -> Lanes:
    """Whether pairs of accesses do not race whatever their order, by their packed orders."""
    levels, other_levels = orders & LEVEL_MASK, others & LEVEL_MASK
    sizes, other_sizes = orders >> SIZE_SHIFT, others >> SIZE_SHIFT
    strong = (np.maximum(levels, other_levels) == STRONG) & (
        np.minimum(levels, other_levels) >= VOLATILE
    )
    strong &= ~(in_other_block & ((orders | others) & BLOCK_SCOPE_BIT != 0))
    strong &= (sizes == other_sizes) | (sizes == 0) | (other_sizes == 0)
    return np.asarray(strong)


def memory_orders(steps: Sequence[DecodedInstruction]) -> list[MemoryOrder]:
    """The memory order of each instruction of a program."""
    guesses = _cas_guess_loads(steps)
    return [
        MemoryOrder(STRONG, None) if index in guesses else _memory_order_of(step)
        for index, step in enumerate(steps)
    ]


def _memory_order_of(step: DecodedInstruction) -> MemoryOrder:
    """Read the memory order from an opcode."""
    words = set(step.instruction.opcode.split("."))
    atomic = step.row.kind in ATOMIC_KINDS
    level = (
        STRONG
        if atomic or words & _STRONG_QUALIFIERS
        else VOLATILE
        if "volatile" in words
        else WEAK
    )
    is_strong = level == STRONG
    # Compare-and-swap also emulates narrower atomics, next to loads of their own size.
    any_size = level == WEAK or "cas" in words or step.row.view == VIEW
    return MemoryOrder(
        level,
        scope_of(step) if words & {"release", "acq_rel"} else None,
        scope_of(step) if is_strong else DEVICE_SCOPE,
        0 if any_size else bytes_moved(step.row) // step.row.vector,
    )


def is_fence(step: DecodedInstruction) -> bool:
    """Whether an instruction is `__threadfence` or a variant of it."""
    name = step.row.opcode.split(".")[0]
    return name == "membar" or step.row.opcode in ("fence", "fence.sc")


_ORDERING = (
    *("cp.async.commit", "cp.async.wait", "cp.async.bulk.commit", "cp.async.bulk.wait"),
    *("fence.proxy.async", "fence.proxy.tensormap", "fence.mbarrier_init"),
)


def orders_accesses(step: DecodedInstruction) -> bool:
    """Whether an instruction only orders accesses: a fence, or the wait for asynchronous copies."""
    return is_fence(step) or step.row.opcode.startswith(_ORDERING)


def scope_of(step: DecodedInstruction) -> int:
    """The scope of a fence or a release; `__threadfence_block` has the block's."""
    return BLOCK_SCOPE if "cta" in step.instruction.opcode.split(".") else DEVICE_SCOPE


def _cas_guess_loads(steps: Sequence[DecodedInstruction]) -> set[int]:
    """Find loads of a value that a compare-and-swap at the same address then compares with.

    Loops around `atomicCAS` begin with such a load, NVIDIA's own `atomicAdd` for doubles too. If
    the load returned an old value, the swap does not happen, so the load does not race.
    """
    addresses = _SymbolicAddresses(steps)
    compared: set[tuple[str, SymbolicAddress]] = set()
    for step in steps:
        if step.row.kind == "atomic" and ".cas." in step.row.opcode:
            _, address, compare, _ = step.instruction.operands
            if isinstance(compare, Register) and isinstance(address, Address):
                symbolic = addresses.of(address)
                compared |= {(name, symbolic) for name in addresses.copies(compare.name)}
    guesses = set()
    for index, step in enumerate(steps):
        match step.row.kind, step.instruction.operands:
            case "load", (Register(to), Address() as address):
                if (to, addresses.of(address)) in compared:
                    guesses.add(index)
    return guesses


class _SymbolicAddresses:
    """Resolves addresses to sums, through registers that are sums or copies of others."""

    def __init__(self, steps: Sequence[DecodedInstruction]) -> None:
        written = Counter(
            operand.name
            for step in steps
            for operand in destinations(step)
            if isinstance(operand, Register)
        )
        self._sums: dict[str, tuple[Operand, ...]] = {}
        self._copied: dict[str, set[str]] = {}
        for step in steps:
            match step.row.opcode.split("."), step.instruction.operands:
                case ["add" | "cvta", *_], (Register(to), *terms):
                    registers = [term.name for term in terms if isinstance(term, Register)]
                    if all(written[name] <= 1 for name in (to, *registers)):
                        self._sums[to] = tuple(terms)
                case ["mov", *_], (Register(to), Register(source)):
                    self._copied.setdefault(to, set()).add(source)

    def of(self, address: Address) -> SymbolicAddress:
        """The address as a sum."""
        offset = address.offset
        roots: list[str] = []
        unresolved: list[Operand | None] = [address.base]
        expanded: set[str] = set()  # a sum of itself that is never initialised has no end
        while unresolved:
            match unresolved.pop():
                case Register(name) if name in self._sums and name not in expanded:
                    expanded.add(name)
                    unresolved += self._sums[name]
                case Immediate("int", value):
                    offset += value
                case Symbol(name, symbol_offset):
                    roots.append(name)
                    offset += symbol_offset
                case other:
                    roots.append(str(other))
        return tuple(sorted(roots)), offset

    def copies(self, register: str) -> set[str]:
        """The registers whose values may be copied to a register, itself included."""
        sources, new = {register}, {register}
        while new:
            new = set().union(*(self._copied.get(name, set()) for name in new)) - sources
            sources |= new
        return sources
