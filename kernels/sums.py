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

    from memlab.kernels.launch import Arrays, Reference

BLOCK = 256
PARAMETERS = (Parameter("width", "Rows and columns of the matrix", default=8192),)


def launch_row_sum(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along rows, one thread per row."""
    return _launch(kernel, values["width"], _row_sums)


def launch_column_sum(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the sums along columns, one thread per column."""
    return _launch(kernel, values["width"], _column_sums)


def _row_sums(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = inputs["A"].sum(axis=1, dtype="float64")
    return sums[flat_index]


def _column_sums(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = inputs["A"].sum(axis=0, dtype="float64")
    return sums[flat_index]


def _launch(kernel: Kernel, width: int, reference: Reference) -> Launch:
    return kernel.launch(
        {"width": width},
        grid=(block_count(width, BLOCK), 1, 1),
        block=(BLOCK, 1, 1),
        arguments=(
            Buffer("A", (width, width), "float32", "in"),
            Buffer("sums", (width,), "float32", "out"),
            Scalar("width", "int32", width),
        ),
        flop=width * width,
        reference=reference,
        tolerance=inner_product_tolerance(width),
    )
