"""How often lanes try to add to a float in shared memory, by the words that they add to.

The lanes of a warp with one word succeed one after the other, and a lane fails where another warp
stored the word since it was loaded. Lanes of several warps that add to a word at the same time
take less than a round each, since their warps do not go in step: `shared_float_rounds_by_warps` of
a datasheet, measured with 1 to 32 warps, 1 to 32 lanes of each, and up to 64 warps on the SM.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_block
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program
from memlab.device.machine_code.retries import Attempts
from memlab.device.properties import WARP_SIZE, DeviceProperties, figure_at

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

_MOST_LANES = 100_000  # additions that are looked at: 0.1 s


def observe_attempts(
    execution: Execution,
    block: tuple[int, int, int],
    lines: Collection[int],
    blocks_per_sm: int,
    properties: DeviceProperties,
) -> dict[int, Attempts]:
    """Execute the first additions of a block; the outputs of the launch are lost.

    The n-th addition of a warp meets the n-th ones of the block's other warps.

    Args:
        execution: The launch.
        block: Coordinates of the block.
        lines: Lines of the PTX whose atomics are loops in the machine code.
        blocks_per_sm: Blocks that may be resident on an SM.
        properties: The device. Without figures of it, warps do not hinder one another.

    Returns:
        The attempts by line of the PTX; none of lines that the block did not execute.
    """
    if not lines:
        return {}
    log = _AdditionLog(lines)
    observe_block(execution, block, log)
    blocks = -(-execution.launch.blocks // (properties.multiprocessor_count or 1))
    warps = execution.grid.padded_threads // WARP_SIZE * min(blocks_per_sm, blocks)
    rounds = rounds_by_warps(properties.shared_float_rounds_by_warps, warps)
    return {
        line: attempts(np.concatenate(parts, axis=1), rounds)
        for line, parts in log.additions.items()
    }


def rounds_by_warps(measured: Mapping[str, float], resident_warps: int) -> dict[str, float]:
    """The rounds by the warps that add to a word, at the warps that are resident on an SM.

    Args:
        measured: The rounds by both, `8x64`. Warps on the SM were measured in powers of two, and
            their logarithms count.
        resident_warps: Those on the SM.
    """
    found: dict[str, dict[int, float]] = {}
    for key, rounds in measured.items():
        adding, resident = key.split("x")
        found.setdefault(adding, {})[int(resident)] = rounds
    at = np.log(resident_warps)
    return {
        adding: float(np.interp(at, np.log(sorted(of)), [of[number] for number in sorted(of)]))
        for adding, of in found.items()
    }


def attempts(additions: NDArray[np.int64], rounds: Mapping[str, float]) -> Attempts:
    """The attempts of lanes that add to words.

    Args:
        additions: The turn of the warp, the warp and the word of each lane, shape (3, lanes).
        rounds: Rounds of a warp for each lane that adds to a word in a turn, by the warps that do
            so; empty where warps do not hinder one another.
    """
    (turn, warp, word), mine = np.unique(additions, axis=1, return_counts=True)  # by warp
    _, of_word = np.unique(np.stack([turn, word]), axis=1, return_inverse=True)
    of_word = of_word.reshape(-1)
    warps = np.bincount(of_word)
    lanes = np.bincount(of_word, mine)
    share = np.array([figure_at(rounds, n) or 0.0 for n in warps.tolist()])
    needed = np.maximum((lanes * share)[of_word], mine)
    _, of_warp = np.unique(np.stack([turn, warp]), axis=1, return_inverse=True)
    of_warp = of_warp.reshape(-1)
    last, groups = np.zeros((2, of_warp.max() + 1))
    np.maximum.at(last, of_warp, needed)
    np.maximum.at(groups, of_warp, mine)
    # The lanes of a word leave the loop evenly over its rounds.
    by_lanes = float((needed * (mine + 1) / 2).sum() / mine.sum())
    return Attempts(warp=float(last.mean()), lane=by_lanes, groups=float(groups.mean()))


class _AdditionLog(ExecutionPolicy):
    """Records the turn, the warp and the word of each lane that adds, by the line of the PTX."""

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
        seen = np.stack([turns[warp], warp, word])
        self.additions.setdefault(self._line_of[index], []).append(seen)
        turns[np.unique(warp)] += 1
        self._left -= len(lanes)
        if self._left <= 0:
            raise EnoughObservedError
