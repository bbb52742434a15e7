"""The input and the result of a rule of the advice."""

from __future__ import annotations

from dataclasses import dataclass

from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.roofline.ceilings import MEMORY_LEVELS
from memlab.roofline.run import Placement


@dataclass(frozen=True)
class AdviceCase:
    """The figures of a launch that rules may use.

    Attributes:
        measurement: The measured launch.
        placement: Its place under the roofline.
        properties: The device.
        moved: Bytes moved at each level, see `placement.bytes_moved`.
        busy: Share of the time for which each resource is busy, 0 to 1, by the ceiling's key.
    """

    measurement: Measurement
    placement: Placement
    properties: DeviceProperties
    moved: dict[str, int]
    busy: dict[str, float]

    @property
    def memory_busy(self) -> float:
        """Share of the time for which the busiest memory level is busy, 0 to 1."""
        return max((self.busy.get(level, 0.0) for level in MEMORY_LEVELS), default=0.0)

    def l1_port_share(self, byte_count: float) -> float:
        """Share of some bytes in all bytes through the L1 / shared port, 0 to 1."""
        return byte_count / self.moved["l1"] if self.moved["l1"] else 0.0


@dataclass(frozen=True)
class Recommendation:
    """One recommended change.

    Attributes:
        share: The share of the time that it explains, approximately; 0 to 1.
        sentence: The figures and the remedy, in one sentence.
    """

    share: float
    sentence: str
