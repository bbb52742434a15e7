"""The grid, and the thread and block of each lane of a chunk.

The threads of a block take consecutive lanes, x fastest. Lanes that pad a block to whole warps are
never alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.special_registers import GRID_WORKSPACE_REGISTERS
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.program.lowering import source_excerpt
from memlab.device.emulator.ptx.parser import Instruction
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import Dim3


@dataclass(frozen=True)
class Grid:
    """The launch geometry and arguments, which all blocks share.

    Attributes:
        grid: Blocks in x, y and z.
        block: Threads per block in x, y and z.
        dynamic_shared_bytes: Size of the `extern __shared__` array, in bytes.
        parameters: The contents of the parameter space.
        workspace: The address of a cooperative launch's `grid_workspace`; 0 for other launches.
    """

    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    parameters: bytes
    workspace: int = 0

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def padded_threads(self) -> int:
        """Lanes per block: its threads, padded to whole warps."""
        return -(-self.threads // WARP_SIZE) * WARP_SIZE


BlockBox: TypeAlias = tuple[range, range, range]
"""Blocks of a grid, by the ranges of their coordinates in x, y and z."""


def block_coordinates(order: NDArray[np.int64], grid: Dim3) -> NDArray[np.int64]:
    """Coordinates, shape (blocks, 3), of the blocks at some positions of the launch order."""
    x, y, _ = grid
    return np.stack([order % x, order // x % y, order // (x * y)], axis=1)


class Threads:
    """The lanes of some blocks of a grid.

    Attributes:
        grid: The launch geometry and arguments.
        blocks: Coordinates of the blocks, shape (blocks, 3).
        lanes: How many lanes the blocks take.
        alive: Whether each lane is a thread, shape (lanes,).
    """

    def __init__(self, grid: Grid, blocks: NDArray[np.int64], source: Sequence[str] = ()) -> None:
        """Assign lanes to blocks in order; `source` holds the lines of the CUDA source."""
        self.grid, self.blocks = grid, blocks
        self.lanes = len(blocks) * grid.padded_threads
        self.alive: Mask = np.arange(self.lanes) % grid.padded_threads < grid.threads
        self._source = source

    def place(self, lane: int, instruction: Instruction) -> str:
        """The thread of a lane and the source line of an instruction, for a message."""
        block = tuple(self.blocks[lane // self.grid.padded_threads].tolist())
        thread = lane % self.grid.padded_threads
        x, y, _ = self.grid.block
        where = f"by block {block} thread ({thread % x}, {thread // x % y}, {thread // x // y})"
        line = instruction.source_line
        text = self._source[line - 1].strip() if 0 < line <= len(self._source) else ""
        return f"{where}, line {line}: {source_excerpt(text)}"

    def special_registers(self) -> dict[str, Lanes]:
        """The values of `isa.special_registers.THREAD_REGISTERS`, by name.

        Each has shape (lanes,), or () where it is the same for all lanes.
        """
        grid, blocks = self.grid, self.blocks
        thread = np.arange(grid.padded_threads, dtype=np.uint32)
        x, y, _ = grid.block
        lane = thread % WARP_SIZE
        per_thread = {
            "%tid.x": thread % x,
            "%tid.y": thread // x % y,
            "%tid.z": thread // (x * y),
            "%laneid": lane,
            "%warpid": thread // WARP_SIZE,
            "%lanemask_eq": np.uint32(1) << lane,
            "%lanemask_lt": (np.uint32(1) << lane) - np.uint32(1),
            "%lanemask_le": (np.uint32(2) << lane) - np.uint32(1),
            "%lanemask_gt": ~((np.uint32(2) << lane) - np.uint32(1)),
            "%lanemask_ge": ~((np.uint32(1) << lane) - np.uint32(1)),
        }
        lanes = {
            name: np.tile(values.astype(np.uint32), len(blocks))
            for name, values in per_thread.items()
        }
        for axis, name in enumerate("xyz"):
            lanes[f"%ctaid.{name}"] = np.repeat(
                blocks[:, axis].astype(np.uint32), grid.padded_threads
            )
            lanes[f"%ntid.{name}"] = np.array(grid.block[axis], np.uint32)
            lanes[f"%nctaid.{name}"] = np.array(grid.grid[axis], np.uint32)
        for name in ("%smid", "%gridid"):
            lanes[name] = np.array(0, np.uint32)
        lanes["%nsmid"] = np.array(1, np.uint32)
        lanes["%dynamic_smem_size"] = np.array(grid.dynamic_shared_bytes, np.uint32)
        for word, name in enumerate(GRID_WORKSPACE_REGISTERS):
            lanes[name] = np.array(grid.workspace >> 32 * word & 0xFFFFFFFF, np.uint32)
        lanes["%nwarpid"] = np.array(grid.padded_threads // WARP_SIZE, np.uint32)
        return lanes
