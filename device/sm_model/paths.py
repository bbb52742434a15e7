"""The paths of warps through machine code, from how often they pass each edge.

A profile knows counts, not their order. A path is made that passes every edge as often, as evenly
as its counts allow: a branch that was taken 15 of 16 times goes on 15 times and leaves once, again
and again. So loops in loops come out as they ran, if their trip counts are equal. Where the edges
that leave a block are passed more often than the block is executed, the lanes of the warp parted:
it executes one arm up to the block where the arms meet, then the other one.

The operations of a warp on barriers are known in order. Only ways that lead to the next one are
taken, if need be some that the counts leave out (`operation_order.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memlab.device.sm_model.early_arms import EarlyArm
from memlab.device.sm_model.flows import LEAVE, Flow, meeting_blocks
from memlab.device.sm_model.operation_order import Guide, Site, guide, site_graph

_ROUNDING = 1e-6
_DEEPEST_CALL = 64


@dataclass(frozen=True)
class Path:
    """The instructions that a warp executes, in order.

    Attributes:
        ranges: Ranges of instructions, shape (ranges, 2).
        instructions: How many the warp executed, including those behind a cut.
        idle: The executions of sites that make no operation: the site, and how many operations the
            warp has made there before.
    """

    ranges: NDArray[np.int64]
    instructions: float
    idle: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        """The instructions of the ranges."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())


class _Rounds(NamedTuple):
    """In how many of the rounds of a loop a warp takes an arm."""

    arm: int
    rounds: float
    taken: float

    def is_early(self, visit: int) -> bool:
        """Whether it does at a visit of the branch, counted from 1."""
        return (visit - 1) % self.rounds < self.taken - _ROUNDING


class _Loop(NamedTuple):
    """A loop, at a block that leaves it or goes on in it.

    Attributes:
        again: The number of the way that goes on among those out of the block.
        trips: How often the block is executed each time that the loop is entered.
    """

    again: int
    trips: float

    def goes_on(self, visit: int, repeated: int) -> bool:
        """Whether it does at a visit, counted from 1, after it has gone on so many times."""
        return visit < int((visit - repeated) * self.trips + 0.5)


@dataclass
class _Walk:
    """The state of a walk.

    Attributes:
        ways: The ways out of each block, the main one first.
        unused: Those that the counts leave out.
        executions: Executions of each block.
        taken: How often each of the ways was taken.
        loops: The blocks that are loops, and the first ones of loops, which may leave them.
        meeting: Where the ways out of each block meet; empty if lanes never part.
        guide: What tells which ways are open.
        early: The arms of branches that are taken in the first rounds of a loop: how many rounds
            it has, and in how many of them the arm is taken.
        visits: How often each block was left.
    """

    ways: dict[int, list[tuple[int, float]]]
    unused: dict[int, list[int]]
    executions: Sequence[float]
    taken: dict[int, list[int]]
    loops: Mapping[int, _Loop]
    meeting: Sequence[int] = ()
    guide: Guide | None = None
    early: Mapping[int, _Rounds] = field(default_factory=dict)
    visits: dict[int, int] = field(default_factory=dict)

    def following(self, block: int) -> list[int]:
        """The blocks behind a block at its next visit; several where the lanes part."""
        ways = self.ways.get(block, [])
        if self.parts(block):
            return self._arms(block)
        visit = self.visits[block] = self.visits.get(block, 0) + 1
        total = max(self.executions[block], _ROUNDING)
        numbers = [number for number, way in enumerate(ways) if self._is_open(block, way[0])]
        if not numbers:
            for place in self.unused.get(block, ()):
                if self._is_open(block, place):
                    return [place]
            if not ways:
                return [LEAVE]
            numbers = list(range(len(ways)))
        taken = self.taken[block]
        early = self._early_arm(block, visit)
        if early in numbers:
            taken[early] += 1
            return [ways[early][0]]
        loop = self.loops.get(block)
        if loop and loop.again in numbers and len(numbers) > 1 and ways[loop.again][0] == block:
            if loop.goes_on(visit, taken[loop.again]):
                taken[loop.again] += 1
                return [ways[loop.again][0]]
            numbers.remove(loop.again)
        late = {n: ways[n][1] * visit / total + _ROUNDING - taken[n] for n in numbers}
        due = [number for number in reversed(numbers) if late[number] >= 1 and number]
        chosen = due[0] if due else numbers[0]
        if not due and chosen:  # the main way is closed
            chosen = max(numbers, key=lambda number: late[number])
        taken[chosen] += 1
        return [ways[chosen][0]]

    def _early_arm(self, block: int, visit: int) -> int | None:
        """The way that a branch takes at a visit, if its arm is taken early; None if it is not."""
        rounds = self.early.get(block)
        if rounds is None or len(self.ways[block]) != 2:
            return None
        arm = [place for place, _ in self.ways[block]].index(rounds.arm)
        return arm if rounds.is_early(visit) else 1 - arm

    def _arms(self, block: int) -> list[int]:
        """Those that its lanes take one after the other, the first one first."""
        ways, taken = self.ways[block], self.taken[block]
        visit = self.visits[block] = self.visits.get(block, 0) + 1
        total = max(self.executions[block], _ROUNDING)
        meets = self.meeting[block]
        counts = [count * visit / total for _, count in ways]
        loop = self.loops.get(block)
        back = [number for number, (place, _) in enumerate(ways) if 0 <= place <= block]
        main = loop.again if loop else back[0] if back else 0
        rounding = _ROUNDING if back else 0.5
        others = [number for number in range(len(ways) - 1, -1, -1) if number != main]
        due = [number for number in others if int(counts[number] + rounding) > taken[number]]
        is_due = int(counts[main] + rounding) > taken[main]
        if loop and others:
            due = [*due, main] if loop.goes_on(visit, taken[main]) else due or others[-1:]
        elif back and others and visit + 0.5 > total:  # the last visit of a loop
            due = due or others[-1:]
        elif is_due or (back and counts[main] - _ROUNDING > taken[main]) or not due:
            due.append(main)
        arms = [number for number, (place, _) in enumerate(ways) if place not in (meets, LEAVE)]
        past = [number for number in range(len(ways)) if number not in arms]
        if len(arms) == 1 and past:  # the arm, or past it
            leads_on = self._is_open(block, ways[arms[0]][0])
            if leads_on != self._is_open(block, ways[past[0]][0]):
                due = arms if leads_on else past
        early = self._early_arm(block, visit)
        if early is not None and early not in due:
            due.append(early)
        if early is not None and early in past:
            due = past
        for number in due:
            taken[number] += 1
        found = [ways[number][0] for number in due]
        # Lanes that end leave the others to go on.
        found = [place for place in found if place != LEAVE] or found[:1]
        return sorted(found, key=lambda place: not self._is_open(block, place))

    def _is_open(self, block: int, place: int) -> bool:
        return self.guide is None or self.guide.is_open(block, place)

    def parts(self, block: int) -> bool:
        """Whether the lanes part behind a block."""
        total = sum(count for _, count in self.ways.get(block, ()))
        return total > self.executions[block] * (1 + _ROUNDING) + _ROUNDING


def warp_path(
    flow: Flow,
    longest: int,
    sites: Sequence[Site] = (),
    sequence: Sequence[int] = (),
    early: Mapping[int, EarlyArm] | None = None,
) -> Path:
    """Make a path that has the executions of a warp.

    Args:
        flow: The executions.
        longest: Instructions behind which the path is cut.
        sites: The instructions that operate on barriers.
        sequence: The sites of the warp's operations, in order.
        early: The branches whose arm is taken in the first rounds of a loop.
    """
    ways, unused, loops = _ways(flow)
    taken = {block: [0] * len(out) for block, out in ways.items()}
    walk = _Walk(ways, unused, flow.executions, taken, loops)
    walk.early = {block: _rounds(flow, block, arm) for block, arm in (early or {}).items()}
    parting = [block for block in ways if walk.parts(block)]
    if parting:
        walk.meeting = meeting_blocks(flow)
    if sequence:
        detours = _detours(flow, ways, parting, walk.meeting)
        known = frozenset(sequence)
        own = [site for site in sites if site.number in known]
        graph = site_graph(flow.blocks, flow.edges, flow.calls, own, detours)
        walk.guide = guide(graph, sequence)
    limit = flow.instructions
    ranges: list[tuple[int, int]] = []
    callers: list[int] = []
    pending: list[tuple[int, int, int]] = []  # where arms meet, the other arm, calls around it
    block, length = 0, 0
    while True:
        start, stop = flow.blocks[block]
        ranges.append((start, stop))
        length += stop - start
        if walk.guide is not None:
            walk.guide.enter(block)
        if length >= longest or length > 1.5 * limit + 2 * len(flow.blocks):
            break
        if block in flow.calls and len(callers) < _DEEPEST_CALL:
            callers.append(block)
            block = flow.calls[block]
            continue
        following = walk.following(block)
        for other in following[1:]:
            pending.append((walk.meeting[block], other, len(callers)))
        block = following[0]
        while block == LEAVE and callers:
            block = walk.following(callers.pop())[0]
        while pending and (block == pending[-1][0] or block == LEAVE):
            _, block, depth = pending.pop()
            del callers[depth:]
        if block == LEAVE:
            break
    return Path(
        np.array(ranges, np.int64).reshape(-1, 2),
        max(limit, float(length)),
        tuple(walk.guide.idle) if walk.guide else (),
    )


def _ways(
    flow: Flow,
) -> tuple[dict[int, list[tuple[int, float]]], dict[int, list[int]], dict[int, _Loop]]:
    """The `ways`, the `unused` ones and the `loops` of a walk."""
    ways: dict[int, list[tuple[int, float]]] = {}
    unused: dict[int, list[int]] = {}
    entries: dict[int, float] = defaultdict(float)  # of loops, from blocks before them
    only = {place for place, edges in Counter(to for _, to in flow.edges).items() if edges == 1}
    for (source, destination), count in flow.edges.items():
        if destination in only and destination != LEAVE:  # it is executed as often as it is entered
            count = min(count, flow.executions[destination])
        entries[destination] += count * (source < destination)
        if count > _ROUNDING and source >= 0:
            ways.setdefault(source, []).append((destination, count))
        elif source >= 0:
            unused.setdefault(source, []).append(destination)
    ends: dict[int, int] = {}  # of loops, by their first blocks
    for source, destination in flow.edges:
        if 0 <= destination <= source:
            ends[destination] = max(source, ends.get(destination, 0))
    loops: dict[int, _Loop] = {}
    for block, leaving in ways.items():
        leaving.sort(key=lambda way: -way[1])
        inside = [n for n, (at, _) in enumerate(leaving) if block <= at <= ends.get(block, -1)]
        if len(inside) == 1 < len(leaving):
            loops[block] = _Loop(inside[0], flow.executions[block] / (entries[block] or 1.0))
    return ways, unused, loops


def _detours(
    flow: Flow,
    ways: Mapping[int, Sequence[tuple[int, float]]],
    parting: Sequence[int],
    meeting: Sequence[int],
) -> set[tuple[int, int]]:
    """The ways from the end of an arm to the start of another one that a warp takes."""
    after: dict[int, set[int]] = {}
    for source, destination in flow.edges:
        after.setdefault(source, set()).add(destination)
    found: set[tuple[int, int]] = set()
    for block in parting:
        meets = meeting[block]
        arms = [place for place, _ in ways[block] if place not in (meets, LEAVE)]
        for arm in arms if len(arms) > 1 else ():
            seen, waiting = {arm}, [arm]
            while waiting:
                place = waiting.pop()
                if meets in after.get(place, ()):
                    found |= {(place, other) for other in arms if other != arm}
                new = after.get(place, set()) - {meets, LEAVE} - seen
                seen |= new
                waiting += new
    return found


def _rounds(flow: Flow, block: int, early: EarlyArm) -> _Rounds:
    entries = early.entries(flow)
    taken = flow.edges.get((block, early.arm), 0.0)
    return _Rounds(early.arm, max(flow.executions[block] / entries, 1.0), taken / entries)
