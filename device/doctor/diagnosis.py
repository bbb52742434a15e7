"""What works on a machine, and what to do about the rest: plain checks on its facts.

Nothing here touches the machine, so every case can be tried without having it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from memlab.device.doctor.probes import MachineState, Version
from memlab.device.gpu.driver import USE_EMULATOR_STEP
from memlab.device.gpu.nvml import Gpu
from memlab.device.nvidia_tools.ncu import INSTALL_ADVICE, PERMISSION_ADVICE
from memlab.device.properties import version_text

State = Literal["works", "note", "fails"]

INSTALL_GPU = "pip install 'memlab[gpu]'"

BUILD_REQUIREMENTS = "needs g++ and the CUDA toolkit, with nvcc on the PATH"
"""For PyCUDA, which is published as source alone."""

MINIMUM_DRIVER = {11: 450, 12: 525, 13: 580}
"""Oldest driver branch for each major version of CUDA: within one, the cubins of every minor
version load (NVIDIA, "CUDA Compatibility", table 1 of "Minor Version Compatibility")."""

MIN_FREE_BYTES = 2**30
"""CUDA's context, the buffer that flushes the L2 and the default sizes, with room."""


@dataclass(frozen=True)
class DiagnosisItem:
    """One line of the diagnosis.

    Attributes:
        subject: What was looked at.
        state: `works`, `note` (something is missing or odd, but kernels run) or `fails`.
        found: What is there.
        advice: What to do about it; empty where nothing is to be done.
    """

    subject: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What the facts come to.

    Attributes:
        findings: One for each thing that was looked at, in the order to mend them.
        gpu_works: Whether kernels can run on a GPU.
        emulator_works: Whether they can run on emulated devices.
    """

    findings: tuple[DiagnosisItem, ...]
    gpu_works: bool
    emulator_works: bool


def diagnose(facts: MachineState) -> Diagnosis:
    """Say what works, and what to do about the rest."""
    usable = select_visible_gpus(facts.gpus, facts.visible_devices)
    needed = (
        _driver_item(facts),
        _gpus_item(facts),
        _pycuda_item(facts),
        _nvrtc_item(facts, usable),
        *(each for gpu in usable for each in _gpu_state_items(gpu, several=len(usable) > 1)),
    )
    emulator = _emulator_item(facts)
    return Diagnosis(
        findings=(*needed, _nvml_item(facts), _counters_item(facts), emulator),
        gpu_works=all(each.state != "fails" for each in needed),
        emulator_works=emulator.state == "works",
    )


def select_visible_gpus(gpus: tuple[Gpu, ...], value: str | None) -> tuple[Gpu, ...]:
    """Choose the GPUs that CUDA shows a program, in its order.

    As CUDA reads the variable: indices or the beginnings of UUIDs, up to the first that is no
    GPU (CUDA C++ Programming Guide, "CUDA Environment Variables"). Indices are taken in the
    order of the PCI bus; where GPUs of several kinds are mixed, CUDA may order them otherwise.

    Args:
        gpus: All that there are.
        value: `CUDA_VISIBLE_DEVICES`; None where it is not set.
    """
    if value is None:
        return gpus
    chosen: list[Gpu] = []
    for word in value.split(","):
        name = word.strip()
        matching = [
            gpu
            for gpu in gpus
            if name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))
        ]
        if len(matching) != 1 or matching[0] in chosen:
            break
        chosen += matching
    return tuple(chosen)


def _driver_item(facts: MachineState) -> DiagnosisItem:
    subject = "driver"
    if facts.driver is None and facts.driver_cuda is None:
        reason = _failure_reason(facts, "driver", "no NVIDIA driver")
        return DiagnosisItem(
            subject, "fails", reason, f"install the GPU's driver, or {USE_EMULATOR_STEP}"
        )
    if facts.driver_cuda is None:
        reason = _failure_reason(facts, "driver_cuda", "libcuda does not answer")
        advice = "in a container, start it with --gpus all; else install the driver's CUDA library"
        return DiagnosisItem(subject, "fails", f"{facts.driver}, but {reason}", advice)
    version = facts.driver or "version unknown"
    return DiagnosisItem(
        subject, "works", f"{version}, CUDA up to {version_text(facts.driver_cuda)}"
    )


def _gpus_item(facts: MachineState) -> DiagnosisItem:
    subject = "GPUs"
    setting = (
        ""
        if facts.visible_devices is None
        else f" (CUDA_VISIBLE_DEVICES={facts.visible_devices or 'empty'})"
    )
    if facts.driver_cuda is None:
        return DiagnosisItem(subject, "fails", "none without a driver")
    if not facts.visible_gpus:
        # Names what the driver said, unless it only said that there is none.
        reason = _failure_reason(facts, "visible_gpus", "none")
        if setting and facts.gpus:
            there = f"none of {len(facts.gpus)} visible{setting}"
            return DiagnosisItem(
                subject, "fails", there, "unset CUDA_VISIBLE_DEVICES, or name others"
            )
        found = "none" if reason == "CUDA_ERROR_NO_DEVICE" else reason
        advice = f"look at 'nvidia-smi'; {USE_EMULATOR_STEP}"
        return DiagnosisItem(subject, "fails", found, advice)
    shown = select_visible_gpus(facts.gpus, facts.visible_devices)
    names = sorted({gpu.name for gpu in shown if not gpu.error})
    return DiagnosisItem(
        subject, "works", f"{facts.visible_gpus} visible{setting}" + _joined_names(names)
    )


def _pycuda_item(facts: MachineState) -> DiagnosisItem:
    subject = "PyCUDA"
    if facts.pycuda is None or facts.pycuda_cuda is None:
        reason = _failure_reason(facts, "pycuda", "not installed")
        # One that is there was built against another CUDA; pip would keep it.
        advice = f"{INSTALL_GPU}, which {BUILD_REQUIREMENTS}"
        if reason != "not installed":
            advice = (
                f"pip install --force-reinstall --no-cache-dir pycuda, which {BUILD_REQUIREMENTS}"
            )
        if facts.driver_cuda is None:
            return DiagnosisItem(subject, "fails", reason, "needs the driver first")
        return DiagnosisItem(subject, "fails", reason, advice)
    found = f"{facts.pycuda}, built for CUDA {version_text(facts.pycuda_cuda)}"
    if facts.driver_cuda is not None and facts.pycuda_cuda[0] > facts.driver_cuda[0]:
        advice = (
            f"the driver supports CUDA {version_text(facts.driver_cuda)}: update it"
            f"{_minimum_driver(facts.pycuda_cuda)}, or build PyCUDA with CUDA "
            f"{facts.driver_cuda[0]}"
        )
        return DiagnosisItem(subject, "fails", found, advice)
    return DiagnosisItem(subject, "works", found)


def _nvrtc_item(facts: MachineState, usable: tuple[Gpu, ...]) -> DiagnosisItem:
    subject = "NVRTC"
    if facts.nvrtc is None:
        reason = _failure_reason(facts, "nvrtc", "not installed")
        return DiagnosisItem(
            subject, "fails", reason, "pip install nvidia-cuda-nvrtc cuda-bindings"
        )
    known = facts.nvrtc_architectures
    found = f"{version_text(facts.nvrtc)}, for compute capability {_version_range(known)}"
    if facts.driver_cuda is not None and facts.nvrtc[0] > facts.driver_cuda[0]:
        advice = (
            f"its machine code needs a driver for CUDA {facts.nvrtc[0]}, this one supports "
            f"{version_text(facts.driver_cuda)}: update it{_minimum_driver(facts.nvrtc)}"
        )
        return DiagnosisItem(subject, "fails", found, advice)
    for gpu in usable:
        if gpu.compute_capability is not None and gpu.compute_capability not in known:
            advice = (
                f"{gpu.name} has {version_text(gpu.compute_capability)}: choose another GPU or an "
                "emulated device"
            )
            if known and gpu.compute_capability > max(known):
                advice = (
                    f"{gpu.name} has {version_text(gpu.compute_capability)}: "
                    "pip install --upgrade nvidia-cuda-nvrtc"
                )
            return DiagnosisItem(subject, "fails", found, advice)
    return DiagnosisItem(subject, "works", found)


def _gpu_state_items(gpu: Gpu, several: bool) -> Iterator[DiagnosisItem]:
    """What one GPU's clocks, memory and mode mean for a run."""
    number = f" {gpu.index}" if several else ""
    if gpu.error:
        advice = "see 'nvidia-smi'; one that is lost comes back when the machine starts anew"
        yield DiagnosisItem(f"GPU{number}", "note", gpu.error, advice)
        return
    clocks = f"SM {_mhz(gpu.sm_clock_hz)} of {_mhz(gpu.maximum_sm_clock_hz)}"
    if gpu.application_sm_clock_hz is not None:
        clocks += f" ({_mhz(gpu.application_sm_clock_hz)} set for applications)"
    clocks += f", memory {_mhz(gpu.memory_clock_hz)} MHz"
    if gpu.slowdowns:
        clocks += f"; held down by {' and '.join(gpu.slowdowns)}"
        advice = "times are of a slower GPU: let it cool, or see 'nvidia-smi -q -d PERFORMANCE'"
        yield DiagnosisItem(f"clocks{number}", "note", clocks, advice)
    else:
        yield DiagnosisItem(f"clocks{number}", "works", clocks)

    free, total = gpu.free_memory_bytes, gpu.total_memory_bytes
    if free is not None and total is not None:
        memory = f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f}"
        if free < MIN_FREE_BYTES:
            advice = "see 'nvidia-smi' for who holds it, or use smaller sizes"
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


def _nvml_item(facts: MachineState) -> DiagnosisItem:
    subject = "nvidia-ml-py"
    if facts.nvml is None:
        advice = f"without it no clocks are recorded: {INSTALL_GPU}" if _has_gpu(facts) else ""
        return DiagnosisItem(
            subject, "note", _failure_reason(facts, "nvml", "not installed"), advice
        )
    if "gpus" in facts.errors:
        advice = "reinstall the driver: it brings NVML" if _has_gpu(facts) else ""
        return DiagnosisItem(subject, "note", f"{facts.nvml}, {facts.errors['gpus']}", advice)
    return DiagnosisItem(subject, "works", facts.nvml)


def _counters_item(facts: MachineState) -> DiagnosisItem:
    """Hardware counters, which memlab can do without: it counts by emulating."""
    subject = "Nsight Compute"
    if facts.ncu is None:
        advice = f"only --counters ncu needs it: {INSTALL_ADVICE}" if _has_gpu(facts) else ""
        return DiagnosisItem(subject, "note", "not installed, or not on the PATH", advice)
    if not _has_gpu(facts):
        return DiagnosisItem(subject, "note", f"{facts.ncu}, but no GPU to count on")
    if facts.counters_restricted and not facts.privileged:
        found = f"{facts.ncu}, but counters are for administrators only"
        return DiagnosisItem(
            subject, "note", found, f"only --counters ncu needs them: {PERMISSION_ADVICE}"
        )
    allowed = {True: "as administrator", False: "by anyone", None: "as far as the driver says"}
    found = f"{facts.ncu}, counters may be read {allowed[facts.counters_restricted]}"
    return DiagnosisItem(subject, "works", found)


def _emulator_item(facts: MachineState) -> DiagnosisItem:
    if facts.emulator:
        return DiagnosisItem("emulator", "works", "a matrix product ran and its result was right")
    reason = _failure_reason(facts, "emulator", "a matrix product ran and its result was wrong")
    return DiagnosisItem("emulator", "fails", reason, "pip install --force-reinstall memlab")


def _has_gpu(facts: MachineState) -> bool:
    return bool(facts.visible_gpus)


def _failure_reason(facts: MachineState, probe: str, otherwise: str) -> str:
    return facts.errors.get(probe, otherwise)


def _minimum_driver(cuda: Version) -> str:
    branch = MINIMUM_DRIVER.get(cuda[0])
    return "" if branch is None else f" to {branch} or later"


def _version_range(versions: tuple[Version, ...]) -> str:
    return f"{version_text(min(versions))} to {version_text(max(versions))}" if versions else "none"


def _joined_names(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def _mhz(clock_hz: int | None) -> str:
    return "unknown" if clock_hz is None else f"{clock_hz / 1e6:.0f}"
