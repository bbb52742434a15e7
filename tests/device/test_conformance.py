"""One suite of tests for all devices, emulated or real."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memlab.device.devices import Device, launch_limits, open_device
from memlab.device.gpu.timing import TimingSettings
from memlab.device.measurement import Measurement
from memlab.device.properties import known_figures
from memlab.errors import DeviceError, MemlabError
from memlab.kernels.catalog import CATALOG, find_kernel
from memlab.kernels.launch import (
    Arange,
    Buffer,
    Constant,
    Launch,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    Uniform,
)

DEVICES = (
    "h200",
    pytest.param("rtx3070", marks=pytest.mark.slow),
    pytest.param("cuda:0", marks=pytest.mark.gpu),
)

SLOW_KERNELS = (
    *("attention-mma", "attention-tiled", "attention-wgmma", "blur-vectorized", "tensor-bf16"),
    *("tensor-tf32", "warp-tiled", "wgmma-overlapped", "wgmma-tf32"),
)
"""Kernels whose emulation takes seconds at the sizes of the tests."""
QUICK = TimingSettings(samples=5, settle_s=0.02)

STORE = "P[row * n + column] = sum;"
OUT_OF_BOUNDS = "P[(1LL << 40) + row * n + column] = sum;"
MISALIGNED = "*(double*)((char*)P + 4 * (2 * (row * n + column) / 2) + 2) = sum;"
WRONG = {
    "a sum that stops early": ("i < k;", "i < k - 1;"),
    "an element left out": (STORE, "if (row + column) " + STORE),
    "a wrong index": ("N[i * n + column]", "N[i * n + row]"),
}


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param, QUICK)


def launch(device: Device, kernel: str = "naive", **parameters: int) -> Launch:
    return find_kernel(kernel).prepare(parameters, launch_limits(device.properties))


def broken(device: Device, old: str, new: str) -> Launch:
    sound = launch(device, m=33, k=40, n=35)
    assert old in sound.source
    return replace(sound, source=sound.source.replace(old, new))


@pytest.fixture(scope="module")
def measurement(device: Device) -> Measurement:
    return device.run(launch(device, "tiled", width=128), seed=1)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (31, 33, 100), (100, 57, 75)], ids=str)
@pytest.mark.parametrize("kernel", ["naive", "tiled", "tiled-dynamic"])
def test_odd_sizes_verify(device: Device, kernel: str, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    verification = device.run(launch(device, kernel, m=m, k=k, n=n), seed=2).verification

    assert verification.status == "passed"
    assert verification.checked == verification.total == m * n


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW_KERNELS)) for name in CATALOG],
)
def test_every_kernel_verifies(device: Device, kernel: str) -> None:
    names = {parameter.name for parameter in CATALOG[kernel].parameters}
    small = {"width": 128} if "width" in names else {"n": 4096}
    small = {"tokens": 150, "heads": 2} if "tokens" in names else small
    sized = {**small, "height": 96} if "height" in names else small
    if "wgmma" in kernel and device.properties.compute_capability != (9, 0):
        pytest.skip("wgmma is of compute capability 9.0 alone")

    assert device.run(launch(device, kernel, **sized), seed=3).verification.status == "passed"


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_fails_verification(device: Device, fault: str) -> None:
    assert device.run(broken(device, *WRONG[fault]), seed=4).verification.status == "failed"


@pytest.mark.parametrize(
    ("fault", "named"),
    [(OUT_OF_BOUNDS, "illegal.address"), (MISALIGNED, "misaligned.address")],
    ids=["out of bounds", "misaligned"],
)
def test_a_fault_is_one_error_and_the_next_run_works(
    device: Device, fault: str, named: str
) -> None:
    with pytest.raises(MemlabError, match=f"(?i){named}"):
        device.run(broken(device, STORE, fault), seed=5)

    assert device.run(launch(device, m=33, k=40, n=35), seed=5).verification.status == "passed"


OWN = """
__constant__ float weight[4];
__device__ unsigned int offset[2];

extern "C" __global__ void own(unsigned short scale, const int *x, float *y, double *z, int n,
                               unsigned short shift, bool shifted) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = y[i] * __uint_as_float(scale << 16) + weight[i % 4];  // scale is a bfloat16
    float half;
    asm("cvt.f32.f16 %0, %1;" : "=f"(half) : "h"(shift));
    if (shifted) y[i] += half;
    z[i] = (double)x[i] + offset[i % 2];
}
"""


def own_launch(n: int) -> Launch:
    """A launch unlike those of the catalog: several outputs, one of them read and overwritten."""
    at: dict[str, Any] = {
        "y": lambda inputs, i: inputs["y"][i] * 1.5 + inputs["weight"][i % 4] + 0.25,
        "z": lambda inputs, i: inputs["x"][i].astype(float) + inputs["offset"][i % 2],
    }
    return Launch(
        kernel="own",
        parameters={},
        source=OWN,
        source_name="own.cu",
        entry="own",
        defines={},
        grid=(-(-n // 128), 1, 1),
        block=(128, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(
            Scalar("scale", "bfloat16", 1.5),
            Buffer("x", (n,), "int32", "in", Arange()),
            Buffer("y", (n,), "float32", "inout", Uniform(1.0, 2.0)),
            Buffer("z", (n,), "float64", "out"),
            Scalar("n", "int32", n),
            Scalar("shift", "float16", 0.25),
            Scalar("shifted", "bool", 1),
        ),
        flop=None,
        compulsory_bytes=(4 + 2 * 4 + 8) * n,
        references=at,
        tolerance=1e-6,
        constants=(
            Constant("weight", (4,), "float32"),
            Constant("offset", (2,), "uint32", SingleValue(7)),
        ),
    )


def test_outputs_of_all_types_verify(device: Device) -> None:
    verification = device.run(own_launch(1000), seed=6).verification

    assert verification.status == "passed"
    assert verification.checked == verification.total == 2000


PASSED = """
struct Empty {};
struct Mixed { short s; double d; bool b; };
extern "C" __global__ void passed(
    char a, Empty, float3 f, const float* nothing, Mixed m, bool t, float4 v, double* y) {
  double all[] = {double(a), f.x, f.y, f.z, nothing ? 1. : 7., double(m.s), m.d, double(m.b),
                  double(t), v.x, v.y, v.z, v.w};
  for (int i = 0; i < 13; ++i) y[i] = all[i];
}
"""


def test_structures_and_null_pointers_are_passed(device: Device) -> None:
    def structure(name: str, size: int, alignment: int, *members: Any) -> Structure:
        listed = tuple((at, Scalar(name, dtype, value)) for at, dtype, value in members)
        return Structure(name, size, alignment, listed)

    passed = replace(
        own_launch(1),
        kernel="passed",
        entry="passed",
        source=PASSED,
        grid=(1, 1, 1),
        block=(1, 1, 1),
        arguments=(
            Scalar("a", "int8", -5),
            structure("empty", 1, 1),
            structure("f", 12, 4, *((4 * i, "float32", i + 0.5) for i in range(3))),
            NullPointer("nothing"),
            structure("m", 24, 8, (0, "int16", -9), (8, "float64", 2.25), (16, "bool", 1)),
            Scalar("t", "bool", 1),
            structure("v", 16, 16, *((4 * i, "float32", 10 + i) for i in range(4))),
            Buffer("y", (13,), "float64", "out"),
        ),
        constants=(),
        references={
            "y": lambda inputs, at: np.array(
                [-5, 0.5, 1.5, 2.5, 7, -9, 2.25, 1, 1, 10, 11, 12, 13]
            )[at]
        },
    )

    assert device.run(passed, seed=6).verification.status == "passed"


@pytest.mark.parametrize(("old", "new"), [("y[i] *", "x[i] *"), ("offset[i % 2]", "offset[0] + 1")])
def test_one_wrong_output_of_several_fails(device: Device, old: str, new: str) -> None:
    wrong = replace(own_launch(1000), source=OWN.replace(old, new))

    assert device.run(wrong, seed=6).verification.status == "failed"


def test_undeclared_flops_are_the_executed_ones(device: Device) -> None:
    assert device.run(own_launch(1000), seed=6).flop == 4 * 1000  # an FMA and two additions each


def test_shared_memory_beyond_48_kib_is_available(device: Device) -> None:
    sound = launch(device, "tiled-dynamic", width=64, tile=16)
    granted = replace(sound, dynamic_shared_bytes=64 * 1024)

    assert device.run(granted, seed=6).verification.status == "passed"


def test_a_run_records_its_device_and_its_time(device: Device, measurement: Measurement) -> None:
    time = measurement.time

    assert measurement.device.key == device.key
    assert measurement.device.kind == device.kind
    assert measurement.device.name == device.properties.name
    assert 1e-7 < time.median_s < 1e-2
    assert time.provenance == ("measured" if device.kind == "cuda" else "modelled")


def test_counts_are_reproducible(device: Device, measurement: Measurement) -> None:
    again = device.run(launch(device, "tiled", width=128), seed=1)

    assert again.counters == measurement.counters
    if device.kind == "emulated":  # how well times on a GPU repeat, benchmarks.gpu measures
        assert again.time == measurement.time


def test_the_properties_a_launch_depends_on_are_known(device: Device) -> None:
    known = known_figures(device.properties)

    assert {
        "total_memory_bytes",
        "multiprocessor_count",
        "clock_rate_hz",
        "l2_cache_bytes",
        "max_threads_per_block",
        "max_shared_memory_per_block_bytes",
        "max_registers_per_multiprocessor",
        "fp32_lanes_per_sm",
    } <= set(known)
    assert set(device.properties.sources) >= set(known) - {"warp_size"}


def test_the_command_writes_only_json(device: Device) -> None:
    words = ["run", "naive", "--width", "40", "--json", "--no-store", "--device", device.key]
    done = subprocess.run(
        [sys.executable, "-c", "from memlab.cli.app import main; raise SystemExit(main())", *words],
        check=False,
        capture_output=True,
        text=True,
    )
    document = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert document["device"]["kind"] == device.kind
    assert document["verification"]["status"] == "passed"
    assert document["time"]["median_s"] > 0


@pytest.mark.gpu
def test_an_endless_kernel_is_stopped_and_the_gpu_still_works() -> None:
    from memlab.device.gpu.device import CudaDevice

    device = CudaDevice(0, replace(QUICK, timeout_s=1))
    endless = broken(device, "float sum = 0.0f;", "float sum = 0; while (*(volatile int*)P != 5);")
    with pytest.raises(MemlabError, match="naive did not end within 1 s"):
        device.run(endless, seed=7)

    assert device.run(launch(device, width=40), seed=7).verification.status == "passed"


@pytest.mark.gpu
def test_the_message_for_a_missing_gpu_names_the_existing_ones() -> None:
    with pytest.raises(DeviceError, match="there is no GPU 99; CUDA shows cuda:0"):
        open_device("99")
