"""The grid, and the thread and block of each lane of a chunk.

The threads of a block take consecutive lanes, x fastest. Lanes that pad a block to whole warps are
never alive.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.special_registers import (
    EXPLICIT_CLUSTER,
    GRID_WORKSPACE_REGISTERS,
    THREAD_REGISTERS,
)
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.program.lowering import source_excerpt
from memlab.device.emulator.ptx.parser import Instruction
from memlab.device.properties import WARP_SIZE
from memlab.kernels.launch import NO_CLUSTER, Dim3


@dataclass(frozen=True)
class Grid:
    """The launch geometry and arguments, which all blocks share.

    Attributes:
        grid: Blocks in x, y and z.
        block: Threads per block in x, y and z.
        dynamic_shared_bytes: Size of the `extern __shared__` array, in bytes.
        parameters: The contents of the parameter space.
        workspace: The address of a cooperative launch's `grid_workspace`; 0 for other launches.
        cluster: Blocks of a cluster in x, y and z.
    """

    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    parameters: bytes
    workspace: int = 0
    cluster: Dim3 = NO_CLUSTER

    @property
    def cluster_blocks(self) -> int:
        """Blocks per cluster."""
        return math.prod(self.cluster)

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


def cluster_places(
    blocks: NDArray[np.int64], cluster: Dim3
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The clusters of blocks, and the places of the blocks in them: coordinates, (blocks, 3)."""
    extents = np.array(cluster)
    return blocks // extents, blocks % extents


def ranks(places: NDArray[np.int64], cluster: Dim3) -> NDArray[np.int64]:
    """The ranks of blocks by their places in the cluster: x fastest."""
    x, y, _ = cluster
    numbers: NDArray[np.int64] = places @ np.array([1, x, x * y])
    return numbers


def cluster_ranks(blocks: NDArray[np.int64], cluster: Dim3) -> NDArray[np.int64]:
    """The ranks of blocks in their clusters."""
    return ranks(cluster_places(blocks, cluster)[1], cluster)


def cluster_peers(blocks: NDArray[np.int64], cluster: Dim3) -> NDArray[np.int64]:
    """The numbers of the blocks of each block's cluster, by their ranks: (blocks, cluster blocks).

    The blocks are those of whole clusters, in any order.
    """
    if cluster == NO_CLUSTER:
        return np.arange(len(blocks))[:, None]
    clusters, places = cluster_places(blocks, cluster)
    _, owner = np.unique(clusters, axis=0, return_inverse=True)
    owner = owner.reshape(-1)
    members = np.full((owner.max(initial=-1) + 1, math.prod(cluster)), -1, np.int64)
    members[owner, ranks(places, cluster)] = np.arange(len(blocks))
    assert (members >= 0).all(), "a chunk has whole clusters"
    return members[owner]


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

    def cluster_peers(self) -> NDArray[np.int64]:
        """The numbers of the blocks of each block's cluster; as `cluster_peers`."""
        return cluster_peers(self.blocks, self.grid.cluster)

    def place(self, lane: int, instruction: Instruction) -> str:
        """The thread of a lane and the source line of an instruction, for a message."""
        block = tuple(self.blocks[lane // self.grid.padded_threads].tolist())
        thread = lane % self.grid.padded_threads
        x, y, _ = self.grid.block
        where = f"by block {block} thread ({thread % x}, {thread // x % y}, {thread // x // y})"
        line = instruction.source_line
        text = self._source[line - 1].strip() if 0 < line <= len(self._source) else ""
        return f"{where}, line {line}: {source_excerpt(text)}"

    def special_registers(self, names: Collection[str] = THREAD_REGISTERS) -> dict[str, Lanes]:
        """The values of some of `isa.special_registers.THREAD_REGISTERS`, by name.

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
            if name in names
        }
        for name, values in self.block_registers().items():
            if name in names:
                lanes[name] = np.repeat(values.astype(np.uint32), grid.padded_threads)
        for axis, name in enumerate("xyz"):
            lanes[f"%ntid.{name}"] = np.array(grid.block[axis], np.uint32)
            lanes[f"%nctaid.{name}"] = np.array(grid.grid[axis], np.uint32)
            clusters = grid.grid[axis] // grid.cluster[axis]
            lanes[f"%nclusterid.{name}"] = np.array(clusters, np.uint32)
            lanes[f"%cluster_nctaid.{name}"] = np.array(grid.cluster[axis], np.uint32)
        lanes["%cluster_nctarank"] = np.array(grid.cluster_blocks, np.uint32)
        lanes[EXPLICIT_CLUSTER] = np.array(grid.cluster != NO_CLUSTER)
        for name in ("%smid", "%gridid"):
            lanes[name] = np.array(0, np.uint32)
        lanes["%nsmid"] = np.array(1, np.uint32)
        lanes["%dynamic_smem_size"] = np.array(grid.dynamic_shared_bytes, np.uint32)
        for word, name in enumerate(GRID_WORKSPACE_REGISTERS):
            lanes[name] = np.array(grid.workspace >> 32 * word & 0xFFFFFFFF, np.uint32)
        lanes["%nwarpid"] = np.array(grid.padded_threads // WARP_SIZE, np.uint32)
        return {name: values for name, values in lanes.items() if name in names}

    def block_registers(self) -> dict[str, Lanes]:
        """Those of `special_registers` that differ between blocks: by name, shape (blocks,)."""
        clusters, places = cluster_places(self.blocks, self.grid.cluster)
        registers = {
            f"%{name}.{axis}": values[:, number]
            for name, values in (
                ("ctaid", self.blocks),
                ("clusterid", clusters),
                ("cluster_ctaid", places),
            )
            for number, axis in enumerate("xyz")
        }
        return registers | {"%cluster_ctarank": ranks(places, self.grid.cluster)}
