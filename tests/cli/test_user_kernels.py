"""User kernels from the command line: their results, and the messages about mistakes."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import REPOSITORY

import memlab
from memlab.cli.app import main
from memlab.roofline.store.store import Store

HOUSE = REPOSITORY
EXAMPLES = HOUSE / "docs" / "examples"

SOURCE = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include "scale.h"
__constant__ float coefficients[4];
__device__ int table[2][3];

namespace ns {
template <int N, typename T>
__global__ void scale(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * T(N * SCALE + OFFSET);
}
}

__global__ void polynomial(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = coefficients[i % 4] * x[i] + table[i / 3 % 2][i % 3];
}

__global__ void several(const __half* x, __nv_bfloat16* y, bool* odd, bool flip, float4* z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = __float2bfloat16(__half2float(x[i]));
  odd[i] = (i & 1) != flip;
  z[i] = make_float4(i, 1, 2, 3);
}

__global__ void count(const unsigned char* values, unsigned* bins) {
  atomicAdd(bins + values[blockIdx.x * blockDim.x + threadIdx.x], 1u);
}
"""
REFERENCES = """\
import numpy as np

print("loaded")

def scale(x, y, n):
    return 7 * x.astype(float)

def polynomial(x, y, n):
    i = np.arange(n)
    return np.array([2, 3, 5, 7])[i % 4] * x.astype(float) + (i // 3 % 2 * 3 + i % 3)

def several(x, y, odd, flip, z):
    assert flip is True
    y[:] = x
    odd[:] = np.arange(len(odd)) % 2 == 0
    z.reshape(-1, 4)[:] = [0, 1, 2, 3]
    z.reshape(-1, 4)[:, 0] = np.arange(len(odd))

def as_tuple(x, y, odd, flip, z):
    several(x, y, odd, flip, z)
    return y, odd, z

def as_dict(x, y, odd, flip, z):
    several(x, y, odd, flip, z)
    return {"z": z, "y": y, "odd": odd}

def count(values, bins):
    return bins + np.bincount(values, minlength=256)

def wrong(values, bins):
    return bins

def broken(values, bins):
    return 1 / 0

def leaves(values, bins):
    raise SystemExit("bye\\nbye")

def too_short(values, bins):
    return bins[:3]

def complex_numbers(values, bins):
    return bins * 1j

def too_many(values, bins):
    return bins, bins

def nothing_for_it(values, bins):
    return {}

def something_else(values, bins):
    return {"bin": bins}

def one_too_few(values):
    return values

def forgetful(values, bins):
    bins + np.bincount(values, minlength=256)

def forgets_one(x, y, odd, flip, z):
    y[:], odd[:] = x, np.arange(len(odd)) % 2 == 0
"""
COUNT = "several.cu:count --grid 8 --block 64 --arg u8[512] --arg inout:u32[256]=zeros"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with kernels, what they include and their references."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "several.cu").write_text(SOURCE)
    (tmp_path / "references.py").write_text(REFERENCES)
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "scale.h").write_text("#define SCALE 3\n")
    return tmp_path


Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("saxpy.cu:saxpy --grid 4 ...")`: the document of a run that went well."""

    def call(words: str) -> dict[str, Any]:
        code = main(["run", *shlex.split(words), "--json", "--no-store"])
        out, err = capsys.readouterr()
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    return call


Fail = Callable[[str], str]


@pytest.fixture
def fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> Fail:
    """`fail("run saxpy.cu")`: runs a wrong command and returns its message, which is one line."""

    def call(words: str) -> str:
        assert main(shlex.split(words)) == 2
        out, err = capsys.readouterr()
        assert not out
        lines = [line for line in err.splitlines() if line != "loaded"]
        assert len(lines) == 1, err
        return lines[0]

    return call


def test_the_command_of_the_readme_computes_and_counts_what_numpy_does(
    folder: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, Any]
) -> None:
    """4 M elements: of x and y each a sector for 8 floats, of y again when written."""
    n = 4_194_304
    generator = np.random.default_rng(7)
    x, y = generator.random(n, np.float32), generator.random(n, np.float32)
    np.save("x.npy", x)
    np.save("y.npy", y)
    command = next(
        line
        for line in (HOUSE / "README.md").read_text("utf-8").replace("\\\n", " ").splitlines()
        if line.startswith("memlab run saxpy.cu:saxpy")
    )
    words = shlex.split(command)[1:]
    arguments = [at for at, word in enumerate(words) if word.endswith(f"f32[{n}]")]
    for at, name in zip(arguments, "xy", strict=True):
        words[at] += f"=@{name}.npy"

    assert main([*words, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    counters = document["counters"]
    assert document["kernel"] == "saxpy.cu:saxpy"
    assert document["verification"]["status"] == "passed"
    assert document["verification"]["checked"] == n
    assert document["flop"] == 2 * n
    assert document["compulsory_bytes"] == 3 * 4 * n
    assert counters["global_load_sectors"] == 2 * n // 8
    assert counters["global_load_requests"] == 2 * n // 32
    assert counters["global_store_sectors"] == n // 8
    expected = np.float64(2.0) * x + y
    assert np.abs(arrays["y"] - expected).max() <= 2**-24 * np.abs(expected).max()


def test_a_template_is_named_as_in_c(run: Run) -> None:
    for dtype, tolerance in (("float", 1e-4), ("double", 1e-10)):
        short = f"f{8 * np.dtype(dtype if dtype == 'double' else 'float32').itemsize}"
        found = run(
            f"'several.cu:ns::scale<2, {dtype}>' -I include -DOFFSET=1 --grid 4 --block 32 "
            f"--arg {short}[100] --arg out:{short}[100] --arg i32=100 "
            "--reference references.py:scale"
        )
        assert found["kernel"] == f"several.cu:ns::scale<2, {dtype}>"
        assert found["verification"]["status"] == "passed"
        assert found["verification"]["checked"] == 100
        assert found["verification"]["tolerance"] == tolerance


def test_module_arrays_are_filled(run: Run, folder: Path) -> None:
    np.save("coefficients.npy", np.array([2, 3, 5, 7], np.float32))

    found = run(
        "several.cu:polynomial -I include -D OFFSET --grid 4 --block 32 --arg f32[100] "
        "--arg out:f32[100] --arg i32=100 --const coefficients=@coefficients.npy "
        "--const table=arange --reference references.py:polynomial"
    )

    assert found["verification"]["status"] == "passed"
    assert found["parameters"]["constants"] == "coefficients=@coefficients.npy table=arange"


@pytest.mark.parametrize(
    ("function", "holds"),
    [
        ("np.full(32, 2**53 + 1)", True),
        ("np.full(32, 2**53)", False),
        ("np.full(32, 2**53 + 1, np.uint64)", True),
        ("[2**53 + 1] * 32", True),
        ("np.array([2**53] * 32, object)", False),
    ],
)
def test_whole_numbers_must_be_equal_to_the_last_bit(
    folder: Path, function: str, holds: bool
) -> None:
    """Those of 64 bits are not all numbers of float64: 2**53 + 1 is the first that is none."""
    Path("long.cu").write_text(
        "__global__ void k(long long* c) { c[threadIdx.x] = (1ll << 53) + 1; }"
    )
    Path("long.py").write_text(f"import numpy as np\ndef f(c): return {function}")
    np.save("long.npy", np.full(32, 2**53 + holds))
    command = "long.cu --grid 1 --block 32 --arg out:i64[32]"
    for how in ("--reference long.py:f", "--expect 0=@long.npy"):
        code = main(["run", *shlex.split(f"{command} {how}"), "--no-store"])
        assert code == (0 if holds else 1)


@pytest.mark.parametrize("function", ["several", "as_tuple", "as_dict"])
def test_a_reference_gives_outputs_in_every_way(function: str, run: Run) -> None:
    """Three outputs of three types, from arrays changed in place, a tuple and a dict."""
    found = run(
        "several.cu:several -I include -D OFFSET --grid 2 --block 32 --arg f16[64] "
        "--arg out:bf16[64] --arg out:bool[64] --arg bool=true --arg out:f32[64,4] "
        f"--reference references.py:{function}"
    )

    assert found["verification"]["status"] == "passed"
    assert found["verification"]["checked"] == 64 + 64 + 256


def test_an_output_is_compared_with_a_file(
    folder: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = np.zeros(256, np.uint32)
    counted[9] = 512
    np.save("bins.npy", counted)
    np.save("nines.npy", np.full(512, 9, np.uint8))
    common = COUNT.replace("u8[512]", "u8[512]=@nines.npy") + " -I include -D OFFSET"

    for which in ("1", "bins"):
        found = run(f"{common} --expect {which}=@bins.npy")
        assert found["verification"]["status"] == "passed"
        assert found["verification"]["tolerance"] == 0

    counted[9] = 511
    np.save("bins.npy", counted)
    assert main(["run", *shlex.split(common), "--expect", "1=@bins.npy", "--no-store"]) == 1
    out, err = capsys.readouterr()
    assert "bins[9] is 512, must be 511" in err
    assert "bins[9] is 512, must be 511" in out


def test_the_seed_decides_what_random_is(run: Run, arrays: dict[str, Any]) -> None:
    seen = []
    for seed in (0, 0, 1):
        run(f"{COUNT} -I include -D OFFSET --seed {seed}")
        seen.append(arrays["values"].copy())

    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("broken", "failed in line 34 (ZeroDivisionError: division by zero)"),
        ("leaves", "failed in line 37 (SystemExit: bye bye)"),
        ("too_short", "returned an array of shape [3] for bins, which has [256]"),
        ("complex_numbers", "returned no real numbers for bins"),
        ("too_many", "returned 2 arrays; the outputs are bins"),
        ("nothing_for_it", "returned nothing for any output: return an array for one"),
        ("something_else", "returned something for 'bin': did you mean 'bins'?"),
        ("forgetful", "references.py:forgetful returned nothing and left bins as it was: return"),
        ("one_too_few", "TypeError: one_too_few() takes 1 positional argument but 2 were given"),
        ("cuont", "references.py has no function 'cuont': did you mean 'count'?"),
    ],
)
def test_a_reference_that_fails_is_one_line(function: str, message: str, fail: Fail) -> None:
    command = f"run {COUNT} -I include -D OFFSET --no-store"

    assert message in fail(f"{command} --reference references.py:{function}")


def test_an_output_that_a_reference_leaves_unwritten_is_its_own_fault(fail: Fail) -> None:
    """The kernel would else be blamed for what has no reference but NaN."""
    message = fail(
        "run several.cu:several -I include -D OFFSET --no-store --grid 2 --block 32 --arg f16[64] "
        "--arg out:bf16[64] --arg out:bool[64] --arg bool=true --arg out:f32[64,4] "
        "--reference references.py:forgets_one"
    )
    assert (
        "references.py:forgets_one returned nothing and left z as it was: return it or" in message
    )


def test_a_mark_at_the_beginning_of_a_file_is_not_shown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And moves nothing: the one store stands in line 2."""
    Path("marked.cu").write_text(
        "__global__ void k(float* y) { // first\n  y[threadIdx.x] = 1; }\n", "utf-8-sig"
    )
    launch = shlex.split("marked.cu:k --grid 1 --block 32 --arg out:f32[32]")

    assert main(["analyze", *launch]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^1 __global__ void k.*// first", shown, re.MULTILINE)
    assert "ufeff" not in shown
    assert main(["analyze", *launch, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert [line["line"] for line in lines if line["global_requests"]] == [2]
    assert main(["run", *launch, "--no-store"]) == 0
    shown = re.sub(" +", " ", capsys.readouterr().out)
    assert "1 x 1 x 1 = 1 block \n" in shown
    assert "1 of 1 block (100%)" in shown


def test_a_reference_file_that_cannot_be_used_is_one_line(fail: Fail, folder: Path) -> None:
    command = f"run {COUNT} -I include -D OFFSET --no-store"
    (folder / "bad.py").write_text("def f(:\n")

    assert "missing.py is not a Python file" in fail(f"{command} --reference missing.py:f")
    assert "failed in line 1 (SyntaxError" in fail(f"{command} --reference bad.py:f")


def test_a_wrong_result_is_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(f"{COUNT} -I include -D OFFSET --reference references.py:wrong")

    assert main(["run", *words]) == 1
    message = capsys.readouterr().err
    (kept,) = Store().runs()
    assert kept.measurement.verification.worst in message
    assert "must be 0" in kept.measurement.verification.worst
    assert main(["analyze", *words]) == 1
    assert main(["roofline", *words, "-q"]) == 1


SAXPY = "saxpy.cu:saxpy --grid 4 --block 32"
ARGUMENTS = "--arg f32=2 --arg f32[128] --arg inout:f32[128] --arg i32=128"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("saxpy.cu", "or let 'memlab init saxpy.cu' write them into a file"),
        (f"{SAXPY} --arg f32=2", "takes 4 arguments (float a, const float * x, float * y, int n)"),
        (
            f"{SAXPY} {ARGUMENTS}".replace("inout:f32[128]", "f32=2.0"),
            "argument 2 (y, float *) takes an array, got 'f32=2.0': write inout:f32[N]",
        ),
        (
            f"{SAXPY} {ARGUMENTS}".replace("inout:", ""),
            "saxpy.cu:saxpy writes to y",
        ),
        (f"saxpy.cu:saxpi {ARGUMENTS}", "saxpy.cu has no kernel 'saxpi': did you mean 'saxpy'?"),
        (f"saxpy.cu:saxpy {ARGUMENTS}", "saxpy.cu:saxpy has no grid: add --grid X[,Y[,Z]]"),
        (
            f"{SAXPY} {ARGUMENTS} --expect 1=@x.npy",
            "names no output of the kernel: outputs are 2 (y)",
        ),
        (f"{SAXPY} {ARGUMENTS} --expect 2=x.npy", "is not IDX=@FILE.npy"),
        (f"{SAXPY} {ARGUMENTS} --expect y=@x.npy", "cannot read x.npy (No such file or directory)"),
        (f"{SAXPY} {ARGUMENTS} --const a=ones", "saxpy.cu has no __constant__ or __device__"),
        (f"{SAXPY} {ARGUMENTS} --std=--help", "std must be one of"),
        (f"{SAXPY} {ARGUMENTS} -D 'A B=1'", "-D 'A B=1' defines no C++ name"),
        (f"{SAXPY} {ARGUMENTS} --seed -1", "seed must be a whole number, 0 or more, got '-1'"),
        ("missing.cu:saxpy", "cannot read missing.cu (No such file or directory)"),
        ("--grid 4 saxpy.cu", "--grid belongs to a kernel, and none stands before it"),
        ("several.cu -I include -D OFFSET", "several.cu has 4 kernels"),
        (
            "'several.cu:ns::scale' -I include -D OFFSET",
            "'ns::scale' is declared template <int N, typename T>: give its arguments",
        ),
        ("saxpi", "unknown kernel 'saxpi': did you mean 'saxpy'?"),
    ],
)
def test_a_mistake_is_one_line(words: str, message: str, fail: Fail, folder: Path) -> None:
    (folder / "memlab.toml").write_text('[kernels.saxpy]\nsource = "saxpy.cu"\n')

    assert message in fail(f"run {words}")
    assert not (folder / "runs.sqlite3").exists() or not Store().runs()


def test_the_compiler_names_the_users_file_and_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.cu").write_text("\n__global__ void f() { undefined(); }\n")

    assert main(["run", "broken.cu:f", "--grid", "1", "--block", "1"]) == 2
    assert 'broken.cu(2): error: identifier "undefined" is undefined' in capsys.readouterr().err


def test_options_reach_the_compiler_one_by_one(run: Run, folder: Path) -> None:
    """What stands in a value stays in it: no second option, no second file."""
    (folder / "text.cu").write_text(
        "__global__ void f(int* y) { const char* t = TEXT; y[0] = t[2] + 0 * sizeof(int[X]); }"
    )
    (folder / "one.py").write_text("def x(y): return [ord('X')]\n")

    found = run(
        "text.cu -D 'TEXT=\"-DX=9 --std=c++11 $(id)\"' -D X=1 --grid 1 --block 1 "
        "--arg out:i32[1] --reference one.py:x"
    )

    assert found["verification"]["status"] == "passed"


def test_every_command_takes_the_same_target(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = shlex.split(f"{SAXPY} {ARGUMENTS}")

    assert main(["analyze", *target, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert [line["line"] for line in lines if line["global_requests"]] == [6]
    assert main(["trace", *target, "--block-index", "3", "--thread", "5", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step.get("name") for step in steps] == ["x[101]", "y[101]", None, "y[101]"]
    assert main(["occupancy", "saxpy.cu", "--block", "32", "--shared", "4096", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["block"]["shared_bytes_per_block"] == 4096
    assert main(["roofline", *target, "-q"]) == 0
    assert len(Store().runs()) == 1
    with Path("roofline.csv").open() as file:
        assert any("saxpy.cu:saxpy" in row for row in csv.reader(file))


def test_names_of_files_are_text_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither Rich's markup, nor HTML, nor matplotlib's formulas."""
    name = "[bold]<script>$\\x$.cu"
    shutil.copy("saxpy.cu", name)
    target = [name, *shlex.split(f"{SAXPY} {ARGUMENTS}")[1:]]

    assert main(["run", *target]) == 0
    assert f"{name}:saxpy" in capsys.readouterr().out
    assert main(["runs"]) == 0
    assert "[bold]<script" in capsys.readouterr().out
    assert main(["analyze", *target, "-o", "page.html", "-q"]) == 0
    page = Path("page.html").read_text("utf-8")
    assert "[bold]&lt;script&gt;" in page
    assert "<script>" not in page
    assert main(["roofline", *target, "-q"]) == 0
    assert main(["occupancy", *target, "-q", "-o", "occupancy.svg"]) == 0


def test_nothing_that_lists_a_name_moves_the_cursor(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "\x1b[31mred\u202e.cu"
    shutil.copy("saxpy.cu", name)
    (folder / "memlab.toml").write_text(
        '[kernels.red]\nsource = "\\u001b[31mred\\u202e.cu"\nentry = "saxpy"\nblock = 32\n'
    )
    for words in (
        ["run", f"{name}:saxpy", "--help"],
        ["run", "red", "--help"],
        ["run", "--help"],
        ["run", "red"],
        ["kernels"],
        ["kernels", "--json"],
        ["occupancy", "red"],
        ["occupancy", f"{name}:saxpy", "--block", "32"],
        ["init", name],
    ):
        main(words)
        output = "".join(capsys.readouterr())
        assert output
        assert not {"\x1b", "\u202e"} & set(output), words


@pytest.mark.parametrize("command", ["run --no-store", "analyze", "check", "trace"])
def test_json_is_strict_whatever_the_numbers_are(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which has no infinity: the error of an output that is NaN where 1 was expected."""
    Path("nan.cu").write_text("__global__ void k(float* y, float s) { y[threadIdx.x] += s; }")
    Path("one.py").write_text("def one(y, s):\n    return y * 0 + 1\n")
    name, *options = command.split()
    launch = "nan.cu:k --grid 1 --block 32 --arg inout:f32[32] --arg f32=nan --json -q"
    reference = [] if name == "trace" else ["--reference", "one.py:one"]

    assert main([name, *launch.split(), *reference, *options]) == (0 if name == "trace" else 1)
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["schema_version"] == 1
    if reference:
        assert found["verification"]["relative_error"] == "Infinity"


def test_a_name_in_the_file_stands_for_a_kernel(
    run: Run, fail: Fail, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "memlab.toml").write_text(
        '[kernels.daxpy]\nsource = "saxpy.cu"\ngrid = 1\nblock = 32\n'
        'args = ["f32=2", "f32[128]", "inout:f32[128]", "i32=128"]\n'
    )
    found = run("daxpy --grid 4 --reference saxpy.py:saxpy --tolerance 1e-3")

    assert (found["kernel"], found["launch"]["grid"]) == ("daxpy", [4, 1, 1])
    assert found["verification"]["tolerance"] == 1e-3
    assert "did you mean 'daxpy'" in fail("run daxpi")
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^  daxpy\b", shown, re.MULTILINE)
    assert "FILE.cu:ENTRY" in shown
    assert main(["run", "FILE.cu:ENTRY", "--help"]) == 0
    assert "--reference FILE.py:FUNCTION" in capsys.readouterr().out
    python = memlab.run("daxpy", grid=2, device="h200")
    assert python.measurement.grid == (2, 1, 1)
    assert (
        memlab.run(
            "saxpy.cu:saxpy", grid=(4,), block=(32,), args=ARGUMENTS.split()[1::2], device="h200"
        ).measurement.flop
        == 256
    )
