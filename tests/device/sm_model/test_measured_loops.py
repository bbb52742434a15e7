"""The simulation of an SM against loops of micro-benchmarks that an H200 ran.

The tables and what made them are described in `tests/data/README.md`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memlab.device.datasheets import loader
from memlab.device.machine_code.instructions import Control, MachineCode, MachineInstruction
from memlab.device.sm_model.device_rates import device_rates
from memlab.device.sm_model.machine_steps import machine_steps
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.device.sm_model.records import Kind, Unit
from memlab.device.sm_model.simulation import Rates, Steps, Workload, empty_steps, run

DATA = Path(__file__).parents[2] / "data"
RESULTS = Path(__file__).parents[3] / "docs" / "results"
H200 = loader.load_datasheet("h200")
SMS = 132


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (DATA / table).open(newline="") as file:
        return list(csv.DictReader(file))


def clocks_of(steps: Steps, trips: int, warps: int, rates: Rates) -> float:
    """Clocks of a block whose warps repeat all instructions."""
    path, members = np.array([(0, len(steps))] * trips), (0,) * warps
    return run(Workload(steps, (path,), members, members, 1.0, 1, 1), rates).clocks


def empty_profile(written_share: float = 0.0, sector_bytes: float = 32.0) -> LaunchProfile:
    """That of a launch without machine code; DRAM moves so many bytes for a missed sector."""
    code = MachineCode("k", (9, 0), ())
    return LaunchProfile(code, (), (0,), (0,), 1.0, {}, sector_bytes, 0.0, written_share)


GROUPS = 16
WORDS = {
    "FFMA": ("FFMA", "R{0}, R{0}, R3.reuse, R4.reuse"),
    "LOP": ("LOP3.LUT", "R{1}, R{1}, R5.reuse, R6.reuse, 0x6a, !PT"),
    "IMAD": ("IMAD", "R{2}, R{2}, R5.reuse, R6.reuse"),
    "MUFU": ("MUFU.EX2", "R{3}, R{3}"),
    "WIDE": ("IMAD.WIDE.U32", "R{4}, R{1}, R7.reuse, RZ"),
    "WIDEC": ("IMAD.WIDE", "R{4}, R{1}, 0xc, R8.reuse"),
    "HI": ("IMAD.HI.U32", "R{2}, R{2}, R7.reuse, R8.reuse"),
}
"""Instructions of the loops; the braces are registers of a group."""
AFTER = {"WIDE": ("LOP3.LUT", "R{1}, R{4}, R{5}, R6, 0x96, !PT")}
AFTER["WIDEC"] = AFTER["WIDE"]
"""What follows each of them to use both registers of its result."""


def words_of(first: str, then: str, thens: int) -> Iterator[tuple[str, str]]:
    """The instructions of a loop of 16 groups: one instruction, then some of another."""
    for group in range(GROUPS):
        for name in (first, *[then] * thens):
            places = (16 + group % 8, 32 + group % 8, 48 + group % 8, 64 + group % 8)
            pair = 80 + 2 * (group % 8)
            for opcode, operands in (WORDS[name], *([AFTER[name]] if name in AFTER else [])):
                yield opcode, operands.format(*places, pair, pair + 1)


def issue_clocks(first: str, then: str, thens: int) -> float:
    """Clocks of a sub-core per group and warp, where 4 warps share it."""
    control = Control(1, None, None, 0)
    instructions = tuple(
        MachineInstruction(16 * place, "", opcode, tuple(operands.split(", ")), None, 0, control)
        for place, (opcode, operands) in enumerate(words_of(first, then, thens))
    )
    code = MachineCode("k", (9, 0), instructions)
    profile = LaunchProfile(code, (), (), (), 1.0, {}, 32.0, 0.0, 0.0)
    trips, warps = 50, 16
    clocks = clocks_of(machine_steps(profile, SMS, H200), trips, warps, Rates())
    return clocks / (trips * GROUPS * warps / 4)


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in rows_of("h200-issue.csv")
        if row["warps"] == "16"
        and row["first"] in ("WIDE", "WIDEC", "HI", "MUFU")
        and (row["first"], row["then"]) != ("MUFU", "FFMA")  # these wait for registers' banks
        and row["then"] in ("NONE", "FFMA", "LOP", "WIDE", "IMAD")
    ],
    ids=lambda row: f"{row['first']} and {row['thens']} {row['then']}",
)
def test_products_of_64_bits_keep_the_sub_core_from_issuing(row: dict[str, str]) -> None:
    """The measured clocks contain a branch and a count, in each 16 groups: up to 0.5 clocks."""
    modelled = issue_clocks(row["first"], row["then"], int(row["thens"]))
    assert 0.92 * (float(row["clocks"]) - 0.5) <= modelled <= 1.12 * float(row["clocks"])


def turn_clocks(kind: Kind, passes: int, loads: int, warps: int) -> float:
    """Clocks of a turn in which warps make loads that the L1 has, and wait for all of them."""
    steps = empty_steps(loads + 1)
    made = steps[:-1]
    made["kind"], made["unit"], made["write"], made["passes"] = kind, Unit.MEMORY, 0, passes
    made["lines"], made["sectors"], made["latency"] = passes, passes, H200.shared_latency_clocks
    made["loads_shared"] = kind == Kind.LOCAL
    steps[:-1], steps[-1]["wait"], trips = made, 1, 100
    return clocks_of(steps, trips, warps, device_rates(empty_profile(), 1, H200)) / trips


@pytest.mark.parametrize("memory", ["shared", "global"])
@pytest.mark.parametrize(("warps", "loads"), [(1, 1), (1, 8), (2, 8), (16, 8)])
def test_the_wavefronts_of_a_load_come_one_after_the_other(
    memory: str, warps: int, loads: int
) -> None:
    """Those of a sub-core in 2 clocks each, those of all in 1."""
    measured = {
        int(row["stride"]): float(row["clocks"])
        for row in csv.DictReader((RESULTS / "h200-load-results.csv").open())
        if (row["memory"], row["bytes_per_lane"]) == (memory, "4")
        and (int(row["warps"]), int(row["loads"])) == (warps, loads)
    }
    kind = Kind.LOCAL if memory == "shared" else Kind.LOAD
    few = turn_clocks(kind, 2, loads, warps)
    for passes in (8, 16, 32):
        added = turn_clocks(kind, passes, loads, warps) - few
        assert added == pytest.approx(measured[passes] - measured[2], rel=0.2)


def lone_load_clocks(lines: int, *, whole: bool) -> float:
    """The mean latency of a load of one warp, from DRAM."""
    steps = empty_steps(2)
    steps[0]["kind"], steps[0]["unit"], steps[0]["write"] = Kind.LOAD, Unit.MEMORY, 0
    steps[0]["lines"], steps[0]["sectors"], steps[0]["passes"] = lines, 4 * lines, lines
    steps[0]["missed"] = steps[0]["dram"] = 1
    steps[0]["whole"], steps[1]["wait"] = whole, 1
    trips = 2000
    return clocks_of(steps, trips, 1, device_rates(empty_profile(), 1, H200)) / trips


@pytest.mark.parametrize("neighbours", [False, True])
@pytest.mark.parametrize("lines", [1, 2, 4])
def test_neighbouring_lines_come_together(lines: int, neighbours: bool) -> None:
    (measured,) = (
        float(row["mean_clocks"])
        for row in rows_of("h200-neighbours.csv")
        if (row["level"], int(row["lines"])) == ("dram", lines)
        and row["neighbours"] == str(int(neighbours))
    )
    assert lone_load_clocks(lines, whole=neighbours) == pytest.approx(
        measured, rel=0.05 if neighbours else 0.1
    )


LOOP_CLOCKS = 200
"""What the loop of `h200-loaded.csv` takes besides the load, where it is alone: 193 to 273."""


def loaded_bytes_per_clock(warps: int, lines: int, loads_per_store: int) -> float:
    """Bytes that all SMs read per clock, whose warps load, wait, and store after some loads."""
    each = loads_per_store or 1
    steps = empty_steps(2 * each + bool(loads_per_store))
    for place in range(each):
        load = steps[2 * place]
        load["kind"], load["unit"], load["write"] = Kind.LOAD, Unit.MEMORY, 0
        load["missed"] = load["dram"] = 1
        steps[2 * place + 1]["wait"], steps[2 * place + 1]["stall"] = 1, LOOP_CLOCKS
    if loads_per_store:
        steps[-1]["kind"], steps[-1]["unit"] = Kind.STORE, Unit.MEMORY
        steps[-1]["missed"], steps[-1]["written"] = 1, 32
    memory = steps[steps["unit"] == Unit.MEMORY]
    memory["lines"], memory["sectors"], memory["passes"], memory["whole"] = lines, 4 * lines, 1, 1
    steps[steps["unit"] == Unit.MEMORY] = memory
    share = 1 / (1 + loads_per_store) if loads_per_store else 0.0
    rates, trips = device_rates(empty_profile(share), SMS, H200), 200 // each
    clocks = clocks_of(steps, trips, warps, rates)
    return SMS * warps * trips * each * lines * 128 / clocks


@pytest.mark.parametrize("loads_per_store", [0, 1, 2])
@pytest.mark.parametrize("warps", [4, 8, 16])
def test_loads_wait_longer_the_more_dram_is_loaded(warps: int, loads_per_store: int) -> None:
    """What the load adds to the latency, which is what it adds to the time of a loop."""
    measured = {
        int(row["warps_per_sm"]): float(row["mean_clocks"])
        for row in rows_of("h200-loaded.csv")
        if row["bytes_per_lane"] == "16" and (row["loads_per_store"] or "0") == str(loads_per_store)
    }
    modelled = {
        count: 4 * 128 * SMS * count / loaded_bytes_per_clock(count, 4, loads_per_store)
        for count in (1, warps)
    }
    added, expected = modelled[warps] - modelled[1], measured[warps] - measured[1]
    assert added == pytest.approx(expected, rel=0.4, abs=60)


def lone_sectors_clocks(warps: int) -> float:
    """The time of a load by lanes that read sectors of their own, of which DRAM has every other."""
    steps = empty_steps(4)
    loads = steps[::2]
    loads["kind"], loads["unit"], loads["write"], loads["missed"] = Kind.LOAD, Unit.MEMORY, 0, 1
    loads["lines"], loads["sectors"], loads["passes"], loads["dram"] = 32, 32, 32, (1, 0)
    steps[::2], steps[1::2]["wait"], trips = loads, 1, 100
    rates = device_rates(empty_profile(sector_bytes=64.0), SMS, H200)
    return clocks_of(steps, trips, warps, rates) / trips / 2


def test_lone_sectors_wait_longer_than_those_of_streams() -> None:
    measured = {
        int(row["warps_per_sm"]): float(row["mean_clocks"])
        for row in csv.DictReader((RESULTS / "h200-scattered-loads.csv").open())
        if row["piece_bytes"] == "32"
    }
    added = lone_sectors_clocks(8) - lone_sectors_clocks(1)
    assert added == pytest.approx(measured[8] - measured[1], rel=0.2)


def test_a_block_makes_room_when_its_stores_have_left_the_sm() -> None:
    def turnaround_clocks(stores: int, warps: int) -> float:
        steps = empty_steps(2 + stores)
        steps[0]["stall"] = 3000
        stored = steps[1:-1]
        stored["kind"], stored["unit"], stored["lines"] = Kind.STORE, Unit.MEMORY, 1
        stored["sectors"], stored["missed"] = 4, 1
        code = MachineCode("k", (9, 0), ())
        profile = LaunchProfile(code, (), (0,) * warps, (0,), 1.0, {}, 32.0, 0.0, 0.0)
        rates = device_rates(profile, SMS, H200)
        path, members = np.array([(0, len(steps))]), (0,) * warps
        starts = run(Workload(steps, (path,), members, members, 1.0, 11, 1), rates).starts
        return float(starts[-1] - starts[1]) / 9

    rows = rows_of("h200-block-ends.csv")
    clocks = {
        (int(r["stores_per_thread"]), int(r["threads"])): float(r["turnaround_clocks"])
        for r in rows
    }
    for stores, threads in ((4, 1024), (16, 256)):
        added = turnaround_clocks(stores, threads // 32) - turnaround_clocks(0, threads // 32)
        expected = clocks[stores, threads] - clocks[0, threads]
        assert added == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize(
    ("piece_bytes", "opcode", "lines", "sectors"),
    [
        (32, "STG.E.64", 8, 8),
        (32, "STG.E", 4, 4),
        (64, "STG.E.64", 4, 8),
        (128, "STG.E.128", 4, 16),
    ],
)
@pytest.mark.parametrize("sms", [1, SMS])
def test_stores_of_pieces_of_rows_take_the_measured_time(
    piece_bytes: int, opcode: str, lines: int, sectors: int, sms: int
) -> None:
    word_bytes = sectors  # 32 lanes fill as many sectors of 32 bytes
    (measured,) = {
        float(row["issue_clocks"])
        for row in rows_of("h200-row-stores.csv")
        if (int(row["sms"]), int(row["piece_bytes"])) == (sms, piece_bytes)
        and (int(row["word_bytes"]), row["passes"], row["repeat"]) == (word_bytes, "32", "2")
    }
    store = MachineInstruction(0, "", opcode, ("[R2.64]", "R4"), None, 0, Control(2, None, None, 0))
    access = Access(lines, lines, sectors, missed=1.0)
    code = MachineCode("k", (9, 0), (store,))
    profile = LaunchProfile(code, (), (0,) * 8, (0,), 1.0, {0: access}, 32.0, 0.0, 0.0)
    steps = machine_steps(profile, sms, H200)

    # 8 warps write 128 rows of 1024 bytes, 32 times.
    trips = 32 * 128 * 1024 // 32 // sectors // 8
    clocks = clocks_of(steps, trips, 8, device_rates(profile, sms, H200))

    assert clocks == pytest.approx(measured, rel=0.1)


def test_kernels_that_store_end_later() -> None:
    rows = rows_of("h200-launches.csv")
    durations = {
        (row["kernel"], row["blocks"], row["threads"]): float(row["duration_ns"])
        for row in rows
        if row["shared_bytes"] == "0"
    }
    longer = [
        time - durations["nothing", blocks, threads]
        for (kernel, blocks, threads), time in durations.items()
        if kernel == "one_store"
    ]
    own_ns = 120  # of the instructions of the store, in the model: 60 to 220
    assert H200.store_completion_s is not None
    assert np.median(longer) - own_ns == pytest.approx(1e9 * H200.store_completion_s, rel=0.1)
