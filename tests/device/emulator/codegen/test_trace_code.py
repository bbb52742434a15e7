"""The recorded accesses of warps to global memory, against the sectors that their lanes touch."""

from __future__ import annotations

import numpy as np

from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.properties import WARP_SIZE
from tests.support.memory_runtime import WARPS, Ints, Memory, Site

ALL = (1 << WARP_SIZE) - 1
ROOM = 100_000


def traced(events: int = ROOM, accesses: int = ROOM, sectors: int = ROOM) -> Memory:
    memory = Memory()
    memory.start_trace(events, accesses, sectors)
    return memory


def sectors_of(address: Ints, mask: int, offset: int) -> list[int]:
    lanes = [lane for lane in range(WARP_SIZE) if mask >> lane & 1]
    return sorted({(int(address[lane]) + offset) // 32 for lane in lanes})


def recorded(memory: Memory) -> list[tuple[int, int, int, int, int, list[int]]]:
    """The accesses: run, instruction, warp, base, byte within the first lane's sector, sectors."""
    found = []
    context, trace = memory.context[0], memory.trace
    for access in trace["accesses"][: context["access_count"]]:
        event, start = trace["events"][access["event"]], access["sectors"]
        sectors = trace["sectors"][start : start + access["count"]] + access["base"] // 128 * 4
        found.append(
            (
                int(event["run"]),
                int(event["index"]),
                int(access["warp"]),
                int(access["base"]),
                int(access["phase"]),
                sectors.tolist(),
            )
        )
    return found


def test_random_accesses_are_recorded_with_their_sectors() -> None:
    random, memory = np.random.default_rng(7), traced()
    sites = [Site("load", "global", 4, 1, offset, index=n) for n, offset in enumerate((0, 8, -64))]
    sites += [Site("store", "generic", 2, index=3), Site("load", "global", 8, 2, 8, index=4)]
    expected = []
    for run in range(1, 200):
        memory.context["run"] = run
        chosen = [sites[n] for n in sorted(random.choice(5, 3, replace=False))]
        stride, start = int(random.choice([0, 16, 64])), int(random.integers(840, 1500)) * 16
        for warp in range(WARPS):
            for site in chosen:
                mask = int(random.choice([ALL, ALL, 0xFFFF0, int(random.integers(1, 1 << 32))]))
                address = GLOBAL_BASE + start + np.arange(WARP_SIZE) * stride
                if site.index == 0:
                    address = GLOBAL_BASE + start + np.arange(WARP_SIZE) * stride // 4
                if site.index == 4:  # their sum with the offset is aligned
                    address += 8
                if random.integers(4) == 0:
                    random.shuffle(address)
                resolved = memory.resolve(site, address, mask, warp)
                if site.kind == "load":
                    assert resolved.load(site) is not None
                else:
                    values = np.zeros((site.vector, WARP_SIZE, site.element_bytes), np.uint8)
                    assert resolved.store(site, values)
                first = int(address[(mask & -mask).bit_length() - 1])
                base = first + (site.offset if site.index == 4 else 0)
                phase = (first + site.offset) % 32
                sectors = sectors_of(address, mask, site.offset)
                expected.append((run, site.index, warp, base, phase, sectors))
    assert recorded(memory) == expected
    assert memory.context[0]["event_count"] == 3 * 199


def test_addresses_that_repeat_share_their_sectors() -> None:
    memory, site = traced(), Site("load", "global")
    for run in range(1, 9):
        memory.context["run"] = run
        memory.load(site, GLOBAL_BASE + 128 * run + np.arange(WARP_SIZE) * 4, ALL)
    assert memory.context[0]["access_count"] == 8
    assert memory.context[0]["sector_count"] == 4


def test_nothing_is_recorded_behind_what_does_not_fit() -> None:
    scattered = GLOBAL_BASE + 13312 + np.arange(WARP_SIZE) * 512
    for memory, kept in (
        (traced(events=3), 3),
        (traced(accesses=3), 3),
        (traced(sectors=WARP_SIZE + 5), 2),
    ):
        for run in range(1, 9):
            memory.context["run"] = run
            if run == 2:
                memory.load(Site("load", "global"), scattered, ALL)
            else:
                memory.load(Site("load", "global"), GLOBAL_BASE + np.arange(32) * 4 + run * 8, ALL)
        assert memory.context[0]["access_count"] == kept
        assert memory.context[0]["event_count"] == 8


def test_atomics_are_recorded_with_the_passes_of_their_sectors() -> None:
    """A sector takes as many passes as lanes have one of its addresses."""
    random, memory, expected = np.random.default_rng(11), traced(), []
    site = Site("atomic", "global", 4, 1, 16)
    for run in range(1, 300):
        memory.context["run"] = run
        words = int(random.choice([1, 2, 8, 16, 300, 2000]))
        mask = int(random.choice([ALL, 1, 0xFFFF0, int(random.integers(1, 1 << 32))]))
        lanes = [lane for lane in range(WARP_SIZE) if mask >> lane & 1]
        address = GLOBAL_BASE + 13440 + random.integers(0, words, WARP_SIZE) * 4
        assert memory.resolve(site, address, mask).prepare_atomic(site) is not None
        most: dict[int, int] = {}
        for place in set(address[lanes].tolist()):
            sector = (place + site.offset) // 32
            equal = sum(int(address[lane]) == place for lane in lanes)
            most[sector] = max(most.get(sector, 0), equal)
        expected.append(sum(most.values()))
    accesses = memory.trace["accesses"][: memory.context[0]["access_count"]]
    assert accesses["passes"].tolist() == expected
