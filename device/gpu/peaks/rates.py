"""Rates of a GPU: passes over DRAM, and loops in its caches, shared memory and pipes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.gpu.peaks.bench import (
    CLOCK_RESULT_BYTES,
    MEASUREMENT_SETTINGS,
    SINGLE_SAMPLE_SETTINGS,
    SINK_DTYPE,
    BenchmarkSession,
    require_correct,
)
from memlab.device.gpu.peaks.records import Rate, theoretical_rate
from memlab.device.gpu.timing import Samples, TimingSettings
from memlab.errors import DeviceError
from memlab.kernels.peaks import memory_loops as kernels
from memlab.kernels.peaks.records import VECTOR_BYTES, LoopBenchmark, StreamBenchmark

if TYPE_CHECKING:
    from numpy.typing import NDArray

TARGET_LAUNCH_S = 5e-3
"""The intended duration of a loop's launch, seconds: its start and end are then below 0.1%."""
CALIBRATION_TRIPS = 101
"""Trips of the launch that calibrates the number of trips; odd, as `fma.cu` requires."""

STREAM_BYTES = 8 * 2**30
"""Size of a stream's array, bytes: large, so that its start and end do not matter."""
STREAM_MEMORY_SHARE = 0.25
"""The largest share of the free memory for one of the three arrays."""
MIN_L2_MULTIPLE = 4
"""The least size of an array relative to the L2: too much of a smaller one would stay in the L2
from the previous pass."""
STREAM_GRANULARITY_BYTES = 2**21
"""Arrays are a multiple of this size: one GPU page, and a multiple of every block's part."""
CHECKED_BYTES = 64 * 2**20
"""Bytes of a stream that are compared with NumPy."""


def measure_stream_rates(bench: BenchmarkSession) -> list[Rate]:
    """Time the streams over DRAM. Of their three arrays, one is written and two are read."""
    session = bench.session
    size = stream_bytes(session.free_bytes(), session.l2_bytes)
    words = size // VECTOR_BYTES
    arrays = [session.array(size) for _ in range(3)]
    sink = session.array(np.zeros(1, SINK_DTYPE))
    fill = bench.load("stream.cu", "fill")
    for array in arrays:
        session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [array, np.uint64(words)])

    rates = []
    for stream in kernels.STREAMS:
        bench.step(stream.label)
        function = bench.load("stream.cu", stream.entry)
        blocks = words // stream.words_per_block

        def launch(
            mask: np.uint32 = kernels.KEEP_NONE,
            function: Any = function,
            blocks: int = blocks,
            threads: int = stream.threads,
        ) -> None:
            arguments = [*arrays, mask, sink]
            session.launch(function, (blocks, 1, 1), (threads, 1, 1), arguments)

        _verify_stream(bench, stream, arrays, function)
        samples = bench.time(launch, stream.label)
        rates.append(_rate_record(bench, stream, blocks * stream.bytes_per_block, samples, None))
    return rates


def stream_bytes(free_bytes: int, l2_bytes: int) -> int:
    """Size of a stream's array for a GPU's free memory and L2, bytes.

    Raises:
        DeviceError: There is not enough free memory to measure DRAM rather than the L2.
    """
    size = (
        min(STREAM_BYTES, int(free_bytes * STREAM_MEMORY_SHARE))
        // STREAM_GRANULARITY_BYTES
        * STREAM_GRANULARITY_BYTES
    )
    least = max(MIN_L2_MULTIPLE * l2_bytes, CHECKED_BYTES)
    if size < least:
        needed = math.ceil((least + STREAM_GRANULARITY_BYTES) / STREAM_MEMORY_SHARE)
        raise DeviceError(
            f"peaks need {needed} bytes of the GPU's memory, so that its L2 does not hold what is "
            f"read, and {free_bytes} are free: end other processes that use the GPU (nvidia-smi "
            "lists them)"
        )
    return size


def _verify_stream(
    bench: BenchmarkSession, stream: StreamBenchmark, arrays: Sequence[Any], function: Any
) -> None:
    """Launch a stream on the first part of its arrays and compare the output with NumPy's."""
    session = bench.session
    count = CHECKED_BYTES // 4
    first, other = (session.read(array, np.empty(count, np.uint32)) for array in arrays[1:])
    clean = session.array(np.zeros(1, SINK_DTYPE))
    blocks = CHECKED_BYTES // VECTOR_BYTES // stream.words_per_block
    arguments = [*arrays, kernels.KEEP_ALL, clean]
    session.launch(function, (blocks, 1, 1), (stream.threads, 1, 1), arguments)
    output = session.read(arrays[0], np.empty(count, np.uint32))
    if stream.entry == "read":
        (combined,) = session.read(clean, np.empty(1, SINK_DTYPE))
        correct = combined == np.bitwise_xor.reduce(first)
    elif stream.entry == "write":
        value = np.arange(count // 4, dtype=np.uint32) * np.uint32(2654435761)
        others = (~value, value ^ np.uint32(0x5A5A5A5A), value + np.uint32(0x9E3779B9))
        correct = np.array_equal(output.reshape(-1, 4), np.stack([value, *others], axis=1))
    elif stream.entry == "copy":
        correct = np.array_equal(output, first)
    else:
        b, c = (array.view(np.float32).astype(np.float64) for array in (first, other))
        expected = (b + float(kernels.TRIAD_FACTOR) * c).astype(np.float32)
        correct = np.allclose(output.view(np.float32), expected, rtol=1e-6)
    require_correct(bool(correct), stream.label)


def measure_loop_rate(bench: BenchmarkSession, loop: LoopBenchmark) -> Rate:
    """Time a loop, with enough trips that its start and end do not matter."""
    bench.step(loop.label)
    session = bench.session
    loop = kernels.size_for_l2(loop, session.multiprocessors, session.l2_bytes)
    function = bench.load(loop.source_file, loop.entry, loop.architecture is not None)
    data = loop.inputs(bench.generator)
    blocks = loop.blocks_per_sm * session.multiprocessors
    elapsed = session.array(CLOCK_RESULT_BYTES)
    _verify_loop(bench, loop, function, data, elapsed)

    if loop.own_data:
        data = np.concatenate([data] * blocks)  # one copy per block
    memory = session.array(data)
    item = np.dtype(loop.output).itemsize
    out = session.array(max(loop.outputs_per_block * blocks, 1) * item)

    def run(trips: int, settings: TimingSettings, clocks: list[float]) -> Samples:
        arguments = [
            memory,
            np.uint32(loop.footprint),
            np.int32(trips),
            kernels.KEEP_NONE,
            out,
            elapsed,
        ]

        def launch() -> None:
            shape = (blocks, 1, 1), (loop.threads, 1, 1)
            session.launch(function, *shape, arguments, loop.dynamic_shared_bytes)

        def report() -> None:
            clocks.append(_clock_hz(session.read(elapsed, np.empty(2, np.uint64))))

        return session.time(launch, settings, flush=False, what=loop.label, report=report)

    trips = CALIBRATION_TRIPS
    for _ in range(2):  # the first estimate comes from a short and so imprecise launch
        short = run(trips, SINGLE_SAMPLE_SETTINGS, [])
        trips = max(1, round(trips * TARGET_LAUNCH_S / short.median_s)) | 1
    clocks = list[float]()
    samples = run(trips, MEASUREMENT_SETTINGS, clocks)
    work = trips * blocks * loop.work_per_trip
    return _rate_record(
        bench, loop, work, samples, statistics.median(clocks[-len(samples.taken) :])
    )


def _verify_loop(
    bench: BenchmarkSession, loop: LoopBenchmark, function: Any, data: NDArray[Any], elapsed: Any
) -> None:
    """Launch one block for one trip and compare its output with NumPy's."""
    session = bench.session
    expected = loop.expected(data)
    out = session.array(np.zeros(max(loop.outputs_per_block, 1), loop.output))
    threads = loop.verification_threads or loop.threads
    arguments = [
        session.array(data),
        np.uint32(loop.footprint),
        np.int32(1),
        kernels.KEEP_ALL,
        out,
        elapsed,
    ]
    session.launch(function, (1, 1, 1), (threads, 1, 1), arguments, loop.dynamic_shared_bytes)
    output = session.read(out, np.empty(max(loop.outputs_per_block, 1), loop.output))
    if isinstance(expected, np.ndarray):
        sums = output.astype(np.float64).reshape(len(expected), -1).sum(axis=1)
        scale = np.abs(expected).max()
        correct = np.allclose(sums, expected, rtol=0, atol=1e-4 * scale)
    else:
        correct = output[0] == expected
    require_correct(bool(correct), loop.label)


def _rate_record(
    bench: BenchmarkSession,
    what: StreamBenchmark | LoopBenchmark,
    work: int,
    samples: Samples,
    clock: float | None,
) -> Rate:
    fast, slow = samples.quartiles_s
    clock = clock or samples.clock_hz
    value = work / samples.median_s
    local = what.limit in ("l1", "shared", "constant")
    per_clock = value / clock / bench.session.multiprocessors if local and clock else None
    return Rate(
        key=what.key,
        label=what.label,
        limit=what.limit,
        unit=what.unit,
        value=value,
        lower_quartile=work / slow,
        upper_quartile=work / fast,
        samples=len(samples.taken),
        clock_hz=clock,
        bytes_per_clock_per_sm=per_clock,
        theoretical=theoretical_rate(what.limit, bench.properties),
        theoretical_at_clock=theoretical_rate(what.limit, bench.properties, clock),
    )


def _clock_hz(elapsed: NDArray[np.uint64]) -> float:
    """The SM clock from a multiprocessor's cycles over the GPU's timer."""
    cycles, nanoseconds = map(int, elapsed)
    return cycles / nanoseconds * 1e9 if nanoseconds else 0.0
