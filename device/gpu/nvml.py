"""NVIDIA's management library (NVML): the GPUs of the machine, their state and their clocks.

Nothing else opens NVML. It needs no CUDA context and sees every GPU, whatever
`CUDA_VISIBLE_DEVICES` says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
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
"""Names of nvmlComputeMode_t (nvml.h), by number."""

NVML_CLOCK_SM, NVML_CLOCK_MEMORY = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM of nvmlClockType_t (nvml.h)."""


@dataclass(frozen=True)
class Gpu:
    """A GPU and its state, visible to CUDA or not.

    Attributes:
        index: NVML's number, in the order of the PCI bus.
        name: The name that CUDA also gives; `unknown` if the GPU does not answer.
        uuid: `GPU-…`, as `CUDA_VISIBLE_DEVICES` takes it; empty if the GPU does not answer.
        compute_capability: Major and minor; None if the GPU does not answer.
        sm_clock_hz: The current clock of the multiprocessors, Hz.
        maximum_sm_clock_hz: The highest clock of the multiprocessors, Hz.
        application_sm_clock_hz: The clock set for applications, Hz; None if the GPU has none.
        memory_clock_hz: The current clock of the memory, Hz.
        power_limit_w: The power that the GPU may take, watts; None if it has no limit to tell.
        slowdowns: Why the clock is currently lowered, values of `SLOWDOWN_REASONS`.
        free_memory_bytes: Memory that no process holds, bytes.
        total_memory_bytes: All memory, bytes.
        compute_mode: One of `COMPUTE_MODES`.
        error: Why the GPU does not answer, for example because it was lost; empty if it does.
    """

    index: int
    name: str
    uuid: str
    compute_capability: tuple[int, int] | None
    sm_clock_hz: int | None = None
    maximum_sm_clock_hz: int | None = None
    application_sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    power_limit_w: float | None = None
    slowdowns: tuple[str, ...] = ()
    free_memory_bytes: int | None = None
    total_memory_bytes: int | None = None
    compute_mode: str | None = None
    error: str = ""


class Nvml:
    """NVML, open for as long as the context lasts.

    Attributes:
        library: The module `pynvml`.

    Raises:
        DeviceError: nvidia-ml-py is not installed, or NVML cannot be opened.
    """

    def __init__(self) -> None:
        try:
            import pynvml
        except ImportError:
            raise DeviceError("nvidia-ml-py is not installed") from None
        self.library: Any = pynvml  # pynvml carries no types

    def __enter__(self) -> Nvml:
        try:
            self.library.nvmlInit()
        except self.library.NVMLError as error:
            raise DeviceError(f"NVML: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self.library.nvmlShutdown()

    def ask(self, function: str, *arguments: object) -> Any:
        """Call a function of NVML; None if this GPU or this release does not support it."""
        try:
            return getattr(self.library, function)(*arguments)
        except (self.library.NVMLError, AttributeError):
            return None

    def clock_hz(self, handle: Any, clock_type: int, kind: str = "ClockInfo") -> int | None:
        """Read a clock of a GPU.

        Args:
            handle: NVML's handle of the GPU.
            clock_type: `NVML_CLOCK_SM` or `NVML_CLOCK_MEMORY`.
            kind: `ClockInfo` for the current clock, `MaxClockInfo` or `ApplicationsClock`.

        Returns:
            Hz; None if the GPU does not tell.
        """
        clock_mhz = self.ask(f"nvmlDeviceGet{kind}", handle, clock_type)
        return None if clock_mhz is None else clock_mhz * 1_000_000

    def slowdown_reasons(self, handle: Any) -> tuple[str, ...]:
        """List why the clock of a GPU is currently lowered, as in `SLOWDOWN_REASONS`."""
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the function's name until driver 535
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
        return tuple(text for bit, text in SLOWDOWN_REASONS.items() if reasons & bit)


def gpus() -> tuple[Gpu, ...]:
    """Query all GPUs; one that does not answer carries the reason in `Gpu.error`.

    Raises:
        DeviceError: nvidia-ml-py is not installed, or NVML refuses.
    """
    with Nvml() as nvml:
        try:
            count = nvml.library.nvmlDeviceGetCount()
        except nvml.library.NVMLError as error:
            raise DeviceError(f"NVML: {error}") from None
        return tuple(_gpu_or_error(nvml, index) for index in range(count))


def sm_clock_reader(pci_bus_id: str, stack: ExitStack) -> Callable[[], float | None]:
    """Return a function that reads the SM clock of a GPU, which takes some microseconds.

    Args:
        pci_bus_id: The GPU's position on the bus. NVML's own numbers ignore
            `CUDA_VISIBLE_DEVICES` and so differ from CUDA's.
        stack: Closes NVML.

    Returns:
        Gives Hz, or None where NVML is missing or the GPU does not tell.
    """
    try:
        nvml = stack.enter_context(Nvml())
    except DeviceError:
        return lambda: None
    handle = nvml.ask("nvmlDeviceGetHandleByPciBusId", pci_bus_id)

    def read_clock_hz() -> float | None:
        clock_hz = None if handle is None else nvml.clock_hz(handle, NVML_CLOCK_SM)
        return None if clock_hz is None else float(clock_hz)

    return read_clock_hz


def energy_reader(pci_bus_id: str, stack: ExitStack) -> Callable[[], float | None]:
    """Return a function that reads the energy that a GPU has taken since the driver was loaded.

    Args:
        pci_bus_id: The GPU's position on the bus, as for `sm_clock_reader`.
        stack: Closes NVML.

    Returns:
        Gives joules, or None where the GPU does not tell.

    Raises:
        DeviceError: NVML cannot be opened.
    """
    nvml = stack.enter_context(Nvml())
    handle = nvml.ask("nvmlDeviceGetHandleByPciBusId", pci_bus_id)

    def read_joules() -> float | None:
        if handle is None:
            return None
        millijoules = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        return None if millijoules is None else millijoules / 1000.0

    return read_joules


def _gpu_or_error(nvml: Nvml, index: int) -> Gpu:
    """Query one GPU; its record carries the reason if it does not answer."""
    try:
        return _query_gpu(nvml, index)
    except nvml.library.NVMLError as error:
        return Gpu(index, "unknown", uuid="", compute_capability=None, error=f"NVML: {error}")


def _query_gpu(nvml: Nvml, index: int) -> Gpu:
    """Query one GPU; a value that the driver refuses is None."""
    library = nvml.library
    handle = library.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    mode = nvml.ask("nvmlDeviceGetComputeMode", handle)
    limit_mw = nvml.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
    return Gpu(
        index=index,
        name=library.nvmlDeviceGetName(handle),
        uuid=library.nvmlDeviceGetUUID(handle),
        compute_capability=(major, minor),
        sm_clock_hz=nvml.clock_hz(handle, NVML_CLOCK_SM),
        maximum_sm_clock_hz=nvml.clock_hz(handle, NVML_CLOCK_SM, "MaxClockInfo"),
        application_sm_clock_hz=nvml.clock_hz(handle, NVML_CLOCK_SM, "ApplicationsClock"),
        memory_clock_hz=nvml.clock_hz(handle, NVML_CLOCK_MEMORY),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        slowdowns=nvml.slowdown_reasons(handle),
        free_memory_bytes=None if memory is None else memory.free,
        total_memory_bytes=None if memory is None else memory.total,
        compute_mode=None if mode is None else COMPUTE_MODES[mode],
    )
