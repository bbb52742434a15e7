"""The executions of machine code, against an H200's counters and hand-made flow graphs."""

from __future__ import annotations

import csv

import numpy as np
import pytest
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
