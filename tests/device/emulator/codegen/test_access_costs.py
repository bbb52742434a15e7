"""Requests, sectors and wavefronts that the machine code counts, against counting by hand."""

import csv
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.emulator.codegen.layout import COUNTERS, L1_CLOCK_PARTS
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.properties import WARP_SIZE
from tests.reference.access_costs import (
    count_l1_clocks,
    count_wavefronts,
    mean_l1_clocks,
    tag_bank,
)
from tests.support.memory_runtime import Memory, Site

BANK_BYTES, SECTOR_BYTES, LINE_BYTES = 4, 32, 128
LANES = list(range(WARP_SIZE))

ALL = (1 << WARP_SIZE) - 1

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
@given(words, masks, st.integers(0, 20), st.sampled_from([1, 2, 4, 8, 16]))
def test_sectors_are_distinct_blocks_of_32_bytes(
    places: list[int], mask: int, offset: int, width: int
) -> None:
    addresses = [GLOBAL_BASE + place % (3600 // width) * width for place in places]
    cost = counted(Site("load", "global", width, offset=offset * width), addresses, mask)

    reached = [address + offset * width for address in active_only(addresses, mask)]
    assert cost["requests"] == 1
    assert cost["sectors"] == len({address // SECTOR_BYTES for address in reached})
    assert cost["wavefronts"] == len({address // LINE_BYTES for address in reached})
    assert cost["addresses"] == len(set(reached))
    active = {lane: addresses[lane] + offset * width for lane in LANES if mask >> lane & 1}
    assert cost["words"] == L1_CLOCK_PARTS * mean_l1_clocks(active, width)


@often
@given(words, masks, st.sampled_from([1, 2, 4, 8, 16]))
def test_wavefronts_are_the_deepest_bank(places: list[int], mask: int, width: int) -> None:
    addresses = [place % (1900 // width) * width for place in places]
    cost = counted(Site("load", "shared", width), addresses, mask)

    wavefronts, ideal, distinct = count_wavefronts(addresses, active_only(LANES, mask), width)
    assert cost["requests"] == 1
    assert (cost["wavefronts"], cost["excessive"]) == (wavefronts, wavefronts - ideal)
    assert cost["words"] == distinct


@pytest.mark.parametrize(
    ("addresses", "width", "mask", "wavefronts", "excessive"),
    [
        # What Nsight Compute counted on an H200 for requests of docs/results/h200-truth.csv.
        pytest.param([lane // 4 * 80 + lane % 4 * 16 for lane in LANES], 16, ALL, 8, 4, id="wmma"),
        pytest.param([lane // 8 * 144 + lane % 8 * 16 for lane in LANES], 16, ALL, 4, 0, id="wmma"),
        pytest.param([lane % 16 * 8 for lane in LANES], 8, ALL, 2, 0, id="product-double, right"),
        pytest.param(
            [lane // 16 * 128 for lane in LANES], 16, ALL, 2, 0, id="product-double, left"
        ),
        pytest.param([0] * 32, 16, ALL, 2, 0, id="gravity"),
        pytest.param([0] * 32, 16, 1, 1, 0, id="sum-vectors"),
        pytest.param([lane % 16 * 80 for lane in LANES], 16, 0xFFFF, 2, 0, id="ldmatrix.x2"),
        pytest.param([lane * 80 % 1280 for lane in LANES], 16, ALL, 4, 0, id="ldmatrix.x4"),
        pytest.param([lane // 2 * 32 + lane % 2 * 8 for lane in LANES], 8, ALL, 4, 2, id="fft"),
        pytest.param([lane * 8 for lane in LANES], 8, 0x5555_5555, 2, 1, id="bitonic-block"),
    ],
)
def test_wavefronts_are_those_of_the_hardware(
    addresses: list[int], width: int, mask: int, wavefronts: int, excessive: int
) -> None:
    cost = counted(Site("load", "shared", width), addresses, mask)
    assert (cost["wavefronts"], cost["excessive"]) == (wavefronts, excessive)


@pytest.mark.parametrize(("addresses", "wavefronts"), [(1, 32), (2, 16), (8, 4), (64, 1)])
def test_lanes_that_add_to_one_word_take_turns(addresses: int, wavefronts: int) -> None:
    # `shared-ints-*` of docs/results/h200-truth.csv.
    site = Site("atomic", "shared", lanes_in_turn=True)
    memory = Memory()
    memory.resolve(site, np.array([lane % addresses * 4 for lane in LANES]), ALL).prepare_atomic(
        site
    )
    cost = dict(zip(COUNTERS, memory.counters[site.index].tolist(), strict=True))
    assert (cost["wavefronts"], cost["excessive"]) == (wavefronts, wavefronts - 1)
    assert cost["words"] == min(addresses, WARP_SIZE)


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


def count_strided_load(stride: int, width: int) -> dict[str, int]:
    """What is counted for a load of two warps of so many bytes per lane, so many bytes apart."""
    body = f"""
    .reg .b32 %r<3>; .reg .b64 %a<3>; .reg .b{8 * width} %f; mov.u32 %r1, %tid.x;
    ld.param.u64 %a1, [a]; mul.wide.u32 %a2, %r1, {stride}; add.u64 %a1, %a1, %a2;
    ld.global.b{8 * width} %f, [%a1]; ret;
    """
    done = run(kernel(body, ".u64 a"), {"a": np.zeros(64 * stride + 8, np.int8)}, block=(64, 1, 1))
    return done.counted(f"ld.global.b{8 * width}")


@pytest.mark.parametrize(
    ("stride", "width", "sectors"), [(4, 4, 4), (8, 4, 8), (128, 4, 32), (8, 8, 8)]
)
def test_a_load_counts_what_its_stride_costs(stride: int, width: int, sectors: int) -> None:
    cost = count_strided_load(stride, width)
    assert cost["requests"] == 2
    assert cost["sectors"] == 2 * sectors
    assert cost["bytes"] == cost["used"] == 64 * width


with Path("docs/results/h100-line-loads.csv").open() as table:
    LINE_LOADS = [Counter({k: float(v) for k, v in row.items()}) for row in csv.DictReader(table)]
MANY_WARPS = [row for row in LINE_LOADS if row["warps"] == 32]


def hashed(a: int, b: int) -> int:
    """As in benchmarks/device.cuh."""
    x = (a * 0x9E3779B9 ^ b) & 0xFFFFFFFF
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ x >> 16


def loads_of(row: Mapping[str, float]) -> list[dict[int, int]]:
    """The different loads of a row of `benchmarks/line_loads.cu`: the address of each lane."""
    of = {name: int(value) for name, value in row.items()}
    loads = []
    for warp in range(of["warps"] if of["table"] or of["warp_stride"] else 1):
        for load in range(8 if of["load_stride"] else 1):
            moved = of["offset"] + warp * of["warp_stride"] + load * of["load_stride"]
            within = [
                lane // of["row_lanes"] * of["row_stride"]
                + lane % of["row_lanes"] * of["lane_stride"]
                for lane in LANES
            ]
            if of["table"]:
                elements = of["table"] // of["bytes"]
                within = [
                    hashed(WARP_SIZE * warp + lane, of["table"]) % elements * of["bytes"]
                    for lane in LANES
                ]
            loads.append({lane: moved + within[lane] for lane in LANES})
    return loads


def test_loads_that_hit_take_the_clocks_of_the_hardware() -> None:
    """Each pattern that was measured, at its place: the base of the memory is aligned."""
    for row in MANY_WARPS:
        clocks = [count_l1_clocks(load, int(row["bytes"])) for load in loads_of(row)]
        assert row["clocks"] == pytest.approx(np.mean(clocks), rel=0.05, abs=0.07), row


def test_the_l1_looks_up_tags_in_banks() -> None:
    for row in MANY_WARPS:
        lines = [{address // LINE_BYTES for address in load.values()} for load in loads_of(row)]
        passes = [max(Counter(map(tag_bank, of_load)).values()) for of_load in lines]
        assert row["tag_passes"] / row["loads"] == pytest.approx(np.mean(passes), abs=0.01), row


def test_the_machine_code_counts_the_clocks_of_the_hardware() -> None:
    """Of patterns of many lines or one, of which it takes the place that was measured."""
    counts = []
    for row in MANY_WARPS:
        load = loads_of(row)[0]
        one = not row["table"] and not row["warp_stride"] and not row["load_stride"]
        if one and (row["lines"] == 1 or row["lines"] > 8) and max(load.values()) < 16000:
            site = Site("load", "global", int(row["bytes"]))
            addresses = [GLOBAL_BASE + 13312 + load[lane] for lane in LANES]
            clocks = counted(site, addresses, ALL)["words"] / L1_CLOCK_PARTS
            assert clocks == pytest.approx(row["clocks"], rel=0.05, abs=0.07), row
            counts.append(clocks)
    assert len(counts) > 60


def test_shared_conflicts_are_wavefronts_beyond_the_ideal() -> None:
    body = """
    .reg .b32 %r<4>; .shared .align 4 .b8 tile[4096]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
    mad.lo.u32 %r2, %r1, 128, %r2; st.shared.u32 [%r2], %r1; ret;
    """
    cost = run(kernel(body), {}).counted("st.shared.u32")
    assert (cost["requests"], cost["wavefronts"], cost["excessive"]) == (1, 32, 31)
