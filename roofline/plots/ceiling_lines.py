"""Ceilings as lines with their labels, and ridge points."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from memlab.roofline.ceilings import MEMORY_LEVELS, ceiling_unit, ceilings_by_key
from memlab.roofline.plots.label_placement import add_text, place_text, points_to_pixels, text_size
from memlab.roofline.plots.style import BACKGROUND, INK, MARKERS, SECONDARY_INK
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from memlab.roofline.run import Ceiling

MAIN_CEILINGS = (*MEMORY_LEVELS, "fp32")
"""The ceilings that are always drawn; another peak is drawn when a run used its pipe."""

LABEL_OFFSETS_POINTS = (4.0, 10.0)
"""Distances of a label from its ceiling: close, or with room for a point next to the ceiling."""

LABEL_STEP_PIXELS = 8.0
"""Distance of the places along a ceiling that are tried for its label."""

SAME_VALUE_TOLERANCE = 0.01
"""A value that was measured twice within this relative difference is written once."""

LEVEL_MARKER: dict[str, Any] = {"ms": 9, "mfc": INK, "mec": BACKGROUND, "ls": "none", "zorder": 3}
LEVEL_MARKER_FACTOR = 1.25
"""The intensity at which a level's marker is on its ceiling, over that of the left end."""


def other_peaks(ceilings: Sequence[Ceiling], pipes: Collection[str]) -> list[Ceiling]:
    """Return the peaks of arithmetic besides FP32's whose pipes the runs used."""
    peaks = [ceiling for ceiling in ceilings if ceiling.kind != "bandwidth"]
    return [peak for peak in peaks if peak.key in pipes and peak.key not in MAIN_CEILINGS]


def draw_ceilings(
    axes: Axes, ceilings: Sequence[Ceiling], measured: Sequence[Ceiling], pipes: Collection[str]
) -> None:
    """Draw a device's ceilings and ridge points, with labels where they cover least.

    Args:
        axes: Log-log axes with final size and limits, everything else drawn.
        ceilings: The device's ceilings.
        measured: The rates that micro-benchmarks reached: a dashed line next to the ceiling and a
            second figure in its label.
        pipes: Keys of the peaks of the pipes that the runs used.
    """
    known, reached = ceilings_by_key(ceilings), ceilings_by_key(measured)
    bandwidths = [known[key] for key in MEMORY_LEVELS if key in known]
    bandwidths.sort(key=lambda ceiling: -ceiling.value)
    peaks = [known["fp32"]] if "fp32" in known else []
    peaks += _merge_equal_peaks(other_peaks(ceilings, pipes))
    fastest = bandwidths[0].value if bandwidths else math.inf
    highest = max((peak.value for peak in peaks), default=axes.get_ylim()[1])
    lines = {}
    for ceiling in (*peaks, *bandwidths):
        style = "solid" if ceiling.key in MAIN_CEILINGS else "dashed"
        x, y = _line_ends(axes, ceiling, fastest, highest)
        (lines[ceiling.key],) = axes.plot(x, y, color=INK, lw=1.8, linestyle=style, zorder=2)
        if ceiling.key in reached:
            ends = _line_ends(axes, reached[ceiling.key], fastest, highest)
            axes.plot(*ends, color=INK, lw=1.0, linestyle=(0, (4, 2)), zorder=2)
        if ceiling.key in MARKERS:
            at = [x[0] * LEVEL_MARKER_FACTOR], [y[0] * LEVEL_MARKER_FACTOR]
            axes.plot(*at, marker=MARKERS[ceiling.key], **LEVEL_MARKER)
    for peak in peaks:
        _label_line(axes, lines[peak.key], _label(peak, reached.get(peak.key)), (False, True))
    if "fp32" in known:
        _draw_ridges(axes, known["fp32"], bandwidths)
    values = [math.inf, *(ceiling.value for ceiling in bandwidths), 0.0]
    for faster, ceiling, slower in zip(values, bandwidths, values[2:], strict=False):
        below = faster * slower < ceiling.value**2  # on the side with more room
        label = _label(ceiling, reached.get(ceiling.key))
        _label_line(axes, lines[ceiling.key], label, (below,))


def _line_ends(
    axes: Axes, ceiling: Ceiling, fastest: float, highest: float
) -> tuple[list[float], list[float]]:
    """Return the x and y of a line: from the fastest bandwidth's, or up to the highest peak's."""
    (left, right), bottom, value = axes.get_xlim(), axes.get_ylim()[0], ceiling.value
    if ceiling.kind != "bandwidth":
        return [max(left, value / fastest), right], [value, value]
    x = [max(left, bottom / value), min(right, highest / value)]
    return x, [x[0] * value, x[1] * value]


def _merge_equal_peaks(peaks: Sequence[Ceiling]) -> list[Ceiling]:
    """Merge peaks of one value into one with all names: `FP16 and BF16 tensor`."""
    labels: dict[float, list[str]] = {}
    for peak in peaks:
        labels.setdefault(peak.value, []).append(peak.label)
    first = {peak.value: peak for peak in reversed(peaks)}
    return [
        replace(first[value], label=" and ".join(names).replace(" tensor and", " and"))
        for value, names in labels.items()
    ]


def _label(ceiling: Ceiling, measured: Ceiling | None) -> str:
    unit, word = ceiling_unit(ceiling), "" if ceiling.kind == "bandwidth" else " peak"
    value = si_text(ceiling.value, unit)
    label = f"{ceiling.label}{word}  {value} ({ceiling.provenance})"
    if measured is None or (
        ceiling.provenance == "measured"
        and abs(measured.value / ceiling.value - 1) < SAME_VALUE_TOLERANCE
    ):
        return label
    number, its_unit = si_text(measured.value, unit).split(" ")
    short = number if value.endswith(f" {its_unit}") else f"{number} {its_unit}"
    return f"{label}, {short} {measured.provenance}"


def _label_line(axes: Axes, line: Line2D, label: str, below: Sequence[bool]) -> None:
    """Write a label along a ceiling, above or below it as `below` allows."""
    start, end = axes.transData.transform(cast("Any", line.get_xydata()))
    length = max(math.dist(start, end), 1.0)
    along = (end - start) / length
    across = np.array([-along[1], along[0]])
    angle = math.degrees(math.atan2(along[1], along[0]))
    # A point may lie under a label, never over it.
    text = add_text(axes, label, rotation=angle, rotation_mode="anchor", zorder=7)
    (width, height), point = text_size(text), points_to_pixels(axes)
    offsets = [
        -distance * point - height if is_below else distance * point
        for distance in LABEL_OFFSETS_POINTS
        for is_below in below
    ]
    first, last = 8 * point, length - width - 4 * point
    steps = [*np.arange(first, last, LABEL_STEP_PIXELS), last]
    if not angle:
        steps.reverse()  # peaks are labelled at their right end
    corners = [start + along * step + across * offset for offset in offsets for step in steps]
    if not angle:  # or left of their line, which bandwidths' ceilings may cross
        corners.append(start - along * (width + 4 * point))
    place_text(text, np.array(corners))


def _draw_ridges(axes: Axes, peak: Ceiling, bandwidths: Sequence[Ceiling]) -> None:
    """Mark the ridge points, and drop a line from each to its label near the foot of the axes."""
    point = points_to_pixels(axes)
    low = axes.bbox.y0 + 5 * point
    for ceiling in bandwidths:  # from left to right
        ridge = peak.value / ceiling.value
        label = f"{ceiling.label} ridge {sentence_number(ridge)} FLOP/B"
        text = add_text(axes, label, color=SECONDARY_INK)
        x, top = axes.transData.transform((ridge, peak.value))
        heights = np.arange(low, max(top, low + 1), 2 * point)
        place_text(text, np.array([(x + 4 * point, height) for height in heights]))
        box = text.get_window_extent()
        low = box.y1 + 2 * point  # the next line ends above this label
        foot = axes.transData.inverted().transform((x, box.y0))[1]
        looks: dict[str, Any] = {"color": SECONDARY_INK, "lw": 0.8, "ls": (0, (1, 2)), "zorder": 1}
        axes.plot([ridge, ridge], [foot, peak.value], **looks)
        axes.plot([ridge], [peak.value], "o", ms=5, color=INK, zorder=3)
