"""The reference of a kernel of BabelStream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BLOCKS, THREADS = 528, 1024


def dot_kernel(a: Array, b: Array, sums: Array, size: int) -> None:
    """Each block's part of the inner product of a and b, strided by the grid."""
    stride = BLOCKS * THREADS
    products = np.zeros(-(-size // stride) * stride)
    products[:size] = a * b
    sums[:] = products.reshape(-1, BLOCKS, THREADS).sum((0, 2))
