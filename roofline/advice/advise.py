"""What would bring a kernel closer to the roof: sentences that follow from its figures.

Each rule is a small function over a `Case`. It returns a `Finding`: a sentence with the figures
that led to it, and the share of the time that it explains, by which findings are ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.roofline.advice import banks as bank_advice
from memlab.roofline.advice import memory as memory_advice
from memlab.roofline.advice import work as work_advice
from memlab.roofline.advice.case import Case, Finding
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import LATENCY_BOUND_BELOW, bytes_moved
from memlab.roofline.run import Placement

if TYPE_CHECKING:
    from collections.abc import Callable

SENTENCES_AT_MOST = 2

LEAST_SHARE = 0.02
"""What explains less of the time is not worth a sentence."""


def advise(
    measurement: Measurement,
    placement: Placement,
    properties: DeviceProperties,
) -> tuple[str, ...]:
    """Say in one or two sentences what would help most.

    Args:
        measurement: What the device gave.
        placement: Its place, from `placement.place`.
        properties: The device.

    Returns:
        At least one sentence and at most two, the one that explains most time first.
    """
    case = Case(
        measurement=measurement,
        placement=placement,
        properties=properties,
        moved=bytes_moved(measurement),
        busy=placement.busy,
    )
    for doubt in DOUBTS:
        if finding := doubt(case):
            return (finding.sentence,)
    findings = [each for rule in RULES if (each := rule(case)) and each.share >= LEAST_SHARE]
    findings.sort(key=lambda finding: -finding.share)
    return tuple(each.sentence for each in findings[:SENTENCES_AT_MOST]) or (_nothing_else(case),)


def _wrong_result(case: Case) -> Finding | None:
    verification = case.measurement.verification
    if verification.status != "failed":
        return None
    return Finding(
        1.0,
        f"The result is wrong: relative error {verification.relative_error:.1e} where rounding "
        f"explains {verification.tolerance:.1e}; correct the kernel before tuning it.",
    )


def _without_counters(case: Case) -> Finding | None:
    if not case.measurement.coverage.not_counted:
        return None
    return Finding(
        1.0,
        "Nothing was counted, so only the time is known: --counters ncu counts in hardware, where "
        "Nsight Compute may.",
    )


def _above_a_limit(case: Case) -> Finding | None:
    fraction = case.placement.fraction_of_ceiling
    if fraction <= 1.0:
        return None
    return Finding(
        1.0,
        f"Invalid: the kernel would run at {fraction:.0%} of the "
        f"{ceiling_label(case.placement.ceiling)} roof, a physical limit; check the time, the "
        "clocks and the counters.",
    )


def _nothing_else(case: Case) -> str:
    key = max(case.busy, key=lambda key: case.busy[key])
    busy, busiest = case.busy[key], ceiling_label(key)
    if busy >= LATENCY_BOUND_BELOW:
        return (
            f"{busiest} is busy {busy:.0%} of the time: little is left under this roof; "
            f"move fewer bytes through {busiest} to leave it."
        )
    return (
        f"No roof explains the time: the busiest resource, {busiest}, works for {busy:.0%} "
        "of it; keep more loads in flight (several elements a thread) or give a launch more work."
    )


DOUBTS: tuple[Callable[[Case], Finding | None], ...] = (
    _wrong_result,
    _without_counters,
    _above_a_limit,
)
"""What makes every other figure meaningless; the first that speaks speaks alone."""

RULES: tuple[Callable[[Case], Finding | None], ...] = (
    work_advice.shortest_kernel,
    work_advice.idle_multiprocessors,
    work_advice.low_occupancy,
    bank_advice.bank_conflicts,
    memory_advice.divergent_constants,
    memory_advice.uncoalesced,
    memory_advice.local_arrays,
    memory_advice.unseen_spills,
    memory_advice.unstaged_reuse,
    memory_advice.shared_rereads,
    memory_advice.wider_tile,
    memory_advice.dram,
    work_advice.arithmetic,
    work_advice.issue,
    work_advice.starting_blocks,
)
"""All that is looked for; the order decides only between equal shares."""
