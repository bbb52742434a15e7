"""What a device gives back for a launch: resources, counters, time, verification.

All figures are in base units with the unit in the name. Provenance is one word on
every time: `measured` (a GPU's clock) or `modelled` (the emulated device's model).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from memlab.kernels.launch import Dim3

Provenance = Literal["queried", "datasheet", "measured", "emulated", "modelled", "analytic"]
DeviceKind = Literal["emulated", "cuda"]

Progress: TypeAlias = Callable[[str, float | None], None]
"""Told what is being done, and which fraction of it is over, or None where that is not known."""

EVENT_PAIR_SHARE = 0.01
"""Of a time, from which on what two events take by themselves is worth knowing: other tools that
use events agree to about this much, and one that uses none lies further off."""

CLOCK_DRIFT_LIMIT = 0.03
"""SM clocks further than this from their median make a time suspect: as much as the DVFS steps
of a power-limited GPU, and more than the 1% that two measurements should agree to."""


def ignore_progress(what: str, fraction: float | None) -> None:
    """Tell nobody: progress that nobody asked for."""


@dataclass(frozen=True)
class Resources:
    """What the compiled kernel needs, read from the cubin's ELF.

    Attributes:
        registers_per_thread: 32-bit registers a thread.
        static_shared_bytes: `__shared__` arrays of fixed size, bytes a block.
        local_bytes_per_thread: Stack and spills, bytes a thread.
    """

    registers_per_thread: int
    static_shared_bytes: int
    local_bytes_per_thread: int


@dataclass(frozen=True)
class Occupancy:
    """How many blocks one multiprocessor holds at once, and what stops the next one.

    Attributes:
        blocks_per_sm: Resident blocks a multiprocessor.
        warps_per_sm: Resident warps a multiprocessor.
        theoretical: Resident warps over the most the device allows, 0 to 1.
        limiter: `blocks`, `warps`, `registers` or `shared memory`; several joined by ` and `
            when they bind together.
        limits: Blocks a multiprocessor that each resource alone would allow, by the same names.
    """

    blocks_per_sm: int
    warps_per_sm: int
    theoretical: float
    limiter: str
    limits: dict[str, int]


@dataclass(frozen=True)
class Coverage:
    """How much of the grid was executed to get the counters.

    Attributes:
        blocks_emulated: Blocks executed instruction by instruction.
        blocks_total: Blocks of the grid.
        estimated: Whether the counts are estimates: blocks that did not run may do otherwise than
            those that stand for them, since data or their index decides what they do.
        timed_out: Whether the time limit stopped it before as many ran as were meant to.
        not_counted: Why there are no counters at all, though the launch ran on a GPU; empty where
            there are.
        relative_standard_error: Of estimates: the standard error of the sectors of global memory,
            over their number, as the blocks of the sample differ; None where that is not known.
    """

    blocks_emulated: int
    blocks_total: int
    estimated: bool = False
    timed_out: bool = False
    not_counted: str = ""
    relative_standard_error: float | None = None

    @property
    def remark(self) -> str:
        """What a reader of the counts must know besides, in words; mostly nothing."""
        remarks = ["stopped at the time limit"] if self.timed_out else []
        if self.estimated:
            error = self.relative_standard_error
            size = "" if error is None else f" (standard error of sectors {100 * error:.2g}%)"
            remarks.append(f"estimates{size}, since blocks may differ by data or index")
        return "; ".join(remarks)


@dataclass(frozen=True)
class Counters:
    """Whole-grid totals, named and defined as Nsight Compute counts them.

    A request is one warp-level instruction; a sector is 32 bytes; a wavefront is one pass
    of the shared-memory pipe, excessive ones being those beyond the ideal for the width.
    `global_atomic_*` are atomics that give their old value back, `global_reduction_*` those whose
    value nobody reads: ptxas makes them another instruction (RED), and Nsight Compute counts them
    apart. `l1_wavefronts` are passes through the port of L1 and shared memory: the wavefronts of
    shared accesses, and a pass for each 128-byte line of a global or local request.
    `flop_tensor_*` are those of `mma` by the type of its factors; Nsight Compute counts them as
    operations of the tensor pipe.
    `requested_*` is what the threads asked for, each lane its own bytes: the textbook's
    global memory accesses. `*_used_bytes` are the bytes of a request, those that several lanes
    ask for counted once, and `*_lines` the 128-byte lines that they lie in. A pass is one
    address that the constant cache serves to a warp; constants whose place the compiler knows
    are operands, not loads.
    """

    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    shared_load_instructions: int = 0
    shared_load_wavefronts: int = 0
    shared_store_instructions: int = 0
    shared_store_wavefronts: int = 0
    shared_excessive_wavefronts: int = 0
    local_load_sectors: int = 0
    local_store_sectors: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    global_reduction_requests: int = 0
    global_reduction_sectors: int = 0
    shared_atomic_instructions: int = 0
    shared_atomic_wavefronts: int = 0
    l1_wavefronts: int = 0
    l1_read_sector_hits: int = 0
    l2_read_sectors: int = 0
    l2_read_sector_hits: int = 0
    l2_write_sectors: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    requested_load_bytes: int = 0
    requested_store_bytes: int = 0
    requested_atomic_bytes: int = 0
    global_load_lines: int = 0
    global_load_used_bytes: int = 0
    global_store_lines: int = 0
    global_store_used_bytes: int = 0
    constant_load_requests: int = 0
    constant_load_passes: int = 0
    flop_fp32: int = 0
    flop_fp64: int = 0
    flop_tensor_tf32: int = 0
    flop_tensor_fp16: int = 0
    flop_tensor_bf16: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0


def total_global_atomic_sectors(counters: Counters) -> int:
    """Sectors of global atomics, whether their old value is read or not; the L2 does them all."""
    return counters.global_atomic_sectors + counters.global_reduction_sectors


def l2_written_sectors(counters: Counters) -> int:
    """Sectors that the L2 takes from the L1s: writes and atomics."""
    return counters.l2_write_sectors + total_global_atomic_sectors(counters)


def l1_l2_sectors(counters: Counters) -> int:
    """Sectors between the L1s and the L2, either way."""
    return counters.l2_read_sectors + l2_written_sectors(counters)


def flop_by_pipe(counters: Counters) -> dict[str, int]:
    """Give the FLOPs that each pipe executed, by the key of its peak.

    Returns:
        `fp32` and `fp64`, then those of the tensor cores' types that ran: `tf32`, `fp16`, `bf16`.
    """
    tensor = {
        "tf32": counters.flop_tensor_tf32,
        "fp16": counters.flop_tensor_fp16,
        "bf16": counters.flop_tensor_bf16,
    }
    return {
        "fp32": counters.flop_fp32,
        "fp64": counters.flop_fp64,
        **{pipe: flop for pipe, flop in tensor.items() if flop},
    }


@dataclass(frozen=True)
class LineCounters:
    """The counters of one source line, whole-grid totals.

    Attributes:
        line: Line number in the kernel's source, from 1; 0 where the compiler names none.
        text: The line as written.
        requested_bytes: Bytes of global memory that the threads ask for, each lane its own.
        local_sectors: Sectors of local memory, loads and stores together.
        constant_requests: Indexed loads of constant memory by warps.
        constant_passes: Addresses that the constant cache serves for them, one after another.
    """

    line: int
    text: str
    global_requests: int = 0
    global_sectors: int = 0
    global_lines: int = 0
    global_used_bytes: int = 0
    shared_instructions: int = 0
    shared_wavefronts: int = 0
    shared_excessive_wavefronts: int = 0
    flop: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0
    requested_bytes: int = 0
    local_requests: int = 0
    local_sectors: int = 0
    constant_requests: int = 0
    constant_passes: int = 0


@dataclass(frozen=True)
class AccessCounters:
    """What one source line does to one array in one direction.

    Attributes:
        space: `global`, `shared`, `local` or `constant`.
        direction: `load`, `store`, `atomic`, or `reduction`, an atomic whose result nobody reads.
        array: The array's name in the source; empty where it is not known.
        counters: The counters of these instructions alone.
    """

    space: str
    direction: str
    array: str
    counters: LineCounters


@dataclass(frozen=True)
class Region:
    """The part of a program that does its work: its loops, or all of it where they do none.

    Lessons take the ratio of arithmetic to memory accesses there, so that what is done once a
    thread, such as storing a sum, does not blur it.

    Attributes:
        flop: FLOPs executed in it, whole-grid total.
        requested_bytes: Bytes of global memory that its threads ask for, each lane its own.
        loops: Whether it is the loops alone.
    """

    flop: int
    requested_bytes: int
    loops: bool


@dataclass(frozen=True)
class Time:
    """How long one launch takes.

    Attributes:
        median_s: Median over the samples, or the model's value, seconds.
        provenance: `measured` or `modelled`.
        samples: How many launches were timed; 0 for a modelled time.
        minimum_s: Fastest sample, seconds.
        lower_quartile_s: First quartile, seconds.
        upper_quartile_s: Third quartile, seconds.
        bounds_s: For a modelled time, what each bound alone would take, seconds, by name.
        interval_low_s: Lower end of the median's 95% confidence interval, seconds; None where
            the samples are too few to have one.
        interval_high_s: Upper end of it, seconds.
        outliers: Samples outside Tukey's fences; they are counted, not removed.
        clock_hz: Median SM clock right after the samples, Hz.
        clock_drift: The furthest that a sample's clock lay from it, as a share of it.
        warm_samples: How many launches were timed with caches as the launch before left them;
            all other figures are of launches with emptied ones.
        warm_median_s: Their median, seconds.
        warm_lower_quartile_s: Their first quartile, seconds.
        warm_upper_quartile_s: Their third quartile, seconds.
        event_pair_s: What two CUDA events take with nothing between them, seconds: a part of all
            these times that a profiler's kernel duration does not hold.
        maximum_s: Slowest sample, seconds.
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


@dataclass(frozen=True)
class Verification:
    """The output against a float64 reference.

    Attributes:
        status: `passed`, `failed`, or `skipped` where there is nothing to compare with.
        relative_error: Largest elementwise relative error seen; None when skipped.
        tolerance: The largest that rounding explains.
        checked: Output elements compared.
        total: Output elements there are.
        worst: The element with this error in words, or what else is wrong.
        wrong: Elements whose error is beyond what rounding explains, or that were never written;
            0 too in failed runs that were stored before they were counted.
        unverified: The outputs of which no reference says anything, `scratch, flags`.
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
    """Which device a measurement comes from.

    Attributes:
        name: As CUDA gives it, e.g. `NVIDIA H200`.
        kind: `emulated` or `cuda`.
        compute_capability: Major and minor.
        key: What `--device` takes to get it again: a datasheet's name or `cuda:0`.
        uuid: What tells a GPU from all others; None where nobody said.
        driver: The version of its driver, `580.159.04`, or else the CUDA that this is for.
    """

    name: str
    kind: DeviceKind
    compute_capability: tuple[int, int]
    key: str
    uuid: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Measurement:
    """One launch on one device: everything that was found out about it.

    Attributes:
        counters_ncu: What Nsight Compute counted for the same launch, by the names of
            `Counters`, and its `duration_s`; None where it was not asked.
        library_time: How long the vendor's library took for the same work on the same GPU, by
            its name (`cublas`); empty where it was not asked.
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
