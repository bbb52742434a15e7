"""`mbarrier`: barriers in shared memory (PTX ISA, "Parallel Synchronization: mbarrier").

The 64-bit object is opaque in PTX. Here its low 20 bits count the arrivals that the current phase
still waits for, the next 20 bits hold the arrivals that each phase needs, and the rest counts the
completed phases. Each operation is an atomic on that word; a token is the word that an arrival
read. Transactions of bulk copies are not supported.
"""

from __future__ import annotations

from collections.abc import Iterable

from memlab.device.emulator.isa.macros import WORD64, substitute
from memlab.device.emulator.isa.values import U32, U64, Value, where
from memlab.device.emulator.ptx.parser import Immediate, Instruction, Register

_BITS = 20
_COUNT = (1 << _BITS) - 1
_PHASE = 2 * _BITS
_ONE = Immediate("int", 1)


# --- Meaning of the word ---------------------------------------------------------------------


def initial_state(count: Value) -> Value:
    """The word of a barrier that needs this many arrivals in each phase."""
    wide = count.to(U64)
    return wide << _BITS | wide


def state_after_arrivals(drop: str, old: Value, count: Value) -> Value:
    """The word after `count` arrivals; with `drop`, later phases need `count` fewer."""
    arrivals = count & _COUNT
    needed = old >> _BITS & _COUNT
    if drop:
        needed = needed - arrivals
    pending = (old & _COUNT) - arrivals
    over = pending == 0
    phase = (old >> _PHASE) + over.to(U64)
    return phase << _PHASE | needed << _BITS | where(over, needed, pending)


def is_phase_complete(word: Value, token: Value) -> Value:
    """Whether the phase of a token is complete."""
    return word >> _PHASE != token >> _PHASE


def is_parity_complete(word: Value, parity: Value) -> Value:
    """Whether the phase of this parity, the current or the previous one, is complete."""
    return ((word >> _PHASE).to(U32) & 1) != (parity & 1)


def pending_arrivals(token: Value) -> Value:
    """How many arrivals the phase of a token still needed."""
    return (token & _COUNT).to(U32)


# --- Instructions in their place -------------------------------------------------------------


def _space(instruction: Instruction) -> str:
    return ".shared" if ".shared" in instruction.opcode else ""


def expand_init(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.init [address], count`."""
    address, count = instruction.operands
    yield substitute(instruction, "mbarrier.init.word", WORD64, count)
    yield substitute(instruction, f"st{_space(instruction)}.b64", address, WORD64)


def expand_arrive(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.arrive{_drop} state, [address]{, count}`."""
    state, address, *count = instruction.operands
    name = "arrive_drop" if "arrive_drop" in instruction.opcode else "arrive"
    opcode = f"atom.acq_rel.cta{_space(instruction)}.{name}.u64 mbarrier"
    yield substitute(instruction, "mov.u64", WORD64, *(count or [_ONE]))
    yield substitute(instruction, opcode, state, address, WORD64)


def expand_async_arrive(instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.mbarrier.arrive`: arrives when the copies are complete, which is immediately.

    Without `.noinc` the phase also needs one more arrival, so that the count stays the same.
    """
    yield substitute(instruction, "cp.async.wait_all")
    if ".noinc" in instruction.opcode:
        (address,) = instruction.operands
        opcode = f"mbarrier.arrive{_space(instruction)}.b64"
        yield from expand_arrive(substitute(instruction, opcode, Register("_"), address))


def expand_test_wait(instruction: Instruction) -> Iterable[Instruction]:
    """`mbarrier.test_wait` or `.try_wait`: both read the word once."""
    done, address, token, *_ = instruction.operands
    parity = ".parity" if ".parity" in instruction.opcode else ""
    yield substitute(instruction, f"ld.acquire.cta{_space(instruction)}.b64", WORD64, address)
    yield substitute(instruction, f"mbarrier.over{parity}", done, WORD64, token)
