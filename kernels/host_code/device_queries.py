"""What host code asks CUDA about the device: properties, attributes, how many blocks it holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memlab.kernels.host_code.arithmetic import number_value
from memlab.kernels.host_code.formulas import number
from memlab.kernels.host_code.places import target
from memlab.kernels.host_code.values import (
    Address,
    Allocation,
    Cell,
    CType,
    FunctionName,
    Number,
    Pointer,
    Record,
    Unresolved,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from memlab.kernels.host_code.machine import Machine

PROPERTIES_TYPE = "cudaDeviceProp"

_ATTRIBUTES = {
    "asyncenginecount": "asyncEngineCount",
    "clockrate": "clockRate",
    "computecapabilitymajor": "major",
    "computecapabilityminor": "minor",
    "cooperativelaunch": "cooperativeLaunch",
    "globalmemorybuswidth": "memoryBusWidth",
    "integrated": "integrated",
    "l2cachesize": "l2CacheSize",
    "maxblockspermultiprocessor": "maxBlocksPerMultiProcessor",
    "maxpitch": "memPitch",
    "maxregistersperblock": "regsPerBlock",
    "maxregisterspermultiprocessor": "regsPerMultiprocessor",
    "maxsharedmemoryperblock": "sharedMemPerBlock",
    "maxsharedmemoryperblockoptin": "sharedMemPerBlockOptin",
    "maxsharedmemorypermultiprocessor": "sharedMemPerMultiprocessor",
    "maxthreadsperblock": "maxThreadsPerBlock",
    "maxthreadspermultiprocessor": "maxThreadsPerMultiProcessor",
    "memoryclockrate": "memoryClockRate",
    "multiprocessorcount": "multiProcessorCount",
    "reservedsharedmemoryperblock": "reservedSharedMemPerBlock",
    "totalconstantmemory": "totalConstMem",
    "warpsize": "warpSize",
}
"""The members of `cudaDeviceProp` by the names of attributes, in lower case without underscores
and without `cudaDevAttr` or `CU_DEVICE_ATTRIBUTE_`."""
_AXES = {
    f"max{extents}dim{axis}": (member, index)
    for extents, member in (("block", "maxThreadsDim"), ("grid", "maxGridSize"))
    for index, axis in enumerate("xyz")
}


def device_properties(machine: Machine) -> Record:
    """A `cudaDeviceProp` of the device; members that are not known stay symbols."""
    made = Record(PROPERTIES_TYPE)
    for name, figure in machine.device.items():
        value: Value
        if isinstance(figure, int):
            value = number_value(figure)
        else:
            listed = {index: Cell(name, number_value(each)) for index, each in enumerate(figure)}
            allocation = Allocation(name, number(4 * len(figure)), elements=listed)
            value = Pointer(allocation, element=CType("int"))
        made.members[name] = Cell(name, value)
    return made


def get_properties(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaGetDeviceProperties(&properties, device)`."""
    values = [machine.evaluate(machine, node) for node in arguments]
    cell = target(machine, values[0]) if values else None
    if cell is not None:
        machine.write(cell, device_properties(machine))
    return number_value(0)


def properties_pointer(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`at::cuda::getCurrentDeviceProperties()` of PyTorch."""
    return Address(Cell("properties", device_properties(machine)))


def get_attribute(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaDeviceGetAttribute(&value, cudaDevAttr…, device)`, and the driver's function."""
    values = [machine.evaluate(machine, node) for node in arguments]
    cell = target(machine, values[0]) if len(values) > 1 else None
    if cell is not None:
        asked = values[1]
        figure = _attribute(machine, asked.name) if isinstance(asked, Unresolved) else None
        machine.write(cell, Unresolved(cell.name) if figure is None else number_value(figure))
    return number_value(0)


def _attribute(machine: Machine, name: str) -> int | None:
    plain = re.sub(r"^cudaDevAttr|^CU_DEVICE_ATTRIBUTE_|_", "", name).lower()
    if plain in _AXES:
        member, index = _AXES[plain]
        extents = machine.device.get(member)
        return extents[index] if isinstance(extents, tuple) else None
    figure = machine.device.get(_ATTRIBUTES.get(plain, ""))
    return figure if isinstance(figure, int) else None


def max_active_blocks(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared bytes)`."""
    values = [machine.evaluate(machine, node) for node in arguments]
    cell = target(machine, values[0]) if len(values) > 3 else None
    if cell is not None:
        threads, shared = (_whole(value) for value in values[2:4])
        blocks = _blocks_per_sm(machine, values[1], threads, shared)
        machine.write(cell, Unresolved(cell.name) if blocks is None else number_value(blocks))
    return number_value(0)


def max_potential_block_size(
    machine: Machine, arguments: Sequence[Node], template: Sequence[str] | None
) -> Value:
    """`cudaOccupancyMaxPotentialBlockSize(&grid, &threads, kernel, shared bytes, limit)`.

    As CUDA does it: the largest whole warps of threads of which an SM holds the most, and the
    blocks that fill the device with them.
    """
    values = [machine.evaluate(machine, node) for node in arguments]
    cells = [target(machine, value) for value in values[:2]]
    if len(values) < 3 or cells[0] is None or cells[1] is None:
        return number_value(0)
    listed = [*values[3:5], *(number_value(0),) * 2]
    shared, limit = _whole(listed[0]), _whole(listed[1])
    most, sms, warp = (
        machine.device.get(name)
        for name in ("maxThreadsPerBlock", "multiProcessorCount", "warpSize")
    )
    best = (0, 0)
    if isinstance(most, int) and isinstance(warp, int) and limit is not None:
        top = min(limit or most, most)
        for threads in range(top - top % warp, 0, -warp):
            blocks = _blocks_per_sm(machine, values[2], threads, shared) or 0
            if blocks * threads > best[0] * best[1]:
                best = blocks, threads
    is_known = bool(best[0]) and isinstance(sms, int)
    grid = best[0] * sms if isinstance(sms, int) else 0
    for cell, figure in zip(cells, (grid, best[1]), strict=True):
        if cell is not None:
            machine.write(cell, number_value(figure) if is_known else Unresolved(cell.name))
    return number_value(0)


def _whole(value: Value) -> int | None:
    return value.formula.whole if isinstance(value, Number) and value.divisor is None else None


def _blocks_per_sm(
    machine: Machine, kernel: Value, threads: int | None, shared: int | None
) -> int | None:
    """The blocks of a kernel that an SM holds; None where that is not known."""
    if not isinstance(kernel, FunctionName) or threads is None or shared is None:
        return None
    name = kernel.name + (f"<{', '.join(kernel.arguments)}>" if kernel.arguments else "")
    return machine.blocks_per_sm(name, threads, shared)
