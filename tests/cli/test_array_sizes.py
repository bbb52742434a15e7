"""Sizes of arrays that no host code tells: as large as the kernel reaches into them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import memlab
from memlab.errors import UsageError

SOURCE = """
__global__ void shift(const float* x, const float4* v, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i + 2 * n] = x[n - 1 - i] + v[i / 4].z;
}
void launch_shift(const float* x, const float4* v, double* y) {
  shift<<<40, 256>>>(x, v, y, 10000);
}

__global__ void gather(const int* index, const float* x, float* y) {
  int i = threadIdx.x;
  y[i] = x[3 * index[i]];
}
void launch_gather(const int* index, const float* x, float* y) { gather<<<1, 100>>>(index, x, y); }

__global__ void both(const float* a, const float* b, float* y, int flag) {
  const float* x = flag ? a : b;
  y[threadIdx.x] = x[5000 + threadIdx.x];
}
void launch_both(const float* a, const float* b, float* y, int n) { both<<<1, 32>>>(a, b, y, n); }

__global__ void endless(float* y) { y[1l << 40] = threadIdx.x; }
void launch_endless(float* y) { endless<<<1, 32>>>(y); }
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sizes") / "k.cu"
    path.write_text(SOURCE)
    return str(path)


def sizes(run: Any) -> dict[str, int]:
    return {
        name: value for name, value in run.measurement.parameters.items() if name.endswith("_size")
    }


def test_arrays_end_where_the_kernel_does(file: str) -> None:
    run = memlab.run(
        f"{file}:shift",
        reference=lambda x, v, y, n: np.append(y[: 2 * n], x[::-1] + np.repeat(v[:, 2], 4)[:n]),
    )
    assert sizes(run) == {"x_size": 10_000, "v_size": 2_500, "y_size": 30_000}
    assert run.measurement.verification.status == "passed"


def test_what_an_array_holds_decides_how_far_another_is_used(file: str) -> None:
    assert sizes(memlab.run(f"{file}:gather")) == {"index_size": 100, "x_size": 298, "y_size": 100}


def test_a_size_that_is_given_stays(file: str) -> None:
    run = memlab.run(f"{file}:shift", symbols={"y_size": 64 << 10})
    assert sizes(run) == {"x_size": 10_000, "v_size": 2_500, "y_size": 65_536}


@pytest.mark.parametrize(
    ("entry", "options", "said"),
    [
        # Other numbers are asked for first, and sizes only where they cannot be found.
        ("both", {}, "does not tell n: give --set n=1M,"),
        ("both", {"symbols": {"n": 1}}, "does not tell a_size, b_size, y_size"),
        ("endless", {}, "does not tell y_size: give --set y_size=1M"),
    ],
)
def test_sizes_that_cannot_be_found_are_asked_for(
    file: str, entry: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        memlab.run(f"{file}:{entry}", **options)
    assert said in str(error.value)
