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
from memlab.device.emulator.machine.scheduler import Mask, warps_of
from memlab.device.emulator.program.program import Step
from memlab.device.properties import WARP_SIZE

Lanes = NDArray[Any]
Parked = dict[int, Mask]
"""Groups of waiting lanes, as masks, by the instruction that they wait at."""

_MASKED = ("shfl.sync", "vote.sync", "match", "redux.sync", "elect.sync")
"""Opcodes whose last operand names the lanes that compute together."""

_BIT = np.uint32(1) << np.arange(WARP_SIZE, dtype=np.uint32)


def is_masked(step: Step) -> bool:
    """Whether lanes of a warp compute together that a mask names."""
    return step.row.kind == "warp" and step.row.opcode.startswith(_MASKED)


def bits_of(lanes: Mask) -> NDArray[np.uint32]:
    """The lanes of each warp as a bit mask, shape (warps,)."""
    return np.asarray((lanes.reshape(-1, WARP_SIZE) * _BIT).sum(axis=1, dtype=np.uint32))


def lanes_of(bits: NDArray[np.uint32]) -> Mask:
    """Bit masks of warps, shape (warps,), as a mask of lanes."""
    return np.asarray((bits[:, None] & _BIT != 0).reshape(-1))


@dataclass
class Company:
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


class Meetings:
    """The masked instructions of a chunk, and who meets at them.

    Attributes:
        steps: Where groups may have to wait; what has a guard runs without.
    """

    def __init__(
        self, steps: Sequence[Step], operands: Operands, live: Mask, company: Company
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
            if is_masked(step) and step.instruction.guard is None
        }
        self.steps = self._sources.keys()

    def must_wait(self, step: int, mask: Mask) -> bool:
        """Whether a group lacks lanes that its member masks name and that have not exited."""
        away = self._live & ~mask
        if not (warps_of(away) & warps_of(mask)).any():
            return False
        named = np.broadcast_to(self._named(step), self._lanes)
        return bool((np.repeat(bits_of(away), WARP_SIZE)[mask] & named[mask]).any())

    def carry_out(
        self, parked: Parked, held: Mask, actions: Sequence[Callable[[Mask], None] | None]
    ) -> tuple[Parked, Parked]:
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
            going = self._lowest(_part(parked, ~held))
        for opcode in {self._opcodes[each] for each in parked}:
            groups = {
                step: lanes & going
                for step, lanes in parked.items()
                if self._opcodes[step] == opcode and (lanes & going).any()
            }
            if groups:
                self._run(groups, actions)
        return _part(parked, going), _part(parked, ~going)

    def _run(self, groups: Parked, actions: Sequence[Callable[[Mask], None] | None]) -> None:
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

    def _complete(self, parked: Parked) -> Mask:
        """Lanes that wait for none but those who wait at the same instruction with their mask."""
        complete = np.zeros(self._lanes, np.bool_)
        for members, here in self._parties(parked):
            there = bits_of(here)
            missing = members & bits_of(self._live) & ~there
            complete |= here & np.repeat(missing == 0, WARP_SIZE)
        return complete

    def _lowest(self, parked: Parked) -> Mask:
        """The group that lies lowest in the program, and those who wait with its lanes."""
        if not parked:
            return np.zeros(self._lanes, np.bool_)
        group = parked[min(parked)]
        lowest = group.copy()
        for _, here in self._parties(parked):
            warps = (here & group).reshape(-1, WARP_SIZE).any(axis=1)
            lowest |= here & np.repeat(warps, WARP_SIZE)
        return lowest

    def _parties(self, parked: Parked) -> list[tuple[np.uint32, Mask]]:
        """Waiting lanes, by instruction and member mask; with the mask."""
        found: dict[tuple[str, int], Mask] = {}
        for step, lanes in parked.items():
            named = np.broadcast_to(self._named(step), self._lanes)
            for members in np.unique(named[lanes]).tolist():
                key, here = (self._opcodes[step], members), lanes & (named == members)
                found[key] = found[key] | here if key in found else here
        return [(np.uint32(members), here) for (_, members), here in found.items()]

    def _named(self, step: int) -> NDArray[np.uint32]:
        return value_of(self._sources[step][-1])


def _part(parked: Parked, lanes: Mask) -> Parked:
    return {step: mask & lanes for step, mask in parked.items() if (mask & lanes).any()}
