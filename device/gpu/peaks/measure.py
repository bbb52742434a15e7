"""Measures what a GPU can do: runs the micro-benchmarks and gives rates and latencies.

A figure counts only if the kernel did its work: each is launched once on random data and its
output compared with NumPy's before it is timed. Times follow the recipe of every other time
(`memlab.device.gpu.timing`). The caches are not flushed in between: the arrays of a stream are
many times the L2, and a loop's data are to be in the cache it shows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memlab.device.gpu.peaks.bench import BenchmarkSession
from memlab.device.gpu.peaks.latencies import footprint_sizes, measure_latencies, sweep_footprints
from memlab.device.gpu.peaks.rates import measure_loop_rate, measure_stream_rates
from memlab.device.gpu.peaks.records import Footprint, Latency, Peaks, Rate
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.worker import call_in_worker
from memlab.device.properties import DeviceProperties, device_summary
from memlab.kernels.peaks import memory_loops as kernels

if TYPE_CHECKING:
    from memlab.device.gpu.worker import WorkerLink
    from memlab.device.measurement import Progress


def measure_peaks(
    index: int, properties: DeviceProperties, progress: Progress | None = None
) -> Peaks:
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
    rates, delays, by_footprint = call_in_worker(
        _measure_in_worker, index, properties, progress=progress
    )
    memory_clock = properties.memory_clock_rate_hz
    return Peaks(
        device=device_summary(properties, "cuda", f"cuda:{index}"),
        driver_version=properties.driver_version,
        memory_clock_hz=None if memory_clock is None else float(memory_clock),
        rates=rates,
        latencies=delays,
        footprints=by_footprint,
        duration_s=time.monotonic() - started,
    )


PeakResults = tuple[tuple[Rate, ...], tuple[Latency, ...], tuple[Footprint, ...]]


def _measure_in_worker(link: WorkerLink, index: int, properties: DeviceProperties) -> PeakResults:
    """What the worker does."""
    with GpuSession(index, link, own=True) as session:
        bench = BenchmarkSession(session, link, properties)
        loops = kernels.supported_loops(properties.compute_capability)
        sizes = footprint_sizes(session.free_bytes())
        bench.steps = len(kernels.STREAMS) + len(loops) + len(sizes) + 1
        rates = (*measure_stream_rates(bench), *(measure_loop_rate(bench, loop) for loop in loops))
        return rates, measure_latencies(bench, sizes[-1]), tuple(sweep_footprints(bench, sizes))
