"""The time of a launch: the SM that executes most blocks, simulated with its share of the device.

All SMs execute the same kernel at the same time, so one stands for them: it has an equal share of
the L2's and of DRAM's bandwidth. Of a long launch, some waves of blocks are simulated, and the
others are taken to last as long as the later ones of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memlab.device import time_model
from memlab.device.machine_code.instructions import MachineInstruction
from memlab.device.machine_code.retries import SWAP_WAVEFRONTS, is_swap
from memlab.device.measurement import Occupancy, Time
from memlab.device.occupancy import resident_blocks
from memlab.device.properties import (
    LINE_BYTES,
    SECTOR_BYTES,
    DeviceProperties,
    clock_hz,
    figure_at,
    peak_bandwidth_bytes_per_s,
)
from memlab.device.sm_model import unequal_work
from memlab.device.sm_model.barriers import sites_of
from memlab.device.sm_model.block_paths import block_paths
from memlab.device.sm_model.load_clock import load_clock, tensor_load, type_loads
from memlab.device.sm_model.pipes import (
    ADDRESS_CLOCKS,
    ARRIVAL_CLOCKS,
    QUEUE_DEPTH,
    Issue,
    awaited_of,
    dispatch_clocks,
    is_device_fence,
    issue_of,
    product_wavefronts,
    resolving_clocks,
    throttle_of,
)
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.device.sm_model.records import (
    FENCES,
    QUANTILES,
    READ_WINDOW_CLOCKS,
    SCHEDULERS,
    Kind,
    Unit,
)
from memlab.device.sm_model.registers import register_reads
from memlab.device.sm_model.simulation import (
    CODE_LINE_BYTES,
    BarrierWork,
    Floats,
    Rates,
    Simulated,
    Steps,
    Workload,
    empty_steps,
    run,
)

BUDGET = 3_000_000
"""Instructions that are simulated at most: some 0.2 s."""
_SHORTEST_PATH = 4_000  # instructions of a path that are kept at least
_PORT_BYTES_PER_CLOCK = 64.0
"""What an SM reads from the L2 per clock (NVIDIA A100 whitepaper; Hopper has the same port)."""
_BEFORE_L1_CLOCKS = 1.0 + ADDRESS_CLOCKS
"""From issue to the L1 in an idle SM; measured latencies contain it."""
_L2_ACCESS_SECTORS = 2.0
"""A slice of the L2 serves a line per clock, and 64 bytes of it (NVIDIA A100 whitepaper: 5,120
bytes a clock from 80 slices)."""
_LONE_STORE_SECTORS = {"4": 1.02, "8": 1.37}
"""What a whole sector counts that a request stores without its neighbours in the line, by the lines
of the request: 4096 sectors of each SM, 32 times, in pieces of 32 bytes to rows 16 KiB apart, over
the time of whole lines (tests/data/h200-row-stores.csv). Of parts of sectors nothing was measured:
they are taken to be like reads."""
_L2_PLACES = QUANTILES // 2
"""Latencies of each half of the L2 in the table."""
_PART_STORE_SECTORS = {"1": 2.16, "2": 1.50, "4": 1.27}
"""What a sector counts of which a request stores only a part, by the sectors of a line: on all SMs
of an H200, such sectors of 8 lines left in 3.9, 2.7 and 2.3 clocks
(tests/data/h200-merged-stores.csv), over the 1.81 of `l2_write_bytes_per_clock`."""
_MOSTLY_WHOLE_BYTES = 28.0  # of a request's sectors, in the mean: most are stored whole
_LEAST_SERVED_READS = 8.95 / 13.6
"""Lines that each SM reads alone come at 8.95 TB/s, and those that all read at the same time, of
which one read of the L2 serves several, at 13.6 TB/s (`memlab peaks` on an H200)."""
_ATOMIC_CLOCKS = 1.0
"""An L2 slice takes an atomic on one address per clock (NVIDIA Kepler GK110 whitepaper), where the
device gives no other figure."""
_ATOMIC_SECTOR_SHARES = {
    "reduce": {"lane": 56.2 / 59.5, "sector": 41.1 / 59.5, "line": 62.5 / 59.5},
    "return": {"lane": 42.7 / 59.5, "sector": 41.5 / 59.5, "line": 36.9 / 59.5},
    "swap": {"lane": 42.7 / 59.5, "sector": 27.7 / 59.5, "line": 24.6 / 59.5},
}
"""Sectors that all SMs operate on at random places of 8 MiB in the L2, over
`global_atomics_per_clock`, which is 59.5 of an H200: where one lane operates on a sector, where
several do, and where they do so on all sectors of a line (`benchmarks/dependent.cu`,
`tests/data/h200-dependent.csv`, the most of 16 to 64 warps on each SM; of reductions, of 16 and
32)."""
_NEIGHBOURED = 1.5  # sectors of a line, or lanes of a sector: more than one
_REMOTE_LATENCY_CLOCKS = {"2": 195.5, "4": 196.3, "8": 197.0, "16": 197.1}
"""Of a load of another block's shared memory, by the blocks of a cluster: pointer chases by one
thread of each cluster of an H200 at the same time (`benchmarks/cluster_times.cu`, driver
580.159.04, 2026-11-26), the mean over the pairs of blocks. Between two SMs it is 180 to 217, after
their places. An H800 took 181 in clusters of two (Luo et al., "Dissecting the NVIDIA Hopper
Architecture through Microbenchmarking and Multiple Level Analysis", arXiv 2501.12084)."""
_REMOTE_ATOMIC_CLOCKS = 5.0
"""That an atomic there takes more than a load (ibid.: chases by `atom.add` of 0)."""
_REMOTE_BYTES_PER_CLOCK = {"2": 16.5, "4": 15.1, "8": 15.3, "16": 15.3}
"""That an SM reads of other SMs' shared memory, by the blocks of a cluster: loads of 4 and 8 bytes
a lane by 32 warps of each block, of the next rank or of all, on all SMs of an H200 that hold a
cluster (`benchmarks/cluster_bandwidth.cu`, driver 580.159.04, 2026-11-26). Of words two or four
apart, sectors go at this rate. Stores of whole sectors went at 18.6 to 16.8. An H800 PCIe read 16.3
and 13.2 in clusters of two and four (Luo et al., arXiv 2402.13499)."""
_FAR_BEYOND_OWN_CLOCKS = {
    "arrival": {"2": 48.4, "4": 49.8, "8": 52.7},
    "store": {"2": 70.0, "4": 71.5, "8": 72.5},
    "copy": {"2": 88.8, "4": 92.7, "8": 95.3},
}
"""What a message to an `mbarrier` of another block takes more than an arrival at an own one, by the
blocks of a cluster: a `.relaxed` arrival, the bytes of `st.async` or `red.async`, and those of a
bulk copy of 16 bytes of shared memory. Two threads of each cluster of an H200 that sent them to
and fro took 240.2, 261.7 and 280.5 clocks for one way in clusters of two, and 191.7 within a block
(`benchmarks/cluster_messages.cu`, driver 580.159.04, 2026-11-27,
`docs/results/h200-cluster-messages.csv`)."""
_CLUSTER_BARRIER_CLOCKS = {"2": 67.8, "4": 72.6, "8": 76.4, "16": 77.9}
"""From the last arrival at the barrier of a cluster until a warp goes on, by the blocks of a
cluster: on an H200 (`benchmarks/cluster_times.cu`, driver 580.159.04, 2026-11-26),
`barrier.cluster` with `.relaxed` arrivals by one warp of each block came each 73.8, 78.6, 82.4 and
83.9 clocks, of which the arrival takes 2 and the instructions 4."""
_LANES_MOST = 32
_LINE_SECTORS = LINE_BYTES / SECTOR_BYTES
_MIXED_SHARE = 1 / 3
"""Of traffic that is written, from which reads wait as long for writes as at a half
(`tests/data/h200-loaded.csv`)."""
_WHOLE_SECTORS = 3.9  # of a line, in the mean of its requests: all four
_ROUNDING = 0.1  # of a sector
_NO_WINDOW = 1e6
_SAME_CLOCK = 0.005  # a difference of clocks that is left out
_UNKNOWN_ORDER = "the machine code does not show in which order the warps come there"


@dataclass(frozen=True)
class LaunchEstimate:
    """The simulated time of a launch.

    Attributes:
        clocks: SM clocks from the first block's start to the end of the last one.
        empty_clocks: The same of a kernel that does nothing.
        steps: The instructions with their counts of issues and waits, in the simulated part.
        clock_hz: The mean SM clock.
        left_out: What the simulation left out, in words; empty for nothing.
    """

    clocks: float
    empty_clocks: float
    steps: Steps
    clock_hz: float
    left_out: str = ""


def estimate(
    profile: LaunchProfile, blocks: int, slots: int, properties: DeviceProperties
) -> LaunchEstimate:
    """Simulate a launch.

    Args:
        profile: What it executes.
        blocks: Blocks of the grid.
        slots: Blocks that an SM holds at once.
        properties: The device.
    """
    count = _usable_sms(profile, properties)
    busiest = math.ceil(blocks / count)
    active = blocks / busiest  # SMs, as many as would all be as busy as the busiest
    steps = machine_steps(profile, active, properties)
    slots = min(slots, busiest)
    most = BUDGET // max(slots * len(profile.active), 1)
    paths = block_paths(profile, steps, max(most, _SHORTEST_PATH))
    members = (*paths.active, *paths.idle)
    lengths = [paths.paths[number].length for number in members]
    whole = sum(paths.paths[number].instructions for number in members) / max(sum(lengths), 1)
    work = Workload(
        steps,
        tuple(path.ranges for path in paths.paths),
        paths.active,
        paths.idle,
        profile.active_share,
        busiest,
        slots,
        paths.barriers,
        turn=int(profile.unequal is not None and not paths.barriers.operations),
    )
    affordable = max(BUDGET // max(sum(lengths[: len(paths.active)]), 1), slots)
    before, load = steps.copy(), load_clock(work, properties)
    loads = type_loads(profile.code.instructions, properties)
    clock = load.loaded_hz
    rates = device_rates(profile, blocks, properties, clock)
    done = _run_launch(work, profile, rates, affordable, loads)
    mean = load.mean_hz(done.clocks * whole * profile.work_ratio / clock, done.tensor_load)
    if mean > clock * (1 + _SAME_CLOCK):
        steps[:], clock = before, mean
        rates = device_rates(profile, blocks, properties, clock)
        done = _run_launch(work, profile, rates, affordable, loads)
    empty = run(
        Workload(_empty_kernel(), (np.array([[0, 2]]),), (0,), (0,), 1.0, 1, 1),
        replace(device_rates(profile, blocks, properties), first_block=0.0),
    )
    clocks = done.clocks * whole
    if profile.unequal is None:
        clocks *= profile.work_ratio
    else:
        unused = replace(work, steps=before)
        clocks = unequal_work.launch_clocks(profile, profile.unequal, unused, count, clocks, rates)
    return LaunchEstimate(
        clocks,
        empty.clocks,
        steps,
        clock,
        _left_out(profile, properties, done.stuck),
    )


def _left_out(profile: LaunchProfile, properties: DeviceProperties, stuck: bool) -> str:
    """What the simulation leaves out, in words; empty for nothing."""
    parts = []
    if stuck or profile.barriers.are_too_many:
        reason = "too many to record" if profile.barriers.are_too_many else _UNKNOWN_ORDER
        parts.append(f"waits at mbarriers and named barriers ({reason})")
    swaps = any(is_swap(step) for step in profile.code.instructions)
    if swaps and not properties.shared_float_rounds_by_warps:
        parts.append("retries where another warp adds to a float in shared memory (not measured)")
    return "; ".join(parts)


@dataclass(frozen=True)
class _Run:
    """A simulated launch.

    Attributes:
        clocks: Those of all blocks of the busiest SM.
        tensor_load: The share of their time in which the tensor cores multiply, as of
            `tensor_load`.
        stuck: As of `Simulated`.
    """

    clocks: float
    tensor_load: float
    stuck: bool


def _run_launch(
    work: Workload,
    profile: LaunchProfile,
    rates: Rates,
    affordable: int,
    loads: Floats,
) -> _Run:
    """Simulate all blocks of the busiest SM, or those that are affordable, for all of them.

    `loads` are those of the instructions on the tensor cores, as of `type_loads`.
    """
    blocks, slots = work.blocks, work.slots
    if affordable >= blocks:
        done = _run(with_progress(work, profile), rates)
        return _Run(done.clocks, tensor_load(work, done.clocks, loads), done.stuck)
    simulated = min(blocks % slots + (affordable // slots) * slots, blocks)
    done = _run(replace(work, blocks=simulated), rates)
    later = (blocks - simulated) * _clocks_per_block(done.starts, slots, clocks=done.clocks)
    return _Run(done.clocks + later, tensor_load(work, done.clocks, loads), done.stuck)


def with_progress(work: Workload, profile: LaunchProfile) -> Workload:
    """Let each load miss when it does in the launch, where that is known: mostly at first.

    Args:
        work: The blocks of the busiest SM, all of which are simulated. Its steps are changed.
        profile: What the launch executes.
    """
    known = {
        number: access
        for number, access in profile.accesses.items()
        if access.dram_by_progress and access.missed_by_progress
    }
    if not known:
        return work
    passed = np.zeros((len(work.paths), len(work.steps) + 1))
    for path, ranges in enumerate(work.paths):
        np.add.at(passed[path], ranges[:, 0], 1)
        np.add.at(passed[path], ranges[:, 1], -1)
    executions = passed.cumsum(axis=1)
    issues = work.active_share * executions[list(work.active)].sum(axis=0)
    issues += (1 - work.active_share) * executions[list(work.idle)].sum(axis=0)
    missed = np.array([access.missed_by_progress for access in known.values()], float)
    dram = np.array([access.dram_by_progress for access in known.values()], float)
    far = np.array([_far_curve(access) for access in known.values()])
    for curve, number in enumerate(known):
        work.steps[number]["curve"] = curve
        work.steps[number]["advance"] = missed.shape[1] / max(issues[number] * work.blocks, 1.0)
    return replace(
        work, missed_curves=missed, dram_curves=dram / np.maximum(missed, 1e-9), far_curves=far
    )


def _far_curve(access: Access) -> Floats:
    """The factor of the far share of the sectors that the L2 has, by part of the launch."""
    missed, dram = np.array(access.missed_by_progress), np.array(access.dram_by_progress)
    if not access.far_by_progress:
        return np.ones(len(missed))
    held = (missed - dram * access.dram) / max(1 - access.dram, 1e-9)
    return np.array(access.far_by_progress) / np.maximum(held, 1e-9)


def _run(work: Workload, rates: Rates) -> Simulated:
    """Simulate; as if nobody waited at barriers in shared memory, if that gets stuck.

    The path of a warp may not have all of its operations, or not in the order in which they ran.
    The result then says that the simulation got stuck.
    """
    before = work.steps.copy()
    done = run(work, rates)
    if not done.stuck:
        return done
    work.steps[:] = before
    return replace(run(replace(work, barriers=BarrierWork()), rates), stuck=True)


def _clocks_per_block(starts: Floats, slots: int, clocks: float) -> float:
    """The mean interval between the starts of blocks in the later part of a simulation."""
    last = len(starts) - 1
    waves = last // slots
    if waves > 1:  # without the first wave, which starts at once
        begin = last - (waves - 1) * slots
        return float(starts[last] - starts[begin]) / (last - begin)
    return clocks / len(starts)


def device_rates(
    profile: LaunchProfile,
    blocks: int,
    properties: DeviceProperties,
    launch_clock_hz: float | None = None,
) -> Rates:
    """The rates of one SM with its share of the device.

    The L2 and DRAM have clocks of their own, so that they are faster in clocks of an SM whose own
    is lower.

    Args:
        profile: What the launch executes.
        blocks: Blocks of the grid.
        properties: The device, with figures in clocks at `clock_hz(properties)`.
        launch_clock_hz: The SM clock of the launch; None for that one.
    """
    count, clock = _usable_sms(profile, properties), clock_hz(properties) or 1.0
    slower = (launch_clock_hz or clock) / clock
    active = blocks / math.ceil(blocks / count)
    threads = len(profile.active) * _LANES_MOST
    start = figure_at(properties.block_start_clocks_by_threads, threads) or (
        1.0 / properties.blocks_per_clock if properties.blocks_per_clock else 0.0
    )
    port = properties.l2_port_bytes_per_clock_per_sm or _PORT_BYTES_PER_CLOCK
    store_port = properties.l2_port_write_bytes_per_clock_per_sm or port
    l2 = (properties.l2_bytes_per_clock or math.inf) / slower
    written = properties.l2_write_bytes_per_clock
    written = written / slower if written else l2
    peak = (peak_bandwidth_bytes_per_s(properties) or math.inf) / clock / slower
    dram = peak * dram_fraction(profile.dram_written_share, profile.dram_sector_bytes, properties)
    barriers = sorted(
        (float(warps), clocks)
        for warps, clocks in properties.barrier_latency_by_warps_clocks.items()
    )
    arrival, opening = 0.0, properties.barrier_latency_clocks or 0.0
    if len(barriers) > 1:
        (few, first), (many, last) = barriers[0], barriers[-1]
        arrival = (last - first) / (many - few)
        opening = first - few * arrival
    l1 = properties.l1_latency_clocks or 0.0
    l2_latencies, dram_latencies = (
        np.where(table > l1, l1 + (table - l1) * slower, table)
        for table in (l2_latency_table(properties), dram_latency_table(properties))
    )
    served = max(profile.served_reads, _LEAST_SERVED_READS)
    cluster_clocks = figure_at(_CLUSTER_BARRIER_CLOCKS, profile.cluster_blocks) or opening
    return Rates(
        block_interval=start * active,
        first_block=start * (min(blocks, count) - 1),
        block_latency=properties.block_turnaround_clocks or 0.0,
        warp_interval=properties.warp_start_clocks or 0.0,
        queue_depth=QUEUE_DEPTH,
        barrier_clocks=arrival,
        barrier_latency=opening,
        read_sector_clocks=SECTOR_BYTES * active / l2 * served,
        write_sector_clocks=SECTOR_BYTES * active / written,
        hit_sector_clocks=SECTOR_BYTES
        * active
        * hit_share(properties)
        * slower
        * profile.served_reads,
        fill_byte_clocks=active / written,
        port_sector_clocks=SECTOR_BYTES / port,
        store_port_sector_clocks=SECTOR_BYTES / store_port,
        queued_lines=properties.l1_queued_store_lines or 0.0,
        dram_byte_clocks=active / dram,
        dram_peak_byte_clocks=active / peak,
        dram_queue_clocks=(properties.dram_queue_clocks or 0.0) * slower,
        dram_turnaround_clocks=min(profile.dram_written_share / _MIXED_SHARE, 1.0)
        * (properties.dram_turnaround_clocks or 0.0)
        * slower,
        dram_window=max(float(dram_latencies.mean()), 1.0),
        dram_sector_bytes=profile.dram_sector_bytes,
        backlog=float(l2_latencies.mean()),
        l2_latencies=np.maximum(l2_latencies - _BEFORE_L1_CLOCKS, 0.0),
        dram_latencies=np.maximum(dram_latencies - _BEFORE_L1_CLOCKS, 0.0),
        fetch_latency=prefetched_clocks(properties),
        fetch_interval=CODE_LINE_BYTES / (properties.cold_code_bytes_per_clock or 16.0),
        fetch_ahead=8,
        arrival_clocks=ARRIVAL_CLOCKS,
        far_arrival_clocks=_message_clocks("arrival", profile),
        least_sectors=_lone_sectors(properties),
        cluster_clocks=cluster_clocks if profile.cluster_blocks > 1 else opening,
        remote_sector_clocks=_remote_sector_clocks(profile),
    )


def _lone_sectors(properties: DeviceProperties) -> float:
    """Sectors that the L2 takes the time of for one that is read alone."""
    read, random = properties.l2_bytes_per_clock, properties.l2_random_sectors_per_clock
    return read / SECTOR_BYTES / random if read and random else _L2_ACCESS_SECTORS


def _usable_sms(profile: LaunchProfile, properties: DeviceProperties) -> int:
    """The SMs that blocks can lie on: those that hold no whole cluster are left out."""
    return resident_blocks(properties, 1, profile.cluster_blocks) or 1


def _remote_sector_clocks(profile: LaunchProfile) -> float:
    """Clocks per sector of accesses to other blocks' shared memory."""
    rate = figure_at(_REMOTE_BYTES_PER_CLOCK, profile.cluster_blocks)
    return SECTOR_BYTES / rate if rate else 0.0


def prefetched_clocks(properties: DeviceProperties) -> float:
    """Clocks until an SM has the first code of a kernel, and its parameters.

    The launch itself has brought both near (PROGRAM_PREFETCH and CONSTANT_BUFFER_PREFETCH of its
    descriptor, NVIDIA open-gpu-doc, clc6c0qmd.h): into the cache behind the first one, which holds
    constants and code alike (Jia et al., arXiv 1804.06826: the L1.5).
    """
    second = properties.constant_latency_by_footprint_clocks
    if second:
        return max(second.values())
    return float(l2_latency_table(properties).mean())


def hit_share(properties: DeviceProperties) -> float:
    """Clocks of the L2's time for writing that a byte takes which is read there, of all SMs.

    Reads have a path of their own; but a copy in the L2 moves less than both paths could.
    """
    written, copied = properties.l2_write_bytes_per_clock, properties.l2_copy_bytes_per_clock
    if not written or not copied:
        return 0.0
    half = copied / 2  # read, and as much written
    return max(1 / half - 1 / written, 0.0)


def dram_fraction(written_share: float, sector_bytes: float, properties: DeviceProperties) -> float:
    """The achievable fraction of DRAM's peak.

    Args:
        written_share: The share of the traffic that is written.
        sector_bytes: Bytes that DRAM moves for a missed sector: more than the sector where it is
            missed without its neighbour, as at random addresses.
        properties: The device.
    """
    stream = _stream_fraction(written_share, properties)
    random, access = properties.dram_random_fraction, properties.dram_access_bytes or SECTOR_BYTES
    if random is None or access <= SECTOR_BYTES:
        return stream
    lone = min(max((sector_bytes - SECTOR_BYTES) / (access - SECTOR_BYTES), 0.0), 1.0)
    moved = lone * access + (1 - lone) * SECTOR_BYTES
    return moved / (lone * access / random + (1 - lone) * SECTOR_BYTES / stream)


def _stream_fraction(written_share: float, properties: DeviceProperties) -> float:
    """The fraction of streams, by the share of the traffic that is written."""
    read = properties.dram_achievable_fraction or 1.0
    write = properties.dram_write_fraction or read
    copy = properties.dram_copy_fraction or min(read, write)
    if written_share <= 1 / 2:
        return read + (copy - read) * 2 * written_share
    return copy + (write - copy) * (2 * written_share - 1)


def l2_latency_table(properties: DeviceProperties) -> Floats:
    """Equally likely latencies of an L2 hit: those of the near half, then those of the far one.

    Lines lie in both alike. The slices of a half are taken to lie evenly over a range of distances.
    """
    near = properties.l2_latency_clocks or properties.l1_latency_clocks or 0.0
    halves = np.array([near, properties.l2_far_latency_clocks or near])
    deviation = properties.l2_latency_deviation_clocks or 0.0
    places = (2 * np.arange(_L2_PLACES) + 1) / _L2_PLACES - 1
    return (halves[:, None] + deviation * math.sqrt(3) * places).ravel()


def dram_latency_table(properties: DeviceProperties) -> Floats:
    """Equally likely latencies of an L2 miss."""
    mean = properties.dram_latency_clocks or properties.l2_latency_clocks or 0.0
    known = sorted(
        (float(name[1:]) / 100, clocks)
        for name, clocks in properties.dram_latency_quantiles_clocks.items()
    )
    shares = (np.arange(256) + 0.5) / 256
    if len(known) > 1:
        at, clocks = zip(*known, strict=True)
        table = np.interp(shares, at, clocks)
        return np.asarray(table)
    by_sectors = sorted(
        (float(n), clocks) for n, clocks in properties.dram_latency_by_sectors_clocks.items()
    )
    spread = 0.0
    if len(by_sectors) > 1:
        # The slowest of n exponentially distributed waits is their harmonic number long.
        (few, first), (many, last) = by_sectors[0], by_sectors[-1]
        spread = (last - first) / (_harmonic(many) - _harmonic(few))
    return np.asarray(mean - spread - spread * np.log(1 - shares))


def _harmonic(number: float) -> float:
    return sum(1 / place for place in range(1, int(number) + 1))


def machine_steps(profile: LaunchProfile, active_sms: float, properties: DeviceProperties) -> Steps:
    """The instructions as records of the simulation.

    Args:
        profile: The machine code.
        active_sms: SMs that operate on a sector at the same time.
        properties: The device.
    """
    steps = empty_steps(len(profile.code.instructions))
    _set_banks(steps, profile.code.instructions, properties)
    sites = sites_of(profile.code, profile.barriers)
    constant_passes = properties.constant_passes_per_clock_per_sm or 1.0
    load_lanes = properties.pipe_lanes_per_clock_per_sm.get("ldg")
    for number, instruction in enumerate(profile.code.instructions):
        step, issue = steps[number], issue_of(instruction, properties)
        previous = profile.code.instructions[number - 1] if number else None
        _set_issue(step, issue, instruction, previous)
        step["dispatch"] = dispatch_clocks(instruction, properties)
        if issue.kind in _OPERATING:
            step["site"] = sites.get(number, -1)
        if issue.kind == Kind.PRODUCT:
            step["passes"] = product_wavefronts(instruction) / SCHEDULERS
            step["copies"] = any("gsb" in operand for operand in instruction.operands)
        if issue.kind == Kind.SEND:
            _send(step, issue, instruction, profile)
            continue
        copies = issue.kind in (Kind.COPY, Kind.COPY_OUT)
        if issue.unit not in (Unit.MEMORY, Unit.CONSTANT) and not copies:
            if issue.kind in (Kind.AWAIT, Kind.AWAIT_PRODUCTS):
                step["groups"] = _groups(instruction.operands)
            continue
        access = profile.accesses.get(number)
        if access is None:
            width = issue.width / 4
            access = Access(max(width, 1.0), max(width, 1.0), max(4 * width, 1.0))
        step["passes"] = access.passes
        if issue.kind == Kind.LOAD:  # the L1 writes a register of a warp per clock
            step["passes"] = max(access.passes, issue.width / 4)
        if issue.kind == Kind.CONSTANT:
            step["passes"] = access.passes / constant_passes
            continue
        if load_lanes and instruction.name in ("LDG", "LD", "LDL"):
            step["passes"] = max(step["passes"], _LANES_MOST / load_lanes)
        step["latency"] = max(issue.latency - _BEFORE_L1_CLOCKS, 0.0)
        if is_swap(instruction):
            # Lanes with one address take further rounds of the loop.
            step["passes"] = access.passes + SWAP_WAVEFRONTS - 1
        elif instruction.name == "ATOMS" and access.sharing_lanes > 1:
            _share_address(step, instruction, access.sharing_lanes, properties)
        _set_levels(step, access, issue.width)
        _reach_others(step, issue, access, profile)
        if copies:  # by the copy engine, past the data stage
            step["passes"], step["lines"] = 0.0, max(access.sectors / _LINE_SECTORS, 1e-3)
        if issue.kind == Kind.ATOMIC:
            step["serial"] = active_sms * _atomic_clocks(instruction, access, properties)
            step["least_written"] = access.sectors / step["lines"]
            step["least_written"] *= _atomic_sectors(instruction, access, properties)
        step["written"] = profile.dram_written_sector_bytes
        step["copies"] = instruction.name == "LDGSTS"
    return steps


_OPERATING = (
    *(Kind.TEST, Kind.CHANGE, Kind.ARRIVE_COPIED, Kind.COPY, Kind.SEND, Kind.SYNCHRONIZE),
)
"""What operates on a barrier."""


def _set_issue(
    step: Steps,
    issue: Issue,
    instruction: MachineInstruction,
    previous: MachineInstruction | None,
) -> None:
    """Set how an instruction is issued."""
    step["kind"], step["unit"], step["busy"] = issue.kind, issue.unit, issue.busy
    step["latency"] = issue.latency
    step["awaited"] = awaited_of(instruction.name, issue)
    step["throttle"] = throttle_of(issue)
    step["throttled"] = issue.throttled_share
    step["line"] = instruction.address // CODE_LINE_BYTES
    _set_control(step, instruction, previous)
    step["reads"] = register_reads(instruction, previous)
    step["window"] = READ_WINDOW_CLOCKS if issue.kind == Kind.FIXED else _NO_WINDOW
    step["resolving"] = resolving_clocks(instruction)


def _set_levels(step: Steps, access: Access, width: int) -> None:
    """Set the lines of a request, and what serves them.

    Lines lie together where all of their sectors are read, or where 32 lanes of some bytes read as
    many sectors as they fill, and one more where they begin within a sector.
    """
    step["lines"], step["sectors"] = max(access.lines, 1e-3), access.sectors
    is_filled = width - _ROUNDING <= access.sectors <= width + 1 + _ROUNDING
    step["whole"] = is_filled or access.sectors >= _WHOLE_SECTORS * access.lines > 0
    is_store = step["kind"] == int(Kind.STORE)
    is_stored_whole = is_store and access.lines > 0 and width >= access.sectors - _ROUNDING
    lone = figure_at(_LONE_STORE_SECTORS, access.lines) if is_stored_whole else None
    step["least_written"] = lone or _L2_ACCESS_SECTORS
    step["sector_bytes"] = SECTOR_BYTES
    if is_store and access.lines > 0 and access.sector_bytes < _MOSTLY_WHOLE_BYTES:
        per_line = max(access.sectors / access.lines, 1.0)
        step["sector_bytes"] = access.sector_bytes
        step["part_written"] = access.sectors * (figure_at(_PART_STORE_SECTORS, per_line) or 1.0)
    if access.repeated:
        step["repeats"], step["repeated"] = 1, access.repeated
    step["missed"], step["dram"] = access.missed, access.dram
    step["joined"], step["joined_dram"] = access.joined, access.joined_dram
    step["l2_joined_dram"] = access.l2_joined_dram
    if access.l2_far is not None:
        step["far"] = access.l2_far


def _set_control(
    step: Steps, instruction: MachineInstruction, previous: MachineInstruction | None
) -> None:
    """Set what the instruction waits for, and what for it: nothing passes a fence of the device."""
    control = instruction.control
    if control is not None:
        step["stall"], step["wait"] = max(control.stall, 1), control.wait_mask
        step["write"] = -1 if control.write_barrier is None else control.write_barrier
        step["read"] = -1 if control.read_barrier is None else control.read_barrier
    if is_device_fence(instruction):
        step["write"] = FENCES
    if previous is not None and is_device_fence(previous):
        step["wait"] |= 1 << FENCES


def _message_clocks(kind: str, profile: LaunchProfile) -> float:
    """Clocks until a warp of another block goes on that waits for a message of this one."""
    return ARRIVAL_CLOCKS + (figure_at(_FAR_BEYOND_OWN_CLOCKS[kind], profile.cluster_blocks) or 0.0)


def _send(
    step: Steps, issue: Issue, instruction: MachineInstruction, profile: LaunchProfile
) -> None:
    """Let a store that completes its bytes at a barrier of another block take that network."""
    operations = profile.barriers.operations.values()
    sent = [
        -done.transactions
        for of_warp in operations
        for done in of_warp
        if done.line == instruction.ptx_line
    ]
    step["remote"] = 1.0
    step["remote_sectors"] = sum(sent) / len(sent) / SECTOR_BYTES if sent else 1.0
    known = _remote_sector_clocks(profile)  # what was measured has that of a sector
    is_store = issue.unit == Unit.MEMORY
    known += _BEFORE_L1_CLOCKS if is_store else 0.0
    step["remote_latency"] = _message_clocks("store" if is_store else "copy", profile) - known


def _reach_others(step: Steps, issue: Issue, access: Access, profile: LaunchProfile) -> None:
    """Let the requests that go to other blocks' shared memory take the network between SMs."""
    if not access.remote:
        return
    known = _BEFORE_L1_CLOCKS + _remote_sector_clocks(profile)  # what was measured has both
    step["remote"], step["remote_sectors"] = access.remote, access.remote_sectors
    latency = figure_at(_REMOTE_LATENCY_CLOCKS, profile.cluster_blocks) or 0.0
    step["remote_latency"] = latency - known
    if issue.kind == Kind.ATOMIC:
        step["remote_latency"] += _REMOTE_ATOMIC_CLOCKS


_CONSTANT_OPERAND = re.compile(r"c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]")
_CONSTANT_LINE_BYTES = 64
"""Of the constant cache (Jia et al., arXiv 1804.06826: 64 bytes on Volta)."""


def _bank(operands: tuple[str, ...], known: dict[str, int]) -> int:
    """The number of the line of constant memory that an instruction reads; -1 for none."""
    for operand in operands:
        match = _CONSTANT_OPERAND.search(operand)
        if match:
            line = f"{match[1]} {int(match[2], 16) // _CONSTANT_LINE_BYTES}"
            return known.setdefault(line, len(known))
    return -1


def _set_banks(
    steps: Steps, instructions: Sequence[MachineInstruction], properties: DeviceProperties
) -> None:
    """Set the lines of constant memory that instructions read, and their latencies."""
    known: dict[str, int] = {}
    near, far = prefetched_clocks(properties), float(l2_latency_table(properties).mean())
    for step, instruction in zip(steps, instructions, strict=True):
        step["bank"] = _bank(instruction.operands, known)
        step["bank_latency"] = near if _reads_parameters(instruction.operands) else far


def _reads_parameters(operands: tuple[str, ...]) -> bool:
    """Whether an instruction reads the bank of constants that a launch writes itself."""
    return any(operand.lstrip("-|!~").startswith("c[0x0]") for operand in operands)


def _atomic_clocks(
    instruction: MachineInstruction, access: Access, properties: DeviceProperties
) -> float:
    """SM clocks that an atomic takes of the slice of the L2 that all blocks use most.

    A slice takes a pass after the other, of whatever sectors. Additions of floating point to one
    address wait for each other longer, while the slice works on other addresses.
    """
    clocks = clock_hz(properties) or 0.0
    interval_s = properties.global_atomic_same_address_s
    if not interval_s:
        return access.slice_passes * _ATOMIC_CLOCKS
    serial_s = access.slice_passes * interval_s
    if any(part.startswith("F") and part[1:2].isdigit() for part in _parts(instruction)):
        dependent_s = properties.global_atomic_same_address_float_s or interval_s
        serial_s = max(serial_s, access.sector_passes * dependent_s)
    return serial_s * clocks


def _share_address(
    step: Steps, instruction: MachineInstruction, lanes: float, properties: DeviceProperties
) -> None:
    """Let lanes with the same address of shared memory operate one after the other.

    Those that all add one (`POPC`) are counted at once. Where an operation is a loop of
    compare-and-swap, each round is one lane's; that lanes of other warps make it fail is left out.
    """
    parts = _parts(instruction)
    if "POPC" in parts:
        return
    if "ADD" not in parts:  # of which the passes are counted lane by lane
        step["passes"] *= lanes
    step["passes"] *= properties.shared_atomic_same_address_clocks or 1.0
    if any(part.startswith("CAS") for part in parts):
        shared = properties.shared_latency_clocks or 0.0
        round_clocks = shared + (properties.shared_atomic_latency_clocks or 2 * shared)
        step["latency"] += (lanes - 1) * round_clocks


def _atomic_sectors(
    instruction: MachineInstruction, access: Access, properties: DeviceProperties
) -> float:
    """Sectors that the L2 could write in the time of an atomic's sector."""
    written = properties.l2_write_bytes_per_clock or properties.l2_bytes_per_clock
    atomics = properties.global_atomics_per_clock
    if not written or not atomics:
        return _L2_ACCESS_SECTORS
    swaps = any(part.startswith("CAS") for part in _parts(instruction))
    kind = "swap" if swaps else "reduce" if instruction.name.startswith("RED") else "return"
    if access.sectors > _NEIGHBOURED * access.lines:
        place = "line"
    else:
        place = "sector" if access.lanes > _NEIGHBOURED * access.sectors else "lane"
    return written / SECTOR_BYTES / atomics / _ATOMIC_SECTOR_SHARES[kind][place]


def _parts(instruction: MachineInstruction) -> list[str]:
    return instruction.opcode.split(".")


def _groups(operands: tuple[str, ...]) -> int:
    """The groups of asynchronous copies that a DEPBAR leaves under way; it may name scoreboards."""
    last = operands[-1] if operands else "0x0"
    return int(last, 0) if last.isalnum() and last[0].isdigit() else 0


def _empty_kernel() -> Steps:
    """A kernel that loads its stack pointer and ends."""
    steps = empty_steps(2)
    steps["kind"] = int(Kind.FIXED)
    steps["unit"] = int(Unit.MISCELLANEOUS)
    return steps


def model_time(
    profile: LaunchProfile,
    work: time_model.LaunchWork,
    occupancy: Occupancy,
    properties: DeviceProperties,
) -> tuple[Time, Steps]:
    """Model the time of one launch, caches cold, as a profiler's kernel duration.

    The bounds are those of `device/time_model.py`: they explain the time, but do not enter it.
    Since they are those of the PTX, whose instructions are more and overlap less, they are cut to
    the time.

    Args:
        profile: What the machine code does.
        work: The counters of the launch.
        occupancy: The blocks that an SM holds at once.
        properties: The device.

    Returns:
        The time, and the instructions with the simulation's counts of issues and stalls.
    """
    found = estimate(profile, work.blocks, occupancy.blocks_per_sm, properties)
    shortest = properties.shortest_kernel_s or 0.0
    seconds = shortest + max(found.clocks - found.empty_clocks, 0.0) / found.clock_hz
    kinds = found.steps["kind"][found.steps["issued"] > 0]
    if np.isin(kinds, (Kind.STORE, Kind.ATOMIC, Kind.COPY_OUT)).any():
        seconds += properties.store_completion_s or 0.0
    by_counters = time_model.model_time(work, occupancy, properties)
    bounds = {name: min(bound, seconds) for name, bound in by_counters.bounds_s.items()}
    time = Time(median_s=seconds, provenance="modelled", bounds_s=bounds, left_out=found.left_out)
    return time, found.steps
