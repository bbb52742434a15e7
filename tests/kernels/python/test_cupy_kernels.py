"""Kernels of CuPy without a GPU: their text and options through memlab's own compiler."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from gpu_runs import check_counters, run_on_gpu

import memlab
from memlab.kernels.python.carray import HEADERS
from memlab.kernels.python.reduction import WITHOUT_OPTIONS

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


ADDED = cupy.ElementwiseKernel("T x, T y", "T z", "z = x + y", "added")


@pytest.mark.parametrize("shapes", [((20, 50), (50,)), ((20, 1), (1, 50)), ((2, 1, 5), (2, 3, 5))])
def test_arrays_of_several_shapes_are_repeated_as_numpy_does(shapes: Any) -> None:
    x, y = (np.arange(np.prod(shape), dtype="f8").reshape(shape) for shape in shapes)
    np.testing.assert_array_equal(memlab.run(ADDED, args=[x, y], device="a100").outputs["z"], x + y)
    with pytest.raises(memlab.UsageError, match="shapes that do not fit together"):
        memlab.run(ADDED, args=[x, np.ones((7, 7))], device="a100")


NORM = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
DOT = cupy.ReductionKernel("T x, S y, int64 k", "float64 z", "k * (x * y)", "a + b", "z = a", "0")
BOX = np.random.default_rng(0).standard_normal((6, 40, 30))


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), (1, 2), (2, 0)])
def test_a_reduction_is_that_of_numpy(axis: Any, keepdims: bool) -> None:
    run = memlab.run(NORM, args=[BOX.astype("f4")], axis=axis, keepdims=keepdims, device="a100")
    exact = np.sqrt((BOX**2).sum(axis=axis, keepdims=keepdims))
    np.testing.assert_allclose(run.outputs["y"], np.atleast_1d(exact), rtol=1e-6)
    assert memlab.check(NORM, args=[BOX.astype("f4")], axis=axis, device="a100").findings == ()


@pytest.mark.parametrize("with_output", [False, True])
@pytest.mark.parametrize("block", [None, 64])
def test_a_reduction_of_several_arrays_repeats_them(with_output: bool, block: int | None) -> None:
    column = BOX[:, :, :1].astype("f4")
    outputs = [memlab.out(40, "f8")] if with_output else []
    run = memlab.run(
        DOT,
        args=[column, BOX, 3, *outputs],
        axis=(0, 2),
        block=block,
        device="a100",
        reference=lambda x, y, k, z: (k * x.astype("f8") * y).sum(axis=(0, 2)),
    )
    assert run.measurement.verification.status == "passed"
    assert run.measurement.block == (block or 512, 1, 1)


def test_the_blocks_of_a_reduction_are_cupys() -> None:
    # Rows of 1000: 512 threads for each output. Columns of 8: 32 neighbours in each block.
    rows = memlab.run(NORM, args=["f32[8,1000]"], axis=1, device="a100").measurement
    columns = memlab.run(NORM, args=["f32[8,1000]"], axis=0, device="a100").measurement
    assert (rows.parameters["defines"], columns.parameters["defines"]) == ("axis=1", "axis=0")
    assert (rows.grid, columns.grid) == ((8, 1, 1), (16, 1, 1))
    # The last block has 8 outputs; its other 24 lanes load what follows in each row but the last.
    assert columns.counters.global_load_sectors == 8 * 1000 * 4 // 32 + 7 * 24 * 4 // 32


def test_a_raw_array_of_a_reduction_is_passed_whole() -> None:
    kernel = cupy.ReductionKernel("T x, raw T w", "T y", "x * w[_j % 3]", "a + b", "y = a", "0")
    x, w = np.arange(12.0), np.array([1.0, 10.0, 100.0])
    total = memlab.run(kernel, args=[x, w], device="a100").outputs["y"]
    assert total.tolist() == [(x * np.tile(w, 4)).sum()]
    with pytest.raises(memlab.UsageError, match=r"reduces only the first axes.*axis=\(0,\)"):
        memlab.run(kernel, args=[x.reshape(3, 4), w], axis=1, device="a100")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"axis": 3}, r"axis=3 names no axes of the shape \[6, 40, 30\]: .* from -3 to 2"),
        ({"axis": (0, 0)}, r"axis=\(0, 0\) names no axes"),
        ({"axis": "x"}, "axis='x' names no axes"),
        ({"keepdims": 2}, "keepdims is True or False, got 2"),
        ({"block": 96}, "a power of two up to 1024, got 96"),
        ({"block": 2048}, "a power of two up to 1024, got 2048"),
        ({"args": [BOX, memlab.out(40, "f8")]}, r"output y .* \[40\], .* inputs give \[1\]"),
        ({"args": [BOX, memlab.out(1, "f4")]}, "CuPy refuses the types of l2norm"),
        ({"args": [2.0]}, "no array that is not raw"),
        ({"args": []}, r"takes 2 arguments \(x, y\), got 0"),
        ({"axes": 1}, "no launch option 'axes'"),
    ],
)
def test_calls_that_a_reduction_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(memlab.UsageError, match=message) as caught:
        memlab.run(NORM, **{"args": [BOX], "device": "a100", **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([GRID, 1.5], r"takes 4 arguments \(x, factor, offsets, z\), got 2"),
        ([GRID, 1.5, GRID], "CuPy refuses the types of scaled"),
        (
            [GRID, 1.5, OFFSETS, memlab.out(1000, "f4")],
            "shapes that do not fit together",
        ),
        ([GRID, "@x", OFFSETS], "factor: scaled takes no @x"),
        ([GRID, None, OFFSETS], "factor: scaled takes an array or a number, got 'null'"),
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
        (cupy.add, "a ufunc of CuPy is no kernel"),
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
    "reduction": (
        NORM,
        {"args": [BOX], "axis": (0, 2), "expect": {"y": np.sqrt((BOX**2).sum(axis=(0, 2)))}},
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


@pytest.mark.gpu
@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2)])
def test_cupy_writes_the_same_reduction(axis: Any) -> None:
    own = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    accelerators = cupy._core.get_reduction_accelerators()
    cupy._core.set_reduction_accelerators([])  # else CuPy may take CUB's kernel
    try:
        expected = own(cupy.asarray(BOX), axis=axis)
    finally:
        cupy._core.set_reduction_accelerators(accelerators)
    run = memlab.run(NORM, args=[BOX], axis=axis, device=0)
    np.testing.assert_array_equal(run.outputs["y"], np.atleast_1d(expected.get()))
    (text,) = own.cached_codes.values()
    whole = WITHOUT_OPTIONS + HEADERS + text
    assert run.measurement.code.source_sha256 == sha256(whole.encode()).hexdigest()
