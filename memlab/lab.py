"""The main jobs as functions: query a device, run a kernel, place runs under a roof.

The command line and `import memlab` both call these; here the rooms meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device.checking import check as checking
from memlab.device.checking.findings import TOOLS
from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.debug_info.kernel_lookup import signature_of
from memlab.device.debug_info.kernel_lookup import signatures as signatures_in
from memlab.device.devices import Device, gpu_index, open_device, selected_devices, usable_gpu_names
from memlab.device.emulation.device import count_launch, emulate
from memlab.device.inputs import check_seed
from memlab.device.properties import device_summary
from memlab.device.tracing import trace as tracing
from memlab.errors import Incomplete
from memlab.launching import (
    compilation_unit,
    current_time,
    emulation_budget,
    prepare_launch,
    timing_settings,
)
from memlab.roofline.advice.advise import advise
from memlab.roofline.analysis.analysis import Analysis, access_ratio
from memlab.roofline.analysis.boundary import (
    BoundaryCase,
    BoundaryCost,
    edge_case,
    nearest_multiples,
)
from memlab.roofline.ceilings import ceilings, measured_ceilings
from memlab.roofline.placement import place_measurement
from memlab.roofline.run import Ceiling, Run
from memlab.roofline.store.store import Store, same_device

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from memlab.device.checking.findings import CheckReport, Tool
    from memlab.device.measurement import Progress, Resources, Time
    from memlab.device.properties import DeviceProperties
    from memlab.device.tracing.records import Trace
    from memlab.kernels.launch import Dim3, Launch
    from memlab.kernels.signature import Signature
    from memlab.kernels.user.kernel import UserKernel

DEFAULT_LADDER: tuple[tuple[str, Mapping[str, int]], ...] = (
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
        fresh: The run of the kernel that was asked for; None where none was.
    """

    properties: DeviceProperties
    ceilings: tuple[Ceiling, ...]
    runs: tuple[Run, ...]
    measured: tuple[Ceiling, ...] = ()
    fresh: Run | None = None

    def figure(self) -> Figure:
        """Draw it: see `memlab.roofline.plots.roofline.draw`."""
        from memlab.roofline.plots.roofline import draw_roofline

        newest = max(run.created_at for run in self.runs)[:10]
        return draw_roofline(self.runs, self.ceilings, self.properties.name, newest, self.measured)

    def csv(self) -> str:
        """The ceilings and points as CSV, enough to draw the picture again."""
        from memlab.roofline.documents.frames import picture_csv

        return picture_csv(self.runs, (*self.ceilings, *self.measured))

    def frame(self) -> pandas.DataFrame:
        """The runs as a pandas frame, a row each."""
        from memlab.roofline.documents.frames import runs_frame

        return runs_frame(self.runs)


def available_device_names() -> list[str]:
    """The names that `device` takes here."""
    return [*usable_gpu_names(), *loader.datasheet_names()]


def device_properties(device: str | int | None = None) -> DeviceProperties:
    """What a device has.

    Args:
        device: A GPU, by its index or as `0` or `cuda:0`, or a datasheet's name; None takes the
            default device.

    Raises:
        UsageError: There is no such device.
        DeviceError: A GPU was asked for that is not available.
    """
    return open_device(device).properties


def properties_by_device(device: str | None = None) -> dict[str, DeviceProperties]:
    """What a device has, or, where none is named, what each GPU has, by what `device` takes.

    Args:
        device: As for `device_properties`.

    Raises:
        UsageError, DeviceError: As `device_properties`.
    """
    opened = [open_device(name) for name in selected_devices(device)]
    return {each.key: each.properties for each in opened}


def device_attributes(key: str) -> dict[str, int | None]:
    """Every attribute that the driver has of a GPU, in its units; None where it refuses one.

    Args:
        key: A key of `devices_properties`.

    Returns:
        Values by CUDA's names (`CUdevice_attribute`) without `CU_DEVICE_ATTRIBUTE_`; none of a
        datasheet, which has no driver.

    Raises:
        DeviceError: The GPU cannot be used.
    """
    if key in loader.datasheet_names():
        return {}
    from memlab.device.gpu import query as gpu_query

    return gpu_query.query_attributes(gpu_index(key))


def run(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | int | None = None,
    seed: int = 0,
    store: Path | None = None,
    keep: bool = True,
    progress: Progress | None = None,
    count_in_hardware: Callable[[], dict[str, float] | None] | None = None,
    library_time: Mapping[str, Time] | None = None,
    samples: int | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Run:
    """Compile, execute, verify, count, time and place one kernel.

    Args:
        kernel: A name of the catalog, or one's own.
        parameters: Its parameters, if it is of the catalog; what is missing or None takes its
            default.
        device: See `device_properties`.
        seed: Of the random inputs.
        store: The file to keep the run in; None takes the user's.
        keep: Whether to keep it at all.
        progress: Told what is being done and the fraction that is over.
        count_in_hardware: Called once the launch has ended; gives what `gpu.hardware_counters`
            does for the same one, to keep with the run, or None.
        library_time: How long a vendor's library took for the same work, to keep with the run.
        samples: How many launches a GPU times; None takes as many as the median needs.
        timeout_s: How long one launch may take, emulated or on a GPU; None allows a minute.
        memory_bytes: How much of the host's memory the emulator may take; None allows what is
            free.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a store that cannot
            be written.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed, or took too long.
        Incomplete: The run could not be stored after all; carries it.
    """
    settings, budget = (
        timing_settings(samples, timeout_s),
        emulation_budget(timeout_s, memory_bytes),
    )
    runs = Store(store) if keep else None
    if runs is not None:
        runs.check()
    made = _run_kernel(open_device(device, settings, budget), kernel, parameters, seed, progress)
    measurement = replace(
        made.measurement,
        counters_ncu=count_in_hardware() if count_in_hardware else None,
        library_time=dict(library_time or {}),
    )
    made = replace(made, measurement=measurement)
    return made if runs is None else runs.add(made)


def compile_for_device(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    properties: DeviceProperties,
) -> tuple[Launch, Resources]:
    """Compile a kernel for a device, without running it.

    Args:
        kernel: As for `run`.
        parameters: As for `run`.
        properties: The device, from `device_properties`.

    Returns:
        The launch, and the registers, shared and local memory that the compiler gave it.

    Raises:
        UsageError: An unknown kernel, or a parameter out of range.
        DeviceError: The compiler is not available, or does not know the device.
    """
    launch = prepare_launch(kernel, parameters, properties, executed=False)
    return launch, compile_launch(launch, properties.compute_capability).resources


def signatures_in_file(
    kernel: UserKernel, *, device: str | int | None = None
) -> tuple[Signature, ...]:
    """Read what one's own kernels take.

    Args:
        kernel: One, or a file without an entry: all that are in it.
        device: See `device_properties`; it decides what they are compiled for.

    Raises:
        UsageError: There is no such file, device or kernel, or it does not compile.
        DeviceError: The compiler is not available.
    """
    unit = compilation_unit(kernel, device_properties(device))
    if not kernel.entry:
        found = signatures_in(unit)
        if found:
            return found
    return (signature_of(unit, kernel.entry),)


def analyze(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Analysis:
    """Count what a kernel does to memory, on any machine, and time nothing.

    A launch whose blocks reach over the edge is counted at the nearest multiples too.

    Args:
        kernel: As for `run`.
        parameters: As for `run`.
        device: See `device_properties`; a GPU is asked for its figures and runs nothing.
        seed: Of the random inputs.
        progress: As for `run`.
        timeout_s: How long emulating a launch may take; None allows a minute.
        memory_bytes: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed, or took too long.
    """
    opened, budget = open_device(device), emulation_budget(timeout_s, memory_bytes)
    properties = opened.properties
    capability = properties.compute_capability
    launch = prepare_launch(kernel, parameters, properties)
    compiled = compile_launch(launch, capability)
    emulation = emulate(launch, compiled, properties, seed, progress, budget)

    def prepare(values: Mapping[str, int | str]) -> Launch:
        return prepare_launch(kernel, values, properties)

    def edge(values: Mapping[str, int | str] | None) -> BoundaryCase | None:
        if values is None:
            return None
        other = prepare(values)
        compiled = compile_launch(other, capability)
        return edge_case(other, count_launch(other, compiled, seed, progress, budget))

    # What the sizes of one's own kernel are, and how they go together, only its author knows.
    multiples = nearest_multiples(launch.parameters, prepare) if isinstance(kernel, str) else None
    boundary = None
    if multiples is not None:
        here = edge_case(launch, emulation.counters)
        boundary = BoundaryCost(here, edge(multiples[0]), edge(multiples[1]))
    flop = emulation.flop(launch)
    return Analysis(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        source=launch.source,
        source_name=launch.source_name,
        device=device_summary(properties, opened.kind, opened.key),
        grid=launch.grid,
        block=launch.block,
        resources=compiled.resources,
        flop=flop,
        compulsory_bytes=launch.compulsory_bytes,
        coverage=emulation.coverage,
        counters=emulation.counters,
        lines=emulation.lines,
        accesses=emulation.accesses,
        ratio=access_ratio(flop, emulation.region, emulation.counters, properties),
        boundary=boundary,
        verification=emulation.verification,
        has_known_sizes=isinstance(kernel, str),
    )


def check(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    device: str | int | None = None,
    seed: int = 0,
    tools: Sequence[Tool] = TOOLS,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> CheckReport:
    """Find what is wrong with a kernel's accesses and barriers, on any machine.

    Args:
        kernel: As for `run`.
        parameters: As for `run`.
        device: See `device_properties`; a GPU is asked for its figures and runs nothing.
        seed: Of the random inputs.
        tools: What to check for.
        progress: As for `run`.
        timeout_s: As for `analyze`.
        memory_bytes: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or too little memory.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel stopped itself, or the time was up before any block was done.
    """
    opened, budget = open_device(device), emulation_budget(timeout_s, memory_bytes)
    properties = opened.properties
    launch = prepare_launch(kernel, parameters, properties)
    compiled = compile_launch(launch, properties.compute_capability)
    where = device_summary(properties, opened.kind, opened.key)
    return checking.check_launch(launch, compiled, where, seed, tools, progress, budget)


def trace(
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    *,
    block: Dim3 = (0, 0, 0),
    thread: Dim3 = (0, 0, 0),
    device: str | int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Trace:
    """Follow one thread through a launch: what it touches, in the program's own names.

    Args:
        kernel: As for `run`.
        parameters: As for `run`.
        block: The block's index in the grid, x, y, z.
        thread: The thread's index in the block, x, y, z.
        device: See `device_properties`; it decides what the kernel is compiled for.
        seed: Of the random inputs.
        progress: As for `run`.
        timeout_s: As for `analyze`.
        memory_bytes: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a block or thread
            outside the launch.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed, or took too long.
    """
    properties, budget = device_properties(device), emulation_budget(timeout_s, memory_bytes)
    launch = prepare_launch(kernel, parameters, properties)
    compiled = compile_launch(launch, properties.compute_capability)
    return tracing.trace(
        launch,
        compiled,
        block,
        thread,
        properties.name,
        budget,
        seed=seed,
        progress=progress,
    )


def roofline(
    kernel: str | UserKernel | None = None,
    parameters: Mapping[str, int | str | None] | None = None,
    *,
    device: str | int | None = None,
    seed: int = 0,
    store: Path | None = None,
    progress: Progress | None = None,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Roofline:
    """Gather the recorded runs of a device; where there are none, run the ladder first.

    Args:
        kernel: One to run and record first, as for `run`; None runs none.
        parameters: As for `run`.
        device: See `device_properties`.
        seed: Of the random inputs of the kernel.
        store: The file that keeps runs; None takes the user's.
        progress: As for `run`.
        timeout_s: As for `run`.
        memory_bytes: As for `run`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or a store that cannot
            be used.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel itself failed.
        Incomplete: Some runs cannot be read or what ran could not be stored; carries the
            roofline of what there is.
    """
    settings, budget = timing_settings(None, timeout_s), emulation_budget(timeout_s, memory_bytes)
    opened, kept = open_device(device, settings, budget), Store(store)
    this = device_summary(opened.properties, opened.kind, opened.key)
    peaks = kept.peaks(this)
    missing: list[Incomplete] = []

    def what_there_is(work: Callable[[], list[Run]]) -> list[Run]:
        try:
            return work()
        except Incomplete as error:
            missing.append(error)
            return list(error.result)

    fresh: list[Run] = []
    if kernel is not None:
        kept.check()
        made = _run_kernel(opened, kernel, parameters or {}, seed, progress)
        fresh = what_there_is(lambda: kept.add_all([made]))
    runs = what_there_is(lambda: kept.runs(device=this.name))
    runs = [each for each in runs if same_device(each.measurement.device, this)]
    runs += [each for each in fresh if each.id is None]  # what could not be stored is drawn too
    if not runs:
        kept.check()
        ladder = [
            _run_kernel(opened, kernel, parameters, 0, progress)
            for kernel, parameters in DEFAULT_LADDER
        ]
        runs = what_there_is(lambda: kept.add_all(ladder))
    gathered = Roofline(
        opened.properties,
        ceilings(opened.properties),
        tuple(runs),
        measured_ceilings(peaks) if peaks else (),
        fresh[0] if fresh else None,
    )
    if missing:
        raise Incomplete("; ".join(map(str, missing)), gathered)
    return gathered


def _run_kernel(
    device: Device,
    kernel: str | UserKernel,
    parameters: Mapping[str, int | str | None],
    seed: int,
    progress: Progress | None,
) -> Run:
    check_seed(seed)
    launch = prepare_launch(kernel, parameters, device.properties)
    measurement = device.run(launch, seed, progress)
    roofs = ceilings(device.properties)
    placement = place_measurement(measurement, roofs)
    return Run(
        id=None,
        created_at=current_time().isoformat(timespec="seconds"),
        memlab_version=version("memlab"),
        measurement=measurement,
        placement=placement,
        advice=advise(measurement, placement, device.properties),
    )
