"""Figures as a person reads them: three digits and a decimal prefix; and names, safe to show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from unicodedata import category

PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
"""SI prefixes by power of ten."""

LISTS = ("args", "constants")
"""What a kernel of one's own is given where others have parameters."""

_NOT_SHOWN = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
"""Unicode's categories of what controls, has no meaning or ends a line."""


def scaled(value: float, unit: str) -> str:
    """Write a value with three significant digits and an SI prefix: `1.86 ms`."""
    if not value or not math.isfinite(value):
        return f"{value:g} {unit}"
    # Round first, so that 999.6 becomes 1.00 k and not 1000.
    value = float(f"{value:.3g}")
    power = 3 * math.floor(math.log10(abs(value)) / 3)
    power = max(min(PREFIXES), min(max(PREFIXES), power))
    number = f"{value / 10.0**power:#.3g}".rstrip(".")
    return f"{number} {PREFIXES[power]}{unit}".rstrip()


def parameters_text(parameters: Mapping[str, int | str]) -> str:
    """Write a kernel's parameters as they would be chosen: `width 2048, tile 16`."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def brief(parameters: Mapping[str, int | str]) -> dict[str, int | str]:
    """The parameters without the lists of one's own kernel, which would fill a table's column."""
    return {name: parameters[name] for name in parameters if name not in LISTS}


def digits(value: float) -> str:
    """Write a plain number to three digits, as in a column: `0.250`, `13.9`, `1,370`."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    value = float(f"{value:.3g}")
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def short(value: float) -> str:
    """Write a plain number to three digits, as in a sentence: `0.25`, `13.9`, `1,370`."""
    text = digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def printable(text: str, but: str = "") -> str:
    """Text with what moves a terminal's cursor, colours it or turns it round written as escapes.

    Args:
        text: From whoever it may be: names of files and kernels, source lines, stored runs.
        but: Characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each
        if each in but or category(each) not in _NOT_SHOWN
        else each.encode("unicode_escape").decode()
        for each in text
    )
