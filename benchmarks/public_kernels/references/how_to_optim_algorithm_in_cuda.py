"""References of the kernels of how-to-optim-algorithm-in-cuda."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def product(x: Array, y: Array, _out: Array) -> Array:
    """The product, element by element."""
    return np.asarray(x.astype(float) * y.astype(float))


def matrix_vector(matrix: Array, x: Array, _y: Array, rows: int, columns: int) -> Array:
    """A matrix times a vector."""
    return np.asarray(matrix.reshape(rows, columns).astype(float) @ x.astype(float))


def uniform_rows(rows: Array, _batches: int, _heads: int, length: int, _scale: float) -> Array:
    """The reciprocal of the length, as the kernel takes a constant in place of its input."""
    return np.full(len(rows), 1 / (length + 1e-6))


def softmax(loaded: tuple[Any, ...], _stored: Any, rows: int, columns: int) -> Array:
    """Softmax of each row."""
    values = loaded[0].astype(float).reshape(rows, columns)
    powers = np.exp(values - values.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True)).ravel()
