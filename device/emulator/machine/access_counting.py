"""Counts the memory accesses of a chunk: requests, sectors, wavefronts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.machine.access_costs import Pattern, Patterns, Tally
from memlab.device.emulator.machine.address_resolution import MemoryInstruction, ResolvedAddresses
from memlab.device.emulator.machine.memory import Lanes
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.scheduler import Mask, active_warps
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_UNCOUNTED_SPACES = ("param", "param::func")


class AccessCounter(Observer):
    """Counts into a tally, and tells other observers of the accesses to global memory."""

    def __init__(
        self, lanes: int, tally: Tally, patterns: Patterns, observers: Sequence[Observer]
    ) -> None:
        """Count the accesses of a chunk.

        Args:
            lanes: Lanes of the chunk.
            tally: Where the counts go.
            patterns: The launch's address patterns.
            observers: Those to tell.
        """
        self._lanes, self._tally, self._patterns, self._observers = (
            lanes,
            tally,
            patterns,
            observers,
        )
        self._lists_every_warp = any(observer.needs_every_warp for observer in observers)

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> None:
        """Count one access."""
        tally, index, space = self._tally, instruction.index, addresses.segment.name
        lanes = self._lanes if mask is None else int(np.count_nonzero(mask))
        tally.bytes[index] += instruction.size * lanes
        counted_bytes = instruction.step.counted_bytes
        if counted_bytes == 0 or space in _UNCOUNTED_SPACES:
            return
        if addresses.pattern is None:
            addresses.pattern, addresses.warp_bases = self._pattern(addresses, mask)
        pattern = addresses.pattern
        if space == "shared":
            waves = self._patterns.wavefronts(pattern, offset, counted_bytes)
            tally.requests[index] += waves.instructions
            tally.wavefronts[index] += waves.wavefronts
            tally.excessive[index] += waves.wavefronts - waves.ideal
        elif space == "global":
            sectors = self._patterns.sectors(pattern, offset)
            tally.requests[index] += sectors.requests
            tally.sectors[index] += sectors.sectors
            tally.wavefronts[index] += sectors.lines
            tally.used[index] += sectors.addresses * counted_bytes
            assert addresses.warp_bases is not None
            for observer in self._observers:
                observer.global_access_counted(index, addresses.warp_bases, sectors)
        elif space == "const":
            constants = self._patterns.sectors(pattern, offset)
            tally.requests[index] += constants.requests
            tally.wavefronts[index] += constants.addresses
        else:
            local = self._patterns.local(pattern, offset, counted_bytes)
            tally.requests[index] += local.requests
            tally.sectors[index] += local.sectors
            tally.wavefronts[index] += local.lines

    def _pattern(self, addresses: ResolvedAddresses, mask: Mask | None) -> tuple[Pattern, Lanes]:
        """Intern the pattern of the warps' addresses; also give the sector where each starts."""
        address = addresses.address
        if not address.ndim:
            address = np.broadcast_to(address, self._lanes)
        rows = address.reshape(-1, WARP_SIZE)
        if mask is None:
            active: Mask = np.ones(len(rows), np.bool_)
            first = rows[:, 0]
        else:
            lanes = mask.reshape(-1, WARP_SIZE)
            active = active_warps(mask)
            if not self._lists_every_warp and not active.all():
                rows, lanes = rows[active], lanes[active]
                active = np.ones(len(rows), np.bool_)
            first = rows[np.arange(len(rows)), lanes.argmax(axis=1)]
            rows = np.where(lanes, rows, first[:, None])
        line = first & ~np.int64(LINE_BYTES - 1)
        relative = (rows - line[:, None]).astype(np.int64)
        if mask is not None:
            relative[~active] = 0
        sector = first & ~np.int64(SECTOR_BYTES - 1)
        return self._patterns.intern(addresses.base_name, relative, active), sector
