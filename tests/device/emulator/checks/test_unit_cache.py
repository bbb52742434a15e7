"""Footprints are found again for similar accesses, and for no others."""

from typing import Any

import numpy as np

from memlab.device.emulator.checks.touched_units import TouchedUnits
from memlab.device.emulator.checks.unit_cache import (
    _CACHE_CAPACITY,
    AccessFootprint,
    FootprintCache,
)
from memlab.device.emulator.machine.memory import Segment

LANES = 64
SHARED = Segment("shared", np.zeros(4096, np.uint8), 4096)
EVERY = np.arange(LANES)
NOTHING = TouchedUnits(EVERY, EVERY, EVERY, EVERY, ())


def footprint(address: Any) -> AccessFootprint:
    return AccessFootprint(SHARED, address, address, EVERY, EVERY, NOTHING)


def test_a_shifted_access_has_the_footprint_and_its_distance() -> None:
    cache, kept = FootprintCache(), footprint(4 * EVERY + 100)
    cache.keep(4, kept)

    assert cache.find(("shared", 4, "%a"), 0, 4 * EVERY + 164) == (kept, 64)
    assert cache.find(("shared", 4, "%b"), 0, 4 * EVERY + 80) == (kept, -20)
    for space, size, address in (
        ("global", 4, 4 * EVERY),
        ("shared", 8, 4 * EVERY),
        ("shared", 4, 8 * EVERY),
        ("shared", 4, np.full(LANES, 100)),
    ):
        assert cache.find((space, size, "%c"), 0, address) is None


def test_every_lane_counts() -> None:
    for lane in range(LANES):
        cache, other = FootprintCache(), 4 * EVERY
        cache.keep(4, footprint(4 * EVERY))
        other[lane] += 4
        assert cache.find(("shared", 4, "%a"), 0, other) is None


def test_one_address_serves_all_lanes() -> None:
    cache, kept = FootprintCache(), footprint(np.full(LANES, 8))
    cache.keep(4, kept)
    assert cache.find(("shared", 4, "%a"), 0, np.full(LANES, 24)) == (kept, 16)


def test_a_base_is_looked_up_again_once_it_was_written() -> None:
    cache, kept = FootprintCache(), footprint(4 * EVERY)
    cache.keep(4, kept)
    base = ("shared", 4, "%a")
    assert cache.find(base, 0, 4 * EVERY + 4) == (kept, 4)
    assert cache.find(base, 0, 8 * EVERY) == (kept, 4)  # the same version: nothing is compared
    assert cache.find(base, 1, 4 * EVERY + 8) == (kept, 8)
    assert cache.find(base, 2, 8 * EVERY) is None


def test_the_oldest_footprint_makes_room() -> None:
    cache = FootprintCache()
    kept = [footprint(stride * EVERY) for stride in range(_CACHE_CAPACITY + 1)]
    for each in kept[:-1]:
        cache.keep(4, each)
    for stride, each in enumerate(kept[:-1]):
        assert cache.find(("shared", 4, f"%{stride}"), 0, stride * EVERY) == (each, 0)
    cache.keep(4, kept[-1])
    assert cache.find(("shared", 4, "%0"), 0, 0 * EVERY) is None
    for stride, each in enumerate(kept[1:], 1):
        assert cache.find(("shared", 4, f"%{stride}"), 0, stride * EVERY) == (each, 0)
