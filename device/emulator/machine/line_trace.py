"""The trace of lines: which lines of memory the warps of some blocks access, run by run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import EVENT, LINE_ACCESS
from memlab.device.emulator.machine.observer import ExecutionPolicy

if TYPE_CHECKING:
    from memlab.device.emulator.machine.machine import Chunk

HASHES = 2**31
"""Lines have hashes below this number."""


@dataclass(frozen=True)
class ChunkLines:
    """The accesses of a chunk's warps to the lines of the sample.

    Attributes:
        accesses: A `LINE_ACCESS` record each, in the order of execution.
        last_runs: The run of each warp's last access to memory, in the sample or not; 0 for none.
        complete: Whether all lanes ran to their end, and all accesses are recorded.
    """

    accesses: NDArray[np.void]
    last_runs: NDArray[np.int32]
    complete: bool


class LineTrace(ExecutionPolicy):
    """Records the accesses of one chunk after the other to a sample of the lines.

    The blocks run as a trial: see `ExecutionPolicy.is_trial`.
    """

    is_trial: ClassVar[bool] = True

    def __init__(self, most: int, factor: int) -> None:
        """Prepare for chunks.

        Args:
            most: How many accesses of a chunk can be recorded.
            factor: One line in so many is in the sample.
        """
        self._share = HASHES // factor
        self._lines: NDArray[Any] = np.empty(most, LINE_ACCESS)

    def chunk_started(self, chunk: Chunk) -> None:
        """Let the machine code record the chunk."""
        context = self._context = chunk.context
        context.point("events", np.zeros(1, EVENT))
        context.point("lines", self._lines)
        self._last_runs = context.point("last_runs", np.zeros(context["warps"], np.int32))
        context["line_limit"], context["line_share"] = len(self._lines), self._share

    def take(self) -> ChunkLines:
        """The accesses of the chunk that ran last; they are copied."""
        context = self._context
        ended = context["lanes_live"] == 0 and context["lines_lost"] == 0
        return ChunkLines(
            accesses=self._lines[: context["line_count"]].copy(),
            last_runs=self._last_runs,
            complete=ended and int(context.record["fault"]["index"]) < 0,
        )
