"""Releases and acquisitions against a list of all of them."""

from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from memlab.device.emulator.checks.release_acquire import ReleaseAcquireOrder, SyncLocation
from memlab.device.emulator.codegen.check_layout import THREAD_BITS

THREADS = (0, 1, 2, 1 << THREAD_BITS, 1 << THREAD_BITS | 1)
"""Of two blocks."""
LOCATIONS: tuple[SyncLocation, ...] = (
    ("global", 0),
    ("global", 1),
    ("shared", 0),
    ("shared of 1", 0),
)
Step: TypeAlias = tuple[str, int, int, int]
"""What happens: by which thread or threads, at which location, and a number more."""

NUMBERS = (st.integers(0, len(THREADS) - 1), st.integers(0, len(LOCATIONS) - 1), st.integers(0, 31))
STEPS = st.one_of(
    *(st.tuples(st.just(kind), *NUMBERS) for kind in ("release", "atomic", "load")),
    *(st.tuples(st.just(kind), *NUMBERS) for kind in ("release", "atomic", "load")),
    *(st.tuples(st.just(kind), *NUMBERS) for kind in ("block", "some", "begin")),
)


@dataclass
class Release:
    """Which accesses of which threads and of which block are over by an operation."""

    location: SyncLocation
    operation: int
    threads: dict[int, int]
    block: int
    since: int


@dataclass
class Model:
    """All releases, and the operations that each thread has acquired."""

    operations: dict[SyncLocation, int] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)
    carried: dict[SyncLocation, dict[SyncLocation, int]] = field(default_factory=dict)
    acquired: dict[int, dict[SyncLocation, int]] = field(
        default_factory=lambda: {thread: {} for thread in THREADS}
    )

    def learn(self, thread: int, more: dict[SyncLocation, int]) -> None:
        own = self.acquired[thread]
        for location, operations in more.items():
            own[location] = max(own.get(location, 0), operations)

    def knows(self, thread: int, other: int, time: int) -> bool:
        return any(
            release.operation <= self.acquired[thread].get(release.location, -1)
            and (
                release.threads.get(other, -1) >= time
                or (release.block == other >> THREAD_BITS and release.since >= time)
            )
            for release in self.releases
        )


def release(
    order: ReleaseAcquireOrder,
    model: Model,
    thread: int,
    location: SyncLocation,
    more: int,
    now: int,
) -> None:
    """Release at a location, by a store or by an atomic operation that has acquired before."""
    is_operation = bool(more & 1)
    if not is_operation:
        acquire(order, model, thread, location, True)
    others = [(other, now - 1 - more % 13) for other in THREADS[: more % 3] if other != thread]
    since = now // 16 * 16  # when the block met last
    order.release(location, thread, now - 1, since, others, is_operation)
    operation = model.operations.get(location, 0) + is_operation
    model.operations[location] = operation
    threads = {**dict(others), thread: now - 1}
    model.releases.append(Release(location, operation, threads, thread >> THREAD_BITS, since))
    carried = model.carried.setdefault(location, {})
    for place, operations in model.acquired[thread].items():
        carried[place] = max(carried.get(place, 0), operations)


def acquire(
    order: ReleaseAcquireOrder, model: Model, thread: int, location: SyncLocation, atomic: bool
) -> None:
    order.acquire(location, thread, atomic)
    if not atomic and location not in model.operations:
        return  # nobody has released anything there
    operation = model.operations.get(location, 0) + atomic
    model.operations[location] = operation
    model.learn(thread, model.carried.get(location, {}))
    model.acquired[thread][location] = operation


KNOWS_LESS: list[Step] = [("release", 3, 0, 26), ("release", 4, 0, 11), ("load", 0, 0, 0)]
"""Who releases last knows less of a third thread than who did before it."""
CHAIN: list[Step] = [("release", 0, 0, 1), ("atomic", 3, 0, 0), ("release", 3, 1, 1)]
CHAIN += [("load", 1, 1, 0)]
"""Who releases passes on what it had acquired elsewhere."""
LATEST: list[Step] = [("release", 0, 0, 1), ("release", 0, 0, 1), ("release", 1, 0, 25)]
LATEST += [("load", 3, 0, 0)]
MERGED: list[Step] = [("release", 3, 0, 1), ("load", 1, 0, 0), ("release", 4, 0, 1)]
MERGED += [("load", 0, 0, 0), ("some", 0, 0, 3)]
"""Of what two threads have acquired at one place, the later operation counts."""
NEW_BLOCKS: list[Step] = [("release", 0, 2, 1), ("release", 0, 0, 1), ("begin", 0, 0, 0)]
NEW_BLOCKS += [("load", 1, 2, 0), ("load", 2, 0, 0)]
STALE: list[Step] = [("atomic", 0, 2, 0), ("release", 0, 0, 1), ("begin", 0, 0, 0)]
STALE += [("load", 3, 0, 0), ("release", 0, 2, 1)]
"""What was acquired in the shared memory of earlier blocks says nothing of this one's."""
OLD_BLOCK: list[Step] = [("release", 3, 0, 1), ("load", 0, 0, 0), ("block", 0, 0, 0)]
OLD_BLOCK += [("begin", 0, 0, 0)]
BY_TWO: list[Step] = [
    ("release", 0, 0, 2),
    ("atomic", 1, 0, 0),
    ("some", 0, 0, 7),
    ("load", 3, 0, 0),
]


@example(KNOWS_LESS)
@example(NEW_BLOCKS)
@example(OLD_BLOCK)
@example(STALE)
@example(MERGED)
@example(CHAIN)
@example(LATEST)
@example(BY_TWO)
@given(st.lists(STEPS, max_size=14))
def test_a_thread_knows_all_that_was_released_before_it_acquired(steps: list[Step]) -> None:
    order, model, now = ReleaseAcquireOrder(), Model(), 1
    for kind, which, at, more in steps:
        now += 3
        thread, location = THREADS[which], LOCATIONS[at]
        if kind == "release":
            release(order, model, thread, location, more, now)
        elif kind in ("atomic", "load"):
            acquire(order, model, thread, location, kind == "atomic")
        elif kind == "begin":
            order.begin()
            model.releases = [r for r in model.releases if r.location[0] == "global"]
            for table in (model.operations, model.carried):
                for old in [place for place in table if place[0] != "global"]:
                    del table[old]
            for carried in model.carried.values():
                for old in [place for place in carried if place[0] != "global"]:
                    del carried[old]
            model.acquired = {each: {} for each in THREADS}
        else:
            block = thread >> THREAD_BITS
            members = [each for each in THREADS if each >> THREAD_BITS == block]
            if kind == "some":
                members = [each for n, each in enumerate(members) if more >> n & 1]
                order.synchronize(members)
            else:
                order.synchronize_block(block)
            everything = [dict(model.acquired[each]) for each in members]
            for each in members:
                for some in everything:
                    model.learn(each, some)
        for one in THREADS:
            for two in THREADS:
                for time in range(now + 1):
                    assert order.knows(one, two, time) == model.knows(one, two, time)


def test_acquisitions_end_where_their_block_meets() -> None:
    order = ReleaseAcquireOrder()
    order.acquire(("global", 0), 0, False)  # nobody has released anything there
    assert not order.has_acquisitions
    order.acquire(("global", 0), 0, True)
    assert order.has_acquisitions
    order.synchronize_block(1)
    assert order.has_acquisitions
    order.synchronize_block(0)
    assert not order.has_acquisitions
