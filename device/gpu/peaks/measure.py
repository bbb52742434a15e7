"""Measures what a GPU can do: runs the micro-benchmarks and gives rates and latencies.

A figure counts only if the kernel did its work: each is launched once on random data and its
output compared with NumPy's before it is timed. Times follow the recipe of every other time
(`memlab.device.gpu.timing`). The caches are not flushed in between: the arrays of a stream are
many times the L2, and a loop's data are to be in the cache it shows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memlab.device.gpu.peaks.bench import Bench
from memlab.device.gpu.peaks.latencies import footprints, latencies, sweep
from memlab.device.gpu.peaks.rates import loop_rate, stream_rates
from memlab.device.gpu.peaks.records import Footprint, Latency, Peaks, Rate
from memlab.device.gpu.session import Session
from memlab.device.gpu.worker import call
from memlab.device.properties import DeviceProperties, summary
from memlab.kernels.peaks import memory_loops as kernels

if TYPE_CHECKING:
    from memlab.device.gpu.worker import Link
    from memlab.device.measurement import Progress


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
    rates, delays, by_footprint = call(_measure, index, properties, progress=progress)
    memory_clock = properties.memory_clock_rate_hz
    return Peaks(
        device=summary(properties, "cuda", f"cuda:{index}"),
        driver_version=properties.driver_version,
        memory_clock_hz=None if memory_clock is None else float(memory_clock),
        rates=rates,
        latencies=delays,
        footprints=by_footprint,
        duration_s=time.monotonic() - started,
    )


Found = tuple[tuple[Rate, ...], tuple[Latency, ...], tuple[Footprint, ...]]


def _measure(link: Link, index: int, properties: DeviceProperties) -> Found:
    """What the worker does."""
    with Session(index, link, own=True) as session:
        bench = Bench(session, link, properties)
        loops = kernels.loops_for(properties.compute_capability)
        sizes = footprints(session.free_bytes())
        bench.steps = len(kernels.STREAMS) + len(loops) + len(sizes) + 1
        rates = (*stream_rates(bench), *(loop_rate(bench, loop) for loop in loops))
        return rates, latencies(bench, sizes[-1]), tuple(sweep(bench, sizes))
