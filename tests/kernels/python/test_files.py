"""Kernels in Python files that a command names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memlab.cli.app import main

pytest.importorskip("numba.cuda", reason="Numba is not installed")

FILE = """\
from helper import FACTOR
from numba import cuda
print("run")

@cuda.jit
def scale(x):
    x[cuda.grid(1)] *= FACTOR

@cuda.jit(device=True)
def twice(x):
    return 2 * x

number = 3
"""
LAUNCH = ["--grid", "1", "--block", "32", "--arg", "inout:f32[32]=ones", "--device", "a100"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("FACTOR = 3\n")
    (tmp_path / "kernels.py").write_text(FILE)
    return tmp_path


@pytest.mark.parametrize("target", ["kernels.py:scale", "kernels.py"])
def test_a_kernel_of_a_file_runs(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", target, *LAUNCH, "--no-store", "--save", "x=x.npy"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("kernels.py:scale")  # what the file prints is not among it
    import numpy as np

    assert set(np.load("x.npy")) == {3.0}


def test_a_sweep_takes_a_kernel_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "kernels.py:scale", *LAUNCH, "--no-store", "-D", "FACTOR=2,4"]) == 0
    assert re.search(r"2 of 2 points|2 points", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("target", "text", "message"),
    [
        ("kernels.py:scal", FILE, "no kernel 'scal': did you mean 'scale'?"),
        ("kernels.py:number", FILE, "a kernel cannot be an object of type int"),
        ("kernels.py:twice", FILE, "twice is a device function"),
        ("kernels.py", "x = 1\n", "has no kernel: name one"),
        ("kernels.py:scale", "\n1 / 0\n", "kernels.py failed in line 2 (ZeroDivisionError"),
        ("kernels.py:scale", "def\n", "kernels.py failed in line 1 (SyntaxError"),
        ("kernels.py:scale", "import no_such\n", "imports no_such, which is not installed"),
        ("missing.py:scale", FILE, "cannot read missing.py"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    target: str, text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kernels.py").write_text(text)
    assert main(["run", target, *LAUNCH]) == 2
    (line,) = [each for each in capsys.readouterr().err.splitlines() if each != "run"]
    assert message in line


def test_init_reads_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "kernels.py"]) == 2
    assert "is no file of CUDA C++" in capsys.readouterr().err
