"""Traces of blocks in clusters: whose shared memory is accessed, and the phases of a cluster."""

import memlab
from memlab.device.tracing.records import Trace, thread_phases

RING = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(2, 2) ring(const float *in, float *out)
{
  __shared__ float own[32];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned rank = cluster.block_rank(), block = blockIdx.y * gridDim.x + blockIdx.x;
  own[threadIdx.x] = in[block * 32 + threadIdx.x];
  cluster.sync();
  const float *next = cluster.map_shared_rank(own, (rank + 1) % 4);
  float sum = own[threadIdx.x] * next[31 - threadIdx.x];
  cluster.sync();
  cluster.map_shared_rank(own, (rank + 2) % 4)[threadIdx.x] = sum;
  atomicAdd(cluster.map_shared_rank(own, rank) + 3, 1.0f);
  cluster.sync();
  out[block * 32 + threadIdx.x] = own[threadIdx.x];
}"""


def follow(block: tuple[int, int]) -> Trace:
    return memlab.trace(
        memlab.source(RING),
        grid=(4, 2),
        block=32,
        args=["f32[256]", "out:f32[256]"],
        block_index=block,
        thread_index=2,
    )


def test_accesses_to_other_blocks_name_their_rank() -> None:
    traced = follow((2, 1))  # rank 2 of its cluster
    assert (traced.cluster, traced.rank) == ((2, 2, 1), 2)
    assert [step.text for step in traced.followed.steps] == [
        "read in[194]",
        "write own[2] = in[194]",
        "read own[2]",
        "read own[29] of rank 3",
        "own[2] * own[29] of rank 3",
        "write own[2] of rank 0",
        "atomic add of 1 to own[3]",
        "read own[2]",
        "write out[194] = own[2]",
    ]


def test_phases_are_those_of_the_cluster_and_reads_too() -> None:
    """The second phase begins with stores to blocks that the first one read."""
    traced = follow((1, 0))
    staged = [[step.text for step in phase.staged] for phase in thread_phases(traced.followed, 2)]
    assert traced.phases == 2
    assert staged == [
        ["write own[2] = in[34]"],
        ["write own[2] of rank 3", "atomic add of 1 to own[3]"],
    ]
    assert [use.block_reads for use in traced.arrays] == [{1: 128}, {}]
    assert traced.arrays[0].block_read == tuple(
        32 * (4 * y + x) + lane for y in (0, 1) for x in (0, 1) for lane in range(32)
    )


def test_the_report_and_the_document_name_the_rank() -> None:
    traced = follow((3, 1))
    report = memlab.report(traced)
    assert "rank 3 of 4" in report
    assert "own[29] of rank 0" in report
    assert "in this cluster" in report
