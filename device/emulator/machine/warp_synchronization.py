"""Synchronizes diverged lanes of a warp at instructions with a member mask.

A thread that executes a shuffle, vote, match, reduction or election waits until all threads in its
member mask that have not exited have executed the same instruction with the same mask (PTX ISA,
"shfl.sync"). "The same instruction" means the same opcode: it may stand in both arms of a branch.
So a group that lacks some members waits. When no other lane can run, groups that wait for each
other execute the instruction together, each lane with the operands of its own group. If there are
none, a group goes on without the lanes that it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.stretches import waits_for_members
from memlab.device.emulator.machine.context import lanes_to_words
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.machine.observer import Action
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.machine.scheduler import Scheduler, WaitingGroups, select_lanes
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.properties import WARP_SIZE


@dataclass
class ParticipatingLanes:
    """The groups that execute the current warp instruction together.

    Attributes:
        groups: The lanes of each group, by the position of its instruction; empty where the
            running group executes alone.
        lanes: The lanes of all groups; None where the running group executes alone.
        sources: The source operands of the instruction, each lane's from its own group.
    """

    groups: Mapping[int, Mask] = field(default_factory=dict)
    lanes: Mask | None = None
    sources: Sequence[Lanes] = ()

    def active(self, mask: Mask) -> Mask:
        """The lanes that execute together with those of a mask, these included."""
        return mask if self.lanes is None else self.lanes


class WarpSynchronization:
    """The instructions of a chunk that have a member mask, and the groups that wait at them."""

    def __init__(
        self,
        steps: Sequence[DecodedInstruction],
        operands: Operands,
        schedule: Scheduler,
        participants: ParticipatingLanes,
        action: Callable[[int], Action],
    ) -> None:
        """Prepare the instructions of a chunk.

        Args:
            steps: The program.
            operands: The registers.
            schedule: Tells which lanes have not exited.
            participants: Is set while groups execute an instruction together.
            action: Gives the action of an instruction.
        """
        self._participants, self._action = participants, action
        self._schedule, self._lanes = schedule, operands.lanes
        self._opcodes = [step.instruction.opcode for step in steps]
        self._sources = {
            index: [
                operands.source(operand, type_)
                for operand, type_ in zip(step.instruction.operands[1:], step.row.of, strict=True)
            ]
            for index, step in enumerate(steps)
            if waits_for_members(step)
        }

    def must_wait(self, step: int, mask: Mask) -> bool:
        """Whether a group lacks live lanes that its member masks name."""
        running = lanes_to_words(mask)
        away = lanes_to_words(self._schedule.live) & ~running
        if not away[running != 0].any():
            return False
        named = np.broadcast_to(self._member_masks(step), self._lanes)
        return bool((np.repeat(away, WARP_SIZE)[mask] & named[mask]).any())

    def execute_ready(self, waiting: WaitingGroups, held: Mask) -> Mask:
        """Execute the instructions whose members have all arrived.

        Where there is none, the waiting group with the lowest position executes its instruction
        without the missing lanes.

        Args:
            waiting: The waiting groups.
            held: Lanes that must not go on without the missing ones: those may still arrive.

        Returns:
            The lanes that executed the instruction that they waited at.
        """
        released = self._complete(waiting)
        if not released.any():
            released = self._lowest(select_lanes(waiting, ~held))
        ready = select_lanes(waiting, released)
        for opcode in {self._opcodes[step] for step in ready}:
            self._run({step: ready[step] for step in ready if self._opcodes[step] == opcode})
        return released

    def _run(self, groups: WaitingGroups) -> None:
        """Execute one instruction for groups that wait at several positions."""
        participants, (first, *others) = self._participants, groups
        if not others:
            self._action(first)(groups[first])
            return
        combined = [
            np.broadcast_to(source(), self._lanes).copy() for source in self._sources[first]
        ]
        for step, lanes in groups.items():
            for values, source in zip(combined, self._sources[step], strict=True):
                np.copyto(values, source(), where=lanes)
        participants.groups, participants.sources = groups, combined
        participants.lanes = np.logical_or.reduce(list(groups.values()))
        for step, lanes in groups.items():
            self._action(step)(lanes)
        participants.groups, participants.lanes, participants.sources = {}, None, ()

    def _complete(self, parked: WaitingGroups) -> Mask:
        """The lanes whose member masks name no live lane that waits elsewhere, as a mask."""
        complete = np.zeros(self._lanes, np.bool_)
        for members, arrived in self._mask_groups(parked):
            missing = members & lanes_to_words(self._schedule.live) & ~lanes_to_words(arrived)
            complete |= arrived & np.repeat(missing == 0, WARP_SIZE)
        return complete

    def _lowest(self, parked: WaitingGroups) -> Mask:
        """The group at the lowest position, with the lanes that wait for the same instruction."""
        if not parked:
            return np.zeros(self._lanes, np.bool_)
        group = parked[min(parked)]
        lowest = group.copy()
        for _, arrived in self._mask_groups(parked):
            warps = (arrived & group).reshape(-1, WARP_SIZE).any(axis=1)
            lowest |= arrived & np.repeat(warps, WARP_SIZE)
        return lowest

    def _mask_groups(self, parked: WaitingGroups) -> list[tuple[np.uint32, Mask]]:
        """Group waiting lanes by opcode and member mask; gives each mask with its lanes."""
        groups: dict[tuple[str, int], Mask] = {}
        for step, lanes in parked.items():
            named = np.broadcast_to(self._member_masks(step), self._lanes)
            for members in np.unique(named[lanes]).tolist():
                key, arrived = (self._opcodes[step], members), lanes & (named == members)
                groups[key] = groups[key] | arrived if key in groups else arrived
        return [(np.uint32(members), arrived) for (_, members), arrived in groups.items()]

    def _member_masks(self, step: int) -> NDArray[np.uint32]:
        return self._sources[step][-1]()
