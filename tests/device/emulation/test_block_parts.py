"""Blocks that run in parts, on several threads, give what blocks in lockstep give."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from launches import launch_of

from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation import block_parts
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.line_trace import LineTrace
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.sampling.block_sample import WholeGrid
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, Scalar

BLOCKS, THREADS = 300, 64
SIZE = BLOCKS * THREADS

INDEPENDENT = "o[i] = x[i] * 2.0f; if (i % 3) o[i] += x[(i * 7) % n];"
SHIFTED = "o[i] = o[(i + n / 2) % n] + 1.0f;"
"""Each block reads what another one writes: in lockstep, all read before one writes."""
SAME_PLACE = "if (threadIdx.x == 5) o[7] = (float)blockIdx.x; o[64 + i / 2] = 1.0f + i;"
"""Blocks store different values to one place: in lockstep, the last one's stays."""
SAME_VALUE = "o[i % 4] = 3.0f;"
SCATTERED = "o[(int)(x[i] * 1000.0f) % n] = x[i];"


def executed(body: str) -> Execution:
    head = 'extern "C" __global__ void k(float *o, const float *x, int n) {'
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    launch = launch_of(
        f"{head} {index} {body} }}",
        Buffer("o", (SIZE,), "float32", "inout"),
        Buffer("x", (SIZE,), "float32", "in"),
        Scalar("n", "int32", SIZE),
        blocks=BLOCKS,
        threads=THREADS,
    )
    return Execution.of(launch, compile_launch(launch, (9, 0)), 0)


def run(execution: Execution) -> tuple[list[object], bytes]:
    """The counts of each chunk, and the output."""
    blocks = WholeGrid(execution.launch.grid)
    tallies = [asdict(execution.run(chunk).tally()) for chunk in execution.chunks(blocks)]
    return tallies, execution.memory.bytes_of("o").tobytes()


def in_lockstep(body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], bytes]:
    with monkeypatch.context() as patched:
        patched.setattr(block_parts, "PART_LANES", 1 << 30)
        patched.setattr("memlab.device.emulation.execution.PART_LANES", 1 << 30)
        return run(executed(body))


@pytest.mark.parametrize("body", [INDEPENDENT, SHIFTED, SAME_PLACE, SAME_VALUE, SCATTERED])
def test_the_results_are_those_of_lockstep(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = in_lockstep(body, monkeypatch)
    for _ in range(3):
        assert run(executed(body)) == expected


def test_blocks_that_share_nothing_run_in_parts() -> None:
    execution = executed("o[i] = x[i] * 2.0f;")
    run(execution)
    assert not execution.runs_in_lockstep
    np.testing.assert_array_equal(
        execution.memory.bytes_of("o").view(np.float32), execution.inputs["x"] * 2
    )


@pytest.mark.parametrize("body", [SHIFTED, SAME_PLACE, SCATTERED])
def test_blocks_that_affect_each_other_run_in_lockstep(body: str) -> None:
    execution = executed(body)
    run(execution)
    assert execution.runs_in_lockstep


def recorded_lines(execution: Execution) -> list[tuple[list[object], list[int], bool]]:
    chunks = list(execution.chunks(WholeGrid(execution.launch.grid)))
    assert len(chunks) > 1
    traced = execution.record_chunks(chunks, lambda: LineTrace(1 << 20, 1), LineTrace.take)
    return [(each.accesses.tolist(), each.last_runs.tolist(), each.complete) for each in traced]


@pytest.mark.parametrize("body", [INDEPENDENT, SHIFTED, SAME_PLACE, SAME_VALUE, SCATTERED])
def test_chunks_are_recorded_on_all_cores_as_one_after_the_other(body: str) -> None:
    in_order = executed(body)
    in_order.runs_in_lockstep = True
    expected = recorded_lines(in_order)
    assert all(accesses and complete for accesses, _, complete in expected)
    for _ in range(3):
        assert recorded_lines(executed(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        "atomicAdd(o + i % 4, 1.0f);",
        'if (i < 2) printf("%d", i); o[i] = 1;',
        "o[i] = (float)clock64();",
        "while (*(volatile float *)x < -1.0f) {} o[i] = 1;",
    ],
)
def test_programs_whose_order_matters_never_run_in_parts(body: str) -> None:
    assert executed(body).runs_in_lockstep


def test_a_fault_names_the_thread_that_lockstep_names(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "if (i > 17000) o[i - 17001 + (i % 64 == 9) * n] = 0; o[i] = 1; o[i * 2] = 3;"
    messages = set()
    with pytest.raises(KernelFault) as fault:
        in_lockstep(body, monkeypatch)
    messages.add(str(fault.value))
    with pytest.raises(KernelFault) as fault:
        run(executed(body))
    assert messages == {str(fault.value)}


@pytest.mark.parametrize("chosen", ["0", "two", "-1", "1000000000", "٣"])
def test_the_number_of_threads_must_be_a_positive_number(
    chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(block_parts.THREADS_VARIABLE, chosen)
    with pytest.raises(UsageError, match=f"MEMLAB_THREADS .*got '{chosen}'"):
        block_parts.threads()


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_every_part_is_one_task_of_its_chunk(workers: int) -> None:
    counts = np.random.default_rng(workers).integers(1, 9, 40).tolist()
    tasks = block_parts._tasks(counts, workers)

    parts = [(task.chunk, part, task.parts_before + part) for task in tasks for part in task.parts]
    chunks = [(chunk, part) for chunk, count in enumerate(counts) for part in range(count)]
    assert parts == [(*place, number) for number, place in enumerate(chunks)]
    single = [task for task in tasks if len(task.parts) == 1]
    assert len(single) >= sum(counts[-workers:])  # threads end at about the same time
