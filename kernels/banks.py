"""Bank conflicts: reads of shared memory at a stride, and transposes with and without conflicts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, block_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays, Dim3

BANKS = 32
STRIDE_BLOCK = 1024
TRANSPOSE_TILE = 32
TRANSPOSE_BLOCK_ROWS = 8
STRIDE_PARAMETERS = (
    Parameter("n", "Words that are written", default=4194304),
    Parameter(
        "stride",
        "Words between the reads of neighboring threads",
        default=2,
        maximum=BANKS,
    ),
)
VECTORIZED_EDGE = 64
VECTORIZED_BLOCK = (16, 16, 1)  # a thread moves 4 elements of a row
TRANSPOSE_PARAMETERS = (
    Parameter("width", "Columns of the matrix", default=2048),
    Parameter("height", "Rows of the matrix", default_text="the width"),
)


def launch_bank_stride(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the reads of shared memory at a stride, which is at most the number of banks."""
    n, stride = values["n"], values["stride"]
    return kernel.launch(
        {"n": n, "stride": stride},
        grid=(block_count(n, STRIDE_BLOCK), 1, 1),
        block=(STRIDE_BLOCK, 1, 1),
        arguments=(
            Buffer("a", (n,), "float32", "in"),
            Buffer("b", (n,), "float32", "out"),
            Scalar("n", "int32", n),
            Scalar("stride", "int32", stride),
        ),
        flop=0,
        reference=partial(_read_at_stride, stride=stride),
        tolerance=0.0,
    )


def launch_transpose(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch a transpose: 32 x 8 threads per square of 32 x 32 elements."""
    return _launch_transpose(
        kernel, values, TRANSPOSE_TILE, (TRANSPOSE_TILE, TRANSPOSE_BLOCK_ROWS, 1)
    )


def launch_transpose_vectorized(
    kernel: Kernel, values: Mapping[str, Any], limits: Limits
) -> Launch:
    """Launch a transpose: 16 x 16 threads per square of 64 x 64 elements."""
    return _launch_transpose(kernel, values, VECTORIZED_EDGE, VECTORIZED_BLOCK)


def _launch_transpose(kernel: Kernel, values: Mapping[str, Any], edge: int, block: Dim3) -> Launch:
    width = values["width"]
    height = values["height"] or width
    return kernel.launch(
        {"width": width} if width == height else {"width": width, "height": height},
        grid=(block_count(width, edge), block_count(height, edge), 1),
        block=block,
        arguments=(
            Buffer("a", (height, width), "float32", "in"),
            Buffer("b", (width, height), "float32", "out"),
            Scalar("width", "int32", width),
            Scalar("height", "int32", height),
        ),
        flop=0,
        reference=_transposed,
        tolerance=0.0,
    )


def _read_at_stride(
    inputs: Arrays, flat_index: NDArray[np.int64], stride: int
) -> NDArray[np.float64]:
    import numpy as np

    n = inputs["a"].size
    block, thread = np.divmod(flat_index, STRIDE_BLOCK)
    warp = thread // BANKS
    word = block * STRIDE_BLOCK + (thread * stride + warp * stride // BANKS) % STRIDE_BLOCK
    read: NDArray[np.float64] = inputs["a"][np.minimum(word, n - 1)].astype(np.float64)
    return np.where(word < n, read, 0.0)


def _transposed(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    height, _ = inputs["a"].shape
    turned: NDArray[np.float64] = inputs["a"][flat_index % height, flat_index // height].astype(
        "float64"
    )
    return turned
