"""What a rule of the advice looks at, and what it says."""

from __future__ import annotations

from dataclasses import dataclass

from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.roofline.ceilings import MEMORY_LEVELS
from memlab.roofline.run import Placement


@dataclass(frozen=True)
class AdviceCase:
    """All that a rule may look at.

    Attributes:
        measurement: What the device gave.
        placement: Its place under the roof.
        properties: The device.
        moved: Bytes by level, see `placement.bytes_moved`.
        busy: Share of the time for which each resource is busy, by the ceiling's key.
    """

    measurement: Measurement
    placement: Placement
    properties: DeviceProperties
    moved: dict[str, int]
    busy: dict[str, float]

    @property
    def memory_busy(self) -> float:
        """Share of the time for which the busiest level of memory is busy."""
        return max((self.busy.get(level, 0.0) for level in MEMORY_LEVELS), default=0.0)

    def l1_port_share(self, byte_count: float) -> float:
        """Share that some bytes have in all those through the L1 / shared port."""
        return byte_count / self.moved["l1"] if self.moved["l1"] else 0.0


@dataclass(frozen=True)
class Recommendation:
    """One thing to change.

    Attributes:
        share: The part of the time it explains, about; 0 to 1.
        sentence: What the figures say and what to do.
    """

    share: float
    sentence: str
