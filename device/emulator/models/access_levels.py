"""Where the sectors of each memory instruction are served: by the L1, the L2 or DRAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memlab.device.emulator.program.program import Program


@dataclass(frozen=True)
class AccessLevels:
    """The shares of an instruction's sectors that each level serves; they add up to 1.

    A store is served by the level that takes the data, an atomic by the one that executes it: both
    are the L2, unless it must read the sector from DRAM first.

    Attributes:
        l1: Share served by the SM's own L1.
        l2: Share served by the L2.
        dram: Share served by DRAM.
        l1_joined: The part of `l1` that is on its way from the L2 or from DRAM, since another warp
            of the SM has asked for it.
        l1_joined_dram: The part of that which comes from DRAM.
        l2_joined_dram: The part of `l2` that is on its way from DRAM in the same way.
        l2_far: The share of `l2` that comes from the other partition of the L2; None if it is not
            known.
        missed_by_progress: The share that the L1 does not serve in equal parts of the instruction's
            accesses, in the order of time, over that of all; empty if it is not known.
        dram_by_progress: The same of the share that DRAM serves.
        far_by_progress: The same of the share that comes from the other partition of the L2.
        progress_in_block: Whether these are parts of the accesses of each block, not of all.
    """

    l1: float
    l2: float
    dram: float
    l1_joined: float = 0.0
    l1_joined_dram: float = 0.0
    l2_joined_dram: float = 0.0
    l2_far: float | None = None
    missed_by_progress: tuple[float, ...] = ()
    dram_by_progress: tuple[float, ...] = ()
    far_by_progress: tuple[float, ...] = ()
    progress_in_block: bool = False

    @classmethod
    def of(cls, l1_hits: float, l2_hits: float) -> AccessLevels:
        """The shares for two hit rates, that of the L2 being of the accesses that reach it."""
        beyond = 1 - l1_hits
        return cls(l1_hits, beyond * l2_hits, beyond * (1 - l2_hits))

    def hitting(self, l1: float) -> AccessLevels:
        """The shares where the L1 serves so much if that is more, and the others what is left."""
        if l1 <= self.l1:
            return self
        left = (1 - l1) / (1 - self.l1)
        return replace(
            self,
            l1=l1,
            l2=self.l2 * left,
            dram=self.dram * left,
            l2_joined_dram=self.l2_joined_dram * left,
        )


IN_L1, IN_L2 = AccessLevels(1.0, 0.0, 0.0), AccessLevels(0.0, 1.0, 0.0)

_SPACES = ("global", "generic")
"""State spaces whose accesses the cache models follow. Local memory is taken to stay in the L1."""


def uniform_levels(
    program: Program, l1_hits: float, l2_hits: float, atomic_hits: float
) -> Mapping[int, AccessLevels]:
    """The levels where only the hit rates of the whole launch are known.

    Args:
        program: The kernel.
        l1_hits: The share of the sectors of cacheable loads that hit the L1.
        l2_hits: The share of the sectors that loads read from the L2 that hit it.
        atomic_hits: The same of atomics.

    Returns:
        By the position of the instruction in the program: every access to global or local memory.
    """
    by_kind = {
        "load": AccessLevels.of(l1_hits, l2_hits),
        "store": IN_L2,
        "atomic": AccessLevels.of(0.0, atomic_hits),
        "reduce": AccessLevels.of(0.0, atomic_hits),
    }
    levels: dict[int, AccessLevels] = {}
    for index, step in enumerate(program.steps):
        row = step.row
        if row.space == "local" and row.kind in by_kind:
            levels[index] = IN_L1 if row.kind == "load" else IN_L2
        elif row.space in _SPACES and row.kind in by_kind:
            bypasses = row.kind == "load" and row.bypass_l1
            levels[index] = AccessLevels.of(0.0, l2_hits) if bypasses else by_kind[row.kind]
    return levels
