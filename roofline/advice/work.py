"""Rules on work: how a launch fills the multiprocessors, and the instructions that they issue."""

from __future__ import annotations

import math

from memlab.device.measurement import flop_by_pipe, integer_op_by_pipe
from memlab.device.occupancy import resident_blocks
from memlab.device.properties import CUDA_CORE_KINDS, INTEGER_KINDS, clock_hz
from memlab.device.time_model import SCHEDULERS_PER_SM, block_launch_time_s
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import LATENCY_BOUND_THRESHOLD
from memlab.roofline.units import sentence_number, si_text

OCCUPANCY_REMEDIES = {
    "registers": "fewer registers per thread (__launch_bounds__) let more warps hide latency",
    "shared memory": "less shared memory per block lets more warps hide latency",
    "blocks": "larger blocks let more warps hide latency",
    "warps": "a block size that divides the warps of a multiprocessor lets more hide latency",
}

SHORTEST_KERNEL_FACTOR = 1.1
"""A time up to this many times the shortest kernel's is that of the launch, not of its work."""


def shortest_kernel(case: AdviceCase) -> Recommendation | None:
    """The launch has so little work that launching takes most of the time."""
    time, shortest_s = case.measurement.time, case.properties.shortest_kernel_s
    if not shortest_s:
        return None
    least_s = shortest_s + (time.event_pair_s or 0.0)
    if time.median_s > SHORTEST_KERNEL_FACTOR * least_s:
        return None
    return Recommendation(
        min(1.0, least_s / time.median_s),
        f"No kernel is shorter than {si_text(shortest_s, 's')} on this device: give it more work.",
        is_estimate=False,
    )


def idle_multiprocessors(case: AdviceCase) -> Recommendation | None:
    """Multiprocessors have no block, from the start or at the end."""
    multiprocessors = case.properties.multiprocessor_count
    resident = case.measurement.occupancy.blocks_per_sm
    if not multiprocessors or not resident:
        return None
    blocks = math.prod(case.measurement.grid)
    if blocks < multiprocessors:
        idle = multiprocessors - blocks
        # Few blocks can share out also what each warp does one thing after another. Of nearly
        # enough blocks, the others do not get shorter.
        filled, few = blocks / multiprocessors, blocks <= multiprocessors / 2
        return Recommendation(
            case.saving(case.multiprocessor_bounds(filled), waiting=filled if few else 1.0),
            f"{blocks} {'block leaves' if blocks == 1 else 'blocks leave'} {idle} of "
            f"{multiprocessors} multiprocessors idle: divide the work into more, smaller blocks.",
            is_estimate=not few,
        )
    cluster_blocks = math.prod(case.measurement.cluster)
    wave = resident_blocks(case.properties, resident, cluster_blocks)
    if not wave:  # of a stored run, whose clusters the device of today cannot hold
        return None
    if blocks <= wave:
        return _uneven_block_distribution(case, blocks, multiprocessors)
    waves = blocks / wave
    idle_share = 1.0 - waves / math.ceil(waves)
    if idle_share < 0.1:
        return None
    filled = 1.0 - idle_share
    return Recommendation(
        case.saving(case.multiprocessor_bounds(filled), waiting=filled),
        f"{blocks} blocks are {waves:.2f} waves of {wave}, so {idle_share:.0%} of the block slots "
        "stay empty at the end: choose sizes that fill whole waves, or smaller blocks.",
    )


def _uneven_block_distribution(
    case: AdviceCase, blocks: int, multiprocessors: int
) -> Recommendation | None:
    """All blocks of one wave start at once; multiprocessors with one block more end last."""
    fewer, favoured = divmod(blocks, multiprocessors)
    idle_share = (multiprocessors - favoured) / (multiprocessors * (fewer + 1)) if favoured else 0.0
    if idle_share < 0.1:
        return None
    get = "gets" if favoured == 1 else "get"
    return Recommendation(
        case.saving(case.multiprocessor_bounds(1.0 - idle_share)),
        f"{blocks} blocks over {multiprocessors} multiprocessors: {favoured} {get} {fewer + 1}, "
        f"{multiprocessors - favoured} get {fewer} and wait for them: choose sizes that spread "
        "evenly, or smaller blocks.",
    )


def low_occupancy(case: AdviceCase) -> Recommendation | None:
    """There are too few warps to hide latency."""
    occupancy = case.measurement.occupancy
    if case.placement.bound != "latency" or occupancy.theoretical >= 0.5:
        return None
    limiter, multiprocessors = occupancy.limiter, case.properties.multiprocessor_count
    limiters = limiter.split(" and ")
    # No more blocks than there are, nor than the other resources hold.
    most = math.ceil(math.prod(case.measurement.grid) / (multiprocessors or 1))
    others = [limit for name, limit in occupancy.limits.items() if name not in limiters]
    resident = min([most, *others])
    if resident <= occupancy.blocks_per_sm:
        return None
    remedy = OCCUPANCY_REMEDIES.get(limiters[0], "let more warps hide latency")
    return Recommendation(
        case.saving({}, waiting=occupancy.blocks_per_sm / resident),
        f"Occupancy is {occupancy.theoretical:.0%} ({occupancy.warps_per_sm} warps per "
        f"multiprocessor), limited by {limiter}: {remedy}.",
    )


def arithmetic_peak(case: AdviceCase) -> Recommendation | None:
    """Arithmetic is at its peak."""
    counters = case.measurement.counters
    pipes = (*flop_by_pipe(counters), *integer_op_by_pipe(counters))
    pipe = max(pipes, key=lambda key: case.busy.get(key, 0.0))
    busy = case.busy.get(pipe, 0.0)
    if busy < LATENCY_BOUND_THRESHOLD:
        return None
    left = "fewer FLOPs or tensor cores" if pipe in CUDA_CORE_KINDS else "a narrower type"
    if pipe in INTEGER_KINDS:
        left = "fewer integer operations"
    return Recommendation(
        case.saving({pipe: 0.0}),
        f"The {ceiling_label(pipe)} pipes run at {busy:.0%} of their peak, so memory is not the "
        f"limit: only {left} would make the kernel faster.",
        is_estimate=False,
    )


def issue_slots(case: AdviceCase) -> Recommendation | None:
    """Instructions fill the issue slots of the warp schedulers."""
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
        case.saving({"issue": 0.0}),
        f"Instructions fill {busy:.0%} of the issue slots, with {sentence_number(lanes)} of "
        f"{properties.warp_size} lanes active: do the same work with fewer instructions, by wider "
        "accesses (float4), several elements per thread and indices computed once.",
        is_estimate=False,
    )


def block_start_overhead(case: AdviceCase) -> Recommendation | None:
    """Blocks are so short that starting them takes most of the time."""
    blocks = math.prod(case.measurement.grid)
    share = block_launch_time_s(blocks, case.properties) / case.measurement.time.median_s
    if share < LATENCY_BOUND_THRESHOLD:
        return None
    return Recommendation(
        case.saving({"launch": 0.0}),
        f"Starting {blocks:,} blocks takes {share:.0%} of the time, whatever they do: use fewer "
        "blocks with several elements per thread, or do the work of several launches in one.",
    )
