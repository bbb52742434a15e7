"""Tests of linear programs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from memlab.device.machine_code.linear_program import LinearProgram

_PROGRAM = """
from memlab.device.machine_code.linear_program import LinearProgram

program = LinearProgram()
first, second = program.add_variable(1.0), program.add_variable(3.0)
program.require_equal({first: 1.0, second: 1.0}, 5.0)
program.require_at_most({first: 1.0}, 2.0)
assert list(program.solve()) == [2.0, 3.0]
"""


def test_the_solver_prints_nothing() -> None:
    """A banner of HiGHS would spoil the output of `--json`; it is printed once per process."""
    finished = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert (finished.stdout, finished.stderr) == ("", "")


def test_variables_between_which_nothing_decides_share() -> None:
    """Those that cost the least add up to 1."""
    program = LinearProgram()
    numbers = [program.add_variable(cost) for cost in (1.0, 1.0, 1.0, 2.0)]
    program.require_equal(dict.fromkeys(numbers, 1.0), 1.0)

    assert program.solve(central=True) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0], abs=1e-6)

    program.add_cost(numbers[0], 0.5)
    assert program.solve(central=True) == pytest.approx([0.0, 0.5, 0.5, 0.0], abs=1e-6)

    program.add_cost(numbers[1], 0.5)  # only one solution is left
    assert np.array_equal(program.solve(central=True), [0.0, 0.0, 1.0, 0.0])
