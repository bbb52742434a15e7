"""Traces against the lessons' own walks, done by hand, and against counts that NumPy gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.compile import compile_launch
from memlab.device.emulator import parser
from memlab.device.emulator.machine import Chunk
from memlab.device.emulator.program import load
from memlab.device.emulator.recording import Recorder
from memlab.device.execution import Execution
from memlab.device.trace_records import Trace, phases, value_name
from memlab.device.tracing import trace
from memlab.errors import UsageError
from memlab.kernels.catalog import find
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Buffer, Dim3, Launch, Uniform

ORIGIN = (0, 0, 0)


def follow(kernel: str, block: Dim3, thread: Dim3, **parameters: int) -> Trace:
    launch = find(kernel).prepare(parameters, Limits("test"))
    return trace(launch, compile_launch(launch, (8, 0)), block, thread, "test")


def test_the_walk_for_p_3_1_without_tiles() -> None:
    """Width 4, 2 x 2 blocks: row 3 of M with column 1 of N.

    Lessons say thread (1, 1) of block (1, 0), row before column; CUDA's x, y make that block
    (0, 1). One of them prints M[12] and N[1] again as the sums of the third step.
    """
    found = follow("naive", (0, 1, 0), (1, 1, 0), width=4, tile=2)
    assert [each.flat for each in found.followed.operations] == [
        "M[12] * N[1]",
        "M[13] * N[5]",
        "M[14] * N[9]",
        "M[15] * N[13]",
    ]
    assert found.followed.operations[0].text == "M[3][0] * N[0][1]"
    (written,) = (each for each in found.followed.accesses if each.kind == "store")
    assert written.element.label == "P[13] = P[3][1]"
    loaded = [each.element.flat for each in found.followed.accesses if each.kind == "load"]
    assert loaded[::2] == ["N[1]", "N[5]", "N[9]", "N[13]"]
    assert loaded[1::2] == ["M[12]", "M[13]", "M[14]", "M[15]"]
    assert phases(found.followed) == ()


PHASES = {
    # thread (x, y): what it stages in phase 1 and 2, and what it multiplies in both.
    (0, 0, 0): ("M[0][0] N[0][0]", "M[0][2] N[2][0]", "0 0"),
    (1, 0, 0): ("M[0][1] N[0][1]", "M[0][3] N[2][1]", "0 1"),
    (0, 1, 0): ("M[1][0] N[1][0]", "M[1][2] N[3][0]", "1 0"),
    (1, 1, 0): ("M[1][1] N[1][1]", "M[1][3] N[3][1]", "1 1"),
}
"""The lessons' table for block (0, 0), width 4, 2 x 2 tiles, their Mds and Nds being M_tile and
N_tile. There thread(0,1) puts N[0][1] into Nds[1][0] in phase 1: into [0][1], as in phase 2."""


def test_the_phases_of_the_tiled_product() -> None:
    found = follow("tiled", ORIGIN, ORIGIN, width=4, tile=2)
    assert [each.thread for each in found.threads] == list(PHASES)
    for thread in found.threads:
        *staged, place = PHASES[thread.thread]
        row, column = place.split()
        for phase, wanted in zip(phases(thread), staged, strict=True):
            assert " ".join(value_name(each.source) for each in phase.staged) == wanted
            assert [each.element.name for each in phase.staged] == [
                f"M_tile[{row}][{column}]",
                f"N_tile[{row}][{column}]",
            ]
            assert [each.text for each in phase.operations] == [
                f"M_tile[{row}][0] * N_tile[0][{column}]",
                f"M_tile[{row}][1] * N_tile[1][{column}]",
            ]
    assert found.followed.barriers == 4


def test_how_often_elements_are_read_with_and_without_tiles() -> None:
    """Width 4 in 2 x 2 blocks: the block touches two rows of M and two columns of N."""
    naive = follow("naive", ORIGIN, ORIGIN, width=4, tile=2)
    tiled = follow("tiled", ORIGIN, ORIGIN, width=4, tile=2)
    for without, staged in zip(naive.arrays[:2], tiled.arrays[:2], strict=True):
        assert (without.block_reads, without.grid_reads) == ({2: 8}, {4: 16})
        assert (staged.block_reads, staged.grid_reads) == ({1: 8}, {2: 16})
    assert naive.shared_reuse is None
    assert (tiled.shared_reuse, tiled.staged_share) == (2.0, 1.0)
    assert naive.arrays[2].block_written == (0, 1, 4, 5)


@settings(max_examples=5, deadline=None)
@given(m=st.integers(1, 9), k=st.integers(1, 9), n=st.integers(1, 9), tile=st.integers(1, 4))
def test_reads_of_a_rectangular_product(m: int, k: int, n: int, tile: int) -> None:
    """Without tiles each row of M serves n columns, each column of N m rows."""
    naive = follow("naive", ORIGIN, ORIGIN, m=m, k=k, n=n, tile=tile)
    assert naive.arrays[0].grid_reads == {n: m * k}
    assert naive.arrays[1].grid_reads == {m: k * n}
    tiled = follow("tiled", ORIGIN, ORIGIN, m=m, k=k, n=n, tile=tile)
    assert tiled.arrays[0].grid_reads == {-(-n // tile): m * k}
    assert tiled.arrays[1].grid_reads == {-(-m // tile): k * n}


def test_beyond_the_edge_tiles_hold_zeros() -> None:
    """Width 3, tile 2: thread (1, 0) has no element of M in the second phase, none at all of N."""
    found = follow("tiled", (1, 0, 0), (1, 0, 0), width=3, tile=2)
    staged = [
        [value_name(each.source) for each in phase.staged] for phase in phases(found.followed)
    ]
    assert staged == [["M[0][1]", "0"], ["0", "0"]]
    assert found.followed.touches("global")[-1].kind == "load"
    assert found.staged_share is not None
    assert found.staged_share > 1


def test_a_thread_outside_the_matrix_touches_nothing() -> None:
    assert follow("naive", (1, 1, 0), (1, 1, 0), width=3, tile=2).followed.steps == ()


@pytest.mark.parametrize(
    ("kernel", "parameters", "text"),
    [
        ("transpose-padded", {"width": 40}, "b[5] = b[0][5] = square[5][0]"),
        ("misaligned", {"n": 64, "offset": 3}, "b[5] = a[8]"),
        ("register-tiled-2d", {"width": 8, "tile": 8, "per_thread": 2}, "M_tile[2][5] = M[2][5]"),
    ],
)
def test_other_kernels_are_followed_in_their_own_names(
    kernel: str, parameters: dict[str, int], text: str
) -> None:
    found = follow(kernel, ORIGIN, (5, 0, 0), **parameters)
    stores = [each for each in found.followed.accesses if each.kind == "store"]
    assert text in [f"{each.element.label} = {value_name(each.source)}" for each in stores]


def test_wide_loads_name_every_element() -> None:
    found = follow("vectorized", ORIGIN, ORIGIN, width=16, tile=16, per_thread=4)
    loaded = [each.element.flat for each in found.followed.touches("global")[:4]]
    assert loaded == ["M[0]", "M[1]", "M[2]", "M[3]"]
    assert sum(found.arrays[0].block_reads.values()) == 256


@pytest.mark.parametrize(
    ("block", "thread", "message"),
    [
        (
            (2, 0, 0),
            ORIGIN,
            "block (2, 0) is outside the grid of 2 x 2 x 1 blocks: use --block-index 1,0",
        ),
        ((0, -1, 0), ORIGIN, "block (0, -1) is outside the grid of 2 x 2 x 1 blocks: use --block"),
        (
            ORIGIN,
            (0, 9, 0),
            "thread (0, 9) is outside the block of 2 x 2 x 1 threads: use --thread",
        ),
        (ORIGIN, (0, 0, 1), "thread (0, 0, 1) is outside the block of 2 x 2 x 1 threads"),
    ],
)
def test_what_is_outside_the_launch_is_refused(block: Dim3, thread: Dim3, message: str) -> None:
    with pytest.raises(UsageError, match="outside") as caught:
        follow("naive", block, thread, width=4, tile=2)
    assert message in str(caught.value)


def test_a_trace_changes_nothing_that_is_counted() -> None:
    """The recorder only watches: the same block counts the same with and without it."""
    launch = find("tiled").prepare({"width": 10, "tile": 4}, Limits("test"))
    program = load(parser.parse(compile_launch(launch, (8, 0)).ptx), launch.entry)
    block = np.array([[1, 2, 0]])
    tallies = []
    for lanes in (None, np.zeros(0, np.int64), np.arange(16)):
        execution = Execution(launch, program, 0, [])
        recorder = None if lanes is None else Recorder(execution.memory, lanes)
        chunk = Chunk(
            program,
            execution.grid,
            block,
            execution.memory,
            execution.patterns,
            recorder=recorder,
        )
        tallies.append(chunk.run())
    assert tallies[0] == tallies[1] == tallies[2]


FIRST_BLOCK = """extern "C" __global__ void k(const float* a, float* b, unsigned* done) {
  __shared__ bool first;
  if (threadIdx.x == 0) first = atomicAdd(done, 1u) == 0;
  __syncthreads();
  if (first) b[threadIdx.x] = a[threadIdx.x];
}"""


def test_the_grid_begins_with_the_memory_that_the_block_began_with() -> None:
    launch = Launch(
        kernel="k",
        parameters={},
        source=FIRST_BLOCK,
        source_name="k.cu",
        entry="k",
        defines={},
        grid=(3, 1, 1),
        block=(32, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(
            Buffer("a", (32,), "float32", "in"),
            Buffer("b", (32,), "float32", "out"),
            Buffer("done", (1,), "uint32", "inout", Uniform(0, 1)),
        ),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )
    found = trace(launch, compile_launch(launch, (9, 0)), ORIGIN, ORIGIN, "test")
    reads = {each.array: each.grid_reads for each in found.arrays}

    # Each block adds one; only the first finds none there, and reads all of a.
    assert reads["a"] == {1: 32}
