"""The baseline of the matmul ladder: cuBLAS timed on the same product and the same GPU."""

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
"""Additional relative error of a product of two inputs in cuBLAS: its rounding of float32 to TF32
is not documented, and truncation loses up to 2**-10 per input."""


@dataclass(frozen=True)
class CublasBaseline:
    """The time of cuBLAS on a launch's product.

    Attributes:
        time: Measured in the same way as a kernel's time.
        flop_per_s: The product's FLOPs divided by the median time, FLOP/s.
        verification: The comparison of its output with the launch's reference.
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
        launch: A launch of a matrix kernel with row-major matrices.
        seed: Seed of the inputs and of the rows that are verified.
        settings: When to stop timing, and when to give up.
        progress: Called with the current step.

    Raises:
        CublasError: cuBLAS or its binding is not installed.
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
    """The worker's task: run, verify and time cuBLAS; arguments as in `measure_baseline`."""
    link.report("preparing inputs")
    inputs = make_inputs(launch, seed)
    rounding = INPUT_ROUNDING.get(launch.defines.get("INPUT", ""), 0.0)
    expected = replace(launch, tolerance=launch.tolerance + rounding)
    (output,) = launch.outputs
    with GpuSession(index, link, settings.timeout_s) as session:
        memory = {name: session.array(values) for name, values in inputs.items()}
        memory[output.name] = session.array(output.nbytes)
        addresses = {name: int(allocation) for name, allocation in memory.items()}
        with cublas.prepare_gemm(launch, addresses) as run_once:
            link.report("running cuBLAS")
            run_once()
            session.synchronize("cuBLAS")
            values = session.read(memory[output.name], np.empty(output.shape, output.dtype))
            positions = checked_positions(launch, output.shape, seed)
            actual = ActualOutput(positions, values.reshape(-1)[positions])
            verification = verify(expected, inputs, {output.name: actual})
            link.report("timing cuBLAS, caches cold")
            cold = session.time(run_once, settings, flush=True, what="cuBLAS")
            link.report("timing cuBLAS, caches warm")
            warm = session.time(run_once, settings, flush=False, what="cuBLAS")
    return summarize_time(cold, warm), verification
