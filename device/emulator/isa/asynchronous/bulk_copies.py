"""Bulk copies: `cp.async.bulk` and `cp.reduce.async.bulk` between global and shared memory.

Shared memory may be that of another block of the cluster; a copy to several of its blocks at once
(`.multicast::cluster`) writes to the same place of each, and completes its bytes at each one's
barrier. `st.async` and `red.async` are stores and reductions in the memory of another block which
complete bytes like a copy.

Each becomes an instruction that reads (`bulk.read`) and one that writes (`bulk.write`, or
`bulk.reduce` with an operation), which the copy engine of the SM executes on a GPU. Between the
two, a register holds the generic address of the source. A copy is executed at once: it may complete
at any time before a thread waits for it. It then completes its bytes at its `mbarrier`, if any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.address_space import UNREACHABLE, rank_of
from memlab.device.emulator.isa.macros import BULK_SOURCE, substitute
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.values import Value, where
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
)
from memlab.kernels.tensor_maps import PIECE_BYTES

SIZE_FAULT = 1 << 61
"""Stands for the address of a copy whose size is no multiple of `PIECE_BYTES`; nothing is allocated
there."""
FAULT_TEXT = f"the size of the bulk copy is no multiple of {PIECE_BYTES} bytes"

FAR_BARRIER = 1 << 60
"""Is added to the address of a barrier that lies in another block than what a copy writes."""
FAR_BARRIER_TEXT = (
    "the bytes of an asynchronous copy complete at a barrier in the block that it writes to, so "
    "that this one never gets them: map both addresses to the same rank"
)

_BARRIER = Register("%macro_bulk_barrier")
REGISTERS = {_BARRIER.name: "b64"}
"""The register of a barrier's address, with its type."""
_MULTICAST = " multicast"
"""The end of the opcodes of instructions that write to several blocks."""

VIEW = "bulk"
"""The `Row.view` of what the copy engine executes."""


def expand_copy(to: str, of: str, instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.bulk [to], [of], size{, [barrier]{, ranks}}` between two state spaces."""
    yield from _expand(f"bulk.write.{to}", of, instruction)


def expand_reduction(
    to: str, of: str, operation: str, ptx_type: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`cp.reduce.async.bulk [to], [of], size{, [barrier]}`, with an operation such as `.add`."""
    yield from _expand(f"bulk.reduce.{to}{operation}.{ptx_type}", of, instruction)


def _expand(write: str, of: str, instruction: Instruction) -> Iterable[Instruction]:
    destination, source, size, *more = instruction.operands
    barrier, ranks = (*more, None, None)[:2]
    yield substitute(instruction, f"bulk.read.{of}", BULK_SOURCE, source, size)
    yield multicast(substitute(instruction, write, destination, BULK_SOURCE, size), ranks)
    if barrier is not None:
        yield from complete(instruction, destination, barrier, size, ranks)


def complete(
    instruction: Instruction,
    destination: Operand,
    barrier: Operand,
    size: Operand,
    ranks: Operand | None = None,
) -> Iterable[Instruction]:
    """The copy engine completes the bytes of a copy at its barrier, or at one of each rank.

    The barrier has to lie in the block that the copy writes to (PTX ISA, "st.async"; an NVIDIA H200
    takes the rank of the destination for both).
    """
    if ranks is None and isinstance(barrier, Address) and isinstance(destination, Address):
        place, beside = barrier.base, destination.base
        if isinstance(place, Register) and isinstance(beside, Register):
            yield substitute(instruction, "mbarrier.beside", _BARRIER, place, beside)
            barrier = replace(barrier, base=_BARRIER)
    completion = substitute(instruction, "mbarrier.complete_tx.shared.b64", barrier, size)
    *change, last = mbarrier.expand_transactions(completion)
    yield from change
    yield multicast(replace(last, opcode=f"{last.opcode} of a bulk copy"), ranks)


def barrier_beside(barrier: Value, destination: Value) -> Value:
    """The address of a barrier; with `FAR_BARRIER` where it is not in the destination's block."""
    is_far = rank_of(barrier) != rank_of(destination)
    return barrier + where(is_far, barrier.constant(FAR_BARRIER), 0)


def is_far_barrier(address: Any) -> Any:
    """Whether `barrier_beside` made an address or addresses; a stray one is mostly none."""
    return (address >= FAR_BARRIER) & (address < FAR_BARRIER + UNREACHABLE)


def multicast(instruction: Instruction, ranks: Operand | None) -> Instruction:
    """A write or a completion in the shared memory of some blocks of the cluster.

    Args:
        instruction: It, in the own block.
        ranks: A bit for the rank of each block, of 16 bits; None for the own block alone.
    """
    if ranks is None:
        return instruction
    operands = (*instruction.operands, ranks)
    return substitute(instruction, f"{instruction.opcode}{_MULTICAST}", *operands)


def is_multicast(row: Row) -> bool:
    """Whether an instruction writes to several blocks; its last operand tells which."""
    return row.opcode.endswith(_MULTICAST)


def expand_remote(
    access: str, vector: str, ptx_type: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`st.async [to], value, [barrier]`, and `red.async` with an access such as `red.add`."""
    destination, value, barrier = instruction.operands
    name, *operation = access.split(".")
    words = (name, "shared::cluster", *operation)
    size = TYPE_BYTES[ptx_type] * int(vector[2:] or 1)
    yield substitute(instruction, f"{'.'.join(words)}{vector}.{ptx_type}", destination, value)
    yield from complete(instruction, destination, barrier, Immediate("int", size))


def is_bulk_access(row: Row) -> bool:
    """Whether an instruction reads or writes what a bulk copy moves."""
    return row.view == VIEW and row.kind != "atomic"


def element_of(row: Row) -> str:
    """The type of the elements that a reduction combines."""
    return row.opcode.rpartition(".")[2]
