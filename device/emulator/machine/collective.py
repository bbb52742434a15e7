"""Executes a collective for groups that reached it at several places of the program.

The machine code of a stretch takes the operands of one instruction. Here each lane brings those of
its own group, so the function of the opcode is applied to arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from llvmlite import ir

from memlab.device.emulator.codegen.flow import counted_loop
from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.isa.table import TABLE
from memlab.device.emulator.isa.values import PRED, U8, Value, element_type, shaped
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.machine.operands import NUMPY_TYPES
from memlab.device.properties import WARP_SIZE

_POINTER, _I64, _BYTE = ir.PointerType(), ir.IntType(64), ir.IntType(8)


def execute_collective(opcode: str, active: Mask, sources: Sequence[Lanes]) -> list[Lanes]:
    """Apply the function of a collective to arrays.

    Args:
        opcode: Its row.
        active: The lanes that execute it together, shape (lanes,).
        sources: Its sources, shape (lanes,).

    Returns:
        Its results, shape (lanes,).
    """
    row = TABLE[opcode]
    inputs = [np.ascontiguousarray(source) for source in (active, *sources)]
    outputs = [np.zeros(len(active), NUMPY_TYPES[ptx_type]) for ptx_type in row.to]
    arrays = [*inputs, *outputs]
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    _, run = _compiled(opcode)
    run(pointers, len(active) // WARP_SIZE)
    return outputs


@cache
def _compiled(opcode: str) -> tuple[Library, Callable[..., None]]:
    """A loop over warps that applies the function of a row."""
    row, module = TABLE[opcode], ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER, _I64]), "run")
    pointers, count = function.args
    b = ir.IRBuilder(function.append_basic_block())
    with counted_loop(b, count) as warp:

        def place(number: int, size: int) -> ir.Value:
            array = b.load(b.gep(pointers, [_I64(number)], source_etype=_POINTER), typ=_POINTER)
            return b.gep(array, [b.mul(warp, _I64(size * WARP_SIZE))], source_etype=_BYTE)

        sources = []
        for number, ptx_type in enumerate(("pred", *row.of)):
            element = element_type(ptx_type)
            stored = U8 if element == PRED else element
            where = place(number, stored.bits // 8)
            raw = Value(b, b.load(where, typ=shaped(stored, WARP_SIZE), align=1), stored)
            sources.append(raw != 0 if element == PRED else raw)
        assert row.function is not None
        results = row.function(*sources)
        results = results if isinstance(results, tuple) else (results,)
        for number, result in enumerate(results[: len(row.to)], len(sources)):
            stored = result.to(U8) if result.type == PRED else result
            b.store(stored.ir, place(number, stored.type.bits // 8), align=1)
    b.ret_void()
    library = Library(compile_module(module), ["run"])
    return library, library.function("run", None, ctypes.c_void_p, ctypes.c_int64)
