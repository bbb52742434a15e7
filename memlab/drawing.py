"""`memlab.roofline`: runs gathered under the ceilings of their device."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.device.devices import open_device
from memlab.device.properties import device_summary
from memlab.errors import Incomplete, UsageError
from memlab.launching import emulation_budget, prepare_on, timing_settings
from memlab.named_runs import find_runs
from memlab.results import Roofline
from memlab.roofline.ceilings import ceilings, measured_ceilings
from memlab.roofline.run import Run
from memlab.roofline.store.store import ALL_RUNS, Store, same_device
from memlab.running import run_prepared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from memlab.device.devices import Device
    from memlab.device.gpu.peaks.records import Peaks
    from memlab.device.measurement import DeviceSummary, Progress
    from memlab.launching import KernelName
    from memlab.named_runs import RunName
    from memlab.roofline.store.run_filter import RunFilter

DEFAULT_LADDER: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("naive", {"width": 2048}),
    ("tiled", {"width": 2048, "tile": 8}),
    ("tiled", {"width": 2048, "tile": 16}),
    ("tiled", {"width": 2048, "tile": 32}),
)
"""The textbook's steps, which the command line runs where no run is stored."""


def roofline(
    *runs: Run,
    device: str | int | None = None,
    title: str = "",
    store: Path | str | None = None,
) -> Roofline:
    """Draw runs under the ceilings of their device.

    Examples:
        memlab.roofline(memlab.run("naive"), memlab.run("tiled"))
        memlab.roofline(device="h200").figure().savefig("roofline.svg")
        memlab.roofline(memlab.runs(label="tile-*"), title="Tile widths")

    Args:
        *runs: The runs, or one list of them; all of one device. Without any, the stored runs of
            the device are drawn.
        device: The device whose stored runs are drawn: a GPU's index, such as 0, or a datasheet's
            name, such as `h200`. None takes the runs' device or, without runs, `MEMLAB_DEVICE` from
            the environment, else the first GPU, else the emulated H200.
        title: The picture's title; the device's name by default.
        store: The file of the stored runs and of the peaks that `memlab.peaks` measured; None
            takes `MEMLAB_STORE` from the environment, else a file in the user's data folder. It is
            only read.

    Returns:
        The roofline. A notebook shows the picture; `figure()` returns it as a matplotlib figure,
        `csv()` and `frame()` return its data.

    Raises:
        UsageError: An unknown device, runs of several devices, no stored run, or a store that
            cannot be read.
        DeviceError: The device is not available.
        Incomplete: Some stored runs cannot be read; its `result` is the roofline of the others.
    """
    drawn, device = _runs_and_device(runs, device)
    opened, kept = open_device(_device_key(drawn, device)), Store(store)
    summary = _summary(opened)
    peaks = kept.peaks(summary)
    if not drawn:
        stored = _Collector()
        drawn = _stored_runs(kept, summary, stored)
        if not drawn and not stored.errors:
            raise UsageError(
                f"no runs of {summary.key} in {kept.path}: draw some with memlab.roofline(run1, "
                "run2), or store some with memlab.run(..., keep=True)"
            )
        return stored.complete(_gather(opened, drawn, peaks, title=title))
    _check_device(drawn, summary)
    return _gather(opened, drawn, peaks, title=title, all_runs=True)


def record_roofline(
    kernel: KernelName | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    names: Sequence[RunName] = (),
    chosen: RunFilter = ALL_RUNS,
    device: str | int | None = None,
    title: str = "",
    seed: int = 0,
    store: Path | str | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> Roofline:
    """Run a kernel, store the run and gather it with stored runs, as `memlab roofline` does.

    Without a kernel and without stored runs, the ladder (`DEFAULT_LADDER`) runs and is stored,
    unless stored runs were asked for.

    Args:
        kernel: The kernel to run; None for none.
        parameters: Its parameters, as for `memlab.run`.
        names: The runs that are drawn, by their names (see `find_runs`); all stored runs of the
            device where there are none.
        chosen: Which of the stored runs are drawn; of the device, whatever it says.
        device: See `roofline`.
        title: See `roofline`.
        seed: Seed of the kernel's random inputs.
        store: See `roofline`; it is written.
        timeout_s: The longest time of one launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with the current step and its completed fraction.

    Raises:
        UsageError, DeviceError: As `memlab.run` and `roofline`.
        MemlabError: The kernel failed, or took too long.
        Incomplete: Some runs could not be stored or read; its `result` is the roofline of all that
            there is.
    """
    settings, budget = timing_settings(None, timeout_s), emulation_budget(timeout_s, memory_bytes)
    named = _named_runs(names, store)
    opened = open_device(_device_key(named, device), settings, budget)
    kept = Store(store)
    summary = _summary(opened)
    _check_device(named, summary)
    peaks = kept.peaks(summary)  # a store that cannot be read is refused before the work
    collector = _Collector()

    def finished_run(name: KernelName, chosen: Mapping[str, Any], seed: int) -> Run:
        return run_prepared(
            prepare_on(opened, name, chosen, seed, settings, budget, progress, device)
        )

    fresh: list[Run] = []
    if kernel is not None:
        kept.check()
        finished = finished_run(kernel, parameters or {}, seed)
        fresh = collector.collect(lambda: kept.add_all([finished]))
    drawn = named or _stored_runs(kept, summary, collector, chosen)
    # A filter may leave the new run out, and it may not have been stored.
    drawn += [run for run in fresh if run.id is None or run.id not in {each.id for each in drawn}]
    if not drawn and chosen != ALL_RUNS and not collector.errors:
        raise UsageError(
            f"none of the runs of {summary.key} in {kept.path} is chosen: 'memlab runs' lists all"
        )
    if not drawn:
        kept.check()
        ladder = [finished_run(name, chosen, 0) for name, chosen in DEFAULT_LADDER]
        drawn = collector.collect(lambda: kept.add_all(ladder))
    newest = fresh[0] if fresh else None
    return collector.complete(
        _gather(opened, drawn, peaks, newest, title=title, all_runs=bool(named))
    )


class _Collector:
    """Collects runs and the errors of those that could not be read or stored."""

    def __init__(self) -> None:
        self.errors: list[Incomplete] = []

    def collect(self, work: Callable[[], list[Run]]) -> list[Run]:
        """Do the work, and return the runs that it gives even if it is incomplete."""
        try:
            return work()
        except Incomplete as error:
            self.errors.append(error)
            return list(error.result)

    def complete(self, result: Roofline) -> Roofline:
        """Return the result.

        Raises:
            Incomplete: Some work was incomplete; carries the result.
        """
        if self.errors:
            raise Incomplete("; ".join(map(str, self.errors)), result)
        return result


def _runs_and_device(
    arguments: Sequence[Any], device: str | int | None
) -> tuple[list[Run], str | int | None]:
    """Read the positional arguments of `roofline`, of which the first used to be the device."""
    if len(arguments) == 1 and isinstance(arguments[0], str | int) and device is None:
        warnings.warn(
            f"roofline takes runs: write memlab.roofline(device={arguments[0]!r})",
            DeprecationWarning,
            stacklevel=3,
        )
        return [], arguments[0]
    return list_of_runs(arguments, "roofline"), device


def list_of_runs(arguments: Sequence[Any], function: str) -> list[Run]:
    """Read runs that were passed one by one, as a list, or both.

    Args:
        arguments: The positional arguments.
        function: The function that takes them, for the message.

    Raises:
        UsageError: One of them is not a run.
    """
    runs: list[Run] = []
    for argument in arguments:
        members = [argument] if isinstance(argument, Run) else argument
        if not isinstance(members, list | tuple):
            raise _no_run_error(function, argument)
        for member in members:
            if not isinstance(member, Run):
                raise _no_run_error(function, member)
            runs.append(member)
    return runs


def _no_run_error(function: str, argument: object) -> UsageError:
    return UsageError(
        f"{function} takes runs, got an object of type {type(argument).__name__}: "
        f"use {function}(run1, run2) or {function}([run1, run2])"
    )


def _device_key(runs: Sequence[Run], device: str | int | None) -> str | int | None:
    return runs[0].measurement.device.key if runs and device is None else device


def _summary(device: Device) -> DeviceSummary:
    return device_summary(device.properties, device.kind, device.key)


def _named_runs(names: Sequence[RunName], store: Path | str | None) -> list[Run]:
    """Find the runs of all names, each once."""
    found: list[Run] = []
    for name in names:
        found += [
            run
            for run in find_runs(name, store)
            if not any(run.id == other.id and run == other for other in found)
        ]
    return found


def _check_device(runs: Sequence[Run], device: DeviceSummary) -> None:
    """Refuse runs of other devices.

    Raises:
        UsageError: Names the first of them.
    """
    for run in runs:
        if not same_device(run.measurement.device, device):
            raise UsageError(
                f"a roofline has the ceilings of one device, got a run of "
                f"{run.measurement.device.key} ({run.measurement.device.name}) together with "
                f"{device.key} ({device.name}): draw one roofline for each"
            )


def _stored_runs(
    store: Store, device: DeviceSummary, collector: _Collector, chosen: RunFilter = ALL_RUNS
) -> list[Run]:
    """Read the chosen runs of a device; the newest are counted among those of the device."""
    of_device = replace(chosen, device=device.name, last=None)
    stored = collector.collect(lambda: store.runs(of_device))
    same = [run for run in stored if same_device(run.measurement.device, device)]
    return same[-chosen.last :] if chosen.last else same


def _gather(
    device: Device,
    runs: Sequence[Run],
    peaks: Peaks | None,
    fresh: Run | None = None,
    *,
    title: str = "",
    all_runs: bool = False,
) -> Roofline:
    return Roofline(
        device.properties,
        ceilings(device.properties),
        tuple(runs),
        measured_ceilings(peaks) if peaks else (),
        fresh,
        title,
        all_runs,
    )
