"""The execution trace of some blocks, for the cache and time models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.access_costs import SectorCount
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.properties import WARP_SIZE

_MOST_EVENTS = 200_000
_LARGEST_TRACE = 10_000_000  # warps and their sectors; the models take seconds for so many


@dataclass
class ExecutionTrace(ExecutionPolicy):
    """The instructions and global accesses of a chunk's blocks, in the order of execution.

    The blocks run as a trial: see `ExecutionPolicy.is_trial`.

    Attributes:
        lanes: Lanes of the first block: the paths of their warps are kept.
        events: One tuple per global access: instruction, base address of each warp rounded down
            to its sector (shape (warps,)), and its `SectorCount`.
        seen: How many global accesses there were; `events` keeps the first ones only, if they are
            very many.
    """

    is_trial: ClassVar[bool] = True
    needs_every_warp: ClassVar[bool] = True

    lanes: int = WARP_SIZE
    events: list[tuple[int, NDArray[np.int64], SectorCount]] = field(default_factory=list)
    seen: int = 0
    _size: int = 0
    _ranges: list[tuple[int, int, int]] = field(default_factory=list)

    def range_executed(self, start: int, stop: int, mask: NDArray[np.bool_] | None) -> None:
        """Keep the range, and which warps of the first block executed it."""
        warps = -1  # a bit per warp
        if mask is not None:
            ran = mask[: self.lanes].reshape(-1, WARP_SIZE).any(axis=1)
            warps = int.from_bytes(np.packbits(ran, bitorder="little").tobytes(), "little")
        if warps:
            self._ranges.append((start, stop, warps))

    def path(self) -> list[tuple[int, int]]:
        """The ranges (start, stop) of the warp that executed most: the block's end waits for it."""
        if not self._ranges:
            return []
        start, stop, warps = np.array(self._ranges, np.int64).T
        ran = warps[:, None] >> np.arange(self.lanes // WARP_SIZE) & 1 == 1
        longest = ran[:, int(((stop - start) @ ran).argmax())]
        return list(zip(start[longest].tolist(), stop[longest].tolist(), strict=True))

    def global_access_counted(
        self, index: int, warp_bases: NDArray[np.int64], cost: SectorCount
    ) -> None:
        """Keep the access, while there is room."""
        self.seen += 1
        self._size += warp_bases.size + cost.sectors
        if len(self.events) < _MOST_EVENTS and self._size < _LARGEST_TRACE:
            self.events.append((index, warp_bases, cost))
