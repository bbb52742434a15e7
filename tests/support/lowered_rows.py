"""Compiles rows of the instruction table, and runs them on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.isa.table import TABLE, Row
from memlab.device.emulator.isa.values import PRED, U8, Value, constant, element_type, shaped
from memlab.device.properties import WARP_SIZE

Array = NDArray[Any]
_BYTE = ir.IntType(8)
_POINTER = ir.PointerType()


@dataclass(frozen=True)
class Case:
    """A row to compile.

    Attributes:
        opcode: The row: one of kind `lanes`, `warp`, `atomic` or `reduce`. An atomic gets the old
            value as its first source, and its result is the new one.
        known: Sources that are constants in the code, by their place among the sources.
    """

    opcode: str
    known: tuple[tuple[int, int], ...] = ()

    @property
    def row(self) -> Row:
        """The row of the table."""
        return TABLE[self.opcode]

    @property
    def atomic(self) -> bool:
        """Whether lanes are taken one by one."""
        return self.row.kind in ("atomic", "reduce")

    @property
    def of(self) -> tuple[str, ...]:
        """The types of the sources, constants included."""
        return (self.row.of[0], *self.row.of) if self.atomic else self.row.of

    @property
    def to(self) -> tuple[str, ...]:
        """The types of the results."""
        return self.row.of[:1] if self.atomic else self.row.to


class CompiledRows:
    """Rows compiled in one module, which takes less time than a module for each."""

    def __init__(self, cases: Iterable[Case | str]) -> None:
        """Compile rows, given as cases or opcodes."""
        self._cases = [Case(case) if isinstance(case, str) else case for case in cases]
        module = ir.Module()
        for number, case in enumerate(self._cases):
            _write(module, f"row{number}", case)
        names = [f"row{number}" for number in range(len(self._cases))]
        self._library = Library([compile_module(module)], names)
        self._names = dict(zip(self._cases, names, strict=True))

    def run(
        self, case: Case | str, sources: Sequence[Array], active: Array | None = None
    ) -> list[Array]:
        """Run a row; see `run_row`. Sources that are constants are left out."""
        case = Case(case) if isinstance(case, str) else case
        lanes = len(sources[0]) if sources else len(active if active is not None else ())
        of = [kind for place, kind in enumerate(case.of) if place not in dict(case.known)]
        inputs = [
            np.ascontiguousarray(array).astype(lane_dtype(kind), copy=False)
            for array, kind in zip(sources, of, strict=True)
        ]
        outputs = [np.zeros(lanes, lane_dtype(kind)) for kind in case.to]
        mask = np.ones(lanes, np.uint8) if active is None else active.astype(np.uint8)
        arrays = [*inputs, *outputs, mask]
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        run = self._library.function(self._names[case], None, ctypes.c_void_p, ctypes.c_int64)
        run(pointers, lanes // (1 if case.atomic else WARP_SIZE))
        return outputs


def run_row(
    opcode: str,
    sources: Sequence[Array],
    active: Array | None = None,
    known: Mapping[int, int] | None = None,
) -> list[Array]:
    """Run the function of a row of kind `lanes`, `warp` or `atomic` on arrays.

    Args:
        opcode: The row. One of kind `atomic` gets the old value as its first source, and the result
            is the new one.
        sources: The sources as `lane_dtype` gives their types, shape (lanes,); lanes is a multiple
            of 32.
        active: Bool, shape (lanes,): for a row of kind `warp`; None for all.
        known: Sources that are constants in the code, by their place; `sources` lacks them.

    Returns:
        The results, each of shape (lanes,).
    """
    case = Case(opcode, tuple((known or {}).items()))
    return _compiled(case).run(case, sources, active)


def lane_dtype(ptx_type: str) -> np.dtype[Any]:
    """The NumPy type of the lanes of a PTX type; `b128` is a pair of 64-bit words."""
    if ptx_type == "b128":
        return np.dtype([("low", "u8"), ("high", "u8")])
    element = element_type(ptx_type)
    if element == PRED:
        return np.dtype(np.bool_)
    return np.dtype(f"{element.kind}{element.bits // 8}")


@cache
def _compiled(case: Case) -> CompiledRows:
    return CompiledRows([case])


def _write(module: ir.Module, name: str, case: Case) -> None:
    """The loop over warps (single lanes for an atomic) that applies the row's function."""
    width, known = 0 if case.atomic else WARP_SIZE, dict(case.known)
    i64 = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER, i64]), name)
    pointers, count = function.args
    entry, body, end = (function.append_basic_block(label) for label in ("entry", "body", "end"))
    ir.IRBuilder(entry).branch(body)
    b = ir.IRBuilder(body)
    step = b.phi(i64)
    step.add_incoming(i64(0), entry)

    def place(number: int, ptx_type: str) -> ir.Value:
        element = element_type(ptx_type)
        size = max(element.bits // 8, 1) * max(width, 1)
        array = b.load(b.gep(pointers, [i64(number)], source_etype=_POINTER), typ=_POINTER)
        return b.gep(array, [b.mul(step, i64(size))], source_etype=_BYTE)

    def read(number: int, ptx_type: str) -> Value:
        element = element_type(ptx_type)
        stored = U8 if element == PRED else element
        raw = b.load(place(number, ptx_type), typ=shaped(stored, width), align=1)
        value = Value(b, raw, stored)
        return value != 0 if element == PRED else value

    values, arrays = [], 0
    for number, kind in enumerate(case.of):
        if number in known:
            element = element_type(kind)
            values.append(Value(b, constant(known[number], element, width), element))
        else:
            values.append(read(arrays, kind))
            arrays += 1
    if case.row.kind == "warp":
        values.insert(0, read(arrays + len(case.to), "pred"))
    if not values:
        raise ValueError(f"{case.opcode} has no sources")
    assert case.row.function is not None
    results = case.row.function(*values)
    for number, (kind, result) in enumerate(
        zip(case.to, results if isinstance(results, tuple) else (results,), strict=True), arrays
    ):
        assert result.type == element_type(kind), f"{case.opcode}: {result.type} for {kind}"
        stored = result.to(U8) if result.type == PRED else result
        b.store(stored.ir, place(number, kind), align=1)
    following = b.add(step, i64(1))
    step.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, count), body, end)
    ir.IRBuilder(end).ret_void()
