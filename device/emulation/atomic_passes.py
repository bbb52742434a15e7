"""What the whole grid's global atomics ask of the slice of the L2 that they use most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models.atomic_contention import AtomicContention
from memlab.device.emulator.program.program import Program
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.machine_code.retries import Attempts

_VOTES = frozenset(("VOTE", "VOTEU"))
"""With one of these ptxas finds the lanes of a warp, before one lane adds for all of them."""
_ATOMICS = frozenset(("ATOM", "ATOMG", "RED", "REDG"))


def with_sums_of_warps(
    contention: Mapping[int, AtomicContention], code: MachineCode, program: Program, tally: Tally
) -> dict[int, AtomicContention]:
    """Let one lane operate for its warp where ptxas arranged that.

    It does so for integers at an address that all lanes share: it adds up the lanes of a warp, or
    takes their maximum and so on (`REDUX`, or `POPC` of a vote), and one of them executes the
    atomic. If the result is not used, such a request takes an H200 as long as that of one lane,
    with any of these operations (`docs/results/h200-contended-words.csv`).

    Args:
        contention: The contention of each atomic of the PTX, by its position.
        code: The machine code.
        program: Its PTX.
        tally: The counts of the whole grid.
    """
    lines = _lines_of_one_lane(code)
    found = dict(contention)
    for place, met in contention.items():
        if program.steps[place].instruction.ptx_line in lines and tally.lanes[place]:
            share = tally.requests[place] / tally.lanes[place]
            found[place] = replace(
                met,
                slice_passes=met.slice_passes * share,
                sector_passes=met.sector_passes * share,
            )
    return found


def _lines_of_one_lane(code: MachineCode) -> set[int]:
    """The lines of the PTX whose atomic the lane executes that a vote has chosen.

    The vote comes from the same line, or from that of an earlier atomic, which chose the lane.
    """
    voting = {step.ptx_line for step in code.instructions if step.name in _VOTES}
    chosen, set_by = set(voting), dict[str, int]()
    for step in code.instructions:
        if step.name in _ATOMICS and set_by.get(step.predicate) in voting:
            chosen.add(step.ptx_line)
        elif step.name == "ISETP":
            set_by[step.operands[0]] = step.ptx_line
    return chosen


def count_atomic_passes(
    contention: Mapping[int, AtomicContention],
    program: Program,
    tally: Tally,
    halves: Mapping[int, Attempts] | None = None,
) -> dict[str, int]:
    """Count the passes of the whole grid, by the names of their counters.

    Args:
        contention: The contention of each atomic of the PTX, by its position.
        program: The PTX.
        tally: The counts of the whole grid.
        halves: The attempts of additions that are loops of compare-and-swap, by their line of the
            PTX: each is a pass, and the slice of the L2 does not add.
    """
    halves = halves or {}
    slice_passes = float_passes = 0.0
    for place, met in contention.items():
        step = program.steps[place]
        tries = halves.get(step.instruction.ptx_line)
        lane = tries.lane if tries else 1.0
        slice_passes += met.slice_passes * tally.requests[place] * lane
        if not tries and step.row.of[:1] in (("f32",), ("f64",), ("f16",), ("bf16",)):
            float_passes += met.sector_passes * tally.requests[place]
    return {
        "global_atomic_slice_passes": round(slice_passes),
        "global_atomic_float_passes": round(float_passes),
    }
