"""Programs that access memory at wild addresses fault as they should, and never reach outside."""

from __future__ import annotations

import os
import subprocess
import sys

from fuzzing import cases
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from paths import REPOSITORY

LAUNCHES = 200
"""Launches of a program: one process, so that a crash ends no more than that."""


@settings(cases(5), phases=[Phase.generate])  # fewer launches of another program say nothing
@given(seed=st.integers(0, 2**32 - 1))
def test_each_launch_faults_where_a_lane_is_astray_and_touches_nothing_else(seed: int) -> None:
    command = [sys.executable, "-m", "tests.support.wild_launches", str(seed), str(LAUNCHES)]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"exit status {done.returncode} after {last}\n{done.stderr}"
    completed, faulted, checked = (int(words.split()[0]) for words in last[0].split(","))
    assert completed + faulted + checked == LAUNCHES
    assert min(completed, faulted, checked) >= LAUNCHES // 10
