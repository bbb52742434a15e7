"""File names and the first line of a GPU's results."""

from __future__ import annotations

from datetime import UTC, datetime

from memlab.device.doctor.probes import probe_machine


def prefix(device_name: str) -> str:
    """The prefix of the files with a device's results: `h200` for `NVIDIA H200`."""
    return device_name.removeprefix("NVIDIA ").lower().replace(" ", "-")


def head(device_name: str) -> str:
    """The first line of results: the device, its driver, CUDA's version and today's date."""
    machine = probe_machine()
    cuda = ".".join(map(str, machine.driver_cuda or ("unknown",)))
    return (
        f"{device_name}, driver {machine.driver or 'unknown'}, CUDA {cuda}, "
        f"{datetime.now(UTC):%Y-%m-%d}"
    )
