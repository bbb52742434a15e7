"""racecheck: two threads at one place, one of them writing, and nothing that orders them.

Each access is compared with those that `shadow` keeps. Whether two are ordered is asked of what
the threads know of each other, not of the order in which the emulator happens to run them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.access import MemoryAccess
from memlab.device.emulator.checks.async_copies import AsyncCopies
from memlab.device.emulator.checks.barriers import is_warp_barrier
from memlab.device.emulator.checks.happens_before import HappensBefore
from memlab.device.emulator.checks.memory_order import (
    STRONG,
    VOLATILE,
    WEAK,
    is_fence,
    memory_orders,
)
from memlab.device.emulator.checks.observations import THREAD_BITS, Lanes, Observations
from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder
from memlab.device.emulator.checks.shadow_memory import (
    PENDING_COPY_BIT,
    THREAD_AND_WARP_ID_SHIFTS,
    THREAD_ID_SHIFTS,
    THREAD_MASK,
    TIME_SHIFT,
    ShadowMemory,
)
from memlab.device.emulator.machine.partial_barriers import is_partial
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    registers_read,
    registers_written,
)

_REVERSED_HAZARD = {"RAW": "WAR", "WAR": "RAW", "WAW": "WAW"}
"""What a hazard is called when the other access is told first."""


class RaceCheck:
    """Follows the accesses to shared and global memory.

    Attributes:
        apart: As of `Shadow`.
        copies: The asynchronous copies on their way.
        publication: What was published by fences and atomics, and who knows of it.
    """

    def __init__(
        self, observations: Observations, steps: Sequence[DecodedInstruction], global_units: int
    ) -> None:
        """Begin a launch of a program whose accesses touch so many units of global memory."""
        self._observations = observations
        self._lines = np.array([step.instruction.source_line for step in steps])
        self._memory_orders = memory_orders(steps)
        self._stores = np.array([step.row.kind == "store" for step in steps])
        read = {name for step in steps for name in registers_read(step)}
        self._returning_atomics = np.array(
            [
                step.row.kind == "atomic" and not read.isdisjoint(registers_written(step))
                for step in steps
            ]
        )
        self._has_fences = any(map(is_fence, steps)) or any(
            each.release_scope is not None for each in self._memory_orders
        )
        self.release_acquire = ReleaseAcquireOrder()
        warps_meet = any(is_warp_barrier(step) or is_partial(step) for step in steps)
        self.apart = THREAD_AND_WARP_ID_SHIFTS if warps_meet else THREAD_ID_SHIFTS
        self._global_shadow = ShadowMemory(global_units, self.apart)
        self._steps, self._levels = array("i", [0]), array("b", [WEAK])  # by time

    def begin(
        self, threads: Threads, numbers: Lanes, order: HappensBefore, shared_units: int
    ) -> None:
        """Take other blocks.

        Args:
            threads: Theirs.
            numbers: Each lane's thread.
            order: What their threads know of each other.
            shared_units: Units of shared memory of all of them.
        """
        self.order, self._numbers = order, numbers
        self._lanes_per_block = threads.grid.padded_threads
        self._first_block = int(numbers[0]) >> THREAD_BITS
        self._shared_shadow = ShadowMemory(shared_units, self.apart)
        self.copies = AsyncCopies(threads.lanes)
        self._fence_times = np.full((2, threads.lanes), -1, np.int64)  # by scope
        self._store_times = np.full(threads.lanes, -1, np.int64)
        self.release_acquire.begin()

    def fence(self, lanes: Lanes, scope: int) -> None:
        """Lanes, given as a mask, carry out a fence for `DEVICE` or `BLOCK`."""
        self._fence_times[scope, lanes] = self.order.time

    def wait(self, lanes: Lanes, but: int | None) -> None:
        """Lanes, given as a mask, wait for their copies, as in `Copies.arrived`.

        From then on a copy is a store of that moment.
        """
        units, marks = self.copies.arrived(lanes, but)
        last = self._shared_shadow.written[units] == marks
        units, marks = units[last], marks[last]
        steps, _ = self._steps_and_levels(marks)
        for step in np.unique(steps).tolist():
            self._advance_clock(step, WEAK)
            here = steps == step
            now = self.order.time << TIME_SHIFT | marks[here] & THREAD_MASK
            self._shared_shadow.written[units[here]] = now

    def access(self, event: MemoryAccess, copies: bool) -> None:
        """Take one instruction; `copies` for the store of an asynchronous copy."""
        shadow, touched = self._shadow_of(event), event.touched
        level = self._access_level(event)
        self._advance_clock(event.step, level)
        time = self.order.time
        updated = [] if shadow.atomic_updates is None else shadow.atomic_updates.recorded_accesses
        if self._has_fences:
            self._acquire_and_release(event, level)
        if event.kind == "load":
            self._compare("RAW", event, level, [shadow.written, *updated])
            shadow.read.add(touched, time)
            return
        self._units_read = np.unique(
            event.units[self._compare("WAR", event, level, shadow.read.recorded_accesses)]
        )
        self._compare("WAW", event, level, [shadow.written, *updated])
        if level == STRONG:
            shadow.update(touched, time)
        else:
            mark = PENDING_COPY_BIT if copies else 0
            shadow.written[touched.units] = mark | time << TIME_SHIFT | touched.threads
            if touched.contended.any():
                self._compare_lanes(event, shadow.written[event.units] & ~PENDING_COPY_BIT)
            if copies:
                lanes = event.spread(event.lanes)
                self.copies.issue(event.units, PENDING_COPY_BIT | self._timestamps(event), lanes)
        if event.kind == "store":
            self._store_times[event.lanes] = time

    # --- Comparing ---------------------------------------------------------------------------

    def _timestamps(self, event: MemoryAccess) -> Lanes:
        """Time and thread of each unit touched."""
        return self.order.time << TIME_SHIFT | event.spread(event.threads)

    def _compare(
        self, hazard: str, event: MemoryAccess, level: int, kept: Sequence[Lanes]
    ) -> Lanes:
        """Look for earlier accesses of other threads that nothing orders before these.

        Args:
            hazard: What to call them.
            event: These accesses.
            level: How strong they are.
            kept: What is kept of earlier accesses, by unit.

        Returns:
            The places among the units where there are any; some may be there twice.
        """
        found = [
            self._find_conflicts(hazard, event, level, each[event.units])
            for each in kept
            if self._may_conflict(event, each[event.touched.units])
        ]
        if not found:
            return np.zeros(0, np.int64)
        places = np.concatenate([conflicts for conflicts, _ in found])
        if places.size:
            self._report_race(
                hazard, event, places, np.concatenate([earlier for _, earlier in found])
            )
        return places

    def _may_conflict(self, event: MemoryAccess, earlier: Lanes) -> bool:
        """Whether an earlier access to the units touched, each once, may conflict."""
        touched = event.touched
        late = self._possibly_concurrent(
            event, earlier, touched.lanes, touched.threads, touched.contended
        )
        return bool(late.any())

    def _possibly_concurrent(
        self, event: MemoryAccess, earlier: Lanes, lanes: Lanes, threads: Lanes, met: Lanes | bool
    ) -> Lanes:
        """Where an earlier access is of another thread and later than all that this one knows.

        Args:
            event: These accesses.
            earlier: Accesses to compare with.
            lanes: Who now touches the same unit.
            threads: The threads of these lanes.
            met: Whether others of this instruction do so too, whoever they are.
        """
        late = earlier > (self.order.block_clock[lanes] << TIME_SHIFT | THREAD_MASK)
        if event.space == "global":  # of other blocks, threads know nothing by time
            apart = ((earlier ^ threads) & THREAD_MASK) >> THREAD_BITS != 0
            late |= (earlier != 0) & (apart | met)
        if late.any():
            late &= ((earlier ^ threads) & THREAD_MASK != 0) | met | (earlier >= PENDING_COPY_BIT)
        return np.asarray(late)

    def _find_conflicts(
        self, hazard: str, event: MemoryAccess, level: int, earlier: Lanes
    ) -> tuple[Lanes, Lanes]:
        """The places among the units where an earlier access conflicts, and these accesses."""
        lanes, threads = event.spread(event.lanes), event.spread(event.threads)
        places = np.flatnonzero(self._possibly_concurrent(event, earlier, lanes, threads, False))
        if places.size:
            places = self._unordered_places(event, level, places, earlier[places])
        if places.size and hazard == "WAW":
            places = places[~self._is_same_value(event, places, earlier[places])]
        return places, earlier[places]

    def _unordered_places(
        self, event: MemoryAccess, level: int, places: Lanes, earlier: Lanes
    ) -> Lanes:
        """Those of the places where nothing orders the earlier access before this one."""
        _, levels = self._steps_and_levels(earlier)
        both_strong = np.maximum(levels, level) == STRONG
        race = ~(both_strong & (np.minimum(levels, level) >= VOLATILE))
        race &= ~self._is_ordered(event, places, earlier)
        updates = self._shadow_of(event).atomic_updates
        atomic = np.flatnonzero(race & (levels == STRONG))
        if updates is not None and atomic.size:
            # Who draws the last ticket, and looks at it, knows that all others were drawn before.
            last = updates.last[event.units[places[atomic]]]
            steps, _ = self._steps_and_levels(last)
            race[atomic] = ~(
                self._returning_atomics[steps] & self._is_ordered(event, places[atomic], last)
            )
        return np.asarray(places[race])

    def _is_ordered(self, event: MemoryAccess, places: Lanes, earlier: Lanes) -> Lanes:
        """Whether an earlier access to each of the places comes before this one in any run."""
        lanes, threads = (
            event.lanes[event.lanes_of_units(places)],
            event.threads[event.lanes_of_units(places)],
        )
        other_threads, times = earlier & THREAD_MASK, earlier >> TIME_SHIFT
        ordered = np.zeros(len(places), np.bool_)
        inside = np.flatnonzero(other_threads >> THREAD_BITS == threads >> THREAD_BITS)
        others = self._chunk_lanes(other_threads[inside])
        known = self.order.pairwise_clock(lanes[inside], others)
        known[others == lanes[inside]] = self.order.time
        ordered[inside] = times[inside] <= known
        if self._has_fences:
            for each in np.flatnonzero(~ordered).tolist():
                ordered[each] = self.release_acquire.knows(
                    int(threads[each]), int(other_threads[each]), int(times[each])
                )
        return ordered

    def _is_same_value(self, event: MemoryAccess, places: Lanes, earlier: Lanes) -> Lanes:
        """Whether a store leaves the bytes at each of the places as an earlier store did.

        Compute Sanitizer leaves out such writes, by default. Where others read meanwhile, the
        bytes may be the same only in the emulator, whose threads have all read before one wrote.
        """
        if event.kind != "store":
            return np.zeros(len(places), np.bool_)
        unit = event.unit_bytes
        old = event.segment.data[: event.segment.data.size // unit * unit].reshape(-1, unit)
        new = event.values().reshape(-1, unit)
        equal = (old[event.units[places]] == new[places]).all(axis=1)
        steps, _ = self._steps_and_levels(earlier)
        return np.asarray(
            equal & self._stores[steps] & ~np.isin(event.units[places], self._units_read)
        )

    def _compare_lanes(self, event: MemoryAccess, left: Lanes) -> None:
        """Look for lanes that stored different values to one place at once.

        What they move is aligned: where two lanes meet, they do so with the same part of it.
        `left` is what is kept of the last of them, for each unit touched.
        """
        lost = np.flatnonzero(left != self._timestamps(event))
        if not lost.size:
            return
        winners = np.searchsorted(event.threads, left[lost] & THREAD_MASK)
        new = event.values().reshape(len(event.lanes), event.width, -1)
        part = lost % event.width
        differ = (new[event.lanes_of_units(lost), part] != new[winners, part]).any(axis=1)
        lost = lost[differ | np.isin(event.units[lost], self._units_read)]
        if lost.size:
            self._report_race("WAW", event, lost, left[lost])

    def _report_race(self, hazard: str, event: MemoryAccess, places: Lanes, earlier: Lanes) -> None:
        """Name an access once for each line that it races with.

        Which of two blocks runs first is the emulator's choice: their races are told in the order
        of the program.
        """
        steps, _ = self._steps_and_levels(earlier)
        pairs = np.stack([event.lanes_of_units(places), self._lines[steps]])
        _, first = np.unique(pairs, axis=1, return_index=True)
        places, others, steps = places[first], earlier[first] & THREAD_MASK, steps[first]
        threads = event.threads[event.lanes_of_units(places)]
        turned = (steps > event.step) & ((threads ^ others) >> THREAD_BITS != 0)
        at, other = np.where(turned, steps, event.step), np.where(turned, event.step, steps)
        by, other_by = np.where(turned, others, threads), np.where(turned, threads, others)
        for kind, chosen in ((hazard, ~turned), (_REVERSED_HAZARD[hazard], turned)):
            if chosen.any():
                self._observations.add(
                    "racecheck",
                    kind,
                    event.space,
                    event.addresses(places)[chosen],
                    at[chosen],
                    by[chosen],
                    other[chosen],
                    other_by[chosen],
                )

    def _shadow_of(self, event: MemoryAccess) -> ShadowMemory:
        return self._shared_shadow if event.space == "shared" else self._global_shadow

    def _steps_and_levels(self, earlier: Lanes) -> tuple[Lanes, Lanes]:
        """Instruction and strength of earlier accesses."""
        times = (earlier & ~PENDING_COPY_BIT) >> TIME_SHIFT
        steps, levels = np.frombuffer(self._steps, np.intc), np.frombuffer(self._levels, np.int8)
        return steps[times], levels[times]

    def _advance_clock(self, step: int, level: int) -> None:
        """One more access: its time, and what is looked up by it."""
        self.order.time += 1
        self._steps.append(step)
        self._levels.append(level)

    def _chunk_lanes(self, threads: Lanes) -> Lanes:
        """The lanes of threads of this chunk."""
        block = (threads >> THREAD_BITS) - self._first_block
        return np.asarray(block * self._lanes_per_block + (threads & ((1 << THREAD_BITS) - 1)))

    # --- Atomics behind fences ---------------------------------------------------------------

    def _access_level(self, event: MemoryAccess) -> int:
        """A volatile store right behind a fence is a flag, as strong as an atomic."""
        level = self._memory_orders[event.step].level
        if level == VOLATILE and event.kind == "store":
            fenced = self._fence_times[:, event.lanes].max(axis=0)
            stored = self._store_times[event.lanes]
            if ((fenced >= 0) & (fenced >= stored)).all():
                return STRONG
        return level

    def _acquire_and_release(self, event: MemoryAccess, level: int) -> None:
        """Lane by lane, let strong reads acquire and strong writes behind a fence publish."""
        if level == WEAK:
            return
        atomic, releases = event.kind == "atomic", self._memory_orders[event.step].release_scope
        for unit, thread, lane in zip(
            event.units[:: event.width].tolist(),
            event.threads.tolist(),
            event.lanes.tolist(),
            strict=True,
        ):
            # What is for the block alone is published at a place of the block's own.
            places = ((event.space, unit), (f"{event.space} of {thread >> THREAD_BITS}", unit))
            if event.kind != "store":
                for place in places:
                    self.release_acquire.acquire(place, thread, atomic)
            if event.kind == "load" or level != STRONG:
                continue
            fenced = self._fence_times[:, lane].tolist()
            if releases is not None:
                fenced[releases] = self.order.time
            known = self.order.newer_clocks(lane)
            others = [(int(self._numbers[each]), until) for each, until in known]
            since = int(self.order.block_clock[lane])
            for place, time in zip(places, fenced, strict=True):
                if time >= 0:
                    self.release_acquire.release(place, thread, time, since, others, not atomic)
