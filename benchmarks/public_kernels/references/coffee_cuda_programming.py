"""References of the kernels of CoffeeBeforeArch's cuda_programming."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
MASK = 7
"""The edge of the convolution masks, whose elements are 0, 1, 2 and so on."""


def vector_add(a: Integers, b: Integers, c: Integers, size: int) -> None:
    """Add two vectors; integers wrap."""
    c[:size] = a[:size] + b[:size]


def matrix_mul(a: Integers, b: Integers, c: Integers, size: int) -> None:
    """Multiply two square matrices; integers wrap."""
    c[:] = (a.reshape(size, size) @ b.reshape(size, size)).ravel()


def sum_reduction_blocks(values: Integers, sums: Integers) -> None:
    """Sum each 256 elements."""
    parts = values.reshape(-1, 256).sum(1, dtype=np.int32)
    sums[: parts.size] = parts


def sum_reduction(total: Integers, values: Integers, size: int) -> None:
    """Add the sum of the elements; integers wrap."""
    total += values[:size].sum(dtype=np.int32)


def histogram(letters: NDArray[np.int8], counts: Integers, size: int) -> None:
    """Count the letters in groups of four."""
    counts += np.bincount((letters[:size].astype(int) - ord("a")) // 4, minlength=7).astype(
        np.int32
    )


def convolution_1d(padded: Integers, result: Integers, size: int) -> None:
    """Convolve an array that has margins."""
    windows = np.lib.stride_tricks.sliding_window_view(padded.astype(np.int64), MASK)
    result[:] = (windows[:size] @ np.arange(MASK)).astype(np.int32)


def convolution_2d(matrix: Integers, result: Integers, size: int) -> None:
    """Convolve a square matrix, with zeros beyond its margins."""
    padded = np.pad(matrix.reshape(size, size).astype(np.int64), MASK // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (MASK, MASK))
    mask = np.arange(MASK * MASK).reshape(MASK, MASK)
    result[:] = np.einsum("yxij,ij->yx", windows, mask).ravel().astype(np.int32)
