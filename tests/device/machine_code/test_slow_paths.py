"""The ways through ptxas's functions for divisions and roots, against those of an H100."""

from __future__ import annotations

import csv

import pytest
from hand_made_code import END, PLAIN, code_of
from launches import launch_of
from paths import REPOSITORY

from benchmarks.truth.cases import LATER_FOLDERS, SIXTH_ASIDE, Case
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets.loader import load_datasheet
from memlab.device.emulation.device import emulate
from memlab.device.machine_code.disassembly import disassemble
from memlab.device.machine_code.flow_graph import flow_graph
from memlab.device.machine_code.slow_paths import avoided_blocks
from memlab.kernels.launch import Buffer

with (REPOSITORY / "tests/data/h100-slow-paths.csv").open(newline="") as file:
    OF_ZEROS = {
        row["function"]: int(row["instructions"])
        for row in csv.DictReader(file)
        if row["operands"] in ("zero", "zero over x")
    }
KERNELS = {
    "div_rn_noftz_f32_slowpath": ("float", "x[i] / y[i]"),
    "rcp_rn_f32_slowpath": ("float", "1.0f / x[i]"),
    "sqrt_rn_f32_slowpath": ("float", "sqrtf(x[i])"),
    "div_rn_f64_full": ("double", "x[i] / y[i]"),
    "dblrcp_rn_slowpath": ("double", "1.0 / x[i]"),
    "dsqrt_rn_f64_mediumpath": ("double", "sqrt(x[i])"),
}


@pytest.mark.parametrize("function", KERNELS)
def test_a_zero_executes_as_many_instructions_as_on_an_h100(function):
    kind, result = KERNELS[function]
    source = (
        f'extern "C" __global__ void k(const {kind} *x, {kind} *y) '
        f"{{ int i = threadIdx.x; y[i] = {result}; }}"
    )
    dtype = {"float": "float32", "double": "float64"}[kind]
    x, y = Buffer("x", (32,), dtype, "in"), Buffer("y", (32,), dtype, "inout")
    launch = launch_of(source, x, y, blocks=1, threads=32)
    compiled = compile_launch(launch, (9, 0))
    graph = flow_graph(disassemble(compiled.cubin, launch.entry, (9, 0)))
    (call,) = graph.calls

    way = graph.reached_from(call.function) - avoided_blocks(graph)

    # The schedule of one NVRTC and another may differ by a few moves.
    executed = sum(len(graph.instructions(block)) for block in way)
    assert executed == pytest.approx(OF_ZEROS[function], abs=2)


def test_long_remainders_execute_as_many_instructions_as_on_an_h100():
    launch = Case(
        "",
        "",
        "sciences.cu:ntt_stage --grid 4 --block 256 --arg inout:u32[2048]=randint:0:998244353 "
        "--arg u32[2048]=randint:0:998244353 --arg i32=256 --arg i32=2048 --arg u32=998244353",
        folder=LATER_FOLDERS[SIXTH_ASIDE],
    ).launch()
    compiled = compile_launch(launch, (9, 0))

    counters = emulate(launch, compiled, load_datasheet("h100"), seed=0).counters

    # docs/results/h100-held-out-6.csv: 16,646,239 in 131,072 warps; nearly all products are long
    assert counters.warp_instructions / 32 == pytest.approx(16_646_239 / 131_072, rel=0.002)


CALL = ("CALL.REL.NOINC", "", (), 32)
RETURN = ("RET.REL.NODEC", "", ("R4", "`(k)"), None)
# 0: the call; 1: EXIT; the function: 2: @P0 BRA 96; 3: @P1 BRA 96; 4: PLAIN, RET; 5: PLAIN, RET
FUNCTION = (
    ("BRA", "P0", (), 112),
    ("BRA", "P1", (), 112),
    PLAIN,
    RETURN,
    END,
    PLAIN,
    RETURN,
)


def graph_of(name):
    return flow_graph(code_of(CALL, END, *FUNCTION, functions={32: name}))


def test_a_zero_takes_the_branches_of_the_function():
    graph = graph_of("$__internal_0_$__cuda_sm20_dblrcp_rn_slowpath_v3")  # not taken, then taken

    avoided = avoided_blocks(graph)

    first = {graph.instructions(block)[0].address for block in avoided}
    assert first == {64}  # between the second branch and where it goes


@pytest.mark.parametrize(
    "name", ["$__internal_0_$__cuda_sm20_div_rn_f64_full", "$__internal_0_$other"]
)
def test_a_function_with_other_branches_is_left_as_it_is(name):
    assert not avoided_blocks(graph_of(name))
