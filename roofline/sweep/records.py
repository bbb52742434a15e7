"""The result of a sweep: a row for each point, best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from memlab.presentation import Presentable

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from memlab.device.properties import DeviceProperties
    from memlab.roofline.run import Run
    from memlab.roofline.sweep.objective import Objective
    from memlab.roofline.sweep.space import Axis, Value

RowStatus: TypeAlias = Literal["done", "wrong", "fault", "impossible", "lost"]
"""`done`; `wrong` output; a `fault` of the kernel; `impossible` on this device; or `lost` with the
device or process that ran it, and run again when the sweep is resumed."""


@dataclass(frozen=True)
class SweepRow:
    """One point of a sweep and what came of it.

    Attributes:
        values: The values of the axes at this point, by name.
        status: See `RowStatus`.
        reason: Why it is not done; empty if it is.
        run: The run; None where there is none.
        value: The figure of the objective; None where the point is not done.
        energy_j: Energy of one launch, joules; None where it was not measured.
        host: The machine that ran it.
        reused: Whether the run was made by an earlier sweep.
    """

    values: dict[str, Value]
    status: RowStatus
    reason: str = ""
    run: Run | None = None
    value: float | None = None
    energy_j: float | None = None
    host: str = ""
    reused: bool = False


@dataclass(frozen=True, repr=False)
class Sweep(Presentable):
    """A sweep. A notebook shows its table.

    Attributes:
        name: Its name in the store, by which its runs are found; empty if it was not stored.
        created_at: When it began, ISO 8601 in UTC, to the second.
        axes: What it varied, and the values.
        objective: The figure that ranks the points.
        rows: The points that were run, the best first, then those that are not done.
        points: The points of the whole space, without those that the restrictions exclude where
            all were looked at.
        excluded: Points that the restrictions excluded.
        properties: The device of the best run; None where its figures are not known here.
    """

    name: str
    created_at: str
    axes: tuple[Axis, ...]
    objective: Objective
    rows: tuple[SweepRow, ...]
    points: int
    excluded: int = 0
    properties: DeviceProperties | None = None

    @property
    def done(self) -> tuple[SweepRow, ...]:
        """The rows of points that ran and were right, the best first."""
        return tuple(row for row in self.rows if row.status == "done")

    @property
    def best(self) -> SweepRow | None:
        """The best row; None where no point is done."""
        return next(iter(self.done), None)

    @property
    def runs(self) -> list[Run]:
        """The runs of the points that are done, the best first."""
        return [row.run for row in self.done if row.run is not None]

    @property
    def varying(self) -> tuple[Axis, ...]:
        """The axes with more than one value."""
        return tuple(axis for axis in self.axes if axis.varies)

    def figure(self) -> Figure:
        """Draw the picture that suits the axes, as a matplotlib figure."""
        from memlab.roofline.plots.sweep import draw_sweep

        return draw_sweep(self)

    def csv(self) -> str:
        """Write the rows as CSV, in base units."""
        from memlab.roofline.documents.sweep import sweep_csv

        return sweep_csv(self)

    def frame(self) -> pandas.DataFrame:
        """Make a pandas frame with a row for each point, a column for each axis and figure."""
        from memlab.roofline.documents.sweep import sweep_frame

        return sweep_frame(self)


def ranked(rows: list[SweepRow], objective: Objective) -> tuple[SweepRow, ...]:
    """Put the best first; rows without a value follow in their order."""
    return tuple(
        sorted(rows, key=lambda row: (row.value is None, objective.rank(row.value or 0.0)))
    )
