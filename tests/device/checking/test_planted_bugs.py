"""Every planted bug is found and named, and nothing is found where it is fixed."""

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from launches import user_kernel
from planted import PLANTED, Named, Planted

import memlab
from memlab.device.checking.findings import CheckReport
from memlab.kernels.launch import Dim3

BY_NAME = {planted.name: planted for planted in PLANTED}


@cache
def check(name: str, fixed: bool) -> CheckReport:
    planted = BY_NAME[name]
    kernel = user_kernel(str(planted.path), planted.words, ["FIXED"] * fixed)
    return memlab.check(kernel, device="h200")


def named(report: CheckReport) -> Named:
    """Lines by tool and kind; for a race, the lines of both accesses."""
    found: Named = defaultdict(set)
    for finding in report.findings:
        found[finding.tool, finding.kind] |= finding.lines
    return dict(found)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_planted_bug_is_found_and_named(planted: Planted) -> None:
    report = check(planted.name, fixed=False)

    assert named(report) == planted.bugs
    assert report.verification.status == planted.verification


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_fixed_twin_has_no_finding(planted: Planted) -> None:
    report = check(planted.name, fixed=True)

    assert not report.findings
    assert report.verification.status in ("passed", "skipped")


def test_a_tensor_copy_that_writes_past_its_extent_is_noted() -> None:
    """Eleven columns of 4 bytes end 4 bytes before a piece of 16 does."""
    (note,) = check("tensor_store_past_extent", fixed=True).notes
    assert "at line 15 also writes 4 bytes of b behind the end of each row" in note
    assert check("tensor_store_reuse", fixed=True).notes == ()


def test_every_file_plants_a_bug() -> None:
    """A file without a bug would pass the test above."""
    assert all(planted.bugs or planted.verification == "failed" for planted in PLANTED)


@pytest.mark.parametrize(
    ("name", "line", "element", "block", "thread", "count"),
    [
        ("before_the_start", 10, "a[-1] of 1024 elements", (0, 0, 0), (0, 0, 0), 1),
        # 4 i + 1 is never a multiple of 4.
        ("misaligned_float4", 10, "a[1] of 260 elements", (0, 0, 0), (0, 0, 0), 64),
        # The last thread of each of 4 blocks, twice.
        ("shared_past_the_end", 14, "s[65] of 65 elements", (0, 0, 0), (63, 0, 0), 4),
        ("shared_past_the_end", 18, "s[65] of 65 elements", (0, 0, 0), (63, 0, 0), 4),
        # Rows 40 to 47 of 48 columns in 2 phases; at the store, 8 elements of row 39 besides.
        ("tiled_no_bounds", 24, "M[1600] of 1600 elements", (0, 2, 0), (0, 8, 0), 8 * 48 * 2),
        ("tiled_no_bounds", 34, "P[1600] of 1600 elements", (0, 2, 0), (0, 8, 0), 8 * 48 + 8),
        # Row 24 is the first whose 40 * Row lies behind 40 x 24 elements.
        ("rectangle_store_index", 32, "P[960] of 960 elements", (0, 1, 0), (0, 8, 0), 16 * 24),
        # Of the last 128 elements 72 are there; only the first step reads the others.
        ("uninitialized_shared", 15, "s[72] of 128 elements", (1, 0, 0), (8, 0, 0), 56),
        ("uninitialized_output", 9, "b[0] of 128 elements", (0, 0, 0), (0, 0, 0), 128),
        # Each step but the first reads what other threads have just written.
        ("missing_syncwarp", 12, "s[8] of 32 elements", (0, 0, 0), (0, 0, 0), 8 + 4 + 2 + 1),
        ("last_block_no_fence", 26, "sums[0] of 8 elements", (7, 0, 0), (0, 0, 0), 7),
        ("writes_an_input", 16, "a[0] of 64 elements", (0, 0, 0), (0, 0, 0), 64),
        ("constant_past_the_end", 12, "low[8] of 8 elements", (0, 0, 0), (0, 0, 0), 64),
        ("unset_member", 19, "items[30] of 32 elements", (0, 0, 0), (1, 0, 0), 16),
        # Of the last warp 28 threads are behind the end, in 5 steps.
        ("shuffle_in_guard", 15, "", (1, 0, 0), (32, 0, 0), 5 * 28),
        # In the last of 2 blocks of 64, 112 - 64 and 100 - 64 threads have an element.
        ("barrier_behind_guard", 15, "", (1, 0, 0), (0, 0, 0), 16),
        ("early_return", 12, "", (1, 0, 0), (0, 0, 0), 28),
        ("syncwarp_mask", 13, "", (0, 0, 0), (16, 0, 0), 1),
        ("cluster_far_barrier", 36, "word", (0, 0, 0), (0, 0, 0), 1),
        ("never_written", 0, "b[999] of 1000 elements", None, None, 1),
        # All of 4 blocks write to the first 64 elements.
        ("two_blocks_one_element", 0, "b[64] and 191 more of 256 elements", None, None, 192),
        # Rows of 24 elements, 40 apart, in the first 960; rows of 40, 24 apart.
        ("rectangle_store_index", 0, "P[24] and 383 more of 960 elements", None, None, 384),
        ("rectangle_store_index_wide", 0, "P[592] and 367 more of 960 elements", None, None, 368),
    ],
)
def test_findings_match_a_count_by_hand(
    name: str,
    line: int,
    element: str,
    block: Dim3 | None,
    thread: Dim3 | None,
    count: int,
) -> None:
    found = next(
        finding for finding in check(name, fixed=False).findings if finding.at.line == line
    )

    assert found.element == element
    assert (found.at.block, found.at.thread) == (block, thread)
    assert found.count == count


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("block_scope_counter", "an atomic of block scope is none for other blocks"),
        ("halves_of_a_word", "accesses of 4 and 2 bytes are not atomic to each other"),
        ("restrict_alias", "through the read-only cache (ld.global.nc, from __ldg or const __re"),
        ("async_copy_no_wait", "the asynchronous copy must be waited for before, then a barrier"),
        ("pipeline_too_far_ahead", "write races with a read by another thread: no barrier lies"),
        ("named_barrier_arrive", "the count of this barrier is never reached"),
        ("member_past_the_end", "read of 4 bytes outside the array inside, a member of Tile"),
        ("ring_wrong_bytes", "never complete: it lacks 16 bytes of copies; nothing after it"),
        ("cluster_far_barrier", "complete at a barrier in the block that it writes to"),
        ("wgmma_no_proxy_fence", "wgmma reads what a thread stored without fence.proxy.async"),
        ("tensormap_no_acquire", "fence.proxy.tensormap::generic.release (or tensormap.cp_fenc"),
    ],
)
def test_a_finding_says_why(name: str, cause: str) -> None:
    assert cause in check(name, fixed=False).findings[0].message


@pytest.mark.parametrize(
    ("line", "findings"), [("__syncthreads();", 0), ("int t = threadIdx.x;", 2)]
)
def test_threads_that_multiply_may_execute_the_proxy_fence(
    line: str, findings: int, tmp_path: Path
) -> None:
    fence = 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
    planted = BY_NAME["wgmma_no_proxy_fence"]
    source = tmp_path / "product.cu"
    source.write_text(planted.path.read_text().replace(line, f"{line} {fence}"))

    report = memlab.check(user_kernel(str(source), planted.words), device="h200")

    assert len(report.findings) == findings


@pytest.mark.parametrize(
    ("name", "thread"), [("barrier_behind_guard", (48, 0, 0)), ("early_return", (36, 0, 0))]
)
def test_a_barrier_names_the_first_missing_thread(name: str, thread: Dim3) -> None:
    (found,) = check(name, fixed=False).findings

    assert found.other is not None
    assert (found.other.block, found.other.thread) == ((1, 0, 0), thread)
