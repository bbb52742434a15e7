"""Measures a GPU: runs the micro-benchmarks and returns rates and latencies.

Every kernel is verified before it is timed: it is launched once on random data, and its output is
compared with NumPy's. It is timed like all launches (`memlab.device.gpu.timing`), but caches are
not flushed: the arrays of a stream are many times as large as the L2, and the data of a loop must
be in the cache that it measures.
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
        properties: The GPU's properties, from which theoretical rates are computed.
        progress: Called with the current measurement and the completed fraction of all.

    Returns:
        The results; the caller sets `created_at` and `memlab_version`.

    Raises:
        DeviceError: There is no such GPU, or it cannot be used.
        MemlabError: A kernel's output is wrong, or it did not end.
    """
    started = time.monotonic()
    rates, latencies, footprints = call_in_worker(
        _measure_in_worker, index, properties, progress=progress
    )
    memory_clock = properties.memory_clock_rate_hz
    return Peaks(
        device=device_summary(properties, "cuda", f"cuda:{index}"),
        driver_version=properties.driver_version,
        memory_clock_hz=None if memory_clock is None else float(memory_clock),
        rates=rates,
        latencies=latencies,
        footprints=footprints,
        duration_s=time.monotonic() - started,
    )


PeakResults = tuple[tuple[Rate, ...], tuple[Latency, ...], tuple[Footprint, ...]]


def _measure_in_worker(link: WorkerLink, index: int, properties: DeviceProperties) -> PeakResults:
    """The worker's task: run all measurements."""
    with GpuSession(index, link, memlab_kernels=True) as session:
        bench = BenchmarkSession(session, link, properties)
        loops = kernels.supported_loops(properties.compute_capability)
        sizes = footprint_sizes(session.free_bytes())
        bench.steps = len(kernels.STREAMS) + len(loops) + len(sizes) + 1
        rates = (*measure_stream_rates(bench), *(measure_loop_rate(bench, loop) for loop in loops))
        return rates, measure_latencies(bench, sizes[-1]), tuple(sweep_footprints(bench, sizes))
