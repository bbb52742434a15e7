"""The machine code of each source line: its instructions by pipe, and where its warps wait."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from memlab.device.machine_code.listing import ListedInstruction
from memlab.device.sm_model.records import Stall
from memlab.device.sm_model.simulation import Steps
from memlab.device.warp_stalls import SELECTED, LineStalls

_REASONS = {int(stall): stall.name.lower() for stall in Stall}


def clocks_per_instruction(steps: Steps) -> dict[str, float]:
    """The clocks of a warp for each instruction that it issues, by state, in the mean.

    Args:
        steps: The instructions, as the simulation left them.
    """
    issued = float(steps["issued"].sum())
    if not issued:
        return {}
    clocks = (steps["stalls"].sum(axis=0) / issued).tolist()
    return {SELECTED: 1.0} | {_REASONS[reason]: time for reason, time in enumerate(clocks) if time}


def line_stalls(
    listing: Sequence[ListedInstruction], steps: Steps | None = None
) -> tuple[LineStalls, ...]:
    """Sum up instructions and stalls by source line.

    Args:
        listing: The machine code with its executions.
        steps: The same instructions, as the simulation left them; None without one.
    """
    instructions: dict[int, Counter[str]] = {}
    stalls: dict[int, dict[str, float]] = {}
    whole = 0.0 if steps is None else float(steps["issued"].sum() + steps["stalls"].sum())
    for position, instruction in enumerate(listing):
        line = instruction.source_line
        if instruction.warps:
            instructions.setdefault(line, Counter())[instruction.pipe] += instruction.warps
        if steps is None or not whole or not steps["issued"][position]:
            continue
        of_line = stalls.setdefault(line, defaultdict(float))
        of_line[SELECTED] += float(steps["issued"][position]) / whole
        for reason, clocks in enumerate(steps["stalls"][position].tolist()):
            if clocks:
                of_line[_REASONS[reason]] += clocks / whole
    return tuple(
        LineStalls(
            line,
            dict(instructions.get(line, Counter()).most_common()),
            dict(sorted(stalls.get(line, {}).items(), key=lambda stall: -stall[1])),
        )
        for line in sorted(instructions.keys() | stalls.keys())
    )
