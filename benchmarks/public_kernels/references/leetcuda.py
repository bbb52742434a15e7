"""References of the kernels of LeetCUDA."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
EPSILON = 1e-5


def elu(x: Array, _y: Array, _count: int) -> Array:
    """The ELU activation with alpha 1."""
    values = x.astype(float)
    return np.where(values > 0, values, np.expm1(values))


def swish(x: Array, _y: Array, _count: int) -> Array:
    """The swish activation."""
    values = x.astype(float)
    return np.asarray(values / (1 + np.exp(-values)))


def gather_rows(indices: Array, table: Array, _out: Array, _count: int, width: int) -> Array:
    """The rows of the table that the indices name."""
    return np.asarray(table.reshape(-1, width)[indices.ravel()]).ravel()


def matrix_product(a: Array, b: Array, _c: Array, m: int, n: int, k: int) -> Array:
    """The product of two matrices."""
    return (a.reshape(m, k).astype(float) @ b.reshape(k, n).astype(float)).ravel()


def layer_norm(x: Array, _y: Array, gain: float, shift: float, rows: int, columns: int) -> Array:
    """Each row, normalized to a mean of zero and a variance of one."""
    values = x.astype(float).reshape(rows, columns)
    centred = values - values.mean(1, keepdims=True)
    variance = (centred**2).mean(1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + EPSILON) * gain + shift).ravel()


def rms_norm(x: Array, _y: Array, gain: float, rows: int, columns: int) -> Array:
    """Each row, divided by its root mean square."""
    values = x.astype(float).reshape(rows, columns)
    square = (values**2).mean(1, keepdims=True)
    return np.asarray(values / np.sqrt(square + EPSILON) * gain).ravel()


def transpose(x: Array, _y: Array, rows: int, columns: int) -> Array:
    """The transposed matrix."""
    return x.reshape(rows, columns).T.ravel()


def matrix_vector(matrix: Array, x: Array, _y: Array, rows: int, columns: int) -> Array:
    """A matrix times a vector."""
    return np.asarray(matrix.reshape(rows, columns).astype(float) @ x.ravel().astype(float))
