"""The matmul ladder: right results at any size, and the savings of each step."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from machine_code import accesses, opcodes

from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits, open_device
from memlab.device.emulation import counting
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.measurement import Measurement
from memlab.errors import DeviceError, UsageError
from memlab.kernels import cublas
from memlab.kernels.catalog import CATALOG
from memlab.kernels.kernel import Limits
from memlab.kernels.ladder import tensor_tolerance
from memlab.kernels.launch import Launch
from memlab.roofline.ceilings import ceilings
from memlab.roofline.placement import place_measurement

H200 = open_device("h200")
FLOAT_STEPS = [
    "coarsened",
    "register-tiled-1d",
    "register-tiled-2d",
    "vectorized",
    "double-buffered",
    "warp-tiled",
]
TENSOR_STEPS = ["tensor-tf32", "tensor-fp16", "tensor-bf16"]

# Parameters with several blocks, warps and partly filled tiles in small matrices.
SMALL: dict[str, list[dict[str, int]]] = {
    "coarsened": [{}, {"tile": 8, "per_thread": 3}, {"tile": 32, "per_thread": 1}],
    "register-tiled-1d": [{}, {"tile": 32, "per_thread": 4}, {"tile": 18, "per_thread": 6}],
    "register-tiled-2d": [{}, {"tile": 32, "per_thread": 4}, {"tile": 21, "per_thread": 3}],
    "vectorized": [{}, {"tile": 32, "per_thread": 4}, {"tile": 36, "per_thread": 12}],
    "double-buffered": [{}, {"tile": 32, "per_thread": 4}, {"tile": 36, "per_thread": 12}],
    "warp-tiled": [{}],
    **{name: [{}, {"tile": 64}] for name in TENSOR_STEPS},
}
# In the last, rows of M and N are aligned for wide loads and still end inside a tile.
SIZES = [(1, 1, 1), (31, 31, 31), (33, 33, 33), (100, 57, 75), (70, 56, 72)]


def prepare(name: str, device: Any = H200, **values: int) -> Launch:
    return CATALOG[name].prepare(values, launch_limits(device.properties))


def exact(matrix: Any, name: str) -> Any:
    """A matrix in the tensor cores' type as float64; TF32 is rounded by arithmetic, not bits."""
    wide = matrix.astype(np.float64)
    if name != "tensor-tf32":
        return wide
    fraction, exponent = np.frexp(wide)
    return np.ldexp(np.floor(fraction * 2**11 + 0.5), exponent - 11)


CASES = [
    pytest.param(name, parameters, sizes, marks=[pytest.mark.slow] if number else [])
    for name, several in SMALL.items()
    for number, parameters in enumerate(several)
    for sizes in (SIZES[3:], SIZES, SIZES[4:])[number]
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters", "sizes"), CASES, ids=str)
def test_products_of_any_size_are_those_of_numpy(
    name: str, parameters: dict[str, int], sizes: tuple[int, int, int], arrays: dict[str, Any]
) -> None:
    m, k, n = sizes
    measurement = H200.run(prepare(name, m=m, k=k, n=n, **parameters), seed=7)

    product = exact(arrays["M"], name) @ exact(arrays["N"], name)
    np.testing.assert_allclose(arrays["P"], product, rtol=2e-6)
    assert len(np.unique(arrays["M"])) > min(0.9 * m * k, 300)
    assert measurement.verification.status == "passed"
    assert measurement.verification.checked == m * n


@pytest.mark.parametrize("capability", [(7, 5), (8, 6), (12, 0)])
@pytest.mark.parametrize("name", [*FLOAT_STEPS, *TENSOR_STEPS])
def test_code_for_every_architecture_computes_the_same(
    name: str, capability: tuple[int, int]
) -> None:
    if capability < (8, 0) and name in ("tensor-tf32", "tensor-bf16", "warp-tiled"):
        pytest.skip("compute capability 7.5 has tensor cores for FP16 only, and no cp.async")
    properties = replace(H200.properties, compute_capability=capability)
    device = EmulatedDevice("h200", properties)

    assert device.run(prepare(name, m=70, k=57, n=67), seed=2).verification.status == "passed"


# Hand-counted, for each warp-wide FMA (64 FLOPs; R elements per thread; a 4-byte access of 32
# neighbors or a broadcast is one wavefront, a 16-byte one at least two):
STEPS = {
    # 4 along k: M 1 x 16 bytes (2 wavefronts), N 4 x 1; 4 FMAs.
    "tiled": ({"tile": 16}, 6 / 4, 5 / 4),
    # 4 along k: M 1 x 16 bytes (2), N 4 x 4; 16 FMAs.
    "coarsened": ({"tile": 16, "per_thread": 4}, 18 / 16, 17 / 16),
    # 4 along k: M 8 x 16 bytes (16), N 4; 32 FMAs.
    "register-tiled-1d": ({"tile": 64, "per_thread": 8}, 20 / 32, 12 / 32),
    # M 8, N 8; 64 FMAs.
    "register-tiled-2d": ({"tile": 128, "per_thread": 8}, 16 / 64, 16 / 64),
    # M 2 x 16 bytes: half a warp has one row, a broadcast (2 each). N 2 x 16 bytes: half a warp
    # has 16 neighbors, 256 bytes (4 each). 64 FMAs.
    "vectorized": ({"tile": 128, "per_thread": 8}, 12 / 64, 4 / 64),
    "double-buffered": ({"tile": 128, "per_thread": 8}, 12 / 64, 4 / 64),
    # M 4 x 16 bytes, 8 neighbors read the same (2 each). N 2 x 16 bytes: each quarter of a warp has
    # 8 neighbors (4 each). 128 FMAs.
    # And once for each sum, on its way to P: with k = 64, a word for 64 FMAs.
    "warp-tiled": ({"n": 256}, 16 / 128 + 1 / 64, 6 / 128 + 1 / 64),
    # A step of 8 along k: M 4 matrices of 512 bytes (4 each), N 8 x 4 bytes; 16 mma of 32 FMAs.
    "tensor-tf32": ({"tile": 128}, 24 / (16 * 32), 12 / (16 * 32)),
    # A step of 16 along k: M 4 and N 2 matrices of 512 bytes; 16 mma of 64 FMAs.
    "tensor-fp16": ({"tile": 128}, 24 / (16 * 64), 6 / (16 * 64)),
    "tensor-bf16": ({"tile": 128}, 24 / (16 * 64), 6 / (16 * 64)),
}


@pytest.fixture(scope="module")
def climbed() -> dict[str, Measurement]:
    """Every step with whole tiles, without padding."""
    return {
        name: H200.run(prepare(name, **{"m": 128, "k": 64, "n": 128, **parameters}), seed=1)
        for name, (parameters, _, _) in STEPS.items()
    }


def test_shared_loads_are_those_counted_by_hand(climbed: dict[str, Measurement]) -> None:
    for name, (_, wavefronts, instructions) in STEPS.items():
        measurement = climbed[name]
        fmas = measurement.flop / 64
        assert measurement.counters.shared_load_wavefronts / fmas == wavefronts, name
        assert measurement.counters.shared_load_instructions / fmas == instructions, name
        assert measurement.counters.shared_excessive_wavefronts == 0, name


def test_each_step_asks_no_more_of_shared_memory_than_the_one_before(
    climbed: dict[str, Measurement],
) -> None:
    order = [climbed[name] for name in STEPS if name != "tensor-bf16"]
    counted = [(measurement.counters, measurement.flop) for measurement in order]
    wavefronts = [counters.shared_load_wavefronts / flop for counters, flop in counted]
    instructions = [counters.shared_load_instructions / flop for counters, flop in counted]
    assert wavefronts == sorted(wavefronts, reverse=True)
    assert instructions == sorted(instructions, reverse=True)
    assert len(set(wavefronts)) == len(wavefronts) - 1  # double-buffered hides latency alone


def test_flops_are_counted_where_they_are_done(climbed: dict[str, Measurement]) -> None:
    for name, measurement in climbed.items():
        pipe = f"flop_{name.replace('-', '_')}" if name in TENSOR_STEPS else "flop_fp32"
        counted = {
            field: value
            for field, value in vars(measurement.counters).items()
            if field.startswith("flop") and value
        }
        columns = STEPS[name][0].get("n", 128)
        assert counted == {pipe: 2 * 128 * 64 * columns}, name
        assert sum(line.flop for line in measurement.lines) == measurement.flop


def test_the_tensor_peak_is_the_roof_of_a_tensor_kernel(climbed: dict[str, Measurement]) -> None:
    # The counters of a small launch, with enough work to exceed every memory ceiling.
    measurement = climbed["tensor-fp16"]
    heavy = replace(measurement, flop=10**6 * measurement.flop)
    placement = place_measurement(heavy, ceilings(H200.properties))

    assert placement.ceiling == "fp16"
    assert placement.ceiling_flop_per_s == pytest.approx(989.4e12)
    assert "fp16" in measurement.time.bounds_s
    assert "tf32" not in measurement.time.bounds_s


def test_fewer_blocks_of_expensive_launches_are_sampled_and_count_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = prepare("vectorized", m=190, k=30, n=220, tile=32, per_thread=4)
    whole = H200.run(launch, seed=1)
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    sampled = H200.run(launch, seed=1)
    monkeypatch.setattr(counting, "SAMPLE_LANE_INSTRUCTIONS", 1)
    least = H200.run(launch, seed=1)

    assert whole.coverage.blocks_emulated == 6 * 7
    assert sampled.coverage.blocks_emulated == 4 + 4 * 4 + 16  # corners, edges, interior
    assert least.coverage.blocks_emulated == 4 + 4 + 1
    assert whole.counters == sampled.counters == least.counters


FFMA, HMMA = 0x023, 0x03C  # as nvdisasm prints 0x...7223 and 0x...723c


@pytest.mark.parametrize("architecture", [(7, 5), (8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize(
    ("name", "shared_load_bytes", "unit", "in_a_phase"),
    [
        ("coarsened", {4, 16}, FFMA, 16 * 4),
        ("register-tiled-1d", {4, 16}, FFMA, 8 * 8),
        ("register-tiled-2d", None, FFMA, 8 * 8),
        ("vectorized", {16}, FFMA, 8 * 8),
        ("double-buffered", {16}, FFMA, 8 * 8),
        ("tensor-fp16", {16}, HMMA, 2 * 16),
    ],
)
def test_machine_code_is_what_the_step_promises(
    name: str,
    shared_load_bytes: set[int] | None,
    unit: int,
    in_a_phase: int,
    architecture: tuple[int, int],
) -> None:
    launch = prepare(name)
    compiled = compile_launch(launch, architecture)
    made = accesses(compiled.cubin, launch.entry)
    widths = {width_bytes for kind, width_bytes in made if kind == "shared_load"}
    found = opcodes(compiled.cubin, launch.entry).count(unit)

    assert found
    assert found % in_a_phase == 0  # whole inner products, unrolled or not
    assert shared_load_bytes in (None, widths)
    assert compiled.resources.local_bytes_per_thread == 0
    if name in ("vectorized", "double-buffered", "tensor-fp16"):
        assert ("global_load", 16) in made


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "coarsened",
            {"tile": 64},
            "tile 64 with --per-thread 4 needs 4096 threads per block; NVIDIA H200 allows 1024: "
            "use --tile 32 or less",
        ),
        (
            "coarsened",
            {"tile": 32, "per_thread": 32},
            "tile 32 with --per-thread 32 needs 135168 bytes of shared memory per block; "
            "NVIDIA H200 allows 49152: use --tile 19 or less",
        ),
        (
            "register-tiled-1d",
            {"tile": 100},
            "tile 100 with --per-thread 8 must be a multiple of 8: use --tile 88, or any of 8 to "
            "88 in steps of 8",
        ),
        (
            "register-tiled-2d",
            {"tile": 100},
            "tile 100 with --per-thread 8 must be a multiple of 8: use --tile 96 or 104, or "
            "any of 8 to 256 in steps of 8",
        ),
        (
            "vectorized",
            {"per_thread": 6},
            "vectorized moves 4 elements at a time, got --per-thread 6: use --per-thread 4, 8, "
            "12 or 16",
        ),
        (
            "double-buffered",
            {"tile": 512, "per_thread": 16},
            "tile 512 with --per-thread 16 needs 65792 bytes of shared memory per block; NVIDIA "
            "H200 allows 49152: use --tile 368, or any of 16 to 368 in steps of 16",
        ),
        (
            "tensor-bf16",
            {"tile": 100},
            "tile 100 must be a multiple of 64: use --tile 64 or 128, or any of 64 to 256 "
            "in steps of 64",
        ),
        (
            "register-tiled-2d",
            {"per_thread": 17},
            "per-thread must be at most 16, got 17: use 1 to 16",
        ),
    ],
)
def test_what_does_not_suit_a_step_is_refused(
    name: str, values: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        prepare(name, **values)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        (
            "tensor-tf32",
            "t4",
            "tensor-tf32 needs compute capability 8.0 or later (mma.sync on TF32); Tesla T4 has "
            "7.5: use tensor-fp16, or --device a100",
        ),
        (
            "tensor-fp16",
            "old",
            "tensor-fp16 needs compute capability 7.5 or later (mma.sync on FP16); old has 6.1: "
            "use --device a100",
        ),
    ],
)
def test_a_device_without_the_tensor_cores_is_refused(name: str, device: str, message: str) -> None:
    allowed = (
        Limits("old", compute_capability=(6, 1))
        if device == "old"
        else launch_limits(open_device(device).properties)
    )
    with pytest.raises(UsageError) as refusal:
        CATALOG[name].prepare({}, allowed)
    assert str(refusal.value) == message


def test_recorded_parameters_give_the_same_launch_again() -> None:
    for name in [*FLOAT_STEPS, *TENSOR_STEPS]:
        first = prepare(name, width=100, n=7, **SMALL[name][-1])
        again = prepare(name, **first.parameters)  # type: ignore[arg-type]
        assert (again.grid, again.block, again.defines) == (first.grid, first.block, first.defines)


def test_narrow_inputs_halve_the_compulsory_bytes() -> None:
    assert prepare("tensor-tf32", m=2, k=3, n=4).compulsory_bytes == 4 * (6 + 12 + 8)
    assert prepare("tensor-fp16", m=2, k=3, n=4).compulsory_bytes == 2 * (6 + 12) + 4 * 8


def test_tensor_tolerance_lies_between_truncation_and_a_lost_term() -> None:
    """Truncation after every 4 products is within the tolerance; the loss of a term is not."""
    rng = np.random.default_rng(11)
    for k in (4, 57, 1024, 4096):
        terms = np.pad(rng.random((200, k)) * rng.random((200, k)), ((0, 0), (0, -k % 4)))
        total = np.zeros(200, np.float32)
        for four in np.split(terms, terms.shape[1] // 4, axis=1):
            kept = total + four.sum(axis=1)
            total = kept.astype(np.float32)
            total = np.where(total > kept, np.nextafter(total, np.float32(0)), total)
        sums = terms.sum(axis=1)
        assert np.max(np.abs(total - sums) / sums) < tensor_tolerance(k)
        assert np.median(terms[:, 0] / sums) > tensor_tolerance(k)


# --- cuBLAS --------------------------------------------------------------------------------


class HostCublas(ModuleType):
    """Replaces nvmath's binding: column-major GEMM as in cuBLAS's manual, in host memory."""

    handles = 0

    class ComputeType:
        """Looked up by name, like an enumeration."""

        def __class_getitem__(cls, name: str) -> str:
            return name

    class Operation:
        N = 0

    class GemmAlgo:
        DEFAULT = -1

    def create(self) -> int:
        self.handles += 1
        return 77

    def destroy(self, handle: int) -> None:
        self.handles -= 1

    def set_stream(self, handle: int, stream: int) -> None:
        assert (handle, stream) == (77, 5)

    def gemm_ex(
        self, handle: int, op_a: int, op_b: int, m: int, n: int, k: int, alpha: int, a: int,
        a_type: int, lda: int, b: int, b_type: int, ldb: int, beta: int, c: int, c_type: int,
        ldc: int, compute: str, algorithm: int,
    ) -> None:  # fmt: skip
        def column_major(address: int, rows: int, columns: int, leading: int, kind: int) -> Any:
            element = {0: np.float32, 2: np.float16}[kind]
            size = leading * columns * np.dtype(element).itemsize
            raw = (ctypes.c_char * size).from_address(address)
            return np.frombuffer(raw, element).reshape(columns, leading).T[:rows]

        self.compute = compute
        scale = column_major(alpha, 1, 1, 1, 0)[0, 0]
        result = column_major(c, m, n, ldc, c_type)
        assert column_major(beta, 1, 1, 1, 0)[0, 0] == 0
        result[:] = (
            scale
            * column_major(a, m, k, lda, a_type).astype(np.float64)
            @ column_major(b, k, n, ldb, b_type).astype(np.float64)
        )


@pytest.mark.parametrize(
    ("name", "dtype", "compute"),
    [
        ("naive", np.float32, "COMPUTE_32F"),
        ("tensor-tf32", np.float32, "COMPUTE_32F_FAST_TF32"),
        ("tensor-fp16", np.float16, "COMPUTE_32F"),
    ],
)
def test_cublas_is_asked_for_the_same_product(
    name: str, dtype: Any, compute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostCublas("cublas")
    bindings = ModuleType("nvmath.bindings")
    bindings.cublas = host  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvmath", ModuleType("nvmath"))
    monkeypatch.setitem(sys.modules, "nvmath.bindings", bindings)
    rng = np.random.default_rng(4)
    left, right = rng.random((3, 5)).astype(dtype), rng.random((5, 7)).astype(dtype)
    product = np.full((3, 7), np.nan, np.float32)
    addresses = {"M": left.ctypes.data, "N": right.ctypes.data, "P": product.ctypes.data}

    with cublas.prepare_gemm(prepare(name, m=3, k=5, n=7), addresses, stream=5) as once:
        once()

    np.testing.assert_allclose(product, left.astype(float) @ right.astype(float), rtol=1e-6)
    assert host.compute == compute
    assert host.handles == 0


def test_without_cublas_it_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvmath", None)

    with (
        pytest.raises(DeviceError, match=r"cuBLAS is not available .*pip install 'memlab"),
        cublas.prepare_gemm(prepare("naive"), {}),
    ):
        pass
