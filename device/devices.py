"""The available devices, by the names that `--device` takes."""

from __future__ import annotations

import operator
import os
import re
import warnings
from functools import cache
from typing import TYPE_CHECKING, Protocol

from memlab.device.datasheets import loader
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import libcuda
from memlab.device.measurement import DeviceKind, Measurement, Progress
from memlab.device.properties import DeviceProperties
from memlab.errors import DeviceError, MemlabWarning, UsageError, suggest_nearest
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    from memlab.device.budget import Budget
    from memlab.device.gpu.timing import TimingSettings

DEFAULT_DATASHEET = "h200"
GPU_PREFIX = "cuda:"
DEVICE_VARIABLE = "MEMLAB_DEVICE"
"""The environment variable that names the default device."""


class Device(Protocol):
    """The interface of an emulated device and a real GPU."""

    key: str
    properties: DeviceProperties

    @property
    def kind(self) -> DeviceKind:
        """Whether the device is emulated or a real GPU."""
        ...

    def run(
        self,
        launch: Launch,
        seed: int,
        progress: Progress | None = None,
        *,
        keep_outputs: bool = False,
    ) -> Measurement:
        """Compile, execute, verify, count and time one launch; keep its outputs if asked to."""
        ...


def open_device(
    name: str | int | None = None,
    settings: TimingSettings | None = None,
    budget: Budget | None = None,
) -> Device:
    """Open a device.

    Args:
        name: The name of a datasheet, the path of a datasheet's file (`my-gpu.toml`), or a GPU as
            `0` (number or text) or `cuda:0`; None for `MEMLAB_DEVICE` from the environment, or the
            first GPU, or the emulated H200.
        settings: The settings for timing a launch on a GPU; an emulated device ignores them.
        budget: The limits of time and memory of emulating a launch; None for the defaults.

    Raises:
        UsageError: There is no such device; the message names the nearest.
        DeviceError: The device is a GPU, and no GPU can be used.
    """
    name = _device_text(name)
    from_environment = os.environ.get(DEVICE_VARIABLE)
    key = (name or from_environment or default_device()).strip()
    try:
        return _open(key, settings, budget)
    except UsageError as error:
        if name or not from_environment:
            raise
        raise UsageError(f"{DEVICE_VARIABLE}={from_environment}: {error}") from error


def _device_text(name: str | int | None) -> str | None:
    """Return a device as `--device` takes it; an integer is a GPU's index.

    Raises:
        UsageError: It is neither a string nor an integer.
    """
    if name is None or isinstance(name, str):
        return name
    try:
        return str(operator.index(name))
    except TypeError:
        raise UsageError(
            f"a device is a datasheet's name or file, or a GPU's index, got an object of type "
            f"{type(name).__name__}: use device='h200', device='my-gpu.toml' or device=0"
        ) from None


def _open(name: str, settings: TimingSettings | None, budget: Budget | None) -> Device:
    if loader.is_datasheet_path(name):
        return EmulatedDevice(name, loader.read_datasheet(name), budget)
    name = name.lower()
    if name.isdecimal() or name.startswith("cuda"):
        from memlab.device.gpu.device import CudaDevice

        index = gpu_index(name)
        _check_gpu(index)
        return CudaDevice(index, settings, budget)
    return EmulatedDevice(name, loader.load_datasheet(name), budget)


def _check_gpu(index: int) -> None:
    """Refuse a GPU that does not exist if a datasheet has its number, or if there is no driver.

    Raises:
        UsageError: The number is in a datasheet's name, and no GPU has this index.
        DeviceError: There is no driver, without which PyCUDA cannot even be built.
    """
    # A single digit is taken for a GPU's index.
    names = [name for name in loader.datasheet_names() if re.sub(r"\D", "", name) == str(index)]
    if names and index > 9 and index >= _count_usable_gpus()[0]:
        suggestion = " or ".join(map(repr, names))
        raise UsageError(f"there is no GPU {index} here: did you mean {suggestion}?")
    if not libcuda.is_installed():
        raise DeviceError(
            f"a GPU needs NVIDIA's driver ({libcuda.LIBRARY}), which is not installed here: "
            f"see 'memlab doctor', or {gpu_driver.USE_EMULATOR_STEP}"
        )


def usable_gpu_names() -> list[str]:
    """The names of the GPUs that can be used, as `--device` takes them.

    If there may be a GPU that cannot be used, the list is empty, and a warning gives the reason,
    once.
    """
    count, trouble = _count_usable_gpus()
    if trouble:
        _warn_gpu_unusable(trouble)
    return [f"{GPU_PREFIX}{index}" for index in range(count)]


def emulation_reason(name: str | None) -> str:
    """The reason why a default device is emulated though there may be a GPU.

    Args:
        name: As for `open_device`.

    Returns:
        The reason in a few words; empty if a device was named, if GPUs can be used, or if there is
        no driver or no GPU.
    """
    return "" if name or os.environ.get(DEVICE_VARIABLE) else _count_usable_gpus()[1]


def _count_usable_gpus() -> tuple[int, str]:
    """Count the GPUs that can be used; with the reason if there may be one that cannot."""
    if not libcuda.is_installed():
        return 0, ""
    try:
        if not libcuda.visible_gpus():
            return 0, ""
    except DeviceError as error:
        name = str(error)
        return 0, "" if name in libcuda.NO_GPU_ERRORS else f"the driver answers {name}"
    try:
        return gpu_driver.device_count(), ""
    except DeviceError as error:
        cause = str(error.__cause__ or error).strip().partition("\n")[0]
        return 0, f"PyCUDA cannot be used ({cause})"


@cache
def _warn_gpu_unusable(trouble: str) -> None:
    warnings.warn(
        f"a GPU may be here, but {trouble}: see 'memlab doctor', or choose an emulated device "
        f"with --device {DEFAULT_DATASHEET}",
        MemlabWarning,
        stacklevel=3,
    )


def default_device() -> str:
    """The name of the default device: the first GPU, or the H200's datasheet."""
    return next(iter(usable_gpu_names()), DEFAULT_DATASHEET)


def selected_devices(name: str | None = None) -> list[str | None]:
    """The names of the devices to describe: the named one, or every GPU, or the default."""
    if name or os.environ.get(DEVICE_VARIABLE):
        return [name]
    return [*usable_gpu_names()] or [None]


def is_gpu(key: str) -> bool:
    """Whether a device is a GPU, by the name of it that `Device.key` gives: `cuda:0`."""
    return key.startswith(GPU_PREFIX)


def gpu_index(name: str) -> int:
    """The index of a GPU from its name: `1` or `cuda:1`; `cuda` alone is the first.

    Raises:
        UsageError: The name is not a GPU's.
    """
    digits = name.removeprefix(GPU_PREFIX) if name != "cuda" else "0"
    if not digits.isdecimal():
        raise UsageError(
            f"no device {name!r}: a GPU is a number, as in --device 0 or --device cuda:0; "
            f"datasheets {suggest_nearest(name, loader.datasheet_names())}"
        )
    return int(digits)


def launch_limits(properties: DeviceProperties) -> Limits:
    """The limits of a device for a launch; unknown figures have the architecture's default."""
    names = (
        "max_threads_per_block",
        "max_block_dim",
        "max_grid_dim",
        "max_shared_memory_per_block_bytes",
        "max_shared_memory_per_block_optin_bytes",
        "total_memory_bytes",
        "compute_capability",
        "multiprocessor_count",
    )
    known = {name: getattr(properties, name) for name in names}
    return Limits(
        name=properties.name, **{name: value for name, value in known.items() if value is not None}
    )
