"""Minimal cases of the fuzz tests' findings: tracebacks and wrong messages."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np
import pytest

import memlab
from memlab.cli.app import main
from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation.device import emulate
from memlab.device.inputs import load_array
from memlab.device.measurement import DeviceSummary
from memlab.device.tracing.trace import trace_launch
from memlab.errors import MemlabError, UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.signature import KernelParameter, Signature
from memlab.kernels.user import kernel as user_kernel
from memlab.kernels.user import project, scaffold
from memlab.kernels.user.arguments import parsing
from memlab.kernels.user.kernel import UserKernel

HUGE = "0x" + "f" * 5000
"""A whole number that Python reads but does not print in decimal."""

H200 = loader.load_datasheet("h200")


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        (".reg .pred", ".shared .align\n.reg .pred"),
        (".reg .pred", ".shared .align x .b8 s[4];\n.reg .pred"),
        (".reg .pred", ".local .b8 s[0x];\n.reg .pred"),
        ("ret;", "add.s32 %r1, %r1, " + "{" * 5000 + ";\nret;"),
        ("ret;", "mov.u32 %r1, 017;\nret;"),
        ("ret;", "ld.param.u64 %rd1;\nret;"),
        ("ret;", "ld.global.f32 %f1, [%rd1+param_2];\nret;"),
        ("ld.param", f"ld.shared.f32 %f1, [%r1+{10**20}];\nld.param"),
        ("ld.param", f".loc 1 {10**20} 3\nld.param"),
        ("ret;", "call;\nret;"),
        ("ret;", "call (%r1), nothing, (%r2), %r3, %r4;\nret;"),
        ("ret;", "bra;\nret;"),
        ("ld.param", "shl.b32 %r1, %r2, -2;\nld.shared.f32 %f1, [%r1];\nld.param"),
        ("ld.param", "ld.global.f32 %f1, [%r1];\nld.param"),
        ("ret;", "ld.global.v2.f32 {%f1, %f2, %f3, %f4}, [%rd1];\nret;"),
        ("ret;", "mov.b32 {%r1, %r2, %r3}, %r4;\nret;"),
        ("ret;", "mov.b32 %r1, {};\nret;"),
        ("ret;", "add.f32 %rd1, %f1, %f2;\nret;"),
        ("ret;", "add.s64 %r1, %rd1, %rd1;\nret;"),
        ("ret;", "@%r1 add.s32 %r1, %r1, %r1;\nret;"),
        ("ret;", "@%r1 bra $L__nowhere;\nret;"),
        ("ret;", "cp.async.ca.shared.global [%r1], [%rd1], %r2;\nret;"),
        (".param .u64 naive_param_0,", ""),
        (".version", "// .version"),
    ],
)
def test_broken_ptx(sound: str, broken: str) -> None:
    launch = CATALOG["naive"].prepare({"width": 4, "tile": 2}, launch_limits(H200))
    compiled = compile_launch(launch, H200.compute_capability)
    text = compiled.ptx.replace(sound, broken, 1)
    assert text != compiled.ptx
    changed = replace(compiled, ptx=text)

    for way in (
        lambda: emulate(launch, changed, H200, 0),
        lambda: trace_launch(launch, changed, (0, 0, 0), (0, 0, 0), H200.name),
    ):
        with pytest.raises(MemlabError) as raised:
            way()
        assert "\n" not in str(raised.value)


def test_check_of_a_register_that_adds_to_itself() -> None:
    """The search for the origin of the sum did not end."""
    launch = CATALOG["naive"].prepare({"width": 4, "tile": 2}, launch_limits(H200))
    compiled = compile_launch(launch, H200.compute_capability)
    endless = ".reg .b64 %own;\nadd.s64 %own, %own, 4;\nld.global.f32 %f1, [%own];\nld.param"
    changed = replace(compiled, ptx=compiled.ptx.replace("ld.param", endless, 1))

    report = check_launch(launch, changed, DeviceSummary(H200.name, "emulated", (9, 0), "h200"))

    assert {finding.tool for finding in report.findings} == {"memcheck"}


@pytest.mark.parametrize(
    "read",
    [
        lambda: parsing.parse_specification(f"f32[{HUGE}]"),
        lambda: parsing.parse_specification(f"f32[{2**62},{2**62}]"),
        lambda: user_kernel.apply_launch_options(UserKernel("x.cu"), {"shared": HUGE}),
        lambda: user_kernel.apply_launch_options(UserKernel("x.cu"), {"grid": f"1,{HUGE}"}),
        lambda: user_kernel.apply_launch_options(UserKernel("x.cu"), {"args": [object()]}),
    ],
)
def test_numbers_beyond_all_sense(read: Callable[[], Any]) -> None:
    with pytest.raises(UsageError) as raised:
        read()
    assert "\n" not in str(raised.value)


def test_a_number_of_thousands_of_digits_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / project.PROJECT_FILE
    path.write_text(f'[kernels.mine]\nsource = "x.cu"\ngrid = {HUGE}\n')

    with pytest.raises(UsageError, match="thousands of digits"):
        project.read_user_kernels(path)


def test_init_names_overloads_apart() -> None:
    parameter = KernelParameter("n", "scalar", "i32", "int", 4)
    overloads = [Signature("scale", name, (parameter,), ()) for name in ("_Z5scalei", "_Z5scalej")]

    text = scaffold.project_file_text(scaffold.kernel_tables(UserKernel("x.cu"), overloads))

    assert "[kernels.scale]" in text
    assert "[kernels.scale-2]" in text


def test_a_path_with_a_nul_character_is_refused() -> None:
    signature = Signature("k", "k", (), ())
    for use_path in (
        lambda: memlab.run("a\0.cu"),
        lambda: scaffold.kernel_tables(UserKernel("\0.cu"), [signature]),
    ):
        with pytest.raises(UsageError, match=r"cannot read .*null byte.*: check its name"):
            use_path()


def test_init_refuses_a_name_that_toml_cannot_hold() -> None:
    signature = Signature("scale", "scale", (), ())

    with pytest.raises(UsageError, match=r"'\\udcff\.cu' is not UTF-8"):
        scaffold.kernel_tables(UserKernel("\udcff.cu"), [signature])


HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}{}"


@pytest.mark.parametrize(
    "header",
    [
        HEADER.format("<f4", "(-4,)", ""),
        HEADER.format("<f4", f"({'9' * 400},)", ""),
        HEADER.format("<f4", f"({2**62}, {2**62})", ""),
        HEADER.format("|O", "(4,)", ""),
        "{'descr': [|",
        "(" * 300,
        "",
    ],
)
def test_damaged_arrays(header: str, tmp_path: Path) -> None:
    text = header.encode()
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16))

    with warnings.catch_warnings(action="error"), pytest.raises(UsageError, match="not an array"):
        load_array(str(path), (4,), "float32")


def test_an_archive_of_arrays_is_no_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros(4, np.float32))

    with pytest.raises(UsageError, match="not an array"):
        load_array(str(tmp_path / "x.npz"), (4,), "float32")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")

    with pytest.raises(UsageError, match="is not a file"):
        load_array(str(tmp_path / "x.npy"), (4,), "float32")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "a\nb\x1b[31m.cu"], r"a\nb\x1b[31m.cu"),
        (
            ["run", "naive", "--width", "4", "-o", "a\nb/run.json"],
            r"the folder a\nb does not exist",
        ),
        (["runs", "--store", "\u202enone"], r"in \u202enone"),
    ],
)
def test_names_are_told_on_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    main(words)

    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


SAXPY = """
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
LAUNCH = ["--grid=2", "--block=32", "--arg=f32=2", "--arg=f32[64]", "--arg=inout:f32[64]"]
LAUNCH += ["--arg=i32=64", "--device=h200", "-q"]


@pytest.mark.parametrize("name", ["\x1b[31m.cu", "日本.cu", "\udcff.cu", "[bold]<b>&.cu"])
def test_strange_names_of_files_are_shown_drawn_and_written(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs"))
    Path(name).write_text(SAXPY)

    with warnings.catch_warnings(record=True) as warned:
        for words in (["roofline", name, "--output=x.svg"], ["analyze", name, "--output=x.html"]):
            assert main([*words, *LAUNCH]) == 0
    assert main(["run", name, *LAUNCH]) == 0

    minidom.parse("x.svg")
    Path("x.html").read_text(encoding="utf-8")
    out, err = capsys.readouterr()
    assert not warned
    assert not err
    assert "\x1b" not in out
    if "[" in name:
        assert name.encode("unicode_escape").decode() in out


def test_a_kernel_in_an_unnamed_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NVRTC gives it a different name each time, so that it was not found again."""
    monkeypatch.chdir(tmp_path)
    Path("x.cu").write_text("namespace { __global__ void fill(int *p) { *p = 1; } }")

    assert main(["occupancy", "x.cu:fill", "--block=32", "--device=h200"]) == 2
    assert "fill is in an unnamed namespace" in capsys.readouterr().err


def test_a_terminal_that_does_not_know_its_width_gets_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs"))
    for words in (["run", "naive", "--width", "4"], ["runs"], ["explain", "sector"]):
        printed = []
        for columns in ("0", "80"):
            monkeypatch.setenv("COLUMNS", columns)
            assert main(words) == 0
            printed.append(len(capsys.readouterr().out.splitlines()))
        assert printed[0] == printed[1] > 1


def test_a_roofline_of_an_endless_kernel_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message advises --timeout, which `roofline` did not have."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs"))
    Path("x.cu").write_text('extern "C" __global__ void spin(int *p) { for (;;) atomicAdd(p, 1); }')
    words = ["roofline", "x.cu:spin", "--grid=1", "--block=32", "--arg=inout:i32[1]"]

    assert main([*words, "--device=h200", "--timeout=0.2"]) == 1
    assert "the emulator's limit of 0.2 s is reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("runs delete --all", "<&-", 2),
        ("run naive --width 4 --no-store --device h200", ">&- 2>&-", 2),
        ("run bogus", "2>/dev/full", 2),
    ],
)
def test_streams_that_are_closed_or_full(
    words: str, streams: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs"))
    assert main(["run", "naive", "--width", "4", "--device", "h200", "-q"]) == 0
    program = "import sys; from memlab.cli.app import main; sys.exit(main())"

    done = subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, "-c", program, *words.split()],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr
