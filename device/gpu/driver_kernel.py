"""Kernels whose launches have attributes, through the driver's library: PyCUDA has none."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from memlab.device.gpu import driver as gpu_driver
from memlab.device.gpu import libcuda
from memlab.kernels.kernel import PORTABLE_CLUSTER_BLOCKS
from memlab.kernels.launch import NO_CLUSTER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.kernels.launch import Dim3

# cuda.h: CU_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
_PARAMETERS_END, _PARAMETERS_ADDRESS, _PARAMETERS_BYTES = 0, 1, 2
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
    """A kernel of cooperative launches or clusters, with the methods of PyCUDA's functions."""

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

    def __call__(self, *arguments: Any, grid: Dim3, block: Dim3, shared: int = 0) -> None:
        """Queue a launch on the default stream.

        Args:
            arguments: NumPy scalars and allocations, in the kernel's order.
            grid: Blocks in x, y, z.
            block: Threads of a block in x, y, z.
            shared: Dynamic shared memory, bytes.
        """
        content = _packed(arguments)
        size = ctypes.c_size_t(len(content))
        extra = (ctypes.c_void_p * 5)(
            _PARAMETERS_ADDRESS,
            ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p),
            _PARAMETERS_BYTES,
            ctypes.cast(ctypes.pointer(size), ctypes.c_void_p),
            _PARAMETERS_END,
        )
        configuration = _Configuration(
            (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared, None
        )
        configuration.attributes = ctypes.cast(self._attributes, ctypes.POINTER(_Attribute))
        configuration.attribute_count = len(self._attributes)
        _call("cuLaunchKernelEx", ctypes.byref(configuration), self._function, None, extra)


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


def _packed(arguments: Sequence[Any]) -> bytes:
    return b"".join(
        argument.tobytes() if hasattr(argument, "tobytes") else int(argument).to_bytes(8, "little")
        for argument in arguments
    )


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
