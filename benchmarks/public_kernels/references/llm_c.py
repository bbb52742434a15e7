"""References of the kernels of llm.c."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Half = NDArray[Any]
Integers = NDArray[np.int32]


def fp32_to_lowp_kernel(out: Half, inp: Array) -> None:
    """Round to bfloat16; elements behind the input keep their values."""
    out[: inp.size] = inp.astype(out.dtype)


def fused_classifier_kernel2(
    dlogits: Array,
    losses: Array,
    probs: None,
    logits: Array,
    dlosses: Array,
    targets: Integers,
    b: int,
    t: int,
    v: int,
    p: int,
) -> None:
    """The loss of each row and the gradient of its logits.

    Of the padding, only what completes the last group of four is written, with zeros.
    """
    for row in range(b * t):
        exact = _softmax(logits[row * p : row * p + v])
        losses[row] = -np.log(exact[targets[row]])
        exact[targets[row]] -= 1
        dlogits[row * p : row * p + v] = exact * float(dlosses[row])
        dlogits[row * p + v : row * p + (v + 3) // 4 * 4] = 0


def norm_kernel(out: Array, data: Half, count: int) -> None:
    """Add the sum of the squares to the first element."""
    out[0] += np.square(data[:count].astype(float)).sum()


def rstd_kernel(rstd: Array, inp: Array, mean: Array, n: int, c: int, block_size: int) -> None:
    """The reciprocal standard deviation of each row about the given mean."""
    deviations = inp.reshape(n, c).astype(float) - mean.astype(float)[:, None]
    rstd[:] = 1 / np.sqrt(np.square(deviations).mean(axis=1) + 1e-5)


def matmul_backward_bias_kernel7(
    dbias: Array, dout: Half, b: int, t: int, oc: int, block_size: int
) -> None:
    """Add the sum of each column."""
    dbias[:oc] += dout.reshape(b * t, oc).astype(float).sum(axis=0)


def softmax(out: Array, inp: Array, n: int, c: int) -> None:
    """The softmax of each row."""
    for row in range(n):
        out[row * c : (row + 1) * c] = _softmax(inp[row * c : (row + 1) * c])


def _softmax(row: Array) -> NDArray[np.float64]:
    """The softmax of a row."""
    powers = np.exp(row.astype(float) - float(row.max()))
    exact: NDArray[np.float64] = powers / powers.sum()
    return exact
