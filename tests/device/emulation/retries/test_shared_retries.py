"""How often lanes try to add to floats in shared memory, against what an H200 counted."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from launches import user_launch
from numpy.typing import NDArray
from paths import REPOSITORY

from benchmarks.truth.cases import all_cases
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.device import Emulation, emulate, resident_blocks
from memlab.device.emulation.retries.shared_retries import attempts_alone, shared_additions
from memlab.device.machine_code.retries import Attempts, SharedAdditions
from memlab.device.sm_model.records import Kind, Unit
from memlab.device.sm_model.simulation import Rates, Workload, empty_steps, run

H200 = load_datasheet("h200")
SMS, ADDITIONS = 132, 32
ADDITIONS_TABLE = REPOSITORY / "docs" / "results" / "h100-shared-additions.csv"
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


@pytest.mark.parametrize(
    "case", [(32, 1, 1), (8, 4, 1), (4, 8, 8), (8, 16, 2), (32, 32, 1), (32, 8, 8)]
)
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


@pytest.mark.parametrize(
    ("kernel", "sharing", "stride"),
    [("floats", 1, 32), ("floats", 1, 2), ("floats", 4, 32), ("doubles", 1, 2)],
)
def test_lanes_of_one_bank_take_turns_as_an_h100_counted(
    kernel: str, sharing: int, stride: int
) -> None:
    """A warp alone adds to words some of which share a bank."""
    with ADDITIONS_TABLE.open(newline="") as file:
        (row,) = (
            row
            for row in csv.DictReader(file)
            if (row["kernel"], row["sharing_lanes"], row["stride"], row["warps"])
            == (kernel, str(sharing), str(stride), "1")
        )
    words = f"--grid {SMS} --block 32 --arg u32={sharing} --arg u32={stride}"
    own = " --arg u32=0" if kernel == "floats" else ""
    out = f" --arg out:f{32 if kernel == 'floats' else 64}[{SMS * 32}]"
    out += " --arg out:u64[1]" if kernel == "floats" else ""
    source = f"{REPOSITORY / 'benchmarks' / 'shared_additions.cu'}:{kernel}"
    launch = user_launch(source, (words + own + out).split())
    found = emulate(launch, compile_launch(launch, H200.compute_capability), H200, 1).counters

    assert found.shared_atomic_instructions == int(row["compare_and_swaps"])
    assert found.shared_atomic_wavefronts == int(row["swap_wavefronts"])
    assert found.shared_excessive_wavefronts == int(row["load_conflicts"])


def adding(
    turns: list[int], warps: list[int], lanes: list[int], addresses: list[int]
) -> NDArray[np.int64]:
    """Additions of 4 bytes."""
    return np.array([turns, warps, lanes, addresses, [4] * len(lanes)])


def test_lanes_of_one_warp_take_turns() -> None:
    """Three lanes on one word and one on another: three rounds, of 3, 2 and 1 of the three."""
    additions = shared_additions([{7: adding([0] * 4, [0] * 4, [0, 1, 2, 9], [64, 64, 64, 8])}], 1)

    assert additions.words[0][0][0][0, [0, 1, 2, 9]].tolist() == [1, 1, 1, 0]
    assert (additions.words[0][0][0] >= 0).sum() == 4
    alone = Attempts(warp=3.0, lane=(3 + 2 + 1 + 1) / 4, groups=3.0)
    assert attempts_alone(additions) == {7: alone}


def test_additions_are_listed_by_warp_and_turn() -> None:
    """Warp 1 adds to two words in turn, warp 0 to one of them once; warp 2 adds nothing."""
    additions = shared_additions([{3: adding([0, 0, 1], [0, 1, 1], [5, 5, 6], [4, 4, 12])}], 3)

    (block,) = additions.words
    assert [len(of[0]) for of in block] == [1, 2, 0]
    assert block[0][0][0, 5] == block[1][0][0, 5] == 0
    assert block[1][0][1, 6] == 1
    assert attempts_alone(additions) == {3: Attempts()}


def loop(clocks_between: float, words: tuple[int, int]) -> tuple[float, float]:
    """Two warps that add once, the second one some clocks later: rounds of a warp and of a lane.

    A lane of each adds. A load takes 30 clocks, and what a swap stores is seen 12 clocks later.
    """
    steps = empty_steps(4)  # the third one waits for the swap, and the last one ends the warp
    steps["kind"][:2], steps["unit"] = int(Kind.LOCAL), int(Unit.MEMORY)
    steps["unit"][2:] = int(Unit.MISCELLANEOUS)
    steps["latency"], steps["passes"] = 30, 1
    steps["loads_words"], steps["adding"] = [1, 0, 0, 0], [0, 0, -1, -1]
    steps["write"], steps["wait"] = [0, 0, -1, -1], [0, 1, 1, 0]
    tables = tuple((np.array([[word] + [-1] * 31]),) for word in words)
    work = Workload(
        steps,
        (np.array([[0, 3], [3, 4]]),),
        (0, 0),
        (0, 0),
        1.0,
        1,
        1,
        additions=SharedAdditions((1,), (32,), (tables,), (0, 1)),
    )
    (rounds,) = run(work, Rates(warp_interval=clocks_between, swap_clocks=12)).rounds
    assert rounds["executions"] == rounds["lanes"] == rounds["groups"] == 2
    assert rounds["warp_rounds"] == rounds["lane_rounds"]
    return float(rounds["warp_rounds"]) / 2, float(rounds["lane_rounds"]) / 2


@pytest.mark.parametrize(
    ("clocks_between", "rounds"),
    [(0, 1.5), (20, 1.5), (35, 1.5), (50, 1.0), (200, 1.0)],
)
def test_a_lane_fails_where_another_warp_stored_since_it_loaded(
    clocks_between: float, rounds: float
) -> None:
    """The first warp swaps some 30 clocks behind its load, which is seen 12 clocks later."""
    assert loop(clocks_between, (0, 0)) == (rounds, rounds)
    assert loop(clocks_between, (0, 1)) == (1.0, 1.0)  # words of their own


def test_warps_that_come_to_words_at_different_times_rarely_try_again() -> None:
    """An H200 counted 628,277 compare-and-swaps of 393,216 additions by 16 warps to each word."""
    (case,) = (case for case in all_cases() if case.name == "norm-gradients")
    launch = case.launch()
    found = emulate(launch, compile_launch(launch, H200.compute_capability), H200, 1)

    assert found.counters.shared_atomic_instructions == pytest.approx(628_277, rel=0.15)
