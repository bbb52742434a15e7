"""The properties of a device: one frozen record, queried from a GPU or read from a datasheet.

An unknown field is `None`; nothing is guessed. `sources` gives the origin of each known figure.
Figures that follow from several others are computed by the functions below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

from memlab.device.measurement import DeviceKind, DeviceSummary, Provenance
from memlab.presentation import Presentable

WARP_SIZE = 32
"""Threads per warp, on every GPU so far (CUDA C++ Programming Guide, "SIMT Architecture")."""

SECTOR_BYTES = 32
"""The unit that caches transfer and count, bytes (Nsight Compute, "Memory Tables")."""

LINE_BYTES = 128
"""The bytes that one tag of L1 or L2 stands for: four sectors (ibid.)."""

SHARED_BANKS = 32
"""Banks of shared memory (CUDA C++ Programming Guide, "Shared Memory")."""

SHARED_BANK_BYTES = 4
"""What one of them gives at a time, bytes (ibid.)."""

FLOP_PER_FMA = 2
"""A fused multiply-add counts as two floating-point operations."""

DATA_RATE = 2
"""Transfers per memory clock: DDR memories move data on both edges of the clock CUDA reports."""

CUDA_CORE_KINDS = ("fp32", "fp64", "fp16_fma", "bf16_fma")
"""Kinds of floating-point arithmetic with lanes in an SM; the other kinds are the tensor cores'."""

PEAK_KINDS = ("fp64", "fp32", "fp16_fma", "bf16_fma", "tf32", "fp16", "bf16", "fp8")
"""Kinds of floating-point arithmetic with a peak, the CUDA cores' first."""

INTEGER_KINDS = ("int_alu", "int_fma", "int_xu")
"""The pipes that execute integer instructions: logic, addition, shifts and comparisons; products;
and the counts of bits."""

EXPLAINING_BOUNDS = ("fp16_fma", "bf16_fma", *INTEGER_KINDS, "atomics", "runtime")
"""Bounds that explain a modelled time, and enter it as its least value only."""

_PIPES = {
    "fp16_fma": "fp16",
    "bf16_fma": "bf16",
    "int_alu": "alu",
    "int_fma": "imad",
    "int_xu": "popc",
}
"""The pipe in `pipe_lanes_per_clock_per_sm` of kinds that have no field of their own."""

HALVES_PER_LANE = 2
"""16-bit numbers that a lane computes with at once, as a pair."""

HALF_LANES_PER_CLOCK_PER_SM = {
    (7, 0): 64,
    (7, 2): 64,
    (7, 5): 64,
    (8, 0): 128,
    (8, 6): 64,
    (8, 7): 64,
    (8, 9): 64,
    (9, 0): 128,
}
"""Lanes of paired FP16 multiply-adds, by compute capability: half of the results per clock and SM
(CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions")."""

MACHINE_FIGURES = (
    "kernel_exec_timeout",
    "can_map_host_memory",
    "ecc_enabled",
    "unified_addressing",
    "managed_memory",
    "cooperative_multi_device_launch",
    "pci_domain_id",
    "pci_bus_id",
    "pci_device_id",
    "compute_mode",
    "driver_version",
    "runtime_version",
    "peer_access",
)
"""Properties that depend on the machine and its settings, so a datasheet's do not apply."""

PROVENANCE_WEAKEST_FIRST: tuple[Provenance, ...] = (
    "modelled",
    "emulated",
    "analytic",
    "measured",
    "datasheet",
    "queried",
)
"""Provenances, from the least to the most reliable."""

BYTES_PER_VALUE = 4
"""Bytes of the single-precision value that the textbook's ratio counts accesses of."""


@dataclass(frozen=True, repr=False)
class DeviceProperties(Presentable):
    """The figures of one GPU.

    Attributes named `max_*` are limits. Rates are in Hz, sizes in bytes, latencies in SM clocks.
    `*_bytes_per_clock_per_sm` and latencies describe the microarchitecture for the time model.
    Fields that CUDA has as device attributes are named after them, in lower case and with a unit.

    Attributes:
        sources: The source of each known figure, by field: a provenance (`queried`, `datasheet`,
            `measured`, `analytic`), a colon, and the exact origin.
        uuid: The identifier of this GPU, independent of its index.
        driver_release: The release of NVIDIA's driver; `driver_version` is the CUDA version that it
            supports.
        peer_access: For every other GPU, by its `--device` name, whether this GPU can access its
            memory directly.
        peak_memory_bandwidth_bytes_per_s: The vendor's figure; None if it follows from the memory
            clock and the bus width.
        peak_clock_hz: The clock that peaks assume, if it is not `clock_rate_hz`.
        tensor_flop_per_s: Dense peaks of the tensor cores by input type, `tf32`, `fp16`, `bf16`,
            `fp8`.
        tensor_clock_hz: The clock that `tensor_flop_per_s` assumes.
        tensor_load_clock_hz: The SM clock while the tensor cores do nothing but products of
            warpgroups, on random data.
        tensor_load_settling_s: The time constant with which the clock falls.
        tensor_type_loads: How far products of warpgroups lower the clock, by input type: the
            share of what those in BF16 do; 1 for a type that is not given.
        l1_cache_bytes_per_sm: The unified memory that L1 and shared memory divide between them.
        constant_passes_per_clock_per_sm: Addresses that the constant cache serves, of one word.
        l2_bytes_per_clock: Bytes that the whole L2 reads per SM clock.
        l2_write_bytes_per_clock: Bytes that the whole L2 writes per SM clock; None if unknown.
        blocks_per_clock: Blocks that the device starts per SM clock.
        shortest_kernel_s: The time of an empty kernel, as a profiler measures it.
        store_completion_s: How much longer than its instructions a kernel takes that stores to
            global memory: until the stores are complete.
        dram_access_bytes: Bytes that DRAM reads for one missed 32-byte sector.
        gpcs_by_sms: How many groups of SMs there are in which a cluster can lie, by their SMs.
        dram_launch_bytes: Bytes that a launch reads from DRAM besides its machine code and what its
            threads access, with cold caches: parameters and descriptors; 0 if unknown.
        register_latency_clocks: From an FMA to a dependent FMA.
        dram_achievable_fraction: The bandwidth of a plain read as a fraction of the peak.
        issue_slots_per_clock_per_sm: Warp instructions that an SM issues per clock.
        pipe_lanes_per_clock_per_sm: Lanes that an SM serves per clock, by pipe: `fma` (FP32), `alu`
            (logic, integer add, compare), `imad`, `fp64`, `fp16` and `bf16` (paired
            multiply-adds), `mufu`, `f2i` and `i2f` (conversions), `popc`, `shuffle`, `redux` and
            `lsu` (32-bit shared loads), `ldg` (32-bit global loads that hit the L1).
            32 is a warp instruction per clock. The width of the pipe,
            which a loop that also counts and branches only approaches.
        pipe_latency_clocks: From an instruction to one that depends on it, by the same pipes, as
            the compiler arranges them: `fp16` alternates between two pipes, `redux` includes the
            move of its result.
        mma_flop_per_clock_per_sm: Dense FLOP of `mma.sync`, by input type.
        mma_latency_clocks: From an `mma.sync` to one that adds to its result, by input type, of the
            shapes m16n8k16 (`fp16`, `bf16`), m16n8k8 (`tf32`) and m8n8k4 (`fp64`).
        l1_lines_per_clock_per_sm: Distinct lines of one request that the L1 looks up per clock.
        l2_far_latency_clocks: The latency of the L2's half that `l2_latency_clocks` is not of.
        l2_latency_by_sectors_clocks: From a warp's load to its last sector, by the number of
            sectors that it reads, all in the L2, at random addresses.
        l2_random_sectors_per_clock: Single sectors at random places that the L2 reads for all SMs.
        l2_latency_deviation_clocks: The standard deviation of the latency of single random hits of
            one half of the L2, whose slices are not equally far.
        l2_port_bytes_per_clock_per_sm: Bytes that one SM alone reads from the L2.
        l2_port_write_bytes_per_clock_per_sm: Bytes that one SM alone writes to the L2.
        l1_queued_store_lines: Lines of stores that wait in an SM for the port to the L2. Stores
            to their sectors leave with them.
        uniform_constant_lines: Lines of 64 bytes of constant memory that a sub-core keeps for loads
            whose index is in a uniform register.
        constant_miss_clocks: Clocks that such a load waits for another line.
        constant_lines_per_clock: Such lines that all SMs together get.
        l2_bytes_per_clock_by_sms: Bytes that so many SMs together read from the L2.
        l2_copy_bytes_per_clock: Bytes read plus bytes written in the L2, of a copy.
        l2_partitions: Parts of the L2, each of which caches what the SMs connected to it read; 1 if
            unknown.
        l2_merged_reads_by_sms: How many reads of the L1s the L2's request coalescer makes one,
            where so many SMs read the same data at one pace, without waiting for one another.
        l2_merged_later_reads: The same of the waves behind the first one, where neighbouring blocks
            read the same tiles and wait at barriers, by "blocks per SM x waves x neighbours".
        l2_merging_sms: How many groups of SMs there are whose reads that coalescer merges, by their
            SMs.
        l2_most_merged_copies: How many reads of bulk copies it makes one at most.
        l2_merged_apart_share: The share of what it merges of blocks in step that it merges of
            those that have stored results, after which they go their own ways.
        l2_merged_later_copies_share: The same of blocks of later waves, each of which starts where
            another one has ended.
        l2_coalescer_clocks: From an SM to that coalescer and back, of `l2_latency_clocks`. A read
            can be joined until its data is back there.
        pace_deviation: The standard deviation of the time in which a block does the same work
            beside one other on its SM, over that time.
        dram_latency_by_sectors_clocks: As `l2_latency_by_sectors_clocks`, all missing the L2.
        dram_latency_quantiles_clocks: The latency of a single random miss below which a share of
            them lies: `p05`, `p25`, `p50`, `p75`, `p95`, `p99`.
        dram_latency_deviation_clocks: The standard deviation of the same latency.
        dram_bytes_per_s_by_sms: Bytes that so many SMs together read from DRAM.
        dram_write_fraction: The bandwidth of a plain write as a fraction of the peak.
        dram_copy_fraction: The bandwidth of a copy, read and written, as a fraction of the peak.
        dram_queue_clocks: How long reads of DRAM wait for others: the service time of a queue with
            random arrivals and constant service (M/D/1) whose mean wait they have.
        dram_turnaround_clocks: How long they wait besides where a third or more of the traffic is
            written, in the mean and at full load; less in proportion.
        dram_random_fraction: Bytes that DRAM moves for reads of single random sectors
            (`dram_access_bytes` each), as a fraction of the peak.
        global_atomic_latency_clocks: From an atomic to the value that it returns.
        global_atomic_same_address_s: The interval of integer additions to one address, by one lane
            per warp, whose results are not used.
        global_atomic_same_address_float_s: The same of additions of `float`.
        global_atomic_same_address_warp_s: The same of warps, all lanes of which add to the address.
        global_atomics_per_clock: Lanes that the device serves, each in a sector of its own.
        global_atomics_coalesced_per_clock: The same, the lanes of a warp on consecutive words.
        shared_atomic_latency_clocks: From an integer atomic in shared memory to its value.
        shared_atomic_lanes_per_clock_per_sm: Lanes served, each in a bank of its own.
        shared_atomic_same_address_clocks: Clocks per lane of warps that all add to one word.
        block_start_clocks_by_threads: SM clocks from the start of one block to that of the next, of
            a grid of empty blocks over the whole device, by threads per block.
        block_turnaround_clocks: From the end of a block to the start of the block that replaces it,
            where no other block is on the SM and the first one has no stores under way.
        warp_start_clocks: From the start of one warp of a block to that of its next warp.
        barrier_latency_by_warps_clocks: `__syncthreads()`, by warps of the block.
        constant_latency_by_footprint_clocks: Dependent loads of constant memory that reach over so
            many bytes again and again.
        cold_code_bytes_per_clock: Bytes of straight-line code, of up to 32 KiB, that a warp of a
            new kernel executes for the first time.
        code_clocks_per_instruction_by_bytes: Clocks per instruction of one warp in a loop of so
            many bytes of code, after the first trip.
    """

    name: str
    compute_capability: tuple[int, int]
    sources: Mapping[str, str] = field(default_factory=dict)

    # From cuDeviceGetAttribute and cuDeviceTotalMem.
    total_memory_bytes: int | None = None
    multiprocessor_count: int | None = None
    clock_rate_hz: int | None = None
    memory_clock_rate_hz: int | None = None
    global_memory_bus_width_bits: int | None = None
    l2_cache_bytes: int | None = None
    max_texture1d_width: int | None = None
    max_texture2d_width: int | None = None
    max_texture2d_height: int | None = None
    max_texture3d_width: int | None = None
    max_texture3d_height: int | None = None
    max_texture3d_depth: int | None = None
    max_texture1d_layered_width: int | None = None
    max_texture1d_layered_layers: int | None = None
    max_texture2d_layered_width: int | None = None
    max_texture2d_layered_height: int | None = None
    max_texture2d_layered_layers: int | None = None
    total_constant_memory_bytes: int | None = None
    max_shared_memory_per_block_bytes: int | None = None
    max_shared_memory_per_block_optin_bytes: int | None = None
    max_shared_memory_per_multiprocessor_bytes: int | None = None
    reserved_shared_memory_per_block_bytes: int | None = None
    max_registers_per_block: int | None = None
    max_registers_per_multiprocessor: int | None = None
    warp_size: int = 32
    max_threads_per_multiprocessor: int | None = None
    max_threads_per_block: int | None = None
    max_blocks_per_multiprocessor: int | None = None
    max_block_dim: tuple[int, int, int] | None = None
    max_grid_dim: tuple[int, int, int] | None = None
    max_pitch_bytes: int | None = None
    texture_alignment_bytes: int | None = None
    async_engine_count: int | None = None
    kernel_exec_timeout: bool | None = None
    integrated: bool | None = None
    can_map_host_memory: bool | None = None
    surface_alignment_bytes: int | None = None
    ecc_enabled: bool | None = None
    unified_addressing: bool | None = None
    managed_memory: bool | None = None
    compute_preemption_supported: bool | None = None
    cooperative_launch: bool | None = None
    cooperative_multi_device_launch: bool | None = None
    pci_domain_id: int | None = None
    pci_bus_id: int | None = None
    pci_device_id: int | None = None
    compute_mode: int | None = None
    uuid: str | None = None
    driver_release: str | None = None
    driver_version: str | None = None
    runtime_version: str | None = None
    peer_access: Mapping[str, bool] = field(default_factory=dict)

    # From the vendor's datasheet and published microbenchmarks.
    peak_memory_bandwidth_bytes_per_s: float | None = None
    peak_clock_hz: float | None = None
    fp32_lanes_per_sm: int | None = None
    fp64_lanes_per_sm: int | None = None
    tensor_flop_per_s: Mapping[str, float] = field(default_factory=dict)
    tensor_clock_hz: float | None = None
    tensor_load_clock_hz: float | None = None
    tensor_load_settling_s: float | None = None
    tensor_type_loads: Mapping[str, float] = field(default_factory=dict)
    l1_cache_bytes_per_sm: int | None = None
    l1_bytes_per_clock_per_sm: float | None = None
    shared_bytes_per_clock_per_sm: float | None = None
    constant_passes_per_clock_per_sm: float | None = None
    l2_bytes_per_clock: float | None = None
    l2_write_bytes_per_clock: float | None = None
    dram_access_bytes: int | None = None
    gpcs_by_sms: Mapping[str, float] = field(default_factory=dict)
    dram_launch_bytes: int | None = None
    blocks_per_clock: float | None = None
    shortest_kernel_s: float | None = None
    register_latency_clocks: float | None = None
    shared_latency_clocks: float | None = None
    constant_latency_clocks: float | None = None
    l1_latency_clocks: float | None = None
    l2_latency_clocks: float | None = None
    dram_latency_clocks: float | None = None
    barrier_latency_clocks: float | None = None
    dram_achievable_fraction: float | None = None

    # From `memlab calibrate`; tables are by pipe, by input type, or by the number in their names.
    issue_slots_per_clock_per_sm: float | None = None
    pipe_lanes_per_clock_per_sm: Mapping[str, float] = field(default_factory=dict)
    pipe_latency_clocks: Mapping[str, float] = field(default_factory=dict)
    mma_flop_per_clock_per_sm: Mapping[str, float] = field(default_factory=dict)
    mma_latency_clocks: Mapping[str, float] = field(default_factory=dict)
    l1_lines_per_clock_per_sm: float | None = None
    l2_far_latency_clocks: float | None = None
    l2_latency_by_sectors_clocks: Mapping[str, float] = field(default_factory=dict)
    l2_random_sectors_per_clock: float | None = None
    l2_latency_deviation_clocks: float | None = None
    l2_port_bytes_per_clock_per_sm: float | None = None
    l2_port_write_bytes_per_clock_per_sm: float | None = None
    l1_queued_store_lines: float | None = None
    uniform_constant_lines: int | None = None
    constant_miss_clocks: float | None = None
    constant_lines_per_clock: float | None = None
    l2_bytes_per_clock_by_sms: Mapping[str, float] = field(default_factory=dict)
    l2_copy_bytes_per_clock: float | None = None
    l2_partitions: int | None = None
    l2_merged_reads_by_sms: Mapping[str, float] = field(default_factory=dict)
    l2_merged_later_reads: Mapping[str, float] = field(default_factory=dict)
    l2_merging_sms: Mapping[str, float] = field(default_factory=dict)
    l2_most_merged_copies: int | None = None
    l2_merged_apart_share: float | None = None
    l2_merged_later_copies_share: float | None = None
    l2_coalescer_clocks: float | None = None
    pace_deviation: float | None = None
    dram_latency_by_sectors_clocks: Mapping[str, float] = field(default_factory=dict)
    dram_latency_quantiles_clocks: Mapping[str, float] = field(default_factory=dict)
    dram_latency_deviation_clocks: float | None = None
    dram_bytes_per_s_by_sms: Mapping[str, float] = field(default_factory=dict)
    dram_write_fraction: float | None = None
    dram_copy_fraction: float | None = None
    dram_queue_clocks: float | None = None
    store_completion_s: float | None = None
    dram_turnaround_clocks: float | None = None
    dram_random_fraction: float | None = None
    global_atomic_latency_clocks: float | None = None
    global_atomic_same_address_s: float | None = None
    global_atomic_same_address_float_s: float | None = None
    global_atomic_same_address_warp_s: float | None = None
    global_atomics_per_clock: float | None = None
    global_atomics_coalesced_per_clock: float | None = None
    shared_atomic_latency_clocks: float | None = None
    shared_atomic_lanes_per_clock_per_sm: float | None = None
    shared_atomic_same_address_clocks: float | None = None
    block_start_clocks_by_threads: Mapping[str, float] = field(default_factory=dict)
    block_turnaround_clocks: float | None = None
    warp_start_clocks: float | None = None
    barrier_latency_by_warps_clocks: Mapping[str, float] = field(default_factory=dict)
    constant_latency_by_footprint_clocks: Mapping[str, float] = field(default_factory=dict)
    cold_code_bytes_per_clock: float | None = None
    code_clocks_per_instruction_by_bytes: Mapping[str, float] = field(default_factory=dict)


_FIELD_NAMES = [item.name for item in fields(DeviceProperties)]
CALIBRATED_FIGURES = tuple(_FIELD_NAMES[_FIELD_NAMES.index("issue_slots_per_clock_per_sm") :])
"""Figures of the time model that `memlab calibrate` measures and most datasheets lack."""


def known_figures(properties: DeviceProperties) -> dict[str, object]:
    """Every known figure by its field, in the order of the fields."""
    named = ((item.name, getattr(properties, item.name)) for item in fields(properties))
    return {
        name: value
        for name, value in named
        if name not in ("name", "sources") and value is not None and value != {}
    }


def device_summary(properties: DeviceProperties, kind: DeviceKind, key: str) -> DeviceSummary:
    """The part of a device's properties that is kept in results.

    Args:
        properties: The device.
        kind: Whether the device is emulated or a real GPU.
        key: The device's name for `--device`.
    """
    summary = DeviceSummary(properties.name, kind, properties.compute_capability, key)
    if kind != "cuda":  # the driver in a datasheet is another machine's
        return summary
    cuda = properties.driver_version
    driver = properties.driver_release or (f"CUDA {cuda}" if cuda else None)
    return replace(summary, uuid=properties.uuid, driver=driver)


def provenance(properties: DeviceProperties, *names: str) -> Provenance:
    """The provenance of a figure.

    Args:
        properties: The device.
        names: The field, or the fields that a derived figure is computed from.

    Returns:
        The first word of the fields' sources. If these differ, the least reliable one, since a
        product is no more reliable than its factors: `queried` only if the driver gave all of
        them, `datasheet` only if none was measured or computed. A figure without a source, as in
        properties made by hand, counts as `datasheet`.
    """
    sources = (properties.sources.get(name, "datasheet") for name in names)
    words = {source.partition(":")[0] for source in sources}
    return next(word for word in PROVENANCE_WEAKEST_FIRST if word in words)


def bandwidth_figures(properties: DeviceProperties) -> tuple[str, ...]:
    """The fields that `peak_bandwidth_bytes_per_s` is computed from."""
    if properties.peak_memory_bandwidth_bytes_per_s is not None:
        return ("peak_memory_bandwidth_bytes_per_s",)
    return ("memory_clock_rate_hz", "global_memory_bus_width_bits")


def peak_figures(properties: DeviceProperties, kind: str) -> tuple[str, ...]:
    """The fields that `peak_flop_per_s` is computed from, for the same `kind`."""
    if kind not in (*CUDA_CORE_KINDS, *INTEGER_KINDS):
        return ("tensor_flop_per_s",)
    lanes = "pipe_lanes_per_clock_per_sm" if kind in _PIPES else f"{kind}_lanes_per_sm"
    return (lanes, "multiprocessor_count", clock_figure(properties))


def clock_figure(properties: DeviceProperties) -> str:
    """The field that `clock_hz` returns."""
    return "clock_rate_hz" if properties.peak_clock_hz is None else "peak_clock_hz"


def clock_hz(properties: DeviceProperties) -> float | None:
    """The SM clock that peaks assume, in Hz: the highest that the device reports."""
    return properties.peak_clock_hz or properties.clock_rate_hz


def clock_of_peak_hz(properties: DeviceProperties, kind: str) -> float | None:
    """The clock at which `peak_flop_per_s` holds for the same `kind`, in Hz."""
    on_cores = kind in (*CUDA_CORE_KINDS, *INTEGER_KINDS)
    return clock_hz(properties) if on_cores else properties.tensor_clock_hz


def peak_bandwidth_bytes_per_s(properties: DeviceProperties) -> float | None:
    """The peak bandwidth of the device's memory.

    2 x memory clock x bus width / 8, as CUDA's documentation defines it (CUDA C++ Best
    Practices Guide, "Theoretical Bandwidth Calculation").

    Returns:
        Bytes per second; None if the clock or the bus width is unknown.
    """
    if properties.peak_memory_bandwidth_bytes_per_s is not None:
        return properties.peak_memory_bandwidth_bytes_per_s
    clock, width_bits = properties.memory_clock_rate_hz, properties.global_memory_bus_width_bits
    return None if clock is None or width_bits is None else DATA_RATE * clock * width_bits / 8


def peak_flop_per_s(properties: DeviceProperties, kind: str) -> float | None:
    """The peak rate of floating-point arithmetic.

    For the CUDA cores: 2 x lanes x SMs x clock, one FMA per lane and clock; of FP16 and BF16 one
    pair of FMAs. For the tensor cores: the vendor's dense figure.

    Args:
        properties: The device.
        kind: `fp32`, `fp64`, `fp16_fma` or `bf16_fma` for the CUDA cores, `tf32`, `fp16`, `bf16` or
            `fp8` for the tensor cores.

    Returns:
        FLOP per second at `clock_of_peak_hz`; None if a factor is unknown.
    """
    if kind not in CUDA_CORE_KINDS:
        return properties.tensor_flop_per_s.get(kind)
    lanes = _lanes_per_s(properties, kind)
    halves = HALVES_PER_LANE if kind in _PIPES else 1
    return None if lanes is None else float(FLOP_PER_FMA * halves * lanes)


def peak_integer_op_per_s(properties: DeviceProperties, kind: str) -> float | None:
    """The peak rate of a pipe's 32-bit integer instructions: lanes x SMs x clock.

    Args:
        properties: The device.
        kind: One of `INTEGER_KINDS`.

    Returns:
        Instructions of threads per second; None if a factor is unknown.
    """
    return _lanes_per_s(properties, kind)


def _lanes_per_s(properties: DeviceProperties, kind: str) -> float | None:
    """Lanes that the CUDA cores of the whole device serve per second; None if unknown."""
    lanes: float | None
    if kind in _PIPES:
        lanes = properties.pipe_lanes_per_clock_per_sm.get(_PIPES[kind])
        if lanes is None and kind == "fp16_fma":
            lanes = HALF_LANES_PER_CLOCK_PER_SM.get(properties.compute_capability)
    else:
        lanes = properties.fp32_lanes_per_sm if kind == "fp32" else properties.fp64_lanes_per_sm
    count, clock = properties.multiprocessor_count, clock_hz(properties)
    return None if lanes is None or count is None or clock is None else lanes * count * clock


def ridge_flop_per_byte(properties: DeviceProperties, kind: str) -> float | None:
    """The ridge point: the arithmetic intensity at which the two ceilings meet.

    Args:
        properties: The device.
        kind: As for `peak_flop_per_s`.

    Returns:
        FLOP per byte of DRAM traffic (Williams et al. 2009, "Roofline"); None if unknown.
    """
    peak, bandwidth = peak_flop_per_s(properties, kind), peak_bandwidth_bytes_per_s(properties)
    return None if peak is None or bandwidth is None else peak / bandwidth


def required_compute_to_global_access_ratio(properties: DeviceProperties) -> float | None:
    """The textbook's ratio: FP32 operations needed per global memory access to reach the peak.

    Peak FP32 over the single-precision values that memory delivers per second (Kirk and Hwu,
    "Programming Massively Parallel Processors", 3rd edition, section 4.1).

    Returns:
        FLOP per access of 4 bytes; None if a factor is unknown.
    """
    ridge = ridge_flop_per_byte(properties, "fp32")
    return None if ridge is None else ridge * BYTES_PER_VALUE


def figure_at(table: Mapping[str, float], at: float) -> float | None:
    """A figure that depends on a number, such as `barrier_latency_by_warps_clocks` at 8 warps.

    Args:
        table: Figures by that number.
        at: The number; between two known ones the figure is interpolated linearly, beyond them it
            is that of the nearest.

    Returns:
        The figure; None if the table is empty.
    """
    known = sorted((float(number), value) for number, value in table.items())
    if not known:
        return None
    for (low, first), (high, second) in pairwise(known):
        if low <= at <= high:
            return first + (second - first) * (at - low) / (high - low)
    return known[0][1] if at < known[0][0] else known[-1][1]


def version_text(numbers: tuple[int, int]) -> str:
    """A compute capability or a version as text: `9.0`."""
    return f"{numbers[0]}.{numbers[1]}"


def architecture_name(compute_capability: tuple[int, int]) -> str:
    """The architecture of a compute capability as NVIDIA's compilers name it: `sm_90`."""
    major, minor = compute_capability
    return f"sm_{major}{minor}"
