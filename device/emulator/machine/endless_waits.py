"""Detects waits for an mbarrier that never end: no thread is left that could complete its phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.machine.memory import Lanes, Mask, Segment
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.polling_loops import PollingLoop
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import Register


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
        """The wait that tells most, where all groups that wait in loops wait for mbarriers.

        Threads that wait for bytes of copies, though all have arrived, come first: arrivals may be
        lacking only because the threads that owe them wait themselves.

        Args:
            waiting: The groups, by the first instruction of their loop; no other group can run.
        """
        tests = {head: self._tests[head] for head in waiting}
        if not all(map(len, tests.values())):
            return None
        waits = []
        for head, mask in sorted(waiting.items()):
            index, lanes = tests[head][0], np.flatnonzero(mask)
            words = self._words(index, lanes)
            complete = mbarrier.has_all_arrivals(words)
            chosen = complete == complete.any()
            of = np.zeros_like(mask)
            of[lanes[chosen]] = True
            reason = mbarrier.describe_wait(int(words[chosen][0]))
            waits.append((not complete.any(), EndlessWait(index, of, reason)))
        _, first = min(waits, key=itemgetter(0))
        return first

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

    def _words(self, index: int, lanes: Lanes) -> Lanes:
        """The words of the barriers that lanes, given by number, test."""
        operand, space = self._steps[index].address, self._steps[index].row.space
        base = self._operands.address_base(operand) + operand.offset
        address = base[lanes] if base.ndim else np.full(len(lanes), base)
        every = np.ones(len(lanes), np.bool_)
        parts = split_by_space(address, every) if space == "generic" else [(space, 0, every)]
        words = np.zeros(len(lanes), np.uint64)
        for name, window, part in parts:
            segment = self._segments[name]
            has_rank = isinstance(operand.base, Register)
            places = segment.positions(address[part] - window, lanes[part], has_rank)
            words[part] = segment.data[places[:, None] + np.arange(8)].view(np.uint64)[:, 0]
        return words
