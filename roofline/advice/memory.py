"""Rules on memory traffic: accesses that move more bytes than needed."""

from __future__ import annotations

import math

from memlab.device.properties import SECTOR_BYTES
from memlab.roofline.advice.case import AdviceCase, Recommendation
from memlab.roofline.ceilings import MEMORY_LEVELS
from memlab.roofline.placement import (
    L1_WAVEFRONT_BYTES,
    LATENCY_BOUND_THRESHOLD,
)
from memlab.roofline.units import sentence_number, si_text

WARP_FMA_FLOP = 64
"""FLOPs of one FMA by each of a warp's 32 threads."""

EXCESS_FACTOR = 1.5
"""Traffic above the compulsory bytes times this factor is waste; less may be due to partly used
sectors and lines."""


def divergent_constants(case: AdviceCase) -> Recommendation | None:
    """Lanes of a warp load different constants."""
    counters = case.measurement.counters
    if counters.constant_load_passes <= counters.constant_load_requests:
        return None
    passes = counters.constant_load_passes / counters.constant_load_requests
    return Recommendation(
        case.saving({"constant cache": 1.0 / passes}),
        f"The lanes of a warp load {sentence_number(passes)} different addresses per constant "
        "load, and the constant cache serves one at a time: use the same index in the whole warp, "
        "or move the table to shared or global memory.",
    )


def uncoalesced_accesses(case: AdviceCase) -> Recommendation | None:
    """Sectors are moved for a part of their bytes."""
    counters = case.measurement.counters
    requests, sectors = counters.total("global").requests, counters.total("global").sectors
    # A request takes a sector at least: of a block's one result, say.
    ideal_sectors = max(case.moved["requested"] / SECTOR_BYTES, requests)
    if not sectors or not ideal_sectors or ideal_sectors / sectors > 0.75:
        return None
    used = ideal_sectors / sectors
    passes = counters.l1_wavefronts - counters.total("shared").wavefronts
    spared = max(passes - case.moved["requested"] / L1_WAVEFRONT_BYTES, 0.0)
    reads, moved = counters.dram_read_bytes, case.moved["dram"]
    unneeded = min((1.0 - used) * reads, max(reads - _compulsory_reads(case), 0))
    dram = 1.0 - unneeded / moved if moved else 1.0
    return Recommendation(
        # A request waits for all of its sectors.
        case.saving({"l2": used, "dram": dram}, waiting=used, l1_passes=spared),
        f"Global accesses touch {sentence_number(sectors / requests)} sectors per request, but the "
        f"requested bytes would fill {sentence_number(ideal_sectors / requests)}: let neighbouring "
        "threads access neighbouring addresses.",
    )


def contended_atomics(case: AdviceCase) -> Recommendation | None:
    """Atomics of many threads meet at few addresses."""
    counters, seconds = case.measurement.counters, case.bounds_s.get("atomics", 0.0)
    requests = counters.global_atomic_requests + counters.global_reduction_requests
    if not requests:
        return None
    passes = counters.global_atomic_slice_passes
    return Recommendation(
        case.saving({"atomics": 0.0}),
        f"Atomics wait for one another: {si_text(passes, '').strip()} passes in one slice of the "
        f"L2 take {si_text(seconds, 's')}; add up in registers, a warp or shared memory first, or "
        "spread the addresses.",
    )


def local_arrays(case: AdviceCase) -> Recommendation | None:
    """Local accesses in PTX belong to the program's arrays; ptxas spills registers later."""
    counters = case.measurement.counters
    local_bytes = SECTOR_BYTES * counters.total("local").sectors
    share = case.l1_port_share(local_bytes)
    kept = case.measurement.resources.local_bytes_per_thread
    if not kept:  # without local memory, ptxas put the arrays in registers
        return None
    return Recommendation(
        case.saving({"l2": 1.0 - share}, l1_passes=case.l1_passes(local_bytes)),
        f"Arrays indexed at run time are in local memory, {kept} B per thread, and cause "
        f"{share:.0%} of the traffic through the L1, {si_text(local_bytes, 'B')}: unroll the loops "
        "that index them, so that the compiler knows each index, or keep them in shared memory.",
    )


def uncounted_spills(case: AdviceCase) -> Recommendation | None:
    """Registers are spilled by ptxas, and the counters are of the PTX before that."""
    measurement = case.measurement
    spilled = measurement.resources.local_bytes_per_thread
    counters = measurement.counters
    if not spilled or counters.total("local").sectors:
        return None
    whole = spilled * math.prod(measurement.grid) * math.prod(measurement.block)
    modelled = measurement.time.provenance == "modelled"
    return Recommendation(
        1.0,  # every other figure is in doubt
        f"The compiler spills {spilled} B per thread to local memory, {si_text(whole, 'B')} in "
        f"all, which the counters {'and the time ' if modelled else ''}do not include: keep fewer "
        "values alive per thread, or allow more registers.",
        is_estimate=False,
    )


def unstaged_reuse(case: AdviceCase) -> Recommendation | None:
    """Threads request the same bytes many times, without shared memory."""
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
    once = compulsory / requested
    return Recommendation(
        case.saving(dict.fromkeys(MEMORY_LEVELS, once)),
        f"The threads request {si_text(requested, 'B')}, but {si_text(compulsory, 'B')} are "
        f"compulsory, and the L1 is busy {case.busy.get('l1', 0.0):.0%} of the time serving the "
        f"requests: stage the data that threads share in shared memory{tiling}.",
        is_estimate=False,  # the staged data pass the L1's port, too
    )


def shared_rereads(case: AdviceCase) -> Recommendation | None:
    """Threads read shared memory again for values that registers could hold."""
    counters = case.measurement.counters
    useful = counters.total("shared").wavefronts - counters.shared_excessive_wavefronts
    share = case.l1_port_share(L1_WAVEFRONT_BYTES * useful)
    rereads = counters.shared_load_wavefronts > 2 * counters.shared_store_wavefronts
    busy = case.busy.get("l1", 0.0)
    if not case.measurement.flop or not rereads or share < 0.5 or busy < 0.4:
        return None
    intensity = case.placement.intensity_flop_per_byte["l1"] or 0.0
    # Without register tiling, each FMA of a warp needs one wavefront or more.
    tiled = case.measurement.flop > 2 * WARP_FMA_FLOP * counters.shared_load_wavefronts
    remedy = (
        "let each thread or warp compute more outputs from the values that it reads"
        if tiled
        else "let each thread compute r x r outputs from registers, which divides the shared "
        "loads by r"
    )
    loads = counters.shared_load_wavefronts
    return Recommendation(
        case.saving({}, l1_passes=loads / 2),  # with two results a thread
        f"Reads of shared memory are {share:.0%} of the L1 / shared port's traffic at "
        f"{sentence_number(intensity)} FLOP/B, and the port is busy {busy:.0%} of the time: "
        f"{remedy}.",
        is_estimate=False,
    )


def wider_tile(case: AdviceCase) -> Recommendation | None:
    """The tile could be wider."""
    measurement = case.measurement
    tile, most_threads = measurement.tile, case.properties.max_threads_per_block
    multiprocessors = case.properties.multiprocessor_count
    if not tile or not most_threads or not measurement.counters.total("shared").wavefronts:
        return None
    # A tile twice as wide needs four times the threads per block and a quarter of the blocks.
    fits = 4 * tile**2 <= most_threads
    fills = not multiprocessors or math.prod(measurement.grid) // 4 >= multiprocessors
    if not fits or not fills:
        return None
    load_bytes = SECTOR_BYTES * measurement.counters.global_load_sectors
    intensity = case.placement.intensity_flop_per_byte["requested"] or 0.0
    return Recommendation(
        case.saving({"l2": 0.5, "dram": 0.5}, l1_passes=case.l1_passes(load_bytes) / 2),
        f"Tile {2 * tile} would halve the {si_text(load_bytes, 'B')} loaded from global memory and "
        f"raise the requested {sentence_number(intensity)} FLOP/B to "
        f"{sentence_number(2 * intensity)}.",
        is_estimate=False,  # it spares instructions, too: `tiled` gained 12% on an H200
    )


def dram_traffic(case: AdviceCase) -> Recommendation | None:
    """DRAM is at its limit, or moves bytes more than once."""
    counters, moved = case.measurement.counters, case.moved["dram"]
    busy = case.busy.get("dram", 0.0)
    if busy < LATENCY_BOUND_THRESHOLD or not moved:
        return None
    for verb, amount, needed in (
        ("reads", counters.dram_read_bytes, _compulsory_reads(case)),
        ("moves", moved, case.moved["compulsory"]),
    ):
        if not needed or amount <= EXCESS_FACTOR * needed:
            continue
        if uncoalesced_accesses(case):  # partly used sectors explain the excess
            return None
        return Recommendation(
            case.saving({"dram": 1.0 - (amount - needed) / moved}),
            f"DRAM {verb} {si_text(amount, 'B')}, but {si_text(needed, 'B')} are compulsory: "
            "order the blocks so that they use data again while the L2 holds it.",
        )
    return Recommendation(
        case.saving({"dram": 0.0}),
        f"DRAM is busy {busy:.0%} of the time with {si_text(moved, 'B')}, all of them compulsory: "
        "only fewer bytes help (fuse with a neighbouring kernel, use smaller types).",
        is_estimate=False,
    )


def _compulsory_reads(case: AdviceCase) -> int:
    """The compulsory bytes that must be read, as far as the counts tell; else 0.

    Stored bytes are taken as outputs, stored once each. Bytes that the threads do not ask for are
    not compulsory. Writes are left out: those that the L2 still holds never reach DRAM.
    """
    counters = case.measurement.counters
    inputs = case.moved["compulsory"] - counters.requested_store_bytes
    return max(0, min(inputs, counters.requested_load_bytes))
