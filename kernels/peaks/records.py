"""Records of micro-benchmarks: streams and loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

VECTOR_BYTES = 16
"""Bytes of one access of a thread: a `uint4`."""

RateUnit = Literal["B/s", "FLOP/s"]


@dataclass(frozen=True)
class StreamBenchmark:
    """A single pass over arrays in DRAM.

    The kernel's parameters are `(out, in, other, mask, sink)`.

    Attributes:
        key: The name in results.
        label: The name in tables and pictures.
        entry: The kernel.
        threads: Threads of a block.
        words_per_block: Words of 16 bytes per block, in each array.
        arrays: The number of arrays that the kernel reads or writes.
    """

    key: str
    label: str
    entry: str
    threads: int
    words_per_block: int
    arrays: int

    source_file = "stream.cu"
    limit = "dram"
    unit: RateUnit = "B/s"

    @property
    def bytes_per_block(self) -> int:
        """Bytes that a block reads and writes."""
        return self.arrays * VECTOR_BYTES * self.words_per_block


InputGenerator: TypeAlias = "Callable[[Generator], NDArray[Any]]"
"""Draws the input of a loop from a random generator."""
ExpectedResult: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float64] | np.uint32]"
"""Computes the expected result of a loop from its input."""


@dataclass(frozen=True)
class LoopBenchmark:
    """An operation that is repeated on every multiprocessor.

    The kernel's parameters are `(data, footprint, trips, mask, out, elapsed)`.

    Attributes:
        key: The name in results.
        label: The name in tables and pictures.
        limit: The measured ceiling: a level of memory or a kind of arithmetic.
        unit: The unit of its rate.
        source_file: The file in this folder.
        entry: The kernel.
        threads: Threads of a block.
        blocks_per_sm: Blocks per multiprocessor.
        work_per_trip: Bytes or FLOP of one block in one trip.
        footprint: The kernel's second argument: how far it advances before it starts again, in
            words of 16 bytes (bytes for constant memory).
        inputs: Draws the input.
        output: NumPy's name of the output's type.
        outputs_per_block: Elements of the output per block; 0 for a single word into which `keep`
            combines all results.
        expected: Computes the expected sum of the output of one block in one trip, or that word.
        verification_threads: Threads of a block in the launch that is verified, if not `threads`.
        dynamic_shared_bytes: Dynamic shared memory of a block, bytes.
        l2_share: The share of the L2 that the data occupies, see `memory_loops.size_for_l2`; None
            if the footprint is fixed.
        own_data: Whether each block has its own part of the data, `footprint` words long.
        architecture: The compute capability of an instruction that exists on one only; the kernel
            is then compiled for it with the suffix `a`. None otherwise.
    """

    key: str
    label: str
    limit: str
    unit: RateUnit
    source_file: str
    entry: str
    threads: int
    blocks_per_sm: int
    work_per_trip: int
    footprint: int
    inputs: InputGenerator
    output: str
    outputs_per_block: int
    expected: ExpectedResult
    verification_threads: int | None = None
    dynamic_shared_bytes: int = 0
    l2_share: float | None = None
    own_data: bool = False
    architecture: tuple[int, int] | None = None
