"""The report of a run in a terminal, 80 columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.text import Text

from memlab.device.measurement import (
    CLOCK_DRIFT_LIMIT,
    EVENT_PAIR_SHARE,
    flop_by_pipe,
    integer_op_by_pipe,
    total_global_atomic_sectors,
)
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import NO_CLUSTER
from memlab.kernels.user.compiler_flags import less_exact_options
from memlab.roofline.analysis import bus_utilization
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.placement import (
    RooflinePoint,
    bytes_moved,
    effective_bytes_per_s,
    roofline_point,
)
from memlab.roofline.reports.analysis_text import flop_text, stalls_text
from memlab.roofline.reports.parts import (
    bar,
    capacity,
    device_text,
    facts_section,
    figures_section,
    heading,
    kernel_text,
    percent,
    prose_section,
    stack_sections,
)
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.units import (
    column_number,
    compared_text,
    covered_text,
    extent_text,
    interval_text,
    si_text,
)
from memlab.text import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from memlab.device.measurement import (
        Code,
        Counters,
        InstructionCounters,
        Measurement,
        Time,
        Verification,
    )
    from memlab.roofline.reports.parts import Section
    from memlab.roofline.run import Placement, Run, RunIdentity

COMMIT_CHARACTERS = 12
"""Digits of a commit that the report shows: enough to be unique in a repository of Linux's size."""

MAX_SHOWN_BOUNDS = 3
"""Bounds of the time model that the report shows, the longest first."""

MAX_SHOWN_PIPES = 4
"""Pipes whose share of the instructions the report shows, the largest first."""

CONFLICT_SHARE = 0.01
"""From this share of the lanes of shared atomics on, retries are worth a word."""

COUNTER_LABELS = {
    "global_load_requests": "load requests",
    "global_load_sectors": "load sectors",
    "global_store_requests": "store requests",
    "global_store_sectors": "store sectors",
    "global_atomic_requests": "global atomics",
    "global_atomic_sectors": "  sectors",
    "global_reduction_requests": "reductions",
    "global_reduction_sectors": "  sectors",
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
    "shared_atomic_instructions": "shared atomics",
    "shared_atomic_wavefronts": "  wavefronts",
    "shared_excessive_wavefronts": "excessive",
    "flop_fp32": "FP32 FLOP",
    "flop_fp64": "FP64 FLOP",
    "warp_instructions": "instructions",
    "thread_instructions": "  of threads",
}
"""Labels of the counters that Nsight Compute counts too, in the order of the report."""

ALWAYS_SHOWN = ("global loads", "global stores", "L2 reads", "L2 writes")
"""Rows of global memory that are shown even if they are zero."""


def run_report(run: Run) -> RenderableType:
    """Lay out the report of a run: the launch, its counters, the result and the advice."""
    return stack_sections((_heading(run), *run_sections(run)))


def run_sections(run: Run) -> list[Section]:
    """List the sections of a run's report: the launch, its counters, the result and the advice."""
    measurement = run.measurement
    identity = list(_identity_facts(run.identity))
    sections = (
        facts_section("Run", identity) if identity else None,
        facts_section("Launch", _launch_facts(measurement)),
        *([] if measurement.coverage.not_counted else _counter_sections(measurement.counters)),
        _hardware_counters(measurement),
        None if measurement.coverage.not_counted else _intensity(run),
        None if measurement.coverage.not_counted else _arithmetic(run),
        facts_section("Result", _result_facts(run)),
        prose_section("Advice", " ".join(run.advice)) if run.advice else None,
    )
    return [section for section in sections if section is not None]


def time_label(time: Time) -> str:
    """Format a time, a modelled one with a sign that sets it apart: `~1.86 ms`."""
    return _approximation_sign(time) + si_text(time.median_s, "s")


def rate_text(run: Run) -> str:
    """Name a run's rate: its FLOPs, integer operations or else useful bytes over its time."""
    measurement = run.measurement
    point = roofline_point(measurement, run.placement)
    if measurement.flop or point.operation == "OP":
        rate = si_text(point.per_s, f"{point.operation}/s")
    else:  # the work of a copy or a transpose is the bytes that it must move
        rate = si_text(effective_bytes_per_s(measurement), "B/s")
    return _approximation_sign(measurement.time) + rate


def _approximation_sign(time: Time) -> str:
    return "" if time.provenance == "measured" else "~"


def _heading(run: Run) -> RenderableType:
    measurement, device = run.measurement, run.measurement.device
    created = run.created_at[:16].replace("T", " ") + " UTC"
    return heading(
        (kernel_text(measurement.kernel, measurement.parameters), device_text(device)),
        (
            "not stored" if run.id is None else f"run {run.id}, {created}",
            "emulated on this CPU" if device.kind == "emulated" else device.key,
        ),
    )


def _identity_facts(identity: RunIdentity) -> Iterable[tuple[str, str]]:
    for what in ("label", "note", "sweep"):
        if text := getattr(identity, what):
            yield what, text
    if identity.git_commit:
        changed = "" if identity.git_clean else ", changed"
        yield "commit", identity.git_commit[:COMMIT_CHARACTERS] + changed


def _launch_facts(measurement: Measurement) -> Iterable[tuple[str, str]]:
    resources, occupancy = measurement.resources, measurement.occupancy
    coverage = measurement.coverage
    threads = math.prod(measurement.block)
    count = math.prod(measurement.grid)
    yield "grid", f"{extent_text(measurement.grid)} = {count:,} {plural(count, 'block')}"
    yield "block", f"{extent_text(measurement.block)} = {threads:,} {plural(threads, 'thread')}"
    if measurement.cluster != NO_CLUSTER:
        size = math.prod(measurement.cluster)
        clusters = count // max(size, 1)  # a stored run may have any numbers
        active = occupancy.active_clusters
        yield (
            "cluster",
            f"{extent_text(measurement.cluster)} = {size:,} {plural(size, 'block')}, "
            f"{clusters:,} {plural(clusters, 'cluster')}"
            + ("" if active is None else f", {active:,} at once"),
        )
    registers = resources.registers_per_thread
    yield (
        "registers",
        f"{registers} per thread"
        if registers is not None
        else f"unknown, no limit here: {measurement.instructions.reason or 'no machine code'}",
    )
    yield (
        "shared memory",
        _shared_memory_text(resources.static_shared_bytes, measurement.dynamic_shared_bytes),
    )
    if resources.local_bytes_per_thread:
        yield "local memory", f"{capacity(resources.local_bytes_per_thread)} per thread"
    if measurement.code.compiler:
        yield "compiler", " ".join((measurement.code.compiler, *shown_options(measurement.code)))
    if measurement.code.left_out:
        yield "left out", f"not found: {', '.join(measurement.code.left_out)}"
    blocks = f"{occupancy.blocks_per_sm} {plural(occupancy.blocks_per_sm, 'block')}"
    yield (
        "occupancy",
        f"{percent(occupancy.theoretical)}, {blocks} per SM, limited by {occupancy.limiter}",
    )
    if coverage.not_counted:
        yield "not counted", coverage.not_counted
        return
    yield (
        "emulated",
        f"{covered_text(coverage)} "
        f"({percent(coverage.blocks_emulated / coverage.blocks_total)})"
        + (f"; {coverage.remark}" if coverage.remark else ""),
    )


def shown_options(code: Code) -> Iterable[str]:
    """The options of the compiler that change the code: all but the folders of headers."""
    return (option for option in code.options if not option.startswith(("-I", "--root=")))


def _shared_memory_text(static_bytes: int, dynamic_bytes: int) -> str:
    parts = [
        f"{capacity(size)} {kind}"
        for size, kind in ((static_bytes, "static"), (dynamic_bytes, "dynamic"))
        if size
    ]
    return " + ".join(parts) + " per block" if parts else "none"


def _counter_sections(counters: Counters) -> Iterable[Section | None]:
    yield _global_counters(counters)
    yield _bus_utilisation(counters)
    yield _shared_counters(counters)
    yield _distributed_shared_counters(counters)
    yield _constant_counters(counters)


def _global_counters(counters: Counters) -> Section:
    rows = [
        ("global loads", counters.global_load_requests, counters.global_load_sectors),
        ("global stores", counters.global_store_requests, counters.global_store_sectors),
        ("global atomics", counters.global_atomic_requests, counters.global_atomic_sectors),
        ("reductions", counters.global_reduction_requests, counters.global_reduction_sectors),
        ("incl. textures", counters.texture_requests, counters.texture_sectors),
        ("incl. surfaces", counters.surface_requests, counters.surface_sectors),
        ("incl. bulk", counters.bulk_requests, counters.bulk_sectors),
        ("local loads", 0, counters.local_load_sectors),
        ("local stores", 0, counters.local_store_sectors),
        ("L2 reads", 0, counters.l2_read_sectors),
        ("L2 writes", 0, counters.l2_write_sectors),
        ("L2 atomics", 0, total_global_atomic_sectors(counters)),
    ]
    return figures_section(
        "Global memory",
        ("requests", "sectors", "per request"),
        [
            (
                label,
                f"{requests:,}" if requests else "",
                f"{sectors:,}",
                f"{sectors / requests:.2f}" if requests else "",
            )
            for label, requests, sectors in rows
            if sectors or label in ALWAYS_SHOWN
        ],
    )


def _bus_utilisation(counters: Counters) -> Section | None:
    shares = (
        ("loads", bus_utilization.load_utilisation(counters)),
        ("stores", bus_utilization.store_utilisation(counters)),
    )
    rows = [
        (label, percent(share.of_lines), percent(share.of_sectors), "")
        for label, share in shares
        if share is not None
    ]
    headings = ("128-byte lines", "32-byte sectors", "")
    return figures_section("Bus utilisation", headings, rows) if rows else None


def _constant_counters(counters: Counters) -> Section | None:
    requests, passes = counters.constant_load_requests, counters.constant_load_passes
    if not requests:
        return None
    row = ("loads", f"{requests:,}", f"{passes:,}", f"{passes / requests:.2f}")
    return figures_section("Constant memory", ("requests", "passes", "per request"), [row])


def _distributed_shared_counters(counters: Counters) -> Section | None:
    requests, sectors = counters.distributed_shared_requests, counters.distributed_shared_sectors
    if not requests:
        return None
    row = ("of other blocks", f"{requests:,}", f"{sectors:,}", f"{sectors / requests:.2f}")
    headings = ("requests", "sectors", "per request")
    return figures_section("Distributed shared memory", headings, [row])


def _shared_counters(counters: Counters) -> Section | None:
    rows = [
        ("loads", counters.shared_load_instructions, counters.shared_load_wavefronts),
        ("stores", counters.shared_store_instructions, counters.shared_store_wavefronts),
        ("atomics", counters.shared_atomic_instructions, counters.shared_atomic_wavefronts),
        (
            "incl. ldmatrix",
            counters.shared_matrix_load_instructions,
            counters.shared_matrix_load_wavefronts,
        ),
        (
            "incl. cp.async",
            counters.shared_async_store_instructions,
            counters.shared_async_store_wavefronts,
        ),
        ("read by wgmma", 0, counters.shared_product_wavefronts),
    ]
    if not any(wavefronts for _, _, wavefronts in rows):
        return None
    return figures_section(
        "Shared memory",
        ("instructions", "wavefronts", "per instruction"),
        [
            *(
                (
                    label,
                    f"{instructions:,}" if instructions or not wavefronts else "",
                    f"{wavefronts:,}",
                    f"{wavefronts / instructions:.2f}" if instructions else "",
                )
                for label, instructions, wavefronts in rows
                if wavefronts or label in ("loads", "stores")
            ),
            ("excessive", "", f"{counters.shared_excessive_wavefronts:,}", ""),
        ],
    )


def _hardware_counters(measurement: Measurement) -> Section | None:
    """Compare Nsight Compute's counters with the emulated ones; rows of zeros are left out."""
    hardware = measurement.counters_ncu
    if hardware is None:
        return None
    rows, ours = [], measurement.counters.by_nsight_compute()
    for name, label in COUNTER_LABELS.items():
        emulated, counted = ours[name], hardware.get(name)
        if counted is not None and (emulated or counted):
            difference = difference_text(emulated, counted)
            rows.append((label, f"{emulated:,}", f"{counted:,.0f}", difference))
    time, duration_s = measurement.time, hardware.get("duration_s")
    if duration_s is not None:
        shown = f"{time_label(time)} {time.provenance}"
        rows.append(
            ("time", shown, si_text(duration_s, "s"), difference_text(time.median_s, duration_s))
        )
    return figures_section("Counters", ("emulated", "Nsight Compute", "difference"), rows)


def difference_text(ours: float, theirs: float) -> str:
    """Format how far a value lies from the true one: `+1.2%`; nothing where they agree."""
    if ours == theirs:
        return "none"
    if not theirs:
        return "all"
    share = (ours - theirs) / theirs
    return f"{100 * share:+.1f}%" if abs(share) >= 0.0005 else f"{'+' if share > 0 else '-'}<0.1%"


def _intensity(run: Run) -> Section:
    moved = bytes_moved(run.measurement)
    intensity = run.placement.intensity_flop_per_byte
    integers = sum(integer_op_by_pipe(run.measurement.counters).values())
    if run.measurement.flop:
        integers = 0  # they are overhead
    return figures_section(
        "Intensity",
        ("FLOP/B", "bytes", "integer OP/B" if integers else ""),
        [
            (
                ceiling_label(level),
                "-" if intensity.get(level) is None else column_number(intensity[level] or 0.0),
                si_text(moved[level], "B"),
                column_number(integers / moved[level]) if integers and moved[level] else "",
            )
            for level in TRAFFIC_LEVELS
        ],
    )


def _arithmetic(run: Run) -> Section | None:
    """The operations that each pipe executed, per second and as a share of its peak."""
    counters, time, busy = run.measurement.counters, run.measurement.time, run.placement.busy
    rows = [(pipe, flop, "FLOP") for pipe, flop in flop_by_pipe(counters).items() if flop]
    rows += [(pipe, count, "OP") for pipe, count in integer_op_by_pipe(counters).items()]
    if not rows:
        return None
    return figures_section(
        "Arithmetic",
        ("executed", "rate", "of the peak"),
        [
            (
                ceiling_label(pipe),
                si_text(count, unit),
                _approximation_sign(time) + si_text(count / time.median_s, f"{unit}/s"),
                percent(busy[pipe]) if pipe in busy else "-",
            )
            for pipe, count, unit in rows
        ],
    )


def _result_facts(run: Run) -> Iterable[tuple[str, RenderableType]]:
    measurement, placement = run.measurement, run.placement
    time = measurement.time
    yield "time", Text.assemble((time_label(time), "bold"), _provenance_text(time))
    yield from _timing_facts(time)
    if time.bounds_s:
        longest = sorted(time.bounds_s.items(), key=lambda bound: -bound[1])[:MAX_SHOWN_BOUNDS]
        yield (
            "time bounds",
            ", ".join(
                f"{ceiling_label(name)} {si_text(seconds, 's')}" for name, seconds in longest
            ),
        )
    if remark := _left_out(measurement):
        yield "left out", remark
    if both := flop_text(measurement.flop, measurement.counters):
        yield "FLOP", both
    yield "rate", Text.assemble((rate_text(run), "bold"), f" {time.provenance}")
    for library, library_time in measurement.library_time.items():
        share = library_time.median_s / time.median_s
        yield (
            library,
            f"{si_text(library_time.median_s, 's')} {library_time.provenance}; "
            f"this kernel reaches {percent(share)} of its rate",
        )
    if not measurement.coverage.not_counted:
        yield from _instruction_facts(measurement.instructions)
        if measurement.stalls:
            yield "warp time", f"~{stalls_text(measurement.stalls)} modelled"
        yield "bound by", ceiling_label(placement.bound)
        passes = measurement.counters.l1_wavefronts
        if passes and "l1" in placement.busy:
            where = "on the busiest SM" if "l1" in time.bounds_s else "on average"
            busy = percent(placement.busy["l1"])
            yield "L1 port", f"{si_text(passes, '')} passes, busy {busy} of the time {where}"
        yield "of the ceiling", _ceiling_text(placement, roofline_point(measurement, placement))
    yield "verified", _verification_text(measurement.verification, exactness_text(measurement))


def _left_out(measurement: Measurement) -> str:
    """What a modelled time does not know of this kernel; empty for nothing."""
    if measurement.time.left_out:
        return measurement.time.left_out
    counters = measurement.counters
    conflicts = counters.shared_atomic_float_conflicts
    lanes = WARP_SIZE * counters.shared_atomic_instructions
    known = measurement.time.provenance == "measured" or measurement.instructions.counted != "PTX"
    if known or not conflicts or conflicts < CONFLICT_SHARE * lanes:
        return ""
    return (
        f"retries of floating-point atomics in shared memory: {si_text(conflicts, '').strip()} "
        "lanes meet others at an address; the kernel can take many times as long"
    )


def _instruction_facts(instructions: InstructionCounters) -> Iterable[tuple[str, str]]:
    """The instructions of the warps by pipe, and how many were spills."""
    count = si_text(instructions.warp_instructions, "")
    if instructions.counted == "PTX":
        if instructions.warp_instructions:
            yield "instructions", f"{count} warp instructions (PTX): {instructions.reason}"
        return
    shares = [
        f"{pipe} {100 * number / max(instructions.warp_instructions, 1):.0f}%"
        for pipe, number in list(instructions.by_pipe.items())[:MAX_SHOWN_PIPES]
    ]
    yield "instructions", f"{count} warp instructions (machine code): {', '.join(shares)}"
    if spills := instructions.spill_loads + instructions.spill_stores:
        yield "spills", f"{si_text(spills, '')} loads and stores of registers in local memory"


def _provenance_text(time: Time) -> str:
    low, high = time.interval_low_s, time.interval_high_s
    if time.provenance != "measured":
        errors = "" if low is None or high is None else f" ({interval_text(low, high, 's')})"
        return f"{errors} {time.provenance}"
    state = "" if time.warm_median_s is None else ", caches cold"
    return f" measured, median of {time.samples}{state}"


def _timing_facts(time: Time) -> Iterable[tuple[str, RenderableType]]:
    """Describe the spread of a measured time, and the SM clock meanwhile."""
    first, third = time.lower_quartile_s, time.upper_quartile_s
    low, high = time.interval_low_s, time.interval_high_s
    if low is None and time.minimum_s is not None and time.maximum_s is not None:
        yield "", _few_samples_text(time.samples, time.minimum_s, time.maximum_s)
    elif first is not None and third is not None:
        spread = f"{si_text(first, 's')} to {si_text(third, 's')}, half of the samples"
        if time.outliers:
            spread += f"; {time.outliers} outlier{'' if time.outliers == 1 else 's'}"
        yield "", spread
    if low is not None and high is not None and time.provenance == "measured":
        width = percent((high - low) / 2 / time.median_s)
        yield "", f"\N{PLUS-MINUS SIGN}{width}, 95% confidence of the median"
    if time.event_pair_s is not None and time.event_pair_s > EVENT_PAIR_SHARE * time.median_s:
        alone = si_text(time.event_pair_s, "s")
        yield "", f"{alone} of it is the two events; a profiler's duration leaves that out"
    if time.warm_median_s is not None:
        yield "caches warm", f"{si_text(time.warm_median_s, 's')}, median of {time.warm_samples}"
    if time.clock_hz is not None:
        clock, drift = f"{time.clock_hz / 1e6:.0f} MHz", time.clock_drift or 0.0
        if drift > CLOCK_DRIFT_LIMIT:
            text = f"{clock}, but moved by {percent(drift)}: the time is not reliable"
            yield "SM clock", Text(text, style="bold yellow")
        else:
            yield "SM clock", f"{clock}, moved by {percent(drift)}" if drift else f"{clock}, steady"


def _few_samples_text(samples: int, smallest_s: float, largest_s: float) -> str:
    """Describe samples that are too few for a confidence interval."""
    if samples == 1:
        return "a single sample, so its variation is not known"
    both = f"{si_text(smallest_s, 's')} to {si_text(largest_s, 's')}"
    return f"{both}, the smallest and largest of {samples}"


def _ceiling_text(placement: Placement, point: RooflinePoint) -> Text:
    fraction = placement.fraction_of_ceiling
    label = ceiling_label(placement.ceiling)
    ceiling = point.ceiling_per_s
    limit = f"{si_text(ceiling, f'{point.operation}/s')} ({label})" if ceiling else label
    if fraction > 1:
        return Text.assemble(
            (f"{percent(fraction)} of {limit}", "bold red"),
            "\ninvalid: above a physical limit, so the time or a counter is wrong",
        )
    return Text.assemble((percent(fraction), "bold"), f" of {limit}  ", bar(fraction))


def exactness_text(measurement: Measurement) -> str:
    """Say what options that allow larger errors mean for the verification; empty without them."""
    options = " ".join(less_exact_options(measurement.code.options))
    status = measurement.verification.status
    if not options or status == "skipped":
        return ""
    if status == "failed":
        return f"{options} allows larger errors: see 'memlab explain tolerance'"
    if measurement.device.kind == "emulated":
        return f"with {options}, a GPU's functions err more than emulated ones"
    return ""


def _verification_text(verification: Verification, exactness: str = "") -> Text:
    if verification.status == "skipped":
        reason = verification.worst or "nothing to compare with"
        return Text(f"skipped: {reason}", style="yellow")
    style = "green" if verification.status == "passed" else "bold red"
    share = compared_text(verification)
    error = verification.relative_error
    allowed = verification.tolerance
    detail = (
        "" if error is None or allowed is None else f"\nerror {error:.1e}, tolerance {allowed:.1e}"
    )
    if verification.status == "failed" and verification.worst:
        detail += f"\n{verification.worst}"
    if exactness:
        detail += f"\n{exactness}"
    if verification.unverified:
        detail += f"\nnot verified: {verification.unverified}"
    return Text.assemble((verification.status, style), f", {share}{detail}")
