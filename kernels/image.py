"""Image blur, the lessons' first example of a ratio of arithmetic to memory accesses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, block_count
from memlab.kernels.matmul import inner_product_tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays, Dim3

FLOAT_BYTES = 4
BLOCK = (16, 16, 1)
TILED_BLOCK = (32, 8, 1)  # a warp is one row of the tile, whose words are in different banks
VECTORIZED_BLOCK = (32, 4, 1)
PIXELS_PER_THREAD = (4, 4, 1)
MAX_SHUFFLED_RADIUS = 4  # a neighbor in the warp has four pixels of a row
_EXTENT_PARAMETERS = (
    Parameter("width", "Columns of the image", default=2048),
    Parameter("height", "Rows of the image", default=2048),
)
_RADIUS_TEXT = "Pixels averaged to each side"
PARAMETERS = (
    *_EXTENT_PARAMETERS,
    Parameter(
        "radius", _RADIUS_TEXT, default=1, minimum=0, accepts="0 to the image's smaller side"
    ),
)
VECTORIZED_PARAMETERS = (
    *_EXTENT_PARAMETERS,
    Parameter("radius", _RADIUS_TEXT, default=1, minimum=0, maximum=MAX_SHUFFLED_RADIUS),
)


def launch_blur(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the blur that reads every pixel from global memory.

    Raises:
        UsageError: The radius is larger than the image.
    """
    return _launch(kernel, values, BLOCK)


def launch_blur_tiled(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the blur that stages a tile with its border in static shared memory.

    Raises:
        UsageError: The radius is larger than the image, or the tile larger than shared memory.
    """
    radius, available = values["radius"], limits.max_shared_memory_per_block_bytes
    needed = _tile_bytes(radius)
    if needed > available:
        widest = next(
            candidate for candidate in range(radius, -1, -1) if _tile_bytes(candidate) <= available
        )
        columns, rows = (extent + 2 * radius for extent in TILED_BLOCK[:2])
        raise UsageError(
            f"radius {radius} needs {columns} x {rows} x {FLOAT_BYTES} = {needed} bytes of shared "
            f"memory per block; {limits.name} allows {available}: use --radius {widest} or less"
        )
    return _launch(kernel, values, TILED_BLOCK)


def launch_blur_vectorized(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the blur whose threads average 4 x 4 pixels in registers.

    Raises:
        UsageError: The radius is larger than the image.
    """
    return _launch(kernel, values, VECTORIZED_BLOCK, PIXELS_PER_THREAD)


def blur_reference(
    inputs: Arrays, flat_index: NDArray[np.int64], radius: int
) -> NDArray[np.float64]:
    """Compute the blurred image at some positions: the mean of the pixels within the radius.

    It uses a summed-area table (Crow, "Summed-Area Tables for Texture Mapping", SIGGRAPH 1984),
    whose sums are exact: random float32 inputs in [0, 1) are multiples of 2**-24.

    Args:
        inputs: `in` of shape (height, width).
        flat_index: Row-major positions, any shape.
        radius: Pixels to each side.

    Returns:
        The means, in the shape of `flat_index`.
    """
    import numpy as np

    image = inputs["in"]
    height, width = image.shape
    table = np.zeros((height + 1, width + 1))
    np.cumsum(image, axis=0, dtype=np.float64, out=table[1:, 1:])
    np.cumsum(table[1:, 1:], axis=1, out=table[1:, 1:])
    row, column = np.divmod(flat_index, width)
    top, bottom = np.maximum(row - radius, 0), np.minimum(row + radius + 1, height)
    left, right = np.maximum(column - radius, 0), np.minimum(column + radius + 1, width)
    total = table[bottom, right] - table[top, right] - table[bottom, left] + table[top, left]
    mean: NDArray[np.float64] = total / ((bottom - top) * (right - left))
    return mean


def _neighbor_count(extent: int, radius: int) -> int:
    """Count the pairs of positions on an axis of `extent` that are at most `radius` apart."""
    beyond = min(radius, extent - 1)
    return extent * (2 * beyond + 1) - beyond * (beyond + 1)


def _tile_bytes(radius: int) -> int:
    columns, rows, _ = TILED_BLOCK
    return (columns + 2 * radius) * (rows + 2 * radius) * FLOAT_BYTES


def _launch(
    kernel: Kernel, values: Mapping[str, Any], block: Dim3, pixels: Dim3 = (1, 1, 1)
) -> Launch:
    """Make the launch of blocks whose threads compute so many pixels in x and y."""
    width, height, radius = values["width"], values["height"], values["radius"]
    if radius > min(width, height):
        raise UsageError(
            f"radius {radius} is larger than the image of {width} x {height}: "
            f"use --radius {min(width, height)} or less"
        )
    additions = _neighbor_count(width, radius) * _neighbor_count(height, radius)
    return kernel.launch(
        {"width": width, "height": height, "radius": radius},
        grid=(
            block_count(width, block[0] * pixels[0]),
            block_count(height, block[1] * pixels[1]),
            1,
        ),
        block=block,
        arguments=(
            Buffer("in", (height, width), "float32", "in"),
            Buffer("out", (height, width), "float32", "out"),
            Scalar("width", "int32", width),
            Scalar("height", "int32", height),
        ),
        flop=additions + width * height,  # per output, an addition per neighbor and a division
        reference=partial(blur_reference, radius=radius),
        tolerance=inner_product_tolerance((2 * radius + 1) ** 2),
        defines={"RADIUS": str(radius)},
    )
