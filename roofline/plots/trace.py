"""A trace as a picture: arrays as grids, the thread's elements in order, the block's outlined.

Arrays that are multiplied stand as textbooks draw them: the left factor beside the product, the
right one above it.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.style import (
    BACKGROUND,
    DOTS_PER_INCH,
    HAIRLINE,
    INK,
    MATPLOTLIB_SETTINGS,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
)
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.device.tracing.records import ArrayUse, Trace

    Rectangle = tuple[int, int, int, int]

READ_COLOR, WRITE_COLOR = PALETTE[0], PALETTE[1]
READ_TINT, WRITE_TINT = "#D3E6F3", "#FBE0CE"

WORDS_PER_LINE = 32  # 1-D arrays are wrapped like lines of 128 bytes
MAX_WRAPPED_ELEMENTS = 2048
MAX_WHOLE_EXTENT = 64  # extents up to this are shown whole
MAX_CELLS_WITH_GRID = 40
MAX_CELLS_WITH_NUMBERS = 28
MAX_CELLS_WITH_NAMES = 8

PANEL_INCHES = 4.2
MAX_CELL_INCHES = 0.75  # a single element is not to fill a panel
MIN_PLANE_INCHES = 0.05  # lines that lie closer would hide what is between them
MIN_PANEL_INCHES = 1.5
GAP_INCHES = 0.75
TOP_INCHES = 1.15
FOOT_INCHES = 0.75
MARGIN_INCHES = 0.6

ELEMENT_COLUMNS = (
    "array",
    "index",
    "row",
    "column",
    "thread_reads",
    "thread_writes",
    "block_reads",
    "block_writes",
)


@dataclass(frozen=True)
class ArrayPanel:
    """One array, as it is drawn.

    Attributes:
        use: The array.
        columns: Elements in a row of the picture.
        rows: First row shown, and the one behind the last.
        cells: First column shown, and the one behind the last.
        read: Positions that the thread reads, in order of their first time.
        written: Positions that it writes.
    """

    use: ArrayUse
    columns: int
    rows: tuple[int, int]
    cells: tuple[int, int]
    read: tuple[int, ...]
    written: tuple[int, ...]

    @property
    def row_count(self) -> int:
        """Rows shown."""
        return self.rows[1] - self.rows[0]

    @property
    def column_count(self) -> int:
        """Columns shown."""
        return self.cells[1] - self.cells[0]

    @property
    def rows_per_plane(self) -> int:
        """Rows of a plane: of an array with fewer than three dimensions, all there are."""
        shape = self.use.shape
        return shape[-2] if len(shape) > 2 else math.prod(shape) // self.columns + 1


def draw_trace(trace: Trace) -> Figure:
    """Draw the arrays of a trace, with the elements that the thread and its block touch."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [_array_panel(use, trace) for use in trace.arrays]
    boxes, width, height = _layout(panels)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor=BACKGROUND)
        FigureCanvasAgg(figure)
        for panel, (left, top, wide, tall) in zip(panels, boxes, strict=True):
            axes = figure.add_axes(
                (left / width, 1 - (top + tall) / height, wide / width, tall / height)
            )
            _draw_panel(axes, panel, (wide, tall))
        _write_title_and_legend(figure, trace, width, height)
    return figure


def elements_csv(trace: Trace) -> str:
    """Give the elements that the block touches, one a row.

    Returns:
        CSV: the thread's reads and writes are its ordinals among those of the array, from 1,
        separated by blanks; whether the block reads or writes the element is 0 or 1.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ELEMENT_COLUMNS)
    for use in trace.arrays:
        reads = _ordinals(_touched_indices(trace, use.array, stores=False))
        writes = _ordinals(_touched_indices(trace, use.array, stores=True))
        block_read, block_written = set(use.block_read), set(use.block_written)
        width = use.shape[-1]
        for index in sorted(block_read | block_written):
            writer.writerow(
                (
                    use.array,
                    index,
                    index // width if len(use.shape) > 1 else 0,
                    index % width,
                    " ".join(map(str, reads.get(index, ()))),
                    " ".join(map(str, writes.get(index, ()))),
                    int(index in block_read),
                    int(index in block_written),
                )
            )
    return text.getvalue()


# --- What is shown -----------------------------------------------------------------------------


def _touched_indices(trace: Trace, array: str, stores: bool) -> tuple[int, ...]:
    return tuple(
        each.element.index
        for each in trace.followed.touches("global")
        if each.element.array == array and (each.kind != "load") == stores
    )


def _ordinals(indices: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for ordinal, index in enumerate(indices, 1):
        found.setdefault(index, []).append(ordinal)
    return found


def _array_panel(use: ArrayUse, trace: Trace) -> ArrayPanel:
    """Choose what of an array is shown: all of it, or the part around what the block touches."""
    read = tuple(dict.fromkeys(_touched_indices(trace, use.array, stores=False)))
    written = tuple(dict.fromkeys(_touched_indices(trace, use.array, stores=True)))
    touched = sorted({*use.block_read, *use.block_written, *read, *written}) or [0]
    columns = use.shape[-1]
    if len(use.shape) == 1:
        span = touched[-1] // WORDS_PER_LINE - touched[0] // WORDS_PER_LINE
        if span * WORDS_PER_LINE <= MAX_WRAPPED_ELEMENTS:
            columns = min(WORDS_PER_LINE, columns)
    rows = -(-math.prod(use.shape) // columns)
    in_rows = [each // columns for each in touched]
    in_columns = [each % columns for each in touched]
    return ArrayPanel(
        use,
        columns,
        _shown_range(min(in_rows), max(in_rows), rows),
        _shown_range(min(in_columns), max(in_columns), columns),
        read,
        written,
    )


def _shown_range(first: int, last: int, extent: int) -> tuple[int, int]:
    span = last - first + 1
    if extent <= MAX_WHOLE_EXTENT or 4 * span > extent:
        return 0, extent
    margin = max(span // 8, 1)
    return max(first - margin, 0), min(last + 1 + margin, extent)


def _layout(
    panels: Sequence[ArrayPanel],
) -> tuple[list[tuple[float, float, float, float]], float, float]:
    """Place the panels: their boxes (left, top, width, height) and the figure's size, inches."""
    if _is_matrix_product(panels):
        left, right, product = panels
        scale = PANEL_INCHES / max(
            product.column_count, product.row_count, left.column_count, right.row_count
        )
        wide = [max(each.column_count * scale, MIN_PANEL_INCHES) for each in (left, product)]
        tall = [max(each.row_count * scale, MIN_PANEL_INCHES) for each in (right, product)]
        far = MARGIN_INCHES + wide[0] + GAP_INCHES
        low = TOP_INCHES + tall[0] + GAP_INCHES
        boxes = [
            (MARGIN_INCHES, low, wide[0], tall[1]),
            (far, TOP_INCHES, wide[1], tall[0]),
            (far, low, wide[1], tall[1]),
        ]
        return boxes, far + wide[1] + MARGIN_INCHES, low + tall[1] + FOOT_INCHES
    boxes, at, lowest = [], MARGIN_INCHES, 0.0
    for each in panels:
        scale = min(PANEL_INCHES / max(each.column_count, each.row_count), MAX_CELL_INCHES)
        wide_inches = max(each.column_count * scale, MIN_PANEL_INCHES)
        tall_inches = max(each.row_count * scale, MIN_PANEL_INCHES / 2)
        boxes.append((at, TOP_INCHES, wide_inches, tall_inches))
        at, lowest = at + wide_inches + GAP_INCHES, max(lowest, tall_inches)
    return boxes, max(at - GAP_INCHES + MARGIN_INCHES, 7.0), TOP_INCHES + lowest + FOOT_INCHES


def _is_matrix_product(panels: Sequence[ArrayPanel]) -> bool:
    shapes = [each.use.shape for each in panels]
    if len(shapes) != 3 or any(len(shape) != 2 for shape in shapes):
        return False
    (m, k), (k_too, n), product = shapes
    return k == k_too and product == (m, n) and not panels[2].use.block_read


# --- Drawing -----------------------------------------------------------------------------------


def _draw_panel(axes: Axes, panel: ArrayPanel, inches: tuple[float, float]) -> None:
    use = panel.use
    axes.set_xlim(*panel.cells)
    axes.set_ylim(panel.rows[1], panel.rows[0])
    axes.set_facecolor("#FAFAFA")
    for indices, color in ((use.block_read, READ_TINT), (use.block_written, WRITE_TINT)):
        _fill_cells(axes, panel, indices, color)
    for indices, color in ((panel.read, READ_COLOR), (panel.written, WRITE_COLOR)):
        _fill_cells(axes, panel, indices, color)
    _draw_grid_lines(axes, panel)
    planes_apart = inches[1] * panel.rows_per_plane / panel.row_count > MIN_PLANE_INCHES
    if planes_apart:
        _draw_plane_lines(axes, panel)
    _draw_outline(axes, panel, planes_apart)
    _write_cells(axes, panel, min(inches[0] / panel.column_count, inches[1] / panel.row_count))
    _write_ticks(axes, panel, inches)
    title = axes.set_title(
        f"{use.array}  {' x '.join(f'{each:,}' for each in use.shape)}",
        fontsize=11,
        fontweight="bold",
        loc="left",
        pad=20 if len(use.shape) > 1 else 8,
    )
    fit_text(title, inches[0] + GAP_INCHES / 2)


def _fill_cells(axes: Axes, panel: ArrayPanel, indices: Iterable[int], color: str) -> None:
    from matplotlib.patches import Rectangle as Patch

    for left, top, wide, tall in _rectangles(indices, panel.columns):
        axes.add_patch(
            Patch((left, top), wide, tall, facecolor=color, edgecolor=color, linewidth=0.8)
        )


def _rectangles(indices: Iterable[int], columns: int) -> Iterator[Rectangle]:
    """Join positions to rectangles (column, row, columns, rows): runs, then runs below runs."""
    open_: dict[tuple[int, int], tuple[int, int]] = {}
    for row, run in _contiguous_runs(sorted(indices), columns):
        started = open_.get(run)
        if started and started[1] == row - 1:
            open_[run] = (started[0], row)
            continue
        if started:
            yield run[0], started[0], run[1] - run[0], started[1] + 1 - started[0]
        open_[run] = (row, row)
    for run, (first, last) in open_.items():
        yield run[0], first, run[1] - run[0], last + 1 - first


def _contiguous_runs(indices: Sequence[int], columns: int) -> Iterator[tuple[int, tuple[int, int]]]:
    start = previous = None
    for index in indices:
        if previous is not None and index == previous + 1 and index % columns:
            previous = index
            continue
        if start is not None and previous is not None:
            yield start // columns, (start % columns, previous % columns + 1)
        start = previous = index
    if start is not None and previous is not None:
        yield start // columns, (start % columns, previous % columns + 1)


def _draw_grid_lines(axes: Axes, panel: ArrayPanel) -> None:
    if max(panel.column_count, panel.row_count) > MAX_CELLS_WITH_GRID:
        return
    looks: dict[str, Any] = {"color": HAIRLINE, "linewidth": 0.7, "zorder": 2}
    for row in range(panel.rows[0], panel.rows[1] + 1):
        axes.axhline(row, **looks)
    for column in range(panel.cells[0], panel.cells[1] + 1):
        axes.axvline(column, **looks)


def _draw_plane_lines(axes: Axes, panel: ArrayPanel) -> None:
    """Draw a line between the planes of an array with three dimensions or more."""
    for row in range(panel.rows[0] + 1, panel.rows[1]):
        if row % panel.rows_per_plane == 0:
            axes.axhline(row, color=INK, linewidth=1.1, zorder=3)


def _draw_outline(axes: Axes, panel: ArrayPanel, planes_apart: bool) -> None:
    """Draw a line around all that the block touches, or around that of each plane."""
    from matplotlib.patches import Rectangle as Patch

    touched: dict[int, list[tuple[int, int]]] = {}
    for each in (*panel.use.block_read, *panel.use.block_written):
        row, column = divmod(each, panel.columns)
        touched.setdefault(row // panel.rows_per_plane if planes_apart else 0, []).append(
            (row, column)
        )
    for cells in touched.values():
        rows, columns = zip(*cells, strict=True)
        left, top = min(columns), min(rows)
        axes.add_patch(
            Patch(
                (left, top),
                max(columns) + 1 - left,
                max(rows) + 1 - top,
                fill=False,
                edgecolor=INK,
                linewidth=1.6,
                zorder=4,
                clip_on=False,
            )
        )


def _write_cells(axes: Axes, panel: ArrayPanel, cell_inches: float) -> None:
    """Number the thread's elements in order and, where there is room, name every element."""
    largest = max(panel.column_count, panel.row_count)
    if largest <= MAX_CELLS_WITH_NUMBERS or cell_inches > 0.15:
        points = min(15.0, 34 * cell_inches)
        for indices in (panel.read, panel.written):
            for ordinal, index in enumerate(indices, 1):
                axes.text(
                    index % panel.columns + 0.5,
                    index // panel.columns + 0.5,
                    str(ordinal),
                    color=BACKGROUND,
                    fontsize=points,
                    fontweight="bold",
                    ha="center",
                    va="center",
                    zorder=5,
                    clip_on=True,
                )
    if largest <= MAX_CELLS_WITH_NAMES:
        bright = {*panel.read, *panel.written}
        for row, column in itertools.product(range(*panel.rows), range(*panel.cells)):
            index = row * panel.columns + column
            if index >= math.prod(panel.use.shape):
                break  # behind the end of a wrapped array
            axes.text(
                column + 0.06,
                row + 0.06,
                f"{panel.use.array}[{index}]",
                color=BACKGROUND if index in bright else SECONDARY_INK,
                fontsize=7,
                ha="left",
                va="top",
                zorder=5,
            )


def _write_ticks(axes: Axes, panel: ArrayPanel, inches: tuple[float, float]) -> None:
    """Number rows and columns, as many of them as have room."""
    axes.tick_params(length=0, labelsize=8, labelcolor=SECONDARY_INK, pad=2)
    axes.xaxis.tick_top()
    for axis, (first, stop), label, room in (
        (
            axes.xaxis,
            panel.cells,
            "{:,}".format,
            inches[0] / (0.2 + 0.07 * len(f"{panel.cells[1]:,}")),
        ),
        (axes.yaxis, panel.rows, partial(_row_label, panel), inches[1] / 0.3),
    ):
        step = max(1, math.ceil((stop - first) / min(max(room, 1), 8)))
        step = step if step <= 2 else 1 << (step - 1).bit_length()
        if axis is axes.yaxis and len(panel.use.shape) > 2:
            step = _tick_step_for_planes(panel.rows_per_plane, step)
        at = [each for each in range(first, stop) if each % step == 0]
        axis.set_ticks([each + 0.5 for each in at], labels=[label(each) for each in at])


def _row_label(panel: ArrayPanel, row: int) -> str:
    """A row's number; of a wrapped array its first position, of one with planes its subscripts."""
    shape = panel.use.shape
    if len(shape) == 1:
        return f"{row * panel.columns:,}"
    subscripts = []
    for extent in reversed(shape[1:-1]):
        row, place = divmod(row, extent)
        subscripts.append(place)
    if len(shape) == 2:
        return f"{row:,}"
    return "".join(f"[{each}]" for each in (row, *reversed(subscripts)))


def _tick_step_for_planes(rows: int, least: int) -> int:
    """The least number of rows, `least` or more, that numbers those of each plane alike."""
    if least >= rows:
        return rows * -(-least // rows)
    return next(each for each in range(least, rows + 1) if rows % each == 0)


def _write_title_and_legend(figure: Figure, trace: Trace, width: float, height: float) -> None:
    from matplotlib.patches import Patch

    used = 3 if trace.grid[2] > 1 or trace.block[2] > 1 else 2
    block = ", ".join(map(str, trace.block_index[:used]))
    thread = ", ".join(map(str, trace.followed.thread[:used]))
    title = figure.text(
        MARGIN_INCHES / width / 2,
        1 - 0.32 / height,
        f"{trace.kernel}: thread ({thread}) of block ({block})",
        fontsize=14,
        fontweight="bold",
        va="center",
    )
    subtitle = figure.text(
        MARGIN_INCHES / width / 2,
        1 - 0.6 / height,
        f"{parameters_text(trace.parameters)}; x, y as in CUDA",
        fontsize=SMALL_POINTS,
        color=SECONDARY_INK,
        va="center",
    )
    for text in (title, subtitle):
        fit_text(text, width - MARGIN_INCHES)
    figure.legend(
        handles=[
            Patch(facecolor=READ_COLOR, label="the thread reads, in order"),
            Patch(facecolor=WRITE_COLOR, label="it writes"),
            Patch(facecolor=READ_TINT, edgecolor=INK, label="its block reads"),
            Patch(facecolor=WRITE_TINT, edgecolor=INK, label="its block writes"),
        ],
        loc="lower center",
        ncol=4,
        frameon=False,
        fontsize=9,
        handlelength=1.2,
        columnspacing=1.4,
        bbox_to_anchor=(0.5, 0.08 / height),
    )
