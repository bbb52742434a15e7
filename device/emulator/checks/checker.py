"""Watches a launch for the four tools: what a `Chunk` calls where a checker is given to it.

Lanes whose access is at fault are left out of it and the run goes on, so that all mistakes are
seen: a load gives them 0, a store is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks import barriers, memory_order
from memlab.device.emulator.checks.barriers import BarrierCheck, Parked
from memlab.device.emulator.checks.bounds import ArrayExtents, BoundsCheck
from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.initialisation import InitializationCheck
from memlab.device.emulator.checks.observations import (
    THREAD_BITS,
    Lanes,
    Observation,
    Observations,
    Site,
)
from memlab.device.emulator.checks.pointer_origin import PointerOrigin, find_pointer_origins
from memlab.device.emulator.checks.races import RaceCheck
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.checks.undefined_values import UndefinedShuffleValues, is_shuffle
from memlab.device.emulator.checks.watched_accesses import (
    AccessChecks,
    CheckedAccesses,
    ElementPositions,
)
from memlab.device.emulator.isa import macros
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.memory import GlobalMemory, Segment
from memlab.device.emulator.machine.operands import Operands, Source
from memlab.device.emulator.machine.partial_barriers import is_partial
from memlab.device.emulator.machine.threads import Grid, Threads
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Address, Immediate
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Dim3


class Checker:
    """The four tools over one launch, chunk after chunk."""

    def __init__(
        self,
        program: Program,
        grid: Grid,
        global_memory: GlobalMemory,
        extents: Mapping[str, ArrayExtents],
        inputs: Collection[str],
        outputs: Collection[str],
        tools: Collection[str],
    ) -> None:
        """Prepare a launch.

        Args:
            program: What runs.
            grid: Its geometry and arguments.
            global_memory: Its arrays.
            extents: By state space, where its arrays start and end, by rising address.
            inputs: Arrays that the launch says are only read.
            outputs: Arrays that hold nothing before the launch.
            tools: Those to check with; the others' mistakes are not looked for.
        """
        self._program, self._selected_tools = program, tools
        self._global_bytes = global_memory.data.size
        lines = [step.instruction.source_line for step in program.steps]
        self._observations = Observations(
            lines, {space: np.array([start for start, _ in e]) for space, e in extents.items()}
        )
        self._unit_bytes = {
            each: _narrowest_access_bytes(program, each) for each in ("global", "shared", "local")
        }
        meant = find_pointer_origins(program, global_memory, grid.parameters)
        read_only = [n for n, each in enumerate(global_memory.allocations) if each.name in inputs]
        bounds = BoundsCheck(self._observations, extents, meant, read_only)
        self._initialisation = None
        if "initcheck" in tools:
            self._initialisation = InitializationCheck(
                self._observations,
                global_memory,
                {
                    each: _widest_store_bytes(program, global_memory, meant, each)
                    for each in outputs
                },
                self._unit_bytes,
            )
        units = global_memory.data.size // self._unit_bytes["global"] + 1
        self._scratch = {"global": np.empty(units, np.int32)}
        self._races = None
        if "racecheck" in tools:
            self._races = RaceCheck(self._observations, program.steps, units)
        copies = [
            n
            for n, step in enumerate(program.steps)
            if macros.is_async_copy_store(step.instruction)
        ]
        self._tools = AccessChecks(
            bounds, self._initialisation, self._races, self._unit_bytes, frozenset(copies)
        )
        self._undefined: UndefinedShuffleValues | None = None
        self._group = 0
        if any(map(barriers.is_warp_barrier, program.steps)):
            self._group = WARP_SIZE
        if any(map(is_partial, program.steps)):
            self._group = grid.padded_threads
        self._blocks: list[Dim3] = []
        self._order = HappensBefore(0, 1, 0, 0)

    # --- What a chunk calls ------------------------------------------------------------------

    def begin(self, threads: Threads, operands: Operands, segments: Mapping[str, Segment]) -> None:
        """Take the blocks that run next."""
        self._threads = threads
        padded = threads.grid.padded_threads
        lane = np.arange(threads.lanes, dtype=np.int64)
        self._numbers = (len(self._blocks) + lane // padded << THREAD_BITS) | lane % padded
        self._blocks += [(int(x), int(y), int(z)) for x, y, z in threads.blocks]
        for space in ("shared", "local"):
            units = segments[space].data.size // self._unit_bytes[space] + 1
            self._scratch[space] = np.empty(units, np.int32)
        self._checked_accesses = CheckedAccesses(
            self._tools, threads, self._numbers, operands, segments, self._scratch
        )
        self._order = HappensBefore(threads.lanes, padded, self._group, self._order.time)
        publication = ReleaseAcquireOrder()
        if self._initialisation is not None:
            self._initialisation.begin(segments)
        if self._races is not None:
            units = segments["shared"].data.size // self._unit_bytes["shared"] + 1
            self._races.begin(threads, self._numbers, self._order, units)
            publication = self._races.release_acquire
        self.barriers = BarrierCheck(
            self._observations,
            self._program.steps,
            threads,
            self._numbers,
            operands,
            self._order,
            publication,
        )
        if "synccheck" in self._selected_tools and any(map(is_shuffle, self._program.steps)):
            self._undefined = UndefinedShuffleValues(
                self._observations, threads, self._numbers, operands, self.barriers
            )

    def open(self, parked: Parked) -> tuple[Parked, Parked]:
        """Say which waiting lanes go on, and which wait on."""
        return self.barriers.open(parked)

    def passes(self, index: int, mask: Lanes | None) -> bool:
        """Whether lanes, None for all, need not wait at an instruction where some may have to."""
        return self.barriers.passes(index, self._active(mask))

    def record_control_flow(self, index: int, lanes: Lanes | None) -> None:
        """Lanes, None for all, carry out a branch or an exit, at the end of the program too."""
        steps = self._program.steps
        if index < len(steps) and steps[index].row.kind == "branch":
            self.barriers.record_branch(index, lanes)
        else:
            self.barriers.record_exit(index, lanes)

    def together(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """What lanes of a warp compute together, watched."""
        if not barriers.is_warp_collective(step):
            return action

        def run(mask: Lanes | None) -> None:
            self.barriers.together(index, self._active(mask))
            action(mask)

        return run

    def follow(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """The action of an instruction, with what it does to values that are undefined."""
        return action if self._undefined is None else self._undefined.follow(index, step, action)

    def check_predicate(self, predicate: str, lanes: Lanes | None) -> None:
        """A predicate says of lanes, None for all, which way they go."""
        if self._undefined is not None:
            self._undefined.use((predicate,), lanes)

    def report_trap(self, index: int, mask: Lanes | None) -> None:
        """Lanes, None for all, stop the kernel; nothing else runs then."""
        threads = self._numbers[self._active(mask)]
        nowhere = np.zeros(len(threads), np.int64)
        self._observations.add("memcheck", "trap", "", nowhere, index, threads)

    def synchronization_action(self, step: DecodedInstruction) -> Action | None:
        """What an instruction that computes nothing does; None for one that may have to wait."""
        if barriers.is_warp_barrier(step):
            return None
        races, opcode = self._races, step.row.opcode
        if races is None:
            return _do_nothing
        if memory_order.is_fence(step):
            scope = memory_order.scope_of(step)
            return lambda mask: races.fence(self._active(mask), scope)
        if opcode == "cp.async.commit_group":
            return lambda mask: races.copies.commit(self._active(mask))
        if opcode.startswith("cp.async.wait"):
            but = None
            if opcode == "cp.async.wait_group":
                (count,) = step.instruction.operands
                assert isinstance(count, Immediate)
                but = count.bits
            return lambda mask: races.wait(self._active(mask), but)
        return _do_nothing

    def accessor(
        self, index: int, step: DecodedInstruction, operand: Address, sources: Sequence[Source]
    ) -> Callable[[Lanes | None], ElementPositions]:
        """How a memory instruction finds its elements; checks them each time it does.

        What it returns is as in `accesses`; lanes at fault are sent to memory of their own.
        """
        return self._checked_accesses.accessor(index, step, operand, sources)

    @property
    def memory_bytes(self) -> int:
        """What remembering every access to global memory takes, once all of it was touched."""
        units = self._global_bytes // self._unit_bytes["global"]
        races = 0 if self._races is None else 8 * (4 if self._group else 3)
        return units * (races + (self._initialisation is not None) + 4)

    # --- What was found ----------------------------------------------------------------------

    def observations(self) -> list[Observation]:
        """The mistakes seen by the chosen tools."""
        return [each for each in self._observations.all() if each.tool in self._selected_tools]

    def never_written(self, name: str) -> NDArray[np.int64]:
        """Row-major positions of an output's elements that nothing was stored to."""
        if self._initialisation is None:
            return np.zeros(0, np.int64)
        return self._initialisation.never_written(name)

    def place(self, spot: Site) -> tuple[int, Dim3, int]:
        """Source line, block and thread (in the order of lanes) of an instruction carried out."""
        steps = self._program.steps
        step = steps[min(spot.step, len(steps) - 1)]
        thread = spot.thread & ((1 << THREAD_BITS) - 1)
        return step.instruction.source_line, self._blocks[spot.thread >> THREAD_BITS], thread

    @staticmethod
    def is_same_warp(one: Site, other: Site) -> bool:
        """Whether two threads are of one warp."""
        return one.thread // WARP_SIZE == other.thread // WARP_SIZE

    # --- Within ------------------------------------------------------------------------------

    def _active(self, mask: Lanes | None) -> Lanes:
        return self._threads.alive if mask is None else mask


def _narrowest_access_bytes(program: Program, space: str) -> int:
    """Bytes of a program's narrowest access to a state space, 16 at most."""
    widths = [
        TYPE_BYTES[(step.row.to if step.row.kind == "load" else step.row.of)[0]]
        for step in program.steps
        if step.row.kind in ("load", "store", "atomic", "reduce")
        and step.row.space in (space, "generic")
    ]
    return min(widths, default=16)


def _widest_store_bytes(
    program: Program, memory: GlobalMemory, meant: Mapping[int, PointerOrigin], name: str
) -> int:
    """Bytes of the widest access that stores to an array what is wider than a byte; else 1."""
    places = {each.name: ("global", number) for number, each in enumerate(memory.allocations)}
    rows = [program.steps[index].row for index, array in meant.items() if array == places[name]]
    stored = [(TYPE_BYTES[row.of[0]], row.vector) for row in rows if row.kind == "store"]
    widths = [width * vector for width, vector in stored if width > 1]
    return max(widths, default=1)


def _do_nothing(mask: Lanes | None) -> None:
    return None
