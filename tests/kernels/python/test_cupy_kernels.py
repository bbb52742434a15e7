"""Kernels of CuPy without a GPU: their text and options through memlab's own compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_runs import check_counters, run_on_gpu

import memlab

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

SAXPY = """\
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = SCALE * a * x[i];
}
"""
TEMPLATE = """\
#include <cupy/complex.cuh>
template <class T> __global__ void fill(T *x) { x[threadIdx.x] = T(2.5); }
"""
X = np.arange(1000, dtype=np.float32)
LAUNCH: dict[str, Any] = {"grid": 4, "block": 256, "device": "a100"}


def test_a_raw_kernel_is_compiled_with_its_options() -> None:
    options = ("-DSCALE=3", "--std=c++14", "-lineinfo", "--maxrregcount=40", "--fmad=false")
    kernel = cupy.RawKernel(SAXPY, "saxpy", options=options)
    run = memlab.run(kernel, args=[2.0, X, memlab.out(1000, "f4"), 1000], **LAUNCH)
    np.testing.assert_array_equal(run.outputs["y"], 6 * X)
    assert run.measurement.kernel == "saxpy.cu:saxpy"
    assert run.measurement.parameters["defines"] == "SCALE=3"
    assert {"-std=c++14", "--maxrregcount=40", "--fmad=false"} <= set(run.measurement.code.options)
    assert memlab.check(kernel, args=[2.0, X, "out:f32[1000]", 1000], **LAUNCH).findings == ()


@pytest.mark.parametrize(
    ("entry", "dtype", "value"), [("fill<float>", "f4", 2.5), ("fill<int>", "i4", 2)]
)
def test_a_module_gives_the_kernel_that_is_named(entry: str, dtype: str, value: float) -> None:
    module = cupy.RawModule(code=TEMPLATE, name_expressions=["fill<float>", "fill<int>"])
    kernel = memlab.source(module, entry)
    run = memlab.run(kernel, grid=1, block=32, args=[memlab.out(32, dtype)], device="a100")
    assert set(run.outputs["x"]) == {value}


def test_an_instance_of_a_template_is_found_by_its_compiled_name() -> None:
    # So does RawModule.get_function, which needs a GPU.
    kernel = cupy.RawKernel(TEMPLATE, "_Z4fillIfEvPT_")
    state = kernel.__getstate__()
    kernel.__setstate__({**state, "name_expressions": ("fill<float>",)})
    run = memlab.run(kernel, grid=1, block=32, args=[memlab.out(32, "f4")], device="a100")
    assert set(run.outputs["x"]) == {2.5}
    kernel.__setstate__({**state, "name_expressions": ("fill<float>", "fill<int>")})
    with pytest.raises(memlab.UsageError, match="is one of fill<float>, fill<int>"):
        memlab.run(kernel, grid=1, block=32, args=[memlab.out(32, "f4")], device="a100")


SCALED = cupy.ElementwiseKernel(
    "T x, float32 factor, raw int32 offsets",
    "T z",
    "z = twice(x) * factor + offsets[i % 10]",
    "scaled",
    preamble="template <class T> __device__ T twice(T x) { return 2 * x; }",
)
GRID = X.reshape(20, 50)
OFFSETS = np.arange(10, dtype=np.int32)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("with_output", [False, True])
def test_an_elementwise_kernel_is_written_by_cupy(dtype: str, with_output: bool) -> None:
    outputs = [memlab.out((20, 50), dtype)] if with_output else []
    args = [GRID.astype(dtype), 1.5, OFFSETS, *outputs]
    run = memlab.run(
        SCALED,
        args=args,
        device="a100",
        reference=lambda x, factor, offsets, z: 2 * x * factor + np.resize(offsets, x.shape),
    )
    assert run.measurement.verification.status == "passed"
    assert run.outputs["z"].shape == (20, 50)
    assert run.outputs["z"].dtype == dtype
    # CuPy launches blocks of 128 threads: 7 full ones for 1000 elements, and another.
    assert (run.measurement.grid, run.measurement.block) == ((8, 1, 1), (128, 1, 1))
    assert run.measurement.counters.global_store_sectors == 1000 * np.dtype(dtype).itemsize // 32
    assert memlab.run(SCALED, args=args, block=256, device="a100").measurement.grid == (4, 1, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([GRID, 1.5], r"takes 4 arguments \(x, factor, offsets, z\), got 2"),
        ([GRID, 1.5, GRID], "CuPy refuses the types of scaled"),
        ([GRID, 1.5, OFFSETS, memlab.out(1000, "f4")], "have several shapes"),
        ([2.0, 1.5, OFFSETS], "no array that is not raw"),
    ],
)
def test_arguments_that_an_elementwise_kernel_refuses(args: Any, message: str) -> None:
    with pytest.raises(memlab.UsageError, match=message) as caught:
        memlab.run(SCALED, args=args, device="a100")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "sum"),
            "sum is more than one kernel",
        ),
        (cupy.RawKernel(SAXPY, "saxpy", options=("-rdc=true",)), "no option '-rdc=true'"),
        (cupy.cuda.Device, "cannot be an object of type"),
    ],
)
def test_what_cannot_be_launched_is_told_in_one_line(kernel: Any, message: str) -> None:
    with pytest.raises(memlab.UsageError, match=message) as caught:
        memlab.run(kernel, args=[X, X], **LAUNCH)
    assert "\n" not in str(caught.value)


RAW = cupy.RawKernel(SAXPY, "saxpy", options=("-DSCALE=3", "--std=c++17"))
ON_GPU: dict[str, tuple[Any, dict[str, Any]]] = {
    "raw": (
        RAW,
        {
            "grid": 4,
            "block": 256,
            "args": [2.0, X, memlab.out(1000, "f4"), 1000],
            "expect": {"y": 6 * X.astype("f8")},
        },
    ),
    "module": (
        memlab.source(
            cupy.RawModule(code=TEMPLATE, name_expressions=["fill<float>"]), "fill<float>"
        ),
        {"grid": 1, "block": 32, "args": [memlab.out(32, "f4")], "expect": {"x": np.full(32, 2.5)}},
    ),
    "elementwise": (
        SCALED,
        {
            "args": [GRID, 1.5, OFFSETS],
            "expect": {"z": 3 * GRID.astype("f8") + np.resize(OFFSETS, GRID.shape)},
        },
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_a_gpu_computes_and_counts_the_same(name: str) -> None:
    kernel, launch = ON_GPU[name]
    run = run_on_gpu(kernel, **launch)
    check_counters(run, kernel, **launch)


@pytest.mark.gpu
def test_cupy_launches_the_same_and_computes_the_same() -> None:
    run = run_on_gpu(SCALED, **ON_GPU["elementwise"][1])
    own = SCALED(cupy.asarray(GRID), 1.5, cupy.asarray(OFFSETS))
    np.testing.assert_array_equal(run.outputs["z"], own.get())
