"""Latencies of a GPU: pointer chasing at each level, and through footprints of all sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.gpu.peaks.bench import (
    CHASE_RESULT_BYTES,
    CLOCK_RESULT_BYTES,
    QUICK_SETTINGS,
    SETTLED_SETTINGS,
    SINGLE_SAMPLE_SETTINGS,
    SINK_DTYPE,
    BenchmarkSession,
    require_correct,
)
from memlab.device.gpu.peaks.records import Footprint, Latency
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import TimingSettings
from memlab.device.properties import LINE_BYTES
from memlab.kernels.peaks import memory_loops as kernels
from memlab.kernels.peaks.records import VECTOR_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATENCY_STEPS = 63 * 16 * 16
"""Dependent loads or multiply-adds per measurement: a multiple of every kernel's unrolling."""
CHAIN_STEPS = 16 * LATENCY_STEPS
"""The same for operations of a few clocks: the GPU's timer ticks about once per microsecond."""
CHASE_ROUNDS = 2  # of which the second is measured; as in `latency.cu`
L2_TESTED_LINES = 2**14
"""Lines whose L2 latency is measured individually: 2 MiB."""
LOADING_SM, OTHER_SM_COUNT, MIN_FAR_LINE_SHARE = 0, 16, 0.2
"""The multiprocessor that loads these lines, the number of others that are tried, and the share of
far lines from which one counts as being on the other side: half of all lines are expected to be
far, if addresses are spread evenly."""
SMALLEST_FOOTPRINT = 2**12
"""The smallest footprint, bytes."""
LARGEST_FOOTPRINT = 2**30
"""The largest footprint, bytes."""
CHASE_MEMORY_SHARE = 0.4
"""The largest share of the free memory for one of two arrays."""
L1_FOOTPRINT = 2**14
"""A footprint well within the L1, bytes."""
L2_FOOTPRINT_DIVISOR = 16
"""The size of the L2 divided by a footprint well within it."""
TILE_BYTES = kernels.CACHE_TILE_WORDS * VECTOR_BYTES
SWEEP_BYTES_PER_SM = 2**27
"""Bytes that each multiprocessor reads to measure the bandwidth of a footprint."""
SWEEP_STRIDE = 7
"""Makes the multiprocessors read a footprint in different orders; see `cache.cu`."""
WARM_FACTOR = 4
"""The multiple of the L2 size above which a footprint is not read before a chase: almost nothing of
it would stay in the L2."""


def measure_latencies(bench: BenchmarkSession, largest: int) -> tuple[Latency, ...]:
    """Chase pointers at each level, from the registers outwards.

    Args:
        bench: The session.
        largest: The footprint in DRAM, bytes: the last of `footprint_sizes`.
    """
    bench.step("latencies")
    array = bench.session.array
    zero, values = array(np.zeros(1, np.uint32)), array(np.full(1, 0.25, np.float32))
    chase = _PointerChase(bench, largest)
    return (
        _chain_latency(bench, "fma.cu", "chain_fp32", values, "register", "Register (FMA)"),
        _chain_latency(bench, "latency.cu", "chase_shared", zero, "shared", "Shared memory"),
        _chain_latency(bench, "constant.cu", "chase_constant", zero, "constant", "Constant"),
        chase.latency("chase_l1", L1_FOOTPRINT, "l1", "L1"),
        *chase.l2_latencies(),
        chase.latency("chase_l2", largest, "dram", "DRAM"),
    )


def _chain_latency(
    bench: BenchmarkSession, file: str, entry: str, data: Any, key: str, label: str
) -> Latency:
    """Time dependent operations of one thread in registers, shared or constant memory."""
    session = bench.session
    result = session.array(CHASE_RESULT_BYTES)
    function, arguments = bench.load(file, entry), [data, np.int32(CHAIN_STEPS), result]
    bench.time(
        lambda: session.launch(function, (1, 1, 1), (1, 1, 1), arguments), label, SETTLED_SETTINGS
    )
    cycles, clock, _ = _read_chase_result(session, result, CHAIN_STEPS)
    return Latency(key, label, cycles, clock)


class _PointerChase:
    """Chases pointers through global memory of any footprint, along random cycles."""

    def __init__(self, bench: BenchmarkSession, largest: int) -> None:
        self._bench, self._session, self._largest = bench, bench.session, largest
        self._memory = self._session.array(largest)
        self._sink = self._session.array(np.zeros(1, SINK_DTYPE))

    def latency(self, entry: str, footprint: int, key: str, label: str) -> Latency:
        """Measure the mean latency of loads that are spread over a footprint, in bytes."""
        cycles, clock = self.cycles(entry, footprint, SETTLED_SETTINGS)
        return Latency(key, label, cycles, clock)

    def cycles(
        self, entry: str, footprint: int, settings: TimingSettings = SINGLE_SAMPLE_SETTINGS
    ) -> tuple[float, float]:
        """Chase through a footprint; return the cycles per load and the SM clock, Hz."""
        session, bench = self._session, self._bench
        nodes = footprint // LINE_BYTES
        order = bench.generator.permutation(nodes).astype(np.uint32)
        link = bench.load("latency.cu", "link")
        arguments = [self._memory, session.array(order), np.uint32(nodes), np.uint32(LINE_BYTES)]
        session.launch(link, ((nodes + 255) // 256, 1, 1), (256, 1, 1), arguments)

        def address(step: int) -> int:
            return int(self._memory) + int(order[step % nodes]) * LINE_BYTES

        function, result = bench.load("latency.cu", entry), session.array(CHASE_RESULT_BYTES)
        warm = footprint if footprint <= WARM_FACTOR * session.l2_bytes else 0
        words, start = np.uint64(warm // VECTOR_BYTES), 0

        def launch() -> None:
            nonlocal start  # each launch continues where the last one ended: its lines are cached
            arguments = [
                self._memory,
                words,
                np.uint64(address(start)),
                np.int32(LATENCY_STEPS),
                kernels.KEEP_NONE,
                self._sink,
                result,
            ]
            session.launch(function, (1, 1, 1), (1024, 1, 1), arguments)
            start += CHASE_ROUNDS * LATENCY_STEPS

        bench.time(launch, entry, settings)
        cycles, clock, end = _read_chase_result(session, result)
        require_correct(end == address(start), entry)
        return cycles, clock

    def l2_latencies(self) -> list[Latency]:
        """Measure the latency of the L2 and, if it has two parts, of the far part too.

        Lines that a multiprocessor has read itself are near. So other multiprocessors read the
        lines first, until one is found that leaves some of them far: these take longer than all
        near lines. A single load between two readings of the clock takes longer than one in a
        chase; the difference is the same for near and far lines and is subtracted.
        """
        footprint = self._session.l2_bytes // L2_FOOTPRINT_DIVISOR // LINE_BYTES * LINE_BYTES
        near, clock = self.cycles("chase_l2", footprint, SETTLED_SETTINGS)
        near_cycles = self._lines(LOADING_SM)
        extra, slowest = near_cycles.mean() - near, np.percentile(near_cycles, 99.9)
        for first in range(2, min(self._session.multiprocessors, 2 + 2 * OTHER_SM_COUNT), 2):
            cycles = self._lines(first)
            far = cycles[cycles > slowest]
            if len(far) > MIN_FAR_LINE_SHARE * L2_TESTED_LINES:
                distant = Latency("l2_far", "L2, far", float(far.mean() - extra), clock)
                return [Latency("l2_near", "L2, near", near, clock), distant]
        return [Latency("l2_near", "L2", near, clock)]

    def _lines(self, first: int) -> NDArray[np.float64]:
        """Cycles of a load of each line, after only multiprocessor `first` has read them."""
        session, bench = self._session, self._bench
        touch, lines = (bench.load("latency.cu", entry) for entry in ("touch", "lines"))
        grid, size = (session.multiprocessors, 1, 1), L2_TESTED_LINES * LINE_BYTES
        elsewhere = np.uintp(int(self._memory) + self._largest // 2)
        drive_out = min(WARM_FACTOR * session.l2_bytes, self._largest // 2)
        for start, length, on in ((elsewhere, drive_out, LOADING_SM), (self._memory, size, first)):
            words = np.uint64(length // VECTOR_BYTES)
            arguments = [start, words, np.uint32(on), kernels.KEEP_NONE, self._sink]
            session.launch(touch, grid, (1024, 1, 1), arguments)
        cycles = session.array(4 * L2_TESTED_LINES)
        arguments = [self._memory, np.uint32(L2_TESTED_LINES), np.uint32(LOADING_SM), cycles]
        session.launch(lines, grid, (1, 1, 1), arguments)
        return session.read(cycles, np.empty(L2_TESTED_LINES, np.uint32)).astype(np.float64)


def _read_chase_result(
    session: GpuSession, result: Any, steps: int = LATENCY_STEPS
) -> tuple[float, float, int]:
    """Read the result of a chase: cycles per step, the SM clock in Hz, and its last address."""
    cycles, nanoseconds, end = map(int, session.read(result, np.empty(3, np.uint64)))
    return cycles / steps, cycles / nanoseconds * 1e9, end


def footprint_sizes(free_bytes: int) -> list[int]:
    """Powers of two and the midpoints between them that fit the free memory, bytes."""
    powers = range(SMALLEST_FOOTPRINT.bit_length() - 1, LARGEST_FOOTPRINT.bit_length() - 1)
    halves = [size for power in powers for size in (2**power, 3 * 2 ** (power - 1))]
    return [
        size for size in (*halves, LARGEST_FOOTPRINT) if size <= free_bytes * CHASE_MEMORY_SHARE
    ]


def sweep_footprints(bench: BenchmarkSession, sizes: Sequence[int]) -> Iterator[Footprint]:
    """Chase through footprints of all sizes, and read them with every multiprocessor."""
    chase = _PointerChase(bench, sizes[-1])
    session = bench.session
    memory = session.array(sizes[-1])
    words = sizes[-1] // VECTOR_BYTES
    fill = bench.load("stream.cu", "fill")
    session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [memory, np.uint64(words)])
    for footprint in sizes:
        bench.step(f"{footprint // 2**10} KiB")
        cycles, _ = chase.cycles("chase_l1", footprint)
        bandwidth = None
        if footprint % TILE_BYTES == 0:
            bandwidth = _read_bandwidth(bench, memory, footprint)
        yield Footprint(footprint, cycles, bandwidth)


def _read_bandwidth(bench: BenchmarkSession, memory: Any, footprint: int) -> float:
    """Let every multiprocessor read a footprint, in different orders; return B/s."""
    session = bench.session
    function = bench.load("cache.cu", "read_any")
    blocks, trips = session.multiprocessors, SWEEP_BYTES_PER_SM // TILE_BYTES
    # Well beyond the caches all read in the same order: otherwise some lines that two of them read
    # in quick succession would come from the L2.
    hop = SWEEP_STRIDE if footprint <= 2 * session.l2_bytes else 0
    sink, elapsed = session.array(np.zeros(1, SINK_DTYPE)), session.array(CLOCK_RESULT_BYTES)
    words = np.uint32(footprint // VECTOR_BYTES)
    arguments = [
        memory,
        words,
        np.int32(trips),
        np.uint32(hop),
        kernels.KEEP_NONE,
        sink,
        elapsed,
    ]

    def launch() -> None:
        session.launch(function, (blocks, 1, 1), (kernels.CACHE_THREADS, 1, 1), arguments)

    samples = bench.time(launch, "reading by footprint", QUICK_SETTINGS)
    return trips * blocks * TILE_BYTES / samples.median_s
