"""Symbols in the options of a user kernel: on the command line, in memlab.toml and in Python."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY

import memlab
from memlab.cli.app import main

BY_HAND = (
    "saxpy.cu:saxpy --grid 8 --block 128 --arg f32=2.0 --arg f32[1000] "
    "--arg inout:f32[1000] --arg i32=1000"
)
BY_SYMBOLS = (
    "saxpy.cu:saxpy --set N=1000 --set B=K//8 --set K=1K --grid 'ceil(N/B)' --block B "
    "--arg 2.0 --arg 'f32[N]' --arg 'inout:f32[N]' --arg N"
)
PROJECT = """\
[kernels.mine]
source = "saxpy.cu"
symbols = { N = "4M", B = 128 }
grid = "ceil(N/B)"
block = ["B"]
args = ["2.0", "f32[N]", "inout:f32[N]", "N"]
restrict = ["B <= 256"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    shutil.copy(REPOSITORY / "docs" / "examples" / "saxpy.cu", tmp_path)
    (tmp_path / "memlab.toml").write_text(PROJECT)
    return tmp_path


def launch_of(words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["run", *shlex.split(words), "--no-store", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return {name: document[name] for name in ("launch", "counters", "compulsory_bytes")}


def test_symbols_make_the_launch_that_arithmetic_by_hand_makes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = launch_of(BY_HAND, capsys)

    assert launch_of(BY_SYMBOLS, capsys) == expected
    assert launch_of("mine --set N=1000", capsys) == expected
    run = memlab.run("mine", symbols={"N": 1000})
    assert run.measurement.parameters["N"] == 1000
    assert run.measurement.parameters["grid"] == "8"


@pytest.mark.parametrize("command", ["run", "analyze", "check", "trace", "occupancy", "sass"])
def test_every_command_of_a_kernel_names_an_unknown_symbol_in_one_line(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "mine", "--block", "Q"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "'Q' names the unknown symbol 'Q'" in said

    assert main([command, "mine", "--set", "B=512"]) == 2
    assert "breaks the restriction 'B <= 256' (B=512)" in capsys.readouterr().err
