"""The interval of a modelled time, from the errors on hardware."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace as Record
from typing import Any

import numpy as np
import pytest

from benchmarks.truth.errors import LEAST_LAUNCHES, quantiles_toml
from memlab.device import model_errors
from memlab.device.measurement import Time
from memlab.device.model_errors import ALL_KINDS, BY_COUNTERS, ErrorRange, with_error_interval


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = {ALL_KINDS: ErrorRange(40, 0.5, 2.0), "dram": ErrorRange(10, 1.1, 1.2)}
    monkeypatch.setattr(model_errors, "error_ranges", lambda: ranges)


@pytest.mark.parametrize(
    ("bounds_s", "interval"),
    [
        ({"dram": 2.0, "l1": 1.0}, (3.0, 3.6)),  # of its kind, but never without the time itself
        ({"dram": 1.0, "l1": 2.0}, (1.5, 6.0)),  # of all, where its kind has too few launches
        ({}, (1.5, 6.0)),
    ],
)
def test_the_kind_decides_the_interval(
    recorded: None, bounds_s: dict[str, float], interval: tuple[float, float]
) -> None:
    time = with_error_interval(Time(3.0, "modelled", bounds_s=bounds_s))
    assert (time.interval_low_s, time.interval_high_s) == pytest.approx(interval)
    assert time.median_s == 3.0


def test_a_time_by_counters_has_an_interval_of_its_own() -> None:
    """Without machine code the errors are larger: a quarter in the mean, against an eighth."""
    time = Time(1.0, "modelled", bounds_s={"l1": 1.0})
    simulated, by_counters = with_error_interval(time), with_error_interval(time, BY_COUNTERS)
    assert _width(by_counters) > 1.5 * _width(simulated)


def test_quantiles_are_those_of_measured_over_modelled() -> None:
    """Of 11 launches 80% lie between the second and the second last."""
    of_kind = [
        _compared(modelled_s=2.0, ratio=0.5 + 0.1 * place, bound="l2") for place in range(11)
    ]
    few = [_compared(1.0, 9.0, "issue")] * (LEAST_LAUNCHES - 1)
    text = quantiles_toml([*of_kind, *few])
    kinds = {kind: ErrorRange(**one) for kind, one in tomllib.loads(text)["kinds"].items()}
    assert kinds.keys() == {ALL_KINDS, BY_COUNTERS, "l2"}
    assert kinds[BY_COUNTERS].high == pytest.approx(2 * kinds[ALL_KINDS].high, abs=2e-3)
    assert kinds["l2"] == ErrorRange(11, 0.6, 1.4)
    ratios = [*(0.5 + 0.1 * place for place in range(11)), *(9.0 for _ in few)]
    assert kinds[ALL_KINDS].high == pytest.approx(np.quantile(ratios, 0.9), abs=1e-3)


def test_the_recorded_errors_are_plausible() -> None:
    ranges = model_errors.error_ranges()
    assert all(errors.launches >= LEAST_LAUNCHES for errors in ranges.values())
    assert all(0 < errors.low < errors.high for errors in ranges.values())
    assert ranges[ALL_KINDS].launches >= 43  # those of the catalog


def _width(time: Time) -> float:
    return (time.interval_high_s or 0.0) - (time.interval_low_s or 0.0)


def _compared(modelled_s: float, ratio: float, bound: str) -> Any:
    return Record(
        measured=Record(time_s=modelled_s * ratio),
        modelled=Record(time_s=modelled_s, counters_s=modelled_s / 2, bound=bound),
    )
