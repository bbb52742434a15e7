"""The devices there are, by the names that `--device` takes."""

from __future__ import annotations

import os
from typing import Protocol

from memlab.device import datasheet
from memlab.device.emulated import EmulatedDevice, Progress
from memlab.device.measurement import DeviceKind, Measurement
from memlab.device.properties import DeviceProperties
from memlab.errors import DeviceError
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

DEFAULT_DATASHEET = "h200"


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


def open_device(name: str | None = None) -> Device:
    """Open a device.

    Args:
        name: A datasheet's name, or a GPU as `0` or `cuda:0`; None takes `MEMLAB_DEVICE` from
            the environment, else the emulated H200.

    Raises:
        UsageError: No such device; gives the nearest names.
        DeviceError: A GPU was asked for, and there is no way to use one here.
    """
    name = (name or os.environ.get("MEMLAB_DEVICE") or DEFAULT_DATASHEET).lower()
    if name.isdecimal() or name.startswith("cuda"):
        raise DeviceError(
            f"device {name} is a GPU, and this memlab runs on emulated devices only: "
            f"go on without a GPU with --device {DEFAULT_DATASHEET}"
        )
    return EmulatedDevice(name, datasheet.load(name))


def limits(properties: DeviceProperties) -> Limits:
    """What a device allows a launch; figures it does not know keep the architecture's default."""
    names = (
        "max_threads_per_block",
        "max_block_dim",
        "max_grid_dim",
        "max_shared_memory_per_block_bytes",
        "max_shared_memory_per_block_optin_bytes",
        "total_memory_bytes",
    )
    known = {name: getattr(properties, name) for name in names}
    return Limits(
        name=properties.name, **{name: value for name, value in known.items() if value is not None}
    )
