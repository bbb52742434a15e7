"""The order in which basic blocks run, for programs whose layout does not give it.

Lanes reconverge where their paths join, because the group with the lowest program counter runs
first and a join lies behind both arms of its branch. Compilers break this for arms that they take
to be unlikely: they move such an arm to the end of the program, from where it jumps back to the
join. Here such an arm is ordered before its join again; the instructions themselves stay in place.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.device.emulator.program.program import DecodedInstruction


@dataclass(frozen=True)
class BasicBlockOrder:
    """An order of a program's basic blocks.

    Attributes:
        starts: Their first instructions, ascending, and the end of the program.
        positions: The position of each instruction in the order, and that of the end.
    """

    starts: Sequence[int]
    positions: Sequence[int]

    def limit(self, running: int, waiting: int) -> int:
        """How far a group may run before another group has to run first.

        Args:
            running: The program counter of the running group.
            waiting: The program counter of the first of the other groups.

        Returns:
            The program counter where the two reconverge, or where the first block begins that comes
            behind the waiting group in the order.
        """
        block = bisect_right(self.starts, running)
        for end in self.starts[block:]:
            if running < waiting < end:
                return waiting
            if self.positions[end] >= self.positions[waiting]:
                return end
        return self.starts[-1]


def find_block_order(steps: Sequence[DecodedInstruction]) -> BasicBlockOrder | None:
    """Find an order with joins behind both arms of their branches, and loop exits behind loops.

    Args:
        steps: The instructions of a program.

    Returns:
        The order; None where it is that of the instructions, as in nearly all programs.
    """
    starts = _block_starts(steps)
    ends = [*starts[1:], len(steps)]
    after = [
        [
            bisect_right(starts, place) - 1
            for place in _successors_here(steps, end - 1)
            if place < ends[-1]
        ]
        for end in ends
    ]
    calls = {step.target for step in steps if step.row.opcode == "bra.call"}
    roots = [bisect_right(starts, place) - 1 for place in sorted({0, *calls})]
    back, reached = _back_edges(after, roots)
    after = [following if block in reached else [] for block, following in enumerate(after)]
    if all(v > u or (u, v) in back for u, following in enumerate(after) for v in following):
        return None
    order = _topological_order(after, back)
    if len(order) < len(starts):  # loops that are entered in several places
        return None
    positions: list[int] = [0] * len(steps)
    position = 0
    for block in order:
        for index in range(starts[block], ends[block]):
            positions[index], position = position, position + 1
    return BasicBlockOrder([*starts, len(steps)], [*positions, len(steps)])


def successors(steps: Sequence[DecodedInstruction], index: int) -> list[int]:
    """The instructions that may run after one, or the program's end; the next one comes last."""
    step = steps[index]
    following = [step.target] if step.row.kind == "branch" else []
    leaves = step.row.kind in ("branch", "exit") and step.instruction.guard is None
    return following if leaves else [*following, index + 1]


def _successors_here(steps: Sequence[DecodedInstruction], index: int) -> list[int]:
    """The successors in the same function: a call leads to the place behind it."""
    match steps[index].row.opcode:
        case "bra.call":
            return [index + 1]
        case "bra.return":
            return successors(steps, index)[1:]
    return successors(steps, index)


def loop_branches(steps: Sequence[DecodedInstruction]) -> dict[int, list[int]]:
    """The branches back to the first instruction of each loop, ascending."""
    branches: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        if 0 <= step.target <= index and step.row.opcode == "bra":
            branches.setdefault(step.target, []).append(index)
    return branches


def reached_from(steps: Sequence[DecodedInstruction], index: int) -> set[int]:
    """The instructions reachable from one, which is included."""
    reachable, new = set[int](), [index]
    while new:
        index = new.pop()
        if index not in reachable and index < len(steps):
            reachable.add(index)
            new += successors(steps, index)
    return reachable


def _block_starts(steps: Sequence[DecodedInstruction]) -> list[int]:
    """The first instructions of basic blocks; a guarded exit ends no block: its group runs on."""
    starts = {0}
    for index in range(len(steps)):
        following = successors(steps, index)
        if following != [index + 1]:
            starts |= {*following, index + 1}
    return sorted(start for start in starts if start < len(steps))


def _back_edges(
    after: Sequence[Sequence[int]], roots: Sequence[int]
) -> tuple[set[tuple[int, int]], set[int]]:
    """The back edges, which close loops, and the blocks that are reachable from some blocks.

    In a depth-first search, a back edge leads to a block on the current path.
    """
    back, seen = set(), set[int]()
    for root in roots if after else ():
        if root in seen:
            continue
        seen.add(root)
        path, left = [root], [iter(after[root])]
        while left:
            block = next(left[-1], None)
            if block is None:
                left.pop()
                path.pop()
            elif block in path:
                back.add((path[-1], block))
            elif block not in seen:
                seen.add(block)
                path.append(block)
                left.append(iter(after[block]))
    return back, seen


def _topological_order(after: Sequence[Sequence[int]], back: set[tuple[int, int]]) -> list[int]:
    """The blocks in topological order, ties in program order (Kahn, 1962).

    Back edges are left out, and the exits of a loop come behind all of its blocks.
    """
    behind = [{v for v in following if (u, v) not in back} for u, following in enumerate(after)]
    for latch, head in back:
        body = _loop_body(after, latch, head)
        exits = {v for u in body for v in after[u]} - body
        for u in body:
            behind[u] |= exits
    before = [0] * len(after)
    for following in behind:
        for v in following:
            before[v] += 1
    ready, order = [u for u, count in enumerate(before) if not count], []
    while ready:
        order.append(heapq.heappop(ready))
        for v in behind[order[-1]]:
            before[v] -= 1
            if not before[v]:
                heapq.heappush(ready, v)
    return order


def _loop_body(after: Sequence[Sequence[int]], latch: int, head: int) -> set[int]:
    """The blocks of a loop: those from which the latch is reachable without passing the head."""
    leading: list[list[int]] = [[] for _ in after]
    for u, following in enumerate(after):
        for v in following:
            leading[v].append(u)
    body, new = {head}, [latch]
    while new:
        block = new.pop()
        if block not in body:
            body.add(block)
            new += leading[block]
    return body
