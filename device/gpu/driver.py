"""The CUDA driver through PyCUDA: whether it is there, its devices, and its errors in words.

Nothing else imports PyCUDA, and this module does so only when a GPU is asked for.
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
"""What is left to do where a kernel of memlab's own misbehaves."""


@dataclass(frozen=True)
class DriverFault:
    """What an error of the driver means.

    Attributes:
        kind: The error to raise.
        happened: What whoever was at work did or met.
        step: What to do next.
        own_step: The same where memlab's own kernels run, with no sizes to choose and no source
            to mend.
    """

    kind: type[MemlabError]
    happened: str
    step: str
    memlab_kernel_step: str = REPORT_STEP


def _gpu_fault(happened: str, step: str) -> DriverFault:
    return DriverFault(DeviceError, happened, f"{step}, or {USE_EMULATOR_STEP}", step)


_END_OTHER_PROCESSES_STEP = "end what else uses the GPU (nvidia-smi lists it)"
_EMULATE_STEP = "run it with --device h200, which names the line, block and thread"
_LAUNCH_REFUSED = DriverFault(
    UsageError,
    "was refused by the GPU before it started (CUDA_ERROR_INVALID_VALUE)",
    "compare its grid, block, cluster and shared memory with what 'memlab devicequery' allows",
)

FAULTS: dict[str, DriverFault] = {
    "illegal memory access": DriverFault(
        MemlabError,
        "touched memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)",
        _EMULATE_STEP,
    ),
    "misaligned address": DriverFault(
        MemlabError,
        "used an address that its access width does not divide (CUDA_ERROR_MISALIGNED_ADDRESS)",
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
        "met an instruction that the GPU refuses (CUDA_ERROR_ILLEGAL_INSTRUCTION)",
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
        "failed for a reason that the driver does not tell (CUDA_ERROR_LAUNCH_FAILED)",
        "run it with --device h200, which checks every access",
    ),
    "too many resources requested": DriverFault(
        UsageError,
        "needs more registers or threads a block than the GPU has "
        "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
        "use a smaller block",
    ),
    "cuLaunchKernel failed: invalid argument": _LAUNCH_REFUSED,
    "cuLaunchKernel failed: invalid value": _LAUNCH_REFUSED,
    "cuFuncSetAttribute failed: invalid argument": _LAUNCH_REFUSED,
    "cluster misconfiguration": _LAUNCH_REFUSED,
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
        "met an uncorrectable memory error (CUDA_ERROR_ECC_UNCORRECTABLE)",
        "have the GPU looked at (nvidia-smi -q -d ECC)",
    ),
    "busy or unavailable": _gpu_fault(
        "cannot have the GPU (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        "see with nvidia-smi who uses it and whether it is still there",
    ),
    "no CUDA-capable device": _gpu_fault(
        "finds no GPU (CUDA_ERROR_NO_DEVICE)",
        "see whether nvidia-smi lists one and CUDA_VISIBLE_DEVICES hides it",
    ),
    "system not yet initialized": _gpu_fault(
        "finds a machine that is not ready for CUDA (CUDA_ERROR_SYSTEM_NOT_READY)",
        "where GPUs are joined by NVSwitch, start the fabric manager, of the driver's very "
        "version (systemctl start nvidia-fabricmanager)",
    ),
    "unsupported display driver": _gpu_fault(
        "finds a libcuda of another version than the driver in the kernel "
        "(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        "restart the machine if the driver was updated; in a container, let it use the host's "
        "libcuda",
    ),
}
"""What an error of the driver means, by a part of the text that PyCUDA gives it."""


def device_count() -> int:
    """Count the GPUs that CUDA shows, which `CUDA_VISIBLE_DEVICES` may limit.

    Raises:
        DeviceError: There is no driver, or PyCUDA is missing or does not fit.
    """
    with translated_errors("memlab"):
        return int(pycuda_driver().Device.count())


@cache
def pycuda_driver() -> Any:  # PyCUDA carries no types.
    """Load PyCUDA and start the driver.

    Raises:
        DeviceError: Either is not possible; says what to do.
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
    """PyCUDA's device of a number.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    count = device_count()
    if not 0 <= index < count:
        known = ", ".join(f"cuda:{each}" for each in range(count)) or "none"
        raise DeviceError(
            f"there is no GPU {index}; CUDA shows {known} (CUDA_VISIBLE_DEVICES may hide some): "
            f"choose one of these, or {USE_EMULATOR_STEP}"
        )
    with translated_errors("memlab"):
        return pycuda_driver().Device(index)


def read_attribute(device: Any, name: str | int) -> int | None:
    """Read one attribute; None where this PyCUDA or driver does not know it."""
    names = pycuda_driver().device_attribute
    asked = names(name) if isinstance(name, int) else getattr(names, name, None)
    if asked is None:
        return None
    try:
        return int(device.get_attribute(asked))
    except pycuda_driver().Error:
        return None


def translate_error(what: str, error: Exception, own: bool = False) -> MemlabError:
    """Make of an error of the driver one of memlab's: who, what happened, the next step.

    Args:
        what: Whom the message names, e.g. a kernel.
        error: The driver's, as PyCUDA words it.
        own: Whether memlab's own kernels run, which its user can neither shrink nor mend.
    """
    text = str(error)
    unknown = _gpu_fault(f"could not use the GPU ({text})", CHECK_NVIDIA_SMI_STEP)
    fault = next((FAULTS[phrase] for phrase in FAULTS if phrase in text), unknown)
    return fault.kind(f"{what} {fault.happened}: {fault.memlab_kernel_step if own else fault.step}")


@contextmanager
def translated_errors(what: str, own: bool = False) -> Iterator[None]:
    """Turn the driver's errors into memlab's; arguments as of `in_words`.

    Raises:
        MemlabError: The launch did something wrong.
        UsageError: It needs more than there is.
        DeviceError: The GPU or the driver cannot do it.
    """
    try:
        yield
    except pycuda_driver().Error as error:
        raise translate_error(what, error, own) from error


def _cannot_import(error: ImportError) -> str:
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, ModuleNotFoundError):
        return f"a GPU needs PyCUDA ({reason}): pip install 'memlab[gpu]', or {USE_EMULATOR_STEP}"
    if "libcuda.so" in reason:
        return f"no NVIDIA driver is installed here ({reason}): install one, or {USE_EMULATOR_STEP}"
    return (
        f"PyCUDA cannot be loaded, it may be built for another CUDA ({reason}): update the NVIDIA "
        "driver, pip install --force-reinstall --no-cache-dir --no-binary pycuda pycuda, "
        f"or {USE_EMULATOR_STEP}"
    )
