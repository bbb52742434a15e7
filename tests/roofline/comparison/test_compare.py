"""Comparisons of runs with planted differences."""

from dataclasses import replace

import example_runs
import pytest
from compared_runs import GPU, OTHER, changed, counted, measured, modelled, with_time

from memlab.device.measurement import (
    Code,
    Counters,
    LineCounters,
    Verification,
)
from memlab.roofline.comparison.compare import compare_runs, match_runs
from memlab.roofline.comparison.lines import compare_lines


@pytest.mark.parametrize(
    ("b_s", "noise", "call"),
    [
        (1.05e-3, 0.002, "slower"),
        (0.95e-3, 0.002, "faster"),
        (1.003e-3, 0.002, "no difference"),
        (1.012e-3, 0.02, "undecided"),
        (0.988e-3, 0.02, "undecided"),
        (1.03e-3, 0.1, "undecided"),
        (1.001e-3, 0.1, "undecided"),  # the median says equal, the noise does not
    ],
)
def test_measured_times_are_called_by_their_interval(b_s, noise, call):
    a, b = measured(1e-3, noise), measured(b_s, noise, seed=2, code=OTHER)
    pair = compare_runs(a, b)
    assert pair.call == call
    assert pair.time.relative == pytest.approx(b_s / 1e-3 - 1)
    assert pair.time.low < pair.time.relative < pair.time.high
    assert pair.figure("median_s").judgement == {"faster": "better", "slower": "worse"}.get(
        call, "within error"
    )
    assert compare_runs(a, b, threshold=0.2).call in ("no difference", "undecided")


def test_the_same_machine_code_is_no_regression_however_long_it_took():
    a = measured(1e-3)
    for source in ("s1", "s2"):  # s2: another comment
        pair = compare_runs(a, measured(1.3e-3, seed=3, code=Code("t.cu", source, "m1")))
        assert pair.call == "no code change"
        assert pair.code.unchanged
        assert "+30%" in pair.verdict
    flags = {**a.measurement.parameters, "use_fast_math": 1, "defines": "UNUSED"}
    flagged = measured(1.3e-3, code=Code("t.cu", "s1", "m1"), parameters=flags)
    assert compare_runs(a, flagged).call == "no code change"
    other_launch = measured(1.3e-3, code=Code("t.cu", "s1", "m1"), grid=(64, 64, 1))
    assert compare_runs(a, other_launch).call == "slower"
    assert compare_runs(a, measured(1.3e-3, code=Code())).code.machine_code == "unknown"


def modelled_alike(run):
    """The run with its time as a modelled one that is at most 5% wrong."""
    median_s = run.measurement.time.median_s
    ends = {"interval_low_s": 0.95 * median_s, "interval_high_s": 1.05 * median_s}
    return with_time(run, provenance="modelled", durations_s=(), **ends)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda run: with_time(run, clock_hz=1.93e9), "clocks differ: 1980 and 1930 MHz"),
        (lambda run: with_time(run, clock_drift=0.05), "B moved by 5.0%"),
        (lambda run: changed(run, device=replace(GPU, uuid="GPU-2")), "GPU-1 and GPU-2"),
        (lambda run: changed(run, device=replace(GPU, name="NVIDIA A100")), "NVIDIA A100"),
        (lambda run: changed(run, device=replace(GPU, driver="590")), "580 and 590"),
        (modelled_alike, "B's is modelled"),
        (lambda run: changed(run, compulsory_bytes=7), "sizes of the work differ"),
    ],
)
def test_what_forbids_a_comparison_is_named_unless_forced(change, named):
    a, b = measured(1e-3), change(measured(2e-3, code=OTHER))
    pair = compare_runs(a, b)
    assert pair.call == "not comparable"
    assert named in pair.verdict
    assert named in pair.obstacles[0]
    assert pair.time.text.endswith("not comparable")
    assert pair.figure("median_s").judgement == "changed"
    forced = compare_runs(a, b, force=True)
    assert forced.call == "slower"
    assert forced.obstacles == pair.obstacles


def test_a_rate_that_fell_with_the_work_is_no_improvement():
    a, b = measured(2e-3), measured(1e-3, code=OTHER)
    assert compare_runs(a, b).figure("flop_per_s").judgement == "better"
    placement = replace(b.placement, flop_per_s=a.placement.flop_per_s / 2)
    pair = compare_runs(a, replace(b, placement=placement), force=True)
    assert pair.figure("median_s").judgement == "better"
    assert pair.figure("flop_per_s").judgement == "changed"


def test_a_wrong_output_comes_first_even_if_forced():
    failed = Verification("failed", 1.0, 1e-4, 100, 100, "P[3] is 7, not 1", 5)
    b = with_time(measured(0.5e-3, code=OTHER, verification=failed), clock_hz=1e9)
    pair = compare_runs(measured(1e-3), b, force=True)
    assert pair.call == "wrong output"
    assert "P[3]" in pair.verdict
    assert pair.obstacles[0] == pair.verdict


@pytest.mark.parametrize(
    ("b_s", "call", "judgement"),
    [
        (1e-3, "no difference", "same"),
        (1.005e-3, "no difference", "within error"),
        (0.95e-3, "undecided", "within error"),
        (1.3e-3, "undecided", "within error"),
        (1.4e-3, "slower", "worse"),  # 0.9 * 1.4 > 1.2
        (0.7e-3, "faster", "better"),  # 1.2 * 0.7 < 0.9
    ],
)
def test_modelled_times_are_called_beyond_the_error_of_the_model(b_s, call, judgement):
    pair = compare_runs(modelled(1e-3), changed(modelled(b_s), code=OTHER))
    assert pair.call == call
    assert pair.figure("median_s").judgement == judgement
    if b_s != 1e-3:
        assert pair.time.low == pytest.approx(b_s * 0.9 / 1.2e-3 - 1)
        assert pair.time.high == pytest.approx(b_s * 1.2 / 0.9e-3 - 1)


def test_a_modelled_time_of_unknown_error_decides_nothing():
    pair = compare_runs(modelled(1e-3), modelled(0.5e-3, interval_low_s=None))
    assert pair.call == "undecided"
    assert pair.verdict == "modelled: 1.00 ms -> 500 µs, -50% (of unknown error): undecided"


def test_a_measured_time_beside_a_modelled_one_takes_the_errors_of_both():
    for b_s, call in ((1.07e-3, "undecided"), (1.12e-3, "slower")):
        a = modelled(1e-3, interval_low_s=0.95e-3, interval_high_s=1.05e-3)
        pair = compare_runs(a, measured(b_s, 0.05, code=OTHER), force=True)
        assert pair.call == call
        assert pair.verdict.startswith("modelled 1.00 ms -> measured 1.")


def test_exact_counters_have_no_noise_and_estimates_their_error():
    exact = compare_runs(counted(1_000_000), counted(1_000_001))
    assert exact.call == "counters differ"
    assert exact.figure("global_load_sectors").judgement == "worse"
    assert exact.counters == "1 counter differs; emulated, so without noise"
    sampled = {"estimated": True, "relative_standard_error": 0.01}
    estimates = [counted(sectors, **sampled) for sectors in (1_000_000, 1_020_000, 1_040_000)]
    # The error of the difference is 1.96 sqrt(2) 1% = 2.8%.
    near, far = compare_runs(*estimates[:2]), compare_runs(estimates[0], estimates[2])
    assert near.figure("global_load_sectors").judgement == "within error"
    assert far.figure("global_load_sectors").judgement == "worse"
    assert "2.8%" in near.counters
    unknown = compare_runs(counted(1_000_000), counted(2_000_000, estimated=True))
    assert not unknown.counters_differ


def test_fewer_sectors_are_better_and_more_hits_neither():
    base = example_runs.measurement("tiled16", "modelled")
    other = replace(
        base, counters=base.counters.replace_named(global_load_sectors=5, l2_read_sector_hits=99)
    )
    pair = compare_runs(example_runs.run_of(base), example_runs.run_of(other))
    assert pair.figure("global_load_sectors").judgement == "better"
    assert pair.figure("l2_read_sector_hits").judgement == "changed"
    assert pair.figure("l2_read_sector_hits").relative is None  # from zero
    assert {change.name for change in pair.figures} >= set(Counters.names())


def line(number, text, sectors=0, flop=0):
    return LineCounters.from_names(line=number, text=text, global_sectors=sectors, flop=flop)


def test_lines_are_matched_by_text_wherever_they_moved():
    first = [line(3, "x = a[i];", 8), line(4, "y = b[i];", 8), line(5, "c[i] = x + y;", 8)]
    second = [
        line(9, "  x = a[i];  // as before", 8),
        line(10, "y = b[i * 2];", 16),
        line(11, "z = d[j] * 3.0f;", 4),
        line(12, "c[i] = x + y;", 8, flop=1),
    ]
    changes = compare_lines(first, second)
    assert [(change.match, change.b.line) for change in changes] == [
        ("edited", 10),
        ("new", 11),
        ("same", 12),
    ]
    assert changes[0].counters == {"global_sectors": (8, 16)}
    gone = compare_lines(second, first)
    assert [change.match for change in gone] == ["edited", "gone", "same"]


def test_lines_that_repeat_are_matched_one_to_one():
    loads = [line(number, "s += a[i];", number) for number in (1, 2, 3)]
    changes = compare_lines(loads, [loads[0], loads[2]])
    assert sum(change.b is None for change in changes) == 1


def test_runs_are_matched_by_point_and_the_rest_is_named():
    naive, *tiled = example_runs.ladder()
    again = [example_runs.run("tiled16"), example_runs.run("tiled8"), example_runs.run("copy")]
    pairs, only_a, only_b = match_runs([naive, *tiled], again)
    assert [(a.measurement.tile, b.measurement.tile) for a, b in pairs] == [(16, 16), (8, 8)]
    assert only_a == [naive, tiled[2]]
    assert only_b == [again[2]]


def test_points_of_another_device_or_kernel_match_where_that_is_unambiguous():
    tiled = example_runs.ladder()[1:]
    elsewhere = [
        changed(run, device=replace(run.measurement.device, key="a100", name="A100"))
        for run in tiled
    ]
    renamed = [changed(run, kernel="mine") for run in tiled]
    for others in (elsewhere, renamed):
        pairs, *left = match_runs(tiled, others)
        assert [a.measurement.tile for a, _ in pairs] == [8, 16, 32]
        assert left == [[], []]
    assert len(match_runs(tiled, [*elsewhere, *renamed])[0]) == 3  # by kernel first
    assert match_runs(tiled[:1], renamed[1:2])[0]  # two single runs are partners
