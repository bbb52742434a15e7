"""Probes of the machine: driver, compiler and GPUs, without changes and without a CUDA context.

Each part is read by one probe; if it fails, the error is recorded instead. Tests replace the probes
to describe other machines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TypeAlias, TypeVar

from memlab.device.gpu.kernel_driver import counters_restricted, driver_release
from memlab.device.gpu.libcuda import driver_cuda, visible_gpus
from memlab.device.gpu.nvml import Gpu, gpus
from memlab.device.nvidia_tools import ncu as nsight_compute
from memlab.errors import DeviceError

ProbeResult = TypeVar("ProbeResult")
Version: TypeAlias = tuple[int, int]
"""Major and minor version."""

COUNTER_CAPABILITY_BITS = (1 << 21) | (1 << 38)
"""CAP_SYS_ADMIN and CAP_PERFMON, either of which allows to read counters (linux/capability.h; the
latter since driver 565, https://developer.nvidia.com/ERR_NVGPUCTRPERM)."""

PROBE_TIMEOUT_S = 30.0
"""The limit for importing PyCUDA in a separate process, which loads the driver, seconds."""


@dataclass(frozen=True)
class MachineState:
    """The state of the machine; missing parts are None or empty.

    Attributes:
        driver: The driver's version.
        driver_cuda: The newest version of CUDA that the driver supports.
        visible_gpus: The number of GPUs that CUDA shows this process.
        visible_devices: `CUDA_VISIBLE_DEVICES`.
        gpus: All GPUs.
        nvml: The version of the package nvidia-ml-py.
        pycuda: The version of PyCUDA.
        pycuda_cuda: The version of CUDA that PyCUDA was built for.
        nvrtc: The version of NVRTC.
        nvrtc_architectures: The compute capabilities for which NVRTC compiles.
        nvcc: The versions of nvcc and of the host's compiler that it uses.
        cuobjdump: The path of NVIDIA's reader of fat binaries.
        nvdisasm: The path of NVIDIA's disassembler.
        ncu: The path of Nsight Compute's command-line program.
        counters_restricted: Whether the driver lets only administrators read counters.
        privileged: Whether this process may read counters as an administrator.
        emulator: Whether a kernel ran on the emulator with the right result.
        errors: The reasons of missing parts, in one line, by the name of the probe.
    """

    driver: str | None = None
    driver_cuda: Version | None = None
    visible_gpus: int | None = None
    visible_devices: str | None = None
    gpus: tuple[Gpu, ...] = ()
    nvml: str | None = None
    pycuda: str | None = None
    pycuda_cuda: Version | None = None
    nvrtc: Version | None = None
    nvrtc_architectures: tuple[Version, ...] = ()
    nvcc: str | None = None
    cuobjdump: str | None = None
    nvdisasm: str | None = None
    ncu: str | None = None
    counters_restricted: bool | None = None
    privileged: bool = False
    emulator: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)


def nvml() -> str:
    """The version of nvidia-ml-py.

    Raises:
        DeviceError: It is not installed.
    """
    return _package_version("nvidia-ml-py")


def pycuda() -> tuple[str, Version]:
    """The version of PyCUDA, and that of the CUDA that it was built for.

    It is imported in a separate process, so that a crash of the import ends only that process.

    Raises:
        DeviceError: It is not installed or cannot be imported.
    """
    version = _package_version("pycuda")
    script = "import json, pycuda.driver as driver; print(json.dumps(driver.get_version()))"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        major, minor, *_ = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"importing it took over {PROBE_TIMEOUT_S:g} s") from None
    except ValueError:
        last_line = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DeviceError(f"version {version} cannot be imported ({last_line})") from None
    return version, (int(major), int(minor))


def nvrtc() -> tuple[Version, tuple[Version, ...]]:
    """NVRTC's version, and the compute capabilities that it compiles for.

    Raises:
        DeviceError: It is not installed.
    """
    from memlab.device.compiler.nvrtc import compiler_version, supported_architectures

    return compiler_version(), supported_architectures()


def nvcc() -> str | None:
    """The versions of nvcc and of the host's compiler that it uses; None if it is not installed.

    Raises:
        DeviceError: It does not work.
    """
    from memlab.device.compiler.nvcc import find_toolchain

    toolchain = find_toolchain()
    return None if toolchain is None else toolchain.version


def cuobjdump() -> Path | None:
    """The path of cuobjdump; None if it is not installed."""
    from memlab.device.compiler.cuda_tools import find_cuda_tool

    return find_cuda_tool("cuobjdump")


def nvdisasm() -> Path | None:
    """The path of nvdisasm; None if it is not installed."""
    from memlab.device.compiler.cuda_tools import find_cuda_tool

    return find_cuda_tool("nvdisasm")


def privileged() -> bool:
    """Whether this process has one of the capabilities in `COUNTER_CAPABILITY_BITS`."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", text, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) & COUNTER_CAPABILITY_BITS)


def emulator() -> bool:
    """Run a small matrix product on the emulator and verify its result.

    Raises:
        MemlabError: It could not be compiled or run.
    """
    from memlab.device.datasheets import loader
    from memlab.device.emulation.emulated_device import EmulatedDevice
    from memlab.kernels.catalog import find_kernel
    from memlab.kernels.kernel import Limits

    launch = find_kernel("tiled").prepare({"width": 8, "tile": 4}, Limits("the emulator"))
    measurement = EmulatedDevice("h200", loader.load_datasheet("h200")).run(launch, seed=0)
    return measurement.verification.status == "passed"


@dataclass(frozen=True)
class Probes:
    """The functions that read the parts of the machine; an exception becomes the part's error."""

    driver: Callable[[], str] = driver_release
    driver_cuda: Callable[[], Version] = driver_cuda
    visible_gpus: Callable[[], int] = visible_gpus
    nvml: Callable[[], str] = nvml
    gpus: Callable[[], tuple[Gpu, ...]] = gpus
    pycuda: Callable[[], tuple[str, Version]] = pycuda
    nvrtc: Callable[[], tuple[Version, tuple[Version, ...]]] = nvrtc
    nvcc: Callable[[], str | None] = nvcc
    cuobjdump: Callable[[], Path | None] = cuobjdump
    nvdisasm: Callable[[], Path | None] = nvdisasm
    ncu: Callable[[], Path | None] = nsight_compute.find_ncu
    counters_restricted: Callable[[], bool | None] = counters_restricted
    privileged: Callable[[], bool] = privileged
    emulator: Callable[[], bool] = emulator


def probe_machine(probes: Probes | None = None) -> MachineState:
    """Read the state of the machine.

    Args:
        probes: The functions that read its parts; None for the real ones.
    """
    probes = probes or Probes()
    errors: dict[str, str] = {}

    def read(name: str, otherwise: ProbeResult) -> ProbeResult:
        try:
            result: ProbeResult = getattr(probes, name)()
        except Exception as error:  # a broken part must not hide the others
            errors[name] = " ".join(str(error).split()) or type(error).__name__
            return otherwise
        return result

    pycuda_version, pycuda_cuda = read("pycuda", (None, None))
    nvrtc_version, architectures = read("nvrtc", (None, ()))
    tools = {name: read(name, None) for name in ("ncu", "cuobjdump", "nvdisasm")}
    return MachineState(
        driver=read("driver", None),
        driver_cuda=read("driver_cuda", None),
        visible_gpus=read("visible_gpus", None),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        gpus=read("gpus", ()),
        nvml=read("nvml", None),
        pycuda=pycuda_version,
        pycuda_cuda=pycuda_cuda,
        nvrtc=nvrtc_version,
        nvrtc_architectures=architectures,
        nvcc=read("nvcc", None),
        **{name: None if path is None else str(path) for name, path in tools.items()},
        counters_restricted=read("counters_restricted", None),
        privileged=read("privileged", False),
        emulator=read("emulator", False),
        errors=errors,
    )


def _package_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise DeviceError("not installed") from None
