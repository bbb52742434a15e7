"""The diagnosis of a machine's state: what works, and advice about the rest.

These functions do not access the machine, so every case can be tested on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from memlab.device.compiler.nvcc import INSTALL_ADVICE as NVCC_ADVICE
from memlab.device.compiler.nvrtc import NVRTC_STEP
from memlab.device.doctor.probes import MachineState, Version
from memlab.device.gpu.driver import USE_EMULATOR_STEP
from memlab.device.gpu.nvml import Gpu
from memlab.device.nvidia_tools.ncu import INSTALL_ADVICE, PERMISSION_ADVICE
from memlab.device.properties import version_text

State = Literal["works", "note", "fails"]

INSTALL_GPU = "pip install 'memlab[gpu]'"

BUILD_REQUIREMENTS = "needs g++ and the CUDA toolkit, with nvcc on the PATH"
"""Requirements of PyCUDA, which is published only as source code."""

MINIMUM_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver branch for each major version of CUDA; it loads the cubins of all its minor
versions (NVIDIA, "CUDA Compatibility", table 1 of "Minor Version Compatibility")."""

MIN_FREE_BYTES = 2**30
"""Free memory that suffices for CUDA's context, the L2 flush and the default sizes, bytes."""


@dataclass(frozen=True)
class DiagnosisItem:
    """One line of the diagnosis.

    Attributes:
        subject: The part of the machine.
        state: `works`, `note` (something is missing or unusual, but kernels run) or `fails`.
        found: The state of the part in words.
        advice: What to do about it; empty if nothing is needed.
    """

    subject: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a machine.

    Attributes:
        findings: One item per part, in the order in which to repair them.
        gpu_works: Whether kernels can run on a GPU.
        emulator_works: Whether kernels can run on emulated devices.
    """

    findings: tuple[DiagnosisItem, ...]
    gpu_works: bool
    emulator_works: bool


def diagnose(machine: MachineState) -> Diagnosis:
    """Diagnose a machine: what works, and what to do about the rest."""
    usable = select_visible_gpus(machine.gpus, machine.visible_devices)
    needed = (
        _driver_item(machine),
        _gpus_item(machine),
        _pycuda_item(machine),
        _nvrtc_item(machine, usable),
        *(item for gpu in usable for item in _gpu_state_items(gpu, several=len(usable) > 1)),
    )
    emulator = _emulator_item(machine)
    return Diagnosis(
        findings=(
            *needed,
            _nvml_item(machine),
            _nvcc_item(machine),
            _nvdisasm_item(machine),
            _cuobjdump_item(machine),
            _counters_item(machine),
            emulator,
        ),
        gpu_works=all(item.state != "fails" for item in needed),
        emulator_works=emulator.state == "works",
    )


def select_visible_gpus(gpus: tuple[Gpu, ...], value: str | None) -> tuple[Gpu, ...]:
    """Select the GPUs that CUDA shows a program, in its order.

    The variable lists indices or prefixes of UUIDs; the list ends at the first that is not a GPU
    (CUDA C++ Programming Guide, "CUDA Environment Variables"). Indices are taken in the order of
    the PCI bus; with GPUs of different models, CUDA may order them differently.

    Args:
        gpus: All GPUs of the machine.
        value: `CUDA_VISIBLE_DEVICES`; None if it is not set.
    """
    if value is None:
        return gpus
    visible: list[Gpu] = []
    for word in value.split(","):
        name = word.strip()
        matching = [
            gpu
            for gpu in gpus
            if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        ]
        if len(matching) != 1 or matching[0] in visible:
            break
        visible += matching
    return tuple(visible)


def _driver_item(machine: MachineState) -> DiagnosisItem:
    subject = "driver"
    if machine.driver is None and machine.driver_cuda is None:
        reason = _failure_reason(machine, "driver", "no NVIDIA driver")
        return DiagnosisItem(
            subject, "fails", reason, f"install the GPU's driver, or {USE_EMULATOR_STEP}"
        )
    if machine.driver_cuda is None:
        reason = _failure_reason(machine, "driver_cuda", "libcuda does not answer")
        advice = (
            "start a container with --gpus all; outside a container, install the driver's CUDA "
            "library"
        )
        return DiagnosisItem(subject, "fails", f"{machine.driver}, but {reason}", advice)
    version = machine.driver or "version unknown"
    return DiagnosisItem(
        subject, "works", f"{version}, CUDA up to {version_text(machine.driver_cuda)}"
    )


def _gpus_item(machine: MachineState) -> DiagnosisItem:
    subject = "GPUs"
    setting = (
        ""
        if machine.visible_devices is None
        else f" (CUDA_VISIBLE_DEVICES={machine.visible_devices or 'empty'})"
    )
    if machine.driver_cuda is None:
        return DiagnosisItem(subject, "fails", "none without a driver")
    if not machine.visible_gpus:
        # The driver's error, unless it only says that there is no GPU.
        reason = _failure_reason(machine, "visible_gpus", "none")
        if setting and machine.gpus:
            hidden = f"none of {len(machine.gpus)} visible{setting}"
            return DiagnosisItem(
                subject, "fails", hidden, "unset CUDA_VISIBLE_DEVICES, or name others"
            )
        description = "none" if reason == "CUDA_ERROR_NO_DEVICE" else reason
        advice = f"look at 'nvidia-smi'; {USE_EMULATOR_STEP}"
        return DiagnosisItem(subject, "fails", description, advice)
    shown = select_visible_gpus(machine.gpus, machine.visible_devices)
    names = sorted({gpu.name for gpu in shown if not gpu.error})
    return DiagnosisItem(
        subject, "works", f"{machine.visible_gpus} visible{setting}" + _joined_names(names)
    )


def _pycuda_item(machine: MachineState) -> DiagnosisItem:
    subject = "PyCUDA"
    if machine.pycuda is None or machine.pycuda_cuda is None:
        reason = _failure_reason(machine, "pycuda", "not installed")
        # An installed PyCUDA was built against a different CUDA, and pip would keep it.
        advice = f"{INSTALL_GPU}, which {BUILD_REQUIREMENTS}"
        if reason != "not installed":
            advice = (
                f"pip install --force-reinstall --no-cache-dir pycuda, which {BUILD_REQUIREMENTS}"
            )
        if machine.driver_cuda is None:
            return DiagnosisItem(subject, "fails", reason, "needs the driver first")
        return DiagnosisItem(subject, "fails", reason, advice)
    description = f"{machine.pycuda}, built for CUDA {version_text(machine.pycuda_cuda)}"
    if machine.driver_cuda is not None and machine.pycuda_cuda[0] > machine.driver_cuda[0]:
        advice = (
            f"the driver supports CUDA {version_text(machine.driver_cuda)}: update it"
            f"{_minimum_driver(machine.pycuda_cuda)}, or build PyCUDA with CUDA "
            f"{machine.driver_cuda[0]}"
        )
        return DiagnosisItem(subject, "fails", description, advice)
    return DiagnosisItem(subject, "works", description)


def _nvrtc_item(machine: MachineState, usable: tuple[Gpu, ...]) -> DiagnosisItem:
    subject = "NVRTC"
    if machine.nvrtc is None:
        reason = _failure_reason(machine, "nvrtc", "not installed").removesuffix(f": {NVRTC_STEP}")
        return DiagnosisItem(subject, "fails", reason, NVRTC_STEP)
    supported = machine.nvrtc_architectures
    description = (
        f"{version_text(machine.nvrtc)}, for compute capability {_version_range(supported)}"
    )
    if machine.driver_cuda is not None and machine.nvrtc[0] > machine.driver_cuda[0]:
        advice = (
            f"its machine code needs a driver for CUDA {machine.nvrtc[0]}, this one supports "
            f"{version_text(machine.driver_cuda)}: update it{_minimum_driver(machine.nvrtc)}"
        )
        return DiagnosisItem(subject, "fails", description, advice)
    for gpu in usable:
        if gpu.compute_capability is not None and gpu.compute_capability not in supported:
            advice = (
                f"{gpu.name} has {version_text(gpu.compute_capability)}: choose another GPU or an "
                "emulated device"
            )
            if supported and gpu.compute_capability > max(supported):
                advice = (
                    f"{gpu.name} has {version_text(gpu.compute_capability)}: "
                    "pip install --upgrade nvidia-cuda-nvrtc"
                )
            return DiagnosisItem(subject, "fails", description, advice)
    return DiagnosisItem(subject, "works", description)


def _gpu_state_items(gpu: Gpu, several: bool) -> Iterator[DiagnosisItem]:
    """Diagnose one GPU's clocks, memory and compute mode."""
    number = f" {gpu.index}" if several else ""
    if gpu.error:
        advice = "see 'nvidia-smi'; a lost GPU returns when the machine is restarted"
        yield DiagnosisItem(f"GPU{number}", "note", gpu.error, advice)
        return
    clocks = f"SM {_mhz(gpu.sm_clock_hz)} of {_mhz(gpu.maximum_sm_clock_hz)}"
    if gpu.application_sm_clock_hz is not None:
        clocks += f" ({_mhz(gpu.application_sm_clock_hz)} set for applications)"
    clocks += f", memory {_mhz(gpu.memory_clock_hz)} MHz"
    if gpu.slowdowns:
        clocks += f"; lowered by {' and '.join(gpu.slowdowns)}"
        advice = (
            "times are those of a slower GPU: let it cool, or see 'nvidia-smi -q -d PERFORMANCE'"
        )
        yield DiagnosisItem(f"clocks{number}", "note", clocks, advice)
    else:
        yield DiagnosisItem(f"clocks{number}", "works", clocks)

    free, total = gpu.free_memory_bytes, gpu.total_memory_bytes
    if free is not None and total is not None:
        memory = f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f}"
        if free < MIN_FREE_BYTES:
            advice = "see 'nvidia-smi' for the processes that use it, or use smaller sizes"
            yield DiagnosisItem(f"memory{number}", "note", memory, advice)
        else:
            yield DiagnosisItem(f"memory{number}", "works", memory)

    mode = gpu.compute_mode
    if mode == "prohibited":
        advice = "an administrator allows programs with 'nvidia-smi -c DEFAULT'"
        yield DiagnosisItem(f"compute mode{number}", "fails", mode, advice)
    elif mode is not None and mode != "default":
        advice = "a run fails while another program uses the GPU"
        yield DiagnosisItem(f"compute mode{number}", "note", mode, advice)
    elif mode is not None:
        yield DiagnosisItem(f"compute mode{number}", "works", mode)


def _nvml_item(machine: MachineState) -> DiagnosisItem:
    subject = "nvidia-ml-py"
    if machine.nvml is None:
        advice = f"without it no clocks are recorded: {INSTALL_GPU}" if _has_gpu(machine) else ""
        return DiagnosisItem(
            subject, "note", _failure_reason(machine, "nvml", "not installed"), advice
        )
    if "gpus" in machine.errors:
        advice = "reinstall the driver: it brings NVML" if _has_gpu(machine) else ""
        return DiagnosisItem(subject, "note", f"{machine.nvml}, {machine.errors['gpus']}", advice)
    return DiagnosisItem(subject, "works", machine.nvml)


def _nvcc_item(machine: MachineState) -> DiagnosisItem:
    """Diagnose nvcc, which compiles what NVRTC refuses."""
    if machine.nvcc is not None:
        return DiagnosisItem("nvcc", "works", machine.nvcc.removeprefix("nvcc "))
    advice = f"only files that NVRTC refuses need it: {NVCC_ADVICE}"
    return DiagnosisItem("nvcc", "note", _failure_reason(machine, "nvcc", "not installed"), advice)


def _nvdisasm_item(machine: MachineState) -> DiagnosisItem:
    """Diagnose nvdisasm, which reads machine code."""
    if machine.nvdisasm is not None:
        return DiagnosisItem("nvdisasm", "works", machine.nvdisasm)
    advice = (
        "without it instructions are those of the PTX and modelled times are less exact: "
        "pip install nvidia-cuda-nvdisasm"
    )
    said = _failure_reason(machine, "nvdisasm", "not installed")
    return DiagnosisItem("nvdisasm", "note", said, advice)


def _cuobjdump_item(machine: MachineState) -> DiagnosisItem:
    """Diagnose cuobjdump, which reads compiled files."""
    if machine.cuobjdump is not None:
        return DiagnosisItem("cuobjdump", "works", machine.cuobjdump)
    advice = f"only kernels in .fatbin, .o, .so and programs need it: {NVCC_ADVICE}"
    said = _failure_reason(machine, "cuobjdump", "not installed")
    return DiagnosisItem("cuobjdump", "note", said, advice)


def _counters_item(machine: MachineState) -> DiagnosisItem:
    """Diagnose hardware counters, which memlab does not need: it counts by emulation."""
    subject = "Nsight Compute"
    if machine.ncu is None:
        advice = f"only --counters ncu needs it: {INSTALL_ADVICE}" if _has_gpu(machine) else ""
        return DiagnosisItem(subject, "note", "not installed, or not on the PATH", advice)
    if not _has_gpu(machine):
        return DiagnosisItem(subject, "note", f"{machine.ncu}, but no GPU to count on")
    if machine.counters_restricted and not machine.privileged:
        description = f"{machine.ncu}, but counters are for administrators only"
        return DiagnosisItem(
            subject, "note", description, f"only --counters ncu needs them: {PERMISSION_ADVICE}"
        )
    allowed = {True: "as administrator", False: "by anyone", None: "as far as the driver reports"}
    description = f"{machine.ncu}, counters may be read {allowed[machine.counters_restricted]}"
    return DiagnosisItem(subject, "works", description)


def _emulator_item(machine: MachineState) -> DiagnosisItem:
    if machine.emulator:
        return DiagnosisItem("emulator", "works", "a matrix product ran and its result was right")
    if machine.nvrtc is None:
        return DiagnosisItem("emulator", "fails", "nothing compiles", "needs NVRTC first")
    reason = _failure_reason(machine, "emulator", "a matrix product ran and its result was wrong")
    return DiagnosisItem("emulator", "fails", reason, "pip install --force-reinstall memlab")


def _has_gpu(machine: MachineState) -> bool:
    return bool(machine.visible_gpus)


def _failure_reason(machine: MachineState, probe: str, otherwise: str) -> str:
    return machine.errors.get(probe, otherwise)


def _minimum_driver(cuda: Version) -> str:
    branch = MINIMUM_DRIVER.get(cuda[0])
    return "" if branch is None else f" to {branch} or later"


def _version_range(versions: tuple[Version, ...]) -> str:
    return f"{version_text(min(versions))} to {version_text(max(versions))}" if versions else "none"


def _joined_names(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def _mhz(clock_hz: int | None) -> str:
    return "unknown" if clock_hz is None else f"{clock_hz / 1e6:.0f}"
