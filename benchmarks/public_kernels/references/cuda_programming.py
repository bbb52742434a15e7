"""References of the kernels of CUDA-Programming."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
THREADS = 128


def add2(x: Array, y: Array, z: Array, _count: int) -> None:
    """Add two vectors."""
    np.add(x, y, out=z)


def copy(a: Array, b: Array, _edge: int) -> None:
    """Copy a matrix."""
    b[:] = a


def reduce_global(x: Array, y: Array) -> None:
    """Halve each block of x until its sum stands in front."""
    blocks = x.reshape(-1, THREADS)
    half = THREADS // 2
    while half:
        blocks[:, :half] += blocks[:, half : 2 * half]
        half //= 2
    y[:] = blocks[:, 0]
