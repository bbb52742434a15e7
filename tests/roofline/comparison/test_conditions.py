"""Conditions of a gate: their grammar, and when they hold."""

from dataclasses import replace

import pytest
from compared_runs import OTHER, counted, measured, modelled, with_time

from memlab.errors import UsageError
from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.conditions import (
    judge_comparison,
    judge_run,
    parse_condition,
    parse_own_condition,
    regressions,
)
from memlab.roofline.comparison.figures import DERIVED
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.glossary import find_entries


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("time>+3%", ("median_s", ">", 0.03, "relative")),
        ("time > -3 %", ("median_s", ">", -0.03, "relative")),
        ("time>2e-3", ("median_s", ">", 0.002, "value")),
        ("global_load_sectors>0%", ("global_load_sectors", ">", 0.0, "relative")),
        ("global_load_sectors>0", ("global_load_sectors", ">", 0.0, "value")),
        ("fraction_of_roof<80%", ("fraction_of_ceiling", "<", 0.8, "value")),
        ("fraction_of_roof<-5%", ("fraction_of_ceiling", "<", -0.05, "relative")),
        ("occupancy<=50%", ("occupancy", "<=", 0.5, "value")),
        ("registers_per_thread>=+8", ("registers_per_thread", ">=", 8.0, "difference")),
        ("spill_loads!=0", ("spill_loads", "!=", 0.0, "value")),
        ("l2_bytes_moved>.5%", ("l2_bytes_moved", ">", 0.005, "relative")),
    ],
)
def test_a_sign_or_a_percentage_that_can_be_no_value_means_a_change(text, meaning):
    condition = parse_condition(text)
    assert (condition.name, condition.operator, condition.kind) == (*meaning[:2], meaning[3])
    assert condition.limit == pytest.approx(meaning[2])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("global_load_sector>0%", "did you mean 'global_load_sectors'"),
        ("kernel==1", "kernel is no number"),
        ("time", "is no condition"),
        ("time>", "is no condition"),
        ("time=>3", "is no condition"),
        ("time>3x", "is no condition"),
        ("time>nan", "is no condition"),
        ("time>+-3%", "is no condition"),
        ("", "is no condition"),
        ("3>time", "is no condition"),
    ],
)
def test_a_malformed_condition_is_refused_in_one_line(text, named):
    with pytest.raises(UsageError, match=named) as refusal:
        parse_condition(text)
    assert "\n" not in str(refusal.value)


def status(a, b, *texts, force=False):
    pair = compare_runs(a, b, force=force)
    comparison = Comparison((pair,), forced=force)
    results = judge_comparison(comparison, [parse_condition(text) for text in texts])
    return [result.status for result in results]


def test_counters_have_no_noise_so_any_change_counts():
    a, b = counted(1_000_000), counted(1_000_001)
    texts = ["global_load_sectors>0%", "global_load_sectors>+1", "global_load_sectors>+0.5"]
    assert status(a, b, *texts) == ["held", "passed", "held"]
    assert status(b, a, *texts) == ["passed"] * 3
    assert status(a, a, *texts, "global_load_sectors!=0%") == ["passed"] * 4
    assert status(a, b, "local_load_sectors>0%", "local_load_sectors>=0") == ["passed", "held"]


def test_from_zero_any_growth_exceeds_any_percentage():
    a, b = counted(0), counted(7)
    assert status(a, b, "global_load_sectors>+900%", "global_load_sectors>+7") == ["held", "passed"]
    assert status(b, a, "global_load_sectors<-99%") == ["held"]


def test_the_interval_of_a_measured_time_must_exceed_the_limit():
    a, near, far = measured(1e-3), *(measured(b, 0.05, seed=5, code=OTHER) for b in (1.04e-3, 2e-3))
    assert near.measurement.time.median_s / a.measurement.time.median_s - 1 > 0.03
    assert status(a, near, "time>+3%", "time>0.00103") == ["passed", "held"]
    assert status(a, far, "time>+3%", "flop_per_s<-10%", "fraction_of_roof<-40%") == ["held"] * 3
    assert status(a, far, "time>+120%", "flop_per_s<-60%") == ["passed"] * 2
    few = measured(2e-3, count=4, code=OTHER)
    assert status(a, few, "time>+3%") == ["not judged"]


def test_a_modelled_time_within_the_error_of_the_model_cannot_be_judged():
    a, near, far = modelled(1e-3), modelled(1.3e-3), modelled(2e-3)
    assert status(a, near, "time>+3%", "time>+0.0002") == ["not judged"] * 2
    assert status(a, near, "time>+30.1%", "time>0.001", "time!=+40%") == [
        "passed",
        "held",
        "not judged",
    ]
    assert status(a, far, "time>+3%", "time>+45%", "time>+0.0004") == ["held", "held", "held"]
    assert status(a, far, "time>+55%", "flop_per_s<-30%", "flop_per_s<-40%") == [
        "not judged",
        "held",
        "not judged",
    ]
    assert status(a, replace(a), "time>+0%", "time!=0%") == ["passed", "passed"]
    (result,) = judge_comparison(
        Comparison((compare_runs(a, near),)), [parse_condition("time>+3%")]
    )
    assert "+30% (the model's error allows -2.5% to +73%)" in result.text
    assert "gate on counters" in result.text


def test_intervals_are_written_in_percent_whatever_their_size():
    a, far = modelled(1e-3), modelled(2e-3)
    (result,) = judge_comparison(Comparison((compare_runs(a, far),)), [parse_condition("time>+3%")])
    assert "x2 (the model's error allows +50% to +167%)" in result.text


def test_different_means_certainly_different():
    a, near, far = (
        measured(1e-3),
        *(measured(b, 0.05, seed=5, code=OTHER) for b in (1.001e-3, 2e-3)),
    )
    assert status(a, near, "time!=0%", "time==0%") == ["passed", "passed"]
    assert status(a, far, "time!=0%", "time!=+500%") == ["held", "held"]


def test_a_time_without_a_code_change_is_no_regression():
    assert status(measured(1e-3), measured(2e-3, seed=2), "time>+3%") == ["passed"]


def test_a_time_that_cannot_be_compared_fails_the_gate_unless_forced():
    a, b = measured(1e-3), with_time(measured(2e-3, code=OTHER), clock_hz=1e9)
    comparison = Comparison((compare_runs(a, b),))
    (result,) = judge_comparison(comparison, [parse_condition("time>+3%")])
    assert result.failed
    assert "clocks differ" in result.text
    assert status(a, b, "time>+3%", force=True) == ["held"]
    assert status(a, b, "global_load_sectors>0%") == ["passed"]


def test_estimates_must_exceed_their_error():
    sampled = {"estimated": True, "relative_standard_error": 0.01}
    a, near, far = (counted(count, **sampled) for count in (100_000, 102_000, 110_000))
    assert status(a, near, "global_load_sectors>0%") == ["passed"]
    assert status(a, far, "global_load_sectors>0%", "global_load_sectors>9%") == ["held", "passed"]
    assert status(a, counted(1, estimated=True), "global_load_sectors>0%") == ["not judged"]


def test_one_run_is_judged_by_its_own_values():
    run = counted(7)
    results = judge_run(run, [parse_own_condition("global_load_sectors>6")])
    assert [result.status for result in results] == ["held"]
    with pytest.raises(UsageError, match="is about a change"):
        parse_own_condition("time>+3%")


def test_a_baseline_guards_every_counter_that_costs_and_the_time():
    worse = {"global_load_sectors", "shared_excessive_wavefronts", "dram_read_bytes"}
    base = counted(1000)
    grown = base.measurement.counters.replace_named(
        **dict.fromkeys(worse, 10**9), l2_read_sector_hits=5, flop_fp32=1
    )
    other = replace(base, measurement=replace(base.measurement, counters=grown))
    results = regressions(Comparison((compare_runs(base, other),)))
    assert {result.name for result in results if result.failed} == worse
    assert not any(r.failed for r in regressions(Comparison((compare_runs(other, base),))))
    slow = Comparison((compare_runs(measured(1e-3), measured(1.1e-3, seed=9, code=OTHER)),))
    assert [result.name for result in regressions(slow) if result.failed] == ["median_s"]


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_a_derived_figure_is_explained(name):
    assert find_entries(name)
