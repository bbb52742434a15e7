"""Finds the matrices that a warp multiplies on its tensor cores.

A matrix is spread over the registers of a warp's lanes, so no lane alone tells which it is. The
tracker notes for each register the load that filled it in all lanes of the warp.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulator.isa import tensor, wmma
from memlab.device.emulator.program.program import DecodedInstruction, destinations
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Operand, Register, Vector
from memlab.device.properties import WARP_SIZE
from memlab.device.tracing.phases import RecordedAccess
from memlab.device.tracing.records import ArrayPart, TracedValue

_ROWS, _ROW_BYTES = 8, 16  # of a matrix of `ldmatrix`; each row is loaded by one lane


class _Load(NamedTuple):
    """The memory that one register of a warp was loaded from."""

    access: RecordedAccess
    lanes: slice  # the lanes whose addresses count
    offset: int  # bytes from a lane's address to the first byte in the register
    nbytes: int  # per lane


def is_matrix_product(step: DecodedInstruction) -> bool:
    """Whether an instruction multiplies matrices."""
    return step.row.opcode.startswith(("mma.", "wmma.mma."))


class FragmentTracker:
    """Follows the instructions of one warp, and notes the loads that filled its registers."""

    def __init__(self, names: AddressNames) -> None:
        """Start with empty registers."""
        self._names = names
        self._loads: dict[str, _Load] = {}

    def run(self, step: DecodedInstruction, access: RecordedAccess | None) -> None:
        """Follow one instruction.

        Args:
            step: The instruction.
            access: The warp's access to memory by it; None without one.
        """
        row, operands = step.row, step.instruction.operands
        targets = [target.name for target in destinations(step) if isinstance(target, Register)]
        loads: list[_Load | None] = [None] * len(targets)
        if row.kind == "load" and access is not None:
            size = TYPE_BYTES[row.to[0]]
            loads = [_Load(access, slice(WARP_SIZE), n * size, size) for n in range(len(targets))]
        elif row.opcode.startswith("ldmatrix."):  # hands out the rows that a load has just read
            rows = self._load(operands[1])
            lanes = [slice(_ROWS * n, _ROWS * (n + 1)) for n in range(len(targets))]
            loads = [rows and _Load(rows.access, part, 0, _ROW_BYTES) for part in lanes]
        elif row.opcode.startswith(("mov.", "cvt.")) and len(targets) == 1:
            loads = [self._load(operands[1])]
        for name, load in zip(targets, loads, strict=True):
            self._loads.pop(name, None)
            if load is not None:
                self._loads[name] = load

    def factors(self, step: DecodedInstruction) -> tuple[TracedValue, TracedValue]:
        """The two matrices that an instruction multiplies; None for a computed one."""
        operands = step.instruction.operands[1:]
        left, right = _factor_registers()[step.row.opcode]
        return self._matrix(operands[:left]), self._matrix(operands[left : left + right])

    def _load(self, operand: Operand) -> _Load | None:
        first = _items(operand)[0]
        return self._loads.get(first.name) if isinstance(first, Register) else None

    def _matrix(self, registers: Sequence[Operand]) -> ArrayPart | None:
        """Combine the elements of some registers; None where one was not loaded by all lanes."""
        found: set[TracedValue] = set()
        for load in map(self._load, registers):
            if load is None or not load.access.active[load.lanes].all():
                return None
            for address in load.access.addresses[load.lanes].tolist():
                at = address + load.offset
                found.update(self._names.elements(load.access.space, at, load.nbytes))
        return ArrayPart.of(found)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


@cache
def _factor_registers() -> dict[str, tuple[int, int]]:
    """The numbers of registers of A and of B, by opcode."""
    return {
        f"{product.opcode}{end} result": (product.left.registers, product.right.registers)
        for product in (*tensor.mma_products(), *wmma.wmma_products())
        for end in ("", tensor.OLDER_SUMS)
    }
