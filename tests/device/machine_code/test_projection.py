"""The executions of machine code, against an H200's counters and hand-made flow graphs."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from launches import launch_of
from paths import REPOSITORY

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation import counting, representative_block
from memlab.device.emulation.execution import Execution
from memlab.device.machine_code.disassembly import disassemble
from memlab.device.machine_code.flow_graph import ENTRY, EXIT, flow_graph
from memlab.device.machine_code.projection import project
from memlab.device.machine_code.ptx_profile import ptx_profile
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


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_instructions_are_those_that_an_h200_executed(kernel):
    limits = launch_limits(loader.load_datasheet("h200"))
    launch = find_kernel(kernel).prepare(LAUNCHES[kernel], limits)
    compiled = compile_launch(launch, (9, 0))
    execution = Execution.of(launch, compiled, seed=0)
    cost = representative_block.record_block(execution).lane_instructions_per_block
    tally = counting.count_grid(execution, cost, ignore_progress).tally
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))

    executions = project(graph, ptx_profile(execution.program, tally.lanes, tally.warps))

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

    executions = project(graph, ptx_profile(execution.program, tally.lanes, tally.warps))

    per_thread = executions.edge_lanes / 256  # but for the one that stores
    assert per_thread == pytest.approx(np.round(per_thread), abs=1e-2)
