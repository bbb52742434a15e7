"""How often lanes try to add to floats in shared memory, against what an H200 counted."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from launches import user_launch
from paths import REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.device import Emulation, emulate, resident_blocks
from memlab.device.emulation.shared_retries import attempts, rounds_by_warps
from memlab.device.machine_code.retries import Attempts

H200 = load_datasheet("h200")
SMS, ADDITIONS = 132, 32
FLOATS = f"{REPOSITORY / 'benchmarks' / 'shared_floats.cu'}:floats"
with (REPOSITORY / "docs" / "results" / "h200-shared-floats.csv").open(newline="") as file:
    COUNTED = {
        (int(row["sharing_lanes"]), int(row["warps"]), int(row["blocks_per_sm"])): row
        for row in csv.DictReader(file)
    }


def floats(sharing: int, warps: int, blocks: int) -> tuple[Emulation, float]:
    """The micro-benchmark on the emulated H200, and its modelled clocks."""
    words = f"--grid {SMS * blocks} --block {32 * warps} --arg u32={sharing} --arg u32={ADDITIONS}"
    more = f"--arg out:f32[{SMS * blocks * warps * 32}] --arg out:u64[1]"
    launch = user_launch(FLOATS, (words + " " + more).split())
    compiled = compile_launch(launch, H200.compute_capability)
    found = emulate(launch, compiled, H200, 1)
    seconds = found.time(resident_blocks(launch, compiled, H200), H200).median_s
    return found, (seconds - (H200.shortest_kernel_s or 0)) * (H200.clock_rate_hz or 0)


def executed(found: Emulation, name: str) -> int:
    return sum(step.warps for step in found.listing if step.text.startswith(name))


@pytest.mark.parametrize("case", [(32, 1, 1), (8, 4, 1), (4, 8, 8), (8, 16, 2), (32, 32, 1)])
def test_compare_and_swaps_are_those_of_the_hardware(case: tuple[int, int, int]) -> None:
    sharing, warps, blocks = case
    found, clocks = floats(*case)
    row = COUNTED[case]

    assert executed(found, "ATOMS.CAST") == pytest.approx(float(row["compare_and_swaps"]), rel=0.15)
    swaps = found.counters.shared_atomic_instructions
    assert swaps == executed(found, "ATOMS.CAST")
    assert found.counters.shared_atomic_wavefronts == 2 * swaps  # no two words have one bank
    # The lanes of a word leave the loop one after the other, those of different words together.
    every_warp = SMS * blocks * warps  # has a loop before, too, which its lanes leave together
    assert executed(found, "BSSY") == every_warp * (1 + ADDITIONS)
    assert executed(found, "BSYNC") == every_warp * (1 + sharing * ADDITIONS)
    assert clocks == pytest.approx(float(row["sm_active_clocks"]), rel=0.12)


def test_lanes_of_one_warp_take_turns() -> None:
    """Three lanes on one word and one on another: three rounds, of 3, 2 and 1 of the three."""
    additions = np.array([[0] * 4, [5] * 4, [64, 64, 64, 8]])

    assert attempts(additions, {}) == Attempts(warp=3.0, lane=(3 + 2 + 1 + 1) / 4, groups=3.0)


def test_warps_hinder_one_another_at_a_word_in_the_same_turn() -> None:
    """In turn 0, two warps add to one word with 2 lanes and 1; in turn 1, to words of their own."""
    turn, warp = [0, 0, 0, 1, 1], [0, 0, 1, 0, 1]
    additions = np.array([turn, warp, [4, 4, 4, 4, 8]])
    rounds = {"1": 1.0, "2": 0.9}

    found = attempts(additions, rounds)

    assert found.warp == pytest.approx((2.7 + 2.7 + 1 + 1) / 4)
    assert found.lane == pytest.approx((2.7 * 1.5 + 2.7 * 1 + 1 + 1) / 5)
    assert found.groups == (2 + 1 + 1 + 1) / 4
    assert attempts(additions, {}).warp == (2 + 1 + 1 + 1) / 4
    assert attempts(additions, {"2": 0.1}).warp >= 5 / 4  # own lanes take turns at any rate


def test_rounds_depend_on_the_warps_of_the_sm() -> None:
    measured = {"1x1": 1.0, "4x4": 0.9, "4x64": 0.5}

    assert rounds_by_warps(measured, 4) == {"1": 1.0, "4": pytest.approx(0.9)}
    assert rounds_by_warps(measured, 16)["4"] == pytest.approx(0.7)
    assert rounds_by_warps(measured, 2)["4"] == pytest.approx(0.9)
    assert rounds_by_warps({}, 4) == {}
