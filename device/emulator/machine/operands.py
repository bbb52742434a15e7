"""Operands as arrays, for what Python does with them: observers, and rare instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.context import ChunkContext, lanes_to_words, words_to_lanes
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    Immediate,
    Negated,
    Operand,
    PtxError,
    Register,
    Symbol,
    Vector,
)
from memlab.device.properties import WARP_SIZE

Source: TypeAlias = Callable[[], Lanes]
"""Returns the current value of an operand, shape (lanes,), or () for a constant."""


class Operands:
    """The registers of a chunk's lanes, and the addresses of a program's variables.

    Attributes:
        program: The kernel.
        lanes: How many lanes the chunk has.
    """

    def __init__(
        self, program: Program, context: ChunkContext, variables: Mapping[str, int]
    ) -> None:
        """Read a chunk; `variables` maps variables in global memory to their addresses."""
        self.program, self.lanes = program, context["warps"] * WARP_SIZE
        self._layout, self._context, self._variables = context.layout, context, variables

    def register(self, name: str) -> Lanes:
        """The lanes of a register as raw bits, bool for a predicate; a copy."""
        if name not in self._layout.offsets:
            raise PtxError(f"register {name} is not declared")
        raw = self._layout.view(self._context.frames, name)
        if self._layout.bits[name] == 1:
            return words_to_lanes(np.ascontiguousarray(raw[:, 0]))
        return raw.reshape(-1)

    def write(self, name: str, values: Lanes, mask: Mask) -> None:
        """Write raw bits into the lanes of a mask; a value is cut or extended by its kind."""
        if name == "_":
            return
        raw = self._layout.view(self._context.frames, name)
        values = np.broadcast_to(values, self.lanes)
        if self._layout.bits[name] == 1:
            chosen = lanes_to_words(mask)
            raw[:, 0] = (raw[:, 0] & ~chosen) | (lanes_to_words(values & mask))
            return
        if values.dtype.itemsize < raw.dtype.itemsize:
            values = values.astype(f"{values.dtype.kind}{raw.dtype.itemsize}")
        shape = (-1, WARP_SIZE)
        np.copyto(raw, values.view(raw.dtype).reshape(shape), where=mask.reshape(shape))

    def clear(self, name: str, mask: Mask) -> None:
        """Write 0 into the lanes of a mask."""
        if name != "_":
            self.write(name, np.zeros((), self.register(name).dtype), mask)

    def source(self, operand: Operand, ptx_type: str) -> Source:
        """A function that reads an operand as a PTX type."""
        match operand:
            case Immediate() | Symbol():
                constant = self.read(operand, ptx_type)
                return lambda: constant
            case Register(name) if self._layout.bits.get(name, 1) > 1:
                raw = self._layout.view(self._context.frames, name)
                return lambda: _read_as(raw.reshape(-1), ptx_type)
        return partial(self.read, operand, ptx_type)

    def read(self, operand: Operand, ptx_type: str) -> Lanes:
        """The current value of an operand as a PTX type, shape (lanes,), or () for a constant."""
        match operand:
            case Register(name) if name in CLOCK_REGISTERS:
                shift = 32 if name.endswith("_hi") else 0
                return _read_as(np.array(self._context["clock"] >> shift, "u8"), ptx_type)
            case Register(name):
                return _read_as(self.register(name), ptx_type)
            case Negated(Register(name)):
                return ~self.register(name)
            case Immediate():
                return _constant(operand, ptx_type)
            case Symbol():
                return _constant(Immediate("int", self._place(operand)), ptx_type)
            case Vector(items):
                kind = f"b{8 * TYPE_BYTES[ptx_type] // len(items)}"
                parts = [np.broadcast_to(self.read(item, kind), self.lanes) for item in items]
                packed: Lanes = np.stack(parts, axis=1).view(NUMPY_TYPES[ptx_type])[:, 0]
                return packed
        raise PtxError(f"operand {operand} cannot be read")

    def address_base(self, operand: Address) -> Lanes:
        """The base of an address, without its offset: int64, shape (lanes,) or ()."""
        if isinstance(operand.base, Register):
            register = self.register(operand.base.name)
            return register.view(f"i{register.itemsize}").astype(np.int64)
        return np.array(self._place(operand.base) if operand.base else 0, dtype=np.int64)

    def _place(self, symbol: Symbol) -> int:
        """The address of a variable in its state space."""
        program = self.program
        spaces = (program.shared, program.local, program.const, program.parameters)
        for offsets in (*spaces, program.arguments, self._variables):
            if symbol.name in offsets:
                return offsets[symbol.name] + symbol.offset
        raise PtxError(f"unknown symbol {symbol.name}")


NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(
        "bool"
        if name == "pred"
        else {"s": "i", "f": "f"}.get(name[0], "u") + str(TYPE_BYTES[name])
        if "x2" not in name and name != "bf16"
        else f"u{TYPE_BYTES[name]}"
    )
    for name in TYPE_BYTES
    if name != "b128"
} | {"b128": np.dtype("V16")}
"""The NumPy type for the lanes of each PTX type; packed halves and bf16 are raw bits."""


def _read_as(bits: Lanes, ptx_type: str) -> Lanes:
    """Raw bits of a register as a PTX type: its low bits, or extended by zeros."""
    dtype = NUMPY_TYPES[ptx_type]
    if bits.dtype in (dtype, np.bool_):
        return bits
    if bits.itemsize != dtype.itemsize:
        bits = bits.astype(f"u{dtype.itemsize}")
    return bits.view(dtype)


def _constant(operand: Immediate, ptx_type: str) -> Lanes:
    """A literal as an array of shape ()."""
    dtype = NUMPY_TYPES[ptx_type]
    if dtype == np.bool_:
        return np.array(bool(operand.bits))
    if operand.kind == "f64" and dtype == np.float32:
        return np.array(operand.bits, np.uint64).view(np.float64).astype(np.float32)
    bits = operand.bits & ((1 << (dtype.itemsize * 8)) - 1)
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)
