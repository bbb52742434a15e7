"""Launches: the start of blocks and warps, and code that is not yet in the instruction caches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memlab.device.gpu.calibration.records import RawSample
from memlab.device.gpu.peaks.bench import SINK_DTYPE, BenchmarkSession
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import LINE_BYTES, WARP_SIZE
from memlab.kernels.peaks.calibration import CODE_KIB, CODE_ROUNDS

LAUNCH_SETTINGS = TimingSettings(samples=21, settle_s=0.0, settle_cap_s=0.0)
BLOCK_THREADS = (32, 64, 128, 256, 512, 1024)
GRIDS = (1, 16_384, 32_768, 65_536)
"""Blocks of the grids whose times are compared."""
TURNS = 8
"""Blocks that each multiprocessor runs one after the other."""
TURN_THREADS, TURN_CLOCKS = 32, 20_000
"""One warp per block, so that no later warp prolongs it."""
WARP_START_REPEATS, CODE_REPEATS = 20, 7
DEFAULT_SHARED_BYTES = 48 * 1024
FLUSH_L2_MULTIPLE = 3


def measure_block_starts(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Time grids of blocks that do nothing, by the size of the blocks."""
    session = bench.session
    function = bench.load("blocks.cu", "nothing")
    bench.step("two events")
    for value in bench.time(lambda: None, "two events", LAUNCH_SETTINGS).durations_s:
        yield RawSample("event_pair_s", "", value)
    for threads in BLOCK_THREADS:
        bench.step(f"start of blocks of {threads} threads")
        for blocks in GRIDS:

            def launch(blocks: int = blocks, threads: int = threads) -> None:
                session.launch(function, (blocks, 1, 1), (threads, 1, 1), [])

            for value in bench.time(launch, "empty blocks", LAUNCH_SETTINGS).durations_s:
                yield RawSample("empty_grid_s", f"{threads}:{blocks}", value)
    if clock := session.clock_hz():
        yield RawSample("clock_hz", "launches", clock)


def measure_turnaround(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the clocks between a block's end and its successor's start on a multiprocessor."""
    session = bench.session
    bench.step("turnaround of blocks")
    most = bench.properties.max_shared_memory_per_block_optin_bytes or DEFAULT_SHARED_BYTES
    shared = most // 2 + 1024 if most > DEFAULT_SHARED_BYTES else most  # one block at a time
    blocks = TURNS * session.multiprocessors
    stamps = session.array(np.zeros(3 * blocks, np.uint64))
    arguments = [stamps, np.uint32(TURN_CLOCKS)]
    function = bench.load("blocks.cu", "stamps")
    for _ in range(2):  # the first fetches the code
        session.launch(function, (blocks, 1, 1), (TURN_THREADS, 1, 1), arguments, shared)
    noted = session.read(stamps, np.empty((blocks, 3), np.uint64)).astype(np.int64)
    for number in np.unique(noted[:, 0]):
        turns = noted[noted[:, 0] == number]
        turns = turns[np.argsort(turns[:, 1])]
        for gap in turns[1:, 1] - turns[:-1, 2]:
            yield RawSample("turnaround_clocks", str(number), float(gap))


def measure_warp_starts(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Measure the clocks between the starts of the warps of a block."""
    session = bench.session
    bench.step("start of warps")
    warps = bench.properties.max_threads_per_block or 1024
    warps //= WARP_SIZE
    begins = session.array(np.zeros(warps, np.uint64))
    function = bench.load("blocks.cu", "warp_starts")
    for _ in range(1 + WARP_START_REPEATS):
        session.launch(function, (1, 1, 1), (warps * WARP_SIZE, 1, 1), [begins])
        noted = session.read(begins, np.empty(warps, np.uint64)).astype(np.int64)
        yield RawSample("warp_start_clocks", "", float(np.ptp(noted)) / (warps - 1))


def measure_code(bench: BenchmarkSession) -> Iterator[RawSample]:
    """Time straight-line code of some KiB that is in no cache, and again when it is in some.

    Before each launch other code runs on all multiprocessors, which fills the instruction caches,
    and memory is read that fills the L2.
    """
    session = bench.session
    lines = FLUSH_L2_MULTIPLE * session.l2_bytes // LINE_BYTES
    memory, sink = session.array(lines * LINE_BYTES), session.array(np.zeros(1, SINK_DTYPE))
    values = session.array(np.array([0.5, 0.25], np.float32))
    everywhere = (session.multiprocessors, 1, 1)
    spread = bench.load("misses.cu", "spread_lines")
    for kib in CODE_KIB:
        bench.step(f"code of {kib} KiB")
        function = bench.load("code.cu", f"code_{kib}")
        other = bench.load(
            "code.cu", f"code_{CODE_KIB[-1] if kib != CODE_KIB[-1] else CODE_KIB[-2]}"
        )
        out, unread = (session.array(np.zeros(CODE_ROUNDS, np.uint64)) for _ in range(2))
        for _ in range(CODE_REPEATS):
            session.launch(other, everywhere, (WARP_SIZE, 1, 1), [values, unread, sink])
            session.launch(spread, everywhere, (256, 1, 1), [memory, np.uint32(lines), sink])
            session.launch(function, (1, 1, 1), (WARP_SIZE, 1, 1), [values, out, sink])
            rounds = session.read(out, np.empty(CODE_ROUNDS, np.uint64))
            yield RawSample("cold_code_clocks", str(kib * 1024), float(rounds[0]))
            yield RawSample("warm_code_clocks", str(kib * 1024), float(rounds[-1]))
