"""Blocks whose paths atomics decide run as on the device: with all that are resident at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import launches
import numpy as np
import pytest
from numpy.typing import NDArray

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation import counting, execution
from memlab.device.emulation.device import Emulation, emulate
from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import extreme_warps, record_block
from memlab.device.inputs import make_inputs
from memlab.device.measurement import ignore_progress
from memlab.device.properties import DeviceProperties
from memlab.kernels.launch import Buffer, Launch, SingleValue, Uniform

H200 = loader.load_datasheet("h200")
THREADS, BLOCKS, CELLS = 256, 256, 1 << 17
launch_of = partial(launches.launch_of, blocks=BLOCKS, threads=THREADS)

INSERT = """extern "C" __global__ void k(const unsigned *keys, unsigned *table)
{
    unsigned key = keys[blockIdx.x * blockDim.x + threadIdx.x], at = key;
    while (true) {
        at &= 0x1ffff;
        unsigned found = atomicCAS(&table[at], 0u, key);
        if (found == 0u || found == key)
            return;
        at++;
    }
}
"""
ONE_BY_ONE = """extern "C" __global__ void k(unsigned *sum)
{
    unsigned before = *sum, assumed;
    do {
        assumed = before;
        before = atomicCAS(sum, assumed, assumed + 1);
    } while (before != assumed);
}
"""


def insertion() -> Launch:
    keys = Buffer("keys", (BLOCKS * THREADS,), "uint32", "in", Uniform(1, 1 << 20))
    return launch_of(INSERT, keys, Buffer("table", (CELLS,), "uint32", "inout", SingleValue(0)))


def with_multiprocessors(count: int) -> DeviceProperties:
    return replace(H200, multiprocessor_count=count)


def swaps(keys: NDArray[np.uint32], at_once: int) -> NDArray[np.int64]:
    """How often each thread tries, where so many blocks are resident and go on step by step."""
    table = np.zeros(CELLS, np.uint32)
    tries = np.zeros(len(keys), np.int64)
    for start in range(0, len(keys), at_once * THREADS):
        running = np.arange(start, min(start + at_once * THREADS, len(keys)))
        place = keys[running] % CELLS
        while len(running):
            tries[running] += 1
            left = []
            for number, (thread, at) in enumerate(
                zip(running.tolist(), place.tolist(), strict=True)
            ):
                found, key = table[at], keys[thread]
                if found == 0:
                    table[at] = key
                elif found != key:
                    left.append(number)
            running, place = running[left], (place[left] + 1) % CELLS
    return tries


def emulated(launch: Launch, device: DeviceProperties) -> Emulation:
    return emulate(launch, compile_launch(launch, (9, 0)), device, 3)


def test_blocks_that_are_resident_at_once_insert_at_once() -> None:
    """The swaps of each warp, by a simulation of the table."""
    launch = insertion()
    keys: Any = make_inputs(launch, 3)["keys"]
    found = {}
    for multiprocessors in (8, 32):  # 8 blocks fit one; a chunk has 64 at least
        emulation = emulated(launch, with_multiprocessors(multiprocessors))
        expected = swaps(keys, multiprocessors * 8).reshape(-1, 32)
        found[multiprocessors] = emulation.counters.global_atomic_requests

        assert emulation.counters.global_atomic_requests == expected.max(axis=1).sum()

    assert found[32] > 1.02 * found[8]


def test_the_warp_that_inserts_longest_is_observed_in_its_place() -> None:
    """In an empty table it would try less often."""
    launch = insertion()
    found = Execution.of(launch, compile_launch(launch, (9, 0)), 3)
    cost = record_block(found).lane_instructions_per_block
    counting.count_grid(found, cost, ignore_progress)
    keys: Any = make_inputs(launch, 3)["keys"]
    expected = swaps(keys, 64).reshape(-1, 32).max(axis=1)
    swap = next(
        number for number, step in enumerate(found.program.steps) if step.row.kind == "atomic"
    )

    extremes = extreme_warps(found)

    assert extremes is not None
    least, most = extremes
    assert least.warps[0, swap] == expected.min() < expected.max() == most.warps[0, swap]


@pytest.mark.parametrize("affordable", [False, True])
def test_what_grows_with_the_blocks_at_once_is_afforded(
    affordable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round one thread of all goes on: twice as many at once take twice as many rounds."""
    lanes, threads, blocks = 1024, 32, 64
    monkeypatch.setattr(execution, "CHUNK_LANES", lanes)
    launch = launch_of(
        ONE_BY_ONE,
        Buffer("sum", (1,), "uint32", "inout", SingleValue(0)),
        blocks=blocks,
        threads=threads,
    )
    in_chunks = blocks * lanes * threads  # a round of each for each thread of a chunk
    # A round takes some 5 instructions; the mean thread goes on after half of the rounds.
    limit = (8 if affordable else 4) * in_chunks
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", limit)
    found = Execution.of(launch, compile_launch(launch, (9, 0)), 3)
    cost = record_block(found).lane_instructions_per_block

    counting.count_grid(found, cost, ignore_progress, resident_blocks=blocks)

    assert found.chunk_blocks == (blocks if affordable else lanes // threads)
