"""Bus utilization: the share of the bytes moved for a warp's request that the warp asked for.

Lessons count it in 128-byte lines, which early GPUs moved whole: aligned 100%, misaligned 50%,
one word for all lanes 3.1%. Since Maxwell the unit is a sector of 32 bytes (CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory"): 100%, 80%, 12.5%. memlab gives both, since both are in
use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.access_counts import AccessCounts
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES

if TYPE_CHECKING:
    from memlab.device.measurement import Counters, LineCounters


@dataclass(frozen=True)
class BusUtilisation:
    """The bytes that warps asked for over the bytes moved, 0 to 1.

    Attributes:
        of_lines: The share if whole 128-byte lines move.
        of_sectors: The share if 32-byte sectors move.
    """

    of_lines: float
    of_sectors: float


def bus_utilisation(counts: AccessCounts) -> BusUtilisation | None:
    """Compute the shares from the counts of global accesses; None where they touched nothing."""
    if not counts.wavefronts or not counts.sectors:
        return None
    return BusUtilisation(
        counts.used_bytes / (LINE_BYTES * counts.wavefronts),
        counts.used_bytes / (SECTOR_BYTES * counts.sectors),
    )


def load_utilisation(counters: Counters) -> BusUtilisation | None:
    """Give the utilization of all global loads of a launch."""
    return bus_utilisation(counters.total("global", "load"))


def store_utilisation(counters: Counters) -> BusUtilisation | None:
    """Give the utilization of all global stores of a launch."""
    return bus_utilisation(counters.total("global", "store"))


def line_utilisation(line: LineCounters) -> BusUtilisation | None:
    """Give the utilization of the global accesses of one source line."""
    return bus_utilisation(line.accesses.get("global", AccessCounts()))
