"""The emulated device: NVRTC's PTX in the emulator, time from the model, on a datasheet."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device import model
from memlab.device.compile import Compiled, compile_launch
from memlab.device.emulator import caches, parser, sampling
from memlab.device.emulator.counters import SECTOR_BYTES, Patterns, Tally, Trace
from memlab.device.emulator.critical_path import Latencies, warp_clocks
from memlab.device.emulator.machine import Chunk, Grid
from memlab.device.emulator.memory import GlobalMemory
from memlab.device.emulator.parser import Address, Register
from memlab.device.emulator.program import Program, Step, in_loops, load, with_constants
from memlab.device.emulator.recording import Recorder
from memlab.device.inputs import POISON_BYTE, random_inputs
from memlab.device.measurement import (
    Counters,
    Coverage,
    DeviceKind,
    DeviceSummary,
    LineCounters,
    Measurement,
    Occupancy,
    Region,
    Time,
    Verification,
)
from memlab.device.occupancy import occupancy, shared_carveout_bytes
from memlab.device.properties import DeviceProperties
from memlab.device.verification import verify
from memlab.errors import UsageError
from memlab.kernels.launch import Buffer, Launch

Progress = Callable[[str, float | None], None]

WHOLE_GRID_LANE_INSTRUCTIONS = 300_000_000
"""Launches up to this size run whole, in about a second; of larger ones, blocks are sampled."""
SAMPLE_LANE_INSTRUCTIONS = 800_000_000
"""Samples of larger blocks are smaller, so that they too take a few seconds."""
CHUNK_LANES = 16_384
"""Lanes at once: registers of this length stay in a CPU's L2 cache, and calls are few."""


class EmulatedDevice:
    """A GPU of which only the datasheet is there.

    Attributes:
        properties: The datasheet's figures.
        key: The datasheet's name.
    """

    kind: DeviceKind = "emulated"

    def __init__(self, key: str, properties: DeviceProperties) -> None:
        self.key, self.properties = key, properties

    def run(self, launch: Launch, seed: int, progress: Progress | None = None) -> Measurement:
        """Compile a launch, execute it, verify it, count it, and model its time.

        Args:
            launch: What to run.
            seed: Of the random inputs and of the sample of blocks.
            progress: Told what is being done, and which fraction of it is over.

        Raises:
            CompileError: The source does not compile.
            PtxError: The compiled kernel has an instruction that the emulator does not know.
            UsageError: The host has too little memory for the arrays, or no block fits an SM.
            KernelFault: The kernel touched memory that is not its own.
        """
        report = progress or (lambda what, fraction: None)
        report("compiling", None)
        compiled = compile_launch(launch, self.properties.compute_capability)
        emulation = emulate(launch, compiled, self.properties, seed, progress)
        resident = resident_blocks(launch, compiled, self.properties)
        return emulation.measurement(
            launch,
            compiled,
            DeviceSummary(
                self.properties.name, "emulated", self.properties.compute_capability, self.key
            ),
            resident,
            model.time_of(emulation.work, resident, self.properties),
            emulation.verification,
        )


@dataclass(frozen=True)
class Emulation:
    """What executing a launch on the CPU found out.

    Attributes:
        coverage: How much of the grid was executed.
        counters: Whole-grid totals.
        lines: The same by source line.
        region: What the loops did.
        work: What the time model needs.
        verification: The outputs of the blocks that ran, against the reference.
    """

    coverage: Coverage
    counters: Counters
    lines: tuple[LineCounters, ...]
    region: Region
    work: model.Work
    verification: Verification

    def measurement(
        self,
        launch: Launch,
        compiled: Compiled,
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
            flop=launch.flop,
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
    compiled: Compiled,
    properties: DeviceProperties,
    seed: int,
    progress: Progress | None = None,
) -> Emulation:
    """Execute a launch on the CPU and count it as the given device would.

    Args:
        launch: What to run.
        compiled: The launch, compiled for the device's compute capability.
        properties: The device: its caches and limits, whether it is here or not.
        seed: Of the random inputs and of the sample of blocks.
        progress: Told what is being done, and which fraction of it is over.

    Raises:
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        UsageError: The host has too little memory for the arrays, or no block fits an SM.
        KernelFault: The kernel touched memory that is not its own.
    """
    report = progress or (lambda what, fraction: None)
    check_host_memory(launch)
    resident = resident_blocks(launch, compiled, properties)
    source = launch.source.splitlines()
    program = load(parser.parse(compiled.ptx), launch.entry, source)
    report("preparing inputs", None)
    execution = Execution(launch, program, seed, source)
    probe = execution.probe()
    execution.reset()
    emulated, tally = execution.count(probe.lane_instructions_per_block, report)
    report("modelling caches and time", None)
    carveout = shared_carveout_bytes(
        properties,
        launch.threads_per_block,
        compiled.resources.registers_per_thread,
        _shared_bytes(launch, compiled),
    )
    geometry = _cache_geometry(properties, resident.blocks_per_sm, carveout)
    counters = _with_caches(_totals(program, tally), probe.stream, launch, geometry, seed)
    work = model.Work(
        blocks=launch.blocks,
        counters=counters,
        l1_wavefronts=_l1_wavefronts(program, tally),
        warp_clocks=warp_clocks(program, probe.path, _latencies(counters, properties)),
    )
    report("verifying", None)
    return Emulation(
        coverage=Coverage(emulated, launch.blocks),
        counters=counters,
        lines=_by_line(program, tally, source),
        region=_region(program, tally),
        work=work,
        verification=execution.verify(whole=emulated == launch.blocks),
    )


def count(
    launch: Launch, compiled: Compiled, seed: int, progress: Progress | None = None
) -> Counters:
    """Execute a launch on the CPU and count it, without caches: those of `Counters` stay 0.

    Args:
        launch: What to run.
        compiled: The launch, compiled.
        seed: Of the random inputs and of the sample of blocks.
        progress: Told what is being done, and which fraction of it is over.

    Raises:
        PtxError, UsageError, KernelFault: As `emulate`.
    """
    check_host_memory(launch)
    source = launch.source.splitlines()
    program = load(parser.parse(compiled.ptx), launch.entry, source)
    execution = Execution(launch, program, seed, source)
    cost = execution.probe().lane_instructions_per_block
    execution.reset()
    _, tally = execution.count(cost, progress or (lambda what, fraction: None))
    return _totals(program, tally)


def resident_blocks(launch: Launch, compiled: Compiled, properties: DeviceProperties) -> Occupancy:
    """Say how many blocks of a launch one multiprocessor holds at once.

    Raises:
        UsageError: Not one fits.
    """
    return occupancy(
        properties,
        launch.threads_per_block,
        compiled.resources.registers_per_thread,
        _shared_bytes(launch, compiled),
    )


def _shared_bytes(launch: Launch, compiled: Compiled) -> int:
    return compiled.resources.static_shared_bytes + launch.dynamic_shared_bytes


@dataclass(frozen=True)
class _Probe:
    """What a block and its neighbours showed."""

    stream: caches.Stream
    path: list[tuple[int, int]]
    lane_instructions_per_block: float


class Execution:
    """One launch in the emulator, with its memory."""

    def __init__(self, launch: Launch, program: Program, seed: int, source: list[str]) -> None:
        self.launch, self.seed, self.source = launch, seed, source
        sizes = {each.name: _bytes_and_element(each) for each in launch.buffers}
        sizes |= {each.name: (each.size, 4) for each in program.globals}
        self.memory = GlobalMemory(sizes)
        self.inputs = random_inputs(launch, seed, {b.name: self.array(b) for b in launch.buffers})
        self.program = with_constants(
            program, {c.name: self.inputs[c.name] for c in launch.constants}
        )
        self.grid = Grid(launch.grid, launch.block, launch.dynamic_shared_bytes, self._parameters())
        self.patterns = Patterns()
        self.reset()

    def array(self, buffer: Buffer) -> NDArray[Any]:
        """A buffer's elements, as a view of the emulated memory."""
        return self.memory.bytes_of(buffer.name).view(buffer.dtype).reshape(buffer.shape)

    def reset(self) -> None:
        """Poison the outputs and set module variables to their initial values."""
        for buffer in self.launch.buffers:
            if buffer.role == "out":
                self.memory.bytes_of(buffer.name)[:] = POISON_BYTE
        for variable in self.program.globals:
            initial = variable.initial or bytes(variable.size)
            self.memory.bytes_of(variable.name)[:] = np.frombuffer(initial, np.uint8)
        self.memory.forget_writes()

    def probe(self) -> _Probe:
        """Run a block in the middle of the grid and its neighbours, recording all they do."""
        probes = caches.probe_blocks(self.launch.grid, sampling.center(self.launch.grid))
        trace = Trace()
        tally = self._run(probes, trace)
        return _Probe(
            stream=caches.record(self.program, trace, probes),
            path=trace.path,
            lane_instructions_per_block=sum(tally.lanes) / len(probes),
        )

    def count(self, cost_per_block: float, report: Progress) -> tuple[int, Tally]:
        """Run the grid, or a sample of it; give the blocks run and whole-grid counts."""
        if cost_per_block * self.launch.blocks <= WHOLE_GRID_LANE_INSTRUCTIONS:
            parts = [sampling.Stratum(sampling.all_blocks(self.launch.grid), self.launch.blocks)]
        else:
            most = SAMPLE_LANE_INSTRUCTIONS / cost_per_block
            parts = sampling.strata(self.launch.grid, self.seed, most)
        wanted = sum(len(part.blocks) for part in parts)
        total, done = Tally.zeros(len(self.program.steps)), 0
        for part in parts:
            counted = Tally.zeros(len(self.program.steps))
            for blocks in self._chunks(part.blocks):
                counted.add(self._run(blocks, None))
                done += len(blocks)
                report("emulating", done / wanted)
            total.add(counted, part.size, len(part.blocks))
        return wanted, total

    def verify(self, whole: bool) -> Verification:
        """Compare the outputs of the blocks that ran with the reference."""
        (output,) = (each for each in self.launch.buffers if each.role == "out")
        values = self.array(output)
        index = np.arange(values.size) if whole else self.memory.elements_written(output.name)
        return verify(self.launch, self.inputs, values, index)

    def record(self, blocks: NDArray[np.int64], recorder: Recorder) -> Tally:
        """Run some blocks while a recorder watches, and count them."""
        counted = Tally.zeros(len(self.program.steps))
        for chunk in self._chunks(blocks):
            counted.add(self._run(chunk, None, recorder))
        return counted

    def _run(
        self,
        blocks: NDArray[np.int64],
        trace: Trace | None,
        recorder: Recorder | None = None,
    ) -> Tally:
        chunk = Chunk(
            self.program,
            self.grid,
            blocks,
            self.memory,
            self.patterns,
            trace,
            self.source,
            recorder,
        )
        return chunk.run()

    def _chunks(self, blocks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        step = max(1, CHUNK_LANES // self.grid.padded_threads)
        for start in range(0, len(blocks), step):
            yield blocks[start : start + step]

    def _parameters(self) -> bytes:
        space = bytearray(self.program.parameter_bytes)
        for argument, variable in zip(
            self.launch.arguments, self.program.parameter_variables, strict=True
        ):
            if isinstance(argument, Buffer):
                value = np.uint64(self.memory.find(argument.name).address).tobytes()
            else:
                value = np.array(argument.value, argument.dtype).tobytes()
            start = self.program.parameters[variable.name]
            space[start : start + variable.size] = value.ljust(variable.size, b"\0")
        return bytes(space)


def _bytes_and_element(buffer: Buffer) -> tuple[int, int]:
    element = np.dtype(buffer.dtype).itemsize
    return int(np.prod(buffer.shape, dtype=np.int64)) * element, element


def check_host_memory(launch: Launch) -> None:
    """Refuse arrays that the host cannot hold.

    Raises:
        UsageError: Names the bytes needed and available.
    """
    needed = sum(_bytes_and_element(each)[0] for each in launch.buffers)
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > available:
        raise UsageError(
            f"emulating this launch needs {needed} bytes of host memory for its arrays; "
            f"{available} are free: use smaller sizes, or a GPU with --device 0"
        )


def _totals(program: Program, tally: Tally) -> Counters:
    """Sum what the instructions did, by kind."""
    sums: dict[str, int] = {}

    def add(name: str, value: int) -> None:
        sums[name] = sums.get(name, 0) + value

    for index, step in enumerate(program.steps):
        row = step.row
        add("thread_instructions", tally.lanes[index])
        add("warp_instructions", tally.warps[index])
        if row.flops:
            pipe = f"tensor_{row.tensor}" if row.tensor else "fp64" if "f64" in row.to else "fp32"
            add(f"flop_{pipe}", row.flops * tally.lanes[index])
        direction = {"load": "load", "store": "store"}.get(row.kind)
        if direction is None:
            continue
        if row.space in ("global", "generic"):
            add(f"global_{direction}_requests", tally.requests[index])
            add(f"global_{direction}_sectors", tally.sectors[index])
            add(f"requested_{direction}_bytes", tally.bytes[index])
            add(f"global_{direction}_lines", tally.wavefronts[index])
            add(f"global_{direction}_used_bytes", tally.used[index])
        elif row.space == "local":
            add(f"local_{direction}_sectors", tally.sectors[index])
        elif row.space == "const" and _address_is_computed(step):
            add("constant_load_requests", tally.requests[index])
            add("constant_load_passes", tally.wavefronts[index])
        elif row.space == "shared":
            add(f"shared_{direction}_instructions", tally.requests[index])
            add(f"shared_{direction}_wavefronts", tally.wavefronts[index])
            add("shared_excessive_wavefronts", tally.excessive[index])
    return Counters(**sums)


def _address_is_computed(step: Step) -> bool:
    """Whether an access is a load in the machine code too, not an operand of the constant bank."""
    return any(
        isinstance(each, Address) and isinstance(each.base, Register)
        for each in step.instruction.operands
    )


def _l1_wavefronts(program: Program, tally: Tally) -> int:
    return sum(
        tally.wavefronts[index]
        for index, step in enumerate(program.steps)
        if step.row.space in ("shared", "global", "generic")
    )


def _by_line(program: Program, tally: Tally, source: list[str]) -> tuple[LineCounters, ...]:
    """The counters of each source line that did anything."""
    lines: dict[int, dict[str, int]] = {}
    for index, step in enumerate(program.steps):
        line = lines.setdefault(step.instruction.source_line, {})
        named = {
            "thread_instructions": tally.lanes[index],
            "warp_instructions": tally.warps[index],
        }
        if step.row.flops:
            named["flop"] = step.row.flops * tally.lanes[index]
        if step.row.space in ("global", "generic"):
            named["global_requests"] = tally.requests[index]
            named["global_sectors"] = tally.sectors[index]
            named["global_lines"] = tally.wavefronts[index]
            named["global_used_bytes"] = tally.used[index]
            named["requested_bytes"] = tally.bytes[index]
        elif step.row.space == "shared":
            named["shared_instructions"] = tally.requests[index]
            named["shared_wavefronts"] = tally.wavefronts[index]
            named["shared_excessive_wavefronts"] = tally.excessive[index]
        for name, value in named.items():
            line[name] = line.get(name, 0) + value
    return tuple(
        LineCounters(number, source[number - 1] if 0 < number <= len(source) else "", **counts)
        for number, counts in sorted(lines.items())
    )


def _region(program: Program, tally: Tally) -> Region:
    """Add up the loops, or the whole program where they lack arithmetic or global accesses."""

    def total(steps: Sequence[bool], loops: bool) -> Region:
        flop = moved = 0
        for index, step in enumerate(program.steps):
            if steps[index]:
                flop += step.row.flops * tally.lanes[index]
                moved += tally.bytes[index] if step.row.space in ("global", "generic") else 0
        return Region(flop, moved, loops)

    region = total(in_loops(program), True)
    return (
        region
        if region.flop and region.requested_bytes
        else total([True] * len(program.steps), False)
    )


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


def _with_caches(
    counters: Counters,
    stream: caches.Stream,
    launch: Launch,
    geometry: caches.CacheGeometry,
    seed: int,
) -> Counters:
    """Add what the cache models say to the counted requests and sectors."""
    from dataclasses import replace

    generator = np.random.default_rng(seed)
    rate = caches.l1_miss_rate(stream, launch.grid, geometry, generator)
    read, written = caches.dram_bytes(stream, launch.grid, geometry, generator)
    hits = round(counters.global_load_sectors * stream.cacheable_share * (1 - rate))
    l2_reads = counters.global_load_sectors - hits
    l2_misses = min(read // SECTOR_BYTES, l2_reads)
    return replace(
        counters,
        l1_read_sector_hits=hits,
        l2_read_sectors=l2_reads,
        l2_read_sector_hits=l2_reads - l2_misses,
        l2_write_sectors=counters.global_store_sectors,
        dram_read_bytes=read,
        dram_write_bytes=written,
    )


def _latencies(counters: Counters, properties: DeviceProperties) -> Latencies:
    """Latencies with the hit rates that the cache models gave."""
    loads = counters.global_load_sectors
    l1_hits = counters.l1_read_sector_hits / loads if loads else 1.0
    l2_hits = (
        counters.l2_read_sector_hits / counters.l2_read_sectors if counters.l2_read_sectors else 1.0
    )
    return Latencies(
        arithmetic=properties.register_latency_clocks or 0.0,
        shared=properties.shared_latency_clocks or 0.0,
        global_load=model.global_load_latency_clocks(l1_hits, l2_hits, properties),
        barrier=properties.barrier_latency_clocks or 0.0,
    )
