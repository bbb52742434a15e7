"""A launch on an emulated device: its PTX is executed, its caches and time are modelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING

from memlab.device import time_model
from memlab.device.access_counts import AccessCounts
from memlab.device.beside import beside
from memlab.device.budget import Budget, EmulationMemoryError, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel, code_record, compile_launch
from memlab.device.compiler.cubin import machine_code_bytes
from memlab.device.compiler.ptx_text import waits_for_grid
from memlab.device.emulation import (
    async_copies,
    cache_counters,
    counting,
    executed_addresses,
    representative_block,
    totals,
)
from memlab.device.emulation.address_names import accessed_arrays
from memlab.device.emulation.atomic_passes import count_atomic_passes, with_sums_of_warps
from memlab.device.emulation.execution import Execution
from memlab.device.emulation.line_stalls import clocks_per_instruction, line_stalls
from memlab.device.emulation.machine_profile import LaunchCounts, machine_profile
from memlab.device.emulation.retries.shared_retries import attempts_alone, observe_additions
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models import address_streams
from memlab.device.emulator.models.access_levels import AccessLevels
from memlab.device.emulator.models.critical_path import Latencies, warp_clocks
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.ptx.parser import PtxError
from memlab.device.machine_code.disassembly import DisassemblyError
from memlab.device.machine_code.executed_code import (
    ExecutedCode,
    executed_code,
    instruction_counters,
    integer_operations,
    listed_instructions,
    read_flow_graph,
)
from memlab.device.machine_code.flow_graph import FlowGraph
from memlab.device.machine_code.issue_groups import with_issue_groups
from memlab.device.machine_code.listing import ListedInstruction
from memlab.device.machine_code.retries import (
    Attempts,
    SharedAdditions,
    cas_lines,
    retried_lines,
    with_lines_of_halves,
)
from memlab.device.machine_code.runtime_calls import runtime_calls, with_reads
from memlab.device.machine_code.shared_accesses import (
    count_machine_accesses,
    loads_of_atomics,
    with_machine_widths,
    with_swaps,
)
from memlab.device.measurement import (
    INTEGER_COUNTERS,
    AccessCounters,
    Counters,
    Coverage,
    DeviceSummary,
    InstructionCounters,
    LineCounters,
    Measurement,
    Occupancy,
    Progress,
    Region,
    Time,
    Verification,
    flop_by_pipe,
    ignore_progress,
)
from memlab.device.model_errors import BY_COUNTERS, RETRIED, with_error_interval
from memlab.device.occupancy import (
    block_allocation,
    block_requirements,
    check_all_resident,
    compute_occupancy,
)
from memlab.device.occupancy import resident_blocks as blocks_on_device
from memlab.device.outputs import Outputs
from memlab.device.properties import DeviceProperties, device_summary
from memlab.device.sm_model import launch_time
from memlab.device.sm_model.profile import LaunchProfile
from memlab.device.verification import UNVERIFIED
from memlab.device.warp_stalls import LineStalls
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    from memlab.device.emulation.retries.cas_loops import ObservedAdditions

_SIMULATIONS_OF_HALVES = 3
"""Simulations that tell how many lanes wait to add in global memory: with one try each, and with
the tries that these lanes need. A fourth one changes the tries of six launches by at most 2%."""
_FEW_TRIES = 2.0  # of a lane that adds to a half; where more fail, times were not as well modelled


def measure(
    launch: Launch,
    properties: DeviceProperties,
    key: str,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
    *,
    keep_outputs: bool = False,
) -> Measurement:
    """Compile, execute, verify and count a launch, and model its time.

    Args:
        launch: The launch.
        properties: The emulated device.
        key: Its name.
        seed: The seed of the random inputs and of the sample of blocks.
        progress: Called with the current activity and the share of it that is done.
        budget: The limits of time and memory; None for the defaults.
        keep_outputs: Whether the measurement has the outputs.

    Raises:
        CompileError: The source does not compile.
        PtxError, UsageError, KernelFault, EmulationTimeoutError: As `emulate`.
    """
    report = progress or ignore_progress
    report("compiling", None)
    compiled = compile_launch(launch, properties.compute_capability)
    emulation = emulate(launch, compiled, properties, seed, progress, budget, keep_outputs)
    resident = resident_blocks(launch, compiled, properties)
    modelled = emulation.model(resident, properties)
    return emulation.measurement(
        launch,
        compiled,
        device_summary(properties, "emulated", key),
        resident,
        modelled.time,
        emulation.verification,
        emulation.outputs,
        modelled.stalls,
    )


@dataclass(frozen=True)
class ModelledLaunch:
    """What the models say of a launch.

    Attributes:
        time: Its time.
        stalls: The clocks of a warp for each instruction that it issues, by state; empty without
            machine code.
        lines: The instructions and stalls of each source line; empty likewise.
    """

    time: Time
    stalls: dict[str, float] = field(default_factory=dict)
    lines: tuple[LineStalls, ...] = ()


@dataclass(frozen=True)
class Emulation:
    """The result of executing a launch on the CPU.

    Attributes:
        coverage: The share of the grid that was executed.
        counters: The counters of the whole grid.
        lines: The counters by source line.
        accesses: The counters by source line, state space, direction and array.
        region: The FLOPs and bytes of the loops.
        work: The input of the time model.
        verification: The comparison of the executed blocks' outputs with the references.
        instructions: The instructions of the machine code, or of the PTX where there is none.
        listing: The machine code, instruction by instruction; empty where there is none.
        outputs: The outputs, where they were asked for.
        levels: Where the sectors of each memory instruction are served, by its position in the
            program.
        profile: What the machine code does; None where it cannot be read.
    """

    coverage: Coverage
    counters: Counters
    lines: tuple[LineCounters, ...]
    accesses: tuple[AccessCounters, ...]
    region: Region
    work: time_model.LaunchWork
    verification: Verification
    levels: Mapping[int, AccessLevels] = field(default_factory=dict)
    profile: LaunchProfile | None = None
    instructions: InstructionCounters = field(default_factory=InstructionCounters)
    listing: tuple[ListedInstruction, ...] = ()
    outputs: Outputs = field(default_factory=Outputs)

    def time(self, resident: Occupancy, properties: DeviceProperties) -> Time:
        """Model the time, as `model`."""
        return self.model(resident, properties).time

    def model(self, resident: Occupancy, properties: DeviceProperties) -> ModelledLaunch:
        """Model the time: by simulating an SM, or from the counters without machine code."""
        if self.profile is None:
            time = time_model.model_time(self.work, resident, properties)
            lines = line_stalls(self.listing)
            return ModelledLaunch(with_error_interval(time, BY_COUNTERS), lines=lines)
        time, steps = launch_time.model_time(self.profile, self.work, resident, properties)
        kind = RETRIED if self.profile.tries_of_halves > _FEW_TRIES else None
        return ModelledLaunch(
            with_error_interval(time, BY_COUNTERS if time.left_out else kind),
            clocks_per_instruction(steps),
            line_stalls(self.listing, steps),
        )

    def flop(self, launch: Launch) -> int:
        """The algorithm's FLOPs; if the launch does not declare them, the executed FLOPs."""
        executed = sum(flop_by_pipe(self.counters).values())
        return executed if launch.flop is None else launch.flop

    def measurement(
        self,
        launch: Launch,
        compiled: CompiledKernel,
        device: DeviceSummary,
        resident: Occupancy,
        time: Time,
        verification: Verification,
        outputs: Outputs,
        stalls: dict[str, float] | None = None,
    ) -> Measurement:
        """Combine the counters with the time and outputs of an emulated or real device."""
        return Measurement(
            kernel=launch.kernel,
            parameters=dict(launch.parameters),
            tile=launch.tile,
            flop=self.flop(launch),
            compulsory_bytes=launch.compulsory_bytes,
            device=device,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
            resources=compiled.resources,
            occupancy=resident,
            coverage=self.coverage,
            counters=self.counters,
            lines=self.lines,
            time=time,
            verification=verification,
            instructions=self.instructions,
            code=code_record(launch, compiled),
            outputs=outputs,
            stalls=stalls or {},
        )


def emulate(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
    keep_outputs: bool = False,
) -> Emulation:
    """Execute a launch on the CPU, and count it as the given device would.

    Args:
        launch: The launch.
        compiled: The launch, compiled for the device's compute capability.
        properties: The device: its caches and limits. It need not be present.
        seed: The seed of the random inputs and of the sample of blocks.
        progress: Called with the current activity and the share of it that is done.
        budget: The limits of time and memory; None for the defaults.
        keep_outputs: Whether the result has the outputs.

    Raises:
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        UsageError: The launch needs more memory than is allowed, no block fits an SM, or the
            kernel writes to an input.
        KernelFault: The kernel accessed memory out of bounds.
        EmulationTimeoutError: The time was up before there was anything to report.
    """
    report = progress or ignore_progress
    done = execute_launch(launch, compiled, properties, seed, report, budget)
    report("verifying and modelling", None)
    outputs = done.execution.outputs(done.whole) if keep_outputs else Outputs()
    with beside(done.verification()) as verified:
        emulation = _model(launch, compiled, properties, done)
    return replace(emulation, verification=verified.result(), outputs=outputs)


@dataclass(frozen=True)
class ExecutedLaunch:
    """A launch that was executed and counted, before the models see it.

    Attributes:
        resident: The blocks that an SM holds at once.
        graph: The machine code, or why there is none.
        execution: The launch in the emulator, with the outputs of its blocks.
        block: The recorded block; None where it is to be recorded after the others have run.
        counted: The counters of the grid.
    """

    resident: Occupancy
    graph: FlowGraph | DisassemblyError
    execution: Execution
    block: representative_block.RepresentativeBlock | None
    counted: counting.GridCounts

    @property
    def whole(self) -> bool:
        """Whether all blocks were executed."""
        return self.counted.coverage.blocks_emulated == self.execution.launch.blocks

    def verification(self) -> Callable[[], Verification]:
        """As of `Execution`."""
        return self.execution.verification(self.whole)


def execute_launch(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    seed: int,
    report: Progress = ignore_progress,
    budget: Budget | None = None,
) -> ExecutedLaunch:
    """Execute a launch and count it; arguments and errors are those of `emulate`."""
    resident = resident_blocks(launch, compiled, properties)
    report("preparing inputs", None)
    graph = _flow_graph(launch, compiled)
    known = None if isinstance(graph, DisassemblyError) else partial(_with_machine_code, graph)
    execution = Execution.of(launch, compiled, seed, budget, known)
    program = execution.program
    if not isinstance(graph, DisassemblyError):
        graph = with_lines_of_halves(graph, program)
    block = None if program.waits_for_grid else representative_block.record_block(execution)
    counted = counting.count_grid(
        execution,
        None if block is None else block.lane_instructions_per_block,
        report,
        blocks_on_device(properties, resident.blocks_per_sm, launch.cluster_blocks),
    )
    execution.check_roles()
    return ExecutedLaunch(resident, graph, execution, block, counted)


def _model(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    executed_launch: ExecutedLaunch,
) -> Emulation:
    """Count what a launch does in the caches, and collect what its time is modelled by.

    Args:
        launch: The launch.
        compiled: The launch, compiled.
        properties: The device.
        executed_launch: The launch, executed; its outputs are lost.

    Returns:
        The emulation, not verified and without its outputs.
    """
    graph, per_sm = executed_launch.graph, executed_launch.resident.blocks_per_sm
    execution, counted = executed_launch.execution, executed_launch.counted
    block = executed_launch.block
    program, tally = execution.program, counted.tally
    sectors = counting.sum_global_sectors(tally)
    if block is None:  # the blocks that do not run now have left what this one waits for
        block = representative_block.record_block(execution)
    block = representative_block.find_representative(execution, block, sectors, counted)
    extremes = representative_block.extreme_warps(execution)
    hits = executed_addresses.hits_of_longest_warp(execution) if extremes else {}
    copies = async_copies.observe_copies(execution, block.stream.origin)
    additions = _additions(graph, execution, block)
    halves = _additions_of_halves(graph, execution, tally, block)
    attempts = attempts_alone(additions)
    executed = _executed_code(graph, program, tally, {})
    if isinstance(executed, ExecutedCode):
        count_machine_accesses(executed, program, tally)
    if attempts:
        executed = _executed_code(graph, program, tally, attempts)
    grid = _grid_counts(executed, program, tally, copies)
    active = address_streams.ActiveRegion(block.region, block.stream.equivalent_blocks(sectors))
    allocation = block_allocation(properties, block_requirements(launch, compiled.resources))
    cached = cache_counters.model_caches(
        execution,
        tally,
        grid.counters,
        block.stream,
        active,
        block.lane_instructions_per_block,
        cache_counters.cache_geometry(
            properties,
            per_sm,
            allocation.carveout_bytes,
            launch.blocks,
            launch.cluster_blocks,
        ),
        copies,
    )
    contention = block.contention
    if not isinstance(graph, DisassemblyError):
        contention = with_sums_of_warps(contention, graph.code, program, tally)
    counters = cached.counters.replace_named(**count_atomic_passes(contention, program, tally))
    active_clocks, idle_clocks = _warp_clocks(program, block, counters, properties)
    profile = None
    if not isinstance(graph, DisassemblyError):
        fetches = copies.fetches_per_sector
        counts = LaunchCounts(
            program, tally, counters, cached.levels, contention, fetches, attempts, additions, hits
        )
        describe = partial(
            machine_profile,
            graph,
            block=block,
            active_share=min(active.block_equivalents / launch.blocks, 1.0),
            launch=launch,
            warp_work=execution.work.of_whole_grid(),
            extremes=extremes,
        )
        profile = describe(counts)
        # The simulation tells the rounds in shared memory, and which lanes wait to add in global
        # memory: more of them where they have to try again.
        for _ in range(_SIMULATIONS_OF_HALVES if halves else int(bool(additions.lines))):
            if profile is None:
                break
            estimated = launch_time.estimate(profile, launch.blocks, per_sm, properties)
            attempts |= estimated.attempts
            if halves:
                held = blocks_on_device(properties, per_sm, launch.cluster_blocks)
                resident = min(held or launch.blocks, launch.blocks)
                attempts |= halves.attempts_in_launch(
                    graph.code, estimated.steps, execution.grid, resident
                )
            counts, grid = _with_attempts(counts, attempts, graph, copies, grid)
            profile, counters = describe(counts), counts.counters
    counters = _with_launch_reads(counters, launch, compiled, properties)
    counters = with_reads(counters, runtime_calls(program, tally).values())
    work = time_model.LaunchWork(
        blocks=launch.blocks,
        counters=counters,
        warp_clocks=active_clocks,
        mean_warp_clocks=(
            active.block_equivalents * active_clocks
            + max(launch.blocks - active.block_equivalents, 0.0) * idle_clocks
        )
        / launch.blocks,
    )
    late = execution.deadline.has_passed()  # then the models saw fewer blocks than they asked for
    return Emulation(
        coverage=replace(counted.coverage, timed_out=counted.coverage.timed_out or late),
        counters=counters,
        lines=totals.counters_by_line(program, grid.tally, execution.source, grid.integers),
        accesses=totals.counters_by_access(program, grid.tally, accessed_arrays(launch, execution)),
        region=totals.main_region(program, tally),
        work=work,
        verification=UNVERIFIED,
        levels=cached.levels,
        profile=profile,
        instructions=grid.instructions,
        listing=grid.listing,
    )


@dataclass(frozen=True)
class _GridCounts:
    """What was counted of a grid, as the machine code makes it; nothing of the caches.

    Attributes:
        tally: The counters of each instruction of the PTX.
        counters: The counters of the whole grid.
        instructions: The instructions of the machine code, or of the PTX where there is none.
        integers: Integer operations by source line and pipe.
        listing: The machine code, instruction by instruction; empty where there is none.
    """

    tally: Tally
    counters: Counters
    instructions: InstructionCounters
    integers: Mapping[int, Mapping[str, int]]
    listing: tuple[ListedInstruction, ...]


def _grid_counts(
    executed: ExecutedCode | DisassemblyError,
    program: Program,
    tally: Tally,
    copies: async_copies.CopyCosts,
) -> _GridCounts:
    """Add up what the machine code does."""
    written = with_swaps(executed, program, copies.with_wavefronts(tally))
    instructions = instruction_counters(executed, program, tally)
    listing: tuple[ListedInstruction, ...] = ()
    own_loads: AccessCounts | None = None
    if isinstance(executed, DisassemblyError):
        integers = totals.integer_operations(program, tally)
    else:
        integers = integer_operations(executed, program)
        own_loads = loads_of_atomics(executed, program, tally)
        listing = listed_instructions(executed, program)
    by_pipe = {
        counter: sum(line.get(counter.removeprefix("iop_"), 0) for line in integers.values())
        for counter in INTEGER_COUNTERS.values()
    }
    counters = totals.total_counters(program, written, own_loads).replace_named(
        **by_pipe,
        warp_instructions=instructions.warp_instructions,
        thread_instructions=instructions.thread_instructions,
    )
    return _GridCounts(written, counters, instructions, integers, listing)


def _warp_clocks(
    program: Program,
    block: representative_block.RepresentativeBlock,
    counters: Counters,
    properties: DeviceProperties,
) -> tuple[float, float]:
    """The clocks of the critical path of blocks that touch memory, and of the others."""
    latencies = _mean_latencies(counters, properties)
    active = warp_clocks(program, block.path, latencies)
    if block.idle_path is block.path:
        return active, active
    return active, warp_clocks(program, block.idle_path, latencies)


def _with_launch_reads(
    counters: Counters, launch: Launch, compiled: CompiledKernel, properties: DeviceProperties
) -> Counters:
    """Add what a launch reads from DRAM besides what its threads access."""
    code_bytes = machine_code_bytes(compiled.cubin, launch.entry) if compiled.cubin else 0
    launch_bytes = cache_counters.launch_read_bytes(code_bytes, properties)
    return replace(counters, dram_read_bytes=counters.dram_read_bytes + launch_bytes)


def _flow_graph(launch: Launch, compiled: CompiledKernel) -> FlowGraph | DisassemblyError:
    """The machine code, or why there is none."""
    try:
        return read_flow_graph(compiled, launch.entry)
    except DisassemblyError as reason:
        return reason


def _with_machine_code(graph: FlowGraph, program: Program) -> Program:
    """A program with what its machine code tells of its accesses to memory."""
    return with_issue_groups(graph, with_machine_widths(graph, program))


def _executed_code(
    graph: FlowGraph | DisassemblyError,
    program: Program,
    tally: Tally,
    attempts: Mapping[int, Attempts],
) -> ExecutedCode | DisassemblyError:
    """The machine code with its executions, or why there is none."""
    if isinstance(graph, DisassemblyError):
        return graph
    try:
        return executed_code(graph, program, tally, attempts)
    except DisassemblyError as reason:
        return reason


def _additions(
    graph: FlowGraph | DisassemblyError,
    execution: Execution,
    block: representative_block.RepresentativeBlock,
) -> SharedAdditions:
    """What a block adds in shared memory by loops of compare-and-swap."""
    if isinstance(graph, DisassemblyError):
        return SharedAdditions()
    return observe_additions(execution, block.stream.origin, retried_lines(graph))


def _additions_of_halves(
    graph: FlowGraph | DisassemblyError,
    execution: Execution,
    tally: Tally,
    block: representative_block.RepresentativeBlock,
) -> ObservedAdditions | None:
    """What some blocks add to halves in global memory, by loops of compare-and-swap."""
    if isinstance(graph, DisassemblyError):
        return None
    lines = cas_lines(graph, execution.program)
    if not lines:
        return None
    from memlab.device.emulation.retries import cas_loops  # few launches need it

    cost = block.lane_instructions_per_block
    return cas_loops.observe_additions(execution, lines, tally, cost)


def _with_attempts(
    counts: LaunchCounts,
    attempts: Mapping[int, Attempts],
    graph: FlowGraph,
    copies: async_copies.CopyCosts,
    grid: _GridCounts,
) -> tuple[LaunchCounts, _GridCounts]:
    """What was counted of a launch whose atomics that are loops have these attempts."""
    program, tally = counts.program, counts.tally
    again = _grid_counts(_executed_code(graph, program, tally, attempts), program, tally, copies)
    counters = _with_changes(again.counters, grid.counters, counts.counters)
    tried = replace(counts, counters=counters, attempts=attempts)
    passes = count_atomic_passes(tried.contention, program, tally, tried.halves)
    return replace(tried, counters=counters.replace_named(**passes)), again


def _with_changes(counters: Counters, before: Counters, after: Counters) -> Counters:
    """Counters with what was changed from some others to yet others."""
    changed = {
        item.name: getattr(after, item.name)
        for item in fields(Counters)
        if getattr(after, item.name) != getattr(before, item.name)
    }
    return replace(counters, **changed)


def emulate_if_supported(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> Emulation:
    """Like `emulate`, but return no counters for a launch that the emulator cannot execute.

    This serves a real GPU, which has a time for the launch even without counters. A fault is still
    raised, since the GPU may not have noticed it.

    Raises:
        UsageError: No block fits an SM, or the kernel writes to an input.
        KernelFault: The kernel accessed memory out of bounds.
    """
    try:
        return emulate(launch, compiled, properties, seed, progress, budget)
    except (PtxError, EmulationMemoryError, EmulationTimeoutError) as reason:
        nothing = Counters()
        return Emulation(
            coverage=Coverage(0, launch.blocks, not_counted=str(reason)),
            counters=nothing,
            lines=(),
            accesses=(),
            region=Region(0, 0, loops=False),
            work=time_model.LaunchWork(launch.blocks, nothing, 0.0),
            verification=UNVERIFIED,
        )


def count_launch(
    launch: Launch,
    compiled: CompiledKernel,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> Counters:
    """Execute a launch on the CPU and count it, without the caches, whose counters stay 0.

    Args:
        launch: The launch.
        compiled: The launch, compiled.
        seed: The seed of the random inputs and of the sample of blocks.
        progress: Called with the current activity and the share of it that is done.
        budget: The limits of time and memory; None for the defaults.

    Raises:
        PtxError, UsageError, KernelFault, EmulationTimeoutError: As `emulate`.
    """
    execution, cost = Execution.of(launch, compiled, seed, budget), None
    if not execution.program.waits_for_grid:
        cost = representative_block.record_block(execution).lane_instructions_per_block
    counted = counting.count_grid(execution, cost, progress or ignore_progress)
    return totals.total_counters(execution.program, counted.tally)


def resident_blocks(
    launch: Launch, compiled: CompiledKernel, properties: DeviceProperties
) -> Occupancy:
    """Compute the occupancy of a launch: the blocks that one SM holds at once.

    Raises:
        UsageError: Not one block fits, or the blocks wait for the whole grid, and not all fit.
    """
    requested = block_requirements(launch, compiled.resources)
    resident = compute_occupancy(properties, requested, launch.cluster_blocks)
    if waits_for_grid(compiled.ptx, launch.entry):
        check_all_resident(launch, properties, resident)
    return resident


def _mean_latencies(counters: Counters, properties: DeviceProperties) -> Latencies:
    """The latencies, weighted by the hit rates of the cache models."""
    loads = counters.global_load_sectors
    l1_hits = counters.l1_read_sector_hits / loads if loads else 1.0
    l2_hits, atomic_hits = (
        cache_counters.l2_hit_rate(counters),
        cache_counters.atomic_hit_rate(counters),
    )
    return Latencies(
        arithmetic=properties.register_latency_clocks or 0.0,
        shared=properties.shared_latency_clocks or 0.0,
        constant=time_model.constant_load_latency_clocks(counters, properties),
        global_load=time_model.global_load_latency_clocks(l1_hits, l2_hits, properties),
        global_atomic=time_model.global_load_latency_clocks(0.0, atomic_hits, properties),
        barrier=properties.barrier_latency_clocks or 0.0,
    )
