"""The replay of executed accesses, against caches in plain Python."""

from __future__ import annotations

import csv
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from replayed_steps import step

from memlab.device.emulator.isa.table import TABLE
from memlab.device.emulator.models.cache_replay import (
    PARTS,
    LineAccesses,
    ReplayedTraffic,
    replay_accesses,
    schedule_blocks,
)
from memlab.device.emulator.models.caches import CacheGeometry
from memlab.device.emulator.models.read_merging import ReadMerging

LINE = 128
SPARE = 56  # lines of an L1 that hold nothing
RESULTS = Path(__file__).parents[4] / "docs" / "results"
CAPACITY = RESULTS / "h200-capacity.csv"


STEPS = [
    step("load"),
    step("load", bypass_l1=True),
    step("store"),
    step("atomic"),
    step("reduce"),
]
SHARES = [0.5, 0.1, 0.2, 0.1, 0.1]


class Lru:
    """A cache of whole lines, filled by the sector."""

    def __init__(self, lines: int) -> None:
        self.lines, self.held = lines, OrderedDict[int, dict[int, bool]]()
        self.written_back = 0

    def use(self, line: int) -> dict[int, bool]:
        """The sectors of a line, with whether they are dirty; it is the newest then."""
        sectors = self.held.pop(line, {})
        self.held[line] = sectors
        if len(self.held) > self.lines:
            _, dropped = self.held.popitem(last=False)
            self.written_back += sum(dropped.values())
        return sectors


def replay(
    given: LineAccesses, geometry: CacheGeometry, steps: Sequence[Any] = STEPS
) -> ReplayedTraffic:
    """Let the caches serve accesses, whose blocks are all those of the grid."""
    return replay_accesses(given, schedule_blocks(given.ends, geometry), steps, geometry)


def expected(
    accesses: list[tuple[int, int, int, int]], geometry: CacheGeometry
) -> tuple[Counter[str], int]:
    """The totals of accesses (multiprocessor, instruction, line, sectors) in order."""
    l1 = [Lru(geometry.l1_bytes // LINE) for _ in range(geometry.multiprocessors)]
    l2, total = Lru(geometry.l2_bytes // LINE), Counter[str]()
    for multiprocessor, index, line, mask in accesses:
        kind, bypasses = STEPS[index].row.kind, STEPS[index].row.bypass_l1
        sectors = [sector for sector in range(4) if mask >> sector & 1]
        if kind == "store":
            l1[multiprocessor].use(line).update(dict.fromkeys(sectors, False))
            l2.use(line).update(dict.fromkeys(sectors, True))
            continue
        if kind != "load" or bypasses:
            l1[multiprocessor].held.pop(line, None)
        else:
            held = l1[multiprocessor].use(line)
            missing = [sector for sector in sectors if sector not in held]
            total["l1_hits"] += len(sectors) - len(missing)
            held.update(dict.fromkeys(missing, False))
            sectors = missing
        if not sectors:
            continue
        held = l2.use(line)
        misses = sum(sector not in held for sector in sectors)
        if kind == "load":
            total["lrc_reads"] += len(sectors)
            total["l2_reads"] += len(sectors)
            total["l2_misses"] += misses
            total["memory_reads"] += misses
        else:
            total["atomic_misses"] += misses
        for pair in {sector // 2 for sector in sectors if sector not in held}:
            total["fetches"] += 1
            for sector in (2 * pair, 2 * pair + 1):
                held.setdefault(sector, False)
        if kind != "load":
            held.update(dict.fromkeys(sectors, True))
    return total, l2.written_back


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("lines", "l2"), [(40, 20), (300, 64), (1000, 700)])
def test_every_access_finds_what_a_plain_cache_holds(seed: int, lines: int, l2: int) -> None:
    """One block on each of three multiprocessors, one access per step and block.

    The L1s have room for all lines: `test_l1_sets` has those that lose some.
    """
    rng, count = np.random.default_rng(seed), 6000
    geometry = CacheGeometry(3, 1, 2048 * LINE, l2 * LINE, 64)
    block = np.arange(count) % 3
    index = rng.choice(len(STEPS), count, p=SHARES).astype(np.int32)
    line = (lines * rng.random(count) ** 2).astype(np.int64)
    mask = rng.integers(1, 16, count)
    by_block = np.argsort(block, kind="stable")
    given = LineAccesses(
        block=block[by_block],
        time=np.arange(count)[by_block],
        index=index[by_block],
        place=(line * 16 + mask)[by_block],
        ends=np.full(3, count),
        factor=1,
    )

    replayed = replay(given, geometry)

    rows = zip(block.tolist(), index.tolist(), line.tolist(), mask.tolist(), strict=True)
    total, written_back = expected(list(rows), geometry)
    traffic = replayed.first_wave
    assert {name: int(getattr(traffic, name).sum()) for name in total} == dict(total)
    assert replayed.written_back == written_back
    assert traffic.accesses.sum() == sum(value.bit_count() for value in mask.tolist())
    assert not replayed.later.accesses.any()


def test_a_block_starts_where_one_has_ended_first() -> None:
    """Two multiprocessors with two slots: by hand."""
    geometry = CacheGeometry(2, 2, LINE, LINE, 32, in_order=True)

    schedule = schedule_blocks(np.array([5, 2, 9, 4, 1, 7, 3]), geometry)

    assert schedule.multiprocessor.tolist() == [0, 1, 0, 1, 1, 1, 1]
    assert schedule.slot.tolist() == [0, 0, 1, 1, 0, 0, 1]
    assert schedule.start.tolist() == [0, 0, 0, 0, 2, 3, 4]


def test_where_later_blocks_start_is_left_to_chance() -> None:
    """An H100 gives 0.5 to 15% of later blocks to the SM of the block a wave before them."""
    with (RESULTS / "h100-block-places.csv").open(newline="") as file:
        most = max(float(row["same_sm_as_a_wave_before"]) for row in csv.DictReader(file))
    geometry = CacheGeometry(132, 2, LINE, LINE, 32)
    ends = np.full(40 * geometry.wave, 1000)

    by_chance = schedule_blocks(ends, geometry).multiprocessor.reshape(40, -1)
    in_order = schedule_blocks(ends, replace(geometry, in_order=True)).multiprocessor

    assert (np.diff(in_order.reshape(40, -1), axis=0) == 0).all()
    assert np.mean(by_chance[2:-1] == by_chance[3:]) < most
    shares = np.bincount(by_chance.reshape(-1)) / 80
    assert shares.min() > 0.9
    assert shares.max() < 1.1


HINTED = {
    "ld.cg": step("load", bypass_l1=True),
    "ld.cs": step("load", evict_first=True),
    "st.wb": step("store"),
    "st.cs": step("store", evict_first=True),
    "st.L1::no_allocate": step("store", bypass_l1=True),
}


def hits_of_hinted(hint: str, beside: int, again: bool) -> float:
    """The share of hits of a block that does as those of `benchmarks/hinted_lines.cu`."""
    kept, others = np.arange(1024), 1024 + np.arange(beside)
    line = np.concatenate([kept, others, others if again else kept])
    steps = [step("load"), HINTED[hint], step("load")]
    given = LineAccesses(
        block=np.zeros(len(line), np.int64),
        time=np.arange(len(line)),
        index=np.repeat([0, 1, 2], [1024, beside, len(line) - 1024 - beside]).astype(np.int32),
        place=line * 16 + 15,
        ends=np.array([len(line)]),
        factor=1,
    )
    geometry = CacheGeometry(1, 1, 224 * 1024, 2**20 * LINE, 32)
    replayed = replay(given, geometry, steps)
    hits = replayed.first_wave.l1_hits[2] / replayed.first_wave.accesses[2]
    return float(hits)


@pytest.mark.parametrize("hint", HINTED)
def test_lines_with_hints_are_kept_and_replaced_as_counted(hint: str) -> None:
    """Lines beside others, and again; of the others, over what stays beside bypassing loads.

    An H100 keeps a quarter of 1536 lines that are stored plainly, all of which the model keeps.
    """
    counted: dict[tuple[str, int, bool], float] = {}
    with (RESULTS / "h100-hinted-lines.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            again, beside = row["again"] == "1", int(row["beside"])
            second = 132 * 4 * 4 * (beside if again else 1024)  # of 132 SMs, 4 rounds, 4 sectors
            counted[row["hint"], beside, again] = int(row["l1_hits"]) / second

    for beside in (256,) if hint == "st.wb" else (256, 1536):
        found = hits_of_hinted(hint, beside, again=True)
        assert found == pytest.approx(counted[hint, beside, True], abs=0.26)
    kept = hits_of_hinted(hint, 1536, again=False)
    undisturbed = counted["ld.cg", 1536, False]
    assert kept == pytest.approx(min(counted[hint, 1536, False] / undisturbed, 1), abs=0.17)


@pytest.mark.parametrize(
    ("opcode", "bypasses", "first"),
    [
        ("ld.global.u32", False, False),
        ("ld.global.cs.u32", False, True),
        ("ld.global.lu.u32", True, False),
        ("ld.global.cg.u32", True, False),
        ("ld.global.L1::no_allocate.u32", True, False),
        ("st.global.cs.u32", False, True),
        ("st.global.cg.u32", False, False),
        ("st.global.wt.u32", False, False),
        ("st.global.L1::no_allocate.u32", True, False),
    ],
)
def test_hints_of_accesses(opcode: str, bypasses: bool, first: bool) -> None:
    row = TABLE[opcode]

    assert (row.bypass_l1, row.evict_first) == (bypasses, first)


def local(blocks: int) -> tuple[LineAccesses, NDArray[np.int64]]:
    """Blocks that each store two lines of local memory and load them."""
    first = 2**56 * 16
    place = np.array([first + 15, first + 31, first + 15, first + 31])
    given = LineAccesses(
        block=np.repeat(np.arange(blocks), 4),
        time=np.tile(np.arange(4), blocks),
        index=np.tile(np.array([1, 1, 0, 0], np.int32), blocks),
        place=np.tile(place, blocks),
        ends=np.full(blocks, 4),
        factor=1,
    )
    return given, place


def test_blocks_have_local_memory_of_their_own() -> None:
    """Eight blocks take turns on two slots: each slot's two lines are held from the first store."""
    steps = [step("load", "local"), step("store", "local")]
    given, _ = local(8)

    caches = CacheGeometry(1, 2, (8 + SPARE) * LINE, 64 * LINE, 32)
    replayed = replay(given, caches, steps)

    groups = (replayed.first_wave, replayed.settling, replayed.later)
    hits = np.sum([group.l1_hits for group in groups], axis=0)
    assert hits.tolist() == [8 * 2 * 4, 0]
    replayed = replay(given, CacheGeometry(1, 2, 0, 64 * LINE, 32), steps)
    assert replayed.first_wave.l1_hits.sum() == 0
    assert replayed.first_wave.l2_reads.sum() == 2 * 2 * 4
    assert replayed.first_wave.l2_misses.sum() == 0


@pytest.mark.parametrize("writer", ["store", "atomic"])
def test_a_write_drops_the_copy_of_the_other_partition(writer: str) -> None:
    """Two multiprocessors, one connected to each partition, read 32 lines twice.

    Where they write another sector of each line before, the one that is far from its memory reads
    it from there again, and nobody reads it from DRAM.
    """
    lines, steps = np.arange(32) * 16, [step("load"), step(writer)]
    halves = CacheGeometry(2, 1, 0, 256 * LINE, 32, 2)

    def misses(*rounds: tuple[int, int]) -> tuple[int, int]:
        """What the near partition and DRAM lack: rounds of an instruction and its sectors."""
        count = len(rounds) * len(lines)
        index = np.repeat([number for number, _ in rounds], len(lines))
        given = LineAccesses(
            block=np.repeat(np.arange(2), count),
            time=np.tile(np.arange(count), 2),
            index=np.tile(index, 2).astype(np.int32),
            place=np.tile(np.concatenate([lines + sectors for _, sectors in rounds]), 2),
            ends=np.full(2, count),
            factor=1,
        )
        done = replay(given, halves, steps)
        return int(done.first_wave.l2_misses[0]), int(done.first_wave.memory_reads[0])

    near, from_dram = misses((0, 2), (0, 2))
    assert misses((0, 2), (1, 1), (0, 2)) == (near + len(lines), from_dram)
    assert from_dram == len(lines)


def test_parts_of_a_launch_have_their_own_misses() -> None:
    """A block reads 8 lines again and again: DRAM serves the first round, then the L1 does."""
    rounds, lines = 8, 8
    place = np.tile(np.arange(lines) * 16 + 0xF, rounds)
    count = len(place)
    given = LineAccesses(
        block=np.zeros(count, np.int64),
        time=np.arange(count),
        index=np.zeros(count, np.int32),
        place=place,
        ends=np.array([count]),
        factor=1,
    )
    geometry = CacheGeometry(1, 1, 64 * LINE, 64 * LINE, 32)

    by_part = replay(given, geometry, [step("load")]).by_part

    first = PARTS // rounds
    requests, accesses, l1_hits, reads, l2_misses = by_part[:, :, 0].T
    assert (requests == count // PARTS).all()
    assert (l2_misses == reads).all()  # of one partition
    assert (accesses == 4 * count // PARTS).all()
    assert reads[:first].sum() == 4 * lines
    assert not reads[first:].any()
    assert (l1_hits == accesses - reads).all()


def test_turns_of_blocks_have_their_own_misses() -> None:
    """Each of three blocks in turn reads its own 4 lines eight times; the second load hits.

    The first load begins at time 0, the second one at 100.
    """
    rounds, lines, blocks = 8, 4, 3
    time = np.arange(2 * rounds * lines)
    time += np.where(time < rounds * lines, 0, 100 - rounds * lines)
    place = np.tile(np.arange(lines), 2 * rounds) + lines * np.arange(blocks)[:, None]
    count = len(time)
    given = LineAccesses(
        block=np.repeat(np.arange(blocks), count),
        time=np.tile(time, blocks),
        index=np.tile(np.repeat(np.array([0, 1], np.int32), rounds * lines), blocks),
        place=place.reshape(-1) * 16 + 0x3,
        ends=np.full(blocks, 200),
        factor=1,
    )
    geometry = CacheGeometry(1, 1, (64 + SPARE) * LINE, 64 * LINE, 32)

    by_turn = replay(given, geometry, [step("load"), step("load")]).by_turn

    requests, accesses, l1_hits, reads, _ = by_turn.transpose(1, 2, 0)
    first = PARTS // rounds
    assert (requests == blocks * rounds * lines // PARTS).all()
    assert (accesses == 2 * requests).all()
    assert (reads[0, :first] == 2 * requests[0, :first]).all()
    assert not reads[0, first:].any()
    assert not reads[1].any()
    assert (l1_hits == accesses - reads).all()


def test_reads_of_one_sector_at_one_time_are_merged() -> None:
    """Of four multiprocessors, four read one line at once, then two another, one a third twice."""
    merging = CacheGeometry(4, 1, 8 * LINE, 64 * LINE, 32, 1, ((2.0, 1.25), (4.0, 2.0)))
    given = LineAccesses(
        block=np.array([0, 0, 0, 1, 1, 2, 3]),
        time=np.array([0, 1, 2, 0, 1, 0, 0]),
        index=np.zeros(7, np.int32),
        place=np.array([0x1F, 0x21, 0x31, 0x1F, 0x21, 0x1F, 0x1F]),
        ends=np.full(4, 3),
        factor=1,
    )

    replayed = replay(given, merging)

    traffic = replayed.first_wave
    assert traffic.lrc_reads[0] == 4 * 4 + 2 + 1
    assert traffic.l2_reads[0] == pytest.approx(4 * 4 / 2.0 + 2 / 1.25 + 1)
    assert traffic.l2_misses[0] == 4 + 1 + 1


def test_reads_of_later_waves_are_not_merged() -> None:
    """Two waves of four blocks read a line each."""
    merging = CacheGeometry(4, 1, 8 * LINE, 64 * LINE, 32, 1, ((4.0, 2.0),))
    given = LineAccesses(
        block=np.arange(8),
        time=np.zeros(8, np.int64),
        index=np.zeros(8, np.int32),
        place=np.repeat([0x1F, 0x2F], 4),
        ends=np.ones(8, np.int64),
        factor=1,
    )

    replayed = replay(given, merging)

    assert replayed.first_wave.l2_reads[0] == pytest.approx(4 * 4 / 2.0)
    assert replayed.settling.l2_reads[0] == replayed.later.l2_reads[0] == 4 * 4 / 2


def steady_merging(units: tuple[tuple[int, int], ...]) -> ReadMerging:
    """Of blocks that start at once, and whose reads all take as long."""
    exact = ReadMerging(units, 4, 200.0, (), (), 300.0, 0.0, 700.0, 0.0, 0.0, 0.0)
    return replace(exact, start_deviation_clocks=0.0)


def test_reads_of_blocks_in_step_are_merged_by_groups() -> None:
    """Four blocks read 32 lines, one by one, past the L1: of each a read is left for every group.

    The second four start when the first ones have ended, together; their reads hit nothing of them.
    """
    blocks, lines = 8, 32
    steady = steady_merging(((3, 0), (1, 1)))
    geometry = CacheGeometry(4, 1, 0, 1 << 20, 64, reads=steady)
    given = LineAccesses(
        block=np.repeat(np.arange(blocks), lines),
        time=np.tile(np.arange(lines), blocks),
        index=np.ones(blocks * lines, np.int32),
        place=np.tile(16 * np.arange(lines) + 0b1111, blocks),
        ends=np.full(blocks, lines),
        factor=1,
    )

    replayed = replay(given, geometry)

    for traffic, asking in ((replayed.first_wave, 4), (replayed.settling, 2), (replayed.later, 2)):
        assert traffic.lrc_reads[1] == asking * 4 * lines
        assert traffic.l2_reads[1] == pytest.approx(asking / 2 * 4 * lines)


@pytest.mark.parametrize(("between_barriers", "left"), [(True, 4), (False, 8)])
def test_blocks_without_barriers_read_load_by_load(between_barriers: bool, left: int) -> None:
    """Two blocks read the same four lines, each in another order.

    In one round they ask for all at one time. Load by load they are never at the same line.
    """
    steady = steady_merging(((2, 0),))
    reads = replace(steady, between_barriers=between_barriers)
    geometry = CacheGeometry(2, 1, 0, 1 << 20, 64, reads=reads)
    place = np.array([1, 2, 8, 9, 8, 9, 2, 1]) * 16 + 1
    given = LineAccesses(
        block=np.repeat(np.arange(2), 4),
        time=np.tile(np.arange(4), 2),
        index=np.ones(8, np.int32),
        place=place,
        ends=np.full(2, 4),
        factor=1,
    )

    first = replay(given, geometry).first_wave

    assert first.l2_reads[1] == pytest.approx(left)


@pytest.mark.parametrize(
    ("moments", "in_step", "waiting"),
    [((0, 0, 0), True, 2), ((0, 0, 1), True, 1), ((0, 1, 2), True, 0), ((0, 0, 0), False, 0)],
)
def test_sms_that_read_a_line_at_one_time_wait_for_memory(
    moments: tuple[int, int, int], in_step: bool, waiting: int
) -> None:
    """Three blocks on SMs of their own read a sector; the first of them reads it from memory."""
    geometry = CacheGeometry(3, 1, 64 * LINE, 1 << 20, 64, in_step=in_step)
    given = LineAccesses(
        block=np.arange(3),
        time=np.array(moments),
        index=np.zeros(3, np.int32),
        place=np.full(3, 16 + 1),
        ends=np.full(3, 3),
        factor=1,
    )

    first = replay(given, geometry).first_wave

    assert first.memory_reads[0] == 1
    assert first.l2_joined_memory[0] == waiting


def test_what_the_l1_holds_is_not_read_in_step() -> None:
    """Two blocks of an SM read the same line, then lines of their own, each shared with another SM.

    The L1 serves the second one: of the first line, two reads are left, which are merged.
    """
    steady = steady_merging(((2, 0),))
    geometry = CacheGeometry(2, 2, 64 * LINE, 1 << 20, 64, reads=steady)
    given = LineAccesses(
        block=np.repeat(np.arange(4), 2),
        time=np.tile([0, 1], 4),
        index=np.zeros(8, np.int32),
        place=np.array([0, 1, 0, 1, 0, 2, 0, 2]) * 16 + 1,
        ends=np.full(4, 2),
        factor=1,
    )

    first = replay(given, geometry).first_wave

    assert first.lrc_reads[0] == 6
    assert first.l2_reads[0] == pytest.approx(3)


def test_both_partitions_of_the_l2_hold_what_both_read() -> None:
    """Two multiprocessors, one connected to each partition, read the same lines twice.

    Together the partitions hold 64 lines, but of lines that both read only 32.
    """
    for lines, fetched in ((24, 24 * 4), (56, 2 * 56 * 4)):
        halves = CacheGeometry(2, 1, 0, 64 * LINE, 32, 2)
        line = np.tile(np.arange(lines), 4)
        given = LineAccesses(
            block=np.repeat(np.arange(2), 2 * lines),
            time=np.tile(np.arange(2 * lines), 2),
            index=np.zeros(4 * lines, np.int32),
            place=line * 16 + 15,
            ends=np.full(2, 2 * lines),
            factor=1,
        )

        replayed = replay(given, halves)

        assert replayed.first_wave.fetches[0] == pytest.approx(fetched, rel=0.05)


def read_thrice(kib: int, writes: bool) -> float:
    """The share of reads that hit the L2 of an H200, all of whose SMs read so much each, thrice.

    As `again` of benchmarks/capacity.cu, which writes as much elsewhere if told to, with an eighth
    of the lines.
    """
    sms, lines = 132, kib * 8 // 8
    halves = CacheGeometry(sms, 1, 0, 60 * 1024 * 1024 // 8, 64, 2)
    once = np.arange(sms * lines).reshape(sms, lines)
    read = np.tile(once, 3)[:, :, None]
    both = np.concatenate([read, sms * lines + read], axis=2) if writes else read
    each = both.shape[1] * both.shape[2]
    given = LineAccesses(
        block=np.repeat(np.arange(sms), each),
        time=np.tile(np.arange(each), sms),
        index=np.tile([1, 2] if writes else [1], sms * 3 * lines).astype(np.int32),
        place=both.ravel() * 16 + 15,
        ends=np.full(sms, each),
        factor=1,
    )
    traffic = replay(given, halves).first_wave
    return 1 - float(traffic.l2_misses[1] / traffic.lrc_reads[1])


@pytest.mark.parametrize("writes", [False, True])
def test_the_l2_keeps_what_an_h200_kept(writes: bool) -> None:
    """Where what is kept is not a matter of who comes first: up to 60 MiB, or from 72 on."""
    case = "L2 with writes" if writes else "L2 same SM"
    rows = [row for row in csv.DictReader(CAPACITY.open()) if row["case"] == case]
    compared = 0
    for row in rows:
        kib = int(row["bytes"]) // 1024
        taken_mib = kib * 132 / 1024 * (3.0 if writes else 1.5)
        if taken_mib <= 60 or taken_mib >= 71:
            measured = int(row["l2_hits"]) / int(row["l2_sectors"])
            assert read_thrice(kib, writes) == pytest.approx(measured, abs=0.11), kib
            compared += 1
    assert compared >= 14


def beside_stream(row: dict[str, str]) -> tuple[float, float]:
    """The share of a launch's reads that hit the L2, and the bytes of DRAM, of `kept_lines.cu`.

    With a sixteenth of the lines and of the reads of each block.
    """
    blocks, per_sm, part = 132 * 8, 8, 16
    lines, every, steps = (int(row[name]) for name in ("lines", "every", "steps"))
    each, rng = steps * 8 // part, np.random.default_rng(lines + every)  # of 8 warps
    geometry = CacheGeometry(132, per_sm, 0, 60 * 1024 * 1024 // part, 64, 2)
    block, time = np.repeat(np.arange(blocks), each), np.tile(np.arange(each), blocks)
    line, index = rng.integers(lines // part, size=len(block)), np.ones(len(block), np.int32)
    if every:
        streamed = np.flatnonzero(time % every == 0)
        block, time = (np.append(array, array[streamed]) for array in (block, time))
        line = np.append(line, lines + np.arange(len(streamed)))
        index = np.append(index, np.full(len(streamed), 1 + int(row["stores"]), np.int32))
        order = np.lexsort((time, block))
        block, time, line, index = (array[order] for array in (block, time, line, index))
    given = LineAccesses(
        block=block,
        time=time,
        index=index,
        place=line * 16 + 15,
        ends=np.full(blocks, each),
        factor=1,
    )
    traffic = replay(given, geometry)
    reads = traffic.first_wave
    hits = 1 - float(reads.l2_misses[1] / reads.lrc_reads[1])
    return hits, float(reads.fetches.sum()) * 64 * part


def test_the_l2_keeps_what_is_read_at_random_beside_a_stream_as_an_h200_did() -> None:
    with (CAPACITY.parent / "h200-kept-lines.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == "beside_stream"]
    assert len(rows) == 35
    for row in rows:
        hits, dram_bytes = beside_stream(row)
        assert hits == pytest.approx(int(row["l2_hits"]) / int(row["l2_sectors"]), abs=0.03), row
        assert dram_bytes == pytest.approx(int(row["dram_bytes"]), rel=0.13), row


def rows_again(row: dict[str, str]) -> float:
    """The share of the reads of one SM that hit its L1, of `rows_twice` and `stored_rows`."""
    blocks, lines, rounds = (int(row[name]) for name in ("size", "lines", "steps"))
    geometry = CacheGeometry(1, blocks, 224 * 1024, 1 << 30, 64)
    first = np.arange(blocks * rounds).reshape(blocks, rounds, 1) * lines
    own = first + np.arange(lines)
    other = own + blocks * rounds * lines
    if row["kernel"] == "stored_rows":
        passes, kinds = [own, own], [2, 0]
    elif int(row["stores"]):
        passes, kinds = [own, own, other], [0, 0, 2]
    else:
        passes, kinds = [own, own], [0, 0]
    line = np.stack(passes, axis=2).reshape(blocks, -1)
    index = np.tile(np.repeat(kinds, lines), blocks * rounds).astype(np.int32)
    each = line.shape[1]
    given = LineAccesses(
        block=np.repeat(np.arange(blocks), each),
        time=np.tile(np.arange(each), blocks),
        index=index,
        place=line.ravel() * 16 + 15,
        ends=np.full(blocks, each),
        factor=1,
    )
    traffic = replay(given, geometry)
    hits, read = (getattr(traffic.first_wave, name)[0] for name in ("l1_hits", "accesses"))
    return float(hits / read)


@pytest.mark.parametrize("kernel", ["rows_twice", "stored_rows"])
def test_the_l1_keeps_the_rows_that_an_h200_kept(kernel: str) -> None:
    """Where the rows of all blocks are few; of many, the hardware loses some to conflicts."""
    with (CAPACITY.parent / "h200-kept-lines.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == kernel]
    few = [row for row in rows if int(row["size"]) * int(row["lines"]) <= 128]
    assert len(few) >= 6
    for row in few:
        measured = int(row["l1_hits"]) / int(row["load_sectors"])
        assert rows_again(row) == pytest.approx(measured, abs=0.03), row
