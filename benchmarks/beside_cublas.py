"""A product and cuBLAS timed in turn on the same arrays of a GPU, by a worker.

`benchmarks.bars` calls it; it is a module of its own because a worker imports its task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memlab.device.gpu.device import compared_positions, hand_over_outputs, prepare_on_gpu
from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import Samples, TimingSettings
from memlab.device.gpu.worker import Worker
from memlab.device.inputs import make_inputs
from memlab.device.verification import verify
from memlab.kernels import cublas

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.gpu.worker import WorkerLink
    from memlab.device.measurement import Verification
    from memlab.kernels.launch import Launch

BRIEF = TimingSettings(cap_s=1.0)


@dataclass(frozen=True)
class Timed:
    """A time.

    Attributes:
        seconds: The median of the samples.
        clock_hz: The SM clock, Hz, median of the samples; None if it cannot be read.
    """

    seconds: float
    clock_hz: float | None


def time_beside_cublas(
    launch: Launch, compiled: CompiledKernel, seed: int
) -> tuple[Timed, Verification, Timed]:
    """Verify a product, then time it between two times of cuBLAS.

    Args:
        launch: A launch of a matrix kernel with row-major matrices.
        compiled: Its code.
        seed: Seed of the inputs and of the rows that are verified.

    Returns:
        The time of the kernel, its verification, and the time of cuBLAS.

    Raises:
        MemlabError: The kernel faulted or did not end, or cuBLAS is not installed.
    """
    sent = replace(launch, references={})  # which another process may not be able to import
    positions = compared_positions(launch, seed)
    with Worker(run_beside_cublas, sent, compiled, seed, positions, BRIEF) as worker:
        inputs = make_inputs(launch, seed)
        compared, _ = worker.take()
        verification = verify(launch, inputs, compared)
        worker.resume()
        own, library = worker.result()
    return _timed(own), verification, _timed(library)


def _timed(samples: Samples) -> Timed:
    return Timed(samples.median_s, samples.clock_hz)


def run_beside_cublas(
    link: WorkerLink,
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    positions: Mapping[str, NDArray[np.int64]],
    settings: TimingSettings,
) -> tuple[Samples, Samples]:
    """The worker's task: samples of the kernel, and of cuBLAS before and after it."""
    with GpuSession(0, link, settings.timeout_s) as session:
        ready = prepare_on_gpu(session, launch, compiled, seed)
        hand_over_outputs(link, session, launch, ready, positions)
        addresses = {name: int(memory) for name, memory in ready.memory.items()}
        with cublas.prepare_gemm(launch, addresses) as product:
            before = session.time(product, settings, what="cuBLAS")
            own = session.time(ready.run_once, settings, what=launch.kernel)
            after = session.time(product, settings, what="cuBLAS")
    return own, Samples((*before.taken, *after.taken))
