"""The objective of a sweep: the figure of a run by which its points are ranked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import Counters
from memlab.errors import UsageError, suggest_nearest
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from memlab.roofline.run import Run

TIME, ENERGY = "time", "energy"


@dataclass(frozen=True)
class Objective:
    """A figure of a run.

    Attributes:
        name: `time`, `energy`, a counter, or a figure of the roofline.
        label: The figure in words, for axes and headings.
        unit: `s`, `J`, `FLOP/s`; empty for counts and shares.
        highest: Whether more is better.
    """

    name: str
    label: str
    unit: str = ""
    highest: bool = False

    def value(self, run: Run, energy_j: float | None = None) -> float | None:
        """Read the figure from a run; None where the run has none."""
        if self.name == ENERGY:
            return energy_j
        read = _FIGURES.get(self.name)
        return read(run) if read else float(getattr(run.measurement.counters, self.name))

    def text(self, value: float) -> str:
        """Write the figure with its unit, a whole count with all of its digits."""
        if self.unit:
            return si_text(value, self.unit)
        return f"{value:,.0f}" if float(value).is_integer() else sentence_number(value)

    def rank(self, value: float) -> float:
        """A number that is smaller for a better value."""
        return -value if self.highest else value


_FIGURES: dict[str, Callable[[Run], float]] = {
    TIME: lambda run: run.measurement.time.median_s,
    "flop_per_s": lambda run: run.placement.flop_per_s,
    "fraction_of_ceiling": lambda run: run.placement.fraction_of_ceiling,
    "occupancy": lambda run: run.measurement.occupancy.theoretical,
}
_OBJECTIVES = (
    Objective(TIME, "time", "s"),
    Objective(ENERGY, "energy per launch", "J"),
    Objective("flop_per_s", "performance", "FLOP/s", highest=True),
    Objective("fraction_of_ceiling", "fraction of the ceiling", highest=True),
    Objective("occupancy", "occupancy", highest=True),
)


def find_objective(name: str) -> Objective:
    """Find an objective by its name.

    Raises:
        UsageError: There is none; the message names the nearest.
    """
    known = {objective.name: objective for objective in _OBJECTIVES}
    if name in known:
        return known[name]
    counters = Counters.names()
    if name not in counters:
        listing = f"{', '.join(known)}, or a counter of the run's JSON"
        nearest = suggest_nearest(name, [*known, *counters], listing)
        raise UsageError(f"no objective {name!r}: {nearest}")
    return Objective(name, name.replace("_", " "))
