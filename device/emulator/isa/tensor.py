"""Matrix products of a warp (tensor cores), and the distribution of matrices over its lanes.

A *fragment* is a lane's part of a matrix: registers with one 32-bit element or two 16-bit elements
each (PTX ISA, "Matrix Fragments for mma.m16n8k8" and the following sections). All m16n8 shapes
follow one scheme: a group of four lanes holds a row of A (and the row 8 below it) or a column of B,
and advances along k by four registers at a time.

Arithmetic: products are exact; they are summed in float64 with the accumulator and rounded once, to
nearest. Tensor cores also keep products exact, but truncate when they align and sum them, in an
unpublished order (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores",
PeerJ Computer Science 7, 2021). So the last bits differ from the hardware's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]
Mask = NDArray[np.bool_]
Table = NDArray[np.int64]

ROWS, COLUMNS = 16, 8
"""Of the accumulator, in most shapes."""

_LANE = np.arange(32)
_GROUP, _MEMBER = _LANE // 4, _LANE % 4
_TF32_BITS = np.uint32(0xFFFF_E000)  # sign, 8 bits of exponent, 10 of fraction; the rest is ignored


def _tf32(words: Lanes) -> Lanes:
    return (words & _TF32_BITS).view(np.float32)


def _fp16(words: Lanes) -> Lanes:
    return words.view(np.float16)


def _bf16(words: Lanes) -> Lanes:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _fp32(words: Lanes) -> Lanes:
    return words.view(np.float32)


_ELEMENTS: dict[str, tuple[int, Callable[[Lanes], Lanes]]] = {
    "s8": (4, lambda words: words.view(np.int8)),
    "u8": (4, lambda words: words.view(np.uint8)),
    "s32": (1, lambda words: words.view(np.int32)),
    "f64": (1, lambda words: words.view(np.float64)),
    "tf32": (1, _tf32),
    "f16": (2, _fp16),
    "bf16": (2, _bf16),
    "f32": (1, _fp32),
}
"""Elements in a register (of 64 bits for `f64`, else of 32), and how to see them."""

_RESULTS = {"f32": np.float32, "f16": np.float16, "f64": np.float64}


def mma_sync(
    depth: int,
    element: str | tuple[str, str],
    accumulator: str,
    clamp: bool = False,
    rows: int = 16,
) -> Callable[..., Any]:
    """`mma.sync.m<rows>n8k<depth>`: D (rows x 8) = A (rows x depth) B (depth x 8) + C (rows x 8).

    Args:
        depth: The extent along k.
        element: PTX's type of A and B: `tf32`, `f16`, `bf16`, `s8`, `u8` or `f64`; both where they
            differ.
        accumulator: PTX's type of C and D: `f32`, `f16`, `s32` or `f64`.
        clamp: Whether integers end at the range's ends (`.satfinite`) in place of wrapping.
        rows: 16 or 8.

    Returns:
        `run(active, a, b, c)`: from each lane's registers of A, B and C, packed into one value a
        lane, shape (warps, 32), to its registers of D, as 32-bit words but for `f64`.
    """
    left_type, right_type = (element, element) if isinstance(element, str) else element
    packed = _ELEMENTS[left_type][0]
    a_table, b_table = _a_table(depth, packed, rows), _b_table(depth, packed)
    c_table = _c_table(rows)
    word = np.float64 if accumulator == "f64" else np.uint32

    def run(active: Mask, a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, ...]:
        left, right = (
            _assemble_matrix(a, left_type, a_table),
            _assemble_matrix(b, right_type, b_table),
        )
        total = rounded_sum(
            left, right, _assemble_matrix(c, accumulator, c_table), accumulator, clamp
        )
        fragments = np.empty((len(total), c_table.size), total.dtype)
        fragments[:, c_table] = total
        words = fragments.reshape(-1, 32, c_table.size // 32).view(word)
        return tuple(words[:, :, register] for register in range(words.shape[2]))

    return run


def rounded_sum(left: Lanes, right: Lanes, added: Lanes, ptx_type: str, clamp: bool) -> Lanes:
    """A B + C of float64 matrices, in the PTX type of the result; integers wrap or saturate.

    Sums of products of bytes are exact in float64.
    """
    total = np.asarray(left @ right + added)
    if ptx_type != "s32":
        return total.astype(_RESULTS[ptx_type])
    if clamp:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return total.astype(np.int64).astype(np.int32)


def distribute_rows(count: int, transposed: bool) -> Callable[..., Any]:
    """`ldmatrix.m8n8.x<count>` after its loads: distributes rows of 16 bytes to the lanes.

    Lane 8 i + r has row r of matrix i. Lane 4 r + j gets elements 2 j and 2 j + 1 of row r of every
    matrix; of a transposed one, elements r of rows 2 j and 2 j + 1.
    """

    def run(active: Mask, row: Lanes) -> Any:
        matrices = np.ascontiguousarray(row).view(np.uint16).reshape(-1, 4, 8, 8)
        if transposed:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        words = matrices.view(np.uint32).reshape(-1, 4, 32)
        return words[:, 0] if count == 1 else tuple(words[:, number] for number in range(count))

    return run


def transpose_fragment(active: Mask, fragment: Lanes) -> Lanes:
    """`movmatrix.m8n8.trans`: transposes a matrix whose rows are held by four lanes each."""
    halves = np.ascontiguousarray(fragment).view(np.uint16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(halves.swapaxes(1, 2))
    return turned.reshape(-1, 64).view(np.uint32)


def _a_table(depth: int, packed: int, rows: int) -> Table:
    """The position of element (row, k) of A among all lanes' elements, shape (rows, depth)."""
    table = np.empty((rows, depth), np.int64)
    blocks = rows // 8
    registers = depth // (4 * packed) * blocks
    for register in range(registers):
        for part in range(packed):
            row = _GROUP + 8 * (register % blocks)
            k = register // blocks * 4 * packed + packed * _MEMBER + part
            table[row, k] = (_LANE * registers + register) * packed + part
    return table


def _b_table(depth: int, packed: int) -> Table:
    """The position of element (k, column) of B among all lanes' elements, shape (depth, 8)."""
    table = np.empty((depth, COLUMNS), np.int64)
    registers = depth // (4 * packed)
    for register in range(registers):
        for part in range(packed):
            k = register * 4 * packed + packed * _MEMBER + part
            table[k, _GROUP] = (_LANE * registers + register) * packed + part
    return table


def _c_table(rows: int) -> Table:
    """The same of C and D, shape (rows, 8): two neighbours in a row, then two 8 rows below."""
    table = np.empty((rows, COLUMNS), np.int64)
    held = rows // 4
    for number in range(held):
        table[_GROUP + 8 * (number // 2), 2 * _MEMBER + number % 2] = held * _LANE + number
    return table


def _assemble_matrix(fragments: Lanes, element: str, table: Table) -> NDArray[np.float64]:
    """The matrices of which the lanes hold fragments, shape (warps, rows, columns)."""
    return fragment_elements(np.ascontiguousarray(fragments), element)[:, table]


def fragment_elements(registers: Lanes, element: str) -> NDArray[np.float64]:
    """The elements of a fragment of all lanes, lane after lane, shape (warps, elements)."""
    words = registers.view(np.uint64 if element == "f64" else np.uint32)
    return _ELEMENTS[element][1](words.reshape(len(registers), -1)).astype(np.float64)


def gather_rows(transposed: bool) -> Callable[..., Any]:
    """`stmatrix.m8n8` before its stores: gathers rows of 16 bytes from the lanes that hold them.

    The inverse of `distribute_rows`, for four matrices.
    """

    def run(active: Mask, *registers: Lanes) -> Any:
        words = np.ascontiguousarray(np.stack(registers, axis=1))  # (warps, matrix, lane)
        matrices = words.view(np.uint16).reshape(-1, 4, 8, 8)
        if transposed:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        rows = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, 32, 4)
        return tuple(rows[:, :, number] for number in range(4))

    return run
