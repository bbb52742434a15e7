"""Attention: O = softmax(Q K^T / sqrt(d)) V for each head, as a ladder of kernels.

Q, K, V and O are heads x tokens x d, row-major; d is the size of a head. `heads` counts those of
all sequences of a batch. The first three kernels are one attention together: each takes what the
one before gives, as random numbers of the same kind.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.kernel import Kernel, Limits, Parameter, require_capability, require_wgmma
from memlab.kernels.launch import (
    Argument,
    Buffer,
    Launch,
    Scalar,
    TensorBox,
    TensorMap,
    Uniform,
    block_count,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays, Dim3

HEAD_SIZES = (64, 128)
PARAMETERS = (
    Parameter("tokens", "Tokens of a sequence", default=1024),
    Parameter("heads", "Heads of all sequences of the batch", default=8),
    Parameter("head_size", "Columns of a head", default=64, accepts="64 or 128"),
    Parameter("causal", "Whether a token sees no later one", default="no", choices=("no", "yes")),
)

# As in the sources.
TILE = 16  # of the products in three kernels
SOFTMAX_THREADS = 256
QUERIES, KEYS = 64, 64  # of a block, of a tile
TILED_THREADS = 256
ROW_PADDING = 4  # floats after each row of a tile
MMA_THREADS = 128
WGMMA_CONSUMERS = {64: 3, 128: 2}  # warpgroups of 64 queries that multiply, by the head size
WGMMA_KEYS, WGMMA_STAGES = 128, 2
WARPGROUP_THREADS = 128
PANEL_COLUMNS = 64  # 128 bytes, the widest span that is swizzled
SWIZZLE_BYTES, SWIZZLE_ALIGNMENT_BYTES = 128, 1024
L2_FETCH_BYTES = 256

INPUTS = Uniform(-3.0, 3.0)
"""Of Q and K, so that scores have a standard deviation of 3 and few keys dominate a row: then a key
left out, or seen too early, is no small error. V has the same, with both signs."""
SOFTMAX_FLOP = 4
"""FLOPs per score: a subtraction, an exponential, an addition and a product."""

_BF16_ROUNDOFF = 2.0**-8  # 8 bits of significand
_FP32_ROUNDOFF = 2.0**-24
_MAX_SCORES = 2**22  # that a reference computes at once: 32 MiB of float64


def launch_scores(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the first of three kernels, which writes all scores.

    Raises:
        UsageError: The head size is neither 64 nor 128.
    """
    heads, tokens, size, causal = _sizes(values)
    tiles = block_count(tokens, TILE)
    return _launch(
        kernel,
        values,
        grid=(tiles, tiles, heads),
        block=(TILE, TILE, 1),
        arrays=(
            Buffer("Q", (heads, tokens, size), "float32", "in", INPUTS),
            Buffer("K", (heads, tokens, size), "float32", "in", INPUTS),
            Buffer("S", (heads, tokens, tokens), "float32", "out"),
        ),
        scale=1 / math.sqrt(size),
        flop_per_score=2 * size,
        reference=partial(scores_reference, causal=causal),
        tolerance=_inner_product_tolerance(size),
    )


def launch_softmax(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the second of three kernels, which makes weights of scores.

    Raises:
        UsageError: The head size is neither 64 nor 128.
    """
    heads, tokens, _, causal = _sizes(values)
    return _launch(
        kernel,
        values,
        grid=(tokens, heads, 1),
        block=(SOFTMAX_THREADS, 1, 1),
        arrays=(
            Buffer("S", (heads, tokens, tokens), "float32", "in", Uniform(-9.0, 9.0)),
            Buffer("P", (heads, tokens, tokens), "float32", "out"),
        ),
        flop_per_score=SOFTMAX_FLOP,
        reference=partial(softmax_reference, causal=causal),
        # A weight has the error of its exponent, a difference of up to 18, and of a sum.
        tolerance=(18 + 10 * math.sqrt(tokens)) * _FP32_ROUNDOFF,
    )


def launch_values(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the third of three kernels, which adds the weighted values.

    Raises:
        UsageError: The head size is neither 64 nor 128.
    """
    heads, tokens, size, causal = _sizes(values)
    return _launch(
        kernel,
        values,
        grid=(size // TILE, block_count(tokens, TILE), heads),
        block=(TILE, TILE, 1),
        arrays=(
            # The weights of a row add up to about one.
            Buffer("P", (heads, tokens, tokens), "float32", "in", Uniform(0.0, 2.0 / tokens)),
            Buffer("V", (heads, tokens, size), "float32", "in", INPUTS),
            Buffer("O", (heads, tokens, size), "float32", "out"),
        ),
        flop_per_score=2 * size,
        reference=partial(values_reference, causal=causal),
        tolerance=_inner_product_tolerance(tokens),
    )


def launch_tiled(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the one kernel in float32, with tiles in dynamic shared memory.

    Raises:
        UsageError: The head size is neither 64 nor 128, or the tiles do not fit in shared memory.
    """
    size = _sizes(values)[2]
    tiles = (QUERIES + KEYS) * (size + ROW_PADDING) + QUERIES * (KEYS + ROW_PADDING)
    shared_bytes = 4 * tiles
    allowed = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    if shared_bytes > allowed:
        smaller = "--head-size 64, or " if size > min(HEAD_SIZES) else ""
        raise UsageError(
            f"{kernel.name} with head size {size} needs {shared_bytes} bytes of shared memory per "
            f"block; {limits.name} allows {allowed}: use {smaller}another --device"
        )
    launch = _attention_launch(kernel, values, "float32", QUERIES, TILED_THREADS)
    return replace(launch, dynamic_shared_bytes=shared_bytes)


def launch_mma(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the one kernel on tensor cores, in BF16.

    Raises:
        UsageError: The head size is neither 64 nor 128, or the tensor cores have no BF16.
    """
    require_capability(kernel, limits, (8, 0), "mma.sync on BF16", "--device a100")
    return _attention_launch(kernel, values, "bfloat16", QUERIES, MMA_THREADS)


def launch_wgmma(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the one kernel of Hopper's warpgroups and tensor maps, in BF16.

    Raises:
        UsageError: The head size is neither 64 nor 128, or the device is not of compute
            capability 9.0, the only one with these products.
    """
    heads, tokens, size, _ = _sizes(values)
    require_wgmma(kernel, limits, "attention-mma, or --device h200")
    consumers = WGMMA_CONSUMERS[size]
    queries, shape = 64 * consumers, (heads, tokens, size)
    launch = _attention_launch(
        kernel,
        values,
        "bfloat16",
        queries,
        WARPGROUP_THREADS * (1 + consumers),
        tuple(
            TensorMap(
                f"{name}_map",
                Buffer(name, shape, "bfloat16", "in", INPUTS),
                "bfloat16",
                shape,
                TensorBox(
                    (1, rows, PANEL_COLUMNS),
                    swizzle_bytes=SWIZZLE_BYTES,
                    promotion_bytes=L2_FETCH_BYTES,
                ),
            )
            for name, rows in (("Q", queries), ("K", WGMMA_KEYS), ("V", WGMMA_KEYS))
        ),
    )
    rows = queries + 2 * WGMMA_STAGES * WGMMA_KEYS
    return replace(
        launch,
        defines={**launch.defines, "CONSUMERS": str(consumers)},
        dynamic_shared_bytes=2 * size * rows + SWIZZLE_ALIGNMENT_BYTES,
    )


def scores_reference(
    inputs: Arrays, flat_index: NDArray[np.int64], *, causal: bool
) -> NDArray[np.float64]:
    """Compute some scores in float64: the scaled products of queries and keys.

    Args:
        inputs: `Q` and `K` of shape (heads, tokens, head size).
        flat_index: Row-major positions in S, of shape (heads, tokens, tokens).
        causal: Whether the scores of later keys are minus infinity.

    Returns:
        The scores, in the shape of `flat_index`.
    """
    return _rows_reference(
        flat_index,
        inputs["K"].shape[1],
        inputs["K"].shape[1],
        lambda head, rows: _scores(inputs, head, rows, causal),
    )


def softmax_reference(
    inputs: Arrays, flat_index: NDArray[np.int64], *, causal: bool
) -> NDArray[np.float64]:
    """Compute some weights in float64: the softmax of rows of scores.

    Args:
        inputs: `S` of shape (heads, tokens, tokens).
        flat_index: Row-major positions in P, of the same shape.
        causal: Whether the weights of later keys are zero.

    Returns:
        The weights, in the shape of `flat_index`.
    """
    import numpy as np

    scores = inputs["S"]

    def weights(head: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        return _softmax(_hide_later(scores[head, rows].astype(np.float64), rows, causal, -np.inf))

    return _rows_reference(flat_index, scores.shape[1], scores.shape[1], weights)


def values_reference(
    inputs: Arrays, flat_index: NDArray[np.int64], *, causal: bool
) -> NDArray[np.float64]:
    """Compute some outputs in float64 from given weights.

    Args:
        inputs: `P` of shape (heads, tokens, tokens) and `V` of shape (heads, tokens, head size).
        flat_index: Row-major positions in O, of V's shape.
        causal: Whether the weights of later keys are ignored.

    Returns:
        The outputs, in the shape of `flat_index`.
    """
    import numpy as np

    weights, values = inputs["P"], inputs["V"]

    def outputs(head: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        visible = _hide_later(weights[head, rows].astype(np.float64), rows, causal, 0.0)
        weighted: NDArray[np.float64] = visible @ values[head].astype(np.float64)
        return weighted

    return _rows_reference(flat_index, values.shape[1], values.shape[2], outputs)


def attention_reference(
    inputs: Arrays, flat_index: NDArray[np.int64], *, causal: bool
) -> NDArray[np.float64]:
    """Compute some rows of attention in float64.

    Args:
        inputs: `Q`, `K` and `V` of shape (heads, tokens, head size), any float type.
        flat_index: Row-major positions in O, of the same shape.
        causal: Whether a token sees no later one.

    Returns:
        The outputs, in the shape of `flat_index`.
    """
    import numpy as np

    values = inputs["V"]

    def outputs(head: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        weights = _softmax(_scores(inputs, head, rows, causal))
        weighted: NDArray[np.float64] = weights @ values[head].astype(np.float64)
        return weighted

    return _rows_reference(flat_index, values.shape[1], values.shape[2], outputs)


def fp32_tolerance(tokens: int, size: int) -> float:
    """The tolerance of attention in float32, relative to the outputs' root mean square.

    A weight is off by the error of its score: that of an inner product, 10 sqrt(d) u (see
    `matmul.inner_product_tolerance`), times the sum of the absolute values of its terms, which is
    2.25 sqrt(d) on average for `INPUTS`. Sums over the tokens add 10 sqrt(n) u.
    """
    return 10 * (2.25 * size + math.sqrt(tokens)) * _FP32_ROUNDOFF


def bf16_tolerance() -> float:
    """The tolerance of attention with weights and outputs in BF16, relative as `fp32_tolerance`.

    Rounding an output costs u = 2**-8. The weights are rounded independently of each other, so by
    Hoeffding's inequality the error of an output is below 6 u times the root of its summed squared
    terms, with a probability of 1 - 2 exp(-18); that root is the output's standard deviation, for
    values of both signs. Errors of float32 are far smaller.
    """
    return 7 * _BF16_ROUNDOFF


def _sizes(values: Mapping[str, Any]) -> tuple[int, int, int, bool]:
    """The heads, the tokens, the head size, and whether causal.

    Raises:
        UsageError: The head size is neither 64 nor 128.
    """
    size = values["head_size"]
    if size not in HEAD_SIZES:
        raise UsageError(f"head-size must be 64 or 128, got {size}")
    return values["heads"], values["tokens"], size, values["causal"] == "yes"


def _attention_launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    dtype: str,
    queries: int,
    threads: int,
    inputs: tuple[Argument, ...] = (),
) -> Launch:
    """The launch of a kernel that computes all of attention, a block for so many queries.

    The kernel takes pointers to Q, K and V unless `inputs` are given.
    """
    heads, tokens, size, causal = _sizes(values)
    shape = (heads, tokens, size)
    fp32 = dtype == "float32"
    return _launch(
        kernel,
        values,
        grid=(block_count(tokens, queries), heads, 1),
        block=(threads, 1, 1),
        arrays=(
            *(inputs or (Buffer(name, shape, dtype, "in", INPUTS) for name in "QKV")),
            Buffer("O", shape, dtype, "out"),
        ),
        scale=math.log2(math.e) / math.sqrt(size),
        flop_per_score=4 * size,
        reference=partial(attention_reference, causal=causal),
        tolerance=fp32_tolerance(tokens, size) if fp32 else bf16_tolerance(),
    )


def _launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    *,
    grid: Dim3,
    block: Dim3,
    arrays: tuple[Argument, ...],
    flop_per_score: int,
    reference: Callable[..., NDArray[np.float64]],
    tolerance: float,
    scale: float | None = None,
) -> Launch:
    """A launch whose arguments are arrays, the number of tokens and, if there is one, a scale.

    Of a causal attention half the FLOPs count, as is usual, although the diagonal makes it
    (tokens + 1) / 2 keys per query.
    """
    heads, tokens, size, causal = _sizes(values)
    scalars = [Scalar("tokens", "int32", tokens)]
    if scale is not None:
        scalars.append(Scalar("scale", "float32", scale))
    launch = kernel.launch(
        {"tokens": tokens, "heads": heads, "head_size": size, "causal": values["causal"]},
        grid=grid,
        block=block,
        arguments=(*arrays, *scalars),
        flop=heads * tokens * tokens * flop_per_score // (2 if causal else 1),
        reference=reference,
        tolerance=tolerance,
        defines={"HEAD_SIZE": str(size), "CAUSAL": str(int(causal))},
    )
    return replace(launch, error_scale="rms")


def _inner_product_tolerance(terms: int) -> float:
    """The tolerance of a sum of products of both signs, relative to the root mean square.

    The sum of the absolute values of n terms is about sqrt(n) times the root mean square of the
    sum, and so is the bound of `matmul.inner_product_tolerance` for non-negative terms.
    """
    return 10 * terms * _FP32_ROUNDOFF


def _rows_reference(
    flat_index: NDArray[np.int64],
    tokens: int,
    width: int,
    compute: Callable[[int, NDArray[np.int64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """Elements of an output of shape (heads, tokens, width) by the rows that they are in.

    `compute(head, rows)` gives whole rows of a head; only those with a requested element are
    computed.
    """
    import numpy as np

    flat = np.ravel(flat_index)
    rows, row_of = np.unique(flat // width, return_inverse=True)
    order = np.argsort(row_of, kind="stable")
    ends = np.searchsorted(row_of[order], np.arange(len(rows) + 1))
    values = np.empty(len(flat))
    for first, last in _pieces(rows, tokens):
        head = int(rows[first]) // tokens
        computed = compute(head, rows[first:last] % tokens)
        chosen = order[ends[first] : ends[last]]
        values[chosen] = computed[row_of[chosen] - first, flat[chosen] % width]
    return values.reshape(np.shape(flat_index))


def _pieces(rows: NDArray[np.int64], tokens: int) -> Iterator[tuple[int, int]]:
    """Ranges of sorted rows that belong to one head each and are computed at once."""
    import numpy as np

    heads = rows // tokens
    bounds = [0, *(np.flatnonzero(np.diff(heads)) + 1).tolist(), len(rows)]
    step = max(1, _MAX_SCORES // tokens)
    for start, end in pairwise(bounds):
        for first in range(start, end, step):
            yield first, min(first + step, end)


def _scores(
    inputs: Arrays, head: int, rows: NDArray[np.int64], causal: bool
) -> NDArray[np.float64]:
    import numpy as np

    queries, keys = inputs["Q"][head, rows].astype(np.float64), inputs["K"][head]
    scores = queries @ keys.astype(np.float64).T / math.sqrt(keys.shape[1])
    return _hide_later(scores, rows, causal, -np.inf)


def _hide_later(
    values: NDArray[np.float64], rows: NDArray[np.int64], causal: bool, hidden: float
) -> NDArray[np.float64]:
    """Rows of a matrix of queries and keys, with `hidden` for the keys behind each query."""
    import numpy as np

    if not causal:
        return values
    return np.where(np.arange(values.shape[1]) <= rows[:, None], values, hidden)


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    normalized: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normalized
