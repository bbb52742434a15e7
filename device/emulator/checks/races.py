"""racecheck: two accesses of different threads to one unit, one of them a write, without order.

Each access is compared with those that the shadow memory keeps. Whether two are ordered follows
from the happens-before order of their threads, not from the order in which the emulator happens to
execute them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.access import MemoryAccess
from memlab.device.emulator.checks.asynchronous.async_copies import AsyncCopies
from memlab.device.emulator.checks.asynchronous.bulk_copies import BulkCopies
from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.lane_exchanges import LaneExchanges
from memlab.device.emulator.checks.memory_order import are_morally_strong
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.program_analysis import ProgramAnalysis
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.checks.shadow_memory import (
    THREAD_AND_WARP_ID_SHIFTS,
    THREAD_ID_SHIFTS,
    ShadowMemory,
)
from memlab.device.emulator.codegen.check_layout import (
    BLOCK_SCOPE_BIT,
    LEVEL_MASK,
    PENDING_COPY_BIT,
    STRONG,
    THREAD_BITS,
    THREAD_MASK,
    TIME_SHIFT,
    VOLATILE,
    WEAK,
)
from memlab.device.emulator.isa.mbarrier import PHASE_SHIFT
from memlab.device.emulator.machine.threads import Threads

_FIRST_TIMES = 4096  # of accesses, for which there is room at first
_REVERSED_HAZARD = {"RAW": "WAR", "WAR": "RAW", "WAW": "WAW"}
"""The name of a hazard when the other access is reported first."""


class RaceCheck:
    """Follows the accesses to shared and global memory.

    Attributes:
        id_shifts: The thread-number shifts of the shadow memory (`ShadowMemory`).
        copies: The pending asynchronous copies.
        bulk: The pending bulk copies.
        exchanges: The shuffles and votes into which loaded values went.
        release_acquire: The order made by fences and atomics.
        times: By time, the instruction and the packed memory order of an access.
        store_times: By lane, the time of its last store.
        order: The happens-before order of the current chunk.
    """

    def __init__(
        self, observations: Observations, program: ProgramAnalysis, global_units: int
    ) -> None:
        """Begin a launch whose program touches up to `global_units` units of global memory."""
        self._observations, self._program = observations, program
        self.release_acquire = ReleaseAcquireOrder()
        has_warp_barriers = program.has_warp_barriers or program.has_partial_barriers
        self.id_shifts = THREAD_AND_WARP_ID_SHIFTS if has_warp_barriers else THREAD_ID_SHIFTS
        self._global_shadow = ShadowMemory(global_units, self.id_shifts)
        self.times = np.zeros(_FIRST_TIMES, np.int32), np.zeros(_FIRST_TIMES, np.int8)

    def begin(
        self, threads: Threads, numbers: Lanes, order: HappensBefore, shared_units: int
    ) -> None:
        """Take the next blocks.

        Args:
            threads: The threads of the blocks.
            numbers: The thread of each lane.
            order: The happens-before order of the blocks' threads.
            shared_units: The units of shared memory of all blocks.
        """
        self.order, self._numbers = order, numbers
        self._lanes_per_block = threads.grid.padded_threads
        self._first_block = int(numbers[0]) >> THREAD_BITS
        self._shared_shadow = ShadowMemory(shared_units, self.id_shifts)
        self.copies = AsyncCopies(threads.lanes)
        padding = 16 // self._program.unit_bytes["shared"]  # behind the last block's memory
        block_units = (shared_units - padding) // len(threads.blocks)
        self.bulk = BulkCopies(threads.lanes, block_units)
        self._fence_times = np.full((2, threads.lanes), -1, np.int64)  # by scope
        self._map_fence_times = np.full((2, threads.lanes), -1, np.int64)
        self.store_times = np.full(threads.lanes, -1, np.int64)
        self.release_acquire.begin()
        loads, steps = self._program.exchanged_loads, self._program.steps
        self.exchanges = LaneExchanges(loads, len(steps), threads.lanes)

    def shadow(self, space: str) -> ShadowMemory:
        """The shadow memory of shared or global memory."""
        return self._shared_shadow if space == "shared" else self._global_shadow

    def fence(self, lanes: Lanes, scope: int) -> None:
        """Note a fence of lanes, as a mask, of scope `DEVICE_SCOPE` or `BLOCK_SCOPE`."""
        self._fence_times[scope, lanes] = self.order.time

    def wait(self, lanes: Lanes, but: int | None) -> None:
        """Lanes, as a mask, wait for their copies, as in `AsyncCopies.complete`.

        From then on, a completed copy counts as a store at that time.
        """
        units, marks = self.copies.complete(lanes, but)
        unchanged = self._shared_shadow.written[units] == marks
        units, marks = units[unchanged], marks[unchanged]
        steps, _ = self._steps_and_orders(marks)
        for step in np.unique(steps).tolist():
            self._advance_clock(step, WEAK)
            copied = steps == step
            now = self.order.time << TIME_SHIFT | marks[copied] & THREAD_MASK
            self._shared_shadow.written[units[copied]] = now

    def proxy_fence(self, lanes: Lanes) -> None:
        """Note a proxy fence of lanes, as a mask."""
        self.bulk.fence_times[lanes] = self.order.time

    def map_fence(self, acquires: bool, lanes: Lanes) -> None:
        """Note a fence of lanes, as a mask, that releases or acquires tensor maps."""
        self._map_fence_times[int(acquires), lanes] = self.order.time

    def wait_for_reads(self, lanes: Lanes, but: int) -> None:
        """Lanes, as a mask, wait for their bulk copies from shared memory, all groups but so many.

        From then on, a completed one counts as a read at that time.
        """
        units, marks = self.bulk.reads.complete(lanes, but)
        steps, _ = self._steps_and_orders(marks)
        for step in np.unique(steps).tolist():
            self._advance_clock(step, WEAK)
            copied = steps == step
            now = self.order.time << TIME_SHIFT | marks & THREAD_MASK
            for entries in self._shared_shadow.read.recorded_accesses:
                same = copied & (entries[units] == marks)
                entries[units[same]] = now[same]

    def _follow_barriers(self, access: MemoryAccess) -> None:
        """Follow the barriers at which bulk copies complete."""
        completes = access.step in self._program.bulk_completions
        if not completes and access.step not in self._program.barrier_tests:
            return
        barriers = access.units[:: access.width]
        start = barriers[:, None] * access.unit_bytes + np.arange(access.element_bytes)
        words = access.segment.data[start].view(np.uint64)[:, 0]
        phases = (words >> np.uint64(PHASE_SHIFT)).astype(np.int64)
        if completes:
            self.bulk.attach(access.lanes, barriers, phases)
            return
        for units, marks in self.bulk.complete(barriers.tolist(), phases.tolist()):
            same = self._shared_shadow.written[units] == marks
            self._shared_shadow.written[units[same]] = marks[same] & ~PENDING_COPY_BIT

    def access(self, access: MemoryAccess, is_async_copy: bool) -> None:
        """Check an access, and keep it for later ones."""
        if access.space == "shared":
            self._follow_barriers(access)
        shadow, order = self.shadow(access.space), self._access_order(access)
        level = order & LEVEL_MASK
        self._advance_clock(access.step, order)
        entries = self.order.time << TIME_SHIFT | access.spread(access.threads)
        updated = [] if shadow.atomic_updates is None else shadow.atomic_updates.recorded_accesses
        if self._program.has_fences:
            self._acquire_and_release(access, level)
        if access.kind == "load":
            races = self._compare("RAW", access, order, [shadow.written, *updated])
            if access.step in self._program.noncoherent_loads:
                self._report_stale(access, races, [shadow.written, *updated[:1]])
            if access.step in self._program.map_reads:
                self._report_unfenced_maps(access, races, shadow.written)
            is_shared = access.space == "shared"
            if access.step in self._program.async_reads and is_shared:
                self._report_unfenced(access, races, shadow.written)
            if access.step in self._program.bulk_reads and is_shared:
                entries |= PENDING_COPY_BIT
                self.bulk.reads.issue(access.units, entries, access.spread(access.lanes))
            shadow.read.add(access.units, entries)
            return
        conflicts = self._compare("WAR", access, order, shadow.read.recorded_accesses)
        self._units_read = access.units[conflicts]
        self._compare("WAW", access, order, [shadow.written, *updated])
        if level == STRONG:
            if order & BLOCK_SCOPE_BIT and access.space == "global":
                self._compare_blocks(access, entries)
            shadow.update(access.units, entries)
        else:
            shadow.written[access.units] = entries
            self._compare_lanes(access, entries, shadow.written[access.units])
            if is_async_copy:
                shadow.written[access.units] |= PENDING_COPY_BIT
                lanes = access.spread(access.lanes)
                copies = self.bulk if access.step in self._program.bulk_writes else self.copies
                copies.issue(access.units, PENDING_COPY_BIT | entries, lanes)
        if access.kind == "store":
            self.store_times[access.lanes] = self.order.time

    # --- Comparison with earlier accesses ----------------------------------------------------

    def _compare(
        self, hazard: str, access: MemoryAccess, order: int, kept: Sequence[Lanes]
    ) -> Lanes:
        """Report earlier accesses of other threads that are not ordered before these.

        Args:
            hazard: The name of the hazard.
            access: These accesses.
            order: Their packed memory order.
            kept: Several earlier accesses to each unit, as arrays of shape (units,).

        Returns:
            The positions among the units with a conflict, possibly twice.
        """
        found = np.array([entries[access.units] for entries in kept])
        concurrent = np.flatnonzero(self._may_be_concurrent(access, found))
        positions, earlier = concurrent % len(access.units), found.reshape(-1)[concurrent]
        if not positions.size:
            return positions
        races = self._are_unordered(access, order, positions, earlier)
        if hazard == "WAR":
            races &= ~self._is_exchanged(access, positions, earlier)
        if hazard == "WAW":
            races &= ~self._is_same_value(access, positions, earlier)
        positions, earlier = positions[races], earlier[races]
        self._report_race(hazard, access, positions, earlier)
        return positions

    def _may_be_concurrent(self, access: MemoryAccess, earlier: Lanes) -> Lanes:
        """Whether another thread made an earlier access, later than all that this one knows."""
        clock, threads = self.order.block_clock[access.lanes], access.spread(access.threads)
        concurrent = earlier > access.spread(clock << TIME_SHIFT | THREAD_MASK)
        differing = (earlier ^ threads) & THREAD_MASK
        if access.space == "global" or self.order.clusters is not None:
            # The clocks say nothing about other blocks.
            concurrent |= (earlier != 0) & (differing >> THREAD_BITS != 0)
        return np.asarray(concurrent & ((differing != 0) | (earlier >= PENDING_COPY_BIT)))

    def _are_unordered(
        self, access: MemoryAccess, order: int, positions: Lanes, earlier: Lanes
    ) -> Lanes:
        """Whether nothing orders the earlier access at each position before this one."""
        _, orders = self._steps_and_orders(earlier)
        race = ~self._is_ordered(access, positions, earlier)
        if order & LEVEL_MASK != WEAK:
            threads = access.threads[access.lanes_of_units(positions)]
            in_other_block = (earlier & THREAD_MASK ^ threads) >> THREAD_BITS != 0
            race &= ~are_morally_strong(orders, order, in_other_block)
        updates = self.shadow(access.space).atomic_updates
        if updates is not None:
            # A thread that reads the last ticket of a counter knows that all others were drawn.
            atomic = np.flatnonzero(race & (orders & LEVEL_MASK == STRONG))
            last = updates.last[access.units[positions[atomic]]]
            steps, _ = self._steps_and_orders(last)
            race[atomic] = ~(
                self._program.returning_atomics[steps]
                & self._is_ordered(access, positions[atomic], last)
            )
        return np.asarray(race)

    def _is_ordered(self, access: MemoryAccess, positions: Lanes, earlier: Lanes) -> Lanes:
        """Whether the earlier access at each position comes before this one in every execution."""
        lanes, threads = (
            access.lanes[access.lanes_of_units(positions)],
            access.threads[access.lanes_of_units(positions)],
        )
        other_threads, times = earlier & THREAD_MASK, earlier >> TIME_SHIFT
        ordered = np.zeros(len(positions), np.bool_)
        same_block = np.flatnonzero(other_threads >> THREAD_BITS == threads >> THREAD_BITS)
        others = self._chunk_lanes(other_threads[same_block])
        clocks = self.order.pairwise_clock(lanes[same_block], others)
        clocks[others == lanes[same_block]] = self.order.time
        ordered[same_block] = times[same_block] <= clocks
        if self.order.clusters is not None:
            others = self._chunk_lanes(other_threads)
            near = np.flatnonzero(~ordered & (others >= 0) & (others < len(self._numbers)))
            ordered[near] = self.order.clusters.knows(lanes[near], others[near], times[near])
        if self._program.has_fences:
            rest = np.flatnonzero(~ordered)
            known = self.release_acquire.acquired_times(threads[rest], other_threads[rest])
            ordered[rest] = times[rest] <= known
        return ordered

    def _is_exchanged(self, access: MemoryAccess, positions: Lanes, earlier: Lanes) -> Lanes:
        """Whether the read at each position went into an exchange with the lane that now writes."""
        own = access.lanes_of_units(positions)
        steps, _ = self._steps_and_orders(earlier)
        return self.exchanges.order(
            access.lanes[own],
            access.threads[own],
            earlier & THREAD_MASK,
            steps,
            earlier >> TIME_SHIFT,
        )

    def _is_same_value(self, access: MemoryAccess, positions: Lanes, earlier: Lanes) -> Lanes:
        """Whether a store at each position stores the same bytes as an earlier store.

        Compute Sanitizer does not report such writes by default. If other threads read the unit
        meanwhile, they are reported: the bytes may be equal only in the emulator, in which all
        threads read before one writes.
        """
        if access.kind != "store" or access.values is None:
            return np.zeros(len(positions), np.bool_)
        unit = access.unit_bytes
        old = access.segment.data.reshape(-1, unit)
        new = access.values().reshape(-1, unit)
        equal = (old[access.units[positions]] == new[positions]).all(axis=1)
        steps, _ = self._steps_and_orders(earlier)
        return np.asarray(
            equal
            & self._program.stores[steps]
            & ~np.isin(access.units[positions], self._units_read)
        )

    def _report_stale(self, access: MemoryAccess, races: Lanes, written: Sequence[Lanes]) -> None:
        """Report loads through the read-only cache of what the launch wrote before, in any order.

        The cache is not coherent with stores of the launch, so neither a barrier nor a fence
        helps (PTX ISA, "ld.global.nc"). A load that comes before the store is right.

        Args:
            access: The loads.
            races: The positions among its units that were reported as races.
            written: The last writes to each unit, as arrays of shape (units,).
        """
        earlier = np.maximum.reduce([entries[access.units] for entries in written])
        earlier[races] = 0
        stale = np.flatnonzero(earlier)
        self._report_race("stale read", access, stale, earlier[stale])

    def _report_unfenced(self, access: MemoryAccess, races: Lanes, written: Lanes) -> None:
        """Report what the async proxy reads that threads stored, without a proxy fence behind.

        The thread that stored or the one that reads executes it.

        Args:
            access: The reads, of bulk copies or of `wgmma`.
            races: The positions among its units that were reported as races.
            written: The last store to each unit.
        """
        earlier = written[access.units]
        earlier[races] = 0
        steps, _ = self._steps_and_orders(earlier)
        times = (earlier & ~PENDING_COPY_BIT) >> TIME_SHIFT
        stored = (earlier != 0) & ~np.isin(steps, list(self._program.bulk_writes))
        fences, own = self.bulk.fence_times, access.spread(access.lanes)
        writers = np.where(stored, self._chunk_lanes(earlier & THREAD_MASK), 0)
        missing = np.flatnonzero(stored & (fences[writers] < times) & (fences[own] < times))
        self._report_race("missing proxy fence", access, missing, earlier[missing])

    def _report_unfenced_maps(self, access: MemoryAccess, races: Lanes, written: Lanes) -> None:
        """Report tensor maps that threads wrote, without the two fences of their proxy behind.

        The thread that wrote releases the map, by `tensormap.cp_fenceproxy` or by a fence; then a
        thread of the block that reads it acquires it (PTX ISA, "membar/fence",
        `.proxy.tensormap::generic`). Which map a fence names is not compared.

        Args:
            access: The reads of maps by tensor copies.
            races: The positions among its units that were reported as races.
            written: The last store to each unit.
        """
        earlier = written[access.units]
        earlier[races] = 0
        if not earlier.any():
            return
        writers = np.where(earlier != 0, self._chunk_lanes(earlier & THREAD_MASK), 0)
        known = (earlier != 0) & (writers >= 0)  # by blocks that run now
        steps, _ = self._steps_and_orders(earlier)
        times = (earlier & ~PENDING_COPY_BIT) >> TIME_SHIFT
        releases, acquires = self._map_fence_times
        released = np.isin(steps, list(self._program.map_releases)) | (releases[writers] >= times)
        of_blocks = acquires.reshape(-1, self._lanes_per_block).max(1)
        acquired = of_blocks[access.spread(access.lanes) // self._lanes_per_block] >= times
        missing = np.flatnonzero(known & ~(released & acquired))
        self._report_race("missing map fence", access, missing, earlier[missing])

    def _compare_lanes(self, access: MemoryAccess, entries: Lanes, left: Lanes) -> None:
        """Report lanes of this access that store different values to one unit.

        Accesses are aligned, so lanes that touch the same unit touch the same part of it.

        Args:
            access: The access.
            entries: Its entries for the shadow memory, per unit of each lane.
            left: The entries that are left there.
        """
        lost = np.flatnonzero(left != entries)
        if not lost.size:
            return
        if access.values is None:
            self._report_race("WAW", access, lost, left[lost])
            return
        winners = np.searchsorted(access.threads, left[lost] & THREAD_MASK)
        new = access.values().reshape(len(access.lanes), access.width, -1)
        part = lost % access.width
        differ = (new[access.lanes_of_units(lost), part] != new[winners, part]).any(axis=1)
        lost = lost[differ | np.isin(access.units[lost], self._units_read)]
        self._report_race("WAW", access, lost, left[lost])

    def _compare_blocks(self, access: MemoryAccess, entries: Lanes) -> None:
        """Report atomics of block scope that several blocks execute at once on one unit."""
        order = np.argsort(access.units, kind="stable")
        units, sorted_entries = access.units[order], entries[order]
        heads = np.flatnonzero(np.diff(units, prepend=-1))
        first = np.repeat(sorted_entries[heads], np.diff(heads, append=len(units)))
        differs = (first ^ sorted_entries) & THREAD_MASK >> THREAD_BITS << THREAD_BITS != 0
        self._report_race("WAW", access, order[differs], first[differs])

    def _report_race(
        self, hazard: str, access: MemoryAccess, positions: Lanes, earlier: Lanes
    ) -> None:
        """Report each access once per source line that it races with.

        Which of two blocks runs first is the emulator's choice, so a race between blocks is
        reported in the order of the program.
        """
        if not positions.size:
            return
        steps, _ = self._steps_and_orders(earlier)
        line = self._program.lines[steps]
        pairs, count = access.lanes_of_units(positions), len(access.lanes)
        if (line != line[0]).any():
            lines, line = np.unique(line, return_inverse=True)
            pairs, count = pairs * len(lines) + line, count * len(lines)
        first = np.full(count, -1)
        first[pairs[::-1]] = np.arange(len(pairs))[::-1]
        first = first[first >= 0]
        positions, others, steps = positions[first], earlier[first] & THREAD_MASK, steps[first]
        threads, own = (
            access.threads[access.lanes_of_units(positions)],
            np.full_like(steps, access.step),
        )
        is_reversed = (steps > access.step) & ((threads ^ others) >> THREAD_BITS != 0)
        is_reversed &= hazard in _REVERSED_HAZARD
        for kind, chosen, (at, by, other, other_by) in (
            (hazard, ~is_reversed, (own, threads, steps, others)),
            (_REVERSED_HAZARD.get(hazard, hazard), is_reversed, (steps, others, own, threads)),
        ):
            if chosen.any():
                self._observations.add(
                    "racecheck",
                    kind,
                    access.space,
                    access.addresses(positions[chosen]),
                    at[chosen],
                    by[chosen],
                    other[chosen],
                    other_by[chosen],
                )

    def _steps_and_orders(self, earlier: Lanes) -> tuple[Lanes, Lanes]:
        """The instructions and packed memory orders of earlier accesses."""
        times = (earlier & ~PENDING_COPY_BIT) >> TIME_SHIFT
        steps, orders = self.times
        return steps[times], orders[times]

    def _advance_clock(self, step: int, order: int) -> None:
        """Assign the next time to an access, and keep its instruction and order by time."""
        self.order.time += 1
        time = self.order.time
        if time == len(self.times[0]):
            self.times = np.resize(self.times[0], 2 * time), np.resize(self.times[1], 2 * time)
        self.times[0][time], self.times[1][time] = step, order

    def _chunk_lanes(self, threads: Lanes) -> Lanes:
        """The lanes of this chunk's threads."""
        block = (threads >> THREAD_BITS) - self._first_block
        return np.asarray(block * self._lanes_per_block + (threads & ((1 << THREAD_BITS) - 1)))

    # --- Release and acquire -----------------------------------------------------------------

    def _access_order(self, access: MemoryAccess) -> int:
        """The packed order of an access; a volatile store right after a fence is strong."""
        order = self._program.memory_orders[access.step].packed
        if order & LEVEL_MASK == VOLATILE and access.kind == "store":
            fenced = self._fence_times[:, access.lanes].max(axis=0)
            stored = self.store_times[access.lanes]
            if ((fenced >= 0) & (fenced >= stored)).all():
                return order & ~LEVEL_MASK | STRONG
        return order

    def _acquire_and_release(self, access: MemoryAccess, level: int) -> None:
        """Per lane, let strong reads acquire, and strong writes after a fence release."""
        if level == WEAK:
            return
        atomic, releases = (
            access.kind == "atomic",
            self._program.memory_orders[access.step].release_scope,
        )
        for unit, thread, lane in zip(
            access.units[:: access.width].tolist(),
            access.threads.tolist(),
            access.lanes.tolist(),
            strict=True,
        ):
            # A block-scope release is kept at a location that only the block sees.
            locations = ((access.space, unit), (f"{access.space} of {thread >> THREAD_BITS}", unit))
            if access.kind != "store":
                for location in locations:
                    self.release_acquire.acquire(location, thread, atomic)
            if access.kind == "load" or level != STRONG:
                continue
            fenced = self._fence_times[:, lane].tolist()
            if releases is not None:
                fenced[releases] = self.order.time
            newer = self.order.newer_clocks(lane)
            others = [(int(self._numbers[other]), time) for other, time in newer]
            since = int(self.order.block_clock[lane])
            for location, time in zip(locations, fenced, strict=True):
                if time >= 0:
                    self.release_acquire.release(location, thread, time, since, others, not atomic)
