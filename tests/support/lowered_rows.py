"""Compiles one row of the instruction table, and runs it on arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memlab.device.emulator.codegen.llvm import Library, compile_module
from memlab.device.emulator.isa.table import TABLE
from memlab.device.emulator.isa.values import PRED, Value, element_type, shaped
from memlab.device.properties import WARP_SIZE

Array = NDArray[Any]
_BYTE = ir.IntType(8)
_POINTER = ir.PointerType()


def run_row(opcode: str, sources: Sequence[Array], active: Array | None = None) -> list[Array]:
    """Run the function of a row of kind `lanes`, `warp` or `atomic` on arrays.

    Args:
        opcode: The row. One of kind `atomic` gets the old value as its first source, and the result
            is the new one.
        sources: The sources as `lane_dtype` gives their types, shape (lanes,); lanes is a multiple
            of 32.
        active: Bool, shape (lanes,): for a row of kind `warp`; None for all.

    Returns:
        The results, each of shape (lanes,).
    """
    row = TABLE[opcode]
    atomic = row.kind in ("atomic", "reduce")
    of = (row.of[0], *row.of) if atomic else row.of
    to = row.of[:1] if atomic else row.to
    lanes = len(sources[0]) if sources else len(active if active is not None else ())
    inputs = [
        np.ascontiguousarray(array).astype(lane_dtype(kind), copy=False)
        for array, kind in zip(sources, of, strict=True)
    ]
    inputs = [np.frombuffer(array.tobytes(), np.uint8) for array in inputs]
    outputs = [np.zeros(lanes, lane_dtype(kind)) for kind in to]
    mask = np.ones(lanes, np.uint8) if active is None else active.astype(np.uint8)
    arrays = [*inputs, *outputs, mask]
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    _compiled(opcode)(pointers, lanes // (1 if atomic else WARP_SIZE))
    return outputs


def lane_dtype(ptx_type: str) -> np.dtype[Any]:
    """The NumPy type of the lanes of a PTX type; `b128` is a pair of 64-bit words."""
    if ptx_type == "b128":
        return np.dtype([("low", "u8"), ("high", "u8")])
    element = element_type(ptx_type)
    if element == PRED:
        return np.dtype(np.bool_)
    return np.dtype(f"{element.kind}{element.bits // 8}")


@cache
def _compiled(opcode: str) -> Any:
    """The loop over warps (single lanes for an atomic) that applies the row's function."""
    row = TABLE[opcode]
    atomic = row.kind in ("atomic", "reduce")
    of = (row.of[0], *row.of) if atomic else row.of
    to = row.of[:1] if atomic else row.to
    width = 0 if atomic else WARP_SIZE
    module, i64 = ir.Module(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER, i64]), "run")
    pointers, count = function.args
    entry, body, end = (function.append_basic_block(name) for name in ("entry", "body", "end"))
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
        if element == PRED:
            raw = b.load(place(number, "u8"), typ=shaped(element_type("u8"), width), align=1)
            return Value(b, raw, element_type("u8")) != 0
        return Value(
            b, b.load(place(number, ptx_type), typ=shaped(element, width), align=1), element
        )

    values = [read(number, ptx_type) for number, ptx_type in enumerate(of)]
    if row.kind == "warp":
        values.insert(0, read(len(of) + len(to), "pred"))
    assert row.function is not None
    if not values:
        raise ValueError(f"{opcode} has no sources")
    results = row.function(*values)
    for number, (ptx_type, result) in enumerate(
        zip(to, results if isinstance(results, tuple) else (results,), strict=False), len(of)
    ):
        assert result.type == element_type(ptx_type), f"{opcode}: {result.type} for {ptx_type}"
        stored = result.to(element_type("u8")) if result.type == PRED else result
        where = place(number, "u8" if result.type == PRED else ptx_type)
        b.store(stored.ir, where, align=1)
    following = b.add(step, i64(1))
    step.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, count), body, end)
    ir.IRBuilder(end).ret_void()
    library = Library(compile_module(module), ["run"])
    run = library.function("run", None, ctypes.c_void_p, ctypes.c_int64)
    run.library = library
    return run
