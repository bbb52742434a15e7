"""Texture and surface objects on a GPU, and the CUDA arrays behind them.

PyCUDA has arrays and their copies, but no objects: `libcuda` makes these from descriptions, whose
fields are those of `CUDA_RESOURCE_DESC` and `CUDA_TEXTURE_DESC` (CUDA Driver API, "Texture Object
Management").
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import libcuda
from memlab.device.inputs import POISON_BYTE
from memlab.errors import DeviceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.gpu.session import GpuSession
    from memlab.kernels.launch import Buffer, View

_RESOURCE_ARRAY, _RESOURCE_LINEAR = 0, 2  # CUresourcetype
_ADDRESS_MODES = {"wrap": 0, "clamp": 1, "mirror": 2, "border": 3}  # CUaddress_mode
_READ_AS_INTEGER, _NORMALIZED_COORDINATES = 1, 2  # CU_TRSF_...
_LAYERED, _SURFACE_ACCESS = 1, 2  # CUDA_ARRAY3D_...
_FORMATS = {
    "uint8": 0x01,
    "uint16": 0x02,
    "uint32": 0x03,
    "int8": 0x08,
    "int16": 0x09,
    "int32": 0x0A,
    "float16": 0x10,
    "float32": 0x20,
}
"""CUarray_format by NumPy's name of the type."""


class _LinearMemory(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_uint64),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("bytes", ctypes.c_size_t),
    )


class _ResourceUnion(ctypes.Union):
    _fields_ = (
        ("array", ctypes.c_uint64),
        ("linear", _LinearMemory),
        ("reserved", ctypes.c_int * 32),
    )


class _Resource(ctypes.Structure):
    """CUDA_RESOURCE_DESC."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("of", _ResourceUnion),
        ("flags", ctypes.c_uint),
    )


class _Sampling(ctypes.Structure):
    """CUDA_TEXTURE_DESC; what is not set is 0, as for textures without mipmap levels."""

    _fields_ = (
        ("address_modes", ctypes.c_int * 3),
        ("filter", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("max_anisotropy", ctypes.c_uint),
        ("mipmap_filter", ctypes.c_int),
        ("mipmap_levels", ctypes.c_float * 3),
        ("border", ctypes.c_float * 4),
        ("reserved", ctypes.c_int * 12),
    )


class ObjectOnGpu:
    """A texture or surface object, with the memory that it shows.

    `int()` of it is the handle that the kernel receives.
    """

    def __init__(
        self, session: GpuSession, buffer: Buffer, content: NDArray[Any] | None, poison: bool = True
    ) -> None:
        """Allocate the memory, fill it and make the object.

        Args:
            session: The GPU.
            buffer: The array that the object shows; it has a view.
            content: The elements; None for an output.
            poison: Whether an output is filled with 0xFF.

        Raises:
            UsageError: There is not enough free memory.
            DeviceError: The driver cannot make the object.
        """
        assert buffer.view is not None
        self._buffer, self._view, self._session = buffer, buffer.view, session
        self._array = None
        resource = _Resource()
        if self._view.linear_memory:
            assert content is not None
            self._linear = session.array(content)
            resource.kind = _RESOURCE_LINEAR
            resource.of.linear = _LinearMemory(
                int(self._linear), _FORMATS[buffer.dtype], self._view.channels, buffer.nbytes
            )
        else:
            with gpu_driver.translated_errors(buffer.name):
                self._array = _allocate_array(buffer)
            if content is None and poison:
                content = np.full(buffer.nbytes, POISON_BYTE, np.uint8)
            if content is not None:
                self.copy_from(np.ascontiguousarray(content))
            resource.kind = _RESOURCE_ARRAY
            resource.of.array = self._array.handle
        self._handle = _create_object(resource, buffer)

    def __int__(self) -> int:
        return self._handle

    def copy_from(self, source: Any) -> None:
        """Queue a copy into the array.

        Args:
            source: An array on the host, or a result of `GpuSession.array`, with all elements.
        """
        copy = self._copy()
        if isinstance(source, np.ndarray):
            copy.set_src_host(source)
        else:
            copy.set_src_device(source)
        copy.set_dst_array(self._array)
        copy()

    def read(self, into: NDArray[Any]) -> NDArray[Any]:
        """Wait for all launches, and copy the elements into a contiguous array; returns it."""
        self._session.synchronize()
        copy = self._copy()
        copy.set_src_array(self._array)
        copy.set_dst_host(into)
        with gpu_driver.translated_errors("the kernel"):
            copy()
        return into

    def _copy(self) -> Any:
        """A copy of the whole array; its other side is contiguous."""
        slices, height, width = self._view.extents(self._buffer.shape)
        copy = gpu_driver.pycuda_driver().Memcpy3D()
        copy.width_in_bytes = width * self._view.channels * self._buffer.element_bytes
        copy.src_pitch = copy.dst_pitch = copy.width_in_bytes
        copy.height = copy.src_height = copy.dst_height = height
        copy.depth = slices
        return copy


def _allocate_array(buffer: Buffer) -> Any:
    """A CUDA array in the shape of a buffer."""
    assert buffer.view is not None
    driver, view = gpu_driver.pycuda_driver(), buffer.view
    slices, height, width = view.extents(buffer.shape)
    shape = driver.ArrayDescriptor3D()
    shape.width = width
    shape.height = height if view.dimensions > 1 else 0
    shape.depth = slices if view.layered or view.dimensions == 3 else 0
    shape.format = driver.array_format(_FORMATS[buffer.dtype])
    shape.num_channels = view.channels
    shape.flags = _LAYERED * view.layered | _SURFACE_ACCESS * (view.kind == "surface")
    return driver.Array(shape)


def _create_object(resource: _Resource, buffer: Buffer) -> int:
    """Make an object; returns its handle."""
    assert buffer.view is not None
    handle = ctypes.c_uint64()
    name = "cuSurfObjectCreate"
    arguments: list[object] = [ctypes.byref(handle), ctypes.byref(resource)]
    if buffer.view.kind == "texture":
        name = "cuTexObjectCreate"
        arguments += [ctypes.byref(_sampling(buffer.view, buffer.dtype)), None]
    try:
        libcuda.call_driver(name, *arguments)
    except DeviceError as error:
        extents = ", ".join(map(str, buffer.shape))
        raise DeviceError(
            f"the driver makes no {buffer.view.kind} for {buffer.name}, {buffer.dtype} of the "
            f"shape ({extents}): {name} gives {error}; compare its extents with those of 'memlab "
            f"devicequery', or {gpu_driver.USE_EMULATOR_STEP}"
        ) from error
    return handle.value


def _sampling(view: View, dtype: str) -> _Sampling:
    """How a texture is sampled."""
    sampling = _Sampling()
    sampling.address_modes[:] = [_ADDRESS_MODES[mode] for mode in view.address_modes]
    sampling.filter = int(view.linear)
    if dtype[0] != "f" and not view.normalized_float:
        sampling.flags |= _READ_AS_INTEGER
    if view.normalized:
        sampling.flags |= _NORMALIZED_COORDINATES
    return sampling
