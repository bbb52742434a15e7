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
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import LATENCY_BOUND_THRESHOLD, bytes_moved
from memlab.roofline.run import Placement

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SENTENCES = 2

MIN_SHARE = 0.02
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
    case = AdviceCase(
        measurement=measurement,
        placement=placement,
        properties=properties,
        moved=bytes_moved(measurement),
        busy=placement.busy,
    )
    for doubt in VALIDITY_RULES:
        if finding := doubt(case):
            return (finding.sentence,)
    findings = [each for rule in ADVICE_RULES if (each := rule(case)) and each.share >= MIN_SHARE]
    findings.sort(key=lambda finding: -finding.share)
    return tuple(each.sentence for each in findings[:MAX_SENTENCES]) or (_default_sentence(case),)


def _failed_verification(case: AdviceCase) -> Recommendation | None:
    verification = case.measurement.verification
    if verification.status != "failed":
        return None
    return Recommendation(
        1.0,
        f"The result is wrong: relative error {verification.relative_error:.1e} where rounding "
        f"explains {verification.tolerance:.1e}; correct the kernel before tuning it.",
    )


def _missing_counters(case: AdviceCase) -> Recommendation | None:
    if not case.measurement.coverage.not_counted:
        return None
    return Recommendation(
        1.0,
        "Nothing was counted, so only the time is known: --counters ncu counts in hardware, where "
        "Nsight Compute may.",
    )


def _exceeded_limit(case: AdviceCase) -> Recommendation | None:
    fraction = case.placement.fraction_of_ceiling
    if fraction <= 1.0:
        return None
    return Recommendation(
        1.0,
        f"Invalid: the kernel would run at {fraction:.0%} of the "
        f"{ceiling_label(case.placement.ceiling)} roof, a physical limit; check the time, the "
        "clocks and the counters.",
    )


def _default_sentence(case: AdviceCase) -> str:
    key = max(case.busy, key=lambda key: case.busy[key])
    busy, busiest = case.busy[key], ceiling_label(key)
    if busy >= LATENCY_BOUND_THRESHOLD:
        return (
            f"{busiest} is busy {busy:.0%} of the time: little is left under this roof; "
            f"move fewer bytes through {busiest} to leave it."
        )
    return (
        f"No roof explains the time: the busiest resource, {busiest}, works for {busy:.0%} "
        "of it; keep more loads in flight (several elements a thread) or give a launch more work."
    )


VALIDITY_RULES: tuple[Callable[[AdviceCase], Recommendation | None], ...] = (
    _failed_verification,
    _missing_counters,
    _exceeded_limit,
)
"""What makes every other figure meaningless; the first that speaks speaks alone."""

ADVICE_RULES: tuple[Callable[[AdviceCase], Recommendation | None], ...] = (
    work_advice.shortest_kernel,
    work_advice.idle_multiprocessors,
    work_advice.low_occupancy,
    bank_advice.bank_conflicts,
    memory_advice.divergent_constants,
    memory_advice.uncoalesced_accesses,
    memory_advice.local_arrays,
    memory_advice.uncounted_spills,
    memory_advice.unstaged_reuse,
    memory_advice.shared_rereads,
    memory_advice.wider_tile,
    memory_advice.dram_traffic,
    work_advice.arithmetic_peak,
    work_advice.issue_slots,
    work_advice.block_start_overhead,
)
"""All that is looked for; the order decides only between equal shares."""
