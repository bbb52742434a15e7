"""Figures as text, at the limits of their forms."""

from __future__ import annotations

import pytest

from memlab.device.measurement import Verification
from memlab.roofline.units import column_number, compared_text, elide_middle, interval_text, si_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.6, "1.00 kB"),
        (0.0, "0 B"),
        (1e-12, "0.00100 nB"),  # no prefix is smaller
        (1e18, "1.00e+03 PB"),  # nor larger
        (-2e6, "-2.00 MB"),
    ],
)
def test_a_prefix_is_one_of_those_known(value: float, text: str) -> None:
    assert si_text(value, "B") == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(0.0142, 0.0169, "14.2–16.9 ms"), (0.9e-3, 1.1e-3, "900 µs–1.10 ms")],
)
def test_an_interval_names_a_shared_unit_once(low: float, high: float, text: str) -> None:
    assert interval_text(low, high, "s") == text


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.250"), (99.96, "100"), (1370.4, "1,370")])
def test_a_column_has_three_digits(value: float, text: str) -> None:
    assert column_number(value) == text


@pytest.mark.parametrize(
    ("wrong", "checked", "text"),
    [
        (0, 3, "3 of 10 outputs"),
        (2, 10, "2 of 10 outputs wrong"),
        (2, 3, "2 of 3 outputs wrong, out of 10"),
        (3, 3, "3 of 3 outputs wrong, out of 10"),
        (4, 3, "4 of 10 outputs wrong"),  # outputs that were never written count too
    ],
)
def test_wrong_outputs_are_counted_among_those_that_were_compared(
    wrong: int, checked: int, text: str
) -> None:
    assert compared_text(Verification("failed", 1.0, 0.1, checked, 10, wrong=wrong)) == text


def test_a_long_text_keeps_its_ends() -> None:
    assert elide_middle("12345678", 8) == "12345678"
    assert elide_middle("123456789", 8) == "1234…6789"
    assert elide_middle("123456789", 7) == "1234…789"
