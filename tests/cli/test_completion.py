"""Completion as the shells ask for it: kernels in files, and stored runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPOSITORY

from memlab.cli.app import main

SOURCE = """\
// __global__ void in_a_comment() {}
__global__ void saxpy(float* y) {}
extern "C" __global__ void __launch_bounds__(64) scale(float* y) {}
template <int N> __global__ void tiled(float* y) {}
__device__ float helper(float x) { return x; }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with kernels in files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    (tmp_path / "below").mkdir()
    for place in ("mine.cu", "below/mine.cu"):
        (tmp_path / place).write_text(SOURCE)
    (tmp_path / "broken.cu").write_bytes(b"\xff\x00__global__ void")
    return tmp_path


def complete(*words: str, shell: str = "zsh") -> list[str]:
    """What the Tab key proposes for the last word."""
    environment = {"_MEMLAB_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        environment |= {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        environment["_TYPER_COMPLETE_ARGS"] = " ".join(words)
    done = subprocess.run(
        [sys.executable, "-m", "memlab"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    if shell == "bash":
        return done.stdout.split()
    return [part.replace("\\\\:", ":") for part in done.stdout.split('"')[1::4]]


def test_kernels_in_files_are_completed() -> None:
    assert complete("memlab", "run", "mine.cu:") == [
        "mine.cu:saxpy",
        "mine.cu:scale",
        "mine.cu:tiled",
    ]
    assert complete("memlab", "check", "mine.cu:sa") == ["mine.cu:saxpy"]
    assert complete("memlab", "run", "min")[0] == "mine.cu:saxpy"
    assert complete("memlab", "run", "below/m")[0] == "below/mine.cu:saxpy"
    assert complete("memlab", "run", "missing.cu:") == []
    assert complete("memlab", "run", "tiled-") == ["tiled-dynamic"]


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("run mine.cu : sa", ["saxpy"]),
        ("run mine.cu :", ["saxpy", "scale", "tiled"]),
        ("run mine.cu : saxpy --gri", ["--grid"]),
        ("run mine.cu : saxpy --arg inout : f32[8] --arg f32 = 2 --gri", ["--grid"]),
        ("run min", ["mine.cu:saxpy", "mine.cu:scale", "mine.cu:tiled"]),
    ],
)
def test_bash_divides_words_at_colons(words: str, proposed: list[str]) -> None:
    assert complete("memlab", *words.split(), shell="bash") == proposed


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_function_of_bash_asks_so(folder: Path) -> None:
    (folder / "memlab").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m memlab "$@"\n')
    (folder / "memlab").chmod(0o755)
    script = """
        eval "$(_MEMLAB_COMPLETE=source_bash memlab)"
        COMP_WORDS=(memlab run mine.cu : sc); COMP_CWORD=4
        _memlab_completion memlab; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "scale\n", done.stderr


def test_stored_runs_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert complete("memlab", "runs", "show", "1") == []
    for words in ("--label first", "--label second", ""):
        assert main(["run", "aligned", "--n", "32", *words.split()]) == 0
    capsys.readouterr()

    for command in ("runs show", "compare", "roofline --run", "report"):
        assert complete("memlab", *command.split(), "none") == []
        assert complete("memlab", *command.split(), "f") == ["first"]
        assert complete("memlab", *command.split(), "2") == ["2"]
    assert complete("memlab", "runs", "delete", "3") == ["3"]
    assert complete("memlab", "runs", "delete", "f") == []
