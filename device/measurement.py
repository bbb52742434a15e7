"""What a device gives back for a launch: resources, counters, time, verification.

All figures are in base units with the unit in the name. Provenance is one word on
every time: `measured` (a GPU's clock) or `modelled` (the emulated device's model).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memlab.kernels.launch import Dim3

Provenance = Literal["queried", "datasheet", "measured", "emulated", "modelled", "analytic"]
DeviceKind = Literal["emulated", "cuda"]


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
    """

    blocks_emulated: int
    blocks_total: int


@dataclass(frozen=True)
class Counters:
    """Whole-grid totals, named and defined as Nsight Compute counts them.

    A request is one warp-level instruction; a sector is 32 bytes; a wavefront is one pass
    of the shared-memory pipe, excessive ones being those beyond the ideal for the width.
    `requested_*` is what the threads asked for, each lane its own bytes: the textbook's
    global memory accesses.
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
    l1_read_sector_hits: int = 0
    l2_read_sectors: int = 0
    l2_read_sector_hits: int = 0
    l2_write_sectors: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    requested_load_bytes: int = 0
    requested_store_bytes: int = 0
    flop_fp32: int = 0
    flop_fp64: int = 0
    thread_instructions: int = 0
    warp_instructions: int = 0


@dataclass(frozen=True)
class LineCounters:
    """The counters of one source line, whole-grid totals.

    Attributes:
        line: Line number in the kernel's source, from 1; 0 where the compiler names none.
        text: The line as written.
    """

    line: int
    text: str
    global_requests: int = 0
    global_sectors: int = 0
    shared_instructions: int = 0
    shared_wavefronts: int = 0
    shared_excessive_wavefronts: int = 0
    flop: int = 0
    thread_instructions: int = 0


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
    """

    median_s: float
    provenance: Provenance
    samples: int = 0
    minimum_s: float | None = None
    lower_quartile_s: float | None = None
    upper_quartile_s: float | None = None
    bounds_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verification:
    """The output against a float64 reference.

    Attributes:
        status: `passed`, `failed`, or `skipped` where there is nothing to compare with.
        relative_error: Largest elementwise relative error seen; None when skipped.
        tolerance: The largest that rounding explains.
        checked: Output elements compared.
        total: Output elements there are.
    """

    status: Literal["passed", "failed", "skipped"]
    relative_error: float | None
    tolerance: float | None
    checked: int
    total: int


@dataclass(frozen=True)
class DeviceSummary:
    """Which device a measurement comes from.

    Attributes:
        name: As CUDA gives it, e.g. `NVIDIA H200`.
        kind: `emulated` or `cuda`.
        compute_capability: Major and minor.
        key: What `--device` takes to get it again: a datasheet's name or `cuda:0`.
    """

    name: str
    kind: DeviceKind
    compute_capability: tuple[int, int]
    key: str


@dataclass(frozen=True)
class Measurement:
    """One launch on one device: everything that was found out about it."""

    kernel: str
    parameters: dict[str, int]
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
