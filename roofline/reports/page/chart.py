"""The data of the interactive roofline: devices with their roofs, and runs with their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memlab.device.measurement import flop_by_pipe
from memlab.device.properties import INTEGER_KINDS, architecture_name
from memlab.roofline.ceilings import ceiling_label, ceiling_unit, ceilings_by_key
from memlab.roofline.placement import bytes_moved, roofline_point
from memlab.roofline.plots.style import run_styles
from memlab.roofline.reports.parts import percent
from memlab.roofline.reports.run import rate_text, time_label
from memlab.roofline.run import TRAFFIC_LEVELS
from memlab.roofline.store.store import same_device
from memlab.roofline.units import (
    column_number,
    elide_middle,
    interval_text,
    parameters_text,
    si_text,
    without_lists,
)
from memlab.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.measurement import DeviceSummary, Time
    from memlab.roofline.plots.style import RunStyle
    from memlab.roofline.run import Ceiling, Run

MAX_NAME_CHARACTERS = 120
"""A longer name is shortened in its middle; the run's section has it whole."""

_UUID_CHARACTERS = len("GPU-") + 8
"""The start of a GPU's UUID that `nvidia-smi` and job systems show, enough to tell GPUs apart."""

SHOWN_PEAK = "fp32"
"""The arithmetic peak that is always drawn at first; others are where a run used their pipe."""


@dataclass(frozen=True)
class DeviceRoofs:
    """A device with what is known of its limits.

    Attributes:
        device: The device, as its runs name it.
        ceilings: Its ceilings; empty where they are not known.
        measured: The rates that micro-benchmarks reached on it.
    """

    device: DeviceSummary
    ceilings: tuple[Ceiling, ...]
    measured: tuple[Ceiling, ...] = ()


@dataclass(frozen=True)
class ChartRun:
    """A run as the page names it.

    Attributes:
        run: The run.
        key: Its name in the page's address: its number in the store, or its place in the page.
        label: Its name in the chart, which no other run has.
        device: The index of its device.
    """

    run: Run
    key: str
    label: str
    device: int

    @property
    def anchor(self) -> str:
        """The id of its section."""
        return f"run-{self.key}"


def chart_runs(runs: Sequence[Run], devices: Sequence[DeviceRoofs]) -> list[ChartRun]:
    """Name runs so that each can be told from the others."""
    ids = [run.id for run in runs]
    stored = None not in ids and len(set(ids)) == len(ids)
    keys = [str(run.id) if stored else f"n{place}" for place, run in enumerate(runs, 1)]
    places = [_place(run, devices) for run in runs]
    labels = [""] * len(runs)
    for device in set(places):  # what differs among the runs of a device
        own = [number for number, place in enumerate(places) if place == device]
        for number, style in zip(own, run_styles([runs[each] for each in own]), strict=True):
            labels[number] = _label(style)
    labels = _distinct(labels, [_plain(run.measurement.device.key) for run in runs])
    labels = _distinct(labels, [f"#{key.removeprefix('n')}" for key in keys])
    return [
        ChartRun(run, key, label, place)
        for run, key, label, place in zip(runs, keys, labels, places, strict=True)
    ]


def _distinct(labels: Sequence[str], differences: Sequence[str]) -> list[str]:
    """Add what differs to labels that are equal."""
    return [
        label
        if len({other for same, other in zip(labels, differences, strict=True) if same == label})
        == 1
        else f"{label} · {difference}"
        for label, difference in zip(labels, differences, strict=True)
    ]


def _place(run: Run, devices: Sequence[DeviceRoofs]) -> int:
    return next(
        place
        for place, entry in enumerate(devices)
        if same_device(run.measurement.device, entry.device)
    )


def chart_data(runs: Sequence[ChartRun], devices: Sequence[DeviceRoofs]) -> dict[str, Any]:
    """Give all that the page's script draws, with figures as texts where it only shows them."""
    return {
        "levels": [{"key": level, "label": ceiling_label(level)} for level in TRAFFIC_LEVELS],
        "devices": [
            _device(name, entry, [named.run for named in runs if named.device == place])
            for place, (name, entry) in enumerate(zip(device_names(devices), devices, strict=True))
        ],
        "runs": [_run(named) for named in runs],
    }


def device_names(devices: Sequence[DeviceRoofs]) -> list[str]:
    """Name devices, and whether they are real ones: `NVIDIA H200, sm_90, emulated`.

    GPUs that would have the same name, as each worker of a sweep has a `cuda:0`, are told apart by
    the start of their UUIDs.
    """
    names = [_device_name(entry.device) for entry in devices]
    return [
        f"{name}, {_plain(entry.device.uuid[:_UUID_CHARACTERS])}"
        if names.count(name) > 1 and entry.device.uuid
        else name
        for name, entry in zip(names, devices, strict=True)
    ]


def _device_name(device: DeviceSummary) -> str:
    where = "emulated" if device.kind == "emulated" else device.key
    return _plain(f"{device.name}, {architecture_name(device.compute_capability)}, {where}")


def parameters_line(run: Run) -> str:
    """Name a run's parameters in one line: `width 2048, tile 16`."""
    return _plain(parameters_text(without_lists(run.measurement.parameters)))


def roof_text(run: Run) -> str:
    """Name the share of its lowest roof that a run reaches: `72.5% of L1 / shared`."""
    placement = run.placement
    return f"{percent(placement.fraction_of_ceiling)} of {ceiling_label(placement.ceiling)}"


def time_note(time: Time) -> str:
    """Tell where a time comes from, with its interval: `modelled, 33.8–43.3 µs`."""
    low, high = time.interval_low_s, time.interval_high_s
    note = str(time.provenance)
    if time.samples:
        note += f", median of {time.samples}"
    if low is not None and high is not None:
        note += f", {interval_text(low, high, 's')}"
    return note


def _label(style: RunStyle) -> str:
    given = style.run.identity.label
    return _plain(style.label if not given or given in style.label else f"{style.label} · {given}")


def _plain(text: str) -> str:
    return printable(elide_middle(text, MAX_NAME_CHARACTERS))


def _device(name: str, entry: DeviceRoofs, runs: Sequence[Run]) -> dict[str, Any]:
    used = {
        pipe
        for run in runs
        for pipe, flop in flop_by_pipe(run.measurement.counters).items()
        if flop
    }
    used |= {run.placement.ceiling for run in runs}.intersection(INTEGER_KINDS)
    reached = ceilings_by_key(entry.measured)
    return {
        "key": _plain(entry.device.uuid or entry.device.key),
        "name": name,
        "roofs": [
            {
                "key": ceiling.key,
                "label": ceiling.label,
                "value": ceiling.value,
                "text": si_text(ceiling.value, ceiling_unit(ceiling)),
                "kind": ceiling.kind,
                "unit": ceiling_unit(ceiling),
                "provenance": ceiling.provenance,
                "reached": reached[ceiling.key].value if ceiling.key in reached else None,
                "shown": ceiling.kind == "bandwidth"
                or ceiling.key == SHOWN_PEAK
                or ceiling.key in used,
            }
            for ceiling in entry.ceilings
            if ceiling.kind != "integer" or ceiling.key in used
        ],
    }


def _run(named: ChartRun) -> dict[str, Any]:
    run = named.run
    measurement, placement = run.measurement, run.placement
    moved = bytes_moved(measurement)
    counted = not measurement.coverage.not_counted
    point = roofline_point(measurement, placement)
    known = point.intensity
    return {
        "key": named.key,
        "label": named.label,
        "kernel": _plain(measurement.kernel),
        "parameters": parameters_line(run),
        "device": named.device,
        "time": time_label(measurement.time),
        "timeNote": time_note(measurement.time),
        "measured": measurement.time.provenance == "measured",
        "operation": point.operation,
        "flops": point.per_s,
        "rate": rate_text(run),
        "roof": placement.ceiling,
        "roofText": roof_text(run),
        "roofFlops": point.ceiling_per_s,
        "invalid": placement.fraction_of_ceiling > 1,
        "bound": ceiling_label(placement.bound),
        "verified": measurement.verification.status,
        "levels": {
            level: {
                "x": known.get(level),
                "text": "-" if known.get(level) is None else column_number(known[level] or 0.0),
                "bytes": si_text(moved[level], "B"),
            }
            for level in TRAFFIC_LEVELS
        }
        if counted
        else {},
    }
