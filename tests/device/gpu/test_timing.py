"""The rules of sampling and the statistics, with a fake clock and recorded samples."""

import itertools
import math
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.gpu import timing
from memlab.device.gpu.timing import (
    MAX_SAMPLES,
    Sample,
    Samples,
    TimingSettings,
    collect_samples,
    count_outliers,
    max_clock_drift,
    median_interval,
    quartiles,
    settle_clock,
    summarize_time,
)
from memlab.device.measurement import CLOCK_DRIFT_LIMIT
from memlab.errors import UsageError

STEADY_HZ = 1.98e9


class Bench:
    """A fake GPU: every sample advances the clock by its duration and an overhead."""

    def __init__(self, durations_s: Iterable[float], clocks_hz: Iterable[float | None]) -> None:
        self.samples, self.time_s, self.taken = zip(durations_s, clocks_hz, strict=False), 0.0, 0

    def sample(self) -> Sample:
        duration_s, clock_hz = next(self.samples)
        self.time_s, self.taken = self.time_s + duration_s + 1e-3, self.taken + 1
        return Sample(duration_s, clock_hz)

    def now(self) -> float:
        return self.time_s


def steady(duration_s: float) -> Bench:
    return Bench(itertools.repeat(duration_s), itertools.repeat(STEADY_HZ))


def noisy(spread: float, duration_s: float = 1e-3) -> Bench:
    generator = random.Random(1)
    durations = (duration_s * (1 + spread * generator.random()) for _ in itertools.count())
    return Bench(durations, itertools.repeat(STEADY_HZ))


# Ranks as tabulated for the sign test, e.g. Conover, "Practical Nonparametric Statistics", or
# Le Boudec, "Performance Evaluation of Computer and Communication Systems", table A.1.
@pytest.mark.parametrize(
    ("count", "low", "high"), [(6, 1, 6), (10, 2, 9), (30, 10, 21), (50, 18, 33), (70, 27, 44)]
)
def test_the_interval_of_the_median_has_the_tabulated_ranks(
    count: int, low: int, high: int
) -> None:
    assert median_interval([float(value) for value in range(count, 0, -1)]) == (low, high)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_five_samples_have_no_interval(count: int) -> None:
    """Five samples are all on one side of the median with probability 2/32, more than 5%."""
    samples = Samples(tuple(Sample(1e-6 * value) for value in range(1, count + 1)))
    time = summarize_time(samples, samples)

    assert median_interval(samples.durations_s) is None
    assert (time.interval_low_s, time.interval_high_s) == (None, None)
    assert (time.minimum_s, time.maximum_s) == (1e-6, 1e-6 * count)


def test_the_interval_of_many_samples_joins_the_exact_one() -> None:
    exact = median_interval([float(value) for value in range(1, 1001)])
    normal = median_interval([float(value) for value in range(1, 1002)])

    assert normal[0] == pytest.approx(exact[0], abs=1)
    assert normal[1] == pytest.approx(exact[1], abs=2)


@pytest.mark.parametrize("count", [30, 1200])
def test_the_interval_covers_the_median_of_a_skewed_distribution(count: int) -> None:
    generator, covered = random.Random(7), 0
    for _ in range(400):
        low, high = median_interval([generator.expovariate(1) for _ in range(count)])
        covered += low <= math.log(2) <= high

    assert 0.92 <= covered / 400 <= 0.99


@given(st.lists(st.floats(1e-7, 10), min_size=1, max_size=60))
def test_order_is_kept_whatever_the_samples(durations: list[float]) -> None:
    samples = Samples(tuple(map(Sample, durations)))
    first, third = samples.quartiles_s

    if samples.interval_s is not None:
        low, high = samples.interval_s
        assert min(durations) <= low <= samples.median_s <= high <= max(durations)
    assert min(durations) <= first <= samples.median_s <= third <= max(durations)


def test_steady_samples_stop_at_the_least() -> None:
    bench = steady(20e-3)

    assert len(collect_samples(bench.sample, TimingSettings(), bench.now).taken) == 30


def test_short_kernels_are_sampled_for_a_while() -> None:
    bench = steady(1e-6)
    samples = collect_samples(bench.sample, TimingSettings(minimum_s=0.5), bench.now)

    assert bench.time_s >= 0.5
    assert len(samples.taken) < 600


def test_noise_takes_more_samples_until_the_median_is_sure() -> None:
    bench = noisy(0.1)
    samples = collect_samples(bench.sample, TimingSettings(minimum_s=0, cap_s=100), bench.now)
    low, high = samples.interval_s

    assert len(samples.taken) > 100
    assert (high - low) / samples.median_s <= 0.005


def test_the_interval_is_tested_after_every_tenth_of_the_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Testing after every sample would stop at the first chance success."""
    bench, lengths = steady(20e-3), list[int]()

    def precise(durations_s: list[float], share: float) -> bool:
        lengths.append(len(durations_s))
        return len(lengths) == 4

    monkeypatch.setattr(timing, "is_precise", precise)
    collect_samples(bench.sample, TimingSettings(), bench.now)

    assert lengths == [30, 33, 37, 41]


def test_the_cap_ends_what_never_becomes_sure() -> None:
    bench = noisy(5.0, 10e-3)
    collect_samples(bench.sample, TimingSettings(cap_s=3), bench.now)

    assert 3 <= bench.time_s < 3.1


def test_a_very_long_kernel_is_sampled_three_times() -> None:
    bench = steady(20.0)

    assert len(collect_samples(bench.sample, TimingSettings(), bench.now).taken) == 3


@pytest.mark.parametrize("count", [1, 7, 31])
def test_as_many_samples_as_asked_for(count: int) -> None:
    bench = noisy(5.0)
    time = summarize_time(
        *[collect_samples(bench.sample, TimingSettings(samples=count), bench.now)] * 2
    )

    assert time.samples == time.warm_samples == bench.taken == count


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"samples": 0}, "samples must be 1 or more, got 0"),
        ({"samples": -1}, "got -1"),
        ({"samples": 10**20}, "samples must be 1000000 or fewer, got 100000000000000000000"),
        ({"timeout_s": 0.0}, "timeout must be more than 0 seconds and finite, got 0"),
        ({"timeout_s": math.nan}, "got nan"),
        ({"timeout_s": math.inf}, "got inf"),
    ],
)
def test_no_samples_too_many_or_no_time_are_refused(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        TimingSettings(**wrong)  # type: ignore[arg-type]


def test_the_most_samples_are_accepted() -> None:
    assert TimingSettings(samples=MAX_SAMPLES).samples == MAX_SAMPLES


def test_one_reading_of_the_clock_is_not_steady() -> None:
    bench = steady(0.3)  # longer than the shortest warm-up
    settle_clock(bench.sample, TimingSettings(), bench.now)

    assert bench.taken == 3


def test_settling_waits_for_the_clock() -> None:
    ramp = [345e6, 800e6, 1200e6, 1500e6, 1700e6, 1900e6, STEADY_HZ, STEADY_HZ, STEADY_HZ]
    bench = Bench(itertools.repeat(49e-3), itertools.chain(ramp, itertools.repeat(STEADY_HZ)))
    settle_clock(bench.sample, TimingSettings(), bench.now)

    assert bench.taken == len(ramp)


def test_settling_gives_up_on_a_clock_that_never_rests() -> None:
    bench = Bench(itertools.repeat(9e-3), itertools.cycle([1.2e9, 1.9e9]))
    settle_clock(bench.sample, TimingSettings(settle_cap_s=2), bench.now)

    assert 2 <= bench.time_s < 2.02


def test_settling_needs_no_clock() -> None:
    bench = Bench(itertools.repeat(9e-3), itertools.repeat(None))
    settle_clock(bench.sample, TimingSettings(), bench.now)

    assert 0.25 <= bench.time_s < 0.3


# Microseconds of 24 launches of a bandwidth-bound kernel; the GPU lowered its clock in the last 4.
RECORDED = [
    *((duration, 1980) for duration in (503.2, 503.4, 503.1, 503.7, 503.5, 503.3, 503.2, 503.6)),
    *((duration, 1980) for duration in (503.4, 503.5, 503.3, 503.4, 521.9, 503.2, 503.6, 503.4)),
    *((duration, 1965) for duration in (503.5, 503.3, 503.6, 503.4)),
    *((duration, 1755) for duration in (560.1, 566.0, 566.2, 566.1)),
]


def recorded(change: Callable[[Sample], Sample] = lambda sample: sample) -> Samples:
    return Samples(tuple(change(Sample(us * 1e-6, mhz * 1e6)) for us, mhz in RECORDED))


def test_a_throttled_gpu_is_seen() -> None:
    time = summarize_time(recorded(), recorded())

    assert time.clock_hz == 1980e6
    assert time.clock_drift == pytest.approx(225 / 1980)
    assert time.clock_drift > CLOCK_DRIFT_LIMIT
    assert time.outliers == 5
    assert time.median_s == pytest.approx(503.45e-6)
    assert time.minimum_s == 503.1e-6


def test_one_step_of_the_clock_is_no_drift() -> None:
    assert (
        max_clock_drift([Sample(1.0, 1980e6), Sample(1.0, 1965e6), Sample(1.0, 1980e6)])
        < CLOCK_DRIFT_LIMIT
    )


def test_an_unknown_clock_stays_unknown() -> None:
    unread = recorded(lambda sample: Sample(sample.duration_s))
    time = summarize_time(unread, unread)

    assert time.clock_hz is None
    assert time.clock_drift is None


def test_quartiles_and_fences_by_hand() -> None:
    samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 12.4, 12.6]

    assert quartiles(samples) == (3.25, 7.75)  # fences at -3.5 and 14.5
    assert count_outliers(samples) == 0
    assert count_outliers([*samples[:-1], 15.0]) == 1
    assert quartiles([4.0]) == (4.0, 4.0)


def test_warm_and_cold_stay_apart() -> None:
    cold = Samples((Sample(2.0, 2e9),) * 3)
    warm = Samples((Sample(0.5, 1.8e9), *(Sample(s, 2e9) for s in (0.75, 1.0, 1.25, 2.0))))
    time = summarize_time(cold, warm, Samples((Sample(0.25), Sample(0.5), Sample(0.375))))

    assert (time.median_s, time.samples) == (2.0, 3)
    assert (time.warm_median_s, time.warm_samples) == (1.0, 5)
    assert (time.lower_quartile_s, time.upper_quartile_s) == (2.0, 2.0)
    assert (time.warm_lower_quartile_s, time.warm_upper_quartile_s) == (0.75, 1.25)
    assert time.clock_drift == pytest.approx(0.1)  # of a warm sample
    assert time.event_pair_s == 0.375
    assert time.provenance == "measured"
