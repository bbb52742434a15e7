"""Hands the common case of the checks to the machine code (`codegen.check_code`).

Most watched instructions are innocent: their addresses are permitted, and no shadow memory speaks
against them. The machine code finds that out, and notes the access, by records that are made here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks.bounds import BoundsCheck
from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.initialisation import InitializationCheck
from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.pointer_origin import PointerOrigin
from memlab.device.emulator.checks.program_analysis import (
    CHECKED_AS,
    ProgramAnalysis,
    analyze,
    find_watched_instructions,
    is_warp_barrier,
    is_warp_collective,
)
from memlab.device.emulator.checks.races import RaceCheck
from memlab.device.emulator.codegen.check_layout import (
    CHECK,
    CHECK_KINDS,
    CHECK_STATE,
    CHECKED_SPACE,
    EVERY_TOOL,
    FOOTPRINT,
    PENDING_COPY_BIT,
    WEAK,
)
from memlab.device.emulator.codegen.frame import lay_out_frame
from memlab.device.emulator.codegen.layout import SPACES
from memlab.device.emulator.codegen.stretches import has_member_mask, is_partial
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory, Segment
from memlab.device.emulator.program.program import DecodedInstruction, Program, bytes_moved
from memlab.device.emulator.ptx.parser import Address, Immediate, Operand, Register
from memlab.device.properties import WARP_SIZE

_EVERY_LANE = 0xFFFF_FFFF
_OF_LAUNCH = "space", "arrays", "array_count", "needs_written", "may_race"
"""The fields of a `CHECK` record of an access that a launch decides, besides its offset."""
_FOOTPRINTS = 32
"""Footprints that are kept; one holds several arrays with an item per lane."""


@dataclass(frozen=True)
class AccessChecks:
    """The tools that check the accesses of a launch.

    Attributes:
        bounds: memcheck.
        initialisation: initcheck, where it was asked for.
        races: racecheck, where it was asked for.
        origins: The array that an instruction's addresses were computed from, where it is known.
        outputs: The arrays of global memory that are uninitialized before the launch, by order.
        writable: Those that the launch may write to.
    """

    bounds: BoundsCheck
    initialisation: InitializationCheck | None
    races: RaceCheck | None
    origins: Mapping[int, PointerOrigin]
    outputs: Collection[int]
    writable: Collection[int]


@dataclass(frozen=True)
class _Access:
    """An access that the machine code checks.

    Attributes:
        index: The position of the instruction.
        step: The instruction.
        address: Its address.
        record: The number of its record.
        may_synchronize: Whether it may acquire or release.
    """

    index: int
    step: DecodedInstruction
    address: Address
    record: int
    may_synchronize: bool


class NativeChecks:
    """The records by which the machine code checks the watched instructions of a launch."""

    def __init__(
        self,
        program: Program,
        selected: Collection[str],
        tools: AccessChecks,
        interpreted: Collection[int] = (),
    ) -> None:
        """Prepare a launch.

        Args:
            program: The kernel.
            selected: The names of all tools to check with.
            tools: The tools that check accesses.
            interpreted: The instructions that are left to the tools.
        """
        self._tools, self._program = tools, analyze(program)
        records, self._accesses = _check_records(program, frozenset(selected))
        self._records = records.copy()
        self._checked = np.ones(len(records), np.bool_)
        if interpreted:
            self._checked &= ~np.isin(records["index"], list(interpreted))
        self._state = np.zeros((), CHECK_STATE)
        self._async_writes = np.zeros(len(program.steps), np.bool_)
        self._async_writes[list(self._program.bulk_writes)] = True
        self._state["async_writes"] = self._async_writes.ctypes.data
        self._records["state"] = self._state.ctypes.data
        self._space = {name: np.zeros((), CHECKED_SPACE) for name in SPACES[:-1]}
        for name, unit_bytes in self._program.unit_bytes.items():
            self._space[name]["unit_shift"] = unit_bytes.bit_length() - 1
        self._space["global"]["origin"] = GlobalMemory.origin
        self._space["global"]["is_shared_by_blocks"] = 1
        self._arrays: dict[tuple[str, PointerOrigin | None, bool], tuple[Lanes, int]] = {}
        self._alive = np.zeros(0, np.bool_)
        self._times: tuple[Lanes, Lanes] | None = None  # those that the machine code has
        self._footprints = np.zeros(_FOOTPRINTS, FOOTPRINT)
        self._footprint_memory = np.zeros(0, np.int32)
        self._state["footprints"] = self._footprints.ctypes.data
        self._state["footprint_count"] = _FOOTPRINTS

    def begin(
        self,
        chunk: Chunk,
        numbers: Lanes,
        order: HappensBefore,
        scratch: Mapping[str, Lanes],
        places: Lanes,
    ) -> None:
        """Take the next blocks, and let the machine code check.

        Args:
            chunk: Their chunk.
            numbers: The thread of each lane.
            order: The order of these.
            scratch: By state space, memory for an integer per unit.
            places: The instructions where lanes waited last.
        """
        self._order = order
        in_clusters = chunk.threads.grid.cluster_blocks > 1
        self._space["shared"]["is_shared_by_blocks"] = in_clusters
        if self._alive.size == 0:
            self._describe_accesses(chunk)
        if not np.array_equal(chunk.threads.alive, self._alive):
            self._make_room_for_footprints(chunk.threads.lanes)
        self._alive = chunk.threads.alive
        state, tools = self._state, self._tools
        state["lanes"] = np.count_nonzero(self._alive)
        state["threads"], state["time"] = numbers.ctypes.data, order.clock.ctypes.data
        state["clocks"] = order.block_clock.ctypes.data
        self._block_clocks = order.block_clock[:: chunk.threads.grid.padded_threads]
        state["group"] = order.group
        state["group_clocks"] = order.group_clocks.ctypes.data
        state["pair_clocks"] = order.pair_clocks.ctypes.data
        for name, array in scratch.items():
            self._space[name]["scratch"] = array.ctypes.data
            for distance in ("block_bytes", "lane_bytes"):
                segment = chunk.context.record["segments"][SPACES.index(name)]
                self._space[name][distance] = segment[distance]
        if tools.initialisation is not None:
            for name in self._program.unit_bytes:
                self._space[name]["unwritten"] = tools.initialisation.unwritten(name).ctypes.data
        if tools.races is not None:
            state["store_times"] = tools.races.store_times.ctypes.data
            state["fence_times"] = tools.races.bulk.fence_times.ctypes.data
            for name in ("global", "shared"):
                shadow, space = tools.races.shadow(name), self._space[name]
                space["written"] = shadow.written.ctypes.data
                space["updates"] = 0
                _point(space["reads"], shadow.read.recorded_accesses)
            shared = self._space["shared"]
            shared["last_read"] = PENDING_COPY_BIT if self._program.bulk_reads else 0
            shared["last_update"] = 0
            shared["last_write"] = PENDING_COPY_BIT if self._program.async_copies else 0
            for number, index in enumerate(self._records["index"].tolist()):
                if index in tools.races.exchanges.times:
                    record = self._records[number]
                    record["exchange_times"] = tools.races.exchanges.times[index].ctypes.data
                    partners = tools.races.exchanges.partners[index]
                    record["exchange_partners"] = partners.ctypes.data
        self.refresh()
        state["places"] = places.ctypes.data
        addresses = self._records.ctypes.data + CHECK.itemsize * np.arange(len(self._records))
        indices = self._records["index"][self._checked]
        chunk.context.check_first(indices.tolist(), addresses[self._checked].astype(np.uint64))

    def refresh(self, has_marks: bool = False) -> None:
        """Take over what the tools noted; `has_marks` where some register's value is undefined."""
        state, races = self._state, self._tools.races
        state["has_marks"], state["left"] = has_marks, EVERY_TOOL
        if races is None:
            return
        if races.times is not self._times:  # they were moved to make room
            self._times = steps, orders = races.times
            state["times"] = len(steps)
            state["steps"], state["orders"] = steps.ctypes.data, orders.ctypes.data
        state["least_clock"] = self._block_clocks.min()
        for name in ("global", "shared"):
            updates = races.shadow(name).atomic_updates
            if updates is not None:
                _point(self._space[name]["updates"], updates.recorded_accesses)

    def is_left_to(self, tool: int) -> bool:
        """Whether a tool, a bit of `EVERY_TOOL`, must look at the present access."""
        return bool(int(self._state["left"]) & tool)

    def noted(self, space: str, kind: str) -> None:
        """Take over that the tools noted an access of a kind."""
        # A strong store is kept among the updates.
        for latest in ("last_read",) if kind == "load" else ("last_write", "last_update"):
            last = self._space[space]
            last[latest] = max(int(last[latest]), self._order.time)

    def _make_room_for_footprints(self, lanes: int) -> None:
        """Allocate the arrays of all footprints, each of which may be of so many lanes."""
        sizes = {"mask": lanes // WARP_SIZE, "relative": lanes}
        width = max((self._width(access) for access in self._accesses), default=1)
        sizes |= dict.fromkeys(("units", "lanes", "others", "warps"), lanes * width)
        self._footprint_memory = np.empty((_FOOTPRINTS, sum(sizes.values())), np.int32)
        starts = self._footprint_memory.ctypes.data + (
            self._footprint_memory.strides[0] * np.arange(_FOOTPRINTS)
        )
        for name, size in sizes.items():
            self._footprints[name] = starts
            starts = starts + size * self._footprint_memory.itemsize
        self._footprints["space"] = 0

    def _width(self, access: _Access) -> int:
        """Units that a lane touches in an access; 1 where the contents are not followed."""
        space = access.step.row.space
        moved = int(self._records["size"][access.record])
        return moved // self._program.unit_bytes.get(space, moved)

    def _describe_accesses(self, chunk: Chunk) -> None:
        """Complete the records by what a launch decides."""
        tools, may_write = self._tools, self._arrays_written()
        spaces = {name: space.ctypes.data for name, space in self._space.items()}
        bases, described = [], []
        for access in self._accesses:
            row, base = access.step.row, 0
            if not isinstance(access.address.base, Register):
                base = int(chunk.operands.address_base(access.address))
            origin, is_load = tools.origins.get(access.index), row.kind == "load"
            arrays = self._permitted_arrays(access, chunk.segments[row.space], origin)
            known = None
            if row.space == "global" and origin is not None and origin[0] == "global":
                known = origin[1]
            needs_written = may_race = False
            if tools.initialisation is not None and row.space in self._program.unit_bytes:
                needs_written = known is None or known in tools.outputs
            if tools.races is not None and row.space in ("global", "shared"):
                is_constant = is_load and known is not None and known not in may_write
                may_race = not is_constant
                self._checked[access.record] &= is_constant or not access.may_synchronize
            bases.append(base)
            described.append((spaces[row.space], *arrays, needs_written, may_race))
        numbers = [access.record for access in self._accesses]
        self._records["offset"][numbers] += np.array(bases, np.int64)
        columns = np.array(described, np.int64).reshape(-1, len(_OF_LAUNCH)).T
        for name, column in zip(_OF_LAUNCH, columns, strict=True):
            self._records[name][numbers] = column

    def _permitted_arrays(
        self, access: _Access, segment: Segment, origin: PointerOrigin | None
    ) -> tuple[int, int]:
        """The host address of the bounds of the arrays that an access may lie in, and their number.

        Accesses with the same ones share them.
        """
        key = segment.name, origin, access.step.row.kind == "load"
        known = self._arrays.get(key)
        if known is None:
            arrays = self._tools.bounds.permitted_arrays(access.index, segment, key[-1])
            self._arrays[key] = known = arrays, arrays.ctypes.data
        arrays, address = known
        return address, len(arrays)

    def _arrays_written(self) -> Collection[int]:
        """The arrays of global memory that the kernel may write to, by their order."""
        written, origins = set(), self._tools.origins
        for index in self._program.global_stores:
            space, array = origins.get(index, ("", -1))
            if not space:
                return self._tools.writable
            if space == "global":
                written.add(array)
        return written & set(self._tools.writable)


@lru_cache(maxsize=32)
def _check_records(
    program: Program, tools: frozenset[str]
) -> tuple[NDArray[np.void], Sequence[_Access]]:
    """The `CHECK` records of the watched instructions, as far as the program decides them.

    Instructions that are always left to the tools have none.
    """
    analysis, layout = analyze(program), lay_out_frame(program)
    uses = analysis.uses_of_shuffles | analysis.uses_of_early_loads
    barriers = {index for index, step in enumerate(program.steps) if step.row.kind == "barrier"}
    watched = barriers | find_watched_instructions(program, tools)
    kinds = {
        index: kind
        for index in sorted(watched - {len(program.steps)})
        if (kind := _check_kind(index, analysis, "racecheck" in tools)) is not None
    }
    records, accesses = np.zeros(len(kinds), CHECK), []
    for number, (index, kind) in enumerate(kinds.items()):
        step, record = program.steps[index], records[number]
        record["index"], record["kind"] = index, CHECK_KINDS.index(kind)
        record["uses_marks"] = index in uses
        if step.row.kind not in CHECKED_AS:
            continue
        address = step.address
        record["offset"], record["register"] = address.offset, -1
        if isinstance(address.base, Register):
            record["register"] = layout.offsets[address.base.name]
            record["bits"] = layout.bits[address.base.name]
        record["size"] = bytes_moved(step.row)
        order = analysis.memory_orders[index]
        record["order"] = order.packed
        record["is_noncoherent"] = (
            index in analysis.noncoherent_loads or index in analysis.map_reads
        )
        record["is_async_read"] = index in analysis.async_reads
        may_synchronize = analysis.has_fences and order.level != WEAK
        accesses.append(_Access(index, step, address, number, may_synchronize))
    return records, accesses


def _check_kind(index: int, program: ProgramAnalysis, checks_races: bool) -> str | None:
    """What the machine code checks an instruction as; None where it leaves it to the tools."""
    step, has_fences = program.steps[index], checks_races and program.has_fences
    # A barrier opens where all threads are at it; without fences it only orders what they did.
    is_plain_barrier = step.instruction.guard is None and not has_fences
    kind, is_known = "other", step.row.kind in ("lanes", "warp")
    if step.row.kind in CHECKED_AS:
        kind = CHECKED_AS[step.row.kind]
        is_known = step.row.space in SPACES[:-1] and index not in program.async_copies
        is_known &= not is_bulk_access(step.row)
    elif step.row.kind == "barrier":
        kind, is_known = "barrier", is_plain_barrier and not is_partial(step)
    elif is_warp_barrier(step):
        names_all = _is_every_lane(step.instruction.operands[0])
        kind = "warp barrier"
        is_known = is_plain_barrier and names_all and not program.has_partial_barriers
    elif is_warp_collective(step):
        kind = "collective"
        is_known = not has_member_mask(step) or _is_every_lane(step.instruction.operands[-1])
    return kind if is_known else None


def _is_every_lane(members: Operand) -> bool:
    return isinstance(members, Immediate) and members.bits & _EVERY_LANE == _EVERY_LANE


def _point(pointers: NDArray[np.uint64], arrays: Sequence[NDArray[Any]]) -> None:
    pointers[: len(arrays)] = [array.ctypes.data for array in arrays]
