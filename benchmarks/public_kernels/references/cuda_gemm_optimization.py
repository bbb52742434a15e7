"""The reference of the kernels of CUDA-GEMM-Optimization."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Matrix = NDArray[Any]


def gemm(
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: Matrix,
    lda: int,
    b: Matrix,
    ldb: int,
    beta: float,
    c: Matrix,
    ldc: int,
) -> None:
    """Replace C by alpha A B plus beta C; the rows lie `lda`, `ldb` and `ldc` elements apart."""
    left = a.reshape(m, lda)[:, :k].astype(float)
    right = b.reshape(k, ldb)[:, :n].astype(float)
    rows = c.reshape(m, ldc)
    rows[:, :n] = float(alpha) * (left @ right) + float(beta) * rows[:, :n].astype(float)
