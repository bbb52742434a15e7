"""Coalescing: six ways in which the threads of a warp read 32 words of 4 bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Launch, Scalar, Uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

    Indices = NDArray[np.int64]

WARP_THREADS = 32
BLOCK = 256
WORD_BYTES = 4
LOAD_INTRINSICS = {"all": "__ldca", "global": "__ldcg"}
"""Where loads are cached, and the intrinsic that says so (CUDA C++ Programming Guide, "Load
Functions Using Cache Hints")."""
PARAMETERS = (
    Parameter("n", "Words that are written", default=4194304),
    Parameter(
        "cache",
        "Levels that keep what is loaded: all, or global (L2 only)",
        default="all",
        choices=tuple(LOAD_INTRINSICS),
    ),
)
OFFSET_PARAMETER = Parameter(
    "offset",
    "Words by which reads are off a line of 32",
    default=30,
    minimum=0,
    maximum=WARP_THREADS - 1,
)
STRIDE_PARAMETER = Parameter(
    "stride",
    "Words from one thread's to the next one's",
    default=2,
    maximum=65536,
)


def launch_aligned(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy in which thread i reads word i."""
    return _launch(kernel, values, words=values["n"], position=_identity)


def launch_permuted(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy that reads the words of a line in another order."""
    whole_lines = (
        -(-values["n"] // WARP_THREADS) * WARP_THREADS
    )  # the last warp reads from all over its line
    return _launch(kernel, values, words=whole_lines, position=_permuted_in_line)


def launch_misaligned(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy that starts off a line's beginning."""
    offset = values["offset"]
    position = partial(_shifted, offset=offset)
    return _launch(
        kernel, values, values["n"] + offset, position, Scalar("offset", "int32", offset)
    )


def launch_broadcast(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy in which a warp reads one word."""
    launch = _launch(kernel, values, words=values["n"], position=_line_start)
    words = values["n"] + -(-values["n"] // WARP_THREADS)  # all are written, one in 32 is read
    return replace(launch, compulsory_bytes=words * WORD_BYTES)


def launch_strided(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy of every stride-th word."""
    stride = values["stride"]
    position = partial(_strided, stride=stride)
    return _launch(
        kernel, values, values["n"] * stride, position, Scalar("stride", "int32", stride)
    )


def launch_scattered(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the copy that reads where an array of random indices says."""
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
    """A copy b[i] = a[position(i)] of an array of so many words."""
    n = values["n"]
    return kernel.launch(
        dict(values),
        grid=(-(-n // BLOCK), 1, 1),
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
