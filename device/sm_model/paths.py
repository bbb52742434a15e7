"""The paths of warps through machine code, from how often they pass each edge.

A profile knows counts, not their order. A path is made that passes every edge as often, as evenly
as its counts allow: a branch that was taken 15 of 16 times goes on 15 times and leaves once, again
and again. So loops in loops come out as they ran, if their trip counts are equal. Where the edges
that leave a block are passed more often than the block is executed, the lanes of the warp parted:
it executes one arm up to the block where the arms meet, then the other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LEAVE = -2
"""Where an edge leads that leaves the kernel or a function."""
_ROUNDING = 1e-6
_DEEPEST_CALL = 64


@dataclass(frozen=True)
class Flow:
    """How often one warp executed the blocks and passed the edges of a flow graph.

    Attributes:
        blocks: The instructions of each basic block: the first, and the one behind the last.
        executions: Executions of each block.
        edges: Executions by the blocks that an edge joins; the destination `LEAVE` leaves the
            kernel or a function.
        calls: The function that a block calls at its end, by its first block.
    """

    blocks: Sequence[tuple[int, int]]
    executions: Sequence[float]
    edges: Mapping[tuple[int, int], float]
    calls: Mapping[int, int]

    @property
    def instructions(self) -> float:
        """The instructions that the warp executed."""
        pairs = zip(self.blocks, self.executions, strict=True)
        return sum((stop - start) * count for (start, stop), count in pairs)


@dataclass(frozen=True)
class Path:
    """The instructions that a warp executes, in order.

    Attributes:
        ranges: Ranges of instructions, shape (ranges, 2).
        instructions: How many the warp executed, including those behind a cut.
    """

    ranges: NDArray[np.int64]
    instructions: float

    @property
    def length(self) -> int:
        """The instructions of the ranges."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())


@dataclass
class _Walk:
    """The state of a walk: the ways out of each block, the main one first, and those taken."""

    ways: dict[int, list[tuple[int, float]]]
    executions: Sequence[float]
    taken: dict[int, list[int]]
    visits: dict[int, int] = field(default_factory=dict)

    def following(self, block: int) -> list[int]:
        """The blocks behind a block at its next visit; several where the lanes part."""
        ways = self.ways.get(block)
        if not ways:
            return [LEAVE]
        visit = self.visits[block] = self.visits.get(block, 0) + 1
        total = max(self.executions[block], _ROUNDING)
        found: list[int] = []
        taken = self.taken[block]
        for number in range(len(ways) - 1, -1, -1):
            destination, count = ways[number]
            due = int(count * visit / total + _ROUNDING) > taken[number]
            if due or (number == 0 and not found):
                taken[number] += 1
                found.append(destination)
        if not self._parts(block):
            return found[:1]
        # Lanes that end leave the others to go on.
        return [place for place in found if place != LEAVE] or found[:1]

    def _parts(self, block: int) -> bool:
        total = sum(count for _, count in self.ways[block])
        return total > self.executions[block] * (1 + _ROUNDING) + _ROUNDING


def warp_path(flow: Flow, longest: int) -> Path:
    """Make a path that has the executions of a warp.

    Args:
        flow: The executions.
        longest: Instructions behind which the path is cut.
    """
    ways: dict[int, list[tuple[int, float]]] = {}
    for (source, destination), count in flow.edges.items():
        if count > _ROUNDING and source >= 0:
            ways.setdefault(source, []).append((destination, count))
    for leaving in ways.values():
        leaving.sort(key=lambda way: -way[1])
    walk = _Walk(ways, flow.executions, {block: [0] * len(out) for block, out in ways.items()})
    limit = flow.instructions
    meeting: Sequence[int] | None = None
    ranges: list[tuple[int, int]] = []
    callers: list[int] = []
    pending: list[tuple[int, int, int]] = []  # where arms meet, the other arm, calls around it
    block, length = 0, 0
    while True:
        start, stop = flow.blocks[block]
        ranges.append((start, stop))
        length += stop - start
        if length >= longest or length > 1.5 * limit + 2 * len(flow.blocks):
            break
        if block in flow.calls and len(callers) < _DEEPEST_CALL:
            callers.append(block)
            block = flow.calls[block]
            continue
        following = walk.following(block)
        if len(following) > 1:
            if meeting is None:
                meeting = _meeting_blocks(flow)
            pending += [(meeting[block], other, len(callers)) for other in following[1:]]
        block = following[0]
        while block == LEAVE and callers:
            block = walk.following(callers.pop())[0]
        while pending and (block == pending[-1][0] or block == LEAVE):
            _, block, depth = pending.pop()
            del callers[depth:]
        if block == LEAVE:
            break
    return Path(np.array(ranges, np.int64).reshape(-1, 2), max(limit, float(length)))


def _meeting_blocks(flow: Flow) -> list[int]:
    """The block that each block's ways out all lead to (its immediate post-dominator)."""
    count = len(flow.blocks)
    after: list[list[int]] = [[] for _ in range(count)]
    for source, destination in flow.edges:
        if source >= 0:
            after[source].append(destination if destination >= 0 else count)
    masks = [(1 << (count + 1)) - 1] * count + [1 << count]
    changed = True
    while changed:
        changed = False
        for block in range(count - 1, -1, -1):
            mask = (1 << (count + 1)) - 1 if after[block] else 1 << count
            for place in after[block]:
                mask &= masks[place]
            mask |= 1 << block
            if mask != masks[block]:
                masks[block], changed = mask, True
    meeting = []
    for block in range(count):
        others = masks[block] & ~(1 << block)
        # The nearest one has the most post-dominators of its own.
        best, size = LEAVE, -1
        while others:
            place = (others & -others).bit_length() - 1
            others &= others - 1
            if place < count and masks[place].bit_count() > size:
                best, size = place, masks[place].bit_count()
        meeting.append(best)
    return meeting
