"""Sums of tensor cores by the architecture of the device, against sums by hand."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import memlab
from benchmarks.tensor_sums.kernels import Kernel
from memlab.device.compiler.compile import compile_kernel
from memlab.device.compiler.translation_unit import TranslationUnit

OLDER = ("rtx3070", "a100", "l4")


def first_sum(
    kernel: Kernel,
    terms: list[float],
    added: float,
    device: str,
    folder: Path,
    ptx_of: tuple[int, int] | None = None,
) -> float:
    """D[0, 0] where the terms are those of row 0 of A, B is all ones, and C all the addend.

    The device gets PTX made for the compute capability `ptx_of`; None for its own.
    """
    of = {"f16": np.float16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn}[kernel.of_a]
    a, b = np.zeros((kernel.rows, kernel.depth), of), np.ones((kernel.columns, kernel.depth), of)
    a[0, : len(terms)] = terms
    assert [*a[0, : len(terms)].astype(float)] == terms
    c = np.full((kernel.rows, kernel.columns), added, np.float32)
    file = folder / "product.cu"
    file.write_text(kernel.source)
    if ptx_of is not None:
        unit = TranslationUnit(kernel.source, str(file), ptx_of)
        file = folder / "product.ptx"
        file.write_text(compile_kernel(unit, "product").ptx)
    run = memlab.run(
        f"{file}:product",
        grid=1,
        block=32,
        args=[*(m.view(np.uint32) for m in (a, b, c)), np.zeros(32, np.uint32),
              memlab.out(c.shape, np.uint32)],
        device=device,
        keep=False,
    )  # fmt: skip
    (found,) = run.outputs.arrays.values()
    return float(found.view(np.float32)[0, 0])


HALF = Kernel("mma", 8, 16, "f32", "f16", "f16")


@pytest.mark.parametrize(
    ("device", "expected"), [*((name, 1.0) for name in OLDER), ("h100", 1 + 2.0**-22)]
)
def test_a_term_25_places_below_the_largest_counts_on_hopper_alone(
    device: str, expected: float, tmp_path: Path
) -> None:
    """Eight terms of 2^-25: the unit is 2^-25 beside 1 on Hopper, and 2^-24 before."""
    found = first_sum(HALF, [2.0**-24] * 8, 2.0, device, tmp_path)  # all twice as large
    assert found == 2 * expected


def test_ptx_for_an_earlier_gpu_sums_as_the_device_that_its_driver_compiles_for(
    tmp_path: Path,
) -> None:
    """An H100 compiles PTX for sm_80 to its own instructions."""
    small = [2.0**-24] * 8
    assert first_sum(HALF, small, 2.0, "h100", tmp_path, ptx_of=(8, 0)) == 2 + 2.0**-21
    assert first_sum(HALF, small, 2.0, "a100", tmp_path, ptx_of=(8, 0)) == 2


@pytest.mark.parametrize(
    ("device", "expected"), [*((name, 2.0**-24) for name in OLDER), ("h100", 0.0)]
)
def test_eight_products_of_float16_are_summed_at_once_before_hopper(
    device: str, expected: float, tmp_path: Path
) -> None:
    """Two large terms cancel; what is small beside them stays where it is in the next sum."""
    found = first_sum(HALF, [64.0, -64.0, *[0.0] * 6, 2.0**-24], 0.0, device, tmp_path)
    assert found == expected


@pytest.mark.parametrize(("device", "expected"), [("a100", 2.0**-24), ("h100", 0.0)])
def test_four_products_of_tf32_are_summed_at_once_before_hopper(
    device: str, expected: float, tmp_path: Path
) -> None:
    kernel = Kernel("mma", 8, 8, "f32", "tf32", "tf32")
    found = first_sum(kernel, [64.0, -64.0, 0.0, 0.0, 2.0**-24], 0.0, device, tmp_path)
    assert found == expected


@pytest.mark.parametrize(("device", "expected"), [("l4", 256.0), ("h100", 256.0 + 2.0**-6)])
def test_products_of_bytes_keep_13_places_on_ada(
    device: str, expected: float, tmp_path: Path
) -> None:
    """Hopper's `mma` of bytes is one of float16."""
    kernel = Kernel("mma", 8, 32, "f32", "e4m3", "e4m3")
    found = first_sum(kernel, [2.0**-6], 256.0, device, tmp_path)
    assert found == expected
