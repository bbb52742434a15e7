"""Modelled times of clusters beside those of an H200: `data/h200-cluster-times.csv`."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from paths import DATA

import memlab
from memlab.device.datasheets import loader
from memlab.device.properties import clock_hz

CUDA = r"""
#define LOOP(name, body)                                                                      \
  extern "C" __global__ void __cluster_dims__(BLOCKS) name(unsigned *out, int n)                \
  {                                                                                           \
    _Pragma("unroll 8") for (int i = 0; i < n; ++i) asm volatile(body ::: "memory");            \
    out[blockIdx.x * blockDim.x + threadIdx.x] = n;                                           \
  }
LOOP(released, "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
LOOP(relaxed, "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;")

#define CHASE(name, opcode, more)                                                             \
  extern "C" __global__ void __cluster_dims__(BLOCKS) name(unsigned *out, int n)                \
  {                                                                                           \
    __shared__ unsigned chain[256];                                                           \
    unsigned own = (unsigned)__cvta_generic_to_shared(chain), rank, at;                        \
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));                                        \
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(own), "r"(rank ^ 1));           \
    for (int i = 0; i < 256; ++i) chain[i] = own + 4 * ((i + 101) % 256); /* for the others */ \
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");\
    _Pragma("unroll 8") for (int i = 0; i < n; ++i)                                            \
      asm volatile(opcode " %0, [%0]" more ";" : "+r"(at) :: "memory");                        \
    out[blockIdx.x] = at;                                                                     \
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");\
  }
CHASE(load, "ld.shared::cluster.u32", "")
CHASE(atomic, "atom.shared::cluster.add.u32", ", 0")
"""


def clocks(entry: str, blocks: int, threads: int) -> float:
    """The modelled clocks of one step of a loop."""
    source = memlab.source(CUDA.replace("BLOCKS", str(blocks)), entry)
    clock = clock_hz(loader.load_datasheet("h200"))
    assert clock is not None
    short, long = (
        memlab.run(
            source,
            grid=blocks,
            block=threads,
            args=[memlab.out(blocks * threads, np.uint32), n],
            device="h200",
        ).measurement.time.median_s
        * clock
        for n in (80, 480)
    )
    return (long - short) / 400


with (DATA / "h200-cluster-times.csv").open() as file:
    MEASURED = [
        (r["what"], int(r["blocks"]), int(r["threads"]), float(r["clocks"]))
        for r in csv.DictReader(file)
    ]


@pytest.mark.parametrize(
    ("what", "blocks", "threads", "measured"),
    [pytest.param(*row, marks=[pytest.mark.slow] * (row[1] > 2)) for row in MEASURED],
)
def test_times_of_clusters_are_those_of_an_h200(
    what: str, blocks: int, threads: int, measured: float
) -> None:
    found = clocks(what.split(maxsplit=1)[0], blocks, threads)
    # Of a block of 32 warps, whose fences take turns, the model lacks an eighth.
    low = 0.8 if threads == 1024 else 0.95
    assert low * measured < found < 1.08 * measured + 4
