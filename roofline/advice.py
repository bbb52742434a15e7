"""What would bring a kernel closer to the roof: sentences that follow from its figures.

Each rule is a small function over a `Case`. It returns a `Finding`: a sentence with the figures
that led to it, and the share of the time that it explains, by which findings are ordered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import Measurement, flop_by_pipe
from memlab.device.properties import CUDA_CORE_KINDS, SECTOR_BYTES, DeviceProperties, clock_hz
from memlab.roofline.ceilings import LABELS, MEMORY_LEVELS
from memlab.roofline.placement import (
    L1_PASS_BYTES,
    LATENCY_BOUND_BELOW,
    bytes_moved,
    shared_wavefronts,
    utilisation,
)
from memlab.roofline.run import Placement
from memlab.roofline.units import scaled, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlab.roofline.run import Ceiling

SENTENCES_AT_MOST = 2

LEAST_SHARE = 0.02
"""What explains less of the time is not worth a sentence."""

WARP_FMA_FLOP = 64
"""An FMA by each of a warp's 32 threads."""

OCCUPANCY_REMEDIES = {
    "registers": "fewer registers a thread (__launch_bounds__) let more warps hide latency",
    "shared memory": "less shared memory a block lets more warps hide latency",
    "blocks": "larger blocks let more warps hide latency",
    "warps": "a block size that divides the warps a multiprocessor holds lets more hide latency",
}


@dataclass(frozen=True)
class Case:
    """All that a rule may look at.

    Attributes:
        measurement: What the device gave.
        placement: Its place under the roof.
        properties: The device.
        moved: Bytes by level, see `placement.bytes_moved`.
        busy: Share of the time for which each resource is busy, by the ceiling's key.
    """

    measurement: Measurement
    placement: Placement
    properties: DeviceProperties
    moved: dict[str, int]
    busy: dict[str, float]

    @property
    def memory_busy(self) -> float:
        """Share of the time for which the busiest level of memory is busy."""
        return max((self.busy.get(level, 0.0) for level in MEMORY_LEVELS), default=0.0)

    def port_share(self, byte_count: float) -> float:
        """Share that some bytes have in all those through the L1 / shared port."""
        return byte_count / self.moved["l1"] if self.moved["l1"] else 0.0


@dataclass(frozen=True)
class Finding:
    """One thing to change.

    Attributes:
        share: The part of the time it explains, about; 0 to 1.
        sentence: What the figures say and what to do.
    """

    share: float
    sentence: str


def advise(
    measurement: Measurement,
    placement: Placement,
    properties: DeviceProperties,
    ceilings: Sequence[Ceiling],
) -> tuple[str, ...]:
    """Say in one or two sentences what would help most.

    Args:
        measurement: What the device gave.
        placement: Its place, from `placement.place` under the same ceilings.
        properties: The device.
        ceilings: What limits it.

    Returns:
        At least one sentence and at most two, the one that explains most time first.
    """
    case = Case(
        measurement=measurement,
        placement=placement,
        properties=properties,
        moved=bytes_moved(measurement),
        busy=utilisation(measurement, ceilings),
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
        f"{_label(case.placement.ceiling)} roof, a physical limit; check the time, the clocks and "
        "the counters.",
    )


def _idle_multiprocessors(case: Case) -> Finding | None:
    multiprocessors = case.properties.multiprocessor_count
    resident = case.measurement.occupancy.blocks_per_sm
    if not multiprocessors or not resident:
        return None
    blocks = math.prod(case.measurement.grid)
    if blocks < multiprocessors:
        idle = multiprocessors - blocks
        return Finding(
            idle / multiprocessors,
            f"{blocks} {'block leaves' if blocks == 1 else 'blocks leave'} {idle} of "
            f"{multiprocessors} multiprocessors idle: divide the work into more, smaller blocks.",
        )
    # Up to one wave, blocks spread evenly over the multiprocessors; beyond, the last wave is short.
    slots = multiprocessors * min(resident, math.ceil(blocks / multiprocessors))
    waves = blocks / slots
    idle_share = 1.0 - waves / math.ceil(waves)
    if idle_share < 0.1:
        return None
    return Finding(
        idle_share,
        f"{blocks} blocks are {waves:.2f} waves of {slots}, so {idle_share:.0%} of the block slots "
        "stay empty at the end: choose sizes that fill whole waves, or smaller blocks.",
    )


def _low_occupancy(case: Case) -> Finding | None:
    occupancy = case.measurement.occupancy
    if case.placement.bound != "latency" or occupancy.theoretical >= 0.5:
        return None
    limiter = occupancy.limiter
    remedy = OCCUPANCY_REMEDIES.get(limiter.split(" and ")[0], "let more warps hide latency")
    return Finding(
        (1.0 - occupancy.theoretical) * (1.0 - max(case.busy.values())),
        f"Occupancy is {occupancy.theoretical:.0%} ({occupancy.warps_per_sm} warps a "
        f"multiprocessor), limited by {limiter}: {remedy}.",
    )


def _bank_conflicts(case: Case) -> Finding | None:
    excessive = case.measurement.counters.shared_excessive_wavefronts
    wavefronts = shared_wavefronts(case.measurement.counters)
    if not wavefronts or excessive / wavefronts < 0.1:
        return None
    return Finding(
        case.port_share(L1_PASS_BYTES * excessive) * case.busy.get("l1", 0.0),
        f"Bank conflicts cause {excessive / wavefronts:.0%} of the {scaled(wavefronts, '')} "
        "shared-memory wavefronts: pad the rows of the shared array by one element.",
    )


def _divergent_constants(case: Case) -> Finding | None:
    counters, properties = case.measurement.counters, case.properties
    clock, rate = clock_hz(properties), properties.constant_passes_per_clock_per_sm
    excessive = counters.constant_load_passes - counters.constant_load_requests
    if excessive <= 0 or not clock or not rate or not properties.multiprocessor_count:
        return None
    excessive_s = excessive / rate / properties.multiprocessor_count / clock
    passes = counters.constant_load_passes / counters.constant_load_requests
    return Finding(
        min(1.0, excessive_s / case.measurement.time.median_s),
        f"The lanes of a warp want {short(passes)} different addresses a constant load, and the "
        "constant cache serves one at a time: index it alike in a whole warp, or move the table to "
        "shared or global memory.",
    )


def _uncoalesced(case: Case) -> Finding | None:
    counters = case.measurement.counters
    requests = counters.global_load_requests + counters.global_store_requests
    sectors = counters.global_load_sectors + counters.global_store_sectors
    ideal_sectors = case.moved["requested"] / SECTOR_BYTES
    if not sectors or not ideal_sectors or ideal_sectors / sectors > 0.75:
        return None
    return Finding(
        (1.0 - ideal_sectors / sectors)
        * case.port_share(SECTOR_BYTES * sectors)
        * case.memory_busy,
        f"Global accesses touch {short(sectors / requests)} sectors a request where the bytes "
        f"asked for fill {short(ideal_sectors / requests)}: let neighbouring threads access "
        "neighbouring addresses.",
    )


def _spills(case: Case) -> Finding | None:
    counters = case.measurement.counters
    local_bytes = SECTOR_BYTES * (counters.local_load_sectors + counters.local_store_sectors)
    share = case.port_share(local_bytes)
    if share < 0.02:
        return None
    return Finding(
        share * case.memory_busy,
        f"Local memory (spilled registers or arrays indexed at run time) is {share:.0%} of the "
        f"traffic through the L1, {scaled(local_bytes, 'B')}: keep fewer values alive a thread, or "
        "allow more registers.",
    )


def _unseen_spills(case: Case) -> Finding | None:
    """Registers are spilled by ptxas, and what is counted is the PTX before it."""
    measurement = case.measurement
    spilled = measurement.resources.local_bytes_per_thread
    counters = measurement.counters
    if not spilled or counters.local_load_sectors or counters.local_store_sectors:
        return None
    whole = spilled * math.prod(measurement.grid) * math.prod(measurement.block)
    modelled = measurement.time.provenance == "modelled"
    return Finding(
        1.0,  # every other figure is in doubt
        f"The compiler spills {spilled} B a thread to local memory, {scaled(whole, 'B')} in all, "
        + ("which neither counters nor time hold" if modelled else "which the counters do not hold")
        + ": keep fewer values alive a thread, or allow more registers.",
    )


def _unstaged_reuse(case: Case) -> Finding | None:
    requested, compulsory = case.moved["requested"], case.moved["compulsory"]
    if shared_wavefronts(case.measurement.counters) or not compulsory:
        return None
    if requested < 8 * compulsory:
        return None
    intensity = case.placement.intensity_flop_per_byte["requested"] or 0.0
    tiling = (
        f"; a tile of T x T multiplies the requested {short(intensity)} FLOP/B by T "
        f"(T = 32: {short(32 * intensity)})"
        if case.measurement.tile
        else ""
    )
    return Finding(
        case.memory_busy,
        f"The threads request {scaled(requested, 'B')} where {scaled(compulsory, 'B')} are "
        f"compulsory, and the L1 is busy {case.busy.get('l1', 0.0):.0%} of the time serving "
        f"them: stage what they share in shared memory{tiling}.",
    )


def _shared_rereads(case: Case) -> Finding | None:
    counters = case.measurement.counters
    useful = shared_wavefronts(counters) - counters.shared_excessive_wavefronts
    share = case.port_share(L1_PASS_BYTES * useful)
    rereads = counters.shared_load_wavefronts > 2 * counters.shared_store_wavefronts
    busy = case.busy.get("l1", 0.0)
    if not case.measurement.flop or not rereads or share < 0.5 or busy < 0.4:
        return None
    intensity = case.placement.intensity_flop_per_byte["l1"] or 0.0
    # Without register tiling, an FMA of a warp takes a wavefront or more.
    tiled = case.measurement.flop > 2 * WARP_FMA_FLOP * counters.shared_load_wavefronts
    remedy = (
        "let each thread or warp compute more outputs from what it has read"
        if tiled
        else "let each thread compute r x r outputs from registers, which divides the shared "
        "loads by r"
    )
    return Finding(
        share * busy,
        f"Reading shared memory takes {share:.0%} of the L1 / shared port's traffic at "
        f"{short(intensity)} FLOP/B, and the port is busy {busy:.0%} of the time: {remedy}.",
    )


def _wider_tile(case: Case) -> Finding | None:
    measurement = case.measurement
    tile, most_threads = measurement.tile, case.properties.max_threads_per_block
    multiprocessors = case.properties.multiprocessor_count
    if not tile or not most_threads or not shared_wavefronts(measurement.counters):
        return None
    # A tile that is twice as wide needs four times the threads and leaves a quarter of the blocks.
    fits = 4 * tile**2 <= most_threads
    fills = not multiprocessors or math.prod(measurement.grid) // 4 >= multiprocessors
    if not fits or not fills:
        return None
    load_bytes = SECTOR_BYTES * measurement.counters.global_load_sectors
    intensity = case.placement.intensity_flop_per_byte["requested"] or 0.0
    beyond = max(case.busy.get("l2", 0.0), case.busy.get("dram", 0.0))
    return Finding(
        max(beyond, case.port_share(load_bytes) * case.busy.get("l1", 0.0)) / 2,
        f"Tile {2 * tile} would halve the {scaled(load_bytes, 'B')} loaded from global memory and "
        f"raise the requested {short(intensity)} FLOP/B to {short(2 * intensity)}.",
    )


def _dram(case: Case) -> Finding | None:
    moved, compulsory = case.moved["dram"], case.moved["compulsory"]
    busy = case.busy.get("dram", 0.0)
    if busy < LATENCY_BOUND_BELOW or not moved:
        return None
    if compulsory and moved > 1.5 * compulsory:
        return Finding(
            busy * (1.0 - compulsory / moved),
            f"DRAM moves {scaled(moved, 'B')} where {scaled(compulsory, 'B')} are compulsory: "
            "order the blocks so that data is used again while the L2 holds it.",
        )
    return Finding(
        busy,
        f"DRAM is busy {busy:.0%} of the time with {scaled(moved, 'B')}, no more than is "
        "compulsory: only fewer bytes help (fuse with a neighbouring kernel, use smaller types).",
    )


def _arithmetic(case: Case) -> Finding | None:
    pipe = max(flop_by_pipe(case.measurement.counters), key=lambda key: case.busy.get(key, 0.0))
    busy = case.busy.get(pipe, 0.0)
    if busy < LATENCY_BOUND_BELOW:
        return None
    left = "fewer FLOPs or tensor cores are" if pipe in CUDA_CORE_KINDS else "a narrower type is"
    return Finding(
        busy,
        f"The {_label(pipe)} pipes run at {busy:.0%} of their peak, so memory does not hold the "
        f"kernel back: {left} what is left.",
    )


def _nothing_else(case: Case) -> str:
    busiest = max(case.busy, key=lambda key: case.busy[key])
    busy = case.busy[busiest]
    if busy >= LATENCY_BOUND_BELOW:
        return (
            f"{_label(busiest)} is busy {busy:.0%} of the time: little is left under this roof; "
            f"move fewer bytes through {_label(busiest)} to leave it."
        )
    return (
        f"No roof explains the time: the busiest resource, {_label(busiest)}, works for {busy:.0%} "
        "of it; keep more loads in flight (several elements a thread) or give a launch more work."
    )


def _label(key: str) -> str:
    return LABELS.get(key, key)


DOUBTS: tuple[Callable[[Case], Finding | None], ...] = (
    _wrong_result,
    _without_counters,
    _above_a_limit,
)
"""What makes every other figure meaningless; the first that speaks speaks alone."""

RULES: tuple[Callable[[Case], Finding | None], ...] = (
    _idle_multiprocessors,
    _low_occupancy,
    _bank_conflicts,
    _divergent_constants,
    _uncoalesced,
    _spills,
    _unseen_spills,
    _unstaged_reuse,
    _shared_rereads,
    _wider_tile,
    _dram,
    _arithmetic,
)
"""All that is looked for; the order decides only between equal shares."""
