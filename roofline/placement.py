"""The place of a measurement under the roofline, from its counters, its time and the ceilings.

The model is Williams, Waterman and Patterson's ("Roofline", CACM 52(4), 2009), with a ceiling for
each level of memory as Yang, Kurth and Williams draw it for NVIDIA GPUs ("Hierarchical Roofline
Analysis for GPUs", Concurrency and Computation 32(20), 2020).

It is computed in time: a level that moves B bytes at a bandwidth of W B/s cannot take less than
B / W, nor a pipe with F FLOPs at a peak of P FLOP/s less than F / P. The longest of these is the
lowest roof, and FLOPs over it are min(P, intensity * W). So a kernel without FLOPs has a place too:
under the roofs of memory and of the pipes that execute its integer operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from memlab.device.measurement import flop_by_pipe, integer_op_by_pipe, l1_l2_sectors
from memlab.device.properties import INTEGER_KINDS, SECTOR_BYTES
from memlab.errors import UsageError
from memlab.roofline.ceilings import ceilings_by_key
from memlab.roofline.run import TRAFFIC_LEVELS, Placement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.device.measurement import Counters, Measurement
    from memlab.roofline.run import Ceiling

L1_WAVEFRONT_BYTES = 128
"""Data that the L1 / shared port moves in one pass (wavefront): 32 banks of 4 bytes."""

LATENCY_BOUND_THRESHOLD = 0.6
"""Where no resource reaches this share of its peak, latency binds: Nsight Compute's rule
("below 60.0% of peak typically indicate latency issues", section GPU Speed Of Light)."""


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel on the axes of a roofline.

    Attributes:
        operation: What it is drawn by: `FLOP`, or `OP` for integer operations.
        per_s: Operations per second.
        intensity: Operations per byte at each of `TRAFFIC_LEVELS`; None where no byte moves.
        ceiling_per_s: Its lowest ceiling, operations per second.
    """

    operation: Literal["FLOP", "OP"]
    per_s: float
    intensity: Mapping[str, float | None]
    ceiling_per_s: float


class LaunchCounts(Protocol):
    """The counts of a launch without its time: a measurement or an analysis."""

    @property
    def flop(self) -> int:
        """FLOPs of the algorithm."""
        ...

    @property
    def compulsory_bytes(self) -> int:
        """Bytes of the inputs, each read once, and of the outputs, each written once."""
        ...

    @property
    def counters(self) -> Counters:
        """Whole-grid totals."""
        ...


def bytes_moved(measurement: LaunchCounts) -> dict[str, int]:
    """Count the bytes at each of `TRAFFIC_LEVELS`.

    - `requested`: what the threads ask of global memory, each lane its own bytes.
    - `l1`: what passes the port that L1 and shared memory have in common: the sectors of global
      and local accesses, as a hierarchical roofline counts them, and 128 B for each wavefront of
      shared memory, which takes the whole port for a clock however few bytes it is for.
    - `l2`: sectors between the L1s and the L2, those of atomics among them.
    - `dram`: bytes between the L2 and the chips.
    - `compulsory`: each input read once and each output written once.

    Returns:
        Bytes of the whole launch by level.
    """
    counters = measurement.counters
    return {
        "requested": requested_bytes(counters),
        "l1": SECTOR_BYTES * (counters.total("global").sectors + counters.total("local").sectors)
        + L1_WAVEFRONT_BYTES * counters.total("shared").wavefronts,
        "l2": SECTOR_BYTES * l1_l2_sectors(counters),
        "dram": counters.dram_read_bytes + counters.dram_write_bytes,
        "compulsory": measurement.compulsory_bytes,
    }


def requested_bytes(counters: Counters) -> int:
    """Count the bytes that threads ask of global memory."""
    loaded_and_stored = counters.total("global", "load", "store").requested_bytes
    return loaded_and_stored + counters.requested_atomic_bytes


def effective_bytes_per_s(measurement: Measurement) -> float:
    """The effective bandwidth: the bytes that a launch must read and write over its time, B/s.

    These are the compulsory bytes or, of a launch that uses part of its arrays, those that threads
    request. The term is that of the CUDA C++ Best Practices Guide.
    """
    useful = measurement.compulsory_bytes
    if requested := requested_bytes(measurement.counters):  # 0 where nothing was counted
        useful = min(useful, requested)
    return useful / measurement.time.median_s


def intensities(measurement: LaunchCounts) -> dict[str, float | None]:
    """Give the arithmetic intensity at each of `TRAFFIC_LEVELS`, FLOP/B.

    The FLOPs are the algorithm's, not those executed: a point's height over its intensity is then
    the achieved bandwidth, and work on padding does not count.

    Returns:
        FLOP/B by level; None where no byte moves.
    """
    moved = bytes_moved(measurement)
    return {
        level: measurement.flop / moved[level] if moved[level] else None for level in TRAFFIC_LEVELS
    }


def minimum_times_s(measurement: Measurement, ceilings: Sequence[Ceiling]) -> dict[str, float]:
    """Give the time that each ceiling alone would need for this launch, seconds, by its key.

    The algorithm's FLOPs are divided among the pipes in the proportion that the launch executed;
    all of them are FP32 where it executed none. Integer operations are those executed.
    """
    known = ceilings_by_key(ceilings)
    work: dict[str, float] = dict(bytes_moved(measurement))
    executed = flop_by_pipe(measurement.counters)
    total = sum(executed.values())
    for pipe, flop in executed.items():
        share = flop / total if total else float(pipe == "fp32")
        work[pipe] = measurement.flop * share
    work |= integer_op_by_pipe(measurement.counters)
    return {key: amount / known[key].value for key, amount in work.items() if key in known}


def utilisation(measurement: Measurement, ceilings: Sequence[Ceiling]) -> dict[str, float]:
    """Give the share of the time for which each resource is busy, by the ceiling's key.

    The share is the resource's minimum time over the launch's time; a pipe is busy with all FLOPs
    that it executed, also with those that are not the algorithm's. For the L1 / shared port it is
    the larger of that and the share of its passes: a request occupies the port for one pass per
    line it touches, even if it needs only part of the line. With a modelled time the passes are
    those of the busiest multiprocessor, as in the model; with a measured time, the mean over all.
    """
    known, time_s = ceilings_by_key(ceilings), measurement.time.median_s
    least_s = minimum_times_s(measurement, ceilings)
    least_s |= {
        pipe: flop / known[pipe].value
        for pipe, flop in flop_by_pipe(measurement.counters).items()
        if flop and pipe in known
    }
    shares = {key: seconds / time_s for key, seconds in least_s.items()}
    if "l1" in shares:
        port_bytes_per_s = known["l1"].value
        mean_s = L1_WAVEFRONT_BYTES * measurement.counters.l1_wavefronts / port_bytes_per_s
        passes_s = measurement.time.bounds_s.get("l1", mean_s)
        shares["l1"] = max(shares["l1"], passes_s / time_s)
    return shares


def place_measurement(measurement: Measurement, ceilings: Sequence[Ceiling]) -> Placement:
    """Place a measurement under the roofline.

    `bound` is the largest of the time model's bounds if the time is modelled. Otherwise it is the
    busiest resource if that is busy for `LATENCY_BOUND_THRESHOLD` of the time or more, else
    `latency`: no ceiling explains a time far above all minimum times.

    Args:
        measurement: The measurement.
        ceilings: The device's limits, from `ceilings.ceilings`.

    Returns:
        The placement. A `fraction_of_ceiling` above 1 is kept, so that the reader sees that the
        measurement exceeds a physical limit and must be wrong.

    Raises:
        UsageError: No ceiling of the device that applies to this launch is known.
    """
    least_s = {
        key: seconds
        for key, seconds in minimum_times_s(measurement, ceilings).items()
        # Beside FLOPs, integer operations are overhead: addresses and loop counters.
        if not (measurement.flop and key in INTEGER_KINDS)
    }
    if not least_s:
        raise UsageError(
            f"{measurement.device.name} has no known bandwidth nor peak to place a kernel under: "
            "choose a device whose datasheet has them (memlab devicequery --list)"
        )
    ceiling = max(least_s, key=lambda key: least_s[key])
    time_s = measurement.time.median_s
    busy = utilisation(measurement, ceilings)
    return Placement(
        flop_per_s=measurement.flop / time_s,
        intensity_flop_per_byte=intensities(measurement),
        bound=_binding_resource(measurement.time.bounds_s, busy),
        ceiling=ceiling,
        ceiling_flop_per_s=measurement.flop / least_s[ceiling] if least_s[ceiling] else 0.0,
        fraction_of_ceiling=least_s[ceiling] / time_s,
        busy=busy,
        iop_per_s=sum(integer_op_by_pipe(measurement.counters).values()) / time_s,
    )


def roofline_point(measurement: Measurement, placement: Placement) -> RooflinePoint:
    """Give the point of a placed measurement on the axes of a roofline.

    A kernel under the roof of an integer pipe is there by the operations of this pipe, any other
    kernel by its FLOPs.
    """
    if placement.ceiling not in INTEGER_KINDS:
        return RooflinePoint(
            "FLOP",
            placement.flop_per_s,
            placement.intensity_flop_per_byte,
            placement.ceiling_flop_per_s,
        )
    work = integer_op_by_pipe(measurement.counters).get(placement.ceiling, 0)
    per_s = work / measurement.time.median_s
    fraction = placement.fraction_of_ceiling
    moved = bytes_moved(measurement)
    return RooflinePoint(
        "OP",
        per_s,
        {level: work / count if count else None for level, count in moved.items()},
        per_s / fraction if fraction else 0.0,
    )


def _binding_resource(bounds_s: Mapping[str, float], busy: Mapping[str, float]) -> str:
    if bounds_s:
        return max(bounds_s, key=lambda name: bounds_s[name])
    busiest = max(busy, key=lambda key: busy[key])
    return busiest if busy[busiest] >= LATENCY_BOUND_THRESHOLD else "latency"
