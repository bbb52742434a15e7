"""Coalescing: six patterns in which a warp reads 32 words of 4 bytes, and one of 16 bytes each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, Uniform, block_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

    Indices = NDArray[np.int64]

WARP_THREADS = 32
BLOCK = 256
WORD_BYTES = 4
WORDS_PER_THREAD = 4  # of the copy by 16 bytes
LOAD_INTRINSICS = {"all": "__ldca", "global": "__ldcg"}
"""The cache levels that keep loaded data, and the intrinsic that selects them (CUDA C++ Programming
Guide, "Load Functions Using Cache Hints")."""
WORDS_PARAMETER = Parameter("n", "Words that are written", default=4194304)
PARAMETERS = (
    WORDS_PARAMETER,
    Parameter(
        "cache",
        "Caches that keep loaded data: all, or global (L2 only)",
        default="all",
        choices=tuple(LOAD_INTRINSICS),
    ),
)
OFFSET_PARAMETER = Parameter(
    "offset",
    "Words from the start of a line to the first read",
    default=30,
    minimum=0,
    maximum=WARP_THREADS - 1,
)
STRIDE_PARAMETER = Parameter(
    "stride",
    "Words between the reads of neighboring threads",
    default=2,
    maximum=65536,
)


def launch_aligned(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy in which thread i reads word i."""
    return _launch(kernel, values, words=values["n"], position=_identity)


def launch_vectorized(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy in which a thread moves four words at once."""
    n = values["n"]
    return kernel.launch(
        {"n": n},
        grid=(block_count(n, BLOCK * WORDS_PER_THREAD), 1, 1),
        block=(BLOCK, 1, 1),
        arguments=(
            Buffer("a", (n,), "float32", "in"),
            Buffer("b", (n,), "float32", "out"),
            Scalar("n", "int32", n),
        ),
        flop=0,
        reference=partial(_copied, position=_identity),
        tolerance=0.0,
    )


def launch_permuted(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy that reads the words of a line in another order."""
    # The last warp may read any word of its line.
    words = block_count(values["n"], WARP_THREADS) * WARP_THREADS
    return _launch(kernel, values, words, position=_permuted_in_line)


def launch_misaligned(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy whose reads start inside a line."""
    offset = values["offset"]
    position = partial(_shifted, offset=offset)
    return _launch(
        kernel, values, values["n"] + offset, position, Scalar("offset", "int32", offset)
    )


def launch_broadcast(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy in which a warp reads one word."""
    launch = _launch(kernel, values, words=values["n"], position=_line_start)
    lines = block_count(values["n"], WARP_THREADS)  # all words are written, one per line is read
    return replace(launch, compulsory_bytes=(values["n"] + lines) * WORD_BYTES)


def launch_strided(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy of every stride-th word."""
    stride = values["stride"]
    position = partial(_strided, stride=stride)
    return _launch(
        kernel, values, values["n"] * stride, position, Scalar("stride", "int32", stride)
    )


def launch_scattered(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy that reads at the positions in an array of random indices."""
    n = values["n"]
    launch = _launch(kernel, values, words=n, position=_identity)
    a, *rest = launch.arguments
    index = Buffer("index", (n,), "int32", "in", Uniform(0, n))
    return replace(
        launch,
        arguments=(a, index, *rest),
        compulsory_bytes=3 * n * WORD_BYTES,
        references={"b": _gathered},
    )


def _launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    words: int,
    position: Callable[[Indices], Indices],
    *scalars: Scalar,
) -> Launch:
    """Make the launch of a copy b[i] = a[position(i)], where a has so many words."""
    n = values["n"]
    return kernel.launch(
        dict(values),
        grid=(block_count(n, BLOCK), 1, 1),
        block=(BLOCK, 1, 1),
        arguments=(
            Buffer("a", (words,), "float32", "in"),
            Buffer("b", (n,), "float32", "out"),
            Scalar("n", "int32", n),
            *scalars,
        ),
        flop=0,
        compulsory_bytes=2 * n * WORD_BYTES,
        reference=partial(_copied, position=position),
        tolerance=0.0,
        defines={"LOAD": LOAD_INTRINSICS[values["cache"]]},
    )


def _copied(
    inputs: Arrays, flat_index: Indices, position: Callable[[Indices], Indices]
) -> NDArray[np.float64]:
    return inputs["a"][position(flat_index)].astype("float64")


def _gathered(inputs: Arrays, flat_index: Indices) -> NDArray[np.float64]:
    gathered: NDArray[np.float64] = inputs["a"][inputs["index"][flat_index]].astype("float64")
    return gathered


def _identity(index: Indices) -> Indices:
    return index


def _permuted_in_line(index: Indices) -> Indices:
    return index // WARP_THREADS * WARP_THREADS + 7 * index % WARP_THREADS


def _shifted(index: Indices, offset: int) -> Indices:
    return index + offset


def _line_start(index: Indices) -> Indices:
    return index // WARP_THREADS * WARP_THREADS


def _strided(index: Indices, stride: int) -> Indices:
    return index * stride
