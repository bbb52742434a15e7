from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memlab.device.verification import (
    MAX_REFERENCE_FLOP,
    ActualOutput,
    checked_positions,
    verify,
)
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits

LAUNCH = replace(
    find_kernel("naive").prepare({"width": 2}, Limits("any")),
    references={"P": lambda inputs, index: inputs["expected"].reshape(-1)[index]},
    tolerance=1e-5,
)
EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])


def check(output: Any, index: Any = (0, 1, 2, 3)) -> Any:
    at = np.array(index, np.int64)
    values = np.array(output, np.float32).reshape(-1)[at]
    return verify(LAUNCH, {"expected": EXPECTED}, {"P": ActualOutput(at, values)})


def test_rounding_errors_pass() -> None:
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


@pytest.mark.parametrize(
    ("output", "wrong"),
    [
        ([[1, -2], [0, 4]], 0),
        ([[1 + 1e-6, -2], [0, 4 + 1e-5]], 0),  # rounding
        ([[1, -2], [0, 5]], 1),
        ([[9, np.nan], [np.inf, 4]], 3),
    ],
)
def test_exactly_the_wrong_elements_are_counted(output: Any, wrong: int) -> None:
    assert check(output).wrong == wrong


def test_wrong_elements_are_counted_in_all_pieces_of_an_array() -> None:
    """Arrays are compared in pieces of 65,536 elements."""
    size, generator = 200_000, np.random.default_rng(3)
    launch = replace(
        find_kernel("naive").prepare({"m": 1, "k": 1, "n": size}, Limits("any")), tolerance=0
    )
    launch = replace(launch, references={"P": lambda inputs, index: np.ones(index.size)})
    values = np.ones(size, np.float32)
    values[generator.choice(size, 777, replace=False)] = 2
    found = verify(launch, {}, {"P": ActualOutput(np.arange(size), values)})

    assert (found.status, found.wrong) == ("failed", 777)


@pytest.mark.parametrize(("unwritten", "wrong"), [(1, 3), (5, 5)])
def test_wrong_elements_are_counted_together_with_unwritten_ones(
    unwritten: int, wrong: int
) -> None:
    """Three compared elements are wrong; unwritten ones may lie among them or outside."""
    values = np.array([9, np.nan, np.inf, 4], np.float32)
    actual = ActualOutput(np.arange(4), values, unwritten)

    found = verify(LAUNCH, {"expected": EXPECTED}, {"P": actual})

    assert (found.status, found.wrong) == ("failed", wrong)
    assert found.worst == f"{unwritten} of 4 elements of P never written"


def test_an_output_without_a_reference_is_named_as_unverified() -> None:
    """The output may hold only NaN, for example scratch; the other output is still verified."""
    second = replace(LAUNCH.outputs[0], name="scratch")
    launch = replace(
        LAUNCH,
        arguments=(*LAUNCH.arguments, second),
        references={**LAUNCH.references, "scratch": lambda inputs, index: None},
    )
    found = {
        "P": ActualOutput(np.arange(4), EXPECTED.reshape(-1)),
        "scratch": ActualOutput(np.arange(4), np.full(4, np.nan), unwritten=4),
    }
    both = verify(launch, {"expected": EXPECTED}, found)
    none = verify(replace(launch, references={"P": lambda *_: None}), {}, found)

    assert (both.status, both.checked, both.wrong, both.unverified) == ("passed", 4, 0, "scratch")
    assert (none.status, none.unverified) == ("skipped", "P, scratch")
    assert none.worst == "there is no reference for P, scratch"


def test_the_worst_element_is_named() -> None:
    assert check([[1, -2], [0, 5]]).worst == "P[1, 1] is 5, must be 4"


def test_errors_of_cancelling_sums_are_scaled_by_the_root_mean_square() -> None:
    launch = replace(LAUNCH, error_scale="rms")  # of 1, -2, 0 and 4: 2.2913
    found = ActualOutput(np.arange(4), np.array([1.0, -2.0, 0.25, 4.0]))

    error = verify(launch, {"expected": EXPECTED}, {"P": found}).relative_error

    assert error == pytest.approx(0.25 / 5.25**0.5)


def test_errors_of_a_reference_of_zeros_are_absolute() -> None:
    launch = replace(LAUNCH, error_scale="rms")
    found = ActualOutput(np.arange(4), np.array([0, 0.25, 0, 0]))

    error = verify(launch, {"expected": np.zeros(4)}, {"P": found}).relative_error

    assert error == 0.25


def test_only_the_selected_elements_are_compared() -> None:
    found = check([[9, -2], [9, 4]], index=(1, 3))

    assert found.status == "passed"
    assert (found.checked, found.total) == (2, 4)


def test_an_output_without_elements_to_compare_does_not_pass() -> None:
    assert check(EXPECTED, index=()).status == "failed"


@pytest.mark.parametrize(("change", "status"), [(0.0, "passed"), (1.0, "failed")])
def test_an_array_that_nobody_wrote_must_be_unchanged_in_the_reference(
    change: float, status: str
) -> None:
    (output,) = LAUNCH.outputs
    launch = replace(
        LAUNCH,
        arguments=tuple(
            replace(each, role="inout") if each is output else each for each in LAUNCH.arguments
        ),
        references={"P": lambda inputs, index: EXPECTED.reshape(-1)[index] + change},
    )
    nothing = ActualOutput(np.array([], np.int64), np.array([], np.float32))

    assert verify(launch, {"P": EXPECTED}, {"P": nothing}).status == status


@pytest.mark.parametrize("odd", [np.inf, -np.inf, 1e300])
def test_an_extreme_reference_value_hides_no_other_error(odd: float) -> None:
    launch = replace(LAUNCH, error_scale="rms")
    at, expected = np.arange(4), np.array([1.0, 2.0, odd, -3.0])

    good = verify(launch, {"expected": expected}, {"P": ActualOutput(at, expected)})
    bad = verify(launch, {"expected": expected[[0, 1, 3, 2]]}, {"P": ActualOutput(at, expected)})

    assert good.status == "passed"
    assert bad.status == "failed"


def test_each_output_has_its_own_tolerance_and_the_failing_one_is_named() -> None:
    """Counts must be equal; an error within the tolerance of floats passes."""
    launch = LAUNCH
    other = replace(launch.outputs[0], name="Q")
    two = replace(
        launch,
        arguments=(*launch.arguments, other),
        references={
            "P": lambda inputs, index: EXPECTED.reshape(-1)[index],
            "Q": lambda inputs, index: EXPECTED.reshape(-1)[index],
        },
        tolerances={"P": 0.5, "Q": 0.0},
    )
    at = np.arange(4)
    close = EXPECTED.reshape(-1) * 1.25
    nearly = EXPECTED.reshape(-1) + np.array([0, 0, 0, 1e-9])

    found = verify(two, {}, {"P": ActualOutput(at, close), "Q": ActualOutput(at, nearly)})

    assert (found.status, found.tolerance, found.total) == ("failed", 0.0, 8)
    assert found.worst.startswith("Q[1, 1] is ")


def test_of_a_costly_output_the_first_the_last_and_random_rows_are_compared() -> None:
    """Twelve elements of 40 are affordable: three of ten rows of four are drawn."""
    launch = replace(LAUNCH, flop=MAX_REFERENCE_FLOP * 40 / 12)
    drawn, most = set(), 0
    for seed in range(40):
        positions = checked_positions(launch, (5, 2, 4), seed)
        rows = positions.reshape(-1, 4)
        assert (rows == rows[:, :1] + np.arange(4)).all()
        first = rows[:, 0].tolist()
        assert first == sorted({0, 36, *first})
        most = max(most, len(first))
        drawn |= {*first}
    assert drawn == set(range(0, 40, 4))
    assert most == 5
    # The work is that of the whole output.
    assert checked_positions(replace(LAUNCH, flop=MAX_REFERENCE_FLOP), (9, 2), 0).size == 18
    assert checked_positions(replace(LAUNCH, flop=1.2 * MAX_REFERENCE_FLOP), (99, 2), 0).size < 198
    # Of a vector the rows are elements; two are drawn, however costly.
    costly = replace(LAUNCH, flop=MAX_REFERENCE_FLOP * 1e9)
    vectors = [checked_positions(costly, (1000,), seed).tolist() for seed in range(20)]
    assert all(positions[0] == 0 and positions[-1] == 999 for positions in vectors)
    assert max(map(len, vectors)) == 4
    assert len({place for positions in vectors for place in positions}) > 30


def test_a_reference_has_at_most_a_quarter_of_a_gibibyte() -> None:
    """Of float64; without FLOPs nothing else limits it."""
    free = replace(LAUNCH, flop=None)
    assert checked_positions(free, (2**12, 2**13), 0).size == 2**25
    assert checked_positions(free, (2**12 + 1, 2**13), 0).size < 2**25


def test_nan_never_passes() -> None:
    """Otherwise a kernel and a reference that both read unwritten memory would agree."""
    at, expected = np.arange(4), np.array([1.0, 2.0, np.nan, 4.0])

    found = verify(LAUNCH, {"expected": expected}, {"P": ActualOutput(at, expected)})

    assert found.status == "failed"
    assert found.worst == "P[1, 0] has no reference but NaN"


@pytest.mark.parametrize(
    ("dtype", "value", "reference_dtype", "reference"),
    [
        ("int64", 2**53 + 1, "int64", 2**53),  # float64 has only the even ones from here on
        ("uint64", 2**64 - 1, "uint64", 2**64 - 2),
        ("uint64", 2**64 - 1, "int64", -1),  # the same bits
        ("int64", -(2**63), "uint64", 2**63),
        ("int32", -1, "uint32", 2**32 - 1),
    ],
)
def test_integers_that_float64_cannot_distinguish_differ(
    dtype: str, value: int, reference_dtype: str, reference: int
) -> None:
    whole = replace(LAUNCH, tolerance=0.0, error_scale="rms")
    inputs = {"expected": np.full(4, reference, reference_dtype)}
    values = np.full(4, value, dtype)

    found = verify(whole, inputs, {"P": ActualOutput(np.arange(4), values)})
    same = verify(whole, {"expected": values}, {"P": ActualOutput(np.arange(4), values)})

    assert (found.status, same.status) == ("failed", "passed")
    assert found.worst == f"P[0, 0] is {value}, must be {reference}"
    assert same.relative_error == 0


@pytest.mark.parametrize("seed", range(5))
def test_integers_pass_exactly_where_python_integers_are_equal(seed: int) -> None:
    generator = np.random.default_rng(seed)
    whole = replace(LAUNCH, tolerance=0.0)
    for dtype in (np.int8, np.int64, np.uint64):
        info = np.iinfo(dtype)
        values = generator.integers(info.max - 2, info.max, 4, dtype, endpoint=True)
        reference = generator.integers(info.max - 2, info.max, 4, dtype, endpoint=True)
        for signed in (np.int64, np.uint64):
            expected = reference.astype(signed)
            found = verify(whole, {"expected": expected}, {"P": ActualOutput(np.arange(4), values)})
            assert (found.status == "passed") == (values.tolist() == expected.tolist())
