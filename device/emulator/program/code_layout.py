"""In which order the parts of a program run, where its layout does not say so.

Lanes meet again where their paths join, because the group that lies lowest runs first and a join
lies behind both of its arms. Compilers break that for what they take for unlikely: they move such
an arm to the end of the program, from where it jumps back to the join. Here such an arm is put
before its join again, by order only: the instructions stay where they are.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.device.emulator.program.program import DecodedInstruction


@dataclass(frozen=True)
class BasicBlockOrder:
    """An order of a program's basic blocks.

    Attributes:
        starts: Where they start, by rising program counter, and where the program ends.
        positions: Each instruction's place in the order, and that of the end.
    """

    starts: Sequence[int]
    positions: Sequence[int]

    def limit(self, running: int, waiting: int) -> int:
        """How far a group runs on until it must see whether another one is next.

        Args:
            running: Its program counter.
            waiting: That of the first of the others.

        Returns:
            Where it meets them, or where the first block starts that comes behind them.
        """
        block = bisect_right(self.starts, running)
        for end in self.starts[block:]:
            if running < waiting < end:
                return waiting
            if self.positions[end] >= self.positions[waiting]:
                return end
        return self.starts[-1]


def find_block_order(steps: Sequence[DecodedInstruction]) -> BasicBlockOrder | None:
    """Find the order in which joins come behind their arms, and what follows a loop behind it.

    Args:
        steps: A program's instructions.

    Returns:
        The order; None where it is that of the instructions, as in nearly all programs.
    """
    starts = _block_starts(steps)
    after = [_successors(steps, starts, block) for block in range(len(starts))]
    back, reached = _back_edges(after)
    after = [each if block in reached else [] for block, each in enumerate(after)]
    if all(v > u or (u, v) in back for u, following in enumerate(after) for v in following):
        return None
    order = _topological_order(after, back)
    if len(order) < len(starts):  # loops that are entered in several places
        return None
    positions: list[int] = [0] * len(steps)
    ends, position = [*starts[1:], len(steps)], 0
    for block in order:
        for index in range(starts[block], ends[block]):
            positions[index], position = position, position + 1
    return BasicBlockOrder([*starts, len(steps)], [*positions, len(steps)])


def reached_from(steps: Sequence[DecodedInstruction], index: int) -> set[int]:
    """The instructions that may run from one on, that one among them."""
    found, new = set[int](), [index]
    while new:
        index = new.pop()
        if index in found or index >= len(steps):
            continue
        found.add(index)
        step, leaves = steps[index], steps[index].instruction.guard is None
        if step.row.kind == "branch":
            new.append(step.target)
        if not leaves or step.row.kind not in ("branch", "exit"):
            new.append(index + 1)
    return found


def _block_starts(steps: Sequence[DecodedInstruction]) -> list[int]:
    """Where basic blocks start; a guarded exit ends none, since its group runs on behind it."""
    found = {0}
    for index, step in enumerate(steps):
        if step.row.kind == "branch":
            found |= {step.target, index + 1}
        elif step.row.kind == "exit" and step.instruction.guard is None:
            found.add(index + 1)
    return sorted(each for each in found if each < len(steps))


def _successors(
    steps: Sequence[DecodedInstruction], starts: Sequence[int], block: int
) -> list[int]:
    """The blocks that may run behind one, that behind it in the program last."""
    end = starts[block + 1] if block + 1 < len(starts) else len(steps)
    last, found = steps[end - 1], []
    if last.row.kind == "branch" and last.target < len(steps):
        found.append(bisect_right(starts, last.target) - 1)
    leaves = last.row.kind in ("branch", "exit") and last.instruction.guard is None
    if not leaves and end < len(steps):
        found.append(block + 1)
    return found


def _back_edges(after: Sequence[Sequence[int]]) -> tuple[set[tuple[int, int]], set[int]]:
    """The edges that close loops, and the blocks that can run at all.

    Depth first, such an edge leads to a block on the way to its own.
    """
    back, seen, way = set(), {0}, [0]
    left: list[Iterator[int]] = [iter(after[0])] if after else []
    while left:
        block = next(left[-1], None)
        if block is None:
            left.pop()
            way.pop()
        elif block in way:
            back.add((way[-1], block))
        elif block not in seen:
            seen.add(block)
            way.append(block)
            left.append(iter(after[block]))
    return back, seen


def _topological_order(after: Sequence[Sequence[int]], back: set[tuple[int, int]]) -> list[int]:
    """The blocks, each behind those that lead to it, else as they lie (Kahn, 1962).

    What follows a loop comes behind all of it.
    """
    behind = [{v for v in each if (u, v) not in back} for u, each in enumerate(after)]
    for latch, head in back:
        body = _loop_body(after, latch, head)
        exits = {v for u in body for v in after[u]} - body
        for u in body:
            behind[u] |= exits
    before = [0] * len(after)
    for each in behind:
        for v in each:
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
    """The blocks of a loop: those that lead to its last one without its first one."""
    leading: list[list[int]] = [[] for _ in after]
    for u, each in enumerate(after):
        for v in each:
            leading[v].append(u)
    body, new = {head}, [latch]
    while new:
        block = new.pop()
        if block not in body:
            body.add(block)
            new += leading[block]
    return body
