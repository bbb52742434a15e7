"""Memory instructions, watched: which lanes may carry them out, and what these touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.checks.access import MemoryAccess, units_of
from memlab.device.emulator.checks.bounds import BoundsCheck, address_span
from memlab.device.emulator.checks.initialisation import InitializationCheck
from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.races import RaceCheck
from memlab.device.emulator.checks.touched_units import gather_touched_units
from memlab.device.emulator.checks.unit_cache import AccessFootprint, AddressBase, FootprintCache
from memlab.device.emulator.machine import memory
from memlab.device.emulator.machine.memory import Segment
from memlab.device.emulator.machine.operands import Operands, Source, value_of
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Address, Register

ElementPositions = list[tuple[Segment, Lanes, int, Lanes | None]]
"""For each segment touched: element positions, elements to add, and the lanes (None for all)."""

_WIDEST_ACCESS_BYTES = 32  # of one access


@dataclass(frozen=True)
class _MemoryInstruction:
    """A memory instruction.

    Attributes:
        index: Its place in the program.
        kind: `load`, `store` or `atomic`.
        base: What its addresses are computed from.
        start: What that holds, one address for all lanes or one for each.
        offset: Bytes from there to what it touches.
        size: Bytes that a lane moves.
        element_bytes: Bytes of each of the elements, one or more, that it moves.
        sources: Of a store, what is stored.
    """

    index: int
    kind: str
    base: AddressBase
    start: Lanes
    offset: int
    size: int
    element_bytes: int
    sources: Sequence[Source]

    @property
    def element_shift(self) -> int:
        """By which a byte position becomes an element's."""
        return self.element_bytes.bit_length() - 1


@dataclass(frozen=True)
class AccessChecks:
    """Those that look at accesses.

    Attributes:
        bounds: memcheck.
        initialisation: initcheck, where it is asked for.
        races: racecheck, where it is asked for.
        unit_bytes: By state space, bytes of the finest unit that is told apart.
        copies: The instructions that are the store of an asynchronous copy.
    """

    bounds: BoundsCheck
    initialisation: InitializationCheck | None
    races: RaceCheck | None
    unit_bytes: Mapping[str, int]
    copies: Collection[int]


class CheckedAccesses:
    """The memory instructions of a chunk."""

    def __init__(
        self,
        tools: AccessChecks,
        threads: Threads,
        numbers: Lanes,
        operands: Operands,
        segments: Mapping[str, Segment],
        scratch: Mapping[str, Lanes],
    ) -> None:
        """Watch a chunk; `numbers` are its lanes' threads, `scratch` as of `touched`, by space."""
        self._tools, self._threads, self._numbers = tools, threads, numbers
        self._operands, self._segments, self._scratch = operands, segments, scratch
        self._lanes = np.arange(threads.lanes)
        self._footprints = FootprintCache(threads.lanes, threads.grid.padded_threads)

    def accessor(
        self, index: int, step: DecodedInstruction, operand: Address, sources: Sequence[Source]
    ) -> Callable[[Lanes | None], ElementPositions]:
        """How a memory instruction finds its elements; checks them each time it does.

        What it returns is as in `accesses`; lanes at fault are sent to memory of their own.
        """
        row = step.row
        width = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        given = _MemoryInstruction(
            index,
            row.kind if row.kind in ("load", "store") else "atomic",
            (row.space, width * row.vector, _base_name(operand)),
            self._operands.address_base(operand),
            operand.offset,
            width * row.vector,
            width,
            sources,
        )
        nowhere = Segment("nowhere", np.zeros(_WIDEST_ACCESS_BYTES, np.uint8), _WIDEST_ACCESS_BYTES)

        def access(mask: Lanes | None) -> ElementPositions:
            again = self._repeat_access(given) if mask is None and row.space != "generic" else None
            return again or self._access(given, mask, nowhere)

        return access

    def _repeat_access(self, given: _MemoryInstruction) -> ElementPositions | None:
        """Carry out an access of all lanes that is like an earlier one, and not at fault."""
        version = self._operands.versions.get(given.base[2], 0)
        before = self._footprints.find(given.base, version, given.start)
        if before is None:
            return None
        located, moved = before
        moved += given.offset
        low, high, bits = located.span
        span, load = (low + moved, high + moved, bits | moved), given.kind == "load"
        if not self._tools.bounds.is_permitted(
            given.index, located.segment, span, given.size, load
        ):
            return None
        self._notify_checks(given, located, moved)
        return [(located.segment, (located.position + moved) >> given.element_shift, 0, None)]

    def _access(
        self, given: _MemoryInstruction, mask: Lanes | None, nowhere: Segment
    ) -> ElementPositions:
        """Carry out an access; lanes at fault get nowhere."""
        active = self._threads.alive if mask is None else mask
        own_space = given.base[0]
        address = np.broadcast_to(given.start, self._threads.lanes).astype(np.int64) + given.offset
        found: ElementPositions = []
        refused = active
        spaces = [(own_space, 0, active)]
        if own_space == "generic":
            spaces = list(memory.split_by_space(address, active))
        for space, start, taking in spaces:
            segment = self._segments[space]
            inside = address - start if start else address
            good = self._tools.bounds.permitted_lanes(
                given.index,
                segment,
                inside,
                taking,
                self._numbers,
                given.size,
                given.kind == "load",
            )
            refused = refused & ~good
            chosen = None if mask is None and good is active else good
            position = inside if segment.origin == 0 else inside - segment.origin
            if segment.lane_base is not None:
                position = position + segment.lane_base
            if chosen is not None:
                inside, position = inside[chosen], position[chosen]
            if position.size:
                located = self._locate(segment, inside, position, chosen, given.size)
                if chosen is None:
                    self._footprints.keep(given.size, located)
                self._notify_checks(given, located, 0)
                found.append((segment, position >> given.element_shift, 0, chosen))
        if refused.any():
            nowhere.data[:] = 0
            found.append((nowhere, np.zeros(np.count_nonzero(refused), np.int64), 0, refused))
        return found

    def _locate(
        self, segment: Segment, address: Lanes, position: Lanes, chosen: Lanes | None, size: int
    ) -> AccessFootprint:
        """Work out what the chosen lanes, None for all, touch."""
        lanes, threads = self._lanes, self._numbers
        if chosen is not None:
            lanes = np.flatnonzero(chosen)
            threads = threads[lanes]
        gathered = None
        if segment.name in self._tools.unit_bytes:
            unit_bytes, scratch = self._tools.unit_bytes[segment.name], self._scratch[segment.name]
            apart = () if self._tools.races is None else self._tools.races.apart
            units = units_of(position, size, unit_bytes)
            gathered = gather_touched_units(units, lanes, threads, scratch, apart)
        return AccessFootprint(
            segment, address, position, address_span(address), lanes, threads, gathered
        )

    def _notify_checks(
        self, given: _MemoryInstruction, located: AccessFootprint, moved: int
    ) -> None:
        """Tell the tools of an access inside its memory, so many bytes behind what is located."""
        if located.touched is None:
            return
        segment = located.segment
        unit_bytes = self._tools.unit_bytes[segment.name]

        def values() -> Lanes:
            lanes, count = located.lanes, self._threads.lanes
            stored = [np.broadcast_to(value_of(each), count)[lanes] for each in given.sources]
            return np.ascontiguousarray(np.stack(stored, axis=1)).view(np.uint8)

        event = MemoryAccess(
            step=given.index,
            kind=given.kind,
            segment=segment,
            lanes=located.lanes,
            threads=located.threads,
            address=located.address,
            position=located.position,
            moved=moved,
            size=given.size,
            element_bytes=given.element_bytes,
            unit_bytes=unit_bytes,
            values=values,
            touched=located.touched.moved(moved // unit_bytes),
        )
        if self._tools.initialisation is not None:
            self._tools.initialisation.access(event)
        if self._tools.races is not None and segment.name != "local":
            self._tools.races.access(event, given.index in self._tools.copies)


def _base_name(operand: Address) -> str:
    return operand.base.name if isinstance(operand.base, Register) else str(operand.base)
