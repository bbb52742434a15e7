"""The order that fences and atomics make, within a block and between blocks.

A thread releases its accesses before a fence when it then executes an atomic operation. A thread
that later executes one at the same location acquires them, and so do the threads that synchronize
with it at a barrier (PTX ISA, chapter "Memory Consistency Model", causality order). A fence after
the acquiring operation is not required: NVIDIA's own threadFenceReduction has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from memlab.device.emulator.checks.observations import Lanes
from memlab.device.emulator.codegen.check_layout import THREAD_BITS, THREAD_MASK, TIME_SHIFT

SyncLocation = tuple[str, int]
"""A unit of memory in a state space, or as only one block sees it."""

_Value = TypeVar("_Value")

AcquiredOperations = Mapping[SyncLocation, int]
"""The number of operations at each location that a thread knows to be complete. Threads that have
synchronized share one, which is never changed."""
_NOTHING: AcquiredOperations = {}
_MOST_SHARED = 4096  # sets of acquired operations that are kept for threads to share
_MOST_TIMES = 65_536  # acquired times that are kept until the next release


@dataclass
class _ReleaseHistory:
    """The releases at one location.

    Attributes:
        operations: The number of operations so far.
        threads: By thread, pairs (operation, time) in order: by this operation, the thread's
            accesses up to this time were released.
        blocks: The same by block.
        acquired: The operations elsewhere that the releasing threads had acquired.
    """

    operations: int = 0
    threads: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    blocks: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    acquired: AcquiredOperations = field(default_factory=dict)


class ReleaseAcquireOrder:
    """The releases by location, and the operations that threads and blocks have acquired."""

    def __init__(self) -> None:
        self._histories: dict[SyncLocation, _ReleaseHistory] = {}
        self._threads: dict[int, AcquiredOperations] = {}
        self._blocks: dict[int, AcquiredOperations] = {}
        # Threads of a warp have mostly acquired the same, and share it: it is looked up once.
        self._shared: dict[tuple[tuple[SyncLocation, int], ...], AcquiredOperations] = {}
        self._times: dict[tuple[int, int], tuple[int, AcquiredOperations]] = {}

    @property
    def has_acquisitions(self) -> bool:
        """Whether a thread has acquired anything since its block last synchronized."""
        return bool(self._threads)

    def begin(self) -> None:
        """Take the next blocks: shared memory is new, and the blocks before are complete."""
        self._histories = _only_global(self._histories)
        for history in self._histories.values():
            history.acquired = _only_global(history.acquired)
        self._threads.clear()
        self._blocks.clear()
        self._shared.clear()
        self._times.clear()

    def acquire(self, location: SyncLocation, thread: int, is_operation: bool) -> None:
        """A thread reads a location with a strong access.

        Args:
            location: The location.
            thread: The thread's number.
            is_operation: Whether the thread also writes there, which counts as an operation.
        """
        history = self._histories.get(location)
        if history is None:
            if not is_operation:
                return
            history = self._histories[location] = _ReleaseHistory()
        history.operations += is_operation
        acquired = _merged(self._threads.get(thread, _NOTHING), history.acquired)
        self._threads[thread] = self._share({**acquired, location: history.operations})

    def release(
        self,
        location: SyncLocation,
        thread: int,
        time: int,
        since: int,
        others: Iterable[tuple[int, int]],
        is_operation: bool,
    ) -> None:
        """A thread writes a location after a fence.

        Args:
            location: The location.
            thread: The thread's number.
            time: The time of its last access before the fence.
            since: The time up to which it knows its whole block.
            others: Threads of which it knows more, with the times.
            is_operation: Whether this counts as a new operation; not if it has acquired already.
        """
        self._times.clear()
        history = self._histories.setdefault(location, _ReleaseHistory())
        history.operations += is_operation
        for released, until in ((thread, time), *others):
            releases = history.threads.setdefault(released, [])
            before = releases[-1][1] if releases else until
            releases.append((history.operations, max(until, before)))
        history.blocks.setdefault(thread >> THREAD_BITS, []).append((history.operations, since))
        history.acquired = _merged(history.acquired, self._acquired_by(thread))

    def synchronize_block(self, block: int) -> None:
        """All threads of a block acquire what one of them has acquired."""
        members = [thread for thread in self._threads if thread >> THREAD_BITS == block]
        acquired = (self._threads.pop(thread) for thread in members)
        self._blocks[block] = _merged(self._blocks.get(block, _NOTHING), *acquired)

    def synchronize(self, threads: Iterable[int], others: Iterable[int] = ()) -> None:
        """Threads of one group acquire what one of them, or of others, has acquired."""
        members = list(threads)
        union = _merged(*(self._threads.get(thread, _NOTHING) for thread in (*members, *others)))
        self._threads.update(dict.fromkeys(members, self._share(union)))

    def knows(self, thread: int, other: int, time: int) -> bool:
        """Whether a thread has acquired another thread's access at a time."""
        return self._acquired_time(self._acquired_by(thread), other) >= time

    def acquired_times(self, threads: Lanes, others: Lanes) -> Lanes:
        """The time up to which each thread has acquired another one's accesses; -1 for none."""
        distinct, at = np.unique(threads, return_inverse=True)
        numbers: dict[tuple[int, int], int] = {}  # by block, if it acquired, and what is one object
        known: list[AcquiredOperations] = []
        index = np.zeros(len(distinct), np.int64)
        for position, thread in enumerate(distinct.tolist()):
            block, own = thread >> THREAD_BITS, self._threads.get(thread, _NOTHING)
            key = block if block in self._blocks else -1, id(own)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(known)
                known.append(own if key[0] < 0 else self._share(self._acquired_by(thread)))
            index[position] = number
        pairs, places = np.unique(index[at] << TIME_SHIFT | others, return_inverse=True)
        times = [
            self._acquired_time(known[pair >> TIME_SHIFT], pair & THREAD_MASK)
            for pair in pairs.tolist()
        ]
        return np.array(times, np.int64)[places]

    def _share(self, acquired: AcquiredOperations) -> AcquiredOperations:
        """The one object for what several threads have acquired."""
        if len(self._shared) >= _MOST_SHARED:
            self._shared.clear()
        return self._shared.setdefault(tuple(acquired.items()), acquired)

    def _acquired_time(self, acquired: AcquiredOperations, other: int) -> int:
        """The time up to which the operations acquired released a thread's accesses."""
        key = id(acquired), other
        known = self._times.get(key)
        if known is None:
            if len(self._times) >= _MOST_TIMES:
                self._times.clear()
            # The object is kept, so that no other one gets its address.
            known = self._times[key] = self._find_acquired_time(acquired, other), acquired
        return known[0]

    def _find_acquired_time(self, acquired: AcquiredOperations, other: int) -> int:
        """As `_acquired_time`, from the histories of the locations."""
        latest = -1
        for location, operations in acquired.items():
            history = self._histories[location]
            for releases in (
                history.threads.get(other),
                history.blocks.get(other >> THREAD_BITS),
            ):
                if releases:
                    latest = max(latest, _released_until(releases, operations))
        return latest

    def block_knows(self, block: int, other: int, time: int) -> bool:
        """Whether any thread of a block has acquired another thread's access at a time."""
        threads = {thread for thread in self._threads if thread >> THREAD_BITS == block}
        return any(self.knows(each, other, time) for each in {block << THREAD_BITS, *threads})

    def _acquired_by(self, thread: int) -> AcquiredOperations:
        return _merged(
            self._blocks.get(thread >> THREAD_BITS, _NOTHING), self._threads.get(thread, _NOTHING)
        )


def _only_global(by_location: Mapping[SyncLocation, _Value]) -> dict[SyncLocation, _Value]:
    """The items of locations in global memory that all blocks see."""
    return {location: item for location, item in by_location.items() if location[0] == "global"}


def _merged(*acquired: AcquiredOperations) -> AcquiredOperations:
    """What some have acquired together."""
    first, *others = {id(each): each for each in acquired if each}.values() or (_NOTHING,)
    if not others:
        return first
    union = dict(first)
    for more in others:
        for location, operations in more.items():
            if union.get(location, -1) < operations:
                union[location] = operations
    return union


def _released_until(releases: Sequence[tuple[int, int]], operations: int) -> int:
    """The time up to which the first operations at a location released accesses; -1 for none."""
    count = bisect_left(releases, (operations + 1,))
    return releases[count - 1][1] if count else -1
