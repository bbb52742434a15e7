"""How many samples of a time are taken, and their statistics.

This module does not depend on a GPU: `collect_samples` takes a function that takes one sample and a
clock, so the rules are tested with a fake clock. No distribution is assumed: run times are skewed
and have several modes, so the center is the median, and its confidence interval comes from order
statistics (Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 2015,
rules 4 to 8).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from memlab.device.measurement import SAMPLES_KEPT, Time
from memlab.errors import UsageError

CONFIDENCE = 0.95
"""Probability that the interval contains the true median."""

STEADY_CLOCK_TOLERANCE = 0.01
"""The relative difference up to which clocks count as settled; NVIDIA's SM clock has steps of 15
MHz."""
STEADY_READINGS = 3

EXACT_RANK_SAMPLES = 1000
"""The most samples for which the rank of the interval is exact; for more, a normal distribution
approximates the binomial one."""

MAX_SAMPLES = 1_000_000
"""The most samples: more would take minutes even for the shortest launch, and all are stored."""

TIMEOUT_S = 60.0
"""The default limit of one launch, seconds."""

TUKEY_FENCE_FACTOR = 1.5
"""Tukey's fences: an outlier is more than this many interquartile ranges outside the quartiles."""


@dataclass(frozen=True)
class Sample:
    """One timed launch.

    Attributes:
        duration_s: Its duration, seconds.
        clock_hz: The SM clock right after it, Hz; None if it cannot be read.
    """

    duration_s: float
    clock_hz: float | None = None


@dataclass(frozen=True)
class TimingSettings:
    """When sampling starts and stops.

    Attributes:
        samples: The exact number of samples; None for the rules below.
        minimum_samples: The fewest samples.
        minimum_s: The shortest sampling, seconds, so that the samples include slow changes.
        relative_interval: Sampling stops when the confidence interval is narrower than this share
            of the median.
        cap_s: Sampling stops after this time in any case, seconds.
        cap_samples: But not before this number of samples.
        settle_s: The shortest warm-up before the first sample, seconds.
        settle_cap_s: The longest warm-up, even if the clock does not settle, seconds.
        timeout_s: The limit of one launch, seconds.

    Raises:
        UsageError: `samples` is not in 1 to `MAX_SAMPLES`, or the limit is not positive and finite.
    """

    samples: int | None = None
    minimum_samples: int = 30
    minimum_s: float = 0.25
    relative_interval: float = 0.005
    cap_s: float = 5.0
    cap_samples: int = 3
    settle_s: float = 0.25
    settle_cap_s: float = 2.0
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise UsageError(
                f"samples must be 1 or more, got {self.samples}: use --samples 30, or leave it "
                "out to take as many as the figures need"
            )
        if self.samples is not None and self.samples > MAX_SAMPLES:
            raise UsageError(
                f"samples must be {MAX_SAMPLES} or fewer, got {self.samples}: use --samples 1000, "
                "or leave it out to take as many as the figures need"
            )
        if not 0 < self.timeout_s < math.inf:
            raise UsageError(
                f"timeout must be more than 0 seconds and finite, got {self.timeout_s:g}: "
                "use --timeout 60"
            )


@dataclass(frozen=True)
class Samples:
    """The samples of one measurement and their statistics.

    Attributes:
        taken: The samples, in order of time.
    """

    taken: tuple[Sample, ...]

    @property
    def durations_s(self) -> tuple[float, ...]:
        """The durations of the launches, seconds."""
        return tuple(sample.duration_s for sample in self.taken)

    @property
    def median_s(self) -> float:
        """The median duration, seconds."""
        return statistics.median(self.durations_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The first and third quartile, seconds."""
        return quartiles(self.durations_s)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The confidence interval of the median, seconds; None for too few samples."""
        return median_interval(self.durations_s)

    @property
    def outliers(self) -> int:
        """The number of samples outside Tukey's fences; they are counted, never removed."""
        return count_outliers(self.durations_s)

    @property
    def clock_hz(self) -> float | None:
        """The median SM clock, Hz; None if none was read."""
        clocks = _known_clocks(self.taken)
        return statistics.median(clocks) if clocks else None

    @property
    def clock_drift(self) -> float | None:
        """The largest relative deviation of the SM clock; see `max_clock_drift`."""
        return max_clock_drift(self.taken)


def settle_clock(
    sample: Callable[[], Sample], settings: TimingSettings, now: Callable[[], float]
) -> None:
    """Launch without recording samples until the SM clock has settled under this load.

    Args:
        sample: Takes one sample.
        settings: See `TimingSettings`.
        now: A clock, seconds.
    """
    started, clocks = now(), list[float | None]()
    while True:
        clocks.append(sample().clock_hz)
        elapsed = now() - started
        if elapsed >= settings.settle_cap_s:
            return
        if elapsed >= settings.settle_s and is_steady(clocks):
            return


def collect_samples(
    sample: Callable[[], Sample], settings: TimingSettings, now: Callable[[], float]
) -> Samples:
    """Take samples until the settings' conditions are met.

    Args:
        sample: Takes one sample.
        settings: See `TimingSettings`.
        now: A clock, seconds.
    """
    started, taken = now(), list[Sample]()
    durations, check = list[float](), settings.minimum_samples
    while True:
        taken.append(sample())
        durations.append(taken[-1].duration_s)
        if settings.samples is not None:
            if len(taken) >= settings.samples:
                return Samples(tuple(taken))
            continue
        elapsed = now() - started
        if elapsed >= settings.cap_s and len(taken) >= settings.cap_samples:
            return Samples(tuple(taken))
        if len(taken) >= check and elapsed >= settings.minimum_s:
            if is_precise(durations, settings.relative_interval):
                return Samples(tuple(taken))
            # Testing after every sample would stop at the first chance success and sort each time.
            check = math.ceil(len(taken) * 1.1)


def is_steady(clocks: Sequence[float | None]) -> bool:
    """Whether the last few clocks agree; unknown clocks count as equal."""
    last = clocks[-STEADY_READINGS:]
    known = [clock for clock in last if clock is not None]
    if len(last) < STEADY_READINGS:
        return False
    return not known or max(known) - min(known) <= STEADY_CLOCK_TOLERANCE * max(known)


def quartiles(durations_s: Sequence[float]) -> tuple[float, float]:
    """The first and third quartile, interpolated linearly; of one sample, that sample."""
    if len(durations_s) == 1:
        return durations_s[0], durations_s[0]
    first, _, third = statistics.quantiles(durations_s, n=4, method="inclusive")
    return first, third


def median_interval(durations_s: Sequence[float]) -> tuple[float, float] | None:
    """The confidence interval of the median, from order statistics.

    A sample is below the true median with probability 1/2, whatever the distribution; so the k-th
    smallest and k-th largest sample enclose it with the probability that a fair coin thrown n times
    shows k to n - k heads.

    Returns:
        Both ends, in the unit of the samples; None for five samples or fewer, for which even the
        smallest and the largest do not enclose the median with probability `CONFIDENCE`.
    """
    rank = _interval_rank(len(durations_s))
    if rank == 0:
        return None
    ordered = sorted(durations_s)
    return ordered[rank - 1], ordered[-rank]


def is_precise(durations_s: Sequence[float], share: float) -> bool:
    """Whether the confidence interval is narrower than this share of the median."""
    interval = median_interval(durations_s)
    if interval is None:
        return False
    return interval[1] - interval[0] <= share * statistics.median(durations_s)


def count_outliers(durations_s: Sequence[float]) -> int:
    """Count samples outside Tukey's fences."""
    first, third = quartiles(durations_s)
    margin = TUKEY_FENCE_FACTOR * (third - first)
    return sum(not first - margin <= duration <= third + margin for duration in durations_s)


def max_clock_drift(samples: Sequence[Sample]) -> float | None:
    """The largest deviation of an SM clock from the median clock, relative to it.

    Returns:
        A fraction; None if no clock was read.
    """
    clocks = _known_clocks(samples)
    if not clocks:
        return None
    middle = statistics.median(clocks)
    return max(abs(clock - middle) for clock in clocks) / middle


def summarize_time(cold: Samples, warm: Samples, event_pair: Samples | None = None) -> Time:
    """Summarize the measurements of one kernel.

    Args:
        cold: Samples with caches flushed before every launch; the reported time.
        warm: Samples with caches as the previous launch left them.
        event_pair: Samples of two events without a launch.
    """
    first, third = cold.quartiles_s
    low, high = cold.interval_s or (None, None)
    warm_first, warm_third = warm.quartiles_s
    return Time(
        median_s=cold.median_s,
        provenance="measured",
        samples=len(cold.taken),
        minimum_s=min(cold.durations_s),
        maximum_s=max(cold.durations_s),
        lower_quartile_s=first,
        upper_quartile_s=third,
        interval_low_s=low,
        interval_high_s=high,
        outliers=cold.outliers,
        clock_hz=cold.clock_hz,
        clock_drift=max_clock_drift((*cold.taken, *warm.taken)),
        warm_samples=len(warm.taken),
        warm_median_s=warm.median_s,
        warm_lower_quartile_s=warm_first,
        warm_upper_quartile_s=warm_third,
        event_pair_s=None if event_pair is None else event_pair.median_s,
        durations_s=_evenly_spaced(cold.durations_s, SAMPLES_KEPT),
    )


def _evenly_spaced(durations_s: Sequence[float], most: int) -> tuple[float, ...]:
    """Choose at most this many samples, spread evenly over the time of sampling."""
    count = len(durations_s)
    if count <= most:
        return tuple(durations_s)
    return tuple(durations_s[index * count // most] for index in range(most))


def _known_clocks(samples: Sequence[Sample]) -> list[float]:
    return [sample.clock_hz for sample in samples if sample.clock_hz is not None]


@cache
def _interval_rank(count: int) -> int:
    """The largest k for which the k-th smallest and largest of `count` samples are the interval.

    Returns:
        k, or 0 if there are too few samples.
    """
    tail = (1 - CONFIDENCE) / 2
    if count > EXACT_RANK_SAMPLES:
        deviations = statistics.NormalDist().inv_cdf(1 - tail)
        return math.floor((count - deviations * math.sqrt(count)) / 2)
    rank, ways, below = 0, 1, 0.0
    while (below := below + ways / 2**count) <= tail:
        rank += 1
        ways = ways * (count - rank + 1) // rank
    return rank
