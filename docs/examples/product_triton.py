"""The tiled matrix product of product.cu in Python, with Triton."""

import triton
import triton.language as tl


@triton.jit
def tiled(a, b, c, n, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Compute C = A B for square matrices whose width n is a multiple of TILE and DEPTH."""
    row = tl.program_id(1) * TILE + tl.arange(0, TILE)[:, None]
    column = tl.program_id(0) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, n, DEPTH):
        left = tl.load(a + row * n + start + tl.arange(0, DEPTH)[None, :])
        right = tl.load(b + (start + tl.arange(0, DEPTH)[:, None]) * n + column)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + row * n + column, total)
