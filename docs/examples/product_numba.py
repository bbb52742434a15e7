"""The tiled matrix product of product.cu in Python, with Numba."""

import numpy as np
from numba import cuda

TILE = 16


@cuda.jit
def tiled(a, b, c, n):
    """Compute C = A B for square matrices whose width n is a multiple of TILE."""
    left = cuda.shared.array((TILE, TILE), np.float32)
    right = cuda.shared.array((TILE, TILE), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.grid(2)
    total = np.float32(0)
    for step in range(n // TILE):
        left[ty, tx] = a[row, step * TILE + tx]
        right[ty, tx] = b[step * TILE + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[row, column] = total
