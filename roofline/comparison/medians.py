"""The ratio of two medians with its confidence interval, from the samples of two timings.

The interval is that of Price and Bonett ("Distribution-free confidence intervals for difference
and ratio of medians", Journal of Statistical Computation and Simulation 72(2), 2002): the variance
of each log median comes from two order statistics, whose ranks a binomial distribution gives. It
needs no distribution, no random numbers and few samples, and the difference of two log medians is
the log of the ratio by which times are compared.

It assumes independent samples. Launches one after another are not: clocks and temperatures drift.
The variance of a median under dependence is that of independent samples times the integrated
autocorrelation time of "sample above the median" (by Bahadur's representation of quantiles), which
is estimated by Geyer's initial positive sequence ("Practical Markov Chain Monte Carlo", Statistical
Science 7(4), 1992). A block bootstrap would need blocks longer than the correlation, of which 30
samples have too few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
"""The confidence of the intervals."""

LEAST_SAMPLES = 6
"""Below this, even the smallest and largest sample enclose the median with less than 95%."""

NORMAL_QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""1.96: half the width of a normal interval of `CONFIDENCE`, in standard deviations."""


@dataclass(frozen=True)
class LogMedian:
    """The logarithm of a median and its variance.

    Attributes:
        value: ln(median in seconds).
        variance: Its variance, with the correlation of the samples; dimensionless.
        correlation: The factor by which correlation raised the variance, 1 or more: so many times
            fewer independent samples would say as much.
    """

    value: float
    variance: float
    correlation: float = 1.0


def log_median(durations_s: Sequence[float]) -> LogMedian | None:
    """Estimate the log median of samples.

    Args:
        durations_s: The samples in the order of time, seconds, each above 0.

    Returns:
        The estimate; None for fewer than `LEAST_SAMPLES`.
    """
    count = len(durations_s)
    if count < LEAST_SAMPLES:
        return None
    ordered = sorted(map(math.log, durations_s))
    # The ranks of Price and Bonett, and the exact number of standard deviations between them.
    rank = max(1, round((count + 1) / 2 - math.sqrt(count)))
    below = sum(math.comb(count, heads) for heads in range(rank))
    quantile = NormalDist().inv_cdf(1 - below / 2**count)
    deviation = (ordered[-rank] - ordered[rank - 1]) / (2 * quantile)
    factor = correlation_factor(durations_s)
    # A clock counts in steps: the median of equal samples is known to a step's rounding only.
    step = min((b - a for a, b in pairwise(ordered) if b > a), default=0.0)
    return LogMedian(median(ordered), deviation**2 * factor + step**2 / 12, factor)


def correlation_factor(durations_s: Sequence[float]) -> float:
    """Estimate the integrated autocorrelation time of "sample above the median", at least 1."""
    count, middle = len(durations_s), median(durations_s)
    signs = [(duration > middle) - (duration < middle) for duration in durations_s]
    mean = sum(signs) / count
    centred = [sign - mean for sign in signs]
    power = sum(value * value for value in centred)
    if not power:
        return 1.0

    def correlation(lag: int) -> float:
        return sum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / power

    total, lag = -1.0, 0
    while lag + 1 < count // 2:
        pair = correlation(lag) + correlation(lag + 1)
        if pair <= 0:  # sums of neighbours are positive in theory: what follows is noise
            break
        total, lag = total + 2 * pair, lag + 2
    return max(1.0, total)


def change_interval(first: LogMedian, second: LogMedian) -> tuple[float, float]:
    """Give the interval of the relative change from the first median to the second.

    Returns:
        Both ends of second / first - 1, with the confidence `CONFIDENCE`.
    """
    half = NORMAL_QUANTILE * math.sqrt(first.variance + second.variance)
    ratio = second.value - first.value
    return math.expm1(ratio - half), math.expm1(ratio + half)
