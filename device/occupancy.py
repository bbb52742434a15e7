"""How many blocks a multiprocessor holds, and what stops the next one.

NVIDIA's published allocation rules, for compute capability 7.5 to 12.x: the CUDA C++
Programming Guide ("Technical Specifications per Compute Capability"), Nsight Compute's
occupancy calculator and `cuda_occupancy.h` of the CUDA Toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from memlab.device.measurement import Occupancy
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from memlab.device.measurement import Resources
    from memlab.device.properties import DeviceProperties
    from memlab.kernels.launch import Launch

SUB_PARTITIONS = 4
"""Parts of a multiprocessor with a warp scheduler and a register file of their own
(`cuda_occupancy.h`, compute capability 7.x and up)."""

REGISTERS_PER_ALLOCATION = 256
"""Registers are given to a warp in this unit (`cuda_occupancy.h`)."""

MAX_REGISTERS_PER_THREAD = 255
"""CUDA C++ Programming Guide, all compute capabilities from 3.5."""

KIB = 1024

BLOCK_RESOURCES = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
"""What a block is made of: the fields of `Block`, as a threshold or a curve names them."""

CARVEOUTS_KIB = {
    (7, 5): (32, 64),
    (8, 0): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 6): (0, 8, 16, 32, 64, 100),
    (8, 7): (0, 8, 16, 32, 64, 100, 132, 164),
    (8, 9): (0, 8, 16, 32, 64, 100),
    (9, 0): (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    (10, 0): (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    (12, 0): (0, 8, 16, 32, 64, 100),
}
"""Sizes that shared memory can take out of the unified L1, KiB, by the compute capability they
start from (CUDA C++ Programming Guide, "Compute Capabilities", section "Shared Memory")."""

# How the driver chooses among these sizes is not documented. The constants below say what Nsight
# Compute reported on an H200 (driver 580): they give 490 of 491 choices, over blocks of 16 to
# 1024 threads with 16 to 228 registers a thread and 0 to 227 KiB of shared memory.
SPARE_FACTOR = 2
"""The driver makes room for this many times the blocks that fit otherwise ..."""

SPARE_MAX_BLOCK_WARPS = 28
"""... for blocks of up to this many warps, if more than one fits ..."""

SPARE_MAX_SHARE = 0.5
"""... without going beyond the first size that is this share of the largest."""

CARVEOUT_WITHOUT_SHARED_KIB = ((12, 32), (22, 16), (32, 8))
"""For kernels that use no shared memory: warps of a block at most, and the size."""


@dataclass(frozen=True)
class BlockRequirements:
    """What one block asks of a multiprocessor.

    Attributes:
        threads_per_block: Threads.
        registers_per_thread: 32-bit registers a thread, as the compiler reports them.
        shared_bytes_per_block: Static and dynamic shared memory, bytes, without what the system
            reserves.
    """

    threads_per_block: int
    registers_per_thread: int
    shared_bytes_per_block: int


@dataclass(frozen=True)
class BlockAllocation:
    """What one block is given: what it asks for, rounded up to the hardware's units.

    Attributes:
        warps_per_block: Whole warps.
        registers_per_warp: In units of `REGISTERS_PER_ALLOCATION`.
        shared_bytes_per_block: With what the system reserves in each block, bytes.
        carveout_bytes: What shared memory takes of the unified L1, all blocks together, bytes.
    """

    warps_per_block: int
    registers_per_warp: int
    shared_bytes_per_block: int
    carveout_bytes: int


def block_requirements(launch: Launch, resources: Resources) -> BlockRequirements:
    """Say what a block of a launch asks for, given what the compiler made of its kernel."""
    return BlockRequirements(
        launch.threads_per_block,
        resources.registers_per_thread,
        resources.static_shared_bytes + launch.dynamic_shared_bytes,
    )


def compute_occupancy(properties: DeviceProperties, block: BlockRequirements) -> Occupancy:
    """Compute how many of a block one multiprocessor holds.

    Returns:
        Resident blocks and warps, the limiter, and what each resource alone would allow. The
        limit by shared memory is that of the carve-out the driver chooses, as Nsight Compute
        shows it; where a larger carve-out would hold more blocks, the driver takes that one.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    given = block_allocation(properties, block)
    limits = _limits_without_shared(properties, block)
    allocated = given.shared_bytes_per_block
    limits["shared memory"] = given.carveout_bytes // allocated if allocated else limits["blocks"]
    blocks = min(limits.values())
    warps = blocks * given.warps_per_block
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=warps,
        theoretical=warps / max_warps(properties),
        limiter=" and ".join(name for name, limit in limits.items() if limit == blocks),
        limits=limits,
    )


def occupancy_or_none(properties: DeviceProperties, block: BlockRequirements) -> Occupancy | None:
    """Compute the occupancy of a block; None where not even one fits.

    Raises:
        DeviceError: The device's limits are not known.
    """
    try:
        return compute_occupancy(properties, block)
    except UsageError:
        return None


def block_allocation(properties: DeviceProperties, block: BlockRequirements) -> BlockAllocation:
    """Round what a block asks for up to what it is given.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    return BlockAllocation(
        warps_per_block=_warps_per_block(properties, block),
        registers_per_warp=_registers_per_warp(properties, block),
        shared_bytes_per_block=_allocated_shared_bytes(properties, block),
        carveout_bytes=shared_carveout_bytes(properties, block),
    )


def shared_carveout_bytes(properties: DeviceProperties, block: BlockRequirements) -> int:
    """Predict the share of the unified L1 that the driver gives to shared memory.

    What is left of `l1_cache_bytes_per_sm` caches global memory. The rule is measured on
    compute capability 9.0 and assumed for the others.

    Returns:
        Bytes, one of the sizes of the device's compute capability.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    _check_block(properties, block)
    sizes = _carveouts_bytes(properties)
    limits = _limits_without_shared(properties, block)
    allocated = _allocated_shared_bytes(properties, block)
    fitting = sizes[-1] // allocated if allocated else limits["blocks"]
    blocks = min(fitting, *limits.values())
    warps = _warps_per_block(properties, block)
    wanted = blocks * allocated
    if not block.shared_bytes_per_block:
        usual = [size for most, size in CARVEOUT_WITHOUT_SHARED_KIB if warps <= most]
        wanted = max(wanted, KIB * (usual[0] if blocks > 1 else usual[-1]))
    elif blocks > 1 and warps <= SPARE_MAX_BLOCK_WARPS:
        roomy = min(SPARE_FACTOR * blocks, limits["blocks"]) * allocated
        share = next(size for size in sizes if size >= SPARE_MAX_SHARE * sizes[-1])
        wanted = max(wanted, min(roomy, share))
    return next(size for size in sizes if size >= wanted)


def resource_limits(properties: DeviceProperties) -> dict[str, tuple[int, int]]:
    """Give the least and the most that a block may ask for, for each of `RESOURCES`.

    Raises:
        DeviceError: The device's limits are not known.
    """
    return {
        "threads_per_block": (1, _required_figure(properties, "max_threads_per_block")),
        "registers_per_thread": (1, MAX_REGISTERS_PER_THREAD),
        "shared_bytes_per_block": (0, _max_shared_bytes(properties)),
    }


def resource_units(properties: DeviceProperties) -> dict[str, int]:
    """Give the unit in which each of `RESOURCES` is allocated.

    All that counts is in which unit a value lies: 1 to 32 threads are a warp.
    """
    return {
        "threads_per_block": properties.warp_size,
        "registers_per_thread": REGISTERS_PER_ALLOCATION // properties.warp_size,
        "shared_bytes_per_block": _shared_unit_bytes(properties),
    }


def max_warps(properties: DeviceProperties) -> int:
    """Give the warps that a multiprocessor can hold.

    Raises:
        DeviceError: It is not known.
    """
    return _required_figure(properties, "max_threads_per_multiprocessor") // properties.warp_size


def max_registers(properties: DeviceProperties) -> int:
    """Give the 32-bit registers that a multiprocessor has.

    Raises:
        DeviceError: It is not known.
    """
    return _required_figure(properties, "max_registers_per_multiprocessor")


def _limits_without_shared(
    properties: DeviceProperties, block: BlockRequirements
) -> dict[str, int]:
    """Give the blocks that block slots, warp slots and registers allow, each alone."""
    warps = _warps_per_block(properties, block)
    file = max_registers(properties) // SUB_PARTITIONS
    per_warp = _registers_per_warp(properties, block)
    # A warp's registers are all in one sub-partition, so what is left over in each is lost.
    resident = file // per_warp * SUB_PARTITIONS if per_warp else max_warps(properties)
    return {
        "blocks": _required_figure(properties, "max_blocks_per_multiprocessor"),
        "warps": max_warps(properties) // warps,
        "registers": resident // warps,
    }


def _check_block(properties: DeviceProperties, block: BlockRequirements) -> None:
    """Raise what launching one block would fail with."""
    name, most_threads = properties.name, _required_figure(properties, "max_threads_per_block")
    threads, registers = block.threads_per_block, block.registers_per_thread
    if not 1 <= threads <= most_threads:
        raise UsageError(
            f"{threads} threads a block; {name} allows 1 to {most_threads}: use smaller blocks"
        )
    most_registers = _required_figure(properties, "max_registers_per_block")
    # The hardware checks as if warps came in groups that fill all sub-partitions.
    warps = _round_up(_warps_per_block(properties, block), SUB_PARTITIONS)
    needed = _registers_per_warp(properties, block) * warps
    if not 0 <= registers <= MAX_REGISTERS_PER_THREAD or needed > most_registers:
        raise UsageError(
            f"{registers} registers a thread need {needed} for {threads} threads; {name} allows "
            f"{MAX_REGISTERS_PER_THREAD} a thread and {most_registers} a block: "
            "use smaller blocks or __launch_bounds__"
        )
    shared, most_shared = block.shared_bytes_per_block, _max_shared_bytes(properties)
    if not 0 <= shared <= most_shared:
        raise UsageError(
            f"{shared} bytes of shared memory a block; {name} allows 0 to {most_shared}: "
            "use smaller tiles"
        )


def _carveouts_bytes(properties: DeviceProperties) -> tuple[int, ...]:
    """Give the sizes that shared memory can take, bytes, up to what the device reports."""
    most = _required_figure(properties, "max_shared_memory_per_multiprocessor_bytes")
    known = takewhile(lambda start: start <= properties.compute_capability, CARVEOUTS_KIB)
    sizes = [KIB * size for start in list(known)[-1:] for size in CARVEOUTS_KIB[start]]
    return (*(size for size in sizes if size < most), most)


def _allocated_shared_bytes(properties: DeviceProperties, block: BlockRequirements) -> int:
    """Round up what a block asks for, and add what the system keeps in each block."""
    reserved = properties.reserved_shared_memory_per_block_bytes
    if reserved is None:
        # CUDA C++ Programming Guide, "Shared Memory", 8.x
        reserved = 1024 if _is_ampere_or_later(properties) else 0
    return _round_up(block.shared_bytes_per_block + reserved, _shared_unit_bytes(properties))


def _shared_unit_bytes(properties: DeviceProperties) -> int:
    return 128 if _is_ampere_or_later(properties) else 256  # cuda_occupancy.h


def _is_ampere_or_later(properties: DeviceProperties) -> bool:
    return properties.compute_capability >= (8, 0)


def _max_shared_bytes(properties: DeviceProperties) -> int:
    return properties.max_shared_memory_per_block_optin_bytes or _required_figure(
        properties, "max_shared_memory_per_block_bytes"
    )


def _registers_per_warp(properties: DeviceProperties, block: BlockRequirements) -> int:
    return _round_up(block.registers_per_thread * properties.warp_size, REGISTERS_PER_ALLOCATION)


def _warps_per_block(properties: DeviceProperties, block: BlockRequirements) -> int:
    return -(-block.threads_per_block // properties.warp_size)


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
