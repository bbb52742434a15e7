"""The simulation of an SM against figures computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memlab.device.machine_code.instructions import MachineCode
from memlab.device.sm_model.launch_time import with_progress
from memlab.device.sm_model.profile import Access, LaunchProfile
from memlab.device.sm_model.records import QUANTILES, Kind, Stall, Unit
from memlab.device.sm_model.simulation import (
    Rates,
    Simulated,
    Steps,
    Workload,
    empty_steps,
    quantiles,
    run,
)


def simulate(
    steps: Steps,
    *ranges: tuple[int, int],
    warps: int = 1,
    blocks: int = 1,
    slots: int = 1,
    rates: Rates | None = None,
) -> Simulated:
    """Blocks of equal warps, which all follow one path."""
    path, members = np.array(ranges), (0,) * warps
    work = Workload(steps, (path,), members, members, 1.0, blocks, slots)
    return run(work, rates or Rates())


def load(steps: Steps, at: int, **fields: float) -> None:
    """Make an instruction a load of a line, which the next one waits for."""
    steps[at]["kind"], steps[at]["unit"], steps[at]["write"] = Kind.LOAD, Unit.MEMORY, 0
    for name, value in {"passes": 1, "lines": 1, "sectors": 4, "busy": 4, **fields}.items():
        steps[at][name] = value
    steps[at + 1]["wait"] = 1


def test_a_chain_takes_the_stall_of_each_instruction() -> None:
    steps = empty_steps(101)
    steps["stall"] = 4

    assert simulate(steps, (0, 101)).clocks == 4 * 100 + 1


@pytest.mark.parametrize(("busy", "per_clock"), [(1, 4), (2, 2), (8, 0.5)])
def test_many_warps_reach_the_rate_of_the_pipe(busy: int, per_clock: float) -> None:
    steps = empty_steps(100)
    steps["busy"], steps["stall"], steps["unit"] = busy, 4, Unit.ALU

    done = simulate(steps, *[(0, 100)] * 10, warps=32)

    assert done.issued == 32_000
    assert done.issued / done.clocks == pytest.approx(per_clock, rel=0.01)


@pytest.mark.parametrize(("unit", "per_clock"), [(Unit.FMA, 4), (Unit.FMA_HEAVY, 2)])
def test_the_fma_pipe_has_two_halves(unit: Unit, per_clock: float) -> None:
    steps = empty_steps(100)
    steps["busy"], steps["stall"], steps["unit"] = 2, 4, unit

    done = simulate(steps, *[(0, 100)] * 10, warps=32)

    assert done.issued / done.clocks == pytest.approx(per_clock, rel=0.01)


@pytest.mark.parametrize(("reads", "per_clock"), [((1, 1), 4), ((2, 0), 2), ((2, 1), 2)])
def test_a_bank_reads_one_register_a_clock(reads: tuple[float, float], per_clock: float) -> None:
    steps = empty_steps(100)
    steps["reads"], steps["window"] = reads, 3

    done = simulate(steps, *[(0, 100)] * 10, warps=32)

    assert done.issued / done.clocks == pytest.approx(per_clock, rel=0.01)


def test_atomics_on_one_sector_wait_for_one_another() -> None:
    steps = empty_steps(1)
    steps["kind"], steps["unit"], steps["busy"] = Kind.ATOMIC, Unit.MEMORY, 4
    steps["passes"], steps["sectors"], steps["serial"] = 1, 1, 400

    done = simulate(steps, *[(0, 1)] * 10, warps=32, rates=Rates(backlog=500))

    assert done.clocks == pytest.approx(32 * 10 * 400, rel=0.01)


def test_one_warp_issues_on_one_scheduler() -> None:
    done = simulate(empty_steps(1000), (0, 1000))

    assert done.clocks == 1000


def test_a_dependent_load_waits_for_its_level() -> None:
    def clocks(missed: float, dram: float) -> float:
        steps = empty_steps(2)
        load(steps, 0, latency=27, missed=missed, dram=dram)
        rates = Rates(l2_latencies=np.array([300.0]), dram_latencies=np.array([700.0]))
        return simulate(steps, (0, 2), rates=rates).clocks

    # One clock to issue and four for the address precede the L1.
    assert clocks(0, 0) == 5 + 27 + 1
    assert clocks(1, 0) == 5 + 300 + 1
    assert clocks(1, 1) == 5 + 700 + 1


def test_a_copy_reaches_the_share_of_dram() -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, dram=1)
    rates = Rates(dram_byte_clocks=1 / 10, dram_latencies=np.array([700.0]))

    done = simulate(steps, *[(0, 2)] * 100, warps=32, blocks=2, slots=2, rates=rates)

    moved = 2 * 32 * 100 * 128
    assert moved / done.clocks == pytest.approx(10, rel=0.02)


def test_what_dram_reads_is_written_into_the_l2_like_stores() -> None:
    def bytes_per_clock(*, stored: bool) -> float:
        steps = empty_steps(4)
        load(steps, 0, missed=1, dram=1)
        if stored:
            steps[2]["kind"], steps[2]["unit"], steps[2]["sectors"] = Kind.STORE, Unit.MEMORY, 4
        rates = Rates(
            write_sector_clocks=32 / 8,
            fill_byte_clocks=1 / 8,
            dram_byte_clocks=1 / 10,
            dram_latencies=np.array([700.0]),
        )
        done = simulate(steps, *[(0, 4)] * 100, warps=32, blocks=2, slots=2, rates=rates)
        return 2 * 32 * 100 * 128 / done.clocks

    # 8 bytes a clock are written: those that DRAM reads, and as many that are stored.
    assert bytes_per_clock(stored=False) == pytest.approx(8, rel=0.02)
    assert bytes_per_clock(stored=True) == pytest.approx(4, rel=0.02)


def test_a_line_on_its_way_is_waited_for_but_not_moved_again() -> None:
    def clocks(**fields: float) -> float:
        steps = empty_steps(2)
        load(steps, 0, latency=20, **fields)
        rates = Rates(
            dram_byte_clocks=10.0,
            l2_latencies=np.array([300.0]),
            dram_latencies=np.array([700.0]),
        )
        return simulate(steps, (0, 2), rates=rates).clocks

    in_l1 = clocks(missed=0)
    assert clocks(missed=0, joined=1) == in_l1 + 280
    assert clocks(missed=0, joined=1, joined_dram=1) == in_l1 + 680
    assert clocks(missed=1, l2_joined_dram=1) == in_l1 + 680
    assert clocks(missed=1, l2_joined_dram=1, awaited_share=0.5) == in_l1 + 480
    assert clocks(missed=1, dram=1) == in_l1 + 680 + 4 * 32 * 10


def test_neighbours_have_one_latency() -> None:
    def clocks(*, whole: bool) -> float:
        steps = empty_steps(2)
        load(steps, 0, lines=4, sectors=16, missed=1, dram=1, whole=whole)
        rates = Rates(dram_latencies=np.arange(1001.0))
        return simulate(steps, *[(0, 2)] * 2000, warps=2, rates=rates).clocks / 2000

    # The slowest of four latencies between 0 and 1000 takes 800 clocks, and one of them 500. Both
    # warps read the same neighbourhood.
    assert clocks(whole=False) == pytest.approx(800, rel=0.05)
    assert clocks(whole=True) == pytest.approx(500, rel=0.05)


def test_a_wide_product_keeps_all_warps_from_issuing() -> None:
    steps = empty_steps(2)
    steps["unit"], steps[1]["unit"] = int(Unit.ALU), int(Unit.FMA_LITE)
    assert simulate(steps, *[(0, 2)] * 100, warps=8).clocks == pytest.approx(2 * 2 * 100, rel=0.02)
    steps[0]["dispatch"] = 2
    assert simulate(steps, *[(0, 2)] * 100, warps=8).clocks == pytest.approx(2 * 4 * 100, rel=0.02)
    assert stalls_of(steps, 1)[Stall.DISPATCH_STALL] > 0


def test_stores_have_a_port_of_their_own() -> None:
    def clocks(kinds: list[Kind]) -> float:
        steps = empty_steps(2)
        for step, kind in zip(steps, kinds, strict=True):
            step["kind"], step["unit"], step["sectors"], step["missed"] = kind, Unit.MEMORY, 4, 1
        rates = Rates(port_sector_clocks=4.0, store_port_sector_clocks=8.0, backlog=200.0)
        return simulate(steps, *[(0, 2)] * 100, warps=8, rates=rates).clocks

    requests = 2 * 8 * 100
    assert clocks([Kind.LOAD, Kind.LOAD]) == pytest.approx(requests * 4 * 4, rel=0.05)
    assert clocks([Kind.STORE, Kind.STORE]) == pytest.approx(requests * 4 * 8, rel=0.05)
    assert clocks([Kind.LOAD, Kind.STORE]) == pytest.approx(requests / 2 * 4 * 8, rel=0.05)


def test_a_branch_takes_the_clocks_of_its_target_too() -> None:
    steps = empty_steps(101)
    steps["stall"], steps["resolving"] = 5, 3

    assert simulate(steps, (0, 101)).clocks == (5 + 3) * 100 + 1
    assert stalls_of(steps, 50) == {Stall.WAIT: 4, Stall.BRANCH_RESOLVING: 3}


def test_a_lone_warp_waits_for_the_latency_of_each_load() -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, dram=1)
    rates = Rates(dram_byte_clocks=1 / 10, dram_latencies=np.array([700.0]))

    done = simulate(steps, *[(0, 2)] * 100, rates=rates)

    assert done.clocks == pytest.approx(100 * (5 + 700 + 12.8), rel=0.01)


@pytest.mark.parametrize(("share", "clocks"), [(0, 280), (1, 455)])
def test_a_hit_comes_from_the_partition_that_holds_the_line(share: int, clocks: int) -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, far=share)
    rates = Rates(l2_latencies=np.repeat([280.0, 455.0], QUANTILES // 2))

    done = simulate(steps, *[(0, 2)] * 100, rates=rates)

    assert done.clocks == pytest.approx(100 * (5 + clocks), rel=0.01)


def test_slices_of_a_partition_are_not_equally_far() -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, far=1)
    near, far = np.linspace(250, 310, QUANTILES // 2), np.linspace(425, 485, QUANTILES // 2)
    rates = Rates(l2_latencies=np.concatenate([near, far]))

    one = simulate(steps, *[(0, 2)] * 1000, rates=rates).clocks / 1000
    steps[0]["lines"], steps[0]["sectors"] = 5, 5
    five = simulate(steps, *[(0, 2)] * 1000, rates=rates).clocks / 1000

    assert one - 6 == pytest.approx(455, abs=3)
    assert five - 6 == pytest.approx(425 + 60 * 5 / 6, abs=3)  # the mean of the largest of five


def test_the_l1_looks_up_the_lines_of_a_load_one_after_the_other() -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, lines=32, sectors=32, passes=32)

    done = simulate(steps, (0, 2), rates=Rates(l2_latencies=np.array([300.0])))

    assert done.clocks == 5 + 31 + 300 + 1


def test_an_atomic_waits_for_the_slowest_of_its_lines() -> None:
    steps = empty_steps(2)
    load(steps, 0, lines=32, sectors=32, missed=1)
    steps[0]["kind"] = Kind.ATOMIC
    near_and_far = Rates(l2_latencies=np.repeat([280.0, 455.0], QUANTILES // 2))
    one_in_dram = replace(near_and_far, dram_latencies=np.array([1000.0]))

    hits = simulate(steps, *[(0, 2)] * 100, rates=near_and_far).clocks / 100
    steps[0]["dram"] = 1 / 32
    misses = simulate(steps, *[(0, 2)] * 1000, rates=one_in_dram).clocks / 1000

    assert hits - 7 == pytest.approx(455, abs=1)  # the pass takes a clock more
    share = 1 - (31 / 32) ** 32  # in which one of 32 lines comes from DRAM
    assert misses - 7 == pytest.approx(share * 1000 + (1 - share) * 455, rel=0.03)


def test_misses_come_when_the_launch_has_them() -> None:
    """Two blocks, one after the other: the first quarter of the loads misses, as in the profile."""
    steps, path = empty_steps(2), np.array([(0, 2)] * 100)
    load(steps, 0, missed=0.25, dram=1)
    code = MachineCode("k", (9, 0), ())
    access = Access(
        1, 1, 4, missed=0.25, dram=1, missed_by_progress=(4, 0, 0, 0), dram_by_progress=(4, 0, 0, 0)
    )
    profile = LaunchProfile(code, (), (0,), (0,), 1.0, {0: access}, 32.0, 0.0, 0.0)
    work = with_progress(Workload(steps, (path,), (0,), (0,), 1.0, 2, 1), profile, whole=True)

    done = run(work, Rates(dram_latencies=np.array([700.0])))

    assert done.clocks == pytest.approx(50 * (5 + 700) + 150 * 5, rel=0.01)
    assert done.starts[1] == pytest.approx(50 * (5 + 700) + 50 * 5, rel=0.01)


@pytest.mark.parametrize("whole", [True, False])
def test_misses_come_when_each_block_has_them(whole: bool) -> None:
    """Two blocks, one after the other: the first quarter of the loads of each one misses."""
    steps, path = empty_steps(2), np.array([(0, 2)] * 100)
    load(steps, 0, missed=0.25, dram=1)
    parts = (4, 0, 0, 0)
    access = Access(
        *(1, 1, 4),
        missed=0.25,
        dram=1,
        missed_by_progress=parts,
        dram_by_progress=parts,
        progress_in_block=True,
    )
    code = MachineCode("k", (9, 0), ())
    profile = LaunchProfile(code, (), (0,), (0,), 1.0, {0: access}, 32.0, 0.0, 0.0)
    work = with_progress(Workload(steps, (path,), (0,), (0,), 1.0, 2, 1), profile, whole)

    done = run(work, Rates(dram_latencies=np.array([700.0])))

    assert done.starts[1] == pytest.approx(25 * (5 + 700) + 75 * 5, rel=0.01)
    assert done.clocks == pytest.approx(2 * done.starts[1], rel=0.01)


def test_misses_of_a_launch_are_even_where_only_a_part_is_simulated() -> None:
    steps, path = empty_steps(2), np.array([(0, 2)] * 100)
    load(steps, 0, missed=0.25, dram=1)
    parts = (4, 0, 0, 0)
    access = Access(1, 1, 4, 0.25, 1, missed_by_progress=parts, dram_by_progress=parts)
    code = MachineCode("k", (9, 0), ())
    profile = LaunchProfile(code, (), (0,), (0,), 1.0, {0: access}, 32.0, 0.0, 0.0)

    work = with_progress(Workload(steps, (path,), (0,), (0,), 1.0, 2, 1), profile, whole=False)

    assert (work.steps["curve"] == -1).all()


def test_far_hits_come_when_the_launch_has_them() -> None:
    """Of 100 loads, the first 25 come from DRAM, the next 25 from the far partition."""
    steps, path = empty_steps(2), np.array([(0, 2)] * 100)
    load(steps, 0, missed=1, dram=0.25, far=1 / 3)
    access = Access(
        *(1, 1, 4, 1.0, 0.25),
        l2_far=1 / 3,
        missed_by_progress=(1, 1, 1, 1),
        dram_by_progress=(4, 0, 0, 0),
        far_by_progress=(0, 4, 0, 0),
    )
    code = MachineCode("k", (9, 0), ())
    profile = LaunchProfile(code, (), (0,), (0,), 1.0, {0: access}, 32.0, 0.0, 0.0)
    work = with_progress(Workload(steps, (path,), (0,), (0,), 1.0, 2, 1), profile, whole=True)
    halves = np.repeat([280.0, 455.0], QUANTILES // 2)

    done = run(work, Rates(l2_latencies=halves, dram_latencies=np.array([700.0])))

    first = 50 * (5 + 700) + 50 * (5 + 455)  # of two blocks, one after the other
    assert done.starts[1] == pytest.approx(first, rel=0.01)
    assert done.clocks == pytest.approx(first + 100 * (5 + 280), rel=0.01)


def test_a_warp_waits_for_the_slowest_of_its_lines() -> None:
    steps = empty_steps(2)
    load(steps, 0, missed=1, lines=32, sectors=32)
    waits = np.random.default_rng(1).exponential(100.0, 4096)

    done = simulate(steps, *[(0, 2)] * 400, rates=Rates(l2_latencies=waits))

    harmonic = sum(1 / n for n in range(1, 33))  # the mean of the slowest of 32
    # The table keeps 256 of the values, which cuts the longest waits.
    assert done.clocks / 400 - 6 == pytest.approx(100 * harmonic, rel=0.06)


def test_the_l1_serves_one_wavefront_a_clock_for_the_whole_sm() -> None:
    steps = empty_steps(1)
    steps["kind"], steps["unit"], steps["busy"], steps["passes"] = Kind.LOCAL, Unit.MEMORY, 4, 8

    done = simulate(steps, *[(0, 1)] * 100, warps=32)

    assert done.clocks == pytest.approx(32 * 100 * 8, rel=0.01)


def test_the_address_unit_of_a_sub_core_takes_an_instruction_in_four_clocks() -> None:
    steps = empty_steps(1)
    steps["kind"], steps["unit"], steps["busy"], steps["passes"] = Kind.LOCAL, Unit.MEMORY, 4, 1

    done = simulate(steps, *[(0, 1)] * 1000, rates=Rates(queue_depth=5))

    assert done.clocks == pytest.approx(4 * 1000, rel=0.01)


def test_a_barrier_waits_for_the_last_warp() -> None:
    steps = empty_steps(101)
    steps["stall"] = 4
    steps[100]["kind"], steps[100]["stall"] = Kind.SYNCHRONIZE, 1
    slow, fast = np.array([[0, 101], [0, 1]]), np.array([[100, 101], [0, 1]])
    work = Workload(steps, (slow, fast), (0, 1), (0, 1), 1.0, 1, 1)

    done = run(work, Rates(barrier_clocks=2, barrier_latency=13))

    assert done.clocks == 400 + 2 + 13 + 1  # the next instruction issues then, and takes a clock


def test_groups_of_copies_complete_in_order() -> None:
    steps = empty_steps(5)
    load(steps, 0, missed=1, copies=1)
    load(steps, 2, missed=1, copies=1, dram=1)
    steps["wait"], steps["write"] = 0, -1
    steps[1]["kind"] = steps[3]["kind"] = Kind.COMMIT
    steps[4]["kind"] = Kind.AWAIT
    rates = Rates(l2_latencies=np.array([300.0]), dram_latencies=np.array([700.0]))

    def clocks(groups: int) -> float:
        steps[4]["groups"] = groups
        return simulate(steps, (0, 5), rates=rates).clocks

    assert clocks(1) == pytest.approx(5 + 300, abs=2)
    assert clocks(0) == pytest.approx(2 + 5 + 3 + 700, abs=4)


def test_blocks_start_when_others_end() -> None:
    steps = empty_steps(100)

    done = simulate(steps, (0, 100), blocks=10, slots=2)

    assert done.clocks == pytest.approx(5 * 100, abs=10)
    assert len(done.starts) == 10


def test_the_start_of_blocks_limits_short_ones() -> None:
    done = simulate(empty_steps(2), (0, 2), blocks=50, slots=32, rates=Rates(block_interval=157))

    assert done.clocks == 49 * 157 + 2


@pytest.mark.parametrize(("turn", "clocks"), [(0, 400), (1, 100)])
def test_long_paths_take_turns_among_the_sub_cores(turn: int, clocks: int) -> None:
    long, short = np.array([[0, 100]]), np.array([[0, 1]])
    members = (0, 1, 1, 1)
    work = Workload(empty_steps(100), (long, short), members, members, 1.0, 4, 4, turn=turn)

    assert run(work, Rates()).clocks == pytest.approx(clocks, abs=5)


def test_idle_blocks_are_spread_over_the_launch() -> None:
    steps = empty_steps(100)
    work = Workload(steps, (np.array([[0, 100]]), np.array([[0, 1]])), (0,), (1,), 0.25, 40, 1)

    done = run(work, Rates())

    assert done.issued == 10 * 100 + 30


def test_quantiles_keep_the_distribution() -> None:
    values = np.random.default_rng(0).exponential(100.0, 10_000)

    table = quantiles(values)

    assert table.mean() == pytest.approx(values.mean(), rel=0.02)
    assert np.median(table) == pytest.approx(np.median(values), rel=0.02)


def stalls_of(steps: Steps, at: int) -> dict[Stall, float]:
    """The clocks that warps waited to issue an instruction, by reason."""
    return {Stall(n): clocks for n, clocks in enumerate(steps[at]["stalls"]) if clocks}


def test_a_wait_counts_at_the_instruction_that_waits() -> None:
    steps = empty_steps(3)
    steps[0]["stall"] = 4
    load(steps, 1, latency=27)
    steps[1]["awaited"] = Stall.LONG_SCOREBOARD

    simulate(steps, (0, 3))

    assert stalls_of(steps, 1) == {Stall.WAIT: 3}
    # The load issues at 4 and its data is there at 36; the next instruction could issue at 5.
    assert stalls_of(steps, 2) == {Stall.LONG_SCOREBOARD: 5 + 27 - 1}


def test_a_warp_waits_at_the_barrier_for_the_last_one() -> None:
    steps = empty_steps(3)
    steps[0]["stall"] = 1
    steps[1]["kind"], steps[1]["unit"] = Kind.SYNCHRONIZE, Unit.MISCELLANEOUS
    late = (np.array([(0, 1)] * 100 + [(1, 3)]), np.array([(1, 3)]))
    work = Workload(steps, late, (0, 1), (0, 1), 1.0, 1, 1)

    run(work, Rates(barrier_latency=20.0))

    # The first warp arrives at 100 and the other one at 0; both go on at 120.
    assert stalls_of(steps, 1)[Stall.BARRIER] == (120 - 101) + (120 - 1)


def remote(steps: Steps, at: int, **fields: float) -> None:
    """Make an instruction a load of 4 sectors of another block's shared memory."""
    load(steps, at, **{"remote": 1, "remote_sectors": 4, "remote_latency": 174, **fields})


def test_a_chain_of_remote_loads_takes_their_latency() -> None:
    steps = empty_steps(2)
    remote(steps, 0)
    steps[0]["awaited"] = Stall.LONG_SCOREBOARD

    done = simulate(steps, *[(0, 2)] * 100, rates=Rates(remote_sector_clocks=2.0))

    # A clock to issue, four for the address, 2 for each sector; the next one issues a clock later.
    assert done.clocks == 100 * (1 + 4 + 4 * 2 + 174 + 1)
    assert stalls_of(steps, 1) == {Stall.LONG_SCOREBOARD: 100 * (4 + 4 * 2 + 174)}


@pytest.mark.parametrize("kind", [Kind.LOAD, Kind.STORE, Kind.ATOMIC])
def test_remote_accesses_reach_the_rate_of_the_network(kind: Kind) -> None:
    steps = empty_steps(2)
    remote(steps, 0, kind=kind)

    rates = Rates(remote_sector_clocks=2.0, backlog=400)
    done = simulate(steps, *[(0, 2)] * 100, warps=32, rates=rates)

    assert done.clocks == pytest.approx(32 * 100 * 4 * 2, rel=0.02)


def test_part_of_the_requests_of_an_instruction_are_remote() -> None:
    steps = empty_steps(2)
    remote(steps, 0, latency=27, remote=0.25)

    done = simulate(steps, *[(0, 2)] * 4000, rates=Rates(remote_sector_clocks=2.0))

    mean = 6 + 0.75 * 27 + 0.25 * (4 * 2 + 174)
    assert done.clocks / 4000 == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("late_work", [10, 100])
def test_a_cluster_meets_when_the_last_warp_has_arrived(late_work: int) -> None:
    """One warp arrives at once, works and waits; the other one arrives later."""
    steps = empty_steps(5)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[1]["kind"], steps[3]["kind"] = Kind.ARRIVE_CLUSTER, Kind.AWAIT_CLUSTER
    early = np.array([(1, 2)] + [(2, 3)] * 50 + [(3, 5)])
    late = np.array([(0, 1)] * late_work + [(1, 2), (3, 5)])
    work = Workload(steps, (early, late), (0, 1), (0, 1), 1.0, 1, 1)

    done = run(work, Rates(cluster_clocks=180.0))

    opens = late_work + 180
    assert stalls_of(steps, 3)[Stall.BARRIER] == (opens - 51) + (opens - late_work - 1)
    assert done.clocks == opens + 2


def test_warps_that_wait_for_their_cluster_hold_up_no_barrier_of_the_block() -> None:
    steps = empty_steps(4)
    steps["unit"] = Unit.MISCELLANEOUS
    steps[0]["kind"], steps[1]["kind"] = Kind.SYNCHRONIZE, Kind.ARRIVE_CLUSTER
    steps[2]["kind"] = Kind.AWAIT_CLUSTER
    work = Workload(
        steps, (np.array([(0, 4)]), np.array([(1, 4)])), (0, 0, 1), (0, 0, 1), 1.0, 1, 1
    )

    done = run(work, Rates(cluster_clocks=180.0, barrier_latency=20.0))

    assert not done.stuck
    assert done.clocks == pytest.approx(20 + 180, abs=5)


def test_a_taken_pipe_is_told_from_a_turn_of_others() -> None:
    steps = empty_steps(100)
    steps["busy"], steps["unit"], steps["throttled"] = 4, Unit.ALU, 3 / 4
    steps["throttle"] = Stall.MATH_PIPE_THROTTLE

    done = simulate(steps, (0, 100), warps=16)

    taken, others = steps["stalls"].sum(axis=0)[[Stall.MATH_PIPE_THROTTLE, Stall.NOT_SELECTED]]
    # Four warps of a sub-core go one after the other. An instruction is issued every fourth clock,
    # and then three, two, one and no other warps could have issued.
    assert done.clocks == pytest.approx(1600, rel=0.02)
    assert others == pytest.approx(4 * 100 * (3 + 2 + 1), rel=0.03)
    assert taken == pytest.approx(4 * 3 * 100 * (4 + 3 + 2 + 1), rel=0.03)


def test_a_clock_in_which_the_unit_is_taken_counts_once() -> None:
    totals = []
    for dispatch in (0, 2):  # for less time than the unit is taken
        steps = empty_steps(100)
        steps["unit"], steps["busy"], steps["dispatch"] = Unit.FMA, 8, dispatch
        steps["throttled"], steps["throttle"] = 1, Stall.MATH_PIPE_THROTTLE
        simulate(steps, (0, 100), warps=16)
        assert steps["stalls"].min() >= 0
        totals.append(steps["stalls"].sum())

    assert totals[0] == pytest.approx(totals[1], rel=0.01)


def test_each_clock_of_a_warp_has_one_state() -> None:
    steps = empty_steps(40)
    for at in range(0, 40, 4):
        load(steps, at, latency=30, missed=0.5)
        steps[at]["awaited"] = Stall.LONG_SCOREBOARD
    steps["stall"], steps["unit"][1::4] = 2, Unit.FMA
    steps["reads"][1::4], steps["window"] = (2, 1), 3
    rates = Rates(l2_latencies=np.array([300.0]))

    done = simulate(steps, *[(0, 40)] * 20, rates=rates)

    assert steps["issued"].sum() + steps["stalls"].sum() == done.clocks
