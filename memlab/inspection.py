"""`memlab.analyze`, `check`, `trace` and `occupancy`: a launch inspected, on any machine.

None of them needs a GPU or times anything: the kernel is compiled for the device and, except by
`occupancy`, executed in the emulator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.device import occupancy as device_occupancy
from memlab.device.checking.check import check_launch
from memlab.device.checking.findings import TOOLS
from memlab.device.compiler.compile import compile_launch
from memlab.device.devices import open_device
from memlab.device.emulation.device import Emulation, count_launch, emulate, resident_blocks
from memlab.device.machine_code.listing import MachineListing
from memlab.device.occupancy_curves import register_budget
from memlab.device.tracing.trace import trace_launch
from memlab.errors import DeviceError, UsageError, suggest_nearest
from memlab.kernels.launch import source_lines
from memlab.launching import parse_index, prepare, prepare_launch, resolve_kernel
from memlab.results import KernelOccupancy
from memlab.roofline.analysis.analysis import analysis_of
from memlab.roofline.analysis.boundary import boundary_cost
from memlab.roofline.documents.occupancy import OccupancySubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.device.checking.findings import CheckReport, Tool
    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.measurement import Counters, Progress
    from memlab.device.tracing.records import Trace
    from memlab.kernels.launch import Launch
    from memlab.launching import KernelName, PreparedLaunch
    from memlab.roofline.analysis.analysis import Analysis
    from memlab.roofline.analysis.boundary import BoundaryCost


def analyze(
    kernel: KernelName,
    *,
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Analysis:
    """Count a kernel's accesses to memory, line by line of its source; nothing is timed.

    A catalog kernel whose blocks reach over the edge of its data is also counted at the nearest
    sizes that fit, to show what the boundary checks cost.

    Examples:
        memlab.analyze("transpose", width=512)

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, or the name of a kernel in the current folder's `memlab.toml`.
        device: A datasheet's name, such as `h200`, or a GPU's index, such as 0; its figures are
            used, and nothing runs on it. None takes `MEMLAB_DEVICE` from the environment, else the
            first GPU, else the H200.
        seed: Seed of the random inputs, 0 or more.
        timeout_s: The longest time of emulating one launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists, or
            the launch of a user kernel: `grid`, `block`, `args` and so on, as for `memlab.run`.

    Returns:
        The analysis. `analysis.counters` has the totals, `analysis.lines` the counters of each
        source line, `analysis.machine_lines` its machine code by pipe and why warps wait there,
        as the model of an SM says; a notebook shows the annotated source.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or a source that does
            not compile.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel failed, or took too long.
    """
    prepared = prepare(
        kernel,
        parameters,
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    launch, compiled = prepared.launch, prepared.compile()
    emulation = _emulation(prepared, compiled)
    resident = resident_blocks(launch, compiled, prepared.properties)
    modelled = emulation.model(resident, prepared.properties)
    return analysis_of(
        launch,
        emulation,
        compiled.resources,
        prepared.device_summary,
        prepared.properties,
        boundary=_boundary_cost(prepared, _of_ptx(emulation)),
        has_known_sizes=isinstance(prepared.kernel, str),
        stalls=modelled.stalls,
        machine_lines=modelled.lines,
    )


def sass(
    kernel: KernelName,
    *,
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> MachineListing:
    """List a kernel's machine code beside its PTX and source, with the executions of each line.

    Examples:
        memlab.sass("tiled", width=512).instructions

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, or the name of a kernel in the current folder's `memlab.toml`.
        device: A datasheet's name, such as `h200`, or a GPU's index, such as 0; the kernel is
            compiled for it, and nothing runs on it. None takes `MEMLAB_DEVICE` from the
            environment, else the first GPU, else the H200.
        seed: Seed of the random inputs, 0 or more.
        timeout_s: The longest time of emulating the launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists, or
            the launch of a user kernel: `grid`, `block`, `args` and so on, as for `memlab.run`.

    Returns:
        The listing; `listing.instructions` are the instructions in order, with their counts.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, or a source that does
            not compile.
        DeviceError: The device, the compiler or nvdisasm is not available, or the counts cannot
            be brought into agreement with the machine code.
        MemlabError: The kernel failed, or took too long.
    """
    prepared = prepare(
        kernel,
        parameters,
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    launch, compiled = prepared.launch, prepared.compile()
    emulation = _emulation(prepared, compiled)
    if not emulation.listing:
        raise DeviceError(f"there is no machine code to show: {emulation.instructions.reason}")
    return MachineListing(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        device=prepared.device_summary,
        coverage=emulation.coverage,
        source_name=launch.source_name,
        source=tuple(source_lines(launch.source)),
        ptx=tuple(compiled.ptx.splitlines()),
        instructions=emulation.listing,
        counters=emulation.instructions,
    )


def _of_ptx(emulation: Emulation) -> Counters:
    """The counters with the instructions of the PTX, as `count_launch` counts other sizes.

    Of the machine code, a lane that a predicate keeps off counts as executing.
    """
    return replace(
        emulation.counters,
        warp_instructions=emulation.instructions.ptx_warp_instructions,
        thread_instructions=emulation.instructions.ptx_thread_instructions,
    )


def _emulation(prepared: PreparedLaunch, compiled: CompiledKernel) -> Emulation:
    """Execute a launch on the CPU, whatever the device."""
    return emulate(
        prepared.launch,
        compiled,
        prepared.properties,
        prepared.seed,
        prepared.progress,
        prepared.budget,
    )


def _boundary_cost(prepared: PreparedLaunch, counters: Counters) -> BoundaryCost | None:
    kernel = prepared.kernel
    if not isinstance(kernel, str):  # only its author knows which arguments are sizes
        return None

    def launch_of(parameters: Mapping[str, int | str]) -> Launch:
        return prepare_launch(kernel, parameters, prepared.properties)

    def count(launch: Launch) -> Counters:
        compiled = prepared.compile(launch)
        return count_launch(launch, compiled, prepared.seed, prepared.progress, prepared.budget)

    return boundary_cost(prepared.launch, counters, launch_of, count)


def check(
    kernel: KernelName,
    *,
    device: str | int | None = None,
    seed: int = 0,
    tools: Sequence[Tool] = TOOLS,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> CheckReport:
    """Find out-of-bounds and uninitialized accesses, races and wrong barriers in a kernel.

    Examples:
        memlab.check("tiled", width=100)

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, or the name of a kernel in the current folder's `memlab.toml`.
        device: A datasheet's name, such as `h200`, or a GPU's index, such as 0; the kernel is
            compiled for it, and nothing runs on it. None takes `MEMLAB_DEVICE` from the
            environment, else the first GPU, else the H200.
        seed: Seed of the random inputs, 0 or more.
        tools: The tools to check with, of `memcheck`, `initcheck`, `racecheck` and `synccheck`.
        timeout_s: The longest time of emulating the launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists, or
            the launch of a user kernel: `grid`, `block`, `args` and so on, as for `memlab.run`.

    Returns:
        The report; `report.findings` is empty where nothing is wrong.

    Raises:
        UsageError: An unknown kernel, device or tool, a parameter out of range, a source that does
            not compile, or too little memory.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel stopped itself, or no block finished in time.
    """
    prepared = prepare(
        kernel,
        parameters,
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    return check_prepared(prepared, tools)


def check_prepared(prepared: PreparedLaunch, tools: Sequence[Tool] = TOOLS) -> CheckReport:
    """Check a prepared launch; the tools are those of `check`.

    Raises:
        UsageError: An unknown tool, or too little memory.
        MemlabError: The kernel stopped itself, or no block finished in time.
    """
    for tool in tools:
        if tool not in TOOLS:
            raise UsageError(f"there is no tool {tool!r}: {suggest_nearest(str(tool), TOOLS)}")
    compiled = prepared.compile()
    resident_blocks(prepared.launch, compiled, prepared.properties)  # refuses what cannot run
    return check_launch(
        prepared.launch,
        compiled,
        prepared.device_summary,
        prepared.seed,
        tools,
        prepared.progress,
        prepared.budget,
    )


def trace(
    kernel: KernelName,
    *,
    block_index: int | Sequence[int] | str = (0, 0, 0),
    thread_index: int | Sequence[int] | str = (0, 0, 0),
    device: str | int | None = None,
    seed: int = 0,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Trace:
    """Follow one thread through a launch: the elements that it reads, stages and writes.

    Examples:
        memlab.trace("tiled", width=4, tile=2, block_index=(0, 1), thread_index=(1, 1))

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, or the name of a kernel in the current folder's `memlab.toml`.
        block_index: The thread's block, as blockIdx: one to three numbers, x first; missing ones
            are 0.
        thread_index: The thread in its block, as threadIdx, in the same form.
        device: A datasheet's name, such as `h200`, or a GPU's index, such as 0; the kernel is
            compiled for it, and nothing runs on it. None takes `MEMLAB_DEVICE` from the
            environment, else the first GPU, else the H200.
        seed: Seed of the random inputs, 0 or more.
        timeout_s: The longest time of emulating the launch, seconds; None allows 60.
        memory_bytes: Memory of the host that the emulator may take, bytes; None allows the memory
            that is free.
        progress: Called with a description of the current step and its completed fraction, 0 to 1,
            or None where that is unknown.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists, or
            the launch of a user kernel: `grid`, `block`, `args` and so on, as for `memlab.run`.

    Returns:
        The trace; `trace.followed.steps` are the thread's accesses and arithmetic in order.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a source that does not
            compile, or a block or thread outside the launch.
        DeviceError: The device or the compiler is not available.
        MemlabError: The kernel failed, or took too long.
    """
    if "thread" in parameters:
        raise UsageError("trace has no argument 'thread': use block_index and thread_index")
    block = parse_index("block_index", block_index)
    thread = parse_index("thread_index", thread_index)
    prepared = prepare(
        kernel,
        parameters,
        device=device,
        seed=seed,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        progress=progress,
    )
    compiled = prepared.compile()
    resident_blocks(prepared.launch, compiled, prepared.properties)  # refuses what cannot run
    return trace_launch(
        prepared.launch,
        compiled,
        block,
        thread,
        prepared.properties.name,
        prepared.budget,
        seed=seed,
        progress=progress,
    )


def occupancy(
    kernel: KernelName, *, device: str | int | None = None, **parameters: Any
) -> KernelOccupancy:
    """Compute how many of a kernel's blocks one SM holds at once, and what limits them.

    The kernel is compiled for the device and does not run.

    Examples:
        memlab.occupancy("tiled", tile=32, device="rtx3070")

    Args:
        kernel: The name of a catalog kernel (`memlab.kernels()` lists them), `FILE.cu:ENTRY` for a
            kernel in a file, or the name of a kernel in the current folder's `memlab.toml`.
        device: A datasheet's name, such as `h200`, or a GPU's index, such as 0. None takes
            `MEMLAB_DEVICE` from the environment, else the first GPU, else the H200.
        **parameters: The parameters of a catalog kernel, which `memlab.explain(kernel)` lists, or
            the launch of a user kernel: `grid`, `block` and so on, as for `memlab.run`; `args`
            may be left out.

    Returns:
        The occupancy: `blocks_per_sm`, `warps_per_sm`, `theoretical` (0 to 1) and `limiter`.

    Raises:
        UsageError: An unknown kernel or device, a parameter out of range, a source that does not
            compile, or a block that no SM can hold.
        DeviceError: The device or the compiler is not available.
    """
    properties = open_device(device).properties
    target, chosen = resolve_kernel(kernel, parameters, properties, executed=False)
    launch = prepare_launch(target, chosen, properties, executed=False)
    resources = compile_launch(launch, properties.compute_capability).resources
    block = device_occupancy.block_requirements(launch, resources)
    known = resources.registers_per_thread is not None
    if not known:
        most = register_budget(properties, block).registers_per_thread
        block = replace(block, registers_per_thread=most)
    subject = OccupancySubject(
        block,
        launch.kernel,
        dict(launch.parameters),
        registers_given=known,
        cluster_blocks=launch.cluster_blocks,
        grid_blocks=launch.blocks,
    )
    resident = device_occupancy.compute_occupancy(properties, block, launch.cluster_blocks)
    return KernelOccupancy(
        resident.blocks_per_sm,
        resident.warps_per_sm,
        resident.theoretical,
        resident.limiter,
        resident.limits,
        active_clusters=resident.active_clusters,
        properties=properties,
        subject=subject,
    )
