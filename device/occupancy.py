"""How many blocks a multiprocessor holds, and what stops the next one.

NVIDIA's published allocation rules, for compute capability 7.5 to 12.x: the CUDA C++
Programming Guide ("Technical Specifications per Compute Capability"), Nsight Compute's
occupancy calculator and `cuda_occupancy.h` of the CUDA Toolkit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import astuple, dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from memlab.device.measurement import Occupancy
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties

SUB_PARTITIONS = 4
"""Parts of a multiprocessor with a warp scheduler and a register file of their own
(`cuda_occupancy.h`, compute capability 7.x and up)."""

REGISTERS_PER_ALLOCATION = 256
"""Registers are given to a warp in this unit (`cuda_occupancy.h`)."""

MAX_REGISTERS_PER_THREAD = 255
"""CUDA C++ Programming Guide, all compute capabilities from 3.5."""

KIB = 1024

RESOURCES = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
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
class Block:
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
class Allocation:
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


@dataclass(frozen=True)
class Threshold:
    """The nearest value of one resource at which the number of resident blocks changes.

    Attributes:
        value: Of the resource, in its unit.
        occupancy: What it gives; None where not even one block fits any more.
    """

    value: int
    occupancy: Occupancy | None


@dataclass(frozen=True)
class RegisterBudget:
    """How many registers a thread may have before they cost a resident block.

    Attributes:
        registers_per_thread: The largest number.
        by_division: Registers of a multiprocessor over the threads resident then, as a textbook
            divides; larger where the units of allocation take their part.
        warps_per_sm: Warps resident then.
    """

    registers_per_thread: int
    by_division: int
    warps_per_sm: int


def occupancy(
    properties: DeviceProperties,
    threads_per_block: int,
    registers_per_thread: int,
    shared_bytes_per_block: int,
) -> Occupancy:
    """Compute the resident blocks of a kernel.

    Args:
        properties: The device.
        threads_per_block: Threads of a block.
        registers_per_thread: 32-bit registers a thread, as the compiler reports them.
        shared_bytes_per_block: Static and dynamic shared memory of a block, bytes, without what
            the system reserves.

    Returns:
        Resident blocks and warps, the limiter, and what each resource alone would allow. The
        limit by shared memory is that of the carve-out the driver chooses, as Nsight Compute
        shows it; where a larger carve-out would hold more blocks, the driver takes that one.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    carveout = shared_carveout_bytes(
        properties, threads_per_block, registers_per_thread, shared_bytes_per_block
    )
    limits = _limits_but_shared(properties, threads_per_block, registers_per_thread)
    allocated = _allocated_shared_bytes(properties, shared_bytes_per_block)
    limits["shared memory"] = carveout // allocated if allocated else limits["blocks"]
    blocks = min(limits.values())
    warps = blocks * _warps_per_block(properties, threads_per_block)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=warps,
        theoretical=warps / max_warps(properties),
        limiter=" and ".join(name for name, limit in limits.items() if limit == blocks),
        limits=limits,
    )


def shared_carveout_bytes(
    properties: DeviceProperties,
    threads_per_block: int,
    registers_per_thread: int,
    shared_bytes_per_block: int,
) -> int:
    """Predict the share of the unified L1 that the driver gives to shared memory.

    What is left of `l1_cache_bytes_per_sm` caches global memory. The rule is measured on
    compute capability 9.0 and assumed for the others.

    Args:
        properties: The device.
        threads_per_block: Threads of a block.
        registers_per_thread: 32-bit registers a thread.
        shared_bytes_per_block: Static and dynamic shared memory of a block, bytes.

    Returns:
        Bytes, one of the sizes of the device's compute capability.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    _check_block(properties, threads_per_block, registers_per_thread, shared_bytes_per_block)
    sizes = _carveouts_bytes(properties)
    limits = _limits_but_shared(properties, threads_per_block, registers_per_thread)
    allocated = _allocated_shared_bytes(properties, shared_bytes_per_block)
    fitting = sizes[-1] // allocated if allocated else limits["blocks"]
    blocks = min(fitting, *limits.values())
    warps = _warps_per_block(properties, threads_per_block)
    wanted = blocks * allocated
    if not shared_bytes_per_block:
        usual = [size for most, size in CARVEOUT_WITHOUT_SHARED_KIB if warps <= most]
        wanted = max(wanted, KIB * (usual[0] if blocks > 1 else usual[-1]))
    elif blocks > 1 and warps <= SPARE_MAX_BLOCK_WARPS:
        roomy = min(SPARE_FACTOR * blocks, limits["blocks"]) * allocated
        share = next(size for size in sizes if size >= SPARE_MAX_SHARE * sizes[-1])
        wanted = max(wanted, min(roomy, share))
    return next(size for size in sizes if size >= wanted)


def resident(properties: DeviceProperties, block: Block) -> Occupancy | None:
    """Compute the occupancy of a block; None where not even one fits.

    Raises:
        DeviceError: The device's limits are not known.
    """
    try:
        return occupancy(properties, *astuple(block))
    except UsageError:
        return None


def allocation(properties: DeviceProperties, block: Block) -> Allocation:
    """Round what a block asks for up to what it is given.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    return Allocation(
        warps_per_block=_warps_per_block(properties, block.threads_per_block),
        registers_per_warp=_registers_per_warp(properties, block.registers_per_thread),
        shared_bytes_per_block=_allocated_shared_bytes(properties, block.shared_bytes_per_block),
        carveout_bytes=shared_carveout_bytes(properties, *astuple(block)),
    )


def resource_limits(properties: DeviceProperties) -> dict[str, tuple[int, int]]:
    """Give the least and the most that a block may ask for, for each of `RESOURCES`.

    Raises:
        DeviceError: The device's limits are not known.
    """
    return {
        "threads_per_block": (1, _known(properties, "max_threads_per_block")),
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


def thresholds(
    properties: DeviceProperties, block: Block, resource: str
) -> tuple[Threshold | None, Threshold | None]:
    """Find where a resource, changed alone, changes the number of resident blocks.

    Args:
        properties: The device.
        block: Where to start.
        resource: One of `RESOURCES`.

    Returns:
        The largest smaller value that gives more blocks, and the smallest larger one that gives
        fewer; None where no value that the device accepts does.

    Raises:
        DeviceError: The device's limits are not known.
    """
    least, most = resource_limits(properties)[resource]
    values = range(least, most + 1)

    def at(value: int) -> Threshold:
        return Threshold(value, resident(properties, replace(block, **{resource: value})))

    def fewer(value: int) -> int:
        """Fall, where the blocks never rise: bisection needs an ascending order."""
        found = at(value).occupancy
        return -found.blocks_per_sm if found else 0

    here = fewer(getattr(block, resource))
    first = bisect_left(values, here, key=fewer)
    beyond = bisect_right(values, here, key=fewer)
    return (
        at(values[first - 1]) if first > 0 else None,
        at(values[beyond]) if beyond < len(values) else None,
    )


def register_budget(properties: DeviceProperties, threads: int, shared: int) -> RegisterBudget:
    """Find the most registers a thread that keep as many blocks resident as one would.

    Args:
        properties: The device.
        threads: Threads of a block.
        shared: Shared memory of a block, bytes.

    Raises:
        UsageError: Not even one block fits.
        DeviceError: The device's limits are not known.
    """
    lean = Block(threads, 1, shared)
    warps = occupancy(properties, *astuple(lean)).warps_per_sm
    _, above = thresholds(properties, lean, "registers_per_thread")
    registers = _known(properties, "max_registers_per_multiprocessor")
    return RegisterBudget(
        registers_per_thread=above.value - 1 if above else MAX_REGISTERS_PER_THREAD,
        by_division=min(registers // (warps * properties.warp_size), MAX_REGISTERS_PER_THREAD),
        warps_per_sm=warps,
    )


def max_warps(properties: DeviceProperties) -> int:
    """Give the warps that a multiprocessor can hold.

    Raises:
        DeviceError: It is not known.
    """
    return _known(properties, "max_threads_per_multiprocessor") // properties.warp_size


def _limits_but_shared(
    properties: DeviceProperties, threads: int, registers: int
) -> dict[str, int]:
    """Give the blocks that block slots, warp slots and registers allow, each alone."""
    warps = _warps_per_block(properties, threads)
    blocks = _known(properties, "max_blocks_per_multiprocessor")
    file = _known(properties, "max_registers_per_multiprocessor") // SUB_PARTITIONS
    per_warp = _registers_per_warp(properties, registers)
    # A warp's registers are all in one sub-partition, so what is left over in each is lost.
    resident = file // per_warp * SUB_PARTITIONS if per_warp else max_warps(properties)
    return {
        "blocks": blocks,
        "warps": max_warps(properties) // warps,
        "registers": resident // warps,
    }


def _check_block(properties: DeviceProperties, threads: int, registers: int, shared: int) -> None:
    """Raise what launching one block would fail with."""
    name, most_threads = properties.name, _known(properties, "max_threads_per_block")
    if not 1 <= threads <= most_threads:
        raise UsageError(
            f"{threads} threads a block; {name} allows 1 to {most_threads}: use smaller blocks"
        )
    most_registers = _known(properties, "max_registers_per_block")
    # The hardware checks as if warps came in groups that fill all sub-partitions.
    warps = _round_up(_warps_per_block(properties, threads), SUB_PARTITIONS)
    needed = _registers_per_warp(properties, registers) * warps
    if not 0 <= registers <= MAX_REGISTERS_PER_THREAD or needed > most_registers:
        raise UsageError(
            f"{registers} registers a thread need {needed} for {threads} threads; {name} allows "
            f"{MAX_REGISTERS_PER_THREAD} a thread and {most_registers} a block: "
            "use smaller blocks or __launch_bounds__"
        )
    most_shared = _max_shared_bytes(properties)
    if not 0 <= shared <= most_shared:
        raise UsageError(
            f"{shared} bytes of shared memory a block; {name} allows 0 to {most_shared}: "
            "use smaller tiles"
        )


def _carveouts_bytes(properties: DeviceProperties) -> tuple[int, ...]:
    """Give the sizes that shared memory can take, bytes, up to what the device reports."""
    most = _known(properties, "max_shared_memory_per_multiprocessor_bytes")
    known = takewhile(lambda start: start <= properties.compute_capability, CARVEOUTS_KIB)
    sizes = [KIB * size for start in list(known)[-1:] for size in CARVEOUTS_KIB[start]]
    return (*(size for size in sizes if size < most), most)


def _allocated_shared_bytes(properties: DeviceProperties, shared_bytes: int) -> int:
    """Round up what a block asks for, and add what the system keeps in each block."""
    reserved = properties.reserved_shared_memory_per_block_bytes
    if reserved is None:
        # CUDA C++ Programming Guide, "Shared Memory", 8.x
        reserved = 1024 if _is_ampere_or_later(properties) else 0
    return _round_up(shared_bytes + reserved, _shared_unit_bytes(properties))


def _shared_unit_bytes(properties: DeviceProperties) -> int:
    return 128 if _is_ampere_or_later(properties) else 256  # cuda_occupancy.h


def _is_ampere_or_later(properties: DeviceProperties) -> bool:
    return properties.compute_capability >= (8, 0)


def _max_shared_bytes(properties: DeviceProperties) -> int:
    return properties.max_shared_memory_per_block_optin_bytes or _known(
        properties, "max_shared_memory_per_block_bytes"
    )


def _registers_per_warp(properties: DeviceProperties, registers_per_thread: int) -> int:
    return _round_up(registers_per_thread * properties.warp_size, REGISTERS_PER_ALLOCATION)


def _warps_per_block(properties: DeviceProperties, threads: int) -> int:
    return -(-threads // properties.warp_size)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _known(properties: DeviceProperties, field: str) -> int:
    value = getattr(properties, field)
    if not isinstance(value, int):
        raise DeviceError(
            f"occupancy needs {field}, which is unknown for {properties.name}: "
            "use a device whose datasheet has it"
        )
    return value
