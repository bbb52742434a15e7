"""Occupancy curves and their picture."""

import csv
import io
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from memlab.device.datasheets import loader
from memlab.device.occupancy import BLOCK_RESOURCES, BlockRequirements
from memlab.device.occupancy_curves import occupancy_curves as curves
from memlab.roofline.documents.occupancy import curves_csv
from memlab.roofline.plots.figure import render_figure
from memlab.roofline.plots.occupancy import draw_occupancy

RTX3070 = loader.load_datasheet("rtx3070")
BLOCK = BlockRequirements(256, 40, 8192)


def test_csv_has_a_row_a_step_and_marks_the_block():
    rows = list(csv.DictReader(io.StringIO(curves_csv(curves(RTX3070, BLOCK)))))
    marked = [(row["resource"], row["current"]) for row in rows if row["current"]]
    assert marked == list(zip(BLOCK_RESOURCES, ("256", "40", "8192"), strict=True))
    registers = [row for row in rows if row["resource"] == "registers_per_thread"]
    # Without the rest in the way: 1536 / 256 blocks up to 40, then 5 up to 48, 4 up to 64 ...
    assert [(int(row["last"]), int(row["blocks_per_sm"])) for row in registers[-5:]] == [
        (48, 5),
        (64, 4),
        (80, 3),
        (128, 2),
        (255, 1),
    ]


@pytest.mark.parametrize("image_format", ["png", "svg", "pdf"])
def test_the_picture_is_the_same_every_time(image_format):
    def picture():
        return render_figure(
            draw_occupancy(curves(RTX3070, BLOCK), RTX3070, "a block"), image_format
        )

    assert picture() == picture()


def test_the_picture_says_what_it_shows():
    figure = draw_occupancy(curves(RTX3070, BLOCK), RTX3070, "256 threads a block")
    texts = [text.get_text() for text in figure.texts]
    assert texts[0] == "Occupancy of 256 threads a block"
    assert "6 blocks, 48 of 48 warps, 100%, limited by warps and registers" in texts[1]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "threads per block: 256",
        "registers per thread: 40",
        "shared memory per block: 8 KiB",
    ]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    device=st.sampled_from(["h200", "t4", "rtx3070"]),
    threads=st.integers(1, 1024),
    registers=st.integers(1, 64),
    shared=st.integers(0, 48 * 1024),
)
@example("h200", 128, 16, 32)  # "1 block" lies on its step, "16" on the dashed line
@example("h200", 256, 94, 16896)  # the curve rises next to the marker
@example("t4", 700, 60, 30000)
def test_no_line_strikes_a_text_through(device, threads, registers, shared):
    properties = loader.load_datasheet(device)
    drawn = curves(properties, BlockRequirements(threads, registers, shared))
    figure = draw_occupancy(drawn, properties, "a block")
    for curve, axes in zip(drawn, figure.axes, strict=False):
        boxes = [(text.get_text(), text.get_window_extent()) for text in axes.texts]
        lines = [line.get_xydata() for line in axes.lines]
        steps = [segment for lines in axes.collections for segment in lines.get_segments()]
        assert len(steps) == 2 * len(curve.steps) - 1  # levels and the uprights between them
        ends = [axes.transData.transform(line)[[0, -1]] for line in (*lines, *steps)]
        drawn_over = np.concatenate([np.linspace(*line, 400) for line in ends])
        for name, box in boxes:
            within = (box.min < drawn_over) & (drawn_over < box.max)
            assert not within.all(axis=1).any(), (curve.resource, name)
        for (name, box), (other_name, other) in combinations(boxes, 2):
            assert not box.overlaps(other), (name, other_name)


def test_counts_make_way_for_what_is_drawn_and_stay():
    h200 = loader.load_datasheet("h200")
    for block, counts in (
        (BlockRequirements(128, 16, 32), ({"32"}, {"16"}, {"16", "1 block"})),
        (
            BlockRequirements(256, 94, 16896),
            ({"2", "1 block", "no block fits"}, {"2"}, {"2 blocks"}),
        ),
    ):
        figure = draw_occupancy(curves(h200, block), h200, "a block")
        for axes, expected in zip(figure.axes, counts, strict=False):
            assert expected <= {text.get_text() for text in axes.texts}


def test_no_text_leaves_the_picture():
    for properties, block in (
        (RTX3070, BLOCK),
        (loader.load_datasheet("h200"), BlockRequirements(1024, 64, 227 * 1024)),
        (loader.load_datasheet("t4"), BlockRequirements(1, 255, 0)),
    ):
        figure = draw_occupancy(curves(properties, block), properties, "a kernel with a name, " * 9)
        width, height = figure.get_size_inches() * figure.dpi
        figure.canvas.draw()
        for text in figure.findobj(Text):
            if text.get_text() and text.get_visible():
                box = text.get_window_extent()
                assert -1 < box.x0 <= box.x1 < width + 1, text.get_text()
                assert -1 < box.y0 <= box.y1 < height + 1, text.get_text()
