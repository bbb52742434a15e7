"""Flags of nvcc on the command line: in its spellings, compiled with, recorded and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.cli.app import main

SOURCE = """
extern "C" __global__ void f(const float *x, float *y) {
    int i = threadIdx.x;
    y[i] = sinf(x[i]) / x[i] + sqrtf(x[i]) + x[i] * 3.0f;
}
"""
LAUNCH = ["--grid", "1", "--block", "64", "--arg", "f32[64]", "--arg", "out:f32[64]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    (tmp_path / "f.cu").write_text(SOURCE)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["run", "f.cu:f", *LAUNCH, "--json", "-q", *flags]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize(
    ("typed", "passed"),
    [
        ("--use_fast_math", "--use_fast_math"),
        ("-use_fast_math", "--use_fast_math"),
        ("-ftz=true", "--ftz=true"),
        ("--ftz true", "--ftz=true"),
        ("-prec-div=false", "--prec-div=false"),
        ("--prec-sqrt=false", "--prec-sqrt=false"),
        ("-fmad false", "--fmad=false"),
        ("-maxrregcount=32", "--maxrregcount=32"),
        ("--maxrregcount 32", "--maxrregcount=32"),
        ("-std=c++20", "-std=c++20"),
        ("-Xptxas -O1", "--ptxas-options=-O1"),
        ("-Xptxas=-v,-O1", "--ptxas-options=-O1"),
        ("--ptxas-options=-O0", "--ptxas-options=-O0"),
        ("-DX=2 -I . -use_fast_math", "--use_fast_math"),
    ],
)
def test_a_flag_is_typed_as_for_nvcc_and_recorded(
    typed: str, passed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = run(capsys, *typed.split())
    assert [flag for flag in document["code"]["options"] if not flag.startswith("-I")] == [passed]


@pytest.mark.parametrize(
    ("flag", "instruction"),
    [
        ("--use_fast_math", "sin.approx.ftz.f32"),
        ("--ftz=true", "mul.ftz.f32"),
        ("--prec-div=false", "div.full.f32"),
        ("--prec-sqrt=false", "sqrt.approx.f32"),
        ("--fmad=false", ""),
        ("-Xptxas=-O0", ""),
    ],
)
def test_a_flag_changes_the_code(
    flag: str, instruction: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sum of products has FMAs; by default quotients and roots are exact to rounding."""
    plain, changed = run(capsys), run(capsys, flag)
    assert plain["code"]["machine_code_sha256"] != changed["code"]["machine_code_sha256"]
    listings = []
    for flags in ([], [flag]):
        assert main(["sass", "f.cu:f", *LAUNCH, "--json", "-q", *flags]) == 0
        listings.append(capsys.readouterr().out)
    if instruction:
        assert [instruction in listing for listing in listings] == [False, True]


def test_flags_come_from_a_project_file_and_from_python(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--use_fast_math", "--ftz=false", "--ptxas-options=-O1"]
    launch: dict[str, Any] = {"grid": 1, "block": 64, "args": ["f32[64]", "out:f32[64]"]}
    chosen: dict[str, Any] = {"use_fast_math": True, "ftz": False, "ptxas_options": "-O1"}
    ours = memlab.run("f.cu:f", **launch, **chosen)
    assert [*ours.measurement.code.options][-3:] == flags
    (folder / "memlab.toml").write_text(
        '[kernels.f]\nsource = "f.cu"\ngrid = 1\nblock = 64\nargs = ["f32[64]", "out:f32[64]"]\n'
        'use-fast-math = true\nftz = true\nptxas-options = ["-O1"]\n'
    )
    assert main(["run", "f", "--json", "-ftz=false"]) == 0  # the command line takes precedence
    assert json.loads(capsys.readouterr().out)["code"]["options"][-3:] == flags


def test_the_report_shows_the_flags_and_what_they_mean_for_the_verification(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.full(64, 0.5, np.float32)
    right = np.sin(0.5) / 0.5 + np.sqrt(0.5) + 1.5
    np.save("x.npy", x)
    np.save("y.npy", np.full(64, right, np.float32))
    words = ["run", "f.cu:f", *LAUNCH[:4], "--arg", "f32[]=@x.npy", "--arg", "out:f32[64]"]
    words += ["--expect", "y=@y.npy"]

    def report(*flags: str) -> str:
        main([*words, *flags])
        return " ".join(capsys.readouterr().out.split())

    assert "err more" not in report("--fmad=false")
    shown = report("--use_fast_math", "-I", ".")
    assert "compiler NVRTC" in shown
    assert "--use_fast_math registers" not in shown
    assert "with --use_fast_math, a GPU's functions err more than emulated ones" in shown
    assert "-I" not in shown.partition("compiler NVRTC")[2].partition("occupancy")[0]
    np.save("y.npy", np.full(64, right * 1.01, np.float32))
    assert "--use_fast_math allows larger errors" in report("--use_fast_math")


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("-O3", "-O3 is for host code in nvcc, and memlab compiles none", 0),
        ("-O 1", "use -Xptxas -O1", 0),
        ("-Ofast", "-O takes a level from 0 to 3, got 'fast'", 2),
        ("-ftz=yes", "ftz must be true or false, got 'yes'", 2),
        ("-Xptxas -dlcm=cg", "takes -O0 to -O3, got '-dlcm=cg'", 2),
        ("-ftz=true -ftz=false", "--ftz is given 2 times", 2),
    ],
)
def test_what_has_no_effect_is_said_and_what_is_wrong_refused(
    words: str, message: str, code: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "f.cu:f", *LAUNCH, "--no-store", *words.split()]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_headers_of_the_project_are_read_with_one_flag(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("src", "inc", "deep/down"):
        (folder / name).mkdir(parents=True)
    (folder / "inc/value.h").write_text("#define VALUE 7\n")
    (folder / "deep/down/more.h").write_text("#define MORE 5\n")
    (folder / "src/k.cu").write_text(
        '#include "../inc/value.h"\n#include <more.h>\n'
        "__global__ void k(int* p) { *p = VALUE + MORE; }\n"
    )
    words = ["--grid", "1", "--block", "1", "--arg", "out:i32[1]"]
    expected = ["--expect", "p=@twelve.npy"]
    np.save("twelve.npy", np.array([12], np.int32))
    assert main(["run", "src/k.cu", *words]) == 2
    assert f"or --root {folder} for all below it" in capsys.readouterr().err
    assert main(["run", "src/k.cu", "--root", ".", *words, *expected]) == 0
    assert main(["run", "src/k.cu", "--root", "nowhere", *words]) == 2
    assert "--root nowhere: there is no such folder" in capsys.readouterr().err
    assert main(["init", "src/k.cu", "--root", "."]) == 0
    assert 'root = "."' in (folder / "memlab.toml").read_text()
    assert main(["run", "k", "--grid", "1", "--block", "1"]) == 0
