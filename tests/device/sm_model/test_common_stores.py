"""Stores of many warps to one place, beside those of an H200: `data/h200-common-stores.csv` and
`data/h200-stored-again.csv`."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from paths import DATA

import memlab

LINES, WARPS = 1 << 16, 8
CUDA = """
extern "C" __global__ void meet(unsigned *own, unsigned *common, int is_common)
{
  int thread = blockIdx.x * blockDim.x + threadIdx.x;
  own[thread % (1 << 22)] = 1;
  if (is_common) *common = thread;
}
extern "C" __global__ void again(unsigned *words, unsigned rounds, unsigned step)
{
  unsigned warps = gridDim.x * blockDim.x / 32;
  unsigned line = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 7;
#pragma unroll 1
  for (unsigned round = 0; round < rounds; ++round) {
    words[line % 65536 * 32 + threadIdx.x % 32] = round;
    line += step * warps;
    asm volatile("" ::: "memory");
  }
}
"""


def rows(name: str) -> list[dict[str, float]]:
    with (DATA / name).open() as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def modelled_s(entry: str, blocks: int, threads: int, *arguments: object) -> float:
    source = memlab.source(CUDA, entry)
    run = memlab.run(source, grid=blocks, block=threads, args=[*arguments], device="h200")
    return float(run.measurement.time.median_s)


@pytest.mark.parametrize(("blocks", "threads"), [(528, 512), (2112, 512), (8448, 512)])
def test_warps_wait_where_all_store_to_one_word(blocks: int, threads: int) -> None:
    def measured_us(is_common: int) -> float:
        shape = {"blocks": blocks, "threads": threads, "rounds": 1, "own_stores": 1}
        wanted = {**shape, "common_stores": is_common}
        known = rows("h200-common-stores.csv")
        return next(row["us"] for row in known if wanted.items() <= row.items())

    arrays = memlab.out(1 << 22, np.uint32), memlab.out(1, np.uint32)
    alone, common = (modelled_s("meet", blocks, threads, *arrays, n) * 1e6 for n in (0, 1))
    waited = measured_us(1) - measured_us(0)
    assert common - alone == pytest.approx(waited, rel=0.25, abs=0.5)


@pytest.mark.parametrize("step", [0, 1])
def test_lines_that_are_stored_again_and_again_take_longer(step: int) -> None:
    per_sm, few, many = 8, 64, 320
    blocks, words = per_sm * 132, memlab.out((LINES, 32), np.uint32)
    short, long = (modelled_s("again", blocks, 32 * WARPS, words, n, step) for n in (few, many))
    found = blocks * WARPS * (many - few) * 4 / ((long - short) * 1e9)

    alike = {"blocks_per_sm": per_sm, "step": step}
    measured = [
        r["sectors_per_ns"] for r in rows("h200-stored-again.csv") if alike.items() <= r.items()
    ]
    assert found == pytest.approx(max(measured) if step else np.mean(measured), rel=0.1)
