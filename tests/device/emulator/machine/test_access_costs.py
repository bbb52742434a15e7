"""Requests, sectors and wavefronts, against counting by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptx import kernel, run

from memlab.device.emulator.machine import access_costs
from memlab.device.emulator.machine.access_costs import (
    Patterns,
    count_local,
    count_sectors,
    count_wavefronts,
)

addresses = st.lists(st.integers(0, 300), min_size=64, max_size=64)
warps_active = st.lists(st.booleans(), min_size=2, max_size=2)
often = settings(max_examples=60, deadline=None)


@often
@given(addresses, warps_active, st.integers(0, 20))
def test_sectors_are_distinct_blocks_of_32_bytes(
    words: list[int], active: list[bool], offset: int
) -> None:
    relative = np.array(words).reshape(2, 32) * 4
    counted = count_sectors(relative, np.array(active), offset * 4)
    expected = [
        {(word * 4 + offset * 4) // 32 for word in words[32 * warp : 32 * warp + 32]}
        for warp in range(2)
        if active[warp]
    ]
    assert counted.requests == sum(active)
    assert counted.sectors == sum(map(len, expected))
    assert sorted(counted.offsets) == sorted(each for warp in expected for each in warp)
    assert counted.per_warp.tolist() == [len(expected.pop(0)) if each else 0 for each in active]


@often
@given(addresses, warps_active, st.sampled_from([1, 2, 4, 8, 16]))
def test_wavefronts_are_the_deepest_bank(words: list[int], active: list[bool], width: int) -> None:
    unit = max(width, 4)
    relative = np.array(words).reshape(2, 32) * unit
    counted = count_wavefronts(relative, np.array(active), width)
    wavefronts = ideal = 0
    lanes_at_once = 16 if width == 16 else 32
    for warp in range(2):
        for first in range(0, 32 if active[warp] else 0, lanes_at_once):
            touched: set[int] = set()
            for lane in range(first, first + lanes_at_once):
                start = int(relative[warp, lane]) // 4
                touched.update(range(start, start + unit // 4))
            wavefronts += max(sum(word % 32 == bank for word in touched) for bank in range(32))
            ideal += -(-len(touched) // 32)
    assert counted.instructions == sum(active)
    assert (counted.wavefronts, counted.ideal) == (wavefronts, ideal)


@often
@given(addresses, st.sampled_from([1, 4, 8, 16]))
def test_local_words_of_a_warp_are_interleaved(words: list[int], width: int) -> None:
    relative = np.array(words).reshape(2, 32) * max(width, 4)
    counted = count_local(relative, np.array([True, True]), 0, width)
    sectors = set()
    for warp in range(2):
        for lane in range(32):
            for word in range(max(width // 4, 1)):
                place = (int(relative[warp, lane]) // 4 + word) * 128 + 4 * lane
                sectors.add((warp, place // 32))
    assert counted.sectors == len(sectors)


def test_equal_patterns_are_interned_once() -> None:
    patterns = Patterns()
    straight = np.arange(64).reshape(2, 32) * 4
    active = np.array([True, True])
    first = patterns.intern("a", straight, active)
    strided = patterns.intern("a", straight * 8, active)
    assert patterns.intern("b", straight.copy(), active.copy()) == first != strided
    assert patterns.intern("a", straight, np.array([True, False])) not in (first, strided)
    assert patterns.sectors(first, 0).sectors == 8
    assert patterns.sectors(first, 4).sectors == 10
    assert patterns.sectors(strided, 0).sectors == 64
    assert patterns.wavefronts(strided, 0, 4).wavefronts == 16
    assert patterns.local(first, 0, 4).requests == 2


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
    counted = done.counted(f"ld.global.{width}")
    assert counted["requests"] == 2
    assert counted["sectors"] == 2 * sectors
    assert counted["bytes"] == 64 * size


def test_shared_conflicts_are_wavefronts_beyond_the_ideal() -> None:
    body = """
    .reg .b32 %r<4>; .shared .align 4 .b8 tile[4096]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
    mad.lo.u32 %r2, %r1, 128, %r2; st.shared.u32 [%r2], %r1; ret;
    """
    counted = run(kernel(body), {}).counted("st.shared.u32")
    assert (counted["requests"], counted["wavefronts"], counted["excessive"]) == (1, 32, 31)


def test_patterns_beyond_the_memory_limit_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one costs stays right, for those in use too."""
    monkeypatch.setattr(access_costs, "_MOST_HELD_BYTES", 20_000)
    generator, patterns, active = np.random.default_rng(2), Patterns(), np.array([True])
    straight = np.arange(32).reshape(1, 32) * 4
    kept = patterns.intern("kept", straight, active)
    for number in range(200):
        drawn = generator.integers(0, 1000, (1, 32)) * 4
        pattern = patterns.intern("drawn", drawn, active)
        assert patterns.sectors(pattern, 0).sectors == len(np.unique(drawn // 32)), number
    assert sum(map(len, patterns._known)) < 20_000
    assert patterns.sectors(kept, 4).sectors == 5
