"""Loads and atomics at random lines of the L2, against what an H200 took (`h200-dependent.csv`)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from paths import DATA

import memlab
from memlab.device.datasheets import loader
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.sm_model.device_rates import device_rates
from memlab.device.sm_model.profile import LaunchProfile
from memlab.device.sm_model.records import Kind, Unit
from memlab.device.sm_model.simulation import Workload, empty_steps, run

H200 = loader.load_datasheet("h200")
SMS, L2_KIB = 132, 8192
MEASURED = {
    (row["kernel"], int(row["warps"]), int(row["lines"])): float(row["clocks"])
    for row in csv.DictReader((DATA / "h200-dependent.csv").open())
    if (row["table_kib"], row["sms"]) == (str(L2_KIB), str(SMS))
}


def load_clocks(warps: int, lines: int) -> float:
    """Clocks of a load of single sectors of so many lines, by warps of each SM: near L2 hits.

    A step of the micro-benchmark has some instructions besides.
    """
    steps, trips = empty_steps(2), 100
    steps[0]["kind"], steps[0]["unit"], steps[0]["busy"] = Kind.LOAD, Unit.MEMORY, 4
    steps[0]["write"] = 0
    steps[0]["passes"] = steps[0]["lines"] = steps[0]["sectors"] = lines
    steps[0]["missed"], steps[0]["far"], steps[1]["wait"] = 1, 0, 1
    profile = LaunchProfile(
        MachineCode("kernel", (9, 0), ()), (), (0,), (0,), 1.0, {}, 32.0, 0.0, 0.0
    )
    path = np.array([(0, 2)] * trips)
    work = Workload(steps, (path,), (0,) * warps, (0,) * warps, 1.0, 1, 1)
    rates = device_rates(profile, SMS, H200)
    return run(work, rates).clocks / trips


@pytest.mark.parametrize("lines", [8, 16, 32])
def test_a_load_waits_for_the_last_and_farthest_of_its_lines(lines: int) -> None:
    more = MEASURED["load_l2", 1, lines] - MEASURED["load_l2", 1, 4]  # 16 to 53 clocks

    assert load_clocks(1, lines) - load_clocks(1, 4) == pytest.approx(more, abs=8)


@pytest.mark.parametrize(("warps", "lines"), [(32, 16), (32, 32), (64, 8), (64, 32)])
def test_single_sectors_come_at_the_rate_of_the_l2(warps: int, lines: int) -> None:
    assert load_clocks(warps, lines) == pytest.approx(MEASURED["load_l2", warps, lines], rel=0.06)


SOURCE = """extern "C" __global__ void k(unsigned *table, unsigned *sum, unsigned lines, int trips)
{
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, all = 0;
    for (int trip = 0; trip < trips; ++trip) {
        unsigned x = (thread / (32 / lines)) * 0x9E3779B9u ^ trip;
        x = (x ^ x >> 16) * 0x85EBCA6Bu;
        x = (x ^ x >> 13) * 0xC2B2AE35u;
        unsigned *word = table + (x >> 16) * 32 + threadIdx.x % 32;
        OPERATION;
    }
    if (all == 1) *sum = all;
}"""
OPERATIONS = {
    "reduce": "atomicAdd(word, 1u)",
    "add": "all += atomicAdd(word, 1u)",
    "swap": "all += atomicCAS(word, ~0u, 0u)",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        ("reduce", 32),
        ("reduce", 8),
        ("reduce", 1),
        ("add", 32),
        ("add", 8),
        ("swap", 32),
        ("swap", 8),
    ],
)
def test_atomics_at_random_places_have_the_measured_rate(
    tmp_path: Path, kernel: str, lines: int
) -> None:
    (tmp_path / "k.cu").write_text(SOURCE.replace("OPERATION", OPERATIONS[kernel]))
    warps = 32

    def seconds(trips: int) -> float:
        run_ = memlab.run(
            f"{tmp_path}/k.cu:k",
            device="h200",
            grid=2 * SMS,
            block=warps * 32 // 2,
            args=[
                f"inout:u32[{L2_KIB * 256}]=zeros",
                "inout:u32[1]",
                f"u32={lines}",
                f"i32={trips}",
            ],
        )
        return run_.measurement.time.median_s

    clocks = (seconds(60) - seconds(20)) / 40 * 1.98e9
    assert clocks == pytest.approx(MEASURED[kernel, warps, lines], rel=0.1)
