"""Pointers to an element of an array: what a kernel reads and writes there, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memlab
from memlab.errors import UsageError

SOURCE = """
__global__ void stencil(const float* x, float* y, int n) {  // reads x[-2] to x[n + 1]
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i - 2] + x[i + 2];
}

struct Halves { const double* low; double* high; };

__global__ void halves(Halves h, double* const* rows) {
  int i = threadIdx.x;
  h.high[i] = 2 * h.low[i];
  rows[0][i] = rows[1][i] + 1;
}

__global__ void vectors(const float4* x, void* y) {
  reinterpret_cast<float*>(y)[threadIdx.x] = x[threadIdx.x].y;
}

__global__ void before(float* x) { x[-5] = 1; }
"""
X = np.random.default_rng(3).random(100_004, np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("into") / "p.cu"
    path.write_text(SOURCE)
    return str(path)


def test_a_kernel_reads_before_its_pointer_and_the_whole_array_is_the_output(file: str) -> None:
    n = X.size - 4
    y = np.zeros(n + 3, np.float32)

    run = memlab.run(
        f"{file}:stencil",
        grid=-(-n // 256),
        block=256,
        args=[memlab.offset(X, 2), memlab.offset(memlab.inout(y), 3), n],
        reference=lambda x, y, n: np.append(y[:3], np.float64(x[:-4]) + x[4:]),
    )

    np.testing.assert_array_equal(run.outputs["y"][3:], X[:-4] + X[4:])
    assert not run.outputs["y"][:3].any()
    verification = run.measurement.verification
    assert verification.status == "passed"
    assert verification.total == n + 3


def test_a_sampled_launch_counts_the_lines_that_an_offset_splits(file: str) -> None:
    def loaded(start: int, **options: Any) -> Any:
        n = 1 << 20
        args = [f"f32[{n + 40}]+{start}", f"out:f32[{n}]", str(n)]
        return memlab.run(f"{file}:stencil", grid=n // 256, block=256, args=args, **options)

    sectors = {
        start: loaded(start).measurement.counters.global_load_sectors for start in (2, 3, 10)
    }
    # A warp reads 32 floats from element start - 2, and 32 from start + 2: each 4 or 5 sectors.
    warps = (1 << 20) // 32
    assert sectors == {2: warps * (4 + 5), 3: warps * (5 + 5), 10: warps * (4 + 5)}


def test_a_pointer_may_point_into_the_array_of_another(file: str) -> None:
    low = np.arange(8.0)
    work = np.append(low, np.zeros(24))

    run = memlab.run(
        f"{file}:halves",
        grid=1,
        block="N",
        args=["struct=@rows[0],@rows[0]+N", [memlab.offset(memlab.inout(work), 0), "@rows[0]+16"]],
        symbols={"N": 8},
        reference=lambda h, rows: two_halves(*h, *rows),
    )

    # rows[0][i] = rows[1][i] + 1 overwrites the low half, after it was read.
    expected = np.concatenate([np.ones(8), 2 * low, np.zeros(16)])
    np.testing.assert_array_equal(run.outputs["rows[0]"], expected)
    assert run.measurement.verification.status == "passed"


def two_halves(low: Any, high: Any, first: Any, second: Any) -> None:
    high[:8] = 2 * low[:8]
    first[:8] = second[:8] + 1


def test_elements_are_those_of_the_array_whatever_the_pointer_points_to(file: str) -> None:
    x = np.arange(64, dtype=np.float32).reshape(16, 4)

    run = memlab.run(
        f"{file}:vectors",
        grid=1,
        block=8,
        args=[memlab.offset(x, 16), "inout:f32[16]+4=zeros"],
    )

    np.testing.assert_array_equal(run.outputs["y"][4:12], x[4:12, 1])


def test_an_access_before_the_array_is_found(file: str) -> None:
    def stray(argument: str) -> list[str]:
        args = [argument]
        result = memlab.check(f"{file}:before", grid=1, block=1, args=args)
        return [each.kind for each in result.findings]

    assert stray("inout:f32[64]+5") == []
    assert len(stray("inout:f32[64]+4")) == 1


@pytest.mark.parametrize(
    ("array", "start", "said"),
    [
        (X, X.size, "points to element 100004 of 100004: use 0 to 100003"),
        (X, -1, "points to element -1 of"),
        (X, 0.5, "offset counts elements, got an object of type float"),
        (memlab.texture(X[:64]), 2, "offset takes an array, got 'texture=f32[64]"),
    ],
)
def test_what_cannot_be_pointed_to_is_said(array: Any, start: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        memlab.offset(array, start)
    assert said in str(error.value)


def test_a_kernel_of_a_package_takes_whole_arrays(file: str) -> None:
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def add(x: Any) -> None:
        x[cuda.threadIdx.x] += 1

    with pytest.raises(UsageError, match=r"points into an array, .* to CUDA C\+\+ alone"):
        memlab.run(add, grid=1, block=2, args=["inout:f32[8]+2"], device="h200")
