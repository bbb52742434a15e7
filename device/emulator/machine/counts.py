"""What a chunk's machine code counts, in one array, which is taken and added as a whole."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import COUNTERS, REST_COLUMNS, TRIP_COLUMNS


@dataclass(frozen=True)
class Counts:
    """Counts of a program with some instructions and loops, as `layout.Context` describes them.

    Attributes:
        flat: All of them; the others are views of it.
        counters: The counters of memory instructions: `layout.COUNTERS` by instruction.
        remote: Requests and sectors of shared memory of other blocks, by instruction.
        receivers: By instruction, the blocks that each lane's copy was written to, of all lanes.
        lanes_off: By instruction, the lanes that its guard switched off.
        slow: Lanes whose operands take a slow path, and warps with such lanes, by instruction.
        lanes_change: By instruction, how many lanes more execute it than the one before.
        warps_change: The same of warps.
        trips: Executions of each loop's head by lanes and by warps, shape (2, loops,
            `TRIP_COLUMNS`).
        rests: Warps that have left each loop, shape (loops, `REST_COLUMNS`).
    """

    flat: NDArray[np.int64]
    counters: NDArray[np.int64]
    remote: NDArray[np.int64]
    receivers: NDArray[np.int64]
    lanes_off: NDArray[np.int64]
    slow: NDArray[np.int64]
    lanes_change: NDArray[np.int64]
    warps_change: NDArray[np.int64]
    trips: NDArray[np.int64]
    rests: NDArray[np.int64]

    @classmethod
    def of(cls, steps: int, loops: int, flat: NDArray[np.int64] | None = None) -> Counts:
        """Counts of a program with so many instructions and loops: those in `flat`, or zeros."""
        shapes = (
            (steps, len(COUNTERS)),
            (2, steps),
            (steps,),
            (steps,),
            (2, steps),
            (steps + 1,),
            (steps + 1,),
            (2, loops, TRIP_COLUMNS),
            (loops, REST_COLUMNS),
        )
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if flat is None:
            flat = np.zeros(ends[-1], np.int64)
        parts = np.split(flat, ends[:-1])
        return cls(flat, *(part.reshape(of) for part, of in zip(parts, shapes, strict=True)))

    def take(self) -> Counts:
        """A copy of all counts, which begin again from 0."""
        taken = Counts.of(len(self.receivers), len(self.rests), self.flat.copy())
        self.flat[:] = 0
        return taken
