"""Measures what a GPU can do: runs the micro-benchmarks and gives rates and latencies.

A figure counts only if the kernel did its work: each is launched once on random data and its
output compared with NumPy's before it is timed. Times follow the recipe of every other time
(`memlab.device.timing`). The caches are not flushed in between: the arrays of a stream are a
hundred times the L2, and a loop's data are to be in the cache it shows.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.compile import compile_cubin
from memlab.device.cuda import Session
from memlab.device.measurement import DeviceSummary
from memlab.device.peak_records import Footprint, Latency, Peaks, Rate, theoretical
from memlab.device.timing import Samples, Settings
from memlab.device.worker import call
from memlab.errors import MemlabError
from memlab.kernels import microbenchmarks as kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from memlab.device.properties import DeviceProperties
    from memlab.device.worker import Link, Progress

SETTINGS = Settings(minimum_samples=15, minimum_s=0.2, cap_s=1.5, settle_s=0.2, settle_cap_s=1.0)
SETTLED = Settings(samples=1, settle_s=0.1, settle_cap_s=0.5)
QUICK = Settings(samples=5, settle_s=0.0, settle_cap_s=0.0)
ONCE = Settings(samples=1, settle_s=0.0, settle_cap_s=0.0)

LAUNCH_S = 5e-3
"""How long a launch of a loop shall take: what starts and ends it is then below 0.1%."""
FIRST_TRIPS = 101
"""Trips of the launch that finds out how many this takes. Odd, as `fma.cu` wants it."""

STREAM_BYTES = 8 * 2**30
"""Size of a stream's array: the more, the less its start and end weigh."""
MEMORY_SHARE = 0.25
"""But each of the three takes at most so much of the memory."""
STREAM_GRAIN = 2**21
"""Arrays are a multiple of this many bytes long: a GPU page, and any block's share."""
CHECKED_BYTES = 64 * 2**20
"""How much of a stream is compared with NumPy."""

STEPS = 63 * 16 * 16
"""Loads or multiply-adds of a latency: a multiple of what each kernel unrolls."""
CHAIN_STEPS = 16 * STEPS
"""Of what takes a few clocks only: the GPU's timer ticks about once in a microsecond."""
ROUNDS = 2  # of which the second counts; as in `latency.cu`
LINE_BYTES = 128
LINES = 2**14
"""Lines whose L2 latency is looked at one by one: 2 MiB."""
HERE, OTHERS, FAR_SHARE = 0, 16, 0.2
"""The multiprocessor that loads them, how many others are tried, and the share of far lines that
says that one is on the other side: half of all lines, if addresses are spread evenly."""
SMALLEST_FOOTPRINT = 2**12
LARGEST_FOOTPRINT = 2**30
L1_FOOTPRINT = 2**14
L2_SHARE = 16
"""What lies well within the L1, bytes, and well within the L2: such a part of it."""
TILE_BYTES = kernels.CACHE_TILE_WORDS * kernels.WORD_BYTES
SWEEP_BYTES_PER_SM = 2**27
"""What each multiprocessor reads for the bandwidth of a footprint."""
HOP = 7
"""Makes the multiprocessors' ways through a footprint differ; see `cache.cu`."""
WARM_FACTOR = 4
"""Footprints above so many L2 sizes need no reading beforehand: almost nothing would stay."""

SINK = np.dtype(np.uint32)
CLOCK_BYTES, CHASED_BYTES = 16, 24
"""`Clock` and `Chased` in `common.cuh`: cycles and nanoseconds, and where a chase ended."""


def measure(index: int, properties: DeviceProperties, progress: Progress | None = None) -> Peaks:
    """Measure everything, in a worker.

    Args:
        index: The GPU's number, from 0.
        properties: What is known of it; rates are compared with what follows from it.
        progress: Told what is being measured and which fraction of all is over.

    Returns:
        The figures; `created_at` and `memlab_version` are left for the caller.

    Raises:
        DeviceError: There is no such GPU, or it cannot be used.
        MemlabError: A kernel's output is wrong, or it did not end.
    """
    started = time.monotonic()
    rates, latencies, footprints = call(_measure, index, properties, progress=progress)
    memory_clock = properties.memory_clock_rate_hz
    return Peaks(
        device=DeviceSummary(
            properties.name, "cuda", properties.compute_capability, f"cuda:{index}"
        ),
        driver_version=properties.driver_version,
        memory_clock_hz=None if memory_clock is None else float(memory_clock),
        rates=rates,
        latencies=latencies,
        footprints=footprints,
        duration_s=time.monotonic() - started,
    )


Found = tuple[tuple[Rate, ...], tuple[Latency, ...], tuple[Footprint, ...]]


def _measure(link: Link, index: int, properties: DeviceProperties) -> Found:
    """What the worker does."""
    with Session(index, link) as session:
        bench = _Bench(session, link, properties)
        loops = kernels.loops_for(properties.compute_capability)
        bench.steps = len(kernels.STREAMS) + len(loops) + len(_footprints()) + 1
        rates = (*_streams(bench), *(_loop(bench, loop) for loop in loops))
        return rates, _latencies(bench), tuple(_sweep(bench))


@dataclass
class _Bench:
    """A session with what the measurements share."""

    session: Session
    link: Link
    properties: DeviceProperties
    steps: int = 1
    done: int = 0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    cubins: dict[tuple[str, bool], bytes] = field(default_factory=dict)

    def step(self, what: str) -> None:
        """Say what is being measured next."""
        self.link.report(f"measuring {what}", self.done / self.steps)
        self.done += 1

    def load(self, file: str, entry: str, specific: bool = False) -> Any:
        """Compile a file, once, and give one of its kernels."""
        if (file, specific) not in self.cubins:
            major, minor = self.properties.compute_capability
            options = (f"-arch=sm_{major}{minor}a",) if specific else ()
            self.cubins[file, specific] = compile_cubin(
                kernels.source(file), file, (major, minor), {}, options=options
            )
        return self.session.load(self.cubins[file, specific], entry)

    def time(self, launch: Callable[[], None], what: str, settings: Settings = SETTINGS) -> Samples:
        return self.session.time(launch, settings, flush=False, what=what)


def _streams(bench: _Bench) -> list[Rate]:
    """Time the passes over DRAM. Of the three arrays, `out` is written, two are read."""
    session = bench.session
    size = _stream_bytes(bench.properties.total_memory_bytes)
    words = size // kernels.WORD_BYTES
    arrays = [session.array(size) for _ in range(3)]
    sink = session.array(np.zeros(1, SINK))
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

        _verify_stream(bench, stream, arrays, sink, function)
        samples = bench.time(launch, stream.label)
        rates.append(_rate(bench, stream, blocks * stream.bytes_per_block, samples, None))
    return rates


def _stream_bytes(memory_bytes: int | None) -> int:
    most = STREAM_BYTES if memory_bytes is None else int(memory_bytes * MEMORY_SHARE)
    return min(STREAM_BYTES, most) // STREAM_GRAIN * STREAM_GRAIN


def _verify_stream(
    bench: _Bench, stream: kernels.Stream, arrays: Sequence[Any], sink: Any, function: Any
) -> None:
    """Launch a stream on the start of its arrays and compare with NumPy."""
    session = bench.session
    count = CHECKED_BYTES // 4
    first, other = (session.read(each, np.empty(count, np.uint32)) for each in arrays[1:])
    clean = session.array(np.zeros(1, SINK))
    blocks = CHECKED_BYTES // kernels.WORD_BYTES // stream.words_per_block
    arguments = [*arrays, kernels.KEEP_ALL, clean]
    session.launch(function, (blocks, 1, 1), (stream.threads, 1, 1), arguments)
    found = session.read(arrays[0], np.empty(count, np.uint32))
    if stream.entry == "read":
        (combined,) = session.read(clean, np.empty(1, SINK))
        good = combined == np.bitwise_xor.reduce(first)
    elif stream.entry == "write":
        value = np.arange(count // 4, dtype=np.uint32) * np.uint32(2654435761)
        others = (~value, value ^ np.uint32(0x5A5A5A5A), value + np.uint32(0x9E3779B9))
        good = np.array_equal(found.reshape(-1, 4), np.stack([value, *others], axis=1))
    elif stream.entry == "copy":
        good = np.array_equal(found, first)
    else:
        b, c = (each.view(np.float32).astype(np.float64) for each in (first, other))
        wanted = (b + float(kernels.TRIAD_FACTOR) * c).astype(np.float32)
        good = np.allclose(found.view(np.float32), wanted, rtol=1e-6)
    _insist(bool(good), stream.label)


def _loop(bench: _Bench, loop: kernels.Loop) -> Rate:
    bench.step(loop.label)
    session = bench.session
    loop = kernels.sized(loop, session.multiprocessors, session.l2_bytes)
    function = bench.load(loop.source_file, loop.entry, loop.architecture is not None)
    data = loop.inputs(bench.generator)
    blocks = loop.blocks_per_sm * session.multiprocessors
    elapsed = session.array(CLOCK_BYTES)
    _verify_loop(bench, loop, function, data, elapsed)

    if loop.own_data:
        data = np.concatenate([data] * blocks)  # each block's own copy
    memory = session.array(data)
    item = np.dtype(loop.output).itemsize
    out = session.array(max(loop.outputs_per_block * blocks, 1) * item)

    def run(trips: int, settings: Settings, clocks: list[float]) -> Samples:
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

    trips = FIRST_TRIPS
    for _ in range(2):  # the first guess may be far off, and then imprecise
        short = run(trips, ONCE, [])
        trips = max(1, round(trips * LAUNCH_S / short.median_s)) | 1
    clocks = list[float]()
    samples = run(trips, SETTINGS, clocks)
    work = trips * blocks * loop.work_per_trip
    return _rate(bench, loop, work, samples, statistics.median(clocks[-len(samples.taken) :]))


def _verify_loop(
    bench: _Bench, loop: kernels.Loop, function: Any, data: NDArray[Any], elapsed: Any
) -> None:
    """Launch one block for one trip and compare with NumPy."""
    session = bench.session
    expected = loop.expected(data)
    out = session.array(np.zeros(max(loop.outputs_per_block, 1), loop.output))
    threads = loop.probe_threads or loop.threads
    arguments = [
        session.array(data),
        np.uint32(loop.footprint),
        np.int32(1),
        kernels.KEEP_ALL,
        out,
        elapsed,
    ]
    session.launch(function, (1, 1, 1), (threads, 1, 1), arguments, loop.dynamic_shared_bytes)
    found = session.read(out, np.empty(max(loop.outputs_per_block, 1), loop.output))
    if isinstance(expected, np.ndarray):
        sums = found.astype(np.float64).reshape(len(expected), -1).sum(axis=1)
        scale = np.abs(expected).max()
        good = np.allclose(sums, expected, rtol=0, atol=1e-4 * scale)
    else:
        good = found[0] == expected
    _insist(bool(good), loop.label)


def _insist(good: bool, label: str) -> None:
    if not good:
        raise MemlabError(
            f"the micro-benchmark '{label}' gave a wrong result, so its time means nothing: "
            "have the GPU's memory tested, or report this with your GPU and driver"
        )


def _rate(
    bench: _Bench,
    what: kernels.Stream | kernels.Loop,
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
        theoretical=theoretical(what.limit, bench.properties),
        theoretical_at_clock=theoretical(what.limit, bench.properties, clock),
    )


def _clock_hz(elapsed: NDArray[np.uint64]) -> float:
    """The SM clock from a multiprocessor's cycles over the GPU's timer."""
    cycles, nanoseconds = (int(each) for each in elapsed)
    return cycles / nanoseconds * 1e9 if nanoseconds else 0.0


def _latencies(bench: _Bench) -> tuple[Latency, ...]:
    """Chase pointers at each level, from the registers outwards."""
    bench.step("latencies")
    array = bench.session.array
    zero, values = array(np.zeros(1, np.uint32)), array(np.full(1, 0.25, np.float32))
    chase = _Chase(bench)
    return (
        _chain(bench, "fma.cu", "chain_fp32", values, "register", "Register (FMA)"),
        _chain(bench, "latency.cu", "chase_shared", zero, "shared", "Shared memory"),
        _chain(bench, "constant.cu", "chase_constant", zero, "constant", "Constant"),
        chase.latency("chase_l1", L1_FOOTPRINT, "l1", "L1"),
        *chase.near_and_far(),
        chase.latency("chase_l2", LARGEST_FOOTPRINT, "dram", "DRAM"),
    )


def _chain(bench: _Bench, file: str, entry: str, data: Any, key: str, label: str) -> Latency:
    """Time one thread's dependent operations on what needs no memory of ours."""
    session = bench.session
    result = session.array(CHASED_BYTES)
    function, arguments = bench.load(file, entry), [data, np.int32(CHAIN_STEPS), result]
    bench.time(lambda: session.launch(function, (1, 1, 1), (1, 1, 1), arguments), label, SETTLED)
    cycles, clock, _ = _chased(session, result, CHAIN_STEPS)
    return Latency(key, label, cycles, clock)


class _Chase:
    """Chases through global memory of any footprint, along random circles."""

    def __init__(self, bench: _Bench) -> None:
        self._bench, self._session = bench, bench.session
        self._memory = self._session.array(LARGEST_FOOTPRINT)
        self._sink = self._session.array(np.zeros(1, SINK))

    def latency(self, entry: str, footprint: int, key: str, label: str) -> Latency:
        """Give the mean latency of loads that are spread over a footprint, in bytes."""
        cycles, clock = self.cycles(entry, footprint, SETTLED)
        return Latency(key, label, cycles, clock)

    def cycles(self, entry: str, footprint: int, settings: Settings = ONCE) -> tuple[float, float]:
        """Chase through a footprint; gives cycles a load and the SM clock, Hz."""
        session, bench = self._session, self._bench
        nodes = footprint // LINE_BYTES
        order = bench.generator.permutation(nodes).astype(np.uint32)
        link = bench.load("latency.cu", "link")
        arguments = [self._memory, session.array(order), np.uint32(nodes), np.uint32(LINE_BYTES)]
        session.launch(link, ((nodes + 255) // 256, 1, 1), (256, 1, 1), arguments)

        def address(step: int) -> int:
            return int(self._memory) + int(order[step % nodes]) * LINE_BYTES

        function, result = bench.load("latency.cu", entry), session.array(CHASED_BYTES)
        warm = footprint if footprint <= WARM_FACTOR * session.l2_bytes else 0
        words, start = np.uint64(warm // kernels.WORD_BYTES), 0

        def launch() -> None:
            nonlocal start  # each goes on where the one before ended: those lines are cached
            arguments = [
                self._memory,
                words,
                np.uint64(address(start)),
                np.int32(STEPS),
                kernels.KEEP_NONE,
                self._sink,
                result,
            ]
            session.launch(function, (1, 1, 1), (1024, 1, 1), arguments)
            start += ROUNDS * STEPS

        bench.time(launch, entry, settings)
        cycles, clock, end = _chased(session, result)
        _insist(end == address(start), entry)
        return cycles, clock

    def near_and_far(self) -> list[Latency]:
        """Give the latency of the L2, and where it has two parts, of the far one too.

        What a multiprocessor has read itself lies near. So another reads lines first, until one
        is found that leaves some of them far: these take longer than all that are near. A single
        load between two readings of the clock costs more than one in a chase, alike near or far.
        """
        footprint = self._session.l2_bytes // L2_SHARE // LINE_BYTES * LINE_BYTES
        near, clock = self.cycles("chase_l2", footprint, SETTLED)
        own = self._lines(HERE)
        extra, slowest = own.mean() - near, np.percentile(own, 99.9)
        for other in range(2, min(self._session.multiprocessors, 2 + 2 * OTHERS), 2):
            cycles = self._lines(other)
            far = cycles[cycles > slowest]
            if len(far) > FAR_SHARE * LINES:
                distant = Latency("l2_far", "L2, far", float(far.mean() - extra), clock)
                return [Latency("l2_near", "L2, near", near, clock), distant]
        return [Latency("l2_near", "L2", near, clock)]

    def _lines(self, first: int) -> NDArray[np.float64]:
        """Cycles of a load of each line, after multiprocessor `first` alone has read them."""
        session, bench = self._session, self._bench
        touch, lines = (bench.load("latency.cu", entry) for entry in ("touch", "lines"))
        grid, size = (session.multiprocessors, 1, 1), LINES * LINE_BYTES
        elsewhere = np.uintp(int(self._memory) + LARGEST_FOOTPRINT // 2)
        drive_out = min(WARM_FACTOR * session.l2_bytes, LARGEST_FOOTPRINT // 2)
        for start, length, on in ((elsewhere, drive_out, HERE), (self._memory, size, first)):
            words = np.uint64(length // kernels.WORD_BYTES)
            arguments = [start, words, np.uint32(on), kernels.KEEP_NONE, self._sink]
            session.launch(touch, grid, (1024, 1, 1), arguments)
        cycles = session.array(4 * LINES)
        arguments = [self._memory, np.uint32(LINES), np.uint32(HERE), cycles]
        session.launch(lines, grid, (1, 1, 1), arguments)
        return session.read(cycles, np.empty(LINES, np.uint32)).astype(np.float64)


def _chased(session: Session, result: Any, steps: int = STEPS) -> tuple[float, float, int]:
    """Read `Chased`: cycles a step, the SM clock in Hz, and where the chase ended."""
    cycles, nanoseconds, end = (int(each) for each in session.read(result, np.empty(3, np.uint64)))
    return cycles / steps, cycles / nanoseconds * 1e9, end


def _footprints() -> list[int]:
    """Powers of two and what lies halfway between them, bytes."""
    powers = range(SMALLEST_FOOTPRINT.bit_length() - 1, LARGEST_FOOTPRINT.bit_length() - 1)
    halves = [size for power in powers for size in (2**power, 3 * 2 ** (power - 1))]
    return [*halves, LARGEST_FOOTPRINT]


def _sweep(bench: _Bench) -> Iterator[Footprint]:
    """Chase through, and read with every multiprocessor, footprints of all sizes."""
    chase = _Chase(bench)
    session = bench.session
    memory = session.array(LARGEST_FOOTPRINT)
    words = LARGEST_FOOTPRINT // kernels.WORD_BYTES
    fill = bench.load("stream.cu", "fill")
    session.launch(fill, (words // 256, 1, 1), (256, 1, 1), [memory, np.uint64(words)])
    for footprint in _footprints():
        bench.step(f"{footprint // 2**10} KiB")
        cycles, _ = chase.cycles("chase_l1", footprint)
        bandwidth = None
        if footprint % TILE_BYTES == 0:
            bandwidth = _read_any(bench, memory, footprint)
        yield Footprint(footprint, cycles, bandwidth)


def _read_any(bench: _Bench, memory: Any, footprint: int) -> float:
    """Let every multiprocessor read a footprint, each in its own order; gives B/s."""
    session = bench.session
    function = bench.load("cache.cu", "read_any")
    blocks, trips = session.multiprocessors, SWEEP_BYTES_PER_SM // TILE_BYTES
    # Well beyond the caches all go in order: what chance lets two read soon after one another would
    # come from the L2.
    hop = HOP if footprint <= 2 * session.l2_bytes else 0
    sink, elapsed = session.array(np.zeros(1, SINK)), session.array(CLOCK_BYTES)
    words = np.uint32(footprint // kernels.WORD_BYTES)
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

    samples = bench.time(launch, "reading by footprint", QUICK)
    return trips * blocks * TILE_BYTES / samples.median_s
