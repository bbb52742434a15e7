"""Thread block clusters and distributed shared memory, as CUDA C++ and PTX name them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import memlab
from memlab.device.datasheets import loader
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.properties import clock_hz

CUDA = r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void next_block(const float *in, float *out)
{
  __shared__ float own[64];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned ranks = cluster.num_blocks(), rank = cluster.block_rank();
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  own[threadIdx.x] = in[block * 64 + threadIdx.x] + rank;
  cluster.sync();
  const float *next = cluster.map_shared_rank(own, (rank + 1) % ranks);
  out[block * 64 + threadIdx.x] = next[63 - threadIdx.x];
  cluster.sync();
}

__global__ void __cluster_dims__(4) histogram(const int *in, int *out, int n)
{
  extern __shared__ int bins[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(cluster.map_shared_rank(bins, in[i] / 64) + in[i] % 64, 1);
  auto token = cluster.barrier_arrive();
  cluster.barrier_wait(std::move(token));
  for (int i = threadIdx.x; i < 64; i += blockDim.x)
    atomicAdd(out + cluster.block_rank() * 64 + i, bins[i]);
}

__device__ unsigned access(int form, unsigned address)
{
  unsigned a = 1, b, c, d;
  if (form == 0) asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(a) : "r"(address));
  if (form == 1)
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
  if (form == 2) asm volatile("st.shared::cluster.u32 [%0], %1;" :: "r"(address), "r"(a));
  if (form == 3)
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(a) : "r"(address), "r"(1));
  return a;
}

__global__ void counted(unsigned *out, int to, int form, int stride)
{
  __shared__ __align__(16) unsigned own[8192];
  unsigned address = __cvta_generic_to_shared(&own[stride * threadIdx.x]), rank, there;
  own[threadIdx.x] = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank ^ to));
  out[blockIdx.x * blockDim.x + threadIdx.x] = access(form, there);
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__global__ void gather(const int *ranks, const int *places, int *out)
{
  __shared__ int own[256];
  cg::cluster_group cluster = cg::this_cluster();
  int i = blockIdx.x * 64 + threadIdx.x;
  for (int k = threadIdx.x; k < 256; k += 64) own[k] = 256 * blockIdx.x + k;
  cluster.sync();
  if (ranks[i] >= 0) out[i] = cluster.map_shared_rank(own, ranks[i])[places[i]];
  cluster.sync();
}

__global__ void registers(unsigned *out)
{
  unsigned own[19], at = 0, plain, far;
  __shared__ int place[4];
#define READ(name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(own[at++]))
  READ("clusterid.x"); READ("clusterid.y"); READ("clusterid.z");
  READ("nclusterid.x"); READ("nclusterid.y"); READ("nclusterid.z");
  READ("cluster_ctaid.x"); READ("cluster_ctaid.y"); READ("cluster_ctaid.z");
  READ("cluster_nctaid.x"); READ("cluster_nctaid.y"); READ("cluster_nctaid.z");
  READ("cluster_ctarank"); READ("cluster_nctarank");
  asm volatile("{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}"
               : "=r"(own[at++]));
  unsigned long long generic = (unsigned long long)&place[1], there;
  asm volatile("mapa.u64 %0, %1, 1;" : "=l"(there) : "l"(generic));
  asm volatile("getctarank.u64 %0, %1;" : "=r"(plain) : "l"(generic));
  asm volatile("getctarank.u64 %0, %1;" : "=r"(far) : "l"(there));
  own[at++] = plain; own[at++] = far;
  asm volatile("{.reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p;}"
               : "=r"(own[at++]) : "l"(there));
  asm volatile("{.reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p;}"
               : "=r"(own[at++]) : "l"(generic));
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  for (int i = 0; i < 19; ++i) out[19 * block + i] = own[i];
}

__global__ void chase(unsigned *out, int n)
{
  __shared__ unsigned own[1024];
  unsigned at = threadIdx.x;
  for (int i = at; i < 1024; i += blockDim.x) own[i] = (i + 32) % 1024;
  cg::this_cluster().sync();
  unsigned *next = cg::this_cluster().map_shared_rank(own, cg::this_cluster().block_rank() ^ 1);
#pragma unroll 1
  for (int i = 0; i < n; ++i) at = next[at];
  out[blockIdx.x * blockDim.x + threadIdx.x] = at;
  cg::this_cluster().sync();
}

__global__ void beyond(int *out, int rank)
{
  __shared__ int own[32];
  own[threadIdx.x] = 1;
  cg::this_cluster().sync();
  out[threadIdx.x] = *cg::this_cluster().map_shared_rank(&own[threadIdx.x], rank);
  cg::this_cluster().sync();
}

__global__ void meet(unsigned *out, int n)
{
#pragma unroll 1
  for (int i = 0; i < n; ++i) cg::this_cluster().sync();
  out[blockIdx.x * blockDim.x + threadIdx.x] = n;
}

__global__ void stages(const int *in, int *out)  // blocks at different barriers at once
{
  __shared__ int left[128], right[128];
  cg::cluster_group cluster = cg::this_cluster();
  int rank = cluster.block_rank(), at = blockIdx.x * 128 + threadIdx.x;
  left[threadIdx.x] = in[at];
  if (rank == 0) {
    cluster.barrier_arrive();
    for (int i = 1; i < 128; i *= 2) {
      __syncthreads();
      int other = left[threadIdx.x ^ i];
      __syncthreads();
      left[threadIdx.x] += other;
    }
    cluster.barrier_wait();
  } else {
    right[threadIdx.x] = 2 * left[threadIdx.x];
    cluster.sync();
  }
  out[at] = rank == 0 ? left[threadIdx.x] + cluster.map_shared_rank(right, 1)[threadIdx.x] : 0;
  cluster.sync();
}
"""


def launch(entry: str, grid: Any, block: int, args: list[Any], **more: Any) -> memlab.Run:
    more = {"device": "h200", **more}
    return memlab.run(memlab.source(CUDA, entry), grid=grid, block=block, args=args, **more)


@pytest.mark.parametrize(
    ("grid", "cluster"), [((8,), (2,)), ((4, 4), (2, 2)), ((2, 6, 4), (1, 3, 4)), ((16,), (16,))]
)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_blocks_read_the_shared_memory_of_the_next_rank(
    grid: tuple[int, ...], cluster: tuple[int, ...], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLAB_THREADS", threads)
    x = np.random.default_rng(1).random(64 * prod(grid), np.float32)
    run = launch("next_block", grid, 64, [x, memlab.out(len(x), np.float32)], cluster=cluster)
    np.testing.assert_array_equal(run.outputs["out"], next_blocks(x, grid, cluster))
    counters = run.measurement.counters
    warps = 2 * prod(grid)
    assert counters.distributed_shared_requests == warps
    assert counters.distributed_shared_sectors == 4 * warps
    by_line = [line for line in run.measurement.lines if line.distributed_shared_requests]
    assert ["next[63 - threadIdx.x]" in line.text for line in by_line] == [True]
    assert by_line[0].distributed_shared_sectors == 4 * warps
    assert counters.shared_load_wavefronts == 0
    assert not run.measurement.coverage.estimated
    assert prod(run.measurement.cluster) == prod(cluster)


def next_blocks(
    x: NDArray[np.float32], grid: tuple[int, ...], cluster: tuple[int, ...]
) -> NDArray[np.float32]:
    """What `next_block` computes, block by block."""
    extents, each = ((*values, 1, 1)[:3] for values in (grid, cluster))
    expected = np.empty_like(x).reshape(-1, 64)
    blocks = x.reshape(-1, 64)
    for x_, y_, z_ in np.ndindex(extents):
        first = tuple(at // n * n for at, n in zip((x_, y_, z_), each, strict=True))
        rank = sum(
            (at - start) * scale
            for at, start, scale in zip(
                (x_, y_, z_), first, (1, each[0], each[0] * each[1]), strict=True
            )
        )
        rank = (rank + 1) % prod(each)
        place = (rank % each[0], rank // each[0] % each[1], rank // (each[0] * each[1]))
        at, there = (
            bx + extents[0] * (by + extents[1] * bz)
            for bx, by, bz in (
                (x_, y_, z_),
                tuple(start + step for start, step in zip(first, place, strict=True)),
            )
        )
        expected[at] = (blocks[there] + np.float32(rank))[::-1]
    return expected.reshape(-1)


def test_atomics_spread_bins_over_a_cluster() -> None:
    values = np.random.default_rng(2).integers(0, 256, 20_000, np.int32)
    counts = memlab.inout(np.zeros(256, np.int32))
    run = launch("histogram", 8, 128, [values, counts, len(values)], shared=256)
    np.testing.assert_array_equal(run.outputs["out"], np.bincount(values, minlength=256))


@pytest.mark.parametrize(
    ("form", "stride", "sectors"),
    [(0, 1, 4), (0, 2, 8), (0, 32, 32), (1, 4, 16), (2, 1, 4), (2, 2, 8), (3, 1, 4), (3, 0, 1)],
)
def test_accesses_count_as_an_h200_counts_them(form: int, stride: int, sectors: int) -> None:
    out = memlab.out(32 * 256, np.uint32)
    run = launch("counted", 256, 32, [out, 1, form, stride], cluster=2)
    counters = run.measurement.counters
    # docs/results/README.md, "Distributed shared memory": an H200's, of 256 warps.
    assert counters.distributed_shared_requests == 256
    assert counters.distributed_shared_sectors == 256 * sectors
    assert counters.shared_load_wavefronts == counters.shared_atomic_wavefronts == 0
    assert counters.shared_store_wavefronts == 256  # of the own zeros


@pytest.mark.parametrize(
    ("form", "stride", "wavefronts"), [(0, 1, 1), (0, 2, 2), (0, 32, 32), (1, 4, 4), (3, 1, 1)]
)
def test_an_access_to_the_own_block_by_mapa_is_ordinary(
    form: int, stride: int, wavefronts: int
) -> None:
    out = memlab.out(32 * 8, np.uint32)
    counters = launch("counted", 8, 32, [out, 0, form, stride], cluster=2).measurement.counters
    assert counters.distributed_shared_requests == 0
    counted = counters.shared_load_wavefronts + counters.shared_atomic_wavefronts
    assert counted == 8 * wavefronts


@pytest.mark.parametrize("ranks", ["one", "one of a warp", "any"])
@pytest.mark.parametrize("places", ["in order", "any"])
def test_any_lanes_load_from_any_ranks(ranks: str, places: str) -> None:
    """Against NumPy: values, and requests with the sectors of the lanes that reach other blocks."""
    blocks, each, random = 32, 4, np.random.default_rng(4)
    warps = 2 * blocks
    own = np.repeat(np.arange(blocks) % each, 64).reshape(warps, 32)
    to = {
        "one": np.full_like(own, 3),
        "one of a warp": np.repeat(random.integers(0, each, warps), 32).reshape(warps, 32),
        "any": random.integers(-1, each, (warps, 32)),
    }[ranks]
    at = (
        np.tile(np.arange(32), (warps, 1))
        if places == "in order"
        else random.integers(0, 256, (warps, 32))
    )
    out = memlab.inout(np.full(32 * warps, -1, np.int32))
    arguments = [to.astype(np.int32).reshape(-1), at.astype(np.int32).reshape(-1), out]
    run = launch("gather", blocks, 64, arguments, cluster=each)

    first = np.repeat(np.arange(blocks) // each * each, 64).reshape(warps, 32)
    expected = np.where(to >= 0, 256 * (first + to) + at, -1)
    np.testing.assert_array_equal(run.outputs["out"], expected.reshape(-1))
    reached = [
        {
            (rank, place // 8)
            for rank, place, mine in zip(*lanes, strict=True)
            if rank not in (-1, mine)
        }
        for lanes in zip(to.tolist(), at.tolist(), own.tolist(), strict=True)
    ]
    counters = run.measurement.counters
    assert counters.distributed_shared_requests == sum(map(bool, reached))
    assert counters.distributed_shared_sectors == sum(map(len, reached))


@pytest.mark.parametrize("form", range(4))
def test_an_access_beyond_the_shared_memory_of_another_block_is_a_fault(form: int) -> None:
    with pytest.raises(KernelFault, match=r"shared offset 32768 .*rank 1 in a cluster of 2"):
        launch("counted", 8, 32, [memlab.out(256, np.uint32), 1, form, 8192], cluster=2)


@pytest.mark.parametrize("cluster", [None, (2, 1, 3)])
def test_special_registers_tell_of_the_cluster(cluster: tuple[int, int, int] | None) -> None:
    grid, each = (4, 2, 6), cluster or (1, 1, 1)
    run = launch("registers", grid, 1, [memlab.out(19 * prod(grid), np.uint32)], cluster=cluster)
    rows = run.outputs["out"].reshape(-1, 19)
    for block, row in enumerate(rows.tolist()):
        at = block % 4, block // 4 % 2, block // 8
        inside = [place % n for place, n in zip(at, each, strict=True)]
        rank = inside[0] + each[0] * (inside[1] + each[1] * inside[2])
        assert row == [
            *(place // n for place, n in zip(at, each, strict=True)),
            *(blocks // n for blocks, n in zip(grid, each, strict=True)),
            *inside,
            *each,
            rank,
            prod(each),
            int(cluster is not None),
            rank,
            1,
            1,
            1,
        ]


def test_blocks_of_a_cluster_are_at_different_barriers() -> None:
    x = np.random.default_rng(3).integers(0, 100, 8 * 128, np.int32)
    out = launch("stages", 8, 128, [x, memlab.out(len(x), np.int32)], cluster=2).outputs["out"]
    blocks = x.reshape(-1, 2, 128)
    expected = np.zeros_like(blocks)
    expected[:, 0] = blocks[:, 0].sum(axis=1)[:, None] + 2 * blocks[:, 1]
    np.testing.assert_array_equal(out, expected.reshape(-1))


@pytest.mark.parametrize(
    ("entry", "cluster"), [("next_block", 4), ("next_block", 1), ("stages", 2)]
)
def test_a_check_knows_what_the_barrier_of_a_cluster_orders(entry: str, cluster: int) -> None:
    kind = np.float32 if entry == "next_block" else np.int32
    x = np.ones(8 * 128, kind)
    arguments = [x, memlab.out(len(x), kind)]
    source, block = memlab.source(CUDA, entry), 64 if entry == "next_block" else 128
    grid = len(x) // block
    options: dict[str, Any] = {"grid": grid, "block": block, "cluster": cluster}
    report = memlab.check(source, args=arguments, device="h200", **options)
    assert report.coverage.blocks_emulated == grid
    assert not report.findings


def test_a_large_grid_is_sampled_by_whole_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    from memlab.device.emulation import counting

    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 10_000)
    monkeypatch.setattr(counting, "MAX_EXACT_LANE_INSTRUCTIONS", 10_000)
    blocks = 12_000
    x = np.zeros(64 * blocks, np.float32)
    run = launch("next_block", (blocks // 3, 3), 64, [x, memlab.out(len(x), np.float32)], cluster=4)
    coverage = run.measurement.coverage
    assert coverage.blocks_emulated < blocks
    assert coverage.blocks_emulated % 4 == 0
    assert not coverage.estimated
    assert run.measurement.counters.distributed_shared_sectors == 8 * blocks


def test_a_chain_of_loads_takes_the_latency_of_the_network() -> None:
    """195.5 clocks and three more sectors of 16.5 bytes a clock; address and branch: some 20."""
    runs = [launch("chase", 2, 32, [memlab.out(64, np.uint32), n], cluster=2) for n in (100, 1100)]
    clock = clock_hz(loader.load_datasheet("h200"))
    assert clock is not None
    short, long = (run.measurement.time.median_s * clock for run in runs)
    assert 195 + 6 <= (long - short) / 1000 < 195 + 6 + 30
    stalls = runs[1].measurement.stalls
    assert max(stalls, key=lambda reason: stalls[reason]) == "long_scoreboard"


def test_the_barrier_of_a_cluster_that_the_kernel_does_not_declare_takes_its_time() -> None:
    """Its machine code asks whether there is a cluster, and has another barrier for a block.

    With a fence for the release, an H200 took 337 clocks for it.
    """
    runs = [launch("meet", 2, 32, [memlab.out(64, np.uint32), n], cluster=2) for n in (100, 600)]
    clock = clock_hz(loader.load_datasheet("h200"))
    assert clock is not None
    short, long = (run.measurement.time.median_s * clock for run in runs)
    assert 337 < (long - short) / 500 < 337 + 60  # the instructions of the loop


def test_an_access_beyond_the_cluster_is_a_fault() -> None:
    with pytest.raises(KernelFault, match=r"shared offset 0 .*rank 2 in a cluster of 2"):
        launch("beyond", 2, 32, [memlab.out(32, np.int32), 2], cluster=2)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"grid": 6, "cluster": 4}, r"6 blocks in x, no multiple of the 4.*8 blocks"),
        ({"grid": 32, "cluster": 32}, r"cluster has 32 blocks; .*allows 16"),
        ({"grid": 8, "cluster": (2, 2), "device": "a100"}, r"compute capability 8\.0, has none"),
        ({"grid": 8, "cluster": 2, "entry": "histogram"}, r"__cluster_dims__.*of 4,1,1 blocks"),
        ({"grid": 8, "cluster": (2, 2)}, r"has 1 block in y, no multiple of the 2.*2 blocks in y"),
        ({"grid": 8, "cluster": "0"}, r"one to three whole numbers.* use --cluster 2 or"),
    ],
)
def test_a_launch_that_no_gpu_takes_is_refused_in_one_line(
    more: dict[str, Any], reason: str
) -> None:
    entry = more.pop("entry", "beyond")
    arguments: list[Any] = [memlab.out(32, np.int32), 0]
    if entry == "histogram":
        arguments = [np.zeros(8, np.int32), memlab.inout(np.zeros(256, np.int32)), 8]
    with pytest.raises(memlab.UsageError, match=reason) as error:
        launch(entry, more.pop("grid"), 32, arguments, **more)
    assert "\n" not in str(error.value)
