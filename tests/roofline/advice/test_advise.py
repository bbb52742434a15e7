"""Advice follows from the figures: each kernel's known weakness is what it names."""

from __future__ import annotations

from dataclasses import replace

import pytest
from example_runs import CEILINGS, COUNTERS, H200, measurement, run, run_of, timed

from memlab.device.measurement import Counters, Measurement, Occupancy, Verification
from memlab.roofline.advice import banks, memory, work
from memlab.roofline.advice.advise import advise
from memlab.roofline.advice.case import AdviceCase
from memlab.roofline.placement import bytes_moved, place_measurement


@pytest.mark.parametrize(
    ("name", "index", "says"),
    [
        # 8 x 2048^3 B requested, 3 x 4 x 2048^2 B compulsory.
        ("naive", 0, "request 68.7 GB, but 50.3 MB are compulsory"),
        ("naive", 0, "0.25 FLOP/B by T (T = 32: 8)"),
        ("tiled8", 0, "Reads of shared memory are 87%"),
        ("tiled8", 1, "Tile 16 would halve the 8.59 GB"),
        ("tiled32", 0, "r x r outputs"),
        ("row_sum", 0, "32 sectors per request, but the requested bytes would fill 4"),
        ("row_sum", 1, "32 blocks leave 100 of 132 multiprocessors idle"),
        ("transpose_shared", 0, "Bank conflicts cause 94% of the 4.33 M"),
        ("copy", 0, "No ceiling explains the time"),
    ],
)
def test_the_known_weakness_is_named_with_its_figures(name: str, index: int, says: str) -> None:
    assert says in run(name).advice[index]


@pytest.mark.parametrize("name", COUNTERS)
def test_there_are_one_or_two_sentences(name: str) -> None:
    assert 1 <= len(run(name).advice) <= 2


def test_the_widest_tile_is_not_told_to_widen() -> None:
    assert not any("Tile 64" in sentence for sentence in run("tiled32").advice)


def _advice(measured: Measurement) -> str:
    return " ".join(run_of(measured).advice)


def _case(measured: Measurement) -> AdviceCase:
    placement = place_measurement(measured, CEILINGS)
    return AdviceCase(measured, placement, H200, bytes_moved(measured), placement.busy)


@pytest.mark.parametrize(
    ("name", "side", "advised"),
    [
        ("tiled16", 128, True),  # 32 x 32 threads are all that a block may have
        ("tiled32", 64, False),
        ("tiled8", 23, True),  # 529 / 4 = 132 blocks for 132 multiprocessors
        ("tiled8", 22, False),  # 121 blocks
    ],
)
def test_a_wider_tile_must_fit_and_fill_the_device(name: str, side: int, advised: bool) -> None:
    case = _case(replace(measurement(name), grid=(side, side, 1)))
    assert (memory.wider_tile(case) is not None) == advised


def test_reads_of_shared_memory_matter_if_they_keep_the_port_busy() -> None:
    # tiled16's 503,578,624 wavefronts of 128 B take 1.93 ms of the port.
    tiled = measurement("tiled16")
    assert memory.shared_rereads(_case(timed(tiled, 4e-3)))  # busy 48% of the time
    assert memory.shared_rereads(_case(timed(tiled, 6e-3))) is None  # 32%
    # Each stored value is read twice: no register could save more.
    counters = tiled.counters.replace_named(shared_store_wavefronts=402653184 // 2)
    assert memory.shared_rereads(_case(replace(tiled, counters=counters))) is None


def test_bytes_that_no_thread_asks_for_are_not_compulsory() -> None:
    # A quarter of the 16.8 MB of the input is loaded, in whole sectors, and DRAM reads all of it.
    copy = measurement("copy")
    counters = copy.counters.replace_named(
        global_load_sectors=131072, requested_load_bytes=4 * 2**20, dram_read_bytes=16 * 2**20
    )
    found = memory.dram_traffic(_case(timed(replace(copy, counters=counters), 5e-6)))
    assert found is not None
    assert "DRAM reads 16.8 MB, but 4.19 MB are compulsory" in found.sentence


def test_reuse_is_advised_from_eight_requests_per_byte_on() -> None:
    naive = measurement("naive")
    requested = bytes_moved(naive)["requested"]
    assert memory.unstaged_reuse(_case(replace(naive, compulsory_bytes=requested // 8)))
    rarer = replace(naive, compulsory_bytes=requested // 8 + 1)
    assert memory.unstaged_reuse(_case(rarer)) is None


@pytest.mark.parametrize(
    ("median_s", "theoretical", "advised"),
    [(20e-3, 0.25, True), (20e-3, 0.5, False), (2.1e-3, 0.25, False)],  # the last is bound by L1
)
def test_occupancy_is_low_below_half_if_latency_is_the_bound(
    median_s: float, theoretical: float, advised: bool
) -> None:
    slow = timed(measurement("tiled16"), median_s)
    slow = replace(slow, occupancy=Occupancy(2, 16, theoretical, "registers", {"registers": 2}))
    assert (work.low_occupancy(_case(slow)) is not None) == advised


def test_what_cannot_be_is_said_alone() -> None:
    impossible = run_of(timed(measurement("tiled16"), 1e-3)).advice
    assert len(impossible) == 1
    assert "180% of the L1 / shared ceiling, a physical limit" in impossible[0]


def test_a_wrong_result_comes_before_any_tuning() -> None:
    wrong = replace(
        measurement("tiled16"), verification=Verification("failed", 0.5, 1e-5, 100, 100)
    )
    assert _advice(wrong).startswith("The result is wrong: the relative error is 5.0e-01")


def test_low_occupancy_names_its_limiter() -> None:
    slow = timed(measurement("tiled16"), 20e-3)
    slow = replace(slow, occupancy=Occupancy(2, 16, 0.25, "registers", {"registers": 2}))
    assert "Occupancy is 25% (16 warps per multiprocessor), limited by registers" in _advice(slow)


def test_arrays_indexed_at_run_time_are_told_from_spilled_registers() -> None:
    tiled = measurement("tiled16")
    # As many bytes again as pass the port already: half of the new total.
    indexed = tiled.counters.replace_named(local_load_sectors=60146320384 // 32)
    kept = replace(tiled.resources, local_bytes_per_thread=64)
    advice = _advice(timed(replace(tiled, counters=indexed, resources=kept), 4e-3))
    assert "Arrays indexed at run time are in local memory, 64 B per thread" in advice
    assert "50% of the traffic" in advice
    assert "unroll the loops" in advice
    assert "registers" not in advice  # more of them cannot be indexed either
    assert "local memory" not in _advice(timed(replace(tiled, counters=indexed), 4e-3))


def test_no_layout_is_advised_for_banks_that_data_chooses() -> None:
    shared = measurement("transpose_shared")
    assert "Bank conflicts" in _advice(shared)
    histogram = shared.counters.replace_named(
        shared_load_wavefronts=131072,
        shared_atomic_instructions=131072,
        shared_atomic_wavefronts=131072 + shared.counters.shared_excessive_wavefronts,
    )
    assert "Bank conflicts" not in _advice(replace(shared, counters=histogram))


def test_lanes_that_want_different_constants_are_named() -> None:
    copy = measurement("copy")
    # 16 addresses a load, as a filter whose taps each half-warp numbers for itself.
    taps = {"constant_load_requests": 2_097_152, "constant_load_passes": 33_554_432}
    slow = replace(copy, counters=copy.counters.replace_named(**taps))
    assert "load 16 different addresses per constant load" in _advice(timed(slow, 268e-6))


def test_full_issue_slots_are_named() -> None:
    copy = measurement("copy")
    # 132 x 4 schedulers at 1.98 GHz have 10.45 M slots in 10 us.
    executed = {"warp_instructions": 8_000_000, "thread_instructions": 240_000_000}
    copy = replace(copy, grid=(1056, 1, 1))
    busy = timed(replace(copy, counters=copy.counters.replace_named(**executed)), 10e-6)
    assert "Instructions fill 77% of the issue slots, with 30 of 32 lanes active" in _advice(busy)


def test_blocks_that_cost_more_than_they_do_are_named() -> None:
    # 16,384 blocks at 0.84 a clock of 1.98 GHz take 9.85 us.
    copy = replace(measurement("copy"), grid=(16384, 1, 1))
    assert "Starting 16,384 blocks takes 79% of the time" in _advice(timed(copy, 12.5e-6))


def test_a_kernel_as_short_as_any_is_told_to_work_more() -> None:
    copy = timed(measurement("copy"), 1.31e-6)
    device = replace(H200, shortest_kernel_s=1.31e-6)

    def advice(measured: Measurement) -> str:
        return advise(measured, place_measurement(measured, CEILINGS), device)[0]

    asked = Counters.from_names(global_load_sectors=4096, requested_load_bytes=131072)
    few = replace(copy, counters=asked, grid=(132, 1, 1))
    says = "No kernel is shorter than 1.31 µs on this device: give it more work."
    assert advice(few) == says
    # Two events take their time besides.
    event = replace(few.time, median_s=2.5e-6, event_pair_s=1.2e-6)
    assert advice(replace(few, time=event)) == says
    assert says not in advice(timed(few, 2.5e-6))


def test_spills_that_the_emulator_cannot_count_come_first() -> None:
    tiled = measurement("tiled16", "modelled")  # 128 x 128 blocks of 16 x 16 threads
    spilling = replace(tiled, resources=replace(tiled.resources, local_bytes_per_thread=40))
    # 40 B x 4,194,304 threads
    assert _advice(spilling).startswith(
        "The compiler spills 40 B per thread to local memory, 168 MB"
    )


def test_the_largest_share_comes_first() -> None:
    tiled = measurement("tiled16", "modelled")
    resources = replace(tiled.resources, local_bytes_per_thread=40)
    # Spills put all figures in doubt; 131 of 132 multiprocessors are idle.
    spills, idle = run_of(replace(tiled, grid=(1, 1, 1), resources=resources)).advice
    assert spills.startswith("The compiler spills")
    assert idle.startswith("1 block leaves 131")


def test_what_explains_next_to_nothing_is_left_out() -> None:
    naive = replace(timed(measurement("naive"), 100.0), grid=(1, 1, 1))
    assert _advice(naive) == (
        "1 block leaves 131 of 132 multiprocessors idle: divide the work into more, smaller blocks."
    )


def test_a_short_last_wave_is_named() -> None:
    # 8 blocks a multiprocessor, 132 of them: 1056 slots, 1.06 waves.
    tiled = replace(measurement("copy"), grid=(1120, 1, 1))
    assert "1120 blocks are 1.06 waves of 1056, so 47%" in _advice(tiled)


def test_waves_of_clusters_are_those_that_are_active() -> None:
    # Clusters of 16 blocks lie in the GPCs of at least 16 SMs: 8 clusters in each of five, 9 in
    # each of two with 18 SMs.
    copy = replace(measurement("copy"), grid=(1120, 1, 1), cluster=(16, 1, 1))
    groups = {"2": 4.0, "8": 1.0, "16": 5.0, "18": 2.0}
    case = replace(_case(copy), properties=replace(H200, gpcs_by_sms=groups))
    found = work.idle_multiprocessors(case)
    assert found is not None
    assert "1120 blocks are 1.21 waves of 928, so 40%" in found.text


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        # 8 blocks a multiprocessor, 132 of them: within one wave of 1056.
        (140, "140 blocks over 132 multiprocessors: 8 get 2, 124 get 1 and wait"),
        (265, "265 blocks over 132 multiprocessors: 1 gets 3, 131 get 2 and wait"),
        (264, "No ceiling explains"),
        (1056, "No ceiling explains"),
    ],
)
def test_blocks_within_one_wave_are_counted_by_multiprocessor(blocks: int, says: str) -> None:
    # The schedulers are busy for 43% of the time, where blocks are spread evenly.
    copy = measurement("copy")
    counters = copy.counters.replace_named(warp_instructions=8_000_000)
    advice = _advice(replace(copy, counters=counters, grid=(blocks, 1, 1)))
    assert says in advice
    assert "waves" not in advice


def _modelled(median_s: float, grid: int, **more: object) -> Measurement:
    """A launch that keeps the L1's port of the busiest multiprocessor busy for 1 ms."""
    passes = round(1e-3 * 1.98e9 * 132)
    counters = Counters.from_names(
        l1_wavefronts=passes,
        shared_load_instructions=passes // 4,
        shared_load_wavefronts=passes,
        shared_excessive_wavefronts=passes // 2,
    )
    # Blocks are spread evenly, so that the busiest multiprocessor is the mean one.
    work = replace(measurement("copy"), counters=counters, grid=(grid, 1, 1), **more)  # type: ignore[arg-type]
    return timed(work, median_s)


@pytest.mark.parametrize(
    ("median_s", "saving"),
    [
        # 1 ms of the port alone: half of it without conflicts.
        (1e-3, 0.5),
        # With 0.5 ms of waiting, (1 + 1 + 0.5) / 2: then (0.5 + 0.5 + 0.5) / 2.
        (1.25e-3, 0.4),
        # With 12 ms of waiting, (12 + 12 + 1) / 2: then (12 + 12 + 0.5) / 2.
        (12.5e-3, 0.02),
    ],
)
def test_a_saving_is_what_the_time_model_gives_without_the_fault(
    median_s: float, saving: float
) -> None:
    conflicts = banks.bank_conflicts(_case(_modelled(median_s, 264)))
    assert conflicts is not None
    assert conflicts.saving == pytest.approx(saving, rel=1e-3)
    assert conflicts.text.endswith(f"(up to {saving:.0%} of the time, by the model).")


def test_another_bound_stands_in_the_way_of_a_saving() -> None:
    case = _case(_modelled(1e-3, 264))
    held = replace(case.measurement.counters, dram_read_bytes=round(0.8e-3 * 4.8143e12))
    conflicts = banks.bank_conflicts(_case(replace(case.measurement, counters=held)))
    assert conflicts is not None
    assert conflicts.saving == pytest.approx(0.2, abs=1e-3)


def test_idle_multiprocessors_are_not_named_where_waiting_decides() -> None:
    assert not any("4 of 132" in text for text in run_of(_modelled(12.5e-3, 128)).advice)
    assert "4 of 132 multiprocessors idle" in _advice(_modelled(1.04e-3, 128))


def test_a_bound_below_the_threshold_is_not_said_to_explain_nothing() -> None:
    copy = measurement("copy")
    bounds_s = {"dram": 0.3 * copy.time.median_s, "latency": 0.2 * copy.time.median_s}
    advice = _advice(replace(copy, time=replace(copy.time, bounds_s=bounds_s)))
    assert "DRAM bounds the time, but is busy for only " in advice
    assert "No ceiling explains" not in advice


def test_more_room_for_warps_helps_only_if_there_are_more_blocks() -> None:
    few = Occupancy(2, 16, 0.25, "registers", {"registers": 2, "warps": 8})
    slow = _modelled(20e-3, 4 * 132, occupancy=few)
    found = work.low_occupancy(_case(slow))
    assert found is not None
    assert found.saving == pytest.approx(0.4872, abs=1e-3)  # 19.5 of 20 ms waiting, halved
    assert work.low_occupancy(_case(replace(slow, grid=(2 * 132, 1, 1)))) is None
    held = replace(few, limits={"registers": 2, "shared memory": 2})
    assert work.low_occupancy(_case(replace(slow, occupancy=held))) is None


def test_dram_reads_are_compared_with_what_is_to_be_read() -> None:
    # A load of every other word: 33.6 MB read for 16.8, and stores that never leave the L2.
    copy = replace(measurement("copy"), grid=(1056, 1, 1))
    strided = {"global_load_sectors": 1048576, "l2_read_sectors": 1048576}
    counters = copy.counters.replace_named(
        dram_read_bytes=32 * 2**20, dram_write_bytes=0, **strided
    )
    advice = run_of(timed(replace(copy, counters=counters), 9.97e-6)).advice
    assert not any("DRAM" in sentence for sentence in advice)
    assert any(
        "touch 6 sectors per request, but the requested bytes would fill 4" in sentence
        for sentence in advice
    )
    # The same reads by whole sectors: the second half of them is a rereading.
    whole = counters.replace_named(global_load_sectors=524288)
    assert "DRAM reads 33.6 MB, but 16.8 MB are compulsory" in _advice(
        timed(replace(copy, counters=whole), 9.97e-6)
    )


def test_dram_at_its_limit_is_told_apart_from_dram_wasted() -> None:
    copy = replace(measurement("copy"), grid=(1056, 1, 1))
    moved = copy.counters.replace_named(dram_read_bytes=16 * 2**20, dram_write_bytes=16 * 2**20)
    # 33.6 MB at 4814 GB/s take 6.97 us.
    full = timed(replace(copy, counters=moved), 8e-6)
    assert "only fewer bytes help" in _advice(full)
    wasted = replace(full, compulsory_bytes=8 * 2**20)
    assert "DRAM moves 33.6 MB, but 8.39 MB are compulsory" in _advice(wasted)


def test_one_result_of_a_block_is_not_called_uncoalesced() -> None:
    """One lane of a warp writes 4 of a sector's 32 bytes, and no other lane could share it."""
    results = Counters.from_names(
        global_store_requests=1056, global_store_sectors=1056, requested_store_bytes=4 * 1056
    )
    blocks = replace(measurement("copy"), grid=(1056, 1, 1), flop=0, counters=results)
    one_each = timed(blocks, 1e-5)
    assert "sectors per request" not in _advice(one_each)
    # Two in each request are, where one would do.
    two_each = replace(one_each, counters=results.replace_named(global_store_sectors=2112))
    assert "touch 2 sectors per request, but the requested bytes would fill 1" in _advice(two_each)
