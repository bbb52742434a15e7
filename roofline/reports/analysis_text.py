"""Words and figures of an analysis that its report and its page share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.measurement import flop_by_pipe
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memlab.device.measurement import Counters
    from memlab.roofline.analysis.analysis import AccessRatio, Analysis
    from memlab.roofline.analysis.boundary import BoundaryCase, BoundaryCost
    from memlab.roofline.analysis.listing import ListedLine, ListingItem

HEAT_THRESHOLDS = (0.001, 0.05, 0.2, 0.5)
"""Shares of the traffic, 0 to 1, from which a line is warm, warmer, hot, hottest."""

POOR_BUS_UTILISATION = 0.5
"""A line is marked whose requested bytes are less than this share of the bytes moved."""
HIGH_IDLE_LANE_SHARE = 0.25
"""A line is marked whose share of idle lanes is above this."""

LEAST_WARP_TIME = 0.001
"""Lines are listed with their stalls from this share of the warps' time on."""
MAX_SHOWN_PIPES = 3
"""Pipes whose instructions are listed of a line, the most frequent first."""

NO_BOUNDARY = "No block reaches past the edge of the data: its sizes are multiples of the block's."
"""Stands for the cost of boundary checks where there is none."""


def heat_level(heat: float) -> int:
    """Return the number of `HEAT_THRESHOLDS` that a share of the traffic reaches, 0 to 4."""
    return sum(heat >= threshold for threshold in HEAT_THRESHOLDS)


def lines_without_head_comment(lines: Sequence[ListedLine]) -> tuple[ListedLine, ...]:
    """Leave out the comment at the head of a source, which `memlab explain` shows."""
    for start, line in enumerate(lines):
        text = line.text.strip()
        if line.counters is not None or (text and not text.startswith("//")):
            return tuple(lines[start:])
    return tuple(lines)


def wastes_bus(line: ListingItem) -> bool:
    """Tell whether more than half of the bytes moved for a line were not requested."""
    return line.bus_utilisation is not None and line.bus_utilisation < POOR_BUS_UTILISATION


def wastes_lanes(line: ListingItem) -> bool:
    """Tell whether many lanes are idle at a line."""
    return (line.lanes_off_share or 0) > HIGH_IDLE_LANE_SHARE


def wastes_passes(line: ListingItem) -> bool:
    """Tell whether a line's constant loads read more than one address per warp."""
    return (line.passes_per_request or 0) > 1


def compact_count(count: int) -> str:
    """Format a count in at most five characters, 8,388,608 as `8.39M` and 0 as nothing."""
    if not count:
        return ""
    return str(count) if count < 1000 else si_text(count, "").replace(" ", "")


def flop_text(flop: int, counters: Counters) -> str:
    """Compare the FLOPs of the algorithm with those executed; empty where they are the same."""
    executed = sum(flop_by_pipe(counters).values())
    declared, ran = (si_text(count, "").strip() for count in (flop, executed))
    if declared == ran or not executed:  # 0 stands for FLOPs that were not counted
        return ""
    return f"{declared} of the algorithm, {ran} executed"


def ratio_facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Describe the access ratio and its meaning on the device, as label and text."""
    ratio = analysis.ratio
    if both := flop_text(analysis.flop, analysis.counters):
        yield "FLOP", both
    if ratio is None:
        yield "ratio", "none: the kernel does not access global memory"
        return
    if not ratio.flop_per_byte:
        yield from _integer_facts(ratio)
        return
    where = "in the loops" if ratio.loops else "over the whole program"
    yield (
        "ratio",
        f"{sentence_number(ratio.flop_per_byte)} FLOP/B {where}: "
        f"{sentence_number(ratio.flop_per_access)} FLOP for each {ratio.value_bytes} bytes "
        "requested",
    )
    bound, fraction, peak = ratio.bound_flop_per_s, ratio.fraction_of_peak, ratio.peak_flop_per_s
    if bound is None or ratio.bandwidth_bytes_per_s is None:
        yield "bound", "unknown, since the device's bandwidth is unknown"
        return
    of_peak = ""
    if fraction is not None and peak is not None:
        pipe = ceiling_label(ratio.pipe)
        of_peak = f", {100 * fraction:.1f}% of {si_text(peak, 'FLOP/s')} {pipe}"
    yield "bound", exact_rate_text(bound) + of_peak
    if fraction == 1:
        yield "", "the ratio is past the ridge point: arithmetic is the limit, even without caches"
    else:
        bandwidth = f"{ratio.bandwidth_bytes_per_s / 1e9:,.4g} GB/s"
        yield (
            "",
            f"{sentence_number(ratio.flop_per_byte)} FLOP/B x {bandwidth}, the limit of memory "
            "without caches",
        )
    needed = ratio.needed_flop_per_access
    if needed is not None:
        times = needed / ratio.flop_per_access
        more = f"{sentence_number(times)} times as many" if times > 1 else "there are enough"
        yield "needed", f"{sentence_number(needed)} FLOP per access for the peak: {more}"


def _integer_facts(ratio: AccessRatio) -> Iterator[tuple[str, str]]:
    """Describe the work of a kernel without FLOPs: its integer operations, or none."""
    if not ratio.integer_op_per_byte:
        yield "ratio", "0 FLOP/B: the kernel only moves data, so memory alone limits it"
        return
    yield "ratio", f"0 FLOP/B; {sentence_number(ratio.integer_op_per_byte)} integer OP/B"
    peak, share = ratio.peak_integer_op_per_s, ratio.integer_share
    if peak is None or share is None:
        yield "bound", "unknown, since the device's rate of integers or its bandwidth is unknown"
        return
    pipe = ceiling_label(ratio.integer_pipe)
    if share >= 1:
        yield "bound", f"{si_text(peak, 'OP/s')}, the peak of the {pipe}"
        yield (
            "",
            f"its operations take {sentence_number(share)} times as long as the requested bytes do "
            "without caches: integer arithmetic is the limit",
        )
    else:
        bandwidth = f"{(ratio.bandwidth_bytes_per_s or 0.0) / 1e9:,.4g} GB/s"
        yield "bound", f"memory, {bandwidth}: the kernel moves data rather than computes"
        yield (
            "",
            f"its integer operations, addresses among them, take {share:.0%} of the time that the "
            "requested bytes take without caches",
        )


def stalls_text(stalls: Mapping[str, float], most: int = 3) -> str:
    """Name the states that take most of some time: `long_scoreboard 61%, wait 8%`.

    Args:
        stalls: Times by state, in any unit.
        most: How many are named.
    """
    whole = sum(stalls.values())
    longest = sorted(stalls.items(), key=lambda stall: -stall[1])[:most]
    return ", ".join(
        f"{reason} {time / whole:.0%}" for reason, time in longest if time >= 0.005 * whole
    )


def stalls_heading(stalls: Mapping[str, float]) -> str:
    """Tell how many clocks a warp takes for an instruction, and why."""
    clocks = sentence_number(sum(stalls.values()))
    return f"A warp takes ~{clocks} clocks per instruction (modelled): {stalls_text(stalls, 4)}."


def machine_rows(analysis: Analysis) -> list[tuple[str, str, str, str]]:
    """Return the lines that have machine code: number, warp time, stalls, instructions by pipe."""
    return [
        (
            str(line.line or "-"),
            f"{line.warp_time:.1%}" if line.stalls else "",
            stalls_text(line.stalls),
            ", ".join(
                f"{pipe} {compact_count(count)}"
                for pipe, count in list(line.instructions.items())[:MAX_SHOWN_PIPES]
            ),
        )
        for line in analysis.machine_lines
        if line.warp_time >= LEAST_WARP_TIME or not line.stalls
    ]


def exact_rate_text(flop_per_s: float) -> str:
    """Format a bound exactly enough to check it by hand: `388.75 GFLOP/s`."""
    giga = flop_per_s / 1e9
    return f"{giga:,.2f} GFLOP/s" if giga < 1e4 else f"{giga / 1e3:,.2f} TFLOP/s"


def boundary_rows(cost: BoundaryCost) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the comparison as headings and rows, with the launch between its neighbours."""
    cases = [case for case in (cost.lower, cost.case, cost.upper) if case is not None]
    headings = tuple(_size_text(case, cost) for case in cases)
    rows: list[tuple[str, ...]] = [
        ("threads", *(f"{case.threads:,}" for case in cases)),
        ("lane slots", *(f"{case.lane_slots:,}" for case in cases)),
        ("  of them off", *(f"{100 * case.lanes_off / case.lane_slots:.1f}%" for case in cases)),
        ("FLOP executed", *(f"{case.flop_executed:,}" for case in cases)),
        ("sectors", *(f"{case.sectors:,}" for case in cases)),
    ]
    if not any(case.flop_executed for case in cases):
        rows = [row for row in rows if row[0] != "FLOP executed"]
    return headings, rows


def boundary_text(cost: BoundaryCost) -> str:
    """Tell the share of lanes and sectors that is wasted, against each neighbour."""
    parts = []
    for neighbour in (cost.lower, cost.upper):
        if neighbour is not None:
            lanes, sectors = cost.wasted_lanes(neighbour), cost.wasted_sectors(neighbour)
            parts.append(
                f"against {_size_text(neighbour, cost)}, {_percent(lanes)} of the lane slots "
                f"and {_percent(sectors)} of the sectors"
            )
    if not parts:
        return "No size near it lets every block end at the edge."
    return f"Wasted for the same work: {'; '.join(parts)}."


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}%"  # adding 0 turns -0.0 into 0.0


def _differing_parameters(cost: BoundaryCost) -> set[str]:
    """Return the parameters in which the neighbours differ from the launch."""
    return {
        name
        for neighbour in (cost.lower, cost.upper)
        if neighbour is not None
        for name, value in cost.case.parameters.items()
        if neighbour.parameters.get(name) != value
    }


def _size_text(case: BoundaryCase, cost: BoundaryCost) -> str:
    """Name a launch by the parameters in which the neighbours differ: `width 96`."""
    names = _differing_parameters(cost)
    return ", ".join(f"{name} {value}" for name, value in case.parameters.items() if name in names)
