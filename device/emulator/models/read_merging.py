"""How the L2's request coalescer merges reads of blocks that wait for their data together.

Blocks read in rounds: those whose threads meet at barriers what lies between two of these, others
load by load. Where the multiprocessors of a group (GPC)
read a place within some clocks, the first read serves up to some number of them, and all go on with
the data at one time: so they stay in step. What takes them apart is simulated: reads that are not
merged come after latencies of their own, and blocks that share a multiprocessor delay each other.
Misses of the L2 can be joined for longer, which brings blocks together again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.emulator.models import merging_code
from memlab.device.emulator.models.address_streams import IntArray
from memlab.device.properties import DeviceProperties

_EVENT, _SM, _BLOCK, _UNDER_WAY, _MERGING = map(
    dtype_of,
    (
        merging_code.Event,
        merging_code.Multiprocessor,
        merging_code.Block,
        merging_code.UnderWay,
        merging_code.Merging,
    ),
)
_NORMALS = 1 << 12
_FLOAT = np.float64
DURATION_DEVIATION = 0.16
"""The standard deviation of the time of short blocks that read DRAM, over that time: 0.155 to 0.187
with 2 to 8 blocks on an SM (benchmarks/block_places.cu, H100 80GB HBM3 at 1980 MHz, 2026-11-27).
That of blocks that compute is 0.015 to 0.047, which scatters those of later waves just as well."""


@dataclass(frozen=True)
class ReadMerging:
    """When reads are merged, and what takes blocks out of step.

    Attributes:
        groups: The group of each multiprocessor, in the order in which a launch gives them blocks.
        most: Reads of one place that become one.
        coalescer_clocks: From a multiprocessor to the coalescer and back. A read can be joined as
            long as its data has not come back to the coalescer.
        rests: From the first to the last line of a read of so many lines in the L2, in clocks;
            ascending.
        miss_rests: The same of lines in DRAM.
        latency_clocks: From a read to its data in the L2.
        deviation_clocks: The standard deviation of this.
        miss_clocks: From a read to its data in DRAM.
        miss_deviation_clocks: The standard deviation of this.
        pace_deviation: That of the time in which blocks do the same work, over the time.
        start_clocks: Between the starts of two blocks.
        block_clocks: What a block takes of a multiprocessor's time in all.
        between_barriers: Whether a round lies between two barriers. Else it is a single load.
        in_turn: Whether the blocks of a multiprocessor advance alike, because their accesses queue
            for the L1. Else it serves the oldest.
    """

    groups: tuple[int, ...]
    most: int
    coalescer_clocks: float
    rests: tuple[tuple[float, float], ...]
    miss_rests: tuple[tuple[float, float], ...]
    latency_clocks: float
    deviation_clocks: float
    miss_clocks: float
    miss_deviation_clocks: float
    pace_deviation: float
    start_clocks: float
    block_clocks: float = 0.0
    between_barriers: bool = True
    in_turn: bool = False

    @classmethod
    def of(cls, properties: DeviceProperties) -> ReadMerging | None:
        """Of a device; None where a figure is unknown."""
        sizes = sorted((int(size), int(count)) for size, count in properties.l2_merging_sms.items())
        figures = (
            properties.l2_most_merged_copies,
            properties.l2_coalescer_clocks,
            _rests(properties.l2_latency_by_sectors_clocks),
            _rests(properties.dram_latency_by_sectors_clocks),
            properties.l2_latency_clocks,
            properties.l2_latency_deviation_clocks,
            properties.dram_latency_clocks,
            properties.dram_latency_deviation_clocks,
            properties.pace_deviation,
        )
        if not sizes or None in figures:
            return None
        each = [size for size, count in sizes for _ in range(count)]
        groups = np.repeat(np.arange(len(each)), each)
        rate = properties.blocks_per_clock or 1.0
        return cls(tuple(groups.tolist()), *figures, 1 / rate)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ReadRounds:
    """What the first blocks of a launch read, round by round.

    Attributes:
        starts: The first read of each block, and the end of the last one; shape (blocks + 1,).
        round: The round of each read, ascending in a block; shape (reads,).
        place: A number of what it reads, shape (reads,): equal ones can be merged.
        unit: A number of what a miss of it brings to the L2, shape (reads,).
        sectors: How many sectors it reads, shape (reads,).
        lines: How many lines these lie in, shape (reads,).
        work: The share of its block's work that follows the round, shape (reads,).
    """

    starts: IntArray
    round: IntArray
    place: IntArray
    unit: IntArray
    sectors: NDArray[np.float64]
    lines: NDArray[np.float64]
    work: NDArray[np.float64]


@dataclass(frozen=True)
class MergedReads:
    """Sectors that the L2 reads over those that multiprocessors ask for.

    Attributes:
        first_wave: Of the blocks that start at once.
        later: Of all others.
    """

    first_wave: float
    later: float


def merge_reads(
    rounds: ReadRounds, merging: ReadMerging, multiprocessors: int, resident_blocks: int
) -> MergedReads:
    """Simulate how the reads of blocks are merged.

    Args:
        rounds: The reads of the first blocks.
        merging: The coalescer, and what a block computes.
        multiprocessors: How many there are.
        resident_blocks: How many blocks each of them holds.
    """
    units, unit = np.unique(rounds.unit, return_inverse=True)
    arrivals = np.full(len(units), -1.0)
    if len(np.unique(rounds.place)) == len(rounds.place):  # nothing is read twice
        return MergedReads(1.0, 1.0)
    numbered = replace(rounds, unit=unit)
    (asked, read), _ = _simulate(numbered, arrivals, merging, multiprocessors, resident_blocks)
    first, later = np.where(asked > 0, read / np.maximum(asked, 1e-9), 0.0).tolist()
    return MergedReads(first or 1.0, later or first or 1.0)


def read_times(
    lines: NDArray[np.float64], blocks: int, merging: ReadMerging, resident_blocks: int
) -> NDArray[np.float64]:
    """When the blocks of a multiprocessor begin their rounds, in clocks. All reads hit the L2.

    Args:
        lines: How many lines each round of a block reads, shape (rounds,).
        blocks: How many blocks the multiprocessor executes.
        merging: The L2, and what a block computes.
        resident_blocks: How many of them it holds at once.

    Returns:
        Shape (blocks, rounds), ascending in each block.
    """
    number = np.arange(blocks * len(lines))
    rounds = ReadRounds(
        starts=np.arange(blocks + 1) * len(lines),
        round=np.tile(np.arange(len(lines)), blocks),
        place=number,
        unit=number,
        sectors=np.ones(len(number)),
        lines=np.tile(lines, blocks),
        work=np.full(len(number), 1 / len(lines)),
    )
    _, times = _simulate(rounds, np.zeros(len(number)), merging, 1, resident_blocks)
    return times.reshape(blocks, len(lines))


def _simulate(
    rounds: ReadRounds,
    arrivals: NDArray[np.float64],
    merging: ReadMerging,
    multiprocessors: int,
    resident_blocks: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What blocks of the first wave and later ones ask for and read, and when they do.

    Args:
        rounds: The reads of blocks, whose `unit` counts from 0.
        arrivals: When the L2 has each unit, negative for never asked; shape (units,).
        merging: The coalescer, and what a block computes.
        multiprocessors: How many there are.
        resident_blocks: How many blocks each of them holds.

    Returns:
        Sectors that are asked for, and that the L2 reads, shape (2, 2); and the clock of each read,
        shape (reads,).
    """
    count = len(rounds.starts) - 1
    places, place = np.unique(rounds.place, return_inverse=True)
    groups = np.resize(merging.groups, multiprocessors)
    computing = np.zeros((multiprocessors, resident_blocks + 1), np.int32)
    processors = np.zeros(multiprocessors, _SM)
    processors["group"] = groups
    processors["computing"] = (
        computing.ctypes.data + np.arange(multiprocessors) * (computing.strides[0])
    )
    blocks = np.zeros(count, _BLOCK)
    blocks["next"], blocks["end"] = rounds.starts[:-1], rounds.starts[1:]
    generator = np.random.default_rng(0)
    totals, times = np.zeros((2, 2)), np.zeros(len(rounds.place))
    arrays: dict[str, NDArray[Any]] = {
        "events": np.zeros(3 * (count + len(rounds.place)) + 1, _EVENT),
        "multiprocessors": processors,
        "blocks": blocks,
        "rounds": rounds.round.astype(np.int32),
        "places": place.astype(np.int32),
        "units": rounds.unit.astype(np.int32),
        "sectors": np.ascontiguousarray(rounds.sectors, _FLOAT),
        "rests": _interpolated(merging.rests, rounds.lines),
        "memory_rests": _interpolated(merging.miss_rests, rounds.lines),
        "work": rounds.work * merging.block_clocks,
        "under_way": np.zeros((int(groups.max()) + 1) * len(places), _UNDER_WAY),
        "arrivals": arrivals,
        "normals": generator.standard_normal(_NORMALS),
        "asked": totals[0],
        "read": totals[1],
        "asked_at": times,
    }
    state = np.zeros((), _MERGING)
    for name, array in arrays.items():
        state[name] = array.ctypes.data
    state["block_count"], state["place_count"] = count, len(places)
    state["first_wave"] = min(multiprocessors * resident_blocks, count)
    state["normal_count"], state["most_readers"] = _NORMALS, merging.most
    state["coalescer_clocks"] = merging.coalescer_clocks
    state["latency"], state["deviation"] = merging.latency_clocks, merging.deviation_clocks
    state["memory_latency"] = merging.miss_clocks
    state["memory_deviation"] = merging.miss_deviation_clocks
    state["pace_deviation"], state["start_clocks"] = merging.pace_deviation, merging.start_clocks
    if not merging.between_barriers:
        state["duration_deviation"] = DURATION_DEVIATION
    state["in_turn"] = merging.in_turn
    merging_code.function()(state.ctypes.data, multiprocessors)
    return totals, times


def _rests(latency_by_sectors: Mapping[str, float]) -> tuple[tuple[float, float], ...]:
    """How much later than one line so many come, by the latency of sectors of a line each."""
    known = sorted((float(sectors), clocks) for sectors, clocks in latency_by_sectors.items())
    return tuple((sectors, clocks - known[0][1]) for sectors, clocks in known)


def _interpolated(
    measured: tuple[tuple[float, float], ...], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    if not measured:
        return np.zeros(len(at))
    lines, clocks = zip(*measured, strict=True)
    found: NDArray[np.float64] = np.interp(at, lines, clocks)
    return found
