"""Asynchronous copies and barriers between the blocks of a cluster, as `cuda::ptx` names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.device.emulator.machine.memory import KernelFault

CUDA = r"""
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using u64 = uint64_t;

template <class T> __device__ T *mapa(T *own, unsigned rank)
{
  return (T *)__cluster_map_shared_rank(own, rank);
}

struct Setup {  // of a barrier that the own thread 0 arrives at
  unsigned rank, ranks;
  __device__ Setup(u64 *barrier, int arrivals = 1)
      : rank(ptx::get_sreg_cluster_ctarank()), ranks(ptx::get_sreg_cluster_nctarank())
  {
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(barrier, arrivals);
      ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    sync();
  }
  __device__ void sync()
  {
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
  }
  __device__ unsigned next() { return (rank + 1) % ranks; }
};

__device__ void expect(u64 *barrier, unsigned bytes)
{
  if (threadIdx.x == 0)
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, barrier,
                                   bytes);
}

__device__ void wait(u64 *barrier)
{
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, barrier, 0)) {}
}

__global__ void store(const int *in, int *out)
{
  __shared__ int got[128]; __shared__ u64 barrier;
  Setup setup(&barrier);
  expect(&barrier, sizeof got);
  int at = blockIdx.x * 128 + threadIdx.x;
  ptx::st_async(mapa(got, setup.next()) + threadIdx.x, in[at],
                mapa(&barrier, setup.next()));
  wait(&barrier);
  out[at] = got[threadIdx.x];
  setup.sync();
}

__global__ void store_wide(const int *in, int *out)
{
  __shared__ __align__(16) int got[128]; __shared__ u64 barrier;
  Setup setup(&barrier);
  expect(&barrier, sizeof got);
  if (threadIdx.x < 32) {
    int values[4];
    for (int i = 0; i < 4; ++i) values[i] = in[blockIdx.x * 128 + 4 * threadIdx.x + i];
    ptx::st_async(mapa(got, setup.next()) + 4 * threadIdx.x, values,
                  mapa(&barrier, setup.next()));
  }
  wait(&barrier);
  out[blockIdx.x * 128 + threadIdx.x] = got[threadIdx.x];
  setup.sync();
}

__global__ void reduce(const int *in, int *out)  // every block adds to that of rank 0
{
  __shared__ int sum[128]; __shared__ u64 barrier;
  sum[threadIdx.x] = 0;
  Setup setup(&barrier);
  if (setup.rank == 0) expect(&barrier, setup.ranks * sizeof sum);
  ptx::red_async(ptx::op_add, mapa(sum, 0) + threadIdx.x,
                 in[blockIdx.x * 128 + threadIdx.x], mapa(&barrier, 0));
  if (setup.rank == 0) wait(&barrier);
  out[blockIdx.x * 128 + threadIdx.x] = sum[threadIdx.x];
  setup.sync();
}

__global__ void copy(const int *in, int *out)
{
  __shared__ __align__(128) int own[128], got[128]; __shared__ u64 barrier;
  own[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  Setup setup(&barrier);
  expect(&barrier, sizeof got);
  if (threadIdx.x == 0) {
    ptx::fence_proxy_async(ptx::space_shared);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared,
                       mapa(got, setup.next()), own, sizeof own,
                       mapa(&barrier, setup.next()));
  }
  wait(&barrier);
  out[blockIdx.x * 128 + threadIdx.x] = got[threadIdx.x];
  setup.sync();
}

__global__ void multicast(const int *in, int *out, int mask)
{
  __shared__ __align__(128) int got[128]; __shared__ u64 barrier;
  got[threadIdx.x] = -1;
  Setup setup(&barrier);
  bool gets = mask >> setup.rank & 1;
  if (gets) expect(&barrier, sizeof got);
  setup.sync();
  if (threadIdx.x == 0 && setup.rank == 1)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, got, in + blockIdx.x * 128,
                       sizeof got, &barrier, (unsigned short)mask);
  if (gets) wait(&barrier);
  out[blockIdx.x * 128 + threadIdx.x] = got[threadIdx.x];
  setup.sync();
}

__global__ void arrive(const int *in, int *out)  // a consumer tells all producers that it is done
{
  __shared__ int tile[128]; __shared__ u64 barrier;
  tile[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  Setup setup(&barrier, 4 * 32);
  int sum = 0;
  for (unsigned rank = 0; rank < setup.ranks; ++rank)
    sum += mapa(tile, rank)[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 32)
    for (unsigned rank = 0; rank < setup.ranks; ++rank)
      ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster,
                           mapa(&barrier, rank));
  wait(&barrier);
  tile[threadIdx.x] = sum;
  setup.sync();
  out[blockIdx.x * 128 + threadIdx.x] = tile[threadIdx.x];
}

__global__ void beyond(const int *in, int *out)
{
  __shared__ __align__(128) int got[128]; __shared__ u64 barrier;
  Setup setup(&barrier);
  if (threadIdx.x == 0)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global,
                       mapa(got, 1) + 64, in, 1024,
                       mapa(&barrier, 1));
  out[threadIdx.x] = got[threadIdx.x];
}

__global__ void copy_far_barrier(const int *in, int *out)
{
  __shared__ __align__(128) int got[128]; __shared__ u64 barrier;
  Setup setup(&barrier);
  if (threadIdx.x == 0)
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, mapa(got, 1), in, sizeof got,
                       mapa(&barrier, 2));
  out[threadIdx.x] = got[threadIdx.x];
}

__global__ void store_far_barrier(const int *in, int *out)
{
  __shared__ int got[128]; __shared__ u64 barrier;
  Setup setup(&barrier);
  ptx::st_async(mapa(got, 1) + threadIdx.x, in[threadIdx.x], mapa(&barrier, 2));
  out[threadIdx.x] = got[threadIdx.x];
}
"""


def launch(entry: str, *more: Any, **options: Any) -> tuple[NDArray[np.int32], memlab.Run]:
    """What four clusters of four blocks make of random numbers, and the run."""
    x = np.random.default_rng(5).integers(0, 1000, 16 * 128, np.int32)
    arguments = [x, memlab.out(len(x), np.int32), *more]
    options = {"device": "h200", "cluster": 4, **options}
    run = memlab.run(memlab.source(CUDA, entry), grid=16, block=128, args=arguments, **options)
    return x.reshape(4, 4, 128), run


@pytest.mark.parametrize("entry", ["store", "store_wide", "copy"])
def test_what_a_block_sends_arrives_at_the_next_rank(entry: str) -> None:
    x, run = launch(entry)
    np.testing.assert_array_equal(run.outputs["out"], np.roll(x, 1, axis=1).reshape(-1))
    sent = {"store": 64, "store_wide": 16, "copy": 0}[entry]  # 128 or 512 bytes of a warp each
    counters = run.measurement.counters
    assert counters.distributed_shared_requests == sent
    assert counters.distributed_shared_sectors == (16 * 16 if sent else 0)
    assert counters.bulk_requests == 0


def test_reductions_complete_bytes_in_the_block_that_they_add_to() -> None:
    x, run = launch("reduce")
    expected = np.zeros_like(x)
    expected[:, 0] = x.sum(axis=1)
    np.testing.assert_array_equal(run.outputs["out"], expected.reshape(-1))


@pytest.mark.parametrize("mask", [0b1111, 0b1010, 0b0001])
def test_a_multicast_reads_once_and_writes_to_the_blocks_of_its_mask(mask: int) -> None:
    x, run = launch("multicast", mask)
    gets = np.array([mask >> rank & 1 for rank in range(4)], np.bool_)
    expected = np.where(gets[None, :, None], x[:, 1:2], -1)
    np.testing.assert_array_equal(run.outputs["out"], expected.reshape(-1))
    counters = run.measurement.counters
    assert (counters.bulk_requests, counters.bulk_sectors) == (4, 4 * 512 // 32)
    asked = counters.global_load_sectors - counters.l1_read_sector_hits
    to_others = counters.bulk_sectors * (mask.bit_count() - 1)
    assert counters.lrc_read_sectors == asked + to_others


def test_arrivals_at_the_barriers_of_other_blocks_release_these() -> None:
    x, run = launch("arrive")
    expected = np.repeat(x.sum(axis=1, keepdims=True), 4, axis=1)
    np.testing.assert_array_equal(run.outputs["out"], expected.reshape(-1))
    counters = run.measurement.counters
    assert counters.distributed_shared_requests == 16 * 4 * 3  # an H200 counts no arrivals


@pytest.mark.parametrize("entry", ["store", "reduce", "copy", "multicast", "arrive"])
def test_a_check_knows_what_barriers_of_other_blocks_order(entry: str) -> None:
    x = np.ones(16 * 128, np.int32)
    more = (0b1010,) if entry == "multicast" else ()
    report = memlab.check(
        memlab.source(CUDA, entry),
        grid=16,
        block=128,
        cluster=4,
        args=[x, memlab.out(len(x), np.int32), *more],
        device="h200",
    )
    assert not report.findings


def test_a_copy_beyond_the_memory_of_another_block_is_a_fault() -> None:
    with pytest.raises(KernelFault, match=r"write.*shared offset \d+ of .*block of rank 1"):
        launch("beyond")


@pytest.mark.parametrize("entry", ["copy_far_barrier", "store_far_barrier"])
def test_a_barrier_in_another_block_than_the_destination_is_a_fault(entry: str) -> None:
    """Both have to be in one block (PTX ISA, "st.async"); an H200 never completes such a copy."""
    with pytest.raises(KernelFault, match=r"an mbarrier at .*block of rank 2 .*to the same rank"):
        launch(entry)
