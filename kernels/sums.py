"""Row sums and column sums: the same additions, first with uncoalesced, then coalesced reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, block_count
from memlab.kernels.matmul import inner_product_tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays, Dim3, Reference

BLOCK = 256
COLUMNS_PER_BLOCK = 64
COLUMN_BLOCK = (16, 64, 1)  # a thread adds 4 columns
PARAMETERS = (Parameter("width", "Rows and columns of the matrix", default=8192),)


def launch_row_sum(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along rows, one thread per row."""
    width = values["width"]
    return _launch(kernel, width, block_count(width, BLOCK), (BLOCK, 1, 1), _row_sums)


def launch_column_sum(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along columns, one thread per column."""
    width = values["width"]
    return _launch(kernel, width, block_count(width, BLOCK), (BLOCK, 1, 1), _column_sums)


def launch_row_sum_block(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along rows, one block per row."""
    return _launch(kernel, values["width"], values["width"], (BLOCK, 1, 1), _row_sums)


def launch_column_sum_block(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along columns, one block per 64 columns."""
    width = values["width"]
    blocks = block_count(width, COLUMNS_PER_BLOCK)
    return _launch(kernel, width, blocks, COLUMN_BLOCK, _column_sums)


def _row_sums(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = inputs["A"].sum(axis=1, dtype="float64")
    return sums[flat_index]


def _column_sums(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = inputs["A"].sum(axis=0, dtype="float64")
    return sums[flat_index]


def _launch(kernel: Kernel, width: int, blocks: int, block: Dim3, reference: Reference) -> Launch:
    return kernel.launch(
        {"width": width},
        grid=(blocks, 1, 1),
        block=block,
        arguments=(
            Buffer("A", (width, width), "float32", "in"),
            Buffer("sums", (width,), "float32", "out"),
            Scalar("width", "int32", width),
        ),
        flop=width * width,
        reference=reference,
        tolerance=inner_product_tolerance(width),
    )
