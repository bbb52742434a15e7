"""Kernels of Triton, compiled and emulated without a GPU, against NumPy in float64."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton_examples as examples
from gpu_runs import check_counters, run_on_gpu
from paths import REPOSITORY
from triton.runtime.driver import driver

import memlab
from tests.reference.tensor import older_sum

RANDOM = np.random.default_rng(0)
N = 40_000
EXAMPLES = REPOSITORY / "docs" / "examples"


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def grid_over(size: str, block: str) -> Callable[[dict[str, int]], tuple[int]]:
    return lambda meta: (-(-meta[size] // meta[block]),)


def added(n: int = N, **changes: Any) -> dict[str, Any]:
    """The launch of `add`."""
    args = [normal(n), normal(n), memlab.out(n, "f4"), n]
    launch: dict[str, Any] = {"args": args, "grid": grid_over("n", "BLOCK"), "BLOCK": 1024}
    return {"device": "a100", **launch, **changes}


def the_add() -> tuple[Any, dict[str, Any]]:
    return examples.add, added(reference=lambda x, y, z, n: x.astype("f8") + y)


def the_softmax() -> tuple[Any, dict[str, Any]]:
    values = normal(300, 781)
    launch = {"args": [values, memlab.out(values.shape, "f4"), 300, 781], "grid": 108}
    options = {"BLOCK": 1024, "STAGES": 4, "num_warps": 8}
    return examples.softmax, launch | options | {"expect": {"shares": examples.softmax_of(values)}}


def the_matmul(dtype: Any, tolerance: float, m: int = 130) -> tuple[Any, dict[str, Any]]:
    a, b = normal(m, 192, dtype=dtype), normal(192, 256, dtype=dtype)
    product = np.maximum(a.astype("f8") @ b.astype("f8"), 0)
    return examples.matmul, {
        "args": [a, b, memlab.out(product.shape, dtype), m, 256, 192],
        "grid": lambda meta: -(-meta["M"] // meta["BM"]) * (256 // meta["BN"]),
        "BM": 64,
        "BN": 64,
        "BK": 32,
        "ACTIVATION": examples.rectified,
        "num_stages": 3,
        "expect": {"c": product},
        "tolerance": tolerance,
    }


def the_layer_norm() -> tuple[Any, dict[str, Any]]:
    x, weight, bias = normal(64, 1152, dtype="f2"), normal(1152, dtype="f2"), normal(1152)
    wide = x.astype("f8")
    mean, inverse = wide.mean(1), 1 / np.sqrt(wide.var(1) + 1e-5)
    y = (wide - mean[:, None]) * inverse[:, None] * weight.astype("f8") + bias
    outputs = [memlab.out(y.shape, "f2"), memlab.out(64, "f4"), memlab.out(64, "f4")]
    return examples.layer_norm, {
        "args": [x, weight, bias, *outputs, 1152, 1e-5],
        "grid": 64,
        "BLOCK": 1024,
        "expect": {"y": y, "mean": mean, "inverse": inverse},
    }


def the_gradient() -> tuple[Any, dict[str, Any]]:
    dy = normal(48, 200)
    sums = np.stack([dy[group::4].astype("f8").sum(0) for group in range(4)])
    partial, locks = np.zeros((4, 200), "f4"), np.zeros(8, "i4")
    return examples.bias_gradient, {
        "args": [dy, memlab.inout(partial), memlab.inout(locks), 200],
        "grid": 48,
        "GROUPS": 4,
        "BLOCK": 256,
        "expect": {"partial": sums},
    }


def the_attention(causal: bool, dtype: Any = np.float16) -> tuple[Any, dict[str, Any]]:
    q, k, v = (normal(2, 256, 64, dtype=dtype) for _ in range(3))
    scores = q.astype("f8") @ k.astype("f8").swapaxes(1, 2) * 0.3
    if causal:
        scores = np.where(np.tril(np.ones((256, 256))) > 0, scores, -np.inf)
    return examples.attention, {
        "args": [q, k, v, memlab.out(q.shape, dtype), 0.3, 256],
        "grid": lambda meta: (256 // meta["BM"], 2),
        "D": 64,
        "BM": 64,
        "BN": 32,
        "CAUSAL": causal,
        "expect": {"o": examples.softmax_of(scores) @ v.astype("f8")},
    }


TUTORIALS = {
    "01 vector add": the_add,
    "02 softmax": the_softmax,
    "03 matmul fp16": lambda: the_matmul(np.float16, 1e-3),
    "03 matmul bf16": lambda: the_matmul(ml_dtypes.bfloat16, 1e-2),
    "03 matmul tf32": lambda: the_matmul(np.float32, 5e-3),
    "05 layer norm": the_layer_norm,
    "05 backward": the_gradient,
    "06 attention": lambda: the_attention(causal=False),
    "06 causal attention": lambda: the_attention(causal=True),
}
SLOW = [pytest.param(name, marks=[pytest.mark.slow] * (name[:2] != "01")) for name in TUTORIALS]


@pytest.mark.parametrize("name", SLOW)
def test_kernels_of_the_tutorials_are_right_and_have_no_findings(name: str) -> None:
    kernel, launch = TUTORIALS[name]()

    run = memlab.run(kernel, **({"device": "a100"} | launch))
    report = memlab.check(kernel, **({"device": "a100"} | launch))

    found = run.measurement.verification
    assert (found.status, found.checked) == ("passed", found.total), found.worst
    assert report.findings == ()


@pytest.mark.gpu
@pytest.mark.parametrize("name", TUTORIALS)
def test_kernels_of_the_tutorials_are_right_on_a_gpu(name: str) -> None:
    kernel, launch = TUTORIALS[name]()
    launch = {"arch": "sm80", **launch}  # a later one may have instructions that are not emulated

    run = run_on_gpu(kernel, **launch)

    check_counters(run, kernel, **launch)


@pytest.mark.gpu
def test_products_of_warp_groups_run_on_a_gpu() -> None:
    kernel, launch = the_matmul(np.float16, 1e-3)

    run = run_on_gpu(kernel, **launch)

    if run.measurement.device.compute_capability != (9, 0):
        pytest.skip("only GPUs of compute capability 9.0 have wgmma")
    assert not run.measurement.coverage.not_counted
    np.testing.assert_allclose(run.outputs["c"], launch["expect"]["c"], rtol=2e-2, atol=1e-2)


def test_descriptors_that_a_kernel_makes_are_tensor_maps() -> None:
    x = RANDOM.random((60, 96), dtype=np.float32)  # of which the last blocks take a part
    args = [x, memlab.out((60, 96), "f4"), 60, 96]
    launch = {"grid": (2, 2), "args": args, "DOWN": 32, "ACROSS": 64, "device": "h200"}

    run = memlab.run(examples.double_by_descriptors, **launch)

    np.testing.assert_array_equal(run.outputs["y"], 2 * x)
    assert run.measurement.counters.bulk_requests > 0
    assert memlab.check(examples.double_by_descriptors, **launch).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "flop"),
    [
        (lambda: the_matmul(np.float16, 1e-3), 2 * 130 * 256 * 192),
        (lambda: the_attention(causal=True), 2 * 2 * 2 * 256 * 256 * 64 // 2),
    ],
)
def test_products_of_warp_groups_and_mma_in_their_place(make: Any, flop: int) -> None:
    kernel, launch = make()

    for options in ({}, {"arch": "sm80"}):
        run = memlab.run(kernel, device="h100", **options, **launch)

        assert run.measurement.verification.status == "passed"
        assert ("arch=sm80" in str(run.measurement.parameters["defines"])) == bool(options)
        assert run.measurement.counters.flop_tensor_fp16 >= flop


def test_numbers_are_specialized_as_triton_does() -> None:
    """Vector loads of 16 bytes need a length that is a multiple of 16."""
    even = memlab.run(examples.add, **added(n=4096, num_warps=4))
    odd = memlab.run(examples.add, **added(n=4095, num_warps=4))

    assert even.measurement.counters.global_load_requests == 2 * 4096 // (32 * 4)
    assert odd.measurement.counters.global_load_requests == 2 * 4096 // 32
    assert even.measurement.counters.global_load_sectors == 2 * 4096 * 4 // 32


def test_a_number_that_is_one_is_compiled_in_and_passed_to_the_reference() -> None:
    seen = []

    def reference(x: Any, y: Any, z: Any, n: int) -> Any:
        seen.append(n)
        return np.concatenate([(x + y)[:1], z[1:]])

    x, y = normal(64), normal(64)
    args = [x, y, memlab.inout(np.zeros(64, "f4")), 1]
    run = memlab.run(examples.add, **added(args=args, grid=1, reference=reference))

    assert seen == [1]
    assert run.measurement.verification.status == "passed"
    assert run.measurement.resources.registers_per_thread > 0
    assert run.measurement.parameters["defines"] == "BLOCK=1024 num_warps=4 num_stages=3"


def test_an_error_of_a_reference_names_its_line() -> None:
    def reference(x: Any, y: Any, z: Any, n: int) -> Any:
        raise ValueError("not today")

    line = reference.__code__.co_firstlineno + 1
    with pytest.raises(memlab.UsageError, match=f"failed in line {line} .ValueError: not today"):
        memlab.run(examples.add, **added(reference=reference))


def test_the_options_of_a_launch_are_triton_s() -> None:
    run = memlab.run(examples.add, **added(num_warps=8, num_stages=2, maxnreg=24))

    assert run.measurement.block == (256, 1, 1)
    assert run.measurement.grid == (40, 1, 1)
    assert run.measurement.resources.registers_per_thread <= 24
    defines = "BLOCK=1024 num_warps=8 num_stages=2 maxnreg=24"
    assert run.measurement.parameters["defines"] == defines


def test_an_option_may_be_none_and_a_constant_have_the_name_of_an_option() -> None:
    launch = {"args": [memlab.out(1, "i4")], "grid": 1, "device": "a100"}

    run = memlab.run(examples.constant, shared=5, maxnreg=None, **launch)

    assert run.outputs["y"][0] == 5
    assert run.measurement.parameters["defines"] == "shared=5 num_warps=4 num_stages=3"


def test_scalars_keep_their_types_and_tuples_are_passed() -> None:
    pair = (3, np.array([2.5], "f4"))
    launch = {"args": [memlab.out(1, "f8"), True, 2**40, 2**63 + 2**20, 0.1, 1.5, pair], "grid": 1}

    run = memlab.run(examples.scalars, device="a100", **launch)

    assert run.outputs["out"][0] == 1 + 2.0**40 + (2.0**63 + 2**20) + 0.1 + 1.5 + 7.5


def test_arguments_may_be_given_by_name_and_as_texts() -> None:
    launch = added(args=["f32[N]", "f32[N]", "out:f32[N]"], grid="ceil(N/BLOCK)")
    launch |= {"n": N, "symbols": {"N": N}, "reference": lambda x, y, z, n: x + y}

    run = memlab.run(examples.add, **launch)

    assert run.measurement.grid == (40, 1, 1)
    assert run.measurement.verification.status == "passed"


def test_counters_and_findings_name_the_lines_of_the_python_file() -> None:
    run = memlab.run(examples.add, **added())
    report = memlab.check(examples.add_without_mask, **added(n=1000))

    load, store = (line for line in run.measurement.lines if line.global_sectors)
    assert load.text.strip() == (
        "total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)"
    )
    assert store.text.strip() == "tl.store(z + at, total, mask=inside)"
    assert (load.global_sectors, store.global_sectors) == (2 * N // 8, N // 8)
    finding = report.findings[0]
    assert finding.kind == "out of bounds"
    assert finding.at.text.strip() == "total = tl.load(x + at) + tl.load(y + at)"
    assert finding.element.startswith("x[1000]")


def test_the_compiler_of_a_run_is_triton() -> None:
    run = memlab.run(examples.add, **added(64))

    assert run.measurement.code.compiler == f"Triton {version('triton')}"


@pytest.mark.slow
@pytest.mark.parametrize("tile", [16, 64])
def test_the_product_of_the_lesson_is_right(tile: int) -> None:
    a, b = normal(128, 128), normal(128, 128)

    run = memlab.run(
        f"{EXAMPLES}/product_triton.py:tiled",
        args=[a, b, memlab.out(a.shape, "f4"), 128],
        grid=(128 // tile, 128 // tile),
        defines={"TILE": tile, "DEPTH": 16},
        expect={"c": a.astype("f8") @ b},
        device="h200",
    )

    found = run.measurement.verification
    assert (found.status, found.checked) == ("passed", 128 * 128), found.worst


def test_a_command_does_not_report_what_triton_leaves_at_its_end() -> None:
    words = [
        "--grid",
        "16,16",
        "-D",
        "TILE=32",
        "-D",
        "DEPTH=32",
        "--arg",
        "f32[512,512]",
        "--arg",
        "f32[512,512]",
    ]
    words += ["--arg", "out:f32[512,512]", "--arg", "512", "--no-store", "--json"]
    done = subprocess.run(
        [Path(sys.executable).with_name("memlab"), "run", "product_triton.py:tiled", *words],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "leaked" not in done.stderr


def test_other_functions_take_triton_kernels() -> None:
    launch = added()

    assert memlab.analyze(examples.add, **launch).kernel.endswith("triton_examples.py:add")
    assert memlab.trace(examples.add, **launch).followed
    assert memlab.occupancy(examples.add, **launch).blocks_per_sm == 16
    assert memlab.sass(examples.add, **launch).instructions


def test_a_configuration_is_chosen_by_number_text_and_settings() -> None:
    launch: dict[str, Any] = {"args": [normal(N), memlab.out(N, "f4"), N], "device": "a100"}
    launch |= {"grid": grid_over("n", "BLOCK"), "reference": lambda x, y, n: x.astype("f8") + 1}

    with pytest.warns(memlab.MemlabWarning, match="has 4 configurations.*'BLOCK=256 num_warps=2'"):
        first = memlab.run(examples.tuned, **launch)
    last = memlab.run(examples.tuned, config=3, **launch)
    second = memlab.run(examples.tuned, config="BLOCK=256 num_warps=4", **launch)
    own = memlab.run(examples.tuned, BLOCK=2048, num_warps=1, **launch)

    chosen = [
        (run.measurement.grid[0], run.measurement.block[0]) for run in (first, last, second, own)
    ]
    assert chosen == [(157, 64), (79, 128), (157, 128), (20, 32)]
    defines = "BLOCK=512 EVEN=False num_warps=4 num_stages=3"  # 40000 is no multiple of 512
    assert last.measurement.parameters["defines"] == defines
    for run in (first, last, second, own):
        assert run.measurement.verification.status == "passed"


def test_a_sweep_runs_all_configurations_and_lists_of_constants() -> None:
    launch: dict[str, Any] = {"args": [normal(N), memlab.out(N, "f4"), N], "device": "a100"}
    grid = grid_over("n", "BLOCK")

    tuned = memlab.sweep(examples.tuned, grid=grid, **launch)
    pinned = memlab.sweep(examples.tuned, grid=grid, BLOCK=[256, 2048], num_warps=4, **launch)
    listed = memlab.sweep(examples.add, **added(BLOCK=[256, 1024], num_warps=[2, 4, 8]))

    assert {row.values["config"] for row in tuned.rows} == {
        f"BLOCK={block} num_warps={warps}" for block in (256, 512) for warps in (2, 4)
    }
    assert sorted(row.values["BLOCK"] for row in pinned.rows) == [256, 2048]
    assert {(row.values["BLOCK"], row.values["num_warps"]) for row in listed.rows} == {
        (block, warps) for block in (256, 1024) for warps in (2, 4, 8)
    }
    assert all(row.status == "done" for row in (*tuned.rows, *listed.rows))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"BLOCK": 1000}, r"range must be a power of 2 in 'at = tl\.program_id"),
        ({"BLOCK": None}, r"does not compile add"),
        ({"args": ["f32[64]"]}, r"add lacks y, z, n: give arguments"),
        ({"args": ["f32[64]"] * 6}, r"takes 5 arguments \(x, y, z, n, BLOCK\), got 6"),
        ({"x": 1}, r"x is given in args and by its name"),
        ({"num_warp": 4}, r"num_warp was specified but unrecognised"),
        ({"num_warps": 3}, r"power of 2"),
        ({"num_ctas": 2, "device": "h100"}, r"num_ctas=2, and clusters of blocks"),
        ({"block": 256}, r"takes no block: leave it out \(num_warps sets"),
        ({"use_fast_math": True}, r"takes no use_fast_math"),
        ({"config": 0}, r"triton\.autotune's, and the kernel has none"),
        ({"grid": lambda meta: meta["WIDTH"]}, r"function grid failed \(KeyError: 'WIDTH'\)"),
        ({"args": [5, "f32[64]", "f32[64]", 64]}, r"Unsupported ptr type"),
        ({"args": ["struct=@x.npy", "f32[64]", "f32[64]", 64]}, r"argument x: Triton takes arrays"),
    ],
)
def test_a_mistake_is_named_in_one_line(changes: dict[str, Any], message: str) -> None:
    before = dict(vars(driver))

    with pytest.raises(memlab.UsageError, match=message) as raised:
        memlab.run(examples.add, **added(**changes))

    assert "\n" not in str(raised.value)
    assert dict(vars(driver)) == before


def test_an_unknown_configuration_is_refused() -> None:
    launch: dict[str, Any] = {"args": [normal(64), memlab.out(64, "f4"), 64], "grid": 1}
    for config in (4, -1, "BLOCK=1", True):
        with pytest.raises(memlab.UsageError, match="number of a configuration, 0 to 3"):
            memlab.run(examples.tuned, config=config, **launch)


def test_interpreted_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    interpreted = sys.modules["triton"].jit(examples.add.fn)

    with pytest.raises(memlab.UsageError, match="unset TRITON_INTERPRET"):
        memlab.run(interpreted, **added())


def test_kernels_without_a_file_keep_their_lines() -> None:
    """A cell of a notebook is known to Python's line cache alone."""
    import linecache

    text = "@triton.jit\ndef cell(y):\n    tl.store(y, 7.0)\n"
    name = "/nowhere/ipykernel_1/42.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"triton": sys.modules["triton"], "tl": examples.tl}
    exec(compile(text, name, "exec"), space)

    run = memlab.run(space["cell"], device="a100", grid=1, args=[memlab.out(1, "f4")])

    assert run.outputs["y"][0] == 7
    assert run.measurement.kernel == "cell"
    (line,) = (line for line in run.measurement.lines if line.global_sectors)
    assert (line.line, line.text.strip()) == (3, "tl.store(y, 7.0)")


@pytest.mark.parametrize("number", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_floats_of_8_bits(number: str) -> None:
    """Ada keeps 13 binary places of such a sum: the output is no product in float32."""
    a, b = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.dtype(number))
    run = memlab.run(
        examples.product_of_bytes,
        grid=1,
        args=[a.view("u1"), b.view("u1"), memlab.out((64, 64), "f4")],
        IS_E4M3=number == "float8_e4m3fn",
        device="rtx4090",
    )
    left, right, zeros = a.astype("f8")[None], b.astype("f8")[None], np.zeros((1, 64, 64))
    types = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[number]
    expected = older_sum(left, right, zeros, (types, types, "f32"))
    np.testing.assert_array_equal(run.outputs["c"], expected[0])
    assert run.measurement.counters.flop_tensor_fp8 == 2 * 64**3
