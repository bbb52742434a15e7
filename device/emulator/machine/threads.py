"""The grid, and the thread and block of each lane of a chunk.

The threads of a block take consecutive lanes, x fastest. Lanes that pad a block to whole warps are
never alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.special_registers import (
    EXPLICIT_CLUSTER,
    GRID_WORKSPACE_REGISTERS,
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

    @property
    def registers(self) -> dict[str, int]:
        """The special registers that are the same for all threads: their bits by name."""
        values = {
            f"%{name}.{axis}": extents[number]
            for name, extents in (
                ("ntid", self.block),
                ("nctaid", self.grid),
                ("cluster_nctaid", self.cluster),
            )
            for number, axis in enumerate("xyz")
        }
        for axis, blocks, of_cluster in zip("xyz", self.grid, self.cluster, strict=True):
            values[f"%nclusterid.{axis}"] = blocks // of_cluster
        for word, name in enumerate(GRID_WORKSPACE_REGISTERS):
            values[name] = self.workspace >> 32 * word & 0xFFFF_FFFF
        return values | {
            "%cluster_nctarank": self.cluster_blocks,
            EXPLICIT_CLUSTER: 0 if self.cluster == NO_CLUSTER else 0xFFFF_FFFF,
            "%smid": 0,
            "%gridid": 0,
            "%nsmid": 1,
            "%nwarpid": self.padded_threads // WARP_SIZE,
            "%dynamic_smem_size": self.dynamic_shared_bytes,
        }


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


def _along(axis: int, blocks: NDArray[np.int64], cluster: Dim3) -> Lanes:
    return blocks[:, axis]


def _cluster_along(axis: int, blocks: NDArray[np.int64], cluster: Dim3) -> Lanes:
    return blocks[:, axis] // cluster[axis]


def _place_along(axis: int, blocks: NDArray[np.int64], cluster: Dim3) -> Lanes:
    return blocks[:, axis] % cluster[axis]


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

    def thread_registers(self, names: Collection[str]) -> dict[str, Lanes]:
        """Those of some special registers that differ between the threads of a block.

        By name, shape (padded threads of a block,).
        """
        x, y, _ = self.grid.block
        thread = np.arange(self.grid.padded_threads, dtype=np.uint32)
        return {
            name: value(thread, x, y) for name, value in _THREAD_REGISTERS.items() if name in names
        }

    def block_registers(self, names: Collection[str]) -> dict[str, Lanes]:
        """Those of some special registers that differ between blocks: by name, shape (blocks,)."""
        cluster = self.grid.cluster
        return {
            name: value(self.blocks, cluster)
            for name, value in _BLOCK_REGISTERS.items()
            if name in names
        }


_THREAD_REGISTERS: dict[str, Callable[[Lanes, int, int], Lanes]] = {
    "%tid.x": lambda thread, x, y: thread % x,
    "%tid.y": lambda thread, x, y: thread // x % y,
    "%tid.z": lambda thread, x, y: thread // (x * y),
    "%laneid": lambda thread, x, y: thread % WARP_SIZE,
    "%warpid": lambda thread, x, y: thread // WARP_SIZE,
    "%lanemask_eq": lambda thread, x, y: np.uint32(1) << thread % WARP_SIZE,
    "%lanemask_lt": lambda thread, x, y: (np.uint32(1) << thread % WARP_SIZE) - np.uint32(1),
    "%lanemask_le": lambda thread, x, y: (np.uint32(2) << thread % WARP_SIZE) - np.uint32(1),
    "%lanemask_gt": lambda thread, x, y: ~((np.uint32(2) << thread % WARP_SIZE) - np.uint32(1)),
    "%lanemask_ge": lambda thread, x, y: ~((np.uint32(1) << thread % WARP_SIZE) - np.uint32(1)),
}
"""Registers of the threads of a block: by name, from their numbers and the block's x and y."""

_BLOCK_REGISTERS: dict[str, Callable[[NDArray[np.int64], Dim3], Lanes]] = {
    **{f"%ctaid.{x}": partial(_along, axis) for axis, x in enumerate("xyz")},
    **{f"%clusterid.{x}": partial(_cluster_along, axis) for axis, x in enumerate("xyz")},
    **{f"%cluster_ctaid.{x}": partial(_place_along, axis) for axis, x in enumerate("xyz")},
    "%cluster_ctarank": cluster_ranks,
}
"""Registers of blocks: by name, from their coordinates, shape (blocks, 3), and the cluster."""
