"""The scoreboard, as machine code: when the instructions of a path issue."""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.records import Pointer, Record


class Issued(Record):
    """An instruction of a program."""

    operands: int  # where the numbers of its registers begin: those read, those written
    read: int  # how many it reads
    written: int
    latency: float  # clocks until its result can be used
    delay: float  # clocks until what lies behind it may issue


@compiled(exported=True)
def follow_path(
    ranges: Pointer[int],
    count: int,
    instructions: Pointer[Issued],
    operands: Pointer[int],
    ready: Pointer[float],
) -> float:
    """The clock behind `count` ranges of instructions: pairs of the first and the one behind.

    `operands` are numbers of registers; `ready` holds when the value of each register can be used,
    0 at first. An instruction issues when its range has begun and its sources are ready. A range
    ends when its last instruction has issued, and takes at least one clock per instruction.
    """
    clock = 0.0
    for number in range(count):
        start, stop, begin = ranges[2 * number], ranges[2 * number + 1], clock
        clock = begin + float(stop) - float(start)
        for place in range(start, stop):
            step = instructions[place]
            sources, issue = operands + step.operands, begin
            for source in range(step.read):
                issue = later(issue, ready[sources[source]])
            clock = later(clock, issue)
            targets = sources + step.read
            for target in range(step.written):
                ready[targets[target]] = issue + step.latency
        clock += instructions[stop - 1].delay
    return clock


@compiled
def later(time: float, other: float) -> float:
    """The later of two times."""
    return other if other > time else time
