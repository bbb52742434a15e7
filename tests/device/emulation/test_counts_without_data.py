"""Persistent kernels, whose blocks are counted without the data that decides nothing."""

from dataclasses import fields, replace

import numpy as np
import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import launch_limits, open_device
from memlab.device.emulation import counting
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.line_trace import ChunkLines, LineTrace
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.program.polling_loops import find_polling_loops
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.sampling.without_data import without_data, without_products
from memlab.device.measurement import ignore_progress
from memlab.kernels.catalog import CATALOG

FEW_SMS = replace(launch_limits(open_device("h200").properties), multiprocessor_count=4)
"""So few that blocks compute several tiles each, and not all equally many."""
SIZES = [{"m": 700, "k": 200, "n": 1032}, {"m": 1, "k": 8, "n": 8}]


def execution(kernel: str, parameters: dict[str, int]) -> Execution:
    launch = CATALOG[kernel].prepare(parameters, FEW_SMS)
    return Execution.of(launch, compile_launch(launch, (9, 0)), 0)


def assert_equal(counts: Tally, expected: Tally) -> None:
    for field in fields(Tally):
        actual, right = getattr(counts, field.name), getattr(expected, field.name)
        assert np.array_equal(actual, right), field.name


@pytest.mark.parametrize(
    "kernel",
    ["wgmma-persistent", "wgmma-cluster", "wgmma-pingpong", "wgmma-overlapped", "wgmma-tf32"],
)
@pytest.mark.parametrize("size", SIZES)
def test_counts_are_those_of_the_whole_execution(kernel: str, size: dict[str, int]) -> None:
    whole = execution(kernel, size)
    blocks = whole.blocks[:]
    program = without_data(whole.program)
    assert program is not None

    counted = whole.run(blocks, program=program).tally()
    (output,) = whole.launch.outputs
    written = whole.elements_written(output)
    whole.reset()
    expected = whole.run(blocks).tally()

    assert_equal(counted, expected)
    assert np.array_equal(written, whole.elements_written(output))
    assert whole.verify(whole=True).status == "passed"


@pytest.mark.parametrize("kernel", ["tensor-tf32", "tensor-fp16", "attention-mma"])
def test_lines_of_products_of_warps_are_those_of_the_whole_execution(kernel: str) -> None:
    launched = execution(kernel, {})
    program = without_products(launched.program)
    assert without_data(launched.program) is None
    assert program is not None
    assert not any(step.row.opcode.startswith("mma.") for step in program.steps)

    def lines(executed: Program) -> ChunkLines:
        trace = LineTrace(1 << 20, 1)
        launched.reset()
        launched.run(launched.blocks[:4], observers=[trace], program=executed)
        return trace.take()

    found, expected = lines(program), lines(launched.program)
    assert expected.complete
    assert len(expected.accesses) > 1000
    assert np.array_equal(found.accesses, expected.accesses)
    assert np.array_equal(found.last_runs, expected.last_runs)


def test_programs_with_little_to_leave_out_are_executed_as_they_are() -> None:
    assert without_products(execution("warp-tiled", {}).program) is None


@pytest.mark.parametrize("kernel", ["wgmma-persistent", "wgmma-cluster"])
def test_only_waits_for_barriers_poll(kernel: str) -> None:
    loops = find_polling_loops(execution(kernel, SIZES[1]).program)

    assert len(loops) == 2  # of the warpgroup that loads, and of those that multiply
    assert all(loop.is_pure_poll for loop in loops.values())


def test_large_launch_counts_all_blocks_and_verifies_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched = execution("wgmma-cluster", SIZES[0])
    expected = launched.run(launched.blocks[:]).tally()
    launched.reset()
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    monkeypatch.setattr(counting, "SAMPLE_LANE_INSTRUCTIONS", 1)

    counts = counting.count_grid(launched, 1e6, ignore_progress)

    assert_equal(counts.tally, expected)
    assert not counts.coverage.estimated
    assert not counts.coverage.timed_out
    assert 0 < counts.coverage.blocks_emulated <= launched.launch.blocks
    verified = launched.verify(whole=False)
    assert verified.status == "passed"
    assert 0 < verified.checked <= verified.total
