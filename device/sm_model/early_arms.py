"""Branches in loops with barriers at which some warps have more to do than others.

Where a barrier ends each round and the warps of a block take an arm in different numbers of rounds,
those that do in fewer stop early, as in sums by trees, scans and eliminations: threads have work as
long as their number is less than that of a round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.sm_model.flows import Flow, meeting_blocks

_SAME_SHARE = 1e-6


@dataclass(frozen=True)
class EarlyArm:
    """A branch of which warps take an arm in the first rounds of a loop.

    Attributes:
        arm: The first block of the arm.
        head: The first block of the loop.
        ends: The blocks from which it goes back there.
    """

    arm: int
    head: int
    ends: tuple[int, ...]

    def entries(self, flow: Flow) -> float:
        """How often a warp enters the loop."""
        again = sum(flow.edges.get((end, self.head), 0.0) for end in self.ends)
        return max(flow.executions[self.head] - again, 1.0)


def early_arms(flows: Sequence[Flow], is_barrier: NDArray[np.bool_]) -> Mapping[int, EarlyArm]:
    """The branches whose arm warps take early, by the block that ends with the branch.

    Args:
        flows: What the warps of a block execute.
        is_barrier: Whether each instruction is a barrier of the block.
    """
    if not flows:
        return {}
    blocks, edges = flows[0].blocks, {edge: 0.0 for flow in flows for edge in flow.edges}
    meeting = meeting_blocks(Flow(blocks, flows[0].executions, edges, flows[0].calls))
    ends: dict[int, list[int]] = {}
    for source, destination in edges:
        if 0 <= destination <= source:
            ends.setdefault(destination, []).append(source)
    loops = sorted(
        (max(sources) - head, head, tuple(sources))
        for head, sources in ends.items()
        if is_barrier[blocks[head][0] : blocks[max(sources)][1]].any()
    )
    found: dict[int, EarlyArm] = {}
    for block in {source for source, _ in edges if source >= 0}:
        ways = [destination for source, destination in edges if source == block]
        arms = [destination for destination in ways if destination != meeting[block]]
        around = [loop for loop in loops if loop[1] <= block <= max(loop[2])]
        if len(ways) != 2 or len(arms) != 1 or arms[0] <= block or not around:
            continue
        shares = [
            flow.edges.get((block, arms[0]), 0.0) / flow.executions[block]
            for flow in flows
            if flow.executions[block]
        ]
        if shares and max(shares) - min(shares) > _SAME_SHARE:
            found[block] = EarlyArm(arms[0], around[0][1], around[0][2])
    return found
