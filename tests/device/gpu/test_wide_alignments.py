"""Arguments whose alignment is wider than where PyCUDA puts arguments, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import memlab

DEVICES = ["h200", pytest.param("cuda:0", marks=pytest.mark.gpu)]

COPY = """
#include <cuda.h>
#include <cstdint>

__device__ uint32_t place(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__global__ void move(int column, const __grid_constant__ CUtensorMap from, int row,
                     const __grid_constant__ CUtensorMap to) {
  __shared__ alignas(128) float box[8 * 16];
  __shared__ alignas(8) uint64_t ready;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(place(&ready)) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;"
               :: "r"(place(&ready)) : "memory");
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];" :: "r"(place(box)), "l"(&from), "r"(column),
               "r"(row), "r"(place(&ready)) : "memory");
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
               " @!p bra again; }" :: "r"(place(&ready)) : "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               :: "l"(&to), "r"(0), "r"(0), "r"(place(box)) : "memory");
  asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
"""

STRUCTURE = """
struct alignas(64) Wide { float scale; int offset; };

__global__ void scaled(int n, Wide wide, float* y) {
  int i = threadIdx.x;
  if (i < n) y[i] = wide.scale * (i + wide.offset);
}
"""


@pytest.mark.parametrize("device", DEVICES)
def test_tensor_maps_between_other_arguments(device: str) -> None:
    x = np.random.default_rng(1).random((24, 40), dtype=np.float32)
    run = memlab.run(
        memlab.source(COPY, "move"),
        grid=1,
        block=1,
        args=[
            4,
            memlab.tensor_map(x, (8, 16)),
            5,
            memlab.tensor_map(memlab.out((8, 16), "f32"), (8, 16)),
        ],
        device=device,
    )

    np.testing.assert_array_equal(run.outputs["to"], x[5:13, 4:20])


@pytest.mark.parametrize("device", DEVICES)
def test_structures_of_wide_alignment(device: str) -> None:
    run = memlab.run(
        memlab.source(STRUCTURE, "scaled"),
        grid=1,
        block=32,
        args=[20, (1.5, 3), memlab.out((20,), "f32")],
        device=device,
    )

    np.testing.assert_array_equal(run.outputs["y"], 1.5 * (np.arange(20) + 3))
