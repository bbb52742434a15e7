"""Traces against the steps in the lessons, worked out by hand, and against counts by NumPy."""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import launch_of

from memlab.device.array_element import Element
from memlab.device.compiler.compile import compile_launch
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.program.program import load_program
from memlab.device.emulator.ptx import parser
from memlab.device.inputs import make_inputs
from memlab.device.tracing.phases import PhaseRecorder
from memlab.device.tracing.records import (
    ElementAccess,
    Step,
    ThreadTrace,
    Trace,
    thread_phases,
    value_name,
    without_shown_loads,
)
from memlab.device.tracing.trace import trace_launch
from memlab.errors import UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Arange, Buffer, Dim3, Scalar, SingleValue, Uniform

ORIGIN = (0, 0, 0)


def follow(kernel: str, block: Dim3, thread: Dim3, **parameters: int) -> Trace:
    launch = find_kernel(kernel).prepare(parameters, Limits("test"))
    return trace_launch(launch, compile_launch(launch, (8, 0)), block, thread, "test")


def stores_of(traced: Trace) -> list[ElementAccess]:
    return [access for access in traced.followed.accesses if access.kind == "store"]


def texts(steps: Iterable[Step]) -> list[str]:
    return [step.text for step in steps]


def test_the_steps_for_p_3_1_without_tiles() -> None:
    """Width 4, 2 x 2 blocks: row 3 of M with column 1 of N.

    Lessons say thread (1, 1) of block (1, 0), row before column; CUDA's x, y make that block
    (0, 1). One of them prints M[12] and N[1] again as the sums of the third step.
    """
    traced = follow("naive", (0, 1, 0), (1, 1, 0), width=4, tile=2)
    assert [operation.flat for operation in traced.followed.operations] == [
        "M[12] * N[1]",
        "M[13] * N[5]",
        "M[14] * N[9]",
        "M[15] * N[13]",
    ]
    assert traced.followed.operations[0].text == "M[3][0] * N[0][1]"
    (written,) = stores_of(traced)
    assert written.element.label == "P[13] = P[3][1]"
    accesses = traced.followed.accesses
    loaded = [access.element.flat for access in accesses if access.kind == "load"]
    assert loaded[::2] == ["N[1]", "N[5]", "N[9]", "N[13]"]
    assert loaded[1::2] == ["M[12]", "M[13]", "M[14]", "M[15]"]
    assert traced.phases == 0


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
    traced = follow("tiled", ORIGIN, ORIGIN, width=4, tile=2)
    assert [thread.thread for thread in traced.threads] == list(PHASES)
    for thread in traced.threads:
        *staged, place = PHASES[thread.thread]
        row, column = place.split()
        for phase, wanted in zip(thread_phases(thread, traced.phases), staged, strict=True):
            assert " ".join(value_name(access.source) for access in phase.staged) == wanted
            assert [access.element.name for access in phase.staged] == [
                f"M_tile[{row}][{column}]",
                f"N_tile[{row}][{column}]",
            ]
            assert texts(phase.operations) == [
                f"M_tile[{row}][0] * N_tile[0][{column}]",
                f"M_tile[{row}][1] * N_tile[1][{column}]",
            ]
    assert traced.followed.barriers == 4


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
    traced = follow("tiled", (1, 0, 0), (1, 0, 0), width=3, tile=2)
    staged = [
        [value_name(access.source) for access in phase.staged]
        for phase in thread_phases(traced.followed, traced.phases)
    ]
    assert staged == [["M[0][1]", "0"], ["0", "0"]]
    assert traced.followed.touches("global")[-1].kind == "load"
    assert traced.staged_share is not None
    assert traced.staged_share > 1


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
    traced = follow(kernel, ORIGIN, (5, 0, 0), **parameters)
    stores = stores_of(traced)
    assert text in [f"{store.element.label} = {value_name(store.source)}" for store in stores]


def test_wide_loads_name_every_element() -> None:
    traced = follow("vectorized", ORIGIN, ORIGIN, width=16, tile=16, per_thread=4)
    loaded = [access.element.flat for access in traced.followed.touches("global")[:4]]
    assert loaded == ["M[0]", "M[1]", "M[2]", "M[3]"]
    assert sum(traced.arrays[0].block_reads.values()) == 256


@pytest.mark.parametrize(
    ("block", "thread", "message"),
    [
        (
            (2, 0, 0),
            ORIGIN,
            "block (2, 0) is outside the grid of 2 x 2 x 1 blocks: give --block-index 1,0",
        ),
        (
            (0, -1, 0),
            ORIGIN,
            "block (0, -1) is outside the grid of 2 x 2 x 1 blocks: give --block-index 0,0",
        ),
        (
            ORIGIN,
            (0, 9, 0),
            "thread (0, 9) is outside the block of 2 x 2 x 1 threads: give --thread-index 0,1",
        ),
        (ORIGIN, (0, 0, 1), "thread (0, 0, 1) is outside the block of 2 x 2 x 1 threads"),
    ],
)
def test_an_index_outside_the_launch_is_refused(block: Dim3, thread: Dim3, message: str) -> None:
    with pytest.raises(UsageError, match="outside") as caught:
        follow("naive", block, thread, width=4, tile=2)
    assert message in str(caught.value)


def test_a_trace_changes_nothing_that_is_counted() -> None:
    """The recorder only watches: the same block counts the same with and without it."""
    launch = find_kernel("tiled").prepare({"width": 10, "tile": 4}, Limits("test"))
    program = load_program(parser.parse_ptx(compile_launch(launch, (8, 0)).ptx), launch.entry)
    block = np.array([[1, 2, 0]])
    tallies = []
    for lanes in (None, np.zeros(0, np.int64), np.arange(16)):
        execution = Execution(launch, program, 0, [])
        observers = [] if lanes is None else [PhaseRecorder(execution.memory, lanes, program, 32)]
        tallies.append(execution.run(block, observers=observers).tally())
    assert tallies[0] == tallies[1] == tallies[2]


# --- User kernels ---------------------------------------------------------------------------


def follow_source(
    source: str, *arguments: Buffer | Scalar, blocks: int = 1, threads: int = 32, thread: int = 0
) -> Trace:
    """Follow a thread of the first block of `k`; its source may begin with the parameters."""
    if source.startswith("("):
        source = f'extern "C" __global__ void k{source}'
    launch = launch_of(source, *arguments, blocks=blocks, threads=threads)
    return trace_launch(launch, compile_launch(launch, (9, 0)), ORIGIN, (thread, 0, 0), "test")


def shown_steps(source: str, *arguments: Buffer | Scalar) -> list[str]:
    """The texts of the steps of thread 3."""
    return texts(without_shown_loads(follow_source(source, *arguments, thread=3).followed.steps))


def shown_phases(traced: Trace, thread: int) -> list[tuple[list[str], list[str]]]:
    """The texts of the staged and of the used steps of a thread, by phase."""
    phases = thread_phases(traced.threads[thread], traced.phases)
    return [(texts(phase.staged), texts(phase.used)) for phase in phases]


def floats(name: str, count: int = 64) -> Buffer:
    return Buffer(name, (count,), "float32", "out" if name == "b" else "in")


def test_a_phase_holds_the_steps_that_use_values() -> None:
    """Stores of computed values to global memory are left out, and atomics never."""
    table, tile = Element("global", "a", 1, (1,)), Element("shared", "t", 0, (0,))
    steps = (
        ElementAccess(1, "load", table),  # before the first phase
        ElementAccess(2, "store", tile, 1),
        ElementAccess(3, "store", table, 1),
        ElementAccess(4, "atomic", table, 1, operation="add"),
        ElementAccess(5, "store", table, 2, source=tile),
        ElementAccess(6, "atomic", tile, 2, operation="inc"),
    )
    first, second = thread_phases(ThreadTrace(ORIGIN, steps, 0), 2)
    assert [step.line for step in first.staged] == [2]
    assert [step.line for step in first.used] == [1, 4]
    assert [step.line for step in second.staged] == [6]
    assert [step.line for step in second.used] == [5]


def test_members_of_structures_are_named() -> None:
    source = """(const float* a, float* b) {
      struct Edge { short from, to; double length; struct { float x, y; } at; };
      __shared__ Edge edges[4][8];
      __shared__ int count;
      int i = threadIdx.x;
      edges[i / 8][i % 8].at.y = a[i];
      edges[i / 8][i % 8].length = a[i + 32];
      if (i == 3) count = a[63];
      __syncthreads();
      b[i] = edges[i / 8][(i + 1) % 8].at.y;
      b[i + 32] = edges[i / 8][i % 8].length * count;
    }"""
    assert shown_steps(source, floats("a"), floats("b")) == [
        "write edges[0][3].at.y = a[3]",
        "write edges[0][3].length = a[35]",
        "write count = a[63]",
        "write b[3] = edges[0][4].at.y",
        "edges[0][3].length * count",
        "write b[35]",
    ]


def test_wide_elements_name_the_origin_of_each_word() -> None:
    source = """(const unsigned short* a, float* b) {
      __shared__ uint2 pairs[32];
      int i = threadIdx.x;
      pairs[i] = reinterpret_cast<const uint2*>(a)[i];
      __syncthreads();
      b[i] = __uint_as_float(pairs[31 - i].y);
    }"""
    halves = Buffer("a", (128,), "uint16", "in")
    assert shown_steps(source, halves, floats("b")) == [
        "write pairs[3].x = a[12…13]",
        "write pairs[3].y = a[14…15]",
        "write b[3] = pairs[28].y",
    ]


def test_bytes_of_a_word_are_distinguished() -> None:
    source = """(const uchar4* a, unsigned char* b) {
      uchar4 c = a[threadIdx.x];
      b[threadIdx.x] = c.x;
      b[threadIdx.x + 32] = c.z;
    }"""
    pixels = Buffer("a", (128,), "uint8", "in")
    written = shown_steps(source, pixels, Buffer("b", (64,), "uint8", "out"))
    assert written[-2:] == ["write b[3] = a[12]", "write b[35] = a[14]"]


def test_both_halves_of_a_packed_operation_are_shown() -> None:
    source = """(const unsigned* a, unsigned* b) {
      unsigned result, left = a[threadIdx.x], right = a[threadIdx.x + 32];
      asm("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(result) : "r"(left), "r"(right));
      b[threadIdx.x] = result;
    }"""
    halves = (Buffer("a", (128,), "float16", "in"), Buffer("b", (128,), "float16", "out"))
    assert shown_steps(source, *halves)[:2] == ["a[6] * a[70] + a[6]", "a[7] * a[71] + a[7]"]


HALVES = Buffer("a", (128,), "float16", "in")


@pytest.mark.parametrize(
    ("source", "array", "output", "expected"),
    [
        pytest.param(
            """(const unsigned* a, unsigned* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }""",
            HALVES,
            "float32",
            ["read a[6]", "read a[7]", "write b[3]"],
            id="a word of two halves is no operand",
        ),
        pytest.param(
            """(const float* a, unsigned* b) {
              unsigned packed;
              float low = a[threadIdx.x], high = a[threadIdx.x + 32];
              asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
              reinterpret_cast<unsigned*>(b)[threadIdx.x] = packed;
            }""",
            floats("a"),
            "float16",
            ["write b[6] = a[3]", "write b[7] = a[35]"],
            id="halves are packed from the lowest",
        ),
        pytest.param(
            """(const unsigned short* a, unsigned* b) {
              unsigned short low = a[threadIdx.x], high = a[threadIdx.x + 1] * 3;
              asm("mov.b32 %0, {%1, %2};" : "=r"(b[threadIdx.x]) : "h"(low), "h"(high));
            }""",
            HALVES,
            "float32",
            ["read a[3]", "a[4] * 3", "write b[3]"],
            id="a partly computed word has no origin",
        ),
        pytest.param(
            """(const unsigned short* a, unsigned* b) {
              __shared__ unsigned short s[32];
              s[threadIdx.x] = a[threadIdx.x + 64];
              __syncwarp();
              unsigned short low = a[threadIdx.x], high = s[31 - threadIdx.x];
              asm("mov.b32 %0, {%1, %2};" : "=r"(b[threadIdx.x]) : "h"(low), "h"(high));
            }""",
            HALVES,
            "float32",
            ["write s[3] = a[67]", "read a[3]", "read s[28]", "write b[3]"],
            id="a word from two arrays has no origin",
        ),
        pytest.param(
            """(const uchar4* a, unsigned* b) {
              struct Mixed { unsigned char x, y; unsigned short z; };
              __shared__ Mixed s[32];
              s[threadIdx.x].z = a[threadIdx.x].x;
              __syncwarp();
              unsigned word = *reinterpret_cast<unsigned*>(&s[31 - threadIdx.x]);
              reinterpret_cast<unsigned*>(b)[threadIdx.x] = word;
            }""",
            Buffer("a", (128,), "uint8", "in"),
            "uint16",
            [
                "write s[3].z = a[12]",
                *("read s[28].x", "read s[28].y", "read s[28].z"),
                *("write b[6]", "write b[7]"),
            ],
            id="three members are no two halves",
        ),
        pytest.param(
            """(const float* a, float* b) {
              b[threadIdx.x] = __fsub_rn(__fmul_rn(a[0], a[1]), a[threadIdx.x]);
            }""",
            floats("a"),
            "float32",
            ["a[0] * a[1]", "- a[3]", "write b[3]"],
            id="a product minus an element",
        ),
        pytest.param(
            """(const float* a, float* b) {
              float x = a[threadIdx.x];
              asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 5; @p st.global.f32 [%1], %2; }"
                           :: "r"(threadIdx.x), "l"(b + threadIdx.x), "f"(x));
            }""",
            floats("a"),
            "float32",
            ["read a[3]"],
            id="a store of another lane",
        ),
    ],
)
def test_steps_of_small_kernels(
    source: str, array: Buffer, output: str, expected: list[str]
) -> None:
    assert shown_steps(source, array, Buffer("b", (64,), output, "out")) == expected


def test_scalar_arguments_are_named_through_calls_too() -> None:
    source = """(const float* a, float* b, float scale, int add);
    __device__ __noinline__ float times(const float* a, float by) { return a[3] * by; }
    extern "C" __global__ void k(const float* a, float* b, float scale, int add) {
      b[threadIdx.x] = times(a, scale) + 1e-30f;
      b[threadIdx.x + 32] = a[8] * scale + a[9];
      b[add] = 2.0f * a[threadIdx.x];
    }"""
    scalars = (Scalar("scale", "float32", 2.5), Scalar("add", "int32", 40))
    shown = shown_steps(source, floats("a"), floats("b"), *scalars)
    assert shown[0] == "a[3] * scale"
    assert "a[8] * scale + a[9]" in shown
    assert "a[3] + a[3]" in shown  # the compiler's way to double


def test_atomics_and_reads_of_indices_are_shown() -> None:
    source = """(const int* a, int* b) {
      __shared__ int bins[4];
      if (threadIdx.x < 4) bins[threadIdx.x] = 0;
      __syncthreads();
      atomicAdd(&bins[a[threadIdx.x] & 3], 1);
      __syncthreads();
      if (threadIdx.x < 4) atomicMax(&b[threadIdx.x], bins[threadIdx.x]);
    }"""
    counted = Buffer("a", (32,), "int32", "in", Arange())
    assert shown_steps(source, counted, Buffer("b", (4,), "int32", "inout", SingleValue(0))) == [
        "write bins[3] = 0",
        "read a[3]",
        "atomic add of 1 to bins[3]",
        "atomic max of bins[3] to b[3]",
    ]


def test_literals_are_read_as_the_type_of_their_element() -> None:
    """Compilers store a float or a double by its bits."""
    source = """(const float* a, float* b) {
      struct Both { double length; float width; int count; };
      __shared__ Both s[32];
      s[threadIdx.x].length = -1.5;
      s[threadIdx.x].width = -1e30f;
      s[threadIdx.x].count = -7;
      __syncthreads();
      Both c = s[31 - threadIdx.x];
      b[threadIdx.x] = c.length + c.width + c.count;
      b[threadIdx.x + 32] = 1e6f;
    }"""
    shown = shown_steps(source, floats("a"), floats("b"))
    assert {text for text in shown if " = " in text} == {
        "write s[3].length = -1.5",
        "write s[3].width = -1e+30",
        "write s[3].count = -7",
        "write b[35] = 1e+06",
    }


def test_an_access_behind_an_array_is_named_after_it() -> None:
    source = """(const float* a, float* b) {
      __shared__ float three[3];
      __shared__ float four[4];
      four[threadIdx.x & 3] = three[1] = a[threadIdx.x];
      __syncthreads();
      b[threadIdx.x] = *(volatile float*)(three + 3) + four[threadIdx.x & 3];
    }"""
    assert "three[3] + four[3]" in shown_steps(source, floats("a"), floats("b"))


def test_shared_reads_without_arithmetic_are_shown() -> None:
    """Thread (2, 1) transposes element (2, 1); stride 2 gives thread 3 the word 6."""
    square = follow("transpose-padded", ORIGIN, (2, 1, 0), width=8)
    assert texts(thread_phases(square.followed, square.phases)[0].used) == [
        "write b[1][2] = square[2][1]"
    ]
    words = follow("bank-stride", ORIGIN, (3, 0, 0), n=64, stride=2)
    assert texts(thread_phases(words.followed, words.phases)[0].used) == ["write b[3] = words[6]"]


def test_steps_before_the_first_phase_belong_to_it() -> None:
    source = """(const float* a, float* b) {
      __shared__ float s[32];
      s[threadIdx.x] = a[threadIdx.x] + a[threadIdx.x + 32];
      __syncthreads();
      b[threadIdx.x] = s[31 - threadIdx.x];
    }"""
    traced = follow_source(source, floats("a"), floats("b"), thread=3)
    assert shown_phases(traced, 0) == [
        (["write s[3]"], ["a[3] + a[35]", "write b[3] = s[28]"]),
    ]


TREE = """(const float* a, float* b) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = a[t];
  BARRIER;
  for (int d = 1; d < blockDim.x; d *= 2) {
    if (t % (2 * d) == 0) s[t] += s[t + d];
    BARRIER;
  }
  if (t == 0) b[0] = s[0];
}"""


@pytest.mark.parametrize("barrier", ["__syncthreads()", "__syncwarp()"])
def test_a_tree_has_a_phase_per_level_for_all_its_threads(barrier: str) -> None:
    source = TREE.replace("BARRIER", barrier)
    traced = follow_source(source, floats("a"), floats("b", 1), threads=8, thread=7)
    assert traced.phases == 4
    assert shown_phases(traced, 0) == [
        (["write s[0] = a[0]"], ["s[1] + s[0]"]),
        (["write s[0]"], ["s[2] + s[0]"]),
        (["write s[0]"], ["s[4] + s[0]"]),
        (["write s[0]"], ["write b[0] = s[0]"]),
    ]
    nothing: tuple[list[str], list[str]] = ([], [])
    assert shown_phases(traced, 7) == [(["write s[7] = a[7]"], []), nothing, nothing, nothing]
    assert shown_phases(traced, 2)[1:] == [(["write s[2]"], []), nothing, nothing]


def test_one_followed_thread_has_the_phases_of_its_block() -> None:
    traced = follow_source(
        TREE.replace("BARRIER", "__syncthreads()"),
        floats("a"),
        floats("b", 1),
        threads=64,
        thread=5,
    )
    assert traced.phases == 7
    assert [bool(staged) for staged, _ in shown_phases(traced, 0)] == [True] + 6 * [False]


def test_a_barrier_of_one_warp_begins_no_phase() -> None:
    source = """(const float* a, float* b) {
      __shared__ float s[64];
      int t = threadIdx.x;
      for (int at = t; at < 192; at += 64) {
        s[t] = a[at];
        __syncthreads();
        float sum = s[t] + s[t ^ 32];
        if (t < 32) __syncwarp();
        b[at] = sum;
        __syncthreads();
      }
    }"""
    for thread, sum_of in ((0, "s[0] + s[32]"), (32, "s[32] + s[0]")):
        traced = follow_source(
            source, floats("a", 192), floats("b", 192), threads=64, thread=thread
        )
        assert shown_phases(traced, 0) == [
            ([f"write s[{thread}] = a[{thread + start}]"], [sum_of]) for start in (0, 64, 128)
        ]


def test_one_warp_may_pass_phases_between_two_barriers_of_the_block() -> None:
    """Warp 0 adds 64 values to 16, two levels in two phases; warp 1 only fills, each turn."""
    source = """(const float* a, float* b) {
      __shared__ float s[64];
      int t = threadIdx.x;
      for (int turn = 0; turn < 2; ++turn) {
        s[t] = a[64 * turn + t];
        __syncthreads();
        if (t < 32) {
          for (int d = 32; d > 8; d /= 2) {
            if (t < d) s[t] += s[t + d];
            __syncwarp();
          }
          b[32 * turn + t] = s[t];
        }
        __syncthreads();
      }
    }"""
    arguments = floats("a", 128), floats("b", 64)
    traced = follow_source(source, *arguments, threads=64)
    assert shown_phases(traced, 0) == [
        (["write s[0] = a[0]"], ["s[32] + s[0]"]),
        (["write s[0]"], ["s[16] + s[0]"]),
        (["write s[0]"], ["write b[0] = s[0]"]),
        (["write s[0] = a[64]"], ["s[32] + s[0]"]),
        (["write s[0]"], ["s[16] + s[0]"]),
        (["write s[0]"], ["write b[32] = s[0]"]),
    ]
    traced = follow_source(source, *arguments, threads=64, thread=40)
    nothing: tuple[list[str], list[str]] = ([], [])
    assert shown_phases(traced, 0) == [
        (["write s[40] = a[40]"], []),
        nothing,
        nothing,
        (["write s[40] = a[104]"], []),
        nothing,
        nothing,
    ]


def test_a_thread_without_reads_or_stores_shares_the_phases() -> None:
    """Thread 0 has no left neighbour, thread 7 stages nothing for the second turn."""
    source = """(const float* a, float* b) {
      __shared__ float s[8];
      int t = threadIdx.x;
      for (int turn = 0; turn < 2; ++turn) {
        if (t < 7 || turn == 0) s[t] = a[8 * turn + t];
        __syncthreads();
        if (t > 0) b[8 * turn + t] = s[t - 1];
        __syncthreads();
      }
    }"""
    traced = follow_source(source, floats("a"), floats("b"), threads=8)
    assert shown_phases(traced, 0) == [(["write s[0] = a[0]"], []), (["write s[0] = a[8]"], [])]
    assert shown_phases(traced, 3) == [
        (["write s[3] = a[3]"], ["write b[3] = s[2]"]),
        (["write s[3] = a[11]"], ["write b[11] = s[2]"]),
    ]
    assert shown_phases(traced, 7) == [
        (["write s[7] = a[7]"], ["write b[7] = s[6]"]),
        ([], ["write b[15] = s[6]"]),
    ]


def test_a_scan_has_a_phase_per_barrier() -> None:
    """Blelloch's scan of 8 elements: each level reads the elements stored by the one before."""
    source = """(const float* a, float* b) {
      __shared__ float s[8];
      int t = threadIdx.x, off = 1;
      s[2 * t] = a[2 * t];
      s[2 * t + 1] = a[2 * t + 1];
      for (int d = 4; d > 0; d /= 2, off *= 2) {
        __syncthreads();
        if (t < d) s[off * (2 * t + 2) - 1] += s[off * (2 * t + 1) - 1];
      }
      if (t == 0) s[7] = 0;
      for (int d = 1; d < 8; d *= 2) {
        off /= 2;
        __syncthreads();
        if (t < d) {
          int low = off * (2 * t + 1) - 1, high = off * (2 * t + 2) - 1;
          float x = s[low];
          s[low] = s[high];
          s[high] += x;
        }
      }
      __syncthreads();
      b[t] = s[t];
    }"""
    traced = follow_source(source, floats("a"), floats("b"), threads=4)
    assert traced.phases == traced.followed.barriers == 7
    assert shown_phases(traced, 0)[3:6] == [
        (["write s[7]", "write s[7] = 0"], ["s[3] + s[7]"]),
        (["write s[3] = s[7]", "write s[7]"], ["s[1] + s[3]"]),
        (["write s[1] = s[3]", "write s[3]"], ["s[0] + s[1]"]),
    ]


def test_at_most_one_phase_begins_between_two_barriers() -> None:
    """Each turn stores and then reads, without a barrier until the end."""
    source = """(const float* a, float* b) {
      __shared__ volatile float s[32];
      int t = threadIdx.x;
      for (int turn = 0; turn < 3; ++turn) {
        s[t] = a[t + 32 * turn];
        b[t + 32 * turn] = s[t];
      }
      __syncthreads();
      s[t] = a[t + 96];
    }"""
    traced = follow_source(source, floats("a", 128), floats("b", 96))
    assert [staged for staged, _ in shown_phases(traced, 0)] == [
        ["write s[0] = a[0]"],
        ["write s[0] = a[32]", "write s[0] = a[64]"],
        ["write s[0] = a[96]"],
    ]


def test_an_operation_belongs_to_the_phase_in_which_its_elements_were_loaded() -> None:
    source = """(const float* a, float* b) {
      __shared__ volatile float s[32];
      int t = threadIdx.x;
      s[t] = a[t];
      __syncthreads();
      float early = s[t], next = a[t + 32];
      s[t] = next;
      float late = s[31 - t];
      b[t] = __fmul_rn(early, early) + __fmul_rn(early, late);
      __syncthreads();
      b[t + 32] = __fmul_rn(early, next);
      s[t] = next;
    }"""
    traced = follow_source(source, floats("a"), floats("b"))
    used = [used for _, used in shown_phases(traced, 0)]
    assert [[text for text in texts if "*" in text] for texts in used] == [
        ["s[0] * s[0]"],
        ["s[0] * s[31]", "s[0] * a[32]"],
        [],
    ]


@pytest.mark.parametrize("barriers", ["one", "one in each branch"])
def test_one_warp_reads_in_the_phase_in_which_another_has_stored(barriers: str) -> None:
    """Warp 0 fills one of two buffers while warp 1 reads the other."""
    source = """(const float* a, float* b) {
      __shared__ float s[2][32];
      int t = threadIdx.x % 32;
      for (int turn = 0; turn < 5; ++turn) {
        if (threadIdx.x < 32) {
          s[turn % 2][t] = a[t + 32 * turn];
          BRANCH
        } else {
          if (turn > 0) b[t + 32 * turn] = s[1 - turn % 2][t];
          BRANCH
        }
        BOTH
      }
    }"""
    branch, both = ("", "__syncthreads();")[:: 1 if barriers == "one" else -1]
    source = source.replace("BRANCH", branch).replace("BOTH", both)
    arrays = floats("a", 160), floats("b", 160)
    fills, reads = (follow_source(source, *arrays, threads=64, thread=thread) for thread in (0, 32))
    stored = {access.source: access.phase for access in fills.followed.touches("shared")}
    for turn, access in enumerate(reads.followed.touches("shared")):
        assert access.kind == "load"
        assert access.phase == stored[Element("global", "a", 32 * turn, (32 * turn,))]
    assert fills.phases == reads.phases == 3


def test_two_fills_without_a_read_between_them_are_one_phase() -> None:
    """Threads from 8 on do not take part in the first fill of the second turn."""
    source = """(const float* a, float* b) {
      __shared__ float s[64];
      int t = threadIdx.x;
      for (int turn = 0; turn < 2; ++turn) {
        if (t < 8) s[t] = a[t];
        __syncthreads();
        s[t + 32] = a[t + 32];
        __syncthreads();
        b[t + 32 * turn] = s[63 - t] + s[t % 8];
        __syncthreads();
      }
    }"""
    for thread, fill in (
        (0, ["write s[0] = a[0]", "write s[32] = a[32]"]),
        (9, ["write s[41] = a[41]"]),
    ):
        traced = follow_source(source, floats("a"), floats("b"), thread=thread)
        assert [staged for staged, _ in shown_phases(traced, 0)] == [fill, fill]


@pytest.mark.parametrize("lane", [0, 37])
def test_the_matrices_that_a_warp_multiplies(lane: int) -> None:
    """Of tensor.cu: 2 steps of 16 along k, 4 fragments of 16 rows by 4 of 8 columns a step."""
    traced = follow("tensor-fp16", ORIGIN, (lane, 0, 0), width=32, tile=64).followed
    wanted = []
    for step, r, c in itertools.product(range(2), range(4), range(4)):
        rows, chunks = range(16 * r, 16 * r + 16), range(2 * step, 2 * step + 2)
        left = {4 * row + (chunk ^ (row >> 1 & 3)) for row in rows for chunk in chunks}
        column = lane // 32 * 32 + 8 * c
        wanted.append(
            f"32 of M_tile[{min(left)}…{max(left)}] × "
            f"N_tile[{16 * step}…{16 * step + 15}][{column}…{column + 7}]"
        )
    assert sorted(texts(traced.operations)) == sorted(wanted)
    stores = texts(access for access in traced.touches("shared") if access.kind == "store")
    row, chunk = lane // 4, lane % 4
    place = 4 * row + (chunk ^ (row >> 1 & 3))
    assert f"write M_tile[{place}].y = M[{row}][{8 * chunk + 2}…{8 * chunk + 3}]" in stores
    assert f"write N_tile[{lane // 8}][{lane % 8 * 8 + 2}] = " in "\n".join(stores)


def test_matrices_loaded_by_wmma() -> None:
    source = """
    #include <mma.h>
    using namespace nvcuda;
    extern "C" __global__ void k(const half* a, const half* b, float* c) {
      __shared__ half left[16][24];
      for (int i = threadIdx.x; i < 256; i += 32) left[i / 16][i % 16] = a[i];
      __syncwarp();
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
      wmma::fill_fragment(z, 0.0f);
      wmma::load_matrix_sync(x, &left[0][0], 24);
      wmma::load_matrix_sync(y, b + 16, 32);
      wmma::mma_sync(z, x, y, z);
      wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
    }"""
    arguments = (
        Buffer("a", (16, 16), "float16", "in"),
        Buffer("b", (16, 32), "float16", "in"),
        Buffer("c", (16, 16), "float32", "out"),
    )
    traced = follow_source(source, *arguments, thread=5)
    assert texts(traced.followed.operations) == ["left[0…15][0…15] × b[0…15][16…31]"]


@pytest.mark.parametrize(("lanes", "right"), [(32, "b[0…15][0…7]"), (20, "…")])
def test_matrices_loaded_by_plain_loads(lanes: int, right: str) -> None:
    """A matrix is named only if all lanes have loaded their part of it."""
    source = """(const uint4* a, const uint2* b, float* c) {
      uint4 x = a[threadIdx.x];
      uint2 y;
      float z[4] = {};
      asm volatile("{ .reg .pred p; setp.lt.u32 p, %2, LANES; @p ld.global.v2.u32 {%0, %1}, [%3]; }"
                   : "=r"(y.x), "=r"(y.y) : "r"(threadIdx.x), "l"(b + threadIdx.x));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                   "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
                   : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(y.x), "r"(y.y));
      for (int i = 0; i < 4; ++i) c[4 * threadIdx.x + i] = z[i];
    }""".replace("LANES", str(lanes))
    arrays = Buffer("a", (16, 16), "float16", "in"), Buffer("b", (16, 8), "float16", "in")
    traced = follow_source(source, *arrays, floats("c", 128))
    assert texts(traced.followed.operations) == [f"a[0…15][0…15] × {right}"]


def test_the_seed_decides_the_inputs() -> None:
    launch = find_kernel("scattered").prepare({"n": 64}, Limits("test"))
    compiled = compile_launch(launch, (8, 0))
    sources = set()
    for seed in (0, 1):
        traced = trace_launch(launch, compiled, ORIGIN, (3, 0, 0), "test", seed=seed)
        index = int(make_inputs(launch, seed)["index"][3])
        assert texts(without_shown_loads(traced.followed.steps)) == [
            "read index[3]",
            f"write b[3] = a[{index}]",
        ]
        sources.add(index)
    assert len(sources) == 2


FIRST_BLOCK = """extern "C" __global__ void k(const float* a, float* b, unsigned* done) {
  __shared__ bool first;
  if (threadIdx.x == 0) first = atomicAdd(done, 1u) == 0;
  __syncthreads();
  if (first) b[threadIdx.x] = a[threadIdx.x];
}"""


def test_the_grid_starts_from_the_initial_memory() -> None:
    arguments = (
        Buffer("a", (32,), "float32", "in"),
        Buffer("b", (32,), "float32", "out"),
        Buffer("done", (1,), "uint32", "inout", Uniform(0, 1)),
    )
    traced = follow_source(FIRST_BLOCK, *arguments, blocks=3)
    reads = {use.array: use.grid_reads for use in traced.arrays}

    # Each block adds one; only the first finds none there, and reads all of a.
    assert reads["a"] == {1: 32}
