"""What a micro-benchmark is: a stream or a loop, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

VECTOR_BYTES = 16
"""A thread's access: `uint4`."""

RateUnit = Literal["B/s", "FLOP/s"]


@dataclass(frozen=True)
class StreamBenchmark:
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
    unit: RateUnit = "B/s"

    @property
    def bytes_per_block(self) -> int:
        """What a block reads and writes."""
        return self.arrays * VECTOR_BYTES * self.words_per_block


InputGenerator: TypeAlias = "Callable[[Generator], NDArray[Any]]"
ExpectedResult: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float64] | np.uint32]"


@dataclass(frozen=True)
class LoopBenchmark:
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
