"""Blocks that read the same lines from DRAM in step, against what an H100 took."""

from __future__ import annotations

import csv

import pytest
from launches import user_launch
from paths import REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation import cache_counters
from memlab.device.emulation.device import emulate, resident_blocks

H100 = load_datasheet("h100")
SMS, TRIPS = 132, 128
STREAMS = REPOSITORY / "benchmarks" / "shared_streams.cu"
with (REPOSITORY / "docs" / "results" / "h100-shared-streams.csv").open(newline="") as file:
    MEASURED = {
        (int(row["lines"]), int(row["warps"]), int(row["readers"])): float(row["cold_clocks"])
        for row in csv.DictReader(file)
        if row["blocks_per_sm"] == "1"
    }


def clocks_per_trip(lines: int, warps: int, readers: int) -> float:
    blocks = SMS // readers * readers
    words = blocks // readers * TRIPS * warps * lines * 32
    text = (
        f"--grid {blocks} --block {32 * warps} --arg u32[{words}]=randint:0:1000000 --arg u32=0"
        f" --arg i32={readers} --arg i32={TRIPS} --arg u64=0"
        f" --arg out:u32[{blocks * warps * 32}] --arg out:u32[{blocks}]"
    )
    launch = user_launch(f"{STREAMS}:streams<{lines}>", text.split())
    compiled = compile_launch(launch, H100.compute_capability)
    found = emulate(launch, compiled, H100, 1)
    seconds = found.time(resident_blocks(launch, compiled, H100), H100).median_s
    return (seconds - (H100.shortest_kernel_s or 0)) * (H100.clock_rate_hz or 0) / TRIPS


@pytest.mark.parametrize("case", [(1, 1, 1), (1, 4, 4), (1, 4, 16), (1, 4, 132), (4, 1, 132)])
def test_blocks_in_step_wait_for_dram_together(
    case: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the L2 has the lines, trips take 330 to 340 clocks.

    The benchmark adds zeros that it has read to its addresses, so that a trip waits for the one
    before. Blocks whose addresses depend on data are not taken to be in step; these are.
    """
    monkeypatch.setattr(cache_counters, "depends_on_data", lambda program: False)
    assert clocks_per_trip(*case) == pytest.approx(MEASURED[case], rel=0.12)
