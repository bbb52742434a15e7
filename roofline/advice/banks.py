"""The rule on bank conflicts: how many there are, on which line, and what removes them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.device.properties import WARP_SIZE
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from memlab.device.measurement import Measurement

BANK_COUNT = 32


def bank_conflicts(case: AdviceCase) -> Recommendation | None:
    """Lanes of a warp access different words of one bank."""
    counters = case.measurement.counters
    # Data decides the banks of atomics, so no layout removes their conflicts.
    of_atomics = counters.shared_atomic_wavefronts - counters.shared_atomic_instructions
    excessive = max(counters.shared_excessive_wavefronts - of_atomics, 0)
    wavefronts = counters.total("shared").wavefronts
    if not wavefronts or excessive / wavefronts < 0.1:
        return None
    return Recommendation(
        case.saving({}, l1_passes=excessive),
        f"Bank conflicts cause {excessive / wavefronts:.0%} of the {si_text(wavefronts, '')} "
        f"shared-memory wavefronts{_worst_line_text(case.measurement, excessive)}.",
    )


def _worst_line_text(measurement: Measurement, excessive: int) -> str:
    """Name the line with most of the conflicts, and a remedy.

    If lane `x` of a row accesses word `a x` and `a` is odd, no two lanes of the row share a bank.
    So if a warp covers r rows of its block and accesses more than r words of a bank, as many in
    each access, `a` is even; if it accesses r or fewer, the words may belong to different rows.

    The counts do not tell the length of elements, and the advice holds for all lengths. Elements of
    8 and 16 bytes are served to half and quarter warps, whose lanes share no bank if they are an
    odd number of elements apart; for elements shorter than a word, the distance in words must be
    odd.
    """
    line, degree = "", 0.0
    worst = max(measurement.lines, key=lambda line: line.shared_excessive_wavefronts, default=None)
    # A line's counts include its atomics, so with atomics the degree is not known.
    without_atomics = not measurement.counters.shared_atomic_instructions
    if worst and without_atomics and 2 * worst.shared_excessive_wavefronts >= excessive:
        needed = worst.shared_wavefronts - worst.shared_excessive_wavefronts
        line, degree = f", most on line {worst.line}", worst.shared_wavefronts / needed
    rows = rows_per_warp(measurement.block)
    if rows < degree <= BANK_COUNT and degree in (2, 4, 8, 16, 32):
        return (
            f"{line}, where a warp accesses {degree:.0f} words of each bank, as lanes do that are "
            f"a multiple of {degree:.0f} words apart: make that distance odd, in 4-byte words or "
            "in elements if these are longer, for example by padding each row by one"
        )
    if 1 < degree <= rows:
        block = " x ".join(str(extent) for extent in measurement.block if extent > 1)
        return (
            f"{line}, where a warp covers {rows} rows of the {block} block: if its lanes access "
            f"neighbouring words along a row, padding does not help, but a block {WARP_SIZE} wide "
            "removes the conflicts"
        )
    return (
        f"{line}, where lanes access different words of one bank: if their distance is a power of "
        f"two, pad each row, or every {BANK_COUNT} words, by one word (one element if it is "
        "longer); else change which words a warp accesses together"
    )


def rows_per_warp(block: tuple[int, int, int]) -> int:
    """The most rows of a block that a warp covers; threads of a row differ in index x alone.

    If a block is one thread wide in x, its rows are those along its first longer dimension.
    """
    threads, width = math.prod(block), next((extent for extent in block if extent > 1), 1)
    return max(
        (min(first + WARP_SIZE, threads) - 1) // width - first // width + 1
        for first in range(0, threads, WARP_SIZE)
    )
