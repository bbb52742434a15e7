"""Calibrates a GPU: runs the groups of micro-benchmarks, each in a worker, and makes a datasheet.

A micro-benchmark that fails, even one that leaves the GPU unusable for its process, is reported and
does not stop the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memlab.device.gpu.calibration import clusters, contention, launches, loaded, memory, pipes
from memlab.device.gpu.calibration.figures import figures_from_samples
from memlab.device.gpu.calibration.records import Calibration, Failure, RawSample
from memlab.device.gpu.peaks.bench import BenchmarkSession
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.worker import call_in_worker
from memlab.device.properties import MACHINE_FIGURES, DeviceProperties, known_figures
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.device.gpu.worker import WorkerLink
    from memlab.device.measurement import Progress

Benchmark = Callable[[BenchmarkSession], Iterator[RawSample]]


@dataclass(frozen=True)
class Group:
    """Micro-benchmarks that share a process on the GPU.

    Attributes:
        steps: About how many steps they report, for the progress.
        benchmarks: The micro-benchmarks.
    """

    steps: int
    benchmarks: tuple[Benchmark, ...]


GROUPS = (
    Group(26, (pipes.measure_pipes, pipes.measure_lane_loads, pipes.measure_barriers)),
    Group(10, (pipes.measure_tensor_cores,)),
    Group(11, (memory.measure_ceilings,)),
    Group(2, (memory.measure_chases, memory.measure_reach)),
    Group(16, (memory.measure_random_latencies, memory.measure_random_rates)),
    Group(20, (memory.measure_ports,)),
    Group(27, (loaded.measure_loaded_latency,)),
    Group(6, (contention.measure_global_atomics, contention.measure_shared_atomics)),
    Group(
        10,
        (launches.measure_block_starts, launches.measure_turnaround, launches.measure_warp_starts),
    ),
    Group(1, (clusters.measure_groups,)),
    Group(9, (launches.measure_code,)),
)
GROUP_LIMIT_S = 60.0
"""The limit of a group, seconds: no further micro-benchmark of it is started after it."""
LOCAL_FIGURES = frozenset({*MACHINE_FIGURES, "uuid", "driver_release"})
"""What belongs to the one machine, and to no datasheet."""

NOT_MEASURED = {
    "tensor_flop_per_s": "the vendor's peak",
    "tensor_clock_hz": "the vendor's",
    "l1_cache_bytes_per_sm": "NVIDIA's documents give it exactly",
    "dram_launch_bytes": "it takes a profiler's counters of DRAM",
    "tensor_load_clock_hz": "it takes a profiler's clocks of kernels",
    "tensor_load_settling_s": "it takes a profiler's clocks of kernels",
    "tensor_type_loads": "it is that of a data-center GPU of the same architecture",
    "store_completion_s": "it takes a profiler's times of kernels",
    "l1_queued_store_lines": "it takes a profiler's counters of the L1's stores",
    "uniform_constant_lines": "benchmarks/constant_walks.cu measures it",
    "constant_miss_clocks": "benchmarks/constant_walks.cu measures it",
    "constant_lines_per_clock": "benchmarks/constant_walks.cu measures it",
    "l2_random_sectors_per_clock": "benchmarks/dependent.cu measures it",
    "l2_partitions": "NVIDIA's documents give it exactly",
    "l2_merged_reads_by_sms": "it takes a profiler's counters of the L2",
    "l2_merged_later_reads": "it takes a profiler's counters of the L2",
    "l2_merging_sms": "it takes a profiler's counters of the L2",
    "l2_most_merged_copies": "it takes a profiler's counters of the L2",
    "l2_merged_apart_share": "it takes a profiler's counters of the L2",
    "l2_merged_later_copies_share": "it takes a profiler's counters of the L2",
    "l2_coalescer_clocks": "it takes a profiler's counters of the L2",
    "pace_deviation": "it takes a profiler's counters of the L2",
}
"""Figures of the models that no micro-benchmark gives, and why: they are those of a datasheet of
memlab."""

GroupResult = tuple[list[RawSample], list[Failure]]


def calibrate_gpu(
    index: int, properties: DeviceProperties, date: str, progress: Progress | None = None
) -> Calibration:
    """Measure everything that a datasheet holds.

    Args:
        index: The GPU's number, from 0.
        properties: Its properties from the driver.
        date: Today, for the sources.
        progress: Called with the current measurement and the completed fraction of all.

    Returns:
        The datasheet with the samples that it was computed from.

    Raises:
        DeviceError: There is no such GPU, or it cannot be used.
        MemlabError: Nothing could be measured.
    """
    started = time.monotonic()
    samples, failures = list[RawSample](), list[Failure]()
    steps = sum(group.steps for group in GROUPS)
    for number, group in enumerate(GROUPS):
        before = sum(earlier.steps for earlier in GROUPS[:number])
        done, share = before / steps, group.steps / steps

        def report(
            what: str, fraction: float | None = None, done: float = done, share: float = share
        ) -> None:
            if progress is not None:
                progress(what, done + share * min(fraction or 0.0, 1.0))

        try:
            taken, failed = call_in_worker(
                _measure_group, index, properties, number, progress=report
            )
        except MemlabError as error:
            taken, failed = [], [Failure(_name(part), str(error)) for part in group.benchmarks]
        samples += taken
        failures += failed
    if not samples:
        raise MemlabError(f"nothing could be measured ({failures[0].reason}): see 'memlab doctor'")
    figures, implausible = figures_from_samples(samples, properties)
    return Calibration(
        datasheet(properties, figures, samples, date),
        tuple(figures),
        tuple(samples),
        (*failures, *implausible),
        time.monotonic() - started,
    )


def datasheet(
    properties: DeviceProperties, figures: dict[str, Any], samples: list[RawSample], date: str
) -> DeviceProperties:
    """Add measured figures to what the driver says of a GPU.

    Args:
        properties: What was known before; figures of this very machine are left out.
        figures: The measured figures, which precede.
        samples: The samples, for the clock.
        date: The date of the measurement.
    """
    clocks = sorted(sample.value for sample in samples if sample.series == "clock_hz")
    clock = f" at {clocks[len(clocks) // 2] / 1e6:.0f} MHz" if clocks else ""
    driver = properties.driver_release or properties.driver_version
    source = f"measured: memlab calibrate on {properties.name}{clock}, driver {driver}, {date}"
    empty = DeviceProperties("", (0, 0))
    left_out = {name: getattr(empty, name) for name in LOCAL_FIGURES}
    known = {
        name: f"{text}; not measured by memlab calibrate: {NOT_MEASURED[name]}"
        if name in NOT_MEASURED
        else text
        for name, text in properties.sources.items()
        if name not in LOCAL_FIGURES and name in known_figures(properties)
    }
    sources = known | dict.fromkeys(figures, source)
    return replace(properties, sources=sources, **left_out, **figures)


def _measure_group(
    link: WorkerLink, index: int, properties: DeviceProperties, number: int
) -> GroupResult:
    """The worker's task: run the micro-benchmarks of one group, as far as they go."""
    samples, failures = list[RawSample](), list[Failure]()
    started = time.monotonic()
    group = GROUPS[number]
    with GpuSession(index, link, memlab_kernels=True) as session:
        for benchmark in group.benchmarks:
            bench = BenchmarkSession(session, link, properties, steps=group.steps)
            if time.monotonic() - started > GROUP_LIMIT_S:
                failures.append(Failure(_name(benchmark), "the time for its group was over"))
                continue
            try:
                for sample in benchmark(bench):
                    samples.append(sample)
            except MemlabError as error:
                failures.append(Failure(_name(benchmark), str(error)))
    return samples, failures


def _name(benchmark: Benchmark) -> str:
    return benchmark.__name__.removeprefix("measure_").replace("_", " ")
