"""Stores that the L1 merges, against figures computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from memlab.device.emulator.machine.execution_trace import GlobalAccesses
from memlab.device.emulator.models.repeated_stores import FARTHEST_STORE, repeated_stores
from memlab.device.sm_model.records import Kind, Unit
from memlab.device.sm_model.simulation import (
    Rates,
    Simulated,
    Steps,
    Workload,
    empty_steps,
    run,
)

LINES, SECTORS = 8, 32
"""Of each store: a word of each sector of 8 lines. Such a line takes the port 5 clocks, 4 sectors
and one more, so that a store takes 40."""


def stores(count: int, sets: int = 1, interval: int = 1) -> Steps:
    """Stores of words to some sets of lines by turns, `interval` clocks apart."""
    steps = empty_steps(count)
    steps["kind"], steps["unit"], steps["busy"], steps["passes"] = Kind.STORE, Unit.MEMORY, 4, LINES
    steps["lines"], steps["sectors"], steps["sector_bytes"] = LINES, SECTORS, 4
    steps["part_written"], steps["stall"] = 2 * SECTORS, interval
    steps["repeats"][sets:] = 1
    steps["repeated"][sets:, sets - 1] = 1.0
    return steps


def simulate(steps: Steps, warps: int = 1, **rates: float) -> Simulated:
    """A block of warps that execute all instructions once."""
    members = (0,) * warps
    work = Workload(steps, (np.array([(0, len(steps))]),), members, members, 1.0, 1, 1)
    fields = {"store_port_sector_clocks": 1.0, "backlog": 1e6, **rates}
    return run(work, cast(Any, Rates)(**fields))


@pytest.mark.parametrize(("interval", "joining"), [(10, 30 / 40), (30, 10 / 40), (40, 0), (400, 0)])
def test_a_store_joins_the_lines_that_have_not_left(interval: int, joining: float) -> None:
    done = simulate(stores(2, interval=interval), queued_lines=24.0)

    assert done.left_sectors == pytest.approx((2 - joining) * SECTORS)


def test_lines_wait_for_those_of_other_stores() -> None:
    # Stores 30 clocks apart take the port 40 each. The second one's lines leave from 40 on.
    steps = stores(3, sets=2, interval=30)  # A, B, A
    assert simulate(steps, queued_lines=24.0).left_sectors == 3 * SECTORS
    steps["repeated"][2] = 0.0
    steps["repeated"][2, 0] = 1.0  # A, B, B: at 60 half of B's lines have left
    assert simulate(steps, queued_lines=24.0).left_sectors == pytest.approx(2.5 * SECTORS)


def test_the_l1_stops_behind_a_queue_of_lines() -> None:
    def waited(queued_lines: float) -> float:
        steps = stores(5, sets=5)  # three stores, and what waits for a load from shared memory
        steps["kind"][3:], steps["unit"][4], steps["write"][3] = Kind.LOCAL, Unit.FMA, 0
        steps["kind"][4], steps["wait"][4] = Kind.FIXED, 1
        simulate(steps, queued_lines=queued_lines, store_port_sector_clocks=10.0)
        return float(steps["stalls"][4].sum())

    # The port takes 400 clocks of each store, 50 of each line.
    assert waited(0.0) == pytest.approx(3 * 400, abs=30)
    assert waited(16.0) == pytest.approx((3 * 8 - 16) * 50, abs=30)


def test_many_warps_stores_by_turns_join_no_lines() -> None:
    # 16 warps store by turns to 8 lines each: 128 lines do not fit into the queue of 24.
    assert simulate(stores(8), warps=16, queued_lines=24.0).left_sectors > 0.95 * 16 * 8 * SECTORS


def test_a_part_of_a_stores_sectors_may_join() -> None:
    steps = stores(2, interval=10)
    steps["repeated"][1, 0] = 0.5

    done = simulate(steps, queued_lines=24.0)

    assert done.left_sectors == pytest.approx((2 - 0.5 * 30 / 40) * SECTORS)


def test_parts_of_sectors_take_the_l2_longer_than_whole_ones() -> None:
    def clocks(sector_bytes: float, count: int) -> float:
        steps = stores(count, interval=1)
        steps["sector_bytes"] = sector_bytes
        return simulate(steps, write_sector_clocks=10.0, store_port_sector_clocks=0.001).clocks

    # In parts, 32 sectors take the time of 64.
    assert clocks(4, 1) == pytest.approx(64 * 10, abs=30)
    assert clocks(32, 1) == pytest.approx(32 * 10, abs=30)


def test_sectors_that_several_stores_fill_are_whole() -> None:
    steps = stores(8)  # A, A, B, B, C, C, D, D
    steps["sector_bytes"] = 16
    steps["repeats"][::2], steps["repeated"][::2] = 0, 0.0

    done = simulate(steps, queued_lines=24.0, write_sector_clocks=10.0)

    # Lines of the first store leave from the start: 8 clocks later 4 / 5 of them are left, which
    # take the L2 320 clocks, and others 640. All others wait.
    first = 0.8 * 320 + 2 * 0.2 * 640
    assert done.left_sectors == pytest.approx((4 + 0.2) * SECTORS)
    assert done.clocks == pytest.approx(first + 3 * 320, rel=0.05)


def test_the_recorded_block_tells_which_sectors_are_stored_to_again() -> None:
    # Two warps of two blocks; instruction 1 is a load. A warp of the first block stores to sectors
    # 0 to 3, loads, stores to 2 to 5, stores to 8, and stores to 0 to 3.
    touched = [(0, range(4)), (1, range(4)), (2, range(2, 6)), (3, [8]), (2, range(4))]
    index, offsets = [at for at, _ in touched], [list(sectors) for _, sectors in touched]
    count = np.array([len(each) for each in offsets])
    both = np.tile(count, 2)
    trace = GlobalAccesses(
        warps=2,
        seen=5,
        index=np.array(index),
        run=np.arange(len(index)),
        event=np.tile(np.arange(5), 2),
        warp=np.repeat([0, 1], 5),
        base=np.zeros(10, np.int64),
        phase=np.zeros(10, np.int64),
        count=both,
        start=np.tile(np.cumsum(count) - count, 2),
        passes=np.zeros(10, np.int64),
        offsets=np.concatenate(offsets),
    )
    kinds = ("store", "load", "store", "store")
    steps = [SimpleNamespace(row=SimpleNamespace(kind=kind, view=None)) for kind in kinds]

    found = repeated_stores(
        cast(Any, SimpleNamespace(steps=steps)), trace, np.zeros((2, 3), np.int64)
    )

    # Of 8 sectors of instruction 2: 2 and 3 by the store before, then by the second one before; 0
    # and 1 by the third one before.
    assert found == {2: (2 / 8, 2 / 8, 2 / 8, *[0.0] * (FARTHEST_STORE - 3))}
