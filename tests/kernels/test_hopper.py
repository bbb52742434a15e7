"""The launches of the matrix products on Hopper's tensor cores."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits, open_device
from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import TensorMap

H200 = launch_limits(open_device("h200").properties)
STEPS = [name for name in CATALOG if name.startswith("wgmma")]
PERSISTENT = [
    *("wgmma-persistent", "wgmma-cluster", "wgmma-pingpong", "wgmma-overlapped", "wgmma-tf32"),
]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("size", ["k", "n"])
def test_rows_that_the_copy_engine_cannot_address_are_refused(name: str, size: str) -> None:
    allowed = 68 if name == "wgmma-tf32" else 72
    message = f"{size} is a multiple .* got {allowed - 2}: use --{size} {allowed}, "

    with pytest.raises(UsageError, match=message):
        CATALOG[name].prepare({"width": 64, size: allowed - 2}, H200)
    CATALOG[name].prepare({"width": 64, size: allowed, "m": 57}, H200)


@pytest.mark.parametrize("name", STEPS)
def test_other_gpus_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"needs compute capability 9\.0 .*wgmma"):
        CATALOG[name].prepare({}, launch_limits(open_device("a100").properties))


@pytest.mark.parametrize("name", PERSISTENT)
def test_persistent_grid_fills_the_device_and_no_more(name: str) -> None:
    large, small = (CATALOG[name].prepare({"width": width}, H200) for width in (8192, 256))
    odd = CATALOG[name].prepare({"width": 8192}, replace(H200, multiprocessor_count=7))

    blocks = large.cluster_blocks
    assert large.grid == (132, 1, 1)
    assert small.blocks in (2, 4)
    assert small.blocks % blocks == 0
    assert odd.blocks == 7 // blocks * blocks


@pytest.mark.parametrize("name", STEPS)
def test_shared_memory_fits_the_device(name: str) -> None:
    launch = CATALOG[name].prepare({}, H200)

    assert launch.dynamic_shared_bytes <= H200.max_shared_memory_per_block_optin_bytes


@pytest.mark.parametrize("name", STEPS)
def test_the_compiler_lets_products_overlap(name: str) -> None:
    """Where ptxas cannot keep sums in place, it serializes wgmma and only says so (C7510 on)."""
    compiled = compile_launch(CATALOG[name].prepare({}, H200), (9, 0))

    assert "C75" not in compiled.log
    assert compiled.resources.local_bytes_per_thread == 0  # nothing is spilled


def test_dtype_sets_the_elements_of_both_operands() -> None:
    for dtype, element in (("bf16", "bfloat16"), ("fp16", "float16")):
        launch = CATALOG["wgmma-cluster"].prepare({"dtype": dtype}, H200)

        maps = [item for item in launch.arguments if isinstance(item, TensorMap)]
        assert [item.dtype for item in maps] == [element, element, "float32"]
        assert launch.defines["INPUT"] == dtype.upper()


def test_unknown_device_has_one_block_or_cluster() -> None:
    launch = CATALOG["wgmma-cluster"].prepare({}, Limits("unknown", compute_capability=(9, 0)))

    assert launch.grid == (2, 1, 1)


def test_tf32_reference_rounds_to_even() -> None:
    launch = CATALOG["wgmma-tf32"].prepare({"m": 1, "k": 4, "n": 4}, H200)
    step = 2.0**-10  # of TF32 in [1, 2)
    left = np.array([[1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2.0**-23, 1]], np.float32)

    rounded = launch.references["P"]({"M": left, "N": np.eye(4, dtype=np.float32)}, np.arange(4))

    assert rounded.tolist() == [1, 1 + 2 * step, 1 + step, 1]


def test_bf16_reference_takes_inputs_as_they_are() -> None:
    launch = CATALOG["wgmma"].prepare({"m": 1, "k": 8, "n": 8}, H200)
    left = np.arange(8, dtype=ml_dtypes.bfloat16)[None]

    product = launch.references["P"]({"M": left, "N": np.eye(8, dtype=left.dtype)}, np.arange(8))

    assert product.tolist() == list(range(8))
