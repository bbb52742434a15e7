"""Corner turning: a matrix product whose second operand is stored column by column."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.kernels import matmul
from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

# With the default of 32 a warp is a row of the block, which makes its accesses easy to follow.
COLUMN_MAJOR_TILE = Parameter(
    "tile", "Edge T of the block", default=32, accepts=matmul.TILE_RANGE_TEXT
)
CORNER_TURNING_TILE = Parameter(
    "tile", "Edge T of the two tiles, and of the block", default=32, accepts=matmul.TILE_RANGE_TEXT
)


def launch_column_major(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the product that reads N directly from global memory, uncoalesced.

    Raises:
        UsageError: The block would have more threads than the device allows.
    """
    return _with_n_column_major(matmul.launch_naive(kernel, values, limits))


def launch_corner_turning(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the product that reads tiles of N coalesced and transposes them in shared memory.

    Raises:
        UsageError: The tile needs more threads or shared memory than the device allows a block.
    """
    return _with_n_column_major(matmul.launch_tiled(kernel, values, limits))


def _with_n_column_major(launch: Launch) -> Launch:
    """Change a product's launch so that N is stored by columns, as an array of shape (n, k)."""
    arguments = tuple(
        replace(argument, shape=argument.shape[::-1])
        if isinstance(argument, Buffer) and argument.name == "N"
        else argument
        for argument in launch.arguments
    )
    return replace(
        launch, arguments=arguments, references={"P": _column_major_reference}, library=""
    )


def _column_major_reference(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return matmul.product_reference({"M": inputs["M"], "N": inputs["N"].T}, flat_index)
