"""`wmma`: matrices that whole warps load, multiply and store (PTX ISA, "Warp-level Matrix").

PTX leaves the distribution of a matrix over a warp's registers undefined. Here a lane holds words
of 4 bytes (8 for `f64`) along the rows of the matrix in memory, in blocks of 8 rows by 4 words, as
in the fragments of `mma`, so that a block is one load. Accumulators hold pairs of neighbours in a
row. Surplus registers of `f16` fragments hold copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from memlab.device.emulator.isa.integers import popcount
from memlab.device.emulator.isa.macros import HALVES, ROW_ADDRESSES, substitute
from memlab.device.emulator.isa.tensor import (
    FragmentLayout,
    Matrix,
    MatrixProduct,
    accumulator,
)
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
}
"""The types of the factors by shape; those of less than a byte are left out."""

_BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}
_LANEID = Register("%laneid")


def matrix_extents(shape: str) -> tuple[int, int, int]:
    """M, N and K of a shape such as `m16n16k16`."""
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


_RESULT_TYPES: dict[str, list[tuple[str, str, str]]] = {
    "f16": [(d, c, "") for d in ("f16", "f32") for c in ("f16", "f32")],
    "bf16": [("f32", "f32", "")],
    "tf32": [("f32", "f32", "")],
    "f64": [("f64", "f64", ""), ("f64", "f64", ".rn")],
    "s8": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
    "u8": [("s32", "s32", ""), ("s32", "s32", ".satfinite")],
}
"""Types of D and C by that of the factors, and endings."""


def wmma_products() -> Iterator[MatrixProduct]:
    """All `wmma.mma`."""
    for shape, factors in SHAPES.items():
        m, n, _ = matrix_extents(shape)
        for of_a, of_b, element in itertools.product(("row", "col"), ("row", "col"), factors):
            left, right = _matrix("a", of_a, shape, element), _matrix("b", of_b, shape, element)
            for result, added, end in _RESULT_TYPES[element]:
                types = [result, added] if element == "f16" else [result, element, element, added]
                yield MatrixProduct(
                    ".".join(["wmma.mma.sync", of_a, of_b, shape, *types]) + end,
                    left,
                    right,
                    accumulator(added, m, n),
                    accumulator(result, m, n),
                    end == ".satfinite",
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
    m, n, k = matrix_extents(shape)
    if matrix in ("c", "d"):
        return accumulator(element, m, n)
    logical = (m, k) if matrix == "a" else (k, n)
    rows, columns = logical if layout == "row" else logical[::-1]
    step = max(4 // _BYTES[element], 1)
    words = columns // step
    lanes = next(count for count in (4, 2, 8) if words % count == 0 and rows % (32 // count) == 0)
    surplus = 8 - rows * words // 32 if element == "f16" else 0
    return Matrix(element, FragmentLayout(rows, columns, step, lanes), layout == "col", surplus)


# --- Loads and stores ------------------------------------------------------------------------


def lane_address(
    layout: str,
    base: Value,
    stride: Value,
    lane: Value,
    place: Value,
    lanes: Value,
    step: Value,
    size: Value,
) -> Value:
    """The address of a lane's first element of a block; `lanes`, a power of two, share a row."""
    row = place + (lane >> popcount(lanes - 1))
    column = (lane & (lanes - 1)) * step
    if layout == "col":
        row, column = column, row
    return base + (row.to(U64) * stride.to(U64) + column.to(U64)) * size.to(U64)


def expand_load_store(instruction: Instruction) -> Iterable[Instruction]:
    """`wmma.load` or `wmma.store`: an address per block of rows, and one access per block."""
    words = instruction.opcode.replace("::cta", "").split(".")
    _, direction, matrix, *rest = [word for word in words if word not in ("sync", "aligned")]
    layout, shape, *rest = rest
    space = f".{rest[0]}" if len(rest) > 1 else ""
    element = rest[-1]
    first, second, *others = instruction.operands
    where, fragment = (second, first) if direction == "load" else (first, second)
    items = fragment.items if isinstance(fragment, Vector) else (fragment,)
    if not isinstance(where, Address) or where.base is None:
        raise PtxError(f"PTX line {instruction.ptx_line}: {instruction.opcode} has no [address]")
    held = _matrix(matrix, layout, shape, element)
    spread = held.layout
    if len(items) != held.registers:
        raise PtxError(f"PTX line {instruction.ptx_line}: {instruction.opcode} has other registers")
    accumulates = matrix in ("c", "d")
    m, n, _ = matrix_extents(shape)
    usual = spread.columns if not accumulates else (n if layout == "row" else m)
    stride = others[0] if others else Immediate("int", usual)
    size = _BYTES[element]
    crossed = accumulates and layout == "col"
    starts = {row: ROW_ADDRESSES[number] for number, row in enumerate(dict(spread.blocks))}
    for row, register in starts.items():
        values = (row, spread.lanes, spread.step, size)
        numbers = (Immediate("int", number) for number in values)
        opcode = f"wmma.address.{'col' if crossed else 'row'}"
        yield substitute(instruction, opcode, register, where.base, stride, _LANEID, *numbers)
    if crossed:
        yield from _move_by_element(
            instruction, f"{direction}{space}", items, spread, starts, stride, size
        )
        return
    wide = spread.step * size if accumulates else max(size, 4)
    vector = accumulates and size > 2
    kind = f"{'.v2' if vector else ''}.b{wide * (4 if vector else 8)}"
    for number, (row, column) in enumerate(spread.blocks):
        at = Address(starts[row], where.offset + column * size)
        value: Operand = Vector(items[2 * number : 2 * number + 2]) if vector else items[number]
        yield _load_or_store(instruction, f"{direction}{space}{kind}", at, value)
    for number in range(len(spread.blocks), len(items) if element == "f16" and not vector else 0):
        copied = items[number % len(spread.blocks)]
        yield substitute(instruction, "mov.b32", items[number], copied)


def _load_or_store(of: Instruction, what: str, at: Address, value: Operand) -> Instruction:
    direction, _, kind = what.partition(".")
    if direction == "load":
        return substitute(of, f"ld.{kind}", value, at)
    return substitute(of, f"st.{kind}", at, value)


def _move_by_element(
    of: Instruction,
    what: str,
    items: Sequence[Operand],
    spread: FragmentLayout,
    starts: dict[int, Register],
    stride: Operand,
    size: int,
) -> Iterator[Instruction]:
    """Load or store an accumulator with contiguous columns in memory, element by element."""
    offset = next(operand.offset for operand in of.operands if isinstance(operand, Address))
    at_column = ROW_ADDRESSES[-1]
    for number, (row, column) in enumerate(spread.blocks):
        values: Sequence[Operand] = items[2 * number : 2 * number + 2]
        if size == 2:
            values = HALVES
            if what.startswith("store"):
                yield substitute(of, "mov.b32", Vector(HALVES), items[number])
        for part, value in enumerate(values):
            numbers = (Immediate("int", number) for number in (column + part, size))
            yield substitute(of, "wmma.column", at_column, starts[row], stride, *numbers)
            yield _load_or_store(of, f"{what}.b{8 * size}", Address(at_column, offset), value)
        if size == 2 and what.startswith("load"):
            yield substitute(of, "mov.b32", items[number], Vector(HALVES))


def column_address(start: Value, stride: Value, number: Value, size: Value) -> Value:
    """An address advanced by a number of columns."""
    return start + stride.to(U64) * number.to(U64) * size.to(U64)
