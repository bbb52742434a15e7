"""The main jobs as functions: query a device, run a kernel, place runs under a roof.

The command line and `import memlab` both call these; here the rooms meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device import datasheet, ncu, tracing
from memlab.device.compile import compile_launch
from memlab.device.devices import Device, gpu_index, gpu_names, limits, open_device
from memlab.device.emulated import count, emulate
from memlab.device.measurement import DeviceSummary
from memlab.device.timing import TIMEOUT_S, Settings
from memlab.errors import DeviceError, Incomplete, UsageError
from memlab.kernels import catalog
from memlab.kernels.cublas import LibraryError
from memlab.roofline.advice import advise
from memlab.roofline.analysis import Analysis, access_ratio
from memlab.roofline.boundary import BoundaryCost, EdgeCase, edge_case, nearest_multiples
from memlab.roofline.ceilings import ceilings, measured_ceilings
from memlab.roofline.placement import place
from memlab.roofline.run import Ceiling, Run
from memlab.roofline.store import Store

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from memlab.device.compile import Compiled
    from memlab.device.measurement import Progress, Resources, Time
    from memlab.device.peak_records import Peaks
    from memlab.device.properties import DeviceProperties
    from memlab.device.reference_bar import ReferenceBar
    from memlab.device.trace_records import Trace
    from memlab.kernels.launch import Dim3, Launch

LADDER: tuple[tuple[str, Mapping[str, int]], ...] = (
    ("naive", {"width": 2048}),
    ("tiled", {"width": 2048, "tile": 8}),
    ("tiled", {"width": 2048, "tile": 16}),
    ("tiled", {"width": 2048, "tile": 32}),
)
"""What a roofline shows where nothing was recorded: the textbook's steps."""


@dataclass(frozen=True)
class Roofline:
    """Runs of one device under its roofs.

    Attributes:
        properties: The device.
        ceilings: Its roofs.
        runs: The runs, oldest first.
        measured: What `peaks` found of the roofs on this very device; empty where it did not run.
    """

    properties: DeviceProperties
    ceilings: tuple[Ceiling, ...]
    runs: tuple[Run, ...]
    measured: tuple[Ceiling, ...] = ()

    def figure(self) -> Figure:
        """Draw it: see `memlab.roofline.plot.draw`."""
        from memlab.roofline.plot import draw

        newest = max(run.created_at for run in self.runs)[:10]
        return draw(self.runs, self.ceilings, self.properties.name, newest, self.measured)

    def csv(self) -> str:
        """The ceilings and points as CSV, enough to draw the picture again."""
        from memlab.roofline.table import picture_csv

        return picture_csv(self.runs, (*self.ceilings, *self.measured))

    def frame(self) -> pandas.DataFrame:
        """The runs as a pandas frame, a row each."""
        from memlab.roofline.table import frame

        return frame(self.runs)


def device_names() -> list[str]:
    """The names that `device` takes here."""
    return [*gpu_names(), *datasheet.names()]


def device_properties(device: str | None = None) -> DeviceProperties:
    """What a device has.

    Args:
        device: A GPU, as `0` or `cuda:0`, or a datasheet's name; None takes the default device.

    Raises:
        UsageError: There is no such device.
        DeviceError: A GPU was asked for that is not available.
    """
    return open_device(device).properties


def run(
    kernel: str,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    store: Path | None = None,
    keep: bool = True,
    progress: Progress | None = None,
    counters_ncu: dict[str, float] | None = None,
    library_time: Mapping[str, Time] | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
) -> Run:
    """Compile, execute, verify, count, time and place one kernel.

    Args:
        kernel: A name of the catalog.
        parameters: Its parameters; what is missing or None takes its default.
        device: See `device_properties`.
        seed: Of the random inputs.
        store: The file to keep the run in; None takes the user's.
        keep: Whether to keep it at all.
        progress: Told what is being done and the fraction that is over.
        counters_ncu: What `hardware_counters` gave for the same launch, to keep with the run.
        library_time: How long a vendor's library took for the same work, to keep with the run.
        samples: How many launches a GPU times; None takes as many as the median needs.
        timeout_s: How long one launch on a GPU may take; None allows a minute.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a store that cannot
            be written.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed.
        Incomplete: The run could not be stored after all; carries it.
    """
    settings = _settings(samples, timeout_s)
    runs = Store(store) if keep else None
    if runs is not None:
        runs.check()
    made = _run(open_device(device, settings), kernel, parameters, seed, progress)
    measurement = replace(
        made.measurement, counters_ncu=counters_ncu, library_time=dict(library_time or {})
    )
    made = replace(made, measurement=measurement)
    return made if runs is None else runs.add(made)


def hardware_counters(
    kernel: str,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Count a launch in hardware, with Nsight Compute.

    Args:
        kernel: A name of the catalog.
        parameters: As for `run`.
        device: See `device_properties`; it must be a GPU.
        seed: Of the random inputs.
        progress: As for `run`.

    Returns:
        Whole-grid totals by the names of `Counters`, and `duration_s`.

    Raises:
        UsageError: An unknown kernel or device, or a parameter out of range.
        ProfilerError: There are no hardware counters here; says why and what to do.
    """
    opened = open_device(device)
    if opened.kind != "cuda":
        raise ncu.ProfilerError(
            f"Nsight Compute counts on a GPU, and {opened.key} is emulated: "
            "choose a GPU with --device 0"
        )
    launch = catalog.find(kernel).prepare(parameters, limits(opened.properties))
    if progress is not None:
        progress("counting with Nsight Compute", None)
    return ncu.counters(ncu.profile(launch, index=gpu_index(opened.key), seed=seed))


def cublas(
    kernel: str,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
) -> ReferenceBar:
    """Time cuBLAS on the matrices that a kernel multiplies: the bar for the ladder.

    Args:
        kernel: A name of the catalog.
        parameters: As for `run`.
        device: See `device_properties`; it must be a GPU.
        seed: Of the random inputs.
        progress: As for `run`.
        samples: As for `run`.
        timeout_s: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or a kernel that is
            no product of row-major matrices.
        LibraryError: There is no cuBLAS here; says why and what to do.
        DeviceError: A GPU was asked for that is not available.
    """
    opened = open_device(device)
    launch = catalog.find(kernel).prepare(parameters, limits(opened.properties))
    if launch.library != "cublas":
        raise UsageError(
            f"cuBLAS multiplies row-major matrices, which {kernel} does not: leave out --cublas"
        )
    if opened.kind != "cuda":
        raise LibraryError(
            f"it runs on a GPU, and {opened.key} is emulated: choose a GPU with --device 0"
        )
    from memlab.device.reference_bar import reference_bar

    settings = _settings(samples, timeout_s)
    return reference_bar(gpu_index(opened.key), launch, seed, settings, progress)


def resources(
    kernel: str, parameters: Mapping[str, int | str | None], properties: DeviceProperties
) -> tuple[Launch, Resources]:
    """Compile a kernel for a device, without running it.

    Args:
        kernel: A name of the catalog.
        parameters: As for `run`.
        properties: The device, from `device_properties`.

    Returns:
        The launch, and the registers, shared and local memory that the compiler gave it.

    Raises:
        UsageError: An unknown kernel, or a parameter out of range.
        DeviceError: The compiler is not available, or does not know the device.
    """
    launch, compiled = _compiled(kernel, parameters, properties)
    return launch, compiled.resources


def analyze(
    kernel: str,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Analysis:
    """Count what a kernel does to memory, on any machine, and time nothing.

    A launch whose blocks reach over the edge is counted at the nearest multiples too.

    Args:
        kernel: A name of the catalog.
        parameters: As for `run`.
        device: See `device_properties`; a GPU is asked for its figures and runs nothing.
        seed: Of the random inputs.
        progress: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed.
    """
    opened, chosen = open_device(device), catalog.find(kernel)
    properties = opened.properties
    capability, allowed = properties.compute_capability, limits(properties)
    launch = chosen.prepare(parameters, allowed)
    compiled = compile_launch(launch, capability)
    emulation = emulate(launch, compiled, properties, seed, progress)

    def prepare(values: Mapping[str, int | str]) -> Launch:
        return chosen.prepare(values, allowed)

    def edge(values: Mapping[str, int | str] | None) -> EdgeCase | None:
        if values is None:
            return None
        other = prepare(values)
        return edge_case(other, count(other, compile_launch(other, capability), seed, progress))

    multiples = nearest_multiples(launch.parameters, prepare)
    boundary = None
    if multiples is not None:
        here = edge_case(launch, emulation.counters)
        boundary = BoundaryCost(here, edge(multiples[0]), edge(multiples[1]))
    flop = emulation.flop(launch)
    return Analysis(
        kernel=kernel,
        parameters=dict(launch.parameters),
        source=launch.source,
        source_name=launch.source_name,
        device=DeviceSummary(properties.name, opened.kind, capability, opened.key),
        grid=launch.grid,
        block=launch.block,
        resources=compiled.resources,
        flop=flop,
        compulsory_bytes=launch.compulsory_bytes,
        coverage=emulation.coverage,
        counters=emulation.counters,
        lines=emulation.lines,
        ratio=access_ratio(flop, emulation.region, emulation.counters, properties),
        boundary=boundary,
        verification=emulation.verification,
    )


def trace(
    kernel: str,
    parameters: Mapping[str, int | str | None],
    *,
    block: Dim3 = (0, 0, 0),
    thread: Dim3 = (0, 0, 0),
    device: str | None = None,
) -> Trace:
    """Follow one thread through a launch: what it touches, in the program's own names.

    Args:
        kernel: A name of the catalog.
        parameters: As for `run`.
        block: The block's index in the grid, x, y, z.
        thread: The thread's index in the block, x, y, z.
        device: See `device_properties`; it decides what the kernel is compiled for.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a block or thread
            outside the launch.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed.
    """
    properties = device_properties(device)
    launch, compiled = _compiled(kernel, parameters, properties)
    return tracing.trace(launch, compiled, block, thread, properties.name)


def roofline(
    *, device: str | None = None, store: Path | None = None, progress: Progress | None = None
) -> Roofline:
    """Gather the recorded runs of a device; where there are none, run the ladder first.

    Args:
        device: See `device_properties`.
        store: The file that keeps runs; None takes the user's.
        progress: As for `run`.

    Raises:
        UsageError: An unknown device, or a store that cannot be used.
        DeviceError: The device or the compiler is not available.
        Incomplete: Some runs cannot be read or the ladder could not be stored; carries the
            roofline of what there is.
    """
    opened, kept = open_device(device), Store(store)
    peaks = kept.peaks(opened.key, opened.properties.name)
    missing: list[Incomplete] = []

    def what_there_is(work: Callable[[], list[Run]]) -> list[Run]:
        try:
            return work()
        except Incomplete as error:
            missing.append(error)
            return list(error.result)

    runs = what_there_is(lambda: kept.runs(device=opened.key))
    if not runs:
        kept.check()
        ladder = [_run(opened, kernel, parameters, 0, progress) for kernel, parameters in LADDER]
        runs = what_there_is(lambda: kept.add_all(ladder))
    gathered = Roofline(
        opened.properties,
        ceilings(opened.properties),
        tuple(runs),
        measured_ceilings(peaks) if peaks else (),
    )
    if missing:
        raise Incomplete("; ".join(map(str, missing)), gathered)
    return gathered


def peaks(
    *,
    device: str | None = None,
    store: Path | None = None,
    keep: bool = True,
    progress: Progress | None = None,
) -> Peaks:
    """Measure a GPU's ceilings and latencies; later rooflines on it draw them.

    Args:
        device: See `device_properties`; it must be a GPU.
        store: The file to keep them in; None takes the user's.
        keep: Whether to keep them at all.
        progress: As for `run`.

    Raises:
        UsageError: An unknown device, or a store that cannot be written.
        DeviceError: The device is emulated, or cannot be used.
        MemlabError: A micro-benchmark gave a wrong result.
        Incomplete: The peaks could not be stored after all; carries them.
    """
    from memlab.device.peaks import measure

    opened = open_device(device)
    if opened.kind != "cuda":
        raise DeviceError(
            f"peaks are measured on a GPU, and {opened.key} is emulated: choose a GPU with "
            f"--device 0, or see its datasheet with 'memlab devicequery --device {opened.key}'"
        )
    kept = Store(store) if keep else None
    if kept is not None:
        kept.check()
    found = replace(
        measure(gpu_index(opened.key), opened.properties, progress),
        created_at=_now().isoformat(timespec="seconds"),
        memlab_version=version("memlab"),
    )
    if kept is not None:
        kept.add_peaks(found)
    return found


def _settings(samples: int | None, timeout_s: float | None) -> Settings:
    return Settings(samples, timeout_s=TIMEOUT_S if timeout_s is None else timeout_s)


def _compiled(
    kernel: str, parameters: Mapping[str, int | str | None], properties: DeviceProperties
) -> tuple[Launch, Compiled]:
    launch = catalog.find(kernel).prepare(parameters, limits(properties))
    return launch, compile_launch(launch, properties.compute_capability)


def _now() -> datetime:
    """Tell the time, or what SOURCE_DATE_EPOCH says it is: documents can be made again alike."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(epoch), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970, got {epoch!r}: correct or unset it"
        ) from error


def _run(
    device: Device,
    name: str,
    parameters: Mapping[str, int | str | None],
    seed: int,
    progress: Progress | None,
) -> Run:
    launch = catalog.find(name).prepare(parameters, limits(device.properties))
    measurement = device.run(launch, seed, progress)
    roofs = ceilings(device.properties)
    placement = place(measurement, roofs)
    return Run(
        id=None,
        created_at=_now().isoformat(timespec="seconds"),
        memlab_version=version("memlab"),
        measurement=measurement,
        placement=placement,
        advice=advise(measurement, placement, device.properties, roofs),
    )
