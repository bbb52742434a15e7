"""Requests, sectors and wavefronts that the machine code counts, against counting by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.emulator.codegen.layout import COUNTERS
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.properties import WARP_SIZE
from tests.support.memory_runtime import Memory, Site

BANKS, BANK_BYTES, SECTOR_BYTES, LINE_BYTES = 32, 4, 32, 128

words = st.lists(st.integers(0, 300), min_size=WARP_SIZE, max_size=WARP_SIZE)
masks = st.integers(1, (1 << WARP_SIZE) - 1) | st.just((1 << WARP_SIZE) - 1)
often = settings(max_examples=200, deadline=None)


def counted(site: Site, addresses: list[int], mask: int) -> dict[str, int]:
    """What the machine code counts for one load."""
    memory = Memory()
    assert memory.load(site, np.array(addresses, np.int64), mask) is not None
    return dict(zip(COUNTERS, memory.counters[site.index].tolist(), strict=True))


def active_only(values: list[int], mask: int) -> list[int]:
    return [value for lane, value in enumerate(values) if mask >> lane & 1]


@often
@given(words, masks, st.integers(0, 20), st.sampled_from([1, 2, 4]))
def test_sectors_are_distinct_blocks_of_32_bytes(
    places: list[int], mask: int, offset: int, width: int
) -> None:
    addresses = [GLOBAL_BASE + place * width for place in places]
    cost = counted(Site("load", "global", width, offset=offset * width), addresses, mask)

    reached = [address + offset * width for address in active_only(addresses, mask)]
    assert cost["requests"] == 1
    assert cost["sectors"] == len({address // SECTOR_BYTES for address in reached})
    assert cost["wavefronts"] == len({address // LINE_BYTES for address in reached})
    assert cost["addresses"] == len(set(reached))


@often
@given(words, masks, st.sampled_from([1, 2, 4, 8, 16]))
def test_wavefronts_are_the_deepest_bank(places: list[int], mask: int, width: int) -> None:
    addresses = [place % (1900 // width) * width for place in places]
    cost = counted(Site("load", "shared", width), addresses, mask)

    # A lane that is switched off stands for the first one that is not.
    first = active_only(addresses, mask)[0]
    lanes = [address if mask >> n & 1 else first for n, address in enumerate(addresses)]
    wavefronts = ideal = 0
    lanes_at_once = 16 if width == 16 else WARP_SIZE
    for start in range(0, WARP_SIZE, lanes_at_once):
        touched = {
            word
            for address in lanes[start : start + lanes_at_once]
            for word in range(address // BANK_BYTES, (address + width - 1) // BANK_BYTES + 1)
        }
        banks = [sum(word % BANKS == bank for word in touched) for bank in range(BANKS)]
        wavefronts += max(banks)
        ideal += -(-len(touched) // BANKS)
    assert cost["requests"] == 1
    assert (cost["wavefronts"], cost["excessive"]) == (wavefronts, wavefronts - ideal)


@often
@given(words, st.sampled_from([1, 4, 8, 16]))
def test_local_words_of_a_warp_are_interleaved(places: list[int], width: int) -> None:
    addresses = [place % (64 // width) * width for place in places]
    cost = counted(Site("load", "local", width), addresses, (1 << WARP_SIZE) - 1)

    sectors = {
        ((address // BANK_BYTES + word) * LINE_BYTES + BANK_BYTES * lane) // SECTOR_BYTES
        for lane, address in enumerate(addresses)
        for word in range(max(width // BANK_BYTES, 1))
    }
    assert cost["sectors"] == len(sectors)


@often
@given(words, masks)
def test_constant_memory_serves_one_address_at_a_time(places: list[int], mask: int) -> None:
    addresses = [place % 75 * 4 for place in places]
    cost = counted(Site("load", "const"), addresses, mask)

    assert cost["requests"] == 1
    assert cost["wavefronts"] == len(set(active_only(addresses, mask)))


@pytest.mark.parametrize(
    ("stride", "width", "sectors"), [(1, "f32", 4), (2, "f32", 8), (32, "f32", 32), (1, "f64", 8)]
)
def test_a_load_counts_what_its_stride_costs(stride: int, width: str, sectors: int) -> None:
    size = int(width[1:]) // 8
    body = f"""
    .reg .b32 %r<3>; .reg .b64 %a<3>; .reg .{width} %f; mov.u32 %r1, %tid.x;
    ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, {stride * size}; add.u64 %a1, %a1, %a2;
    ld.global.{width} %f, [%a1]; ret;
    """
    arrays = {"a": np.zeros(64 * stride, f"f{size}")}
    done = run(kernel(body, ".u64 a"), arrays, block=(64, 1, 1))
    cost = done.counted(f"ld.global.{width}")
    assert cost["requests"] == 2
    assert cost["sectors"] == 2 * sectors
    assert cost["bytes"] == cost["used"] == 64 * size


def test_shared_conflicts_are_wavefronts_beyond_the_ideal() -> None:
    body = """
    .reg .b32 %r<4>; .shared .align 4 .b8 tile[4096]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
    mad.lo.u32 %r2, %r1, 128, %r2; st.shared.u32 [%r2], %r1; ret;
    """
    cost = run(kernel(body), {}).counted("st.shared.u32")
    assert (cost["requests"], cost["wavefronts"], cost["excessive"]) == (1, 32, 31)
