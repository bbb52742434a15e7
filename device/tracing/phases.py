"""Cuts what a block does into phases: rounds of filling shared memory and using it.

All threads of a block are in the same phase, whether they have a part in it or not, so all of them
are watched. Barriers cut the way of each thread into rounds; what any thread does to shared memory
in a round says whether a phase begins in it. Barriers of the block number the rounds, and barriers
of a warp the parts of one: a warp may pass some that others do not, and yet all are in the same
round behind the block's next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.machine.address_resolution import MemoryInstruction, ResolvedAddresses
from memlab.device.emulator.machine.memory import GlobalMemory
from memlab.device.emulator.machine.recording import Recorder
from memlab.device.emulator.program.program import DecodedInstruction, Program

Lanes = NDArray[Any]
Number = TypeVar("Number", int, NDArray[Any])

_STORES, _READS = 1, 2
_MAX_HISTORY_DIGITS = 4  # digits; what follows a fourth turn decides nothing more
_BLOCK_BARRIER = 1 << 32  # in a round's number; more barriers of a warp than ever lie between two


@dataclass(frozen=True)
class BarrierInterval:
    """What lies between two barriers.

    Attributes:
        phase: The phase at its beginning; 0 up to the first round that touches shared memory.
        begins: Whether another phase begins in it.
        was_read: Whether shared memory was read in that phase before the round.
    """

    phase: int
    begins: bool = False
    was_read: bool = False

    def phase_entry(self, stores: Sequence[bool]) -> int:
        """Where a thread enters the phase that begins in this round.

        It enters with its first store behind a read, its own or one of an earlier round; where it
        reads nothing before it stores, with its first store. One that stores nothing is in it from
        the beginning where the last phase was over before the round.

        Args:
            stores: What the thread does to shared memory in the round, in order: whether it is a
                store.

        Returns:
            How many of these lie before; all of them where the thread stays in the old phase.
        """
        read = self.was_read
        for position, store in enumerate(stores):
            if store and read:
                return position
            read |= not store
        if self.was_read:
            return 0
        return stores.index(True) if True in stores else len(stores)


class PhaseRecorder(Recorder):
    """Follows lanes of one block, and watches how all of its threads use shared memory."""

    def __init__(self, memory: GlobalMemory, lanes: Lanes, program: Program, threads: int) -> None:
        """Follow the given lanes of a block, which has so many lanes in all."""
        super().__init__(memory, lanes)
        self._steps = program.steps
        self._waits = [index for index, step in enumerate(program.steps) if is_barrier(step)]
        self._touched: list[tuple[int, Lanes]] = []
        self._round = np.zeros(threads, np.int64)  # the number of the one each thread is in
        self._way = np.zeros(threads, np.int64)  # what it did since: digits to the base 3
        self._ways: defaultdict[int, set[int]] = defaultdict(set)  # by round

    def memory_accessed(
        self,
        instruction: MemoryInstruction,
        addresses: ResolvedAddresses,
        offset: int,
        mask: Lanes | None,
    ) -> None:
        """Take note of one memory instruction; as in `Recorder`."""
        super().memory_accessed(instruction, addresses, offset, mask)
        if addresses.segment.name == "shared":
            active = self._alive if mask is None else mask
            self._touched.append((instruction.index, active.copy()))

    def range_executed(self, start: int, stop: int, mask: Lanes | None) -> None:
        """Take note of instructions that have run; as in `Recorder`."""
        super().range_executed(start, stop, mask)
        lanes = np.ones(len(self._round), np.bool_) if mask is None else mask
        events = [*self._touched, *((each, lanes) for each in self._waits if start <= each < stop)]
        for step, those in sorted(events, key=lambda event: event[0]):
            if is_barrier(self._steps[step]):
                self._end_round(those)
                self._round[those] = interval_after(self._steps[step], self._round[those])
            else:
                digit = _STORES if self._steps[step].row.kind == "store" else _READS
                goes_on = (
                    those & (self._way % 3 != digit) & (self._way < 3 ** (_MAX_HISTORY_DIGITS - 1))
                )
                self._way[goes_on] = 3 * self._way[goes_on] + digit
        self._touched.clear()

    def _end_round(self, lanes: Lanes) -> None:
        for number in np.unique(self._round[lanes]).tolist():
            here = lanes & (self._round == number)
            self._ways[number].update(np.unique(self._way[here]).tolist())
        self._way[lanes] = 0

    def rounds(self) -> dict[int, BarrierInterval]:
        """What lies before, between and behind the barriers that threads pass; then the end.

        Returns:
            The rounds by their numbers, in order: 0 is the first, `behind` gives the next ones.
        """
        self._end_round(np.ones(len(self._round), np.bool_))
        return dict(self._numbered())

    def _numbered(self) -> Iterator[tuple[int, BarrierInterval]]:
        phase, was_read = 0, False
        for number in sorted(self._ways):
            ways = [_decoded_history(each) for each in self._ways[number] if each]
            begins = any(_stores_after_read(each) or (was_read and True in each) for each in ways)
            this = BarrierInterval(phase, begins, was_read)
            yield number, this
            if begins:
                was_read = any(False in each[this.phase_entry(each) :] for each in ways)
            else:
                was_read |= any(False in each for each in ways)
            phase = max(phase, bool(ways)) + begins
        yield max(self._ways) + 1, BarrierInterval(phase)  # what comes behind: nothing


def _stores_after_read(stores: Sequence[bool]) -> bool:
    """Whether a thread stores after it has read."""
    return False in stores and True in stores[stores.index(False) :]


def _decoded_history(way: int) -> list[bool]:
    """What a thread did in a round, in order, repetitions left out: whether it stored."""
    digits = []
    while way:
        way, digit = divmod(way, 3)
        digits.append(digit == _STORES)
    return digits[::-1]


def phase_count(rounds: Mapping[int, BarrierInterval]) -> int:
    """How many phases there are in these rounds, the whole of a block's."""
    return max((each.phase for each in rounds.values()), default=0)


def is_barrier(step: DecodedInstruction) -> bool:
    """Whether threads wait there for others: what they do lies before or behind it."""
    return step.row.kind == "barrier" or step.row.opcode == "bar.warp.sync"


def interval_after(step: DecodedInstruction, number: Number) -> Number:
    """The number of the round that a thread is in behind a barrier.

    Args:
        step: The barrier, one where it `waits`.
        number: The round before it, or those of many threads.
    """
    if step.row.kind == "barrier":
        after: Number = (number // _BLOCK_BARRIER + 1) * _BLOCK_BARRIER
        return after
    return number + 1
