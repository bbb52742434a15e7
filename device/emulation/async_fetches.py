"""How often asynchronous copies of 16 bytes fetch a sector from the L2.

Of copies that bypass the L1, the hardware fetches a sector once for each aligned piece of 32 bytes
of shared memory that it goes to: twice where its halves lie in two of them. On an H200 copies to
rows that begin at odd multiples of 16 bytes read 24 sectors where their lines have 16
(docs/results/README.md, "`cp.async`").
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from memlab.device.budget import EmulationTimeoutError
from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import first_of_clusters
from memlab.device.emulator.isa.macros import is_async_copy_store
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.program.program import Program, bytes_moved
from memlab.device.properties import SECTOR_BYTES, WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

_SPLIT_BYTES = 16
_MOST_COPIES = 256  # executions of copies that are looked at: 0.1 s


def fetches_per_sector(execution: Execution, block: tuple[int, int, int]) -> Mapping[int, float]:
    """Fetches for each sector that a copy reads, by the position of its load in the program.

    The first copies of a block are executed; the outputs of the launch are lost.

    Args:
        execution: The launch.
        block: Coordinates of the block.

    Returns:
        1 to 2 for each load that belongs to a copy of 16 bytes which bypasses the L1, as far as
        the block executed it.
    """
    if not _copies(execution.program):
        return {}
    log = _CopyLog()
    execution.reset()
    with contextlib.suppress(_EnoughError, KernelFault, EmulationTimeoutError):
        execution.run(first_of_clusters(execution, np.array([block])), observers=[log])
    execution.reset()
    read = {load: sectors for load, sectors in log.sectors.items() if sectors}  # else zeros alone
    return {load: log.fetches[load] / sectors for load, sectors in read.items()}


def _copies(program: Program) -> Mapping[int, int]:
    """The loads of copies of 16 bytes that bypass the L1, by the stores that follow them."""
    copies, load = {}, None
    for index, step in enumerate(program.steps):
        if step.row.kind == "load" and step.row.space == "global":
            load = index
        elif load is not None and is_async_copy_store(step.instruction):
            loading = program.steps[load]
            if loading.row.bypass_l1 and bytes_moved(loading.row) == _SPLIT_BYTES:
                copies[index] = load
    return copies


class _EnoughError(Exception):
    """Enough copies were executed."""


class _CopyLog(ExecutionPolicy):
    """Counts the sectors of copies, and the fetches of these, by the copies' loads."""

    is_trial: ClassVar[bool] = True

    def __init__(self) -> None:
        self.sectors: dict[int, int] = {}
        self.fetches: dict[int, int] = {}
        self._left = _MOST_COPIES

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The loads and the stores of copies."""
        self._load_of = _copies(program)
        return {*self._load_of, *self._load_of.values()}

    def chunk_started(self, chunk: Chunk) -> None:
        """Begin without loaded lanes."""
        lanes = chunk.context["warps"] * WARP_SIZE
        self._sector = np.full(lanes, -1)  # that each lane's last load read, until it is stored

    def memory_accessed(self, access: WatchedAccess) -> None:
        """A copy is about to load or to store."""
        index = access.instruction.index
        if index not in self._load_of:
            self._sector[access.mask] = access.address[access.mask] // SECTOR_BYTES
            return
        lanes = np.flatnonzero(access.mask & (self._sector >= 0))
        pairs = np.stack([lanes // WARP_SIZE, self._sector[lanes]])
        pieces = np.stack([*pairs, access.address[lanes] // SECTOR_BYTES])
        load = self._load_of[index]
        for counts, of in ((self.sectors, pairs), (self.fetches, pieces)):
            counts[load] = counts.get(load, 0) + np.unique(of, axis=1).shape[1]
        self._sector[lanes] = -1
        self._left -= 1
        if not self._left:
            raise _EnoughError
