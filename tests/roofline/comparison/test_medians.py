"""The interval of a ratio of medians, on samples whose true medians are known."""

import math

import numpy as np
import pytest

from memlab.roofline.comparison.medians import change_interval, correlation_factor, log_median

RANDOM = np.random.default_rng(20260714)
TRIALS = 400
TRUE_CHANGE = 0.02


def correlated(count, share):
    """Log-normal samples around 1, each of which keeps a share of the one before."""
    steps = RANDOM.normal(size=count) * math.sqrt(1 - share**2)
    level, values = RANDOM.normal(), []
    for step in steps:
        level = share * level + step
        values.append(math.exp(0.01 * level))
    return np.array(values)


DISTRIBUTIONS = {
    "normal": lambda count: 1 + 0.01 * RANDOM.normal(size=count),
    # Most launches are fast and some much slower: median 1 by construction.
    "skewed": lambda count: 1 + 0.02 * (np.exp(RANDOM.normal(size=count)) - 1),
    "outliers": lambda count: np.where(
        RANDOM.random(count) < 0.05, 1.5, 1 + 0.005 * RANDOM.standard_t(3, size=count)
    ),
    # A clock of steps of 1% hides noise of 0.4%.
    "steps": lambda count: np.round(1 + 0.004 * RANDOM.normal(size=count), 2),
    "correlated": lambda count: correlated(count, 0.5),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("counts", [(30, 30), (100, 40)])
def test_the_interval_holds_the_true_change_as_often_as_it_says(name, counts):
    sample = DISTRIBUTIONS[name]
    median_of_all = float(np.median(sample(200_001))) if name == "outliers" else 1.0
    assert abs(median_of_all - 1) < 1e-3
    held = 0
    for _ in range(TRIALS):
        a = log_median(sample(counts[0]).tolist())
        b = log_median(((1 + TRUE_CHANGE) * sample(counts[1])).tolist())
        low, high = change_interval(a, b)
        held += low <= TRUE_CHANGE <= high
    # 95% within four standard errors; correlation is harder to see in so few samples.
    assert held / TRIALS > (0.87 if name == "correlated" else 0.905)
    assert name == "steps" or held / TRIALS < 0.998


def test_more_samples_narrow_the_interval_as_their_root():
    def width(count):
        pair = [log_median((1 + 0.01 * RANDOM.normal(size=count)).tolist()) for _ in "ab"]
        low, high = change_interval(*pair)
        return high - low

    few, many = (np.mean([width(count) for _ in range(40)]) for count in (40, 640))
    assert few / many == pytest.approx(4, rel=0.25)


def test_correlation_widens_and_independence_does_not():
    independent = np.mean([correlation_factor(RANDOM.random(400).tolist()) for _ in range(30)])
    # Signs of a Gaussian process correlate by 2/pi asin(rho), so for rho = 0.9^lag:
    expected = 1 + 2 * sum(2 / math.pi * math.asin(0.9**lag) for lag in range(1, 200))
    kept = np.mean([correlation_factor(correlated(4000, 0.9).tolist()) for _ in range(10)])
    assert independent < 1.25
    assert kept == pytest.approx(expected, rel=0.25)


def test_too_few_samples_give_no_interval_and_equal_ones_a_point():
    assert log_median([1.0] * 5) is None
    same = log_median([2e-3] * 30)
    assert change_interval(same, same) == (0, 0)
