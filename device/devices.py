"""The devices there are, by the names that `--device` takes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from memlab.device import cuda_driver, datasheet
from memlab.device.emulated import EmulatedDevice
from memlab.device.measurement import DeviceKind, Measurement, Progress
from memlab.device.properties import DeviceProperties
from memlab.errors import DeviceError, UsageError, nearest
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    from memlab.device.budget import Budget
    from memlab.device.timing import Settings

DEFAULT_DATASHEET = "h200"
GPU_PREFIX = "cuda:"
VARIABLE = "MEMLAB_DEVICE"
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
    name: str | None = None, settings: Settings | None = None, budget: Budget | None = None
) -> Device:
    """Open a device.

    Args:
        name: A datasheet's name, or a GPU as `0` or `cuda:0`; None takes `MEMLAB_DEVICE` from
            the environment, else the first GPU, else the emulated H200.
        settings: How a GPU times a launch; an emulated device has nothing to time.
        budget: The time and memory that emulating a launch may take; None takes the defaults.

    Raises:
        UsageError: No such device; gives the nearest names.
        DeviceError: A GPU was asked for, and there is no way to use one here.
    """
    wished = os.environ.get(VARIABLE)
    key = (name or wished or default_device()).strip().lower()
    try:
        return _open(key, settings, budget)
    except UsageError as error:
        if name or not wished:
            raise
        raise UsageError(f"{VARIABLE}={wished}: {error}") from error


def _open(name: str, settings: Settings | None, budget: Budget | None) -> Device:
    if name.isdecimal() or name.startswith("cuda"):
        from memlab.device.cuda_device import CudaDevice

        return CudaDevice(gpu_index(name), settings, budget)
    return EmulatedDevice(name, datasheet.load(name), budget)


def gpu_names() -> list[str]:
    """The GPUs that can be used here, as `--device` takes them; none where anything is amiss."""
    try:
        count = cuda_driver.device_count() if cuda_driver.in_sight() else 0
    except DeviceError:
        count = 0
    return [f"{GPU_PREFIX}{index}" for index in range(count)]


def default_device() -> str:
    """Name the device that is used where none is asked for: the first GPU, else the H200."""
    return next(iter(gpu_names()), DEFAULT_DATASHEET)


def gpu_index(name: str) -> int:
    """Tell a GPU's number from its name: `1` or `cuda:1`; `cuda` alone is the first.

    Raises:
        UsageError: It is no such name.
    """
    digits = name.removeprefix(GPU_PREFIX) if name != "cuda" else "0"
    if not digits.isdecimal():
        raise UsageError(
            f"no device {name!r}: a GPU is a number, as in --device 0 or --device cuda:0; "
            f"datasheets {nearest(name, datasheet.names())}"
        )
    return int(digits)


def limits(properties: DeviceProperties) -> Limits:
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
