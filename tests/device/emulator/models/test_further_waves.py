"""Waves that were not replayed, against replays of whole grids."""

from __future__ import annotations

import numpy as np
import pytest
from replayed_steps import step

from memlab.device.emulator.models import further_waves
from memlab.device.emulator.models.cache_replay import (
    LineAccesses,
    replay_accesses,
    schedule_blocks,
)
from memlab.device.emulator.models.caches import CacheGeometry
from memlab.device.emulator.models.further_waves import Sectors

LINE, WAVE, BLOCKS, READS = 128, 16, 640, 500
RANDOM, IN_ORDER = range(2)
STEPS = [step("load", bypass_l1=True)] * 2


def accesses(blocks: int, lines: int, reads: int, seed: int) -> LineAccesses:
    """Each block reads lines of one array at random, and some of another that are its own."""
    rng = np.random.default_rng(seed)
    at_random = rng.integers(lines, size=(BLOCKS, reads))[:blocks]
    in_order = lines + np.arange(blocks * reads).reshape(blocks, reads)
    line = np.stack([at_random, in_order], axis=2).reshape(blocks, -1)
    each = line.shape[1]
    return LineAccesses(
        block=np.repeat(np.arange(blocks), each),
        time=np.tile(np.arange(each), blocks),
        index=np.tile(np.arange(2, dtype=np.int32), blocks * reads),
        place=line.ravel() * 16 + 15,
        ends=np.full(blocks, each),
        factor=1,
    )


def columns(executed: int, lines: int, l2_lines: int, seed: int) -> dict[str, Sectors]:
    geometry = CacheGeometry(WAVE, 1, 0, l2_lines * LINE, 64)
    given = accesses(executed, lines, READS, seed)
    schedule = schedule_blocks(given.ends, geometry)
    replayed = replay_accesses(given, schedule, STEPS, geometry, BLOCKS)
    return further_waves.of_whole_grid(replayed, executed, BLOCKS, WAVE)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("executed", "within"), [(4 * WAVE, 0.12), (10 * WAVE, 0.03)])
def test_an_array_that_is_read_at_random_is_read_from_memory_once(
    seed: int, executed: int, within: float
) -> None:
    """All fits the L2; all reads leave half a percent of 60,000 lines, those of 4 waves 59%.

    So few leave the decline of first reads uncertain by 1.6%, and their sum by 9%.
    """
    lines = 60_000
    whole = columns(BLOCKS, lines, 1 << 19, seed)

    part = columns(executed, lines, 1 << 19, seed)

    assert part["memory_reads"][IN_ORDER] == whole["memory_reads"][IN_ORDER] == READS * BLOCKS * 4
    assert part["memory_reads"][RANDOM] == pytest.approx(whole["memory_reads"][RANDOM], rel=within)
    assert part["fetches"][RANDOM] == pytest.approx(whole["fetches"][RANDOM], rel=within)
    assert part["l2_misses"][RANDOM] == part["memory_reads"][RANDOM]
    assert part["accesses"] == pytest.approx(whole["accesses"])


def test_lines_that_others_push_out_are_read_again() -> None:
    """The L2 holds a half of what is read at random, with what is read in order beside it."""
    whole = columns(BLOCKS, 20_000, 20_000, 1)

    part = columns(10 * WAVE, 20_000, 20_000, 1)

    assert whole["memory_reads"][RANDOM] > 8 * 20_000 * 4
    assert part["memory_reads"][RANDOM] == pytest.approx(whole["memory_reads"][RANDOM], rel=0.03)


def test_a_grid_that_was_executed_whole_is_its_own_traffic() -> None:
    geometry = CacheGeometry(WAVE, 1, 0, 100 * LINE, 64)
    given = accesses(BLOCKS, 300, 8, 0)
    replayed = replay_accesses(given, schedule_blocks(given.ends, geometry), STEPS, geometry)

    traffic = further_waves.of_whole_grid(replayed, BLOCKS, BLOCKS, WAVE)

    for name, column in traffic.items():
        groups = (replayed.first_wave, replayed.settling, replayed.later)
        assert column.tolist() == np.sum([getattr(one, name) for one in groups], axis=0).tolist()
    assert not traffic["first_reads"].any()
