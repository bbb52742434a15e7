"""No picture writes TeX: the formatters that Matplotlib chooses by itself would."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from example_runs import CEILINGS, ladder, measurement, run, run_of, timed
from example_traces import example_trace
from matplotlib.text import Text
from paths import DATA

from memlab.device.datasheets import loader
from memlab.device.occupancy import BlockRequirements
from memlab.device.occupancy_curves import occupancy_curves
from memlab.roofline.documents.peaks import peaks_from_document
from memlab.roofline.plots import occupancy as occupancy_plot
from memlab.roofline.plots import peaks, trace
from memlab.roofline.plots import roofline as plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from memlab.roofline.run import Run

PEAKS = DATA / "h200-peaks.json"
H200 = loader.load_datasheet("h200")


def roofline(*runs: Run) -> Figure:
    return plot.draw_roofline(runs, CEILINGS, "NVIDIA H200", "2026-01-02")


def tiles_apart(times: float, fast_s: float) -> Figure:
    """A roofline of two tile widths, one so many times as fast as the other."""
    slow, fast = measurement("tiled8", "modelled"), measurement("tiled32", "modelled")
    return roofline(run_of(timed(slow, times * fast_s)), run_of(timed(fast, fast_s)))


PICTURES = {
    "roofline": lambda: roofline(*ladder()),
    "bars": lambda: roofline(run("copy")),
    "occupancy": lambda: occupancy_plot.draw_occupancy(
        occupancy_curves(H200, BlockRequirements(256, 40, 8192)), H200, "a block"
    ),
    "trace": lambda: trace.draw_trace(example_trace()),
    "peaks": lambda: peaks.draw_peaks(peaks_from_document(json.loads(PEAKS.read_text()))),
}


def texts(figure: Figure) -> list[str]:
    figure.canvas.draw()  # figures at the axes are written only then
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_a_formula(name: str) -> None:
    written = texts(PICTURES[name]())
    assert any(written)
    assert not [text for text in written if "$" in text or "\\" in text]


@pytest.mark.parametrize("fast_s", [3.4e-3, 100.0])  # 5 TFLOP/s, 0.2 GFLOP/s
@pytest.mark.parametrize("times", [3.0, 12.0, 33.0, 1e5])
def test_rates_by_tile_width_are_plain_numbers_however_far_apart(
    times: float, fast_s: float
) -> None:
    figure = tiles_apart(times, fast_s)
    assert not [text for text in texts(figure) if "$" in text]
    axis = figure.axes[1].yaxis
    low, high = axis.get_view_interval()
    shown = [
        text.get_text()
        for place, text in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if low <= place <= high
    ]
    assert len([text for text in shown if float(text.replace(",", "")) > 0]) >= 2
    assert len(set(shown)) == len(shown)
