"""The reference of the kernels of SGEMM_CUDA."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]


def sgemm(
    m: int, n: int, k: int, alpha: float, a: Matrix, b: Matrix, beta: float, c: Matrix
) -> None:
    """Replace C by alpha A B plus beta C."""
    product = a.reshape(m, k).astype(float) @ b.reshape(k, n).astype(float)
    c[:] = (alpha * product + beta * c.reshape(m, n).astype(float)).reshape(c.shape)
