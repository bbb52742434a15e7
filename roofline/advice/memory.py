"""Rules of the advice on bytes: what asks memory for more than it must."""

from __future__ import annotations

import math

from memlab.device.properties import SECTOR_BYTES, clock_hz
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.placement import (
    L1_WAVEFRONT_BYTES,
    LATENCY_BOUND_THRESHOLD,
)
from memlab.roofline.units import sentence_number, si_text

WARP_FMA_FLOP = 64
"""An FMA by each of a warp's 32 threads."""

EXCESS_FACTOR = 1.5
"""Bytes beyond the compulsory ones by this factor are waste, not rounding to sectors and lines."""


def divergent_constants(case: AdviceCase) -> Recommendation | None:
    """Lanes of a warp that want different constants."""
    counters, properties = case.measurement.counters, case.properties
    clock, rate = clock_hz(properties), properties.constant_passes_per_clock_per_sm
    excessive = counters.constant_load_passes - counters.constant_load_requests
    if excessive <= 0 or not clock or not rate or not properties.multiprocessor_count:
        return None
    excessive_s = excessive / rate / properties.multiprocessor_count / clock
    passes = counters.constant_load_passes / counters.constant_load_requests
    return Recommendation(
        min(1.0, excessive_s / case.measurement.time.median_s),
        f"The lanes of a warp want {sentence_number(passes)} different addresses a constant "
        "load, and the "
        "constant cache serves one at a time: index it alike in a whole warp, or move the table to "
        "shared or global memory.",
    )


def uncoalesced_accesses(case: AdviceCase) -> Recommendation | None:
    """Sectors fetched for a part of their bytes."""
    counters = case.measurement.counters
    requests, sectors = counters.total("global").requests, counters.total("global").sectors
    ideal_sectors = case.moved["requested"] / SECTOR_BYTES
    if not sectors or not ideal_sectors or ideal_sectors / sectors > 0.75:
        return None
    return Recommendation(
        (1.0 - ideal_sectors / sectors)
        * case.l1_port_share(SECTOR_BYTES * sectors)
        * case.memory_busy,
        f"Global accesses touch {sentence_number(sectors / requests)} sectors a request where "
        "the bytes "
        f"asked for fill {sentence_number(ideal_sectors / requests)}: let neighbouring threads "
        "access "
        "neighbouring addresses.",
    )


def local_arrays(case: AdviceCase) -> Recommendation | None:
    """Local accesses in PTX are the program's own arrays: ptxas spills registers only after it."""
    counters = case.measurement.counters
    local_bytes = SECTOR_BYTES * counters.total("local").sectors
    share = case.l1_port_share(local_bytes)
    kept = case.measurement.resources.local_bytes_per_thread
    if share < 0.02 or not kept:  # without any, ptxas found registers for them after all
        return None
    return Recommendation(
        share * case.memory_busy,
        f"Arrays indexed at run time lie in local memory, {kept} B a thread, and are {share:.0%} "
        f"of the traffic through the L1, {si_text(local_bytes, 'B')}: unroll the loops that index "
        "them, so that each index is known when compiling, or keep them in shared memory.",
    )


def uncounted_spills(case: AdviceCase) -> Recommendation | None:
    """Registers are spilled by ptxas, and what is counted is the PTX before it."""
    measurement = case.measurement
    spilled = measurement.resources.local_bytes_per_thread
    counters = measurement.counters
    if not spilled or counters.total("local").sectors:
        return None
    whole = spilled * math.prod(measurement.grid) * math.prod(measurement.block)
    modelled = measurement.time.provenance == "modelled"
    return Recommendation(
        1.0,  # every other figure is in doubt
        f"The compiler spills {spilled} B a thread to local memory, {si_text(whole, 'B')} in all, "
        + ("which neither counters nor time hold" if modelled else "which the counters do not hold")
        + ": keep fewer values alive a thread, or allow more registers.",
    )


def unstaged_reuse(case: AdviceCase) -> Recommendation | None:
    """Bytes that many threads request anew, with no shared memory used."""
    requested, compulsory = case.moved["requested"], case.moved["compulsory"]
    if case.measurement.counters.total("shared").wavefronts or not compulsory:
        return None
    if requested < 8 * compulsory:
        return None
    intensity = case.placement.intensity_flop_per_byte["requested"] or 0.0
    tiling = (
        f"; a tile of T x T multiplies the requested {sentence_number(intensity)} FLOP/B by T "
        f"(T = 32: {sentence_number(32 * intensity)})"
        if case.measurement.tile
        else ""
    )
    return Recommendation(
        case.memory_busy,
        f"The threads request {si_text(requested, 'B')} where {si_text(compulsory, 'B')} are "
        f"compulsory, and the L1 is busy {case.busy.get('l1', 0.0):.0%} of the time serving "
        f"them: stage what they share in shared memory{tiling}.",
    )


def shared_rereads(case: AdviceCase) -> Recommendation | None:
    """Shared memory read for each operation, where registers could hold what is read."""
    counters = case.measurement.counters
    useful = counters.total("shared").wavefronts - counters.shared_excessive_wavefronts
    share = case.l1_port_share(L1_WAVEFRONT_BYTES * useful)
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
    return Recommendation(
        share * busy,
        f"Reading shared memory takes {share:.0%} of the L1 / shared port's traffic at "
        f"{sentence_number(intensity)} FLOP/B, and the port is busy {busy:.0%} of the time: "
        f"{remedy}.",
    )


def wider_tile(case: AdviceCase) -> Recommendation | None:
    """A tile that could be wider."""
    measurement = case.measurement
    tile, most_threads = measurement.tile, case.properties.max_threads_per_block
    multiprocessors = case.properties.multiprocessor_count
    if not tile or not most_threads or not measurement.counters.total("shared").wavefronts:
        return None
    # A tile that is twice as wide needs four times the threads and leaves a quarter of the blocks.
    fits = 4 * tile**2 <= most_threads
    fills = not multiprocessors or math.prod(measurement.grid) // 4 >= multiprocessors
    if not fits or not fills:
        return None
    load_bytes = SECTOR_BYTES * measurement.counters.global_load_sectors
    intensity = case.placement.intensity_flop_per_byte["requested"] or 0.0
    beyond = max(case.busy.get("l2", 0.0), case.busy.get("dram", 0.0))
    return Recommendation(
        max(beyond, case.l1_port_share(load_bytes) * case.busy.get("l1", 0.0)) / 2,
        f"Tile {2 * tile} would halve the {si_text(load_bytes, 'B')} loaded from global memory and "
        f"raise the requested {sentence_number(intensity)} FLOP/B to "
        f"{sentence_number(2 * intensity)}.",
    )


def dram_traffic(case: AdviceCase) -> Recommendation | None:
    """DRAM at its limit, or bytes moved through it again."""
    counters, moved = case.measurement.counters, case.moved["dram"]
    busy = case.busy.get("dram", 0.0)
    if busy < LATENCY_BOUND_THRESHOLD or not moved:
        return None
    for verb, bytes_there, needed in (
        ("reads", counters.dram_read_bytes, _compulsory_reads(case)),
        ("moves", moved, case.moved["compulsory"]),
    ):
        if not needed or bytes_there <= EXCESS_FACTOR * needed:
            continue
        if uncoalesced_accesses(
            case
        ):  # the waste is of sectors that are fetched for a part of them
            return None
        return Recommendation(
            busy * (bytes_there - needed) / moved,
            f"DRAM {verb} {si_text(bytes_there, 'B')} where {si_text(needed, 'B')} are compulsory: "
            "order the blocks so that data is used again while the L2 holds it.",
        )
    return Recommendation(
        busy,
        f"DRAM is busy {busy:.0%} of the time with {si_text(moved, 'B')}, no more than is "
        "compulsory: only fewer bytes help (fuse with a neighbouring kernel, use smaller types).",
    )


def _compulsory_reads(case: AdviceCase) -> int:
    """The part of the compulsory bytes that is read, as far as the counts tell; 0 where not.

    What is stored is an output, if each is stored once; and no more than the threads ask for is
    compulsory. Writes have no part in it: those that the L2 still holds never reach the DRAM.
    """
    counters = case.measurement.counters
    inputs = case.moved["compulsory"] - counters.requested_store_bytes
    return max(0, min(inputs, counters.requested_load_bytes))
