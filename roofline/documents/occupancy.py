"""The occupancy of a block as data: its subject, and the JSON document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memlab.device.occupancy import (
    BLOCK_RESOURCES,
    BlockRequirements,
    block_allocation,
    compute_occupancy,
)
from memlab.device.occupancy_thresholds import occupancy_thresholds as thresholds
from memlab.device.occupancy_thresholds import register_budget
from memlab.roofline.documents.codec import encode
from memlab.roofline.units import parameters_text

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class OccupancySubject:
    """The block whose occupancy is computed.

    Attributes:
        block: The block's threads, registers per thread and shared memory in bytes.
        kernel: The name of the compiled kernel; empty where the user gave numbers alone.
        parameters: The kernel's parameters; empty without a kernel.
        registers_given: Whether the user gave the registers; else they are the most that cost
            no block.
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
    document: dict[str, Any] = encode(
        {
            "schema_version": SCHEMA_VERSION,
            "device": {
                "name": properties.name,
                "compute_capability": properties.compute_capability,
            },
            "kernel": subject.kernel or None,
            "parameters": subject.parameters,
            "block": block,
            "allocation": block_allocation(properties, block),
            "occupancy": compute_occupancy(properties, block),
            "thresholds": {
                resource: dict(
                    zip(("below", "above"), thresholds(properties, block, resource), strict=True)
                )
                for resource in BLOCK_RESOURCES
            },
            "register_budget": register_budget(properties, block),
        }
    )
    return document
