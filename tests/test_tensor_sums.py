"""benchmarks.tensor_sums: its matrices, its kernels, and the products that the tests keep."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.tensor_sums import __main__
from benchmarks.tensor_sums.inputs import KINDS, blocks_per_kind, matrices
from benchmarks.tensor_sums.kernels import Kernel, kernels
from benchmarks.tensor_sums.products import (
    LISTED,
    differing,
    listed_products,
    measure,
    results_of_emulator,
    results_of_gpu,
)

PRODUCTS = Path(__file__).parent / "data" / "h100-products.npz"


def test_kernels_have_names_of_their_own() -> None:
    names = [kernel.name for kernel in kernels()]
    assert len(set(names)) == len(names) == 52
    assert {kernel.name for kernel in LISTED} <= set(names)


def test_there_are_blocks_of_every_kind() -> None:
    for kernel in kernels():
        given = matrices(kernel)
        blocks = len(KINDS) * blocks_per_kind(kernel)
        rows = (kernel.rows, kernel.columns, kernel.rows)
        assert given.c.shape == (blocks, kernel.rows, kernel.row_words[2])
        for words, count, row in zip(given[:2], rows, kernel.row_words, strict=False):
            assert words.shape == (blocks, kernel.steps, count, row), kernel.name


def test_subnormal_numbers_of_bytes_are_below_the_least_normal_one() -> None:
    kernel = Kernel("mma", 8, 32, "f32", "e4m3", "e5m2")
    first = KINDS.index("subnormal") * blocks_per_kind(kernel)
    exponents = matrices(kernel).a[first].view(np.uint8) >> 3 & 15
    assert set(exponents.ravel()) == {0, 1}  # e4m3: 1 is that of the least normal numbers


@pytest.mark.parametrize("kernel", LISTED, ids=lambda kernel: kernel.name)
def test_the_emulator_gives_the_listed_products(kernel: Kernel) -> None:
    """From the sources of the kernels on, not from registers."""
    found = results_of_emulator(kernel)
    results = {each.name: found if each == kernel else matrices(each).c for each in LISTED}
    start = f"{kernel.instruction}.k{kernel.depth}.{kernel.total}.{kernel.of_a}.{kernel.of_b} "
    with np.load(PRODUCTS) as measured:
        listed = {name: bits for name, bits in listed_products(results) if name.startswith(start)}
        assert len(listed) == 4
        for name, bits in listed.items():
            np.testing.assert_array_equal(bits, measured[name], name)


def test_one_bit_is_one_sum() -> None:
    kernel = Kernel("mma", 8, 8, "f16", "f16", "f16")
    words = matrices(kernel).c
    changed = words.copy()
    changed.ravel()[0] ^= 1 << 16
    assert differing(kernel, words, words) == (2 * words.size, 0)
    assert differing(kernel, words, changed) == (2 * words.size, 1)


def test_a_worker_finds_its_task() -> None:
    """A worker cannot import what lies in the module that is run as a command."""
    assert results_of_gpu.__module__ == "benchmarks.tensor_sums.products"
    assert __main__.measure is measure
