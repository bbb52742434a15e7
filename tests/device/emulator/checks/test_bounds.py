"""Which accesses are permitted; `test_accesses` compares whole programs."""

import numpy as np
import pytest

from memlab.device.emulator.checks.bounds import BoundsCheck
from memlab.device.emulator.checks.observations import Observations
from memlab.device.emulator.machine.memory import Segment

GLOBAL = Segment("global", np.zeros(400, np.uint8), 400)
CONST = Segment("const", np.zeros(64, np.uint8), 64)
CONST.data.flags.writeable = False
EXTENTS = {"global": [(100, 164), (200, 240)]}
KNOWN, ELSEWHERE, UNKNOWN = 0, 1, 2
"""Instructions: by an address of the second array, by one of shared memory, by any."""
ORIGINS = {KNOWN: ("global", 1), ELSEWHERE: ("shared", 0)}


def bounds(*inputs: int) -> BoundsCheck:
    return BoundsCheck(Observations([1, 2, 3], {}), EXTENTS, ORIGINS, inputs)


def permissions(
    check: BoundsCheck,
    step: int,
    segment: Segment,
    addresses: tuple[int, ...],
    size: int,
    load: bool,
) -> list[bool]:
    """Whether each of some lanes may access its address."""
    at, lanes = np.array(addresses), np.arange(len(addresses))
    permitted = check.permitted_lanes(step, segment, at, lanes >= 0, lanes, size, load)
    return [bool(one) for one in permitted]


@pytest.mark.parametrize(
    ("step", "low", "high", "size", "permitted"),
    [
        (UNKNOWN, 112, 144, 16, True),
        (UNKNOWN, 200, 232, 8, True),
        (UNKNOWN, 200, 236, 8, False),  # the last one begins inside
        (UNKNOWN, 96, 104, 8, False),
        (UNKNOWN, 160, 200, 4, True),  # one in each array
        (KNOWN, 200, 232, 8, True),
        (KNOWN, 104, 152, 8, False),
        (ELSEWHERE, 104, 152, 8, True),
        (UNKNOWN, 102, 102, 4, False),
        (UNKNOWN, 102, 102, 2, True),
    ],
)
def test_an_access_must_be_aligned_and_in_an_array(
    step: int, low: int, high: int, size: int, permitted: bool
) -> None:
    assert all(permissions(bounds(), step, GLOBAL, (low, high), size, True)) == permitted


@pytest.mark.parametrize("step", [KNOWN, UNKNOWN])
def test_inputs_are_only_read(step: int) -> None:
    at = (200, 232)
    assert permissions(bounds(1), step, GLOBAL, at, 8, True) == [True, True]
    assert permissions(bounds(1), step, GLOBAL, at, 8, False) == [False, False]
    assert permissions(bounds(0), step, GLOBAL, at, 8, False) == [True, True]


def test_a_space_without_arrays_is_one() -> None:
    assert permissions(bounds(), UNKNOWN, CONST, (0, 60, 64), 4, True) == [True, True, False]
    assert permissions(bounds(), UNKNOWN, CONST, (0, 60), 4, False) == [False, False]
