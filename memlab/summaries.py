"""One line for each kind of result: the text of its `repr`."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from memlab.device.checking.findings import CheckReport
from memlab.device.gpu.peaks.records import Peaks
from memlab.device.machine_code.listing import MachineListing
from memlab.device.measurement import Measurement
from memlab.device.properties import (
    DeviceProperties,
    architecture_name,
    peak_bandwidth_bytes_per_s,
)
from memlab.device.tracing.records import Trace
from memlab.results import (
    BaselineCheck,
    DoctorReport,
    Explanation,
    KernelList,
    KernelOccupancy,
    ReportPage,
    Roofline,
)
from memlab.roofline.analysis.analysis import Analysis
from memlab.roofline.ceilings import ceiling_label
from memlab.roofline.comparison.records import Comparison
from memlab.roofline.glossary import GlossaryEntry
from memlab.roofline.run import Run
from memlab.roofline.sweep.records import Sweep
from memlab.roofline.units import elide_middle, sentence_number, si_text, without_lists
from memlab.text import plural, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.measurement import DeviceSummary, Verification

MAX_LAUNCH_CHARACTERS = 80
"""Longest text for a kernel and its parameters, of which user kernels have many."""


def one_line(result: object) -> str:
    """Describe a result in one line, `<Run tiled width=64 …>`."""
    return printable(f"<{type(result).__name__} {_description(result)}>")


@singledispatch
def _description(result: object) -> str:
    return f"at {id(result):#x}"


@_description.register
def _(run: Run) -> str:
    name = (
        f"'{elide_middle(run.identity.name, MAX_LAUNCH_CHARACTERS)}'" if run.identity.name else ""
    )
    which = " ".join(filter(None, ("" if run.id is None else str(run.id), name)))
    launch = _launch_text(run.measurement.kernel, run.measurement.parameters)
    placement = run.placement
    ceiling = ceiling_label(placement.ceiling)
    share = f"{100 * placement.fraction_of_ceiling:.3g}% of the {ceiling} ceiling"
    if run.measurement.coverage.not_counted:
        share = "not counted"
    return (
        f"{which}{': ' if which else ''}{launch} on "
        f"{_device_text(run.measurement.device)}: {_time_text(run.measurement)}, {share}, "
        f"{_verification_text(run.measurement.verification)}"
    )


@_description.register
def _(measurement: Measurement) -> str:
    return (
        f"{_launch_text(measurement.kernel, measurement.parameters)} on "
        f"{_device_text(measurement.device)}: {_time_text(measurement)}, "
        f"{_verification_text(measurement.verification)}"
    )


@_description.register
def _(comparison: Comparison) -> str:
    count = len(comparison.pairs)
    if count == 1:
        return comparison.pairs[0].verdict
    calls = [pair.call for pair in comparison.pairs]
    counts = ", ".join(f"{calls.count(call)} {call}" for call in dict.fromkeys(calls))
    return f"{count} pairs: {counts}"


@_description.register
def _(check: BaselineCheck) -> str:
    count = len(check.comparison.pairs)
    return f"{count} {plural(count, 'launch')}: {'failed' if check.failed else 'passed'}"


@_description.register
def _(analysis: Analysis) -> str:
    ratio = analysis.ratio
    counts = "no access to global memory"
    if ratio is not None:
        counts = f"{sentence_number(ratio.flop_per_byte)} FLOP per byte of global memory"
    return (
        f"{_launch_text(analysis.kernel, analysis.parameters)} on {analysis.device.key}: {counts}, "
        f"{_verification_text(analysis.verification)}"
    )


@_description.register
def _(report: CheckReport) -> str:
    count = len(report.findings)
    findings = f"{count} {plural(count, 'finding')}" if count else "no findings"
    return (
        f"{_launch_text(report.kernel, report.parameters)} on {report.device.key}: {findings}, "
        f"{_verification_text(report.verification)}"
    )


@_description.register
def _(listing: MachineListing) -> str:
    count = len(listing.instructions)
    return (
        f"{_launch_text(listing.kernel, listing.parameters)} on {_device_text(listing.device)}: "
        f"{count} {plural(count, 'instruction')}, "
        f"{sentence_number(listing.counters.warp_instructions)} executions by warps"
    )


@_description.register
def _(trace: Trace) -> str:
    steps = len(trace.followed.steps)
    return (
        f"{_launch_text(trace.kernel, trace.parameters)}: "
        f"thread {_index(trace.followed.thread)} of block {_index(trace.block_index)}, "
        f"{steps} {plural(steps, 'step')}"
    )


@_description.register
def _(occupancy: KernelOccupancy) -> str:
    blocks = occupancy.blocks_per_sm
    subject = occupancy.subject
    return (
        f"{_launch_text(subject.kernel, subject.parameters)} on {occupancy.properties.name}: "
        f"{blocks} {plural(blocks, 'block')} per SM, {100 * occupancy.theoretical:.3g}%, "
        f"limited by {occupancy.limiter}"
    )


@_description.register
def _(roofline: Roofline) -> str:
    runs = len(roofline.runs)
    return f"{roofline.properties.name}: {runs} {plural(runs, 'run')}"


@_description.register
def _(sweep: Sweep) -> str:
    name = f"{sweep.name}: " if sweep.name else ""
    best = ""
    if sweep.best is not None and sweep.best.value is not None:
        shown = {axis.name: sweep.best.values.get(axis.name, "") for axis in sweep.varying}
        at = " ".join(f"{axis}={value}" for axis, value in shown.items())
        best = f", best {sweep.objective.text(sweep.best.value)} {at}".rstrip()
    kernels = ", ".join(map(str, sweep.axes[0].values))
    count = len(sweep.rows)
    return f"{name}{kernels}: {len(sweep.done)} of {count} {plural(count, 'point')} done{best}"


@_description.register
def _(properties: DeviceProperties) -> str:
    figures = [properties.name, architecture_name(properties.compute_capability)]
    if properties.multiprocessor_count is not None:
        figures.append(f"{properties.multiprocessor_count} SMs")
    if properties.total_memory_bytes is not None:
        figures.append(f"{properties.total_memory_bytes / 2**30:.1f} GiB")
    bandwidth = peak_bandwidth_bytes_per_s(properties)
    if bandwidth is not None:
        figures.append(si_text(bandwidth, "B/s"))
    return ", ".join(figures)


@_description.register
def _(peaks: Peaks) -> str:
    measured = f", measured {peaks.created_at}" if peaks.created_at else ""
    rates, latencies = len(peaks.rates), len(peaks.latencies)
    return (
        f"{peaks.device.name} ({peaks.device.key}): {rates} {plural(rates, 'rate')}, "
        f"{latencies} {'latency' if latencies == 1 else 'latencies'}{measured}"
    )


@_description.register
def _(page: ReportPage) -> str:
    count, size = len(page.runs), len(page.html.encode()) / 1000
    return f"{page.title}: {count} {plural(count, 'run')}, {size:,.0f} kB of HTML"


@_description.register
def _(explanation: Explanation) -> str:
    if explanation.name is None:
        return f"of {len(explanation.entries)} terms and kernels"
    return f"of {', '.join(f'{entry.name} ({entry.kind})' for entry in explanation.entries)}"


@_description.register
def _(entry: GlossaryEntry) -> str:
    return f"{entry.name} ({entry.kind})"


@_description.register
def _(kernels: KernelList) -> str:
    user = f", {len(kernels.user)} in memlab.toml" if kernels.user else ""
    return f"{len(kernels.catalog)} in the catalog{user}"


@_description.register
def _(report: DoctorReport) -> str:
    gpu, emulator = (
        "works" if works else "does not work" for works in (report.gpu_works, report.emulator_works)
    )
    return f"GPU {gpu}, emulator {emulator}"


def _launch_text(kernel: str, parameters: Mapping[str, int | str]) -> str:
    words = (kernel, *(f"{name}={value}" for name, value in without_lists(parameters).items()))
    return elide_middle(" ".join(words), MAX_LAUNCH_CHARACTERS)


def _device_text(device: DeviceSummary) -> str:
    return f"{device.key} (emulated)" if device.kind == "emulated" else device.key


def _time_text(measurement: Measurement) -> str:
    sign = "" if measurement.time.provenance == "measured" else "~"
    return sign + si_text(measurement.time.median_s, "s")


def _verification_text(verification: Verification) -> str:
    return "not verified" if verification.status == "skipped" else verification.status


def _index(index: tuple[int, int, int]) -> str:
    return f"({index[0]},{index[1]},{index[2]})"
