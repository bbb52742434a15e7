"""What an SM can do, with its share of the device: the rates and latencies of the simulation.

They come from the device's figures, and where it has none of a kind, from what was measured of an
H200 or published.
"""

from __future__ import annotations

import math

import numpy as np

from memlab.device.emulator.codegen.layout import CONSTANT_LINE_BYTES
from memlab.device.machine_code.instructions import INSTRUCTION_BYTES
from memlab.device.occupancy import resident_blocks
from memlab.device.properties import (
    SECTOR_BYTES,
    WARP_SIZE,
    DeviceProperties,
    clock_hz,
    figure_at,
    peak_bandwidth_bytes_per_s,
)
from memlab.device.sm_model.pipes import ADDRESS_CLOCKS, ARRIVAL_CLOCKS, QUEUE_DEPTH
from memlab.device.sm_model.profile import LaunchProfile
from memlab.device.sm_model.records import QUANTILES
from memlab.device.sm_model.simulation import CODE_LINE_BYTES, Floats, Rates

_PORT_BYTES_PER_CLOCK = 64.0
"""What an SM reads from the L2 per clock (NVIDIA A100 whitepaper; Hopper has the same port)."""
BEFORE_L1_CLOCKS = 1.0 + ADDRESS_CLOCKS
"""From issue to the L1 in an idle SM; measured latencies contain it."""
L2_ACCESS_SECTORS = 2.0
"""A slice of the L2 serves a line per clock, and 64 bytes of it (NVIDIA A100 whitepaper: 5,120
bytes a clock from 80 slices)."""
_L2_PLACES = QUANTILES // 2
"""Latencies of each half of the L2 in the table."""
_LEAST_SERVED_READS = 8.95 / 13.6
"""Lines that each SM reads alone come at 8.95 TB/s, and those that all read at the same time, of
which one read of the L2 serves several, at 13.6 TB/s (`memlab peaks` on an H200)."""
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
_COLD_CODE_BYTES_PER_CLOCK = float(INSTRUCTION_BYTES)
"""An instruction per clock, as a scheduler issues them, where the device gives no other figure."""
_PREFETCHED_LINES = 8
"""Lines of code that are fetched behind one that is not there. Assumed: Huerta et al. suspect a
stream buffer, of some 16 entries ("Analyzing Modern NVIDIA GPU Cores", MICRO 2025)."""
_PARTING_CLOCKS = 9.0
"""What a round of a loop takes more in which some of a warp's lanes leave it: a warp alone, of
which 2 to 32 lanes add to a float in shared memory, took 95 clocks for each of them on an H200
(`docs/results/h200-shared-floats.csv`), of which the instructions take 86."""
_SWAP_CLOCKS = 8.0
"""From the start of a compare-and-swap in shared memory until loads see what it stores: of 4, 6, 7,
8, 9 and 10, that with which the rounds and the clocks of the simulation are nearest to what an H200
and an H100 counted of 2 to 64 warps (ibid. and `docs/results/h100-shared-additions.csv`)."""
_CONSTANT_LINE_CLOCKS = 4.2
"""Clocks between the lines of constant memory that one SM gets: walks of 64 warps of an H100
(`docs/results/h100-constant-walks.csv`)."""
_KEPT_LINE_CLOCKS = 6.0
"""Clocks for which a sub-core keeps a line that others want the place of. Between 2, after which a
load found it (the halves of 16 bytes), and 8, after which one did not (the next 16 bytes; ibid.).
Of 2 to 8, the simulated walks of 16 and 32 warps are nearest to the measured ones with 6 and 7."""
_HIT_CLOCKS = 8.0  # above the least latency, within which a load of constants hits
_MIXED_SHARE = 1 / 3
"""Of traffic that is written, from which reads wait as long for writes as at a half
(`tests/data/h200-loaded.csv`)."""


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
    count, clock = usable_sms(profile, properties), clock_hz(properties) or 1.0
    slower = (launch_clock_hz or clock) / clock
    active = blocks / math.ceil(blocks / count)
    threads = len(profile.active) * WARP_SIZE
    start = figure_at(properties.block_start_clocks_by_threads, threads) or (
        1.0 / properties.blocks_per_clock if properties.blocks_per_clock else 0.0
    )
    port = properties.l2_port_bytes_per_clock_per_sm or _PORT_BYTES_PER_CLOCK
    store_port = properties.l2_port_write_bytes_per_clock_per_sm or port
    l2 = (properties.l2_bytes_per_clock or math.inf) / slower
    written = properties.l2_write_bytes_per_clock
    written = written / slower if written else l2
    peak = (peak_bandwidth_bytes_per_s(properties) or math.inf) / clock / slower
    reached = dram_fraction(profile.dram_written_share, profile.dram_sector_bytes, properties)
    # Lone sectors take DRAM longer than those of streams (docs/results/h200-scattered-loads.csv).
    longer = dram_fraction(profile.dram_written_share, SECTOR_BYTES, properties) / reached
    dram = peak * reached
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
        dram_peak_byte_clocks=active / peak * longer,
        dram_queue_clocks=(properties.dram_queue_clocks or 0.0) * slower,
        dram_turnaround_clocks=min(profile.dram_written_share / _MIXED_SHARE, 1.0)
        * (properties.dram_turnaround_clocks or 0.0)
        * slower,
        dram_window=max(float(dram_latencies.mean()), 1.0),
        dram_sector_bytes=profile.dram_sector_bytes,
        backlog=float(l2_latencies.mean()),
        l2_latencies=np.maximum(l2_latencies - BEFORE_L1_CLOCKS, 0.0),
        dram_latencies=np.maximum(dram_latencies - BEFORE_L1_CLOCKS, 0.0),
        fetch_latency=prefetched_clocks(properties),
        fetch_interval=CODE_LINE_BYTES
        / (properties.cold_code_bytes_per_clock or _COLD_CODE_BYTES_PER_CLOCK),
        fetch_ahead=_PREFETCHED_LINES,
        indexed_places=_indexed_lines(properties),
        uniform_places=properties.uniform_constant_lines or 1,
        constant_latency=properties.constant_miss_clocks or 0.0,
        constant_interval=max(
            active / (properties.constant_lines_per_clock or math.inf), _CONSTANT_LINE_CLOCKS
        ),
        kept_clocks=_KEPT_LINE_CLOCKS,
        arrival_clocks=ARRIVAL_CLOCKS,
        far_arrival_clocks=message_clocks("arrival", profile),
        least_sectors=_lone_sectors(properties),
        cluster_clocks=cluster_clocks if profile.cluster_blocks > 1 else opening,
        remote_sector_clocks=remote_sector_clocks(profile),
        parting_clocks=_PARTING_CLOCKS,
        swap_clocks=_SWAP_CLOCKS,
    )


def _indexed_lines(properties: DeviceProperties) -> int:
    """Lines of the cache of indexed constants: of the largest footprint with the least latency."""
    known = properties.constant_latency_by_footprint_clocks
    first = min(known.values(), default=0.0) + _HIT_CLOCKS
    reach = max((int(size) for size, clocks in known.items() if clocks < first), default=0)
    return max(reach // CONSTANT_LINE_BYTES, properties.uniform_constant_lines or 1)


def _lone_sectors(properties: DeviceProperties) -> float:
    """Sectors that the L2 takes the time of for one that is read alone."""
    read, random = properties.l2_bytes_per_clock, properties.l2_random_sectors_per_clock
    return read / SECTOR_BYTES / random if read and random else L2_ACCESS_SECTORS


def usable_sms(profile: LaunchProfile, properties: DeviceProperties) -> int:
    """The SMs that blocks can lie on: those that hold no whole cluster are left out."""
    return resident_blocks(properties, 1, profile.cluster_blocks) or 1


def remote_sector_clocks(profile: LaunchProfile) -> float:
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
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
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


def message_clocks(kind: str, profile: LaunchProfile) -> float:
    """Clocks until a warp of another block goes on that waits for a message of this one."""
    return ARRIVAL_CLOCKS + (figure_at(_FAR_BEYOND_OWN_CLOCKS[kind], profile.cluster_blocks) or 0.0)
