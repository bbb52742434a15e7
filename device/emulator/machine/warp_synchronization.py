"""Where lanes of a warp that have parted still compute together: in both arms of a branch.

Who executes a shuffle, vote, match, reduction or election waits until all threads that its member
mask names and that have not exited have executed the same instruction with the same mask (PTX ISA,
"shfl.sync"): the same by its opcode, not by its place in the program. So a group that lacks some of
them waits; when no other lane can run, those who wait for each other go on with what all of them
gave. Who waits for lanes that are elsewhere goes on without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.scheduler import Mask, active_warps
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.properties import WARP_SIZE

Lanes = NDArray[Any]
WaitingGroups = dict[int, Mask]
"""Groups of waiting lanes, as masks, by the instruction that they wait at."""

_MEMBER_MASK_OPCODES = ("shfl.sync", "vote.sync", "match", "redux.sync", "elect.sync")
"""Opcodes whose last operand names the lanes that compute together."""

_BIT = np.uint32(1) << np.arange(WARP_SIZE, dtype=np.uint32)


def has_member_mask(step: DecodedInstruction) -> bool:
    """Whether lanes of a warp compute together that a mask names."""
    return step.row.kind == "warp" and step.row.opcode.startswith(_MEMBER_MASK_OPCODES)


def lanes_to_bits(lanes: Mask) -> NDArray[np.uint32]:
    """The lanes of each warp as a bit mask, shape (warps,)."""
    return np.asarray((lanes.reshape(-1, WARP_SIZE) * _BIT).sum(axis=1, dtype=np.uint32))


def bits_to_lanes(bits: NDArray[np.uint32]) -> Mask:
    """Bit masks of warps, shape (warps,), as a mask of lanes."""
    return np.asarray((bits[:, None] & _BIT != 0).reshape(-1))


@dataclass
class ParticipatingLanes:
    """With whom a group carries out what it met others for.

    Attributes:
        groups: The lanes of each group, by its instruction; empty where the running group is alone.
        lanes: All of them.
        given: The sources of the instruction, each lane's from its own group.
    """

    groups: Mapping[int, Mask] = field(default_factory=dict)
    lanes: Mask | None = None
    given: Sequence[Lanes] = ()

    def active(self, mask: Mask) -> Mask:
        """The lanes that compute together with those of a mask."""
        return mask if self.lanes is None else self.lanes


class WarpSynchronization:
    """The masked instructions of a chunk, and who meets at them.

    Attributes:
        steps: Where groups may have to wait; what has a guard runs without.
    """

    def __init__(
        self,
        steps: Sequence[DecodedInstruction],
        operands: Operands,
        live: Mask,
        company: ParticipatingLanes,
    ) -> None:
        """Take a chunk's instructions.

        `live` are its lanes that have not exited, kept up to date; `company` is told who has met.
        """
        self._company = company
        self._live, self._lanes = live, operands.lanes
        self._opcodes = [each.instruction.opcode for each in steps]
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
        """Whether a group lacks lanes that its member masks name and that have not exited."""
        away = self._live & ~mask
        if not (active_warps(away) & active_warps(mask)).any():
            return False
        named = np.broadcast_to(self._member_masks(step), self._lanes)
        return bool((np.repeat(lanes_to_bits(away), WARP_SIZE)[mask] & named[mask]).any())

    def execute_ready(
        self, parked: WaitingGroups, held: Mask, actions: Sequence[Callable[[Mask], None] | None]
    ) -> tuple[WaitingGroups, WaitingGroups]:
        """Let those go on who wait for each other alone; where there are none, the lowest group.

        Args:
            parked: Who waits.
            held: Lanes that wait on rather than go on without others: these may still come.
            actions: What carries out each instruction of the program.

        Returns:
            The lanes that have carried out the instruction that they waited at, and those that
            wait on.
        """
        going = self._complete(parked)
        if not going.any():
            going = self._lowest(_select_lanes(parked, ~held))
        for opcode in {self._opcodes[each] for each in parked}:
            groups = {
                step: lanes & going
                for step, lanes in parked.items()
                if self._opcodes[step] == opcode and (lanes & going).any()
            }
            if groups:
                self._run(groups, actions)
        return _select_lanes(parked, going), _select_lanes(parked, ~going)

    def _run(self, groups: WaitingGroups, actions: Sequence[Callable[[Mask], None] | None]) -> None:
        """Carry out one instruction for groups that wait at several places."""
        company, (first, *_) = self._company, groups
        given = [
            np.broadcast_to(value_of(each), self._lanes).copy() for each in self._sources[first]
        ]
        for step, lanes in groups.items():
            for whole, source in zip(given, self._sources[step], strict=True):
                np.copyto(whole, value_of(source), where=lanes)
        company.groups, company.given = groups, given
        company.lanes = np.logical_or.reduce(list(groups.values()))
        for step, lanes in groups.items():
            action = actions[step]
            assert action is not None
            action(lanes)
        company.groups, company.lanes, company.given = {}, None, ()

    def _complete(self, parked: WaitingGroups) -> Mask:
        """Lanes that wait for none but those who wait at the same instruction with their mask."""
        complete = np.zeros(self._lanes, np.bool_)
        for members, here in self._mask_groups(parked):
            there = lanes_to_bits(here)
            missing = members & lanes_to_bits(self._live) & ~there
            complete |= here & np.repeat(missing == 0, WARP_SIZE)
        return complete

    def _lowest(self, parked: WaitingGroups) -> Mask:
        """The group that lies lowest in the program, and those who wait with its lanes."""
        if not parked:
            return np.zeros(self._lanes, np.bool_)
        group = parked[min(parked)]
        lowest = group.copy()
        for _, here in self._mask_groups(parked):
            warps = (here & group).reshape(-1, WARP_SIZE).any(axis=1)
            lowest |= here & np.repeat(warps, WARP_SIZE)
        return lowest

    def _mask_groups(self, parked: WaitingGroups) -> list[tuple[np.uint32, Mask]]:
        """Waiting lanes, by instruction and member mask; with the mask."""
        found: dict[tuple[str, int], Mask] = {}
        for step, lanes in parked.items():
            named = np.broadcast_to(self._member_masks(step), self._lanes)
            for members in np.unique(named[lanes]).tolist():
                key, here = (self._opcodes[step], members), lanes & (named == members)
                found[key] = found[key] | here if key in found else here
        return [(np.uint32(members), here) for (_, members), here in found.items()]

    def _member_masks(self, step: int) -> NDArray[np.uint32]:
        return value_of(self._sources[step][-1])


def _select_lanes(parked: WaitingGroups, lanes: Mask) -> WaitingGroups:
    return {step: mask & lanes for step, mask in parked.items() if (mask & lanes).any()}
