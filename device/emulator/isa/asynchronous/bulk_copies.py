"""Bulk copies: `cp.async.bulk` and `cp.reduce.async.bulk` between global and shared memory.

Each becomes an instruction that reads (`bulk.read`) and one that writes (`bulk.write`, or
`bulk.reduce` with an operation), which the copy engine of the SM executes on a GPU. Between the
two, a register holds the generic address of the source. A copy is executed at once: it may complete
at any time before a thread waits for it. It then completes its bytes at its `mbarrier`, if any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.macros import BULK_SOURCE, substitute
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.ptx.parser import Instruction, Operand

PIECE_BYTES = 16
"""Addresses and sizes of bulk copies are multiples of it (PTX ISA, "cp.async.bulk")."""

SIZE_FAULT = 1 << 61
"""Stands for the address of a copy whose size is no such multiple; nothing is allocated there."""
FAULT_TEXT = f"the size of the bulk copy is no multiple of {PIECE_BYTES} bytes"

VIEW = "bulk"
"""The `Row.view` of what the copy engine executes."""


def expand_copy(to: str, of: str, instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.bulk [to], [of], size{, [barrier]}` between two state spaces."""
    yield from _expand(f"bulk.write.{to}", of, instruction)


def expand_reduction(
    to: str, of: str, operation: str, ptx_type: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`cp.reduce.async.bulk [to], [of], size{, [barrier]}`, with an operation such as `.add`."""
    yield from _expand(f"bulk.reduce.{to}{operation}.{ptx_type}", of, instruction)


def _expand(write: str, of: str, instruction: Instruction) -> Iterable[Instruction]:
    destination, source, size, *barriers = instruction.operands
    yield substitute(instruction, f"bulk.read.{of}", BULK_SOURCE, source, size)
    yield substitute(instruction, write, destination, BULK_SOURCE, size)
    for barrier in barriers:
        yield from complete(instruction, barrier, size)


def complete(instruction: Instruction, barrier: Operand, size: Operand) -> Iterable[Instruction]:
    """The copy engine completes the bytes of a copy at its barrier."""
    opcode = "mbarrier.complete_tx.shared.b64"
    completion = substitute(instruction, opcode, barrier, size)
    *change, last = mbarrier.expand_transactions(completion)
    yield from change
    yield replace(last, opcode=f"{last.opcode} of a bulk copy")


def is_bulk_access(row: Row) -> bool:
    """Whether an instruction reads or writes what a bulk copy moves."""
    return row.view == VIEW and row.kind != "atomic"


def element_of(row: Row) -> str:
    """The type of the elements that a reduction combines."""
    return row.opcode.rpartition(".")[2]
