"""What a launch takes from Python: arrays (`inout`, `out`), and CUDA C++ text (`source`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.user import python_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.kernels.user.arguments import ArraySpecification
    from memlab.kernels.user.kernel import UserKernel


def inout(array: object) -> ArraySpecification:
    """Make an argument of a user kernel: an array that the kernel reads and overwrites.

    The kernel gets a copy; this array stays as it is.

    Examples:
        memlab.run("saxpy.cu:saxpy", grid=16, block=256, args=[2.0, x, memlab.inout(y), y.size])

    Args:
        array: A NumPy array, or an object that NumPy converts, in the kernel's shape and type.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: The array is empty, or of a type that kernels do not take.
    """
    return python_values.array_argument(array, "inout")


def out(shape: int | Sequence[int], dtype: object) -> ArraySpecification:
    """Make an argument of a user kernel: an array that the kernel only writes.

    Examples:
        memlab.run("shift.cu:shift", grid=2, block=64, args=[x, memlab.out(128, "f32"), 128])

    Args:
        shape: Elements in each dimension, row-major.
        dtype: NumPy's type or its name, or memlab's: `numpy.float32`, `float32`, `f32`.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: The array has no elements, or is of a type that kernels do not take.
    """
    return python_values.output_argument(shape, dtype)


def source(text: Any, entry: str = "", *, name: str = "source.cu") -> UserKernel:
    """Make a kernel of CUDA C++ in Python, for every function that takes a kernel.

    Examples:
        scale = memlab.source('extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= 2; }')
        memlab.run(scale, grid=1, block=32, args=[memlab.inout(x)]).outputs["x"]

    Args:
        text: The CUDA C++ text, or a `RawModule` of CuPy.
        entry: The kernel's C++ name, such as `scale` or `sgemm<32>`; empty for the only one.
        name: The name of the text in messages and reports, such as `scale.cu`. An `#include` in
            quotes is first looked up in its folder, which is the current one without a path.

    Returns:
        The kernel, for `memlab.run` and the other functions that take one.

    Raises:
        UsageError: One of them is no text, or there is no code.
    """
    from memlab.kernels.user.kernel import UserKernel

    if type(text).__module__.partition(".")[0] == "cupy":
        from memlab.kernels.python import cupy_kernels

        return cupy_kernels.of_module(text, entry)
    for value in (text, entry, name):
        if not isinstance(value, str):
            raise UsageError(
                "memlab.source takes CUDA C++ text or a RawModule of CuPy, got "
                f"{python_values.describe_type(value)}: give the text"
            )
    if not text.strip():
        raise UsageError("memlab.source has no code: give CUDA C++ text with a kernel")
    return UserKernel(name or "source.cu", entry, code=text)
