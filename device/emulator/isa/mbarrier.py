"""`mbarrier`: barriers in shared memory (PTX ISA, "Parallel Synchronization: mbarrier").

The 64-bit object is opaque in PTX. Here its low 20 bits count the arrivals that the current phase
still waits for, the next 20 bits hold the arrivals that each phase needs, the next 21 the bytes of
transactions that it still waits for, as a signed number, and the rest counts the completed phases.
A phase is complete when it waits for neither. Each operation is an atomic on that word, whose
operand has arrivals and bytes in the same places; a token is the word that an arrival read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.macros import substitute
from memlab.device.emulator.isa.values import U32, U64, Value, where
from memlab.device.emulator.ptx.parser import Immediate, Instruction, Operand, Register

_BITS = 20
_COUNT = (1 << _BITS) - 1
_TRANSACTIONS = 2 * _BITS
_TRANSACTION_BITS = 21
_TRANSACTION_BYTES = (1 << _TRANSACTION_BITS) - 1
PHASE_SHIFT = _TRANSACTIONS + _TRANSACTION_BITS
"""The bits of the word above which the completed phases are counted."""
_WORD = Register("%macro_barrier")
REGISTERS = {_WORD.name: "b64"}
"""The register that holds the word of a barrier, or its change, with its type."""
_ZERO, _ONE = Immediate("int", 0), Immediate("int", 1)


# --- Meaning of the word ---------------------------------------------------------------------


def initial_state(count: Value) -> Value:
    """The word of a barrier that needs this many arrivals in each phase."""
    wide = count.to(U64)
    return wide << _BITS | wide


def expected_change(arrivals: Value, expected: Value) -> Value:
    """The operand for arrivals that expect so many bytes of transactions."""
    return arrivals.to(U64) & _COUNT | (expected.to(U64) & _TRANSACTION_BYTES) << _TRANSACTIONS


def completed_change(completed: Value) -> Value:
    """The operand for the completion of so many bytes of transactions."""
    return (0 - completed.to(U64) & _TRANSACTION_BYTES) << _TRANSACTIONS


def changed_state(drop: str, old: Value, change: Value) -> Value:
    """The word after an operation; with `drop`, later phases need its arrivals no more."""
    arrivals = change & _COUNT
    needed = old >> _BITS & _COUNT
    if drop:
        needed = needed - arrivals
    pending = (old & _COUNT) - arrivals
    transactions = (old >> _TRANSACTIONS) + (change >> _TRANSACTIONS) & _TRANSACTION_BYTES
    over = (pending | transactions) == 0
    phase = (old >> PHASE_SHIFT) + over.to(U64)
    waiting = needed << _BITS | where(over, needed, pending)
    return phase << PHASE_SHIFT | transactions << _TRANSACTIONS | waiting


def is_phase_complete(word: Value, token: Value) -> Value:
    """Whether the phase of a token is complete."""
    return word >> PHASE_SHIFT != token >> PHASE_SHIFT


def is_parity_complete(word: Value, parity: Value) -> Value:
    """Whether the phase of this parity, the current or the previous one, is complete."""
    return ((word >> PHASE_SHIFT).to(U32) & 1) != (parity & 1)


def pending_arrivals(token: Value) -> Value:
    """How many arrivals the phase of a token still needed."""
    return (token & _COUNT).to(U32)


def has_all_arrivals(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether the current phase of each barrier lacks only bytes of copies."""
    return np.asarray(words & np.uint64(_COUNT) == 0)


def describe_wait(word: int) -> str:
    """What a barrier's current phase still lacks, for a message."""
    arrivals, needed = word & _COUNT, word >> _BITS & _COUNT
    missing = (word >> _TRANSACTIONS & _TRANSACTION_BYTES ^ 1 << 20) - (1 << 20)
    parity = word >> PHASE_SHIFT & 1
    lacks = [f"{arrivals} of {needed} arrivals"] if arrivals else []
    lacks += [f"{missing} bytes of copies"] if missing > 0 else []
    text = f"the phase of parity {parity} of an mbarrier is never complete"
    if missing < 0:
        lacks.append(f"an expect_tx of {-missing} bytes, which copies have completed already")
    if lacks:
        text += f": it lacks {' and '.join(lacks)}"
    if arrivals == needed and missing == 0 and word >> PHASE_SHIFT:
        text += f"; the phase of parity {1 - parity} before it is"
    return text


# --- Instructions in their place -------------------------------------------------------------


def _space(instruction: Instruction) -> str:
    return next(
        (space for space in (".shared::cluster", ".shared") if space in instruction.opcode), ""
    )


def _scope(instruction: Instruction) -> str:
    """The scope; without one the cluster's, for blocks wait for arrivals of others without it."""
    return "cta" if "cta" in instruction.opcode.split(".") else "cluster"


def expand_init(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.init [address], count`."""
    address, count = instruction.operands
    yield substitute(instruction, "mbarrier.init.word", _WORD, count)
    yield substitute(instruction, f"st{_space(instruction)}.b64", address, _WORD)


def expand_arrive(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.arrive{_drop} state, [address]{, count}`, or with `.expect_tx` the bytes."""
    state, address, *count = instruction.operands
    if ".expect_tx" in instruction.opcode:
        yield substitute(instruction, "mbarrier.change.expect", _WORD, _ONE, *count)
    else:
        yield substitute(instruction, "mov.u64", _WORD, *(count or [_ONE]))
    yield _change(instruction, state, address)


def expand_transactions(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.expect_tx [address], bytes` and `mbarrier.complete_tx [address], bytes`."""
    address, count = instruction.operands
    if ".complete_tx" in instruction.opcode:
        yield substitute(instruction, "mbarrier.change.complete", _WORD, count)
    else:
        yield substitute(instruction, "mbarrier.change.expect", _WORD, _ZERO, count)
    yield _change(instruction, Register("_"), address)


def _change(instruction: Instruction, state: Operand, address: Operand) -> Instruction:
    """The atomic by which an operation changes the word."""
    name = "arrive_drop" if "arrive_drop" in instruction.opcode else "arrive"
    opcode = f"atom.acq_rel.{_scope(instruction)}{_space(instruction)}.{name}.u64 mbarrier"
    return substitute(instruction, opcode, state, address, _WORD)


def expand_async_arrive(instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.mbarrier.arrive`: arrives when the copies are complete, which is immediately.

    Without `.noinc` the phase also needs one more arrival, so that the count stays the same: ptxas
    lets it wait for a transaction more (`SYNCS.ARRIVE.A0T1`), which the copies then complete
    (`ARRIVES.TRANSCNT`).
    """
    (address,) = instruction.operands
    yield substitute(instruction, "cp.async.wait_all")
    if ".noinc" in instruction.opcode:
        opcode = f"mbarrier.arrive{_space(instruction)}.b64"
        yield from expand_arrive(substitute(instruction, opcode, Register("_"), address))
        return
    change = _change(instruction, Register("_"), address)
    relaxed = change.opcode.replace("acq_rel", "relaxed")  # the thread itself orders nothing by it
    change = replace(change, opcode=f"{relaxed} of copies")
    yield substitute(instruction, "mbarrier.change.expect", _WORD, _ZERO, _ONE)
    yield change
    yield substitute(instruction, "mbarrier.change.complete", _WORD, _ONE)
    yield change


def expand_test_wait(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.test_wait` or `.try_wait`: both read the word once."""
    done, address, token, *_ = instruction.operands
    parity = ".parity" if ".parity" in instruction.opcode else ""
    opcode = f"ld.acquire.{_scope(instruction)}{_space(instruction)}.b64"
    yield substitute(instruction, opcode, _WORD, address)
    yield substitute(instruction, f"mbarrier.over{parity}", done, _WORD, token)


def is_access(instruction: Instruction) -> bool:
    """Whether an instruction reads or writes the word of a barrier."""
    accesses = instruction.opcode.startswith(("st.", "ld.", "atom."))
    return accesses and _WORD in instruction.operands


def is_test(instruction: Instruction) -> bool:
    """Whether an instruction is the load by which a thread tests a barrier."""
    reads = instruction.opcode.startswith("ld.acquire.")
    return reads and instruction.operands[0] == _WORD


def is_change(instruction: Instruction) -> bool:
    """Whether an instruction is the atomic by which an operation changes a barrier."""
    return instruction.opcode.startswith("atom.") and " mbarrier" in instruction.opcode


# --- The same of numbers ---------------------------------------------------------------------

PHASES = 1 << 64 - PHASE_SHIFT
"""The completed phases are counted modulo this."""


def needed_arrivals(word: int) -> int:
    """The arrivals that each phase of a barrier needs."""
    return word >> _BITS & _COUNT


def parts_of_change(change: int) -> tuple[int, int]:
    """The arrivals of an operand, and the bytes of transactions that it adds."""
    transactions = change >> _TRANSACTIONS & _TRANSACTION_BYTES
    if transactions > _TRANSACTION_BYTES // 2:
        transactions -= 1 << _TRANSACTION_BITS
    return change & _COUNT, transactions
