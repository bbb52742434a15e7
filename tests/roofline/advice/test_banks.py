"""What the advice says of bank conflicts holds when followed: banks counted by brute force."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from example_runs import measurement, run_of
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.measurement import LineCounters
from memlab.roofline.advice.banks import rows_per_warp

Block = tuple[int, int, int]


def wavefronts(block: Block, along_x: int, along_y: int) -> tuple[int, int]:
    """Count wavefronts and those needed, where a thread wants word `along_x x + along_y y`."""
    width, height, depth = block
    words = [
        along_x * x + along_y * y for _, y, x in product(range(depth), range(height), range(width))
    ]
    taken = needed = 0
    for first in range(0, len(words), 32):
        warp = words[first : first + 32]
        banks = Counter(word % 32 for word in set(warp))
        taken += max(banks.values())
        needed += math.ceil(len(set(warp)) / 32)
    return taken, needed


def wavefronts_of_a_column(nbytes: int, row_bytes: int) -> tuple[int, int]:
    """Count as above, where lane x wants element x of a column, over the first 32 columns.

    Elements of 8 and 16 bytes are served to half and quarter warps, one after the other.
    """
    taken = needed = 0
    together = min(32, 128 // nbytes)
    for column, first in product(range(32), range(0, 32, together)):
        starts = [row_bytes * x + nbytes * column for x in range(first, first + together)]
        words = {byte // 4 for start in starts for byte in range(start, start + nbytes)}
        taken += max(Counter(word % 32 for word in words).values())
        needed += math.ceil(len(words) / 32)
    return taken, needed


def advice(block: Block, taken: int, needed: int, **changes: int) -> str:
    """What is advised of a kernel whose line 7 has all its conflicts, many of them."""
    base, times = measurement("transpose_shared"), 4_000_000 // taken
    excessive = times * (taken - needed)
    counters = base.counters.replace_named(
        shared_load_wavefronts=times * taken,
        shared_store_wavefronts=0,
        shared_excessive_wavefronts=excessive,
        **changes,
    )
    line = LineCounters.from_names(
        line=7, text="", shared_wavefronts=times * taken, shared_excessive_wavefronts=excessive
    )
    measured = replace(base, block=block, counters=counters, lines=(LineCounters(1, ""), line))
    return " ".join(run_of(measured).advice)


def test_the_line_and_how_many_words_meet_are_named() -> None:
    # A column of a square of 32 x 32 words.
    text = advice((32, 8, 1), *wavefronts((32, 8, 1), 32, 1))
    assert "Bank conflicts cause 97% of the 4.00 M shared-memory wavefronts, most on line 7" in text
    assert "accesses 32 words of each bank" in text
    assert "a multiple of 32 words apart" in text


@pytest.mark.parametrize("nbytes", [1, 2, 4, 8, 16])
def test_the_padding_advised_fits_elements_of_any_length(nbytes: int) -> None:
    # t[32][32], read by column: of unsigned short, float, double and the like.
    row_bytes = 32 * nbytes
    text = advice((32, 4, 1), *wavefronts_of_a_column(nbytes, row_bytes))
    assert (
        "make that distance odd, in 4-byte words or in elements if these are longer, for example "
        "by padding each row by one"
    ) in text
    taken, needed = wavefronts_of_a_column(nbytes, row_bytes + max(nbytes, 4))
    assert taken == needed


def test_one_element_shorter_than_a_word_does_not_part_all_lanes() -> None:
    # Rows of 33 unsigned shorts: a third of the wavefronts is left over, and a word a row more,
    # not an element, is still what the general advice names.
    taken, needed = wavefronts_of_a_column(2, 33 * 2)
    assert (taken, needed) == (48, 32)
    text = advice((32, 4, 1), taken, needed)
    assert "by one word (one element if it is longer)" in text


blocks = st.sampled_from([(8, 8, 1), (16, 16, 1), (16, 8, 2), (32, 4, 1), (64, 2, 1), (128, 1, 1)])


@given(blocks, st.integers(1, 64), st.integers(0, 80))
def test_an_odd_distance_parts_the_lanes_where_it_is_advised(
    block: Block, along_x: int, along_y: int
) -> None:
    taken, needed = wavefronts(block, along_x, along_y)
    if "make that distance odd" in advice(block, taken, needed):
        assert along_x % 2 == 0
        assert wavefronts(block, along_x + 1, along_y)[0] < taken


@given(st.sampled_from([(8, 8, 1), (16, 16, 1), (16, 8, 1)]), st.integers(8, 80))
def test_rows_of_a_block_that_share_banks_are_put_side_by_side(block: Block, pitch: int) -> None:
    # Neighbouring words along a row, as in a stencil or a convolution.
    taken, needed = wavefronts(block, 1, pitch)
    if taken > needed:
        text = advice(block, taken, needed)
        assert "make that distance odd" not in text
        assert "a block 32 wide" in text
    assert wavefronts((32, block[0] * block[1] // 32, 1), 1, pitch)[0] == needed


def test_a_convolution_is_not_told_to_pad() -> None:
    # Rows of 20 words under a block of 16 x 16; rows of 21 conflict as often.
    assert wavefronts((16, 16, 1), 1, 20) == wavefronts((16, 16, 1), 1, 21) == (16, 8)
    text = advice((16, 16, 1), 16, 8)
    assert "covers 2 rows of the 16 x 16 block" in text
    assert "padding does not help" in text


def test_mixed_conflicts_are_told_in_general() -> None:
    # A scan's strides double from step to step: 5.3 wavefronts where 1 is needed, on average.
    assert "distance is a power of two, pad each row, or every 32 words," in advice(
        (512, 1, 1), 955, 180
    )


@pytest.mark.parametrize(("share", "named"), [(0.5, True), (0.49, False)])
def test_a_line_is_named_if_it_has_half_of_the_conflicts(share: float, named: bool) -> None:
    base = measurement("transpose_shared")
    excessive = round(share * base.counters.shared_excessive_wavefronts)
    line = LineCounters.from_names(
        line=7, text="", shared_wavefronts=2 * excessive, shared_excessive_wavefronts=excessive
    )
    text = " ".join(run_of(replace(base, lines=(line,))).advice)
    assert "Bank conflicts" in text
    assert ("most on line 7" in text) == named


def test_the_lines_of_a_kernel_with_shared_atomics_say_nothing() -> None:
    text = advice((32, 8, 1), 32, 1, shared_atomic_instructions=5000, shared_atomic_wavefronts=5000)
    assert "Bank conflicts" in text
    assert "line 7" not in text


@pytest.mark.parametrize(
    ("block", "rows"),
    [
        ((32, 8, 1), 1),
        ((16, 16, 1), 2),
        ((1, 256, 1), 1),  # rows along y
        ((1, 1, 1), 1),
        ((20, 20, 1), 3),  # threads 32 to 63 are of rows 1, 2 and 3
        ((48, 4, 1), 2),
        ((8, 2, 1), 2),
    ],
)
def test_rows_that_a_warp_takes_in(block: Block, rows: int) -> None:
    assert rows_per_warp(block) == rows
