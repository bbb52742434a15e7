"""The critical path: the time that a single warp takes, whose latency other warps must hide.

A scoreboard follows the path that a warp took. Within a range of instructions between two branches
or barriers, an instruction issues when its registers are ready, because ptxas schedules loads ahead
of their uses. A range begins when the last instruction of the range before has issued, and takes at
least one clock per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeAlias

from memlab.device.emulator.machine.execution_trace import LONGEST_PATH, WarpPath
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_of,
    registers_read,
    registers_written,
)


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


def warp_clocks(program: Program, path: WarpPath, latencies: Latencies) -> float:
    """Compute the time of one warp.

    Args:
        program: The kernel.
        path: The instructions that it executed.
        latencies: The device's latencies.

    Returns:
        SM clocks from its first instruction to its last.
    """
    numbers = {"": _BEGIN}  # of registers
    decoded = {
        (start, stop): [_decode(step, latencies, numbers) for step in program.steps[start:stop]]
        for start, stop in set(path.ranges)
    }
    ready = [0.0] * len(numbers)
    clock, followed = 0.0, 0
    for start, stop in path.ranges:
        ready[_BEGIN] = clock
        issued = [clock + stop - start]
        for read, written, cost in decoded[start, stop]:
            issue = max(read(ready))
            issued.append(issue)
            for register in written:
                ready[register] = issue + cost
        clock = max(issued)
        last = program.steps[stop - 1]
        if last.row.kind == "barrier":
            clock += latencies.barrier
        followed += stop - start
        if followed > LONGEST_PATH:
            break
    return clock * path.instructions / followed if followed else 0.0


_BEGIN = 0  # the register in whose place the clock at which a range begins is kept

_Instruction: TypeAlias = tuple[
    Callable[[Sequence[float]], tuple[float, ...]], tuple[int, ...], float
]
"""When an instruction's sources are ready, the registers that it writes, and its latency."""


def _decode(
    step: DecodedInstruction, latencies: Latencies, numbers: dict[str, int]
) -> _Instruction:
    """Look up an instruction; registers get numbers as they are met."""
    read, written = (
        {numbers.setdefault(name, len(numbers)) for name in names}
        for names in (registers_read(step), registers_written(step))
    )
    return itemgetter(_BEGIN, _BEGIN, *read), tuple(written), _latency(step, latencies)


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
