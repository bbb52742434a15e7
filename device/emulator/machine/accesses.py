"""Binds loads, stores and atomics: the one path by which lanes access memory.

The addresses of a register are resolved once for all the instructions that use it, each with its
own offset, until the register is written. The execution policy may refuse lanes; observers are
told of each access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from memlab.device.emulator.isa import integers
from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.isa.table import NUMPY_TYPES, Row
from memlab.device.emulator.machine.address_resolution import (
    MemoryInstruction,
    ResolvedAddresses,
    resolve_addresses,
)
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.memory import GlobalMemory, Lanes, Segment
from memlab.device.emulator.machine.observer import ChunkState, ExecutionPolicy, Observer
from memlab.device.emulator.machine.operands import Source, value_of
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import Address, Operand, PtxError, Register, Vector

AccessedElements: TypeAlias = tuple[Segment, Lanes, int, Mask | None]
"""A segment, element positions in it of the lanes that access it, elements to add to each position,
and those lanes (None for all)."""

_WIDEST_ACCESS = 32  # bytes that a lane moves at once, at most


class Accesses:
    """Binds the memory instructions of a chunk."""

    def __init__(
        self,
        chunk: ChunkState,
        policy: ExecutionPolicy,
        observers: Sequence[Observer],
    ) -> None:
        """Bind for a chunk; the policy filters each access, and the observers are told of it."""
        self.lanes, self._alive = chunk.threads.lanes, chunk.threads.alive
        self._operands, self._segments = chunk.operands, chunk.segments
        self._policy, self._observers = policy, observers
        self._resolved: dict[tuple[str, str, int], ResolvedAddresses] = {}

    def load(self, index: int, step: DecodedInstruction) -> Action:
        """Bind a load of one value or a vector."""
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
        """Bind a store of one value or a vector."""
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
        """Bind an atomic operation, or a reduction, which has no result."""
        row, operands = step.row, step.instruction.operands
        has_result = row.kind == "atomic"
        source = operands[1 if has_result else 0]
        inputs = operands[2:] if has_result else operands[1:]
        dtype = NUMPY_TYPES[row.of[0]]
        # The elements of a vector are atomic one by one: `sources` holds their sources by element.
        parts = [_items(operand, row) for operand in inputs]
        sources = [
            [self._operands.source(o[number], t) for o, t in zip(parts, row.of, strict=True)]
            for number in range(row.vector)
        ]
        results = _items(operands[0], row) if has_result else ()
        writers = [self._operands.destination(result, row.to[0])[0] for result in results]
        function = row.function
        assert isinstance(source, Address)
        assert function is not None
        access = self._accessor(index, step, source)

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                count = self.lanes if chosen is None else int(np.count_nonzero(chosen))
                where = np.broadcast_to(position + moved, count)
                for number, element_sources in enumerate(sources):
                    values = [
                        np.broadcast_to(v if chosen is None or not v.ndim else v[chosen], count)
                        for v in map(value_of, element_sources)
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
    ) -> Callable[[Mask | None], list[AccessedElements]]:
        """The function by which a memory instruction finds its elements.

        Each call asks the policy which lanes may access memory, and tells the observers.
        """
        row, offset = step.row, operand.offset
        base = self._operands.address_base(operand)
        name = operand.base.name if isinstance(operand.base, Register) else f"{int(base):#x}"
        if base.itemsize < 8 and row.space in ("generic", "global"):
            raise PtxError(f"{row.opcode} takes an address of 64 bits, not {name}")
        instruction = MemoryInstruction.of(index, step, sources)
        size, shift = instruction.size, instruction.element_bytes.bit_length() - 1
        permitted_lanes, observers = self._policy.permitted_lanes, self._observers

        def access_segment(
            segment: Segment, window: int, mask: Mask | None, accessed: list[AccessedElements]
        ) -> Mask | None:
            """Add the elements of one segment to `accessed`; returns the refused lanes, if any."""
            addresses, rest = self._resolve(name, base, segment, window, shift, mask), offset
            if (addresses.misalignment | offset) & (size - 1):  # their sum may be aligned
                moved_base = np.asarray(base - window).astype(np.int64) + offset
                addresses = resolve_addresses(segment, name, None, moved_base, shift, mask)
                rest = 0
            permitted, refused = permitted_lanes(instruction, addresses, rest, mask), None
            if permitted is not mask:
                assert permitted is not None
                refused = (self._alive if mask is None else mask) & ~permitted
                if not permitted.any():
                    return refused
                addresses = resolve_addresses(
                    segment, name, addresses.version, addresses.address, shift, permitted
                )
            for observer in observers:
                observer.memory_accessed(instruction, addresses, rest, permitted)
            moved = rest >> shift
            if moved < 0 or addresses.low < segment.origin:
                # A base before the memory's start would count from its end as an index.
                accessed.append((segment, addresses.position + moved, 0, permitted))
            else:
                accessed.append((segment, addresses.position, moved, permitted))
            return refused

        def access_space(mask: Mask | None) -> list[AccessedElements]:
            accessed: list[AccessedElements] = []
            refused = access_segment(own_segment, 0, mask, accessed)
            return accessed if refused is None else self._with_refused(accessed, [refused])

        def access_generic(mask: Mask | None) -> list[AccessedElements]:
            active = self._alive if mask is None else mask
            address = np.broadcast_to(base, self.lanes) + offset
            accessed: list[AccessedElements] = []
            refusals = []
            for space, window, lanes in split_by_space(address, active):
                chosen = None if lanes.all() else lanes
                refused = access_segment(self._segments[space], window, chosen, accessed)
                if refused is not None:
                    refusals.append(refused)
            return self._with_refused(accessed, refusals) if refusals else accessed

        if row.space == "generic":
            return access_generic
        own_segment = self._segments[row.space]
        return access_space

    def _resolve(
        self, name: str, base: Lanes, segment: Segment, window: int, shift: int, mask: Mask | None
    ) -> ResolvedAddresses:
        """Find where a register's addresses lie; once for all lanes until it is written."""
        key = (name, segment.name, shift)
        version = self._operands.versions.get(name, 0)
        if mask is None:
            known = self._resolved.get(key)
            if known is not None and known.version == version:
                return known
        address = base - window if window else base
        resolved = resolve_addresses(segment, name, version, address, shift, mask)
        if mask is None:
            self._resolved[key] = resolved
        return resolved

    def _with_refused(
        self, accessed: list[AccessedElements], refusals: Sequence[Mask]
    ) -> list[AccessedElements]:
        """Let the lanes that the policy refused access memory that holds zeros and is dropped."""
        refused = np.logical_or.reduce(refusals)
        if refused.any():
            dropped = Segment("dropped", np.zeros(_WIDEST_ACCESS, np.uint8), _WIDEST_ACCESS)
            position = np.zeros(np.count_nonzero(refused), np.int64)
            accessed.append((dropped, position, 0, refused))
        return accessed


def build_segments(
    program: Program, threads: Threads, global_memory: GlobalMemory
) -> dict[str, Segment]:
    """The state spaces of a chunk by name: global memory, and those that its lanes do not share."""
    grid, lanes = threads.grid, threads.lanes
    shared_bytes = program.static_shared_bytes  # the padding behind them belongs to no array
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
    """The registers of one value or of a vector, by element."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != row.vector:
        raise PtxError(f"{row.opcode} moves {row.vector} registers, not {len(items)}")
    return items


def _apply_atomic(
    elements: Lanes, where: Lanes, values: Sequence[Lanes], function: Callable[..., Any]
) -> Lanes:
    """Apply an atomic in lane order; returns the old value that each lane read.

    Lanes at distinct addresses are processed at once, those at the same address in sequence. Where
    it takes fewer steps, the lanes at one address are processed at once, address by address.
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
            position = where[lanes[0]]
            steps = np.concatenate((elements[position : position + 1], values[0][lanes]))
            results = function.accumulate(steps, dtype=elements.dtype)
            old[lanes], elements[position] = results[:-1], results[-1]
        return old
    rank = np.arange(len(ordered)) - np.repeat(starts, counts)
    by_rank = np.argsort(rank, kind="stable")
    for members in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
        lanes = order[members]
        current = elements[where[lanes]]
        old[lanes] = current
        elements[where[lanes]] = function(current, *(value[lanes] for value in values))
    return old


def _apply_compare_and_swap(elements: Lanes, where: Lanes, compare: Lanes, new: Lanes) -> Lanes:
    """Compare and swap in lane order; returns the old value that each lane read.

    At each address, the lanes before the first one that swaps read the same value and change
    nothing. So one step per swap is enough, instead of one step per lane.
    """
    old = np.empty(len(where), elements.dtype)
    remaining = np.arange(len(where))
    while remaining.size:
        positions = where[remaining]
        current = elements[positions]
        swaps = current == compare[remaining]
        old[remaining] = current
        if not swaps.any():
            break
        swapped, first = np.unique(positions[swaps], return_index=True)
        first = remaining[swaps][first]
        elements[swapped] = new[first]
        # Repeat for the lanes behind the one that swapped at their address.
        index = np.minimum(np.searchsorted(swapped, positions), len(swapped) - 1)
        remaining = remaining[(swapped[index] == positions) & (remaining > first[index])]
    return old
