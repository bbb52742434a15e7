# ruff: noqa: N803 - constants have upper case names, as is usual in Triton
"""Triton kernels of the kinds that Triton's tutorials teach, with their references in float64."""

import os

import pytest

if os.environ.get("MEMLAB_TRITON") != "required":
    pytest.importorskip("triton", reason="Triton is not installed")

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(z + at, total, mask=inside)


@triton.jit
def add_without_mask(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at) + tl.load(y + at)
    tl.store(z + at, total, mask=at < n)


@triton.jit
def double_by_descriptors(x, y, rows, columns, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    at = [tl.program_id(0) * DOWN, tl.program_id(1) * ACROSS]
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [DOWN, ACROSS])
    target = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [DOWN, ACROSS])
    target.store(at, source.load(at) * 2)


@triton.jit
def softmax(values, shares, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        here = row * columns + at
        line = tl.load(values + here, mask=at < columns, other=-float("inf"))
        powers = tl.exp(line - tl.max(line, axis=0))
        tl.store(shares + here, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def rectified(value):
    return tl.where(value > 0, value, 0.0)


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ACTIVATION: tl.constexpr = None,
):
    tiles = tl.cdiv(N, BN)
    row = tl.program_id(0) // tiles * BM + tl.arange(0, BM)
    column = tl.program_id(0) % tiles * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + depth
        left = tl.load(
            a + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0
        )
        right = tl.load(
            b + k[:, None] * N + column[None, :],
            mask=(k[:, None] < K) & (column[None, :] < N),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    if ACTIVATION is not None:
        total = ACTIVATION(total)
    tl.store(
        c + row[:, None] * N + column[None, :],
        total.to(c.dtype.element_ty),
        mask=(row[:, None] < M) & (column[None, :] < N),
    )


@triton.jit
def layer_norm(x, weight, bias, y, mean, inverse, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    center = tl.sum(total, axis=0) / columns
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        off = tl.where(at < columns, value - center, 0.0)
        squares += off * off
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + epsilon)
    tl.store(mean + row, center)
    tl.store(inverse + row, scale)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        value = tl.load(x + row * columns + at, mask=inside).to(tl.float32)
        factor = tl.load(weight + at, mask=inside)
        offset = tl.load(bias + at, mask=inside)
        tl.store(y + row * columns + at, (value - center) * scale * factor + offset, mask=inside)


@triton.jit
def bias_gradient(dy, partial, locks, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Adds rows to GROUPS partial sums, each under a lock, as a backward pass does."""
    row = tl.program_id(0)
    group = row % GROUPS
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(dy + row * columns + at, mask=inside, other=0.0)
    lock, used = locks + group, locks + GROUPS + group
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(used) == 0:
        tl.atomic_xchg(used, 1)
    else:
        value += tl.load(partial + group * columns + at, mask=inside)
    tl.store(partial + group * columns + at, value, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention(
    q,
    k,
    v,
    o,
    scale,
    N,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    head = tl.program_id(1) * N * D
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    width = tl.arange(0, D)
    query = tl.load(q + head + row[:, None] * D + width[None, :])
    largest = tl.full([BM], -float("inf"), tl.float32)
    norm = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    end = (tl.program_id(0) + 1) * BM if CAUSAL else N
    for start in range(0, end, BN):
        at = start + tl.arange(0, BN)
        keys = tl.load(k + head + at[None, :] * D + width[:, None])
        scores = tl.dot(query, keys) * (scale * 1.4426950408889634)
        if CAUSAL:
            scores = tl.where(row[:, None] >= at[None, :], scores, -1.0e6)
        highest = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - highest[:, None])
        shrink = tl.exp2(largest - highest)
        norm = norm * shrink + tl.sum(powers, 1)
        values = tl.load(v + head + at[:, None] * D + width[None, :])
        total = tl.dot(powers.to(values.dtype), values, total * shrink[:, None])
        largest = highest
    out = (total / norm[:, None]).to(o.dtype.element_ty)
    tl.store(o + head + row[:, None] * D + width[None, :], out)


@triton.jit
def scalars(out, flag, big, huge, wide: tl.float64, narrow: tl.float16, pair):
    total = flag.to(tl.float64) + big + huge.to(tl.float64) + wide + narrow
    tl.store(out, total + pair[0] * tl.load(pair[1]))


@triton.jit
def constant(y, shared: tl.constexpr):
    tl.store(y, shared)


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512) for warps in (2, 4)],
    key=["n"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(y + at, tl.load(x + at) + 1)
    else:
        tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def softmax_of(values: NDArray) -> NDArray[np.float64]:
    """The softmax of the last dimension."""
    wide = values.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@triton.jit
def product_of_bytes(a, b, c, IS_E4M3: tl.constexpr):
    row, column = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    kind: tl.constexpr = tl.float8e4nv if IS_E4M3 else tl.float8e5
    left = tl.load(a + row * 64 + column).to(kind, bitcast=True)
    right = tl.load(b + row * 64 + column).to(kind, bitcast=True)
    tl.store(c + row * 64 + column, tl.dot(left, right))
