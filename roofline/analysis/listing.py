"""The source listing as data: each line with its memory accesses and its heat."""

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
    from memlab.device.warp_stalls import LineStalls


@dataclass(frozen=True)
class ListingItem:
    """The instructions of a line, or of one access in it.

    Attributes:
        counters: Their counters; None where nothing was executed.
        heat: Their share of the bytes through the L1 / shared port, 0 to 1; if the program moves
            no such bytes, their share of the thread instructions.
    """

    counters: LineCounters | None
    heat: float

    @property
    def sectors_per_request(self) -> float | None:
        """Sectors per request to global memory; None without requests."""
        counters = self.counters
        if counters is None or not counters.global_requests:
            return None
        return counters.global_sectors / counters.global_requests

    @property
    def passes_per_request(self) -> float | None:
        """Addresses that the constant cache serves per load; None without such loads."""
        counters = self.counters
        if counters is None or not counters.constant_requests:
            return None
        return counters.constant_passes / counters.constant_requests

    @property
    def bus_utilisation(self) -> float | None:
        """Used bytes over the bytes of the sectors, 0 to 1; None without sectors."""
        share = None if self.counters is None else line_utilisation(self.counters)
        return None if share is None else share.of_sectors

    @property
    def lanes_off(self) -> int:
        """Inactive lanes of the warps: predicated off, diverged, or beyond the block's threads."""
        if self.counters is None:
            return 0
        return WARP_SIZE * self.counters.warp_instructions - self.counters.thread_instructions

    @property
    def lanes_off_share(self) -> float | None:
        """`lanes_off` over all lanes of the warps; None for a line that is not executed."""
        if self.counters is None or not self.counters.warp_instructions:
            return None
        return self.lanes_off / (WARP_SIZE * self.counters.warp_instructions)


@dataclass(frozen=True)
class ListedAccess(ListingItem):
    """The accesses of a line to one array in one direction.

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
        """The access in words: `load M`."""
        return f"{self.direction} {self.array or f'{self.space} memory'}"


@dataclass(frozen=True)
class ListedLine(ListingItem):
    """One line of the source.

    Attributes:
        number: The line number, from 1; 0 for instructions that belong to no line.
        text: The line as written.
        accesses: The line's accesses to memory.
        machine: Its machine code; None where there is none.
    """

    number: int
    text: str
    accesses: tuple[ListedAccess, ...] = ()
    machine: LineStalls | None = None

    @property
    def mixed_accesses(self) -> tuple[ListedAccess, ...]:
        """The accesses that share a space with another, so that the line's figures mix them."""
        spaces = [access.space for access in self.accesses]
        return tuple(access for access in self.accesses if spaces.count(access.space) > 1)


def listing(
    source: str,
    lines: Iterable[LineCounters],
    accesses: Sequence[AccessCounters] = (),
    machine_lines: Iterable[LineStalls] = (),
) -> tuple[ListedLine, ...]:
    """Annotate a source with counters.

    Args:
        source: The CUDA C++ text.
        lines: Counters by line.
        accesses: Counters by access.
        machine_lines: The machine code by line.

    Returns:
        Every line of the source in order, then, with the number 0, the instructions without a
        line if they access memory.
    """
    counted = {line.line: line for line in lines}
    heat = _l1_port_bytes if any(map(_l1_port_bytes, counted.values())) else _instructions
    whole = sum(map(heat, counted.values())) or 1
    numbered = list(enumerate(source_lines(source), 1))
    if 0 in counted and _l1_port_bytes(counted[0]):
        numbered.append((0, ""))
    machine = {line.line: line for line in machine_lines}
    listed: dict[int, list[ListedAccess]] = {}
    for access in accesses:
        counters = access.counters
        share = heat(counters) / whole
        listed.setdefault(counters.line, []).append(
            ListedAccess(counters, share, access.space, access.direction, access.array)
        )
    return tuple(
        ListedLine(
            counted.get(number),
            heat(counted[number]) / whole if number in counted else 0.0,
            number,
            text,
            tuple(listed.get(number, ())),
            machine.get(number),
        )
        for number, text in numbered
    )


def _l1_port_bytes(line: LineCounters) -> int:
    sectors = line.global_sectors + line.local_sectors
    return SECTOR_BYTES * sectors + L1_WAVEFRONT_BYTES * line.shared_wavefronts


def _instructions(line: LineCounters) -> int:
    return line.thread_instructions
