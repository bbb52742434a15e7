"""A run as a person reads it in a terminal: grouped, aligned, 80 columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from memlab.roofline.ceilings import LABELS
from memlab.roofline.placement import bytes_moved
from memlab.roofline.run import LEVELS
from memlab.roofline.units import digits, parameters_text, scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from memlab.device.measurement import Counters, Measurement, Time, Verification
    from memlab.roofline.run import Placement, Run

REPORT_COLUMNS = 80
LABEL_COLUMNS = 17
BAR_COLUMNS = 20
SHOWN_BOUNDS = 3
"""Bounds of the time model that are shown, the longest first."""

BINARY_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


def console() -> Console:
    """Give the console for reports on stdout; colours as the terminal and `NO_COLOR` say."""
    wide = Console(highlight=False)
    return wide if wide.width <= REPORT_COLUMNS else Console(highlight=False, width=REPORT_COLUMNS)


def run_report(run: Run) -> RenderableType:
    """Give the whole report of one run: what was launched, what it did, what that means."""
    measurement = run.measurement
    sections = [
        _heading(run),
        _facts("Launch", _launch_facts(measurement)),
        _global_counters(measurement.counters),
        _shared_counters(measurement.counters),
        _intensity(run),
        _facts("Result", _result_facts(run)),
        _advice(run.advice),
    ]
    shown = [section for section in sections if section is not None]
    return Group(shown[0], *(part for section in shown[1:] for part in ("", section)))


def capacity(size: int) -> str:
    """Format a capacity with a binary prefix: `227 KiB`, `139.8 GiB`."""
    value, step = float(size), 0
    while value >= 1024 and step < len(BINARY_PREFIXES) - 1:
        value, step = value / 1024, step + 1
    return f"{value:.1f}".removesuffix(".0") + f" {BINARY_PREFIXES[step]}"


def percent(fraction: float) -> str:
    """Format a share of one: `51.9%`; what is not zero does not read as zero."""
    if 0 < fraction < 0.001:
        return "<0.1%"
    return f"{100 * fraction:.1f}%".replace(".0%", "%")


def time_label(time: Time) -> str:
    """Format a time so that a modelled one cannot be taken for a measured one: `~1.86 ms`."""
    return _approximately(time) + scaled(time.median_s, "s")


def bound_label(key: str) -> str:
    """Name what binds as a person reads it: `l1` is `L1 / shared`."""
    return LABELS.get(key, key)


def _approximately(time: Time) -> str:
    return "" if time.provenance == "measured" else "~"


def _heading(run: Run) -> RenderableType:
    measurement, device = run.measurement, run.measurement.device
    major, minor = device.compute_capability
    created = run.created_at[:16].replace("T", " ") + " UTC"
    grid = Table.grid(Column(), Column(justify="right"), expand=True, padding=(0, 1))
    grid.add_row(
        Text.assemble(
            (measurement.kernel, "bold cyan"), "  ", parameters_text(measurement.parameters)
        ),
        Text.assemble((device.name, "bold"), f", sm_{major}{minor}"),
    )
    grid.add_row(
        Text("not stored" if run.id is None else f"run {run.id}, {created}", style="dim"),
        Text("emulated on this CPU" if device.kind == "emulated" else device.key, style="dim"),
    )
    return grid


def _advice(sentences: Sequence[str]) -> RenderableType | None:
    if not sentences:
        return None
    return Group(Text("Advice", style="bold"), Padding(Text(" ".join(sentences)), (0, 0, 0, 2)))


def _facts(title: str, rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """A section of one fact a line."""
    grid = Table.grid(Column(width=LABEL_COLUMNS), Column(), padding=(0, 1, 0, 0))
    for label, value in rows:
        grid.add_row(Text(f"  {label}", style="dim"), value)
    return Group(Text(title, style="bold"), grid)


def _figures(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A section of figures, right-aligned; every section has the same columns."""
    table = Table(
        Column(Text(title, style="bold"), width=LABEL_COLUMNS),
        *(Column(Text(heading, style="dim"), justify="right", width=17) for heading in headings),
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for label, *figures in rows:
        table.add_row(Text(f"  {label}", style="dim"), *figures)
    return table


def _launch_facts(measurement: Measurement) -> Iterable[tuple[str, str]]:
    resources, occupancy = measurement.resources, measurement.occupancy
    coverage = measurement.coverage
    threads = math.prod(measurement.block)
    yield "grid", f"{_extent(measurement.grid)} = {math.prod(measurement.grid):,} blocks"
    yield "block", f"{_extent(measurement.block)} = {threads:,} threads"
    yield "registers", f"{resources.registers_per_thread} a thread"
    yield "shared memory", _shared(resources.static_shared_bytes, measurement.dynamic_shared_bytes)
    if resources.local_bytes_per_thread:
        yield "local memory", f"{capacity(resources.local_bytes_per_thread)} a thread"
    blocks = f"{occupancy.blocks_per_sm} block{'' if occupancy.blocks_per_sm == 1 else 's'}"
    yield (
        "occupancy",
        f"{percent(occupancy.theoretical)}, {blocks} an SM, limited by {occupancy.limiter}",
    )
    yield (
        "emulated",
        f"{coverage.blocks_emulated:,} of {coverage.blocks_total:,} blocks "
        f"({percent(coverage.blocks_emulated / coverage.blocks_total)})",
    )


def _extent(extents: tuple[int, int, int]) -> str:
    return " x ".join(map(str, extents))


def _shared(static_bytes: int, dynamic_bytes: int) -> str:
    parts = [
        f"{capacity(size)} {kind}"
        for size, kind in ((static_bytes, "static"), (dynamic_bytes, "dynamic"))
        if size
    ]
    return " + ".join(parts) + " a block" if parts else "none"


def _global_counters(counters: Counters) -> RenderableType:
    rows = [
        ("global loads", counters.global_load_requests, counters.global_load_sectors),
        ("global stores", counters.global_store_requests, counters.global_store_sectors),
        ("local loads", 0, counters.local_load_sectors),
        ("local stores", 0, counters.local_store_sectors),
        ("L2 reads", 0, counters.l2_read_sectors),
        ("L2 writes", 0, counters.l2_write_sectors),
    ]
    return _figures(
        "Global memory",
        ("requests", "sectors", "a request"),
        [
            (
                label,
                f"{requests:,}" if requests else "",
                f"{sectors:,}",
                f"{sectors / requests:.2f}" if requests else "",
            )
            for label, requests, sectors in rows
            if sectors or not label.startswith("local")
        ],
    )


def _shared_counters(counters: Counters) -> RenderableType | None:
    rows = [
        ("loads", counters.shared_load_instructions, counters.shared_load_wavefronts),
        ("stores", counters.shared_store_instructions, counters.shared_store_wavefronts),
    ]
    if not any(instructions for _, instructions, _ in rows):
        return None
    return _figures(
        "Shared memory",
        ("instructions", "wavefronts", "an instruction"),
        [
            *(
                (
                    label,
                    f"{instructions:,}",
                    f"{wavefronts:,}",
                    f"{wavefronts / instructions:.2f}" if instructions else "",
                )
                for label, instructions, wavefronts in rows
            ),
            ("excessive", "", f"{counters.shared_excessive_wavefronts:,}", ""),
        ],
    )


def _intensity(run: Run) -> RenderableType:
    moved = bytes_moved(run.measurement)
    intensity = run.placement.intensity_flop_per_byte
    return _figures(
        "Intensity",
        ("FLOP/B", "bytes", ""),
        [
            (
                bound_label(level),
                "-" if intensity[level] is None else digits(intensity[level] or 0.0),
                scaled(moved[level], "B"),
                "",
            )
            for level in LEVELS
        ],
    )


def _result_facts(run: Run) -> Iterable[tuple[str, RenderableType]]:
    measurement, placement = run.measurement, run.placement
    time = measurement.time
    yield "time", Text.assemble((time_label(time), "bold"), _provenance(time))
    if time.bounds_s:
        longest = sorted(time.bounds_s.items(), key=lambda each: -each[1])[:SHOWN_BOUNDS]
        yield (
            "bounds alone",
            ", ".join(f"{bound_label(name)} {scaled(seconds, 's')}" for name, seconds in longest),
        )
    rate = f"{_approximately(time)}{scaled(placement.flop_per_s, 'FLOP/s')}"
    yield "rate", Text.assemble((rate, "bold"), f" {time.provenance}")
    yield "bound by", bound_label(placement.bound)
    yield "of the roof", _roof(placement)
    yield "verified", _verified(measurement.verification)


def _provenance(time: Time) -> str:
    if time.provenance != "measured":
        return f" {time.provenance}"
    text = f" measured, median of {time.samples}"
    if time.lower_quartile_s is not None and time.upper_quartile_s is not None:
        text += f" ({scaled(time.lower_quartile_s, 's')} to {scaled(time.upper_quartile_s, 's')})"
    return text


def _roof(placement: Placement) -> Text:
    fraction = placement.fraction_of_ceiling
    roof = f"{scaled(placement.ceiling_flop_per_s, 'FLOP/s')} ({bound_label(placement.ceiling)})"
    if fraction > 1:
        return Text.assemble(
            (f"{percent(fraction)} of {roof}", "bold red"),
            "\ninvalid: above a physical limit, so the time or a counter is wrong",
        )
    filled = round(BAR_COLUMNS * fraction)
    return Text.assemble(
        (percent(fraction), "bold"),
        f" of {roof}  ",
        ("━" * filled, "cyan"),
        ("─" * (BAR_COLUMNS - filled), "dim"),
    )


def _verified(verification: Verification) -> Text:
    if verification.status == "skipped":
        return Text("skipped: nothing to compare with", style="yellow")
    style = "green" if verification.status == "passed" else "bold red"
    share = f"{verification.checked:,} of {verification.total:,} outputs"
    error = verification.relative_error
    allowed = verification.tolerance
    detail = (
        ""
        if error is None or allowed is None
        else f"\nerror {error:.1e}, rounding explains {allowed:.1e}"
    )
    return Text.assemble((verification.status, style), f", {share}{detail}")
