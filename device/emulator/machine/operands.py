"""Operands as arrays: registers with a lane per thread, constants, and where results go.

A register is one NumPy array that holds raw bits. Reading it as an instruction's type is a view,
made once when the instruction is bound.
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
"""An array (0-dimensional for a constant), or where it must be computed a function that gives it
anew each time."""

Destination: TypeAlias = tuple[Callable[[Any, "Mask | None"], None], Lanes | None]
"""How to write a value, and the array to compute into directly where there is one. The writer
called with a value of None only notes that the array has changed."""

_CLOCK_STEP = 64  # each read of a clock finds it this much later, so that waiting ends


class Operands:
    """The registers of a chunk's lanes, and the addresses of a program's variables.

    Attributes:
        versions: Of each register that addresses memory, how often it was written.
    """

    def __init__(self, program: Program, threads: Threads, globals_at: Mapping[str, int]) -> None:
        """Make registers on first use; `globals_at` places the variables in global memory."""
        self.program, self.lanes = program, threads.lanes
        self.versions = dict.fromkeys(address_registers(program), 0)
        self._globals = globals_at
        self._registers: dict[str, Lanes] = {}
        self._special = threads.special_registers()
        self._clock = itertools.count(step=_CLOCK_STEP)

    def register(self, name: str) -> Lanes:
        """A register's lanes as raw bits, made on first use."""
        if name not in self._registers:
            declared = self.program.registers.get(name)
            if declared is None:
                raise PtxError(f"register {name} is not declared")
            bits = "pred" if declared == "pred" else f"b{TYPE_BYTES[declared] * 8}"
            self._registers[name] = np.zeros(self.lanes, NUMPY_TYPES[bits])
        return self._registers[name]

    def source(self, operand: Operand, ptx_type: str) -> Source:
        """An operand as lanes of a type."""
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
                [np.broadcast_to(value_of(each), self.lanes) for each in parts], axis=1
            ).view(dtype)[:, 0]
        raise PtxError(f"operand {operand} cannot be read")

    def destinations(self, operand: Operand, types: tuple[str, ...]) -> list[Destination]:
        """Where results of these types go: one register, a pair, or a vector of them."""
        items: tuple[Operand, ...]
        if isinstance(operand, Vector):
            items = operand.items
        elif isinstance(operand, DestinationPair):
            items = (operand.first, operand.second)
        else:
            items = (operand,)
        return [self.destination(item, t) for item, t in zip(items, types, strict=False)]

    def destination(self, operand: Operand, ptx_type: str) -> Destination:
        """Where a result goes that is one register."""
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
        """The address of a variable in its own space."""
        program = self.program
        spaces = (program.shared, program.local, program.const, program.parameters)
        for places in (*spaces, program.arguments):
            if symbol.name in places:
                return places[symbol.name] + symbol.offset
        if symbol.name in self._globals:
            return self._globals[symbol.name] + symbol.offset
        raise PtxError(f"unknown symbol {symbol.name}")

    def address_base(self, operand: Address) -> Lanes:
        """The lanes that an address starts from, signed."""
        if isinstance(operand.base, Register):
            register = self.register(operand.base.name)
            return register.view(f"i{register.itemsize}")
        return np.array(self._place(operand.base) if operand.base else 0, dtype=np.int64)


def value_of(source: Source) -> Lanes:
    """The lanes of an operand, now."""
    return source() if callable(source) else source


def _narrow(register: Lanes, dtype: np.dtype[Any]) -> Lanes:
    """See a register's lanes as a type of its width or less: the low bits of each."""
    if register.dtype in (dtype, np.bool_):
        return register
    if register.itemsize < dtype.itemsize:
        return register.astype(dtype)
    return register.view(dtype)[:: register.itemsize // dtype.itemsize]


def _constant(operand: Immediate, dtype: np.dtype[Any]) -> Lanes:
    """A literal as a 0-dimensional array of a type."""
    if dtype == np.bool_:
        return np.array(bool(operand.bits))
    if operand.kind == "f64" and dtype == np.float32:
        return np.array(operand.bits, np.uint64).view(np.float64).astype(np.float32)
    bits = operand.bits & ((1 << (dtype.itemsize * 8)) - 1)
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)
