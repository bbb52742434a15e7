"""How fast cuBLAS computes the same product on the same GPU: the bar for the matmul ladder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.gpu.session import GpuSession
from memlab.device.gpu.timing import TimingSettings, summarize_time
from memlab.device.gpu.worker import call_in_worker
from memlab.device.inputs import make_inputs
from memlab.device.measurement import Progress, Time, Verification
from memlab.device.verification import ActualOutput, checked_positions, verify
from memlab.kernels import cublas

if TYPE_CHECKING:
    from memlab.device.gpu.worker import WorkerLink
    from memlab.kernels.launch import Launch

INPUT_ROUNDING = {"TF32": 2 * 2.0**-10}
"""What cuBLAS may lose besides in a product of two numbers: how it rounds float32 to TF32 is not
documented; cutting off loses up to 2**-10 of each."""


@dataclass(frozen=True)
class CublasBaseline:
    """What cuBLAS did.

    Attributes:
        time: As of a kernel of ours, measured in the same way.
        flop_per_s: The product's FLOPs over the median time.
        verification: Its output against the launch's reference.
    """

    time: Time
    flop_per_s: float
    verification: Verification


def measure_baseline(
    index: int,
    launch: Launch,
    seed: int,
    settings: TimingSettings | None = None,
    progress: Progress | None = None,
) -> CublasBaseline:
    """Time cuBLAS on the product that a launch computes, with the same inputs.

    Args:
        index: The GPU's number, from 0.
        launch: Any of the matrix kernels with row-major matrices.
        seed: Of the inputs and of the rows that are verified.
        settings: When to stop timing, and when to give up.
        progress: Told what is being done.

    Raises:
        LibraryError: cuBLAS or its binding is not installed.
        DeviceError: There is no such GPU.
        UsageError: The arrays do not fit.
    """
    time, verification = call_in_worker(
        measure_in_worker, index, launch, seed, settings or TimingSettings(), progress=progress
    )
    assert launch.flop is not None  # the ladder declares its work
    return CublasBaseline(time, launch.flop / time.median_s, verification)


def measure_in_worker(
    link: WorkerLink, index: int, launch: Launch, seed: int, settings: TimingSettings
) -> tuple[Time, Verification]:
    """Run, verify and time cuBLAS on a GPU: what a worker does; arguments as above."""
    link.report("preparing inputs")
    inputs = make_inputs(launch, seed)
    rounding = INPUT_ROUNDING.get(launch.defines.get("INPUT", ""), 0.0)
    expected = replace(launch, tolerance=launch.tolerance + rounding)
    (output,) = launch.outputs
    with GpuSession(index, link, settings.timeout_s) as session:
        memory = {name: session.array(values) for name, values in inputs.items()}
        memory[output.name] = session.array(output.nbytes)
        addresses = {name: int(allocation) for name, allocation in memory.items()}
        with cublas.prepare_gemm(launch, addresses) as once:
            link.report("running cuBLAS")
            once()
            session.synchronize("cuBLAS")
            values = session.read(memory[output.name], np.empty(output.shape, output.dtype))
            positions = checked_positions(launch, output.shape, seed)
            found = ActualOutput(positions, values.reshape(-1)[positions])
            verification = verify(expected, inputs, {output.name: found})
            link.report("timing cuBLAS, caches cold")
            cold = session.time(once, settings, flush=True, what="cuBLAS")
            link.report("timing cuBLAS, caches warm")
            warm = session.time(once, settings, flush=False, what="cuBLAS")
    return summarize_time(cold, warm), verification
