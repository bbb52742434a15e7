"""File names and the first line of a GPU's results."""

from __future__ import annotations

from datetime import UTC, datetime

from memlab.device.compiler import nvrtc
from memlab.device.doctor.probes import probe_machine
from memlab.device.gpu import nvml
from memlab.device.properties import DeviceProperties
from memlab.errors import DeviceError


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


def conditions(properties: DeviceProperties) -> str:
    """What the times of products depend on beside the GPU: the compiler, clocks and power limit."""
    compiler = nvrtc.package_version() or ".".join(map(str, nvrtc.compiler_version()))
    found = [f"NVRTC {compiler}"]
    try:
        gpu = next((each for each in nvml.gpus() if each.uuid == properties.uuid), None)
    except DeviceError as error:
        return f"{found[0]}; clocks and power limit unknown ({error})"
    if gpu is None:
        return f"{found[0]}; clocks and power limit unknown (NVML does not list this GPU)"
    clocks = {
        "SM clock at most": gpu.maximum_sm_clock_hz,
        "set for applications": gpu.application_sm_clock_hz,
        "memory clock": gpu.memory_clock_hz,
    }
    found += [f"{name} {hz / 1e6:.0f} MHz" for name, hz in clocks.items() if hz is not None]
    if gpu.power_limit_w is not None:
        found.append(f"power limit {gpu.power_limit_w:.0f} W")
    return "; ".join(found)
