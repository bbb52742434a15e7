"""The words and figures of an analysis, as its report and its page both give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlab.device.measurement import flop_by_pipe
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.units import sentence_number, si_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memlab.device.measurement import Counters
    from memlab.roofline.analysis.analysis import Analysis
    from memlab.roofline.analysis.boundary import BoundaryCase, BoundaryCost
    from memlab.roofline.analysis.listing import ListedLine, ListingItem

HEAT_THRESHOLDS = (0.001, 0.05, 0.2, 0.5)
"""Shares of the traffic from which a line is warm, warmer, hot, hottest."""

POOR_BUS_UTILISATION = 0.5
"""Below this share of what moves for a line, less than half was asked for: it is marked."""
HIGH_IDLE_LANE_SHARE = 0.25
"""Above this share of its lanes idle, a line is marked."""


def heat_level(heat: float) -> int:
    """Give the step of `HEAT_FROM` that a share of the traffic has reached, 0 to 4."""
    return sum(heat >= each for each in HEAT_THRESHOLDS)


def lines_without_head_comment(lines: Sequence[ListedLine]) -> tuple[ListedLine, ...]:
    """Leave out the comment at the head of a source: the kernel's description repeats it."""
    for start, line in enumerate(lines):
        text = line.text.strip()
        if line.counters is not None or (text and not text.startswith("//")):
            return tuple(lines[start:])
    return tuple(lines)


def wastes_bus(line: ListingItem) -> bool:
    """Say whether most of what moves for a line was not asked for."""
    return line.bus_utilisation is not None and line.bus_utilisation < POOR_BUS_UTILISATION


def wastes_lanes(line: ListingItem) -> bool:
    """Say whether many lanes idle at a line."""
    return (line.lanes_off_share or 0) > HIGH_IDLE_LANE_SHARE


def wastes_passes(line: ListingItem) -> bool:
    """Say whether a line's constant loads want more than one address a warp."""
    return (line.passes_per_request or 0) > 1


def compact_count(count: int) -> str:
    """Write a count in at most five characters: `8,388,608` is `8.39M`; nothing for 0."""
    if not count:
        return ""
    return str(count) if count < 1000 else si_text(count, "").replace(" ", "")


def flop_text(flop: int, counters: Counters) -> str:
    """Say how many FLOPs the algorithm has and how many ran; nothing where that is the same."""
    executed = sum(flop_by_pipe(counters).values())
    declared, ran = (si_text(each, "").strip() for each in (flop, executed))
    if declared == ran or not executed:  # what was not counted is no 0
        return ""
    return f"{declared} of the algorithm, {ran} executed"


def ratio_facts(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Say what the ratio is, and what it means on the device, as label and text."""
    ratio = analysis.ratio
    if both := flop_text(analysis.flop, analysis.counters):
        yield "FLOP", both
    if ratio is None:
        yield "ratio", "none: the kernel asks nothing of global memory"
        return
    if not ratio.flop_per_byte:
        yield "ratio", "0 FLOP/B: the kernel only moves data, and memory alone binds it"
        return
    where = "in the loops" if ratio.loops else "over the whole program"
    yield (
        "ratio",
        f"{sentence_number(ratio.flop_per_byte)} FLOP/B {where}: "
        f"{sentence_number(ratio.flop_per_access)} FLOP for each {ratio.value_bytes} bytes "
        "asked for",
    )
    bound, fraction, peak = ratio.bound_flop_per_s, ratio.fraction_of_peak, ratio.peak_flop_per_s
    if bound is None or ratio.bandwidth_bytes_per_s is None:
        yield "bound", "not known, since the device's bandwidth is not"
        return
    of_peak = ""
    if fraction is not None and peak is not None:
        pipe = ceiling_label(ratio.pipe)
        of_peak = f", {100 * fraction:.1f}% of {si_text(peak, 'FLOP/s')} {pipe}"
    yield "bound", exact_rate_text(bound) + of_peak
    if fraction == 1:
        yield "", "the ratio is past the ridge point: arithmetic binds, even without caches"
    else:
        bandwidth = f"{ratio.bandwidth_bytes_per_s / 1e9:,.4g} GB/s"
        yield (
            "",
            f"{sentence_number(ratio.flop_per_byte)} FLOP/B x {bandwidth}, what memory allows "
            "without caches",
        )
    needed = ratio.needed_flop_per_access
    if needed is not None:
        times = needed / ratio.flop_per_access
        more = f"{sentence_number(times)} times as many" if times > 1 else "there are enough"
        yield "needed", f"{sentence_number(needed)} FLOP an access for the peak: {more}"


def exact_rate_text(flop_per_s: float) -> str:
    """Write a bound so that it can be checked by hand: `388.75 GFLOP/s`."""
    giga = flop_per_s / 1e9
    return f"{giga:,.2f} GFLOP/s" if giga < 1e4 else f"{giga / 1e3:,.2f} TFLOP/s"


def boundary_rows(cost: BoundaryCost) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Give the comparison as headings and rows, the launch between its neighbours."""
    cases = [each for each in (cost.lower, cost.case, cost.upper) if each is not None]
    headings = tuple(_size_text(each, cost) for each in cases)
    rows: list[tuple[str, ...]] = [
        ("threads", *(f"{each.threads:,}" for each in cases)),
        ("lane slots", *(f"{each.lane_slots:,}" for each in cases)),
        ("  of them off", *(f"{100 * each.lanes_off / each.lane_slots:.1f}%" for each in cases)),
        ("FLOP executed", *(f"{each.flop_executed:,}" for each in cases)),
        ("sectors", *(f"{each.sectors:,}" for each in cases)),
    ]
    if not any(each.flop_executed for each in cases):
        rows = [row for row in rows if row[0] != "FLOP executed"]
    return headings, rows


def boundary_text(cost: BoundaryCost) -> str:
    """Say which share of lanes and sectors is wasted, against each neighbour."""
    parts = []
    for other in (cost.lower, cost.upper):
        if other is not None:
            lanes, sectors = cost.wasted_lanes(other), cost.wasted_sectors(other)
            parts.append(
                f"against {_size_text(other, cost)}, {_percent(lanes)} of the lane slots "
                f"and {_percent(sectors)} of the sectors"
            )
    if not parts:
        return "No size near it lets every block end at the edge."
    return f"Wasted for the same work: {'; '.join(parts)}."


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}%"  # adding 0 turns -0.0 into 0.0


def _differing_parameters(cost: BoundaryCost) -> set[str]:
    """Name the parameters in which the neighbours differ."""
    return {
        name
        for other in (cost.lower, cost.upper)
        if other is not None
        for name, value in cost.case.parameters.items()
        if other.parameters.get(name) != value
    }


def _size_text(case: BoundaryCase, cost: BoundaryCost) -> str:
    """Name a launch by what differs between the neighbours: `width 96`."""
    names = _differing_parameters(cost)
    return ", ".join(f"{name} {value}" for name, value in case.parameters.items() if name in names)
