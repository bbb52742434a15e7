"""Cuts a program into stretches: instructions that run one behind the other, warp after warp.

All lanes of a group execute a stretch before any executes what follows it. Within a stretch a warp
executes all instructions before the next warp begins. Other warps must not see the difference, so
that a program with a race gives the same results however it is cut: no stretch holds a load and a
store of one state space, and an atomic operation is a stretch of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.program.code_layout import successors
from memlab.device.emulator.program.liveness import live_registers
from memlab.device.emulator.program.program import (
    ACCESS_KINDS,
    ATOMIC_KINDS,
    DecodedInstruction,
    Program,
    destinations,
)
from memlab.device.emulator.ptx.parser import Immediate, registers_of

CONTROL_KINDS = ("branch", "exit", "barrier")
"""Instructions that decide which lanes run next."""
INTERPRETED_KINDS = ("print", "trap", "block", "arrive", "heap")
"""Instructions that are rare, and need more than a warp's registers: Python executes them."""
_KINDS_ACROSS_LANES = ("warp", "block")
"""Instructions by which a lane may read what another one's registers hold."""

_MOST_INSTRUCTIONS = 512
"""Of a stretch: the time to compile one grows faster than its length."""
_MEMBER_MASK_OPCODES = ("shfl.sync", "vote.sync", "match", "redux.sync", "elect.sync")
_SHARED_AMONG_WARPS = {
    "global": ("global",),
    "shared": ("shared",),
    "generic": ("global", "shared"),
}


@dataclass(frozen=True)
class Stretch:
    """Instructions without a branch into or out of them.

    Attributes:
        start: The first instruction.
        stop: The start of the next stretch. Equal to `start` for the place of one instruction of
            control or that Python executes, and at the program's end.
        live: The registers that may be read later, after the stretch.
    """

    start: int
    stop: int
    live: frozenset[str]


def has_member_mask(step: DecodedInstruction) -> bool:
    """Whether an instruction is executed together by the lanes that a member mask names."""
    return step.row.kind == "warp" and step.row.opcode.startswith(_MEMBER_MASK_OPCODES)


def waits_for_members(step: DecodedInstruction) -> bool:
    """Whether lanes may have to wait at an instruction; one with a guard runs without waiting."""
    return has_member_mask(step) and step.instruction.guard is None


def is_cluster_barrier(step: DecodedInstruction) -> bool:
    """Whether an instruction is an arrival at the barrier of the cluster, or waits there."""
    return step.row.opcode.startswith("barrier.cluster")


def is_partial(step: DecodedInstruction) -> bool:
    """Whether an instruction is a barrier that is not just for all threads of a block."""
    if is_cluster_barrier(step):
        return True
    barrier, *count = step.instruction.operands or (Immediate("int", 0),)
    whole_block = isinstance(barrier, Immediate) and not barrier.bits and not count
    return step.row.kind == "arrive" or (step.row.kind == "barrier" and not whole_block)


def reads_clock(step: DecodedInstruction) -> bool:
    """Whether an instruction reads a clock."""
    return not CLOCK_REGISTERS.isdisjoint(step.registers_read)


def is_interruption(step: DecodedInstruction) -> bool:
    """Whether an instruction is part of no stretch: one of control, or one that Python executes."""
    return step.row.kind in CONTROL_KINDS or step.row.kind in INTERPRETED_KINDS


def find_stretches(
    program: Program, watched: Collection[int] = (), kept: Iterable[str] = ()
) -> tuple[Stretch, ...]:
    """Cut a program.

    Args:
        program: The program.
        watched: Positions of further instructions that are a stretch of their own, since observers
            act before and after them.
        kept: Registers that are read from outside the program.

    Returns:
        The stretches by ascending start; the last one is empty and lies at the program's end.
    """
    steps, end = program.steps, len(program.steps)
    starts = {0, end}
    phase: dict[str, str] = {}  # by state space: what the current stretch does in it
    for index, step in enumerate(steps):
        if index in starts:
            phase.clear()
        if step.row.kind == "branch":
            starts.add(step.target)
        if is_interruption(step) or index in watched:
            starts |= {index, index + 1}
            phase.clear()
        elif waits_for_members(step):  # where other groups join, and where they go on
            starts |= {index, index + 1}
        elif reads_clock(step):
            starts.add(index)
        elif step.row.kind in ACCESS_KINDS:
            spaces = _SHARED_AMONG_WARPS.get(step.row.space, ())
            if any(phase.get(space, step.row.kind) != step.row.kind for space in spaces):
                starts.add(index)
                phase.clear()
            phase |= dict.fromkeys(spaces, step.row.kind)
            if (step.row.kind in ATOMIC_KINDS and spaces) or is_bulk_access(step.row):
                starts |= {index, index + 1}
                phase.clear()
    ordered = sorted(
        start
        for first, following in pairwise([*sorted(starts), end + 1])
        for start in range(first, following, _MOST_INSTRUCTIONS)
    )
    bounds = []
    for start, following in zip(ordered, [*ordered[1:], end], strict=True):
        interrupted = start < end and is_interruption(steps[start])
        bounds.append((start, start if interrupted else following))
    live = _live_registers(steps, bounds, frozenset(kept))
    return tuple(
        Stretch(start, stop, registers)
        for (start, stop), registers in zip(bounds, live, strict=True)
    )


def registers_read_first(program: Program, stretches: Sequence[Stretch]) -> frozenset[str]:
    """The registers of which a lane may read what no instruction has written in that lane."""
    if any(step.row.kind in _KINDS_ACROSS_LANES for step in program.steps):
        return frozenset(program.registers)
    first = stretches[0]
    needed, defined = _uses(program.steps[first.start : max(first.stop, first.start + 1)])
    return (needed | (first.live - defined)) & program.registers.keys()


def _live_registers(
    steps: Sequence[DecodedInstruction], bounds: Sequence[tuple[int, int]], kept: frozenset[str]
) -> list[frozenset[str]]:
    """The registers that may be read after each stretch."""
    slots = {start: number for number, (start, _) in enumerate(bounds)}
    read, written, following = [], [], []
    for start, stop in bounds:
        needed, defined = _uses(steps[start : max(stop, start + 1)])
        read.append(needed)
        written.append(defined)
        control = successors(steps, start) if start < len(steps) else []
        following.append([slots[place] for place in ([stop] if start < stop else control)])
    return live_registers(read, written, following, kept)


def _uses(steps: Iterable[DecodedInstruction]) -> tuple[frozenset[str], frozenset[str]]:
    """The registers that instructions read before they have written them, and those they write."""
    needed: set[str] = set()
    defined: set[str] = set()
    for step in steps:
        needed |= set(step.registers_read) - defined
        if step.instruction.guard is None:
            defined |= {name for o in destinations(step) for name in registers_of(o)}
    return frozenset(needed), frozenset(defined)
