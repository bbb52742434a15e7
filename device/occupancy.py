"""Occupancy: the resident blocks of an SM, and the resource that limits them.

NVIDIA's published allocation rules, for compute capability 7.5 to 12.x: the CUDA C++
Programming Guide ("Technical Specifications per Compute Capability"), Nsight Compute's
occupancy calculator and `cuda_occupancy.h` of the CUDA Toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memlab.device.measurement import Occupancy
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.measurement import Resources
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Launch

SUB_PARTITIONS = 4
"""Parts of an SM with a warp scheduler and a register file of their own (`cuda_occupancy.h`,
compute capability 7.x and up)."""

REGISTERS_PER_ALLOCATION = 256
"""Registers are allocated to a warp in this unit (`cuda_occupancy.h`)."""

MAX_REGISTERS_PER_THREAD = 255
"""CUDA C++ Programming Guide, all compute capabilities from 3.5."""

KIB = 1024

BLOCK_RESOURCES = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
"""The fields of `BlockRequirements`, which thresholds and curves are computed for."""

CARVEOUTS_KIB = {
    (7, 5): (32, 64),
    (8, 0): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 6): (0, 8, 16, 32, 64, 100),
    (8, 7): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 9): (0, 8, 16, 32, 64, 100),
    (9, 0): (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    (12, 0): (0, 8, 16, 32, 64, 100),
}
"""Possible sizes of shared memory within the unified L1, in KiB, by the compute capability from
which they hold (CUDA C++ Programming Guide, "Compute Capabilities", section "Shared Memory")."""

# The driver's choice among these sizes is not documented. The constants below reproduce what Nsight
# Compute reported on an H200 (driver 580): 490 of 491 choices, over blocks of 16 to 1024 threads
# with 16 to 228 registers per thread and 0 to 227 KiB of shared memory.
SPARE_FACTOR = 2
"""The driver makes room for this many times the blocks that fit otherwise ..."""

SPARE_MAX_BLOCK_WARPS = 28
"""... for blocks of up to this many warps, if more than one fits ..."""

SPARE_MAX_SHARE = 0.5
"""... without going beyond the first size that is this share of the largest."""

CARVEOUT_WITHOUT_SHARED_KIB = ((12, 32), (22, 16), (32, 8))
"""For kernels that use no shared memory: the largest block in warps, and the carve-out in KiB."""


@dataclass(frozen=True)
class BlockRequirements:
    """The resources that one block requests.

    Attributes:
        threads_per_block: Threads.
        registers_per_thread: 32-bit registers per thread, as the compiler reports them.
        shared_bytes_per_block: Static and dynamic shared memory in bytes, without the system's
            reserved part.
    """

    threads_per_block: int
    registers_per_thread: int
    shared_bytes_per_block: int


@dataclass(frozen=True)
class BlockAllocation:
    """The resources that one block is allocated: its requirements, rounded up to hardware units.

    Attributes:
        warps_per_block: Whole warps.
        registers_per_warp: Registers, a multiple of `REGISTERS_PER_ALLOCATION`.
        shared_bytes_per_block: Bytes, including the system's reserved part of the block.
        carveout_bytes: Shared memory's part of the unified L1 of an SM, in bytes.
    """

    warps_per_block: int
    registers_per_warp: int
    shared_bytes_per_block: int
    carveout_bytes: int


def block_requirements(launch: Launch, resources: Resources) -> BlockRequirements:
    """Return the resources that a block requests, from its launch and its compiled kernel.

    Registers that are unknown count as one per thread, which never limits occupancy.
    """
    return BlockRequirements(
        launch.threads_per_block,
        resources.registers_per_thread or 1,
        resources.static_shared_bytes + launch.dynamic_shared_bytes,
    )


def compute_occupancy(
    properties: DeviceProperties, block: BlockRequirements, cluster_blocks: int = 1
) -> Occupancy:
    """Compute how many blocks one SM holds, and how many clusters the device.

    Args:
        properties: The device.
        block: What a block requests.
        cluster_blocks: Blocks of a cluster; 1 where blocks form none.

    Returns:
        Resident blocks and warps, the limiter, and the blocks that each resource alone would allow.
        The limit by shared memory is that of the driver's carve-out, as Nsight Compute shows it;
        where a larger carve-out would hold more blocks, the driver takes that one.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: A limit of the device is unknown.
    """
    allocation = block_allocation(properties, block)
    limits = _limits_without_shared(
        properties, allocation.warps_per_block, allocation.registers_per_warp
    )
    shared = allocation.shared_bytes_per_block
    limits["shared memory"] = allocation.carveout_bytes // shared if shared else limits["blocks"]
    blocks = min(limits.values())
    warps = blocks * allocation.warps_per_block
    clusters = None
    if cluster_blocks > 1 and properties.multiprocessor_count is not None:
        clusters = resident_blocks(properties, blocks, cluster_blocks) // cluster_blocks
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=warps,
        theoretical=warps / max_warps(properties),
        limiter=" and ".join(name for name, limit in limits.items() if limit == blocks),
        limits=limits,
        active_clusters=clusters,
    )


def resident_blocks(properties: DeviceProperties, blocks_per_sm: int, cluster_blocks: int) -> int:
    """The blocks that a device holds at once.

    A cluster lies in one group of SMs (`gpcs_by_sms`) that has at least as many SMs as the cluster
    has blocks; so `cudaOccupancyMaxActiveClusters` of an H200 counts. Where the groups are unknown,
    the whole device counts as one.

    Args:
        properties: The device, with a known number of multiprocessors.
        blocks_per_sm: Blocks that an SM holds.
        cluster_blocks: Blocks of a cluster; 1 where blocks form none.
    """
    count = properties.multiprocessor_count or 0
    groups = properties.gpcs_by_sms if cluster_blocks > 1 else {}
    clusters = sum(
        int(number) * (int(sms) * blocks_per_sm // cluster_blocks)
        for sms, number in (groups or {str(count): 1}).items()
        if int(sms) >= cluster_blocks
    )
    return clusters * cluster_blocks


def check_all_resident(launch: Launch, properties: DeviceProperties, resident: Occupancy) -> None:
    """Refuse a grid whose blocks wait for each other, and are not all resident at once.

    Raises:
        UsageError: The device holds fewer blocks than the grid has; not where it is unknown how
            many multiprocessors the device has.
    """
    if properties.multiprocessor_count is None:
        return
    most = resident_blocks(properties, resident.blocks_per_sm, launch.cluster_blocks)
    if launch.blocks > most:
        raise UsageError(
            f"the blocks of {launch.kernel} wait for the whole grid, so all must be resident: "
            f"{properties.name} holds at most {most} of them, got {launch.blocks}: use --grid "
            f"{most}, and let each thread do the work of several"
        )


def block_allocation(properties: DeviceProperties, block: BlockRequirements) -> BlockAllocation:
    """Round the requirements of a block up to hardware units, and predict the carve-out.

    The carve-out rule is measured on compute capability 9.0 and assumed for the others. The rest of
    `l1_cache_bytes_per_sm` caches global memory.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: A limit of the device is unknown.
    """
    warps = -(-block.threads_per_block // properties.warp_size)
    registers = _round_up(
        block.registers_per_thread * properties.warp_size, REGISTERS_PER_ALLOCATION
    )
    _check_block(properties, block, warps, registers)
    reserved = properties.reserved_shared_memory_per_block_bytes
    if reserved is None:
        # CUDA C++ Programming Guide, "Shared Memory", 8.x
        reserved = 1024 if properties.compute_capability >= (8, 0) else 0
    shared = _round_up(block.shared_bytes_per_block + reserved, shared_unit_bytes(properties))

    sizes = _carveout_sizes(properties)
    limits = _limits_without_shared(properties, warps, registers)
    blocks = min(sizes[-1] // shared if shared else limits["blocks"], *limits.values())
    needed = blocks * shared
    if not block.shared_bytes_per_block:
        usual = [size for most, size in CARVEOUT_WITHOUT_SHARED_KIB if warps <= most]
        needed = max(needed, KIB * (usual[0] if blocks > 1 else usual[-1]))
    elif blocks > 1 and warps <= SPARE_MAX_BLOCK_WARPS:
        roomy = min(SPARE_FACTOR * blocks, limits["blocks"]) * shared
        share = next(size for size in sizes if size >= SPARE_MAX_SHARE * sizes[-1])
        needed = max(needed, min(roomy, share))
    carveout = next(size for size in sizes if size >= needed)
    return BlockAllocation(warps, registers, shared, carveout)


def resource_limits(properties: DeviceProperties) -> Mapping[str, tuple[int, int]]:
    """Return the least and greatest value of every resource in `BLOCK_RESOURCES`, in its unit.

    Raises:
        DeviceError: A limit of the device is unknown.
    """
    shared = properties.max_shared_memory_per_block_optin_bytes or _required_figure(
        properties, "max_shared_memory_per_block_bytes"
    )
    return {
        "threads_per_block": (1, _required_figure(properties, "max_threads_per_block")),
        "registers_per_thread": (1, MAX_REGISTERS_PER_THREAD),
        "shared_bytes_per_block": (0, shared),
    }


def max_warps(properties: DeviceProperties) -> int:
    """Return the greatest number of resident warps per SM.

    Raises:
        DeviceError: It is unknown.
    """
    return _required_figure(properties, "max_threads_per_multiprocessor") // properties.warp_size


def max_registers(properties: DeviceProperties) -> int:
    """Return the number of 32-bit registers per SM.

    Raises:
        DeviceError: It is unknown.
    """
    return _required_figure(properties, "max_registers_per_multiprocessor")


def shared_unit_bytes(properties: DeviceProperties) -> int:
    """Return the allocation unit of shared memory in bytes (`cuda_occupancy.h`)."""
    return 128 if properties.compute_capability >= (8, 0) else 256


def _limits_without_shared(
    properties: DeviceProperties, warps_per_block: int, registers_per_warp: int
) -> dict[str, int]:
    """Return the blocks per SM that block slots, warp slots and registers allow, each alone."""
    most_warps = max_warps(properties)
    # A warp's registers are all in one sub-partition, so the remainder of each one is lost.
    registers = max_registers(properties) // SUB_PARTITIONS
    warps = registers // registers_per_warp * SUB_PARTITIONS if registers_per_warp else most_warps
    return {
        "blocks": _required_figure(properties, "max_blocks_per_multiprocessor"),
        "warps": most_warps // warps_per_block,
        "registers": warps // warps_per_block,
    }


def _check_block(
    properties: DeviceProperties, block: BlockRequirements, warps: int, registers_per_warp: int
) -> None:
    """Raise the error that launching one block would fail with."""
    name, limits = properties.name, resource_limits(properties)
    threads, most_threads = block.threads_per_block, limits["threads_per_block"][1]
    if not 1 <= threads <= most_threads:
        raise UsageError(
            f"{threads} threads per block; {name} allows 1 to {most_threads}: use smaller blocks"
        )
    registers = block.registers_per_thread
    most_registers = _required_figure(properties, "max_registers_per_block")
    # The hardware checks as if warps came in groups that fill all sub-partitions.
    needed = registers_per_warp * _round_up(warps, SUB_PARTITIONS)
    if not 0 <= registers <= MAX_REGISTERS_PER_THREAD or needed > most_registers:
        raise UsageError(
            f"{registers} registers per thread need {needed} for {threads} threads; {name} allows "
            f"{MAX_REGISTERS_PER_THREAD} per thread and {most_registers} per block: "
            "use smaller blocks or __launch_bounds__"
        )
    shared, most_shared = block.shared_bytes_per_block, limits["shared_bytes_per_block"][1]
    if not 0 <= shared <= most_shared:
        raise UsageError(
            f"{shared} bytes of shared memory per block; {name} allows 0 to {most_shared}: "
            "use smaller tiles"
        )


def _carveout_sizes(properties: DeviceProperties) -> list[int]:
    """Return shared memory's possible sizes in bytes, up to the device's reported maximum."""
    most = _required_figure(properties, "max_shared_memory_per_multiprocessor_bytes")
    known = [start for start in CARVEOUTS_KIB if start <= properties.compute_capability]
    sizes = CARVEOUTS_KIB[known[-1]] if known else ()
    return [*(KIB * size for size in sizes if KIB * size < most), most]


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _required_figure(properties: DeviceProperties, field: str) -> int:
    value = getattr(properties, field)
    if not isinstance(value, int):
        raise DeviceError(
            f"occupancy needs {field}, which is unknown for {properties.name}: "
            "use a device whose datasheet has it"
        )
    return value
