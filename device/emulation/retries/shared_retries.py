"""Which words the lanes of a block add to, where an addition in shared memory is a loop.

The lanes of a warp with one bank succeed one after the other, and a lane fails where another warp
stored the word since it was loaded. So the rounds depend on the words and on when warps come to
them, which the simulation of an SM tells (`sm_model/simulation_code.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_blocks
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.threads import block_coordinates
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program
from memlab.device.machine_code.retries import Attempts, SharedAdditions
from memlab.device.properties import SHARED_BANK_BYTES, SHARED_BANKS, WARP_SIZE
from memlab.kernels.launch import Dim3

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

_MOST_LANES = 100_000  # additions that are looked at: 0.1 s
_MOST_BLOCKS = 32  # whose words are looked at
_NO_WORD = -1
_BYTES_AT_ONCE = SHARED_BANKS * SHARED_BANK_BYTES

Found = Mapping[int, NDArray[np.int64]]
"""By line of the PTX: the turn of the warp, the warp, the lane, the address and the bytes of each
addition, shape (5, additions)."""


def observe_additions(execution: Execution, block: Dim3, lines: Collection[int]) -> SharedAdditions:
    """Execute the first additions of some blocks; the outputs of the launch are lost.

    Where a second block adds to the same words as the first one, all are taken to do so.

    Args:
        execution: The launch.
        block: Coordinates of the first block.
        lines: Lines of the PTX whose atomics are loops in the machine code.

    Returns:
        The additions of those lines that the blocks executed.
    """
    if not lines:
        return SharedAdditions()
    grid, found, left = execution.launch.grid, list[Found](), _MOST_LANES
    places = np.linspace(0, execution.launch.blocks, _MOST_BLOCKS, endpoint=False).astype(np.int64)
    others = block_coordinates(np.unique(places), grid).tolist()
    for x, y, z in (block, *(other for other in others if tuple(other) != tuple(block))):
        log = _AdditionLog(lines, left)
        observe_blocks(execution, np.array([(x, y, z)]), log)
        added = {line: np.concatenate(parts, axis=1) for line, parts in log.additions.items()}
        left = log.left
        if not added or (found and (left <= 0 or _are_equal(added, found[0]))):
            break
        found.append(added)
    return shared_additions(found, execution.grid.padded_threads // WARP_SIZE)


def _are_equal(first: Found, second: Found) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[line], second[line]) for line in first
    )


def shared_additions(found: Sequence[Found], warps: int) -> SharedAdditions:
    """Arrange additions by block and warp.

    Args:
        found: Those of each block.
        warps: Those of a block.
    """
    if not found:
        return SharedAdditions()
    lines = tuple(dict.fromkeys(line for block in found for line in block))
    addresses = np.unique(np.concatenate([of[3] for block in found for of in block.values()]))
    widths = (max(int(block[line][4].max()) for block in found if line in block) for line in lines)
    none = np.zeros((5, 0), np.int64)
    return SharedAdditions(
        lines,
        tuple(min(_BYTES_AT_ONCE // width, WARP_SIZE) for width in widths),
        tuple(
            tuple(
                tuple(_words(block.get(line, none), warp, addresses) for line in lines)
                for warp in range(warps)
            )
            for block in found
        ),
        tuple((addresses // SHARED_BANK_BYTES % SHARED_BANKS).tolist()),
    )


def _words(
    found: NDArray[np.int64], member: int, addresses: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The words of a warp's executions, shape (executions, 32)."""
    turn, warp, lane, address, _ = found
    own = warp == member
    table = np.full((int(turn[own].max(initial=-1)) + 1, WARP_SIZE), _NO_WORD)
    table[turn[own], lane[own]] = np.searchsorted(addresses, address[own])
    return table


def attempts_alone(additions: SharedAdditions) -> dict[int, Attempts]:
    """The attempts of each addition, by line, where no other warp makes one fail."""
    banks, found = np.array(additions.banks), {}
    for number, line in enumerate(additions.lines):
        executions = np.concatenate([of[number] for of in additions.words[0]])
        last, rounds, excessive = 0, 0, 0
        for words in executions:
            runs = words.reshape(-1, additions.lanes_at_once[number])
            alone = [_rounds_alone(run[run >= 0], banks) for run in runs]
            last += max(len(of) for of in alone)
            rounds += sum(lanes for of in alone for lanes, _ in of)
            excessive += sum(wavefronts - 1 for of in alone for _, wavefronts in of)
        mean, lanes = last / len(executions), int((executions >= 0).sum())
        found[line] = Attempts(mean, rounds / lanes, mean, excessive / len(executions))
    return found


def _rounds_alone(words: NDArray[np.int64], banks: NDArray[np.int64]) -> Sequence[tuple[int, int]]:
    """The lanes that are left in each round, and the wavefronts of their load."""
    rounds = []
    while len(words):
        rounds.append((len(words), int(np.bincount(banks[np.unique(words)]).max())))
        _, succeeding = np.unique(banks[words], return_index=True)
        words = np.delete(words, succeeding)
    return rounds


class _AdditionLog(ExecutionPolicy):
    """Records additions as `Found`, in parts."""

    is_trial: ClassVar[bool] = True

    def __init__(self, lines: Collection[int], most: int) -> None:
        self.additions: dict[int, list[NDArray[np.int64]]] = {}
        self.left = most
        self._lines = lines
        self._line_of: dict[int, int] = {}
        self._turns: dict[int, NDArray[np.int64]] = {}

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
        width = np.full(len(lanes), access.instruction.size)
        seen = np.stack([turns[warp], warp, lanes % WARP_SIZE, word, width])
        self.additions.setdefault(self._line_of[index], []).append(seen)
        turns[np.unique(warp)] += 1
        self.left -= len(lanes)
        if self.left <= 0:
            raise EnoughObservedError
