"""Bus utilisation: how much of what moves for a warp's request the warp asked for.

Lessons count it in 128-byte lines, which early GPUs moved whole: aligned 100%, misaligned 50%,
one word for all 3.1%. Since Maxwell the unit is a sector of 32 bytes (CUDA C++ Best Practices
Guide, "Coalesced Access to Global Memory"): 100%, 80%, 12.5%. Both are given, since both are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.properties import LINE_BYTES, SECTOR_BYTES

if TYPE_CHECKING:
    from memlab.device.measurement import Counters, LineCounters


@dataclass(frozen=True)
class BusUtilisation:
    """The share of the bytes moved that was asked for, 0 to 1.

    Attributes:
        of_lines: Where whole 128-byte lines move.
        of_sectors: Where 32-byte sectors move.
    """

    of_lines: float
    of_sectors: float


def bus_utilisation(used_bytes: int, lines: int, sectors: int) -> BusUtilisation | None:
    """Compute the shares from what requests touched; None where they touched nothing.

    Args:
        used_bytes: Bytes asked for, request by request, the same byte of several lanes once.
        lines: 128-byte lines touched, request by request.
        sectors: 32-byte sectors touched, request by request.
    """
    if not lines or not sectors:
        return None
    return BusUtilisation(used_bytes / (LINE_BYTES * lines), used_bytes / (SECTOR_BYTES * sectors))


def load_utilisation(counters: Counters) -> BusUtilisation | None:
    """Give the utilisation of all global loads of a launch."""
    return bus_utilisation(
        counters.global_load_used_bytes, counters.global_load_lines, counters.global_load_sectors
    )


def store_utilisation(counters: Counters) -> BusUtilisation | None:
    """Give the utilisation of all global stores of a launch."""
    return bus_utilisation(
        counters.global_store_used_bytes, counters.global_store_lines, counters.global_store_sectors
    )


def line_utilisation(line: LineCounters) -> BusUtilisation | None:
    """Give the utilisation of the global accesses of one source line."""
    return bus_utilisation(line.global_used_bytes, line.global_lines, line.global_sectors)
