"""References of the kernels of polybench-gpu."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
EDGE = 2048


def mm2_kernel1(a: Array, b: Array, c: Array) -> None:
    """Replace C by A B plus C."""
    square = (EDGE, EDGE)
    c += (a.reshape(square).astype(float) @ b.reshape(square).astype(float)).ravel()


def gemm_kernel(a: Array, b: Array, c: Array) -> None:
    """Replace C by 32412 A B plus 2123 C."""
    square = (512, 512)
    product = a.reshape(square).astype(float) @ b.reshape(square).astype(float)
    c[:] = 32412 * product.ravel() + 2123 * c.astype(float)


def syr2k_kernel(a: Array, b: Array, c: Array) -> None:
    """Replace C by 12435 (A B' + B A') plus 4546 C."""
    one = a.reshape(EDGE, EDGE).astype(float) @ b.reshape(EDGE, EDGE).astype(float).T
    c[:] = 12435 * (one + one.T).ravel() + 4546 * c.astype(float)


def _convolution(a: Array) -> NDArray[np.float64]:
    """The 15 terms of the 3D convolution, for the inner elements of a cube."""
    cube = a.reshape(256, 256, 256).astype(float)

    def shifted(i: int, j: int, k: int) -> NDArray[np.float64]:
        return cube[1 + i : 255 + i, 1 + j : 255 + j, 1 + k : 255 + k]

    return (
        (2 + 5 - 8) * shifted(-1, -1, -1)
        + (4 + 7 + 10) * shifted(1, -1, -1)
        - 3 * shifted(0, -1, 0)
        + 6 * shifted(0, 0, 0)
        - 9 * shifted(0, 1, 0)
        + 2 * shifted(-1, -1, 1)
        + 4 * shifted(1, -1, 1)
        + 5 * shifted(-1, 0, 1)
        + 7 * shifted(1, 0, 1)
        - 8 * shifted(-1, 1, 1)
        + 10 * shifted(1, 1, 1)
    )


def convolution3d_kernel(a: Array, b: Array, plane: int) -> None:
    """Convolve one plane of the cube A into B."""
    b.reshape(256, 256, 256)[plane, 1:-1, 1:-1] = _convolution(a)[plane - 1]


def hmpp_conv3d(a: Array, b: Array) -> None:
    """Convolve the cube A into B, which ends with the last element that is written."""
    whole = np.zeros(256**3)
    whole[: b.size] = b
    whole.reshape(256, 256, 256)[1:-1, 1:-1, 1:-1] = _convolution(a)
    b[:] = whole[: b.size]


def fdtd_loop1(ey: Array, hz: Array) -> None:
    """Subtract half of the differences of hz between rows from ey, below its first row."""
    field = hz.reshape(EDGE, EDGE).astype(float)
    ey.reshape(-1, EDGE)[1:EDGE] -= 0.5 * (field[1:] - field[:-1])


def fdtd_loop2(ex: Array, hz: Array) -> None:
    """Subtract half of the differences of hz between columns from ex, within its margins.

    ex ends with the last element that is written.
    """
    field = hz.reshape(EDGE, EDGE).astype(float)
    whole = np.zeros(EDGE * (EDGE + 1))
    whole[: ex.size] = ex
    whole.reshape(EDGE, EDGE + 1)[:, 1:EDGE] -= 0.5 * (field[:, 1:] - field[:, :-1])
    ex[:] = whole[: ex.size]
