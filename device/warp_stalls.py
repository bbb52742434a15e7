"""What a source line is in the machine code, and why warps wait there.

Instructions are counted. Stalls are modelled: those of the simulation of an SM
(`device/sm_model/`), by Nsight Compute's names of warp states (Profiling Guide, "Warp Stall
Reasons"). On an H200, their largest reason was Nsight Compute's for 147 of 214 launches, and 78% of
the warps' time had the same reason in the mean (`docs/results/README.md`, "Stalls").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SELECTED = "selected"
"""The state of a warp in the clock in which it issues."""
STALL_REASONS = (
    SELECTED,
    *("wait", "long_scoreboard", "short_scoreboard", "lg_throttle", "mio_throttle"),
    *("math_pipe_throttle", "dispatch_stall", "barrier", "membar", "no_instruction", "imc_miss"),
    *("not_selected", "gmma", "branch_resolving"),
)
"""The states of a warp. The names are Nsight Compute's; `memlab explain` tells what they mean."""


PIPE_NAMES = (
    *("fma", "alu", "fp16", "fp64", "xu", "tensor", "lsu", "tex", "cbu", "adu", "uniform", "none"),
)
"""The pipes that execute machine code (`machine_code/pipes.py`)."""


@dataclass(frozen=True)
class LineStalls:
    """The machine code of one source line.

    Attributes:
        line: The line number, from 1; 0 for instructions that belong to no line.
        instructions: Executions by warps of the whole grid, by pipe as Nsight Compute names it.
        stalls: The time that warps spend at the line, by reason, as a share of the time of all
            warps, 0 to 1; modelled. The states that do not occur are left out. Empty where the
            machine code cannot be simulated.
    """

    line: int
    instructions: Mapping[str, int] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)

    @property
    def warp_time(self) -> float:
        """The share of the time of all warps, 0 to 1."""
        return sum(self.stalls.values())
