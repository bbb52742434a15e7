"""The micro-benchmarks: what is launched to see how fast a device's parts really are.

Each is a kernel in `peaks/` with what one launch of it moves or computes, and how to tell from
its output that it did. There are two shapes. A *stream* goes once through arrays much larger than
any cache. A *loop* repeats one thing on every multiprocessor for as many trips as it is given.
Machine code was read for each; `docs/results/README.md` says what it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

WORD_BYTES = 16
"""A thread's access: `uint4`."""

KEEP_ALL = np.uint32(0)
KEEP_NONE = np.uint32(0xFFFFFFFF)
"""The mask of `keep` in `peaks/common.cuh`: verify a result, or only compute it."""

Unit = Literal["B/s", "FLOP/s"]


@dataclass(frozen=True)
class Stream:
    """A pass over DRAM; `(out, in, other, mask, sink)`.

    Attributes:
        key: Its name in results.
        label: As a person reads it.
        entry: The kernel.
        threads: Of a block.
        words_per_block: Words of 16 bytes that a block takes of each array.
        arrays: How many arrays it touches.
    """

    key: str
    label: str
    entry: str
    threads: int
    words_per_block: int
    arrays: int

    source_file = "stream.cu"
    limit = "dram"
    unit: Unit = "B/s"

    @property
    def bytes_per_block(self) -> int:
        """What a block reads and writes."""
        return self.arrays * WORD_BYTES * self.words_per_block


Inputs: TypeAlias = "Callable[[Generator], NDArray[Any]]"
Expected: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float64] | np.uint32]"


@dataclass(frozen=True)
class Loop:
    """Something repeated; `(data, footprint, trips, mask, out, elapsed)`.

    Attributes:
        key: Its name in results.
        label: As a person reads it.
        limit: What it shows the limit of: a level of memory or a kind of arithmetic.
        unit: Of its rate.
        source_file: In `peaks/`.
        entry: The kernel.
        threads: Of a block.
        blocks_per_sm: Blocks that a multiprocessor gets.
        work_per_trip: Bytes or FLOP of one block in one trip.
        footprint: The kernel's second argument: how far it walks before it starts again.
        inputs: Draws what it reads.
        output: Data type of the output.
        outputs_per_block: Elements of it; 0 for a single word into which `keep` combines.
        expected: The sum of what one block writes in one trip, or the word.
        probe_threads: Threads of the launch that is verified, where not `threads`.
        dynamic_shared_bytes: A block's.
        l2_share: How much of the L2 all that is read takes, see `sized`; None if that is fixed.
        own_data: Whether each block has its own stretch of the data, `footprint` words long.
        architecture: The one compute capability whose machine code has the instruction, if only
            one has; it is compiled for that with the suffix `a`.
    """

    key: str
    label: str
    limit: str
    unit: Unit
    source_file: str
    entry: str
    threads: int
    blocks_per_sm: int
    work_per_trip: int
    footprint: int
    inputs: Inputs
    output: str
    outputs_per_block: int
    expected: Expected
    probe_threads: int | None = None
    dynamic_shared_bytes: int = 0
    l2_share: float | None = None
    own_data: bool = False
    architecture: tuple[int, int] | None = None


def source(file: str) -> str:
    """Give the CUDA C++ text of a file in `peaks/`, with what they share in front."""
    from importlib import resources

    folder = resources.files("memlab.kernels").joinpath("peaks")
    shared, own = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("common.cuh", file)
    )
    return f'{shared}\n#line 1 "{file}"\n{own}'


STREAMS = (
    Stream("dram_read", "DRAM read", "read", threads=256, words_per_block=2048, arrays=1),
    Stream("dram_write", "DRAM write", "write", threads=256, words_per_block=256, arrays=1),
    Stream("dram_copy", "DRAM copy", "copy", threads=128, words_per_block=128, arrays=2),
    Stream("dram_triad", "DRAM triad", "triad", threads=1024, words_per_block=1024, arrays=3),
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
# fma.cu, mma.cu, wgmma.cu
_FMA_CHAINS, _FMA_REPEAT, _FMA_THREADS = 8, 63, 1024
_MMA_CHAINS, _MMA_REPEAT, _MMA_THREADS = 8, 4, 256
_WGMMA_GROUPS, _WGMMA_M, _WGMMA_N, _WGMMA_ROW_BYTES = 2, 64, 256, 128


def _random_words(count: int) -> Inputs:
    def draw(generator: Generator) -> NDArray[Any]:
        return generator.integers(2**32, size=(count, 4), dtype=np.uint32)

    return draw


def _combined(data: NDArray[Any]) -> np.uint32:
    return np.uint32(np.bitwise_xor.reduce(data, axis=None))


def _zero(_: Generator) -> NDArray[Any]:
    return np.zeros(1, np.uint32)


def _constant_table() -> NDArray[np.uint32]:
    return ((np.arange(_CONSTANT_WORDS, dtype=np.uint32) * 109 + 57) % _CONSTANT_WORDS) * 4


def _constants(lanes: int) -> Expected:
    def expected(_: NDArray[Any]) -> np.uint32:
        table = _constant_table()
        read = [table[lane : lane + _CONSTANT_UNROLL] for lane in range(lanes)]
        return np.uint32(np.bitwise_xor.reduce(np.concatenate(read)))

    return expected


def _fma_inputs(dtype: type[np.floating[Any]]) -> Inputs:
    """Values between 0 and 1 that every type holds exactly, and 1 less them too."""
    count = _FMA_CHAINS * _FMA_THREADS * _fma_values(dtype)

    def draw(generator: Generator) -> NDArray[Any]:
        return (generator.integers(1, 1024, size=count) / 1024).astype(dtype)

    return draw


def _fma_values(dtype: type[np.floating[Any]]) -> int:
    return 2 if dtype is np.float16 else 1  # two in a register


def _fma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """After an odd number of steps x is 1 - x."""
    result: NDArray[np.float64] = 1.0 - data.astype(np.float64)
    return result


def _tensor_values(generator: Generator, kind: str, count: int) -> NDArray[Any]:
    """Normal numbers, as float32 or in the two bytes that the kind has."""
    values = generator.standard_normal(count).astype(np.float32)
    if kind == "fp16":
        return values.astype(np.float16)
    kept = values.view(np.uint32) & np.uint32(0xFFFFE000 if kind == "tf32" else 0xFFFF0000)
    return kept.view(np.float32) if kind == "tf32" else (kept >> 16).astype(np.uint16)


def _tensor_floats(data: NDArray[Any]) -> NDArray[np.float64]:
    if data.dtype == np.uint16:  # bfloat16
        data = (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float64)


def _mma_inputs(kind: str) -> Inputs:
    registers = (4 + 2 * _MMA_CHAINS) * _MMA_THREADS

    def draw(generator: Generator) -> NDArray[Any]:
        return _tensor_values(generator, kind, registers if kind == "tf32" else 2 * registers)

    return draw


def _mma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of each warp's products, from where each register's values stand along K.

    The sum of all elements of A B is, over k, that of A's column k times that of B's row k.
    Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k8" and "mma.m16n8k16".
    """
    halves = 1 if data.dtype == np.float32 else 2
    values = _tensor_floats(data).reshape(4 + 2 * _MMA_CHAINS, _MMA_THREADS // 32, 32, halves)
    lane, half = np.meshgrid(np.arange(32), np.arange(halves), indexing="ij")
    within = lane % 4 * halves + half
    span = 4 * halves
    sums = np.zeros(_MMA_THREADS // 32)
    for warp in range(_MMA_THREADS // 32):
        columns = np.zeros(2 * span)
        for register in range(4):
            np.add.at(columns, within + span * (register // 2), values[register, warp])
        for chain in range(_MMA_CHAINS):
            rows = np.zeros(2 * span)
            for register in range(2):
                np.add.at(rows, within + span * register, values[4 + 2 * chain + register, warp])
            sums[warp] += _MMA_REPEAT * columns @ rows
    return sums


def _wgmma_inputs(kind: str) -> Inputs:
    size = (_WGMMA_GROUPS * _WGMMA_M + _WGMMA_N) * _WGMMA_ROW_BYTES

    def draw(generator: Generator) -> NDArray[Any]:
        return _tensor_values(generator, kind, size // (4 if kind == "tf32" else 2))

    return draw


def _wgmma_expected(data: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of each group's product; the 128-byte swizzle moves 16-byte pieces in a row.

    In row r the piece p stands where p xor (r mod 8) is (PTX ISA, "Swizzling Modes").
    """
    per_piece = 16 // data.dtype.itemsize
    rows = _tensor_floats(data).reshape(-1, 8, per_piece)
    number = np.arange(rows.shape[0])[:, None]
    straight = rows[number, np.arange(8)[None, :] ^ (number % 8)].reshape(rows.shape[0], -1)
    split = _WGMMA_GROUPS * _WGMMA_M
    b = straight[split:].sum(axis=0)
    groups = straight[:split].reshape(_WGMMA_GROUPS, _WGMMA_M, -1).sum(axis=1)
    result: NDArray[np.float64] = groups @ b
    return result


def _cache(
    limit: str, label: str, entry: str, l2_share: float | None = None, own_data: bool = False
) -> Loop:
    return Loop(
        key=f"{entry.removeprefix('read_')}_read",
        label=label,
        limit=limit,
        unit="B/s",
        source_file="cache.cu",
        entry=entry,
        threads=CACHE_THREADS,
        blocks_per_sm=1,
        work_per_trip=CACHE_TILE_WORDS * WORD_BYTES,
        footprint=CACHE_TILE_WORDS,
        inputs=_random_words(CACHE_TILE_WORDS),
        output="uint32",
        outputs_per_block=0,
        expected=lambda data: _combined(data[:CACHE_TILE_WORDS]),
        l2_share=l2_share,
        own_data=own_data,
    )


def _constant(key: str, label: str, lanes: int) -> Loop:
    """A lane's bytes count each for itself, as the threads receive them."""
    return Loop(
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
        inputs=_zero,
        output="uint32",
        outputs_per_block=0,
        expected=_constants(lanes),
        probe_threads=lanes,
    )


def _fma(kind: str, label: str, dtype: type[np.floating[Any]]) -> Loop:
    values = _fma_values(dtype)
    return Loop(
        key=f"{kind}_fma",
        label=label,
        limit=f"{kind}_fma" if dtype is np.float16 else kind,
        unit="FLOP/s",
        source_file="fma.cu",
        entry=f"fma_{kind}",
        threads=_FMA_THREADS,
        blocks_per_sm=1,
        work_per_trip=2 * values * _FMA_CHAINS * _FMA_REPEAT * _FMA_THREADS,
        footprint=0,
        inputs=_fma_inputs(dtype),
        output=np.dtype(dtype).name,
        outputs_per_block=values * _FMA_CHAINS * _FMA_THREADS,
        expected=_fma_expected,
    )


def _mma(kind: str) -> Loop:
    k = 8 if kind == "tf32" else 16
    return Loop(
        key=f"{kind}_mma",
        label=f"{kind.upper()} tensor, mma.sync",
        limit=kind,
        unit="FLOP/s",
        source_file="mma.cu",
        entry=f"mma_{kind}",
        threads=_MMA_THREADS,
        blocks_per_sm=1,
        work_per_trip=2 * 16 * 8 * k * _MMA_CHAINS * _MMA_REPEAT * (_MMA_THREADS // 32),
        footprint=0,
        inputs=_mma_inputs(kind),
        output="float32",
        outputs_per_block=_MMA_THREADS,
        expected=_mma_expected,
    )


def _wgmma(kind: str) -> Loop:
    row_values = _WGMMA_ROW_BYTES // (4 if kind == "tf32" else 2)
    return Loop(
        key=f"{kind}_wgmma",
        label=f"{kind.upper()} tensor, wgmma",
        limit=kind,
        unit="FLOP/s",
        source_file="wgmma.cu",
        entry=f"wgmma_{kind}",
        threads=128 * _WGMMA_GROUPS,
        blocks_per_sm=1,
        work_per_trip=2 * _WGMMA_M * _WGMMA_N * row_values * _WGMMA_GROUPS,
        footprint=0,
        inputs=_wgmma_inputs(kind),
        output="float32",
        outputs_per_block=128 * _WGMMA_GROUPS,
        expected=_wgmma_expected,
        dynamic_shared_bytes=(_WGMMA_GROUPS * _WGMMA_M + _WGMMA_N) * _WGMMA_ROW_BYTES,
        architecture=(9, 0),
    )


TENSOR_KINDS = ("tf32", "fp16", "bf16")

LOOPS = (
    _cache("l2", "L2 read, own lines", "read_l2", _L2_OWN_SHARE, own_data=True),
    _cache("l2_shared", "L2 read, shared lines", "read_l2_shared", _L2_SHARED_SHARE),
    _cache("l1", "L1 read", "read_l1"),
    Loop(
        key="shared_read",
        label="Shared memory read",
        limit="shared",
        unit="B/s",
        source_file="shared.cu",
        entry="read_shared",
        threads=1024,
        blocks_per_sm=2,
        work_per_trip=_SHARED_WORDS * WORD_BYTES,
        footprint=_SHARED_WORDS,
        inputs=_random_words(_SHARED_WORDS),
        output="uint32",
        outputs_per_block=0,
        expected=_combined,
    ),
    _constant("broadcast", "Constant, broadcast", lanes=1),
    _constant("divergent", "Constant, divergent", lanes=32),
    _fma("fp64", "FP64 FMA", np.float64),
    _fma("fp32", "FP32 FMA", np.float32),
    _fma("fp16", "FP16 FMA", np.float16),
    *map(_mma, TENSOR_KINDS),
    *map(_wgmma, TENSOR_KINDS),
)
"""Everything but DRAM, from memory to arithmetic."""

MINIMUM_COMPUTE_CAPABILITY = (8, 0)
"""mma.sync with TF32 and BF16 needs it (PTX ISA, mma)."""


def sized(loop: Loop, multiprocessors: int, l2_bytes: int) -> Loop:
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


def loops_for(compute_capability: tuple[int, int]) -> tuple[Loop, ...]:
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
