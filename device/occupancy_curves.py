"""Occupancy as a function of one resource of a block: curves, thresholds, the register budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from memlab.device.occupancy import (
    BLOCK_RESOURCES,
    MAX_REGISTERS_PER_THREAD,
    REGISTERS_PER_ALLOCATION,
    compute_occupancy,
    max_registers,
    resource_limits,
    shared_unit_bytes,
)
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.device.measurement import Occupancy
    from memlab.device.occupancy import BlockRequirements
    from memlab.device.properties import DeviceProperties


@dataclass(frozen=True)
class CurveStep:
    """A range of values of a resource that give the same blocks, warps and limiter.

    Attributes:
        first: Least value, in the resource's unit.
        last: Greatest value.
        occupancy: The occupancy; None where not even one block fits.
    """

    first: int
    last: int
    occupancy: Occupancy | None

    @property
    def blocks_per_sm(self) -> int:
        """Resident blocks per SM."""
        return self.occupancy.blocks_per_sm if self.occupancy else 0

    @property
    def warps_per_sm(self) -> int:
        """Resident warps per SM."""
        return self.occupancy.warps_per_sm if self.occupancy else 0


@dataclass(frozen=True)
class Threshold:
    """The nearest value of a resource at which the number of resident blocks changes.

    Attributes:
        value: The value, in the resource's unit.
        occupancy: The occupancy at this value; None where not even one block fits.
    """

    value: int
    occupancy: Occupancy | None


@dataclass(frozen=True)
class OccupancyCurve:
    """The occupancy as a function of one resource, the others kept.

    Attributes:
        resource: One of `BLOCK_RESOURCES`.
        current: The block's value, in the resource's unit.
        steps: From the least to the greatest value that the device accepts, without gaps.
    """

    resource: str
    current: int
    steps: tuple[CurveStep, ...]

    @property
    def current_step(self) -> CurveStep:
        """The step that holds the block's value."""
        return next(step for step in self.steps if self.current <= step.last)

    @property
    def thresholds(self) -> tuple[Threshold | None, Threshold | None]:
        """The largest smaller value with more blocks, and the smallest larger one with fewer.

        None where the device accepts no such value.
        """
        blocks = self.current_step.blocks_per_sm
        more = [step for step in self.steps if step.blocks_per_sm > blocks]
        fewer = [step for step in self.steps if step.blocks_per_sm < blocks]
        return (
            Threshold(more[-1].last, more[-1].occupancy) if more else None,
            Threshold(fewer[0].first, fewer[0].occupancy) if fewer else None,
        )


@dataclass(frozen=True)
class RegisterBudget:
    """The registers that a thread may use before they cost a resident block.

    Attributes:
        registers_per_thread: The largest number.
        by_division: Registers per SM over the resident threads, the textbook's division; it is
            larger where registers are lost to allocation units.
        warps_per_sm: Resident warps per SM.
    """

    registers_per_thread: int
    by_division: int
    warps_per_sm: int


def occupancy_curves(
    properties: DeviceProperties, block: BlockRequirements
) -> tuple[OccupancyCurve, ...]:
    """Compute the curves of a block, one for each of `BLOCK_RESOURCES`.

    Raises:
        DeviceError: A limit of the device is unknown.
    """
    return tuple(occupancy_curve(properties, block, resource) for resource in BLOCK_RESOURCES)


def occupancy_curve(
    properties: DeviceProperties, block: BlockRequirements, resource: str
) -> OccupancyCurve:
    """Compute the occupancy of a block for all values of one resource.

    Args:
        properties: The device.
        block: The block whose resource varies.
        resource: One of `BLOCK_RESOURCES`.

    Raises:
        DeviceError: A limit of the device is unknown.
    """
    least, most = resource_limits(properties)[resource]
    # All values within one allocation unit are equal; zero is a value of its own.
    unit = {
        "threads_per_block": properties.warp_size,
        "registers_per_thread": REGISTERS_PER_ALLOCATION // properties.warp_size,
        "shared_bytes_per_block": shared_unit_bytes(properties),
    }[resource]
    values = [*range(least, 1), *range(1, most + 1, unit)]
    points = [
        (value, _occupancy_or_none(properties, replace(block, **{resource: value})))
        for value in values
    ]
    groups = [list(group) for _, group in groupby(points, key=lambda point: _step_key(point[1]))]
    lasts = [*(group[0][0] - 1 for group in groups[1:]), most]
    return OccupancyCurve(
        resource,
        getattr(block, resource),
        tuple(
            CurveStep(group[0][0], last, group[0][1])
            for group, last in zip(groups, lasts, strict=True)
        ),
    )


def register_budget(properties: DeviceProperties, block: BlockRequirements) -> RegisterBudget:
    """Find the most registers per thread that keep as many blocks resident as one register would.

    Args:
        properties: The device.
        block: Its threads and shared memory; its registers do not matter.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: A limit of the device is unknown.
    """
    lean = replace(block, registers_per_thread=1)
    warps = compute_occupancy(properties, lean).warps_per_sm
    _, above = occupancy_curve(properties, lean, "registers_per_thread").thresholds
    division = max_registers(properties) // (warps * properties.warp_size)
    return RegisterBudget(
        registers_per_thread=above.value - 1 if above else MAX_REGISTERS_PER_THREAD,
        by_division=min(division, MAX_REGISTERS_PER_THREAD),
        warps_per_sm=warps,
    )


def _occupancy_or_none(properties: DeviceProperties, block: BlockRequirements) -> Occupancy | None:
    try:
        return compute_occupancy(properties, block)
    except UsageError:
        return None


def _step_key(occupancy: Occupancy | None) -> object:
    """Identify a step; the limits of resources that do not bind are no part of it."""
    return occupancy and (occupancy.blocks_per_sm, occupancy.warps_per_sm, occupancy.limiter)
