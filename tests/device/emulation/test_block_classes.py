"""Counts from samples are those of whole grids, or they are marked as estimates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memlab.device.budget import Deadline, EmulationTimeoutError
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation import block_classes, counting, representative_block
from memlab.device.emulation.counting import GridCounts
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.sampling.block_sample import GridPartition, WholeGrid
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import NO_CLUSTER, Buffer, Dim3, Launch, Scalar

ELEMENTS = 80_000
HEAD = """extern "C" __global__ void k(float *o, const float *x, int n, int m) {
    const int bx = blockIdx.x, by = blockIdx.y, bz = blockIdx.z, tx = threadIdx.x;
    const int ty = threadIdx.y, column = bx * blockDim.x + tx, row = by * blockDim.y + ty;
    const int i = (by * gridDim.x + bx) * blockDim.x + tx;
"""


def executed(
    body: str, grid: Dim3, block: Dim3, n: int = 0, m: int = 1, cluster: Dim3 = NO_CLUSTER
) -> Execution:
    launch = Launch(
        kernel="k",
        parameters={},
        source=f"{HEAD}    {body}\n}}",
        source_name="k.cu",
        entry="k",
        defines={},
        grid=grid,
        block=block,
        dynamic_shared_bytes=0,
        arguments=(
            Buffer("o", (ELEMENTS,), "float32", "inout"),
            Buffer("x", (ELEMENTS,), "float32", "in"),
            Scalar("n", "int32", n),
            Scalar("m", "int32", m),
        ),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=1e-6,
        cluster=cluster,
    )
    return Execution.of(launch, compile_launch(launch, (9, 0)), 0)


def counted(found: Execution) -> GridCounts:
    cost = representative_block.record_block(found).lane_instructions_per_block
    return counting.count_grid(found, cost, lambda what, fraction: None)


def requests(found: Execution) -> int:
    return _global(found, counted(found).tally.requests)


def _global(found: Execution, by_step: list[int]) -> int:
    steps = zip(by_step, found.program.steps, strict=True)
    return sum(count for count, step in steps if step.row.space == "global")


@pytest.fixture
def only_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    monkeypatch.setattr(counting, "MAX_EXACT_LANE_INSTRUCTIONS", 0)


# --- Grids that are difficult to sample -------------------------------------------------------


def test_a_grid_larger_than_its_array_is_counted_exactly() -> None:
    """Of a million blocks, 273,437.5 are active, with 8 warps per block."""
    found = executed("if (i < n) o[tx] = 1;", (1_000_000, 1, 1), (256, 1, 1), n=70_000_000)
    result = counted(found)

    assert _global(found, result.tally.requests) == 70_000_000 // 32
    assert not result.coverage.estimated
    assert result.coverage.blocks_emulated < 50


def test_a_one_dimensional_array_over_a_two_dimensional_grid_is_counted_exactly() -> None:
    n = 256 * (1000 * 700 + 333) + 40
    found = executed("if (i < n) o[tx] = 1;", (1000, 3000, 1), (256, 1, 1), n=n)
    result = counted(found)

    assert _global(found, result.tally.requests) == -(-n // 32)
    assert not result.coverage.estimated


def test_half_a_matrix_is_estimated_closely() -> None:
    """A warp has 2 rows and 16 columns; its first column decides whether it stores."""
    body = "if (column <= row) o[tx] = 1;"
    found = executed(body, (1024, 4096, 1), (16, 16, 1))
    last_rows = np.arange(1, 4096 * 16, 2)
    truth = int(np.minimum(last_rows // 16 + 1, 1024).sum())

    result = counted(found)

    assert result.coverage.estimated
    assert _global(found, result.tally.requests) == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize(
    "condition",
    [
        "bx % 1000 == 500",
        "bx % n == 500",
        "(bx ^ by) == 4",
        "__popc(bx) == 3",
        "sinf(bx) > 0.9f",
        "atomicAdd(o, 1.0f) == 3",
    ],
)
def test_conditions_without_an_affine_form_give_an_estimate(condition: str) -> None:
    found = executed(f"if ({condition}) o[tx] = 1;", (2_000_000, 4, 1), (256, 1, 1), n=1000)

    assert counted(found).coverage.estimated


def test_an_estimate_has_a_standard_error() -> None:
    """A seventh of 1,024 blocks write: the standard error is the binomial's, 7.6%."""
    blocks, errors, told = 2_000_000, [], []
    for seed in range(12):
        found = executed("if (bx % 7 == 3) o[tx] = 1;", (blocks, 1, 1), (32, 1, 1))
        found.seed = seed
        result = counted(found)
        assert result.coverage.relative_standard_error is not None
        told.append(result.coverage.relative_standard_error)
        errors.append(_global(found, result.tally.requests) / (blocks / 7) - 1)

    binomial = (6 / 1024) ** 0.5
    assert np.mean(told) == pytest.approx(binomial, rel=0.15)
    assert 0.6 * binomial < np.sqrt(np.mean(np.square(errors))) < 1.5 * binomial


@pytest.mark.parametrize("condition", ["sinf(bx) < 5", "sinf(bx) > 5"], ids=["all", "none"])
def test_no_standard_error_is_given_for_a_uniform_sample(condition: str) -> None:
    """If all blocks of the sample do the same, the error of the estimate is unknown."""
    found = executed(f"if ({condition}) o[tx] = 1;", (10_000_000, 1, 1), (32, 1, 1))
    coverage = counted(found).coverage

    assert coverage.estimated
    assert coverage.relative_standard_error is None
    assert coverage.remark == "estimates, since blocks may differ by data or index"


def test_a_grid_without_exact_classes_runs_whole_up_to_a_larger_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    found = executed("if (bx % 100 == 50) o[tx] = 1;", (10_000, 1, 1), (32, 1, 1))

    result = counted(found)

    assert result.coverage.blocks_emulated == 10_000
    assert not result.coverage.estimated
    assert _global(found, result.tally.requests) == 100


@pytest.mark.usefixtures("only_samples")
def test_counting_has_precedence_if_time_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_classes, "TIME_SHARE", -1)

    result = counted(executed("o[tx] = 1;", (100_000, 1, 1), (32, 1, 1)))

    assert result.coverage.estimated
    assert not result.coverage.timed_out


@pytest.mark.usefixtures("only_samples")
@pytest.mark.parametrize(
    "body",
    [
        "o[(by * 33 + bx) * 33 + tx] = x[bx * 5 + tx];",  # the alignment to lines varies
        "o[min(max(column - 40, 0), n - 1)] = 1;",  # clamped at both ends
        "int j = (by * 60 + bx) * 64 + tx; if (j / 32 < n) o[j / 32] = x[j % 32];",
        "if ((unsigned)(column - 3) < (unsigned)(n - 7)) o[column] = 1;",
        "if ((row - 3 | column - 5) < 0) o[row * 100 + column] = 1;",  # only signs decide
        "for (int k = bx; k < n; k += gridDim.x) o[k] = 1;",
        "__shared__ int s[33]; s[tx] = tx * 3; __syncthreads(); o[s[32 - tx] + 32 * bx] = 1;",
        "__shared__ int s[33]; s[tx] = bx * tx; __syncthreads(); o[s[32 - tx]] = 1;",
        "int j = n - 1 - column; if (j >= 0) o[j] = x[n - 1 - j];",
        "__shared__ int2 s[33]; s[tx] = make_int2(bx, -bx); __syncthreads();"
        "if (s[32 - tx].x > 30) o[tx] = 1;",  # a vector whose sum is constant
        "int k = 0; if (tx < 5) k = bx; o[k + tx] = 1;",
        "if (row == 7) o[tx] = 1; else if (bx > 30) return; o[column] = 2;",
    ],
)
def test_samples_give_the_counts_of_whole_grids(body: str) -> None:
    grid = (60, 11, 1)
    found = executed(body, grid, (33, 1, 1), n=1500, m=3)
    result = counted(found)
    found.reset()

    assert not result.coverage.estimated
    assert result.tally == found.record(WholeGrid(grid))


REMOTE = r"""
    __shared__ int s[64]; unsigned rank, next;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    auto sync = [] { asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory"); };
    auto there = [&](int at, unsigned to) {
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(next)
                     : "r"((unsigned)__cvta_generic_to_shared(&s[at])), "r"(to));
        int value;
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(next) : "memory");
        return value;
    };
"""


@pytest.mark.usefixtures("only_samples")
@pytest.mark.parametrize(
    "body",
    [
        # The ranks of a cluster share work unevenly.
        "if (rank == 0) o[i] = 1; else for (int k = 0; k < n % 7; ++k) o[33 * k + i] = 2;",
        "s[tx] = rank; sync(); o[i] = there(63 - tx, rank ^ 1); sync();",
        # What another block stored decides: the same in all clusters, but not in all blocks.
        "s[tx] = 3 * rank; sync(); if (there(tx, rank ^ 1) == 3) o[i] = 1; sync();",
        "s[tx] = rank * tx; sync(); o[there(tx, rank ^ 1)] = x[there(tx, 1)]; sync();",
        # The clusters of one half store what sends the other blocks elsewhere.
        "s[tx] = bx < n; sync(); if (there(tx, 0)) o[i] = 1; else o[2 * i] = 2; sync();",
        'unsigned c; asm("mov.u32 %0, %%clusterid.x;" : "=r"(c)); if (c > 7) o[c + tx] = 1;',
        "o[(by * 12 + bx) * 33 + tx] = x[bx * 5 + tx];",  # the alignment varies by cluster
        # Only one of two warps waits at the barrier that registers name.
        'if (tx < 32) asm volatile("bar.sync %0, %1;" :: "r"(m), "r"(n + 12)); o[i] = 1; sync();',
        "if (row - column > 40) o[column] = 1;",
    ],
)
@pytest.mark.parametrize(
    ("grid", "cluster"),
    [((60, 6, 1), (2, 1, 1)), ((12, 24, 2), (1, 2, 2)), ((40, 4, 1), (4, 2, 1))],
)
def test_samples_of_clusters_give_the_counts_of_whole_grids(
    body: str, grid: Dim3, cluster: Dim3
) -> None:
    found = executed(REMOTE + body, grid, (33, 1, 1), n=20, cluster=cluster)
    result = counted(found)
    found.reset()

    assert not result.coverage.estimated
    assert result.tally == found.record(WholeGrid(grid, cluster))


@pytest.mark.usefixtures("only_samples")
def test_a_large_grid_of_clusters_is_counted_exactly_by_few_of_them() -> None:
    """The first block of a cluster loads and stores once per warp, the other blocks do nothing."""
    body = "if (rank == 0 && bx < n) o[tx] = x[tx];"
    found = executed(REMOTE + body, (4_000_000, 1, 1), (64, 1, 1), n=3_000_001, cluster=(4, 1, 1))
    result = counted(found)

    assert not result.coverage.estimated
    assert result.coverage.blocks_emulated % 4 == 0
    assert result.coverage.blocks_emulated < 200
    assert _global(found, result.tally.requests) == 2 * 2 * 750_001


@pytest.mark.usefixtures("only_samples")
@pytest.mark.parametrize("cluster", [NO_CLUSTER, (2, 1, 1)])
def test_the_index_of_a_cluster_separates_blocks(cluster: Dim3) -> None:
    body = 'unsigned c; asm("mov.u32 %0, %%clusterid.x;" : "=r"(c)); if (c == 5) o[tx] = 1;'
    found = executed(body, (60, 1, 1), (32, 1, 1), cluster=cluster)
    result = counted(found)

    assert not result.coverage.estimated
    assert _global(found, result.tally.requests) == cluster[0]


def test_catalog_kernels_are_sampled_exactly_except_the_scattered_access() -> None:
    """The sizes are divisible by no tile."""
    found = {}
    for name in ("naive", "tiled", "coarsened", "blur", "transpose-padded", "scattered"):
        sizes = {"n": 100_003} if name == "scattered" else {"width": 517}
        launch = CATALOG[name].prepare(sizes, launch_limits(loader.load_datasheet("h200")))
        one = Execution.of(launch, compile_launch(launch, (9, 0)), 0)
        found[name] = block_classes.classify_blocks(one, 1000).exact

    assert found.pop("scattered") is False
    assert all(found.values())


# --- Random kernels ----------------------------------------------------------------------------

names = st.sampled_from(["bx", "by", "bz", "tx", "ty", "n", "m", "row", "column", "i", "3", "-7"])
lesser = st.sampled_from(["m", "3", "16", "blockDim.x", "tx", "bx"])
units = st.sampled_from(["m", "4", "3", "32"])
compared = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} - {})".format, inner, inner),
        st.builds("({} * {})".format, inner, lesser),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from("/%"), units),
        st.builds("({} >> {})".format, inner, st.sampled_from("135")),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from("&|^"), st.sampled_from(["31", "tx"])
        ),
        st.builds("({} {} {} ? {} : {})".format, inner, compared, inner, inner, inner),
        st.builds("(int)((unsigned)({}) >> 3)".format, inner),
    )


numbers = st.recursive(names, _larger, max_leaves=4)
conditions = st.one_of(
    st.builds("{} {} {}".format, numbers, compared, numbers),
    st.builds("(unsigned)({}) < (unsigned)({})".format, numbers, numbers),
    st.builds(
        "({} {} n {} {} < m)".format, numbers, compared, st.sampled_from(["&&", "||"]), names
    ),
)
touches = st.one_of(
    st.builds("if ((unsigned)({0}) < 80000u) o[{0}] = s;".format, numbers),
    st.builds("if ((unsigned)({0} + 40000) < 80000u) s += x[{0} + 40000];".format, numbers),
)
statements = st.recursive(
    touches,
    lambda inner: st.one_of(
        st.builds("if ({}) {{ {} }} else {{ {} }}".format, conditions, inner, inner),
        st.builds("for (int k = 0; k < min({}, 5); k++) {{ {} }}".format, numbers, inner),
        st.builds("if ({}) return; {}".format, conditions, inner),
    ),
    max_leaves=4,
)
grids = st.one_of(
    st.tuples(st.integers(1, 90), st.just(1), st.just(1)),
    st.tuples(st.integers(1, 20), st.integers(1, 20), st.just(1)),
    st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(1, 6)),
)
clusters = st.sampled_from([NO_CLUSTER, (2, 1, 1), (1, 2, 2), (3, 1, 1)])
threads = st.sampled_from([(32, 1, 1), (16, 4, 1), (33, 2, 1), (20, 3, 1), (64, 1, 1)])


@pytest.mark.slow
@pytest.mark.usefixtures("only_samples")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    statements, grids, clusters, threads, st.integers(-20, 400), st.integers(1, 40), st.booleans()
)
def test_what_is_not_called_an_estimate_is_what_the_whole_grid_counts(
    body: str, grid: Dim3, cluster: Dim3, block: Dim3, n: int, m: int, few: bool
) -> None:
    x, y, z = (-(-blocks // each) * each for blocks, each in zip(grid, cluster, strict=True))
    found = executed(f"float s = 0;\n{body}\no[tx] = s;", (x, y, z), block, n, m, cluster)
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(block_classes, "MAX_PIECES", 8)
        result = counted(found)
    found.reset()

    if not result.coverage.estimated:
        assert result.tally == found.record(WholeGrid((x, y, z), cluster))


# --- The search for block classes, and what it costs --------------------------------------------


def searched(
    condition: str, grid: Dim3, most_blocks: float, monkeypatch: pytest.MonkeyPatch, **limits: int
) -> GridPartition:
    """The partition of a grid with a condition; `limits` replace those of the search."""
    for name, limit in limits.items():
        monkeypatch.setattr(block_classes, name, limit)
    found = executed(f"if ({condition}) o[tx] = 1;", grid, (32, 1, 1))
    return block_classes.classify_blocks(found, most_blocks)


@pytest.mark.parametrize("axis", range(3))
def test_a_grid_is_cut_where_a_condition_changes(
    axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block 5 of 60 differs: the search executes block 29, and block 2 of the first six."""
    grid = tuple(60 if number == axis else 1 for number in range(3))
    assert len(grid) == 3
    condition = f"b{'xyz'[axis]} == 5"

    found = searched(condition, grid, 100, monkeypatch, _MIN_BLOCKS=1, MAX_CLASS_BLOCKS=2)

    assert found.exact
    assert {5, 6} <= found.cuts[axis]
    assert found.pieces(grid)[axis] == [
        range(1),
        range(1, 5),
        range(5, 6),
        range(6, 59),
        range(59, 60),
    ]


@pytest.mark.parametrize(
    ("most_blocks", "limits", "exact"),
    [
        # Two blocks are executed, and the grid has five strata.
        (5, {"MAX_CLASS_BLOCKS": 2}, True),
        (5, {"MAX_CLASS_BLOCKS": 1}, False),
        (5, {"MAX_CLASS_BLOCKS": 1, "_MIN_BLOCKS": 2}, True),
        (5, {"MAX_PIECES": 5}, True),
        (5, {"MAX_PIECES": 4}, False),
        (4.9, {}, False),
        (1.9, {"_MIN_BLOCKS": 2}, False),  # room for four strata
        (1.9, {"_MIN_BLOCKS": 3}, True),
        (100, {"MAX_PIECES": 2, "_MIN_BLOCKS": 32}, False),  # three pieces
        (100, {"MAX_PIECES": 3, "_MIN_BLOCKS": 32}, True),
    ],
)
def test_the_search_ends_at_its_limits(
    most_blocks: float, limits: dict[str, int], exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"_MIN_BLOCKS": 1, **limits}
    found = searched("bx == 5", (60, 1, 1), most_blocks, monkeypatch, **limits)

    assert found.exact == exact
    assert exact or found == GridPartition()


@pytest.mark.parametrize(("most_blocks", "exact"), [(4, True), (3, False)])
def test_the_search_executes_no_more_blocks_than_there_is_time_for(
    most_blocks: float, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three cuts make four pieces, of each of which a block is executed, and six strata."""
    monkeypatch.setattr(block_classes, "_MIN_BLOCKS", 3)
    body = "if (bx < 15) o[tx] = 1; if (bx < 30) o[tx + 64] = 1; if (bx < 45) o[tx + 128] = 1;"
    found = executed(body, (60, 1, 1), (32, 1, 1))

    assert block_classes.classify_blocks(found, most_blocks).exact == exact


def test_the_search_takes_a_third_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    left_s: list[float] = []

    def follow(execution: Execution, blocks: Any, values: Any, deadline: Deadline) -> None:
        left_s.append(deadline.left())
        raise EmulationTimeoutError(1.0, "")

    monkeypatch.setattr(Execution, "follow", follow)
    found = executed("o[tx] = 1;", (60, 1, 1), (32, 1, 1))
    found.deadline = Deadline(900.0)

    assert not block_classes.classify_blocks(found, 100).exact
    assert left_s == [pytest.approx(300, abs=5)]


def test_the_search_leaves_memory_as_it_was() -> None:
    """A value that decides is stored where the arguments say: here in an array, not on the chip."""
    body = """
    __shared__ float s[64]; s[tx] = tx; __syncthreads();
    float *p = n ? o : s; p[tx] = 1000 * m; __syncthreads(); if (s[tx] > 500) o[tx + 64] = 1;
    """
    found = executed(body, (60, 1, 1), (32, 1, 1), n=1)
    array = found.array(found.launch.outputs[0])
    before = array.copy()

    block_classes.classify_blocks(found, 100)

    assert (array == before).all()
    found.run(np.zeros((1, 3), np.int64))
    assert (array[:32] == 1000).all()


@pytest.mark.usefixtures("only_samples")
def test_an_exact_sample_has_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two classes that stand for equally many are executed in several chunks."""
    monkeypatch.setattr(Execution, "chunk_blocks", 3)
    result = counted(executed("o[tx] = 1; if (bx < 500) o[tx + 64] = 1;", (1000, 1, 1), (32, 1, 1)))

    assert not result.coverage.estimated
    assert result.coverage.blocks_emulated < 100
    assert result.coverage.relative_standard_error is None


def chunk(blocks: int, sectors: int) -> counting.ExecutedChunk:
    return counting.ExecutedChunk(slice(0, 0), blocks, sectors, 0)


def sampled(size: int, *chunks: counting.ExecutedChunk) -> counting.StratumSample:
    return counting.StratumSample(WholeGrid((1, 1, 1)), size, Tally.zeros(0), 1, list(chunks))


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        # 10 blocks of 100, mean 4, chunks 20 and 20 + 8 - 8: squares 128, times 2 / 1 over 100;
        # times 100² and 0.9, the root over 400.
        ([sampled(100, chunk(5, 12), chunk(5, 28))], (256 * 100 * 0.9) ** 0.5 / 400),
        # A stratum that was executed whole adds to the sum alone.
        (
            [sampled(100, chunk(5, 12), chunk(5, 28)), sampled(2, chunk(1, 9), chunk(1, 91))],
            (256 * 100 * 0.9) ** 0.5 / 500,
        ),
        ([sampled(100, chunk(5, 12), chunk(5, 28)), sampled(2, chunk(1, 9))], None),
        ([sampled(100, chunk(5, 12), chunk(5, 12))], None),
        ([sampled(100, chunk(5, 0), chunk(5, 0))], None),
        ([sampled(2, chunk(1, 9), chunk(1, 91))], None),
        # Three chunks, one shorter: 4 - 8, 8 - 8 and 8 - 4 sectors; 32 times 3 / 2 over 25.
        ([sampled(50, chunk(2, 4), chunk(2, 8), chunk(1, 8))], (32 * 1.5 * 100 * 0.9) ** 0.5 / 200),
    ],
)
def test_the_standard_error_by_hand(
    samples: list[counting.StratumSample], error: float | None
) -> None:
    found = counting._relative_standard_error(samples)
    assert found == (error if error is None else pytest.approx(error))


@pytest.mark.parametrize(("body", "ordered"), [("o[tx] = 1;", False), ("o[(int)x[tx]] = 1;", True)])
def test_chunks_of_a_whole_grid_are_spread_unless_blocks_may_wait(body: str, ordered: bool) -> None:
    found = executed(body, (10, 1, 1), (32, 1, 1))
    whole = counting.StratumSample(WholeGrid((10, 1, 1)), 10, Tally.zeros(0), 2)

    starts = [part.start for _, part in counting._interleaved_chunks(found, [whole])]

    assert starts == ([0, 2, 4, 6, 8] if ordered else [0, 8, 4, 2, 6])
    assert all(
        part.stop == part.start + 2 for _, part in counting._interleaved_chunks(found, [whole])
    )


def test_chunks_of_several_samples_take_turns() -> None:
    found = executed("o[tx] = 1;", (10, 1, 1), (32, 1, 1))
    samples = [
        counting.StratumSample(WholeGrid((blocks, 1, 1)), 10, Tally.zeros(0), 2)
        for blocks in (5, 1)
    ]

    turns = counting._interleaved_chunks(found, samples)

    assert [(samples.index(sample), part.start, part.stop) for sample, part in turns] == [
        (0, 0, 2),
        (1, 0, 2),
        (0, 2, 4),
        (0, 4, 6),
    ]


def test_a_grid_is_executed_whole_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = executed("o[tx] = 1;", (1000, 1, 1), (32, 1, 1))
    cost = 1000 * (7 + 32 * counting._LANE_COST_INSTRUCTIONS)
    for limit, whole in ((cost, True), (cost - 1, False)):
        monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", limit)
        monkeypatch.setattr(counting, "MAX_EXACT_LANE_INSTRUCTIONS", limit)
        coverage = counting.count_grid(found, 7, lambda what, fraction: None).coverage
        assert (coverage.blocks_emulated == 1000) == whole
        assert not coverage.estimated
