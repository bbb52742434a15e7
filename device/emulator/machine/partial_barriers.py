"""Barriers that a part of a block meets at: numbered ones, with a count, and `bar.arrive`.

Where each barrier is for the whole block, all open as soon as no thread can run. Numbered ones
must not: a producer and a consumer wait at different ones (PTX ISA, "bar").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.operands import Operands, Source, value_of
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import Immediate
from memlab.device.properties import WARP_SIZE

WaitingGroups = dict[int, Mask]


def is_partial(step: DecodedInstruction) -> bool:
    """Whether it is a barrier that not all threads of a block need to reach."""
    barrier, *count = step.instruction.operands or (Immediate("int", 0),)
    whole = isinstance(barrier, Immediate) and not barrier.bits and not count
    return step.row.kind == "arrive" or (step.row.kind == "barrier" and not whole)


class PartialBarriers:
    """Who waits at which barrier, and who has only told that it came by."""

    def __init__(
        self, steps: Sequence[DecodedInstruction], operands: Operands, threads: Threads
    ) -> None:
        """Watch the barriers of a chunk."""
        self._threads = threads
        self._block = np.arange(threads.lanes) // threads.grid.padded_threads
        self._arrived: Counter[tuple[int, int]] = Counter()  # threads, by block and barrier
        self._given: dict[int, list[Source]] = {
            index: [operands.source(each, "u32") for each in step.instruction.operands]
            for index, step in enumerate(steps)
            if step.row.kind in ("barrier", "arrive")
        }

    def arrive(self, step: int, mask: Mask | None) -> None:
        """Lanes come by at a barrier without waiting; a warp counts with all its threads."""
        lanes = self._threads.alive if mask is None else mask
        numbers = self._value(step, 0)
        warps = lanes.reshape(-1, WARP_SIZE).any(axis=1)
        for warp in np.flatnonzero(warps).tolist():
            lane = warp * WARP_SIZE
            own = slice(lane, lane + WARP_SIZE)
            first = lane + int(lanes[own].argmax())
            key = int(self._block[lane]), int(numbers[first])
            self._arrived[key] += WARP_SIZE

    def open(self, parked: WaitingGroups) -> tuple[WaitingGroups, WaitingGroups]:
        """Say which lanes go on, and which wait on; where no barrier is complete, all go on."""
        numbers = np.full(self._threads.lanes, -1, np.int64)
        counts = np.zeros(self._threads.lanes, np.int64)
        for resume, lanes in parked.items():
            numbers[lanes] = self._value(resume - 1, 0)[lanes]
            counts[lanes] = self._value(resume - 1, 1)[lanes]
        waiting = numbers >= 0
        going = np.zeros_like(waiting)
        for block in np.unique(self._block[waiting]).tolist():
            inside = waiting & (self._block == block)
            for number in np.unique(numbers[inside]).tolist():
                here = inside & (numbers == number)
                expected = int(counts[here].max())
                present = _whole_warps(here) + self._arrived[block, number]
                if present >= expected if expected else np.array_equal(here, inside):
                    going |= here
                    self._arrived[block, number] = 0
        if not going.any():
            return parked, {}
        return _select_lanes(parked, going), _select_lanes(parked, ~going)

    def _value(self, step: int, operand: int) -> NDArray[np.int64]:
        given = self._given[step]
        value = value_of(given[operand]) if operand < len(given) else np.zeros((), np.int64)
        return np.broadcast_to(value.astype(np.int64), self._threads.lanes)


def _whole_warps(lanes: Mask) -> int:
    """Barriers count whole warps."""
    return int(lanes.reshape(-1, WARP_SIZE).any(axis=1).sum()) * WARP_SIZE


def _select_lanes(parked: WaitingGroups, lanes: Mask) -> WaitingGroups:
    return {resume: mask & lanes for resume, mask in parked.items() if (mask & lanes).any()}
