"""References of the kernels of how-to-optim-algorithm-in-cuda."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ROWS_AT_ONCE = 4096


def product(x: Array, y: Array, _out: Array) -> Array:
    """The product, element by element."""
    return np.asarray(x.astype(float) * y.astype(float))


def matrix_vector(matrix: Array, x: Array, _y: Array, rows: int, columns: int) -> Array:
    """A matrix times a vector."""
    return np.asarray(matrix.reshape(rows, columns).astype(float) @ x.astype(float))


def uniform_rows(rows: Array, _batches: int, _heads: int, length: int, _scale: float) -> Array:
    """The reciprocal of the length, as the kernel takes a constant in place of its input."""
    return np.broadcast_to(1 / (length + 1e-6), rows.shape)


def softmax(loaded: tuple[Any, ...], _stored: Any, rows: int, columns: int) -> Array:
    """Softmax of each row, some rows at a time, for they take gigabytes."""
    values = loaded[0].reshape(rows, columns)
    result = np.empty(values.shape, values.dtype)
    for start in range(0, rows, ROWS_AT_ONCE):
        part = values[start : start + ROWS_AT_ONCE].astype(float)
        powers = np.exp(part - part.max(1, keepdims=True))
        result[start : start + ROWS_AT_ONCE] = powers / powers.sum(1, keepdims=True)
    return result.ravel()


def summed_parts(
    gains: Array,
    shifts: Array,
    _parts: int,
    _rows: int,
    _columns: int,
    gain: Array,
    shift: Array,
    _only_gain: bool,
) -> None:
    """The sums of the parts of the two gradients."""
    gain[:] = gains.astype(float).sum(0)
    shift[:] = shifts.astype(float).sum(0)


def parts_of_gradients(
    upper: Array,
    x: Array,
    rows: int,
    columns: int,
    mean: Array,
    scale: Array,
    _epsilon: float,
    _gamma: Array,
    _beta: Array,
    gains: Array,
    shifts: Array,
    _smallest: float,
    _only_gain: bool,
) -> None:
    """The gradients of gain and shift, summed in as many parts as the outputs have rows."""
    parts = (len(gains), -1, columns)
    gradient = upper.astype(float)
    normal = (x.astype(float) - mean[:, None]) * scale[:, None].astype(float)
    gains[:] = (gradient * normal).reshape(parts).sum(1)
    shifts[:] = gradient.reshape(parts).sum(1)
