"""Caches the footprint of an access: the places that all lanes of a chunk touch.

Two accesses are similar if all lanes take part and all addresses differ by the same distance. The
iterations of a loop, and accesses from one address register with several offsets, are similar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.machine.memory import Segment

_CACHE_CAPACITY = 32  # footprints; one holds several arrays with an item per lane

AddressBase: TypeAlias = tuple[str, int, str]
"""State space, bytes per lane, and the register or variable that addresses are based on."""


@dataclass(frozen=True)
class AccessFootprint:
    """The places that lanes touch in a segment.

    Attributes:
        segment: The segment.
        address: Byte addresses in the state space, shape (n,).
        position: Byte positions in the segment's data, shape (n,).
        lanes: The lanes, shape (n,).
        threads: The lanes' threads, shape (n,).
        touched: The units touched, without duplicates.
    """

    segment: Segment
    address: Lanes
    position: Lanes
    lanes: Lanes
    threads: Lanes
    touched: TouchedUnits


class FootprintCache:
    """The footprints of earlier accesses of all lanes of a chunk."""

    def __init__(self) -> None:
        """Begin a chunk."""
        self._by_distances: dict[tuple[str, int, bytes], AccessFootprint] = {}
        self._by_base: dict[AddressBase, tuple[int, AccessFootprint, int]] = {}

    def find(
        self, base: AddressBase, version: int, start: Lanes
    ) -> tuple[AccessFootprint, int] | None:
        """Find a similar access, and the distance from it to this one in bytes.

        Args:
            base: The base of the addresses.
            version: How often the base register has been written.
            start: The value of the base in each lane, shape (lanes,).
        """
        if base not in self._by_base or self._by_base[base][0] != version:
            space, size, _ = base
            located = self._by_distances.get(_key(space, size, start))
            if located is None:
                return None
            self._by_base[base] = version, located, int(start[0] - located.address[0])
        _, located, moved = self._by_base[base]
        return located, moved

    def keep(self, size: int, located: AccessFootprint) -> None:
        """Keep the footprint of an access of all lanes, and drop the oldest one."""
        if len(self._by_distances) >= _CACHE_CAPACITY:
            del self._by_distances[next(iter(self._by_distances))]
            self._by_base.clear()
        self._by_distances[_key(located.segment.name, size, located.address)] = located


def _key(space: str, size: int, address: Lanes) -> tuple[str, int, bytes]:
    """A key that is equal for similar accesses only."""
    return space, size, (address - address[0]).tobytes()
