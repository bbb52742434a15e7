"""Inputs: the same on every device, in the range asked for, filled in place where given."""

import numpy as np
import pytest

from memlab.device.inputs import make_inputs
from memlab.errors import UsageError
from memlab.kernels.catalog import find
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch

LIMITS = Limits("any")


def scattered(n: int) -> Launch:
    return find("scattered").prepare({"n": n}, LIMITS)


def test_indices_stay_in_the_array() -> None:
    index = make_inputs(scattered(1000), seed=3)["index"]

    assert index.dtype == np.int32
    assert index.min() >= 0
    assert index.max() < 1000
    assert len(np.unique(index)) > 500


def test_floats_fill_the_unit_interval() -> None:
    values = make_inputs(scattered(1000), seed=3)["a"]

    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1


def test_constants_are_inputs() -> None:
    launch = find("filter-constant").prepare({"n": 10}, LIMITS)

    assert {name: array.shape for name, array in make_inputs(launch, seed=0).items()} == {
        "in": (25,),
        "coefficients": (16,),
    }


def test_arrays_given_are_filled_in_place() -> None:
    launch = scattered(100)
    given = {"index": np.zeros(100, np.int32)}

    arrays = make_inputs(launch, seed=5, into=given)

    assert arrays["index"] is given["index"]
    for name, array in make_inputs(launch, seed=5).items():
        np.testing.assert_array_equal(arrays[name], array)


def test_seeds_and_arrays_differ() -> None:
    launch = find("naive").prepare({"width": 8}, LIMITS)

    first, second = make_inputs(launch, seed=1), make_inputs(launch, seed=2)

    assert not np.array_equal(first["M"], second["M"])
    assert not np.array_equal(first["M"], first["N"])


def test_a_negative_seed_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="seed must be 0 or more, got -1"):
        make_inputs(scattered(8), seed=-1)
