"""Queries of the driver's library that need neither PyCUDA nor a context."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from uuid import UUID

from memlab.errors import DeviceError

LIBRARY = "libcuda.so.1"

NO_GPU_ERRORS = ("CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_STUB_LIBRARY")
"""The errors of a driver without a GPU, and of the toolkit's stub library without a driver."""


def is_installed() -> bool:
    """Whether the library can be loaded; the test is quick and uses no GPU."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return False
    return True


def driver_cuda() -> tuple[int, int]:
    """The newest CUDA that the driver supports (cuDriverGetVersion): major and minor.

    Raises:
        DeviceError: The library is missing or returns an error.
    """
    number = ctypes.c_int()
    call_driver("cuDriverGetVersion", ctypes.byref(number))
    return number.value // 1000, number.value % 1000 // 10


def visible_gpus() -> int:
    """The number of GPUs that CUDA shows this process (cuDeviceGetCount).

    Raises:
        DeviceError: The library is missing or returns an error, whose name is the message.
    """
    number = ctypes.c_int()
    call_driver("cuInit", 0)
    call_driver("cuDeviceGetCount", ctypes.byref(number))
    return number.value


def gpu_uuid(index: int) -> str | None:
    """The unique identifier of a GPU (cuDeviceGetUuid).

    Args:
        index: The GPU's number, from 0, as CUDA counts.

    Returns:
        `GPU-` and 32 hexadecimal digits in groups, as nvidia-smi writes it; for a part of a GPU
        (MIG), the part's identifier. None if the driver does not tell.
    """
    device, octets = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    with suppress(DeviceError):
        call_driver("cuInit", 0)
        call_driver("cuDeviceGet", ctypes.byref(device), index)
        call_driver("cuDeviceGetUuid_v2", octets, device)
        return f"GPU-{UUID(bytes=bytes(octets))}"
    return None


def call_driver(name: str, *arguments: object) -> None:
    """Call a function of the library.

    Raises:
        DeviceError: The library or the function is missing, or the call returns an error.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise DeviceError(f"the driver's library {LIBRARY} is missing") from None
    try:
        code = getattr(library, name)(*arguments)
    except AttributeError:
        raise DeviceError(f"the driver's library has no {name}") from None
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise DeviceError((text.value or b"").decode() or f"{name} gives error {code}")
