"""Follows a block's values as affine functions of the block index, to find blocks that do the same.

While a block runs, each integer register that a branch or an address depends on carries its
*stride*: the amount by which it changes per step of the block index in x, y and z, for each lane.
Integer arithmetic is linear modulo the register's width, so it passes strides on exactly. A
comparison restricts the *decision range*: the blocks for which it comes out the same. Where no rule
applies, the range is restricted to blocks for which the value does not change. All blocks in the
range take the same branches, and their addresses lie at constant strides.

Nothing else is executed: neither arithmetic on data nor accesses to data. Programs whose control
flow or addresses depend on data (`data_dependence`) cannot be followed.

Python looks only at the instructions that may see a stride, by a flow-insensitive analysis, and at
those that repeat the same in a loop only until they do so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from memlab.device.emulator.codegen.stretches import waits_for_members
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.context import Conditions
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.observer import Action, ChunkState, Observer
from memlab.device.emulator.machine.threads import BlockBox
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_of,
    registers_written,
)
from memlab.device.emulator.ptx.parser import Address, Operand
from memlab.device.emulator.sampling.affine_rules import (
    Computation,
    Stride,
    StrideGetter,
    gives_stride,
)
from memlab.device.emulator.sampling.data_dependence import decision_sources, sign_only_registers
from memlab.device.emulator.sampling.decision_range import DecisionRange, IntArray

_CLOCK_STRIDE: Stride = np.ones((3, 1), np.int64)
"""Any stride but 0: nothing is known about the clock of another block."""
_BLOCK_INDEX_STRIDES = {
    f"%ctaid.{name}": np.eye(3, dtype=np.int64)[:, [axis]] for axis, name in enumerate("xyz")
}
_MOST_TRIALS = 16  # to leave an instruction to the machine code, as its values may always change
_NO_STRIDE: Stride = np.zeros((3, 1), np.int64)
_ACCESSES = ("load", "store", "atomic", "reduce")
_FLOW = ("branch", "exit", "barrier", "arrive")
_LEFT_OUT = Row("left out", "nothing")


class AffineValues(Observer):
    """Follows the affine values of chunks of blocks.

    Attributes:
        program: The part of the program to be executed: that on which branches and addresses
            depend.
    """

    def __init__(self, program: Program) -> None:
        """Follow the registers and state spaces that branches and addresses depend on."""
        self._steps = program.steps
        self._deciding, self._spaces = decision_sources(program)
        self._signs = sign_only_registers(program)
        self._changing = self._changing_registers()
        self._watched = {index for index in range(len(self._steps)) if self._may_see_stride(index)}
        self._users: dict[str, set[int]] = {}  # watched instructions, by registers they name
        for index in self._watched:
            for operand in self._steps[index].instruction.operands:
                for name in registers_of(operand):
                    self._users.setdefault(name, set()).add(index)
        deciding = tuple(map(self._without_data, range(len(self._steps))))
        self.program = replace(program, steps=deciding, digest=f"{program.digest} decisions")
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

    # --- Which instructions matter -------------------------------------------------------------

    def watched_instructions(self, program: Program) -> Collection[int]:
        """Those that may see a stride."""
        return self._watched

    def _changing_registers(self) -> set[str]:
        """The registers that ever have a stride, whatever the order of execution."""
        rules = []
        for step in self._steps:
            targets = set(registers_written(step))
            by_sign = self._signs.issuperset(targets)
            if not self._deciding.isdisjoint(targets) and gives_stride(step, by_sign):
                rules.append((_sources(step), targets & self._deciding))
        changing = set(_BLOCK_INDEX_STRIDES)
        known = 0
        while len(changing) > known:
            known = len(changing)
            for sources, targets in rules:
                if not changing.isdisjoint(sources):
                    changing |= targets
        return changing

    def _may_see_stride(self, index: int) -> bool:
        """Whether an instruction may read a stride that matters, or write over one."""
        step = self._steps[index]
        if not self._changing.isdisjoint(registers_written(step)):
            return True
        if step.row.kind in _ACCESSES:
            stores = self._stores_decision_value(step)
            operands = [o for o in step.instruction.operands if stores or isinstance(o, Address)]
            sources = {name for operand in operands for name in registers_of(operand)}
        elif step.row.kind in _FLOW or self._deciding.isdisjoint(registers_written(step)):
            return False
        else:
            sources = set(_sources(step))
        return not sources.isdisjoint(self._changing | CLOCK_REGISTERS)

    def _without_data(self, index: int) -> DecodedInstruction:
        """An instruction of `program`: empty where it computes or accesses data only."""
        step = self._steps[index]
        if (
            step.row.kind in _FLOW
            or waits_for_members(step)
            or not self._deciding.isdisjoint(registers_written(step))
            or (step.row.kind in _ACCESSES and self._stores_decision_value(step))
        ):
            return step
        guard = step.instruction.guard if index in self._watched else None
        return DecodedInstruction(replace(step.instruction, operands=(), guard=guard), _LEFT_OUT)

    # --- A chunk -------------------------------------------------------------------------------

    def chunk_started(self, chunk: ChunkState) -> None:
        """Begin to follow the blocks of the next chunk."""
        threads = chunk.threads
        self._finished, self._strides = self.boxes, self.strides
        self._range = DecisionRange(threads.blocks, threads.grid.grid)
        self._context, self._operands = chunk.context, chunk.operands
        self._register_strides: dict[str, Stride] = {}
        self._written: set[str] = set()
        self._settled: dict[int, Conditions | None] = {}  # those left to the machine code
        self._trials: Counter[int] = Counter()
        self._changes = 0  # of register strides

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Follow an instruction's strides."""
        assert self._range is not None
        decision_range, context, followed = self._range, self._context, self._steps[index]
        targets = [name for name in registers_written(followed) if name in self._changing]
        is_access = followed.row.kind in _ACCESSES
        rule = self._access(followed) if is_access else self._computation(followed)

        def run(mask: Mask) -> None:
            before = self._changes, decision_range.state()
            whole = np.count_nonzero(mask) == context["lanes_live"]
            stride = rule.stride(mask)
            for name in targets:
                self._set(name, stride, mask, whole)
            if before == (self._changes, decision_range.state()):
                self._settle(index, rule, whole)
            action(mask)

        return run

    def _settle(self, index: int, rule: Computation | _Access, whole: bool) -> None:
        """Leave an instruction to the machine code while it would change nothing."""
        if rule.is_fixed(whole):
            self._settled[index] = None
            self._context.resume_at(index)
        elif self._trials[index] < _MOST_TRIALS and not waits_for_members(self._steps[index]):
            self._trials[index] += 1
            conditions, known = rule.conditions(), self._settled.get(index)
            if known is not None:  # of other lanes
                conditions = known.joined(conditions)
            self._settled[index] = conditions
            self._context.resume_at(index, conditions)

    def _computation(self, step: DecodedInstruction) -> Computation:
        """The rule of a computing instruction."""
        assert self._range is not None
        getters = [g for o in step.instruction.operands[1:] for g in self._stride_getters(o)]
        by_sign = self._signs.issuperset(registers_written(step))
        return Computation(step, self._operands, self._range, getters, by_sign)

    def _access(self, step: DecodedInstruction) -> _Access:
        """The rule of a memory instruction."""
        assert self._range is not None
        operands = step.instruction.operands
        address = next(operand for operand in operands if isinstance(operand, Address))
        (address_stride,) = self._stride_getters(address)
        stored_strides: list[StrideGetter] = []
        if self._stores_decision_value(step):
            stored = (operand for operand in operands if not isinstance(operand, Address))
            stored_strides = [g for operand in stored for g in self._stride_getters(operand)]
        loads_decision_value = not self._deciding.isdisjoint(registers_written(step))
        return _Access(self._range, address_stride, stored_strides, loads_decision_value)

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

    def _set(self, name: str, stride: Stride | None, mask: Mask, whole: bool) -> None:
        """Set the stride of a register in the lanes of a mask; `whole` if no others are left."""
        old = self._register_strides.get(name)
        if old is stride and name in self._written:
            return
        now, before = (_NO_STRIDE if s is None else s for s in (stride, old))
        if not whole and name in self._written:  # else the other lanes hold no value yet
            now = np.where(mask, now, before) if not np.array_equal(now, before) else before
        self._written.add(name)
        if np.array_equal(now, before):
            return
        if now.any():
            self._register_strides[name] = now
        else:
            self._register_strides.pop(name, None)
        self._changes += 1
        concerned = self._settled.keys() & self._users[name]
        for index in concerned:
            del self._settled[index]
        self._context.interrupt_at(concerned)


class _Access:
    """Records the stride of an access's address.

    A loaded value that decides something must be the same for all blocks of the range, and so must
    be its address, and a value that may be loaded later.
    """

    def __init__(
        self,
        decision_range: DecisionRange,
        address_stride: StrideGetter,
        stored_strides: Sequence[StrideGetter],
        loads_decision_value: bool,
    ) -> None:
        self._range, self._address_stride = decision_range, address_stride
        self._stored_strides, self._loads_decision_value = stored_strides, loads_decision_value
        self._last: Stride | None = None
        self._lanes_matter = False

    def stride(self, active: Mask) -> None:
        """Record an execution by some lanes; what is loaded has no stride."""
        stride = self._address_stride()
        changing = [s for getter in self._stored_strides if (s := getter()) is not None]
        if stride is not None:
            if stride is not self._last or stride.shape[1] > 1:
                self._range.record_addresses(stride, active)
                self._last = stride
            if self._loads_decision_value:
                changing.insert(0, stride)
        for value_stride in changing:
            self._range.require_unchanged(value_stride, active)
        self._active = active
        self._lanes_matter = bool(changing) or (stride is not None and stride.shape[1] > 1)

    def is_fixed(self, whole: bool) -> bool:
        """As of `Computation`."""
        return whole or not self._lanes_matter

    def conditions(self) -> Conditions:
        """As of `Computation`."""
        return Conditions(self._active, {})


def _sources(step: DecodedInstruction) -> Iterator[str]:
    """The registers that an instruction computes from."""
    for operand in step.instruction.operands[1:]:
        yield from registers_of(operand)
