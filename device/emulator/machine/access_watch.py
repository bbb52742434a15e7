"""Lets observers watch the accesses of chosen instructions, and the policy refuse lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.machine.memory import Lanes, Mask, Segment
from memlab.device.emulator.machine.observer import Action, ChunkState, ExecutionPolicy, Observer
from memlab.device.emulator.machine.operands import Source
from memlab.device.emulator.program.program import DecodedInstruction, destinations
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Operand,
    Register,
    Vector,
)


@dataclass(frozen=True)
class MemoryInstruction:
    """A memory instruction of a program.

    Attributes:
        index: Its position in the program.
        step: The instruction.
        kind: `load`, `store` or `atomic`, which includes reductions.
        size: Bytes that a lane moves.
        element_bytes: Bytes of each of the elements, one or more, that a lane moves.
        sources: The values that a store stores, an entry per element; else empty.
    """

    index: int
    step: DecodedInstruction
    kind: Literal["load", "store", "atomic"]
    size: int
    element_bytes: int
    sources: Sequence[Source] = ()


@dataclass(frozen=True)
class ResolvedAddresses:
    """The addresses that lanes access in a segment.

    Attributes:
        segment: The state space that they lie in.
        address: Byte addresses in the state space, without the instruction's offset; shape
            (lanes,), int64. Inactive lanes may hold anything.
    """

    segment: Segment
    address: Lanes


class AccessWatch:
    """The watched memory instructions of a chunk."""

    def __init__(
        self, chunk: ChunkState, policy: ExecutionPolicy, observers: Sequence[Observer]
    ) -> None:
        """Watch for a chunk; the policy filters each access, and the observers are told of it."""
        self._operands, self._segments = chunk.operands, chunk.segments
        self._policy, self._observers = policy, observers

    def action(
        self, index: int, step: DecodedInstruction, execute: Callable[[int, Mask], None]
    ) -> Action:
        """The action of a memory instruction; `execute` runs its machine code."""
        row, operands = step.row, step.instruction.operands
        address = next(operand for operand in operands if isinstance(operand, Address))
        width = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        sources = []
        if row.kind == "store":
            stored = _items(operands[1])
            sources = [self._operands.source(operand, row.of[0]) for operand in stored]
        kind: Literal["load", "store", "atomic"] = (
            "load" if row.kind == "load" else "store" if row.kind == "store" else "atomic"
        )
        instruction = MemoryInstruction(index, step, kind, width * row.vector, width, sources)
        return partial(self._run, instruction, address, partial(execute, index))

    def _run(
        self, instruction: MemoryInstruction, operand: Address, execute: Action, mask: Mask
    ) -> None:
        permitted = np.zeros_like(mask)
        for addresses, lanes in self._resolve(instruction, operand, mask):
            chosen = self._policy.permitted_lanes(instruction, addresses, operand.offset, lanes)
            if chosen.any():
                for observer in self._observers:
                    observer.memory_accessed(instruction, addresses, operand.offset, chosen)
            permitted |= chosen
        if permitted.any():
            execute(permitted)
        refused = mask & ~permitted
        if refused.any():  # they read 0, and what they store is lost
            for target in destinations(instruction.step):
                assert isinstance(target, Register)
                self._operands.clear(target.name, refused)

    def _resolve(
        self, instruction: MemoryInstruction, operand: Address, mask: Mask
    ) -> Iterator[tuple[ResolvedAddresses, Mask]]:
        """The addresses of each state space that lanes access, with these lanes."""
        base = np.broadcast_to(self._operands.address_base(operand), len(mask))
        spaces = [(instruction.step.row.space, 0, mask)]
        if instruction.step.row.space == "generic":
            spaces = list(split_by_space(base + operand.offset, mask))
        for space, window, lanes in spaces:
            address = base - window if window else base
            yield ResolvedAddresses(self._segments[space], address), lanes


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)
