"""Which words the lanes of a block add to, where an addition in shared memory is a loop.

The lanes of a warp with one word succeed one after the other, and a lane fails where another warp
stored the word since it was loaded. So the rounds depend on the words and on when warps come to
them, which the simulation of an SM tells (`sm_model/simulation_code.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_block
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program
from memlab.device.machine_code.retries import Attempts, SharedAdditions
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

_MOST_LANES = 100_000  # additions that are looked at: 0.1 s
_NO_WORD = -1


def observe_additions(
    execution: Execution, block: tuple[int, int, int], lines: Collection[int]
) -> SharedAdditions:
    """Execute the first additions of a block; the outputs of the launch are lost.

    Args:
        execution: The launch.
        block: Coordinates of the block.
        lines: Lines of the PTX whose atomics are loops in the machine code.

    Returns:
        The additions of those lines that the block executed.
    """
    if not lines:
        return SharedAdditions()
    log = _AdditionLog(lines)
    observe_block(execution, block, log)
    warps = execution.grid.padded_threads // WARP_SIZE
    return shared_additions(
        {line: np.concatenate(parts, axis=1) for line, parts in log.additions.items()}, warps
    )


def shared_additions(found: dict[int, NDArray[np.int64]], warps: int) -> SharedAdditions:
    """Arrange additions by warp.

    Args:
        found: By line: the turn of the warp, the warp, the lane and the address of each addition,
            shape (4, additions).
        warps: Those of the block.
    """
    if not found:
        return SharedAdditions()
    addresses = np.unique(np.concatenate([of[3] for of in found.values()]))
    words: list[list[NDArray[np.int64]]] = [[] for _ in range(warps)]
    for turn, warp, lane, address in found.values():
        number = np.searchsorted(addresses, address)
        for member, listed in enumerate(words):
            own = warp == member
            executions = int(turn[own].max()) + 1 if own.any() else 0
            table = np.full((executions, WARP_SIZE), _NO_WORD)
            table[turn[own], lane[own]] = number[own]
            listed.append(table)
    return SharedAdditions(tuple(found), tuple(map(tuple, words)))


def attempts_alone(additions: SharedAdditions) -> dict[int, Attempts]:
    """The attempts of each addition, by line, where no other warp makes one fail."""
    found = {}
    for number, line in enumerate(additions.lines):
        executions = np.concatenate([of[number] for of in additions.words])
        last, rounds, lanes = 0, 0, 0
        for words in executions:
            _, sharing = np.unique(words[words >= 0], return_counts=True)
            last += sharing.max(initial=0)
            rounds += int((sharing * (sharing + 1)).sum()) // 2
            lanes += int(sharing.sum())
        mean = float(last / len(executions))
        found[line] = Attempts(warp=mean, lane=rounds / lanes, groups=mean)
    return found


class _AdditionLog(ExecutionPolicy):
    """Records the turn, the warp, the lane and the address of each addition, by line of the PTX."""

    is_trial: ClassVar[bool] = True

    def __init__(self, lines: Collection[int]) -> None:
        self.additions: dict[int, list[NDArray[np.int64]]] = {}
        self._lines = lines
        self._line_of: dict[int, int] = {}
        self._turns: dict[int, NDArray[np.int64]] = {}
        self._left = _MOST_LANES

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The atomics on shared memory of these lines."""
        self._line_of = {
            index: step.instruction.ptx_line
            for index, step in enumerate(program.steps)
            if step.row.kind in ATOMIC_KINDS
            and step.row.space == "shared"
            and step.instruction.ptx_line in self._lines
        }
        return self._line_of.keys()

    def chunk_started(self, chunk: Chunk) -> None:
        """Begin with the first turn of all warps."""
        warps = chunk.context["warps"]
        self._turns = {index: np.zeros(warps, np.int64) for index in self._line_of}

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Lanes are about to add."""
        index = access.instruction.index
        lanes = np.flatnonzero(access.mask)
        warp, word = lanes // WARP_SIZE, access.address[lanes]
        if access.base is not None:
            word = word + access.base[lanes]
        turns = self._turns[index]
        seen = np.stack([turns[warp], warp, lanes % WARP_SIZE, word])
        self.additions.setdefault(self._line_of[index], []).append(seen)
        turns[np.unique(warp)] += 1
        self._left -= len(lanes)
        if self._left <= 0:
            raise EnoughObservedError
