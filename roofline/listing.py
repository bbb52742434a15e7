"""The source listing as data: every line with what it did to memory, and how hot it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import LineCounters
from memlab.device.properties import SECTOR_BYTES, WARP_SIZE
from memlab.kernels.launch import source_lines
from memlab.roofline.bus import of_line
from memlab.roofline.placement import L1_PASS_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class ListedLine:
    """One line of the source.

    Attributes:
        number: From 1; 0 for what the compiler assigns to no line.
        text: As written.
        counters: What it did; None for a line that is not executed.
        heat: Its share of the bytes through the L1 / shared port, 0 to 1; without any such
            bytes in the program, its share of the instructions.
    """

    number: int
    text: str
    counters: LineCounters | None
    heat: float

    @property
    def sectors_per_request(self) -> float | None:
        """Sectors that a request of global memory touches; None without requests."""
        counted = self.counters
        if counted is None or not counted.global_requests:
            return None
        return counted.global_sectors / counted.global_requests

    @property
    def bus_utilisation(self) -> float | None:
        """Bytes asked for over 32 B a sector, 0 to 1; None without sectors."""
        share = None if self.counters is None else of_line(self.counters)
        return None if share is None else share.of_sectors

    @property
    def lanes_off(self) -> int:
        """Lanes that warps carried along idle: predicated off, elsewhere, or not there at all."""
        counted = self.counters
        if counted is None:
            return 0
        return WARP_SIZE * counted.warp_instructions - counted.thread_instructions

    @property
    def lanes_off_share(self) -> float | None:
        """The same over all lanes of the warps; None for a line that is not executed."""
        if self.counters is None or not self.counters.warp_instructions:
            return None
        return self.lanes_off / (WARP_SIZE * self.counters.warp_instructions)


def listing(source: str, lines: Iterable[LineCounters]) -> tuple[ListedLine, ...]:
    """Annotate a source.

    Args:
        source: The text.
        lines: Counters by line.

    Returns:
        Every line of the source in order. What has no line, if it did anything to memory,
        stands behind them with the number 0.
    """
    counted = {each.line: each for each in lines}
    hot = {number: _port_bytes(each) for number, each in counted.items()}
    if not any(hot.values()):
        hot = {number: each.thread_instructions for number, each in counted.items()}
    whole = sum(hot.values()) or 1
    numbered = list(enumerate(source_lines(source), 1))
    if 0 in counted and _port_bytes(counted[0]):
        numbered.append((0, ""))
    return tuple(
        ListedLine(number, text, counted.get(number), hot.get(number, 0) / whole)
        for number, text in numbered
    )


def _port_bytes(line: LineCounters) -> int:
    return SECTOR_BYTES * line.global_sectors + L1_PASS_BYTES * line.shared_wavefronts
