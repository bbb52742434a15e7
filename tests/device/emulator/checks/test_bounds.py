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


@pytest.mark.parametrize(
    ("step", "low", "high", "size", "permitted"),
    [
        (UNKNOWN, 112, 144, 16, True),
        (UNKNOWN, 200, 232, 8, True),
        (UNKNOWN, 200, 236, 8, False),  # the last one begins inside
        (UNKNOWN, 96, 104, 8, False),
        (UNKNOWN, 160, 200, 4, False),  # from one array to the other
        (KNOWN, 200, 232, 8, True),
        (KNOWN, 104, 152, 8, False),
        (ELSEWHERE, 104, 152, 8, True),
        (UNKNOWN, 102, 102, 4, False),
        (UNKNOWN, 102, 102, 2, True),
    ],
)
def test_an_access_must_be_aligned_and_in_one_array(
    step: int, low: int, high: int, size: int, permitted: bool
) -> None:
    assert bounds().is_permitted(step, GLOBAL, (low, high, low | high), size, True) == permitted


@pytest.mark.parametrize("step", [KNOWN, UNKNOWN])
def test_inputs_are_only_read(step: int) -> None:
    span = (200, 232, 200 | 232)
    assert bounds(1).is_permitted(step, GLOBAL, span, 8, True)
    assert not bounds(1).is_permitted(step, GLOBAL, span, 8, False)
    assert bounds(0).is_permitted(step, GLOBAL, span, 8, False)


def test_a_space_without_arrays_is_one() -> None:
    assert bounds().is_permitted(UNKNOWN, CONST, (0, 60, 60), 4, True)
    assert not bounds().is_permitted(UNKNOWN, CONST, (0, 64, 64), 4, True)
    assert not bounds().is_permitted(UNKNOWN, CONST, (0, 60, 60), 4, False)
