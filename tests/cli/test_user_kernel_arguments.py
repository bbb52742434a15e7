"""Arguments that are neither numbers nor arrays, and those of Python: what reaches the kernel."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import REPOSITORY

import memlab
from memlab.cli.app import main
from memlab.errors import MemlabWarning, UsageError
from memlab.roofline.store.store import Store

EXAMPLES = REPOSITORY / "docs" / "examples"

PASSED = """
struct Empty { __device__ float operator()(float x) const { return x * x; } };
struct Base { int b; };
struct Derived : Base { float c[2]; struct { short s; double d; } in; };
union Either { float f; int i; };
template <class F> __global__ void map(const float* x, float* y, int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
__global__ void odd(char a, float3 f, Empty e, double z, Derived d, bool t, float4 v, dim3 q,
                    short s, Either u, double* y) {
  double all[] = {double(a), f.x, f.y, f.z, z, double(d.b), d.c[0], d.c[1], double(d.in.s), d.in.d,
                  double(t), v.x, v.w, double(q.x), double(q.z), double(s), double(u.i), e(3)};
  for (int i = 0; i < 18; ++i) y[i] = all[i];
}
__global__ void biased(const float* bias, float* y, float* scratch) {
  int i = threadIdx.x;
  scratch[i] = i;
  y[i] = bias ? bias[i] : 1;
}
__global__ void read(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
struct Csr { int rows; const int* start; const int* column; const float* value; };
struct View { float* data; int n; };
__global__ void spmv(Csr a, const float* x, View y) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= a.rows) return;
  float sum = 0;
  for (int k = a.start[row]; k < a.start[row + 1]; ++k) sum += a.value[k] * x[a.column[k]];
  y.data[row] = sum;
}
__global__ void twice(View view, float* y, const float* same) {
  view.data[threadIdx.x] = 2 * same[threadIdx.x];
}
"""
PASSED_REFERENCES = """
import numpy as np

def odd(a, f, e, z, d, t, v, q, s, u, y):
    assert e == ()
    return np.array([a, *f, z, *d, t, v[0], v[3], q[0], q[2], s, u.view("i4")[0], 9], float)

def map(x, y, n, f): return np.float64(x) ** 2
def as_tuple(bias, y, scratch): return (np.ones(y.shape) if bias is None else None), None
def as_dict(bias, y, scratch): return {"y": y * 0 + 1 if bias is not None else np.ones(y.shape)}

def one_wrong(bias, y, scratch):
    y = np.ones(y.shape)
    y[5] = 2
    return {"y": y}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with kernels that take such arguments and their references."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_STORE", str(tmp_path / "runs.sqlite3"))
    monkeypatch.setenv("MEMLAB_DEVICE", "h200")
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "passed.cu").write_text(PASSED)
    (tmp_path / "passed.py").write_text(PASSED_REFERENCES)
    np.save("either.npy", np.array([-77], np.int32).view(np.uint8))
    return tmp_path


ODD = [
    *("i8=-5", "struct=1.5,2,3", "struct", "f64=2.5", "struct=-4,5,0.5,-6,7.25", "bool=1"),
    *("struct=1,2,3,4", "struct=6,7,8", "i16=-9", "struct=@either.npy", "out:f64[18]"),
]
ODD_IN_PYTHON: list[Any] = [
    *(-5, (1.5, 2, 3), (), 2.5, (-4, (5, 0.5), (-6, 7.25)), True),
    *(np.arange(1, 5).tolist(), (6, 7, 8), np.int16(-9), "struct=@either.npy"),
    memlab.out(18, "f64"),
]
ODD_IN_PYTHON[6] = tuple(ODD_IN_PYTHON[6])


@pytest.mark.parametrize("args", [ODD, ODD_IN_PYTHON])
def test_structures_reach_the_kernel_as_they_are_written(args: list[Any]) -> None:
    """Among them nested, derived and empty ones, CUDA's own, and a union by its bytes."""
    run = memlab.run("passed.cu:odd", grid=1, block=1, args=args, reference="passed.py:odd")

    assert run.measurement.verification.status == "passed"
    assert run.measurement.verification.checked == 18


def test_pointers_in_structures_reach_the_kernel() -> None:
    """A sparse matrix in the CSR format, from the command line and from Python."""
    generator = np.random.default_rng(2)
    dense = (generator.random((40, 30)) * (generator.random((40, 30)) < 0.2)).astype(np.float32)
    row, column = dense.nonzero()
    start = np.searchsorted(row, np.arange(41)).astype(np.int32)
    x = generator.random(30, np.float32)
    arrays = {"start": start, "column": column.astype(np.int32), "value": dense[row, column]}
    for name, array in (arrays | {"x": x, "y": dense.astype(float) @ x}).items():
        np.save(f"{name}.npy", array)

    args = [(40, *arrays.values()), x, (memlab.out(40, "f32"), 40)]
    run = memlab.run(
        "passed.cu:spmv", grid=2, block=32, args=args, expect={"y.data": dense.astype(float) @ x}
    )
    assert run.measurement.verification.status == "passed"
    assert run.measurement.verification.checked == 40

    csr = "struct=N,i32[]=@start.npy,i32[]=@column.npy,f32[]=@value.npy"
    words = f"passed.cu:spmv --set N=40 --grid 2 --block 32 --arg {csr} --arg f32[]=@x.npy"
    words += " --arg struct=out:f32[2*N/2],N --expect y.data=@y.npy --no-store"
    assert main(["run", *words.split()]) == 0
    np.save("y.npy", np.ones(40))  # in float64, as before
    assert main(["run", *words.split()]) == 1


def test_two_pointers_share_an_array(capsys: pytest.CaptureFixture[str]) -> None:
    launch: dict[str, Any] = {"grid": 1, "block": 32}
    x = np.arange(32, dtype=np.float32)
    args = [("@y", 32), memlab.inout(x), "@y"]
    run = memlab.run("passed.cu:twice", **launch, args=args, expect={"y": 2 * x})
    assert run.measurement.verification.status == "passed"

    def double(view: Any, y: Any, same: Any) -> None:
        assert same is y
        view[0][:] *= 2

    run = memlab.run("passed.cu:twice", **launch, args=args, reference=double)
    assert run.measurement.verification.status == "passed"
    words = "check passed.cu:twice --grid 1 --block 32 --arg struct=inout:f32[30],32"
    assert main([*words.split(), "--arg", "f32[32]", "--arg", "@view.data", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["element"] for finding in findings} == {"view.data[30] of 30 elements"}


CONSTANTS = """
namespace filters { __constant__ float weights[4]; }
__constant__ float given[2] = {1, 2};
__constant__ float zero[2] = {0};
__constant__ struct { float a; int b; } settings;
__constant__ float other[4];
__device__ __noinline__ float weight(int i) { return filters::weights[i % 4]; }
__global__ void filter(const float* x, float* y) {
  int i = threadIdx.x;
  y[i] = x[i] * weight(i) + given[i % 2] + zero[i % 2];
}
__global__ void set(float* y) { y[threadIdx.x] = settings.a; }
"""


def test_a_constant_array_without_values_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "constants.cu").write_text(CONSTANTS)
    words = [
        "constants.cu:filter",
        "--grid",
        "1",
        "--block",
        "8",
        "--arg",
        "f32[8]",
        "--arg",
        "out:f32[8]",
    ]

    assert main(["run", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "memlab: no values are given for the __constant__ variable filters::weights, so it "
        "holds zeros: use --const filters::weights=random\n"
    )
    assert json.loads(out)["parameters"]["constants"] == "filters::weights=zeros"
    for command in ("analyze", "check", "trace"):
        with pytest.warns(MemlabWarning, match="filters::weights, so it holds zeros"):
            assert main([command, *words]) == 0
    capsys.readouterr()
    assert main(["run", *words, "--const", "filters::weights=ones", "-q"]) == 0
    assert capsys.readouterr().err == ""
    words = ["constants.cu:set", "--grid", "1", "--block", "8", "--arg", "out:f32[8]"]
    assert main(["run", *words, "-q"]) == 0
    assert (
        "variable settings, so it holds zeros: use --const settings=random"
        in capsys.readouterr().err
    )


def test_a_functor_has_its_place(folder: Path) -> None:
    (folder / "memlab.toml").write_text(
        '[kernels.squares]\nsource = "passed.cu"\nentry = "map<Empty>"\ngrid = 2\nblock = 32\n'
        'args = ["f32[50]", "out:f32[50]", "i32=50", "struct"]\n'
    )
    found = memlab.run("squares", reference="passed.py:map").measurement

    assert found.verification.status == "passed"
    assert found.parameters["args"] == "f32[50] out:f32[50] i32=50 struct"


BIASED = "passed.cu:biased --grid 1 --block 32 --arg null --arg out:f32[32] --arg out:f32[32]"


@pytest.mark.parametrize("function", ["as_tuple", "as_dict"])
def test_a_pointer_is_null_and_an_output_left_unverified(
    function: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *BIASED.split(), "--reference", f"passed.py:{function}"]) == 0
    out = capsys.readouterr().out
    assert "passed, 32 of 32 outputs" in out
    assert "not verified: scratch" in out
    assert main(["check", *BIASED.split(), "--reference", f"passed.py:{function}"]) == 0
    assert "output verified, but not scratch" in capsys.readouterr().out


def test_reading_through_a_null_pointer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split("passed.cu:read --grid 1 --block 32 --arg null --arg out:f32[32]")

    assert main(["run", *words]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "read of 4 bytes at global address 0x0, a null pointer, by block (0, 0, 0)" in err
    assert main(["check", *words, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["element"], finding["count"]) == ("global address 0x0, a null pointer", 32)


def test_one_wrong_element_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{BIASED} --reference passed.py:one_wrong".split()

    assert main(["run", *words]) == 1
    out, err = capsys.readouterr()
    assert "failed, 1 of 32 outputs wrong" in out
    assert "verification failed: 1 of 32 outputs wrong; y[5] is 1, must be 2: relative" in err
    (kept,) = Store().runs()
    assert kept.measurement.verification.wrong == 1
    assert main(["check", *words]) == 1
    assert "1 of 32 outputs wrong" in capsys.readouterr().out


def test_arrays_and_numbers_of_python_are_arguments() -> None:
    generator = np.random.default_rng(1)
    x, y = generator.random((2, 128), np.float32)
    kept = y.copy()
    launch: dict[str, Any] = {"grid": 4, "block": 32, "defines": {"UNUSED": 1}}
    launch |= {"reference": "saxpy.py:saxpy"}

    args = [2.0, x, memlab.inout(y), y.size]
    run = memlab.run("saxpy.cu:saxpy", **launch, args=args)

    assert run.measurement.verification.status == "passed"
    assert run.measurement.verification.checked == 128
    assert np.array_equal(y, kept)
    found = run.measurement.parameters["args"]
    assert re.fullmatch(r"2.0 f32\[128\]=array-\w{8} inout:f32\[128\]=array-\w{8} 128", str(found))
    assert not memlab.check("saxpy.cu:saxpy", **launch, args=args).findings
    with pytest.raises(UsageError, match=r"argument 1 .* points to f32, got 'f64\[128\]=array"):
        memlab.run("saxpy.cu:saxpy", **launch, args=[2.0, x.astype(float), memlab.inout(y), 128])


@pytest.mark.parametrize("words", ["run --no-store tiled", "check -q x.cu", "trace -d h200 tiled"])
def test_an_option_before_the_kernel_is_told_its_place(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, option, *_ = words.split()

    assert main(words.split()) == 2
    assert capsys.readouterr().err == (
        f"memlab: error: {option} stands before the kernel, and options come after it: "
        f"write 'memlab {command} KERNEL {option} ...'\n"
    )
