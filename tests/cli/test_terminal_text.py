"""Terminals without Unicode: what passed and what failed look different, and columns stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from memlab.cli.terminal_text import STAND_INS

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "memlab", *words.split()],
        env=os.environ | {"MEMLAB_DEVICE": "h200"} | environment,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["", "ascii", "latin-1"])
def test_marks_of_the_doctor_differ(encoding: str) -> None:
    wide = run("doctor", {"PYTHONUTF8": "1"}).stdout.decode()
    narrow = run("doctor", ASCII | {"PYTHONIOENCODING": encoding}).stdout.decode("latin-1")

    marks = {line[:1] for line in wide.splitlines()} & {"✓", "✗"}
    assert marks == {"✓", "✗"}
    lines = list(zip(wide.splitlines(), narrow.splitlines(), strict=True))
    assert {("✓", "+"), ("✗", "x")} <= {(left[:1], right[:1]) for left, right in lines}
    assert "?" not in narrow
    assert all(len(left) == len(right) for left, right in lines)


def test_reports_keep_their_columns_and_units() -> None:
    words = "run tiled --width 64 --tile 8 --no-store"
    wide = run(words, {"PYTHONUTF8": "1"}).stdout.decode().splitlines()
    narrow = run(words, ASCII).stdout.decode().splitlines()

    assert [len(line) for line in wide] == [len(line) for line in narrow]
    assert " us)" in " ".join(narrow)
    assert "?" not in " ".join(narrow)


def test_markdown_and_messages_have_stand_ins(tmp_path: Path) -> None:
    environment = ASCII | {"MEMLAB_STORE": str(tmp_path / "runs.sqlite3")}
    for width in (64, 96):  # so that times are not comparable
        run(f"run tiled --width {width}", environment)

    done = run("compare --markdown --fail-if time<+0%", environment)

    assert done.returncode == 1
    assert done.stdout.isascii()
    assert b" us -> " in done.stdout
    assert b"- ~  <code>time" in done.stdout
    assert b" us -> " in done.stderr


def test_an_error_is_legible_too() -> None:
    done = run("run t\u00fcled", ASCII)

    assert done.returncode == 2
    assert done.stderr.startswith(b"memlab: error: unknown kernel")
    assert done.stderr.count(b"\n") == 1


def test_stand_ins_are_ascii_of_the_same_width() -> None:
    for character, stand_in in STAND_INS.items():
        assert stand_in.isascii()
        assert len(stand_in) == cell_len(character), character
