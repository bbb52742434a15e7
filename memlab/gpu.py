"""What needs a GPU besides a run: hardware counters, cuBLAS, Compute Sanitizer, measured peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device.checking.findings import TOOLS
from memlab.device.devices import Device, emulation_reason, gpu_index, open_device
from memlab.device.nvidia_tools import ncu, sanitizer
from memlab.errors import DeviceError, UsageError
from memlab.kernels.cublas import CublasError
from memlab.launching import current_time, prepare_launch, timing_settings
from memlab.roofline.store.store import Store

if TYPE_CHECKING:
    from memlab.device.checking.findings import Tool
    from memlab.device.gpu.library_baseline import CublasBaseline
    from memlab.device.gpu.peaks.records import Peaks
    from memlab.device.measurement import Progress
    from memlab.device.nvidia_tools.sanitizer import SanitizerReport
    from memlab.kernels.user.kernel import UserKernel


def hardware_counters(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    timeout_s: float | None = None,
) -> dict[str, float]:
    """Count a launch in hardware, with Nsight Compute; it must be known to end.

    Args:
        kernel: As for `lab.run`.
        parameters: As for `lab.run`.
        device: See `lab.device_properties`; it must be a GPU.
        seed: Of the random inputs.
        progress: As for `lab.run`.
        timeout_s: As for `lab.run`; `ncu.limit_s` says what counting may take.

    Returns:
        Whole-grid totals by the names of `Counters`, and `duration_s`.

    Raises:
        UsageError: An unknown kernel or device, or a parameter out of range.
        ProfilerError: There are no hardware counters here; says why and what to do.
    """
    opened = open_device(device)
    _require_gpu(opened, device, "Nsight Compute counts", ncu.ProfilerError)
    launch = prepare_launch(kernel, parameters, opened.properties)
    if progress is not None:
        progress("counting with Nsight Compute", None)
    index = gpu_index(opened.key)
    return ncu.counters_from_metrics(
        ncu.profile(launch, index=index, seed=seed, timeout_s=timeout_s)
    )


def cublas(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
) -> CublasBaseline:
    """Time cuBLAS on the matrices that a kernel multiplies: the bar for the ladder.

    Args:
        kernel: As for `lab.run`.
        parameters: As for `lab.run`.
        device: See `lab.device_properties`; it must be a GPU.
        seed: Of the random inputs.
        progress: As for `lab.run`.
        samples: As for `lab.run`.
        timeout_s: As for `lab.run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or a kernel that is
            no product of row-major matrices.
        LibraryError: There is no cuBLAS here; says why and what to do.
        DeviceError: A GPU was asked for that is not available.
    """
    opened = open_device(device)
    launch = prepare_launch(kernel, parameters, opened.properties)
    if launch.library != "cublas":
        raise UsageError(
            f"cuBLAS multiplies row-major matrices, which {launch.kernel} does not: "
            "leave out --cublas"
        )
    _require_gpu(opened, device, "it runs", CublasError)
    from memlab.device.gpu.library_baseline import measure_baseline

    settings = timing_settings(samples, timeout_s)
    return measure_baseline(gpu_index(opened.key), launch, seed, settings, progress)


def compute_sanitizer(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    tools: Sequence[Tool] = TOOLS,
    progress: Progress | None = None,
    timeout_s: float | None = None,
) -> SanitizerReport:
    """Check a launch with NVIDIA's Compute Sanitizer, on a GPU.

    Args:
        kernel: As for `lab.run`.
        parameters: As for `lab.run`.
        device: See `lab.device_properties`; it must be a GPU.
        seed: Of the random inputs.
        tools: What to check for.
        progress: As for `lab.run`.
        timeout_s: How long one tool may take; None allows five minutes.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range.
        SanitizerError: It cannot run here; says why and what to do.
    """
    opened = open_device(device)
    _require_gpu(opened, device, "it runs", sanitizer.SanitizerError)
    launch = prepare_launch(kernel, parameters, opened.properties)
    return sanitizer.run_sanitizer(
        launch,
        index=gpu_index(opened.key),
        seed=seed,
        tools=tools,
        timeout_s=sanitizer.TIMEOUT_S if timeout_s is None else timeout_s,
        progress=progress,
    )


def peaks(
    *,
    device: str | None = None,
    store: Path | None = None,
    keep: bool = True,
    progress: Progress | None = None,
) -> Peaks:
    """Measure a GPU's ceilings and latencies; later rooflines on it draw them.

    Args:
        device: See `lab.device_properties`; it must be a GPU.
        store: The file to keep them in; None takes the user's.
        keep: Whether to keep them at all.
        progress: As for `lab.run`.

    Raises:
        UsageError: An unknown device, or a store that cannot be written.
        DeviceError: The device is emulated, or cannot be used.
        MemlabError: A micro-benchmark gave a wrong result.
        Incomplete: The peaks could not be stored after all; carries them.
    """
    from memlab.device.gpu.peaks.measure import measure_peaks

    if trouble := emulation_reason(device):
        raise DeviceError(f"peaks are measured on a GPU, but {trouble}: see 'memlab doctor'")
    opened = open_device(device)
    if opened.kind != "cuda":
        raise DeviceError(
            f"peaks are measured on a GPU, and {opened.key} is emulated: choose a GPU with "
            f"--device 0, or see its datasheet with 'memlab devicequery --device {opened.key}'"
        )
    kept = Store(store) if keep else None
    if kept is not None:
        kept.check()
    found = replace(
        measure_peaks(gpu_index(opened.key), opened.properties, progress),
        created_at=current_time().isoformat(timespec="seconds"),
        memlab_version=version("memlab"),
    )
    if kept is not None:
        kept.add_peaks(found)
    return found


def _require_gpu(opened: Device, named: str | None, what: str, error: type[DeviceError]) -> None:
    if opened.kind == "cuda":
        return
    if trouble := emulation_reason(named):
        raise error(f"{what} on a GPU, and {trouble}: see 'memlab doctor'")
    raise error(f"{what} on a GPU, and {opened.key} is emulated: choose a GPU with --device 0")
