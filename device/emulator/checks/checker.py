"""The execution policy of a checked launch: it tells the four tools of all that happens.

Lanes whose access is at fault are left out of it and the run goes on, so that all mistakes are
found: a load gives them 0, and their stores are lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks import memory_order
from memlab.device.emulator.checks.access import MemoryAccess
from memlab.device.emulator.checks.asynchronous.matrix_descriptors import (
    DescriptorField,
    find_spoiled_descriptors,
)
from memlab.device.emulator.checks.asynchronous.warpgroup_products import find_product_mistakes
from memlab.device.emulator.checks.barriers import BarrierCheck
from memlab.device.emulator.checks.bounds import ArrayExtents, BoundsCheck
from memlab.device.emulator.checks.happens_before import HappensBefore, RemoteAccesses
from memlab.device.emulator.checks.initialisation import InitializationCheck
from memlab.device.emulator.checks.member_bounds import MemberBounds, MemberObservation
from memlab.device.emulator.checks.memory_order import MemoryOrder
from memlab.device.emulator.checks.native_checks import AccessChecks, NativeChecks
from memlab.device.emulator.checks.observations import (
    Lanes,
    Observation,
    Observations,
    Site,
)
from memlab.device.emulator.checks.pointer_origin import PointerOrigin, find_pointer_origins
from memlab.device.emulator.checks.program_analysis import (
    analyze,
    find_watched_instructions,
    is_warp_barrier,
    is_warp_collective,
)
from memlab.device.emulator.checks.races import RaceCheck
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.checks.undefined_values import (
    UndefinedSources,
    UndefinedValues,
)
from memlab.device.emulator.codegen.check_layout import (
    INITCHECK,
    MEMCHECK,
    RACECHECK,
    THREAD_BITS,
)
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.emulator.isa.asynchronous.warpgroup import is_factor_load
from memlab.device.emulator.machine.access_watch import MemoryInstruction, WatchedAccess
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.observer import Action, ExecutionPolicy
from memlab.device.emulator.machine.scheduler import BarrierRelease, WaitingGroups
from memlab.device.emulator.machine.threads import Grid, cluster_peers, cluster_ranks
from memlab.device.emulator.program.program import DecodedInstruction, Program
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Immediate, Operand
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Dim3


class Checker(ExecutionPolicy):
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
            program: The kernel.
            grid: The launch geometry and arguments.
            global_memory: The arrays.
            extents: By state space, (start, end) of its arrays, by ascending address.
            inputs: Names of the arrays that the launch declares as read-only.
            outputs: Names of the arrays that are uninitialized before the launch.
            tools: The tools to check with.
        """
        self._program, self._selected_tools = analyze(program), tools
        self._watched = find_watched_instructions(program, frozenset(tools))
        self._memory, self._overruns = global_memory, dict[tuple[int, int], int]()
        self._observations = Observations(
            self._program.lines,
            {space: np.array([start for start, _ in e]) for space, e in extents.items()},
        )
        origins = find_pointer_origins(program, global_memory, grid.parameters)
        numbers = {array.name: number for number, array in enumerate(global_memory.allocations)}
        self._origins, self._numbers_by_name = origins, numbers
        read_only = {numbers[name] for name in inputs if name in numbers}
        self._bounds = BoundsCheck(
            self._observations, extents, origins, read_only, global_memory.heap
        )
        self._initialisation = None
        if "initcheck" in tools:
            widths = {
                name: _widest_store_bytes(program, origins, ("global", numbers[name]))
                for name in outputs
            }
            self._initialisation = InitializationCheck(
                self._observations,
                global_memory,
                widths,
                self._program.unit_bytes,
                self._program.early_loads,
            )
        units = global_memory.data.size // self._program.unit_bytes["global"]
        self._scratch = {"global": np.empty(units, np.int32)}
        self._races = None
        if "racecheck" in tools:
            self._races = RaceCheck(self._observations, self._program, units)
        checks = AccessChecks(
            self._bounds,
            self._initialisation,
            self._races,
            origins,
            frozenset(numbers[name] for name in outputs),
            frozenset(numbers.values()) - read_only,
        )
        self._members = MemberBounds(program)
        self._watched |= self._members.subscripts.keys()
        self._products = find_product_mistakes(program) if "synccheck" in tools else {}
        self._watched |= self._products.keys()
        self._descriptors = find_spoiled_descriptors(program) if "memcheck" in tools else {}
        self._watched |= self._descriptors.keys()
        interpreted = {*self._members.accesses, *self._products, *self._descriptors}
        self._native = NativeChecks(program, tools, checks, interpreted)
        self.endless_reason = ""
        self._undefined: UndefinedValues | None = None
        self._group = 0
        if self._program.has_warp_barriers:
            self._group = WARP_SIZE
        if self._program.has_partial_barriers:
            self._group = grid.padded_threads
        self._blocks: list[Dim3] = []
        self._order = HappensBefore(0, 1, 0, 0)
        self._remote: RemoteAccesses | None = None

    # --- Hooks of the observer ---------------------------------------------------------------

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The accesses to memory, and what the selected tools follow besides."""
        return self._watched

    def chunk_started(self, chunk: Chunk) -> None:
        """Take the blocks that run next."""
        threads, segments = chunk.threads, chunk.segments
        padded = threads.grid.padded_threads
        lane = np.arange(threads.lanes, dtype=np.int64)
        self._numbers = (len(self._blocks) + lane // padded << THREAD_BITS) | lane % padded
        self._blocks += [(int(x), int(y), int(z)) for x, y, z in threads.blocks]
        for space in ("shared", "local"):
            units = segments[space].data.size // self._program.unit_bytes[space]
            self._scratch[space] = np.empty(units, np.int32)
        self._cluster_ranks = cluster_ranks(threads.blocks, threads.grid.cluster)[lane // padded]
        clusters = None
        if threads.grid.cluster_blocks > 1:
            clusters = cluster_peers(threads.blocks, threads.grid.cluster)[lane // padded, 0]
        self._report_ended_blocks()
        self._order = HappensBefore(threads.lanes, padded, self._group, self._order.time, clusters)
        if clusters is not None:
            self._remote = RemoteAccesses(threads)
        release_acquire = ReleaseAcquireOrder()
        if self._initialisation is not None:
            self._initialisation.begin(segments)
        if self._races is not None:
            units = segments["shared"].data.size // self._program.unit_bytes["shared"]
            self._races.begin(threads, self._numbers, self._order, units)
            release_acquire = self._races.release_acquire
        self._barriers = BarrierCheck(
            self._observations,
            self._program,
            threads,
            self._numbers,
            chunk.operands,
            self._order,
            release_acquire,
        )
        self._members.begin(threads.lanes)
        self._operands = chunk.operands
        self._barriers.schedule = chunk.scheduler
        self._barriers.participants = chunk.warp_synchronization
        self._native.begin(chunk, self._numbers, self._order, self._scratch, self._barriers.places)
        sources = UndefinedSources(
            "synccheck" in self._selected_tools and self._program.has_shuffles,
            self._program.early_loads if self._initialisation is not None else (),
            self._initialisation,
        )
        if sources.shuffles or sources.loads:
            self._undefined = UndefinedValues(
                self._observations,
                threads,
                self._numbers,
                chunk.operands,
                self._barriers,
                sources,
            )

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Watch the instructions of whole warps, and follow undefined values through all."""
        if step.row.kind == "arrive":
            action = partial(self._barriers.arrive, index)
        elif step.row.kind == "nothing":
            action = self._ordering(step)
        elif index in self._members.subscripts:
            action = self._note_subscript(index, step, action)
        elif step.row.kind == "trap":
            action = partial(self._note_trap, index, action)
        elif step.row.kind == "heap":
            action = self._heap_action(index, step, action)
        if "synccheck" in self._selected_tools and is_warp_collective(step):
            action = self._watch_collective(index, action)
        if self._races is not None and index in self._program.exchanged_loads:
            action = self._note_exchange(index, step, action)
        if self._undefined is not None:
            action = self._undefined.follow(index, step, action)
        if index in self._products:
            action = self._note_product(index, action)
        if index in self._descriptors:
            action = self._note_descriptor(index, action)
        return partial(self._run, action)

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Tell the tools of an access by permitted lanes."""
        instruction, segment = access.instruction, access.segment
        if segment.name not in self._program.unit_bytes:
            return
        unit_bytes = self._program.unit_bytes[segment.name]
        index, lanes = instruction.index, np.flatnonzero(access.mask)
        address = access.address[lanes]
        position = address - segment.origin
        if access.base is not None:
            position += access.base[lanes]
        if instruction.size == unit_bytes and not instruction.is_box:
            units = position // unit_bytes
        else:
            each = instruction.rows[:, None] + np.arange(0, instruction.touched, unit_bytes)
            units = (position[:, None] + each.reshape(-1)) // unit_bytes

        def values() -> Lanes:
            stored = [
                np.broadcast_to(read(), len(self._numbers))[lanes] for read in instruction.sources
            ]
            return np.ascontiguousarray(np.stack(stored, axis=1)).view(np.uint8)

        permitted = MemoryAccess(
            step=index,
            kind=instruction.kind,
            segment=segment,
            lanes=lanes,
            threads=self._numbers[lanes],
            address=address,
            units=units.reshape(-1),
            element_bytes=instruction.element_bytes,
            unit_bytes=unit_bytes,
            values=values if instruction.sources else None,
        )
        if self._initialisation is not None and self._native.is_left_to(INITCHECK):
            self._initialisation.access(permitted)
        if instruction.touched > instruction.size:
            self._note_overrun(instruction, int(address[0]))
        is_shared = segment.name != "local"
        if self._races is not None and is_shared and self._native.is_left_to(RACECHECK):
            self._races.access(permitted, index in self._program.async_copies)
            self._native.noted(segment.name, instruction.kind)
        if access.ranks is not None and self._remote is not None:
            self._remote.note(access.ranks[lanes], lanes, address, index, self._order)

    def control_reached(self, index: int, mask: Lanes, taken: Lanes) -> None:
        """Lanes decide by a guard, which must be defined, whether they take a branch or exit."""
        steps = self._program.steps
        step = steps[index] if index < len(steps) else None
        guard = step.instruction.guard if step is not None else None
        if guard is not None and self._undefined is not None:
            self._undefined.use((guard,), mask)
        if not taken.any():
            return
        if step is None or step.row.kind == "exit":
            self._barriers.record_exit(index, taken)
        elif step.row.kind == "branch":
            self._barriers.record_branch(index, taken)

    # --- Decisions of the policy -------------------------------------------------------------

    def barrier_release(self, default: BarrierRelease | None) -> BarrierRelease:
        """Barriers open when all their threads wait at them."""
        return self._open_barriers

    def holds_lanes(self, step: DecodedInstruction) -> bool:
        """Whether an instruction is `__syncwarp`."""
        return is_warp_barrier(step)

    def may_pass(self, index: int, mask: Lanes) -> bool:
        """Whether all the lanes that a `__syncwarp` names have reached it."""
        passes = self._barriers.passes(index, mask)
        self._refresh()
        return passes

    def permitted_lanes(self, access: WatchedAccess) -> Lanes:
        """The lanes whose access is inside its array, aligned and allowed; others are reported."""
        instruction, mask = access.instruction, access.mask
        if not self._native.is_left_to(MEMCHECK):
            return mask
        first, size = instruction.extent
        if instruction.index in self._members.accesses:
            space = access.segment.name
            mask = mask & ~self._members.leaving(instruction.index, space, mask, self._numbers)
        return self._bounds.permitted_lanes(
            instruction.index,
            access.segment,
            access.address + first if first else access.address,
            mask,
            self._numbers,
            size,
            instruction.kind == "load",
            instruction.alignment,
            sized=not instruction.is_box,
        )

    def wait_is_endless(self, index: int, mask: Lanes, reason: str) -> None:
        """Report a wait for what never comes; nothing else runs then."""
        self.endless_reason = reason
        if "synccheck" in self._selected_tools:
            threads = self._numbers[mask]
            nowhere = np.zeros(len(threads), np.int64)
            self._observations.add("synccheck", "endless wait", "", nowhere, index, threads)

    @property
    def memory_bytes(self) -> int:
        """Bytes to remember every access to global memory, once all of it was touched."""
        units = self._memory.data.size // self._program.unit_bytes["global"]
        races = 0 if self._races is None else 8 * (4 if self._group else 3)
        return units * (races + (self._initialisation is not None) + 4)

    # --- Results -----------------------------------------------------------------------------

    def observations(self) -> list[Observation]:
        """The mistakes that the selected tools found."""
        self._report_ended_blocks()
        return [
            observation
            for observation in self._observations.all()
            if observation.tool in self._selected_tools
        ]

    def member_observations(self) -> list[MemberObservation]:
        """The accesses that leave an array member of a structure, where subscripts name it."""
        return self._members.observations()

    def never_written(
        self, name: str, padding: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Row-major positions of an output's elements that were never stored to.

        Args:
            name: The output.
            padding: Which bytes of an element need not be written; None for none.
        """
        if self._initialisation is None:
            return np.zeros(0, np.int64)
        return self._initialisation.never_written(name, padding)

    def leaks(self) -> tuple[int, int]:
        """The allocations of the heap that are not freed, and their bytes."""
        heap = self._memory.heap
        return (0, 0) if heap is None else (heap.allocations, heap.allocated_bytes)

    def overruns(self) -> dict[tuple[int, int], int]:
        """The bytes that writes of boxes reach behind rows of their tensors, inside the array.

        They are by the instruction and the number of the array.
        """
        return self._overruns

    def writes_to(self, name: str) -> frozenset[int]:
        """The instructions that may write to an array of global memory."""
        array = ("global", self._numbers_by_name[name])
        return frozenset(
            index
            for index in self._program.global_stores
            if self._origins.get(index, array) == array
        )

    def place(self, site: Site) -> tuple[int, Dim3, int]:
        """The source line, the block and the thread (in lane order) of a site."""
        step = self._program.steps[site.step]
        thread = site.thread & ((1 << THREAD_BITS) - 1)
        return step.instruction.source_line, self._blocks[site.thread >> THREAD_BITS], thread

    def memory_order(self, site: Site) -> MemoryOrder:
        """The memory order of the access of a site."""
        return self._program.memory_orders[site.step]

    def is_async_copy(self, site: Site) -> bool:
        """Whether a site is the arrival of an asynchronous copy in shared memory."""
        return site.step in self._program.async_copies

    def spoiled_field(self, site: Site) -> DescriptorField:
        """The field of a descriptor that the rank of a block has reached at a site."""
        return self._descriptors[site.step].field

    def is_of_product(self, site: Site) -> bool:
        """Whether a site loads a factor of `wgmma`."""
        return is_factor_load(self._program.steps[site.step].row.opcode)

    @staticmethod
    def is_same_warp(first: Site, second: Site) -> bool:
        """Whether the threads of two sites belong to the same warp."""
        return first.thread // WARP_SIZE == second.thread // WARP_SIZE

    def _open_barriers(self, waiting: WaitingGroups) -> Lanes:
        going = self._barriers.open(waiting)
        self._refresh()
        return going

    def _report_ended_blocks(self) -> None:
        """Report accesses of the last chunk to blocks that may have ended before."""
        if self._remote is None or self._barriers.schedule.live.any():
            return
        release_acquire = None if self._races is None else self._races.release_acquire
        for step, address, lanes in self._remote.to_ended_blocks(
            self._order, release_acquire, self._numbers
        ):
            threads = self._numbers[lanes]
            self._observations.add("memcheck", "ended block", "shared", address, step, threads)
        self._remote = None

    # --- Internals ---------------------------------------------------------------------------

    def _run(self, action: Action, mask: Lanes) -> None:
        action(mask)
        self._refresh()

    def _refresh(self) -> None:
        """Tell the machine code what the tools have noted."""
        self._native.refresh(self._undefined is not None and self._undefined.has_marks)

    def _fence(self, races: RaceCheck, scope: int, mask: Lanes) -> None:
        """Lanes, as a mask, execute a fence of a scope."""
        races.fence(mask, scope)
        if scope == memory_order.DEVICE_SCOPE:
            self._order.release_to_cluster(mask, self._program.has_relaxed_arrivals)

    def _ordering(self, step: DecodedInstruction) -> Action:
        """The action of an instruction that computes nothing, such as a fence."""
        races, opcode = self._races, step.row.opcode
        if races is not None and memory_order.is_fence(step):
            return partial(self._fence, races, memory_order.scope_of(step))
        if races is not None and opcode == "fence.mbarrier_init":
            # It releases initialisations of mbarriers alone; here, whatever its thread has stored.
            return lambda mask: self._order.release_to_cluster(mask, cumulative=False)
        if races is not None and opcode == "cp.async.commit_group":
            return races.copies.commit
        if races is not None and opcode.startswith("fence.proxy.async"):
            return races.proxy_fence
        if races is not None and opcode.startswith("fence.proxy.tensormap"):
            return partial(races.map_fence, ".acquire" in step.instruction.opcode)
        if races is not None and opcode == "cp.async.bulk.commit_group":
            return races.bulk.reads.commit
        if races is not None and opcode.startswith("cp.async.bulk.wait_group"):
            (count,) = step.instruction.operands
            assert isinstance(count, Immediate)
            return partial(races.wait_for_reads, but=count.bits)
        if races is not None and opcode.startswith("cp.async.wait"):
            pending_groups = None
            if opcode == "cp.async.wait_group":
                (count,) = step.instruction.operands
                assert isinstance(count, Immediate)
                pending_groups = count.bits
            return lambda mask: races.wait(mask, pending_groups)
        return lambda mask: None

    def _note_overrun(self, instruction: MemoryInstruction, address: int) -> None:
        """Keep that a box is written up to bytes of its array that lie behind its tensor."""
        end = address + int(instruction.rows[0]) + instruction.size
        array = self._memory.array_number(end)
        if array is not None:
            of = self._memory.allocations[array]
            written = min(instruction.touched - instruction.size, of.address + of.size - end)
            self._overruns[instruction.index, array] = written

    def _note_trap(self, index: int, action: Action, mask: Lanes) -> None:
        """Lanes stop the kernel; nothing else runs then."""
        threads = self._numbers[mask]
        nowhere = np.zeros(len(threads), np.int64)
        self._observations.add("memcheck", "trap", "", nowhere, index, threads)
        action(mask)

    def _heap_action(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Check a call of `free`; what a call of `malloc` gives is new memory, not yet written."""
        *to, source = step.instruction.operands

        def values(operand: Operand) -> Lanes:
            value = np.broadcast_to(self._operands.read(operand, "u64"), len(self._numbers))
            return value.astype(np.int64)

        def free(mask: Lanes) -> None:
            action(self._bounds.permitted_frees(index, values(source), mask, self._numbers))

        def allocate(mask: Lanes) -> None:
            sizes = values(source)[mask]
            action(mask)
            for address, size in zip(values(to[0])[mask].tolist(), sizes.tolist(), strict=True):
                if address:
                    self._begin_allocation(address - GLOBAL_BASE, size)

        return allocate if to else free

    def _begin_allocation(self, start: int, size: int) -> None:
        """Take bytes of global memory as new."""
        unit = self._program.unit_bytes["global"]
        units = slice(start // unit, -(-(start + size) // unit))
        if self._initialisation is not None:
            self._initialisation.unwritten("global")[units] = True
        if self._races is not None:
            self._races.shadow("global").forget(units)

    def _note_product(self, index: int, action: Action) -> Action:
        """Report lanes that break the rules of a product of their warpgroup."""
        mistake = self._products[index]

        def run(mask: Lanes) -> None:
            threads = self._numbers[mask]
            nowhere, product = (
                np.zeros(len(threads), np.int64),
                np.full(len(threads), mistake.product),
            )
            self._observations.add(
                "synccheck", mistake.kind, "", nowhere, index, threads, product, threads
            )
            action(mask)

        return run

    def _note_descriptor(self, index: int, action: Action) -> Action:
        """Report lanes in whose descriptor the rank of their block reaches a field."""
        spoiled = self._descriptors[index]

        def run(mask: Lanes) -> None:
            descriptors = self._operands.read(spoiled.descriptor, "u64")
            reached = descriptors & np.uint64(spoiled.bits) != 0
            used = descriptors & np.uint64(spoiled.unless) == 0
            threads = self._numbers[mask & (self._cluster_ranks > 0) & reached & used]
            nowhere = np.zeros(len(threads), np.int64)
            self._observations.add("memcheck", "rank in descriptor", "", nowhere, index, threads)
            action(mask)

        return run

    def _note_subscript(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Keep the index that a subscript of an array member passes on."""

        def run(mask: Lanes) -> None:
            self._members.subscript(index, step, self._operands, mask)
            action(mask)

        return run

    def _note_exchange(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Keep which lanes exchange values that they have read."""
        races = self._races
        assert races is not None

        def run(mask: Lanes) -> None:
            races.exchanges.execute(index, step, self._operands, mask, self._order.time)
            action(mask)

        return run

    def _watch_collective(self, index: int, action: Action) -> Action:
        """Check which lanes execute an instruction of their warp together."""

        def run(mask: Lanes) -> None:
            self._barriers.together(index, mask)
            action(mask)

        return run


def _widest_store_bytes(
    program: Program, origins: Mapping[int, PointerOrigin], array: PointerOrigin
) -> int:
    """Bytes of the widest store to an array with elements wider than a byte; 1 without any."""
    rows = [program.steps[index].row for index, origin in origins.items() if origin == array]
    stored = [(TYPE_BYTES[row.of[0]], row.vector) for row in rows if row.kind == "store"]
    widths = [width * vector for width, vector in stored if width > 1]
    return max(widths, default=1)
