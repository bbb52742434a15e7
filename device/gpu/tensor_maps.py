"""Tensor maps on a GPU, encoded by the driver's library."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import libcuda
from memlab.errors import DeviceError
from memlab.kernels.launch import TENSOR_MAP_BYTES, TensorMap
from memlab.kernels.tensor_maps import CONVERSIONS, DTYPES, INTERLEAVES, PROMOTIONS, SWIZZLES

_FILLS = ("zeros", "nan")
"""CUtensorMapFloatOOBfill."""


def encode(item: TensorMap, address: int) -> bytes:
    """The bytes of a tensor map whose tensor begins at an address.

    Raises:
        DeviceError: The driver refuses it, or has no tensor maps.
    """
    held = (ctypes.c_uint8 * (2 * TENSOR_MAP_BYTES))()
    start = -ctypes.addressof(held) % TENSOR_MAP_BYTES  # where it is aligned
    box, corners = item.box, item.box.corners
    name = "cuTensorMapEncodeTiled"
    traversed: list[object] = [_numbers(ctypes.c_uint32, box.extents)]
    if corners is not None:
        name = "cuTensorMapEncodeIm2col"
        pixels, channels = box.extents
        lower, upper = (_numbers(ctypes.c_int, corner) for corner in corners)
        traversed = [lower, upper, ctypes.c_uint32(channels), ctypes.c_uint32(pixels)]
    steps = box.steps or (1,) * len(item.shape)
    dtype = CONVERSIONS[item.conversion] if item.conversion else DTYPES[item.dtype]
    try:
        libcuda.call_driver(
            name,
            ctypes.c_void_p(ctypes.addressof(held) + start),
            ctypes.c_int(dtype),
            ctypes.c_uint32(len(item.shape)),
            ctypes.c_void_p(address),
            _numbers(ctypes.c_uint64, item.shape),
            _numbers(ctypes.c_uint64, item.pitches_bytes or (0,)),
            *traversed,
            _numbers(ctypes.c_uint32, steps),
            ctypes.c_int(INTERLEAVES.index(box.interleave_bytes)),
            ctypes.c_int(SWIZZLES.index(box.swizzle_bytes)),
            ctypes.c_int(PROMOTIONS.index(box.promotion_bytes)),
            ctypes.c_int(_FILLS.index(box.fill)),
        )
    except DeviceError as error:
        extents = ", ".join(map(str, item.shape))
        raise DeviceError(
            f"the driver makes no tensor map for {item.name}, {item.dtype} of the shape "
            f"({extents}) at {address:#x}: {name} gives {error}; tensor maps need compute "
            f"capability 9.0, or {gpu_driver.USE_EMULATOR_STEP}"
        ) from error
    return bytes(held[start : start + TENSOR_MAP_BYTES])


def _numbers(kind: Any, values: Iterable[int]) -> Any:
    """An array of the library, in its order: the fastest dimension first."""
    ordered = tuple(values)[::-1]
    return (kind * len(ordered))(*ordered)
