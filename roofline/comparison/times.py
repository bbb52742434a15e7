"""The times of two runs: how far they differ, and whether that is certain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from memlab.roofline.comparison.medians import (
    LEAST_SAMPLES,
    NORMAL_QUANTILE,
    LogMedian,
    change_interval,
    log_median,
)
from memlab.roofline.comparison.records import TimeChange
from memlab.roofline.comparison.wording import change_text, interval_text
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from memlab.device.measurement import Time
    from memlab.roofline.comparison.records import TimeCall

SAME_SHARE = 1e-8
"""The last digits of modelled times may differ between machines."""

DEFAULT_THRESHOLD = 0.01
"""Times that differ by less count as equal: two measurements of one kernel agree to about 1%."""


def compare_times(
    first: Time, second: Time, threshold: float, *, comparable: bool = True
) -> TimeChange:
    """Compare two times.

    Args:
        first: The time of A.
        second: The time of B.
        threshold: The relative difference up to which times count as equal.
        comparable: Whether the times may be called; otherwise only the change is given.

    Returns:
        The comparison. Times are called faster or slower where the interval of the relative change
        lies beyond the threshold: the 95% interval of measured times, or what the model's error
        allows. A modelled change within the threshold is none, since a model has no noise.
    """
    relative = second.median_s / first.median_s - 1
    if abs(relative) < SAME_SHARE:
        relative = 0.0
    provenances = {first.provenance, second.provenance}
    provenance: Literal["measured", "modelled", "mixed"] = (
        "mixed" if len(provenances) > 1 else "measured" if "measured" in provenances else "modelled"
    )
    estimates = _estimate(first), _estimate(second)
    interval = None
    if provenance != "measured":
        interval = _model_interval(first, second) if relative else (0.0, 0.0)
    elif estimates[0] and estimates[1]:
        interval = change_interval(estimates[0], estimates[1])
    low, high = interval or (None, None)
    call: TimeCall = "not comparable"
    if comparable:
        call = _call(relative, interval, threshold, exact=provenance == "modelled")
    return TimeChange(
        provenance,
        first.median_s,
        second.median_s,
        relative,
        low,
        high,
        (first.samples, second.samples),
        (
            estimates[0].correlation if estimates[0] else 1.0,
            estimates[1].correlation if estimates[1] else 1.0,
        ),
        call,
        _text(first, second, relative, interval, provenance, call, threshold),
    )


def _estimate(time: Time) -> LogMedian | None:
    """Estimate the log median from the samples or, where they were not kept, from its interval."""
    if time.provenance != "measured":
        return None
    if time.durations_s and min(time.durations_s) > 0:
        return log_median(time.durations_s)
    low, high = time.interval_low_s, time.interval_high_s
    if not low or not high:
        return None
    deviation = (math.log(high) - math.log(low)) / (2 * NORMAL_QUANTILE)
    return LogMedian(math.log(time.median_s), deviation**2)


def _model_interval(first: Time, second: Time) -> tuple[float, float] | None:
    """Give the relative changes that the model's error allows; None where it is not known."""
    ends = []
    for time in (first, second):
        low, high = time.interval_low_s, time.interval_high_s
        if estimate := _estimate(time):
            half = NORMAL_QUANTILE * math.sqrt(estimate.variance)
            low, high = math.exp(estimate.value - half), math.exp(estimate.value + half)
        if not low or not high:
            return None
        ends.append((low, high))
    (a_low, a_high), (b_low, b_high) = ends
    return b_low / a_high - 1, b_high / a_low - 1


def _call(
    relative: float, interval: tuple[float, float] | None, threshold: float, *, exact: bool
) -> TimeCall:
    if exact and abs(relative) <= threshold:
        return "no difference"
    if interval is None:
        return "undecided"
    low, high = interval
    if high < -threshold:
        return "faster"
    if low > threshold:
        return "slower"
    return "no difference" if -threshold <= low and high <= threshold else "undecided"


def _text(
    first: Time,
    second: Time,
    relative: float,
    interval: tuple[float, float] | None,
    provenance: str,
    call: TimeCall,
    threshold: float,
) -> str:
    times = f"{si_text(first.median_s, 's')} -> {si_text(second.median_s, 's')}"
    change = change_text(relative) if relative else "equal"
    if provenance != "measured":
        if provenance == "mixed":
            times = (
                f"{first.provenance} {si_text(first.median_s, 's')} -> "
                f"{second.provenance} {si_text(second.median_s, 's')}"
            )
        else:
            times = f"modelled: {times}"
        if not relative:
            return f"{times}, {change}"
        allowed = "of unknown error" if interval is None else model_error_text(interval)
        return f"{times}, {change} ({allowed}): {call}"
    if interval is None:
        return (
            f"measured: {times}, {change}; fewer than {LEAST_SAMPLES} samples, so nothing is known "
            "about their noise"
        )
    width = 100 * (interval[1] - interval[0])
    decimals = min(max(1 - math.floor(math.log10(width)), 0), 3) if width > 0 else 3
    low, high = (f"{100 * end:+.{decimals}f}%" for end in interval)
    limits = f"\N{PLUS-MINUS SIGN}{100 * threshold:g}%"
    meaning = {
        "no difference": f"equal within {limits}",
        "undecided": f"undecided against {limits}: take more --samples",
    }.get(call, call)
    return f"measured: {times}, {change} (95%: {low} to {high}): {meaning}"


def model_error_text(interval: tuple[float, float]) -> str:
    """Write the relative changes that the model's error allows."""
    return f"the model's error allows {interval_text(interval)}"
