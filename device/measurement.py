"""The records of a measured launch: resources, occupancy, counters, time and verification.

All figures are in base units with the unit in the name. Every time has a provenance: `measured`
(by a GPU's events) or `modelled` (by the emulated device's time model).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from memlab.device.access_counts import AccessCounts, Direction, NamedCount, NamedCounters, Space
from memlab.device.outputs import Outputs
from memlab.kernels.launch import NO_CLUSTER, Dim3
from memlab.presentation import Presentable

Provenance = Literal["queried", "datasheet", "measured", "emulated", "modelled", "analytic"]
DeviceKind = Literal["emulated", "cuda"]

Progress: TypeAlias = Callable[[str, float | None], None]
"""A callback that takes the current activity and the fraction of it that is done, 0 to 1; None
where the fraction is not known."""

EVENT_PAIR_SHARE = 0.01
"""If two CUDA events alone take a larger share of a time, a report says so: tools that use events
agree to about 1%, and a tool that uses none differs by more."""

CLOCK_DRIFT_LIMIT = 0.03
"""A sample's SM clock that differs from the median clock by a larger share makes a time suspect.
The limit is about the DVFS steps of a power-limited GPU, and above the 1% to which two measurements
should agree."""


NOT_RECORDED = MappingProxyType({"recorded": False})
"""The metadata of fields that documents leave out."""


def ignore_progress(what: str, fraction: float | None) -> None:
    """A `Progress` callback that does nothing."""


SAMPLES_KEPT = 2000
"""The most samples of a time that a result keeps: enough to compare two medians to 0.1% of the
spread, and 40 kB of text."""


@dataclass(frozen=True)
class Code:
    """The code that was launched, to tell whether two runs executed the same.

    Attributes:
        source_name: The file name of the source.
        source_sha256: SHA-256 of the source's text, without its headers; hexadecimal.
        machine_code_sha256: SHA-256 of the kernel's machine code, hexadecimal. Debug information
            and other kernels of the file do not change it. Empty where there is none.
        compiler: The compiler and its version, `NVRTC 13.5.37`, or `nvcc 13.5.37 with gcc
            12.2.0`.
        options: The options of the compiler that the launch sets, `-D` not among them.
        left_out: The headers that were not found, and without which the source compiled.
    """

    source_name: str = ""
    source_sha256: str = ""
    machine_code_sha256: str = ""
    compiler: str = ""
    options: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resources:
    """The resources that the compiled kernel needs, read from the cubin's ELF.

    Attributes:
        registers_per_thread: 32-bit registers per thread; None without machine code.
        static_shared_bytes: `__shared__` arrays of fixed size, bytes per block.
        local_bytes_per_thread: Local memory for the stack and for spills, bytes per thread; None
            without machine code.
    """

    registers_per_thread: int | None
    static_shared_bytes: int
    local_bytes_per_thread: int | None


@dataclass(frozen=True)
class Occupancy:
    """The number of blocks that one multiprocessor holds at once, and the resource that limits it.

    Attributes:
        blocks_per_sm: Resident blocks per multiprocessor.
        warps_per_sm: Resident warps per multiprocessor.
        theoretical: Resident warps over the most that the device allows, 0 to 1.
        limiter: `blocks`, `warps`, `registers` or `shared memory`; several are joined by ` and `
            if they limit it equally.
        limits: Blocks per multiprocessor that each resource alone would allow, by the same names.
        active_clusters: Clusters that the device holds at once, as
            `cudaOccupancyMaxActiveClusters` counts them; None where the blocks form no clusters,
            or the number of multiprocessors is unknown.
    """

    blocks_per_sm: int
    warps_per_sm: int
    theoretical: float
    limiter: str
    limits: dict[str, int]
    active_clusters: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Coverage:
    """The part of the grid that was executed to get the counters.

    Attributes:
        blocks_emulated: Blocks executed instruction by instruction.
        blocks_total: Blocks of the grid.
        estimated: Whether the counts are estimates: blocks that did not run may behave differently
            from those that represent them, because of data or of their index.
        timed_out: Whether the time limit stopped the emulation before all chosen blocks had run, to
            be counted or for the models of the caches and of the time.
        not_counted: Why the counters are missing though the launch ran on a GPU; empty where they
            are not.
        relative_standard_error: For estimates, the standard error of the number of global sectors
            over that number, from the differences between the sampled blocks; None where it is
            not known.
    """

    blocks_emulated: int
    blocks_total: int
    estimated: bool = False
    timed_out: bool = False
    not_counted: str = ""
    relative_standard_error: float | None = None

    @property
    def remark(self) -> str:
        """The caveats that a reader of the counts must know; empty for most runs."""
        remarks = ["stopped at the time limit"] if self.timed_out else []
        if self.estimated:
            error = self.relative_standard_error
            size = "" if error is None else f" (standard error of sectors {100 * error:.2g}%)"
            remarks.append(f"estimates{size}, since blocks may differ by data or index")
        return "; ".join(remarks)


@dataclass(frozen=True)
class Counters(NamedCounters):
    """Whole-grid totals, named and defined as Nsight Compute counts them.

    Attributes:
        accesses: The accesses to memory by space and direction. Only the figures that have a
            flat name below are kept. Nsight Compute counts shared reductions as atomics, so the
            table has them under `("shared", "atomic")`.
        shared_excessive_wavefronts: Wavefronts of shared memory beyond the ideal for the access
            width, of all directions.
        shared_matrix_load_instructions: Shared loads that are `ldmatrix`.
        shared_matrix_load_wavefronts: Wavefronts of these.
        shared_async_store_instructions: Shared stores that `cp.async` makes.
        shared_async_store_wavefronts: Wavefronts of these.
        shared_product_wavefronts: Passes in which the tensor cores read the factors of `wgmma` from
            shared memory, for a warpgroup each, without bank conflicts; no other counter has these.
        shared_atomic_float_conflicts: Lanes that add floating point to an address of shared memory
            which another lane of their warp adds to at once; each tries again in a loop.
        l1_wavefronts: Passes through the port of L1 and shared memory: the wavefronts of shared
            accesses, and one pass per 128-byte line of a global or local request.
        l1_read_sector_hits: Sectors of global loads that the L1 holds.
        lrc_read_sectors: Sectors that the L1s get from the L2's request coalescer (LRC), without
            those of atomics, and once for each block that a copy is sent to; on a device without
            one, they are those read from the L2.
        l2_read_sectors: Sectors that are read from the L2 for the L1s, without those of atomics:
            the coalescer merges reads of one sector that are under way at once.
        l2_read_sector_hits: Sectors of these that the L2 holds.
        l2_write_sectors: Sectors that the L1s write to the L2, without those of atomics.
        dram_read_bytes: Bytes that the L2 reads from DRAM.
        dram_write_bytes: Bytes that the L2 writes to DRAM.
        requested_atomic_bytes: Bytes that global atomics and reductions ask for, summed over
            threads.
        global_atomic_slice_passes: Passes of global atomics in the slice of the L2 that they use
            most, one after the other: as many for a sector of a request as lanes have one address.
        global_atomic_float_passes: Passes in the sector that additions of floating point use most.
        texture_requests: Global load requests that fetch from a texture, one for 4 or 8 lanes.
        texture_sectors: Sectors of these, of each request its own.
        surface_requests: Requests of accesses to surfaces: one for every 8 lanes, in 3 dimensions
            for every 4.
        surface_sectors: Sectors of these, of each request its own.
        bulk_requests: Bulk copies to or from global memory; they do not pass the L1.
        bulk_sectors: Sectors of these.
        distributed_shared_requests: Accesses of warps to the shared memory of other blocks of their
            cluster; no counter of shared memory has these.
        distributed_shared_sectors: Sectors of these.
        flop_fp32: FLOPs executed by the FP32 pipe; one FMA is two.
        flop_fp64: FLOPs executed by the FP64 pipe.
        flop_fp16: FLOPs of `half` outside the tensor cores; one FMA of a `half2` is four. (Nsight
            Compute's roofline takes every such instruction for a packed one.)
        flop_bf16: The same of `__nv_bfloat16`.
        flop_tensor_tf32: FLOPs of `mma` with TF32 factors; Nsight Compute counts those of tensor
            cores as operations of the tensor pipe.
        flop_tensor_fp16: FLOPs of `mma` with FP16 factors.
        flop_tensor_bf16: FLOPs of `mma` with BF16 factors.
        flop_tensor_fp8: FLOPs of `mma` with factors of 8 bits, E4M3 or E5M2.
        iop_alu: Integer instructions of the ALU pipe (sums, logic, shifts, comparisons), summed
            over threads, with those whose predicate is off; counted as
            `InstructionCounters.counted` says, as are the next two. Those of the uniform datapath
            are not among them.
        iop_fma: Integer instructions of the FMA pipe: multiply-adds, and moves and sums that ptxas
            writes as such.
        iop_xu: Integer instructions of the XU pipe: counts of bits.
        thread_instructions: Instructions executed, summed over threads; as `InstructionCounters`.
        warp_instructions: Instructions executed, summed over warps; as `InstructionCounters`.
    """

    accesses: Mapping[tuple[Space, Direction], AccessCounts] = field(
        default_factory=dict, kw_only=True
    )
    global_load_requests = NamedCount(("global", "load"), "requests")
    global_load_sectors = NamedCount(("global", "load"), "sectors")
    global_store_requests = NamedCount(("global", "store"), "requests")
    global_store_sectors = NamedCount(("global", "store"), "sectors")
    shared_load_instructions = NamedCount(("shared", "load"), "requests")
    shared_load_wavefronts = NamedCount(("shared", "load"), "wavefronts")
    shared_store_instructions = NamedCount(("shared", "store"), "requests")
    shared_store_wavefronts = NamedCount(("shared", "store"), "wavefronts")
    shared_matrix_load_instructions: int = 0
    shared_matrix_load_wavefronts: int = 0
    shared_async_store_instructions: int = 0
    shared_async_store_wavefronts: int = 0
    shared_product_wavefronts: int = 0
    shared_excessive_wavefronts: int = 0
    local_load_sectors = NamedCount(("local", "load"), "sectors")
    local_store_sectors = NamedCount(("local", "store"), "sectors")
    global_atomic_requests = NamedCount(("global", "atomic"), "requests")
    global_atomic_sectors = NamedCount(("global", "atomic"), "sectors")
    global_reduction_requests = NamedCount(("global", "reduction"), "requests")
    global_reduction_sectors = NamedCount(("global", "reduction"), "sectors")
    shared_atomic_instructions = NamedCount(("shared", "atomic"), "requests")
    shared_atomic_wavefronts = NamedCount(("shared", "atomic"), "wavefronts")
    shared_atomic_float_conflicts: int = 0
    l1_wavefronts: int = 0
    l1_read_sector_hits: int = 0
    lrc_read_sectors: int = 0
    l2_read_sectors: int = 0
    l2_read_sector_hits: int = 0
    l2_write_sectors: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    requested_load_bytes = NamedCount(("global", "load"), "requested_bytes")
    requested_store_bytes = NamedCount(("global", "store"), "requested_bytes")
    requested_atomic_bytes: int = 0
    global_load_lines = NamedCount(("global", "load"), "wavefronts")
    global_load_used_bytes = NamedCount(("global", "load"), "used_bytes")
    global_store_lines = NamedCount(("global", "store"), "wavefronts")
    global_store_used_bytes = NamedCount(("global", "store"), "used_bytes")
    constant_load_requests = NamedCount(("constant", "load"), "requests")
    constant_load_passes = NamedCount(("constant", "load"), "wavefronts")
    global_atomic_slice_passes: int = 0
    global_atomic_float_passes: int = 0
    texture_requests: int = 0
    texture_sectors: int = 0
    surface_requests: int = 0
    surface_sectors: int = 0
    bulk_requests: int = 0
    bulk_sectors: int = 0
    distributed_shared_requests: int = 0
    distributed_shared_sectors: int = 0
    flop_fp32: int = 0
    flop_fp64: int = 0
    flop_fp16: int = 0
    flop_bf16: int = 0
    flop_tensor_tf32: int = 0
    flop_tensor_fp16: int = 0
    flop_tensor_bf16: int = 0
    flop_tensor_fp8: int = 0
    iop_alu: int = 0
    iop_fma: int = 0
    iop_xu: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0

    def total(self, space: Space, *directions: Direction) -> AccessCounts:
        """Add up the accesses to one space, in some directions; without any, in all."""
        chosen = (
            counts
            for (of_space, direction), counts in self.accesses.items()
            if of_space == space and (not directions or direction in directions)
        )
        return sum(chosen, AccessCounts())

    def by_nsight_compute(self) -> dict[str, int]:
        """All values by name as Nsight Compute counts them.

        To it `ldmatrix` is no shared load and `cp.async` no shared store.
        """
        return self.by_name() | {
            "shared_load_instructions": self.shared_load_instructions
            - self.shared_matrix_load_instructions,
            "shared_load_wavefronts": self.shared_load_wavefronts
            - self.shared_matrix_load_wavefronts,
            "shared_store_instructions": self.shared_store_instructions
            - self.shared_async_store_instructions,
            "shared_store_wavefronts": self.shared_store_wavefronts
            - self.shared_async_store_wavefronts,
        }


def total_global_atomic_sectors(counters: Counters) -> int:
    """Sectors of global atomics and reductions; the L2 executes both."""
    return counters.total("global", "atomic", "reduction").sectors


def l2_written_sectors(counters: Counters) -> int:
    """Sectors that the L2 takes from the L1s: writes and atomics."""
    return counters.l2_write_sectors + total_global_atomic_sectors(counters)


def l1_l2_sectors(counters: Counters) -> int:
    """Sectors between the L1s and the L2, in both directions."""
    return counters.l2_read_sectors + l2_written_sectors(counters)


FLOP_COUNTERS = {
    "fp32": "flop_fp32",
    "fp64": "flop_fp64",
    "fp16_fma": "flop_fp16",
    "bf16_fma": "flop_bf16",
    "tf32": "flop_tensor_tf32",
    "fp16": "flop_tensor_fp16",
    "bf16": "flop_tensor_bf16",
    "fp8": "flop_tensor_fp8",
}
"""The counter of each pipe's FLOPs, by the key of the pipe's peak: `fp16` and `bf16` are those of
the tensor cores, `fp16_fma` and `bf16_fma` those of the CUDA cores."""


def flop_by_pipe(counters: Counters) -> dict[str, int]:
    """Give the FLOPs that each pipe executed, by the key of its peak.

    Returns:
        `fp32` and `fp64`, then the others that executed any: `fp16_fma` and `bf16_fma` of the CUDA
        cores; `tf32`, `fp16`, `bf16` and `fp8` of the tensor cores.
    """
    executed: dict[str, int] = {
        pipe: getattr(counters, name) for pipe, name in FLOP_COUNTERS.items()
    }
    return {pipe: flop for pipe, flop in executed.items() if flop or pipe in ("fp32", "fp64")}


INTEGER_COUNTERS = {"int_alu": "iop_alu", "int_fma": "iop_fma", "int_xu": "iop_xu"}
"""The counter of each pipe's integer instructions, by the key of the pipe's peak."""


def integer_op_by_pipe(counters: Counters) -> dict[str, int]:
    """Give the integer instructions of threads that pipes executed, if any, by key of the peak."""
    executed = {pipe: getattr(counters, name) for pipe, name in INTEGER_COUNTERS.items()}
    return {pipe: count for pipe, count in executed.items() if count}


@dataclass(frozen=True)
class InstructionCounters:
    """Instructions executed, whole-grid totals.

    Attributes:
        counted: What was counted: the instructions of the `machine code`, which are those that the
            hardware counts, or those of the `PTX`.
        warp_instructions: Instructions, counted once per warp.
        thread_instructions: Instructions, counted once per thread; of the machine code with those
            whose predicate is off, as `smsp__thread_inst_executed` has them.
        ptx_warp_instructions: The same of the PTX.
        ptx_thread_instructions: The same of the PTX, without those whose predicate is off.
        by_pipe: The warps' instructions of the machine code by pipe, as Nsight Compute names them,
            the most frequent first, and those of `printf` as `runtime`; empty where the PTX was
            counted.
        spill_loads: Loads of registers that ptxas had spilled to local memory, counted per warp.
        spill_stores: Stores of such registers.
        reason: Why the PTX was counted; empty for machine code.
    """

    counted: Literal["machine code", "PTX"] = "PTX"
    warp_instructions: int = 0
    thread_instructions: int = 0
    ptx_warp_instructions: int = 0
    ptx_thread_instructions: int = 0
    by_pipe: dict[str, int] = field(default_factory=dict)
    spill_loads: int = 0
    spill_stores: int = 0
    reason: str = ""


@dataclass(frozen=True)
class LineCounters(NamedCounters):
    """The counters of one source line, whole-grid totals.

    Attributes:
        line: Line number in the kernel's source, from 1; 0 where the compiler names none.
        text: The line as written.
        accesses: The accesses to memory by space, of all directions. Only the figures that have
            a flat name below are kept.
        flop: FLOPs executed.
        iop: Integer instructions, summed over threads; counted as `Counters.iop_alu`.
        thread_instructions: Instructions of the PTX, summed over threads.
        warp_instructions: Instructions of the PTX, summed over warps.
        shared_product_wavefronts: As `Counters.shared_product_wavefronts`.
        distributed_shared_requests: As `Counters.distributed_shared_requests`.
        distributed_shared_sectors: Sectors of these.
    """

    line: int = 0
    text: str = ""
    accesses: Mapping[Space, AccessCounts] = field(default_factory=dict, kw_only=True)
    global_requests = NamedCount("global", "requests")
    global_sectors = NamedCount("global", "sectors")
    global_lines = NamedCount("global", "wavefronts")
    global_used_bytes = NamedCount("global", "used_bytes")
    shared_instructions = NamedCount("shared", "requests")
    shared_wavefronts = NamedCount("shared", "wavefronts")
    shared_excessive_wavefronts = NamedCount("shared", "excessive_wavefronts")
    flop: int = 0
    iop: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0
    requested_bytes = NamedCount("global", "requested_bytes")
    local_requests = NamedCount("local", "requests")
    local_sectors = NamedCount("local", "sectors")
    constant_requests = NamedCount("constant", "requests")
    constant_passes = NamedCount("constant", "wavefronts")
    shared_product_wavefronts: int = 0
    distributed_shared_requests: int = 0
    distributed_shared_sectors: int = 0


@dataclass(frozen=True)
class AccessCounters:
    """The accesses of one source line to one array in one direction.

    Attributes:
        space: `global`, `shared`, `local` or `constant`.
        direction: `load`, `store`, `atomic`, or `reduction` (an atomic whose result no
            instruction reads).
        array: The array's name in the source; empty where it is not known.
        counters: The counters of these instructions alone, whole-grid totals.
    """

    space: Space
    direction: Direction
    array: str
    counters: LineCounters


@dataclass(frozen=True)
class Region:
    """The part of a program that does most of its work: its loops, or else all of it.

    Lessons take the ratio of arithmetic to memory accesses in the loops, so that instructions that
    run once per thread, such as the store of a sum, do not change it.

    Attributes:
        flop: FLOPs executed in the region, whole-grid total.
        requested_bytes: Bytes of global memory that the region's threads ask for, summed over
            threads.
        loops: Whether the region is the loops alone.
    """

    flop: int
    requested_bytes: int
    loops: bool


@dataclass(frozen=True)
class Time:
    """The time that one launch takes.

    Unless a name says `warm`, the samples are launches with empty caches.

    Attributes:
        median_s: Median over the samples, or the model's value, seconds.
        provenance: `measured` or `modelled`.
        samples: Launches timed; 0 for a modelled time.
        minimum_s: Fastest sample, seconds.
        lower_quartile_s: First quartile, seconds.
        upper_quartile_s: Third quartile, seconds.
        bounds_s: For a modelled time, the time that each bound alone would take, seconds, by name.
        interval_low_s: Lower end of the median's 95% confidence interval, seconds; None where
            there are too few samples for one. For a modelled time, the lower end of the interval
            that the model's errors on hardware justify (`model_errors.py`).
        interval_high_s: Upper end of that interval, seconds; None likewise.
        outliers: Samples outside Tukey's fences; they are counted, not removed.
        clock_hz: Median SM clock right after the samples, Hz.
        clock_drift: The largest deviation of a sample's clock from `clock_hz`, as a share of it.
        warm_samples: Launches timed with the caches as the previous launch left them.
        warm_median_s: Median of the warm samples, seconds.
        warm_lower_quartile_s: First quartile of the warm samples, seconds.
        warm_upper_quartile_s: Third quartile of the warm samples, seconds.
        event_pair_s: The time between two CUDA events with nothing between them, seconds. All
            these times include it; a profiler's kernel duration does not.
        maximum_s: Slowest sample, seconds.
        durations_s: The samples in the order of time, seconds; of more than `SAMPLES_KEPT`, as many
            evenly spaced ones. Empty for a modelled time, and in runs of older versions.
        left_out: What a modelled time leaves out although the kernel may spend time there, in
            words; empty for nothing.
    """

    median_s: float
    provenance: Provenance
    samples: int = 0
    minimum_s: float | None = None
    lower_quartile_s: float | None = None
    upper_quartile_s: float | None = None
    bounds_s: dict[str, float] = field(default_factory=dict)
    interval_low_s: float | None = None
    interval_high_s: float | None = None
    outliers: int = 0
    clock_hz: float | None = None
    clock_drift: float | None = None
    warm_samples: int = 0
    warm_median_s: float | None = None
    warm_lower_quartile_s: float | None = None
    warm_upper_quartile_s: float | None = None
    event_pair_s: float | None = None
    maximum_s: float | None = None
    durations_s: tuple[float, ...] = ()
    left_out: str = ""


@dataclass(frozen=True)
class Verification:
    """The comparison of the outputs with a float64 reference.

    Attributes:
        status: `passed`, `failed`, or `skipped` where there is no reference.
        relative_error: Largest elementwise relative error; None when skipped.
        tolerance: The largest relative error that passes; None when skipped.
        checked: Output elements compared.
        total: Elements of the outputs that have a reference.
        worst: The element with the largest error, or another fault, in words.
        wrong: Elements whose error exceeds the tolerance, or that the kernel never wrote; 0 also
            in failed runs of versions that did not count them.
        unverified: The names of the outputs without a reference, `scratch, flags`.
    """

    status: Literal["passed", "failed", "skipped"]
    relative_error: float | None
    tolerance: float | None
    checked: int
    total: int
    worst: str = ""
    wrong: int = 0
    unverified: str = ""


@dataclass(frozen=True)
class DeviceSummary:
    """The device that a measurement comes from.

    Attributes:
        name: The device's name in CUDA, e.g. `NVIDIA H200`.
        kind: `emulated` or `cuda` (a real GPU).
        compute_capability: Major and minor version.
        key: The value of `--device` that chooses it: a datasheet's name, or `cuda:0`.
        uuid: The GPU's UUID; None for an emulated device, or where the driver gives none.
        driver: The version of the GPU's driver, `580.159.04`, or else the CUDA version that the
            driver supports; None where neither is known.
    """

    name: str
    kind: DeviceKind
    compute_capability: tuple[int, int]
    key: str
    uuid: str | None = None
    driver: str | None = None


@dataclass(frozen=True, repr=False)
class Measurement(Presentable):
    """One launch on one device, with everything that was counted and timed.

    Attributes:
        kernel: The kernel's name: `tiled`, or `saxpy.cu:saxpy` for a user kernel.
        parameters: The kernel's parameters by name, defaults filled in.
        tile: Edge of the kernel's tile, elements; None for a kernel without one.
        flop: FLOPs of the algorithm; for a user kernel, the FLOPs executed.
        compulsory_bytes: Bytes of the inputs, each read once, and of the outputs, each written
            once.
        device: The device.
        grid: Blocks in x, y and z.
        block: Threads per block in x, y and z.
        cluster: Blocks per thread block cluster in x, y and z; 1 where blocks form none.
        dynamic_shared_bytes: Shared memory that the launch asks for in addition to the static
            arrays, bytes per block.
        resources: Registers and memory of the compiled kernel.
        occupancy: The blocks that a multiprocessor holds.
        coverage: The part of the grid that was executed for the counters.
        counters: Whole-grid totals.
        lines: The counters of each source line that has instructions, by line number.
        time: The time of the launch, seconds, measured or modelled.
        verification: The comparison of the outputs with the reference.
        counters_ncu: Nsight Compute's counts of the same launch, by the flat names of `Counters`,
            and its `duration_s`; None where it was not run.
        library_time: The time of the vendor's library for the same work on the same GPU, by the
            library's name (`cublas`); empty where it was not run.
        instructions: The instructions of the machine code, or of the PTX where there is none.
        code: The source and the machine code that were launched; empty in runs of older versions.
        outputs: The arrays that the launch wrote; not part of documents.
        stalls: The clocks of a warp for each instruction that it issues, by its state
            (`warp_stalls.STALL_REASONS`), in the mean; modelled. Their sum is Nsight Compute's
            "warp cycles per issued instruction". Empty where the time is not simulated.
    """

    kernel: str
    parameters: dict[str, int | str]
    tile: int | None
    flop: int
    compulsory_bytes: int
    device: DeviceSummary
    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    resources: Resources
    occupancy: Occupancy
    coverage: Coverage
    counters: Counters
    lines: tuple[LineCounters, ...]
    time: Time
    verification: Verification
    counters_ncu: dict[str, float] | None = None
    library_time: dict[str, Time] = field(default_factory=dict)
    instructions: InstructionCounters = field(default_factory=InstructionCounters)
    code: Code = field(default_factory=Code)
    cluster: Dim3 = NO_CLUSTER
    outputs: Outputs = field(
        default_factory=Outputs, compare=False, repr=False, metadata=NOT_RECORDED
    )
    stalls: dict[str, float] = field(default_factory=dict)
