"""The occupancy picture: a panel per resource, coloured by the limiter."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.occupancy import max_warps
from memlab.roofline.plots.figure import (
    FULL_WIDTH_INCHES,
    LEFT_INCHES,
    WIDTH_INCHES,
    add_axes,
    new_figure,
    write_text,
)
from memlab.roofline.plots.label_placement import (
    add_text,
    figure_of,
    fit_text,
    place_text,
    points_to_pixels,
    text_size,
)
from memlab.roofline.plots.style import (
    BACKGROUND,
    INK,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
)
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.device.occupancy_curves import CurveStep, OccupancyCurve
    from memlab.device.properties import DeviceProperties

KIB = 1024

LIMITER_COLORS = {
    "warps": PALETTE[5],
    "registers": PALETTE[1],
    "shared memory": PALETTE[2],
    "blocks": PALETTE[3],
}
"""The colour of every limiter. A step with several limiters takes the first one's: resources that
a kernel can change without giving up threads come last."""

PANELS = {
    "threads_per_block": ("threads per block", 256),
    "registers_per_thread": ("registers per thread", 32),
    "shared_bytes_per_block": ("shared memory per block", 16 * KIB),
}
"""Title of a resource's panel, and the distance of its ticks in the resource's unit; it is doubled
until no more than `MAX_TICKS` fit."""

MAX_TICKS = 9
HEIGHT_INCHES = 5.3
PANEL_INCHES, GAP_INCHES = 3.6, 0.55

MIN_COUNT_INCHES = 0.2
"""A range of at least this width carries its number of blocks."""

MIN_UNIT_INCHES = 0.8
"""A wider range has the word `blocks` too."""


def draw_occupancy(
    curves: Sequence[OccupancyCurve], properties: DeviceProperties, subject: str
) -> Figure:
    """Draw the curves of one block next to each other.

    Args:
        curves: From `occupancy_curves`.
        properties: The device.
        subject: The block or kernel, for the title, e.g. `tiled, width 2048, tile 16`.

    Returns:
        A figure of 14 by 5.3 inches.
    """
    most = max_warps(properties)
    with new_figure(HEIGHT_INCHES, f"Occupancy of {subject}") as figure:
        occupancy, facts = curves[0].current_step.occupancy, properties.name
        if occupancy:
            facts += (
                f"  ·  {_blocks_text(occupancy.blocks_per_sm)}, {occupancy.warps_per_sm} of {most} "
                f"warps, {occupancy.theoretical:.0%}, limited by {occupancy.limiter}"
            )
        text = write_text(figure, LEFT_INCHES, 0.86, facts, color=SECONDARY_INK)
        fit_text(text, FULL_WIDTH_INCHES)
        for index, curve in enumerate(curves):
            left = 0.95 + index * (PANEL_INCHES + GAP_INCHES)
            axes = add_axes(figure, left, 1.4, PANEL_INCHES, 2.75)
            _draw_panel(axes, curve, most)
        figure.axes[0].set_ylabel("resident warps per SM", labelpad=6)
        # The last panel's scale again, as occupancy in per cent.
        right = figure.axes[-1].secondary_yaxis("right")
        right.spines[["right"]].set_visible(False)
        right.tick_params(length=0)
        right.set_yticks(figure.axes[-1].get_yticks(), [f"{25 * i}%" for i in range(5)])
        right.set_ylabel("occupancy", labelpad=6)
        _draw_legend(figure, curves)
    return figure


def _draw_panel(axes: Axes, curve: OccupancyCurve, most_warps: int) -> None:
    title, distance = PANELS[curve.resource]
    is_shared = curve.resource == "shared_bytes_per_block"
    value = _bytes_text(curve.current) if is_shared else str(curve.current)
    axes.set_title(f"{title}: {value}")
    last = curve.steps[-1].last
    axes.set(xlim=(0, last), ylim=(0, 1.08 * most_warps))
    while last / distance > MAX_TICKS:
        distance *= 2
    ticks = range(0, last + 1, distance)
    axes.set_xticks(ticks, [str(tick // KIB if is_shared else tick) for tick in ticks])
    axes.set_yticks([most_warps * quarter // 4 for quarter in range(5)])
    axes.grid(visible=True, axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_xlabel(f"{title}, KiB" if is_shared else title, labelpad=4)

    steps = curve.steps
    firsts, lasts = [step.first - 1 for step in steps], [step.last for step in steps]
    warps, colors = [step.warps_per_sm for step in steps], [_color(step) for step in steps]
    widths = np.subtract(lasts, firsts)
    axes.bar(firsts, warps, widths, align="edge", color=colors, alpha=0.28, linewidth=0)
    axes.hlines(warps, firsts, lasts, colors=colors, lw=2.2, zorder=3)
    axes.vlines(lasts[:-1], warps[:-1], warps[1:], colors=colors[1:], lw=0.8, zorder=2)

    x, y = curve.current, curve.current_step.warps_per_sm
    axes.plot([x, x], [0, y], color=INK, lw=1.0, ls=(0, (3, 3)), zorder=4)
    axes.plot([x], [y], "o", ms=9, color=INK, mec=BACKGROUND, mew=1.4, zorder=5, clip_on=False)
    for _, group in groupby(steps, key=lambda step: step.blocks_per_sm):
        _write_block_count(axes, list(group))


def _write_block_count(axes: Axes, steps: Sequence[CurveStep]) -> None:
    """Write the number of blocks into the range of its steps, where it is free near the foot."""
    (left, foot), (right, _) = axes.transData.transform(
        [(steps[0].first - 1, 0), (steps[-1].last, 0)]
    )
    inches = (right - left) / figure_of(axes).dpi
    if inches < MIN_COUNT_INCHES:
        return
    blocks = steps[0].blocks_per_sm
    count = _blocks_text(blocks) if inches > MIN_UNIT_INCHES else str(blocks)
    text = add_text(
        axes, count if blocks else "no block fits", color=SECONDARY_INK, path_effects=None
    )
    (width, height), point = text_size(text), points_to_pixels(axes)
    middle = (left + right - width) / 2
    sides = np.arange(left, right - width, point)
    starts = sorted([middle, *sides], key=lambda start: abs(start - middle))
    heights = np.arange(foot + 6 * point, axes.bbox.y1 - height, 2 * point)
    if not place_text(text, np.array([(x, y) for y in heights for x in starts])):
        text.remove()


def _blocks_text(blocks: int) -> str:
    return f"{blocks} {plural(blocks, 'block')}"


def _bytes_text(size: int) -> str:
    if size >= KIB:
        return f"{size / KIB:.1f} KiB".replace(".0 ", " ")
    return f"{size} B" if size else "none"


def _color(step: CurveStep) -> str:
    if step.occupancy is None:
        return SECONDARY_INK
    limiters = step.occupancy.limiter.split(" and ")
    return next(color for name, color in LIMITER_COLORS.items() if name in limiters)


def _draw_legend(figure: Figure, curves: Sequence[OccupancyCurve]) -> None:
    from matplotlib.patches import Patch

    shown = {_color(step) for curve in curves for step in curve.steps}
    handles = [
        Patch(facecolor=color, edgecolor="none", label=name)
        for name, color in LIMITER_COLORS.items()
        if color in shown
    ]
    top = HEIGHT_INCHES - 0.32
    write_text(figure, LEFT_INCHES, top, "limited by", fontsize=SMALL_POINTS, fontweight="bold")
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.45 / WIDTH_INCHES, 1.0 - top / HEIGHT_INCHES),
        ncols=len(handles),
        handlelength=1.0,
        columnspacing=1.6,
    )
