"""Occupancy as a function of each resource of a block, the others kept: the data of the curves."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from memlab.device.occupancy import (
    BLOCK_RESOURCES,
    occupancy_or_none,
    resource_limits,
    resource_units,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab.device.measurement import Occupancy
    from memlab.device.occupancy import BlockRequirements
    from memlab.device.properties import DeviceProperties

CURVE_COLUMNS = (
    "resource",
    "first",
    "last",
    "current",
    "blocks_per_sm",
    "warps_per_sm",
    "occupancy",
    "limiter",
)


@dataclass(frozen=True)
class CurveStep:
    """A range of values that all give the same occupancy.

    Attributes:
        first: Its least value, in the resource's unit.
        last: Its greatest.
        occupancy: What they give; None where not even one block fits.
    """

    first: int
    last: int
    occupancy: Occupancy | None

    @property
    def warps_per_sm(self) -> int:
        """Resident warps."""
        return self.occupancy.warps_per_sm if self.occupancy else 0


@dataclass(frozen=True)
class OccupancyCurve:
    """How occupancy depends on one resource.

    Attributes:
        resource: One of `RESOURCES`.
        current: The block's own value.
        steps: From the least value to the most that the device accepts, without gaps.
    """

    resource: str
    current: int
    steps: tuple[CurveStep, ...]

    @property
    def current_step(self) -> CurveStep:
        """The step that holds the block's own value."""
        return next(step for step in self.steps if step.first <= self.current <= step.last)


def occupancy_curves(
    properties: DeviceProperties, block: BlockRequirements
) -> tuple[OccupancyCurve, ...]:
    """Compute the curve of each resource.

    Args:
        properties: The device.
        block: The block whose resources are varied, one at a time.

    Raises:
        DeviceError: The device's limits are not known.
    """
    return tuple(_curve(properties, block, resource) for resource in BLOCK_RESOURCES)


def curves_csv(curves: Iterable[OccupancyCurve]) -> str:
    """Write curves as CSV, a row a step: enough to draw them again."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CURVE_COLUMNS)
    for curve in curves:
        for step in curve.steps:
            current = curve.current if step == curve.current_step else ""
            found = step.occupancy
            figures = (
                (found.blocks_per_sm, found.warps_per_sm, found.theoretical, found.limiter)
                if found
                else (0, 0, 0.0, "does not fit")
            )
            writer.writerow((curve.resource, step.first, step.last, current, *figures))
    return text.getvalue()


def _curve(properties: DeviceProperties, block: BlockRequirements, resource: str) -> OccupancyCurve:
    least, most = resource_limits(properties)[resource]
    unit = resource_units(properties)[resource]
    # Values of one unit are allocated alike; none at all is a value of its own.
    firsts = [*([least] if least == 0 else []), *range(1, most + 1, unit)]
    tried = [
        (first, occupancy_or_none(properties, replace(block, **{resource: first})))
        for first in firsts
    ]
    alike = [list(group) for _, group in groupby(tried, key=lambda each: _step_key(each[1]))]
    ends = [group[0][0] - 1 for group in alike[1:]] + [most]
    steps = (
        CurveStep(group[0][0], end, group[0][1]) for group, end in zip(alike, ends, strict=True)
    )
    return OccupancyCurve(resource, getattr(block, resource), tuple(steps))


def _step_key(occupancy: Occupancy | None) -> object:
    """Tell steps apart: the limits of resources that do not bind are no part of one."""
    return occupancy and (occupancy.blocks_per_sm, occupancy.warps_per_sm, occupancy.limiter)
