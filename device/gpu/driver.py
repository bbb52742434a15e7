"""The CUDA driver through PyCUDA: loading it, its devices, and messages for its errors.

No other module imports PyCUDA, and this one does so only when a GPU is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from memlab.errors import DeviceError, MemlabError, UsageError

USE_EMULATOR_STEP = "go on without a GPU with --device h200"
CHECK_NVIDIA_SMI_STEP = "see with nvidia-smi whether the GPU is still there"
REPORT_STEP = "have the GPU's memory tested, or report this with your GPU and driver"
"""The next step if one of memlab's kernels fails."""


@dataclass(frozen=True)
class DriverFault:
    """The meaning of a driver error.

    Attributes:
        kind: The exception to raise.
        happened: What happened, as a predicate after the name of the kernel.
        step: The next step for the user.
        memlab_kernel_step: The next step if only memlab's kernels run, whose sizes and source the
            user cannot change.
    """

    kind: type[MemlabError]
    happened: str
    step: str
    memlab_kernel_step: str = REPORT_STEP


def _gpu_fault(happened: str, step: str) -> DriverFault:
    return DriverFault(DeviceError, happened, f"{step}, or {USE_EMULATOR_STEP}", step)


_END_OTHER_PROCESSES_STEP = "end other processes that use the GPU (nvidia-smi lists them)"
_EMULATE_STEP = "run it with --device h200, which names the line, block and thread"
_LAUNCH_REFUSED = DriverFault(
    UsageError,
    "was refused by the GPU before it started (CUDA_ERROR_INVALID_VALUE)",
    "compare its grid, block, cluster and shared memory with what 'memlab devicequery' allows",
)

FAULTS: dict[str, DriverFault] = {
    "illegal memory access": DriverFault(
        MemlabError,
        "accessed memory outside its arrays (CUDA_ERROR_ILLEGAL_ADDRESS)",
        _EMULATE_STEP,
    ),
    "misaligned address": DriverFault(
        MemlabError,
        "used an address that is not a multiple of the access width "
        "(CUDA_ERROR_MISALIGNED_ADDRESS)",
        _EMULATE_STEP,
    ),
    "out of memory": DriverFault(
        UsageError,
        "needs more memory than is free on the GPU (CUDA_ERROR_OUT_OF_MEMORY)",
        f"use smaller sizes, or {_END_OTHER_PROCESSES_STEP}",
        _END_OTHER_PROCESSES_STEP,
    ),
    "illegal instruction": DriverFault(
        MemlabError,
        "executed an instruction that the GPU refuses (CUDA_ERROR_ILLEGAL_INSTRUCTION)",
        "look for a __trap() or inline assembly in its source",
    ),
    "invalid program counter": DriverFault(
        MemlabError,
        "jumped out of its code (CUDA_ERROR_INVALID_PC)",
        "look for a call through a bad function pointer",
    ),
    "global/shared address space": DriverFault(
        MemlabError,
        "used an address of one kind of memory as one of another "
        "(CUDA_ERROR_INVALID_ADDRESS_SPACE)",
        "look for pointers that inline assembly or a cast took from one to the other",
    ),
    "hardware stack error": DriverFault(
        MemlabError,
        "overran its stack (CUDA_ERROR_HARDWARE_STACK_ERROR)",
        "look for recursion or large local arrays",
    ),
    "device-side assert": DriverFault(
        MemlabError,
        "failed an assert() (CUDA_ERROR_ASSERT)",
        "run it with --device h200 to see where",
    ),
    "launch timed out": DriverFault(
        MemlabError,
        "ran longer than the driver allows on a GPU that drives a display "
        "(CUDA_ERROR_LAUNCH_TIMEOUT)",
        "use smaller sizes, or a GPU without a display",
        "use a GPU without a display",
    ),
    "unspecified launch failure": DriverFault(
        MemlabError,
        "failed for a reason that the driver does not report (CUDA_ERROR_LAUNCH_FAILED)",
        "run it with --device h200, which checks every access",
    ),
    "too many resources requested": DriverFault(
        UsageError,
        "needs more registers or threads per block than the GPU has "
        "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
        "use a smaller block",
    ),
    "cuLaunchKernel failed: invalid argument": _LAUNCH_REFUSED,
    "cuLaunchKernel failed: invalid value": _LAUNCH_REFUSED,
    "cuFuncSetAttribute failed: invalid argument": _LAUNCH_REFUSED,
    "cuLaunchKernelEx failed: invalid argument": _LAUNCH_REFUSED,
    "cluster misconfiguration": _LAUNCH_REFUSED,
    "too many blocks in cooperative launch": DriverFault(
        UsageError,
        "waits for the whole grid, which is not resident at once "
        "(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)",
        "use fewer blocks",
    ),
    "no kernel image": _gpu_fault(
        "was compiled for another GPU, or the driver is too old for it "
        "(CUDA_ERROR_NO_BINARY_FOR_GPU)",
        "update the NVIDIA driver",
    ),
    "kernel image is invalid": _gpu_fault(
        "is machine code that this driver cannot load (CUDA_ERROR_INVALID_IMAGE)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it",
    ),
    "unsupported toolchain": _gpu_fault(
        "was compiled by an NVRTC that is newer than the driver "
        "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it",
    ),
    "uncorrectable ECC": _gpu_fault(
        "had an uncorrectable memory error (CUDA_ERROR_ECC_UNCORRECTABLE)",
        "have the GPU examined (nvidia-smi -q -d ECC)",
    ),
    "busy or unavailable": _gpu_fault(
        "cannot use the GPU (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        "see with nvidia-smi which process uses it and whether it is still there",
    ),
    "no CUDA-capable device": _gpu_fault(
        "finds no GPU (CUDA_ERROR_NO_DEVICE)",
        "see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides it",
    ),
    "system not yet initialized": _gpu_fault(
        "finds a machine that is not ready for CUDA (CUDA_ERROR_SYSTEM_NOT_READY)",
        "if NVSwitch connects the GPUs, start the fabric manager in the driver's version "
        "(systemctl start nvidia-fabricmanager)",
    ),
    "unsupported display driver": _gpu_fault(
        "finds a libcuda of a different version than the kernel driver "
        "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        "restart the machine if the driver was updated; in a container, let it use the host's "
        "libcuda",
    ),
}
"""The meaning of a driver error, by a part of PyCUDA's text of it."""


def device_count() -> int:
    """Count the GPUs that CUDA shows, which `CUDA_VISIBLE_DEVICES` may limit.

    Raises:
        DeviceError: There is no driver, or PyCUDA is missing or incompatible.
    """
    with translated_errors("memlab"):
        return int(pycuda_driver().Device.count())


@cache
def pycuda_driver() -> Any:  # PyCUDA carries no types.
    """Load PyCUDA and initialize the driver.

    Raises:
        DeviceError: One of them is not possible; the message says what to do.
    """
    try:
        import pycuda.driver
    except ImportError as error:
        raise DeviceError(_cannot_import(error)) from error
    try:
        pycuda.driver.init()
    except pycuda.driver.Error as error:
        raise translate_error("memlab", error) from error
    return pycuda.driver


def pycuda_device(index: int) -> Any:
    """Return PyCUDA's device with this number.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    count = device_count()
    if not 0 <= index < count:
        known = ", ".join(f"cuda:{number}" for number in range(count)) or "none"
        raise DeviceError(
            f"there is no GPU {index}; CUDA shows {known} (CUDA_VISIBLE_DEVICES may hide some): "
            f"choose one of these, or {USE_EMULATOR_STEP}"
        )
    with translated_errors("memlab"):
        return pycuda_driver().Device(index)


def read_attribute(device: Any, name: str | int) -> int | None:
    """Read one attribute; None if this version of PyCUDA or the driver does not know it."""
    attributes = pycuda_driver().device_attribute
    attribute = attributes(name) if isinstance(name, int) else getattr(attributes, name, None)
    if attribute is None:
        return None
    try:
        return int(device.get_attribute(attribute))
    except pycuda_driver().Error:
        return None


def translate_error(what: str, error: Exception, memlab_kernels: bool = False) -> MemlabError:
    """Translate a driver error into memlab's: the subject, what happened, the next step.

    Args:
        what: The subject of the message, for example a kernel's name.
        error: PyCUDA's exception.
        memlab_kernels: Whether only memlab's kernels run, which the user cannot change.
    """
    text = str(error)
    unknown = _gpu_fault(f"could not use the GPU ({text})", CHECK_NVIDIA_SMI_STEP)
    fault = next((FAULTS[phrase] for phrase in FAULTS if phrase in text), unknown)
    step = fault.memlab_kernel_step if memlab_kernels else fault.step
    return fault.kind(f"{what} {fault.happened}: {step}")


@contextmanager
def translated_errors(what: str, memlab_kernels: bool = False) -> Iterator[None]:
    """Translate driver errors in the context; arguments as in `translate_error`.

    Raises:
        MemlabError: The kernel has a mistake.
        UsageError: The launch needs more resources than the GPU has.
        DeviceError: The GPU or the driver cannot run it.
    """
    try:
        yield
    except pycuda_driver().Error as error:
        raise translate_error(what, error, memlab_kernels) from error


def _cannot_import(error: ImportError) -> str:
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, ModuleNotFoundError):
        return f"a GPU needs PyCUDA ({reason}): pip install 'memlab[gpu]', or {USE_EMULATOR_STEP}"
    if "libcuda.so" in reason:
        return f"no NVIDIA driver is installed ({reason}): install one, or {USE_EMULATOR_STEP}"
    return (
        f"PyCUDA cannot be loaded, it may be built for another CUDA ({reason}): update the NVIDIA "
        "driver, pip install --force-reinstall --no-cache-dir --no-binary pycuda pycuda, "
        f"or {USE_EMULATOR_STEP}"
    )
