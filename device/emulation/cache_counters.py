"""The counters of the caches: hits and traffic, by the cache model that suits the launch.

Where blocks can be executed again in reasonable time, the caches see their addresses
(`executed_addresses`, `models/cache_replay`): of the whole grid, or of its first waves where
addresses depend on data. Otherwise they see those of a recorded block, moved to all others
(`models/address_streams`, `models/caches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memlab.device.beside import beside
from memlab.device.emulation import executed_addresses
from memlab.device.emulation.async_copies import CopyCosts
from memlab.device.emulation.execution import Execution
from memlab.device.emulation.multicast import sectors_to_others
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models import caches, further_waves
from memlab.device.emulator.models.access_levels import AccessLevels, uniform_levels
from memlab.device.emulator.models.address_streams import AccessStream, ActiveRegion
from memlab.device.emulator.models.cache_replay import (
    LineAccesses,
    replay_accesses,
    schedule_blocks,
)
from memlab.device.emulator.models.coalescing import CopyMerging
from memlab.device.emulator.models.further_waves import Sectors
from memlab.device.emulator.models.read_merging import ReadMerging
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    instructions_in_loops,
)
from memlab.device.emulator.sampling.data_dependence import depends_on_data
from memlab.device.measurement import Counters, total_global_atomic_sectors
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, DeviceProperties
from memlab.device.sm_model.records import SCHEDULERS

_CLEARLY = 2.0  # times the spread over a launch: that over a block
_MOST_RESIDENT = 8
"""Blocks on each SM up to which their pace was measured (docs/results/h200-block-paces.csv), and
merged reads were counted in a loop (h100-row-reads.csv, h100-wave-reads.csv there)."""


@dataclass(frozen=True)
class CacheCounters:
    """What the caches of a device do in a launch.

    Attributes:
        counters: The counters of the launch, with those of the caches.
        levels: Where the sectors of each memory instruction are served, by its position in the
            program.
    """

    counters: Counters
    levels: Mapping[int, AccessLevels]


def cache_geometry(
    properties: DeviceProperties,
    resident_blocks: int,
    carveout_bytes: int,
    blocks: int = 1,
    cluster_blocks: int = 1,
) -> caches.CacheGeometry:
    """The caches of a device, for a grid of blocks; a cache of unknown size holds nothing."""
    multiprocessors = properties.multiprocessor_count or 1
    waves = blocks / (resident_blocks * multiprocessors)
    paces = ReadMerging.of(properties)
    return caches.CacheGeometry(
        multiprocessors=multiprocessors,
        resident_blocks=resident_blocks,
        l1_bytes=max((properties.l1_cache_bytes_per_sm or 0) - carveout_bytes, 0),
        l2_bytes=properties.l2_cache_bytes or 0,
        dram_access_bytes=properties.dram_access_bytes or SECTOR_BYTES,
        l2_partitions=properties.l2_partitions or 1,
        merged_by_readers=tuple(
            sorted((float(n), merged) for n, merged in properties.l2_merged_reads_by_sms.items())
        ),
        copies=CopyMerging.of(properties, cluster_blocks),
        merged_later=_merged_later(properties.l2_merged_later_reads, resident_blocks, waves),
        reads=paces,
        paces=paces,
    )


def _merged_later(
    measured: Mapping[str, float], resident_blocks: int, waves: float
) -> tuple[tuple[float, float], ...]:
    """How reads of later waves are merged, by neighbours: between those that were measured.

    Blocks per SM and waves were measured in powers of two, and their logarithms count.
    """
    if not measured:
        return ()
    table = {tuple(map(int, key.split("x"))): merged for key, merged in measured.items()}
    per_sm, of_waves, neighbours = (sorted(set(keys)) for keys in zip(*table, strict=True))

    def between(readers: int) -> float:
        by_waves = []
        for of in of_waves:
            merged = [table[number, of, readers] for number in per_sm]
            by_waves.append(np.interp(np.log(resident_blocks), np.log(per_sm), merged))
        return float(np.interp(np.log(waves), np.log(of_waves), by_waves))

    return tuple((float(readers), between(readers)) for readers in neighbours)


def model_caches(
    execution: Execution,
    tally: Tally,
    counters: Counters,
    stream: AccessStream,
    active: ActiveRegion,
    lane_instructions_per_block: float,
    geometry: caches.CacheGeometry,
    copies: CopyCosts | None = None,
) -> CacheCounters:
    """Model the caches of a launch. The outputs of the launch are lost.

    Args:
        execution: The launch, which has been counted.
        tally: The counts of the whole grid.
        counters: Their totals.
        stream: The accesses of a representative block.
        active: The blocks that access memory.
        lane_instructions_per_block: The cost of emulating a block.
        geometry: The caches.
        copies: What asynchronous copies cost; each sector is fetched once if not given. A sector
            that is fetched again hits the L2.
    """
    cached = _model_once(
        execution, tally, counters, stream, active, lane_instructions_per_block, geometry
    )
    copies = copies or CopyCosts()
    again = sum(
        tally.sectors[load] * (fetches - 1) for load, fetches in copies.fetches_per_sector.items()
    )
    once = cached.counters
    delivered = once.lrc_read_sectors + sectors_to_others(execution.program, tally)
    apart = sum(tally.sectors[load] * each for load, each in copies.unmerged_per_sector.items())
    if not again + apart or not once.lrc_read_sectors:
        return replace(cached, counters=replace(once, lrc_read_sectors=delivered))
    asked = once.lrc_read_sectors + again
    apart = min(apart, asked)
    read = apart + (asked - apart) * once.l2_read_sectors / once.lrc_read_sectors
    more = round(read) - once.l2_read_sectors
    refetched = replace(
        once,
        lrc_read_sectors=delivered + round(again),
        l2_read_sectors=once.l2_read_sectors + more,
        l2_read_sector_hits=once.l2_read_sector_hits + more,
    )
    return replace(cached, counters=refetched)


def _model_once(
    execution: Execution,
    tally: Tally,
    counters: Counters,
    stream: AccessStream,
    active: ActiveRegion,
    lane_instructions_per_block: float,
    geometry: caches.CacheGeometry,
) -> CacheCounters:
    """Model the caches as if each miss of an L1 fetched its sectors once."""
    waits = _waits_in_loops(execution.program)
    by_chance = not stream.affine.all() and depends_on_data(execution.program)
    geometry = suit_blocks(geometry, counters, execution.launch.blocks, waits)
    lines = executed_addresses.record_lines(
        execution, tally, lane_instructions_per_block, bool(stream.affine.all()), geometry
    )
    if lines is not None and len(lines.place):
        if by_chance:
            one_wave = execution.launch.blocks <= geometry.wave
            reads = geometry.reads if waits or one_wave else None
            geometry = replace(geometry, merged_by_readers=(), reads=reads, in_step=False)
        return _by_replay(execution, tally, counters, lines, geometry)
    if not waits:
        stream = replace(stream, round=stream.window)
    counters = _by_stream(counters, stream, active, geometry)
    cacheable = counters.global_load_sectors * stream.cacheable_share
    levels = uniform_levels(
        execution.program,
        l1_hits=min(counters.l1_read_sector_hits / cacheable, 1.0) if cacheable else 0.0,
        l2_hits=l2_hit_rate(counters),
        atomic_hits=atomic_hit_rate(counters),
    )
    of_one_sm = executed_addresses.record_lines_of_one_sm(
        execution, tally, lane_instructions_per_block, geometry
    )
    if of_one_sm is not None and len(of_one_sm.place):
        levels = _by_instruction(execution, tally, of_one_sm, levels, geometry)
    return CacheCounters(counters, levels)


def _by_instruction(
    execution: Execution,
    tally: Tally,
    lines: LineAccesses,
    levels: Mapping[int, AccessLevels],
    geometry: caches.CacheGeometry,
) -> Mapping[int, AccessLevels]:
    """Tell which loads miss the L1, and when in their block, as those of one multiprocessor do.

    Args:
        execution: The launch.
        tally: The counts of the whole grid.
        lines: What the blocks access that one multiprocessor holds first.
        levels: The same shares of all instructions, those of the whole launch.
        geometry: The caches.
    """
    alone = replace(
        geometry,
        multiprocessors=1,
        l2_bytes=geometry.l2_partitions * LINE_BYTES,
        merged_by_readers=(),
        copies=None,
        reads=None,
    )
    steps = execution.program.steps
    replayed = replay_accesses(lines, schedule_blocks(lines.ends, alone), steps, alone)
    by_turn = {
        index: replayed.by_turn[:, :, load]
        for load, index in enumerate(replayed.loads.tolist())
        if index in levels and not steps[index].row.bypass_l1
    }
    sectors = {index: float(tally.sectors[index]) for index in by_turn}
    missed = {
        index: 1 - counts[:, 2].sum() / max(counts[:, 1].sum(), 1)
        for index, counts in by_turn.items()
    }
    of_all = sum(sectors[index] * (1 - levels[index].l1) for index in by_turn)
    of_these = sum(sectors[index] * missed[index] for index in by_turn)
    if not of_these:
        return levels
    found, wave = dict(levels), replayed.first_wave
    inside = instructions_in_loops(execution.program)
    for index, counts in by_turn.items():
        share = min(missed[index] * of_all / of_these, 1.0)
        at = AccessLevels.of(1 - share, levels[index].l2 / max(1 - levels[index].l1, 1e-9))
        if inside[index]:  # what a block reads once, others have read before: its parameters
            coming = at.l1 * wave.joined[index] / max(wave.l1_hits[index], 1)
            from_dram = at.dram / max(1 - at.l1, 1e-9)
            at = replace(at, l1_joined=coming, l1_joined_dram=coming * from_dram)
        counts = counts.copy()
        counts[:, 3:] = counts[:, 1:2] - counts[:, 2:3]
        found[index] = replace(_with_progress(at, None, counts), far_by_progress=())
    return found


def suit_blocks(
    geometry: caches.CacheGeometry, counters: Counters, blocks: int, waits: bool
) -> caches.CacheGeometry:
    """Caches for blocks of this much work, with the merging of reads that was measured of such.

    Args:
        geometry: The caches.
        counters: What the blocks do.
        blocks: How many there are.
        waits: Whether they wait at barriers over and over.
    """
    together = min(geometry.resident_blocks, -(-blocks // geometry.multiprocessors))
    if not waits:
        geometry = replace(geometry, merged_later=(), paces=None)
    elif together > _MOST_RESIDENT:
        geometry = replace(geometry, reads=None, paces=None)
    elif blocks > caches.MERGED_WAVES * geometry.wave:
        geometry = replace(geometry, reads=None)
    issue = counters.warp_instructions / SCHEDULERS / blocks
    clocks = max(issue, _pass_clocks(counters, blocks))
    in_turn = not waits and clocks > issue
    in_order = geometry.reads is not None and _ends_before_all_start(
        geometry.reads, clocks * geometry.resident_blocks, geometry.wave
    )
    # Blocks that share an SM drift apart further than simulated: with partitions too many merge.
    partitions = geometry.l2_partitions if together == 1 else 1
    reads, paces = (
        each
        and replace(
            each,
            block_clocks=clocks,
            between_barriers=waits,
            in_turn=in_turn,
            partitions=partitions,
        )
        for each in (geometry.reads, geometry.paces)
    )
    return replace(geometry, reads=reads, paces=paces, in_order=in_order)


def _ends_before_all_start(merging: ReadMerging, clocks: float, blocks: int) -> bool:
    """Whether blocks that read DRAM once and compute for so long end before so many have started.

    An H200 starts them one by one: it gives blocks of 16 threads, 32 on each SM, to SMs in turn.
    """
    return merging.miss_clocks + clocks < blocks * merging.start_clocks


def _pass_clocks(counters: Counters, blocks: int) -> float:
    """How long a block takes the L1's data stage: for shared memory, or for all else."""
    passes = {True: 0, False: 0}
    for (space, _), of in counters.accesses.items():
        passes[space == "shared"] += of.wavefronts
    return max(passes.values()) / blocks


def _waits_in_loops(program: Program) -> bool:
    """Whether warps wait at barriers over and over, which keeps a block's reads together."""
    return any(
        step.row.kind == "barrier" and inside
        for step, inside in zip(program.steps, instructions_in_loops(program), strict=True)
    )


def launch_read_bytes(code_bytes: int, properties: DeviceProperties) -> int:
    """Bytes that a launch with cold caches reads from DRAM besides what its threads access.

    That is its machine code, once, and what the device needs to start it; 0 where that is unknown.
    """
    if properties.dram_launch_bytes is None:
        return 0
    access_bytes = properties.dram_access_bytes or SECTOR_BYTES
    return properties.dram_launch_bytes + -(-code_bytes // access_bytes) * access_bytes


def l2_hit_rate(counters: Counters) -> float:
    """The share of the sectors that loads read from the L2 that hit it."""
    reads = counters.l2_read_sectors
    return counters.l2_read_sector_hits / reads if reads else 1.0


def atomic_hit_rate(counters: Counters) -> float:
    """The share of the sectors of atomics that hit the L2."""
    atomics = total_global_atomic_sectors(counters)
    read_by_atomics = counters.dram_read_bytes // SECTOR_BYTES - (
        counters.l2_read_sectors - counters.l2_read_sector_hits
    )
    return max(0.0, 1 - read_by_atomics / atomics) if atomics else 1.0


def _by_stream(
    counters: Counters, stream: AccessStream, active: ActiveRegion, geometry: caches.CacheGeometry
) -> Counters:
    """Add the counters of the caches, by the accesses of a recorded block."""
    weights = _weights(counters, stream)
    with beside(partial(caches.dram_bytes, stream, active, geometry, weights)) as of_l2:
        l1 = caches.l1_reads(stream, active, geometry)
    dram = of_l2.result()
    hits = round(counters.global_load_sectors * stream.cacheable_share * (1 - l1.miss_rate))
    lrc_reads = counters.global_load_sectors - hits
    l2_reads = round(lrc_reads * l1.coalesced_share)
    l2_misses = min(dram.loaded // SECTOR_BYTES, l2_reads)
    # A read miss loads at most one DRAM access.
    loaded = min(dram.loaded, l2_reads * geometry.dram_access_bytes)
    return replace(
        counters,
        l1_read_sector_hits=hits,
        lrc_read_sectors=lrc_reads,
        l2_read_sectors=l2_reads,
        l2_read_sector_hits=l2_reads - l2_misses,
        l2_write_sectors=_l2_write_sectors(counters),
        dram_read_bytes=loaded + dram.for_atomics,
        dram_write_bytes=dram.written,
    )


def _weights(counters: Counters, stream: AccessStream) -> tuple[float, float]:
    """How much more loads, and other accesses, occur in the grid than in the recorded stream.

    Relative to all accesses; 1 where the stream has none of them.
    """
    loads = counters.global_load_sectors
    others = counters.global_store_sectors + total_global_atomic_sectors(counters)
    in_grid, recorded = loads / (loads + others) if loads else 0.0, stream.load_share
    return (
        in_grid / recorded if recorded > 0 else 1.0,
        (1 - in_grid) / (1 - recorded) if recorded < 1 else 1.0,
    )


def _l2_write_sectors(counters: Counters) -> int:
    """The L1 writes local stores through, too: on an H200 the L2 counts both of filter-local's."""
    return counters.global_store_sectors + counters.local_store_sectors


def _by_replay(
    execution: Execution,
    tally: Tally,
    counters: Counters,
    lines: LineAccesses,
    geometry: caches.CacheGeometry,
) -> CacheCounters:
    """Add the counters of the caches, by executed accesses.

    What was replayed gives the shares of each instruction's sectors; the tally has the sectors.
    """
    steps = execution.program.steps
    executed, blocks = len(lines.ends), execution.launch.blocks
    schedule = schedule_blocks(lines.ends, geometry)
    replayed = replay_accesses(lines, schedule, steps, geometry, blocks)
    columns = further_waves.of_whole_grid(replayed, executed, blocks, geometry.wave)
    traffic = _Traffic.of(columns, tally, steps)
    fetched = _at_most_once(execution, traffic.fetches.sum() * geometry.dram_access_bytes, geometry)
    is_load = np.array([step.row.kind == "load" for step in steps])
    is_local = np.array([step.row.space == "local" for step in steps])
    scale = blocks / executed * lines.factor
    reads = round(float(traffic.l2_reads.sum()))
    counters = replace(
        counters,
        l1_read_sector_hits=round(float(traffic.l1_hits[is_load & ~is_local].sum())),
        lrc_read_sectors=round(float(traffic.lrc_reads.sum())),
        l2_read_sectors=reads,
        l2_read_sector_hits=max(reads - round(float(traffic.l2_misses.sum())), 0),
        l2_write_sectors=_l2_write_sectors(counters),
        dram_read_bytes=_whole(fetched, geometry.dram_access_bytes),
        dram_write_bytes=_whole(replayed.written_back * SECTOR_BYTES * scale, SECTOR_BYTES),
    )
    levels = dict(_levels(steps, traffic, is_load))
    for load, index in enumerate(replayed.loads.tolist()):
        if index in levels:
            by_part = replayed.by_part[:, :, load] if executed == blocks else None
            levels[index] = _with_progress(levels[index], by_part, replayed.by_turn[:, :, load])
    return CacheCounters(counters, levels)


@dataclass(frozen=True)
class _Traffic:
    """The traffic of the whole grid, by instruction: as `InstructionTraffic`, in sectors."""

    accesses: Sectors
    l1_hits: Sectors
    lrc_reads: Sectors
    l2_reads: Sectors
    l2_misses: Sectors
    memory_reads: Sectors
    atomic_misses: Sectors
    fetches: Sectors
    first_reads: Sectors
    joined: Sectors
    joined_memory: Sectors
    l2_joined_memory: Sectors

    @classmethod
    def of(
        cls,
        columns: dict[str, Sectors],
        tally: Tally,
        steps: Sequence[DecodedInstruction],
    ) -> _Traffic:
        """The traffic of all blocks, scaled to the sectors that were counted."""
        in_l1 = np.array([step.row.kind == "load" and not step.row.bypass_l1 for step in steps])
        in_l2 = np.array([step.row.kind == "load" and step.row.bypass_l1 for step in steps])
        sectors, seen = np.array(tally.sectors, float), columns["accesses"]
        # Lines so few that none is in the sample are read again and again: they hit.
        unseen = np.where(seen > 0, 0.0, sectors)
        columns["accesses"] = seen + unseen
        columns["l1_hits"] = columns["l1_hits"] + unseen * in_l1
        for name in ("lrc_reads", "l2_reads"):
            columns[name] = columns[name] + unseen * in_l2
        scale = sectors / np.maximum(columns["accesses"], 1.0)
        return cls(**{name: column * scale for name, column in columns.items()})


def _levels(
    steps: Sequence[DecodedInstruction], traffic: _Traffic, is_load: NDArray[np.bool_]
) -> Mapping[int, AccessLevels]:
    """Where the sectors of each instruction are served; only those that were executed are named."""
    levels: dict[int, AccessLevels] = {}
    for index in np.flatnonzero(traffic.accesses).tolist():
        accesses = traffic.accesses[index]
        if is_load[index]:
            l1, dram = traffic.l1_hits[index] / accesses, traffic.memory_reads[index] / accesses
            levels[index] = AccessLevels(
                float(l1),
                float(max(1 - l1 - dram, 0.0)),
                float(dram),
                float(traffic.joined[index] / accesses),
                float(traffic.joined_memory[index] / accesses),
                float(traffic.l2_joined_memory[index] / accesses),
                _far_share(traffic, index),
            )
        else:
            is_store = steps[index].row.kind == "store"
            missed = 0.0 if is_store else float(traffic.atomic_misses[index] / accesses)
            levels[index] = AccessLevels.of(0.0, 1 - missed)
    return levels


def _far_share(traffic: _Traffic, index: int) -> float | None:
    """The share of what the L2 serves of a load that only the other partition holds."""
    served = traffic.lrc_reads[index] - traffic.memory_reads[index]
    far = traffic.l2_misses[index] - traffic.memory_reads[index]
    return float(np.clip(far / served, 0, 1)) if served > 0 else None


def _with_progress(
    levels: AccessLevels, by_part: NDArray[np.int64] | None, by_turn: NDArray[np.int64]
) -> AccessLevels:
    """Add how the misses of a load are distributed over the time of a launch, or of a block.

    Over that in which they differ more: in a launch of one wave of blocks, both are about the same.

    Args:
        levels: The shares over the whole launch.
        by_part: As of `ReplayedTraffic`, of the load, shape (parts, 5); None if it is not known.
        by_turn: The same of a block.
    """
    of_launch = None if by_part is None else _shares_by_progress(by_part)
    of_block = _shares_by_progress(by_turn)
    shares, in_block = of_launch, False
    if of_block is not None and _spread(of_block) > _CLEARLY * _spread(of_launch):
        shares, in_block = of_block, True
    if shares is None:
        return levels
    missed, dram, far = (tuple(each.tolist()) for each in shares)
    return replace(
        levels,
        missed_by_progress=missed,
        dram_by_progress=dram,
        far_by_progress=far,
        progress_in_block=in_block,
    )


def _shares_by_progress(counts: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """What misses the L1, comes from DRAM, and from the far partition: in parts, over the mean.

    Args:
        counts: Sectors in parts of the time, as of `ReplayedTraffic.by_part`; shape (parts, 5).

    Returns:
        Of parts of as many accesses to lines each, shape (3, parts); None where nothing misses.
    """
    before = np.zeros(counts.shape[1])
    requests, accesses, l1_hits, reads, l2_misses = np.vstack([before, counts.cumsum(axis=0)]).T
    missed, far = accesses - l1_hits, l2_misses - reads
    if not accesses[-1] or not missed[-1] or not reads[-1]:
        return None
    progress = np.linspace(0, requests[-1], len(requests))
    return np.array(
        [
            np.diff(np.interp(progress, requests, sectors)) / max(sectors[-1], 1) * len(counts)
            for sectors in (missed, reads, far)
        ]
    )


def _spread(shares: NDArray[np.float64] | None) -> float:
    """How much the shares of what misses the L1 and comes from DRAM differ between parts."""
    return 0.0 if shares is None else float(shares[:2].var(axis=1).sum())


def _at_most_once(
    execution: Execution, fetched_bytes: float, geometry: caches.CacheGeometry
) -> float:
    """Bytes read from DRAM, where each byte is read once if all arrays fit the L2."""
    arrays = sum(array.size for array in execution.memory.allocations)
    return min(fetched_bytes, arrays) if arrays <= geometry.l2_bytes else fetched_bytes


def _whole(size: float, unit: int) -> int:
    """A number of bytes, rounded to whole units."""
    return round(size / unit) * unit
