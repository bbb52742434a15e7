"""How results of a GPU are named, and the line that says what they are of."""

from __future__ import annotations

from datetime import UTC, datetime

from memlab.device.doctor.probes import probe_machine


def prefix(device_name: str) -> str:
    """How files with a device's results begin: `h200` for `NVIDIA H200`."""
    return device_name.removeprefix("NVIDIA ").lower().replace(" ", "-")


def head(device_name: str) -> str:
    """The device, its driver, CUDA's version and today's date, in words."""
    facts = probe_machine()
    cuda = ".".join(map(str, facts.driver_cuda or ("unknown",)))
    return (
        f"{device_name}, driver {facts.driver or 'unknown'}, CUDA {cuda}, "
        f"{datetime.now(UTC):%Y-%m-%d}"
    )
