"""Atomics: latency, contention for one address, and rates at many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlab.device.gpu.calibration.memory import PASS_SETTINGS
from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.peaks.bench import (
    CHASE_RESULT_BYTES,
    CLOCK_RESULT_BYTES,
    BenchmarkSession,
    require_correct,
)
from memlab.device.properties import WARP_SIZE
from memlab.kernels.peaks.calibration import SHARED_ATOMICS_PER_TRIP

CHAIN_STEPS = 4096
SPREAD_WORDS = 2**21
"""Words over which atomics are spread, 8 MiB: the L2 holds them."""
SECTOR_WORDS = 8
TRIPS = (32, 288)
SAME_ADDRESS_THREADS, SPREAD_THREADS, BLOCKS_PER_SM = 256, 1024, 2
SHARED_TRIPS, SHARED_THREADS, SHARED_REPEATS = 64, 1024, 5


def measure_global_atomics(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure additions to global memory, by whom and to where."""
    session = bench.session
    bench.step("atomics, one after the other")
    chain_clocks = _chain_clocks(bench, "chain_global", "atomics, one after the other")
    yield RawSample("global_atomic_chain_clocks", "", chain_clocks)
    for series, threads, lanes, warp_stride, lane_stride in (
        ("same_address_per_s", SAME_ADDRESS_THREADS, 1, 0, 0),
        ("same_address_floats_per_s", SAME_ADDRESS_THREADS, 1, 0, 0),
        ("same_address_warps_per_s", SAME_ADDRESS_THREADS, WARP_SIZE, 0, 0),
        ("spread_lanes_per_s", SPREAD_THREADS, WARP_SIZE, WARP_SIZE * SECTOR_WORDS, SECTOR_WORDS),
        ("coalesced_lanes_per_s", SPREAD_THREADS, WARP_SIZE, WARP_SIZE, 1),
    ):
        bench.step(f"atomics: {series}")
        blocks = BLOCKS_PER_SM * session.multiprocessors
        warps = blocks * threads // WARP_SIZE
        floats = "floats" in series
        number: type[np.float32 | np.uint32] = np.float32 if floats else np.uint32
        taken = []
        for trips in TRIPS:
            words = session.array(np.zeros(SPREAD_WORDS, number))
            shape = (blocks, 1, 1), (threads, 1, 1)
            function = bench.load("atomics.cu", "add_floats" if floats else "add")
            numbers = (SPREAD_WORDS - 1, lanes, warp_stride, lane_stride)
            arguments = [words, *map(np.uint32, numbers), np.int32(trips)]
            session.launch(function, *shape, arguments)
            total = session.read(words, np.empty(SPREAD_WORDS, number)).sum(dtype=np.float64)
            require_correct(int(total) == warps * lanes * trips, series)

            def launch(
                function: object = function,
                arguments: list[object] = arguments,
                shape: tuple[tuple[int, int, int], tuple[int, int, int]] = shape,
            ) -> None:
                session.launch(function, *shape, arguments)

            taken.append(bench.time(launch, series, PASS_SETTINGS).durations_s)
        counted = warps if series.startswith("same") else warps * lanes
        few, many = TRIPS
        for short, long in zip(*taken, strict=True):
            if long > short:
                yield RawSample(series, "", counted * (many - few) / (long - short))
    if clock := session.clock_hz():
        yield RawSample("clock_hz", "atomics", clock)


def measure_shared_atomics(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure additions to shared memory by one multiprocessor."""
    session = bench.session
    bench.step("shared atomics")
    chain_clocks = _chain_clocks(bench, "chain_shared", "shared atomics")
    yield RawSample("shared_atomic_chain_clocks", "", chain_clocks)
    lanes = SHARED_THREADS * SHARED_ATOMICS_PER_TRIP * SHARED_TRIPS
    for series, lane_stride in (("shared_spread_lanes", 1), ("shared_same_lanes", 0)):
        for _ in range(SHARED_REPEATS):
            total, elapsed = (
                session.array(np.zeros(1, np.uint32)),
                session.array(CLOCK_RESULT_BYTES),
            )
            arguments = [
                total,
                np.uint32(1),
                np.uint32(lane_stride),
                np.int32(SHARED_TRIPS),
                elapsed,
            ]
            function = bench.load("atomics.cu", "add_shared")
            session.launch(function, (1, 1, 1), (SHARED_THREADS, 1, 1), arguments)
            (sum_,) = session.read(total, np.empty(1, np.uint32))
            require_correct(int(sum_) == lanes, series)
            cycles = int(session.read(elapsed, np.empty(2, np.uint64))[0])
            yield RawSample(f"{series}_per_clock", "", lanes / cycles)


def _chain_clocks(bench: BenchmarkSession, entry: str, what: str) -> float:
    """SM clocks from one atomic of a thread to the next one, each on the result of the last."""
    session = bench.session
    counter, result = session.array(np.zeros(2, np.uint32)), session.array(CHASE_RESULT_BYTES)
    arguments = [counter, np.int32(CHAIN_STEPS), result]
    session.launch(bench.load("atomics.cu", entry), (1, 1, 1), (1, 1, 1), arguments)
    cycles, _, end = map(int, session.read(result, np.empty(3, np.uint64)))
    require_correct(end == 2 * CHAIN_STEPS - 1, what)
    return cycles / CHAIN_STEPS
