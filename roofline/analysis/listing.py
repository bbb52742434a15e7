"""The source listing as data: every line with what it did to memory, and how hot it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import LineCounters
from memlab.device.properties import SECTOR_BYTES, WARP_SIZE
from memlab.kernels.launch import source_lines
from memlab.roofline.analysis.bus_utilization import line_utilisation
from memlab.roofline.placement import L1_WAVEFRONT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memlab.device.measurement import AccessCounters


@dataclass(frozen=True)
class ListingItem:
    """What the instructions of a line, or of one access in it, did.

    Attributes:
        counters: Their counters; None where nothing was executed.
        heat: Their share of the bytes through the L1 / shared port, 0 to 1; without any such
            bytes in the program, their share of the instructions.
    """

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
    def passes_per_request(self) -> float | None:
        """Addresses that the constant cache serves for a load; None without such loads."""
        counted = self.counters
        if counted is None or not counted.constant_requests:
            return None
        return counted.constant_passes / counted.constant_requests

    @property
    def bus_utilisation(self) -> float | None:
        """Bytes asked for over 32 B a sector, 0 to 1; None without sectors."""
        share = None if self.counters is None else line_utilisation(self.counters)
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


@dataclass(frozen=True)
class ListedAccess(ListingItem):
    """What a line does to one array in one direction.

    Attributes:
        space: `global`, `shared`, `local` or `constant`.
        direction: `load`, `store`, `atomic` or `reduction`.
        array: The array's name in the source; empty where it is not known.
    """

    space: str
    direction: str
    array: str

    @property
    def text(self) -> str:
        """It in words: `load M`."""
        return f"{self.direction} {self.array or f'{self.space} memory'}"


@dataclass(frozen=True)
class ListedLine(ListingItem):
    """One line of the source.

    Attributes:
        number: From 1; 0 for what the compiler assigns to no line.
        text: As written.
        accesses: What it does to memory.
    """

    number: int
    text: str
    accesses: tuple[ListedAccess, ...] = ()

    @property
    def mixed_accesses(self) -> tuple[ListedAccess, ...]:
        """The accesses whose figures the line's own ones mix: several to the same space."""
        spaces = [each.space for each in self.accesses]
        return tuple(each for each in self.accesses if spaces.count(each.space) > 1)


def listing(
    source: str, lines: Iterable[LineCounters], accesses: Sequence[AccessCounters] = ()
) -> tuple[ListedLine, ...]:
    """Annotate a source.

    Args:
        source: The text.
        lines: Counters by line.
        accesses: Counters by access.

    Returns:
        Every line of the source in order. What has no line, if it did anything to memory,
        stands behind them with the number 0.
    """
    counted = {each.line: each for each in lines}
    heat = _l1_port_bytes if any(map(_l1_port_bytes, counted.values())) else _instructions
    whole = sum(map(heat, counted.values())) or 1
    numbered = list(enumerate(source_lines(source), 1))
    if 0 in counted and _l1_port_bytes(counted[0]):
        numbered.append((0, ""))
    found: dict[int, list[ListedAccess]] = {}
    for each in accesses:
        mine = each.counters
        found.setdefault(mine.line, []).append(
            ListedAccess(mine, heat(mine) / whole, each.space, each.direction, each.array)
        )
    return tuple(
        ListedLine(
            counted.get(number),
            heat(counted[number]) / whole if number in counted else 0.0,
            number,
            text,
            tuple(found.get(number, ())),
        )
        for number, text in numbered
    )


def _l1_port_bytes(line: LineCounters) -> int:
    sectors = line.global_sectors + line.local_sectors
    return SECTOR_BYTES * sectors + L1_WAVEFRONT_BYTES * line.shared_wavefronts


def _instructions(line: LineCounters) -> int:
    return line.thread_instructions
