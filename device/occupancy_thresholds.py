"""Where the number of resident blocks changes: the next threshold of each resource of a block."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memlab.device.occupancy import (
    MAX_REGISTERS_PER_THREAD,
    compute_occupancy,
    max_registers,
    occupancy_or_none,
    resource_limits,
)

if TYPE_CHECKING:
    from memlab.device.measurement import Occupancy
    from memlab.device.occupancy import BlockRequirements
    from memlab.device.properties import DeviceProperties


@dataclass(frozen=True)
class Threshold:
    """The nearest value of one resource at which the number of resident blocks changes.

    Attributes:
        value: Of the resource, in its unit.
        occupancy: What it gives; None where not even one block fits any more.
    """

    value: int
    occupancy: Occupancy | None


@dataclass(frozen=True)
class RegisterBudget:
    """How many registers a thread may have before they cost a resident block.

    Attributes:
        registers_per_thread: The largest number.
        by_division: Registers of a multiprocessor over the threads resident then, as a textbook
            divides; larger where the units of allocation take their part.
        warps_per_sm: Warps resident then.
    """

    registers_per_thread: int
    by_division: int
    warps_per_sm: int


def occupancy_thresholds(
    properties: DeviceProperties, block: BlockRequirements, resource: str
) -> tuple[Threshold | None, Threshold | None]:
    """Find where a resource, changed alone, changes the number of resident blocks.

    Args:
        properties: The device.
        block: Where to start.
        resource: One of `RESOURCES`.

    Returns:
        The largest smaller value that gives more blocks, and the smallest larger one that gives
        fewer; None where no value that the device accepts does.

    Raises:
        DeviceError: The device's limits are not known.
    """
    least, most = resource_limits(properties)[resource]
    values = range(least, most + 1)

    def at(value: int) -> Threshold:
        return Threshold(value, occupancy_or_none(properties, replace(block, **{resource: value})))

    def fewer(value: int) -> int:
        """Fall, where the blocks never rise: bisection needs an ascending order."""
        found = at(value).occupancy
        return -found.blocks_per_sm if found else 0

    here = fewer(getattr(block, resource))
    first = bisect_left(values, here, key=fewer)
    beyond = bisect_right(values, here, key=fewer)
    return (
        at(values[first - 1]) if first > 0 else None,
        at(values[beyond]) if beyond < len(values) else None,
    )


def register_budget(properties: DeviceProperties, block: BlockRequirements) -> RegisterBudget:
    """Find the most registers a thread that keep as many blocks resident as one would.

    Args:
        properties: The device.
        block: Its threads and shared memory; the registers that it has do not matter.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    lean = replace(block, registers_per_thread=1)
    warps = compute_occupancy(properties, lean).warps_per_sm
    _, above = occupancy_thresholds(properties, lean, "registers_per_thread")
    division = max_registers(properties) // (warps * properties.warp_size)
    return RegisterBudget(
        registers_per_thread=above.value - 1 if above else MAX_REGISTERS_PER_THREAD,
        by_division=min(division, MAX_REGISTERS_PER_THREAD),
        warps_per_sm=warps,
    )
