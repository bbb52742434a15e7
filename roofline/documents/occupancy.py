"""The occupancy of a block as data: what it is of, and the JSON document."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memlab.device.occupancy import (
    BLOCK_RESOURCES,
    BlockRequirements,
    block_allocation,
    compute_occupancy,
)
from memlab.device.occupancy_thresholds import occupancy_thresholds as thresholds
from memlab.device.occupancy_thresholds import register_budget
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class OccupancySubject:
    """What the occupancy is of.

    Attributes:
        block: What a block asks for.
        kernel: The kernel that was compiled; empty for bare numbers.
        parameters: The kernel's parameters.
        registers_given: Whether the registers were chosen or are the budget itself.
    """

    block: BlockRequirements
    kernel: str = ""
    parameters: dict[str, int | str] = field(default_factory=dict)
    registers_given: bool = True

    @property
    def label(self) -> str:
        """The subject in a few words, for a title."""
        if self.kernel:
            return f"{self.kernel}, {parameters_text(self.parameters)}"
        return f"{self.block.threads_per_block} threads a block"


def occupancy_document(properties: DeviceProperties, subject: OccupancySubject) -> dict[str, Any]:
    """Give the occupancy of a block as a JSON document.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    block = subject.block
    return {
        "schema_version": SCHEMA_VERSION,
        "device": {
            "name": properties.name,
            "compute_capability": list(properties.compute_capability),
        },
        "kernel": subject.kernel or None,
        "parameters": subject.parameters,
        "block": asdict(block),
        "allocation": asdict(block_allocation(properties, block)),
        "occupancy": asdict(compute_occupancy(properties, block)),
        "thresholds": {
            resource: dict(
                zip(
                    ("below", "above"),
                    (found and asdict(found) for found in thresholds(properties, block, resource)),
                    strict=True,
                )
            )
            for resource in BLOCK_RESOURCES
        },
        "register_budget": asdict(register_budget(properties, block)),
    }
