"""Loads, stores and atomics: where lanes touch memory, checked and counted.

Where a register's addresses lie is worked out once for all the instructions that use it with
offsets of their own, until the register is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.device.emulator.isa import integers
from memlab.device.emulator.isa.table import NUMPY_TYPES, Row
from memlab.device.emulator.machine import memory
from memlab.device.emulator.machine.access_costs import ExecutionTrace, Pattern, Patterns, Tally
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.memory import (
    AccessFault,
    GlobalMemory,
    KernelFault,
    Lanes,
    Segment,
)
from memlab.device.emulator.machine.operands import Operands, Source, value_of
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.machine.scheduler import Mask, active_warps
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Operand,
    PtxError,
    Register,
    Vector,
)
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.checks.checker import Checker


@dataclass
class _ResolvedAddresses:
    """Where a register's addresses lie in a segment; valid for one version of the register."""

    version: int
    position: Lanes
    low: int
    high: int
    misalignment: int
    pattern: Pattern | None
    base: Lanes


class Accesses:
    """Binds the memory instructions of a chunk."""

    def __init__(
        self,
        threads: Threads,
        operands: Operands,
        segments: Mapping[str, Segment],
        patterns: Patterns,
        tally: Tally,
        trace: ExecutionTrace | None,
        recorder: Recorder | None,
        checker: Checker | None = None,
    ) -> None:
        """Count into a tally; tell the trace of global accesses and the recorder of all.

        A checker decides which lanes may touch memory; nothing is counted then.
        """
        self.lanes, self._threads, self._alive = threads.lanes, threads, threads.alive
        self._operands, self._segments, self._patterns = operands, segments, patterns
        self._tally, self._trace, self._recorder = tally, trace, recorder
        self._checker = checker
        self._located: dict[tuple[str, str, int], _ResolvedAddresses] = {}

    def load(self, index: int, step: DecodedInstruction) -> Action:
        """A load of one value or a vector."""
        row, (to, source) = step.row, step.instruction.operands
        items = _items(to, row)
        dtype = NUMPY_TYPES[row.to[0]]
        targets = [self._operands.destinations(item, row.to[:1])[0] for item in items]
        assert isinstance(source, Address)
        access = self._accessor(index, step, source)

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                elements = segment.typed(dtype)
                for number, (write, target) in enumerate(targets):
                    window = elements[moved + number :]
                    if chosen is None and target is not None and position.ndim:
                        np.take(window, position, out=target, mode="clip")
                        write(None, None)
                    elif chosen is None or not position.ndim:
                        write(window[position], chosen)
                    else:
                        value = np.zeros(self.lanes, dtype)
                        value[chosen] = window[position]
                        write(value, chosen)

        return run

    def store(self, index: int, step: DecodedInstruction) -> Action:
        """A store of one value or a vector."""
        row, (destination, source) = step.row, step.instruction.operands
        items = _items(source, row)
        dtype = NUMPY_TYPES[row.of[0]]
        sources = [self._operands.source(item, row.of[0]) for item in items]
        assert isinstance(destination, Address)
        access = self._accessor(index, step, destination, sources)
        stored_bytes = dtype.itemsize * row.vector

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                elements = segment.typed(dtype)
                position = position + moved
                for number, values in enumerate(map(value_of, sources)):
                    value = values if chosen is None or not values.ndim else values[chosen]
                    if value.ndim and not position.ndim:
                        value = value[-1]  # one address for all: the last lane's stays
                    elements[position + number] = value
                segment.written(position * dtype.itemsize, stored_bytes)

        return run

    def atomic(self, index: int, step: DecodedInstruction) -> Action:
        """An atomic operation, or a reduction, which is one without a result."""
        row, operands = step.row, step.instruction.operands
        has_result = row.kind == "atomic"
        source = operands[1 if has_result else 0]
        given = operands[2:] if has_result else operands[1:]
        dtype = NUMPY_TYPES[row.of[0]]
        # A vector's elements are atomic one by one: their sources, by element.
        parts = [_items(each, row) for each in given]
        sources = [
            [self._operands.source(o[number], t) for o, t in zip(parts, row.of, strict=True)]
            for number in range(row.vector)
        ]
        results = _items(operands[0], row) if has_result else ()
        writers = [self._operands.destination(each, row.to[0])[0] for each in results]
        function = row.function
        assert isinstance(source, Address)
        assert function is not None
        access = self._accessor(index, step, source)

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                count = self.lanes if chosen is None else int(np.count_nonzero(chosen))
                where = np.broadcast_to(position + moved, count)
                for number, each in enumerate(sources):
                    values = [
                        np.broadcast_to(v if chosen is None or not v.ndim else v[chosen], count)
                        for v in map(value_of, each)
                    ]
                    old = _apply_atomic(segment.typed(dtype), where + number, values, function)
                    if writers:
                        value = np.zeros(self.lanes, dtype)
                        value[slice(None) if chosen is None else chosen] = old
                        writers[number](value, chosen)
                segment.written(where * dtype.itemsize, dtype.itemsize * row.vector)

        return run

    def _accessor(
        self, index: int, step: DecodedInstruction, operand: Address, sources: Sequence[Source] = ()
    ) -> Callable[[Mask | None], list[tuple[Segment, Lanes, int, Mask | None]]]:
        """How one memory instruction finds its elements; counts each time it does.

        The function it returns gives, for each segment touched: element positions (of the lanes
        that take part, in order), elements to add to them, and those lanes (None for all).
        """
        row, offset, tally = step.row, operand.offset, self._tally
        base = self._operands.address_base(operand)
        name = operand.base.name if isinstance(operand.base, Register) else f"{int(base):#x}"
        if base.itemsize < 8 and row.space in ("generic", "global"):
            raise PtxError(f"{row.opcode} takes an address of 64 bits, not {name}")
        if self._checker is not None:
            return self._checker.accessor(index, step, operand, sources)
        width = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        size, shift = width * row.vector, width.bit_length() - 1

        def find(segment: Segment, window: int, mask: Mask | None) -> tuple[Lanes, int]:
            key = (name, segment.name, shift)
            version = self._operands.versions.get(name, 0)
            located = None if mask is not None else self._located.get(key)
            if located is None or located.version != version:
                address = base - window if window else base
                located = self._locate(segment, address, shift, version, mask, name)
                if mask is None:
                    self._located[key] = located
            rest = offset
            if (located.misalignment | offset) & (size - 1):  # together they may be aligned
                address = np.asarray(base - window).astype(np.int64) + offset
                located, rest = self._locate(segment, address, shift, version, mask, name), 0
            low, high = located.low + rest, located.high + rest + size
            refused = row.kind != "load" and segment.name in memory.READ_ONLY
            if located.misalignment & (size - 1) or refused or not segment.check(low, high):
                self._fault(segment, base - window, offset, size, step, mask)
            self._count(index, step, segment, located, rest, mask)
            if self._recorder is not None:
                address = np.broadcast_to(base - window, self.lanes) + offset
                active = self._alive if mask is None else mask
                self._recorder.access(index, segment, address, size, active, row.kind != "store")
            lanes = self.lanes if mask is None else int(np.count_nonzero(mask))
            tally.bytes[index] += size * lanes
            moved = rest >> shift
            if moved < 0 or located.low < segment.origin:
                # A base before the memory's start would count from its end as an index.
                return located.position + moved, 0
            return located.position, moved

        if row.space != "generic":
            segment = self._segments[row.space]
            return lambda mask: [(segment, *find(segment, 0, mask), mask)]

        def access_generic(
            mask: Mask | None,
        ) -> list[tuple[Segment, Lanes, int, Mask | None]]:
            taking = self._alive if mask is None else mask
            address = np.broadcast_to(base, self.lanes) + offset
            found = []
            for space, start, lanes in memory.split_by_space(address, taking):
                chosen = None if lanes.all() else lanes
                segment = self._segments[space]
                found.append((segment, *find(segment, start, chosen), chosen))
            return found

        return access_generic

    def _locate(
        self,
        segment: Segment,
        address: Lanes,
        shift: int,
        version: int,
        mask: Mask | None,
        name: str,
    ) -> _ResolvedAddresses:
        """Find where addresses lie in a segment, without the instruction's own offset."""
        pattern: Pattern | None = None
        lane_0 = address
        if address.ndim and segment.name not in ("const", "param"):
            pattern, lane_0 = self._pattern(name, address, mask)
        taking = address if mask is None or not address.ndim else address[mask]
        low, high = int(taking.min()), int(taking.max())
        misalignment = int(np.bitwise_or.reduce(taking, axis=None))
        position = taking - segment.origin if segment.origin else taking
        if segment.lane_base is not None:
            lane_base = segment.lane_base if mask is None else segment.lane_base[mask]
            position = position + lane_base
        return _ResolvedAddresses(
            version, position >> shift, low, high, misalignment, pattern, lane_0
        )

    def _pattern(self, site: str, address: Lanes, mask: Mask | None) -> tuple[Pattern, Lanes]:
        """Intern the pattern of a warp's addresses; also give the sector where each starts."""
        rows = address.reshape(-1, WARP_SIZE)
        if mask is None:
            active: Mask = np.ones(len(rows), np.bool_)
            first = rows[:, 0]
        else:
            lanes = mask.reshape(-1, WARP_SIZE)
            active = active_warps(mask)
            if self._trace is None and not active.all():  # which warps they are, it alone asks
                rows, lanes = rows[active], lanes[active]
                active = np.ones(len(rows), np.bool_)
            first = rows[np.arange(len(rows)), lanes.argmax(axis=1)]
            rows = np.where(lanes, rows, first[:, None])
        line = first & ~np.int64(LINE_BYTES - 1)
        relative = (rows - line[:, None]).astype(np.int64)
        if mask is not None:
            relative[~active] = 0
        sector = first & ~np.int64(SECTOR_BYTES - 1)
        return self._patterns.intern(site, relative, active), sector

    def _count(
        self,
        index: int,
        step: DecodedInstruction,
        segment: Segment,
        located: _ResolvedAddresses,
        offset: int,
        mask: Mask | None,
    ) -> None:
        tally, counted = self._tally, step.counted_bytes
        if counted == 0 or segment.name in ("param", "param::func"):
            return
        if located.pattern is None:  # one address for all lanes
            taking = self._alive if mask is None else mask
            address = np.broadcast_to(located.base, self.lanes)
            located.pattern, located.base = self._pattern("", address, taking)
        if segment.name == "shared":
            waves = self._patterns.wavefronts(located.pattern, offset, counted)
            tally.requests[index] += waves.instructions
            tally.wavefronts[index] += waves.wavefronts
            tally.excessive[index] += waves.wavefronts - waves.ideal
        elif segment.name == "global":
            sectors = self._patterns.sectors(located.pattern, offset)
            tally.requests[index] += sectors.requests
            tally.sectors[index] += sectors.sectors
            tally.wavefronts[index] += sectors.lines
            tally.used[index] += sectors.addresses * counted
            if self._trace is not None:
                self._trace.access(index, located.base, sectors)
        elif segment.name == "const":
            constants = self._patterns.sectors(located.pattern, offset)
            tally.requests[index] += constants.requests
            tally.wavefronts[index] += constants.addresses
        else:
            local = self._patterns.local(located.pattern, offset, step.counted_bytes)
            tally.requests[index] += local.requests
            tally.sectors[index] += local.sectors
            tally.wavefronts[index] += local.lines

    def _fault(
        self,
        segment: Segment,
        base: Lanes,
        offset: int,
        size: int,
        step: DecodedInstruction,
        mask: Mask | None,
    ) -> None:
        """Stop at the first lane whose access is at fault, if one is, and say where it is."""
        taking = np.flatnonzero(self._alive if mask is None else mask)
        addresses = np.broadcast_to(base, self.lanes)[taking].astype(np.int64) + offset
        aligned = not (addresses % size).any()
        if isinstance(segment, GlobalMemory) and aligned and segment.holds(addresses, size):
            return  # not all in one array, but each in one
        what = "read" if step.row.kind == "load" else "write"
        try:
            raise memory.find_fault(segment, addresses, size, what)
        except AccessFault as fault:
            lane = int(taking[fault.lane])
            raise KernelFault(f"{fault}, {self._threads.place(lane, step.instruction)}") from None


def build_segments(
    program: Program, threads: Threads, global_memory: GlobalMemory
) -> dict[str, Segment]:
    """The state spaces of a chunk by name: global memory, and what its lanes have of their own."""
    grid, lanes = threads.grid, threads.lanes
    shared_bytes = program.static_shared_bytes  # what lies behind belongs to no array
    if grid.dynamic_shared_bytes:
        shared_bytes = -(-shared_bytes // 16) * 16 + grid.dynamic_shared_bytes
    padded = -(-shared_bytes // 16) * 16
    block_of_lane = np.arange(lanes, dtype=np.int64) // grid.padded_threads
    lane = np.arange(lanes, dtype=np.int64)
    parameters = np.frombuffer(grid.parameters.ljust(16, b"\0"), np.uint8)
    constants = np.frombuffer(program.const_image.ljust(16, b"\0"), np.uint8)
    return {
        "global": global_memory,
        "shared": Segment(
            "shared",
            np.zeros(padded * len(threads.blocks) + 16, np.uint8),
            shared_bytes,
            block_of_lane * padded,
        ),
        "local": Segment(
            "local",
            np.zeros(program.local_bytes * lanes + 16, np.uint8),
            program.local_bytes,
            lane * program.local_bytes,
        ),
        "param::func": Segment(
            "param::func",
            np.zeros(program.argument_bytes * lanes + 16, np.uint8),
            program.argument_bytes,
            lane * program.argument_bytes,
        ),
        "const": Segment("const", constants, len(program.const_image)),
        "param": Segment("param", parameters, len(grid.parameters)),
    }


def _items(operand: Operand, row: Row) -> tuple[Operand, ...]:
    """The registers of one value or of a vector."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != row.vector:
        raise PtxError(f"{row.opcode} moves {row.vector} registers, not {len(items)}")
    return items


def _apply_atomic(
    elements: Lanes, where: Lanes, values: Sequence[Lanes], function: Callable[..., Any]
) -> Lanes:
    """Apply an atomic in lane order; gives what each lane found.

    Lanes at distinct addresses go at once, those at one address one after the other; or, where
    that means fewer steps, the lanes at one address at once, one address after the other.
    """
    if function is integers.compare_and_swap:
        return _apply_compare_and_swap(elements, where, *values)
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff([*starts, len(ordered)])
    old = np.empty(len(where), elements.dtype)
    if isinstance(function, np.ufunc) and len(starts) < counts.max():
        for lanes in np.split(order, starts[1:]):
            at = where[lanes[0]]
            steps = np.concatenate((elements[at : at + 1], values[0][lanes]))
            found = function.accumulate(steps, dtype=elements.dtype)
            old[lanes], elements[at] = found[:-1], found[-1]
        return old
    rank = np.arange(len(ordered)) - np.repeat(starts, counts)
    by_rank = np.argsort(rank, kind="stable")
    for members in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
        lanes = order[members]
        found = elements[where[lanes]]
        old[lanes] = found
        elements[where[lanes]] = function(found, *(value[lanes] for value in values))
    return old


def _apply_compare_and_swap(elements: Lanes, where: Lanes, compare: Lanes, new: Lanes) -> Lanes:
    """Compare and swap in lane order; gives what each lane found.

    Of the lanes at one address that have not been served, those before the first that finds what
    it compares with find the same and change nothing: a step a swap, not a step a lane.
    """
    old = np.empty(len(where), elements.dtype)
    left = np.arange(len(where))
    while left.size:
        at = where[left]
        found = elements[at]
        swaps = found == compare[left]
        old[left] = found
        if not swaps.any():
            break
        addresses, first = np.unique(at[swaps], return_index=True)
        first = left[swaps][first]
        elements[addresses] = new[first]
        # Again for the lanes behind the one that swapped at their address.
        place = np.minimum(np.searchsorted(addresses, at), len(addresses) - 1)
        left = left[(addresses[place] == at) & (left > first[place])]
    return old
