"""The devices there are, by the names that `--device` takes."""

from __future__ import annotations

import operator
import os
import re
import warnings
from functools import cache
from typing import TYPE_CHECKING, Protocol

from memlab.device.datasheets import loader
from memlab.device.emulation.device import EmulatedDevice
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
"""In the environment: the device that is meant where none is named."""


class Device(Protocol):
    """What every kind of device can do."""

    key: str
    properties: DeviceProperties

    @property
    def kind(self) -> DeviceKind:
        """Whether it is emulated or a real GPU."""
        ...

    def run(self, launch: Launch, seed: int, progress: Progress | None = None) -> Measurement:
        """Compile, execute, verify, count and time one launch."""
        ...


def open_device(
    name: str | int | None = None,
    settings: TimingSettings | None = None,
    budget: Budget | None = None,
) -> Device:
    """Open a device.

    Args:
        name: A datasheet's name, or a GPU as `0` (the number or the text) or `cuda:0`; None takes
            `MEMLAB_DEVICE` from the environment, else the first GPU, else the emulated H200.
        settings: How a GPU times a launch; an emulated device has nothing to time.
        budget: The time and memory that emulating a launch may take; None takes the defaults.

    Raises:
        UsageError: No such device; gives the nearest names.
        DeviceError: A GPU was asked for, and there is no way to use one here.
    """
    name = _device_text(name)
    wished = os.environ.get(DEVICE_VARIABLE)
    key = (name or wished or default_device()).strip().lower()
    try:
        return _open(key, settings, budget)
    except UsageError as error:
        if name or not wished:
            raise
        raise UsageError(f"{DEVICE_VARIABLE}={wished}: {error}") from error


def _device_text(name: str | int | None) -> str | None:
    """A device as `--device` takes it: an integer is a GPU's index.

    Raises:
        UsageError: It is neither a text nor an integer.
    """
    if name is None or isinstance(name, str):
        return name
    try:
        return str(operator.index(name))
    except TypeError:
        raise UsageError(
            f"a device is a datasheet's name or a GPU's index, got an object of type "
            f"{type(name).__name__}: use device='h200' or device=0"
        ) from None


def _open(name: str, settings: TimingSettings | None, budget: Budget | None) -> Device:
    if name.isdecimal() or name.startswith("cuda"):
        from memlab.device.gpu.device import CudaDevice

        index = gpu_index(name)
        _check_gpu(index)
        return CudaDevice(index, settings, budget)
    return EmulatedDevice(name, loader.load_datasheet(name), budget)


def _check_gpu(index: int) -> None:
    """Refuse a GPU that cannot be meant, or is of no use before something else is there.

    Raises:
        UsageError: It is the number of a datasheet's name, and no GPU has such a number.
        DeviceError: There is no driver, without which PyCUDA cannot even be built.
    """
    # A single digit may well be a GPU's.
    like = [each for each in loader.datasheet_names() if re.sub(r"\D", "", each) == str(index)]
    if like and index > 9 and index >= _count_usable_gpus()[0]:
        meant = " or ".join(map(repr, like))
        raise UsageError(f"there is no GPU {index} here: did you mean {meant}?")
    if not libcuda.is_installed():
        raise DeviceError(
            f"a GPU needs NVIDIA's driver ({libcuda.LIBRARY}), which is not installed here: "
            f"see 'memlab doctor', or {gpu_driver.USE_EMULATOR_STEP}"
        )


def usable_gpu_names() -> list[str]:
    """The GPUs that can be used here, as `--device` takes them.

    Where one may be here and cannot be used, there is none, and a warning says why, once.
    """
    count, trouble = _count_usable_gpus()
    if trouble:
        _warn_gpu_unusable(trouble)
    return [f"{GPU_PREFIX}{index}" for index in range(count)]


def emulation_reason(name: str | None) -> str:
    """Say why no GPU is taken for a device that nobody named, though one may be here.

    Args:
        name: As for `open_device`.

    Returns:
        The reason in a few words; empty where a device was named, where GPUs can be used and
        where there is no driver or no GPU.
    """
    return "" if name or os.environ.get(DEVICE_VARIABLE) else _count_usable_gpus()[1]


def _count_usable_gpus() -> tuple[int, str]:
    """Count the GPUs that can be used; where one may be here and cannot, say why."""
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
    """Name the device that is used where none is asked for: the first GPU, else the H200."""
    return next(iter(usable_gpu_names()), DEFAULT_DATASHEET)


def selected_devices(name: str | None = None) -> list[str | None]:
    """Name the devices to describe: the one that is named, else every GPU, else the default."""
    if name or os.environ.get(DEVICE_VARIABLE):
        return [name]
    return [*usable_gpu_names()] or [None]


def gpu_index(name: str) -> int:
    """Tell a GPU's number from its name: `1` or `cuda:1`; `cuda` alone is the first.

    Raises:
        UsageError: It is no such name.
    """
    digits = name.removeprefix(GPU_PREFIX) if name != "cuda" else "0"
    if not digits.isdecimal():
        raise UsageError(
            f"no device {name!r}: a GPU is a number, as in --device 0 or --device cuda:0; "
            f"datasheets {suggest_nearest(name, loader.datasheet_names())}"
        )
    return int(digits)


def launch_limits(properties: DeviceProperties) -> Limits:
    """What a device allows a launch; figures it does not know keep the architecture's default."""
    names = (
        "max_threads_per_block",
        "max_block_dim",
        "max_grid_dim",
        "max_shared_memory_per_block_bytes",
        "max_shared_memory_per_block_optin_bytes",
        "total_memory_bytes",
        "compute_capability",
    )
    known = {name: getattr(properties, name) for name in names}
    return Limits(
        name=properties.name, **{name: value for name, value in known.items() if value is not None}
    )
