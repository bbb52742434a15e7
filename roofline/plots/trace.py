"""The picture of a trace: arrays as grids, with the elements of the thread and of its block.

The arrays of a matrix product are placed as in textbooks: the left factor to the left of the
product, the right factor above it.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

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
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from memlab.device.tracing.records import ArrayUse, Trace

UNUSED, BLOCK_READ, BLOCK_WRITE = "#FAFAFA", "#D3E6F3", "#FBE0CE"
READ, WRITE = PALETTE[0], PALETTE[1]
CELL_COLORS = (UNUSED, BLOCK_READ, BLOCK_WRITE, READ, WRITE)  # a later one covers an earlier one

WORDS_PER_LINE = 32  # 1-D arrays are wrapped like lines of 128 bytes
MAX_WRAPPED_ELEMENTS = 2048
MAX_WHOLE_EXTENT = 64  # extents up to this are shown whole
MAX_CELLS_WITH_GRID = 40
MAX_VECTOR_CELLS = 4096  # more are drawn as an image in .svg and .pdf
MAX_TICKS = 8

PANEL_INCHES = 4.2
MIN_PANEL_INCHES = 1.5
MAX_CELL_INCHES = 0.75  # one element must not fill a panel
NUMBERED_CELL_INCHES = 0.14
NAMED_CELL_INCHES = 0.5
MIN_PLANE_INCHES = 0.05  # closer lines would hide the planes between them
CELLS_PER_INCH = 100  # smaller cells are drawn as one
GAP_INCHES = 0.75
TOP_INCHES = 1.15
FOOT_INCHES = 0.75
MARGIN_INCHES = 0.6

NUMBER_STYLE: Any = {"color": BACKGROUND, "weight": "bold", "ha": "center", "va": "center"}
TITLE_STYLE: Any = {"fontsize": 14, "weight": "bold", "va": "center"}
SUBTITLE_STYLE: Any = {"fontsize": SMALL_POINTS, "color": SECONDARY_INK, "va": "center"}
LEGEND_STYLE: Any = {"ncol": 4, "frameon": False, "fontsize": 9, "handlelength": 1.2}

ELEMENT_COLUMNS = (
    *("array", "index", "row", "column"),
    *("thread_reads", "thread_writes", "block_reads", "block_writes"),
)


@dataclass(frozen=True)
class ArrayPanel:
    """The shown part of an array.

    Attributes:
        use: The array.
        width: Elements in a row of the picture.
        rows: The rows shown.
        columns: The columns shown.
        read: Row-major positions that the thread reads, in order of its first reads.
        written: Row-major positions that the thread writes, in order of its first writes.
    """

    use: ArrayUse
    width: int
    rows: range
    columns: range
    read: tuple[int, ...]
    written: tuple[int, ...]

    @property
    def rows_per_plane(self) -> int:
        """Rows of a plane; more than there are if the array has fewer than three dimensions."""
        return self.use.shape[-2] if len(self.use.shape) > 2 else self.rows.stop + 1

    def row_label(self, row: int) -> str:
        """A row's number, its first position in a wrapped array, or its leading subscripts."""
        shape = self.use.shape
        if len(shape) < 3:
            return f"{row * self.width if len(shape) == 1 else row:,}"
        return "".join(f"[{subscript}]" for subscript in np.unravel_index(row, shape[:-1]))

    def places(self, positions: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and the columns of row-major positions."""
        rows, columns = np.divmod(np.array(positions, np.int64), self.width)
        return rows, columns


def draw_trace(trace: Trace) -> Figure:
    """Draw the arrays of a trace, with the elements that the thread and its block access."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [_array_panel(use, trace) for use in trace.arrays]
    product = _is_matrix_product(panels)
    sizes = _panel_sizes(panels, product)
    cells = [(1, 0), (0, 1), (1, 1)] if product else [(0, number) for number in range(len(panels))]
    widths: defaultdict[int, float] = defaultdict(float)
    heights: defaultdict[int, float] = defaultdict(float)
    for (row, column), (wide, tall) in zip(cells, sizes, strict=True):
        heights[row], widths[column] = max(heights[row], tall), max(widths[column], wide)
    width = sum(widths.values()) + GAP_INCHES * (len(widths) - 1) + 2 * MARGIN_INCHES
    width = max(width, 7.0)  # the legend's
    height = sum(heights.values()) + GAP_INCHES * (len(heights) - 1) + TOP_INCHES + FOOT_INCHES
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor=BACKGROUND)
        FigureCanvasAgg(figure)
        for panel, (row, column), (wide, tall) in zip(panels, cells, sizes, strict=True):
            left = MARGIN_INCHES + sum(widths[before] + GAP_INCHES for before in range(column))
            top = TOP_INCHES + sum(heights[before] + GAP_INCHES for before in range(row))
            box = (left / width, 1 - (top + tall) / height, wide / width, tall / height)
            _draw_panel(figure.add_axes(box), panel, wide, tall)
        _write_title_and_legend(figure, trace, width, height)
    return figure


def elements_csv(trace: Trace) -> str:
    """The elements that the block accesses, one per row.

    Returns:
        CSV: the thread's reads and writes are their numbers among its reads and writes of the
        array, from 1, separated by blanks; the block's are 0 or 1.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ELEMENT_COLUMNS)
    for use in trace.arrays:
        ordinals: defaultdict[tuple[bool, int], list[int]] = defaultdict(list)
        for stores in (False, True):
            for ordinal, index in enumerate(_touched(trace, use.array, stores=stores), 1):
                ordinals[stores, index].append(ordinal)
        block_read, block_written = set(use.block_read), set(use.block_written)
        for index in sorted(block_read | block_written):
            row, column = divmod(index, use.shape[-1])
            writer.writerow(
                (
                    *(use.array, index, row if len(use.shape) > 1 else 0, column),
                    *(" ".join(map(str, ordinals[stores, index])) for stores in (False, True)),
                    *(int(index in block_read), int(index in block_written)),
                )
            )
    return text.getvalue()


def _touched(trace: Trace, array: str, *, stores: bool) -> list[int]:
    """The positions in an array that the thread reads, or writes, in order."""
    return [
        access.element.index
        for access in trace.followed.touches("global")
        if access.element.array == array and (access.kind != "load") == stores
    ]


def _array_panel(use: ArrayUse, trace: Trace) -> ArrayPanel:
    """Choose the shown part of an array: all of it, or the surroundings of the block's elements."""
    read, written = (
        tuple(dict.fromkeys(_touched(trace, use.array, stores=stores))) for stores in (False, True)
    )
    touched = np.array([*use.block_read, *use.block_written, *read, *written] or [0])
    width = use.shape[-1]
    lines = touched.max() // WORDS_PER_LINE - touched.min() // WORDS_PER_LINE
    if len(use.shape) == 1 and lines * WORDS_PER_LINE <= MAX_WRAPPED_ELEMENTS:
        width = min(WORDS_PER_LINE, width)
    rows = _shown_range(touched // width, -(-math.prod(use.shape) // width))
    return ArrayPanel(use, width, rows, _shown_range(touched % width, width), read, written)


def _shown_range(places: NDArray[np.int64], extent: int) -> range:
    first, last = int(places.min()), int(places.max())
    span = last - first + 1
    if extent <= MAX_WHOLE_EXTENT or 4 * span > extent:
        return range(extent)
    margin = max(span // 8, 1)
    return range(max(first - margin, 0), min(last + 1 + margin, extent))


def _is_matrix_product(panels: Sequence[ArrayPanel]) -> bool:
    shapes = [panel.use.shape for panel in panels]
    if len(shapes) != 3 or any(len(shape) != 2 for shape in shapes):
        return False
    (m, inner), (k, n), product = shapes
    return k == inner and product == (m, n) and not panels[2].use.block_read


def _panel_sizes(panels: Sequence[ArrayPanel], product: bool) -> list[tuple[float, float]]:
    """The width and the height of each panel, inches; those of a product have the same scale."""
    extents = [max(len(panel.rows), len(panel.columns)) for panel in panels]
    if product:
        cells, least = [PANEL_INCHES / max(extents)] * 3, MIN_PANEL_INCHES
    else:
        cells = [min(PANEL_INCHES / extent, MAX_CELL_INCHES) for extent in extents]
        least = MIN_PANEL_INCHES / 2
    return [
        (max(len(panel.columns) * cell, MIN_PANEL_INCHES), max(len(panel.rows) * cell, least))
        for panel, cell in zip(panels, cells, strict=True)
    ]


def _draw_panel(axes: Axes, panel: ArrayPanel, wide: float, tall: float) -> None:
    """Draw an array in a panel of some width and height, inches."""
    _fill_cells(axes, panel, wide, tall)
    planes_apart = tall * panel.rows_per_plane / len(panel.rows) > MIN_PLANE_INCHES
    for row in panel.rows[1:] if planes_apart else ():
        if row % panel.rows_per_plane == 0:
            axes.axhline(row, color=INK, linewidth=1.1, zorder=3)
    _outline_block(axes, panel, planes_apart)
    _write_cells(axes, panel, min(wide / len(panel.columns), tall / len(panel.rows)))
    _write_ticks(axes, panel, wide, tall)
    title = f"{panel.use.array}  {' x '.join(f'{extent:,}' for extent in panel.use.shape)}"
    fit_text(axes.set_title(title, fontsize=11, weight="bold", loc="left"), wide + GAP_INCHES / 2)


def _fill_cells(axes: Axes, panel: ArrayPanel, wide: float, tall: float) -> None:
    """Colour the cells that the thread and its block access."""
    from matplotlib.colors import ListedColormap

    rows, columns = panel.rows, panel.columns
    height = min(len(rows), int(tall * CELLS_PER_INCH))
    width = min(len(columns), int(wide * CELLS_PER_INCH))
    grid = max(len(rows), len(columns)) <= MAX_CELLS_WITH_GRID
    axes.pcolormesh(
        np.linspace(columns.start, columns.stop, width + 1),
        np.linspace(rows.start, rows.stop, height + 1),
        color_indices(panel, height, width),
        cmap=ListedColormap(CELL_COLORS),
        vmin=0,
        vmax=len(CELL_COLORS) - 1,
        edgecolors=HAIRLINE if grid else "none",
        linewidth=0.5,
        antialiased=grid,
        rasterized=height * width > MAX_VECTOR_CELLS,
    )
    axes.set(xlim=(columns.start, columns.stop), ylim=(rows.stop, rows.start))


def color_indices(panel: ArrayPanel, height: int, width: int) -> NDArray[np.int64]:
    """The shown cells as indices of `CELL_COLORS`, shape (height, width).

    Where several cells share a pixel, the thread's elements cover the block's.
    """
    image = np.zeros((height, width), np.int64)
    use = panel.use
    accesses = (use.block_read, use.block_written, panel.read, panel.written)
    for color, positions in enumerate(accesses, 1):
        rows, columns = panel.places(positions)
        rows, columns = rows - panel.rows.start, columns - panel.columns.start
        image[rows * height // len(panel.rows), columns * width // len(panel.columns)] = color
    return image


def _outline_block(axes: Axes, panel: ArrayPanel, planes_apart: bool) -> None:
    """Draw a line around the elements that the block accesses, or around those of each plane."""
    from matplotlib.patches import Rectangle

    rows, columns = panel.places((*panel.use.block_read, *panel.use.block_written))
    planes = rows // panel.rows_per_plane if planes_apart else 0 * rows
    for plane in np.unique(planes):
        at = np.stack([columns, rows])[:, planes == plane]
        corner = at.min(axis=1)
        width, height = at.max(axis=1) + 1 - corner
        outline = Rectangle(corner, width, height, fill=False, edgecolor=INK, linewidth=1.6)
        axes.add_patch(outline).set(zorder=4, clip_on=False)


def _write_cells(axes: Axes, panel: ArrayPanel, cell_inches: float) -> None:
    """Number the thread's elements in order and name every element, where there is room."""
    if cell_inches >= NUMBERED_CELL_INCHES:
        points = min(15.0, 34 * cell_inches)
        for positions in (panel.read, panel.written):
            for ordinal, (row, column) in enumerate(zip(*panel.places(positions), strict=True), 1):
                axes.text(column + 0.5, row + 0.5, str(ordinal), fontsize=points, **NUMBER_STYLE)
    if cell_inches >= NAMED_CELL_INCHES:
        bright = {*panel.read, *panel.written}
        for row, column in itertools.product(panel.rows, panel.columns):
            index = row * panel.width + column
            if index < math.prod(panel.use.shape):  # else behind the end of a wrapped array
                name, color = f"{panel.use.array}[{index}]", SECONDARY_INK
                if index in bright:
                    color = BACKGROUND
                axes.text(column + 0.06, row + 0.06, name, color=color, fontsize=7, va="top")


def _write_ticks(axes: Axes, panel: ArrayPanel, wide: float, tall: float) -> None:
    """Number rows and columns where there is room, in steps of a power of two."""
    axes.tick_params(length=0, labelsize=8, labelcolor=SECONDARY_INK, pad=2)
    axes.xaxis.tick_top()
    label_inches = 0.2 + 0.07 * len(f"{panel.columns.stop:,}")
    for axis, cells, room, label in (
        (axes.xaxis, panel.columns, wide / label_inches, "{:,}".format),
        (axes.yaxis, panel.rows, tall / 0.3, panel.row_label),
    ):
        step = 1 << math.ceil(math.log2(max(len(cells) / min(room, MAX_TICKS), 1)))
        ticks = [cell for cell in cells if cell % step == 0]
        axis.set_ticks([tick + 0.5 for tick in ticks], labels=[label(tick) for tick in ticks])


def _write_title_and_legend(figure: Figure, trace: Trace, width: float, height: float) -> None:
    from matplotlib.patches import Patch

    used = 3 if trace.grid[2] > 1 or trace.block[2] > 1 else 2
    block = ", ".join(map(str, trace.block_index[:used]))
    thread = ", ".join(map(str, trace.followed.thread[:used]))
    title = f"{trace.kernel}: thread ({thread}) of block ({block})"
    subtitle = f"{parameters_text(trace.parameters)}; x, y as in CUDA"
    for inches, text, style in ((0.32, title, TITLE_STYLE), (0.6, subtitle, SUBTITLE_STYLE)):
        line = figure.text(MARGIN_INCHES / width / 2, 1 - inches / height, text, **style)
        fit_text(line, width - MARGIN_INCHES)
    figure.legend(
        handles=[
            Patch(facecolor=READ, label="the thread reads, in order"),
            Patch(facecolor=WRITE, label="it writes"),
            Patch(facecolor=BLOCK_READ, edgecolor=INK, label="its block reads"),
            Patch(facecolor=BLOCK_WRITE, edgecolor=INK, label="its block writes"),
        ],
        loc="lower center",
        bbox_to_anchor=(0.5, 0.08 / height),
        **LEGEND_STYLE,
    )
