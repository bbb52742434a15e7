"""Detects waits for an mbarrier that never end: no thread is left that could complete its phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.machine.memory import Mask, Segment
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.polling_loops import PollingLoop
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import Address


class EndlessWait(NamedTuple):
    """A wait that never ends.

    Attributes:
        step: The instruction that tests the barrier.
        lanes: The lanes that wait there, as a mask.
        reason: What the barrier lacks, in words.
    """

    step: int
    lanes: Mask
    reason: str


class EndlessWaits:
    """Tells whether all threads that can still run wait for mbarriers, which nobody completes."""

    def __init__(
        self,
        steps: Sequence[DecodedInstruction],
        loops: Mapping[int, PollingLoop],
        operands: Operands,
        segments: Mapping[str, Segment],
    ) -> None:
        """Watch a chunk: its instructions, loops that poll memory, registers and state spaces."""
        self._steps, self._operands, self._segments = steps, operands, segments
        self._tests = {head: list(self._barrier_tests(loop)) for head, loop in loops.items()}

    def find(self, waiting: Mapping[int, Mask]) -> EndlessWait | None:
        """The first of the waits, where all groups that wait in loops wait for mbarriers.

        Args:
            waiting: The groups, by the first instruction of their loop; no other group can run.
        """
        tests = {head: self._tests[head] for head in waiting}
        if not all(map(len, tests.values())):
            return None
        head = min(waiting)
        index = tests[head][0]
        return EndlessWait(index, waiting[head], self._reason(index, waiting[head]))

    def _barrier_tests(self, loop: PollingLoop) -> Iterator[int]:
        """The tests of barriers in a loop; none where it also waits for something else."""
        if not loop.is_pure_poll:
            return
        ends = len(self._steps)
        found = []
        for index in range(loop.head, ends):
            step = self._steps[index]
            if step.row.kind in ("load", "atomic"):
                if not mbarrier.is_test(step.instruction):
                    return
                found.append(index)
            if step.row.kind == "branch":
                break
        yield from found

    def _reason(self, index: int, lanes: Mask) -> str:
        """What the barrier lacks that the first of some lanes tests."""
        lane = np.flatnonzero(lanes)[:1]
        operand = self._steps[index].instruction.operands[1]
        assert isinstance(operand, Address)
        count = len(lanes)
        address = np.broadcast_to(self._operands.address_base(operand) + operand.offset, count)
        address, spaces = address[lane], [(self._steps[index].row.space, 0)]
        if spaces[0][0] == "generic":
            parts = split_by_space(address, np.ones(1, np.bool_))
            spaces = [(space, window) for space, window, _ in parts]
        (space, window), *_ = spaces
        segment = self._segments[space]
        place = int(address[0]) - window - segment.origin
        if segment.lane_base is not None:
            place += int(segment.lane_base[lane[0]])
        word = int(segment.data[place : place + 8].view(np.uint64)[0])
        return mbarrier.describe_wait(word)
