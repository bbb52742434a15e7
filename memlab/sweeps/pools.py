"""Where the points of a sweep run; here one after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memlab.device.devices import Device, open_device
from memlab.errors import DeviceError
from memlab.launching import emulation_budget, timing_settings
from memlab.sweeps.points import PointJob, PointOutcome, RunOptions, device_facts, run_point


def no_energy_error(device: str) -> DeviceError:
    """The error where energy is asked of an emulated device."""
    return DeviceError(
        f"energy is read from a GPU (by NVML), and {device} is emulated: choose a GPU with "
        "--device 0, or --objective time"
    )


class Pool(Protocol):
    """Processes that run points."""

    def device_facts(self, device: str | None) -> str:
        """What tells a device from others, for the keys of points."""
        ...

    def require_energy(self, devices: Sequence[str]) -> None:
        """Refuse to measure energy on devices that cannot tell it.

        Raises:
            DeviceError: One of them is emulated.
        """
        ...

    def has_room(self) -> bool:
        """Whether another point can be submitted now."""
        ...

    def submit(self, job: PointJob) -> None:
        """Begin a point."""
        ...

    def wait(self) -> Sequence[tuple[PointJob, PointOutcome]]:
        """Wait until some points are finished, and return them."""
        ...

    def close(self) -> None:
        """End all processes; points that still run are given up."""
        ...


class OwnProcess:
    """This process: one point after the other, on devices that are opened once."""

    def __init__(self, options: RunOptions) -> None:
        self._settings = timing_settings(options.samples, options.timeout_s)
        self._budget = emulation_budget(options.timeout_s, options.memory_bytes)
        self._devices: dict[str | None, Device] = {}
        self._waiting: list[PointJob] = []

    def open(self, device: str | None) -> Device:
        """Open a device, once.

        Raises:
            UsageError, DeviceError: As `open_device`.
        """
        if device not in self._devices:
            self._devices[device] = open_device(device, self._settings, self._budget)
        return self._devices[device]

    def device_facts(self, device: str | None) -> str:
        """What tells a device from others, for the keys of points."""
        return device_facts(self.open(device))

    def require_energy(self, devices: Sequence[str]) -> None:
        """Refuse to measure energy on emulated devices.

        Raises:
            DeviceError: One of them is emulated.
        """
        for device in devices:
            opened = self.open(device or None)
            if opened.kind == "emulated":
                raise no_energy_error(opened.key)

    def has_room(self) -> bool:
        """Whether no point is waiting."""
        return not self._waiting

    def submit(self, job: PointJob) -> None:
        """Keep a point until `wait` runs it."""
        self._waiting.append(job)

    def wait(self) -> Sequence[tuple[PointJob, PointOutcome]]:
        """Run the point."""
        job = self._waiting.pop()
        device = None if job.device is None else str(job.device)
        return [(job, run_point(job, self.open(device)))]

    def close(self) -> None:
        """Leave the process as it is."""
