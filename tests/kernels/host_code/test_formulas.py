"""Formulas: exact, and written so that launch options compute the same numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.kernels.host_code import formulas
from memlab.kernels.host_code.formulas import Formula, FormulaError, number, unknown
from memlab.kernels.user import expressions

N = unknown("n", 1)
M = unknown("m", 2)


def text(formula: Formula) -> str:
    return formula.text(lambda each: each.name)


@pytest.mark.parametrize(
    ("formula", "written"),
    [
        (formulas.floor_quotient(N + number(255), number(256)), "ceil(n/256)"),
        (formulas.floor_quotient(N - number(1), number(256)) + number(1), "ceil(n/256)"),
        (formulas.floor_quotient(N + M - number(1), M), "ceil(n/m)"),
        (formulas.floor_quotient(N * number(4), number(4)), "n"),
        (formulas.floor_quotient(N * M * number(8), M * number(4)), "2*n"),
        (formulas.floor_quotient(N + number(3), number(256)), "floor((n + 3)/256)"),
        (formulas.floor_quotient(number(-7), number(2)), "-3"),  # as C++: toward zero
        (number(1024) - N, "1024 - n"),
        (formulas.extreme("min", N, number(64)), "min(n, 64)"),
    ],
)
def test_the_usual_roundings_are_recognized(formula: Formula, written: str) -> None:
    assert text(formula) == written


@given(st.integers(1, 5000), st.integers(1, 600), st.integers(0, 700), st.integers(1, 9))
def test_a_formula_and_its_text_are_what_cpp_computes(n: int, m: int, c: int, k: int) -> None:
    values: dict[str, expressions.Number] = {"n": n, "m": m}
    for formula, truth in (
        (formulas.floor_quotient(N + number(c), number(m)), (n + c) // m),
        (formulas.floor_quotient(N * number(k) + M - number(1), M), (n * k + m - 1) // m),
        (formulas.floor_quotient(N - number(1), number(m)) + number(1), (n - 1) // m + 1),
        (formulas.remainder(N * number(k) + number(c), M), (n * k + c) % m),
        (formulas.extreme("max", N, M) * number(k) - number(c), max(n, m) * k - c),
    ):
        assert expressions.evaluate(text(formula), values) == truth, text(formula)


def test_what_no_formula_gives_is_refused() -> None:
    with pytest.raises(FormulaError):
        formulas.floor_quotient(N, number(0))
    deep = N
    for _ in range(formulas.MAX_NESTING):
        deep = formulas.floor_quotient(deep + number(3), number(7))
    with pytest.raises(FormulaError):
        formulas.floor_quotient(deep + number(3), number(7))
    with pytest.raises(FormulaError):
        number(2**300)
