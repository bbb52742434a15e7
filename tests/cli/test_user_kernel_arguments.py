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
from memlab.errors import UsageError
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
