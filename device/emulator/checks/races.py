"""racecheck: two threads at one place, one of them writing, and nothing that orders them.

Each access is compared with those that `shadow` keeps. Whether two are ordered is asked of what
the threads know of each other, not of the order in which the emulator happens to run them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from memlab.device.emulator.checks.access import Event
from memlab.device.emulator.checks.async_copies import Copies
from memlab.device.emulator.checks.barriers import is_warp_barrier
from memlab.device.emulator.checks.happens_before import Order
from memlab.device.emulator.checks.memory_order import PLAIN, STRONG, VOLATILE, is_fence, strengths
from memlab.device.emulator.checks.observations import THREAD_BITS, Lanes, Observations
from memlab.device.emulator.checks.release_acquire import Publication
from memlab.device.emulator.checks.shadow_memory import (
    COPY,
    THREAD,
    THREADS_APART,
    TIME_SHIFT,
    WARPS_APART,
    Shadow,
)
from memlab.device.emulator.machine.partial_barriers import is_partial
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import Step, reads, writes

_TURNED = {"RAW": "WAR", "WAR": "RAW", "WAW": "WAW"}
"""What a hazard is called when the other access is told first."""


class Races:
    """Follows the accesses to shared and global memory.

    Attributes:
        apart: As of `Shadow`.
        copies: The asynchronous copies on their way.
        publication: What was published by fences and atomics, and who knows of it.
    """

    def __init__(
        self, observations: Observations, steps: Sequence[Step], global_units: int
    ) -> None:
        """Begin a launch of a program whose accesses touch so many units of global memory."""
        self._observations = observations
        self._lines = np.array([step.instruction.source_line for step in steps])
        self._strength = strengths(steps)
        self._stores = np.array([step.row.kind == "store" for step in steps])
        read = {name for step in steps for name in reads(step)}
        self._tickets = np.array(
            [step.row.kind == "atomic" and not read.isdisjoint(writes(step)) for step in steps]
        )
        self._has_fences = any(map(is_fence, steps)) or any(
            each.releases is not None for each in self._strength
        )
        self.publication = Publication()
        warps_meet = any(is_warp_barrier(step) or is_partial(step) for step in steps)
        self.apart = WARPS_APART if warps_meet else THREADS_APART
        self._global = Shadow(global_units, self.apart)
        self._steps, self._levels = array("i", [0]), array("b", [PLAIN])  # by time

    def begin(self, threads: Threads, numbers: Lanes, order: Order, shared_units: int) -> None:
        """Take other blocks.

        Args:
            threads: Theirs.
            numbers: Each lane's thread.
            order: What their threads know of each other.
            shared_units: Units of shared memory of all of them.
        """
        self.order, self._numbers = order, numbers
        self._padded = threads.grid.padded_threads
        self._first = int(numbers[0]) >> THREAD_BITS
        self._shared = Shadow(shared_units, self.apart)
        self.copies = Copies(threads.lanes)
        self._fenced = np.full((2, threads.lanes), -1, np.int64)  # by scope
        self._stored = np.full(threads.lanes, -1, np.int64)
        self.publication.begin()

    def fence(self, lanes: Lanes, scope: int) -> None:
        """Lanes, given as a mask, carry out a fence for `DEVICE` or `BLOCK`."""
        self._fenced[scope, lanes] = self.order.time

    def wait(self, lanes: Lanes, but: int | None) -> None:
        """Lanes, given as a mask, wait for their copies, as in `Copies.arrived`.

        From then on a copy is a store of that moment.
        """
        units, marks = self.copies.arrived(lanes, but)
        last = self._shared.written[units] == marks
        units, marks = units[last], marks[last]
        steps, _ = self._looked_up(marks)
        for step in np.unique(steps).tolist():
            self._tick(step, PLAIN)
            here = steps == step
            now = self.order.time << TIME_SHIFT | marks[here] & THREAD
            self._shared.written[units[here]] = now

    def access(self, event: Event, copies: bool) -> None:
        """Take one instruction; `copies` for the store of an asynchronous copy."""
        shadow, touched = self._shadow(event), event.touched
        level = self._level(event)
        self._tick(event.step, level)
        time = self.order.time
        updated = [] if shadow.updated is None else shadow.updated.each
        if self._has_fences:
            self._synchronise(event, level)
        if event.kind == "load":
            self._compare("RAW", event, level, [shadow.written, *updated])
            shadow.read.add(touched, time)
            return
        self._read = np.unique(event.units[self._compare("WAR", event, level, shadow.read.each)])
        self._compare("WAW", event, level, [shadow.written, *updated])
        if level == STRONG:
            shadow.update(touched, time)
        else:
            mark = COPY if copies else 0
            shadow.written[touched.units] = mark | time << TIME_SHIFT | touched.threads
            if touched.met.any():
                self._compare_with_itself(event, shadow.written[event.units] & ~COPY)
            if copies:
                lanes = event.spread(event.lanes)
                self.copies.issued(event.units, COPY | self._now(event), lanes)
        if event.kind == "store":
            self._stored[event.lanes] = time

    # --- Comparing ---------------------------------------------------------------------------

    def _now(self, event: Event) -> Lanes:
        """Time and thread of each unit touched."""
        return self.order.time << TIME_SHIFT | event.spread(event.threads)

    def _compare(self, hazard: str, event: Event, level: int, kept: Sequence[Lanes]) -> Lanes:
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
            self._conflicts(hazard, event, level, each[event.units])
            for each in kept
            if self._may_conflict(event, each[event.touched.units])
        ]
        if not found:
            return np.zeros(0, np.int64)
        places = np.concatenate([conflicts for conflicts, _ in found])
        if places.size:
            self._observe(hazard, event, places, np.concatenate([earlier for _, earlier in found]))
        return places

    def _may_conflict(self, event: Event, earlier: Lanes) -> bool:
        """Whether an earlier access to the units touched, each once, may conflict."""
        touched = event.touched
        late = self._late(event, earlier, touched.lanes, touched.threads, touched.met)
        return bool(late.any())

    def _late(
        self, event: Event, earlier: Lanes, lanes: Lanes, threads: Lanes, met: Lanes | bool
    ) -> Lanes:
        """Where an earlier access is of another thread and later than all that this one knows.

        Args:
            event: These accesses.
            earlier: Accesses to compare with.
            lanes: Who now touches the same unit.
            threads: The threads of these lanes.
            met: Whether others of this instruction do so too, whoever they are.
        """
        late = earlier > (self.order.since[lanes] << TIME_SHIFT | THREAD)
        if event.space == "global":  # of other blocks, threads know nothing by time
            apart = ((earlier ^ threads) & THREAD) >> THREAD_BITS != 0
            late |= (earlier != 0) & (apart | met)
        if late.any():
            late &= ((earlier ^ threads) & THREAD != 0) | met | (earlier >= COPY)
        return np.asarray(late)

    def _conflicts(
        self, hazard: str, event: Event, level: int, earlier: Lanes
    ) -> tuple[Lanes, Lanes]:
        """The places among the units where an earlier access conflicts, and these accesses."""
        lanes, threads = event.spread(event.lanes), event.spread(event.threads)
        places = np.flatnonzero(self._late(event, earlier, lanes, threads, False))
        if places.size:
            places = self._unordered(event, level, places, earlier[places])
        if places.size and hazard == "WAW":
            places = places[~self._same_value_again(event, places, earlier[places])]
        return places, earlier[places]

    def _unordered(self, event: Event, level: int, places: Lanes, earlier: Lanes) -> Lanes:
        """Those of the places where nothing orders the earlier access before this one."""
        _, levels = self._looked_up(earlier)
        both_strong = np.maximum(levels, level) == STRONG
        race = ~(both_strong & (np.minimum(levels, level) >= VOLATILE))
        race &= ~self._ordered(event, places, earlier)
        updates = self._shadow(event).updated
        atomic = np.flatnonzero(race & (levels == STRONG))
        if updates is not None and atomic.size:
            # Who draws the last ticket, and looks at it, knows that all others were drawn before.
            last = updates.last[event.units[places[atomic]]]
            steps, _ = self._looked_up(last)
            race[atomic] = ~(self._tickets[steps] & self._ordered(event, places[atomic], last))
        return np.asarray(places[race])

    def _ordered(self, event: Event, places: Lanes, earlier: Lanes) -> Lanes:
        """Whether an earlier access to each of the places comes before this one in any run."""
        lanes, threads = event.lanes[event.lane_of(places)], event.threads[event.lane_of(places)]
        other_threads, times = earlier & THREAD, earlier >> TIME_SHIFT
        ordered = np.zeros(len(places), np.bool_)
        inside = np.flatnonzero(other_threads >> THREAD_BITS == threads >> THREAD_BITS)
        others = self._lane(other_threads[inside])
        known = self.order.known(lanes[inside], others)
        known[others == lanes[inside]] = self.order.time
        ordered[inside] = times[inside] <= known
        if self._has_fences:
            for each in np.flatnonzero(~ordered).tolist():
                ordered[each] = self.publication.knows(
                    int(threads[each]), int(other_threads[each]), int(times[each])
                )
        return ordered

    def _same_value_again(self, event: Event, places: Lanes, earlier: Lanes) -> Lanes:
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
        steps, _ = self._looked_up(earlier)
        return np.asarray(equal & self._stores[steps] & ~np.isin(event.units[places], self._read))

    def _compare_with_itself(self, event: Event, left: Lanes) -> None:
        """Look for lanes that stored different values to one place at once.

        What they move is aligned: where two lanes meet, they do so with the same part of it.
        `left` is what is kept of the last of them, for each unit touched.
        """
        lost = np.flatnonzero(left != self._now(event))
        if not lost.size:
            return
        winners = np.searchsorted(event.threads, left[lost] & THREAD)
        new = event.values().reshape(len(event.lanes), event.width, -1)
        part = lost % event.width
        differ = (new[event.lane_of(lost), part] != new[winners, part]).any(axis=1)
        lost = lost[differ | np.isin(event.units[lost], self._read)]
        if lost.size:
            self._observe("WAW", event, lost, left[lost])

    def _observe(self, hazard: str, event: Event, places: Lanes, earlier: Lanes) -> None:
        """Name an access once for each line that it races with.

        Which of two blocks runs first is the emulator's choice: their races are told in the order
        of the program.
        """
        steps, _ = self._looked_up(earlier)
        pairs = np.stack([event.lane_of(places), self._lines[steps]])
        _, first = np.unique(pairs, axis=1, return_index=True)
        places, others, steps = places[first], earlier[first] & THREAD, steps[first]
        threads = event.threads[event.lane_of(places)]
        turned = (steps > event.step) & ((threads ^ others) >> THREAD_BITS != 0)
        at, other = np.where(turned, steps, event.step), np.where(turned, event.step, steps)
        by, other_by = np.where(turned, others, threads), np.where(turned, threads, others)
        for kind, chosen in ((hazard, ~turned), (_TURNED[hazard], turned)):
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

    def _shadow(self, event: Event) -> Shadow:
        return self._shared if event.space == "shared" else self._global

    def _looked_up(self, earlier: Lanes) -> tuple[Lanes, Lanes]:
        """Instruction and strength of earlier accesses."""
        times = (earlier & ~COPY) >> TIME_SHIFT
        steps, levels = np.frombuffer(self._steps, np.intc), np.frombuffer(self._levels, np.int8)
        return steps[times], levels[times]

    def _tick(self, step: int, level: int) -> None:
        """One more access: its time, and what is looked up by it."""
        self.order.time += 1
        self._steps.append(step)
        self._levels.append(level)

    def _lane(self, threads: Lanes) -> Lanes:
        """The lanes of threads of this chunk."""
        block = (threads >> THREAD_BITS) - self._first
        return np.asarray(block * self._padded + (threads & ((1 << THREAD_BITS) - 1)))

    # --- Atomics behind fences ---------------------------------------------------------------

    def _level(self, event: Event) -> int:
        """A volatile store right behind a fence is a flag, as strong as an atomic."""
        level = self._strength[event.step].level
        if level == VOLATILE and event.kind == "store":
            fenced = self._fenced[:, event.lanes].max(axis=0)
            stored = self._stored[event.lanes]
            if ((fenced >= 0) & (fenced >= stored)).all():
                return STRONG
        return level

    def _synchronise(self, event: Event, level: int) -> None:
        """Lane by lane, let strong reads acquire and strong writes behind a fence publish."""
        if level == PLAIN:
            return
        atomic, releases = event.kind == "atomic", self._strength[event.step].releases
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
                    self.publication.acquire(place, thread, atomic)
            if event.kind == "load" or level != STRONG:
                continue
            fenced = self._fenced[:, lane].tolist()
            if releases is not None:
                fenced[releases] = self.order.time
            known = self.order.knows_others(lane)
            others = [(int(self._numbers[each]), until) for each, until in known]
            since = int(self.order.since[lane])
            for place, time in zip(places, fenced, strict=True):
                if time >= 0:
                    self.publication.publish(place, thread, time, since, others, not atomic)
