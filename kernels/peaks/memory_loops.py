"""The micro-benchmarks: what is launched to see how fast a device's parts really are.

Each is a kernel in `peaks/` with what one launch of it moves or computes, and how to tell from
its output that it did. There are two shapes. A *stream* goes once through arrays much larger than
any cache. A *loop* repeats one thing on every multiprocessor for as many trips as it is given.
Machine code was read for each; `docs/results/README.md` says what it holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.kernels.peaks.arithmetic_loops import ARITHMETIC_LOOPS
from memlab.kernels.peaks.records import (
    VECTOR_BYTES,
    ExpectedResult,
    InputGenerator,
    LoopBenchmark,
    StreamBenchmark,
)

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

KEEP_ALL = np.uint32(0)
KEEP_NONE = np.uint32(0xFFFFFFFF)
"""The mask of `keep` in `peaks/common.cuh`: verify a result, or only compute it."""


def benchmark_source(file: str) -> str:
    """Give the CUDA C++ text of a file in `peaks/`, with what they share in front."""
    from importlib import resources

    folder = resources.files("memlab.kernels").joinpath("peaks")
    shared, own = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("common.cuh", file)
    )
    return f'{shared}\n#line 1 "{file}"\n{own}'


STREAMS = (
    StreamBenchmark("dram_read", "DRAM read", "read", threads=256, words_per_block=2048, arrays=1),
    StreamBenchmark(
        "dram_write", "DRAM write", "write", threads=256, words_per_block=256, arrays=1
    ),
    StreamBenchmark("dram_copy", "DRAM copy", "copy", threads=128, words_per_block=128, arrays=2),
    StreamBenchmark(
        "dram_triad", "DRAM triad", "triad", threads=1024, words_per_block=1024, arrays=3
    ),
)
"""Reading, writing, and both: STREAM's copy and triad (McCalpin 1995)."""

TRIAD_FACTOR = np.float32(3.0)

# cache.cu, shared.cu
CACHE_THREADS, _CACHE_UNROLL = 512, 8
CACHE_TILE_WORDS = CACHE_THREADS * _CACHE_UNROLL
_SHARED_WORDS = 2 * 1024
# Half of the L2 is near a multiprocessor of a GPU that has it in two parts.
_L2_OWN_SHARE, _L2_SHARED_SHARE = 0.45, 0.5
# constant.cu
_CONSTANT_WORDS, _CONSTANT_UNROLL = 256, 16
_CONSTANT_FOOTPRINT = 512  # bytes: with the last lane's and trip's offset within the table


def _random_words(count: int) -> InputGenerator:
    def draw(generator: Generator) -> NDArray[Any]:
        return generator.integers(2**32, size=(count, 4), dtype=np.uint32)

    return draw


def _xor_reduce(data: NDArray[Any]) -> np.uint32:
    return np.uint32(np.bitwise_xor.reduce(data, axis=None))


def _zero_input(_: Generator) -> NDArray[Any]:
    return np.zeros(1, np.uint32)


def _constant_table() -> NDArray[np.uint32]:
    return ((np.arange(_CONSTANT_WORDS, dtype=np.uint32) * 109 + 57) % _CONSTANT_WORDS) * 4


def _expected_constants(lanes: int) -> ExpectedResult:
    def expected(_: NDArray[Any]) -> np.uint32:
        table = _constant_table()
        read = [table[lane : lane + _CONSTANT_UNROLL] for lane in range(lanes)]
        return np.uint32(np.bitwise_xor.reduce(np.concatenate(read)))

    return expected


def _cache_loop(
    limit: str, label: str, entry: str, l2_share: float | None = None, own_data: bool = False
) -> LoopBenchmark:
    return LoopBenchmark(
        key=f"{entry.removeprefix('read_')}_read",
        label=label,
        limit=limit,
        unit="B/s",
        source_file="cache.cu",
        entry=entry,
        threads=CACHE_THREADS,
        blocks_per_sm=1,
        work_per_trip=CACHE_TILE_WORDS * VECTOR_BYTES,
        footprint=CACHE_TILE_WORDS,
        inputs=_random_words(CACHE_TILE_WORDS),
        output="uint32",
        outputs_per_block=0,
        expected=lambda data: _xor_reduce(data[:CACHE_TILE_WORDS]),
        l2_share=l2_share,
        own_data=own_data,
    )


def _constant_loop(key: str, label: str, lanes: int) -> LoopBenchmark:
    """A lane's bytes count each for itself, as the threads receive them."""
    return LoopBenchmark(
        key=f"constant_{key}",
        label=label,
        limit="constant",
        unit="B/s",
        source_file="constant.cu",
        entry=f"constant_{key}",
        threads=1024,
        blocks_per_sm=2,
        work_per_trip=1024 * 4 * _CONSTANT_UNROLL,
        footprint=_CONSTANT_FOOTPRINT,
        inputs=_zero_input,
        output="uint32",
        outputs_per_block=0,
        expected=_expected_constants(lanes),
        verification_threads=lanes,
    )


LOOPS = (
    _cache_loop("l2", "L2 read, own lines", "read_l2", _L2_OWN_SHARE, own_data=True),
    _cache_loop("l2_shared", "L2 read, shared lines", "read_l2_shared", _L2_SHARED_SHARE),
    _cache_loop("l1", "L1 read", "read_l1"),
    LoopBenchmark(
        key="shared_read",
        label="Shared memory read",
        limit="shared",
        unit="B/s",
        source_file="shared.cu",
        entry="read_shared",
        threads=1024,
        blocks_per_sm=2,
        work_per_trip=_SHARED_WORDS * VECTOR_BYTES,
        footprint=_SHARED_WORDS,
        inputs=_random_words(_SHARED_WORDS),
        output="uint32",
        outputs_per_block=0,
        expected=_xor_reduce,
    ),
    _constant_loop("broadcast", "Constant, broadcast", lanes=1),
    _constant_loop("divergent", "Constant, divergent", lanes=32),
    *ARITHMETIC_LOOPS,
)
"""Everything but DRAM, from memory to arithmetic."""

MINIMUM_COMPUTE_CAPABILITY = (8, 0)
"""mma.sync with TF32 and BF16 needs it (PTX ISA, mma)."""


def size_for_l2(loop: LoopBenchmark, multiprocessors: int, l2_bytes: int) -> LoopBenchmark:
    """Give a loop the footprint that takes its share of a GPU's L2, in whole tiles.

    Args:
        loop: One without a share is given back as it is.
        multiprocessors: Of the GPU.
        l2_bytes: Of the GPU.
    """
    if loop.l2_share is None:
        return loop
    stretches = multiprocessors * loop.blocks_per_sm if loop.own_data else 1
    tiles = max(1, int(loop.l2_share * l2_bytes / (stretches * loop.work_per_trip)))
    words = tiles * CACHE_TILE_WORDS
    return replace(loop, footprint=words, inputs=_random_words(words))


def supported_loops(compute_capability: tuple[int, int]) -> tuple[LoopBenchmark, ...]:
    """Name the loops that a GPU has the instructions for."""
    return tuple(
        loop
        for loop in LOOPS
        if loop.architecture in (None, compute_capability)
        and (
            loop.source_file != "mma.cu"
            or loop.limit == "fp16"
            or compute_capability >= MINIMUM_COMPUTE_CAPABILITY
        )
    )
