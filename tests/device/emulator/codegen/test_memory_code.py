"""The runtime's memory functions against a plain model, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from memlab.device.emulator.codegen.copy_code import SHAPES
from memlab.device.emulator.codegen.layout import ARRAY, COUNTERS, PATTERN, SPACES
from memlab.device.emulator.isa.address_space import GLOBAL_BASE, RANK_UNIT, WINDOWS
from memlab.device.properties import WARP_SIZE
from tests.support.memory_runtime import (
    ARRAYS,
    SIZES,
    UNIT_BYTES,
    WARPS,
    Ints,
    Memory,
    Site,
    expected_cost,
)

ALL = (1 << WARP_SIZE) - 1
_EXTREMES: tuple[int, ...] = (
    0,
    1,
    -1,
    1 << 63,
    (1 << 63) - 1,
    (1 << 63) - 4,
    1 << 62,
    1 << 32,
    -(1 << 31),
    1 << 31,
)


def _wrap(values: list[int]) -> Ints:
    return np.array([value % (1 << 64) for value in values], np.uint64).view(np.int64)


def _start(random: np.random.Generator, space: str, room: int) -> int:
    """An address from which some bytes fit into a space, where that is possible."""
    if space == "global":
        first, size = ARRAYS[random.integers(len(ARRAYS))]
        return GLOBAL_BASE + first + int(random.integers(max(size - room, 1)))
    return int(random.integers(max(SIZES[space] - room, 1)))


def _some_mask(random: np.random.Generator) -> int:
    bits = int(random.integers(1, 1 << 32))
    first, count = int(random.integers(32)), int(random.integers(1, 33))
    run = ((1 << count) - 1 << first) & ALL
    return int(random.choice([ALL, ALL, bits, run, 1 << first]))


def _addresses(random: np.random.Generator, site: Site) -> Ints:
    """Addresses as kernels have them, and others; mostly within the space and aligned."""
    space = site.space
    if space == "generic":
        space = str(random.choice(list(WINDOWS)))
    window = WINDOWS[space] if site.space == "generic" and space != "global" else 0
    lanes = np.arange(WARP_SIZE)
    step = int(random.choice([0, 1, 1, 1, 2, 3, -1, 5, 32, 33]))
    distance = lanes * step
    match random.integers(6):
        case 0:
            distance = random.integers(0, 1 + random.integers(1, 512), WARP_SIZE)
        case 1:
            distance = lanes // int(random.choice([2, 4, 8, 16])) * step
        case 2:
            distance = random.permutation(WARP_SIZE)
    fits = ARRAYS[-1][1] if space == "global" else SIZES[space]
    distance = (distance - distance.min()) % (fits // site.size) * site.size
    room = int(distance.max()) + site.size
    start = _start(random, space, room)
    values = [window + start // site.size * site.size + int(d) - site.offset for d in distance]
    if random.random() < 0.1:  # to another array or space
        for lane in random.integers(0, WARP_SIZE, random.integers(1, 20)):
            other = str(random.choice(list(WINDOWS))) if site.space == "generic" else space
            base = WINDOWS[other] if site.space == "generic" and other != "global" else 0
            there = _start(random, other, site.size) // site.size * site.size
            values[lane] = base + there - site.offset
    if (
        random.random() < 0.03
    ):  # all of them around an extreme, where signed numbers may wrap around
        start = _EXTREMES[random.integers(len(_EXTREMES))] + site.size * int(
            random.integers(-40, 9)
        )
        values = [value - values[0] + start for value in values]
    if random.random() < 0.1:  # astray
        for lane in random.integers(0, WARP_SIZE, random.integers(1, 4)):
            wild = _EXTREMES[random.integers(len(_EXTREMES))] + int(random.integers(-40, 40))
            values[lane] = [wild, values[lane] + wild, values[lane] + 1][random.integers(3)]
    return _wrap([int(value) for value in values])


def _some_site(random: np.random.Generator, kind: str) -> Site:
    shape = SHAPES[random.integers(len(SHAPES))]
    element_bytes, vector = shape.bytes, shape.vector
    offset = int(random.integers(-4, 64)) * element_bytes
    if random.random() < 0.05:
        offset = _EXTREMES[random.integers(len(_EXTREMES))]
        offset = (offset + (1 << 63)) % (1 << 64) - (1 << 63)
    offset = 0 if random.random() < 0.4 else offset
    space = str(random.choice(SPACES))
    counted = random.choice([element_bytes * vector, element_bytes * vector, 0])
    if space == "shared":
        counted = min(counted, 16)
    return Site(kind, space, element_bytes, vector, offset, int(counted))


@pytest.mark.parametrize("kind", ["load", "store", "atomic"])
def test_accesses_do_what_each_lane_does_alone(kind: str) -> None:
    random = np.random.default_rng(ord(kind[0]))
    memory = Memory()
    sites = [_some_site(random, kind) for _ in range(500)]
    faults = 0
    for _ in range(10_000 // 3):
        site = sites[random.integers(len(sites))]
        warp, mask = int(random.integers(WARPS)), _some_mask(random)
        address = _addresses(random, site)
        faults += _check_access(random, memory, site, address, mask, warp)
    assert 200 < faults < 2000


def _check_access(
    random: np.random.Generator, memory: Memory, site: Site, address: Ints, mask: int, warp: int
) -> bool:
    """Carry out an access, and compare all that it does with the model; whether it faults."""
    parts = memory.parts(site, address, mask)
    wrong = memory.first_fault(site, parts)
    values = random.integers(0, 256, (site.vector, WARP_SIZE, site.element_bytes), np.uint8)
    before, counters = memory.bytes.copy(), memory.counters.copy()
    memory.written[:] = 0
    memory.fault["index"] = -1
    resolved = memory.resolve(site, address, mask, warp)
    result: NDArray[np.generic] | None
    if site.kind == "load":
        result = resolved.load(site)
    elif site.kind == "store":
        result = values if resolved.store(site, values) else None
    else:
        result = resolved.prepare_atomic(site)
    case = site, address, hex(mask)
    assert (result is None) == (wrong is not None), case
    if wrong is not None:
        fault = memory.fault
        assert (fault["index"], fault["warp"]) == (site.index, warp)
        assert SPACES[fault["space"]] == wrong.space, case
        assert fault["mask"] == sum(1 << lane for lane in wrong.address)
        beyond = RANK_UNIT if wrong.space == "shared" else 0  # as the next rank, of no block
        places = _wrap([at + beyond * (at >= RANK_UNIT) for at in wrong.address.values()])
        assert fault["address"][list(wrong.address)].tolist() == places.tolist()
        assert not memory.written.any()
        assert np.array_equal(memory.bytes, before), case
        return True
    assert result is not None
    places = {
        lane: memory.place(part.space, where, lane, warp)
        for part in parts
        for lane, where in part.address.items()
    }
    if site.kind == "load":
        expected = np.zeros_like(values)
        for lane, place in places.items():
            own = before[place : place + site.size]
            expected[:, lane] = own.reshape(site.vector, site.element_bytes)
        assert np.array_equal(result, expected), case
    elif site.kind == "store":
        for lane in sorted(places):
            before[places[lane] : places[lane] + site.size] = values[:, lane].reshape(-1)
    else:
        assert {lane: result[lane] for lane in places} == places
    assert np.array_equal(memory.bytes, before), case
    marks = memory.units(parts if site.kind != "load" else [], site.size)
    assert np.array_equal(memory.written, marks), case
    cost = np.sum([expected_cost(site, part) for part in parts], axis=0)
    added = memory.counters - counters
    if any(part.space == "global" for part in parts):  # clocks of the L1: test_access_costs.py
        added[site.index, COUNTERS.index("words")] = cost[COUNTERS.index("words")]
    assert added[site.index].tolist() == cost.tolist(), case
    assert added.sum() == cost.sum()
    return False


def test_one_record_serves_sites_with_offsets_and_some_of_its_lanes() -> None:
    memory, lanes = Memory(), np.arange(WARP_SIZE)
    first = Site("load", "global", index=0)
    sites = [
        Site("load", "global", offset=offset, counted_bytes=width, index=index)
        for index, (offset, width) in enumerate([(0, 4), (128, 4), (20, 0), (-32, 4)])
    ]
    resolved = memory.resolve(first, GLOBAL_BASE + 64 + 4 * lanes, 0xFFFF00FF)
    for site in sites:
        for mask in (0xFFFF00FF, 0x80000001, 0x00FF0000):
            loaded = resolved.load(site, mask)
            assert loaded is not None
            start = memory.places["global"] + 64 + site.offset
            own = memory.bytes[start : start + 128].reshape(WARP_SIZE, 4)
            active = (mask >> lanes & 1)[:, None]
            assert np.array_equal(loaded[0], own * active)
    # Eight active lanes share a sector where the address is a multiple of 32; at offset 20 no
    # access is counted.
    sectors = memory.counters[:, COUNTERS.index("sectors")].tolist()
    assert sectors == [3 + 2 + 1, 3 + 2 + 1, 0, 3 + 2 + 1, 0, 0, 0, 0]


def test_patterns_with_other_lanes_differ() -> None:
    memory, lanes = Memory(), np.arange(WARP_SIZE)
    site = Site("load", "shared")
    one_away = np.where(lanes == 1, 4, 0)
    for mask in (0b11, ALL):  # the first two lanes are contiguous, all of them are not
        loaded = memory.load(site, one_away, mask)
        assert loaded is not None
        start = memory.places["shared"]
        own = memory.bytes[start : start + 8].reshape(2, 4)[one_away // 4]
        assert np.array_equal(loaded[0], own * (mask >> lanes & 1)[:, None])


def test_a_record_outlives_its_pattern() -> None:
    random = np.random.default_rng(5)
    memory = Memory()
    site, other = Site("load", "shared", index=0), Site("load", "shared", index=1)
    lanes = np.arange(WARP_SIZE)
    resolved = memory.resolve(site, 8 * lanes, ALL, warp=3)
    before = resolved.load(site)
    for _ in range(4000):  # more than the table holds
        assert memory.load(other, 4 * random.integers(0, 500, WARP_SIZE), ALL) is not None
    assert resolved.record["version"] != _version(memory, resolved.record["pattern"][0])
    after = resolved.load(site)
    assert before is not None
    assert after is not None
    assert np.array_equal(after, before)
    # 32 words at a stride of two words take every other bank twice.
    requests, _, wavefronts, excessive, *_ = memory.counters[0].tolist()
    assert (requests, wavefronts, excessive) == (2, 4, 2)


def test_lanes_far_apart_are_moved_and_counted() -> None:
    memory = Memory()
    large = np.zeros(3 << 30, np.uint8)  # pages that are not touched take no memory
    written = np.zeros((3 << 30) // UNIT_BYTES, np.uint16)
    arrays = np.array([(GLOBAL_BASE, GLOBAL_BASE + large.size, 0, 0)], ARRAY)
    context = memory.context[0]
    context["arrays"], context["array_count"] = arrays.ctypes.data, 1
    context["units_written"] = written.ctypes.data
    context["segments"][0]["base"] = large.ctypes.data - GLOBAL_BASE
    distance = np.where(np.arange(WARP_SIZE) % 2, large.size - 256, 0) + 8 * np.arange(WARP_SIZE)
    site = Site("store", "global", 8, index=0)
    values = np.arange(WARP_SIZE * 8, dtype=np.uint8).reshape(1, WARP_SIZE, 8)
    assert memory.resolve(site, GLOBAL_BASE + distance, ALL).store(site, values)
    for lane, place in enumerate(distance.tolist()):
        assert large[place : place + 8].tolist() == values[0, lane].tolist()
    assert np.flatnonzero(written[:64]).tolist() == [u for u in range(64) if u // 2 % 2 == 0]
    # Every other lane lies in the first 256 bytes, the others in the last 256 bytes.
    assert memory.counters[0, :5].tolist() == [1, 16, 4, 0, 32]


def test_the_first_fault_is_that_of_the_first_instruction_and_warp() -> None:
    memory = Memory()
    astray = np.full(WARP_SIZE, 1 << 40)
    noted = []
    for index, warp in ((5, 2), (5, 3), (5, 1), (7, 0), (4, 3), (4, 2)):
        site = Site("load", "shared", index=index)
        assert memory.load(site, astray, 1 << warp, warp) is None
        noted.append((memory.fault["index"], memory.fault["warp"], memory.fault["mask"]))
    firsts = [(5, 2), (5, 2), (5, 1), (5, 1), (4, 3), (4, 2)]
    assert noted == [(index, warp, 1 << warp) for index, warp in firsts]


def test_nothing_is_accessed_without_arrays() -> None:
    memory = Memory()
    memory.context["array_count"] = 0
    for kind in ("load", "store", "atomic"):
        site = Site(kind, "global")
        resolved = memory.resolve(site, np.full(WARP_SIZE, GLOBAL_BASE), ALL)
        assert resolved.prepare_atomic(site) is None


def _version(memory: Memory, pattern: int) -> int:
    """The version of the pattern at a host address."""
    place = (pattern - memory.patterns.ctypes.data) // PATTERN.itemsize
    return int(memory.patterns[place]["version"])
