"""How far a kernel reaches into its arrays, found by executing some blocks with small arrays."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from memlab.device.emulation.execution import Execution
from memlab.device.emulator.checks.pointer_origin import find_pointer_origins
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.program.program import ACCESS_KINDS
from memlab.device.emulator.sampling.block_sample import whole_clusters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.device.budget import Budget
    from memlab.device.compiler.compile import CompiledKernel
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.memory import Mask
    from memlab.device.emulator.program.program import Program
    from memlab.kernels.launch import Dim3, Launch

_INNER_BLOCKS = 8
"""The blocks that are executed besides those in the corners of the grid."""


class _Reach(ExecutionPolicy):
    """Leaves out lanes whose access lies outside its array, and notes how far they reach.

    Attributes:
        ends: The bytes that each array needs, by its number.
        is_lost: Whether the array of an access outside all arrays was unknown.
    """

    is_trial: ClassVar[bool] = True

    def __init__(self, execution: Execution) -> None:
        memory = execution.memory
        self._arrays = memory.allocations
        origins = find_pointer_origins(execution.program, memory, execution.grid.parameters)
        self._origins = {at: number for at, (space, number) in origins.items() if space == "global"}
        self.ends: dict[int, int] = {}
        self.is_lost = False

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The accesses to global memory."""
        return [
            index
            for index, step in enumerate(program.steps)
            if step.row.kind in ACCESS_KINDS and step.row.space in ("global", "generic", "")
        ]

    def permitted_lanes(self, access: WatchedAccess) -> Mask:
        """The lanes whose access lies inside the array that it was meant for."""
        if access.segment.name != "global" or not access.mask.any():
            return access.mask
        number = self._origins.get(access.instruction.index)
        size = access.instruction.size
        if number is None:
            inside = np.zeros(len(access.address), np.bool_)
            for array in self._arrays:
                end = array.address + array.size - size
                inside |= (access.address >= array.address) & (access.address <= end)
            permitted: Mask = access.mask & inside
            self.is_lost |= bool((access.mask & ~inside).any())
            return permitted
        array = self._arrays[number]
        reached = int(access.address[access.mask].max()) + size - array.address
        self.ends[number] = max(self.ends.get(number, 0), reached)
        inside = (access.address >= array.address) & (
            access.address <= array.address + array.size - size
        )
        return np.asarray(access.mask & inside)


def array_reach(launch: Launch, compiled: CompiledKernel, budget: Budget) -> Mapping[str, int]:
    """Find how far the blocks in the corners of the grid, and some others, reach into arrays.

    An access outside its array is not carried out: it reads 0.

    Args:
        launch: The launch; its arrays may be too small.
        compiled: The launch, compiled.
        budget: The limits of time and memory.

    Returns:
        The bytes from the start of each array that the kernel accesses, by the array's name; empty
        where an access cannot be told to belong to an array.

    Raises:
        PtxError: The emulator does not know an instruction.
        UsageError: The launch needs more memory than is allowed.
        EmulationTimeoutError: The time was up.
    """
    execution = Execution.of(launch, compiled, 0, budget)
    reach = _Reach(execution)
    for chunk in execution.chunks(whole_clusters(_probed_blocks(launch.grid), launch.cluster)):
        execution.run(chunk, observers=[reach])
    if reach.is_lost:
        return {}
    names = [array.name for array in execution.memory.allocations]
    return {names[number]: end for number, end in reach.ends.items()}


def _probed_blocks(grid: Dim3) -> NDArray[np.int64]:
    """The coordinates of the blocks in the corners of a grid and of some between them, in order."""
    corners = list(itertools.product(*({0, extent - 1} for extent in grid)))
    drawn = np.random.default_rng(0).integers(0, grid, (_INNER_BLOCKS, 3))
    blocks = np.unique(np.concatenate([np.array(corners), drawn]), axis=0)
    order = np.lexsort(blocks.T)
    return np.ascontiguousarray(blocks[order], np.int64)
