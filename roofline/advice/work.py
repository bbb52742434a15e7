"""Rules of the advice on work: how a launch fills the multiprocessors, and what they execute."""

from __future__ import annotations

import math

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import CUDA_CORE_KINDS, clock_hz
from memlab.device.time_model import SCHEDULERS_PER_SM, block_launch_time_s
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import LATENCY_BOUND_THRESHOLD
from memlab.roofline.units import sentence_number, si_text

OCCUPANCY_REMEDIES = {
    "registers": "fewer registers a thread (__launch_bounds__) let more warps hide latency",
    "shared memory": "less shared memory a block lets more warps hide latency",
    "blocks": "larger blocks let more warps hide latency",
    "warps": "a block size that divides the warps a multiprocessor holds lets more hide latency",
}

SHORTEST_KERNEL_FACTOR = 1.1
"""Times up to this many times the shortest kernel's say nothing of what a kernel does."""


def shortest_kernel(case: AdviceCase) -> Recommendation | None:
    """So little work that the launch itself takes the time."""
    time, shortest_s = case.measurement.time, case.properties.shortest_kernel_s
    if not shortest_s:
        return None
    least_s = shortest_s + (time.event_pair_s or 0.0)
    if time.median_s > SHORTEST_KERNEL_FACTOR * least_s:
        return None
    return Recommendation(
        min(1.0, least_s / time.median_s),
        f"No kernel is shorter than {si_text(shortest_s, 's')} on this device: give it more work.",
    )


def idle_multiprocessors(case: AdviceCase) -> Recommendation | None:
    """Multiprocessors without a block, from the start or at the end."""
    multiprocessors = case.properties.multiprocessor_count
    resident = case.measurement.occupancy.blocks_per_sm
    if not multiprocessors or not resident:
        return None
    blocks = math.prod(case.measurement.grid)
    if blocks < multiprocessors:
        idle = multiprocessors - blocks
        return Recommendation(
            idle / multiprocessors,
            f"{blocks} {'block leaves' if blocks == 1 else 'blocks leave'} {idle} of "
            f"{multiprocessors} multiprocessors idle: divide the work into more, smaller blocks.",
        )
    wave = multiprocessors * resident
    if blocks <= wave:
        return _uneven_block_distribution(blocks, multiprocessors)
    waves = blocks / wave
    idle_share = 1.0 - waves / math.ceil(waves)
    if idle_share < 0.1:
        return None
    return Recommendation(
        idle_share,
        f"{blocks} blocks are {waves:.2f} waves of {wave}, so {idle_share:.0%} of the block slots "
        "stay empty at the end: choose sizes that fill whole waves, or smaller blocks.",
    )


def _uneven_block_distribution(blocks: int, multiprocessors: int) -> Recommendation | None:
    """Within one wave all blocks start at once, and who got a block more ends last."""
    fewer, favoured = divmod(blocks, multiprocessors)
    idle_share = (multiprocessors - favoured) / (multiprocessors * (fewer + 1)) if favoured else 0.0
    if idle_share < 0.1:
        return None
    get = "gets" if favoured == 1 else "get"
    return Recommendation(
        idle_share,
        f"{blocks} blocks over {multiprocessors} multiprocessors: {favoured} {get} {fewer + 1}, "
        f"{multiprocessors - favoured} get {fewer} and wait for them: choose sizes that spread "
        "evenly, or smaller blocks.",
    )


def low_occupancy(case: AdviceCase) -> Recommendation | None:
    """Too few warps to hide latency."""
    occupancy = case.measurement.occupancy
    if case.placement.bound != "latency" or occupancy.theoretical >= 0.5:
        return None
    limiter = occupancy.limiter
    remedy = OCCUPANCY_REMEDIES.get(limiter.split(" and ")[0], "let more warps hide latency")
    return Recommendation(
        (1.0 - occupancy.theoretical) * (1.0 - max(case.busy.values())),
        f"Occupancy is {occupancy.theoretical:.0%} ({occupancy.warps_per_sm} warps a "
        f"multiprocessor), limited by {limiter}: {remedy}.",
    )


def arithmetic_peak(case: AdviceCase) -> Recommendation | None:
    """Arithmetic at its peak."""
    pipe = max(flop_by_pipe(case.measurement.counters), key=lambda key: case.busy.get(key, 0.0))
    busy = case.busy.get(pipe, 0.0)
    if busy < LATENCY_BOUND_THRESHOLD:
        return None
    left = "fewer FLOPs or tensor cores are" if pipe in CUDA_CORE_KINDS else "a narrower type is"
    return Recommendation(
        busy,
        f"The {ceiling_label(pipe)} pipes run at {busy:.0%} of their peak, so memory does not hold "
        f"the kernel back: {left} what is left.",
    )


def issue_slots(case: AdviceCase) -> Recommendation | None:
    """Schedulers that find little time for anything but issuing."""
    counters, properties = case.measurement.counters, case.properties
    clock, multiprocessors = clock_hz(properties), properties.multiprocessor_count
    if not clock or not multiprocessors or not counters.warp_instructions:
        return None
    slots_per_s = SCHEDULERS_PER_SM * multiprocessors * clock
    busy = counters.warp_instructions / slots_per_s / case.measurement.time.median_s
    if busy < LATENCY_BOUND_THRESHOLD:
        return None
    lanes = counters.thread_instructions / counters.warp_instructions
    return Recommendation(
        busy,
        f"Instructions fill {busy:.0%} of the issue slots, with {sentence_number(lanes)} of "
        f"{properties.warp_size} lanes on: fewer of them do the same work with wider accesses "
        "(float4), several elements a thread and indices computed once.",
    )


def block_start_overhead(case: AdviceCase) -> Recommendation | None:
    """Blocks so short that starting them is the work."""
    blocks = math.prod(case.measurement.grid)
    share = block_launch_time_s(blocks, case.properties) / case.measurement.time.median_s
    if share < LATENCY_BOUND_THRESHOLD:
        return None
    return Recommendation(
        share,
        f"Starting {blocks:,} blocks takes {share:.0%} of the time, whatever they do: fewer blocks "
        "whose threads do several elements each, or one launch for the work of several.",
    )
