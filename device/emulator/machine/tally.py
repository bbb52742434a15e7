"""The counts of a chunk, instruction by instruction."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import (
    COUNTERS,
    REST_COLUMNS,
    TRIP_CLASSES,
    TRIP_COLUMNS,
    UNROLLINGS,
)
from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.machine.threads import Grid
from memlab.device.emulator.program.program import Program
from memlab.device.properties import WARP_SIZE


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
        branches: Lanes that branch, exit or wait at an instruction of control, warps with such
            lanes, and those of them with others, by instruction.
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
    branches: NDArray[np.int64]
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
            (3, steps),
            (steps + 1,),
            (steps + 1,),
            (2, loops, TRIP_COLUMNS),
            (loops, REST_COLUMNS),
        )
        ends = [0, *accumulate(map(math.prod, shapes))]
        if flat is None:
            flat = np.zeros(ends[-1], np.int64)
        bounds = zip(pairwise(ends), shapes, strict=True)
        return cls(flat, *(flat[start:end].reshape(shape) for (start, end), shape in bounds))

    def take(self) -> Counts:
        """A copy of all counts, which begin again from 0."""
        taken = Counts.of(len(self.receivers), len(self.rests), self.flat.copy())
        self.flat[:] = 0
        return taken


@dataclass
class Tally:
    """Counts of each instruction of a program: lists indexed by its position.

    Attributes:
        lanes: Lanes that executed it and were not predicated off.
        warps: Warps that executed it.
        requests: Warp-level memory instructions, after merging by ptxas.
        sectors: Sectors of global and local accesses.
        wavefronts: Wavefronts of shared accesses; 128-byte lines of global and local accesses;
            distinct addresses, which are served in sequence, of constant accesses.
        excessive: Wavefronts beyond the ideal.
        bytes: Bytes that the lanes requested.
        used: Bytes of global memory that the warps requested; bytes that several lanes of a warp
            request count once.
        words: Words of shared memory that the warps accessed; a word that several lanes of a warp
            access counts once. Of accesses to global memory: clocks that the L1 takes for them
            if they hit, in units of 1 / `L1_CLOCK_PARTS`.
        remote_requests: Accesses of warps to shared memory of other blocks; the counts above have
            none of these.
        remote_sectors: Sectors of these.
        receivers: Blocks to which copies to several blocks were written, of all lanes.
        slow_lanes: Lanes with operands for which the machine code calls a function
            (`isa/slow_paths.py`).
        slow_warps: Warps with such lanes.
        taken_lanes: Lanes that branch, or exit, at an instruction of control.
        taken_warps: Warps with such lanes.
        parted_warps: Warps with such lanes and others, which go on.
        rounds: Of each loop, in the order of `Program.loop_heads`, if it were unrolled by each of
            `UNROLLINGS`: how often it would be entered, and how often it would be executed, but for
            the trips that remain. First by lanes, then by warps of which a lane does so. Shape (2,
            loops, 2, unrollings), flat.
        rests: Of each loop, unrolled by the first of two of `UNROLLINGS`, how often warps execute
            the loop for the trips that remain, unrolled by the second one, which is less; 0 where
            it is not. As many as the lane for which most remain. Shape (loops, unrollings,
            unrollings), flat. The first column of the first row is how often warps left the loop at
            its end.
    """

    lanes: list[int]
    warps: list[int]
    requests: list[int]
    sectors: list[int]
    wavefronts: list[int]
    excessive: list[int]
    bytes: list[int]
    used: list[int]
    words: list[int]
    remote_requests: list[int]
    remote_sectors: list[int]
    receivers: list[int]
    slow_lanes: list[int]
    slow_warps: list[int]
    taken_lanes: list[int]
    taken_warps: list[int]
    parted_warps: list[int]
    rounds: list[int]
    rests: list[int]

    @classmethod
    def of(cls, program: Program) -> Tally:
        """A tally of zeros for a program."""
        return cls.zeros(len(program.steps), len(program.loop_heads))

    @classmethod
    def zeros(cls, instructions: int, loops: int = 0) -> Tally:
        """A tally of zeros."""
        each = len(UNROLLINGS)
        sizes = {"rounds": 4 * loops * each, "rests": loops * each**2}
        return cls(*([0] * sizes.get(field.name, instructions) for field in fields(cls)))

    def add(self, other: Tally, times: int = 1, over: int = 1) -> None:
        """Add another tally, scaled by `times / over` and rounded to whole counts."""
        for counter in fields(self):
            totals, added = getattr(self, counter.name), getattr(other, counter.name)
            if times != over:
                added = [round(value * times / over) for value in added]
            totals[:] = map(operator.add, totals, added)


@dataclass(frozen=True)
class ChunkCounts:
    """What a chunk of a program has counted, or several together, in the machine code's form.

    That of many chunks is added and looked at in less time than their tallies.

    Attributes:
        native: The program.
        counts: The counts.
    """

    native: NativeProgram
    counts: Counts

    @classmethod
    def sum(cls, parts: Sequence[ChunkCounts]) -> ChunkCounts:
        """The counts of parts of one program together; at least one."""
        native, counts = parts[0].native, parts[0].counts
        flat = np.sum([part.counts.flat for part in parts], axis=0)
        return cls(native, Counts.of(len(counts.receivers), len(counts.rests), flat))

    @property
    def lane_instructions(self) -> int:
        """The instructions of the warps, times their lanes."""
        return int(self._warps.sum()) * WARP_SIZE

    @property
    def global_sectors(self) -> int:
        """The sectors of global memory that were accessed, as of `sum_global_sectors`."""
        return int(self._column("sectors")[self._used > 0].sum())

    def tally(self) -> Tally:
        """The counts, instruction by instruction."""
        native, counts = self.native, self.counts
        lanes = np.cumsum(counts.lanes_change[:-1]) - counts.lanes_off
        requested, at = np.zeros_like(lanes), native.sites["index"]
        requested[at] = lanes[at] * native.sites["size"]
        requested[native.uncounted] = 0
        requested[native.count_themselves] = self._column("bytes")[native.count_themselves]
        names = ("requests", "sectors", "wavefronts", "excessive")
        columns = [lanes, self._warps, *map(self._column, names), requested, self._used]
        columns.extend([self._column("words"), *counts.remote, counts.receivers])
        columns.extend([*counts.slow, *counts.branches])
        columns += [rounds_of(counts.trips).reshape(-1), rests_of(counts.rests).reshape(-1)]
        return Tally(*(column.tolist() for column in columns))

    @property
    def _warps(self) -> NDArray[np.int64]:
        return np.cumsum(self.counts.warps_change[:-1])

    @property
    def _used(self) -> NDArray[np.int64]:
        used, at = np.zeros_like(self.counts.lanes_off), self.native.sites["index"]
        used[at] = self._column("addresses")[at] * self.native.sites["counted_bytes"]
        themselves = self.native.count_themselves
        used[themselves] = self._column("used")[themselves]
        return used

    def _column(self, name: str) -> NDArray[np.int64]:
        return self.counts.counters[:, COUNTERS.index(name)]


def _round_weights() -> NDArray[np.int64]:
    """The rounds that a trip completes: by its class, then by unrolling.

    A loop that is unrolled by n makes a round of every n trips: those whose number n divides.
    """
    divides: NDArray[np.bool_] = np.arange(TRIP_CLASSES)[:, None] % UNROLLINGS == 0
    return divides.astype(np.int64)


def _rest_weights() -> NDArray[np.int64]:
    """The counts that a warp adds to `Tally.rests`: by column of the machine code's, then flat."""
    each = len(UNROLLINGS)
    weights = np.zeros((REST_COLUMNS, each, each), np.int64)
    weights[: UNROLLINGS[1], 0, 0] = 1
    start = 0
    for number, unrolled in enumerate(UNROLLINGS[1:], 1):
        trips = np.arange(unrolled)[:, None]
        weights[start : start + unrolled, number, :number] = trips // UNROLLINGS[:number]
        start += unrolled
    return weights.reshape(REST_COLUMNS, -1)


_ROUND_WEIGHTS, _REST_WEIGHTS = _round_weights(), _rest_weights()


def rounds_of(trips: NDArray[np.int64]) -> NDArray[np.int64]:
    """The columns of `Tally.rounds` from those that the machine code counts (`count_trip`)."""
    rounds = trips[..., :TRIP_CLASSES] @ _ROUND_WEIGHTS
    return np.stack((trips[..., TRIP_CLASSES:], rounds), axis=-2)


def rests_of(rests: NDArray[np.int64]) -> NDArray[np.int64]:
    """The columns of `Tally.rests` from those that the machine code counts (`count_leaving`)."""
    found: NDArray[np.int64] = rests @ _REST_WEIGHTS
    return found.reshape(*rests.shape[:-1], len(UNROLLINGS), len(UNROLLINGS))


MOST_WARPS = 1 << 19
"""Of a grid whose warps are noted one by one: their schedule takes about a second. More of them are
some hundreds to each place of a GPU, of which the last ones to end matter little."""
_MOST_EXCESS = 0.05  # of equal work, over the mean


def is_unequal(work: NDArray[np.int64]) -> bool:
    """Whether some blocks, or warps of theirs by turns, do more than the others.

    A few that do less, as at the edges of arrays, make no difference to when the last one ends.

    Args:
        work: The instructions of each warp, shape (blocks, warps).
    """
    excess = np.maximum(work - work.mean(axis=0), 0.0)
    return bool(np.sqrt((excess**2).mean()) > _MOST_EXCESS * work.mean())


class WarpWork:
    """The instructions of each warp of a grid, as far as its blocks have run."""

    def __init__(self, grid: Grid) -> None:
        self._strides = np.array([1, grid.grid[0], grid.grid[0] * grid.grid[1]])
        self._warps = grid.padded_threads // WARP_SIZE
        blocks = math.prod(grid.grid)
        is_kept = blocks * self._warps <= MOST_WARPS
        self._executed = np.zeros((blocks if is_kept else 0, self._warps), np.int64)

    def note(self, blocks: NDArray[np.int64], executed: NDArray[np.int64]) -> None:
        """Note what blocks have executed; of one that ran before, the last time counts.

        Args:
            blocks: Their coordinates, shape (blocks, 3).
            executed: The instructions of each warp, block after block; others may follow.
        """
        if len(self._executed):
            counts = executed[: len(blocks) * self._warps]
            self._executed[blocks @ self._strides] = counts.reshape(-1, self._warps)

    def of_whole_grid(self) -> NDArray[np.int64] | None:
        """The instructions of each warp, shape (blocks, warps), in the order of launch.

        None where a block has not run, or there are too many to note them.
        """
        executed = self._executed
        return executed if len(executed) and executed.any(axis=1).all() else None
