"""The roofline picture and its data: positions, looks, and texts that do not overlap."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest
from example_runs import CEILINGS, ladder, measurement, run, run_of
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Affine2D

from memlab.errors import UsageError
from memlab.roofline.documents.frames import picture_csv, runs_frame
from memlab.roofline.placement import place_measurement
from memlab.roofline.plots.axes import axis_limits
from memlab.roofline.plots.figure import image_format, render_figure
from memlab.roofline.plots.label_placement import spread_positions
from memlab.roofline.plots.roofline import MAX_RUNS, draw_roofline
from memlab.roofline.plots.style import PALETTE, run_styles
from memlab.roofline.run import Ceiling, RunIdentity
from memlab.roofline.units import column_number, sentence_number, si_text

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from memlab.roofline.run import Run

DATE = "2026-01-02"


def many() -> list[Run]:
    """Thirteen runs that differ, of which one has a very long name."""
    base = measurement("tiled16")
    runs = [
        run_of(replace(base, parameters={**base.parameters, "width": 2048 - index}))
        for index in range(12)
    ]
    return [*runs, run_of(replace(base, kernel="tiled-" + "register-blocked-" * 5))]


def picture(runs: list[Run]) -> Figure:
    return draw_roofline(runs, CEILINGS, "NVIDIA H200", DATE)


def points(figure: Figure, kernel: str = "tiled") -> list[Line2D]:
    return [line for line in figure.axes[0].lines if (line.get_gid() or "").startswith(kernel)]


@pytest.mark.parametrize("runs", [[], ladder(), [run("copy"), run("row_sum")]])
def test_axes_are_whole_decades_whatever_the_runs(runs: list[Run]) -> None:
    chart = picture(runs).axes[0]
    # Ridges at 2, 6.6 and 13.9 FLOP/B; a peak of 66.9 TFLOP/s.
    assert chart.get_xlim() == pytest.approx((1e-2, 1e4))
    assert chart.get_ylim() == pytest.approx((1e10, 1e14))


def test_tensor_cores_raise_the_axes_and_push_no_other_run_off_them() -> None:
    slow = measurement("tiled16")  # 17.2 GFLOP in 100 ms: near the foot of the axes
    slow = replace(slow, time=replace(slow.time, median_s=0.1))
    counters = replace(slow.counters, flop_tensor_fp16=slow.counters.flop_fp32, flop_fp32=0)
    tensor = replace(slow, kernel="tensor-fp16", counters=counters)
    fp16 = replace(CEILINGS[-1], key="fp16", label="FP16 tensor", value=989.4e12)
    bf16 = replace(fp16, key="bf16", label="BF16 tensor")
    counters = replace(counters, flop_tensor_fp16=0, flop_tensor_bf16=counters.flop_tensor_fp16)
    runs = [slow, tensor, replace(tensor, kernel="tensor-bf16", counters=counters)]
    figure = draw_roofline(
        [run_of(measured) for measured in runs], [*CEILINGS, fp16, bf16], "NVIDIA H200", DATE
    )

    bottom, top = figure.axes[0].get_ylim()
    assert bottom == pytest.approx(1e10)
    assert top > 989.4e12
    drawn = points(figure)
    assert drawn
    assert all(bottom < line.get_ydata()[0] < top for line in drawn)
    texts = [text.get_text() for text in texts_of(figure)]
    assert "FP16 and BF16 tensor peak  989 TFLOP/s (datasheet)" in texts


@given(scale=st.floats(1e-3, 1e3))
def test_the_ceilings_lie_within_the_axes_for_any_device(scale: float) -> None:
    scaled_up = [replace(ceiling, value=ceiling.value * scale) for ceiling in CEILINGS]
    (left, right), (bottom, top) = axis_limits(scaled_up)
    peak = 66.908e12 * scale
    assert left < 2.0
    assert right > 13.9
    assert bottom < peak < top
    for limit in (left, right, bottom, top):
        assert math.log10(limit) == pytest.approx(round(math.log10(limit)))


def test_a_modelled_point_is_hollow_and_a_measured_one_filled() -> None:
    hollow, filled = (points(picture([run("tiled16", kind)])) for kind in ("modelled", "measured"))
    assert len(hollow) == len(filled) == 4
    assert {line.get_markerfacecolor() for line in hollow} == {"#FFFFFF"}
    assert "#FFFFFF" not in {line.get_markerfacecolor() for line in filled}


def test_a_point_stands_at_its_intensity_and_performance() -> None:
    drawn = {line.get_gid(): line.get_xydata()[0] for line in points(picture(ladder()))}
    x, y = drawn["tiled 16 l1"]
    assert x == pytest.approx(0.28563, rel=1e-4)
    assert y == pytest.approx(17179869184 / 2114.832044e-6)


def texts_of(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


@pytest.mark.parametrize("runs", [[], [run("naive", "modelled")], ladder(), many()])
def test_no_text_is_cut_or_written_over_another(runs: list[Run]) -> None:
    figure = picture(runs)
    figure.canvas.draw()
    # Tick labels beyond the limits exist but are not drawn; turned labels' boxes are not theirs.
    ticks = {
        text for axes in figure.axes for text in (*axes.get_xticklabels(), *axes.get_yticklabels())
    }
    upright = [text for text in texts_of(figure) if text not in ticks and not text.get_rotation()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in upright]
    for name, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= figure.bbox.x1, name
        assert 0 <= box.y0 <= box.y1 <= figure.bbox.y1, name
    for index, (name, box) in enumerate(boxes):
        for other_name, other in boxes[index + 1 :]:
            assert not box.overlaps(other), (name, other_name)


def test_long_names_leave_the_legend_and_the_next_panel_alone() -> None:
    name = "two.cu:a_rather_long_kernel_name_for_a_chart"
    rates = [1e11 * 1.2**i for i in range(8)]
    own = [at("row_sum", rate, kernel=name, parameters={"grid": str(rate)}) for rate in rates]
    figure = picture([*own, *ladder()])
    figure.canvas.draw()
    chart, panel = figure.axes
    edge = chart.get_window_extent().x1
    labels = [text for text in chart.texts if text.get_window_extent().x0 > edge]
    assert len(labels) == 12
    others = [*figure.legends, *panel.get_yticklabels()]
    assert len(others) > 2
    left = min(artist.get_window_extent().x0 for artist in others)
    assert max(label.get_window_extent().x1 for label in labels) < left


def test_no_ceiling_goes_through_a_peaks_label_and_no_label_through_another() -> None:
    # Two tensor peaks over FP32's; the bandwidths go on to the highest.
    peaks = [
        replace(CEILINGS[-1], key=key, label=f"{key.upper()} tensor", value=value)
        for key, value in (("tf32", 494.7e12), ("fp16", 989.4e12))
    ]
    base = measurement("tiled32", "modelled")
    counted = [
        replace(base.counters, flop_fp32=0, **{f"flop_tensor_{peak.key}": base.flop})
        for peak in peaks
    ]
    tensor = [
        replace(base, kernel=f"t{i}", counters=counters) for i, counters in enumerate(counted)
    ]
    runs = [*ladder(), *map(run_of, tensor)]
    chart = draw_roofline(runs, [*CEILINGS, *peaks], "NVIDIA H200", DATE).axes[0]

    labels = [text for text in chart.texts if " peak " in text.get_text()]
    assert len(labels) == 3
    boxes = [label.get_window_extent() for label in labels]
    lines = [line for line in chart.lines if len(line.get_xdata()) == 2 and line.get_lw() == 1.8]
    assert len(lines) == 6
    for line in lines:
        ends = chart.transData.transform(line.get_xydata())
        along = np.linspace(*ends, 500)
        for label, box in zip(labels, boxes, strict=True):
            assert not any(box.contains(x, y) for x, y in along), label.get_text()
    turned = [text for text in chart.texts if text.get_rotation()]
    assert len(turned) == 3
    for text in turned:  # from corner to corner, through the middle of a turned label
        extent = text.get_window_extent()
        along = np.linspace((extent.x0, extent.y0), (extent.x1, extent.y1), 500)
        for box in boxes:
            assert not any(box.contains(x, y) for x, y in along), text.get_text()


@pytest.mark.parametrize("flop_per_byte", [0.02, 0.05, 0.1, 0.25, 1.0])
def test_no_ceilings_label_covers_a_point(flop_per_byte: float) -> None:
    # Just under the lowest ceiling, where most kernels that stream their arrays are.
    base = run("row_sum")
    at = dict.fromkeys(base.placement.intensity_flop_per_byte, flop_per_byte)
    placements = [
        replace(
            base.placement, intensity_flop_per_byte=at, flop_per_s=share * flop_per_byte * 4.814e12
        )
        for share in (0.7, 0.95)
    ]
    figure = picture([replace(base, placement=placement) for placement in placements])
    chart = figure.axes[0]
    labels = [text for text in chart.texts if text.get_rotation()]
    assert len(labels) == 3
    for label in labels:
        turned, angle = label.get_window_extent(), label.get_rotation()
        label.set_rotation(0)
        upright = label.get_window_extent()
        middle = ((turned.x0 + turned.x1) / 2, (turned.y0 + turned.y1) / 2)
        for placement in placements:
            point = chart.transData.transform((flop_per_byte, placement.flop_per_s))
            x, y = Affine2D().translate(*(-at for at in middle)).rotate_deg(-angle).transform(point)
            assert abs(x) > upright.width / 2 or abs(y) > upright.height / 2, label.get_text()


def at(name: str, flop_per_s: float, **changes: object) -> Run:
    """A run of one of the kernels under another name and parameters, as fast as wanted."""
    base = replace(measurement(name, "modelled"), **changes)  # type: ignore[arg-type]
    return run_of(replace(base, time=replace(base.time, median_s=base.flop / flop_per_s)))


@given(st.lists(st.floats(1.01e10, 1e12), min_size=1, max_size=8))
@settings(max_examples=5, deadline=None)
def test_no_runs_line_goes_through_a_ridges_label(rates: list[float]) -> None:
    figure = picture([at("row_sum", rate, kernel=f"k{i}") for i, rate in enumerate(rates)])
    chart = figure.axes[0]
    labels = [text for text in chart.texts if "ridge" in text.get_text()]
    assert len(labels) == 3
    for label in labels:
        box = label.get_window_extent()
        for rate in rates:
            height = chart.transData.transform((1.0, rate))[1]
            assert not box.y0 < height < box.y1, label.get_text()


def test_a_peaks_label_makes_way_for_a_run_just_above_it() -> None:
    def is_above_its_peak(*rates: float) -> bool:
        runs = [at("tiled16", rate, kernel=f"k{i}") for i, rate in enumerate(rates)]
        chart = picture(runs).axes[0]
        (label,) = (text for text in chart.texts if "FP32 peak" in text.get_text())
        height = chart.transData.transform((1.0, 66.908e12))[1]
        box = label.get_window_extent()
        assert box.y0 > height or box.y1 < height
        return bool(box.y0 > height)

    assert is_above_its_peak(1e13)
    assert not is_above_its_peak(1e13, 80e12)


def test_sizes_are_said_only_where_they_tell_runs_apart() -> None:
    def sized(kernel: str, width: int) -> Run:
        parameters: dict[str, int | str] = {"width": width, "tile": 64}
        return at("tiled16", 1e13, kernel=kernel, tile=64, parameters=parameters)

    runs = [sized("a", 1024), sized("b", 2048), sized("c", 512), sized("c", 1024)]
    assert [entry.label for entry in run_styles(runs)] == [
        "a 64",
        "b 64",
        "c 64 · 512",
        "c 64 · 1024",
    ]


def test_what_is_too_long_loses_its_name_before_its_size() -> None:
    runs = [
        at("tiled16", rate, kernel=kernel, parameters={"width": width, "tile": 16})
        for kernel, width, rate in (
            ("register-tiled-1d", 512, 1e12),
            ("register-tiled-1d", 1024, 2e12),
            ("register-tiled-2d", 512, 3e12),
            ("register-tiled-2d", 1024, 4e12),
        )
    ]
    for axes in picture(runs).axes[:2]:
        named = [text.get_text() for text in axes.texts if " · " in text.get_text()]
        assert len(set(named)) == 4
        assert {name.partition(" · ")[2] for name in named} == {"512", "1024"}


def test_more_kernels_than_colours_still_look_different() -> None:
    still = [run("copy"), run("transpose_shared")]
    runs = [*still, *(at("tiled16", 1e12 * (i + 1), kernel=f"k{i}") for i in range(10))]
    looks = [(entry.color, str(entry.line_style)) for entry in run_styles(runs)]
    assert len(set(looks)) == len(runs)
    # Those with FLOPs, which alone are on the chart, have the solid lines.
    assert [stroke for _, stroke in looks[2:9]] == ["solid"] * 7
    drawn = picture(runs).findobj(Line2D, include_self=False)
    table = {(line.get_color(), line.get_linestyle()) for line in drawn if line.axes is None}
    assert len({looks for looks in table if looks[0] in PALETTE and looks[1] != "None"}) == 12


def test_neither_of_two_hollow_markers_that_overlap_looks_filled() -> None:
    # A blue ring 4% above an orange one: 0.02 decades, less than the width of a ring.
    figure = picture([at("naive", 5.25e12), at("tiled16", 5.05e12)])
    figure.canvas.draw()
    chart, pixels = figure.axes[0], np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
    upper, lower = points(figure, "naive")[-1], points(figure)[-1]
    x, y = chart.transData.transform(lower.get_xydata()[0])
    over = chart.transData.transform(upper.get_xydata()[0])[1]
    radius = 7.5 / 2 * figure.dpi / 72
    column = pixels[:, round(x), :3].astype(int)
    between = column[len(column) - round(over + radius) - 3 : len(column) - round(y)]
    white = between.min(axis=1) > 200
    # From above: paper, the blue ring, a gap, the orange ring, the orange one's hole.
    assert np.count_nonzero(np.diff(white.astype(int)) < 0) == 2


def test_rates_that_differ_widely_stand_on_a_logarithmic_axis() -> None:
    slow, fast = at("naive", 7e12), at("tiled32", 240e12, kernel="tensor")
    assert picture([slow, fast]).axes[1].get_yscale() == "log"
    assert picture([slow, at("tiled32", 9e12)]).axes[1].get_yscale() == "linear"


def test_no_line_leads_from_measured_to_modelled_times() -> None:
    both = [*ladder("measured"), *ladder("modelled")]
    lines = [line for line in picture(both).axes[1].lines if line.get_linewidth() == 1.2]
    # Tiled at 8, 16 and 32, twice; naive has a point alone.
    assert sorted(len(line.get_xdata()) for line in lines) == [1, 1, 3, 3]


def test_without_tiles_the_panel_says_what_each_run_made_of_the_dram() -> None:
    copy, row_sum = run("copy"), run("row_sum", "modelled")
    panel = picture([copy, row_sum]).axes[1]
    # 2 x 4 x 4194304 B in 17.6 us, filled; 8192^2 floats in 1.08 ms, hollow.
    widths = [bar.get_width() for bar in panel.patches]
    assert widths == pytest.approx([1.9030e12, 2.4961e11], rel=1e-3)
    texts = {text.get_text() for text in panel.texts}
    assert {"copy", "1.90 TB/s", "row_sum", "~250 GB/s", "DRAM"} <= texts
    assert [bar.get_facecolor()[:3] == (1.0, 1.0, 1.0) for bar in panel.patches] == [False, True]


def test_what_is_not_on_the_chart_is_named_under_it() -> None:
    texts = " ".join(text.get_text() for text in texts_of(picture([run("copy")])))
    assert "Not on the chart (no FLOPs, or beyond its axes): copy" in texts
    assert "no FLOPs" in texts


def test_a_kernel_of_integers_is_drawn_under_their_roof() -> None:
    base = measurement("tiled16")
    counters = replace(base.counters, flop_fp32=0, iop_alu=10**12)
    hashing = replace(
        base, kernel="hash", flop=0, counters=counters, time=replace(base.time, median_s=0.1)
    )
    roof = Ceiling("int_alu", "INT ALU", 16.73e12, "integer", "datasheet")
    placement = place_measurement(hashing, (*CEILINGS, roof))
    figure = draw_roofline(
        [replace(run_of(base), measurement=hashing, placement=placement)],
        (*CEILINGS, roof),
        "NVIDIA H200",
        "2026",
    )
    axes = figure.axes[0]
    heights = {float(line.get_ydata()[0]) for line in axes.lines}
    assert {16.73e12, 1e13} <= heights
    texts = " ".join(text.get_text() for text in texts_of(figure))
    assert "INT ALU peak  16.7 TOP/s (datasheet)" in texts
    assert "OP/s" in axes.get_ylabel()
    assert "10,000 GOP" in texts
    assert "60% of INT ALU" in texts
    assert "Not on the chart" not in texts


def test_what_is_above_a_physical_limit_is_called_invalid() -> None:
    tiled = measurement("tiled16")
    broken = run_of(replace(tiled, time=replace(tiled.time, median_s=1e-3)))
    texts = {text.get_text() for text in texts_of(picture([broken]))}
    assert {"invalid", "180% of L1"} <= texts


def test_only_the_newest_of_too_many_runs_are_drawn_and_that_is_said() -> None:
    runs = many()
    texts = [text.get_text() for text in texts_of(picture([*runs, *runs]))]
    assert sum(text.startswith("2.11 ms") for text in texts) == MAX_RUNS
    assert "Only the newest 12 runs are drawn: 1 older not." in texts


def test_a_run_that_is_repeated_is_as_new_as_its_last_time() -> None:
    first, second, *others = many()
    labels = {line.get_gid() for line in points(picture([first, second, *others, first]))}
    widths = [run.measurement.parameters["width"] for run in (first, second)]
    drawn = [f"tiled 16 · {width} dram" in labels for width in widths]
    assert drawn == [True, False]


@pytest.mark.slow
def test_the_files_are_what_they_say_and_the_same_each_time() -> None:
    assert render_figure(picture(ladder()), "png").startswith(b"\x89PNG\r\n")
    first, second = (render_figure(picture(ladder()), "svg") for _ in range(2))
    assert first == second
    assert ElementTree.fromstring(first).tag == "{http://www.w3.org/2000/svg}svg"
    assert render_figure(picture([]), "pdf").startswith(b"%PDF-")


def test_an_unknown_format_names_those_there_are(tmp_path: Path) -> None:
    assert image_format(tmp_path / "roofline.SVG") == "svg"
    with pytest.raises(UsageError, match=r"from its extension: use \.png, \.svg or \.pdf"):
        image_format(tmp_path / "roofline")
    with pytest.raises(UsageError, match=r"'jpg'.*use \.png, \.svg or \.pdf"):
        image_format(tmp_path / "roofline.jpg")


def test_the_picture_can_be_redrawn_from_its_csv() -> None:
    data = pandas.read_csv(io.StringIO(picture_csv(ladder(), CEILINGS)))
    ceilings = data[data.record == "ceiling"].set_index("key")
    assert ceilings.bytes_per_s["dram"] == 4.814e12
    assert ceilings.flop_per_s["fp32"] == 66.908e12
    dots = data[data.record == "point"]
    assert len(dots) == 4 * 5
    tiled = dots[(dots.kernel == "tiled") & (dots.tile == 16)].set_index("level")
    assert tiled.intensity_flop_per_byte["l1"] == pytest.approx(0.28563, rel=1e-4)
    assert set(dots.provenance) == {"modelled"}


def test_a_frame_has_a_row_a_run_and_its_columns_without_any() -> None:
    assert list(runs_frame(ladder()).kernel) == ["naive", "tiled", "tiled", "tiled"]
    columns = list(runs_frame(ladder()).columns)
    columns.remove("width")  # the parameter of these kernels
    assert list(runs_frame([]).columns) == columns


@given(st.lists(st.floats(0, 10), max_size=8).map(sorted), st.floats(0.01, 1))
def test_labels_keep_their_order_and_distance(wanted: list[float], gap: float) -> None:
    placed = spread_positions(wanted, gap, 0, 10)
    assert all(right - left >= gap - 1e-9 for left, right in pairwise(placed))
    assert all(-1e-9 <= position <= 10 + 1e-9 for position in placed)
    if all(right - left >= gap for left, right in pairwise(wanted)):
        assert placed == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.8585e-3, "s", "1.86 ms"),
        (999.6e9, "B/s", "1.00 TB/s"),
        (50331648, "B", "50.3 MB"),
        (0.0, "B", "0 B"),
        (4325376, "", "4.33 M"),
    ],
)
def test_figures_read_as_a_person_writes_them(value: float, unit: str, text: str) -> None:
    assert si_text(value, unit) == text


def test_plain_figures_have_three_digits() -> None:
    assert [column_number(x) for x in (0.25, 8, 13.898, 1365.6)] == [
        "0.250",
        "8.00",
        "13.9",
        "1,370",
    ]
    assert [sentence_number(x) for x in (0.25, 8, 100)] == ["0.25", "8", "100"]


def test_labels_say_how_runs_of_ones_own_kernel_differ() -> None:
    def own(kernel: str, **parameters: int | str) -> Run:
        return run_of(
            replace(measurement("tiled16"), kernel=kernel, parameters=parameters, tile=None)
        )

    runs = [
        own("a.cu:f", grid="16", block="256", args="f32[4096] i32=4096"),
        own("a.cu:f", grid="32", block="256", args="f32[8192] i32=8192"),
        own("a.cu:f", grid="32", block="256", defines="FAST", args="f32[8192] i32=8192"),
        own("b.cu:g", grid="16", block="256", args="i32=1"),
        own("b.cu:g", grid="16", block="256", args="i32=2"),
        own("c.cu:h", grid="16", block="256", args="i32=2"),
    ]
    assert [entry.label for entry in run_styles(runs)] == [
        "a.cu:f · grid 16",
        "a.cu:f · grid 32",
        "a.cu:f · grid 32, FAST",
        "b.cu:g · args i32=1",
        "b.cu:g · args i32=2",
        "c.cu:h",
    ]
    swept = [
        own("a.cu:f", N=n, B=b, grid=str(n // b), block=str(b), defines=f"T={t}")
        for n, b, t in ((64, 8, 1), (64, 16, 2), (128, 8, 2))
    ] + [own("b.cu:g", N=64, grid="8", block="8"), own("b.cu:g", N=64, grid="16", block="8")]
    assert [entry.label for entry in run_styles(swept)] == [
        "a.cu:f · N 64, B 8",
        "a.cu:f · N 64, B 16",
        "a.cu:f · N 128, B 8",
        "b.cu:g · grid 8",
        "b.cu:g · grid 16",
    ]


def test_a_name_with_control_characters_leaves_the_picture_whole() -> None:
    hostile = run_of(replace(measurement("tiled16"), kernel="\x1b[31m\x00<a>\u202e&\ud800.cu:k"))
    svg = render_figure(picture([hostile]), "svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert render_figure(picture([hostile]), "pdf")


def test_a_sweep_names_only_what_another_sweep_ran_too() -> None:
    def of_sweep(name: str, sweep: str) -> Run:
        return replace(run(name), identity=RunIdentity(sweep=sweep))

    other = [of_sweep("tiled8", "first"), of_sweep("tiled16", "second")]
    assert [entry.label for entry in run_styles(other)] == ["tiled 8", "tiled 16"]
    same = [of_sweep("tiled8", "first"), of_sweep("tiled8", "second")]
    assert [entry.label for entry in run_styles(same)] == [
        "tiled 8 · first",
        "tiled 8 · second",
    ]


def labelled(original: Run, label: str, number: int) -> Run:
    return replace(original, id=number, identity=RunIdentity(label=label))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def crosses(figure: Figure) -> int:
    """Points of the chart that are crossed out."""
    lines = (line for line in figure.axes[0].lines if line.get_marker() == "x")
    return sum(len(line.get_xdata()) for line in lines)


def test_a_run_with_a_wrong_output_is_crossed_out_and_the_legend_says_so() -> None:
    right, wrong = ladder()[:2]
    failed = replace(wrong.measurement.verification, status="failed")
    wrong = replace(wrong, measurement=replace(wrong.measurement, verification=failed))

    figure = picture([right, wrong])
    assert crosses(figure) == len(points(figure, wrong.measurement.kernel)) > 0
    assert texts(figure).count("wrong") == 1  # in the table
    assert "wrong output" in texts(figure)
    assert any(text.startswith("Crossed out: the output is wrong") for text in texts(figure))
    table = pandas.read_csv(io.StringIO(picture_csv([right, wrong], CEILINGS)))
    verified = table[table.record == "point"].groupby("kernel").verification.unique()
    assert [*verified[wrong.measurement.kernel]] == ["failed"]
    assert table[table.record == "ceiling"].verification.isna().all()

    figure = picture([right])
    assert not crosses(figure)
    assert not {"wrong", "wrong output"} & {*texts(figure)}


def test_runs_that_differ_in_their_label_alone_are_drawn_apart() -> None:
    before, after = (labelled(run("tiled16"), label, 1) for label in ("before", "after"))
    styles = run_styles([before, after])
    assert [style.label for style in styles] == ["tiled 16 · before", "tiled 16 · after"]
    assert styles[0].color != styles[1].color
    shown = texts(picture([before, after]))
    assert {"tiled · before", "tiled · after"} <= {*shown}
    # One label needs no mention, and of one label the newest run is drawn.
    again = labelled(run("tiled16"), "after", 2)
    assert [style.label for style in run_styles([again])] == ["tiled 16"]
    assert "run 2" not in " ".join(texts(picture([after, again])))
    assert texts(picture([before, after, again])) == texts(picture([before, again]))


def test_runs_that_were_named_are_all_drawn() -> None:
    """By their number where nothing else tells them apart."""
    same = [labelled(run("tiled16"), "", number) for number in (3, 7)]
    assert [style.suffix for style in run_styles(same)] == [" · run 3", " · run 7"]
    figure = draw_roofline(same, CEILINGS, "NVIDIA H200", DATE, all_runs=True)
    assert {"tiled · run 3", "tiled · run 7"} <= {*texts(figure)}


def test_a_title_leaves_the_device_in_the_picture() -> None:
    title = "Before and after the loop was unrolled, with " + "a very long title " * 10
    figure = draw_roofline(ladder(), CEILINGS, "NVIDIA GeForce RTX 3070 Ti", DATE, title=title)
    (heading,) = (text for text in figure.texts if text.get_text().startswith("Before and after"))
    (right,) = (text for text in figure.texts if DATE in text.get_text())
    assert "NVIDIA GeForce RTX 3070 Ti" in right.get_text()
    assert heading.get_window_extent().x1 < right.get_window_extent().x0
