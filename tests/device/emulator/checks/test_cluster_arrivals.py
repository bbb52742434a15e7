"""What arrivals at the barrier of a cluster and at other blocks' `mbarrier`s order."""

from __future__ import annotations

import numpy as np
import pytest

import memlab
from memlab.device.checking.findings import CheckReport

SWAP = r"""
#define RELAXED asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define RELEASE asm volatile("barrier.cluster.arrive.aligned;" ::: "memory")
#define WAIT asm volatile("barrier.cluster.wait.aligned;" ::: "memory")
#define FENCE asm volatile("fence.acq_rel.cluster;" ::: "memory")
#define BLOCK_FENCE asm volatile("fence.acq_rel.cta;" ::: "memory")

__global__ void __cluster_dims__(2) swapped(const int *in, int *out)
{
  __shared__ int own[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const int *other = (const int *)__cluster_map_shared_rank(own, __clusterRelativeBlockRank() ^ 1);
  own[t] = in[i];
  ARRIVE; WAIT;
  out[i] = other[63 - t];
  RELAXED; WAIT;
}
"""


@pytest.mark.parametrize(
    ("arrive", "ordered"),
    [
        ("RELEASE", True),
        ("RELAXED", False),
        ("FENCE; RELAXED", True),
        ("BLOCK_FENCE; RELAXED", False),
        ("RELAXED; FENCE", False),
        # A fence releases what its thread knows of others.
        ("__syncthreads(); if (t == 0) FENCE; RELAXED", True),
        ("__syncthreads(); if (t == 0) BLOCK_FENCE; RELAXED", False),
        ("if (t == 0) FENCE; __syncthreads(); RELAXED", False),
        ("__syncwarp(); if (t % 32 == 0) FENCE; RELAXED", True),
        ("if (t % 32 == 0) FENCE; __syncwarp(); RELAXED", False),
        ("__syncthreads(); if (t < 32) RELEASE; else RELAXED", True),
        ("if (t < 32) RELEASE; else RELAXED", False),
        ("RELAXED; WAIT; RELEASE", True),
        ("RELEASE; WAIT; RELAXED", True),
    ],
)
def test_a_relaxed_arrival_releases_what_a_fence_has(arrive: str, ordered: bool) -> None:
    source = memlab.source(SWAP.replace("ARRIVE", arrive), "swapped")
    out = memlab.out(256, np.int32)
    report = memlab.check(
        source, grid=4, block=64, args=[np.arange(256, dtype=np.int32), out], device="h200"
    )
    assert [(f.tool, f.kind) for f in report.findings] == (
        [] if ordered else [("racecheck", "RAW")]
    )


PIPELINE = r"""
// A warp of each block loads stages for both; the warps of both blocks release a stage, each by one
// lane, at the barriers of both, as the pipelines of CUTLASS do.
__device__ unsigned shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void wait(unsigned barrier, unsigned parity)
{
  asm volatile("{ .reg .pred p;\n"
               "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@!p bra again; }" :: "r"(barrier), "r"(parity) : "memory");
}

__device__ void release_at(unsigned barrier, unsigned rank)
{
  asm volatile("{ .reg .b32 there;\n"
               "mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
               :: "r"(barrier), "r"(rank) : "memory");
}

__global__ void __cluster_dims__(2) sums(const int *in, int *out, int phases)
{
  constexpr int STAGES = 2, CONSUMERS = 2;
  __shared__ __align__(128) int tile[STAGES][64];
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared(&full[s])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                   :: "r"(shared(&empty[s])), "r"(2 * CONSUMERS) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
               "barrier.cluster.wait.aligned;" ::: "memory");
  if (warp == CONSUMERS) {
    for (int k = 0; k < phases && lane == 0; ++k) {
      int s = k % STAGES;
      wait(shared(&empty[s]), k / STAGES & 1 ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;"
                   :: "r"(shared(&full[s])) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                   ".multicast::cluster [%0], [%1], 128, [%2], %3;"
                   :: "r"(shared(&tile[s][32 * rank])), "l"(in + 64 * k + 32 * rank),
                      "r"(shared(&full[s])), "h"((unsigned short)3) : "memory");
    }
    __syncwarp();
  } else {
    int sum = 0;
    for (int k = 0; k < phases; ++k) {
      int s = k % STAGES;
      wait(shared(&full[s]), k / STAGES & 1);
      sum += tile[s][t];
      SYNCWARP;
      if (lane == 0) { release_at(shared(&empty[s]), 0); release_at(shared(&empty[s]), 1); }
    }
    out[64 * blockIdx.x + t] = sum;
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
               "barrier.cluster.wait.aligned;" ::: "memory");
}
"""


def checked_pipeline(synchronize: str) -> CheckReport:
    source = memlab.source(PIPELINE.replace("SYNCWARP", synchronize), "sums")
    values = np.random.default_rng(1).integers(0, 100, 64 * 7, np.int32)
    return memlab.check(
        source,
        grid=4,
        block=96,
        args=[values, memlab.out(4 * 64, np.int32), 7],
        device="h200",
        reference=lambda given, out, phases: np.tile(given.reshape(phases, 64).sum(axis=0), 4),
    )


def test_a_lane_releases_a_stage_for_its_warp_at_the_barriers_of_both_blocks() -> None:
    report = checked_pipeline("__syncwarp()")
    assert not report.findings
    assert report.verification.status == "passed"


def test_a_stage_that_is_released_before_other_lanes_have_read_is_found() -> None:
    findings = checked_pipeline("").findings
    assert {finding.tool for finding in findings} == {"racecheck"}
    assert "WAR" in {finding.kind for finding in findings}
