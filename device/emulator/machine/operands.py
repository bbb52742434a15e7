"""Operands as arrays: registers, constants, and the destinations of results.

A register is one NumPy array of raw bits with an element per lane. An instruction reads it through
a view of the instruction's type, which is made once when the instruction is bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.isa.table import NUMPY_TYPES
from memlab.device.emulator.machine.memory import Lanes
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import Program, address_registers
from memlab.device.emulator.ptx.parser import (
    TYPE_BYTES,
    Address,
    DestinationPair,
    Immediate,
    Negated,
    Operand,
    PtxError,
    Register,
    Symbol,
    Vector,
)

Source: TypeAlias = Lanes | Callable[[], Lanes]
"""An array of shape (lanes,), or () for a constant; or a function that computes one at each use."""

Destination: TypeAlias = tuple[Callable[[Any, "Mask | None"], None], Lanes | None]
"""A function that writes a value into the lanes of a mask, and the array to compute into directly,
where there is one. Called with None for the value, the function only notes that the array
changed."""

_CLOCK_STEP = 64  # cycles by which a clock advances at each read, so that timed waits end


class Operands:
    """The registers of a chunk's lanes, and the addresses of a program's variables.

    Attributes:
        program: The kernel.
        lanes: How many lanes the chunk has.
        versions: How often each register that addresses memory was written, by name.
    """

    def __init__(self, program: Program, threads: Threads, globals_at: Mapping[str, int]) -> None:
        """Prepare a chunk; `globals_at` maps variables in global memory to their addresses."""
        self.program, self.lanes = program, threads.lanes
        self.versions = dict.fromkeys(address_registers(program), 0)
        self._globals = globals_at
        self._registers: dict[str, Lanes] = {}
        self._special = threads.special_registers()
        self._clock = itertools.count(step=_CLOCK_STEP)

    def register(self, name: str) -> Lanes:
        """The lanes of a register as raw bits; they are allocated on first use."""
        if name not in self._registers:
            declared = self.program.registers.get(name)
            if declared is None:
                raise PtxError(f"register {name} is not declared")
            bits = "pred" if declared == "pred" else f"b{TYPE_BYTES[declared] * 8}"
            self._registers[name] = np.zeros(self.lanes, NUMPY_TYPES[bits])
        return self._registers[name]

    def source(self, operand: Operand, ptx_type: str) -> Source:
        """An operand to be read as a PTX type."""
        dtype = NUMPY_TYPES[ptx_type]
        if isinstance(operand, Register):
            if operand.name in CLOCK_REGISTERS:
                shift = 32 if operand.name.endswith("_hi") else 0
                return lambda: np.array(next(self._clock) >> shift, np.uint64).astype(dtype)
            special = self._special.get(operand.name)
            register = self.register(operand.name) if special is None else special
            if (
                special is None
                and np.bool_ != register.dtype
                and register.itemsize < dtype.itemsize
            ):
                return lambda: register.astype(dtype)
            return _narrow(register, dtype)
        if isinstance(operand, Immediate):
            return _constant(operand, dtype)
        if isinstance(operand, Symbol):
            return _constant(Immediate("int", self._place(operand)), dtype)
        if isinstance(operand, Negated):
            register = self.register(operand.register.name)
            return lambda: ~register
        if isinstance(operand, Vector):
            part = f"b{dtype.itemsize * 8 // len(operand.items)}"
            parts = [self.source(item, part) for item in operand.items]
            return lambda: np.stack(
                [np.broadcast_to(value_of(source), self.lanes) for source in parts], axis=1
            ).view(dtype)[:, 0]
        raise PtxError(f"operand {operand} cannot be read")

    def destinations(self, operand: Operand, types: tuple[str, ...]) -> list[Destination]:
        """The destinations of results of these types: one register, a pair, or a vector."""
        items: tuple[Operand, ...]
        if isinstance(operand, Vector):
            items = operand.items
        elif isinstance(operand, DestinationPair):
            items = (operand.first, operand.second)
        else:
            items = (operand,)
        return [self.destination(item, t) for item, t in zip(items, types, strict=False)]

    def destination(self, operand: Operand, ptx_type: str) -> Destination:
        """The destination of one result."""
        if not isinstance(operand, Register):
            raise PtxError(f"operand {operand} cannot be written")
        name = operand.name
        if name == "_":
            return lambda value, mask: None, None
        register, dtype = self.register(name), NUMPY_TYPES[ptx_type]
        kind = dtype.kind if dtype.itemsize < register.itemsize and dtype.kind != "f" else None
        wide = np.dtype(f"{kind}{register.itemsize}") if kind else dtype
        view = register if ptx_type == "pred" else register.view(wide)
        if view.size != self.lanes or (register.dtype == np.bool_) != (ptx_type == "pred"):
            raise PtxError(f"register {name} cannot hold a result of type {ptx_type}")
        target = view if wide == dtype else None
        versions, tracked = self.versions, name in self.versions

        def write(value: Any, mask: Mask | None) -> None:
            if value is not None:
                np.copyto(view, value, casting="unsafe", where=True if mask is None else mask)
            if tracked:
                versions[name] += 1

        return write, target

    def _place(self, symbol: Symbol) -> int:
        """The address of a variable in its state space."""
        program = self.program
        spaces = (program.shared, program.local, program.const, program.parameters)
        for offsets in (*spaces, program.arguments):
            if symbol.name in offsets:
                return offsets[symbol.name] + symbol.offset
        if symbol.name in self._globals:
            return self._globals[symbol.name] + symbol.offset
        raise PtxError(f"unknown symbol {symbol.name}")

    def address_base(self, operand: Address) -> Lanes:
        """The base of an address, without its offset: signed, shape (lanes,) or ()."""
        if isinstance(operand.base, Register):
            register = self.register(operand.base.name)
            return register.view(f"i{register.itemsize}")
        return np.array(self._place(operand.base) if operand.base else 0, dtype=np.int64)


def value_of(source: Source) -> Lanes:
    """The current value of an operand."""
    return source() if callable(source) else source


def _narrow(register: Lanes, dtype: np.dtype[Any]) -> Lanes:
    """A view of the low bits of a register as a type of its width or less."""
    if register.dtype in (dtype, np.bool_):
        return register
    if register.itemsize < dtype.itemsize:
        return register.astype(dtype)
    return register.view(dtype)[:: register.itemsize // dtype.itemsize]


def _constant(operand: Immediate, dtype: np.dtype[Any]) -> Lanes:
    """A literal as an array of shape ()."""
    if dtype == np.bool_:
        return np.array(bool(operand.bits))
    if operand.kind == "f64" and dtype == np.float32:
        return np.array(operand.bits, np.uint64).view(np.float64).astype(np.float32)
    bits = operand.bits & ((1 << (dtype.itemsize * 8)) - 1)
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)
