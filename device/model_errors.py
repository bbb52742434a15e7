"""The errors of the modelled time on hardware, and the interval that they justify.

`model_errors.toml` holds, for each kind of kernel, quantiles of the measured over the modelled
time of many launches on an H200; `python -m benchmarks.truth compare --errors` writes it. A
kernel's kind is the bound that takes longest in the model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from memlab.device.measurement import Time
from memlab.device.properties import EXPLAINING_BOUNDS

FILE_NAME = "model_errors.toml"
COVERED_SHARE = 0.8
"""The share of the launches on hardware whose time lay within the interval."""
ALL_KINDS = "all"
"""The quantiles of all launches, for kinds of which too few were measured."""
BY_COUNTERS = "by counters"
"""The quantiles of the times that all launches have by counters alone, without machine code."""

RETRIED = "retried additions"
"""The kind of kernels most of whose additions to halves fail."""


@dataclass(frozen=True)
class ErrorRange:
    """The errors of the modelled time, for one kind of kernel.

    Attributes:
        launches: How many launches were measured.
        low: The quantile (1 - `COVERED_SHARE`) / 2 of the measured over the modelled time.
        high: The quantile (1 + `COVERED_SHARE`) / 2 of the same.
    """

    launches: int
    low: float
    high: float


_OF_RETRIED = ErrorRange(launches=8, low=0.625, high=1.65)
"""On an H200: of the kernels of benchmarks/half_sums.cu, and `dot` (docs/results/README.md)."""


@cache
def error_ranges() -> Mapping[str, ErrorRange]:
    """The recorded errors by kind; `ALL_KINDS` is among them."""
    text = (resources.files("memlab.device") / FILE_NAME).read_text(encoding="utf-8")
    kinds = tomllib.loads(text)["kinds"]
    ranges = {kind: ErrorRange(**quantiles) for kind, quantiles in kinds.items()}
    return {**ranges, RETRIED: _OF_RETRIED}


def kind_of(bounds_s: Mapping[str, float]) -> str:
    """The kind of a kernel: the bound that takes longest; `ALL_KINDS` if none is known.

    Bounds that only explain a time are no kinds: the errors were measured without them.
    """
    kinds = [name for name in bounds_s if name not in EXPLAINING_BOUNDS]
    return max(kinds, key=lambda name: bounds_s[name], default=ALL_KINDS)


def with_error_interval(time: Time, kind: str | None = None) -> Time:
    """Return a modelled time with the interval that its kind's errors on hardware justify.

    The interval holds the modelled time itself, also where the model is biased.

    Args:
        time: The modelled time.
        kind: `BY_COUNTERS` for a time that is not simulated, or not all of it; `RETRIED`; None for
            the kind by its bounds.
    """
    ranges = error_ranges()
    errors = ranges.get(kind or kind_of(time.bounds_s), ranges[ALL_KINDS])
    return replace(
        time,
        interval_low_s=time.median_s * min(errors.low, 1.0),
        interval_high_s=time.median_s * max(errors.high, 1.0),
    )
