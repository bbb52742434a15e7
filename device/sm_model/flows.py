"""How often a warp executes the blocks of a flow graph, and where the ways out of them meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAVE = -2
"""Where an edge leads that leaves the kernel or a function."""


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


def meeting_blocks(flow: Flow) -> list[int]:
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
