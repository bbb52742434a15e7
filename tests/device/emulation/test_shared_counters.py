"""Counts of shared memory that depend on the kind of instruction, against an H200 and by hand."""

from __future__ import annotations

import pytest
from launches import launch_of, user_launch
from paths import DATA

from memlab.device.devices import open_device
from memlab.device.emulator.isa.asynchronous.warpgroup import read_bytes
from memlab.device.properties import LINE_BYTES
from memlab.kernels.launch import Buffer, Scalar

H200 = open_device("h200")
WARPS, MATRICES = 8, 16  # of a block of `mma_brain`; `ldmatrix` of a warp and tile, half of them x2


def test_ldmatrix_and_cp_async_are_told_apart() -> None:
    # An H200 counted 192 blocks x 8 warps x 32 tiles x 16 LDSM and 4 LDGSTS (`mma-brain`), and
    # neither among shared loads and stores (docs/results/h200-truth.csv).
    tiles = 2
    words = "--grid 1 --block 256 --arg i32=128 --arg i32=64"
    arrays = ("bf16[128,64]", "bf16[64,128]", "out:f32[128,128]")
    options = [word for text in arrays for word in ("--arg", text)]
    launch = user_launch(f"{DATA / 'truth' / 'tensor.cu'}:mma_brain", [*options, *words.split()])
    counters = H200.run(launch, seed=1).counters

    assert counters.shared_matrix_load_instructions == WARPS * tiles * MATRICES
    assert counters.shared_matrix_load_wavefronts == WARPS * tiles * (8 * 4 + 8 * 2)
    assert counters.shared_async_store_instructions == WARPS * tiles * 4
    apart = counters.by_nsight_compute()
    assert apart["shared_load_instructions"] == apart["shared_load_wavefronts"] == 0
    assert apart["shared_store_instructions"] == apart["shared_store_wavefronts"] == 0
    assert counters.shared_load_instructions == counters.shared_matrix_load_instructions
    assert counters.shared_store_wavefronts == counters.shared_async_store_wavefronts


def test_widths_of_accesses_are_those_of_the_machine_code() -> None:
    # ptxas joins loads that PTX has as one of 8 bytes and two of 4, and stores of two lines in the
    # first pass of a loop. Nsight Compute's totals on an H200 over the blocks of `sum-rows-ahead`
    # (8192) and `fft-blocks` (4096, of 16 warps), which all do the same.
    rows = user_launch(
        f"{DATA / 'truth' / 'held-out' / 'networks.cu'}:sum_rows_ahead",
        ["--grid", "1", "--block", "128", "--arg", "f32[4096]", "--arg", "out:f32[1]"],
    )
    counters = H200.run(rows, seed=1).counters
    assert (counters.shared_load_instructions, counters.shared_load_wavefronts) == (37, 145)
    assert counters.shared_excessive_wavefronts == 12

    transform = user_launch(
        f"{DATA / 'truth' / 'transforms.cu'}:fft_1024",
        ["--grid", "1", "--block", "512", "--arg", "f32[1024,2]", "--arg", "out:f32[1024,2]"],
    )
    counters = H200.run(transform, seed=1).counters
    assert counters.shared_store_instructions == 16 * 21
    assert counters.shared_store_wavefronts == 16 * 56
    assert counters.shared_excessive_wavefronts == 16 * 12


FRAGMENTS = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void k(const half *in, half *out)
{
  __shared__ __align__(32) half rows[16 * STRIDE];
  for (int i = threadIdx.x; i < 16 * STRIDE; i += 32) rows[i] = in[i];
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> sums;
  wmma::load_matrix_sync(a, rows, STRIDE);
  wmma::load_matrix_sync(b, rows, STRIDE);
  wmma::fill_fragment(sums, 0.0f);
  wmma::mma_sync(sums, a, b, sums);
  wmma::store_matrix_sync(out, sums, 16, wmma::mem_row_major);
}
"""


@pytest.mark.parametrize(("stride", "wavefronts"), [(32, 4), (40, 1), (64, 8)])
def test_matrices_of_wmma_are_loaded_by_rows(stride: int, wavefronts: int) -> None:
    # Rows of 16 bytes, 8 of each of 4 matrices: 64 bytes apart, 4 of them have the same banks; 80
    # bytes apart none; 128 bytes apart all. An H100 counted 16 wavefronts for each LDSM of 4
    # matrices with rows of 64 bytes.
    source = FRAGMENTS.replace("STRIDE", str(stride))
    rows = Buffer("in", (16, stride), "float16", "in")
    launch = launch_of(
        source, rows, Buffer("out", (16, 16), "float16", "out"), blocks=1, threads=32
    )
    counters = H200.run(launch, seed=1).counters

    assert counters.shared_matrix_load_instructions == 2
    assert counters.shared_matrix_load_wavefronts == 2 * 4 * wavefronts
    assert counters.shared_load_instructions == 2


PRODUCTS = """extern "C" __global__ void k(float* out, int mode)
{
  __shared__ __align__(1024) unsigned char factors[4096];
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) factors[i] = 0;
  __syncthreads();
  unsigned long long at = __cvta_generic_to_shared(factors) >> 4;
  unsigned long long factor = at | 8ull << 16 | 16ull << 32 | (unsigned long long)mode << 62;
  float d[4] = {};
  for (int i = 0; i < 3; i++) {
    asm volatile("wgmma.fence.sync.aligned;\\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %4, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(factor));
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, "
        "{%4,%4,%4,%4}, %5, 1, 1, 1, 0;\\n"
        "wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(0), "l"(factor) : "memory");
  }
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""


@pytest.mark.parametrize("mode", range(4))
def test_tensor_cores_read_each_factor_once_for_a_warpgroup(mode: int) -> None:
    out = Buffer("out", (256,), "float32", "out")
    launch = launch_of(PRODUCTS, out, Scalar("mode", "int32", mode), blocks=2, threads=256)
    measurement = H200.run(launch, seed=1)

    # 64 and 8 rows of 32 bytes, then 8 rows: 18 and 2 passes of 128 bytes, without and with each
    # swizzle (docs/results/README.md, "Hopper's instructions").
    wavefronts = 2 * 2 * 3 * (18 + 2)
    assert measurement.counters.shared_product_wavefronts == wavefronts
    assert sum(line.shared_product_wavefronts for line in measurement.lines) == wavefronts
    assert measurement.counters.shared_load_wavefronts == 0


@pytest.mark.parametrize(("of_a", "wavefronts"), [("k", 32), ("mn", 32), ("r", 16)])
def test_a_product_reads_what_an_h200_counted(of_a: str, wavefronts: int) -> None:
    opcode = f"wgmma.product.m64n64k16.f32.bf16.bf16.{of_a}.k"
    assert read_bytes(opcode) == read_bytes(f"{opcode}.neg") == wavefronts * LINE_BYTES
