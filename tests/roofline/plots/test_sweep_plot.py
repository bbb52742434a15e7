"""The picture of a sweep suits its axes, and shows every point."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from example_runs import H200
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from memlab.roofline.plots.figure import render_figure
from memlab.roofline.plots.sweep import tick_text
from memlab.roofline.sweep.objective import find_objective
from memlab.roofline.sweep.records import Sweep, SweepRow, ranked
from memlab.roofline.sweep.space import Axis, Space


def swept(make_run: object, *axes: Axis, missing: int = 0) -> Sweep:
    """A sweep whose point `i` took `i + 1` ms; the last `missing` points are impossible."""
    space = Space((Axis("kernel", "kernel", ("tiled",)), *axes))
    objective = find_objective("time")
    rows = []
    for number in range(space.size):
        run = make_run()  # type: ignore[operator]
        time = replace(run.measurement.time, median_s=1e-3 * (number + 1))
        run = replace(run, measurement=replace(run.measurement, time=time))
        done = number < space.size - missing
        rows.append(
            SweepRow(
                space.values(number),
                "done" if done else "impossible",
                run=run if done else None,
                value=time.median_s if done else None,
            )
        )
    return Sweep(
        "",
        "2026-01-02T03:04:05+00:00",
        space.axes,
        objective,
        ranked(rows, objective),
        space.size,
        properties=H200,
    )


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.fixture
def numbers() -> Axis:
    return Axis("width", "parameter", (256, 512, 1024))


def test_one_number_is_a_line_for_each_combination_of_words(make_run, numbers) -> None:
    sweep = swept(make_run, Axis("device", "device", ("h200", "a100")), numbers, missing=1)
    (axes,) = (figure := sweep.figure()).axes

    assert [list(line.get_ydata()) for line in axes.lines] == [
        pytest.approx([1e-3, 2e-3, 3e-3]),
        pytest.approx([4e-3, 5e-3]),
    ]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["h200", "a100"]
    assert axes.get_xlabel() == "width"
    assert render_figure(figure, "svg") == render_figure(sweep.figure(), "svg")


def luminance(color: object) -> float:
    """The relative luminance of a colour (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_the_figures_of_a_heat_map_can_be_read_on_every_colour(make_run, numbers) -> None:
    tiles = Axis("tile", "parameter", tuple(range(1, 9)))
    (axes,) = swept(make_run, numbers, tiles).figure().axes
    (image,) = axes.images
    cells = image.to_rgba(image.get_array())[..., :3]
    assert len(axes.texts) == 24
    for text in axes.texts:
        column, line = text.get_position()
        both = sorted((luminance(cells[int(line), int(column)]), luminance(text.get_color())))
        assert (both[1] + 0.05) / (both[0] + 0.05) >= 4.5


@pytest.mark.parametrize("step", [1, 1000, 100_003, 2**20])
def test_no_two_texts_of_small_multiples_overlap(make_run, step: int) -> None:
    n = Axis("N", "symbol", tuple(step * k for k in range(1, 13)))
    b = Axis("B", "symbol", (64, 128, 256, 512))
    s = Axis("S", "symbol", (1, 2, 3))
    figure = swept(make_run, s, n, b, missing=1).figure()
    figure.canvas.draw()
    assert len(figure.axes) == 3
    for axes in figure.axes:
        for labels in (axes.get_xticklabels(), axes.texts):
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
        assert len(axes.get_xticklabels()) >= 3


def test_long_multiples_are_written_with_suffixes() -> None:
    values = (4096, 65536, 65537, 3 << 20, 5 << 30, "float")
    assert [tick_text(value) for value in values] == ["4096", "64K", "65537", "3M", "5G", "float"]


def test_a_point_that_was_not_run_is_blank(make_run, numbers) -> None:
    tiles = Axis("tile", "parameter", (8, 16))
    sweep = swept(make_run, tiles, numbers, missing=2)
    some = replace(sweep, rows=tuple(row for row in sweep.rows if row.values["width"] != 512))
    (axes,) = (figure := some.figure()).axes
    assert [text.get_text() for text in axes.texts].count("×") == 1
    notes = " ".join(text.get_text() for text in figure.texts)
    assert "not done: 1 point." in notes
    assert "4 of 6 points were run." in notes
    words = replace(some, axes=(some.axes[0], some.axes[2]))
    assert not [text for text in words.figure().axes[0].texts if text.get_text() == "×"]


@pytest.mark.parametrize("name", ["time", "flop_per_s"])
def test_figures_that_are_nearly_equal_have_nearly_one_colour(make_run, name: str) -> None:
    tiles, widths = (Axis(each, "parameter", (8, 16)) for each in ("tile", "width"))
    sweep = replace(swept(make_run, tiles, widths), objective=find_objective(name))
    rows = [replace(row, value=1.0 + n / 100) for n, row in enumerate(sweep.rows)]
    sweep = replace(sweep, rows=ranked(rows, sweep.objective))
    (image,) = sweep.figure().axes[0].images
    shares = np.asarray(image.norm(image.get_array()))
    assert 0.05 < shares.max() - shares.min() < 0.2
    best = image.to_rgba(image.get_array()).reshape(-1, 4)[:, :3].sum(axis=1)
    assert np.argmin(best) == np.ravel(image.get_array()).argsort()[-1 if name != "time" else 0]


def test_words_alone_are_bars(make_run) -> None:
    words = Axis("TYPE", "macro", ("float", "double"))
    (axes,) = swept(make_run, Axis("device", "device", ("h200", "a100")), words).figure().axes

    assert [bar.get_height() for bar in axes.patches] == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["float", "double"]


def test_two_numbers_are_a_heat_map_whose_cells_are_the_points(make_run, numbers) -> None:
    tiles = Axis("tile", "parameter", (32, 8))
    (axes,) = swept(make_run, tiles, numbers, missing=1).figure().axes

    (image,) = axes.images
    cells = image.get_array()
    assert cells.shape == (2, 3)
    # tile 8 was impossible at the largest width; rows are sorted, with 8 first
    assert list(cells[1]) == pytest.approx([1e-3, 2e-3, 3e-3])
    assert list(cells[0][:2]) == pytest.approx([4e-3, 5e-3])
    shown = [text.get_text() for text in axes.texts]
    assert shown.count("×") == 1
    assert "1 ms" in shown


def test_two_numbers_and_a_word_are_small_multiples(make_run, numbers) -> None:
    figure = swept(
        make_run,
        Axis("device", "device", ("h200", "a100")),
        numbers,
        Axis("tile", "parameter", (8, 16)),
    ).figure()

    assert [axes.get_title(loc="left") for axes in figure.axes] == ["h200", "a100"]
    limits = {axes.images[0].get_clim() for axes in figure.axes}
    assert len(limits) == 1


def test_a_third_number_with_few_values_makes_panels(make_run, numbers) -> None:
    figure = swept(
        make_run, numbers, Axis("tile", "parameter", (8, 16)), Axis("m", "parameter", (1, 2, 3, 4))
    ).figure()

    assert [axes.get_title(loc="left") for axes in figure.axes] == ["tile 8", "tile 16"]


def test_more_is_the_roofline_of_the_best(make_run, numbers) -> None:
    eight = tuple(range(8))
    sweep = swept(
        make_run, numbers, *(Axis(name, "parameter", eight) for name in ("tile", "m", "k"))
    )

    assert any("DRAM" in text for text in texts(sweep.figure()))
