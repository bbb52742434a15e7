"""The memory hierarchy: the ceilings of `memlab peaks`, random misses, ports of multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.peaks.bench import (
    CHASE_RESULT_BYTES,
    CLOCK_RESULT_BYTES,
    SINK_DTYPE,
    BenchmarkSession,
    require_correct,
)
from memlab.device.gpu.peaks.latencies import footprint_sizes, measure_latencies
from memlab.device.gpu.peaks.rates import measure_loop_rate, measure_stream_rates
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES
from memlab.kernels.peaks import memory_loops as kernels
from memlab.kernels.peaks.calibration import (
    GATHER_UNROLL,
    PORT_THREADS,
    PORT_TILE_WORDS,
    REACH_BYTES,
)
from memlab.kernels.peaks.records import VECTOR_BYTES

PASS_SETTINGS = TimingSettings(samples=5, settle_s=0.0, settle_cap_s=0.0)
SECTORS_OF_A_WARP = (1, 2, 4, 8, 16, 32)
SINGLE_MISSES, WARP_MISSES = 4096, 1024
"""Timed loads of a single sector, whose distribution matters, and of several."""
RANDOM_BYTES = 2**30
"""The memory over which random loads are spread: as for the DRAM latency of `memlab peaks`."""
RANDOM_BYTES_SHARE = 0.25
"""Its largest share of the free memory."""
RANDOM_L2_SHARE = 0.25
"""The share of the L2 over which loads that hit it are spread: it holds them with certainty."""
WARM_BYTES = 2**10
"""Memory that the first few loads bring to the L1, for the time that reading the clock takes."""
OTHER_L2_MULTIPLE = 3
"""Other memory that is read before random misses, relative to the L2, so that it holds none of the
memory that they read."""
GATHER_TRIPS = (8, 72)
GATHER_BLOCKS_PER_SM, GATHER_THREADS = 2, 1024
GATHERED_SECTORS = (1, 2, 4)
PORT_BLOCK_BYTES = 64 * 2**20
"""Bytes that a multiprocessor reads from DRAM, where the L2 does not ask for more."""
PORT_L2_SHARE, PORT_L2_BLOCK_BYTES = 0.4, 2**19
PORT_L2_PASSES_BYTES = 2**26
"""Bytes that a multiprocessor reads from the L2 in one launch."""
MIN_L2_MULTIPLE = 4
"""The least memory that is read from DRAM, relative to the L2."""
REACH_STEPS = 4096


def measure_ceilings(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the bandwidths of DRAM, L2, L1, shared and constant memory, as `memlab peaks`."""
    for rate in measure_stream_rates(bench):
        yield RawSample("bandwidth_bytes_per_s", rate.key, rate.value)
    for loop in kernels.supported_loops(bench.properties.compute_capability):
        if loop.limit in ("l2", "l1", "shared", "constant"):
            rate = measure_loop_rate(bench, loop)
            yield RawSample("bandwidth_bytes_per_s", rate.key, rate.value)
            if rate.clock_hz:
                yield RawSample("clock_hz", rate.key, rate.clock_hz)


def measure_chases(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the latency of each level by a chase of pointers, as `memlab peaks`."""
    largest = footprint_sizes(bench.session.free_bytes())[-1]
    for latency in measure_latencies(bench, largest):
        yield RawSample("chase_clocks", latency.key, latency.cycles)
        yield RawSample("clock_hz", latency.key, latency.clock_hz)


def measure_reach(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the latency of constant memory by the footprint."""
    session = bench.session
    bench.step("constant memory by footprint")
    function, zero = bench.load("constant_reach.cu", "chase_reach"), np.zeros(1, np.uint32)
    for footprint in REACH_BYTES:
        result = session.array(CHASE_RESULT_BYTES)
        arguments = [session.array(zero), np.uint32(footprint), np.int32(REACH_STEPS), result]
        session.launch(function, (1, 1, 1), (1, 1, 1), arguments)
        cycles, _, end = map(int, session.read(result, np.empty(3, np.uint64)))
        require_correct(end == 2 * REACH_STEPS * 37 * 64 % footprint, "constant memory")
        yield RawSample("constant_reach_clocks", str(footprint), cycles / REACH_STEPS)


def measure_random_latencies(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Time loads of a warp whose lanes read random sectors: from DRAM, from the L2, from the L1."""
    session = bench.session
    memory, size = _random_memory(bench)
    sink = session.array(np.zeros(1, SINK_DTYPE))

    def clocks(entry: str, footprint: int, sectors: int, samples: int) -> list[float]:
        cycles = session.array(np.zeros(samples, np.uint32))
        arguments = [
            memory,
            np.uint32(footprint // SECTOR_BYTES - 1),
            np.uint32(sectors),
            np.uint32(bench.generator.integers(2**31)),
            np.uint32(samples),
            cycles,
            sink,
        ]
        session.launch(bench.load("misses.cu", entry), (1, 1, 1), (32, 1, 1), arguments)
        return [float(value) for value in session.read(cycles, np.empty(samples, np.uint32))]

    def spread(array: Any, lines: int) -> None:
        grid, arguments = (session.multiprocessors, 1, 1), [array, np.uint32(lines), sink]
        session.launch(bench.load("misses.cu", "spread_lines"), grid, (256, 1, 1), arguments)

    bench.step("loads that hit the L1")
    for value in clocks("hits", WARM_BYTES, 1, WARP_MISSES):
        yield RawSample("l1_hit_clocks", "1", value)
    other_lines = OTHER_L2_MULTIPLE * session.l2_bytes // LINE_BYTES
    other = session.array(other_lines * LINE_BYTES)
    for sectors in SECTORS_OF_A_WARP:
        bench.step(f"random misses of {sectors} sectors")
        spread(other, other_lines)
        for value in clocks(
            "misses", size, sectors, SINGLE_MISSES if sectors == 1 else WARP_MISSES
        ):
            yield RawSample("dram_miss_clocks", str(sectors), value)
    footprint = _power_of_two(int(RANDOM_L2_SHARE * session.l2_bytes))
    for sectors in SECTORS_OF_A_WARP:
        bench.step(f"random loads of {sectors} sectors from the L2")
        spread(memory, footprint // LINE_BYTES)
        for value in clocks("misses", footprint, sectors, WARP_MISSES):
            yield RawSample("l2_hit_clocks", str(sectors), value)


def measure_random_rates(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Time reads of random places of 1, 2 and 4 sectors by the whole device."""
    session = bench.session
    memory, size = _random_memory(bench)
    sink = session.array(np.zeros(1, SINK_DTYPE))
    function = bench.load("misses.cu", "gather")
    blocks = GATHER_BLOCKS_PER_SM * session.multiprocessors
    few, many = GATHER_TRIPS
    for sectors in GATHERED_SECTORS:
        bench.step(f"random reads of {sectors} sectors")
        taken = []
        for trips in GATHER_TRIPS:
            arguments = [
                memory,
                np.uint32(size // (SECTOR_BYTES * sectors) - 1),
                np.uint32(sectors),
                np.uint32(bench.generator.integers(2**31)),
                np.int32(trips),
                kernels.KEEP_NONE,
                sink,
            ]

            def launch(arguments: list[Any] = arguments) -> None:
                session.launch(function, (blocks, 1, 1), (GATHER_THREADS, 1, 1), arguments)

            taken.append(bench.time(launch, "random reads", PASS_SETTINGS).durations_s)
        places = blocks * GATHER_THREADS * GATHER_UNROLL * (many - few) / sectors
        for short, long in zip(*taken, strict=True):
            if long > short:
                yield RawSample("random_places_per_s", str(sectors), places / (long - short))


def measure_ports(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Time passes over the L2 and DRAM by some of the multiprocessors."""
    session = bench.session
    every = session.multiprocessors
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < every] + [every]
    tile = PORT_TILE_WORDS * VECTOR_BYTES
    total = max(MIN_L2_MULTIPLE * session.l2_bytes, every * tile)
    total = max(total, min(every * PORT_BLOCK_BYTES, int(session.free_bytes() * 0.2)))
    total = total // (every * tile) * every * tile
    data, out = session.array(total), session.array(total)
    words = total // VECTOR_BYTES
    fill = bench.load("stream.cu", "fill")
    session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [data, np.uint64(words)])
    sink, elapsed = session.array(np.zeros(1, SINK_DTYPE)), session.array(CLOCK_RESULT_BYTES)

    def seconds(entry: str, blocks: int, block_bytes: int, trips: int) -> tuple[float, ...]:
        function = bench.load("ports.cu", entry)
        arguments = [
            data,
            out,
            np.uint64(block_bytes // VECTOR_BYTES),
            np.int32(trips),
            kernels.KEEP_NONE,
            sink,
            elapsed,
        ]

        def launch() -> None:
            session.launch(function, (blocks, 1, 1), (PORT_THREADS, 1, 1), arguments)

        return bench.time(launch, entry, PASS_SETTINGS).durations_s

    _verify_pass(bench, data, tile)
    for count in counts:
        for entry, arrays in (("ports_read", 1), ("ports_write", 1), ("ports_copy", 2)):
            if entry != "ports_read" and count not in (1, every):
                continue
            bench.step(f"{entry} in the L2 by {count} multiprocessors")
            share = int(PORT_L2_SHARE * session.l2_bytes / (count * arrays))
            block = max(tile, min(share, PORT_L2_BLOCK_BYTES) // tile * tile)
            most = max(2, PORT_L2_PASSES_BYTES // block)
            few, many = (seconds(entry, count, block, trips) for trips in (most // 2, most))
            moved = arrays * count * block * (most - most // 2)
            for short, long in zip(few, many, strict=True):
                if long > short:
                    yield RawSample(f"l2_{entry}_bytes_per_s", str(count), moved / (long - short))
        bench.step(f"DRAM by {count} multiprocessors")
        block = max(
            MIN_L2_MULTIPLE * session.l2_bytes // count, min(PORT_BLOCK_BYTES, total // count)
        )
        block = min(block, total // count) // tile * tile
        for value in seconds("ports_read", count, block, 1):
            yield RawSample("dram_ports_read_bytes_per_s", str(count), count * block / value)
    if clock := session.clock_hz():
        yield RawSample("clock_hz", "ports", clock)


def _verify_pass(bench: BenchmarkSession, data: Any, tile: int) -> None:
    """Compare what one block reads, and what it copies, with NumPy's."""
    session = bench.session
    sink, elapsed = session.array(np.zeros(1, SINK_DTYPE)), session.array(CLOCK_RESULT_BYTES)
    out = session.array(tile)
    words = session.read(data, np.empty(tile // 4, np.uint32))
    for entry in ("ports_read", "ports_copy"):
        arguments = [
            data,
            out,
            np.uint64(tile // VECTOR_BYTES),
            np.int32(1),
            kernels.KEEP_ALL,
            sink,
            elapsed,
        ]
        session.launch(bench.load("ports.cu", entry), (1, 1, 1), (PORT_THREADS, 1, 1), arguments)
    (folded,) = session.read(sink, np.empty(1, np.uint32))
    require_correct(folded == np.bitwise_xor.reduce(words), "ports_read")
    copied = session.read(out, np.empty(tile // 4, np.uint32))
    require_correct(bool(np.array_equal(copied, words)), "ports_copy")


def _random_memory(bench: BenchmarkSession) -> tuple[Any, int]:
    """Memory filled with random words, a power of two of bytes, and its size."""
    session = bench.session
    size = _power_of_two(min(RANDOM_BYTES, int(session.free_bytes() * RANDOM_BYTES_SHARE)))
    memory, words = session.array(size), size // VECTOR_BYTES
    fill = bench.load("stream.cu", "fill")
    session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [memory, np.uint64(words)])
    return memory, size


def _power_of_two(size: int) -> int:
    return int(2 ** (size.bit_length() - 1))
