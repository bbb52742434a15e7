"""A run as a person reads it in a terminal: grouped, aligned, 80 columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from memlab.device.measurement import DRIFT_LIMIT
from memlab.roofline import bus
from memlab.roofline.ceilings import LABELS
from memlab.roofline.placement import bytes_moved
from memlab.roofline.run import LEVELS
from memlab.roofline.units import digits, parameters_text, printable, scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType

    from memlab.device.measurement import Counters, Measurement, Time, Verification
    from memlab.roofline.run import Placement, Run

REPORT_COLUMNS = 80
LABEL_COLUMNS = 17
BAR_COLUMNS = 20
SHOWN_BOUNDS = 3
"""Bounds of the time model that are shown, the longest first."""

COUNTER_LABELS = {
    "global_load_requests": "load requests",
    "global_load_sectors": "load sectors",
    "global_store_requests": "store requests",
    "global_store_sectors": "store sectors",
    "local_load_sectors": "local loads",
    "local_store_sectors": "local stores",
    "l1_read_sector_hits": "L1 load hits",
    "l2_read_sectors": "L2 reads",
    "l2_read_sector_hits": "L2 read hits",
    "l2_write_sectors": "L2 writes",
    "dram_read_bytes": "DRAM read B",
    "dram_write_bytes": "DRAM written B",
    "shared_load_instructions": "shared loads",
    "shared_load_wavefronts": "  wavefronts",
    "shared_store_instructions": "shared stores",
    "shared_store_wavefronts": "  wavefronts",
    "shared_excessive_wavefronts": "excessive",
    "flop_fp32": "FP32 FLOP",
    "flop_fp64": "FP64 FLOP",
    "warp_instructions": "instructions",
    "thread_instructions": "  of threads",
}
"""What Nsight Compute counts too, in the order of the report."""

BINARY_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


def console(most: int = REPORT_COLUMNS) -> Console:
    """Give the console for reports on stdout; colours as the terminal and `NO_COLOR` say.

    Args:
        most: Columns that are used of a wide terminal. One that says it has none does not know.
    """
    return Screen(highlight=False, width=min(Console().width or REPORT_COLUMNS, most))


class Screen(Console):
    """A console on which what is shown moves no cursor and changes no colour.

    Names of files and kernels, source lines and stored runs may come from strangers.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Lay out, with control characters written as escapes."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text, but="\n\t"), style, control)


def run_report(run: Run) -> RenderableType:
    """Give the whole report of one run: what was launched, what it did, what that means."""
    measurement = run.measurement
    sections = [
        _heading(run),
        facts("Launch", _launch_facts(measurement)),
        *([] if measurement.coverage.not_counted else _counted(measurement.counters)),
        _hardware_counters(measurement),
        None if measurement.coverage.not_counted else _intensity(run),
        facts("Result", _result_facts(run)),
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


def facts(title: str, rows: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Give a section of a report: a title, and a fact a line as label and value."""
    grid = Table.grid(Column(width=LABEL_COLUMNS), Column(), padding=(0, 1, 0, 0))
    for label, value in rows:
        grid.add_row(Text(f"  {label}", style="dim"), value)
    return Group(Text(title, style="bold"), grid)


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
    if coverage.not_counted:
        yield "not counted", coverage.not_counted
        return
    yield (
        "emulated",
        f"{coverage.blocks_emulated:,} of {coverage.blocks_total:,} blocks "
        f"({percent(coverage.blocks_emulated / coverage.blocks_total)})"
        + (f"; {coverage.remark}" if coverage.remark else ""),
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


def _counted(counters: Counters) -> Iterable[RenderableType | None]:
    yield _global_counters(counters)
    yield _bus_utilisation(counters)
    yield _shared_counters(counters)
    yield _constant_counters(counters)


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


def _bus_utilisation(counters: Counters) -> RenderableType | None:
    shares = (("loads", bus.of_loads(counters)), ("stores", bus.of_stores(counters)))
    rows = [
        (label, percent(share.of_lines), percent(share.of_sectors), "")
        for label, share in shares
        if share is not None
    ]
    headings = ("128-byte lines", "32-byte sectors", "")
    return _figures("Bus utilisation", headings, rows) if rows else None


def _constant_counters(counters: Counters) -> RenderableType | None:
    requests, passes = counters.constant_load_requests, counters.constant_load_passes
    if not requests:
        return None
    row = ("loads", f"{requests:,}", f"{passes:,}", f"{passes / requests:.2f}")
    return _figures("Constant memory", ("requests", "passes", "a request"), [row])


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


def _hardware_counters(measurement: Measurement) -> RenderableType | None:
    """What Nsight Compute counted beside what was emulated; rows of zeros are left out."""
    hardware = measurement.counters_ncu
    if hardware is None:
        return None
    rows = []
    for name, label in COUNTER_LABELS.items():
        ours, theirs = getattr(measurement.counters, name), hardware.get(name)
        if theirs is not None and (ours or theirs):
            rows.append((label, f"{ours:,}", f"{theirs:,.0f}", difference(ours, theirs)))
    time, duration_s = measurement.time, hardware.get("duration_s")
    if duration_s is not None:
        shown = f"{time_label(time)} {time.provenance}"
        rows.append(("time", shown, scaled(duration_s, "s"), difference(time.median_s, duration_s)))
    return _figures("Counters", ("emulated", "Nsight Compute", "difference"), rows)


def difference(ours: float, theirs: float) -> str:
    """Format how far a value lies from the true one: `+1.2%`; nothing where they agree."""
    if ours == theirs:
        return "none"
    if not theirs:
        return "all"
    share = (ours - theirs) / theirs
    return f"{100 * share:+.1f}%" if abs(share) >= 0.0005 else f"{'+' if share > 0 else '-'}<0.1%"


def _intensity(run: Run) -> RenderableType:
    moved = bytes_moved(run.measurement)
    intensity = run.placement.intensity_flop_per_byte
    return _figures(
        "Intensity",
        ("FLOP/B", "bytes", ""),
        [
            (
                bound_label(level),
                "-" if intensity.get(level) is None else digits(intensity[level] or 0.0),
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
    yield from _timing_facts(time)
    if time.bounds_s:
        longest = sorted(time.bounds_s.items(), key=lambda each: -each[1])[:SHOWN_BOUNDS]
        yield (
            "bounds alone",
            ", ".join(f"{bound_label(name)} {scaled(seconds, 's')}" for name, seconds in longest),
        )
    if measurement.flop:
        rate = f"{_approximately(time)}{scaled(placement.flop_per_s, 'FLOP/s')}"
    else:  # a copy or a transpose: its work is the bytes that it must move
        bytes_per_s = measurement.compulsory_bytes / time.median_s
        rate = f"{_approximately(time)}{scaled(bytes_per_s, 'B/s')}"
    yield "rate", Text.assemble((rate, "bold"), f" {time.provenance}")
    for library, its_time in measurement.library_time.items():
        share = its_time.median_s / time.median_s
        yield (
            library,
            f"{scaled(its_time.median_s, 's')} {its_time.provenance}; "
            f"this kernel reaches {percent(share)} of its rate",
        )
    if not measurement.coverage.not_counted:
        yield "bound by", bound_label(placement.bound)
        yield "of the roof", _roof(placement)
    yield "verified", _verified(measurement.verification)


def _provenance(time: Time) -> str:
    if time.provenance != "measured":
        return f" {time.provenance}"
    state = "" if time.warm_median_s is None else ", caches cold"
    return f" measured, median of {time.samples}{state}"


def _timing_facts(time: Time) -> Iterable[tuple[str, RenderableType]]:
    """How sure a measured time is, and what the clock did meanwhile."""
    first, third = time.lower_quartile_s, time.upper_quartile_s
    low, high = time.interval_low_s, time.interval_high_s
    if first is not None and third is not None:
        spread = f"{scaled(first, 's')} to {scaled(third, 's')}, half of the samples"
        if time.outliers:
            spread += f"; {time.outliers} outlier{'' if time.outliers == 1 else 's'}"
        yield "", spread
    if low is not None and high is not None:
        width = percent((high - low) / 2 / time.median_s)
        yield "", f"\N{PLUS-MINUS SIGN}{width}, 95% confidence of the median"
    if time.warm_median_s is not None:
        yield "caches warm", f"{scaled(time.warm_median_s, 's')}, median of {time.warm_samples}"
    if time.clock_hz is not None:
        clock, drift = f"{time.clock_hz / 1e6:.0f} MHz", time.clock_drift or 0.0
        if drift > DRIFT_LIMIT:
            text = f"{clock}, but moved by {percent(drift)}: the time is not to be relied on"
            yield "SM clock", Text(text, style="bold yellow")
        else:
            yield "SM clock", f"{clock}, moved by {percent(drift)}" if drift else f"{clock}, steady"


def _roof(placement: Placement) -> Text:
    fraction = placement.fraction_of_ceiling
    label = bound_label(placement.ceiling)
    ceiling = placement.ceiling_flop_per_s
    roof = f"{scaled(ceiling, 'FLOP/s')} ({label})" if ceiling else label
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
        reason = verification.worst or "nothing to compare with"
        return Text(f"skipped: {reason}", style="yellow")
    style = "green" if verification.status == "passed" else "bold red"
    share = f"{verification.checked:,} of {verification.total:,} outputs"
    error = verification.relative_error
    allowed = verification.tolerance
    detail = (
        ""
        if error is None or allowed is None
        else f"\nerror {error:.1e}, rounding explains {allowed:.1e}"
    )
    if verification.status == "failed" and verification.worst:
        detail += f"\n{verification.worst}"
    return Text.assemble((verification.status, style), f", {share}{detail}")
