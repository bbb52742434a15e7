"""Kernels of Numba, compiled and emulated without a GPU, against NumPy."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_runs import check_counters, run_on_gpu

import memlab
from memlab.device.datasheets import loader
from memlab.kernels.launch import NullPointer, Scalar
from memlab.launching import prepare_launch, resolve_kernel
from memlab.sweeps.points import PointJob, RunOptions, point_key

cuda = pytest.importorskip("numba.cuda", reason="Numba is not installed")

RANDOM = np.random.default_rng(0)
X = RANDOM.random(1000, dtype=np.float32)
TILE = 16
WEIGHTS = np.arange(10, dtype=np.float32)


@cuda.jit
def add(x: Any, y: Any, z: Any) -> None:
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]


@cuda.jit
def tiled(a: Any, b: Any, c: Any) -> None:
    left = cuda.shared.array((TILE, TILE), np.float32)
    right = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = np.float32(0)
    for step in range(a.shape[1] // TILE):
        left[ty, tx] = a[y, step * TILE + tx]
        right[ty, tx] = b[step * TILE + ty, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[y, x] = total


@cuda.jit(device=True)
def square(x: Any) -> Any:
    return x * x


@cuda.jit
def halves(x: Any, y: Any, factor: Any) -> None:
    tile = cuda.shared.array(256, np.float16)
    i = cuda.grid(1)
    if i < x.size:
        tile[cuda.threadIdx.x] = math.sqrt(x[i]) * factor
        y[i] = tile[cuda.threadIdx.x] + np.float16(1)


@cuda.jit
def functions(x: Any, y: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        y[i] = square(x[i]) + math.sin(x[i]) + x[i] ** 2.5


@cuda.jit
def histogram(x: Any, bins: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def constants(y: Any) -> None:
    weights = cuda.const.array_like(WEIGHTS)
    own = cuda.local.array(8, np.float32)
    i = cuda.grid(1)
    for k in range(8):
        own[k] = weights[k] * i
    y[i] = own[i % 8]


@cuda.jit
def warp_sums(x: Any, sums: Any) -> None:
    value = x[cuda.grid(1)]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        cuda.atomic.add(sums, 0, value)


@cuda.jit
def reversed_block(x: Any, y: Any) -> None:
    staged = cuda.shared.array(0, np.float32)
    i = cuda.threadIdx.x
    staged[i] = x[i]
    cuda.syncthreads()
    y[i] = staged[cuda.blockDim.x - 1 - i]


@cuda.jit
def scalars(y: Any, whole: Any, short: Any, real: Any, narrow: Any, flag: Any) -> None:
    i = cuda.grid(1)
    if flag:
        y[i] = whole / 2 + short + real + narrow


@cuda.jit(fastmath=True, launch_bounds=256, max_registers=32)
def limited(x: Any, y: Any) -> None:
    i = cuda.grid(1)
    if i < x.size:
        y[i] = math.sin(x[i]) / x[i]


def run(kernel: Any, grid: Any, block: Any, *args: Any, **options: Any) -> Any:
    return memlab.run(kernel, grid=grid, block=block, args=args, device="a100", **options)


def out(shape: Any, dtype: str = "f4") -> Any:
    return memlab.out(shape, dtype)


def product(a: Any, b: Any, c: Any) -> Any:
    return a.astype(float) @ b


A, B = RANDOM.random((64, 48), dtype=np.float32), RANDOM.random((48, 32), dtype=np.float32)
DIGITS = RANDOM.integers(0, 10, 1000, dtype=np.int32)

CASES = {
    "add": (add, 4, 256, [X, X[::-1], out(1000)], lambda x, y, z: x + y, {}),
    "tiled": (tiled, (2, 4), (16, 16), [A, B, out((64, 32))], product, {}),
    "tile of 8": (tiled, (4, 8), (8, 8), [A, B, out((64, 32))], product, {"defines": {"TILE": 8}}),
    "functions": (
        functions,
        4,
        256,
        [X, out(1000)],
        lambda x, y: x.astype(float) ** 2 + np.sin(x) + x.astype(float) ** 2.5,
        {},
    ),
    "histogram": (
        histogram,
        4,
        256,
        [DIGITS, memlab.inout(np.zeros(10, np.int32))],
        lambda x, bins: np.bincount(x, minlength=10),
        {},
    ),
    "constants": (
        constants,
        2,
        64,
        [out(128)],
        lambda y: np.arange(128) % 8 * np.arange(128.0),
        {},
    ),
    "warp sums": (
        warp_sums,
        3,
        256,
        [X[:768], memlab.inout(np.zeros(1, np.float32))],
        lambda x, sums: x.sum(keepdims=True, dtype=float),
        {},
    ),
    "dynamic shared memory": (
        reversed_block,
        1,
        256,
        [X[:256], out(256)],
        lambda x, y: x[::-1].copy(),
        {"shared": 1024},
    ),
    "scalars": (
        scalars,
        1,
        32,
        [out(32, "f8"), 3, np.float32(0.1), 0.25, "i8=-7", True],
        lambda y, *numbers: np.full(32, 1.5 + np.float64(np.float32(0.1)) + 0.25 - 7),
        {},
    ),
    "launch bounds": (limited, 4, 256, [X + 1, out(1000)], lambda x, y: np.sin(x) / x, {}),
}


def test_halves_are_compiled_without_a_driver() -> None:
    x, factor = X.astype("f2"), np.float16(0.5)
    args = [x, memlab.out(1000, "f2"), factor]
    run = memlab.run(halves, grid=4, block=256, args=args, device="a100")
    exact = np.sqrt(x.astype("f8")) * 0.5 + 1
    np.testing.assert_allclose(run.outputs["y"], exact, rtol=3 * 2.0**-11)
    assert run.outputs["y"].dtype == np.float16
    assert run.measurement.counters.flop_fp16 >= 2 * 1000


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_numpy(case: str) -> None:
    kernel, grid, block, args, reference, options = CASES[case]
    made = run(kernel, grid, block, *args, reference=reference, **options)
    assert made.measurement.verification.status == "passed"
    assert made.measurement.verification.unverified == ""


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_computes_and_counts_the_same(case: str) -> None:
    kernel, grid, block, args, reference, options = CASES[case]
    launch = {"grid": grid, "block": block, "args": args, "reference": reference, **options}
    made = run_on_gpu(kernel, **launch)
    check_counters(made, kernel, **launch)


def test_counters_are_those_of_lines_of_the_python_file() -> None:
    made = run(add, 4, 256, X, X, out(1000)).measurement
    line = add.py_func.__code__.co_firstlineno + 4
    counted = {each.line: each for each in made.lines}
    # 1000 threads are 31.25 warps; each of the three arrays has 4000 bytes in sectors of 32.
    assert counted[line].global_requests == 3 * 32
    assert counted[line].global_sectors == 3 * 125
    assert "z[i] = x[i] + y[i]" in counted[line].text
    assert made.counters.global_load_sectors == 250
    assert made.kernel == "test_numba_kernels.py:add"
    assert made.parameters["args"].count("f32[1000]") == 3


def test_arguments_are_laid_out_as_numba_lays_out_arrays() -> None:
    options = {"grid": 1, "block": 1, "args": [A, out((2, 3, 4)), 5]}

    @cuda.jit
    def three(a: Any, b: Any, n: Any) -> None:
        b[0, 0, 0] = a[0, 0] + n

    a100 = loader.load_datasheet("a100")
    kernel, _ = resolve_kernel(three, options, a100)
    launch = prepare_launch(kernel, {}, a100)
    values: list[Any] = []
    for argument in launch.arguments:
        null = isinstance(argument, NullPointer)
        values.append(
            0 if null else argument.value if isinstance(argument, Scalar) else argument.name
        )
    assert values == [
        *(0, 0, 64 * 48, 4, "a", 64, 48, 48 * 4, 4),
        *(0, 0, 24, 4, "b", 2, 3, 4, 48, 16, 4),
        5,
    ]
    assert [each.name for each in launch.user_arguments] == ["a", "b", "n"]


def test_defines_replace_what_a_closure_holds() -> None:
    def made(size: int) -> Any:
        @cuda.jit
        def fill(x: Any) -> None:
            for k in range(size):
                x[k] = size

        return fill

    outputs = run(made(4), 1, 1, memlab.inout(np.zeros(8, "i4")), defines={"size": 6}).outputs
    np.testing.assert_array_equal(outputs["x"], [6, 6, 6, 6, 6, 6, 0, 0])


def test_the_numba_cuda_of_old_versions_of_numba_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(cuda, "compile_all")
    with pytest.raises(memlab.UsageError, match=r"package numba-cuda: pip install 'memlab\[numba"):
        run(add, 4, 256, X, X, out(1000))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("libnvvm.so\n is not found", r"not whole \(libnvvm.*memlab\[numba"),
        ("cuda is an NVIDIA driver library", r"float16.*driver only: use float32, or pip install"),
    ],
)
def test_a_missing_library_is_told_with_what_brings_it(
    reason: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def refuse(*_: Any, **__: Any) -> None:
        raise pathfinder.DynamicLibNotFoundError(reason)

    monkeypatch.setattr(cuda, "compile_all", refuse)
    with pytest.raises(memlab.UsageError, match=message) as caught:
        run(add, 4, 256, X, X, out(1000))
    assert "\n" not in str(caught.value)


MISFIT = """
import numpy, memlab
from numba import cuda
{change}
@cuda.jit
def scale(x):
    x[cuda.grid(1)] = {value}
memlab.run(scale, grid=1, block=32, args=[memlab.out(32, "f4")], device="a100")
"""


@pytest.mark.parametrize(
    ("change", "value", "message"),
    [
        (
            "del numpy.row_stack",  # as NumPy 2.5 did
            "2.0",
            r"Numba does not fit the installed numpy \(numba-cuda [\d.]+, numba [\d.]+, numpy "
            r"[\d.]+: module 'numpy' has no attribute 'row_stack'\): pip install -U "
            r"'memlab\[numba\]', which brings versions that fit",
        ),
        ("", "numpy.nothing(2)", r"has no attribute 'nothing'\): correct the function"),
    ],
)
def test_only_a_numpy_that_does_not_fit_is_not_the_functions_fault(
    change: str, value: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "scale.py"
    file.write_text(MISFIT.format(change=change, value=value))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert re.search(message, done.stderr.splitlines()[-1]), done.stderr


def test_a_kernel_with_its_grid_is_a_launch() -> None:
    with_grid = memlab.run(add[4, 256], args=[X, X, out(1000)], device="a100")
    assert with_grid.measurement.grid == (4, 1, 1)
    np.testing.assert_array_equal(with_grid.outputs["z"], X + X)


def test_every_function_takes_a_kernel_of_numba() -> None:
    launch: dict[str, Any] = {"grid": 4, "block": 256, "args": [X, X, out(1000)], "device": "a100"}
    assert memlab.analyze(add, **launch).counters.global_store_sectors == 125
    assert memlab.check(add, **launch).findings == ()
    assert memlab.occupancy(add, **launch).blocks_per_sm == 8
    steps = memlab.trace(add, thread_index=3, **launch).followed.steps
    assert any("z" in str(step) for step in steps)
    swept = memlab.sweep(
        tiled,
        defines={"TILE": [8, 16]},
        grid=("32/TILE", "64/TILE"),
        block=("TILE", "TILE"),
        args=[A, B, out((64, 32))],
        expect={"c": product(A, B, None)},
        device="a100",
    )
    assert [row.status for row in swept.rows] == ["done", "done"]
    assert memlab.compare(memlab.run(add, **launch), memlab.run(add, **launch)).pairs


def test_check_finds_a_stray_access_and_its_line() -> None:
    @cuda.jit
    def stray(x: Any, y: Any) -> None:
        i = cuda.grid(1)
        y[i] = x[i]

    report = memlab.check(stray, grid=1, block=32, args=[X[:32], out(31)], device="a100")
    (finding,) = report.findings
    assert finding.at.line == stray.py_func.__code__.co_firstlineno + 3
    assert finding.element == "y[31] of 31 elements"


def test_the_architecture_is_that_of_the_device() -> None:
    for device, target in (("a100", "sm_80"), ("h200", "sm_90")):
        options = {"grid": 4, "block": 256, "args": [X, X, out(1000)]}
        properties = loader.load_datasheet(device)
        kernel, _ = resolve_kernel(add, options, properties)
        assert target in prepare_launch(kernel, {}, properties).ptx


def test_signatures_take_arguments_that_fit() -> None:
    from numba.cuda import types

    @cuda.jit
    def scale(x: Any, factor: Any) -> None:
        x[cuda.grid(1)] *= factor

    # As @cuda.jit(signature) does, which needs a GPU.
    scale.overloads[(types.float32[:], types.float32)] = SimpleNamespace(entry_point=object())
    scale._can_compile = False
    made = run(scale, 1, 32, memlab.inout(X[:32]), 2)
    np.testing.assert_array_equal(made.outputs["x"], 2 * X[:32])
    with pytest.raises(memlab.UsageError, match=r"compiled for .*float32.*, not for .*float64"):
        run(scale, 1, 32, memlab.inout(X[:32].astype("f8")), 2)
    scale.overloads.clear()
    by_columns = types.Array(types.float32, 1, "F")  # memlab passes arrays in C's order
    scale.overloads[(by_columns, types.float32)] = SimpleNamespace(entry_point=object())
    with pytest.raises(memlab.UsageError, match="compiled for"):
        run(scale, 1, 32, memlab.inout(X[:32]), 2)


@cuda.jit
def uses_tile_in_a_call(x: Any) -> None:
    x[0] = TILE + tile_size()


@cuda.jit(device=True)
def tile_size() -> Any:
    return TILE


@cuda.jit
def has_no_such_name(x: Any) -> None:
    x[0] = undefined  # type: ignore[name-defined] # noqa: F821


@cuda.jit
def has_no_type(x: Any, y: Any) -> None:
    y.foo = x


def not_a_kernel(x: Any) -> None: ...


@pytest.mark.parametrize(
    ("kernel", "options", "message"),
    [
        (square, {}, "square is a device function, not a kernel"),
        (not_a_kernel, {}, "a kernel cannot be an object of type function"),
        (3, {}, "a kernel cannot be an object of type int"),
        (add, {"args": [X]}, r"add takes 3 arguments \(x, y, z\), got 1"),
        (add, {"args": [X, X, (1, 2)]}, "argument z: memlab passes numbers and arrays"),
        (add, {"args": [X, X, None]}, "argument z: memlab passes numbers and arrays"),
        (add, {"args": [X, X, "f32[10"]}, r"argument 2 \(z\)"),
        (add, {"args": [X, X, out(9, "bf16")]}, "Numba has no arrays and numbers of bf16"),
        (add, {"args": [X, X, X]}, "writes to z.*and z is an input: declare it inout"),
        (add, {"args": [X, X, out(9)], "std": "c++17"}, "Numba, which has no option std"),
        (
            add,
            {"args": [X, X, out(9)], "defines": {"TILE": 8}},
            "uses no constant 'TILE': it uses none",
        ),
        (add, {"args": [None, X, out(9)]}, "got 'null': pass an array in its place"),
        (tiled, {"args": [A, B, out(9)], "defines": {"TILE": "x"}}, "must be a number"),
        (
            uses_tile_in_a_call,
            {"args": [out(1)], "defines": {"TILE": 8}},
            "calls tile_size, which uses TILE too",
        ),
        (has_no_such_name, {"args": [out(1)]}, "'undefined' is not defined"),
        (has_no_type, {"args": [X, X]}, r"in line \d+ of .*Cannot resolve setattr"),
        (limited, {"args": [X, out(1000)], "block": 512}, r"__launch_bounds__\(256\)"),
    ],
)
def test_a_mistake_is_told_in_one_line(kernel: Any, options: Any, message: str) -> None:
    with pytest.raises(memlab.UsageError, match=message) as caught:
        memlab.run(kernel, **{"grid": 1, "block": 256, "device": "a100", **options})
    assert "\n" not in str(caught.value)


def test_sweeps_keep_functions_in_this_process() -> None:
    with pytest.raises(memlab.UsageError, match="a function in memory"):
        memlab.sweep(add, grid=4, block=256, args=[X, X, out(9)], device="a100", workers=2)
    options = {"grid": 4, "block": 256, "args": [X, X, out(1000)]}
    kernel, _ = resolve_kernel(add, options, loader.load_datasheet("a100"))
    job = PointJob(0, kernel, {}, "a100", RunOptions(0, None, None, None, False))
    # A function may use what no file tells: no point of it is another's.
    assert point_key(job, "a100") != point_key(job, "a100")


def test_numba_is_imported_for_its_kernels_alone() -> None:
    code = (
        "import sys, memlab; memlab.run('naive', width=8, device='a100'); "
        "memlab.run(memlab.source('__global__ void f(int *x) { *x = 1; }'), grid=1, block=1, "
        "args=['out:i32[1]'], device='a100'); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
