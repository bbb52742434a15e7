"""Tests of linear programs."""

from __future__ import annotations

import subprocess
import sys

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
