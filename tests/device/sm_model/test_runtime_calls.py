"""Calls of `printf`, `malloc` and `free` beside those of an H200: `data/h200-runtime-calls.csv`."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from paths import DATA

import memlab

CUDA = r"""
extern "C" __global__ void calls(void **out, int lanes, int count)
{
  if (threadIdx.x % 32 < lanes)
    for (int i = 0; i < count; ++i) { BODY }
}
"""
BODIES = {
    "printf 5": 'printf("text\\n");',
    "malloc": "out[blockIdx.x * blockDim.x + threadIdx.x] = malloc(16);",
    "malloc free": "void *made = malloc(16); out[threadIdx.x] = made; free(made);",
}
Shape = tuple[int, int, int, int]  # blocks, threads of each, lanes of a warp that call, calls


def measured(call: str, shape: Shape) -> dict[str, str]:
    with (DATA / "h200-runtime-calls.csv").open() as file:
        for row in csv.DictReader(file):
            numbers = tuple(int(row[name]) for name in ("blocks", "threads", "lanes", "calls"))
            if row["kernel"] == call and numbers == shape and int(row["bytes"]) in (0, 16):
                return row
    raise KeyError((call, shape))


def modelled(call: str, shape: Shape) -> Any:
    blocks, threads, lanes, calls = shape
    source = memlab.source(CUDA.replace("BODY", BODIES[call]), "calls")
    arguments = [memlab.out(blocks * threads, np.uint64), lanes, calls]
    run = memlab.run(source, grid=blocks, block=threads, args=arguments, device="h200")
    return run.measurement


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("printf 5", (1, 32, 1, 1)),
        ("printf 5", (1, 32, 1, 16)),
        ("printf 5", (1, 32, 32, 4)),
        ("printf 5", (8, 32, 32, 1)),
        ("printf 5", (528, 32, 1, 1)),
        ("printf 5", (132, 256, 32, 1)),
        ("malloc", (1, 32, 1, 16)),
        ("malloc", (1, 32, 32, 1)),
        ("malloc", (132, 256, 1, 1)),
        ("malloc free", (1, 32, 1, 1)),
        ("malloc free", (528, 32, 1, 1)),
    ],
)
def test_calls_of_the_driver_take_the_time_of_an_h200(call: str, shape: Shape) -> None:
    found = modelled(call, shape).time.median_s

    assert found == pytest.approx(float(measured(call, shape)["duration_ns"]) * 1e-9, rel=0.15)


@pytest.mark.parametrize("shape", [(1, 32, 1, 1), (1, 32, 32, 4), (8, 32, 32, 1), (132, 256, 4, 1)])
def test_instructions_of_printf_are_counted(shape: Shape) -> None:
    found, known = modelled("printf 5", shape), measured("printf 5", shape)

    counted = found.instructions
    assert counted.warp_instructions == pytest.approx(int(known["warp_instructions"]), rel=0.01)
    assert counted.thread_instructions == pytest.approx(int(known["thread_instructions"]), rel=0.02)
    assert sum(counted.by_pipe.values()) == pytest.approx(counted.warp_instructions, abs=20)


@pytest.mark.parametrize("shape", [(1, 32, 1, 1), (1, 32, 1, 16), (1, 32, 32, 4)])
def test_reads_of_printf_are_counted(shape: Shape) -> None:
    """Reads of a warp. Those of others at the same time are merged with them, or hit the L1."""
    found, known = modelled("printf 5", shape).counters, measured("printf 5", shape)

    assert found.l2_read_sectors == pytest.approx(int(known["l2_read_sectors"]), abs=1)
    assert found.lrc_read_sectors == found.l2_read_sectors
    assert found.dram_read_bytes == pytest.approx(int(known["dram_read_bytes"]), rel=0.2)


@pytest.mark.parametrize(("call", "within"), [("malloc", 0.1), ("malloc free", 0.3)])
def test_the_code_of_calls_is_read_from_dram(call: str, within: float) -> None:
    """`malloc` and `free` have some code in common, which is counted twice."""
    shape = (1, 32, 1, 1)

    found = modelled(call, shape).counters.dram_read_bytes

    assert found == pytest.approx(int(measured(call, shape)["dram_read_bytes"]), rel=within)


def test_calls_by_a_function_that_is_called_twice_are_added_up() -> None:
    source = memlab.source(
        """
__device__ __noinline__ void say() { printf("text\\n"); }
extern "C" __global__ void k(unsigned *out) { say(); out[threadIdx.x] = 1; say(); }
""",
        "k",
    )
    run = memlab.run(source, grid=1, block=32, args=[memlab.out(32, np.uint32)], device="h200")

    twice = 2 * int(measured("printf 5", (1, 32, 32, 1))["warp_instructions"])
    assert run.measurement.instructions.warp_instructions == pytest.approx(twice, rel=0.01)
    assert run.measurement.instructions.by_pipe["runtime"] == pytest.approx(twice, rel=0.01)
