"""Synchronizes diverged lanes of a warp at instructions with a member mask.

A thread that executes a shuffle, vote, match, reduction or election waits until all threads in its
member mask that have not exited have executed the same instruction with the same mask (PTX ISA,
"shfl.sync"). "The same instruction" means the same opcode: it may stand in both arms of a branch.
So a group that lacks some members waits. When no other lane can run, groups that wait for each
other execute the instruction together, each lane with the operands of its own group. If there are
none, a group goes on without the lanes that it waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.collective import execute_collective
from memlab.device.emulator.machine.context import lanes_to_words
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.machine.scheduler import WaitingGroups, select_lanes
from memlab.device.emulator.program.program import destinations
from memlab.device.emulator.ptx.parser import Register
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.machine import Chunk


class WarpSynchronization:
    """The instructions of a chunk that have a member mask.

    Attributes:
        groups: While groups execute an instruction together, the lanes of each, by the position of
            its instruction; else empty.
        sources: The source operands of this instruction, each lane's from its own group.
    """

    def __init__(self, chunk: Chunk) -> None:
        """Synchronize the lanes of a chunk."""
        self._chunk, self._steps = proxy(chunk), chunk.program.steps
        self.groups: WaitingGroups = {}
        self.sources: Sequence[Lanes] = ()
        self._results: Sequence[Lanes] = ()

    def active(self, mask: Mask) -> Mask:
        """The lanes that execute together with those of a mask, these included."""
        return np.asarray(np.logical_or.reduce([mask, *self.groups.values()]))

    def write_results(self, step: int, mask: Mask) -> bool:
        """Write what groups have computed together to the registers of one of them, if they do."""
        if not self.groups:
            return False
        for operand, result in zip(destinations(self._steps[step]), self._results, strict=False):
            assert isinstance(operand, Register)
            self._chunk.operands.write(operand.name, result, mask)
        return True

    def must_wait(self, step: int, mask: Mask) -> bool:
        """Whether a group lacks live lanes that its member masks name."""
        running = lanes_to_words(mask)
        away = lanes_to_words(self._chunk.scheduler.live) & ~running
        if not away[running != 0].any():
            return False
        return bool((np.repeat(away, WARP_SIZE) & self._member_masks(step))[mask].any())

    def execute_ready(self, waiting: WaitingGroups, held: Mask) -> Mask:
        """Execute the instructions whose members have all arrived.

        Where there is none, the waiting group with the lowest position executes its instruction
        without the missing lanes, and with those that wait for the same instruction.

        Args:
            waiting: The waiting groups.
            held: Lanes that must not go on without the missing ones: those may still arrive.

        Returns:
            The lanes that executed the instruction that they waited at.
        """
        arrived = self._arrived(waiting)
        live, released = lanes_to_words(self._chunk.scheduler.live), np.zeros_like(held)
        for members, lanes in arrived:
            missing = members & live & ~lanes_to_words(lanes)
            released |= lanes & np.repeat(missing == 0, WARP_SIZE)
        if not released.any():
            may_go = select_lanes(waiting, ~held)
            first = lanes_to_words(may_go[min(may_go)] if may_go else released)
            for _, lanes in arrived:
                released |= lanes & np.repeat(lanes_to_words(lanes) & first != 0, WARP_SIZE)
        ready = select_lanes(waiting, released)
        for opcode in {self._opcode(step) for step in ready}:
            self._run({step: ready[step] for step in ready if self._opcode(step) == opcode})
        return released

    def _run(self, groups: WaitingGroups) -> None:
        """Execute one instruction for groups that wait at several positions."""
        if len(groups) > 1:
            self.groups = groups
            self.sources = [np.zeros_like(values) for values in self._read(min(groups))]
            for step, lanes in groups.items():
                for values, own in zip(self.sources, self._read(step), strict=True):
                    np.copyto(values, own, where=lanes)
            lanes = np.logical_or.reduce(list(groups.values()))
            self._results = execute_collective(self._steps[step].row, lanes, self.sources)
        for step, lanes in groups.items():
            self._chunk.action(step)(lanes)
        self.groups, self.sources, self._results = {}, (), ()

    def _arrived(self, waiting: WaitingGroups) -> list[tuple[np.uint32, Mask]]:
        """The lanes that wait with one opcode and member mask: each mask with its lanes."""
        groups: dict[tuple[str, int], Mask] = {}
        for step, lanes in waiting.items():
            named = self._member_masks(step)
            for members in np.unique(named[lanes]).tolist():
                key, arrived = (self._opcode(step), members), lanes & (named == members)
                groups[key] = groups[key] | arrived if key in groups else arrived
        return [(np.uint32(members), arrived) for (_, members), arrived in groups.items()]

    def _opcode(self, step: int) -> str:
        return self._steps[step].instruction.opcode

    def _read(self, step: int) -> list[Lanes]:
        """The source operands of an instruction, shape (lanes,); the last is the member mask."""
        operands, types = self._steps[step].instruction.operands[1:], self._steps[step].row.of
        return [
            np.broadcast_to(self._chunk.operands.read(operand, ptx_type), self._chunk.lanes)
            for operand, ptx_type in zip(operands, types, strict=True)
        ]

    def _member_masks(self, step: int) -> NDArray[np.uint32]:
        return self._read(step)[-1]
