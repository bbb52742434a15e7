"""Times one part of the engine: `python engine_probe.py PROBE [ARGUMENT...]` prints a number.

`benchmarks.engine` runs it with the old memlab on the path and with the new one, so it uses only
what both have. What is timed has been executed once, but for `first_run`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from launches import launch_of, user_kernel
from planted import PLANTED

from memlab.device.checking.check import check_launch
from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation import counting, representative_block
from memlab.device.emulation.execution import Execution
from memlab.device.measurement import ignore_progress
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Buffer, Launch, Scalar
from memlab.launching import prepare

COMPUTE_CAPABILITY = (9, 0)
THREADS = 256
"""The lanes of the one block that `fma` and `accesses` run."""

LEAST_S = 0.5
"""The shortest loop whose rate counts, CPU seconds."""
REPETITIONS = 3
"""Executions of which the fastest counts."""

ELEMENTS = 64 * 8 * THREADS
"""Floats of an array that `accesses` reads or writes: 512 KiB."""

FMA_LOOP = """
extern "C" __global__ void k(float *out, int turns)
{
    float x[16];
    for (int i = 0; i < 16; ++i)
        x[i] = threadIdx.x + i;
    float scale = out[0], offset = out[1];
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn)
        #pragma unroll
        for (int i = 0; i < 64; ++i)
            x[i % 16] = x[i % 16] * scale + offset;
    float sum = 0;
    for (int i = 0; i < 16; ++i)
        sum += x[i];
    out[threadIdx.x] = sum;
}
"""
"""Sixteen independent chains of FMAs."""

ACCESS_LOOP = """
extern "C" __global__ void k(float *out, const float *in, int turns)
{
    __shared__ float staged[8][256];
    int thread = threadIdx.x;
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
        int at = turn % 64 * 8 * 256 + thread;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            staged[i][thread] = in[at + i * 256];
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            out[at + i * 256] = staged[i][255 - thread];
        __syncthreads();
    }
}
"""
"""Reverses the elements of each block of 256 by way of shared memory; all accesses coalesce."""


def fma() -> float:
    """Lane-operations per CPU second in a loop of FMAs: instructions times their lanes."""
    out = Buffer("out", (THREADS,), "float32", "inout")
    return _rate(FMA_LOOP, (out,), lambda kind: True)


def accesses() -> float:
    """Lanes that load or store per CPU second, half in global and half in shared memory."""
    out = Buffer("out", (ELEMENTS,), "float32", "out")
    given = Buffer("in", (ELEMENTS,), "float32", "in")
    return _rate(ACCESS_LOOP, (out, given), lambda kind: kind in ("load", "store"))


def _rate(source: str, buffers: Sequence[Buffer], counts: Callable[[str], bool]) -> float:
    """The counted instructions of a loop, times their lanes, per CPU second.

    Args:
        source: The kernel, which takes the buffers and the turns of the loop.
        buffers: Its arrays.
        counts: Whether an instruction counts, by its row's kind.
    """
    block, turns = np.zeros((1, 3), np.int64), 64
    while True:
        launch = launch_of(
            source, *buffers, Scalar("turns", "int32", turns), blocks=1, threads=THREADS
        )
        execution = _execution(launch)
        seconds = _fastest_s(partial(execution.run, block))
        if seconds >= LEAST_S:
            break
        turns *= 4
    steps, warps = execution.program.steps, execution.record(block).warps
    counted = (count for count, step in zip(warps, steps, strict=False) if counts(step.row.kind))
    return sum(map(int, counted)) * WARP_SIZE / seconds


def check(what: str, *names: str) -> float:
    """CPU seconds of checking the planted bugs and their fixed twins, or the tiled product.

    Args:
        what: `planted` or `tiled`.
        *names: The files with planted bugs; without any, all.
    """
    if what == "tiled":
        prepared = [prepare("tiled", {"width": 1024}, device="h200")]
    else:
        prepared = [
            prepare(user_kernel(str(file.path), file.words, ["FIXED"] * fixed), {}, device="h200")
            for file in PLANTED
            if not names or file.path.name in names
            for fixed in (False, True)
        ]
    total_s = 0.0
    for one in prepared:
        run = partial(check_launch, one.launch, one.compile(), one.device_summary)
        run()
        total_s += _fastest_s(run)
    return total_s


def grid() -> float:
    """Seconds of executing the whole grid of a tiled product, on as many cores as are allowed."""
    launch = prepare("tiled", {"width": 1024, "tile": 16}, device="h200").launch
    execution = _execution(launch)
    cost = representative_block.record_block(execution).lane_instructions_per_block
    times_s = []
    for _ in range(REPETITIONS):
        execution.reset()
        started = time.perf_counter()
        counted = counting.count_grid(execution, cost, ignore_progress)
        times_s.append(time.perf_counter() - started)
        if counted.coverage.blocks_emulated != launch.blocks:
            raise RuntimeError("the grid was not executed whole")
    return min(times_s)


STATEMENTS = (
    "x{a} = x{a} * x{b} + x{c};",
    "x{a} += x{b} * 0.5f;",
    "n{a} += n{b} * n{c};",
    "n{a} ^= n{b} >> {c};",
    "n{a} += (int)x{b};",
    "x{a} += in[n{b} & 255];",
    "staged[n{b} & 255] += x{a};",
    "if (n{b} > n{c}) x{a} -= {c}.25f;",
)
"""The statements of a generated program."""
INSTRUCTIONS_PER_STATEMENT = 3.3
OTHER_INSTRUCTIONS = 100
"""PTX instructions: of a statement, on average, and of what surrounds them (counted)."""
STATEMENTS_PER_LOOP = 40
VARIABLES = 12
"""Variables of a generated program, of each type."""

PROGRAM = """
extern "C" __global__ void k(float *out, const float *in, int turns)
{{
    __shared__ float staged[256];
    for (int i = threadIdx.x; i < 256; i += 32)
        staged[i] = in[i];
    __syncthreads();
{body}
    out[threadIdx.x] = {total};
}}
"""


def first_run(instructions: str, seed: str) -> float:
    """Load and execute a generated program, by one warp.

    Args:
        instructions: About how many instructions it has.
        seed: The seed of its statements.

    Returns:
        CPU seconds, without the compilation of CUDA to PTX.
    """
    source = _program(int(instructions), random.Random(seed))
    out, given = Buffer("out", (32,), "float32", "out"), Buffer("in", (256,), "float32", "in")
    launch = launch_of(source, out, given, Scalar("turns", "int32", 2), blocks=1, threads=32)
    compiled = compile_launch(launch, COMPUTE_CAPABILITY)
    started = time.process_time()
    execution = Execution.of(launch, compiled, 0)
    execution.run(np.zeros((1, 3), np.int64))
    return time.process_time() - started


def _program(instructions: int, draw: random.Random) -> str:
    """A kernel of random statements in loops, with about so many PTX instructions."""
    numbers = range(VARIABLES)
    statements = int((instructions - OTHER_INSTRUCTIONS) / INSTRUCTIONS_PER_STATEMENT)
    lines = [f"float x{number} = in[{number}]; int n{number} = {number};" for number in numbers]
    for start in range(0, statements, STATEMENTS_PER_LOOP):
        lines += ["#pragma unroll 1", "for (int turn = 0; turn < turns; ++turn) {"]
        for _ in range(start, min(start + STATEMENTS_PER_LOOP, statements)):
            a, b, c = (draw.choice(numbers) for _ in range(3))
            lines.append(draw.choice(STATEMENTS).format(a=a, b=b, c=c))
        lines.append("}")
    total = " + ".join(f"x{number} + n{number}" for number in numbers)
    return PROGRAM.format(body="\n".join(lines), total=total)


def _fastest_s(action: Callable[[], object]) -> float:
    """The least CPU seconds of some repetitions."""
    times_s = []
    for _ in range(REPETITIONS):
        started = time.process_time()
        action()
        times_s.append(time.process_time() - started)
    return min(times_s)


def _execution(launch: Launch) -> Execution:
    return Execution.of(launch, compile_launch(launch, COMPUTE_CAPABILITY), 0)


PROBES = {probe.__name__: probe for probe in (fma, accesses, check, grid, first_run)}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]](*sys.argv[2:])))
