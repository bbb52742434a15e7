from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memlab.device.verification import Found, verify
from memlab.kernels.catalog import find
from memlab.kernels.kernel import Limits

LAUNCH = replace(
    find("naive").prepare({"width": 2}, Limits("any")),
    references={"P": lambda inputs, index: inputs["expected"].reshape(-1)[index]},
    tolerance=1e-5,
)
EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])


def check(output: Any, index: Any = (0, 1, 2, 3)) -> Any:
    at = np.array(index, np.int64)
    values = np.array(output, np.float32).reshape(-1)[at]
    return verify(LAUNCH, {"expected": EXPECTED}, {"P": Found(at, values)})


def test_rounding_passes() -> None:
    found = check(EXPECTED * (1 + 2.0**-20))

    assert found.status == "passed"
    assert found.relative_error == pytest.approx(2.0**-20)
    assert (found.checked, found.total, found.tolerance) == (4, 4, 1e-5)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ([[1, -2], [0, 4.4]], 0.1),
        ([[1, 2], [0, 4]], 2.0),
        ([[1, -2], [0.25, 4]], 0.25),  # against 0 the error is absolute
        ([[np.nan, -2], [0, 4]], np.inf),  # never written
        ([[1, -2], [0, np.inf]], np.inf),
    ],
)
def test_a_wrong_element_fails(output: Any, error: float) -> None:
    found = check(output)

    assert found.status == "failed"
    assert found.relative_error == pytest.approx(error)


def test_the_worst_element_is_named() -> None:
    assert check([[1, -2], [0, 5]]).worst == "P[1, 1] is 5, must be 4"


def test_sums_that_cancel_are_measured_by_the_size_of_the_whole() -> None:
    launch = replace(LAUNCH, error_scale="rms")  # of 1, -2, 0 and 4: 2.2913
    found = Found(np.arange(4), np.array([1.0, -2.0, 0.25, 4.0]))

    error = verify(launch, {"expected": EXPECTED}, {"P": found}).relative_error

    assert error == pytest.approx(0.25 / 5.25**0.5)


def test_only_the_elements_named_count() -> None:
    found = check([[9, -2], [9, 4]], index=(1, 3))

    assert found.status == "passed"
    assert (found.checked, found.total) == (2, 4)


def test_nothing_to_compare_is_no_success() -> None:
    assert check(EXPECTED, index=()).status == "failed"
