"""Figures as text: three significant digits and a decimal prefix; and long names shortened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from memlab.text import plural

if TYPE_CHECKING:
    from memlab.device.measurement import Coverage, Verification

SI_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
"""SI prefixes by power of ten."""

LIST_PARAMETERS = ("args", "constants")
"""The parameters of user kernels that are lists: arguments and `__constant__` arrays."""


def si_text(value: float, unit: str) -> str:
    """Write a value with three significant digits and an SI prefix: `1.86 ms`."""
    if not value or not math.isfinite(value):
        return f"{value:g} {unit}"
    # Round first, so that 999.6 becomes 1.00 k and not 1000.
    value = float(f"{value:.3g}")
    power = 3 * math.floor(math.log10(abs(value)) / 3)
    power = max(min(SI_PREFIXES), min(max(SI_PREFIXES), power))
    number = f"{value / 10.0**power:#.3g}".rstrip(".")
    return f"{number} {SI_PREFIXES[power]}{unit}".rstrip()


def interval_text(low: float, high: float, unit: str) -> str:
    """Write an interval, with its unit once where both ends share it: `14.2-16.9 ms`."""
    first, last = si_text(low, unit), si_text(high, unit)
    number, _, prefix = first.partition(" ")
    return f"{number if last.endswith(f' {prefix}') else first}\N{EN DASH}{last}"


def parameters_text(parameters: Mapping[str, int | str]) -> str:
    """Write a kernel's parameters: `width 2048, tile 16`."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def extent_text(extents: Sequence[int]) -> str:
    """Write the extents of a grid or a block: `64 x 64 x 1`."""
    return " x ".join(map(str, extents))


def without_lists(parameters: Mapping[str, int | str]) -> dict[str, int | str]:
    """The parameters without a user kernel's lists, which would fill a table's column."""
    return {name: parameters[name] for name in parameters if name not in LIST_PARAMETERS}


def column_number(value: float) -> str:
    """Write a plain number to three digits for a column: `0.250`, `13.9`, `1,370`."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    value = float(f"{value:.3g}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def sentence_number(value: float) -> str:
    """Write a plain number to three digits for a sentence: `0.25`, `13.9`, `1,370`."""
    text = column_number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def compared_text(verification: Verification) -> str:
    """Say how many outputs were compared and how many are wrong: `1 of 16,384 outputs wrong`."""
    wrong, checked, total = verification.wrong, verification.checked, verification.total
    if not wrong:
        return f"{checked:,} of {total:,} outputs"
    if checked == total or wrong > checked:
        return f"{wrong:,} of {total:,} outputs wrong"
    return f"{wrong:,} of {checked:,} outputs wrong, out of {total:,}"


def covered_text(coverage: Coverage) -> str:
    """Say how many blocks of a grid were executed: `800 of 16,384 blocks`."""
    total = coverage.blocks_total
    return f"{coverage.blocks_emulated:,} of {total:,} {plural(total, 'block')}"


def elide_middle(text: str, most: int) -> str:
    """Replace the middle of a text by an ellipsis, so that `most` characters and it remain.

    The ends stay because a kernel's name and its tile are there.
    """
    if len(text) <= most:
        return text
    return text[: (most + 1) // 2] + "…" + text[len(text) - most // 2 :]
