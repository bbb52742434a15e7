"""References of the kernels of cuda-course."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def vector_add(a: Array, b: Array, c: Array, _count: int) -> None:
    """Add two vectors."""
    np.add(a, b, out=c)


def vector_add_gpu_3d(a: Array, b: Array, c: Array, nx: int, ny: int, nz: int) -> None:
    """Add the first nx ny nz elements of two vectors."""
    count = nx * ny * nz
    np.add(a[:count], b[:count], out=c[:count])


def matrix_mul(a: Array, b: Array, c: Array, edge: int) -> None:
    """Multiply two square matrices."""
    matrix_multiply(a, b, c, edge, edge, edge)


def matrix_multiply(a: Array, b: Array, c: Array, rows: int, columns: int, inner: int) -> None:
    """Multiply two matrices."""
    product = a.reshape(rows, inner).astype(float) @ b.reshape(inner, columns).astype(float)
    c[:] = product.ravel()


def kernel1(data: Array, _count: int) -> None:
    """Double each element."""
    data *= 2


def naive_conv2d(
    image: Array,
    kernel: Array,
    output: Array,
    width: int,
    height: int,
    in_channels: int,
    out_channels: int,
    size: int,
    batch: int,
) -> None:
    """Correlate images with kernels; zeros surround the images."""
    half = size // 2
    padded = np.zeros((batch, in_channels, height + 2 * half, width + 2 * half))
    padded[:, :, half : half + height, half : half + width] = image.reshape(
        batch, in_channels, height, width
    )
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    weights = kernel.reshape(out_channels, in_channels, size, size).astype(float)
    output[:] = np.einsum("bcyxij,ocij->boyx", windows, weights).ravel()


def vector_add_hundredfold(a: Array, b: Array, c: Array, _count: int) -> None:
    """Add two vectors a hundred times over."""
    c[:] = 100 * (a.astype(float) + b)
