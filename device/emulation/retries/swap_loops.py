"""How often lanes try to add to halves in global memory, where the machine code has a loop.

ptxas makes of such an addition a loop of compare-and-swap on the word that has the half. A try
fails where the word has changed since it was read, so each change costs the tries of the lanes that
wait for the word. How often words change is worked out from what the lanes of some blocks add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_blocks
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.machine.threads import block_coordinates
from memlab.device.emulator.models.half_sums import HALF_TYPES, changes_of_sum
from memlab.device.emulator.program.program import ATOMIC_KINDS, Program
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.machine_code.retries import Attempts
from memlab.device.properties import WARP_SIZE
from memlab.device.sm_model.simulation import Steps

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

TRIES_PER_CHANGE = 0.39
"""Tries that fail because a word changes, over the lanes that wait for it: 0.20 to 0.56, and this
in the geometric mean, on an H200 (docs/results/h200-swap-loops.csv: launches of which at least 100
additions change a word, and at least 100 tries fail)."""
_MOST_LANES = 100_000  # additions that are looked at: 0.1 s
_MOST_LANE_INSTRUCTIONS = 2e8  # that are executed for this: 0.2 s
_FEWEST_BLOCKS = 16  # whose additions are looked at nevertheless
_MOST_FOLLOWED = 8_000_000  # additions of all sums: 0.05 s
_MOST_WORDS = 4096  # whose changes are worked out; the others are taken to be as these
_EQUAL_ADDITIONS = 32  # of a word, that weigh as much as those of all words
_WORD_BYTES = 4


@dataclass(frozen=True)
class ObservedAdditions:
    """Additions to words, of which some blocks made these.

    Attributes:
        request: The number of the request of each addition, ascending; shape (additions,).
        block: A number of its block, from 0; shape (additions,).
        word: A number of its word, from 0; shape (additions,).
        changing: By word, the share of all additions to it that change it; shape (words,).
        made: Additions that the whole grid makes.
    """

    request: NDArray[np.int64]
    block: NDArray[np.int64]
    word: NDArray[np.int64]
    changing: NDArray[np.float64]
    made: float

    @property
    def lanes(self) -> float:
        """Lanes that add with one request, in the mean."""
        return len(self.request) / float(self.request[-1] + 1)

    def attempts(self, waiting_warps: float, blocks: int) -> Attempts:
        """How often the lanes of a warp try.

        The tries of a word that fail are taken to follow a Poisson distribution. The lanes of a
        warp that add to one word leave the loop together.

        Args:
            waiting_warps: Warps of all SMs that are about to add, in the mean.
            blocks: Blocks that they belong to.
        """
        waiting = waiting_warps * self.lanes
        failing = TRIES_PER_CHANGE * self.changing * waiting * self._shares(blocks)
        lane = 1 + float(failing[self.word].mean())
        pairs = np.unique(np.stack([self.request, self.word]), axis=1)
        failed = np.random.default_rng(0).poisson(failing[pairs[1]])
        starts = np.flatnonzero(np.diff(pairs[0], prepend=-1))
        leaving = np.unique(np.stack([pairs[0], failed]), axis=1)
        return Attempts(
            warp=1 + float(np.maximum.reduceat(failed, starts).mean()),
            lane=lane,
            groups=leaving.shape[1] / len(starts),
        )

    def _shares(self, blocks: int) -> NDArray[np.float64]:
        """The share of all waiting lanes that wait for the word of one of them, by word.

        Which words blocks have in common is known of the observed ones. If all words are used
        alike, what was observed of each differs by chance. How unequal they are tells the third
        moment: uses of words by other blocks are taken to follow a gamma distribution.
        """
        own = np.unique(np.stack([self.word, self.block]), axis=1, return_counts=True)
        (word, _), each = own
        uses, squares, cubes = (np.bincount(word, each**power) for power in (1, 2, 3))
        observed, whole = int(self.block.max()) + 1, len(self.word)
        inside = (squares / uses - 1) / max(whole / observed - 1, 1)
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
        return np.asarray(inside / blocks + outside * (1 - 1 / blocks))


def observe_additions(
    execution: Execution, lines: Collection[int], tally: Tally, lane_instructions_per_block: float
) -> dict[int, ObservedAdditions]:
    """Execute the first additions of some blocks; the outputs of the launch are lost.

    Args:
        execution: The launch.
        lines: Lines of the PTX whose atomics are such loops in the machine code.
        tally: The counts of the whole grid.
        lane_instructions_per_block: The cost of emulating a block.

    Returns:
        The additions of each line, by the line; without lines that those blocks did not execute.
    """
    if not lines:
        return {}
    log, launch = _AdditionLog(lines), execution.launch
    count = min(
        _MOST_LANES / execution.grid.padded_threads,
        _MOST_LANE_INSTRUCTIONS / lane_instructions_per_block,
    )
    count = min(max(int(count), _FEWEST_BLOCKS), launch.blocks)
    # Blocks at equal distances may have words in common that others do not have.
    places = np.random.default_rng(0).choice(launch.blocks, count, replace=False)
    for blocks in execution.chunks(block_coordinates(np.sort(places), launch.grid)):
        observe_blocks(execution, blocks, log)
    made = dict.fromkeys(lines, 0.0)
    for index, step in enumerate(execution.program.steps):
        if step.instruction.ptx_line in made:
            made[step.instruction.ptx_line] += tally.lanes[index]
    return {line: _observed(parts, made[line]) for line, parts in log.additions.items()}


@dataclass(frozen=True)
class _Request:
    """The additions of one execution of an atomic.

    Attributes:
        kind: The type of the sums, as of `HALF_TYPES`.
        request: The number of the warp's request, of each lane that adds; shape (lanes,).
        block: The number of its block.
        address: Where it adds.
        addend: What it adds.
        before: What is there.
    """

    kind: str
    request: NDArray[np.int64]
    block: NDArray[np.int64]
    address: NDArray[np.int64]
    addend: NDArray[np.float64]
    before: NDArray[np.float64]


def _observed(parts: Sequence[_Request], additions: float) -> ObservedAdditions:
    """The additions of a line, of which the whole grid makes so many."""
    kind = HALF_TYPES[parts[0].kind]
    request, block, address, addend, before = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("request", "block", "address", "addend", "before")
    )
    halves, half, each = np.unique(address, return_inverse=True, return_counts=True)
    _, word_of_half = np.unique(halves // _WORD_BYTES, return_inverse=True)
    scale = additions / len(address)
    by_half = np.split(np.argsort(half, kind="stable"), np.cumsum(each)[:-1])
    changes, known = np.zeros(len(halves)), np.zeros(len(halves), np.bool_)
    left = _MOST_FOLLOWED
    for number in np.argsort(-each, kind="stable")[:_MOST_WORDS].tolist():
        made, own = each[number] * scale, by_half[number]
        changes[number] = changes_of_sum(before[own[0]], addend[own], made, kind, left)
        known[number] = True
        left -= round(made)
        if left <= 0:
            break
    seen = np.bincount(word_of_half, each * known)
    changing = np.bincount(word_of_half, changes) / scale
    mean = changing.sum() / seen.sum()
    # What few additions tell of a word alone is taken with what all tell of each.
    changing = (changing + _EQUAL_ADDITIONS * mean) / (seen + _EQUAL_ADDITIONS)
    _, block = np.unique(block, return_inverse=True)
    return ObservedAdditions(request, block, word_of_half[half], changing, additions)


class _AdditionLog(ExecutionPolicy):
    """Records additions by their line of the PTX."""

    is_trial: ClassVar[bool] = True

    def __init__(self, lines: Collection[int]) -> None:
        self.additions: dict[int, list[_Request]] = {}
        self.left = _MOST_LANES
        self._lines = lines
        self._requests, self._blocks = 0, range(0)

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The additions of these lines."""
        self._steps = {
            index: step
            for index, step in enumerate(program.steps)
            if step.row.kind in ATOMIC_KINDS and step.instruction.ptx_line in self._lines
        }
        return self._steps.keys()

    def chunk_started(self, chunk: Chunk) -> None:
        """Read operands of these blocks, which come behind those before."""
        self._operands, self._threads = chunk.operands, chunk.threads.grid.padded_threads
        behind = self._blocks.stop
        self._blocks = range(behind, behind + len(chunk.threads.blocks))

    def memory_accessed(self, access: WatchedAccess) -> None:
        """Lanes are about to add."""
        if access.segment.name != "global":
            return
        step = self._steps[access.instruction.index]
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
        self.additions.setdefault(step.instruction.ptx_line, []).append(
            _Request(
                kind,
                self._requests + warp,
                self._blocks.start + lanes // self._threads,
                address,
                _as_numbers(bits[lanes], kind),
                _as_numbers(before, kind),
            )
        )
        self._requests += int(warp[-1]) + 1
        self.left -= len(lanes)
        if self.left <= 0:
            raise EnoughObservedError


def _as_numbers(bits: NDArray[np.uint16], kind: str) -> NDArray[np.float64]:
    """Halves as doubles."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def attempts_of_lines(
    additions: Mapping[int, ObservedAdditions],
    code: MachineCode,
    steps: Steps,
    warps: int,
    blocks: int,
) -> dict[int, Attempts]:
    """The attempts of each of these lines of the PTX.

    All warps that start at once come to their first addition at about the same time. Later on they
    wait to add for the share of their time that they spend in the instructions of the line.

    Args:
        additions: The additions of each line.
        code: The machine code.
        steps: Its instructions, as a simulation left them.
        warps: Warps that all SMs hold at once.
        blocks: Their blocks.
    """
    clocks = steps["issued"] + steps["stalls"].sum(axis=1)
    line_of = np.array([step.ptx_line for step in code.instructions])
    of_step, whole = clocks[: len(line_of)], max(float(clocks.sum()), 1.0)
    found = {}
    for line, of in additions.items():
        first = min(warps * of.lanes / of.made, 1.0)
        share = float(of_step[line_of == line].sum()) / whole
        found[line] = of.attempts(warps * (first + (1 - first) * share), blocks)
    return found
