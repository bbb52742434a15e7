"""How long one warp takes by itself: the latency that other warps must hide.

A scoreboard follows the path that a warp took. Within a stretch between two branches or
barriers an instruction issues when its registers are ready, since ptxas moves loads ahead of
what uses them; a stretch begins when the last instruction of the one before has issued, and
takes at least a clock an instruction.
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

_LONGEST_PATH = 200_000  # instructions followed; what lies behind is scaled from them


@dataclass(frozen=True)
class Latencies:
    """Clocks from issue until the result can be used, by where it comes from."""

    arithmetic: float
    shared: float
    constant: float
    global_load: float
    global_atomic: float
    barrier: float


def warp_clocks(program: Program, path: Sequence[tuple[int, int]], latencies: Latencies) -> float:
    """Follow one warp.

    Args:
        program: What it runs.
        path: The stretches of instructions it took, from `Trace.path`.
        latencies: Clocks by kind of instruction.

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
    if step.row.kind == "barrier":
        return latencies.barrier
    if step.row.kind in ("load", "atomic"):
        if step.row.space in ("const", "param"):
            # At a fixed address it is an operand of the instruction that uses it.
            indexed = any(list(registers_of(each)) for each in step.instruction.operands[1:])
            return latencies.constant if indexed else latencies.arithmetic
        if step.row.space == "shared":
            return latencies.shared
        return latencies.global_load if step.row.kind == "load" else latencies.global_atomic
    return latencies.shared if step.row.kind == "warp" else latencies.arithmetic
