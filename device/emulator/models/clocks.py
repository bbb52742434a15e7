"""Comparisons of times, for simulations in machine code."""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled


@compiled(inline=True)
def later(one: float, other: float) -> float:
    """The later of two times."""
    return one if one > other else other


@compiled(inline=True)
def sooner(one: float, other: float) -> float:
    """The sooner of two times."""
    return one if one < other else other
