"""References of the kernels of cuda-samples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def vote_any_kernel3(info: NDArray[np.bool_], warp_size: int) -> None:
    """Replace each thread's three values: any of its warp, itself, and all of its warp."""
    late = np.arange(info.size // 3) >= warp_size * 3 // 2
    warps = late.reshape(-1, warp_size)
    votes = info.reshape(-1, 3)
    votes[:, 0] = np.repeat(warps.any(axis=1), warp_size)
    votes[:, 1] = late
    votes[:, 2] |= np.repeat(warps.all(axis=1), warp_size)


def vector_add(a: Array, b: Array, c: Array, count: int) -> None:
    """Replace C by A plus B."""
    c[:count] = a[:count].astype(float) + b[:count]


def negate_array(values: Array, output: Array, count: int) -> None:
    """Replace the output by the negative values."""
    output[:count] = -values[:count]


def modulate_kernel(a: Array, b: Array, count: int) -> None:
    """Replace A by A times B over their length."""
    a[:count] = a[:count].astype(float) * b[:count] / count


def transpose_diagonal(output: Array, values: Array, width: int, height: int) -> None:
    """Replace the output by the transpose."""
    edge = math.isqrt(values.size)
    assert (edge, edge) == (width, height)
    output[:] = values.reshape(height, width).T.ravel()
