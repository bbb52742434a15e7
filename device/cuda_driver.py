"""The CUDA driver through PyCUDA: whether it is there, its devices, and its errors in words.

Nothing else imports PyCUDA, and this module does so only when a GPU is asked for.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from memlab.errors import DeviceError, MemlabError, UsageError

WITHOUT_GPU = "go on without a GPU with --device h200"

FAULTS: dict[str, tuple[type[MemlabError], str, str]] = {
    "illegal memory access": (
        MemlabError,
        "touched memory that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)",
        "run it with --device h200, which names the line, block and thread",
    ),
    "misaligned address": (
        MemlabError,
        "used an address that its access width does not divide (CUDA_ERROR_MISALIGNED_ADDRESS)",
        "run it with --device h200, which names the line, block and thread",
    ),
    "out of memory": (
        UsageError,
        "needs more memory than is free on the GPU (CUDA_ERROR_OUT_OF_MEMORY)",
        "use smaller sizes, or end what else uses the GPU (nvidia-smi lists it)",
    ),
    "illegal instruction": (
        MemlabError,
        "met an instruction that the GPU refuses (CUDA_ERROR_ILLEGAL_INSTRUCTION)",
        "look for a __trap() or inline assembly in its source",
    ),
    "invalid program counter": (
        MemlabError,
        "jumped out of its code (CUDA_ERROR_INVALID_PC)",
        "look for a call through a bad function pointer",
    ),
    "global/shared address space": (
        MemlabError,
        "used an address of one kind of memory as one of another "
        "(CUDA_ERROR_INVALID_ADDRESS_SPACE)",
        "look for pointers that inline assembly or a cast took from one to the other",
    ),
    "hardware stack error": (
        MemlabError,
        "overran its stack (CUDA_ERROR_HARDWARE_STACK_ERROR)",
        "look for recursion or large local arrays",
    ),
    "device-side assert": (
        MemlabError,
        "failed an assert() (CUDA_ERROR_ASSERT)",
        "run it with --device h200 to see where",
    ),
    "launch timed out": (
        MemlabError,
        "ran longer than the driver allows on a GPU that drives a display "
        "(CUDA_ERROR_LAUNCH_TIMEOUT)",
        "use smaller sizes, or a GPU without a display",
    ),
    "unspecified launch failure": (
        MemlabError,
        "failed for a reason that the driver does not tell (CUDA_ERROR_LAUNCH_FAILED)",
        "run it with --device h200, which checks every access",
    ),
    "too many resources requested": (
        UsageError,
        "needs more registers or threads a block than the GPU has "
        "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
        "use a smaller block",
    ),
    "no kernel image": (
        DeviceError,
        "was compiled for another GPU, or the driver is too old for it "
        "(CUDA_ERROR_NO_BINARY_FOR_GPU)",
        f"update the NVIDIA driver, or {WITHOUT_GPU}",
    ),
    "kernel image is invalid": (
        DeviceError,
        "is machine code that this driver cannot load (CUDA_ERROR_INVALID_IMAGE)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it, or "
        f"{WITHOUT_GPU}",
    ),
    "unsupported toolchain": (
        DeviceError,
        "was compiled by an NVRTC that is newer than the driver "
        "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION)",
        "update the NVIDIA driver, or install an nvidia-cuda-nvrtc no newer than it, or "
        f"{WITHOUT_GPU}",
    ),
    "uncorrectable": (
        DeviceError,
        "met an uncorrectable memory error (CUDA_ERROR_ECC_UNCORRECTABLE)",
        f"have the GPU looked at (nvidia-smi -q -d ECC), or {WITHOUT_GPU}",
    ),
    "busy or unavailable": (
        DeviceError,
        "cannot have the GPU (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        f"see with nvidia-smi who uses it and whether it is still there, or {WITHOUT_GPU}",
    ),
}
"""What the driver's message holds: the error to raise, what happened, and the next step."""


def in_sight() -> bool:
    """Say whether a GPU may be here: quick, and without touching one.

    True where the driver's library can be loaded and PyCUDA is installed.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return importlib.util.find_spec("pycuda") is not None


def device_count() -> int:
    """Count the GPUs that CUDA shows, which `CUDA_VISIBLE_DEVICES` may limit.

    Raises:
        DeviceError: There is no driver, or PyCUDA is missing or does not fit.
    """
    with explained("memlab"):
        return int(driver().Device.count())


@cache
def driver() -> Any:  # PyCUDA carries no types.
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
        raise DeviceError(
            f"no GPU can be used ({error}): see what nvidia-smi says, or {WITHOUT_GPU}"
        ) from error
    return pycuda.driver


def device(index: int) -> Any:
    """PyCUDA's device of a number.

    Raises:
        DeviceError: There is no such GPU, or no way to use one.
    """
    count = device_count()
    if not 0 <= index < count:
        known = ", ".join(f"cuda:{each}" for each in range(count)) or "none"
        raise DeviceError(
            f"there is no GPU {index}; CUDA shows {known} (CUDA_VISIBLE_DEVICES may hide some): "
            f"choose one of these, or {WITHOUT_GPU}"
        )
    with explained("memlab"):
        return driver().Device(index)


def attribute(device: Any, name: str | int) -> int | None:
    """Read one attribute; None where this PyCUDA or driver does not know it."""
    names = driver().device_attribute
    asked = names(name) if isinstance(name, int) else getattr(names, name, None)
    if asked is None:
        return None
    try:
        return int(device.get_attribute(asked))
    except driver().Error:
        return None


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn the driver's errors into memlab's: who, what happened, the next step.

    Args:
        what: Whom the message names, e.g. a kernel.

    Raises:
        MemlabError: The launch did something wrong.
        UsageError: It needs more than there is.
        DeviceError: The GPU or the driver cannot do it.
    """
    try:
        yield
    except driver().Error as error:
        text = str(error)
        for phrase, (kind, happened, step) in FAULTS.items():
            if phrase in text:
                raise kind(f"{what} {happened}: {step}") from error
        raise DeviceError(
            f"{what} could not use the GPU ({text}): see with nvidia-smi whether it is still "
            f"there, or {WITHOUT_GPU}"
        ) from error


def _cannot_import(error: ImportError) -> str:
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, ModuleNotFoundError):
        return f"a GPU needs PyCUDA ({reason}): pip install 'memlab[gpu]', or {WITHOUT_GPU}"
    if "libcuda.so" in reason:
        return f"no NVIDIA driver is installed here ({reason}): install one, or {WITHOUT_GPU}"
    return (
        f"PyCUDA cannot be loaded, it may be built for another CUDA ({reason}): update the NVIDIA "
        "driver, pip install --force-reinstall --no-cache-dir --no-binary pycuda pycuda, "
        f"or {WITHOUT_GPU}"
    )
