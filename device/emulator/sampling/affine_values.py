"""Follows a block's values as affine functions of the block index, to find blocks that do the same.

While a block runs, each integer register that a branch or an address depends on carries its
*stride*: the amount by which it changes per step of the block index in x, y and z, for each lane.
Integer arithmetic is linear modulo the register's width, so it passes strides on exactly. A
comparison restricts the *decision range*: the blocks for which it comes out the same. Where no rule
applies, the range is restricted to blocks for which the value does not change. All blocks in the
range take the same branches, and their addresses lie at constant strides.

Nothing else is executed: neither arithmetic on data nor accesses to data. Programs whose control
flow or addresses depend on data (`data_dependence`) cannot be followed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.observer import Action, ChunkState, Observer, do_nothing
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

_CLOCK_STRIDE: Stride = np.ones((3, 1), np.int64)
"""Any stride but 0: nothing is known about the clock of another block."""
_BLOCK_INDEX_STRIDES = {
    f"%ctaid.{name}": np.eye(3, dtype=np.int64)[:, [axis]] for axis, name in enumerate("xyz")
}


class AffineValues(Observer):
    """Follows the affine values of chunks of blocks."""

    def __init__(self, program: Program) -> None:
        """Follow the registers and state spaces that branches and addresses depend on."""
        self._deciding, self._spaces = decision_sources(program)
        self._signs = sign_only_registers(program)
        self._finished: list[BlockBox] = []
        self._strides = np.zeros(3, np.int64)
        self._range: DecisionRange | None = None

    @property
    def boxes(self) -> list[BlockBox]:
        """For each block that has run, in order, a box of blocks around it that do the same."""
        return self._finished + (self._range.boxes() if self._range else [])

    @property
    def strides(self) -> IntArray:
        """Strides of the addresses of all blocks that have run: see `DecisionRange.strides`."""
        return self._strides | self._range.strides if self._range else self._strides

    def chunk_started(self, chunk: ChunkState) -> None:
        """Begin to follow the blocks of the next chunk."""
        threads = chunk.threads
        self._finished, self._strides = self.boxes, self.strides
        self._range = DecisionRange(threads.blocks, threads.grid.grid)
        self._alive, self._operands = threads.alive, chunk.operands
        self._register_strides: dict[str, Stride] = {}
        self._written: set[str] = set()

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Follow an instruction's strides, and leave its action out where no decision needs it."""
        targets = tuple(registers_written(step))
        decides = not self._deciding.isdisjoint(targets)
        if step.row.kind in ("load", "store", "atomic", "reduce"):
            if not decides and not self._stores_decision_value(step):
                action = do_nothing
            rule = self._access_rule(step)
        elif step.row.kind == "arrive":
            return action
        elif not decides:
            return do_nothing
        else:
            rule = self._computation_rule(step)

        def run(mask: Mask | None) -> None:
            stride = rule(self._alive if mask is None else mask)
            action(mask)
            for name in targets:
                self._set(name, stride, mask)

        return run

    def _computation_rule(self, step: DecodedInstruction) -> Callable[[Mask], Stride | None]:
        """The function that gives the stride of a computing instruction's result."""
        assert self._range is not None
        getters = [g for o in step.instruction.operands[1:] for g in self._stride_getters(o)]
        sources = SourceOperands(step, self._operands, self._range, getters)
        rule = stride_rule(step, self._signs.issuperset(registers_written(step)))

        def run(active: Mask) -> Stride | None:
            return rule(sources) if sources.begin(active) else None

        return run

    def _access_rule(self, step: DecodedInstruction) -> Callable[[Mask], Stride | None]:
        """The function that records the stride of an access's address.

        A loaded value that decides something must be the same for all blocks of the range, and so
        must be its address, and a value that may be loaded later.
        """
        assert self._range is not None
        decision_range = self._range
        operands = step.instruction.operands
        address = next(operand for operand in operands if isinstance(operand, Address))
        (address_stride,) = self._stride_getters(address)
        stored_strides: list[StrideGetter] = []
        if self._stores_decision_value(step):
            stored = (operand for operand in operands if not isinstance(operand, Address))
            stored_strides = [g for operand in stored for g in self._stride_getters(operand)]
        loads_decision_value = not self._deciding.isdisjoint(registers_written(step))
        last: Stride | None = None

        def run(active: Mask) -> None:
            nonlocal last
            stride = address_stride()
            if stride is not None and (stride is not last or stride.shape[1] > 1):
                decision_range.record_addresses(stride, active)
                last = stride
            if stride is not None and loads_decision_value:
                decision_range.require_unchanged(stride, active)
            for stored_stride in stored_strides:
                changing = stored_stride()
                if changing is not None:
                    decision_range.require_unchanged(changing, active)

        return run

    def _stores_decision_value(self, step: DecodedInstruction) -> bool:
        """Whether an instruction stores a value that may be loaded to decide something."""
        space = step.row.space
        stored = step.row.kind != "load" and (space in self._spaces or space == "generic")
        return stored and bool(self._spaces)

    def _stride_getters(self, operand: Operand) -> list[StrideGetter]:
        """The strides of an operand's registers; an operand without registers has none."""
        return [self._stride_getter(name) for name in registers_of(operand)] or [lambda: None]

    def _stride_getter(self, register: str) -> StrideGetter:
        if register in CLOCK_REGISTERS:
            return lambda: _CLOCK_STRIDE
        if register in _BLOCK_INDEX_STRIDES:
            return lambda: _BLOCK_INDEX_STRIDES[register]
        return lambda: self._register_strides.get(register)

    def _set(self, name: str, stride: Stride | None, mask: Mask | None) -> None:
        """Set the stride of a register in the lanes of a mask."""
        if mask is not None and name in self._written:  # else the other lanes hold no value yet
            old = self._register_strides.get(name)
            if old is not stride:
                now = np.zeros((3, 1), np.int64) if stride is None else stride
                before = np.zeros((3, 1), np.int64) if old is None else old
                stride = before if np.array_equal(now, before) else np.where(mask, now, before)
        self._written.add(name)
        if stride is None or not stride.any():
            self._register_strides.pop(name, None)
        else:
            self._register_strides[name] = stride
