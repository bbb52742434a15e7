"""The picture of a trace: its data, its layout, and the shown part of large arrays."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from example_traces import example_trace
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.tracing.records import ArrayUse, ThreadTrace, Trace
from memlab.roofline.plots.figure import render_figure
from memlab.roofline.plots.trace import ArrayPanel, color_indices, draw_trace, elements_csv


def test_the_data_of_the_picture() -> None:
    rows = list(csv.DictReader(io.StringIO(elements_csv(example_trace()))))
    assert [(row["array"], int(row["index"])) for row in rows] == [
        *(("M", index) for index in (4, 5, 6, 7)),
        *(("N", index) for index in (0, 4, 8, 12)),
        ("P", 4),
    ]
    assert rows[0] == {
        "array": "M",
        "index": "4",
        "row": "1",
        "column": "0",
        "thread_reads": "1 5",
        "thread_writes": "",
        "block_reads": "1",
        "block_writes": "0",
    }
    assert (rows[-1]["thread_reads"], rows[-1]["thread_writes"]) == ("", "1")


def test_a_product_stands_as_in_textbooks_with_its_elements_in_order() -> None:
    left, right, product = draw_trace(example_trace()).axes
    assert left.get_position().y0 == pytest.approx(product.get_position().y0)
    assert right.get_position().x0 == pytest.approx(product.get_position().x0)
    assert left.get_position().x1 < product.get_position().x0
    assert right.get_position().y0 > product.get_position().y1
    ordinals = {
        text.get_text(): text.get_position() for text in left.texts if text.get_text().isdigit()
    }
    assert ordinals == {str(i + 1): (i + 0.5, 1.5) for i in range(4)}
    assert {text.get_text() for text in left.texts} >= {"M[0]", "M[15]"}


@pytest.mark.parametrize("image_format", ["png", "svg", "pdf"])
def test_large_arrays_are_drawn_and_the_same_each_time(image_format: str) -> None:
    pictures = [render_figure(draw_trace(example_trace(2048)), image_format) for _ in range(2)]
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) < 1_000_000


@given(st.sets(st.integers(0, 59), min_size=1), st.integers(1, 12), st.sets(st.integers(0, 59)))
def test_colors_cover_just_the_elements(block: set[int], columns: int, thread: set[int]) -> None:
    use = ArrayUse("a", (60,), {}, None, tuple(block), ())
    rows = -(-60 // columns)
    panel = ArrayPanel(use, columns, range(rows), range(columns), tuple(thread), ())
    image = color_indices(panel, rows, columns).reshape(-1)
    assert {color: set(np.flatnonzero(image == color)) for color in (1, 3)} == {
        1: block - thread,
        3: thread,
    }


def test_one_element_of_a_large_array_stays_visible() -> None:
    use = ArrayUse("a", (2048, 2048), {}, None, tuple(range(0, 2048**2, 997)), ())
    panel = ArrayPanel(use, 2048, range(2048), range(2048), (1000 * 2048 + 77,), ())
    image = color_indices(panel, 420, 420)
    assert np.argwhere(image == 3).tolist() == [[1000 * 420 // 2048, 77 * 420 // 2048]]


def _idle_trace(*uses: ArrayUse, **parameters: str) -> Trace:
    """A trace of a thread that touches nothing, in a block that touches arrays."""
    thread = ThreadTrace((0, 0, 0), (), 0)
    return replace(example_trace(), parameters=parameters, followed=thread, arrays=uses)


def test_long_parameters_stay_in_the_picture() -> None:
    figure = draw_trace(
        _idle_trace(ArrayUse("a", (8,), {}, None, (0,), ()), args="f32[4,8,16] " * 9)
    )
    _, subtitle = figure.texts
    assert "…" in subtitle.get_text()
    assert subtitle.get_text().endswith("; x, y as in CUDA")
    assert subtitle.get_window_extent().x1 < figure.bbox.x1


def test_a_large_array_is_shown_around_its_elements() -> None:
    """The block of thread 0 touches one row of M, one column of N, one element of P."""
    shown = [
        (axes.get_xlim(), axes.get_ylim()[::-1]) for axes in draw_trace(example_trace(2048)).axes
    ]
    assert shown == [((0, 2048), (0, 3)), ((0, 2), (0, 2048)), ((0, 2), (0, 3))]


def test_one_dimension_is_wrapped_like_lines_of_128_bytes() -> None:
    """The array that is read in one place is wrapped, the one that is read all over is not."""
    local, spread = draw_trace(
        _idle_trace(
            ArrayUse("a", (8000,), {}, None, tuple(range(640, 672)), ()),
            ArrayUse("b", (8000,), {}, None, (0, 7999), ()),
        )
    ).axes
    assert (local.get_xlim(), local.get_ylim()) == ((0, 32), (22, 19))
    assert [tick.get_text() for tick in local.get_yticklabels()] == ["640"]
    assert (spread.get_xlim(), spread.get_ylim()) == ((0, 8000), (1, 0))


def test_planes_are_separated() -> None:
    """Of 4 planes of 8 rows, the block reads a corner of the second and of the last."""
    read = (128, 129, 144, 145, 384, 385)
    (axes,) = draw_trace(_idle_trace(ArrayUse("a", (4, 8, 16), {1: 6}, None, read, ()))).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"[{plane}][{row}]" for plane in range(4) for row in (0, 4)
    ]
    heavy = [line.get_ydata()[0] for line in axes.lines if line.get_linewidth() > 1]
    assert heavy == [8, 16, 24]
    outlines = [patch for patch in axes.patches if not patch.get_fill()]
    assert [outline.get_bbox().bounds for outline in outlines] == [(0, 8, 2, 2), (0, 24, 2, 1)]


def test_a_single_element_is_no_larger_than_a_row() -> None:
    row, single = draw_trace(
        _idle_trace(
            ArrayUse("a", (32,), {}, None, (0,), ()), ArrayUse("b", (1,), {}, None, (), (0,))
        )
    ).axes
    assert single.get_position().width < row.get_position().width / 2
    assert single.get_position().height == pytest.approx(row.get_position().height)
