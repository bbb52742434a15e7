"""The time model: counters and device properties to the time of one launch.

Two kinds of bounds. A *throughput* bound is work over the rate of the unit that does it: issue
slots, FP32, FP64 and tensor pipes, the L1's wavefronts (shared memory, global and local accesses
share its one port), the constant cache's passes, L2 bytes, DRAM bytes, starting blocks. The
*latency* bound is the time a warp takes alone, times how often an SM is filled anew. A closed
queueing system with these demands runs no faster than the larger of the two and no slower than
their sum (asymptotic and balanced job bounds: Zahorjan et al., "Balanced Job Bound Analysis of
Queueing Networks", CACM 25(2), 1982); the model is the middle of that interval, and no kernel is
shorter than one that does nothing. No constant is fitted to a kernel; all come from the device's
properties. The pipes of FP16, BF16 and integers, and the slice of the L2 that atomics use most,
explain a time; they enter it as its least value only, since the errors of the model were measured
without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memlab.device.measurement import (
    Counters,
    Occupancy,
    Time,
    flop_by_pipe,
    integer_op_by_pipe,
    l2_written_sectors,
)
from memlab.device.properties import (
    EXPLAINING_BOUNDS,
    SECTOR_BYTES,
    DeviceProperties,
    clock_hz,
    peak_bandwidth_bytes_per_s,
    peak_flop_per_s,
    peak_integer_op_per_s,
)

WAVEFRONT_BYTES = 128
SCHEDULERS_PER_SM = 4
"""Each issues one warp instruction a clock (CUDA C++ Programming Guide, "Compute
Capabilities": four warp schedulers from 7.x on)."""


@dataclass(frozen=True)
class LaunchWork:
    """The input of the model: the work of a launch.

    Attributes:
        blocks: Blocks of the grid.
        counters: The counters of the whole grid.
        warp_clocks: SM clocks that one warp takes alone, in a block that touches memory.
        mean_warp_clocks: The mean over all blocks, including idle ones; None if no block is idle.
    """

    blocks: int
    counters: Counters
    warp_clocks: float
    mean_warp_clocks: float | None = None


def model_time(work: LaunchWork, occupancy: Occupancy, properties: DeviceProperties) -> Time:
    """Model the time of one launch, caches cold, as a profiler's kernel duration.

    A bound is left out if the device's properties lack its rate.

    Returns:
        The time in seconds, with provenance `modelled`, and the time of each bound alone.
    """
    bounds = throughput_bounds_s(work, properties)
    latency = latency_bound_s(work, occupancy, properties)
    throughput = max(bounds.values(), default=0.0)
    bounds["latency"] = latency
    seconds = (max(throughput, latency) + throughput + latency) / 2
    bounds |= explaining_bounds_s(work, properties)
    seconds = max([seconds, *(bounds.get(pipe, 0.0) for pipe in EXPLAINING_BOUNDS)])
    shortest = properties.shortest_kernel_s or 0.0
    if seconds < shortest:  # the launch itself decides, not a unit
        seconds = bounds["launch"] = shortest
    return Time(median_s=seconds, provenance="modelled", bounds_s=bounds)


def plain_roofline_time_s(flop: int, dram_bytes: int, properties: DeviceProperties) -> float:
    """The plain roofline's time, the baseline that the model must beat: seconds."""
    peak = peak_flop_per_s(properties, "fp32")
    bandwidth = peak_bandwidth_bytes_per_s(properties)
    return max(flop / peak if peak else 0.0, dram_bytes / bandwidth if bandwidth else 0.0)


def throughput_bounds_s(work: LaunchWork, properties: DeviceProperties) -> dict[str, float]:
    """The time that each unit alone takes for its work: seconds by unit."""
    counters, clock, count = work.counters, clock_hz(properties), properties.multiprocessor_count
    bounds: dict[str, float] = {}
    if clock and count:
        # An SM executes whole blocks: the SM with most blocks decides.
        busiest = math.ceil(work.blocks / count) / work.blocks / clock
        bounds["issue"] = counters.warp_instructions * busiest / SCHEDULERS_PER_SM
        for pipe, flop in flop_by_pipe(counters).items():
            peak = peak_flop_per_s(properties, pipe)
            if peak and pipe not in EXPLAINING_BOUNDS:
                bounds[pipe] = flop / (peak / count) * busiest * clock
        if properties.l1_bytes_per_clock_per_sm:
            rate = properties.l1_bytes_per_clock_per_sm / WAVEFRONT_BYTES
            bounds["l1"] = counters.l1_wavefronts / rate * busiest
        if properties.constant_passes_per_clock_per_sm:
            rate = properties.constant_passes_per_clock_per_sm
            bounds["constant cache"] = counters.constant_load_passes / rate * busiest
        if properties.l2_bytes_per_clock:
            read, written = counters.l2_read_sectors, l2_written_sectors(counters)
            write_rate = properties.l2_write_bytes_per_clock or properties.l2_bytes_per_clock
            clocks = read / properties.l2_bytes_per_clock + written / write_rate
            bounds["l2"] = SECTOR_BYTES * clocks / clock  # the same slices read and write
    starting_s = block_launch_time_s(work.blocks, properties)
    if starting_s:
        bounds["launch"] = starting_s
    bandwidth = peak_bandwidth_bytes_per_s(properties)
    if bandwidth:
        achievable = bandwidth * (properties.dram_achievable_fraction or 1.0)
        moved = counters.dram_read_bytes + counters.dram_write_bytes
        bounds["dram"] = moved / achievable
    return bounds


def explaining_bounds_s(work: LaunchWork, properties: DeviceProperties) -> dict[str, float]:
    """The time that each of `EXPLAINING_BOUNDS` alone takes for its work: seconds by name."""
    flop = flop_by_pipe(work.counters)
    amounts = {pipe: count for pipe, count in flop.items() if pipe in EXPLAINING_BOUNDS}
    peaks = {pipe: peak_flop_per_s(properties, pipe) for pipe in amounts}
    integers = integer_op_by_pipe(work.counters)
    peaks |= {pipe: peak_integer_op_per_s(properties, pipe) for pipe in integers}
    count = properties.multiprocessor_count or 1
    busiest = count * math.ceil(work.blocks / count) / work.blocks  # over the mean SM
    bounds = {
        pipe: amount / peak * busiest
        for pipe, amount in (amounts | integers).items()
        if (peak := peaks[pipe])
    }
    if work.counters.global_atomic_slice_passes:
        bounds["atomics"] = atomics_s(work.counters, properties)
    return bounds


def atomics_s(counters: Counters, properties: DeviceProperties) -> float:
    """The time that the slice of the L2 takes which global atomics use most, in seconds.

    A pass takes as long as an integer addition waits for another one at its address; additions of
    floating point wait longer. One clock, where that is not known (NVIDIA Kepler GK110 whitepaper:
    an atomic on one address per clock).
    """
    clock = clock_hz(properties)
    interval_s = properties.global_atomic_same_address_s or (1.0 / clock if clock else 0.0)
    float_s = properties.global_atomic_same_address_float_s or interval_s
    return max(
        counters.global_atomic_slice_passes * interval_s,
        counters.global_atomic_float_passes * float_s,
    )


def block_launch_time_s(blocks: int, properties: DeviceProperties) -> float:
    """The time that a device takes to start the blocks, in seconds; 0 if its rate is unknown."""
    clock = clock_hz(properties)
    if not clock or not properties.blocks_per_clock:
        return 0.0
    return blocks / properties.blocks_per_clock / clock


def latency_bound_s(work: LaunchWork, occupancy: Occupancy, properties: DeviceProperties) -> float:
    """The time that the blocks of one SM take one after another, in seconds.

    Blocks that are resident together hide each other's latency fully in this bound.
    """
    clock, count = clock_hz(properties), properties.multiprocessor_count
    if not clock or not count:
        return 0.0
    rounds = math.ceil(work.blocks / count) / max(occupancy.blocks_per_sm, 1)
    mean = work.warp_clocks if work.mean_warp_clocks is None else work.mean_warp_clocks
    return max(work.warp_clocks, rounds * mean) / clock


def constant_load_latency_clocks(counters: Counters, properties: DeviceProperties) -> float:
    """Mean latency of an indexed constant load, whose addresses are served in turn: SM clocks."""
    first = properties.constant_latency_clocks or properties.shared_latency_clocks or 0.0
    if not counters.constant_load_requests or not properties.constant_passes_per_clock_per_sm:
        return first
    others = counters.constant_load_passes / counters.constant_load_requests - 1
    return first + others / properties.constant_passes_per_clock_per_sm


def global_load_latency_clocks(
    l1_hit_rate: float, l2_hit_rate: float, properties: DeviceProperties
) -> float:
    """Mean latency of a global load for given hit rates, in SM clocks."""
    l1 = properties.l1_latency_clocks or 0.0
    l2 = properties.l2_latency_clocks or l1
    dram = properties.dram_latency_clocks or l2
    miss = l2_hit_rate * l2 + (1 - l2_hit_rate) * dram
    return l1_hit_rate * l1 + (1 - l1_hit_rate) * miss
