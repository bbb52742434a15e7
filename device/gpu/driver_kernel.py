"""Kernels that PyCUDA cannot launch, through the driver's library: attributes, wide alignments.

PyCUDA copies arguments as one block, whose first byte lies where the constant bank begins to hold
arguments. That place is aligned to 16 bytes; the compiler puts an argument of wider alignment
further on. Only the driver knows where, and places arguments that it gets one by one.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import libcuda
from memlab.kernels.kernel import PORTABLE_CLUSTER_BLOCKS
from memlab.kernels.launch import NO_CLUSTER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.kernels.launch import Dim3

PYCUDA_ALIGNMENT_BYTES = 16
"""The widest alignment of arguments that PyCUDA passes: for compute capability 9.0 the constant
bank holds arguments from byte 0x210 on (EIATTR_PARAM_CBANK of a cubin)."""

# cuda.h: CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4
_NON_PORTABLE_CLUSTERS = 14  # cuda.h: CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_ATTRIBUTE_VALUE_BYTES = 64  # cuda.h: CUlaunchAttributeValue


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("id", ctypes.c_uint64),  # a number of 32 bits and their padding
        ("value", ctypes.c_uint8 * _ATTRIBUTE_VALUE_BYTES),
    )


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class DriverKernel:
    """A kernel that PyCUDA cannot launch, with the methods of PyCUDA's functions."""

    def __init__(
        self,
        cubin: bytes,
        entry: str,
        at_end: Callable[[Callable[[], None]], object],
        *,
        cooperative: bool = False,
        cluster: Dim3 = NO_CLUSTER,
    ) -> None:
        """Load machine code in the current context.

        Args:
            cubin: The machine code.
            entry: The kernel's name in it.
            at_end: Called with a function that unloads the code, to be called before the context
                ends.
            cooperative: Whether its blocks wait for the whole grid.
            cluster: Blocks of a cluster in x, y and z.

        Raises:
            pycuda.driver.Error: The driver cannot load it.
        """
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        at_end(lambda: _call("cuModuleUnload", self._module))
        name = entry.encode()
        _call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name)
        self._attributes = _attributes(cooperative, cluster)
        if prod(cluster) > PORTABLE_CLUSTER_BLOCKS:
            self.set_attribute(_NON_PORTABLE_CLUSTERS, 1)

    def fill(self, symbol: str, values: NDArray[Any]) -> None:
        """Copy values to a `__constant__` or `__device__` array of the code."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        found = ctypes.byref(address), ctypes.byref(size)
        _call("cuModuleGetGlobal_v2", *found, self._module, symbol.encode())
        content = values.tobytes()
        _call("cuMemcpyHtoD_v2", address, content, ctypes.c_size_t(len(content)))

    def set_attribute(self, attribute: Any, value: int) -> None:
        """Set an attribute of the function (cuFuncSetAttribute)."""
        _call("cuFuncSetAttribute", self._function, ctypes.c_int(int(attribute)), value)

    def __call__(self, *arguments: bytes, grid: Dim3, block: Dim3, shared: int = 0) -> None:
        """Queue a launch on the default stream.

        Args:
            arguments: The bytes of each argument, in the kernel's order.
            grid: Blocks in x, y, z.
            block: Threads of a block in x, y, z.
            shared: Dynamic shared memory, bytes.
        """
        places = [ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p) for part in arguments]
        parameters = (ctypes.c_void_p * len(places))(*places)
        configuration = _Configuration(
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared, None
        )
        configuration.attributes = ctypes.cast(self._attributes, ctypes.POINTER(_Attribute))
        configuration.attribute_count = len(self._attributes)
        _call("cuLaunchKernelEx", ctypes.byref(configuration), self._function, parameters, None)


def _attributes(cooperative: bool, cluster: Dim3) -> ctypes.Array[_Attribute]:
    """The attributes of a launch."""
    values: dict[int, bytes] = {_COOPERATIVE: struct.pack("=I", 1)} if cooperative else {}
    if cluster != NO_CLUSTER:
        values[_CLUSTER_DIMENSION] = struct.pack("=3I", *cluster)
    attributes = (_Attribute * len(values))()
    for attribute, (number, value) in zip(attributes, values.items(), strict=True):
        attribute.id = number
        attribute.value[: len(value)] = value
    return attributes


def _call(name: str, *arguments: object) -> None:
    """Call the driver; its errors become PyCUDA's, which `translated_errors` knows.

    Raises:
        pycuda.driver.Error: The driver returns an error.
    """
    library = ctypes.CDLL(libcuda.LIBRARY)
    code = getattr(library, name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"").decode() or f"error {code}"
        raise gpu_driver.pycuda_driver().LogicError(f"{name} failed: {reason}")
