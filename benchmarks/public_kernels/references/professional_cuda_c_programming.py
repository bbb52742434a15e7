"""References of the kernels of professional-cuda-c-programming."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Integers = NDArray[np.int32]
REDUCTION_BLOCK = 512
POSITION_LIMIT = 200
TIME_STEP = 0.00001


def reduce_unrolled(values: Integers, sums: Integers, count: int) -> None:
    """Replace the sums by those of 8 x 512 elements, and the values by what the steps leave."""
    segments = values[:count].reshape(-1, 8, REDUCTION_BLOCK)
    head = segments[:, 0]
    head[:] = segments.sum(axis=1, dtype=np.int32)
    for step in (256, 128, 64):
        head[:, :step] += head[:, step : 2 * step]
    for step in (32, 16, 8, 4, 2, 1):
        head[:, :32] += head[:, step : step + 32].copy()
    sums[: len(head)] = head[:, 0]


def read_offset_unroll4(a: Array, b: Array, c: Array, count: int, offset: int) -> None:
    """Replace the first elements of C by A plus B, from an offset of 0."""
    assert offset == 0
    c[:count] = a[:count].astype(float) + b[:count]


def inner_array(data: Array, result: Array, n: int) -> None:
    """10 added to the first half of the structure, 20 to the second."""
    halves, found = data.reshape(2, -1), result.reshape(2, -1)
    found[:, :n] = halves[:, :n].astype(float) + np.array([[10], [20]])


def transpose_smem_unroll_pad(output: Array, values: Array, columns: int, rows: int) -> None:
    """Replace the output by the transpose."""
    output[:] = values.reshape(rows, columns).T.ravel()


def nbody_update_position(
    x: Array, y: Array, speed_x: Array, speed_y: Array, count: int, beyond: Integers
) -> None:
    """Move the positions by one time step, and note whether one is beyond the limit."""
    x[:count] = x[:count] + speed_x[:count] * TIME_STEP
    y[:count] = y[:count] + speed_y[:count] * TIME_STEP
    if np.hypot(x[:count].astype(float), y[:count]).max() > POSITION_LIMIT:
        beyond[0] = 1
