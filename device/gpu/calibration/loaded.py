"""The latency of DRAM under load: how long loads wait where all multiprocessors load and store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlab.device.gpu.calibration.memory import MIN_L2_MULTIPLE, PASS_SETTINGS
from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.peaks.bench import SINK_DTYPE, BenchmarkSession, require_correct
from memlab.device.properties import WARP_SIZE
from memlab.kernels.peaks.records import VECTOR_BYTES

LOADS_PER_STORE = (0, 1, 2)
"""0: warps only load."""
WARPS = (1, 2, 4, 6, 8, 12, 16, 24, 32)
"""Warps of a multiprocessor, which have one load under way each."""
BYTES = 512 * 2**20
"""Bytes that are read, where the L2 does not ask for more."""
CHECKED_WORDS = 4096


def measure_loaded_latency(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the mean latency of loads from DRAM, and what DRAM moves, by the warps that load."""
    session = bench.session
    size = max(BYTES, MIN_L2_MULTIPLE * session.l2_bytes)
    size = min(size, int(session.free_bytes() * 0.2)) // 2**16 * 2**16
    data, out = session.array(size), session.array(size)
    words, sink = size // VECTOR_BYTES, session.array(np.zeros(1, SINK_DTYPE))
    fill = bench.load("stream.cu", "fill")
    session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [data, np.uint64(words)])
    function = bench.load("loaded.cu", "loaded")
    _verify(bench, data, out)
    for loads_per_store in LOADS_PER_STORE:
        for warps in WARPS:
            bench.step(f"loads under load, {warps} warps")
            threads = WARP_SIZE * warps
            waited = session.array(np.zeros(2, np.uint64))

            def launch(
                threads: int = threads, each: int = loads_per_store, waited: object = waited
            ) -> None:
                arguments = [data, out, np.uint64(words), np.uint32(each), waited, sink]
                grid = (session.multiprocessors, 1, 1)
                session.launch(function, grid, (threads, 1, 1), arguments)

            seconds = bench.time(launch, "loads under load", PASS_SETTINGS).median_s
            clocks, loads = session.read(waited, np.empty(2, np.uint64)).tolist()
            moved = words * VECTOR_BYTES * (1 + (1 / loads_per_store if loads_per_store else 0))
            key = f"{loads_per_store}:{warps}"
            yield RawSample("loaded_latency_clocks", key, clocks / loads)
            yield RawSample("loaded_bytes_per_s", key, moved / seconds)


def _verify(bench: BenchmarkSession, data: object, out: object) -> None:
    """Compare what one warp stores after each second load with what it read."""
    session = bench.session
    waited, sink = session.array(np.zeros(2, np.uint64)), session.array(np.zeros(1, SINK_DTYPE))
    arguments = [data, out, np.uint64(CHECKED_WORDS), np.uint32(2), waited, sink]
    session.launch(bench.load("loaded.cu", "loaded"), (1, 1, 1), (WARP_SIZE, 1, 1), arguments)
    shape = (-1, 2, WARP_SIZE * VECTOR_BYTES // 4)
    read, stored = (
        session.read(array, np.empty(CHECKED_WORDS * VECTOR_BYTES // 4, np.uint32)).reshape(shape)
        for array in (data, out)
    )
    _, loads = session.read(waited, np.empty(2, np.uint64)).tolist()
    require_correct(loads == CHECKED_WORDS // WARP_SIZE, "loads under load")
    require_correct(bool(np.array_equal(stored[:, 1], read[:, 1])), "loads under load")
