"""What the warps of a block do to its barriers, for the time model.

These are the `mbarrier`s in its shared memory, and named barriers (`bar.sync` and `bar.arrive` with
a number and a count), at which only a part of its warps meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.emulator.codegen.stretches import is_cluster_barrier, is_partial
from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.address_space import RANK_UNIT
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_multicast
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.observer import Action, Observer
from memlab.device.emulator.machine.threads import cluster_ranks
from memlab.device.emulator.ptx.parser import Operand
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk
    from memlab.device.emulator.program.program import DecodedInstruction, Program

_MOST_OPERATIONS = 1_000_000
_WORD_BYTES = 8
PARITY_TEST = "mbarrier.over.parity"


@dataclass(frozen=True)
class BarrierOperation:
    """What one execution of an instruction by a warp does to a barrier.

    Attributes:
        line: The line of the instruction in the PTX.
        barrier: The number of the barrier in its block.
        arrivals: Arrivals that it makes.
        transactions: Bytes that it expects; negative for those that a copy completes.
        phases: Phases of the barrier that it waits for; None if it waits for none.
        is_far: Whether it changes a barrier of another block of the cluster.
    """

    line: int
    barrier: int
    arrivals: int = 0
    transactions: int = 0
    phases: int | None = None
    is_far: bool = False


@dataclass(frozen=True)
class BarrierOperations:
    """The operations of a block.

    Attributes:
        arrivals: Arrivals that a phase of each barrier needs; at a named barrier, of warps.
        operations: The operations of each warp in order, by its number in the block.
        are_too_many: Whether they were not kept, since they are very many.
    """

    arrivals: tuple[int, ...] = ()
    operations: Mapping[int, tuple[BarrierOperation, ...]] = field(default_factory=dict)
    are_too_many: bool = False


class BarrierLog(Observer):
    """Records the operations of a chunk's first block.

    What it does to a barrier of another block of its cluster counts as done to its own: the other
    blocks do the same to it.
    """

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The tests and changes of barriers, and where a part of a block meets."""
        return [
            index
            for index, step in enumerate(program.steps)
            if mbarrier.is_test(step.instruction)
            or mbarrier.is_change(step.instruction)
            or _is_named(step)
        ]

    def chunk_started(self, chunk: Chunk) -> None:
        """Begin a log."""
        self._chunk, self._numbers = chunk, dict[int, int]()
        self._operands: dict[int, tuple[bool, Operand, str]] = {}
        self._arrivals: list[int] = []
        self._phases: list[int] = []
        self._log: dict[int, list[BarrierOperation]] = {}
        self._left = _MOST_OPERATIONS
        self._lanes = chunk.context["warps_per_block"] * WARP_SIZE
        self._ranks: dict[tuple[int, int], int] = {}  # of the blocks that a multicast reached last
        grid = chunk.threads.grid
        self._own_rank = int(cluster_ranks(chunk.threads.blocks[:1], grid.cluster)[0])
        self._met = Counter[int]()  # warps that have arrived at a named barrier, by its number

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Log the warps that arrive at a named barrier before they do."""
        if step.row.kind != "arrive":
            return action

        def logged(lanes: Mask) -> None:
            self._meet(index, lanes, waits=False)
            action(lanes)

        return logged

    def control_reached(self, index: int, mask: Mask, taken: Mask) -> None:
        """Log the warps that meet at a named barrier."""
        if index < len(self._chunk.program.steps) and _is_named(self._chunk.program.steps[index]):
            self._meet(index, taken, waits=True)

    def _meet(self, index: int, lanes: Mask, *, waits: bool) -> None:
        """Log warps that arrive at a named barrier; where one waits, then for its own phase."""
        instruction = self._chunk.program.steps[index].instruction
        warps = lanes[: self._lanes].reshape(-1, WARP_SIZE)
        for warp in np.flatnonzero(warps.any(axis=1)).tolist():
            lane = warp * WARP_SIZE + int(warps[warp].argmax())
            name, *count = (self._value(operand, lane) for operand in instruction.operands)
            needed = (count[0] if count else self._lanes) // WARP_SIZE
            place = -1 - name
            if place not in self._numbers:
                self._numbers[place] = len(self._numbers)
                self._arrivals.append(max(needed, 1))
                self._phases.append(0)
            number = self._numbers[place]
            phase = self._met[number] // self._arrivals[number] + 1
            self._met[number] += 1
            phases = phase if waits else None
            operation = BarrierOperation(instruction.ptx_line, number, 1, phases=phases)
            self._log.setdefault(warp, []).append(operation)
            self._left -= 1

    def _value(self, operand: Operand, lane: int) -> int:
        read = np.asarray(self._chunk.operands.read(operand, "u32"))
        return int(read[lane] if read.ndim else read)

    def memory_accessed(self, access: WatchedAccess) -> None:
        """A barrier is about to be tested or changed."""
        instruction = self._chunk.program.steps[access.instruction.index].instruction
        lanes = np.flatnonzero(access.mask[: self._lanes])
        if self._left < 0 or not len(lanes) or access.segment.lane_base is None:
            return
        places = access.address[lanes] & (RANK_UNIT - 1)
        words = access.segment.data[
            (access.segment.lane_base[lanes] + places)[:, None] + np.arange(_WORD_BYTES)
        ]
        states = words.view(np.uint64)[:, 0]
        line = instruction.ptx_line
        change, operand, kind = self._operand(access.instruction.index)
        read = np.asarray(self._chunk.operands.read(operand, kind))
        values = np.broadcast_to(read[lanes] if read.ndim else read, len(lanes)).astype(np.uint64)
        keys = lanes // WARP_SIZE * RANK_UNIT + places
        steps = np.diff(keys)
        if (steps < 0).any():  # the lanes of a warp access several barriers
            order = np.argsort(keys, kind="stable")
            keys, states, values, lanes = keys[order], states[order], values[order], lanes[order]
            steps = np.diff(keys)
        starts = [0, *(np.flatnonzero(steps) + 1).tolist()]
        for first, end in zip(starts, [*starts[1:], len(keys)], strict=True):
            warp, place = divmod(int(keys[first]), RANK_UNIT)
            number = self._number(place, int(states[first]))
            if change:
                parts = [mbarrier.parts_of_change(value) for value in values[first:end].tolist()]
                arrivals, transactions = (sum(part) for part in zip(*parts, strict=True))
                is_far = access.ranks is not None and bool(
                    (access.ranks[lanes[first:end]] != self._own_rank).any()
                )
                operation = BarrierOperation(line, number, arrivals, transactions, is_far=is_far)
            else:
                awaited = self._awaited(number, int(values[first]), parity=kind == "u32")
                operation = BarrierOperation(line, number, phases=awaited)
            where, log = (warp, line), self._log.setdefault(warp, [])
            if change and is_multicast(self._chunk.program.steps[access.instruction.index].row):
                rank = int(access.ranks[lanes[first]]) if access.ranks is not None else 0
                again, self._ranks[where] = rank > self._ranks.get(where, rank), rank
                if again:  # the same copy, in the next block that it reaches
                    arrivals += log[-1].arrivals
                    transactions += log[-1].transactions
                    log[-1] = replace(log[-1], arrivals=arrivals, transactions=transactions)
                    continue
            log.append(operation)
            self._left -= 1

    def _operand(self, index: int) -> tuple[bool, Operand, str]:
        """Whether an instruction changes a barrier; the operand by which it does, or tests.

        The last is the operand's type.
        """
        known = self._operands.get(index)
        if known is None:
            steps = self._chunk.program.steps
            position = -2 if is_multicast(steps[index].row) else -1  # the last tells the blocks
            known = True, steps[index].instruction.operands[position], "u64"
            if not mbarrier.is_change(steps[index].instruction):
                test = steps[index + 1].instruction  # it compares
                known = False, test.operands[2], "u32" if test.opcode == PARITY_TEST else "u64"
            self._operands[index] = known
        return known

    def _number(self, place: int, state: int) -> int:
        """The number of a barrier; follows its phases, of which the word has the last bits."""
        if place not in self._numbers:
            self._numbers[place] = len(self._numbers)
            self._arrivals.append(mbarrier.needed_arrivals(state))
            self._phases.append(0)
        number = self._numbers[place]
        now = state >> mbarrier.PHASE_SHIFT
        self._phases[number] += (now - self._phases[number]) % mbarrier.PHASES
        return number

    def _awaited(self, number: int, token: int, *, parity: bool) -> int:
        """The completed phases at which a test succeeds."""
        now = self._phases[number]
        if parity:
            return now if (now & 1) != (token & 1) else now + 1
        behind = (now - (token >> mbarrier.PHASE_SHIFT)) % mbarrier.PHASES
        return now - behind + 1

    def operations(self) -> BarrierOperations:
        """The operations; none if they are too many to keep."""
        if self._left < 0:
            return BarrierOperations(are_too_many=True)
        return BarrierOperations(
            tuple(self._arrivals), {warp: tuple(of) for warp, of in self._log.items()}
        )


def _is_named(step: DecodedInstruction) -> bool:
    return is_partial(step) and not is_cluster_barrier(step)
