"""The emulated device: NVRTC's PTX in the emulator, time from the model, on a datasheet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlab.device import time_model
from memlab.device.budget import Budget, EmulationMemoryError, EmulationTimeoutError
from memlab.device.compiler.compile import CompiledKernel, compile_launch
from memlab.device.emulation import counting, representative_block, totals
from memlab.device.emulation.address_names import accessed_arrays
from memlab.device.emulation.execution import Execution
from memlab.device.emulator.models import address_streams, caches
from memlab.device.emulator.models.critical_path import Latencies, warp_clocks
from memlab.device.emulator.ptx.parser import PtxError
from memlab.device.measurement import (
    AccessCounters,
    Counters,
    Coverage,
    DeviceKind,
    DeviceSummary,
    LineCounters,
    Measurement,
    Occupancy,
    Progress,
    Region,
    Time,
    Verification,
    flop_by_pipe,
    ignore_progress,
    total_global_atomic_sectors,
)
from memlab.device.occupancy import block_requirements, compute_occupancy, shared_carveout_bytes
from memlab.device.properties import SECTOR_BYTES, DeviceProperties, device_summary
from memlab.device.verification import UNVERIFIED
from memlab.kernels.launch import Launch


class EmulatedDevice:
    """A GPU of which only the datasheet is there.

    Attributes:
        properties: The datasheet's figures.
        key: The datasheet's name.
    """

    kind: DeviceKind = "emulated"

    def __init__(
        self, key: str, properties: DeviceProperties, budget: Budget | None = None
    ) -> None:
        self.key, self.properties = key, properties
        self._budget = budget or Budget()

    def run(self, launch: Launch, seed: int, progress: Progress | None = None) -> Measurement:
        """Compile a launch, execute it, verify it, count it, and model its time.

        Args:
            launch: What to run.
            seed: Of the random inputs and of the sample of blocks.
            progress: Told what is being done, and which fraction of it is over.

        Raises:
            CompileError: The source does not compile.
            PtxError: The compiled kernel has an instruction that the emulator does not know.
            UsageError: It needs more memory than is allowed, or no block fits an SM.
            KernelFault: The kernel touched memory that is not its own.
            OutOfTime: The time was up before there was anything to report.
        """
        report = progress or ignore_progress
        report("compiling", None)
        compiled = compile_launch(launch, self.properties.compute_capability)
        emulation = emulate(launch, compiled, self.properties, seed, progress, self._budget)
        resident = resident_blocks(launch, compiled, self.properties)
        return emulation.measurement(
            launch,
            compiled,
            device_summary(self.properties, self.kind, self.key),
            resident,
            time_model.model_time(emulation.work, resident, self.properties),
            emulation.verification,
        )


@dataclass(frozen=True)
class Emulation:
    """What executing a launch on the CPU found out.

    Attributes:
        coverage: How much of the grid was executed.
        counters: Whole-grid totals.
        lines: The same by source line.
        accesses: The same by access to memory.
        region: What the loops did.
        work: What the time model needs.
        verification: The outputs of the blocks that ran, against the reference.
    """

    coverage: Coverage
    counters: Counters
    lines: tuple[LineCounters, ...]
    accesses: tuple[AccessCounters, ...]
    region: Region
    work: time_model.LaunchWork
    verification: Verification

    def flop(self, launch: Launch) -> int:
        """The algorithm's FLOPs, or, where nobody declared them, those that were executed."""
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
    ) -> Measurement:
        """Join these counters with what a device, emulated or real, gave for the same launch."""
        return Measurement(
            kernel=launch.kernel,
            parameters=dict(launch.parameters),
            tile=launch.tile,
            flop=self.flop(launch),
            compulsory_bytes=launch.compulsory_bytes,
            device=device,
            grid=launch.grid,
            block=launch.block,
            dynamic_shared_bytes=launch.dynamic_shared_bytes,
            resources=compiled.resources,
            occupancy=resident,
            coverage=self.coverage,
            counters=self.counters,
            lines=self.lines,
            time=time,
            verification=verification,
        )


def emulate(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> Emulation:
    """Execute a launch on the CPU and count it as the given device would.

    Args:
        launch: What to run.
        compiled: The launch, compiled for the device's compute capability.
        properties: The device: its caches and limits, whether it is here or not.
        seed: Of the random inputs and of the sample of blocks.
        progress: Told what is being done, and which fraction of it is over.
        budget: The time and memory that it may take; None takes the defaults.

    Raises:
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        UsageError: It needs more memory than is allowed, or no block fits an SM.
        KernelFault: The kernel touched memory that is not its own.
        OutOfTime: The time was up before there was anything to report.
    """
    report = progress or ignore_progress
    resident = resident_blocks(launch, compiled, properties)
    report("preparing inputs", None)
    execution = Execution.of(launch, compiled, seed, budget)
    program, probe = execution.program, representative_block.record_block(execution)
    counted = counting.count_grid(execution, probe.lane_instructions_per_block, report)
    tally, counters = counted.tally, totals.total_counters(program, counted.tally)
    execution.check_roles()
    report("verifying", None)
    verification = execution.verify(whole=counted.coverage.blocks_emulated == launch.blocks)
    report("modelling caches and time", None)
    touched = counting.sum_global_sectors(tally)
    probe = representative_block.find_representative(execution, probe, touched, counted)
    busy = address_streams.ActiveRegion(probe.region, probe.stream.equivalent_blocks(touched))
    carveout = shared_carveout_bytes(properties, block_requirements(launch, compiled.resources))
    geometry = _cache_geometry(properties, resident.blocks_per_sm, carveout)
    counters = _with_cache_counters(counters, probe.stream, busy, geometry)
    latencies = _mean_latencies(counters, properties)
    working, idle = (
        warp_clocks(program, path, latencies) for path in (probe.path, probe.idle_path)
    )
    idle_blocks = max(launch.blocks - busy.block_equivalents, 0.0)
    work = time_model.LaunchWork(
        blocks=launch.blocks,
        counters=counters,
        warp_clocks=working,
        mean_warp_clocks=(busy.block_equivalents * working + idle_blocks * idle) / launch.blocks,
    )
    return Emulation(
        coverage=counted.coverage,
        counters=counters,
        lines=totals.counters_by_line(program, tally, execution.source),
        accesses=totals.counters_by_access(program, tally, accessed_arrays(launch, execution)),
        region=totals.main_region(program, tally),
        work=work,
        verification=verification,
    )


def emulate_if_supported(
    launch: Launch,
    compiled: CompiledKernel,
    properties: DeviceProperties,
    seed: int,
    progress: Progress | None = None,
    budget: Budget | None = None,
) -> Emulation:
    """As `emulate`, but a launch that the emulator cannot execute is only not counted.

    That is for one that runs on a GPU: there it has its time without counters. A fault is none
    of these reasons: the GPU may not have noticed it.

    Raises:
        UsageError: No block fits an SM, or the kernel writes to an input.
        KernelFault: The kernel touched memory that is not its own.
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
    """Execute a launch on the CPU and count it, without caches: those of `Counters` stay 0.

    Args:
        launch: What to run.
        compiled: The launch, compiled.
        seed: Of the random inputs and of the sample of blocks.
        progress: Told what is being done, and which fraction of it is over.
        budget: The time and memory that it may take; None takes the defaults.

    Raises:
        PtxError, UsageError, KernelFault, OutOfTime: As `emulate`.
    """
    execution = Execution.of(launch, compiled, seed, budget)
    cost = representative_block.record_block(execution).lane_instructions_per_block
    counted = counting.count_grid(execution, cost, progress or ignore_progress)
    return totals.total_counters(execution.program, counted.tally)


def resident_blocks(
    launch: Launch, compiled: CompiledKernel, properties: DeviceProperties
) -> Occupancy:
    """Say how many blocks of a launch one multiprocessor holds at once.

    Raises:
        UsageError: Not one fits.
    """
    return compute_occupancy(properties, block_requirements(launch, compiled.resources))


def _cache_geometry(
    properties: DeviceProperties, resident_blocks: int, carveout_bytes: int
) -> caches.CacheGeometry:
    """The caches of a device; one whose size is unknown holds nothing."""
    return caches.CacheGeometry(
        multiprocessors=properties.multiprocessor_count or 1,
        resident_blocks=resident_blocks,
        l1_bytes=max((properties.l1_cache_bytes_per_sm or 0) - carveout_bytes, 0),
        l2_bytes=properties.l2_cache_bytes or 0,
        dram_access_bytes=properties.dram_access_bytes or SECTOR_BYTES,
    )


def _with_cache_counters(
    counters: Counters,
    stream: address_streams.AccessStream,
    busy: address_streams.ActiveRegion,
    geometry: caches.CacheGeometry,
) -> Counters:
    """Add what the cache models say to the counted requests and sectors."""
    rate = caches.l1_miss_rate(stream, busy, geometry)
    dram = caches.dram_bytes(stream, busy, geometry)
    hits = round(counters.global_load_sectors * stream.cacheable_share * (1 - rate))
    l2_reads = counters.global_load_sectors - hits
    l2_misses = min(dram.loaded // SECTOR_BYTES, l2_reads)
    # A read that misses brings in no more than memory gives at once.
    loaded = min(dram.loaded, l2_reads * geometry.dram_access_bytes)
    return replace(
        counters,
        l1_read_sector_hits=hits,
        l2_read_sectors=l2_reads,
        l2_read_sector_hits=l2_reads - l2_misses,
        # The L1 writes local stores through as well: an H200 counts both of filter-local's here.
        l2_write_sectors=counters.global_store_sectors + counters.local_store_sectors,
        dram_read_bytes=loaded + dram.for_atomics,
        dram_write_bytes=dram.written,
    )


def _mean_latencies(counters: Counters, properties: DeviceProperties) -> Latencies:
    """Latencies with the hit rates that the cache models gave."""
    loads = counters.global_load_sectors
    l1_hits = counters.l1_read_sector_hits / loads if loads else 1.0
    l2_hits = (
        counters.l2_read_sector_hits / counters.l2_read_sectors if counters.l2_read_sectors else 1.0
    )
    atomics = total_global_atomic_sectors(counters)
    read_by_atomics = counters.dram_read_bytes // SECTOR_BYTES - (
        counters.l2_read_sectors - counters.l2_read_sector_hits
    )
    atomic_hits = max(0.0, 1 - read_by_atomics / atomics) if atomics else 1.0
    return Latencies(
        arithmetic=properties.register_latency_clocks or 0.0,
        shared=properties.shared_latency_clocks or 0.0,
        constant=time_model.constant_load_latency_clocks(counters, properties),
        global_load=time_model.global_load_latency_clocks(l1_hits, l2_hits, properties),
        global_atomic=time_model.global_load_latency_clocks(0.0, atomic_hits, properties),
        barrier=properties.barrier_latency_clocks or 0.0,
    )
