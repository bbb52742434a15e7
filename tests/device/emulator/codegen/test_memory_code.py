"""The runtime's memory functions against a plain model, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import SPACES
from memlab.device.emulator.codegen.memory_code import SHAPES
from memlab.device.emulator.isa.address_space import GLOBAL_BASE, WINDOWS
from memlab.device.properties import WARP_SIZE
from tests.support.memory_runtime import ARRAYS, SIZES, WARPS, Ints, Memory, Site, expected_cost

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
    if random.random() < 0.1:  # astray
        for lane in random.integers(0, WARP_SIZE, random.integers(1, 4)):
            wild = _EXTREMES[random.integers(len(_EXTREMES))] + int(random.integers(-40, 40))
            values[lane] = [wild, values[lane] + wild, values[lane] + 1][random.integers(3)]
    return _wrap([int(value) for value in values])


def _some_site(random: np.random.Generator, kind: str) -> Site:
    element_bytes, vector = SHAPES[random.integers(len(SHAPES))]
    offset = int(random.integers(-4, 64)) * element_bytes * vector
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
    faults = 0
    for _ in range(10_000 // 3):
        site, warp, mask = _some_site(random, kind), int(random.integers(WARPS)), _some_mask(random)
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
    assert (result is None) == (wrong is not None), (site, address, mask)
    if wrong is not None:
        fault = memory.fault
        assert (fault["index"], fault["warp"]) == (site.index, warp)
        assert SPACES[fault["space"]] == wrong.space
        assert fault["mask"] == sum(1 << lane for lane in wrong.address)
        assert {lane: fault["address"][lane] for lane in wrong.address} == wrong.address
        assert not memory.written.any()
        np.testing.assert_array_equal(memory.bytes, before)
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
        np.testing.assert_array_equal(result, expected, err_msg=str(site))
    elif site.kind == "store":
        for lane in sorted(places):
            before[places[lane] : places[lane] + site.size] = values[:, lane].reshape(-1)
    else:
        assert {lane: result[lane] for lane in places} == places
    np.testing.assert_array_equal(memory.bytes, before, err_msg=str(site))
    marks = memory.units(parts if site.kind != "load" else [], site.size)
    np.testing.assert_array_equal(memory.written, marks, err_msg=str(site))
    cost = np.sum([expected_cost(site, part) for part in parts], axis=0)
    added = (memory.counters - counters)[site.index]
    np.testing.assert_array_equal(added, cost, err_msg=f"{site} {address} {mask:#x}")
    return False
