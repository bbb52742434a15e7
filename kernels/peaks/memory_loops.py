"""Micro-benchmarks of memory, and the list of all micro-benchmarks.

A micro-benchmark is a kernel in this folder with the work of one launch (bytes or FLOP) and the
expected output. There are two forms. A *stream* passes once through arrays much larger than any
cache. A *loop* repeats an operation on every multiprocessor for a given number of trips. The
machine code of all kernels was inspected; `docs/results/README.md` describes it.
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
"""Masks of `keep` in `common.cuh`: `KEEP_ALL` to verify results, `KEEP_NONE` to only compute."""


def benchmark_source(file: str) -> str:
    """The CUDA C++ text of a file in this folder, after that of `common.cuh`."""
    from importlib import resources

    folder = resources.files("memlab.kernels").joinpath("peaks")
    common, source = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("common.cuh", file)
    )
    return f'{common}\n#line 1 "{file}"\n{source}'


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
"""Streams that read, write, and do both: the copy and triad of STREAM (McCalpin 1995)."""

TRIAD_FACTOR = np.float32(3.0)

# cache.cu, shared.cu
CACHE_THREADS, _CACHE_UNROLL = 512, 8
CACHE_TILE_WORDS = CACHE_THREADS * _CACHE_UNROLL
_SHARED_WORDS = 2 * 1024
# On a GPU whose L2 has two parts, half of the L2 is near a multiprocessor.
_L2_OWN_SHARE, _L2_SHARED_SHARE = 0.45, 0.5
# constant.cu
_CONSTANT_WORDS, _CONSTANT_UNROLL = 256, 16
_CONSTANT_FOOTPRINT = 512  # bytes: the offsets of the last lane and trip stay within the table


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
    """A loop over constant memory; its work is the bytes that all lanes receive."""
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
"""The loops, for everything but DRAM, from memory to arithmetic."""

MINIMUM_COMPUTE_CAPABILITY = (8, 0)
"""The first compute capability with mma.sync of TF32 and BF16 (PTX ISA, mma)."""


def size_for_l2(loop: LoopBenchmark, multiprocessors: int, l2_bytes: int) -> LoopBenchmark:
    """Set the footprint of a loop to its share of a GPU's L2, in whole tiles.

    Args:
        loop: The loop; one without `l2_share` is returned unchanged.
        multiprocessors: The GPU's number of multiprocessors.
        l2_bytes: The size of the GPU's L2, bytes.
    """
    if loop.l2_share is None:
        return loop
    copies = multiprocessors * loop.blocks_per_sm if loop.own_data else 1
    tiles = max(1, int(loop.l2_share * l2_bytes / (copies * loop.work_per_trip)))
    words = tiles * CACHE_TILE_WORDS
    return replace(loop, footprint=words, inputs=_random_words(words))


def supported_loops(compute_capability: tuple[int, int]) -> tuple[LoopBenchmark, ...]:
    """The loops for which a GPU has the instructions."""
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
