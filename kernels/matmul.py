"""Matrix multiplication, the common part of its kernels: P (m x n) = M (m x k) N (k x n)."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.blas import one_thread
from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, block_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays, Dim3

FLOAT_BYTES = 4
DEFAULT_WIDTH = 1024
_SMALL_PRODUCT = 2**27
"""Multiplications of a product that one thread computes: some 5 ms of it."""
SIZE_PARAMETERS = (
    Parameter("width", "Width of square matrices: sets m, k and n", default=DEFAULT_WIDTH),
    Parameter("m", "Rows of M and P", default_text="the width"),
    Parameter("k", "Columns of M and rows of N", default_text="the width"),
    Parameter("n", "Columns of N and P", default_text="the width"),
)
TILE_RANGE_TEXT = "1 to 32 where a block may have 1024 threads"
BLOCK_TILE = Parameter(
    "tile",
    "Edge T of the block",
    default=16,
    accepts=TILE_RANGE_TEXT,
)
STATIC_TILE = Parameter(
    "tile",
    "Edge T of the two tiles, and of the block",
    default=16,
    accepts=TILE_RANGE_TEXT,
)
DYNAMIC_TILE = Parameter(
    "tile",
    "Edge T of the two tiles, and of the block",
    default_text="the widest that fits",
    accepts=TILE_RANGE_TEXT,
)


def launch_naive(kernel: Kernel, values: Mapping[str, int | None], limits: Limits) -> Launch:
    """Launch the kernel without staging: one thread per element, square blocks.

    Raises:
        UsageError: The block would have more threads than the device allows.
    """
    tile = _fitting_tile(values["tile"], limits, shared_limit_bytes=None)
    return make_product_launch(kernel, values, tile)


def launch_tiled(kernel: Kernel, values: Mapping[str, int | None], limits: Limits) -> Launch:
    """Launch the kernel whose tile is fixed at compile time (`-DTILE`), in static shared memory.

    Raises:
        UsageError: The tile needs more threads or shared memory than the device allows per block.
    """
    tile = _fitting_tile(values["tile"], limits, limits.max_shared_memory_per_block_bytes)
    return make_product_launch(kernel, values, tile, defines={"TILE": str(tile)})


def launch_tiled_dynamic(
    kernel: Kernel, values: Mapping[str, int | None], limits: Limits
) -> Launch:
    """Launch the kernel whose tile is set at launch; by default the widest that fits the device.

    Dynamic shared memory may be as large as the device's opt-in limit.

    Raises:
        UsageError: The tile needs more threads or shared memory than the device allows per block.
    """
    shared_limit_bytes = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    tile = _fitting_tile(values["tile"], limits, shared_limit_bytes)
    return make_product_launch(kernel, values, tile, dynamic_shared_bytes=_shared_bytes(tile))


def make_product_launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    tile: int,
    *,
    columns: int | None = None,
    factors: str = "float32",
    block: Dim3 | None = None,
    other_parameters: Mapping[str, int] | None = None,
    defines: Mapping[str, str] | None = None,
    dynamic_shared_bytes: int = 0,
) -> Launch:
    """Make the launch of a matrix product whose blocks compute rectangles of P.

    Args:
        kernel: The kernel of the catalog.
        values: The checked parameters, of which `width`, `m`, `k` and `n` are used.
        tile: Rows of P per block.
        columns: Columns of P per block; None for as many as rows.
        factors: NumPy's name of the element type of M and N.
        block: Threads of a block; None for one thread per element of the tile.
        other_parameters: Parameters besides the sizes and the tile, with defaults filled in.
        defines: Preprocessor definitions, values by name.
        dynamic_shared_bytes: Size of the `extern __shared__` array, bytes.
    """
    width = values["width"] or DEFAULT_WIDTH
    m, k, n = (values[name] or width for name in ("m", "k", "n"))
    sizes = {"width": m} if m == k == n else {"m": m, "k": k, "n": n}
    launch = kernel.launch(
        {**sizes, "tile": tile, **(other_parameters or {})},
        grid=(block_count(n, columns or tile), block_count(m, tile), 1),
        block=block or (tile, tile, 1),
        arguments=(
            Buffer("M", (m, k), factors, "in"),
            Buffer("N", (k, n), factors, "in"),
            Buffer("P", (m, n), "float32", "out"),
            Scalar("m", "int32", m),
            Scalar("k", "int32", k),
            Scalar("n", "int32", n),
        ),
        flop=2 * m * n * k,
        reference=product_reference,
        tolerance=inner_product_tolerance(k),
        defines=defines,
        tile=tile,
    )
    return replace(launch, dynamic_shared_bytes=dynamic_shared_bytes, library="cublas")


def product_reference(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute some elements of the product in float64.

    Rows with the same columns, such as the rows of a block, are computed as one small matrix
    product, so the work is that of the requested elements alone.

    Args:
        inputs: `M` of shape (m, k) and `N` of shape (k, n), any float type.
        flat_index: Row-major positions in P, any order and shape, repeats allowed.

    Returns:
        The elements, in the shape of `flat_index`.
    """
    import numpy as np

    left, right = inputs["M"], inputs["N"]
    n = right.shape[1]
    positions, place = np.ravel(flat_index), None
    if not (positions[1:] > positions[:-1]).all():  # those of a whole array ascend
        positions, place = np.unique(positions, return_inverse=True)
    if len(positions) == len(left) * n:
        values = _product(left, right, slice(None), n).reshape(-1)
        return (values if place is None else values[place]).reshape(np.shape(flat_index))
    row_of, column = np.divmod(positions, n)
    first = np.flatnonzero(np.diff(row_of, prepend=-1))
    rows, is_used = row_of[first], np.zeros(n, np.bool_)
    is_used[column] = True
    columns, column_of = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[column]

    columns_of_row = np.split(column_of, first[1:])
    rows_by_columns: dict[bytes, list[int]] = {}
    for index in range(len(rows)):
        rows_by_columns.setdefault(columns_of_row[index].tobytes(), []).append(index)

    values = np.zeros(len(positions))
    for indices in rows_by_columns.values():
        chosen = columns[columns_of_row[indices[0]]]
        product = _product(left[rows[indices]], right, chosen, len(columns))
        values[first[indices][:, None] + np.arange(len(chosen))] = product
    return (values if place is None else values[place]).reshape(np.shape(flat_index))


def _product(
    left: NDArray[Any], right: NDArray[Any], chosen: NDArray[np.int64] | slice, columns: int
) -> NDArray[np.float64]:
    """Multiply by chosen columns of a matrix, in float64.

    The inputs are converted in slices of k, at most 64 MiB of `columns` columns at once.
    """
    import numpy as np

    total: Any = 0.0
    step = max(1, 2**23 // max(1, columns))
    for start in range(0, left.shape[1], step):
        depth = slice(start, start + step)
        selected = np.ascontiguousarray(right[depth][:, chosen].T, dtype=np.float64)
        factor = left[:, depth].astype(np.float64)
        small = len(factor) * selected.size <= _SMALL_PRODUCT
        with one_thread() if small else nullcontext():
            total = total + factor @ selected.T
    return np.asarray(total)


def inner_product_tolerance(k: int) -> float:
    """The tolerance of a float32 inner product of k terms: the largest relative rounding error.

    For non-negative inputs the relative error of a sum of k products is below
    lambda * sqrt(k) * u, u = 2**-24, with a probability that lambda = 10 makes practically 1:
    Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci.
    Comput. 41(5), 2019, theorem 3.1. (The worst case, k * u, would hide faults.)
    """
    return 10 * math.sqrt(k) * 2.0**-24


def _shared_bytes(tile: int) -> int:
    """Size of two square tiles of float32, bytes."""
    return 2 * tile * tile * FLOAT_BYTES


def _fitting_tile(tile: int | None, limits: Limits, shared_limit_bytes: int | None) -> int:
    """Check that the tile fits the device and return it; return the widest tile for None."""
    widest = math.isqrt(limits.max_threads_per_block)
    if shared_limit_bytes is not None:
        widest = min(widest, math.isqrt(shared_limit_bytes // _shared_bytes(1)))
    if tile is None:
        return widest
    if tile * tile > limits.max_threads_per_block:
        raise UsageError(
            f"tile {tile} needs {tile} x {tile} = {tile * tile} threads per block; "
            f"{limits.name} allows {limits.max_threads_per_block}: use --tile {widest} or less"
        )
    if shared_limit_bytes is not None and _shared_bytes(tile) > shared_limit_bytes:
        raise UsageError(
            f"tile {tile} needs 2 x {tile} x {tile} x 4 = {_shared_bytes(tile)} bytes of shared "
            f"memory per block; {limits.name} allows {shared_limit_bytes}: "
            f"use --tile {widest} or less"
        )
    return tile
