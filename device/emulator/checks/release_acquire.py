"""Order that fences and atomics make, within a block and between blocks.

A thread publishes what lies before its last fence when it then does an atomic operation; whoever
does one on the same place later has acquired that, and so have those who meet it at a barrier
(PTX ISA, chapter "Memory Consistency Model", causality order). A fence behind the acquiring
operation is not asked for: NVIDIA's own threadFenceReduction has none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from memlab.device.emulator.checks.observations import THREAD_BITS

SyncLocation = tuple[str, int]
"""A unit of memory in a state space, or as one block alone sees it."""

AcquiredOperations = dict[SyncLocation, int]
"""How many operations on a place a thread knows to be over, by place."""


@dataclass
class _ReleaseHistory:
    """What was published at one place: by thread and by block, (operation, time) in order."""

    operations: int = 0
    threads: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    blocks: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    reach: AcquiredOperations = field(default_factory=dict)


class ReleaseAcquireOrder:
    """What was published where, and who has acquired it."""

    def __init__(self) -> None:
        self._histories: dict[SyncLocation, _ReleaseHistory] = {}
        self._threads: dict[int, AcquiredOperations] = {}
        self._blocks: dict[int, AcquiredOperations] = {}

    @property
    def has_acquisitions(self) -> bool:
        """Whether any thread has acquired anything since its block last met."""
        return bool(self._threads)

    def begin(self) -> None:
        """Go on with other blocks: shared memory is new, and those before are over."""
        self._histories = {at: board for at, board in self._histories.items() if at[0] == "global"}
        self._threads.clear()
        self._blocks.clear()

    def acquire(self, place: SyncLocation, thread: int, counts: bool) -> None:
        """A thread reads a place in an order that all agree on.

        Args:
            place: Where.
            thread: Its number.
            counts: Whether it also writes there, which makes it an operation of the place.
        """
        board = self._histories.get(place)
        if board is None:
            if not counts:
                return
            board = self._histories[place] = _ReleaseHistory()
        board.operations += counts
        own = self._threads.setdefault(thread, {})
        _merge_acquired(own, board.reach)
        own[place] = board.operations

    def release(
        self,
        place: SyncLocation,
        thread: int,
        time: int,
        since: int,
        others: Iterable[tuple[int, int]],
        counts: bool,
    ) -> None:
        """A thread writes a place behind a fence.

        Args:
            place: Where.
            thread: Its number.
            time: Of its last access before the fence.
            since: The time up to which it knows its whole block.
            others: Threads of which it knows more, with the times.
            counts: Whether this is an operation of its own, not one that has acquired already.
        """
        board = self._histories.setdefault(place, _ReleaseHistory())
        board.operations += counts
        for each, until in ((thread, time), *others):
            board.threads.setdefault(each, []).append((board.operations, until))
        board.blocks.setdefault(thread >> THREAD_BITS, []).append((board.operations, since))
        _merge_acquired(board.reach, self._of(thread))

    def meet_block(self, block: int) -> None:
        """All threads of a block know what any of them does."""
        of_block = self._blocks.setdefault(block, {})
        for thread in [each for each in self._threads if each >> THREAD_BITS == block]:
            _merge_acquired(of_block, self._threads.pop(thread))

    def meet(self, threads: Iterable[int]) -> None:
        """Threads of one group know what any of them does."""
        members = list(threads)
        union: AcquiredOperations = {}
        for each in members:
            _merge_acquired(union, self._threads.get(each, {}))
        if union:
            self._threads.update({each: dict(union) for each in members})

    def knows(self, thread: int, other: int, time: int) -> bool:
        """Whether a thread has acquired what another one did at a time."""
        for place, operations in self._of(thread).items():
            board = self._histories.get(place)
            if board is not None and (
                _last_release_time(board.threads.get(other), operations) >= time
                or _last_release_time(board.blocks.get(other >> THREAD_BITS), operations) >= time
            ):
                return True
        return False

    def _of(self, thread: int) -> AcquiredOperations:
        own = dict(self._blocks.get(thread >> THREAD_BITS, {}))
        _merge_acquired(own, self._threads.get(thread, {}))
        return own


def _merge_acquired(into: AcquiredOperations, more: AcquiredOperations) -> None:
    for place, operations in more.items():
        into[place] = max(into.get(place, -1), operations)


def _last_release_time(published: list[tuple[int, int]] | None, operations: int) -> int:
    """The time of the last publication among the first operations on a place; -1 without one."""
    if not published:
        return -1
    found = bisect_right(published, (operations, 1 << 62))
    return published[found - 1][1] if found else -1
