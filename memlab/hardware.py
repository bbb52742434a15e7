"""Work on a GPU beyond the run itself: Nsight Compute, cuBLAS and Compute Sanitizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memlab.device.checking.findings import TOOLS
from memlab.device.devices import emulation_reason, gpu_index
from memlab.device.nvidia_tools import ncu, sanitizer
from memlab.errors import DeviceError, UsageError
from memlab.kernels.cublas import CublasError

if TYPE_CHECKING:
    from memlab.device.checking.findings import Tool
    from memlab.device.measurement import Time
    from memlab.device.nvidia_tools.sanitizer import SanitizerReport
    from memlab.kernels.launch import Launch
    from memlab.launching import PreparedLaunch


def hardware_counters(prepared: PreparedLaunch) -> dict[str, float]:
    """Count a launch in hardware, with Nsight Compute. The launch must be known to end.

    Returns:
        Whole-grid totals by the names of `Counters`, and `duration_s`, seconds.

    Raises:
        ProfilerError: There are no hardware counters; the message says why and what to do.
    """
    _require_gpu(prepared, "Nsight Compute counts", ncu.ProfilerError)
    if prepared.progress is not None:
        prepared.progress("counting with Nsight Compute", None)
    metrics = ncu.profile(
        prepared.launch,
        index=gpu_index(prepared.device.key),
        seed=prepared.seed,
        timeout_s=prepared.settings.timeout_s,
    )
    return ncu.counters_from_metrics(metrics)


def require_cublas_product(launch: Launch) -> None:
    """Refuse a kernel whose work cuBLAS cannot do.

    Raises:
        UsageError: It is not a product of row-major matrices.
    """
    if launch.library != "cublas":
        raise UsageError(
            f"cuBLAS multiplies row-major matrices, which {launch.kernel} does not: "
            "leave out --cublas"
        )


def cublas_time(prepared: PreparedLaunch) -> Time:
    """Time cuBLAS on the matrices that a launch multiplies: the baseline of the kernel.

    Raises:
        CublasError: There is no cuBLAS; the message says why and what to do.
        DeviceError: The GPU cannot be used.
    """
    _require_gpu(prepared, "it runs", CublasError)
    from memlab.device.gpu.library_baseline import measure_baseline

    index = gpu_index(prepared.device.key)
    baseline = measure_baseline(
        index, prepared.launch, prepared.seed, prepared.settings, prepared.progress
    )
    return baseline.time


def launch_energy_j(prepared: PreparedLaunch) -> float:
    """Measure the energy of a launch, joules. The launch must be known to end.

    Raises:
        DeviceError: There is no GPU, or it does not tell its energy.
    """
    _require_gpu(prepared, "NVML reads energy", DeviceError)
    from memlab.device.gpu.energy import measure_energy

    return measure_energy(
        gpu_index(prepared.device.key),
        prepared.launch,
        prepared.compile(),
        prepared.seed,
        prepared.settings.timeout_s,
        prepared.progress,
    )


def sanitizer_report(
    prepared: PreparedLaunch, tools: Sequence[Tool] = TOOLS, timeout_s: float | None = None
) -> SanitizerReport:
    """Check a launch with NVIDIA's Compute Sanitizer, on a GPU.

    Args:
        prepared: The launch.
        tools: The tools to run.
        timeout_s: The longest time of one tool, seconds; None allows `sanitizer.TIMEOUT_S`.

    Raises:
        SanitizerError: It cannot run; the message says why and what to do.
    """
    _require_gpu(prepared, "it runs", sanitizer.SanitizerError)
    return sanitizer.run_sanitizer(
        prepared.launch,
        index=gpu_index(prepared.device.key),
        seed=prepared.seed,
        tools=tools,
        timeout_s=sanitizer.TIMEOUT_S if timeout_s is None else timeout_s,
        progress=prepared.progress,
    )


def _require_gpu(prepared: PreparedLaunch, work: str, error: type[DeviceError]) -> None:
    device = prepared.device
    if device.kind == "cuda":
        return
    requested = prepared.requested
    if reason := emulation_reason(None if requested is None else str(requested)):
        raise error(f"{work} on a GPU, and {reason}: see 'memlab doctor'")
    raise error(f"{work} on a GPU, and {device.key} is emulated: choose a GPU with --device 0")
