"""Where lanes touch memory, worked out once for all the accesses that are alike.

Two accesses are alike where all lanes of a chunk take part and each has moved by as much: the turns
of a loop, or what one address register serves with offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.machine.memory import Segment
from memlab.device.properties import WARP_SIZE

_CACHE_CAPACITY = 32  # each is several arrays as long as a chunk has lanes

AddressBase: TypeAlias = tuple[str, int, str]
"""State space, bytes that a lane moves, and the register or variable that addresses begin from."""


@dataclass(frozen=True)
class AccessFootprint:
    """Where lanes touch a segment.

    Attributes:
        segment: What they touch.
        address: Byte address of each in its space, shape (n,).
        position: Byte position of each in the segment's data, shape (n,).
        lanes: The lanes, shape (n,).
        threads: Their threads, shape (n,).
        touched: The units touched, each once.
    """

    segment: Segment
    address: Lanes
    position: Lanes
    lanes: Lanes
    threads: Lanes
    touched: TouchedUnits


class FootprintCache:
    """What all lanes of a chunk touched before."""

    def __init__(self, lanes: int, block_lanes: int) -> None:
        """Begin a chunk of so many lanes, of which a block has so many."""
        self._lanes = lanes
        # By where these lanes touch, accesses that are not alike mostly differ.
        places = [1, WARP_SIZE // 4, WARP_SIZE // 2, WARP_SIZE - 1, WARP_SIZE, block_lanes]
        self._sample_lanes = np.minimum([*places, lanes], lanes) - 1
        self._by_sample: dict[tuple[str, int, bytes], AccessFootprint] = {}
        self._by_base: dict[AddressBase, tuple[int, AccessFootprint, int]] = {}

    def find(
        self, base: AddressBase, version: int, start: Lanes
    ) -> tuple[AccessFootprint, int] | None:
        """Find an access that is alike, and by how many bytes this one lies behind it.

        Args:
            base: What the addresses are computed from.
            version: How often that has been written.
            start: What it holds, one address for all lanes or one for each.
        """
        if base not in self._by_base or self._by_base[base][0] != version:
            space, size, _ = base
            address = np.broadcast_to(start, self._lanes).astype(np.int64)
            located = self._by_sample.get(self._sample(space, size, address))
            if located is None:
                return None
            moved = int(address[0] - located.address[0])
            if not np.array_equal(address - moved, located.address):
                return None
            self._by_base[base] = version, located, moved
        _, located, moved = self._by_base[base]
        return located, moved

    def keep(self, size: int, located: AccessFootprint) -> None:
        """Remember an access of all lanes, and forget the one that was remembered first."""
        if len(self._by_sample) >= _CACHE_CAPACITY:
            del self._by_sample[next(iter(self._by_sample))]
            self._by_base.clear()
        self._by_sample[self._sample(located.segment.name, size, located.address)] = located

    def _sample(self, space: str, size: int, address: Lanes) -> tuple[str, int, bytes]:
        """What is the same of all accesses that are alike, and of few others."""
        return space, size, (address[self._sample_lanes] - address[0]).tobytes()
