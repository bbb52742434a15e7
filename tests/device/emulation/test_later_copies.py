"""How bulk copies of blocks in later waves are merged, against what an H200 counted."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from statistics import mean

import numpy as np
import pytest
from paths import DATA, REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.devices import launch_limits
from memlab.device.emulation import executed_addresses
from memlab.device.emulation.device import emulate
from memlab.device.emulator.models.address_streams import IntArray
from memlab.device.emulator.models.coalescing import CopyMerging
from memlab.kernels.catalog import find_kernel

H200 = load_datasheet("h200")
SMS = 132
MERGING = CopyMerging.of(H200)


def test_later_waves_merge_the_measured_share() -> None:
    """Of the first matrix, a third of the sectors; no SM shares the boxes of the second one."""
    left: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (REPOSITORY / "docs" / "results" / "h200-merged-copies.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["who"].startswith("waves") and row["stored"] == "64":
                readers, waves = row["who"].removeprefix("waves ").split("/")
                l1, l2 = float(row["l1_sectors"]), float(row["l2_sectors"])
                key = readers, row["rows_or_work"], row["delay_or_slabs"], waves
                left[key].append((l2 - l1 * 2 / 3) / (l1 / 3))
    shares = []
    for case, values in left.items():
        if case[-1] != "1":
            first, count = mean(left[*case[:-1], "1"]), int(case[-1])
            later = (mean(values) * count - first) / (count - 1)
            shares.append((1 - later) / (1 - first))

    assert len(shares) == 3 * 20
    assert H200.l2_merged_later_copies_share == pytest.approx(mean(shares), abs=0.01)


def reads(
    blocks: int, per_sm: int, parts: list[tuple[float, Callable[[IntArray], IntArray]]]
) -> float:
    """The share of the reads of a grid that are left; parts of them, by what blocks share."""
    assert MERGING is not None
    wave = min(blocks, per_sm * SMS)
    first = sum(
        share * MERGING.first_reads(shared(np.arange(wave)), SMS) for share, shared in parts
    )
    return first * wave / blocks + MERGING.later_reads(first) * (1 - wave / blocks)


@pytest.mark.parametrize(
    ("launch", "blocks", "per_sm", "parts", "error"),
    [  # rows of 16 blocks share a box of M, a third or a fifth of the sectors, columns those of N
        *(
            (f"wgmma-pipelined {rows * 128}x4096x4096", rows * 16, 1, (1 / 3, 16), 0.02)
            for rows in (8, 16, 32, 64)
        ),
        *(
            (f"wgmma {rows * 64}x4096x4096", rows * 16, 3, (1 / 5, 16), tolerance)
            for rows, tolerance in ((24, 0.2), (48, 0.1), (96, 0.1))
        ),
        # The 32 blocks of a head share K and V, all but 1.5% of the sectors.
        *(
            (f"attention-wgmma 4096x{heads}x128", heads * 32, 1, (0.985, 32), 0.2)
            for heads in (4, 8, 16, 32)
        ),
    ],
)
def test_grids_of_some_waves_read_what_was_counted(
    launch: str, blocks: int, per_sm: int, parts: tuple[float, int], error: float
) -> None:
    with (DATA / "h200-hopper-waves.csv").open(newline="") as file:
        counted = [
            float(row["l2_sectors"]) / float(row["l1_sectors"])
            for row in csv.DictReader(file)
            if row["launch"] == launch
        ]
    share, readers = parts
    modelled = reads(
        blocks,
        per_sm,
        [(share, lambda block: block // readers), (1 - share, lambda block: block % readers)],
    )

    assert modelled == pytest.approx(mean(counted), rel=error)


def test_blocks_of_a_slot_meet_and_those_of_two_slots_are_out_of_step() -> None:
    merging = CopyMerging((0, 0, 0, 0, 0, 1), 4, merged_apart=0.5, merged_later=0.4)

    # Five SMs of a group read one box twice, the sixth one alone.
    assert merging.first_reads(np.zeros(6, np.int64), 6) == pytest.approx(3 / 6)
    # Two blocks on each of two SMs: one read for each slot, of which half are one of both.
    assert merging.first_reads(np.zeros(4, np.int64), 2) == pytest.approx((1 + 0.5) / 4)
    assert merging.later_reads(0.25) == pytest.approx(1 - 0.4 * 0.75)


def test_the_stream_model_merges_copies_of_a_gpc(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("REPLAYED_LANE_INSTRUCTIONS", "REPLAYED_WITHOUT_DATA"):
        monkeypatch.setattr(executed_addresses, limit, 0)
    launch = find_kernel("wgmma-pipelined").prepare(
        {"m": 256, "k": 256, "n": 2048}, launch_limits(H200)
    )
    compiled = compile_launch(launch, H200.compute_capability)

    counters = emulate(launch, compiled, H200, 0).counters

    # 16 blocks on the 16 SMs of a GPC: of M, a third, four of 8 make one; of N both of a column.
    asked = counters.lrc_read_sectors
    assert counters.l2_read_sectors == pytest.approx(asked * (1 / 3 / 4 + 2 / 3 / 2), rel=1e-3)
