"""The picture of a comparison: points, arrows and ceilings where the figures say."""

import example_runs
import pytest

from memlab.roofline.comparison.compare import compare_runs
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.plots.comparison import draw_comparison
from memlab.roofline.plots.figure import render_figure

LEVELS = ("requested", "l1", "l2", "dram")


def drawn(*names, **more):
    runs = [example_runs.run(name, "modelled") for name in names]
    pairs = tuple(compare_runs(a, b) for a, b in zip(runs[::2], runs[1::2], strict=True))
    return draw_comparison(Comparison(pairs), example_runs.CEILINGS, "NVIDIA H200", **more)


def arrows(figure):
    return [text for text in figure.axes[0].texts if getattr(text, "arrow_patch", None)]


def texts(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


def test_an_arrow_leads_from_a_to_b_at_every_level():
    a, b = example_runs.run("tiled8"), example_runs.run("tiled32")
    figure = drawn("tiled8", "tiled32")
    ends = {(*arrow.xyann, *arrow.xy) for arrow in arrows(figure)}
    places = [run.placement for run in (a, b)]
    assert ends == {
        tuple(
            value
            for place in places
            for value in (place.intensity_flop_per_byte[level], place.flop_per_s)
        )
        for level in LEVELS
    }
    chart = figure.axes[0]
    for place in places:
        for level in LEVELS:
            assert chart.get_xlim()[0] < place.intensity_flop_per_byte[level] < chart.get_xlim()[1]
        assert chart.get_ylim()[0] < place.flop_per_s < chart.get_ylim()[1]
    assert {"A tiled 8", "B tiled 32"} <= set(texts(figure))


def test_runs_without_flops_are_drawn_by_their_bandwidth():
    figure = drawn("copy", "transpose_shared")
    assert len(arrows(figure)) == 3  # L1, L2 and DRAM
    assert any("compute no FLOPs" in text for text in texts(figure))


def test_the_same_run_twice_has_no_arrow():
    assert not arrows(drawn("tiled16", "tiled16"))


@pytest.mark.parametrize("image_format", ["png", "svg"])
def test_several_pairs_and_two_devices_are_drawn(image_format):
    other = ([example_runs.CEILINGS[0]], "NVIDIA A100")
    figure = drawn("naive", "tiled8", "tiled8", "tiled16", other=other)
    assert len(arrows(figure)) == 8
    assert any("the ceilings of NVIDIA A100" in text for text in texts(figure))
    assert len(render_figure(figure, image_format)) > 10_000
