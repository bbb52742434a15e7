"""All GPUs and their state, as the driver's management library (NVML) sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memlab.errors import DeviceError

SLOWDOWN_REASONS = {
    0x04: "power limit",
    0x08: "hardware slowdown",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons that lower a busy GPU's clock (nvml.h)."""

COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")
"""By number, as nvmlComputeMode_t (nvml.h)."""


@dataclass(frozen=True)
class Gpu:
    """A GPU, visible to CUDA or not.

    Attributes:
        index: NVML's number, in the order of the PCI bus.
        name: As CUDA gives it; `unknown` of a GPU that does not answer.
        uuid: As `CUDA_VISIBLE_DEVICES` takes it, `GPU-…`; empty of one that does not answer.
        compute_capability: Major and minor; None of a GPU that does not answer.
        sm_clock_hz: The multiprocessors' clock now.
        maximum_sm_clock_hz: The most it can be.
        application_sm_clock_hz: What was set for applications; None where there is no such thing.
        memory_clock_hz: The memory's clock now.
        slowdowns: What holds the clock down now, in words.
        free_memory_bytes: What no process holds.
        total_memory_bytes: All there is.
        compute_mode: One of `COMPUTE_MODES`.
        error: Why a GPU does not answer, as one that was lost; empty where it does.
    """

    index: int
    name: str
    uuid: str
    compute_capability: tuple[int, int] | None
    sm_clock_hz: int | None = None
    maximum_sm_clock_hz: int | None = None
    application_sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    slowdowns: tuple[str, ...] = ()
    free_memory_bytes: int | None = None
    total_memory_bytes: int | None = None
    compute_mode: str | None = None
    error: str = ""


def gpus() -> tuple[Gpu, ...]:
    """Ask for all of them; one that does not answer says why, and hides no other.

    Raises:
        DeviceError: NVML is not there, or refuses.
    """
    try:
        import pynvml
    except ImportError:
        raise DeviceError("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        try:
            return tuple(
                _gpu_or_error(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())
            )
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DeviceError(f"NVML: {error}") from None


def _gpu_or_error(nvml: Any, index: int) -> Gpu:
    """One GPU, or that it does not answer."""
    try:
        return _query_gpu(nvml, index)
    except nvml.NVMLError as error:
        return Gpu(index, "unknown", uuid="", compute_capability=None, error=f"NVML: {error}")


def _query_gpu(nvml: Any, index: int) -> Gpu:
    """One GPU; a value that the driver refuses is None."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str, *arguments: object) -> Any:
        try:
            return getattr(nvml, name)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):  # not on this GPU, or not in this release
            return None

    def clock_hz(name: str, kind: int) -> int | None:
        clock_mhz = ask(name, kind)
        return None if clock_mhz is None else clock_mhz * 1_000_000

    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name until driver 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    memory, mode = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetComputeMode")
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(handle),
        uuid=nvml.nvmlDeviceGetUUID(handle),
        compute_capability=(major, minor),
        sm_clock_hz=clock_hz("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        maximum_sm_clock_hz=clock_hz("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        application_sm_clock_hz=clock_hz("nvmlDeviceGetApplicationsClock", nvml.NVML_CLOCK_SM),
        memory_clock_hz=clock_hz("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        slowdowns=tuple(text for bit, text in SLOWDOWN_REASONS.items() if reasons & bit),
        free_memory_bytes=None if memory is None else memory.free,
        total_memory_bytes=None if memory is None else memory.total,
        compute_mode=None if mode is None else COMPUTE_MODES[mode],
    )
