"""A sweep from its runs in the store: its axes are what differs between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.roofline.differing import differing_parameters
from memlab.roofline.sweep.objective import TIME, find_objective
from memlab.roofline.sweep.records import Sweep, SweepRow, ranked
from memlab.roofline.sweep.space import Axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.properties import DeviceProperties
    from memlab.roofline.run import Run
    from memlab.roofline.sweep.space import AxisKind, Value


def sweep_of_runs(
    sweep_name: str, runs: Sequence[Run], properties: DeviceProperties | None = None
) -> Sweep | None:
    """Make a sweep of the runs that carry its name, ranked by time.

    The store keeps the points that ran; those that were impossible are not among them.

    Args:
        sweep_name: The sweep's name.
        runs: Its runs, oldest first; of those at one point the newest counts.
        properties: The device of the runs; None where it is not known.

    Returns:
        The sweep; None where the runs differ in nothing.
    """
    points = [_values(run) for run in runs]
    kinds: dict[str, AxisKind] = {"kernel": "kernel", "device": "device"}
    names = dict.fromkeys(name for point in points for name in point)
    axes = tuple(
        Axis(name, kinds.get(name, "parameter"), _ordered([each.get(name, "") for each in points]))
        for name in names
    )
    of_each: dict[str, list[dict[str, Value]]] = {}
    for point in points:
        of_each.setdefault(str(point["kernel"]), []).append(point)
    differing = {"kernel"}.union(*map(differing_parameters, of_each.values()))
    axes = tuple(axis for axis in axes if not axis.varies or axis.name in differing)
    varying = [axis.name for axis in axes if axis.varies]
    if not varying:
        return None
    objective = find_objective(TIME)
    rows: dict[tuple[Value, ...], SweepRow] = {}
    for run, point in zip(runs, points, strict=True):
        values = {axis.name: point.get(axis.name, "") for axis in axes}
        is_wrong = run.measurement.verification.status == "failed"
        rows[tuple(values[axis] for axis in varying)] = SweepRow(
            values,
            "wrong" if is_wrong else "done",
            run.measurement.verification.worst if is_wrong else "",
            run,
            None if is_wrong else objective.value(run),
        )
    created = min(run.created_at for run in runs)
    found = ranked(list(rows.values()), objective)
    return Sweep(sweep_name, created, axes, objective, found, len(found), properties=properties)


def _values(run: Run) -> dict[str, Value]:
    measurement = run.measurement
    device = measurement.device.key
    parameters: dict[str, Value] = {**measurement.parameters}
    words = str(parameters.get("defines", "")).split()
    if words and all("=" in word for word in words):  # other texts cannot be told apart
        del parameters["defines"]
        for word in words:
            name, _, text = word.partition("=")
            parameters.setdefault(name, int(text) if text.isdecimal() else text)
    return {"kernel": measurement.kernel, "device": device, **parameters}


def _ordered(values: Sequence[Value]) -> tuple[Value, ...]:
    """The different values: numbers in ascending order, words in that of the runs."""
    different = dict.fromkeys(values)
    numbers = [value for value in different if isinstance(value, int)]
    return tuple(sorted(numbers)) if len(numbers) == len(different) else tuple(different)
