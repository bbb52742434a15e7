"""What a branch decides: the instructions between it and the place where its arms meet again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memlab.device.emulator.program.code_layout import successors

if TYPE_CHECKING:
    from memlab.device.emulator.program.program import DecodedInstruction

_LEAVING_KINDS = ("branch", "exit")


class BranchRegions:
    """The control flow of a program, and what its branches decide."""

    def __init__(self, steps: Sequence[DecodedInstruction]) -> None:
        """Find the basic blocks of a program."""
        cuts = {index + 1 for index, step in enumerate(steps) if step.row.kind in _LEAVING_KINDS}
        cuts |= {step.target for step in steps if step.target >= 0}
        self._starts = sorted({0, len(steps)} | cuts)
        number = {start: block for block, start in enumerate(self._starts)}
        self._after = [
            [number[place] for place in _following(steps, end - 1)] for end in self._starts[1:]
        ]
        self._after.append([])  # behind the last instruction
        self._postdominators = _postdominators(self._after)

    def decided_by(self, index: int) -> Iterator[int]:
        """The instructions of which a branch or an exit decides whether, or how often, they run.

        They are those that a path from it reaches before it comes to an instruction that all paths
        reach (a postdominator). The branch of a loop decides over the loop, itself included.
        """
        block = bisect_right(self._starts, index) - 1
        joins = self._postdominators[block] & ~(1 << block)
        seen, new = set[int](), list(self._after[block])
        while new:
            reached = new.pop()
            if reached not in seen and not joins >> reached & 1:
                seen.add(reached)
                new += self._after[reached]
        for reached in seen:
            yield from range(*self._starts[reached : reached + 2])


def _following(steps: Sequence[DecodedInstruction], index: int) -> list[int]:
    """Where lanes may go on behind an instruction; some end at an exit with a guard."""
    following = successors(steps, index)
    return [*following, len(steps)] if steps[index].row.kind == "exit" else following


def _postdominators(after: Sequence[Sequence[int]]) -> list[int]:
    """The blocks that all paths from each block reach, itself included, as bits.

    Args:
        after: The blocks behind each block; none behind the last one, where all paths end.
    """
    every = (1 << len(after)) - 1
    found = [every] * len(after)
    found[-1] = 1 << len(after) - 1
    changed = True
    while changed:
        changed = False
        for block in range(len(after) - 2, -1, -1):
            common = every
            for following in after[block]:
                common &= found[following]
            new = common | 1 << block
            changed |= new != found[block]
            found[block] = new
    return found
