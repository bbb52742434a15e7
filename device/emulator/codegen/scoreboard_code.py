"""Writes the machine code of a scoreboard: when the instructions of a path issue."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from memlab.device.emulator.codegen.flow import counted_loop
from memlab.device.emulator.codegen.layout import element_pointer, load_field

ISSUED = np.dtype(
    [
        ("operands", "i8"),  # where the numbers of its registers begin: those read, those written
        ("read", "i8"),  # how many it reads
        ("written", "i8"),
        ("latency", "i8"),  # the bits of a double: clocks until its result can be used
        ("delay", "i8"),  # the bits of a double: clocks until what lies behind it may issue
    ]
)
"""An instruction of a program."""

SCOREBOARD_FUNCTIONS = ("follow_path",)
"""The functions by name."""

_I64, _F64, _POINTER = ir.IntType(64), ir.DoubleType(), ir.PointerType()
_RANGE_BYTES = 16


def add_scoreboard_function(module: ir.Module) -> None:
    """Add `follow_path(ranges, count, instructions, operands, ready)` to the runtime's module.

    It returns the clock, a double, behind `count` ranges of instructions: pairs of the first one
    and the one behind the last. `instructions` are `ISSUED` records, `operands` 64-bit numbers of
    registers, and `ready` holds a double per register, 0 at first: when its value can be used. An
    instruction issues when its range has begun and its sources are ready. A range ends when its
    last instruction has issued, and takes at least one clock per instruction.
    """
    kind = ir.FunctionType(_F64, [_POINTER, _I64, _POINTER, _POINTER, _POINTER])
    function = ir.Function(module, kind, "follow_path")
    ranges, count, instructions, operands, ready = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    clock, issue = b.alloca(_F64), b.alloca(_F64)
    b.store(_F64(0.0), clock)

    def raise_to(place: ir.Value, time: ir.Value) -> None:
        known = b.load(place, typ=_F64)
        b.store(b.select(b.fcmp_ordered(">", time, known), time, known), place)

    def time_of(operand: ir.Value) -> ir.Value:
        """Where it is noted when a register is ready."""
        number = b.load(element_pointer(b, operands, operand, 8), typ=_I64)
        return element_pointer(b, ready, number, 8)

    with counted_loop(b, count) as number:
        pair = element_pointer(b, ranges, number, _RANGE_BYTES)
        start, stop = (b.load(element_pointer(b, pair, _I64(i), 8), typ=_I64) for i in (0, 1))
        length, begin = b.sub(stop, start), b.load(clock, typ=_F64)
        ends = b.fadd(begin, b.sitofp(stop, _F64))
        b.store(b.fsub(ends, b.sitofp(start, _F64)), clock)
        with counted_loop(b, length) as place:
            step = element_pointer(b, instructions, b.add(start, place), ISSUED.itemsize)
            first, read, written, latency = (
                load_field(b, step, ISSUED, name)
                for name in ("operands", "read", "written", "latency")
            )
            b.store(begin, issue)
            with counted_loop(b, read) as source:
                raise_to(issue, b.load(time_of(b.add(first, source)), typ=_F64))
            issued = b.load(issue, typ=_F64)
            raise_to(clock, issued)
            done = b.fadd(issued, b.bitcast(latency, _F64))
            with counted_loop(b, written) as target:
                b.store(done, time_of(b.add(b.add(first, read), target)))
        last = element_pointer(b, instructions, b.sub(stop, _I64(1)), ISSUED.itemsize)
        delay = b.bitcast(load_field(b, last, ISSUED, "delay"), _F64)
        b.store(b.fadd(b.load(clock, typ=_F64), delay), clock)
    b.ret(b.load(clock, typ=_F64))
