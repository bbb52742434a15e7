"""Follows a block's values as affine functions of the block index, to find blocks that do the same.

Blocks that form clusters are followed cluster by cluster, as functions of the cluster's index: what
differs by the rank in the cluster is the same in all clusters, and so is what the blocks of a
cluster store for each other.

While a block runs, each integer register that a branch or an address depends on carries its
*stride*: the amount by which it changes per step of the block index in x, y and z, for each lane.
Integer arithmetic is linear modulo the register's width, so it passes strides on exactly. A
comparison restricts the *decision range*: the blocks for which it comes out the same. Where no rule
applies, the range is restricted to blocks for which the value does not change. All blocks in the
range take the same branches, and their addresses lie at constant strides.

Nothing else is executed: neither arithmetic on data nor accesses to data. Programs whose control
flow or addresses depend on data (`data_dependence`) cannot be followed.

Python looks only at the instructions that may see a stride, by a flow-insensitive analysis, and at
those whose effect depends on the strides alone only while these change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from memlab.device.emulator.codegen.stretches import waits_for_members
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.observer import Action, Observer
from memlab.device.emulator.machine.threads import BlockBox, cluster_places
from memlab.device.emulator.program.program import (
    ACCESS_KINDS,
    WRITING_KINDS,
    DecodedInstruction,
    Program,
)
from memlab.device.emulator.ptx.parser import Address, Operand, registers_of
from memlab.device.emulator.sampling.affine_rules import (
    NO_STRIDE,
    Computation,
    Stride,
    gives_stride,
    uniform,
)
from memlab.device.emulator.sampling.block_sample import cluster_grid
from memlab.device.emulator.sampling.data_dependence import (
    block_spaces,
    decision_sources,
    sign_only_registers,
    sizes_of,
    until_stable,
)
from memlab.device.emulator.sampling.decision_range import DecisionRange, IntArray
from memlab.device.emulator.sampling.without_data import leave_out
from memlab.kernels.launch import Dim3

_CLOCK_STRIDES = dict.fromkeys(CLOCK_REGISTERS, np.ones((3, 1), np.int64))
"""Any stride but 0: nothing is known about the clock of another block."""
_BLOCK_INDICES = frozenset(f"%{name}.{axis}" for name in ("ctaid", "clusterid") for axis in "xyz")
_FLOW = ("branch", "exit", "barrier", "arrive")


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
        self._changing = {*_BLOCK_INDICES}  # registers that ever have a stride
        for step, read, written in until_stable(program, self._changing):
            targets = written & self._deciding
            if targets and not self._changing.isdisjoint(read) and self._gives_stride(step):
                self._changing |= targets
        self._watched = {index for index in range(len(self._steps)) if self._may_see_stride(index)}
        self._users: dict[str, set[int]] = {}  # watched instructions, by registers they name
        for index in self._watched:
            for name in _registers(self._steps[index].instruction.operands):
                self._users.setdefault(name, set()).add(index)
        deciding = tuple(map(self._without_data, range(len(self._steps))))
        self.program = replace(program, steps=deciding, digest=f"{program.digest} decisions")
        self._finished: list[BlockBox] = []
        self._address_strides = np.zeros(3, np.int64)
        self._range: DecisionRange | None = None

    @property
    def boxes(self) -> list[BlockBox]:
        """For each block that has run, in order, a box of blocks around it that do the same.

        For each cluster, where blocks form some: a box in the grid of clusters.
        """
        return self._finished + (self._range.boxes() if self._range else [])

    @property
    def strides(self) -> IntArray:
        """Strides of the addresses of all blocks that have run: see `DecisionRange.strides`."""
        return self._address_strides | (self._range.strides if self._range else 0)

    # --- Which instructions matter -------------------------------------------------------------

    def watched_instructions(self, program: Program) -> Collection[int]:
        """Those that may see a stride."""
        return self._watched

    def _decides(self, step: DecodedInstruction) -> bool:
        """Whether a branch or an address depends on the result of an instruction."""
        return not self._deciding.isdisjoint(step.registers_written)

    def _by_sign(self, step: DecodedInstruction) -> bool:
        """Whether the result of an instruction is tested for its sign only."""
        return self._signs.issuperset(step.registers_written)

    def _gives_stride(self, step: DecodedInstruction) -> bool:
        return gives_stride(step, self._by_sign(step))

    def _sources(self, step: DecodedInstruction) -> tuple[Operand, ...]:
        """The operands that an instruction computes from, or the address and what matters of it."""
        operands = step.instruction.operands
        if step.row.kind not in ACCESS_KINDS:
            return operands[1:]
        stored = operands if self._stores_decision_value(step) else ()
        others = (operand for operand in stored if not isinstance(operand, Address))
        return step.address, *sizes_of(step), *others

    def _may_see_stride(self, index: int) -> bool:
        """Whether an instruction may read a stride that matters, or write over one."""
        step = self._steps[index]
        if not self._changing.isdisjoint(step.registers_written):
            return True
        if step.row.kind in _FLOW or not (step.row.kind in ACCESS_KINDS or self._decides(step)):
            return False
        return not (self._changing | CLOCK_REGISTERS).isdisjoint(_registers(self._sources(step)))

    def _stores_decision_value(self, step: DecodedInstruction) -> bool:
        """Whether an instruction stores a value that may be loaded to decide something."""
        return step.row.kind in WRITING_KINDS and not self._spaces.isdisjoint(block_spaces(step))

    def _without_data(self, index: int) -> DecodedInstruction:
        """An instruction of `program`: empty where it computes or accesses data only."""
        step = self._steps[index]
        if (
            step.row.kind in _FLOW
            or waits_for_members(step)
            or self._decides(step)
            or self._stores_decision_value(step)
        ):
            return step
        return leave_out(step, guarded=index in self._watched)

    # --- A chunk -------------------------------------------------------------------------------

    def chunk_started(self, chunk: Chunk) -> None:
        """Begin to follow the blocks of the next chunk."""
        threads, grid = chunk.threads, chunk.threads.grid
        self._finished, self._address_strides = self.boxes, self.strides
        clusters, _ = cluster_places(threads.blocks[:: grid.cluster_blocks], grid.cluster)
        self._range = DecisionRange(clusters, cluster_grid(grid.grid, grid.cluster))
        self._context, self._operands = chunk.context, chunk.operands
        self._strides: dict[str, Stride] = {**_index_strides(grid.cluster), **_CLOCK_STRIDES}
        self._written: set[str] = set()
        self._settled: set[int] = set()  # instructions left to the machine code

    def instruction_bound(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Follow an instruction's strides."""
        assert self._range is not None
        context, followed = self._context, self._steps[index]
        targets = [name for name in followed.registers_written if name in self._changing]
        rule = Computation(
            followed,
            self._sources(followed),
            self._operands,
            self._range,
            self._by_sign(followed),
            self._decides(followed),
        )

        def run(mask: Mask) -> None:
            whole = np.count_nonzero(mask) == context["lanes_live"]
            stride = rule.stride(self._strides, mask)
            known = [self._set(name, stride, mask, whole) for name in targets]
            if all(known) and rule.is_fixed(whole):
                self._settled.add(index)
                context.resume_at(index)
            action(mask)

        return run

    def _set(self, name: str, stride: Stride, mask: Mask, whole: bool) -> bool:
        """Set the stride of a register in the lanes of a mask; `whole` if no others are left.

        Returns:
            Whether it had this stride in all lanes.
        """
        old, is_first = self._strides.get(name, NO_STRIDE), name not in self._written
        self._written.add(name)
        if old is stride or np.array_equal(old, stride):
            return True
        if not whole and not is_first:  # else the other lanes hold no value yet
            stride = uniform(np.where(mask, stride, old))
            if np.array_equal(old, stride):
                return False
        self._strides[name] = stride
        concerned = self._settled & self._users[name]
        self._settled -= concerned
        self._context.interrupt_at(concerned)
        return False


def _index_strides(cluster: Dim3) -> dict[str, Stride]:
    """The strides of the indices of a block and of its cluster, per step of the cluster's index."""
    strides: dict[str, Stride] = {}
    for axis, (name, unit) in enumerate(zip("xyz", np.eye(3, dtype=np.int64), strict=True)):
        strides[f"%clusterid.{name}"] = unit[:, None]
        strides[f"%ctaid.{name}"] = cluster[axis] * unit[:, None]
    return strides


def _registers(operands: Collection[Operand]) -> set[str]:
    return {name for operand in operands for name in registers_of(operand)}
