"""Where warps spend their time: by Nsight Compute and by the simulation of an SM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.report import table
from benchmarks.truth.metrics import STALLED, STALLED_SUFFIX
from memlab.device.warp_stalls import SELECTED

MOST_SHOWN = 3
"""Reasons of a launch that are listed, the largest first."""


def measured_stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    """The clocks of a warp per issued instruction, by state; empty if they were not measured."""
    return {
        name.removeprefix(STALLED).removesuffix(f"{STALLED_SUFFIX}.ratio"): clocks
        for name, clocks in metrics.items()
        if name.startswith(STALLED) and name.endswith(f"{STALLED_SUFFIX}.ratio") and clocks
    }


def overlap(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The share of time that is in the same state in both, 0 to 1."""
    whole, of_other = sum(one.values()), sum(other.values())
    return sum(min(one[name] / whole, other.get(name, 0.0) / of_other) for name in one)


def stall_table(launches: Iterable[tuple[str, Mapping[str, float], Mapping[str, float]]]) -> str:
    """The launches with their largest stalls, and how well both sides agree.

    Args:
        launches: The name, the measured and the modelled stalls of each.
    """
    rows, shared, alike = [], [], 0
    for name, measured, modelled in launches:
        if not measured or not modelled:
            continue
        shared.append(overlap(measured, modelled))
        alike += _largest(measured) == _largest(modelled)
        rows.append([name, f"{shared[-1]:.0%}", _text(measured), _text(modelled)])
    found = table(("launch", "overlap", "measured", "modelled"), rows)
    mean = sum(shared) / max(len(shared), 1)
    return f"{found}\n\n{alike} of {len(rows)} have the same largest stall; mean overlap {mean:.0%}"


def _stalls(clocks: Mapping[str, float]) -> list[str]:
    return sorted(clocks.keys() - {SELECTED}, key=lambda name: -clocks[name])


def _largest(clocks: Mapping[str, float]) -> str:
    return next(iter(_stalls(clocks)), "")


def _text(clocks: Mapping[str, float]) -> str:
    listed = ", ".join(f"{name} {clocks[name]:.1f}" for name in _stalls(clocks)[:MOST_SHOWN])
    return f"{sum(clocks.values()):.1f}: {listed}"
