"""`memlab.inout` and `memlab.out`: arrays that a user kernel overwrites or writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.kernels.user import python_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.kernels.user.arguments import ArraySpecification


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
