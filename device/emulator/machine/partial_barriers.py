"""Barriers for a part of a block, or for a cluster of blocks.

Those of a part are named (numbered) barriers, with a count, and `bar.arrive`; that of a cluster is
`barrier.cluster`. Where every barrier is for the whole block, all open as soon as no thread can
run. With others that would be wrong: a producer and a consumer wait at different ones (PTX ISA,
"bar"), and blocks of a cluster may be at different barriers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.stretches import is_cluster_barrier, is_partial
from memlab.device.emulator.machine.memory import KernelFault, Lanes, Mask
from memlab.device.emulator.machine.scheduler import WaitingGroups
from memlab.device.emulator.machine.threads import cluster_peers
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.machine import Chunk


class PartialBarriers:
    """The partial barriers of a chunk's blocks, and the threads that have arrived at them."""

    def __init__(self, chunk: Chunk) -> None:
        """Prepare the barriers of a chunk."""
        self._steps, self._operands, self._lanes = chunk.program.steps, chunk.operands, chunk.lanes
        self._chunk = proxy(chunk)
        self._block = np.arange(chunk.lanes) // chunk.threads.grid.padded_threads
        self._arrived: Counter[tuple[int, int]] = Counter()  # by block and barrier number
        peers = cluster_peers(chunk.threads.blocks, chunk.threads.grid.cluster)
        self._cluster = peers[self._block, 0]  # of each lane: the block of rank 0
        self._cluster_arrivals = np.zeros(chunk.lanes, np.int64)  # of each lane, so far

    def arrive(self, step: int, lanes: Mask) -> None:
        """Lanes arrive at a barrier without waiting.

        At a named one (`bar.arrive`), each warp counts as a whole.
        """
        if is_cluster_barrier(self._steps[step]):
            self._cluster_arrivals += lanes
            return
        numbers = self._value(step, 0)
        warps = lanes.reshape(-1, WARP_SIZE).any(axis=1)
        for warp in np.flatnonzero(warps).tolist():
            lane = warp * WARP_SIZE
            first = lane + int(lanes[lane : lane + WARP_SIZE].argmax())
            key = int(self._block[lane]), int(numbers[first])
            self._arrived[key] += WARP_SIZE

    def open(self, parked: WaitingGroups) -> Mask:
        """The waiting lanes whose barrier is complete.

        Where none is, all of them: others may still spin. If none is left, no barrier ever opens.

        Raises:
            KernelFault: The lanes wait forever.
        """
        if not any(is_partial(self._steps[resume - 1]) for resume in parked):
            return np.asarray(np.logical_or.reduce(list(parked.values())))
        numbers, counts = np.full(self._lanes, -1, np.int64), np.zeros(self._lanes, np.int64)
        at_cluster = np.zeros(self._lanes, np.bool_)
        for resume, lanes in parked.items():
            if is_cluster_barrier(self._steps[resume - 1]):
                at_cluster |= lanes
                continue
            numbers[lanes] = self._value(resume - 1, 0)[lanes]
            counts[lanes] = self._value(resume - 1, 1)[lanes]
        waiting = (numbers >= 0) | at_cluster
        released = at_cluster & self._is_cluster_complete()
        blocks = len(self._chunk.threads.blocks)
        in_block = np.bincount(self._block[waiting], minlength=blocks)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            at_number = (numbers == number) & ~at_cluster
            at_barrier = at_number.reshape(blocks, -1)
            expected = np.where(at_barrier, counts.reshape(blocks, -1), 0).max(axis=1)
            present = _threads_of_warps(at_number, blocks)
            for block in self._arrived_at(number):
                present[block] += self._arrived[block, number]
            whole = at_barrier.sum(axis=1) == in_block
            opens = at_barrier.any(axis=1) & np.where(expected, present >= expected, whole)
            released |= (at_barrier & opens[:, None]).reshape(-1)
            for block in np.flatnonzero(opens).tolist():
                self._arrived.pop((block, number), None)
        if released.any():
            return released
        if np.array_equal(waiting, self._chunk.scheduler.live):
            self._raise_deadlock(parked, counts)
        return waiting & ~at_cluster

    def _arrived_at(self, number: int) -> list[int]:
        """The blocks in which warps have arrived at a barrier without waiting."""
        return [block for block, other in self._arrived if other == number]

    def _is_cluster_complete(self) -> Mask:
        """Whether each lane may pass the barrier of its cluster at which it arrived last.

        All threads that have not exited must have arrived as often.
        """
        most = np.iinfo(np.int64).max
        least = np.full(len(self._chunk.threads.blocks), most)
        arrivals = np.where(self._chunk.scheduler.live, self._cluster_arrivals, most)
        np.minimum.at(least, self._cluster, arrivals)
        return np.asarray(least[self._cluster] >= self._cluster_arrivals)

    def _raise_deadlock(self, parked: WaitingGroups, counts: NDArray[np.int64]) -> None:
        """Raise the error for a barrier that its threads never complete."""
        resume, lanes = min(parked.items())
        lane = int(np.flatnonzero(lanes)[0])
        expected = f" of {counts[lane]} threads" if counts[lane] else ""
        if is_cluster_barrier(self._steps[resume - 1]):
            expected = " of the cluster"
        place = self._chunk.threads.place(lane, self._steps[resume - 1].instruction)
        raise KernelFault(f"a barrier{expected} is never complete, {place}: memlab check says why")

    def _value(self, step: int, operand: int) -> NDArray[np.int64]:
        """An operand of a barrier, shape (lanes,); 0 where it is left out."""
        operands = self._steps[step].instruction.operands
        value = np.zeros((), np.int64)
        if operand < len(operands):
            value = self._operands.read(operands[operand], "u32").astype(np.int64)
        return np.broadcast_to(value, self._lanes)


def _threads_of_warps(lanes: Mask, blocks: int) -> Lanes:
    """The threads of all warps that have one of these lanes, in each of the blocks.

    Barriers count whole warps.
    """
    warps = lanes.reshape(blocks, -1, WARP_SIZE).any(axis=2)
    return np.asarray(warps.sum(axis=1) * WARP_SIZE)
