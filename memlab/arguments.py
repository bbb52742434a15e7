"""What a launch takes from Python: arrays (`inout`, `out`, `offset`), and CUDA C++ text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.user.arguments import python_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.kernels.user.arguments.specifications import (
        ArraySpecification,
        Role,
        TensorMapSpecification,
    )
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


def offset(array: object, start: int) -> ArraySpecification:
    """Make an argument of a user kernel: a pointer to an element of an array, `array + start`.

    The kernel may use the whole array, also before this element, and an output is the whole array.

    Examples:
        field, result = memlab.offset(x, 3), memlab.offset(memlab.inout(y), 3)
        memlab.run("stencil.cu:stencil", grid=4, block=256, args=[field, result])

    Args:
        array: An array that the kernel reads, or the result of `memlab.inout` or `memlab.out`.
        start: The number of the element, row-major, from 0 on.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: It is no array, or has no such element.
    """
    return python_values.offset_argument(array, start)


def texture(
    array: object,
    *,
    filter: str | None = None,  # noqa: A002 - CUDA's word
    address: str | Sequence[str] | None = None,
    normalized: bool = False,
    normalized_float: bool = False,
    layered: bool = False,
    channels: int = 1,
) -> ArraySpecification:
    """Make an argument of a user kernel: a texture of an array, for a `cudaTextureObject_t`.

    Examples:
        image = memlab.texture(pixels, filter="linear", address="wrap", normalized=True)
        memlab.run("rotate.cu:rotate", grid=(32, 32), block=(16, 16), args=[image, ...])

    Args:
        array: A NumPy array of the shape (width,), (height, width) or (depth, height, width), or
            an object that NumPy converts.
        filter: `point` (the default) for the nearest element, `linear` to interpolate. One
            dimension without a filter, address mode, layers and normalized coordinates is linear
            memory, which `tex1Dfetch` reads; with one of these, it is a CUDA array for `tex1D`.
        address: What is read outside: `clamp` (the default), `wrap`, `mirror` or `border`; one for
            all dimensions, or one each for x, y and z.
        normalized: Whether coordinates go from 0 to 1 instead of from 0 to the extent.
        normalized_float: Whether integers are read as floats, from 0 or -1 to 1.
        layered: Whether the first extent counts layers.
        channels: Numbers of an element: 1, 2 or 4; if several, they are the array's last extent.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: There is no such texture.
    """
    return python_values.texture_argument(
        array,
        filter=filter,
        address=address,
        normalized=normalized,
        normalized_float=normalized_float,
        layered=layered,
        channels=channels,
    )


def surface(
    array: object, *, layered: bool = False, channels: int = 1, role: Role = "inout"
) -> ArraySpecification:
    """Make an argument of a user kernel: a surface of an array, for a `cudaSurfaceObject_t`.

    Examples:
        memlab.run("blur.cu:blur", grid=4, block=64, args=[memlab.surface(memlab.out(256, "f32"))])

    Args:
        array: An array as of a texture, or the result of `memlab.out`.
        layered: Whether the first extent counts layers.
        channels: Numbers of an element: 1, 2 or 4; if several, they are the array's last extent.
        role: `in` if the kernel only reads an array, `inout` if it also writes it.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: There is no such surface.
    """
    return python_values.surface_argument(array, role, layered=layered, channels=channels)


def tensor_map(
    array: object,
    box: Sequence[int],
    *,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    step: Sequence[int] | None = None,
    swizzle: int = 0,
    interleave: int = 0,
    promote: int = 0,
    fill: str = "zeros",
    conversion: str = "",
    lower: Sequence[int] | None = None,
    upper: Sequence[int] | None = None,
    role: Role = "in",
) -> TensorMapSpecification:
    """Make an argument of a user kernel: a tensor map, for a `const __grid_constant__ CUtensorMap`.

    Tuples are in the order of NumPy's shape, the slowest dimension first. The coordinates in the
    kernel are in the opposite order. For a `const CUtensorMap *` the map lies in global memory, and
    a list gives it several; in a tuple it is a member of a structure; and in `constants` it is the
    value of a `__constant__ CUtensorMap`.

    Examples:
        left = memlab.tensor_map(a, box=(128, 64), swizzle=128)
        memlab.run("gemm.cu:gemm", grid=(32, 32), block=128, args=[left, ...])

    Args:
        array: A NumPy array of 1 to 5 dimensions or an object that NumPy converts, the result of
            `memlab.inout` or `memlab.out`, or `@NAME` for the array of another argument.
        box: The elements that a copy spans in each dimension; of im2col, its pixels and channels.
        shape: The tensor's extents, where they differ from the array's.
        strides: The bytes between elements of each dimension but the last, where they differ from
            those of the shape.
        step: Of so many elements along each dimension, one is copied.
        swizzle: The span in bytes within which pieces of 16 bytes are exchanged: 32, 64 or 128.
        interleave: The bytes of a slice of channels: 16 or 32. The array has the dimensions
            (N, C / 8, H, W, 8), the last a slice, and the tensor all but this, whose slices the
            others count; a copy has one slice of each pixel (`memlab help arguments`).
        promote: The bytes that the L2 fetches at least: 64, 128 or 256.
        fill: What lies outside the tensor: `zeros` or `nan`.
        conversion: Of float32 elements: `tf32`, `ftz` or `tf32-ftz`.
        lower: In the mode im2col, the lower corner of the pixels.
        upper: Their upper corner.
        role: `in` if the kernel only reads an array, `inout` if it also writes it.

    Returns:
        The argument, for `args` of `memlab.run` and the other functions that take a kernel.

    Raises:
        UsageError: There is no such tensor map.
    """
    sizes = {"swizzle": swizzle, "interleave": interleave, "promote": promote}
    words = [f"{word}{size}" for word, size in sizes.items() if size]
    words += [word for word in (fill, conversion) if word not in ("", "zeros")]
    options = {"strides": strides, "step": step, "lower": lower, "upper": upper}
    return python_values.tensor_map_argument(
        array, box, role=role, shape=shape, options=options, words=words
    )


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
