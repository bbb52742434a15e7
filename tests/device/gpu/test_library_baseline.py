"""The cuBLAS baseline: the same product on a GPU, and the message without one."""

import sys

import pytest

from memlab.device.devices import launch_limits, open_device
from memlab.device.gpu.library_baseline import measure_baseline
from memlab.device.gpu.timing import TimingSettings
from memlab.errors import DeviceError
from memlab.kernels.catalog import find_kernel

QUICK = TimingSettings(samples=5, settle_s=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["vectorized", "tensor-tf32", "tensor-fp16", "tensor-bf16"])
def test_cublas_computes_the_same_product_on_a_gpu(name: str) -> None:
    pytest.importorskip("nvmath")
    device = open_device("0")
    launch = find_kernel(name).prepare(
        {"m": 200, "k": 128, "n": 72}, launch_limits(device.properties)
    )

    bar = measure_baseline(0, launch, seed=3, settings=QUICK)

    assert bar.verification.status == "passed"
    assert bar.flop_per_s == launch.flop / bar.time.median_s > 0


def test_without_a_gpu_it_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    launch = find_kernel("naive").prepare(
        {"width": 8}, launch_limits(open_device("h200").properties)
    )
    try:
        open_device("0")
    except DeviceError:
        with pytest.raises(DeviceError):
            measure_baseline(0, launch, seed=3, settings=QUICK)
    else:
        pytest.skip("there is a GPU here")
