"""What a warp's tensor cores compute, and how matrices lie spread over its lanes.

A *fragment* is a lane's part of a matrix: some registers of one 32-bit element, or of two 16-bit
ones (PTX ISA, "Matrix Fragments for mma.m16n8k8" and its neighbours). All shapes of m16n8 follow
one scheme: a group of four lanes has a row of A (and one 8 below it) or a column of B, and goes
along k four registers at a time.

Arithmetic: products are exact and are summed in float64 together with the accumulator, then
rounded once, to nearest. Tensor cores also keep products exact, but truncate where they align and
sum them, and their order is not published (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of
NVIDIA tensor cores", PeerJ Computer Science 7, 2021): last bits differ from hardware's.
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
"""Of the accumulator, in every shape that is known here."""

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
    "tf32": (1, _tf32),
    "f16": (2, _fp16),
    "bf16": (2, _bf16),
    "f32": (1, _fp32),
}
"""Elements in a 32-bit register, and how to see them."""


def multiply_add(depth: int, element: str, accumulator: str) -> Callable[..., Any]:
    """`mma.sync.m16n8k<depth>`: D (16 x 8) = A (16 x depth) B (depth x 8) + C (16 x 8).

    Args:
        depth: The extent along k.
        element: PTX's type of A and B: `tf32`, `f16` or `bf16`.
        accumulator: PTX's type of C and D: `f32` or `f16`.

    Returns:
        `run(active, a, b, c)`: from each lane's registers of A, B and C, packed into one value a
        lane, shape (warps, 32), to its registers of D as 32-bit words.
    """
    packed = _ELEMENTS[element][0]
    a_table, b_table = _a_table(depth, packed), _b_table(depth, packed)
    c_table = _c_table()
    dtype = np.dtype(np.float32 if accumulator == "f32" else np.float16)

    def run(active: Mask, a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, ...]:
        left, right = _matrix(a, element, a_table), _matrix(b, element, b_table)
        total = (left @ right + _matrix(c, accumulator, c_table)).astype(dtype)
        fragments = np.empty((len(total), 32 * 4), dtype)
        fragments[:, c_table] = total
        words = fragments.reshape(-1, 32, 4).view(np.uint32)
        return tuple(words[:, :, register] for register in range(words.shape[2]))

    return run


def loaded_matrices(count: int, transposed: bool) -> Callable[..., Any]:
    """`ldmatrix.m8n8.x<count>` behind its loads: hands rows of 16 bytes to the lanes they go to.

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


def _a_table(depth: int, packed: int) -> Table:
    """Where element (row, k) of A lies among all lanes' elements, shape (16, depth)."""
    table = np.empty((ROWS, depth), np.int64)
    registers = depth // (4 * packed) * 2
    for register in range(registers):
        for part in range(packed):
            row = _GROUP + 8 * (register % 2)
            k = register // 2 * 4 * packed + packed * _MEMBER + part
            table[row, k] = (_LANE * registers + register) * packed + part
    return table


def _b_table(depth: int, packed: int) -> Table:
    """The same of B, shape (depth, 8)."""
    table = np.empty((depth, COLUMNS), np.int64)
    registers = depth // (4 * packed)
    for register in range(registers):
        for part in range(packed):
            k = register * 4 * packed + packed * _MEMBER + part
            table[k, _GROUP] = (_LANE * registers + register) * packed + part
    return table


def _c_table() -> Table:
    """The same of C and D, shape (16, 8): two neighbours in a row, then two 8 rows below."""
    table = np.empty((ROWS, COLUMNS), np.int64)
    for number in range(4):
        table[_GROUP + 8 * (number // 2), 2 * _MEMBER + number % 2] = 4 * _LANE + number
    return table


def _matrix(fragments: Lanes, element: str, table: Table) -> NDArray[np.float64]:
    """Put the lanes' fragments together, shape (warps, rows, columns)."""
    words = np.ascontiguousarray(fragments).view(np.uint32).reshape(len(fragments), -1)
    return _ELEMENTS[element][1](words)[:, table].astype(np.float64)
