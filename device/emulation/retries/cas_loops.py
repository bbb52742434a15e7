"""How often lanes try to add to halves in global memory, where the machine code has a loop.

ptxas makes of such an addition a loop of compare-and-swap on the word that has the half. A try
fails where the word has changed since it was read, so each change costs the tries of the lanes that
wait for the word. How often words change is worked out from what the lanes of some blocks add.
Atomics of other types that change the same words are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_blocks
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.machine.threads import Grid, block_coordinates
from memlab.device.emulator.models.half_sums import HALF_TYPES, changes_of_sum
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program
from memlab.device.emulator.sampling.block_sample import whole_clusters
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.machine_code.retries import Attempts
from memlab.device.properties import WARP_SIZE
from memlab.device.sm_model.simulation import Steps

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

TRIES_PER_CHANGE = 0.39
"""Tries that fail because a word changes, over the lanes that wait for it: 0.20 to 0.58, and this
in the geometric mean, on an H200 (docs/results/h200-cas-loops.csv: launches of which at least 100
additions change a word, and at least 100 tries fail)."""
LONE_TRIES_PER_CHANGE = 1.4
"""The same where one lane of a warp adds, and blocks follow others: 1.25 and 1.59 with 1 and 16
words (ibid., 4224 blocks of `firsts`). With 32 lanes it is as in a single wave, 0.37."""
_MOST_LANES = 100_000  # additions of each line that are looked at: 0.1 s
_MOST_LANE_INSTRUCTIONS = 2e8  # that are executed for this: 0.2 s
_FEWEST_BLOCKS = 16  # whose additions are looked at nevertheless
_MOST_FOLLOWED = 8_000_000  # additions of all sums: 0.05 s
_MOST_SUMS = 4096  # whose changes are worked out; the others are taken to be as these
_EQUAL_ADDITIONS = 32  # of a word, that weigh as much as those of all words
_WORD_BYTES = 4


@dataclass(frozen=True)
class ObservedAdditions:
    """Additions to halves that some blocks made.

    Attributes:
        line: The line of the PTX of each addition, shape (additions,).
        request: A number of its request, from 0 without gaps; shape (additions,).
        block: A number of its block, likewise.
        word: A number of its word, likewise.
        changing: By word, the share of all additions to it that change it; shape (words,).
        made: Additions that the whole grid makes.
        adding: The share of the blocks that add.
    """

    line: NDArray[np.int64]
    request: NDArray[np.int64]
    block: NDArray[np.int64]
    word: NDArray[np.int64]
    changing: NDArray[np.float64]
    made: float
    adding: float = 1.0

    @property
    def lanes(self) -> float:
        """Lanes that add with one request, in the mean."""
        return len(self.request) / float(self.request.max() + 1)

    def attempts(self, waiting_lanes: float, blocks: float) -> dict[int, Attempts]:
        """How often the lanes of a warp try, by the line of the PTX.

        The tries of a word that fail are taken to follow a Poisson distribution. The lanes of a
        warp that add to one word leave the loop together.

        Args:
            waiting_lanes: Lanes of all SMs that are about to add, in the mean.
            blocks: Blocks that they belong to.
        """
        failing = TRIES_PER_CHANGE * self.changing * waiting_lanes * self._shares(blocks)
        generator, found = np.random.default_rng(0), {}
        for line in np.unique(self.line).tolist():
            own = self.line == line
            pairs = np.unique(np.stack([self.request[own], self.word[own]]), axis=1)
            failed = generator.poisson(failing[pairs[1]])
            starts = np.flatnonzero(np.diff(pairs[0], prepend=-1))
            leaving = np.unique(np.stack([pairs[0], failed]), axis=1)
            found[line] = Attempts(
                warp=1 + float(np.maximum.reduceat(failed, starts).mean()),
                lane=1 + float(failing[self.word[own]].mean()),
                groups=leaving.shape[1] / len(starts),
            )
        return found

    def attempts_in_launch(
        self,
        code: MachineCode,
        steps: Steps,
        grid: Grid,
        resident_blocks: int,
    ) -> dict[int, Attempts]:
        """The attempts where warps come to these additions as in a launch.

        All warps that start at once come to their first addition at about the same time. Later on
        they wait to add for the share of their time that they spend in the instructions of these
        lines.

        Args:
            code: The machine code.
            steps: Its instructions, as a simulation left them.
            grid: The grid.
            resident_blocks: Blocks of it that all SMs hold at once.
        """
        clocks = steps["issued"] + steps["stalls"].sum(axis=1)
        own = np.isin([step.ptx_line for step in code.instructions], self.line)
        share = float(clocks[: len(own)][own].sum()) / max(float(clocks.sum()), 1.0)
        most = resident_blocks * grid.padded_threads // WARP_SIZE * self.lanes
        at_once = min(most, self.made * resident_blocks / math.prod(grid.grid))
        first = at_once / self.made
        alone = 1 - math.log(self.lanes) / math.log(WARP_SIZE)  # of the way from 32 lanes to one
        later = (LONE_TRIES_PER_CHANGE / TRIES_PER_CHANGE) ** alone
        waiting = at_once * (first + (1 - first) * share * later)
        return self.attempts(waiting, max(resident_blocks * self.adding, 1.0))

    def _shares(self, blocks: float) -> NDArray[np.float64]:
        """The share of all waiting lanes that wait for the word of one of them, by word.

        Which words blocks have in common is known of the observed ones. If all words are used
        alike, what was observed of each differs by chance. The third moment tells how unequal they
        are: uses of words by other blocks are taken to follow a gamma distribution.
        """
        own = np.unique(np.stack([self.word, self.block]), axis=1, return_counts=True)
        (word, _), each = own
        uses, squares, cubes = (np.bincount(word, each**power) for power in (1, 2, 3))
        observed, whole = int(self.block.max()) + 1, len(self.word)
        inside = (squares / uses - 1) / max(whole / observed - 1, 1) / blocks
        if observed == 1:
            return inside
        pairs, triples = uses**2 - squares, uses**3 - 3 * uses * squares + 2 * cubes
        mean = pairs.sum() / whole  # additions of other blocks to the word of one
        beyond = triples.sum() / max(pairs.sum(), 1) - mean
        others = np.full(len(uses), mean)
        if beyond > 0:
            shape = mean / beyond
            others = mean * (pairs / uses + shape) / (mean + shape)
        outside = others / (whole - whole / observed)
        return np.asarray(inside + outside * (1 - 1 / blocks))


def observe_additions(
    execution: Execution, lines: Collection[int], tally: Tally, lane_instructions_per_block: float
) -> ObservedAdditions | None:
    """Execute the first additions of some blocks; the outputs of the launch are lost.

    Args:
        execution: The launch.
        lines: Lines of the PTX whose atomics are such loops in the machine code.
        tally: The counts of the whole grid.
        lane_instructions_per_block: The cost of emulating a block.

    Returns:
        The additions; None where those blocks, or by the counts all blocks, make none.
    """
    made = dict.fromkeys(lines, 0.0)
    for index, step in enumerate(execution.program.steps):
        if step.instruction.ptx_line in made:
            made[step.instruction.ptx_line] += tally.lanes[index]
    made = {line: float(additions) for line, additions in made.items() if additions}
    if not made:
        return None
    log, launch = _AdditionLog(made), execution.launch
    count = min(
        _MOST_LANES / execution.grid.padded_threads,
        _MOST_LANE_INSTRUCTIONS / lane_instructions_per_block,
    )
    count = max(int(count), _FEWEST_BLOCKS) // launch.cluster_blocks
    # Blocks at equal distances may have words in common that others do not have.
    chosen = np.random.default_rng(0).choice(
        launch.blocks, min(max(count, 1), launch.blocks), replace=False
    )
    blocks = whole_clusters(block_coordinates(np.sort(chosen), launch.grid), launch.cluster)
    for chunk in execution.chunks(blocks):
        if not log.is_complete:
            observe_blocks(execution, chunk, log)
    return _observed(log.additions, made, len(blocks)) if log.additions else None


@dataclass(frozen=True)
class _Additions:
    """The additions of one execution of an atomic.

    Attributes:
        line: Its line of the PTX.
        kind: The type of the sums, as of `HALF_TYPES`.
        request: A number of the warp's request, of each lane that adds; shape (lanes,).
        block: A number of its block.
        address: Where it adds.
        addend: What it adds.
        before: What is there.
    """

    line: int
    kind: str
    request: NDArray[np.int64]
    block: NDArray[np.int64]
    address: NDArray[np.int64]
    addend: NDArray[np.float64]
    before: NDArray[np.float64]


def _observed(
    parts: Sequence[_Additions], made: Mapping[int, float], blocks: int
) -> ObservedAdditions:
    """The additions that some blocks made, of so many of the whole grid by their line."""
    request, block, address, addend, before = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("request", "block", "address", "addend", "before")
    )
    lengths = [len(part.address) for part in parts]
    line = np.repeat([part.line for part in parts], lengths)
    kind = np.repeat([part.kind for part in parts], lengths)
    lines, of_line, seen = np.unique(line, return_inverse=True, return_counts=True)
    scale = np.maximum([made[each] for each in lines.tolist()] / seen, 1.0)[of_line]
    sums, of_sum, each = np.unique(address, return_inverse=True, return_counts=True)
    _, word_of_sum = np.unique(sums // _WORD_BYTES, return_inverse=True)
    additions = np.bincount(of_sum, scale)
    by_sum = np.split(np.argsort(of_sum, kind="stable"), np.cumsum(each)[:-1])
    changes, known = np.zeros(len(sums)), np.zeros(len(sums), np.bool_)
    left = _MOST_FOLLOWED
    for number in np.argsort(-additions, kind="stable")[:_MOST_SUMS].tolist():
        if known.any() and additions[number] > left:
            break
        own = by_sum[number]
        of_type = HALF_TYPES[str(kind[own[0]])]
        changes[number] = changes_of_sum(
            before[own[0]], addend[own], additions[number], of_type, left
        )
        known[number] = True
        left -= round(additions[number])
    # In observed additions, of which few tell little of a word alone: all tell of each, too.
    weight = np.bincount(word_of_sum, each * known)
    changing = np.bincount(word_of_sum, changes / additions * each)
    mean = changing.sum() / weight.sum()
    changing = (changing + _EQUAL_ADDITIONS * mean) / (weight + _EQUAL_ADDITIONS)
    _, request = np.unique(request, return_inverse=True)
    adding, block = np.unique(block, return_inverse=True)
    return ObservedAdditions(
        line,
        request,
        block,
        word_of_sum[of_sum],
        changing,
        sum(made[each] for each in lines.tolist()),
        len(adding) / blocks,
    )


class _AdditionLog(ExecutionPolicy):
    """Records additions.

    Attributes:
        additions: What was recorded.
    """

    is_trial: ClassVar[bool] = True

    def __init__(self, lines: Collection[int]) -> None:
        self.additions: list[_Additions] = []
        self._left = dict.fromkeys(lines, _MOST_LANES)
        self._requests, self._blocks = 0, range(0)

    @property
    def is_complete(self) -> bool:
        """Whether enough additions of each line were recorded."""
        return max(self._left.values()) <= 0

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The additions of these lines."""
        self._steps = {
            index: step
            for index, step in enumerate(program.steps)
            if step.row.kind in ATOMIC_KINDS and step.instruction.ptx_line in self._left
        }
        return self._steps.keys()

    def chunk_started(self, chunk: Chunk) -> None:
        """Read operands of these blocks, which come behind those before."""
        self._operands, self._threads = chunk.operands, chunk.threads.grid.padded_threads
        behind = self._blocks.stop
        self._blocks = range(behind, behind + len(chunk.threads.blocks))

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Lanes are about to add."""
        step = self._steps[access.instruction.index]
        line = step.instruction.ptx_line
        if access.segment.name != "global" or self._left[line] <= 0:
            return
        held = access.segment.typed(np.dtype(np.uint16))
        lanes = np.flatnonzero(access.mask)
        place = access.segment.positions(access.address[lanes], lanes) // held.itemsize
        inside = (place >= 0) & (place < held.size)  # a stray one is a fault when it is executed
        if not inside.any():
            return
        lanes, before = lanes[inside], held[place[inside]]
        kind, address = step.row.of[0], access.address[lanes]
        bits = np.broadcast_to(
            self._operands.read(step.instruction.operands[-1], "b16"), len(access.mask)
        )
        warp = np.cumsum(np.diff(lanes // WARP_SIZE, prepend=-1) != 0) - 1
        self.additions.append(
            _Additions(
                line,
                kind,
                self._requests + warp,
                self._blocks.start + lanes // self._threads,
                address,
                _as_numbers(bits[lanes], kind),
                _as_numbers(before, kind),
            )
        )
        self._requests += int(warp[-1]) + 1
        self._left[line] -= len(lanes)
        if self.is_complete:
            raise EnoughObservedError


def _as_numbers(bits: NDArray[np.uint16], kind: str) -> NDArray[np.float64]:
    """Halves as doubles."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
