"""`wmma` of elements of less than a byte, as CUDA C++ makes it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx import run

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit

SOURCE = """#include <mma.h>
using namespace nvcuda::wmma;
namespace small = nvcuda::wmma::experimental;
template <class T, int K>
__device__ void product(const void* a, const void* b, int* d, int stride, bool exclusive) {
  fragment<matrix_a, 8, 8, K, T, row_major> left;
  fragment<matrix_b, 8, 8, K, T, col_major> right;
  fragment<accumulator, 8, 8, K, int> sum;
  load_matrix_sync(left, a, stride);
  load_matrix_sync(right, b, stride);
  load_matrix_sync(sum, d, 8, mem_row_major);
  if constexpr (K == 128)
    if (exclusive) bmma_sync(sum, left, right, sum, small::bmmaBitOpXOR);
    else bmma_sync(sum, left, right, sum, small::bmmaBitOpAND);
  else mma_sync(sum, left, right, sum);
  store_matrix_sync(d, sum, 8, mem_row_major);
}
extern "C" __global__ void s4(const void* a, const void* b, int* d, int stride) {
  product<small::precision::s4, 32>(a, b, d, stride, false);
}
extern "C" __global__ void u4(const void* a, const void* b, int* d, int stride) {
  product<small::precision::u4, 32>(a, b, d, stride, false);
}
extern "C" __global__ void both(const void* a, const void* b, int* d, int stride) {
  product<small::precision::b1, 128>(a, b, d, stride, false);
}
extern "C" __global__ void differ(const void* a, const void* b, int* d, int stride) {
  product<small::precision::b1, 128>(a, b, d, stride, true);
}
"""
ROWS = 8


def elements(words: NDArray[np.uint32], kind: str) -> NDArray[np.int64]:
    """The elements of rows of words, the lowest bits first."""
    bits = 4 if kind.endswith("4") else 1
    parts = words[:, :, None] >> np.arange(0, 32, bits, np.uint32) & np.uint32(2**bits - 1)
    whole = parts.reshape(len(words), -1).astype(np.int64)
    return (whole + 8) % 16 - 8 if kind == "s4" else whole


@pytest.mark.parametrize("kind", ["s4", "u4", "both", "differ"])
@pytest.mark.parametrize("words_per_row", [4, 8])
def test_products_of_small_elements(kind: str, words_per_row: int) -> None:
    rng = np.random.default_rng(words_per_row)
    a, b = (rng.integers(0, 1 << 32, (ROWS, words_per_row), np.uint32) for _ in range(2))
    before = rng.integers(-999, 999, (8, 8)).astype("i4")
    per_word = 8 if kind.endswith("4") else 32
    ptx = compile_unit(TranslationUnit(SOURCE, "small.cu", (9, 0))).ptx

    done = run(ptx, {"a": a, "b": b, "d": before}, [np.int32(words_per_row * per_word)], entry=kind)

    left, right = elements(a[:, :4], kind), elements(b[:, :4], kind)
    differences = (left[:, None] != right[None]).sum(axis=2)
    products = differences if kind == "differ" else left @ right.T
    assert (done["d"].view("i4").reshape(8, 8) == products + before).all()
