"""The critical path: the time that a single warp takes, whose latency other warps must hide.

A scoreboard follows the path that a warp took. Within a range of instructions between two branches
or barriers, an instruction issues when its registers are ready, because ptxas schedules loads ahead
of their uses. A range begins when the last instruction of the range before has issued, and takes at
least one clock per instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_of,
    registers_read,
    registers_written,
)

_LONGEST_PATH = 200_000  # instructions that are followed; a longer path is extrapolated from them


@dataclass(frozen=True)
class Latencies:
    """Clocks from the issue of an instruction until its result can be used.

    Attributes:
        arithmetic: Of an arithmetic instruction.
        shared: Of an access to shared memory, or of an exchange within a warp.
        constant: Of a load from constant memory at a computed address.
        global_load: Of a load from global or local memory.
        global_atomic: Of an atomic outside shared memory.
        barrier: Of a barrier.
    """

    arithmetic: float
    shared: float
    constant: float
    global_load: float
    global_atomic: float
    barrier: float


def warp_clocks(program: Program, path: Sequence[tuple[int, int]], latencies: Latencies) -> float:
    """Compute the time of one warp.

    Args:
        program: The kernel.
        path: The ranges of instructions (start, stop) that it executed: `ExecutionTrace.path`.
        latencies: The device's latencies.

    Returns:
        SM clocks from its first instruction to its last.
    """
    read = [tuple(registers_read(step)) for step in program.steps]
    written = [tuple(registers_written(step)) for step in program.steps]
    cost = [_latency(step, latencies) for step in program.steps]
    barrier = [step.row.kind == "barrier" for step in program.steps]
    ready: dict[str, float] = {}
    clock, followed = 0.0, 0
    total = sum(stop - start for start, stop in path)
    for start, stop in path:
        begin, clock = clock, clock + stop - start
        for index in range(start, stop):
            issue = begin
            for register in read[index]:
                issue = max(issue, ready.get(register, 0.0))
            clock = max(clock, issue)
            for register in written[index]:
                ready[register] = issue + cost[index]
        if barrier[stop - 1]:
            clock += cost[stop - 1]
        followed += stop - start
        if followed > _LONGEST_PATH:
            break
    return clock * total / followed if followed else 0.0


def _latency(step: DecodedInstruction, latencies: Latencies) -> float:
    """The latency of an instruction."""
    if step.row.kind == "barrier":
        return latencies.barrier
    if step.row.kind in ("load", "atomic"):
        if step.row.space in ("const", "param"):
            # A constant at a fixed address is an operand of the instruction that uses it.
            indexed = any(list(registers_of(source)) for source in step.instruction.operands[1:])
            return latencies.constant if indexed else latencies.arithmetic
        if step.row.space == "shared":
            return latencies.shared
        return latencies.global_load if step.row.kind == "load" else latencies.global_atomic
    return latencies.shared if step.row.kind == "warp" else latencies.arithmetic
