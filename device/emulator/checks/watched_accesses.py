"""Watches the memory accesses of a chunk: which lanes are permitted, and what those touch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memlab.device.emulator.checks.access import MemoryAccess, units_of
from memlab.device.emulator.checks.footprints import AccessFootprint
from memlab.device.emulator.checks.native_checks import AccessChecks, NativeChecks
from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.touched_units import gather_touched_units
from memlab.device.emulator.machine.access_watch import MemoryInstruction, ResolvedAddresses
from memlab.device.emulator.machine.threads import Threads


class AccessWatcher:
    """Filters the accesses of a chunk by bounds, and passes the permitted ones on to the tools."""

    def __init__(
        self,
        tools: AccessChecks,
        threads: Threads,
        numbers: Lanes,
        scratch: Mapping[str, Lanes],
        native: NativeChecks,
    ) -> None:
        """Watch a chunk.

        Args:
            tools: The tools.
            threads: The chunk's threads.
            numbers: The thread number of each lane, shape (lanes,).
            scratch: By state space, memory for `gather_touched_units`.
            native: What the machine code checks.
        """
        self._tools, self._threads, self._numbers = tools, threads, numbers
        self._scratch, self._native = scratch, native
        self._are_all_permitted = False

    def permitted_lanes(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Lanes,
    ) -> Lanes:
        """The lanes that may carry out an access; `mask` itself where all of them may."""
        segment, size, load = addresses.segment, instruction.size, instruction.kind == "load"
        bounds = self._tools.bounds
        span = addresses.low + offset, addresses.high + offset, addresses.misalignment | offset
        self._are_all_permitted = bounds.is_permitted(instruction.index, segment, span, size, load)
        if self._are_all_permitted:
            return mask
        return bounds.permitted_lanes(
            instruction.index,
            segment,
            addresses.address + offset,
            mask,
            self._numbers,
            size,
            load,
        )

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Lanes,
    ) -> None:
        """Tell the tools of an access by permitted lanes."""
        tools = self._tools
        is_followed = tools.initialisation is not None or tools.races is not None
        if addresses.segment.name not in tools.unit_bytes or not is_followed:
            return
        index, footprint, moved = instruction.index, None, 0
        if self._are_all_permitted:
            footprint = self._native.found(index)
        if footprint is None:
            footprint = self._footprint(addresses, offset, mask, instruction.size)
            if self._are_all_permitted:
                self._native.keep(index, footprint)
        else:
            first = int(addresses.address[footprint.lanes[0]]) + offset
            moved = first - int(footprint.address[0])
        self._notify_tools(instruction, footprint, moved)

    def _footprint(
        self, addresses: ResolvedAddresses, offset: int, mask: Lanes, size: int
    ) -> AccessFootprint:
        """Work out what the lanes of a mask touch."""
        segment = addresses.segment
        address = addresses.address + offset
        position = address - segment.origin
        if segment.lane_base is not None:
            position = position + segment.lane_base
        lanes = np.flatnonzero(mask)
        threads, address, position = self._numbers[lanes], address[mask], position[mask]
        unit_bytes, scratch = self._tools.unit_bytes[segment.name], self._scratch[segment.name]
        id_shifts = () if self._tools.races is None else self._tools.races.id_shifts
        units = units_of(position, size, unit_bytes)
        touched = gather_touched_units(units, lanes, threads, scratch, id_shifts)
        return AccessFootprint(segment, address, position, lanes, threads, touched)

    def _notify_tools(
        self, instruction: MemoryInstruction, footprint: AccessFootprint, moved: int
    ) -> None:
        """Tell the tools of an access, `moved` bytes behind a footprint."""
        segment = footprint.segment
        unit_bytes = self._tools.unit_bytes[segment.name]

        def values() -> Lanes:
            lanes, count = footprint.lanes, self._threads.lanes
            stored = [np.broadcast_to(source(), count)[lanes] for source in instruction.sources]
            return np.ascontiguousarray(np.stack(stored, axis=1)).view(np.uint8)

        access = MemoryAccess(
            step=instruction.index,
            kind=instruction.kind,
            segment=segment,
            lanes=footprint.lanes,
            threads=footprint.threads,
            address=footprint.address,
            position=footprint.position,
            moved=moved,
            size=instruction.size,
            element_bytes=instruction.element_bytes,
            unit_bytes=unit_bytes,
            values=values,
            touched=footprint.touched.moved(moved // unit_bytes),
        )
        if self._tools.initialisation is not None:
            self._tools.initialisation.access(access)
        if self._tools.races is not None and segment.name != "local":
            self._tools.races.access(access, instruction.index in self._tools.copies)
            self._native.noted(access)
