"""Advice: sentences, from a kernel's figures, on what would bring it closer to its ceiling.

Each rule is a small function over an `AdviceCase`. It returns a `Recommendation`: a sentence with
the figures that led to it, and the share of the time that the change could save by the time model.
Recommendations are ordered by that share, and those that would save next to nothing are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.measurement import Measurement
from memlab.device.properties import DeviceProperties
from memlab.roofline.advice import banks as bank_advice
from memlab.roofline.advice import memory as memory_advice
from memlab.roofline.advice import work as work_advice
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.ceilings import MEMORY_LEVELS, ceiling_label
from memlab.roofline.placement import LATENCY_BOUND_THRESHOLD, bytes_moved
from memlab.roofline.run import Placement

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SENTENCES = 2

MIN_SAVING = 0.01
"""Recommendations that could save a smaller share of the time are left out."""


def advise(
    measurement: Measurement,
    placement: Placement,
    properties: DeviceProperties,
) -> tuple[str, ...]:
    """Recommend, in one or two sentences, what would help most.

    Args:
        measurement: The measured launch.
        placement: Its placement, from `placement.place_measurement`.
        properties: The device.

    Returns:
        One or two sentences; the first could save the larger share of the time.
    """
    case = AdviceCase(
        measurement=measurement,
        placement=placement,
        properties=properties,
        moved=bytes_moved(measurement),
        busy=placement.busy,
    )
    for rule in VALIDITY_RULES:
        if fault := rule(case):
            return (fault.sentence,)
    found = [recommendation for rule in ADVICE_RULES if (recommendation := rule(case))]
    advice = [recommendation for recommendation in found if recommendation.saving >= MIN_SAVING]
    advice.sort(key=lambda recommendation: -recommendation.saving)
    sentences = tuple(recommendation.text for recommendation in advice[:MAX_SENTENCES])
    return sentences or (_default_sentence(case),)


def _failed_verification(case: AdviceCase) -> Recommendation | None:
    verification = case.measurement.verification
    if verification.status != "failed":
        return None
    return Recommendation(
        1.0,
        f"The result is wrong: the relative error is {verification.relative_error:.1e}, and the "
        f"tolerance {verification.tolerance:.1e}; correct the kernel before tuning it.",
    )


def _missing_counters(case: AdviceCase) -> Recommendation | None:
    if not case.measurement.coverage.not_counted:
        return None
    return Recommendation(
        1.0,
        "There are no counters, so only the time is known: --counters ncu counts in hardware, "
        "where Nsight Compute has the permission.",
    )


def _exceeded_limit(case: AdviceCase) -> Recommendation | None:
    fraction = case.placement.fraction_of_ceiling
    if fraction <= 1.0:
        return None
    return Recommendation(
        1.0,
        f"Invalid: the kernel would run at {fraction:.0%} of the "
        f"{ceiling_label(case.placement.ceiling)} ceiling, a physical limit; check the time, the "
        "clocks and the counters.",
    )


def _default_sentence(case: AdviceCase) -> str:
    key = max(case.busy, key=lambda key: case.busy[key])
    busy, busiest = case.busy[key], ceiling_label(key)
    of_memory = key in MEMORY_LEVELS
    if busy >= LATENCY_BOUND_THRESHOLD:
        fewer = f"bytes through {busiest}" if of_memory else f"{busiest} operations"
        return (
            f"{busiest} is busy {busy:.0%} of the time, close to its ceiling: only fewer {fewer} "
            "make the kernel faster."
        )
    more = "loads in flight (several elements" if of_memory else "independent work (several results"
    if case.placement.bound == key:  # a modelled time's largest bound, below the threshold
        found = f"{busiest} bounds the time, but is busy for only {busy:.0%} of it"
    else:
        found = (
            f"No ceiling explains the time: the busiest resource, {busiest}, is busy for "
            f"{busy:.0%} of it"
        )
    return f"{found}; keep more {more} per thread) or give a launch more work."


VALIDITY_RULES: tuple[Callable[[AdviceCase], Recommendation | None], ...] = (
    _failed_verification,
    _missing_counters,
    _exceeded_limit,
)
"""Rules for faults that make all other figures meaningless; only the first fault is reported."""

ADVICE_RULES: tuple[Callable[[AdviceCase], Recommendation | None], ...] = (
    work_advice.shortest_kernel,
    work_advice.idle_multiprocessors,
    work_advice.low_occupancy,
    bank_advice.bank_conflicts,
    memory_advice.divergent_constants,
    memory_advice.uncoalesced_accesses,
    memory_advice.contended_atomics,
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
"""All rules; their order decides only between equal savings."""
