"""The critical path: the time that a single warp takes, whose latency other warps must hide.

A scoreboard follows the path that a warp took. Within a range of instructions between two branches
or barriers, an instruction issues when its registers are ready, because ptxas schedules loads ahead
of their uses. A range begins when the last instruction of the range before has issued, and takes at
least one clock per instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.codegen.program_code import follow_path
from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.emulator.codegen.scoreboard_code import Issued
from memlab.device.emulator.machine.execution_trace import LONGEST_PATH, WarpPath
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
)
from memlab.device.emulator.ptx.parser import registers_of


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
    ranges = np.array(path.ranges, np.int64).reshape(-1, 2)
    lengths = ranges[:, 1] - ranges[:, 0]
    ranges = ranges[: np.searchsorted(np.cumsum(lengths), LONGEST_PATH, "right") + 1]
    followed = int(lengths[: len(ranges)].sum())
    if not followed:
        return 0.0
    numbers: dict[str, int] = {}  # of registers
    operands: list[int] = []
    instructions = np.zeros(len(program.steps), dtype_of(Issued))
    executed = {index for start, stop in set(path.ranges) for index in range(start, stop)}
    for index in executed:
        step, entry = program.steps[index], instructions[index]
        read, written = step.registers_read, step.registers_written
        entry["operands"], entry["read"], entry["written"] = len(operands), len(read), len(written)
        operands += [numbers.setdefault(name, len(numbers)) for name in (*read, *written)]
        entry["latency"] = _latency(step, latencies)
        entry["delay"] = latencies.barrier if step.row.kind == "barrier" else 0.0
    clock = follow_path(ranges, instructions, np.array(operands, np.int64), len(numbers))
    return clock * path.instructions / followed


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
