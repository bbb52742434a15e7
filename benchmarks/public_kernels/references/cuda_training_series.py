"""References of the kernels of cuda-training-series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
THREADS = 256
BLOCKS = 640


def kernel_d(x: Array, y: Array) -> None:
    """Add twice x to y."""
    y[:] = 2.0 * x + y


def stencil_1d(data: Array, out: Array) -> None:
    """Sum seven elements around each one that has three on either side."""
    out[3:-3] = sum(data[shift : data.size - 6 + shift].astype(int) for shift in range(7))


def row_sums(a: Array, sums: Array, size: int) -> None:
    """Sum each row."""
    sums[:] = a.reshape(size, size).sum(1, dtype=float)


def column_sums(a: Array, sums: Array, size: int) -> None:
    """Sum each column."""
    sums[:] = a.reshape(size, size).sum(0, dtype=float)


def reduce_blocks(data: Array, out: Array, count: int) -> None:
    """Sum what each block reads at strides of the grid."""
    whole = count // (BLOCKS * THREADS) * BLOCKS * THREADS
    sums = data[:whole].reshape(-1, BLOCKS, THREADS).sum((0, 2), dtype=float)
    rest = np.zeros(BLOCKS * THREADS)
    rest[: count - whole] = data[whole:count]
    out[:BLOCKS] = sums + rest.reshape(BLOCKS, THREADS).sum(1)


def reduce_a(data: Array, out: Array) -> None:
    """Add the sum of all elements."""
    out += data.sum(dtype=float)
