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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.scheduler import (
    Mask,
    WaitingGroups,
    active_warps,
    select_lanes,
)
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.properties import WARP_SIZE

Lanes = NDArray[Any]

_MEMBER_MASK_OPCODES = ("shfl.sync", "vote.sync", "match", "redux.sync", "elect.sync")
"""Opcodes whose last operand is a member mask."""

_BIT = np.uint32(1) << np.arange(WARP_SIZE, dtype=np.uint32)


def has_member_mask(step: DecodedInstruction) -> bool:
    """Whether an instruction is executed together by the lanes that a member mask names."""
    return step.row.kind == "warp" and step.row.opcode.startswith(_MEMBER_MASK_OPCODES)


def lanes_to_bits(lanes: Mask) -> NDArray[np.uint32]:
    """The lanes of each warp as a bit mask, shape (warps,)."""
    return np.asarray((lanes.reshape(-1, WARP_SIZE) * _BIT).sum(axis=1, dtype=np.uint32))


def bits_to_lanes(bits: NDArray[np.uint32]) -> Mask:
    """The mask of lanes for one bit mask per warp, shape (warps,)."""
    return np.asarray((bits[:, None] & _BIT != 0).reshape(-1))


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
    """The instructions of a chunk that have a member mask, and the groups that wait at them.

    Attributes:
        steps: Positions of the instructions where groups may have to wait. Instructions with a
            guard are left out: they run without waiting.
    """

    def __init__(
        self,
        steps: Sequence[DecodedInstruction],
        operands: Operands,
        live: Mask,
        participants: ParticipatingLanes,
    ) -> None:
        """Prepare the instructions of a chunk.

        Args:
            steps: The program.
            operands: The registers.
            live: The lanes that have not exited, as a mask that the scheduler updates in place.
            participants: Is set while groups execute an instruction together.
        """
        self._participants = participants
        self._live, self._lanes = live, operands.lanes
        self._opcodes = [step.instruction.opcode for step in steps]
        self._sources = {
            index: [
                operands.source(operand, type_)
                for operand, type_ in zip(step.instruction.operands[1:], step.row.of, strict=True)
            ]
            for index, step in enumerate(steps)
            if has_member_mask(step) and step.instruction.guard is None
        }
        self.steps = self._sources.keys()

    def must_wait(self, step: int, mask: Mask) -> bool:
        """Whether a group lacks live lanes that its member masks name."""
        away = self._live & ~mask
        if not (active_warps(away) & active_warps(mask)).any():
            return False
        named = np.broadcast_to(self._member_masks(step), self._lanes)
        return bool((np.repeat(lanes_to_bits(away), WARP_SIZE)[mask] & named[mask]).any())

    def execute_ready(
        self, parked: WaitingGroups, held: Mask, actions: Sequence[Callable[[Mask], None] | None]
    ) -> tuple[WaitingGroups, WaitingGroups]:
        """Execute the instructions whose members have all arrived.

        Where there is none, the waiting group with the lowest position executes its instruction
        without the missing lanes.

        Args:
            parked: The waiting groups.
            held: Lanes that must not go on without the missing ones, as a mask: those may still
                arrive.
            actions: The action of each instruction of the program.

        Returns:
            The lanes that executed the instruction that they waited at, and those that still wait.
        """
        released = self._complete(parked)
        if not released.any():
            released = self._lowest(select_lanes(parked, ~held))
        for opcode in {self._opcodes[step] for step in parked}:
            groups = {
                step: lanes & released
                for step, lanes in parked.items()
                if self._opcodes[step] == opcode and (lanes & released).any()
            }
            if groups:
                self._run(groups, actions)
        return select_lanes(parked, released), select_lanes(parked, ~released)

    def _run(self, groups: WaitingGroups, actions: Sequence[Callable[[Mask], None] | None]) -> None:
        """Execute one instruction for groups that wait at several positions."""
        participants, (first, *_) = self._participants, groups
        combined = [
            np.broadcast_to(value_of(source), self._lanes).copy() for source in self._sources[first]
        ]
        for step, lanes in groups.items():
            for values, source in zip(combined, self._sources[step], strict=True):
                np.copyto(values, value_of(source), where=lanes)
        participants.groups, participants.sources = groups, combined
        participants.lanes = np.logical_or.reduce(list(groups.values()))
        for step, lanes in groups.items():
            action = actions[step]
            assert action is not None
            action(lanes)
        participants.groups, participants.lanes, participants.sources = {}, None, ()

    def _complete(self, parked: WaitingGroups) -> Mask:
        """The lanes whose member masks name no live lane that waits elsewhere, as a mask."""
        complete = np.zeros(self._lanes, np.bool_)
        for members, arrived in self._mask_groups(parked):
            missing = members & lanes_to_bits(self._live) & ~lanes_to_bits(arrived)
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
        return value_of(self._sources[step][-1])
