"""Executes a collective for groups that reached it at several places of the program.

The machine code of a stretch takes the operands of one instruction. Here each lane brings those of
its own group, so the function of the opcode is applied to arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import numpy as np
from llvmlite import ir

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.codegen.records import Address, Pointer, pointer_to
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.values import PRED, U8, ElementType, Value, element_type
from memlab.device.emulator.machine.memory import Lanes, Mask
from memlab.device.emulator.machine.operands import NUMPY_TYPES
from memlab.device.properties import WARP_SIZE


def execute_collective(row: Row, active: Mask, sources: Sequence[Lanes]) -> list[Lanes]:
    """Apply the function of a collective to arrays.

    Args:
        row: Its row.
        active: The lanes that execute it together, shape (lanes,).
        sources: Its sources, shape (lanes,).

    Returns:
        Its results, shape (lanes,).
    """
    outputs = [np.zeros(len(active), NUMPY_TYPES[ptx_type]) for ptx_type in row.to]
    arrays = [np.ascontiguousarray(array) for array in (active, *sources, *outputs)]
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    run = _compiled(row).function("run", None, ctypes.c_void_p, ctypes.c_int64)
    run(pointers, len(active) // WARP_SIZE)
    return arrays[1 + len(sources) :]


@cache
def _compiled(row: Row) -> Library:
    """A loop over warps that applies the function of a row."""

    @compiled(exported=True)
    def run(arrays: Pointer[Address], count: int) -> None:
        for warp in range(count):
            _apply(row, arrays, warp)

    module = ir.Module()
    run.declared(module)  # type: ignore[attr-defined]
    return Library([compile_module(module)], ["run"])


def _apply(row: Row, arrays: Pointer[Address], warp: int) -> None:
    """Write the code that applies a row's function to the lanes of a warp."""

    def lanes(number: int, element: ElementType) -> Pointer[Value]:
        stored = U8 if element == PRED else element
        return pointer_to(arrays[number], Annotated[Value, (stored, WARP_SIZE)])

    elements = list(map(element_type, ("pred", *row.of)))
    sources = [lanes(number, element)[warp] for number, element in enumerate(elements)]
    assert row.function is not None
    results = row.function(*(s.to(e) for s, e in zip(sources, elements, strict=True)))
    results = results if isinstance(results, tuple) else (results,)
    for number, result in enumerate(results[: len(row.to)], len(sources)):
        lanes(number, result.type)[warp] = result
