"""Walks through tables of constants, against figures computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from memlab.device.emulator.machine.execution_trace import ConstantAccesses
from memlab.device.emulator.models.constant_walks import constant_walks
from memlab.device.sm_model.records import Kind, Stall, Unit
from memlab.device.sm_model.simulation import Rates, Steps, Workload, empty_steps, run

PLACES, LATENCY, INTERVAL = 4, 80.0, 10.0
TRIPS = 64


def walk(lines: int, warps: int = 1, advance: float = 1.0, kind: Kind = Kind.FIXED) -> Steps:
    """Loads of warps that walk through so many lines; returns the instructions, with waits."""
    steps = empty_steps(2)
    steps["stall"], steps["unit"] = 1, Unit.UNIFORM
    steps[0]["walked"], steps[0]["kind"] = advance, kind
    if kind == Kind.CONSTANT:
        steps[0]["write"], steps[1]["wait"], steps[0]["latency"] = 0, 1, 28
    members, path = (0,) * warps, np.array([(0, 2)] * TRIPS)
    work = Workload(steps, (path,), members, members, 1.0, 1, 1, walks=(np.arange(lines),) * warps)
    rates = Rates(
        indexed_places=PLACES,
        uniform_places=PLACES,
        constant_latency=LATENCY,
        constant_interval=INTERVAL,
    )
    run(work, rates)
    return steps


def test_a_table_that_fits_misses_once_per_line() -> None:
    missed = walk(PLACES)["stalls"][0][Stall.IMC_MISS]
    assert missed == pytest.approx(PLACES * LATENCY, abs=PLACES)


def test_a_larger_table_misses_each_line_in_each_pass() -> None:
    missed = walk(PLACES + 1)["stalls"][0][Stall.IMC_MISS]
    assert missed == pytest.approx(TRIPS * LATENCY, abs=TRIPS)


def test_a_line_is_missed_once_by_several_loads() -> None:
    missed = walk(2 * PLACES, advance=0.25)["stalls"][0][Stall.IMC_MISS]
    assert missed == pytest.approx(TRIPS / 4 * LATENCY, abs=TRIPS)


def test_each_load_of_a_line_looks_it_up() -> None:
    # Two warps of a sub-core that has one place: each replaces the other's line between the two
    # loads of it, the second of which does not go on.
    steps = empty_steps(3)
    steps["stall"], steps["unit"] = 10, Unit.UNIFORM
    steps["walked"][:2] = 1, 0
    members, path = (0, 1, 1, 1, 0), np.array([(0, 2)] * TRIPS)
    walks = tuple(np.arange(3) + 3 * (warp == 4) for warp in range(5))
    rates = Rates(constant_latency=LATENCY, constant_interval=INTERVAL)
    work = Workload(steps, (path, np.array([(2, 3)])), members, members, 1.0, 1, 1, walks=walks)
    run(work, rates)
    # It waits for the other warp's line, from 10 clocks behind its own, then for its own again.
    assert steps["stalls"][1, Stall.IMC_MISS] == pytest.approx(
        2 * TRIPS * (2 * LATENCY - 10), rel=0.02
    )


def test_an_indexed_load_misses_behind_its_issue() -> None:
    waited = walk(PLACES + 1, kind=Kind.CONSTANT)["stalls"]
    assert waited[0][Stall.IMC_MISS] == 0
    assert waited[1].sum() >= TRIPS * LATENCY


def test_walks_are_the_lines_that_warps_go_on_to() -> None:
    # Instruction 3: warp 0 reads lines 7, 7, 9, then 7 and 8 at once; warp 1 reads line 9.
    # Instruction 5 is left out.
    rows = [(3, 0, 7, 1), (3, 1, 9, 1), (3, 0, 7, 1), (5, 0, 1, 1), (3, 0, 9, 1)]
    rows += [(3, 0, 7, 1), (3, 0, 8, 0)]
    index, warp, line, begins = np.array(rows).T

    found = constant_walks(ConstantAccesses(index, warp, line, begins > 0), 2, {3})

    assert [lines.tolist() for lines in found.lines] == [[0, 2, 0, 1], [2]]
    assert found.advances == {3: 5 / 5}
