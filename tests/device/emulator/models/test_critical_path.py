"""Clocks of a lone warp, added up by hand for a few instructions."""

from __future__ import annotations

import pytest

from memlab.device.emulator.machine.execution_trace import WarpPath
from memlab.device.emulator.models.critical_path import Latencies, warp_clocks
from memlab.device.emulator.program import program
from memlab.device.emulator.ptx import parser

LATENCIES = Latencies(
    arithmetic=4, shared=30, constant=28, global_load=300, global_atomic=500, barrier=20
)

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 data)
{
.reg .f32 %f<9>;
.reg .b64 %rd<9>;
.reg .b32 %r<9>;
.reg .pred %p<9>;
.shared .align 4 .b8 tile[1024];
"""


def clocks(*lines: str, path: list[tuple[int, int]] | None = None) -> float:
    """Follow a warp through instructions, by default from the first to the last."""
    text = HEAD + "".join(f"{line}\n" for line in (*lines, "ret;")) + "}\n"
    loaded = program.load_program(parser.parse_ptx(text), "kernel")
    return warp_clocks(loaded, WarpPath.of(path or [(0, len(lines))]), LATENCIES)


def test_an_empty_path_takes_no_time() -> None:
    assert clocks(path=[(0, 0)]) == 0


def test_independent_instructions_issue_one_per_clock() -> None:
    assert clocks(*(f"add.f32 %f{i}, %f{i}, %f{i};" for i in range(1, 6))) == 5


def test_a_chain_waits_for_each_result() -> None:
    # They issue at 0, 4 and 8.
    assert clocks(*["add.f32 %f1, %f1, %f2;"] * 3) == 8


@pytest.mark.parametrize(
    ("load", "latency"),
    [
        ("ld.global.f32 %f1, [%rd1];", 300),
        ("ld.shared.f32 %f1, [%r1];", 30),
        ("ld.param.f32 %f1, [data];", 4),
        ("ld.const.f32 %f1, [%rd1];", 28),
        ("atom.global.add.f32 %f1, [%rd1], %f2;", 500),
    ],
)
def test_a_use_waits_for_its_load(load: str, latency: int) -> None:
    assert clocks(load, "add.f32 %f2, %f1, %f1;") == latency


def test_loads_overlap_and_an_address_is_waited_for() -> None:
    first, second = "ld.global.f32 %f1, [%rd1];", "ld.global.f32 %f2, [%rd2];"
    assert clocks(first, second, "add.f32 %f3, %f1, %f2;") == 300
    assert clocks("ld.global.u64 %rd2, [%rd1];", second, "add.f32 %f3, %f2, %f2;") == 600


def test_a_guard_and_a_stored_value_are_waited_for() -> None:
    set_guard = "setp.eq.f32 %p1, %f1, %f2;"
    assert clocks(set_guard, "@%p1 add.f32 %f3, %f3, %f3;") == 4
    assert clocks("ld.shared.f32 %f1, [%r1];", "st.global.f32 [%rd1], %f1;") == 30


def test_a_barrier_costs_its_latency() -> None:
    assert clocks("bar.sync 0;") == 1 + 20


def test_ranges_follow_one_another() -> None:
    # A loop of one dependent add run three times: each waits for the one before.
    assert clocks("add.f32 %f1, %f1, %f2;", path=[(0, 1)] * 3) == 8


def test_a_long_path_is_scaled_from_its_beginning() -> None:
    loop = [(0, 1)] * 1_000_000
    assert clocks("add.f32 %f1, %f1, %f2;", path=loop) == pytest.approx(4e6, rel=0.01)
