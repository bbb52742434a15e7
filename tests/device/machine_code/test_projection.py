"""The executions of machine code, against an H200's counters and hand-made flow graphs."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from launches import launch_of
from paths import REPOSITORY

from benchmarks.truth.cases import all_cases
from benchmarks.truth.measured import measured_launches
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation import counting, representative_block
from memlab.device.emulation.execution import Execution
from memlab.device.machine_code.disassembly import disassemble
from memlab.device.machine_code.flow_graph import ENTRY, EXIT, flow_graph
from memlab.device.machine_code.projection import project
from memlab.device.machine_code.ptx_profile import profile_of_tally
from memlab.device.measurement import ignore_progress
from memlab.kernels.catalog import find_kernel
from memlab.kernels.launch import Buffer, Scalar

# Kernels whose machine code is the same from NVRTC 13.0, which compiled them for the H200, and
# from 13.5. The first four are unrolled by ptxas, with loops for the rest.
LAUNCHES = {
    "naive": {"m": 1000, "k": 570, "n": 750},
    "row-sum": {},
    "column-sum": {},
    "matmul-column-major": {"width": 2048},
    "tiled": {"width": 2048, "tile": 16},
    "transpose-padded": {},
    "filter-local": {},
    "scattered": {},
}


def hardware_row(kernel, parameters):
    with (REPOSITORY / "docs/results/h200-counters.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "hardware"]
    text = " ".join(f"{name}={value}" for name, value in parameters.items())
    (row,) = (row for row in rows if (row["kernel"], row["parameters"]) == (kernel, text))
    return row


def projected(launch):
    """The machine code of a launch for an H200, and its executions by the counts of the grid."""
    compiled = compile_launch(launch, (9, 0))
    execution = Execution.of(launch, compiled, seed=0)
    cost = representative_block.record_block(execution).lane_instructions_per_block
    tally = counting.count_grid(execution, cost, ignore_progress).tally
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))
    return graph, project(graph, profile_of_tally(execution.program, tally))


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_instructions_are_those_that_an_h200_executed(kernel):
    limits = launch_limits(loader.load_datasheet("h200"))
    launch = find_kernel(kernel).prepare(LAUNCHES[kernel], limits)
    graph, executions = projected(launch)

    truth = hardware_row(launch.kernel, launch.parameters)
    assert executions.warps.sum() == pytest.approx(float(truth["warp_instructions"]), rel=0.005)
    assert executions.lanes.sum() == pytest.approx(float(truth["thread_instructions"]), rel=0.005)
    enter = np.zeros(len(graph.blocks))
    leave = np.zeros(len(graph.blocks))
    for edge, lanes in zip(graph.edges, executions.edge_lanes, strict=True):
        if edge.destination != EXIT:
            enter[edge.destination] += lanes
        if edge.source != ENTRY:
            leave[edge.source] += lanes
    assert enter == pytest.approx(leave)


# Of what each instruction's executions differ in, relative to the sum of all: by warps, and by
# threads.
EXECUTED = {
    "argmax-rows": (0.01, 0.003),
    "csr-random-thread": (0.002, 0.001),
    "run-starts": (0.001, 0.001),
    "sum-atomic-1m": (0.001, 0.001),
}


@pytest.mark.parametrize("name", EXECUTED)
def test_each_instruction_is_executed_as_often_as_on_an_h200(name):
    """Loops of unequal trips, unrolled, with code for the trips that remain."""
    with (REPOSITORY / "tests/data/h200-executed-code.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["launch"] == name]
    (case,) = (case for case in all_cases() if case.name == name)
    launch = case.launch()
    compiled = compile_launch(launch, (9, 0))
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))
    steps = {step.address: step.opcode for step in graph.code.instructions}
    if any(steps.get(int(row["address"])) != row["instruction"] for row in rows):
        pytest.skip("this NVRTC makes other machine code than that which the H200 executed")
    execution = Execution.of(launch, compiled, seed=0)
    cost = representative_block.record_block(execution).lane_instructions_per_block
    tally = counting.count_grid(execution, cost, ignore_progress).tally

    executions = project(graph, profile_of_tally(execution.program, tally))

    for column, found, most in zip(
        ("warps", "threads"), (executions.warps, executions.lanes), EXECUTED[name], strict=True
    ):
        measured = np.array([float(row[column]) for row in rows])
        assert np.abs(found[: len(rows)] - measured).sum() <= most * measured.sum()


@pytest.mark.parametrize(
    "name", ["multiply-adds", "ways-down", "run-starts", "fft-pass", "product-three-stages"]
)
def test_all_instructions_are_as_many_as_on_hardware(name):
    """Of `multiply-adds`, only the loop's counter shows how often ptxas holds its body.

    In `ways-down` and `run-starts`, warps part: a `BSYNC` is executed by each part that comes to
    it. In `fft-pass`, zeros are divided. Of `product-three-stages`, only asynchronous copies show
    which of the code for some trips of inner loops is executed. The last was counted by an H100,
    the others by an H200.
    """
    (case,) = (case for case in all_cases() if case.name == name)
    launch = case.launch()
    _, executions = projected(launch)

    truth = measured_launches()[case.name].counters
    assert executions.warps.sum() == pytest.approx(truth["warp_instructions"], rel=1e-4)
    assert executions.lanes.sum() == pytest.approx(truth["thread_instructions"], rel=1e-4)


MULTIPLY_ADDS = """extern "C" __global__ void k(const unsigned *in, unsigned *out, int rounds) {
    unsigned x = in[threadIdx.x];
    for (int r = 0; r < rounds; ++r) x = x * 1664525u + 1013904223u;
    out[threadIdx.x] = x;
}"""


@pytest.mark.parametrize("rounds", [1, 3, 4, 16, 21, 32, 67])
def test_the_rounds_of_an_integer_loop_add_up(rounds):
    """Wherever ptxas holds the body, its multiply-adds make as many steps of the recurrence."""
    x, y = Buffer("in", (64,), "uint32", "in"), Buffer("out", (64,), "uint32", "inout")
    launch = launch_of(MULTIPLY_ADDS, x, y, Scalar("rounds", "int32", rounds), blocks=1, threads=64)
    compiled = compile_launch(launch, (9, 0))
    execution = Execution.of(launch, compiled, seed=0)
    tally = counting.count_grid(execution, 1.0, ignore_progress).tally
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))

    executions = project(graph, profile_of_tally(execution.program, tally))

    added, steps = {}, 0  # what so many steps in one add
    for number in range(1, 65):
        steps = (steps * 1664525 + 1013904223) % 2**32
        added[steps] = number
    made = sum(
        lanes * added[int(step.operands[-1], 0) % 2**32]
        for step, lanes in zip(graph.code.instructions, executions.lanes, strict=True)
        if step.opcode == "IMAD" and not step.predicate
    )
    assert made == pytest.approx(64 * rounds, rel=1e-4)


ADDED = """extern "C" __global__ void k(float *out) {
    __shared__ float words[16][32];
    for (int i = 0; i < 16; i++) if (threadIdx.x < 32) words[i][threadIdx.x] = 0;
    __syncthreads();
    #pragma unroll 1
    for (int i = 0; i < 16; i++) atomicAdd(&words[i][threadIdx.x % 32], 1.0f);
    __syncthreads();
    out[threadIdx.x] = words[0][threadIdx.x % 32];
}"""


def test_a_loop_may_begin_with_one_that_the_ptx_does_not_have():
    """That of the compare-and-swaps has the same header."""
    out = Buffer("out", (256,), "float32", "inout")

    graph, executions = projected(launch_of(ADDED, out, blocks=1, threads=256))

    steps = zip(graph.code.instructions, executions.lanes, executions.warps, strict=True)
    counts = [(lanes, warps) for step, lanes, warps in steps if step.name == "ATOMS"]
    assert counts == [pytest.approx((16 * 256, 16 * 8))]


HALVING = """extern "C" __global__ void k(const float *in, float *out, int n) {
    extern __shared__ float part[];
    int t = threadIdx.x;
    part[t] = in[t] + in[n];
    __syncthreads();
    for (int s = blockDim.x / 2; s; s /= 2) {
        if (t < s) part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}"""
REPEATED = """extern "C" __global__ void k(const float *in, float *out, int n) {
    for (int i = 0; i < n; ++i) atomicAdd(out + threadIdx.x, in[threadIdx.x]);
}"""


@pytest.mark.parametrize(
    ("source", "n"), [(HALVING, 128), (REPEATED, 3), (REPEATED, 24), (REPEATED, 40)]
)
def test_threads_that_do_the_same_take_the_same_way(source, n):
    """No thread is taken to repeat a loop for others that leave it out."""
    x, y = Buffer("in", (256,), "float32", "in"), Buffer("out", (256,), "float32", "inout")
    launch = launch_of(source, x, y, Scalar("n", "int32", n), blocks=1, threads=256, shared=1024)
    compiled = compile_launch(launch, (9, 0))
    execution = Execution.of(launch, compiled, seed=0)
    tally = counting.count_grid(execution, 1.0, ignore_progress).tally
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))

    executions = project(graph, profile_of_tally(execution.program, tally))

    per_thread = executions.edge_lanes / 256  # but for the one that stores
    assert per_thread == pytest.approx(np.round(per_thread), abs=1e-2)
