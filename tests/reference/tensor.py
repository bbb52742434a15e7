"""Matrix products of a warp, and the distribution of matrices over its lanes, in NumPy.

Every register of a warp is an array of shape (warps, 32). Products of float64 are summed in the
order of k. Narrower ones are aligned to the largest exponent of a sum and its addend, and cut.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tests.reference.arithmetic import fma_f64

DATA = Path(__file__).parents[1] / "data"

Lanes = NDArray[Any]
Mask = NDArray[np.bool_]
Table = NDArray[np.int64]

COLUMNS = 8
"""Of the accumulator of `mma`."""

_LANE = np.arange(32)
_GROUP, _MEMBER = _LANE // 4, _LANE % 4
_TF32_BITS = np.uint32(0xFFFF_E000)  # sign, 8 bits of exponent, 10 of fraction; the rest is ignored


def _tf32(words: Lanes) -> Lanes:
    return (words & _TF32_BITS).view(np.float32)


def _bf16(words: Lanes) -> Lanes:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def _fourths(words: Lanes) -> Lanes:
    """The eight numbers of 4 bits in each word, the lowest first."""
    parts = words[..., None] >> np.arange(0, 32, 4, np.uint32) & np.uint32(15)
    return parts.reshape(len(words), -1).astype(np.int64)


def _bits(words: Lanes) -> Lanes:
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")


_ELEMENTS: dict[str, tuple[int, Callable[[Lanes], Lanes]]] = {
    "b1": (32, _bits),
    "s4": (8, lambda words: (_fourths(words) + 8) % 16 - 8),
    "u4": (8, _fourths),
    "s8": (4, lambda words: words.view(np.int8)),
    "u8": (4, lambda words: words.view(np.uint8)),
    "s32": (1, lambda words: words.view(np.int32)),
    "f64": (1, lambda words: words.view(np.float64)),
    "tf32": (1, _tf32),
    "f16": (2, lambda words: words.view(np.float16)),
    "bf16": (2, _bf16),
    "e4m3": (4, lambda words: words.view(ml_dtypes.float8_e4m3fn)),
    "e5m2": (4, lambda words: words.view(ml_dtypes.float8_e5m2)),
    "f32": (1, lambda words: words.view(np.float32)),
}
"""Elements in a register (of 64 bits for `f64`, else of 32), and how to see them."""

_RESULTS = {"f32": np.float32, "f16": np.float16, "f64": np.float64}


# --- mma -------------------------------------------------------------------------------------


def mma(opcode: str) -> Callable[..., Any]:
    """`mma.sync.m<rows>n8k<depth>`: D (rows x 8) = A (rows x depth) B (depth x 8) + C (rows x 8).

    Of a sparse A, `mma.sp`, half of the elements of each row are stored; its metadata and the
    selector of the threads that hold it are the last two registers. Single bits are combined by
    `and` or `xor` in place of the product.

    Args:
        opcode: As NVIDIA spells it, without `.aligned`.

    Returns:
        `run(active, *registers)`: from the registers of A, B and C to those of D.
    """
    opcode, older, _ = opcode.partition(".before_sm_90")
    match = re.fullmatch(
        r"mma(\.sp(?:::ordered_metadata)?)?\.sync\.m(\d+)n8k(\d+)\.row\.col(\.satfinite)?"
        r"\.(\w+)\.(\w+)\.(\w+)\.\w+(?:\.(xor|and)\.popc)?",
        opcode,
    )
    assert match, opcode
    sparse, rows, depth, clamp = bool(match[1]), int(match[2]), int(match[3]), bool(match[4])
    accumulator, left_type, right_type, combine = match[5], match[6], match[7], match[8]
    converted = left_type in ("e4m3", "e5m2") and not older
    packed = _ELEMENTS[left_type][0]
    tables = (_a_table(depth >> sparse, packed, rows), _b_table(depth, packed), _c_table(rows))
    types = (left_type, right_type, accumulator)
    parts = list(zip(types, tables, strict=True))
    counts = [table.size // 32 // _ELEMENTS[kind][0] for kind, table in parts]
    starts = [0, counts[0], counts[0] + counts[1]]

    def run(active: Mask, *registers: Lanes) -> tuple[Lanes, ...]:
        left, right, added = (
            fragment_elements(registers[start : start + count], kind)[:, table]
            for start, count, (kind, table) in zip(starts, counts, parts, strict=True)
        )
        if combine == "xor":
            left, added = _exclusive(left, right, added)
        if sparse:
            places = stored_places(left_type, depth, registers[-2], int(registers[-1][0, 0]))
            batch, stored = np.arange(len(left))[:, None], np.arange(depth // 2)
            # One product for each row of A, whose own rows of B it takes.
            products = [
                total_of(
                    left[:, [row]],
                    right[batch, places[:, row, stored]],
                    added[:, [row]],
                )
                for row in range(rows)
            ]
            return _registers(np.concatenate(products, axis=1), tables[2])
        return _registers(total_of(left, right, added), tables[2])

    def total_of(left: Lanes, right: Lanes, added: Lanes) -> Lanes:
        if accumulator in ("s32", "f64"):
            return rounded_sum(left, right, added, accumulator, clamp)
        if older:
            return older_sum(left, right, added, types)
        if not converted:
            return aligned_sum(left, right, added, types)
        # The compiler makes two products of float16, of the halves of each register, and adds C.
        total = np.zeros(added.shape, _RESULTS[accumulator])
        for half in (0, 1):
            some = np.arange(left.shape[2]) % 4 // 2 == half
            halves = left[:, :, some], right[:, some], total.astype(np.float64)
            total = aligned_sum(*halves, ("f16", "f16", accumulator))
        return total + added.astype(total.dtype)

    return run


def _exclusive(left: Lanes, right: Lanes, added: Lanes) -> tuple[Lanes, Lanes]:
    """A and C with which products give the bits that differ: of two bits, a + b - 2 a b."""
    ones = left.sum(axis=2)[:, :, None] + right.sum(axis=1)[:, None, :]
    return -2 * left, added + ones


def stored_places(element: str, depth: int, metadata: Lanes, selector: int) -> Table:
    """The column of each element of a sparse A that is stored, shape (warps, 16, depth / 2).

    A row's metadata is a number of so many bits, an index for each element, or each pair of 4 bits,
    in its chunk. Of elements of 16 bits or more, a thread has 16 bits of a row and, above them, 16
    of the row 8 below; of narrower ones 32 bits of one row, and the next thread those of the other.
    """
    wide = element in ("tf32", "f16", "bf16")
    bits = {"tf32": 2 * depth, "s4": depth // 2, "u4": depth // 2}.get(element, depth)
    places = np.empty((len(metadata), 16, depth // 2), np.int64)
    for row in range(16):
        group, lower = 4 * (row % 8), row // 8
        whole = np.zeros(len(metadata), np.uint64)
        for start in range(0, bits, 16 if wide else 32):
            if wide:
                thread = group + selector * (bits // 16) + start // 16
                word = metadata[:, thread] >> np.uint32(16 * lower) & np.uint32(0xFFFF)
            else:
                thread = group + (2 * selector if bits == 32 else 0) + lower + start // 16
                word = metadata[:, thread]
            whole |= word.astype(np.uint64) << np.uint64(start)
        for number in range(depth // 2):
            step, pairs = 4 if element == "tf32" else 2, element in ("s4", "u4")
            index = number // 2 if pairs else number
            held = (whole >> np.uint64(step * index) & np.uint64(3)).astype(np.int64)
            if element == "tf32":
                places[:, row, number] = 2 * number + held // 2
            elif pairs:
                places[:, row, number] = number // 4 * 8 + 2 * held + number % 2
            else:
                places[:, row, number] = number // 2 * 4 + held
    return places


_LEAST_EXPONENTS = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}
"""Of normal numbers."""


def _exponents(values: Lanes, element: str) -> Lanes:
    """The exponents of float64, as in a narrower type; of zeros, one below all others."""
    exponents = np.frexp(values)[1] - 1
    return np.where(values == 0, -10000, np.maximum(exponents, _LEAST_EXPONENTS[element]))


def products_of_an_h100(instruction: str) -> dict[str, dict[str, Lanes]]:
    """Matrices `a`, `b`, `c` and `d` as bits, by product; see `tests/data/README.md`."""
    products: dict[str, dict[str, Lanes]] = {}
    with np.load(DATA / "h100-products.npz") as arrays:
        for key in arrays:
            product, matrix = key.split()
            if product.startswith(f"{instruction}."):
                products.setdefault(product, {})[matrix] = arrays[key]
    return products


def aligned_sum(
    left: Lanes, right: Lanes, added: Lanes, types: tuple[str, str, str], places: int = 25
) -> Lanes:
    """A B + C of float64 matrices as Hopper's tensor cores sum it, in the type of the result.

    Args:
        left: A, shape (products, rows, depth).
        right: B, shape (products, depth, columns).
        added: C, shape (products, rows, columns).
        types: PTX's types of A, of B, and of C and the sum.
        places: Binary places that are kept below the largest exponent.
    """
    of_a, of_b, result = types
    exponents = _exponents(left, of_a)[..., None] + _exponents(right, of_b)[:, None]
    of_c = _exponents(added, result)
    largest = np.maximum(np.maximum(exponents.max(axis=2), of_c), -1000)
    terms = np.concatenate([left[..., None] * right[:, None], added[:, :, None]], axis=2)
    whole = np.trunc(np.ldexp(terms, (places - largest)[:, :, None]))
    total = np.ldexp(whole.sum(axis=2), largest - places)
    if result == "f16":
        return total.astype(np.float16)
    rounded = total.astype(np.float32)
    beyond = (np.abs(rounded.astype(np.float64)) > np.abs(total)) & (np.abs(total) < 2.0**128)
    rounded = np.where(beyond, np.nextafter(rounded, np.float32(0)), rounded)
    if places < 23:
        rounded = (rounded.view(np.uint32) & np.uint32(-1 << 23 - places & 0xFFFFFFFF)).view(
            np.float32
        )
    return rounded


def older_sum(left: Lanes, right: Lanes, added: Lanes, types: tuple[str, str, str]) -> Lanes:
    """As `aligned_sum`, of Turing, Ampere and Ada: 16 bytes of a row of A at once (MMA-Sim)."""
    count = {"tf32": 4, "f16": 8, "bf16": 8, "e4m3": 16, "e5m2": 16}[types[0]]
    places = 13 if count == 16 else 24
    total = added
    for start in range(0, left.shape[2], count):
        some = slice(start, start + count)
        found = aligned_sum(left[:, :, some], right[:, some], total, types, places)
        total = found.astype(np.float64)
    return found


def rounded_sum(left: Lanes, right: Lanes, added: Lanes, ptx_type: str, clamp: bool) -> Lanes:
    """A B + C of float64 matrices, in the PTX type of the result; integers wrap or saturate.

    Products of narrower types are exact in float64, and sums of products of bytes are, too.
    """
    total = np.zeros(added.shape)
    for column, row in zip(np.moveaxis(left, 2, 0), np.moveaxis(right, 1, 0), strict=True):
        factors = np.broadcast_arrays(column[:, :, None], row[:, None, :], total)
        if ptx_type == "f64":
            flat = fma_f64(*(factor.ravel() for factor in factors))
            total = flat.reshape(total.shape)
        else:
            total = total + factors[0] * factors[1]
    total = total + added
    if ptx_type != "s32":
        return total.astype(_RESULTS[ptx_type])
    if clamp:
        total = np.clip(total, -(2.0**31), 2.0**31 - 1)
    return total.astype(np.int64).astype(np.int32)


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


def fragment_elements(registers: Sequence[Lanes], element: str) -> NDArray[np.float64]:
    """The elements of a fragment of all lanes, lane after lane, shape (warps, elements)."""
    words = np.ascontiguousarray(np.stack(registers, axis=2))
    return _ELEMENTS[element][1](words.reshape(len(words), -1)).astype(np.float64)


def mma_registers(a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, ...]:
    """The registers of A (warps, 16, depth), B (warps, depth, 8) and C (warps, 16, 8), as bits."""
    packed, depth = 4 // a.itemsize, a.shape[2]
    tables = _a_table(depth, packed, 16), _b_table(depth, packed), _c_table(16)
    parts = zip((a, b, c), tables, strict=True)
    return tuple(register for matrix, table in parts for register in _registers(matrix, table))


def mma_result(registers: Sequence[Lanes], dtype: Any) -> Lanes:
    """D from its registers, shape (warps, 16, 8)."""
    words = np.ascontiguousarray(np.stack(registers, axis=2))
    return words.reshape(len(words), -1).view(dtype)[:, _c_table(16)]


def _registers(total: Lanes, table: Table) -> tuple[Lanes, ...]:
    """The registers that hold matrices, whose elements a table places."""
    fragments = np.empty((len(total), table.size), total.dtype)
    fragments[:, table] = total
    words: Any = fragments if total.dtype == np.float64 else fragments.view(np.uint32)
    words = words.reshape(len(total), 32, -1)
    return tuple(words[:, :, number] for number in range(words.shape[2]))


# --- wmma ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WmmaLayout:
    """The distribution of a matrix in memory over the lanes of a warp, which PTX leaves open.

    Attributes:
        rows: Rows in memory.
        columns: Elements per row, which are contiguous in memory.
        step: Contiguous elements that a lane holds.
        lanes: How many lanes share one row.
    """

    rows: int
    columns: int
    step: int
    lanes: int

    def table(self) -> Table:
        """The position of element (row, column) among all lanes', shape (rows, columns)."""
        width = self.step * self.lanes
        places = itertools.product(
            range(0, self.columns, width), range(0, self.rows, 32 // self.lanes)
        )
        count = self.rows * self.columns // (32 * self.step)
        table = np.empty((self.rows, self.columns), np.int64)
        for number, (column, row) in enumerate(places):
            for part in range(self.step):
                at = row + _LANE // self.lanes, column + _LANE % self.lanes * self.step + part
                table[at] = (_LANE * count + number) * self.step + part
        return table


def _factor_table(rows: int, columns: int, way: str, element: str) -> Table:
    """The positions of the elements of A or B, shape (rows, columns)."""
    if way == "col":
        rows, columns = columns, rows
    step = _ELEMENTS[element][0]
    words = columns // step
    lanes = next(count for count in (4, 2, 8) if words % count == 0 and rows % (32 // count) == 0)
    table = _WmmaLayout(rows, columns, step, lanes).table()
    return table if way == "row" else table.T


def wmma(opcode: str) -> Callable[..., Any]:
    """`wmma.mma`: from the registers of A, B and C to those of D.

    Fragments of `f16` have eight registers, of which the last may be copies.

    Args:
        opcode: As NVIDIA spells it, without `.aligned`.
    """
    opcode, older, _ = opcode.partition(".before_sm_90")
    match = re.fullmatch(
        r"wmma\.mma(?:\.(xor|and)\.popc)?\.sync"
        r"\.(row|col)\.(row|col)\.m(\d+)n(\d+)k(\d+)\.([\w.]+)",
        opcode,
    )
    assert match, opcode
    m, n, k = (int(extent) for extent in match.group(4, 5, 6))
    words = match[7].split(".")
    clamp = words[-1] == "satfinite"
    types = words[: len(words) - (words[-1] in ("satfinite", "rn"))]
    result, accumulator, element = types[0], types[-1], types[1] if len(types) == 4 else "f16"
    tables = (_factor_table(m, k, match[2], element), _factor_table(k, n, match[3], element))
    used = [table.size // 32 // _ELEMENTS[element][0] for table in tables]
    given = [8, 8] if element == "f16" else used
    pairs = _WmmaLayout(m, n, 2, 4).table()

    def run(active: Mask, *registers: Lanes) -> tuple[Lanes, ...]:
        left, right = (
            fragment_elements(registers[start : start + count], element)[:, table]
            for start, count, table in zip((0, given[0]), used, tables, strict=True)
        )
        added = fragment_elements(registers[sum(given) :], accumulator)[:, pairs]
        if match[1] == "xor":
            left, added = _exclusive(left, right, added)
        if result in ("s32", "f64"):
            return _registers(rounded_sum(left, right, added, result, clamp), pairs)
        summed = "f16" if result == accumulator == "f16" else "f32"
        sum_of = older_sum if older else aligned_sum
        total = sum_of(left, right, added, (element, element, summed))
        return _registers(total.astype(_RESULTS[result]), pairs)

    return run


# --- Rows of 16 bytes ------------------------------------------------------------------------


def distribute_rows(count: int, transposed: bool) -> Callable[..., Any]:
    """`ldmatrix.m8n8.x<count>` after its loads: distributes rows of 16 bytes to the lanes.

    Lane 8 i + r has row r of matrix i, as four words. Lane 4 r + j gets elements 2 j and 2 j + 1 of
    row r of every matrix; of a transposed one, elements r of rows 2 j and 2 j + 1.
    """

    def run(active: Mask, *row: Lanes) -> tuple[Lanes, ...]:
        rows = np.ascontiguousarray(np.stack(row, axis=2))
        matrices = rows.view(np.uint16).reshape(-1, 4, 8, 8)
        if transposed:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        words = matrices.view(np.uint32).reshape(-1, 4, 32)
        return tuple(words[:, number] for number in range(count))

    return run


def transpose_fragment(active: Mask, fragment: Lanes) -> Lanes:
    """`movmatrix.m8n8.trans`: transposes a matrix whose rows are held by four lanes each."""
    halves = np.ascontiguousarray(fragment).view(np.uint16).reshape(-1, 8, 8)
    turned = np.ascontiguousarray(halves.swapaxes(1, 2))
    return turned.reshape(-1, 64).view(np.uint32)


def gather_rows(transposed: bool) -> Callable[..., Any]:
    """`stmatrix.m8n8` before its stores: gathers rows of 16 bytes from the lanes that hold them.

    The inverse of `distribute_rows`, for four matrices.
    """

    def run(active: Mask, *registers: Lanes) -> tuple[Lanes, ...]:
        words = np.ascontiguousarray(np.stack(registers, axis=1))  # (warps, matrix, lane)
        matrices = words.view(np.uint16).reshape(-1, 4, 8, 8)
        if transposed:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        rows = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, 32, 4)
        return tuple(rows[:, :, number] for number in range(4))

    return run
