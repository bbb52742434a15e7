"""Measured peaks in a terminal: rates and latencies, 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from memlab.device.gpu.peaks.records import TCGEN05_MAJORS
from memlab.roofline.units import si_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memlab.device.gpu.peaks.records import Peaks, Rate

TENSOR_RATE_NOTE = (
    "The tensor rates are those of mma.sync and not the peak, which this architecture reaches\n"
    "with tcgen05.mma alone; that is not measured."
)


def peaks_report(peaks: Peaks) -> RenderableType:
    """Lay out peaks in 80 columns: rates with their share of the limits, then latencies."""

    def right(header: str) -> Column:
        return Column(header, justify="right", no_wrap=True)

    rates = Table(
        Column("measured", no_wrap=True, min_width=22),
        right("value"),
        right("per SM"),
        right("SM clock"),
        right("of data-\nsheet"),
        right("at this\nclock"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for rate in peaks.rates:
        per_clock = rate.bytes_per_clock_per_sm
        rates.add_row(
            rate.label,
            si_text(rate.value, rate.unit),
            "" if per_clock is None else f"{per_clock:.4g} B/clk",
            "" if rate.clock_hz is None else f"{rate.clock_hz / 1e6:.0f} MHz",
            _percent(rate.fraction),
            _percent(rate.fraction_at_clock),
            style="red" if rate.invalid else None,
        )
    latencies = Table(
        Column("latency", no_wrap=True, min_width=22),
        right("cycles"),
        right("time"),
        box=None,
        padding=(0, 2, 0, 0),
    )
    for latency in peaks.latencies:
        latencies.add_row(latency.label, f"{latency.cycles:.4g}", si_text(latency.seconds, "s"))
    head = [Text(f"{peaks.device.name} ({peaks.device.key}), measured {peaks.created_at}", "bold")]
    if peaks.device.driver or peaks.device.uuid:
        known = (peaks.device.driver and f"driver {peaks.device.driver}", peaks.device.uuid)
        head.append(Text(", ".join(filter(None, known))))
    notes = [Text(f"\n{line}", style="bold red") for line in _invalid_rate_lines(peaks.rates)]
    if peaks.device.compute_capability[0] in TCGEN05_MAJORS:
        notes.append(Text(f"\n{TENSOR_RATE_NOTE}"))
    return Group(*head, Text(), rates, *notes, Text(), latencies)


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:.1%}"


def _invalid_rate_lines(rates: tuple[Rate, ...]) -> list[str]:
    """Describe the rates above a physical limit, whose figure or datasheet is wrong."""
    return [
        f"{rate.label} is invalid, {rate.fraction_at_clock:.1%} of what is possible: "
        "rooflines leave it out."
        for rate in rates
        if rate.invalid
    ]
