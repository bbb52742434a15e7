"""Lets observers watch the accesses of chosen instructions, and the policy refuse lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memlab.device.emulator.isa.address_space import (
    CLUSTER,
    OWN_OFFSET,
    RANK_BITS,
    RANK_SHIFT,
    RANK_UNIT,
    UNREACHABLE,
    split_by_space,
)
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access, is_multicast
from memlab.device.emulator.isa.asynchronous.tensor_copies import (
    is_tensor_access,
    takes_pixels,
)
from memlab.device.emulator.machine.boxes import BoxPart, parts_of
from memlab.device.emulator.machine.memory import Lanes, Mask, Segment
from memlab.device.emulator.machine.observer import Action, ExecutionPolicy, Observer
from memlab.device.emulator.machine.operands import Operands, Source
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    bytes_moved,
    destinations,
    reach_of,
)
from memlab.device.emulator.ptx.parser import Register, Vector
from memlab.kernels.launch import NO_CLUSTER
from memlab.kernels.tensor_maps import PIECE_BYTES

if TYPE_CHECKING:
    from memlab.device.emulator.machine.machine import Chunk


_ONE_ROW = np.zeros(1, np.int64)


@dataclass(frozen=True)
class MemoryInstruction:
    """A memory instruction of a program.

    Attributes:
        index: Its position in the program.
        kind: `load`, `store` or `atomic`, which includes reductions.
        size: Bytes that a lane moves.
        alignment: Bytes of which the address must be a multiple.
        element_bytes: Bytes of each of the elements, one or more, that a lane moves.
        rows: For the box of a tensor copy, where its ranges of `size` bytes each begin, relative to
            the address; else a single 0.
        sources: The values that a store stores, an entry per element; else empty, also for the
            write of a bulk copy.
    """

    index: int
    kind: Literal["load", "store", "atomic"]
    size: int
    alignment: int
    element_bytes: int
    sources: Sequence[Source] = ()
    rows: Lanes = field(default_factory=lambda: _ONE_ROW)

    @property
    def is_box(self) -> bool:
        """Whether it accesses the box of a tensor copy, whose size needs no alignment."""
        return self.rows is not _ONE_ROW

    @property
    def touched(self) -> int:
        """Bytes of each range that it reads or writes: in a box, pieces are written as a whole."""
        if not self.is_box or self.kind == "load":
            return self.size
        return -(-self.size // PIECE_BYTES) * PIECE_BYTES

    @property
    def extent(self) -> tuple[int, int]:
        """Where what a lane accesses begins, relative to its address, and its bytes in all."""
        first = int(self.rows.min())
        return first, int(self.rows.max()) - first + self.size


@dataclass(frozen=True)
class WatchedAccess:
    """One execution of a memory instruction, as far as it accesses one state space.

    Attributes:
        instruction: The instruction.
        segment: The state space.
        address: Byte addresses in the state space, shape (lanes,), int64. Lanes that take no part
            may hold anything.
        mask: The lanes that take part.
        base: Position in the segment's bytes where each lane's memory starts: in shared memory,
            that of the block that it accesses; None where all lanes share the memory.
        ranks: In shared memory of a cluster, the rank of that block; None elsewhere.
    """

    instruction: MemoryInstruction
    segment: Segment
    address: Lanes
    mask: Mask
    base: Lanes | None = None
    ranks: Lanes | None = None


def _fields(part: BoxPart) -> dict[str, Any]:
    """The fields of an instruction that accesses part of boxes."""
    whole = part.size * len(part.rows)
    return {
        "size": part.size,
        "alignment": part.alignment,
        "element_bytes": whole,
        "rows": part.rows,
    }


def watch_access(
    index: int,
    step: DecodedInstruction,
    chunk: Chunk,
    policy: ExecutionPolicy,
    observers: Sequence[Observer],
    execute: Action,
) -> Action:
    """The action of a watched memory instruction.

    Args:
        index: Its position.
        step: The instruction.
        chunk: The chunk that executes it.
        policy: Chooses the lanes that carry it out.
        observers: Are told of it.
        execute: Runs its machine code.
    """
    row, registers = step.row, chunk.operands
    reach = reach_of(step)
    kind: Literal["load", "store", "atomic"] = "atomic"
    size = bytes_moved(row)
    sources: list[Source] = []
    if row.kind == "load":
        kind = "load"
    elif is_bulk_access(row):
        kind = "store" if row.kind == "store" else "atomic"
    elif row.kind == "store":
        kind = "store"
        stored = step.instruction.operands[1]
        items = stored.items if isinstance(stored, Vector) else (stored,)
        sources = [registers.source(item, row.of[0]) for item in items]
    instruction = MemoryInstruction(index, kind, size, size, size // row.vector, sources)
    has_parts = row.space == "generic" or any(
        is_one(row) for is_one in (is_bulk_access, is_tensor_access, is_multicast)
    )

    finish = partial(_finish, step, registers, execute)

    def run(mask: Mask) -> None:
        address = registers.address_base(step.address) + step.address.offset
        if not address.ndim:
            address = np.broadcast_to(address, len(mask))
        if not has_parts:
            access = _access(instruction, chunk.segments[row.space], address, mask, chunk, reach)
            finish(mask, _permitted_lanes(access, policy, observers))
            return
        parts = [(row.space, 0, mask, instruction)]
        if row.space == "generic":
            parts = [(*part, instruction) for part in split_by_space(address, mask)]
        elif is_tensor_access(row):
            words = [
                np.broadcast_to(registers.read(each, "u64").astype(np.int64), len(mask))
                for each in step.instruction.operands[2 : 6 if takes_pixels(row) else 5]
            ]
            parts = [
                (row.space, 0, part.mask, replace(instruction, **_fields(part)))
                for part in parts_of(
                    row.space, np.stack(words, axis=1), address, mask, chunk.segments
                )
            ]
        elif is_bulk_access(row):
            size = registers.read(step.instruction.operands[2], "u32")
            sizes = np.broadcast_to(size, len(mask)).astype(np.int64)
            parts = [
                (row.space, 0, mask & (sizes == size), replace(instruction, size=size))
                for size in np.unique(sizes[mask]).tolist()
            ]
        accesses = [
            (space, address - window if window else address, lanes, described)
            for space, window, lanes, described in parts
        ]
        if is_multicast(row):
            chosen = np.broadcast_to(
                registers.read(step.instruction.operands[-1], "b16"), len(mask)
            )
            accesses = [
                (
                    space,
                    place & ~(RANK_BITS << RANK_SHIFT) | rank << RANK_SHIFT,
                    lanes & (chosen >> rank & 1 != 0),
                    each,
                )
                for rank in range(chunk.threads.grid.cluster_blocks)
                for space, place, lanes, each in accesses
            ]
        refused = np.zeros_like(mask)
        for space, place, lanes, described in accesses:
            # Of a box, nothing may lie inside its tensor, and no lane may write to a block.
            if not described.size or not lanes.any():
                continue
            access = _access(described, chunk.segments[space], place, lanes, chunk, reach)
            refused |= lanes & ~_permitted_lanes(access, policy, observers)
        finish(mask, mask & ~refused)

    return run


def _permitted_lanes(
    access: WatchedAccess, policy: ExecutionPolicy, observers: Sequence[Observer]
) -> Mask:
    """The lanes that may carry out an access, of which the observers are told."""
    permitted = policy.permitted_lanes(access)
    if permitted is not access.mask:
        access = replace(access, mask=permitted)
    if permitted.any():
        for observer in observers:
            observer.memory_accessed(access)
    return permitted


def _finish(
    step: DecodedInstruction, registers: Operands, execute: Action, mask: Mask, permitted: Mask
) -> None:
    """Let the permitted ones of some lanes carry out an access."""
    if permitted.any():
        execute(permitted)
    if permitted is mask:
        return
    refused = mask & ~permitted
    if refused.any():  # they read 0, and what they store is lost
        for target in destinations(step):
            assert isinstance(target, Register)
            registers.clear(target.name, refused)


def _access(
    instruction: MemoryInstruction,
    segment: Segment,
    address: Lanes,
    mask: Mask,
    chunk: Chunk,
    reach: int,
) -> WatchedAccess:
    """An access with the memory of each lane: in shared memory, that of the block it names.

    Lanes that name a block beyond the cluster, or one that the instruction cannot reach, get the
    places of `lane_code.place_in_cluster`, which are outside.
    """
    threads = chunk.threads
    if segment.name != "shared" or (
        threads.grid.cluster == NO_CLUSTER and address[mask].max(initial=0) < RANK_UNIT
    ):
        return WatchedAccess(instruction, segment, address, mask, segment.lane_base)
    assert segment.lane_base is not None
    blocks, own, peers = chunk.cluster_lanes
    named = address >> RANK_SHIFT
    if reach == OWN_OFFSET:
        named = np.where(named == 0, own, named)
    exists = (named >= 0) & (named < threads.grid.cluster_blocks)
    inside = exists & ((reach == CLUSTER) | (named == own))
    ranks = np.where(inside, named, own)
    base = peers[blocks, ranks] * ((segment.data.size - 16) // len(threads.blocks))
    beyond = address + np.where(named >= 0, RANK_UNIT, 0) + exists * UNREACHABLE
    address = np.where(inside, address & (RANK_UNIT - 1), beyond)
    return WatchedAccess(instruction, segment, address, mask, base, ranks)
