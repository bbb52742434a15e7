"""Which matrices a warp multiplies on its tensor cores: from where its lanes loaded the fragments.

A matrix lies spread over the registers of a warp's lanes, so that no lane alone says which one it
is. Here registers are followed from their loads, for all lanes of a warp at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from memlab.device.array_element import Element
from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulator.isa import wmma
from memlab.device.emulator.machine.recording import RecordedAccess
from memlab.device.emulator.program.program import DecodedInstruction, Program, destinations
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Operand, Register, Vector
from memlab.device.properties import WARP_SIZE
from memlab.device.tracing.records import ArrayPart, TracedValue

_LANE_INDICES = np.arange(WARP_SIZE)
_PART_BYTES, _ELEMENT_BYTES = 4, 2  # of a row of `ldmatrix`: a lane's part, and one element


@dataclass(frozen=True)
class _RegisterOrigin:
    """What a register of each lane was loaded from.

    Attributes:
        space: The state space.
        addresses: Of each part of the register, shape (lanes, parts); -1 where a lane has none.
        nbytes: Bytes of a part.
    """

    space: str
    addresses: NDArray[np.int64]
    nbytes: int


def has_matrix_products(program: Program) -> bool:
    """Whether any of its instructions is one of the tensor cores."""
    return any(is_matrix_product(each) for each in program.steps)


def is_matrix_product(step: DecodedInstruction) -> bool:
    """Whether an instruction multiplies matrices."""
    return step.row.opcode.startswith(("mma.", "wmma.mma."))


class FragmentTracker:
    """Walks along the instructions of one warp, and remembers where its registers came from."""

    def __init__(self, names: AddressNames) -> None:
        """Begin with registers that hold nothing."""
        self._names = names
        self._held: dict[str, _RegisterOrigin] = {}

    def run(self, step: DecodedInstruction, access: RecordedAccess | None) -> None:
        """Take one instruction; `access` is what the warp touched with it, if it did."""
        operands = step.instruction.operands
        targets = [each.name for each in destinations(step) if isinstance(each, Register)]
        new: Sequence[_RegisterOrigin | None] = ()
        if step.row.kind == "load" and access is not None:
            size = TYPE_BYTES[step.row.to[0]]
            starts = np.where(access.active, access.addresses, -1).astype(np.int64)
            new = [
                _RegisterOrigin(
                    access.space, np.where(starts < 0, -1, starts + size * number)[:, None], size
                )
                for number in range(len(targets))
            ]
        elif step.row.opcode.startswith("ldmatrix."):
            row = self._of(operands[1])
            new = [row and _ldmatrix_origin(row, step.row.opcode, n) for n in range(len(targets))]
        elif step.row.opcode.startswith(("mov.", "cvt.")) and len(targets) == 1:
            new = [self._of(operands[1])]
        for name in targets:
            self._held.pop(name, None)
        self._held.update((name, held) for name, held in zip(targets, new, strict=False) if held)

    def factors(self, step: DecodedInstruction) -> tuple[TracedValue, TracedValue]:
        """The two matrices that an instruction multiplies; None for one that was computed."""
        operands = step.instruction.operands
        if step.row.opcode.startswith("mma."):
            left, right = (self._registers(each) for each in operands[1:3])
        else:
            first, second = _wmma_registers()[step.row.opcode]
            left = [self._of(each) for each in operands[1 : 1 + first]]
            right = [self._of(each) for each in operands[1 + first : 1 + first + second]]
        return self._matrix(left), self._matrix(right)

    def _registers(self, operand: Operand) -> list[_RegisterOrigin | None]:
        items = operand.items if isinstance(operand, Vector) else (operand,)
        return [self._of(each) for each in items]

    def _of(self, operand: Operand) -> _RegisterOrigin | None:
        if isinstance(operand, Vector):  # of a vector, its first part says where it lies
            operand = operand.items[0]
        return self._held.get(operand.name) if isinstance(operand, Register) else None

    def _matrix(self, registers: Sequence[_RegisterOrigin | None]) -> ArrayPart | None:
        """Put the lanes' parts together; None where one is unknown, or they lie in many arrays."""
        found: set[Element] = set()
        for held in registers:
            if held is None or (held.addresses < 0).any():
                return None
            for address in np.unique(held.addresses).tolist():
                found.update(self._names.elements(held.space, address, held.nbytes))
        return ArrayPart.of(found)


def _ldmatrix_origin(row: _RegisterOrigin, opcode: str, matrix: int) -> _RegisterOrigin:
    """What lanes have of one of `ldmatrix`'s matrices: see `tensor.loaded_matrices`."""
    group, member = _LANE_INDICES // 4, _LANE_INDICES % 4
    starts = row.addresses[:, 0]
    if ".trans" not in opcode:
        start = starts[8 * matrix + group]
        parts = np.where(start < 0, -1, start + _PART_BYTES * member)[:, None]
        return _RegisterOrigin(row.space, parts, _PART_BYTES)
    above = starts[8 * matrix + 2 * member[:, None] + np.arange(2)]
    parts = np.where(above < 0, -1, above + _ELEMENT_BYTES * group[:, None])
    return _RegisterOrigin(row.space, parts, _ELEMENT_BYTES)


@cache
def _wmma_registers() -> Mapping[str, tuple[int, int]]:
    """Registers of A and of B, by opcode."""
    return {
        f"{each.opcode} result": (each.registers("a"), each.registers("b"))
        for each in wmma.wmma_products()
    }
