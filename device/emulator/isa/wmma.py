"""`wmma`: matrices that whole warps load, multiply and store (PTX ISA, "Warp-level Matrix").

PTX leaves the distribution of a matrix over a warp's registers undefined. Here a lane holds words
of 4 bytes (8 for `f64`) along the rows of the matrix in memory, in blocks of 8 rows by 4 words, as
in the fragments of `mma`, so that a block is one load. Accumulators hold pairs of neighbours in a
row. Surplus registers of `f16` fragments hold copies.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from memlab.device.emulator.isa.integers import popcount
from memlab.device.emulator.isa.macros import (
    HALVES,
    ROW_ADDRESSES,
    WORD,
    items_of,
    substitute,
)
from memlab.device.emulator.isa.tensor import Matrix, MatrixProduct, stored_as
from memlab.device.emulator.isa.values import U64, Value
from memlab.device.emulator.ptx.parser import (
    Address,
    Immediate,
    Instruction,
    Operand,
    PtxError,
    Register,
    Vector,
)

SHAPES = {
    "m16n16k16": ("f16", "bf16", "s8", "u8"),
    "m32n8k16": ("f16", "bf16", "s8", "u8"),
    "m8n32k16": ("f16", "bf16", "s8", "u8"),
    "m16n16k8": ("tf32",),
    "m8n8k4": ("f64",),
    "m8n8k32": ("s4", "u4"),
    "m8n8k128": ("b1",),
}
"""The types of the factors by shape."""
_PACKED = {"s4": 8, "u4": 8, "b1": 32}
"""How many elements of less than a byte are in a word: they are loaded word by word."""

_LANEID = Register("%laneid")

_RESULT_TYPES: dict[str, list[tuple[str, str, str]]] = {
    "f16": [(d, c, "") for d in ("f16", "f32") for c in ("f16", "f32")],
    "bf16": [("f32", "f32", "")],
    "tf32": [("f32", "f32", "")],
    "f64": [("f64", "f64", ""), ("f64", "f64", ".rn")],
    "s8": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
    "u8": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
    "s4": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
    "u4": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
    "b1": [("s32", "s32", "")],
}
"""Types of D and C by that of the factors, and endings."""


def wmma_products() -> Iterator[MatrixProduct]:
    """All `wmma.mma`, as Hopper sums them."""
    for shape, factors in SHAPES.items():
        for of_a, of_b, element in itertools.product(("row", "col"), ("row", "col"), factors):
            if element in _PACKED and (of_a, of_b) != ("row", "col"):
                continue
            combines = ("xor", "and") if element == "b1" else ("",)
            for (result, added, end), combine in itertools.product(
                _RESULT_TYPES[element], combines
            ):
                types = [result, added] if element == "f16" else [result, element, element, added]
                start = f"wmma.mma.{combine}.popc.sync" if combine else "wmma.mma.sync"
                yield MatrixProduct(
                    ".".join([start, of_a, of_b, shape, *types]) + end,
                    _matrix("a", of_a, shape, element),
                    _matrix("b", of_b, shape, element),
                    _matrix("c", "", shape, added),
                    _matrix("d", "", shape, result),
                    end == ".satfinite",
                    combine,
                )


def load_store_patterns() -> Iterator[str]:
    """The opcodes of all `wmma.load` and `wmma.store`, as patterns of the table."""
    for shape, factors in SHAPES.items():
        end = f"sync.{{row,col}}.{shape}{{,.global,.shared}}"
        sums = dict.fromkeys(result for factor in factors for result, _, _ in _RESULT_TYPES[factor])
        yield f"wmma.{{load.a,load.b}}.{end}.{{{','.join(factors)}}}"
        yield f"wmma.{{load.c,store.d}}.{end}.{{{','.join(sums)}}}"


def _matrix(matrix: str, layout: str, shape: str, element: str) -> Matrix:
    """The matrix `a`, `b`, `c` or `d` of a shape; C and D are held alike for every layout."""
    m, n, k = map(int, re.findall(r"\d+", shape))
    if element == "b1":
        k //= _PACKED[element]
    if matrix in ("c", "d"):
        return Matrix(element, m, n, step=2)
    logical = (m, k) if matrix == "a" else (k, n)
    rows, columns = logical if layout == "row" else logical[::-1]
    step = max(32 // stored_as(element).bits, 1)
    words = columns // step
    lanes = next(count for count in (4, 2, 8) if words % count == 0 and rows % (32 // count) == 0)
    surplus = 8 - rows * words // 32 if element == "f16" else 0
    return Matrix(element, rows, columns, step, lanes, layout == "col", surplus)


# --- Loads and stores ------------------------------------------------------------------------


def lane_address(layout: str, *sources: Value) -> Value:
    """The address of a lane's first element of a block; `lanes`, a power of two, share a row."""
    base, stride, lane, place, lanes, step, size = sources
    row = place + (lane >> popcount(lanes - 1))
    column = (lane & (lanes - 1)) * step
    if layout == "col":
        row, column = column, row
    return base + (row.to(U64) * stride.to(U64) + column.to(U64)) * size.to(U64)


def expand_load_store(instruction: Instruction) -> Iterable[Instruction]:
    """`wmma.load` or `wmma.store`: an address per block of rows, and one access per block."""
    words = instruction.opcode.replace("::cta", "").split(".")
    _, direction, matrix, layout, shape, *spaces, element = [
        word for word in words if word not in ("sync", "aligned")
    ]
    access = ".".join([direction, *spaces])
    first, second, *others = instruction.operands
    where, fragment = (second, first) if direction == "load" else (first, second)
    items = items_of(fragment)
    if not isinstance(where, Address) or where.base is None:
        raise PtxError(f"PTX line {instruction.ptx_line}: {instruction.opcode} has no [address]")
    held = _matrix(matrix, layout, shape, element)
    if len(items) != held.registers:
        raise PtxError(f"PTX line {instruction.ptx_line}: {instruction.opcode} has other registers")
    accumulates, size = matrix in ("c", "d"), held.stored_as.bits // 8
    crossed = accumulates and layout == "col"
    stride = others[0] if others else Immediate("int", held.rows if crossed else held.columns)
    if element in _PACKED:
        held, size = replace(held, columns=held.columns // held.step, step=1), 4
        shift = Immediate("int", _PACKED[element].bit_length() - 1)
        if others:
            yield substitute(instruction, "shr.u32", WORD, stride, shift)
        stride = WORD if others else Immediate("int", held.columns)
    starts = {row: ROW_ADDRESSES[number] for number, row in enumerate(dict(held.blocks))}
    for row, register in starts.items():
        numbers = (Immediate("int", n) for n in (row, held.lanes, held.step, size))
        opcode = f"wmma.address.{'col' if crossed else 'row'}"
        yield substitute(instruction, opcode, register, where.base, stride, _LANEID, *numbers)
    if crossed:
        yield from _move_by_element(instruction, access, where.offset, items, held, starts, stride)
        return
    vector = accumulates and size > 2
    access += f"{'.v2' if vector else ''}.b{8 * max(size, 4)}"
    for number, (row, column) in enumerate(held.blocks):
        at = Address(starts[row], where.offset + column * size)
        value: Operand = Vector(items[2 * number : 2 * number + 2]) if vector else items[number]
        yield _load_or_store(instruction, access, at, value)
    for number in range(len(items) - held.surplus, len(items)):
        copied = items[number % len(held.blocks)]
        yield substitute(instruction, "mov.b32", items[number], copied)


def _load_or_store(of: Instruction, access: str, at: Address, value: Operand) -> Instruction:
    direction, _, kind = access.partition(".")
    if direction == "load":
        return substitute(of, f"ld.{kind}", value, at)
    return substitute(of, f"st.{kind}", at, value)


def _move_by_element(
    of: Instruction,
    access: str,
    offset: int,
    items: Sequence[Operand],
    held: Matrix,
    starts: dict[int, Register],
    stride: Operand,
) -> Iterator[Instruction]:
    """Load or store an accumulator with contiguous columns in memory, element by element."""
    size, at_column = held.stored_as.bits // 8, ROW_ADDRESSES[-1]
    for number, (row, column) in enumerate(held.blocks):
        values = HALVES if size == 2 else items[2 * number : 2 * number + 2]
        if size == 2 and access.startswith("store"):
            yield substitute(of, "mov.b32", Vector(HALVES), items[number])
        for part, value in enumerate(values):
            numbers = (Immediate("int", number) for number in (column + part, size))
            yield substitute(of, "wmma.column", at_column, starts[row], stride, *numbers)
            yield _load_or_store(of, f"{access}.b{8 * size}", Address(at_column, offset), value)
        if size == 2 and access.startswith("load"):
            yield substitute(of, "mov.b32", items[number], Vector(HALVES))


def column_address(start: Value, stride: Value, number: Value, size: Value) -> Value:
    """An address advanced by a number of columns."""
    return start + stride.to(U64) * number.to(U64) * size.to(U64)
