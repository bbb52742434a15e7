"""Shared wavefronts of `cp.async`, against those that Nsight Compute counted on an H200."""

import pytest

import memlab

COPY = """
template <int BYTES, int STRIDE> __global__ void copy(const char *x, int *out)
{
  __shared__ __align__(16) char tile[256 * STRIDE];
  unsigned to = __cvta_generic_to_shared(tile + threadIdx.x * STRIDE);
  const char *from = x + (blockIdx.x * 256 + threadIdx.x) * BYTES;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(to), "l"(from), "n"(BYTES));
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  out[blockIdx.x * 256 + threadIdx.x] = *(int *)(tile + threadIdx.x * STRIDE);
}
"""


@pytest.mark.parametrize(
    ("size", "stride", "wavefronts"),
    [(4, 4, 32), (4, 8, 64), (4, 32, 256), (8, 8, 64), (8, 16, 128), (8, 32, 256)],
)
def test_a_copy_is_one_store_with_the_conflicts_of_its_banks(
    size: int, stride: int, wavefronts: int
) -> None:
    arguments = [f"i8[{1024 * size}]", memlab.out(1024, "i32")]
    kernel = memlab.source(COPY, f"copy<{size}, {stride}>")
    counters = memlab.run(kernel, grid=4, block=256, args=arguments).measurement.counters
    assert counters.shared_store_instructions == 4 * 8
    assert counters.shared_store_wavefronts == wavefronts
