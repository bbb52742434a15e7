"""The rule of the advice on bank conflicts: how many, where, and what would part the lanes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.placement import L1_WAVEFRONT_BYTES
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from memlab.device.measurement import Measurement

WARP_LANES = 32
BANK_COUNT = 32


def bank_conflicts(case: AdviceCase) -> Recommendation | None:
    """Lanes of a warp that want different words of one bank."""
    counters = case.measurement.counters
    # In which banks atomics meet the data says, and no layout parts them.
    of_atomics = counters.shared_atomic_wavefronts - counters.shared_atomic_instructions
    excessive = max(counters.shared_excessive_wavefronts - of_atomics, 0)
    wavefronts = counters.total("shared").wavefronts
    if not wavefronts or excessive / wavefronts < 0.1:
        return None
    return Recommendation(
        case.l1_port_share(L1_WAVEFRONT_BYTES * excessive) * case.busy.get("l1", 0.0),
        f"Bank conflicts cause {excessive / wavefronts:.0%} of the {si_text(wavefronts, '')} "
        f"shared-memory wavefronts{_worst_line_text(case.measurement, excessive)}.",
    )


def _worst_line_text(measurement: Measurement, excessive: int) -> str:
    """Name the line that causes most of them, and what helps there.

    Where lane `x` of a row wants word `a x` and `a` is odd, no two lanes of the row share a bank.
    So a warp that takes in r rows of its block and finds more than r words in a bank, as many in
    each access, has an even `a`; one that finds no more may meet words of other rows.

    What is advised holds for elements of any length, which the counts do not tell. Those of 8 and
    16 bytes are served to half and quarter warps, whose lanes share no bank where they lie an odd
    number of elements apart; of those shorter than a word, the words between must be odd.
    """
    line, degree = "", 0.0
    worst = max(measurement.lines, key=lambda each: each.shared_excessive_wavefronts, default=None)
    # A line's counts hold its atomics too.
    apart = not measurement.counters.shared_atomic_instructions
    if worst and apart and 2 * worst.shared_excessive_wavefronts >= excessive:
        needed = worst.shared_wavefronts - worst.shared_excessive_wavefronts
        line, degree = f", most on line {worst.line}", worst.shared_wavefronts / needed
    rows = rows_per_warp(measurement.block)
    if rows < degree <= BANK_COUNT and degree in (2, 4, 8, 16, 32):
        return (
            f"{line}, where a warp wants {degree:.0f} words of each bank, as lanes do that lie a "
            f"multiple of {degree:.0f} words apart: make that distance odd in 4-byte words, or in "
            "the values that lanes access where these are longer, such as by padding each row by "
            "one"
        )
    if 1 < degree <= rows:
        block = " x ".join(str(extent) for extent in measurement.block if extent > 1)
        return (
            f"{line}, where a warp takes in {rows} rows of the {block} block: if its lanes want "
            f"neighbouring words along a row, padding does nothing, and a block "
            f"{WARP_LANES} wide ends them"
        )
    return (
        f"{line}, where lanes want different words of one bank: a word of padding, or an element "
        f"where that is longer, a row or after every {BANK_COUNT} helps if their distance is a "
        "power "
        "of two; else change which words a warp wants together"
    )


def rows_per_warp(block: tuple[int, int, int]) -> int:
    """The most rows of a block, of threads whose index x alone differs, that a warp takes in.

    Where a block has no extent in x, its rows are those in the first direction that it has.
    """
    threads, width = math.prod(block), next((extent for extent in block if extent > 1), 1)
    return max(
        (min(first + WARP_LANES, threads) - 1) // width - first // width + 1
        for first in range(0, threads, WARP_LANES)
    )
