"""The words of comparisons: values, changes and runs as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.units import (
    column_number,
    elide_middle,
    parameters_text,
    si_text,
    without_lists,
)

if TYPE_CHECKING:
    from memlab.roofline.comparison.records import FigureChange, Value
    from memlab.roofline.run import Run

MAX_BYTES_IN_FULL = 1_000_000
"""More bytes are written with a prefix."""

MAX_TITLE_CHARACTERS = 120
"""The longest title of a run; user kernels have many parameters."""


def value_text(value: Value, unit: str) -> str:
    """Write a value: a count in full, others with three digits and a prefix."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value or "-"
    if unit == "1":
        return f"{100 * value:.3g}%"
    if unit == "B" and value < MAX_BYTES_IN_FULL:
        return f"{value:,} B"  # a capacity is binary, a transfer decimal: this is neither
    if unit == "FLOP/B":
        return column_number(value)
    if unit:
        return si_text(value, unit)
    return f"{value:,}" if isinstance(value, int) else column_number(value)


def figure_texts(change: FigureChange) -> tuple[str, str]:
    """Write both sides of a figure; a bound by its name in reports."""
    sides = change.a, change.b
    if change.name == "bound":
        return ceiling_label(str(sides[0])), ceiling_label(str(sides[1]))
    return value_text(sides[0], change.unit), value_text(sides[1], change.unit)


def change_text(relative: float | None) -> str:
    """Write a relative change: `+3.2%`, `-12%`, `x4.1`; nothing where there is none."""
    if not relative:
        return "" if relative is None else "none"
    if relative >= 1:
        return f"x{relative + 1:.3g}"
    share = 100 * abs(relative)
    if share < 0.005:
        return "<0.01%"
    size = f"{share:.2f}" if share < 0.995 else f"{share:.3g}"
    return f"{'+' if relative > 0 else '-'}{size}%"


def interval_text(interval: tuple[float, float]) -> str:
    """Write the interval of a relative change: `-2.5% to +120%`."""
    return " to ".join(f"{100 * end:+.{0 if abs(end) >= 0.1 else 1}f}%" for end in interval)


def run_title(run: Run) -> str:
    """Name a run by its kernel, parameters and device: `tiled width 512, tile 16 on h200`."""
    measurement = run.measurement
    launch = " ".join(
        filter(None, (measurement.kernel, parameters_text(without_lists(measurement.parameters))))
    )
    return f"{elide_middle(launch, MAX_TITLE_CHARACTERS)} on {measurement.device.key}"


def run_origin(run: Run) -> str:
    """Say where a run comes from: its number, label and commit: `run 3 "before" at 1a2b3c4d`."""
    identity = run.identity
    parts = [] if run.id is None else [f"run {run.id}"]
    if not parts and not identity.label:
        parts = ["not stored"]
    if identity.label:
        parts.append(f'"{elide_middle(identity.label, 40)}"')
    if identity.git_commit:
        changed = "" if identity.git_clean else " with changes"
        parts.append(f"at {identity.git_commit[:8]}{changed}")
    return " ".join(parts)
