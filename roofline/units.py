"""Figures as a person reads them: three digits and a decimal prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping

PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
"""SI prefixes by power of ten."""


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
