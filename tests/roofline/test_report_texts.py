"""Texts of the reports at the limits of their forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from memlab.device.measurement import CLOCK_DRIFT_LIMIT, EVENT_PAIR_SHARE, Code, Time
from memlab.roofline.reports.parts import capacity, figures_section, percent, rendered_text
from memlab.roofline.reports.run import (
    _provenance_text,
    _timing_facts,
    difference_text,
    run_report,
)
from memlab.roofline.run import Run, RunIdentity


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0%"),
        (0.0009, "<0.1%"),
        (0.001, "0.1%"),
        (0.5, "50%"),
        (0.519, "51.9%"),
        (1.0, "100%"),
    ],
)
def test_a_small_share_is_not_zero(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB")]
)
def test_a_capacity_has_a_binary_prefix(size: int, text: str) -> None:
    assert capacity(size) == text


@pytest.mark.parametrize("columns", [80, 60])
def test_a_long_title_of_figures_is_one_line(columns: int) -> None:
    section = figures_section("Distributed shared memory", ("requests",), [("loads", "64")])
    title, headings, row = rendered_text(section, columns).splitlines()
    assert title == "Distributed shared memory"
    assert headings.split() == ["requests"]
    assert row.split() == ["loads", "64"]
    assert row.index("64") + 2 == headings.index("requests") + len("requests")


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (3, 3, "none"),
        (0, 0, "none"),
        (3, 0, "all"),
        (101.2, 100, "+1.2%"),
        (10005, 10000, "+0.1%"),
        (10004, 10000, "+<0.1%"),
        (9996, 10000, "-<0.1%"),
        (0, 4, "-100.0%"),
    ],
)
def test_a_difference_is_relative_to_the_hardware(ours: float, theirs: float, text: str) -> None:
    assert difference_text(ours, theirs) == text


def timing(**changes: float) -> list[str]:
    time = replace(Time(1.0, "measured", samples=30), **changes)  # type: ignore[arg-type]
    return [f"{label}: {text}" for label, text in _timing_facts(time)]


def test_a_clock_that_moved_is_a_warning_above_its_limit() -> None:
    assert timing(clock_hz=2e9) == timing(clock_hz=2e9, clock_drift=0.0)
    assert timing(clock_hz=2e9) == ["SM clock: 2000 MHz, steady"]
    (moved,) = timing(clock_hz=2e9, clock_drift=CLOCK_DRIFT_LIMIT)
    assert moved == f"SM clock: 2000 MHz, moved by {percent(CLOCK_DRIFT_LIMIT)}"
    (warning,) = timing(clock_hz=2e9, clock_drift=1.01 * CLOCK_DRIFT_LIMIT)
    assert warning.endswith("the time is not reliable")


def test_the_spread_of_a_time() -> None:
    quartiles = {"lower_quartile_s": 0.9, "upper_quartile_s": 1.1}
    ends = {"minimum_s": 0.8, "maximum_s": 1.2}
    interval = {"interval_low_s": 0.99, "interval_high_s": 1.01}
    assert timing(**quartiles, **ends) == [": 800 ms to 1.20 s, the smallest and largest of 30"]
    assert timing(**ends, samples=1) == [": a single sample, so its variation is not known"]
    assert timing(**quartiles, **ends, **interval, outliers=1) == [
        ": 900 ms to 1.10 s, half of the samples; 1 outlier",
        ": ±1%, 95% confidence of the median",
    ]


def test_a_modelled_time_is_given_with_its_interval() -> None:
    time = Time(15.4e-3, "modelled", interval_low_s=14e-3, interval_high_s=17e-3)
    assert _provenance_text(time) == " (14.0–17.0 ms) modelled"
    assert list(_timing_facts(time)) == []


def test_the_events_are_named_where_they_matter() -> None:
    assert timing(event_pair_s=EVENT_PAIR_SHARE) == []
    (fact,) = timing(event_pair_s=1.01 * EVENT_PAIR_SHARE)
    assert "of it is the two events" in fact


def report_lines(run: Run) -> list[str]:
    return [" ".join(line.split()) for line in rendered_text(run_report(run), 80).splitlines()]


def test_a_report_tells_which_run_and_which_code_it_is_of(make_run: Callable[..., Run]) -> None:
    options = (
        "-I/home/someone/project",
        "--root=/home",
        "--use_fast_math",
        "-Iinclude",
        "--maxrregcount=32",
    )
    left_out = ("a.h", "GL/b.h")
    run = make_run(code=Code("k.cu", "", "", "NVRTC 13.5", options, left_out))
    identity = RunIdentity(
        "before", "the loop as it was", "0123456789abcdef" * 2 + "01234567", True
    )
    lines = report_lines(replace(run, identity=identity))
    assert lines[3:7] == [
        "Run",
        "label before",
        "note the loop as it was",
        "commit 0123456789ab",
    ]
    assert "compiler NVRTC 13.5 --use_fast_math --maxrregcount=32" in lines
    assert "left out not found: a.h, GL/b.h" in lines
    changed = replace(identity, git_clean=False)
    assert "commit 0123456789ab, changed" in report_lines(replace(run, identity=changed))


def test_a_report_of_an_old_run_has_no_empty_lines_for_what_it_lacks(
    make_run: Callable[..., Run],
) -> None:
    lines = report_lines(make_run())
    assert lines[3] == "Launch"
    assert not [line for line in lines if line.startswith(("compiler", "label", "commit"))]
