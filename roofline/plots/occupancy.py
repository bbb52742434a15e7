"""The picture of occupancy: a panel a resource, coloured by what binds, the block's place marked.

Matplotlib is used through its objects alone, as in `plot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.occupancy import max_warps
from memlab.roofline.plots.label_placement import fit_text
from memlab.roofline.plots.occupancy_labels import block_count_text, write_texts
from memlab.roofline.plots.style import (
    BACKGROUND,
    DOTS_PER_INCH,
    INK,
    MATPLOTLIB_SETTINGS,
    PALETTE,
    SECONDARY_INK,
    SMALL_POINTS,
    TEXT_POINTS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from memlab.device.properties import DeviceProperties
    from memlab.roofline.plots.occupancy_curves import CurveStep, OccupancyCurve

KIB = 1024

LIMITER_COLORS = {
    "warps": PALETTE[5],
    "registers": PALETTE[1],
    "shared memory": PALETTE[2],
    "blocks": PALETTE[3],
}
"""What can bind, and its colour. Where several bind together the step takes the first one's: a
resource that the kernel can change without giving up threads comes last."""

AXIS_LABELS = {
    "threads_per_block": "threads a block",
    "registers_per_thread": "registers a thread",
    "shared_bytes_per_block": "shared memory a block, KiB",
}
PANEL_TITLES = {
    "threads_per_block": "by block size",
    "registers_per_thread": "by registers",
    "shared_bytes_per_block": "by shared memory",
}
TICK_STEPS = {
    "threads_per_block": 256,
    "registers_per_thread": 32,
    "shared_bytes_per_block": 16 * KIB,
}
"""Distance of the ticks, in the resource's unit; doubled until no more than `TICKS_AT_MOST`."""

MAX_TICKS = 9

SIZE_INCHES = (14.0, 5.3)
LEFT_INCHES, PANEL_INCHES, GAP_INCHES = 0.95, 3.6, 0.55
FOOT_INCHES, PANEL_HEIGHT_INCHES = 1.15, 2.75


def draw_occupancy(
    curves: Sequence[OccupancyCurve], properties: DeviceProperties, subject: str
) -> Figure:
    """Draw the curves of one block beside each other.

    Args:
        curves: From `occupancy_curves.curves`.
        properties: The device.
        subject: What they are of, for the title, e.g. `tiled, width 2048, tile 16`.

    Returns:
        A figure of 14 by 5.3 inches.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = SIZE_INCHES
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, facecolor="white")
        FigureCanvasAgg(figure)
        for index, curve in enumerate(curves):
            left = LEFT_INCHES + index * (PANEL_INCHES + GAP_INCHES)
            axes = figure.add_axes(
                (
                    left / width,
                    FOOT_INCHES / height,
                    PANEL_INCHES / width,
                    PANEL_HEIGHT_INCHES / height,
                )
            )
            _draw_panel(axes, curve, max_warps(properties))
            if index == 0:
                axes.set_ylabel("resident warps an SM", labelpad=6)
        _add_percent_axis(axes)
        _write_title(figure, curves[0].current_step, properties, subject)
        _draw_legend(figure, curves)
    return figure


def _draw_panel(axes: Axes, curve: OccupancyCurve, most_warps: int) -> None:
    axes.set_title(
        PANEL_TITLES[curve.resource], loc="left", fontsize=TEXT_POINTS, fontweight="bold"
    )
    axes.spines[["top", "right"]].set_visible(False)
    for step in curve.steps:
        axes.fill_between(
            [step.first - 1, step.last],
            [step.warps_per_sm] * 2,
            color=_color(step),
            alpha=0.28,
            linewidth=0,
        )
    _draw_steps(axes, curve)
    _draw_marker(axes, curve)
    last = curve.steps[-1].last
    axes.set_xlim(0, last)
    axes.set_ylim(0, 1.16 * most_warps)
    _set_ticks(axes, curve.resource, last, most_warps)
    write_texts(axes, curve, _value_text(curve.resource, curve.current))
    axes.set_xlabel(AXIS_LABELS[curve.resource], labelpad=4)


def _draw_steps(axes: Axes, curve: OccupancyCurve) -> None:
    """Draw the steps as one line, each in its colour, joined by thin uprights."""
    for step in curve.steps:
        axes.plot(
            [step.first - 1, step.last],
            [step.warps_per_sm] * 2,
            color=_color(step),
            lw=2.2,
            solid_capstyle="butt",
            zorder=3,
        )
    for step, following in zip(curve.steps, curve.steps[1:], strict=False):
        axes.plot(
            [step.last] * 2,
            [step.warps_per_sm, following.warps_per_sm],
            color=_color(following),
            lw=0.8,
            zorder=2,
        )


def _draw_marker(axes: Axes, curve: OccupancyCurve) -> None:
    """Mark the block's own value."""
    step, value = curve.current_step, curve.current
    axes.plot([value] * 2, [0, step.warps_per_sm], color=INK, lw=1.0, ls=(0, (3, 3)), zorder=4)
    axes.plot(
        [value],
        [step.warps_per_sm],
        marker="o",
        ms=9,
        color=INK,
        markeredgecolor=BACKGROUND,
        markeredgewidth=1.4,
        zorder=5,
        clip_on=False,
    )


def _add_percent_axis(axes: Axes) -> None:
    """Repeat the last panel's scale on its right, as occupancy in per cent."""
    right = axes.twinx()
    right.spines[["top", "left", "right"]].set_visible(False)
    right.set_ylim(*axes.get_ylim())
    right.set_yticks(axes.get_yticks(), [f"{quarter * 25}%" for quarter in range(5)])
    right.tick_params(length=0)
    right.set_ylabel("occupancy", labelpad=6)


def _set_ticks(axes: Axes, resource: str, last: int, most_warps: int) -> None:
    distance = TICK_STEPS[resource]
    while last / distance > MAX_TICKS:
        distance *= 2
    places = list(range(0, last + 1, distance))
    unit = KIB if resource == "shared_bytes_per_block" else 1
    axes.set_xticks(places, [str(place // unit) for place in places])
    quarters = [most_warps * quarter // 4 for quarter in range(5)]
    axes.set_yticks(quarters, [str(warps) for warps in quarters])
    axes.grid(visible=True, axis="y", color="#EEEEEE", linewidth=0.8)
    axes.set_axisbelow(True)


def _value_text(resource: str, value: int) -> str:
    if resource == "shared_bytes_per_block":
        whole = f"{value / KIB:.1f} KiB".replace(".0 ", " ") if value >= KIB else f"{value} B"
        return whole if value else "none"
    return f"{value} {AXIS_LABELS[resource].partition(' ')[0]}"


def _color(step: CurveStep) -> str:
    if step.occupancy is None:
        return SECONDARY_INK
    binding = step.occupancy.limiter.split(" and ")
    return next(color for name, color in LIMITER_COLORS.items() if name in binding)


def _write_title(
    figure: Figure, here: CurveStep, properties: DeviceProperties, subject: str
) -> None:
    width, height = SIZE_INCHES
    y = 1.0 - 0.5 / height
    title = figure.text(
        0.45 / width, y, f"Occupancy of {subject}", fontsize=20, fontweight="bold", va="center"
    )
    fit_text(title, width - 0.9)
    found = here.occupancy
    text = properties.name
    if found:
        blocks, most = block_count_text(found.blocks_per_sm), max_warps(properties)
        text += (
            f"  ·  {blocks}, {found.warps_per_sm} of {most} warps, {found.theoretical:.0%}, "
            f"limited by {found.limiter}"
        )
    figure.text(0.45 / width, 1.0 - 0.86 / height, text, va="center", color=SECONDARY_INK)


def _draw_legend(figure: Figure, curves: Sequence[OccupancyCurve]) -> None:
    from matplotlib.patches import Patch

    steps = [step for curve in curves for step in curve.steps]
    shown = {_color(step) for step in steps if step.occupancy}
    handles = [
        Patch(facecolor=color, edgecolor="none", label=name)
        for name, color in LIMITER_COLORS.items()
        if color in shown
    ]
    width, height = SIZE_INCHES
    figure.text(
        0.45 / width,
        0.32 / height,
        "limited by",
        va="center",
        fontsize=SMALL_POINTS,
        fontweight="bold",
    )
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.45 / width, 0.32 / height),
        ncols=len(handles),
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.0,
        handleheight=0.9,
        handletextpad=0.5,
        columnspacing=1.6,
        fontsize=SMALL_POINTS,
    )
