"""Hands the common case of the checks to the machine code (`codegen.check_code`).

Most watched instructions are innocent: their addresses are permitted, and no shadow memory speaks
against them. The machine code finds that out, and notes the access, by records that are made here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks.barriers import is_warp_barrier, is_warp_collective
from memlab.device.emulator.checks.bounds import BoundsCheck
from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.initialisation import InitializationCheck
from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.checks.pointer_origin import PointerOrigin
from memlab.device.emulator.checks.races import RaceCheck
from memlab.device.emulator.codegen.check_layout import (
    CHECK,
    CHECK_KINDS,
    CHECK_STATE,
    CHECKED_SPACE,
    FOOTPRINT,
    PENDING_COPY_BIT,
)
from memlab.device.emulator.codegen.layout import SPACES
from memlab.device.emulator.codegen.stretches import has_member_mask, is_partial
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.observer import ChunkState
from memlab.device.emulator.program.program import DecodedInstruction, Program, bytes_moved
from memlab.device.emulator.ptx.parser import Address, Immediate, Operand, Register
from memlab.device.properties import WARP_SIZE

_EVERY_LANE = 0xFFFF_FFFF
_FOOTPRINTS = 32
"""Footprints that are kept; one holds several arrays with an item per lane."""
_ACCESSES = {"load": "load", "store": "store", "atomic": "atomic", "reduce": "atomic"}


@dataclass(frozen=True)
class AccessChecks:
    """The tools that check accesses.

    Attributes:
        bounds: memcheck.
        initialisation: initcheck, where it was asked for.
        races: racecheck, where it was asked for.
        unit_bytes: By state space, bytes of the smallest unit that is tracked.
        copies: The instructions that are the store of an asynchronous copy.
        origins: The array that an instruction's addresses were computed from, where it is known.
        outputs: The arrays of global memory that are uninitialized before the launch, by order.
        writable: Those that the launch may write to.
    """

    bounds: BoundsCheck
    initialisation: InitializationCheck | None
    races: RaceCheck | None
    unit_bytes: Mapping[str, int]
    copies: Collection[int]
    origins: Mapping[int, PointerOrigin]
    outputs: Collection[int]
    writable: Collection[int]


class NativeChecks:
    """The records by which the machine code checks the watched instructions of a launch."""

    def __init__(
        self,
        program: Program,
        watched: Collection[int],
        uses_of_shuffles: Collection[int],
        tools: AccessChecks,
    ) -> None:
        """Prepare a launch.

        Args:
            program: The kernel.
            watched: The watched instructions.
            uses_of_shuffles: Those that a shuffle's undefined value may reach.
            tools: The tools that check accesses.
        """
        self._steps, self._tools = program.steps, tools
        checked = {index for index, step in enumerate(program.steps) if step.row.kind == "barrier"}
        self._checked = sorted(checked.union(watched) - {len(program.steps)})
        self._uses_of_shuffles = uses_of_shuffles
        self._may_write = _arrays_written(program, tools)
        self._state = np.zeros((), CHECK_STATE)
        self._spaces = np.zeros(len(SPACES) - 1, CHECKED_SPACE)
        for name, unit_bytes in tools.unit_bytes.items():
            self._space(name)["unit_shift"] = unit_bytes.bit_length() - 1
        self._space("global")["origin"] = GlobalMemory.origin
        self._space("global")["is_shared_by_blocks"] = 1
        self._footprints = np.zeros(_FOOTPRINTS, FOOTPRINT)
        self._footprint_memory = np.zeros(0, np.int32)
        self._arrays: list[Lanes] = []
        self._checks: dict[int, NDArray[np.void]] = {}
        self._alive = np.zeros(0, np.bool_)
        self._width = max((_width(step, tools.unit_bytes) for step in program.steps), default=1)
        self._state["footprints"] = self._footprints.ctypes.data
        self._state["footprint_count"] = _FOOTPRINTS

    def begin(
        self,
        chunk: ChunkState,
        numbers: Lanes,
        order: HappensBefore,
        scratch: Mapping[str, Lanes],
    ) -> None:
        """Take the next blocks.

        Args:
            chunk: Their chunk.
            numbers: The thread of each lane.
            order: The order of these.
            scratch: By state space, memory for an integer per unit.
        """
        self._order = order
        if self._alive.size == 0:
            self._checks = {
                index: record
                for index in self._checked
                if (record := self._check_of(index, chunk)) is not None
            }
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
            self._space(name)["scratch"] = array.ctypes.data
            for distance in ("block_bytes", "lane_bytes"):
                segment = chunk.context.record["segments"][SPACES.index(name)]
                self._space(name)[distance] = segment[distance]
        if tools.initialisation is not None:
            for name in tools.unit_bytes:
                self._space(name)["unwritten"] = tools.initialisation.unwritten(name).ctypes.data
        if tools.races is not None:
            state["store_times"] = tools.races.store_times.ctypes.data
            for name in ("global", "shared"):
                shadow, space = tools.races.shadow(name), self._space(name)
                space["written"] = shadow.written.ctypes.data
                space["updates"] = 0
                _point(space["reads"], shadow.read.recorded_accesses)
            shared = self._space("shared")
            shared["last_read"] = shared["last_update"] = 0
            shared["last_write"] = PENDING_COPY_BIT if tools.copies else 0
        self.refresh()

    def run_started(self, chunk: ChunkState, places: Lanes) -> None:
        """Let the machine code check; `places` are the instructions where lanes waited last."""
        self._state["places"] = places.ctypes.data
        addresses = [record.ctypes.data for record in self._checks.values()]
        chunk.context.check_first(list(self._checks), np.array(addresses, np.uint64))

    def refresh(self, has_marks: bool = False) -> None:
        """Take over what the tools noted; `has_marks` where some register's value is undefined."""
        state, races = self._state, self._tools.races
        state["has_marks"] = has_marks
        if races is None:
            return
        steps, levels = races.times
        state["times"] = len(steps)
        state["steps"], state["levels"] = steps.ctypes.data, levels.ctypes.data
        state["least_clock"] = self._block_clocks.min()
        for name in ("global", "shared"):
            updates = races.shadow(name).atomic_updates
            if updates is not None:
                _point(self._space(name)["updates"], updates.recorded_accesses)

    def noted(self, space: str, kind: str) -> None:
        """Take over that the tools noted an access of a kind."""
        # A strong store is kept among the updates.
        for latest in ("last_read",) if kind == "load" else ("last_write", "last_update"):
            last = self._space(space)
            last[latest] = max(int(last[latest]), self._order.time)

    def _make_room_for_footprints(self, lanes: int) -> None:
        """Allocate the arrays of all footprints, each of which may be of so many lanes."""
        sizes = {"mask": lanes // WARP_SIZE, "relative": lanes}
        sizes |= dict.fromkeys(("units", "lanes", "others", "warps"), lanes * self._width)
        self._footprint_memory = np.empty((_FOOTPRINTS, sum(sizes.values())), np.int32)
        starts = self._footprint_memory.ctypes.data + (
            self._footprint_memory.strides[0] * np.arange(_FOOTPRINTS)
        )
        for name, size in sizes.items():
            self._footprints[name] = starts
            starts = starts + size * self._footprint_memory.itemsize
        self._footprints["space"] = 0

    # --- Records -----------------------------------------------------------------------------

    def _space(self, name: str) -> NDArray[np.void]:
        number = SPACES.index(name)
        return self._spaces[number : number + 1].reshape(())

    def _check_of(self, index: int, chunk: ChunkState) -> NDArray[np.void] | None:
        """The check of an instruction; None for one that is always left to the tools."""
        step, record = self._steps[index], np.zeros((), CHECK)
        record["index"], record["state"] = index, self._state.ctypes.data
        record["uses_marks"] = index in self._uses_of_shuffles
        if step.row.kind in _ACCESSES:
            kind = _ACCESSES[step.row.kind]
            is_known = self._describe_access(record, index, step, chunk)
        elif step.row.kind == "barrier":
            kind, is_known = "barrier", self._opens_for_all(step)
        elif is_warp_barrier(step):
            kind, is_known = "warp barrier", self._orders_whole_warps(step)
        elif is_warp_collective(step):
            kind, is_known = "collective", _names_every_lane(step)
        else:
            kind, is_known = "other", step.row.kind in ("lanes", "warp")
        record["kind"] = CHECK_KINDS.index(kind)
        return record if is_known else None

    def _opens_for_all(self, step: DecodedInstruction) -> bool:
        """Whether a barrier opens where all threads are at it, and only orders what they did."""
        races = self._tools.races
        is_plain = step.instruction.guard is None and not is_partial(step)
        return is_plain and (races is None or not races.has_fences)

    def _orders_whole_warps(self, step: DecodedInstruction) -> bool:
        """Whether a barrier of a warp names all its lanes, and only orders what they did."""
        races = self._tools.races
        is_plain = step.instruction.guard is None and self._order.group == WARP_SIZE
        names_all = _is_every_lane(step.instruction.operands[0])
        return is_plain and names_all and (races is None or not races.has_fences)

    def _describe_access(
        self, record: NDArray[np.void], index: int, step: DecodedInstruction, chunk: ChunkState
    ) -> bool:
        """Fill in the check of an access; False where the machine code cannot check it."""
        row, tools, operands = step.row, self._tools, step.instruction.operands
        if row.space not in SPACES[:-1] or index in tools.copies:
            return False
        address = next(operand for operand in operands if isinstance(operand, Address))
        record["offset"], record["register"] = address.offset, -1
        if isinstance(address.base, Register):
            layout = chunk.context.layout
            record["register"] = layout.offsets[address.base.name]
            record["bits"] = layout.bits[address.base.name]
        else:
            record["offset"] += int(chunk.operands.address_base(address))
        record["size"] = bytes_moved(step.row)
        record["space"] = self._space(row.space).ctypes.data
        arrays = tools.bounds.permitted_arrays(index, chunk.segments[row.space], row.kind == "load")
        self._arrays.append(arrays)
        record["arrays"], record["array_count"] = arrays.ctypes.data, len(arrays)
        space, array = tools.origins.get(index, ("", -1))
        is_global = row.space == "global"
        known = array if is_global and space == "global" else None
        if tools.initialisation is not None and row.space in tools.unit_bytes:
            record["needs_written"] = known is None or known in tools.outputs
        if tools.races is not None and row.space in ("global", "shared"):
            is_constant = row.kind == "load" and known is not None and known not in self._may_write
            record["may_race"] = not is_constant
            record["level"] = tools.races.level(index)
            return is_constant or not tools.races.may_synchronize(index)
        return True


def _width(step: DecodedInstruction, unit_bytes: Mapping[str, int]) -> int:
    """Units that a lane touches in an access to a space; 1 for other instructions."""
    is_access = step.row.kind in _ACCESSES and step.row.space in unit_bytes
    return bytes_moved(step.row) // unit_bytes[step.row.space] if is_access else 1


def _names_every_lane(step: DecodedInstruction) -> bool:
    """Whether all lanes of a warp execute a collective together."""
    if not has_member_mask(step):
        return True
    return _is_every_lane(step.instruction.operands[-1])


def _is_every_lane(members: Operand) -> bool:
    return isinstance(members, Immediate) and members.bits & _EVERY_LANE == _EVERY_LANE


def _arrays_written(program: Program, tools: AccessChecks) -> Collection[int]:
    """The arrays of global memory that the kernel may write to, by their order."""
    written = set()
    for index, step in enumerate(program.steps):
        if step.row.kind in ("store", "atomic", "reduce") and step.row.space in (
            "global",
            "generic",
        ):
            space, array = tools.origins.get(index, ("", -1))
            if not space:
                return tools.writable
            if space == "global":
                written.add(array)
    return written & set(tools.writable)


def _point(pointers: NDArray[np.uint64], arrays: Sequence[NDArray[Any]]) -> None:
    pointers[: len(arrays)] = [array.ctypes.data for array in arrays]
