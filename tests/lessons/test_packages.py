"""Commands of a lesson that need a package that is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlab.lessons.lesson import Command
from memlab.lessons.packages import reason_to_leave_out


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import json\nimport numpy as np\nfrom . import part\nfrom .other import x\n", ""),
        ("import helper\n", ""),
        ("import no_such.part\n", "kernels.py needs no_such: pip install 'no_such'"),
        ("from no_such.part import x\n", "kernels.py needs no_such: pip install 'no_such'"),
    ],
)
def test_a_command_needs_what_its_file_imports(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").touch()
    (tmp_path / "kernels.py").write_text(text)
    (tmp_path / "other.cu").write_text("import no_such")

    for target in ("kernels.py:add", "kernels.py"):
        assert reason_to_leave_out(Command(("run", target), ""), tmp_path, ()) == reason
    for target in ("other.cu:add", "missing.py:add", "tiled"):
        assert not reason_to_leave_out(Command(("run", target), ""), tmp_path, ())


def test_a_command_needs_the_runs_that_it_names(tmp_path: Path) -> None:
    left_out = [
        Command(("run", "x.py:x", "--label", "late"), ""),
        Command(("run", "y.py:y"), ""),
    ]

    late = reason_to_leave_out(Command(("compare", "early", "late"), ""), tmp_path, left_out)

    assert late == "the run 'late' was left out"
    for words in (("compare", "early", "other"), ("run", "y.py:y"), ("roofline",)):
        assert not reason_to_leave_out(Command(words, ""), tmp_path, left_out)
