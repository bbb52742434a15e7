"""Rates and latencies of one multiprocessor: pipes, tensor cores, L1, shared memory, barriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.peaks.bench import SINK_DTYPE, BenchmarkSession, require_correct
from memlab.device.properties import WARP_SIZE
from memlab.kernels.peaks import memory_loops as kernels
from memlab.kernels.peaks.calibration import (
    L1_STRIDE_WORDS,
    LOAD_PLACES,
    MMA_CHAINS,
    PIPE_CHAINS,
    PIPE_REPEAT,
    PLACE_WORDS,
    mma_flop,
    pipes,
)

REPEATS = 5
"""Measured launches of each kernel; the first launch, which fetches the code, is not counted."""
RATE_TRIPS, LATENCY_TRIPS = 64, 32
RATE_THREADS, MMA_THREADS = 1024, 512
BLOCK_WARPS = (1, 2, 4, 8, 16, 32)
RANDOM_WORDS = LOAD_PLACES * PLACE_WORDS


def measure_pipes(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the rate and the latency of each pipe, and the rate of the schedulers."""
    for pipe in pipes(bench.properties.compute_capability):
        work = RATE_THREADS * PIPE_CHAINS * PIPE_REPEAT * RATE_TRIPS
        for clocks in _spans(bench, "pipes.cu", f"rate_{pipe}", RATE_THREADS, RATE_TRIPS):
            yield RawSample("pipe_lanes_per_clock", pipe, work / clocks)
        steps = PIPE_REPEAT * LATENCY_TRIPS
        for clocks in _spans(bench, "pipes.cu", f"latency_{pipe}", WARP_SIZE, LATENCY_TRIPS):
            yield RawSample("pipe_latency_clocks", pipe, clocks / steps)
    work = 2 * RATE_THREADS * PIPE_CHAINS * PIPE_REPEAT * RATE_TRIPS // WARP_SIZE
    for clocks in _spans(bench, "pipes.cu", "rate_issue", RATE_THREADS, RATE_TRIPS):
        yield RawSample("issued_per_clock", "", work / clocks)


def measure_tensor_cores(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the rate and the latency of `mma.sync`, by input type."""
    for kind, flop in mma_flop(bench.properties.compute_capability).items():
        work = flop * MMA_THREADS // WARP_SIZE * MMA_CHAINS * PIPE_REPEAT * RATE_TRIPS
        for clocks in _spans(bench, "mma_latency.cu", f"rate_{kind}", MMA_THREADS, RATE_TRIPS):
            yield RawSample("mma_flop_per_clock", kind, work / clocks)
        steps = PIPE_REPEAT * LATENCY_TRIPS
        for clocks in _spans(bench, "mma_latency.cu", f"latency_{kind}", WARP_SIZE, LATENCY_TRIPS):
            yield RawSample("mma_latency_clocks", kind, clocks / steps)


def measure_lane_loads(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure 32-bit loads: lanes per clock of shared memory, lines per clock of the L1."""
    lanes = RATE_THREADS * PIPE_REPEAT * RATE_TRIPS
    for entry, stride, series in (
        ("loads_shared", 1, "shared_lanes_per_clock"),
        ("loads_l1", 1, "l1_lanes_per_clock"),
        ("loads_l1", L1_STRIDE_WORDS, "l1_lines_per_clock"),
    ):
        words = bench.generator.integers(2**32, size=RANDOM_WORDS, dtype=np.uint32)
        extra = [np.uint32(stride), np.uint32(0)]
        _verify_loads(bench, entry, words, stride)
        for clocks in _spans(bench, "pipes.cu", entry, RATE_THREADS, RATE_TRIPS, words, extra):
            yield RawSample(series, "", lanes / clocks)


def _verify_loads(bench: BenchmarkSession, entry: str, words: Any, stride: int) -> None:
    """Compare the sum of what one warp reads in one trip with NumPy's."""
    session = bench.session
    sink, spans = session.array(np.zeros(1, SINK_DTYPE)), session.array(np.zeros(64, np.uint64))
    arguments = [
        session.array(words),
        np.int32(1),
        np.uint32(stride),
        np.uint32(0),
        kernels.KEEP_ALL,
        sink,
        spans,
    ]
    session.launch(bench.load("pipes.cu", entry), (1, 1, 1), (WARP_SIZE, 1, 1), arguments)
    (total,) = session.read(sink, np.empty(1, np.uint32))
    places = np.arange(PIPE_REPEAT) % LOAD_PLACES * PLACE_WORDS
    read = words[places[:, None] + stride * np.arange(WARP_SIZE)]
    require_correct(total == read.sum(dtype=np.uint32), entry)


def measure_barriers(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure `__syncthreads()` by the warps of the block."""
    for warps in BLOCK_WARPS:
        for clocks in _spans(bench, "pipes.cu", "barriers", WARP_SIZE * warps, LATENCY_TRIPS):
            value = clocks / (PIPE_REPEAT * LATENCY_TRIPS)
            yield RawSample("barrier_clocks", str(warps), value)


def _spans(
    bench: BenchmarkSession,
    file: str,
    entry: str,
    threads: int,
    trips: int,
    words: Any = None,
    extra: Sequence[Any] = (),
) -> list[float]:
    """Launch one block some times; return the clocks from its first warp's start to its last's end.

    Args:
        bench: The session.
        file: The file of the kernel.
        entry: The kernel, with the parameters `(values, trips, *extra, mask, sink, spans)`.
        threads: Threads of the block.
        trips: Trips of its loop.
        words: The values; None for some that no arithmetic makes special.
        extra: Its further arguments.
    """
    session, warps = bench.session, threads // WARP_SIZE
    bench.step(f"{file} {entry}")
    function = bench.load(file, entry)
    if words is None:
        words = np.arange(1, 9, dtype=np.uint32) * np.uint32(0x3C013C01)
    values, sink = session.array(words), session.array(np.zeros(1, SINK_DTYPE))
    spans, found = session.array(np.zeros(2 * warps, np.uint64)), list[float]()
    arguments = [values, np.int32(trips), *extra, kernels.KEEP_NONE, sink, spans]
    for _ in range(1 + REPEATS):
        session.launch(function, (1, 1, 1), (threads, 1, 1), arguments)
        clocks = session.read(spans, np.empty((warps, 2), np.uint64))
        found.append(float(clocks[:, 1].max() - clocks[:, 0].min()))
    return found[1:]
