"""How a block's values move with its place in the grid, and how far that changes no decision.

While a block runs, each integer register that decides a branch or an address carries its *move*:
by what it changes for a step to the next block in x, y and z, a lane each. Arithmetic on integers
passes moves on exactly (it is linear, modulo the register's width), a comparison bounds how far
the other blocks compare alike, and what no rule covers keeps a block to where its value stays.
Blocks within these bounds take the same branches and touch addresses at the same distances.
Nothing else is executed, neither arithmetic on data nor accesses to it: programs that data decides
(`dependence.py`) are not followed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.observer import ChunkState, Observer, do_nothing
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.machine.threads import BlockBox
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_of,
    registers_written,
)
from memlab.device.emulator.ptx.parser import Address, Operand
from memlab.device.emulator.sampling.affine_rules import (
    SourceOperands,
    Stride,
    StrideGetter,
    stride_rule,
)
from memlab.device.emulator.sampling.data_dependence import decision_sources, sign_only_registers
from memlab.device.emulator.sampling.decision_range import DecisionRange, IntArray

_UNBOUNDED_STRIDE: Stride = np.ones(
    (3, 1), np.int64
)  # of a clock, which no bound holds for another block
_BLOCK_INDEX_STRIDES = {
    f"%ctaid.{name}": np.eye(3, dtype=np.int64)[:, [axis]] for axis, name in enumerate("xyz")
}


class AffineValues(Observer):
    """Follows chunks of blocks.

    Attributes:
        boxes: Around each block that has run, the blocks that do as it does.
        strides: As in `Reach`, of all of them.
    """

    def __init__(self, program: Program) -> None:
        """Follow the registers and state spaces that decide what a program does."""
        self._deciding, self._spaces = decision_sources(program)
        self._signs = sign_only_registers(program)
        self._finished: list[BlockBox] = []
        self._strides = np.zeros(3, np.int64)
        self._reach: DecisionRange | None = None

    @property
    def boxes(self) -> list[BlockBox]:
        """Around each block that has run, in turn, the blocks that do as it does."""
        return self._finished + (self._reach.boxes() if self._reach else [])

    @property
    def strides(self) -> IntArray:
        """As in `Reach`, of all blocks that have run."""
        return self._strides | self._reach.strides if self._reach else self._strides

    def chunk_started(self, chunk: ChunkState) -> None:
        """Take up the next chunk."""
        threads = chunk.threads
        self._finished, self._strides = self.boxes, self.strides
        self._reach = DecisionRange(threads.blocks, threads.grid.grid)
        self._alive, self._operands = threads.alive, chunk.operands
        self._moves: dict[str, Stride] = {}
        self._written: set[str] = set()

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """The action of an instruction, where it decides anything, and what it does to moves."""
        targets = tuple(registers_written(step))
        decides = not self._deciding.isdisjoint(targets)
        if step.row.kind in ("load", "store", "atomic", "reduce"):
            if not decides and not self._keeps(step):
                action = do_nothing
            rule = self._access(step)
        elif step.row.kind == "arrive":
            return action
        elif not decides:
            return do_nothing
        else:
            rule = self._computing(step)

        def run(mask: Mask | None) -> None:
            move = rule(self._alive if mask is None else mask)
            action(mask)
            for name in targets:
                self._set(name, move, mask)

        return run

    def _computing(self, step: DecodedInstruction) -> Callable[[Mask], Stride | None]:
        """What an instruction's result moves by."""
        assert self._reach is not None
        movers = [each for o in step.instruction.operands[1:] for each in self._movers(o)]
        reading = SourceOperands(step, self._operands, self._reach, movers)
        rule = stride_rule(step, self._signs.issuperset(registers_written(step)))

        def run(active: Mask) -> Stride | None:
            return rule(reading) if reading.begin(active) else None

        return run

    def _access(self, step: DecodedInstruction) -> Callable[[Mask], Stride | None]:
        """A memory access: its address; what is loaded must not move, nor what may be loaded."""
        assert self._reach is not None
        reach = self._reach
        operands = step.instruction.operands
        address = next(each for each in operands if isinstance(each, Address))
        (place,) = self._movers(address)
        values: list[StrideGetter] = []
        if self._keeps(step):
            stored = (each for each in operands if not isinstance(each, Address))
            values = [mover for each in stored for mover in self._movers(each)]
        loads = not self._deciding.isdisjoint(registers_written(step))
        last: Stride | None = None

        def run(active: Mask) -> None:
            nonlocal last
            move = place()
            if move is not None and (move is not last or move.shape[1] > 1):
                reach.touch(move, active)
                last = move
            if move is not None and loads:
                reach.confine(move, active)
            for each in values:
                moving = each()
                if moving is not None:
                    reach.confine(moving, active)

        return run

    def _keeps(self, step: DecodedInstruction) -> bool:
        """Whether what an instruction stores may be loaded to decide something."""
        space = step.row.space
        stored = step.row.kind != "load" and (space in self._spaces or space == "generic")
        return stored and bool(self._spaces)

    def _movers(self, operand: Operand) -> list[StrideGetter]:
        """What an operand's registers move by; one that is no register does not move."""
        return [self._mover(name) for name in registers_of(operand)] or [lambda: None]

    def _mover(self, register: str) -> StrideGetter:
        if register in CLOCK_REGISTERS:
            return lambda: _UNBOUNDED_STRIDE
        if register in _BLOCK_INDEX_STRIDES:
            return lambda: _BLOCK_INDEX_STRIDES[register]
        return lambda: self._moves.get(register)

    def _set(self, name: str, move: Stride | None, mask: Mask | None) -> None:
        """Note what a register moves by from now on, in the lanes of a mask."""
        if mask is not None and name in self._written:  # else other lanes hold nothing yet
            old = self._moves.get(name)
            if old is not move:
                now = np.zeros((3, 1), np.int64) if move is None else move
                before = np.zeros((3, 1), np.int64) if old is None else old
                move = before if np.array_equal(now, before) else np.where(mask, now, before)
        self._written.add(name)
        if move is None or not move.any():
            self._moves.pop(name, None)
        else:
            self._moves[name] = move
