"""Matrices of a warp: the products of the tensor cores, and moves of rows between lanes.

A *fragment* is a lane's part of a matrix: registers with one 32-bit element, two 16-bit or four
8-bit elements each (PTX ISA, "Matrix Fragments for mma.m16n8k8" and the following sections). All
shapes follow one scheme: a register of all lanes holds a block of the matrix, row after row.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memlab.device.emulator.isa import packed_bytes
from memlab.device.emulator.isa.matrices.aligned_sums import (
    OLDER_BYTES,
    OLDER_PLACES,
    PLACES,
    PLACES_OF_BYTES,
)
from memlab.device.emulator.isa.values import (
    U8,
    U16,
    U32,
    ElementType,
    Value,
    element_type,
    shuffled,
)

INTEGERS = ("b1", "s4", "u4", "s8", "u8", "s32")
"""PTX's integer types of the elements of matrices."""
_SMALL = {"b1": U32, "s4": ElementType("i", 4), "u4": ElementType("u", 4), "tf32": U32}


def stored_as(element: str) -> ElementType:
    """How the elements of a matrix lie in a register, by their PTX type.

    Of single bits (`b1`), the 32 in a register count as one element here.
    """
    if element in packed_bytes.NUMBERS:
        return U8
    return _SMALL[element] if element in _SMALL else element_type(element)


@dataclass(frozen=True)
class Sparsity:
    """Where the elements of A lie that are stored: half of those of each chunk of a row.

    A row of the metadata has an index in its chunk for each stored element, or for each pair of 4
    bits. Threads of each group of four hold two rows of A that are 8 apart (PTX ISA, "Matrix
    Fragments for sparse mma"): words of 16 bits of both in one register, or words of 32 bits in two
    threads. The sparsity selector tells which of the threads these are, where not all hold some.

    Attributes:
        chunk: Elements of a chunk: one of 2, two of 4, or two pairs of 8.
        index_bits: Bits of an index.
        word_bits: Bits of a row that a thread holds at once.
        words: How many of these a row has.
    """

    chunk: int
    index_bits: int
    word_bits: int
    words: int

    @property
    def elements(self) -> int:
        """Neighbouring elements that one index places."""
        return 2 if self.chunk == 8 else 1

    @property
    def threads(self) -> int:
        """Threads of a group of four that hold the metadata."""
        return self.words * (2 if self.word_bits == 32 else 1)


@dataclass(frozen=True)
class Matrix:
    """A matrix distributed over the registers of a warp.

    Attributes:
        element: PTX's type of its elements.
        rows: Rows in memory.
        columns: Elements per row, which are contiguous in memory.
        step: Contiguous elements that a lane holds.
        lanes: How many lanes share one row.
        crossed: Whether a row in memory is a column of the matrix (`col`).
        surplus: Registers per lane behind the others, which hold copies.
    """

    element: str
    rows: int
    columns: int
    step: int
    lanes: int = 4
    crossed: bool = False
    surplus: int = 0

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First row and column in memory of what all lanes hold at once, by registers."""
        return [
            (row, column)
            for column in range(0, self.columns, self.step * self.lanes)
            for row in range(0, self.rows, 32 // self.lanes)
        ]

    @property
    def stored_as(self) -> ElementType:
        """How the elements lie in a register."""
        return stored_as(self.element)

    @property
    def extents(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        return (self.columns, self.rows) if self.crossed else (self.rows, self.columns)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        rows, columns = 32 // self.lanes, self.step * self.lanes
        return (columns, rows) if self.crossed else (rows, columns)

    @property
    def block_registers(self) -> int:
        """Registers per lane that hold a block; their elements alternate in a row."""
        bits = self.stored_as.bits
        return self.step * bits // max(bits, 32)

    @property
    def registers(self) -> int:
        """Registers per lane."""
        return len(self.blocks) * self.block_registers + self.surplus

    def position(self, row: int, column: int) -> int:
        """The place of an element in the blocks, one behind another, each row by row."""
        (rows, columns), (of_rows, of_columns) = self.block, self.extents
        down, across = row // rows, column // columns
        if self.crossed:
            number = down * (of_columns // columns) + across
        else:
            number = across * (of_rows // rows) + down
        return (number * rows + row % rows) * columns + column % columns


@dataclass(frozen=True)
class MatrixProduct:
    """An instruction that computes D = A B + C.

    Attributes:
        opcode: As NVIDIA spells it, without `.aligned`.
        left: A.
        right: B.
        added: C.
        result: D.
        clamp: Whether integers end at the range's ends (`.satfinite`) in place of wrapping.
        combine: For single bits, the operation in place of the product: `xor` or `and`.
        sparsity: Which elements of A are stored; None for all. The metadata and the selector of its
            threads are two further sources.
        places: Of sums of narrow floats, the binary places that are kept below the largest exponent
            of their terms; see `aligned_sums`.
        summed: The most stored elements of a row of A whose products are added up at once; 0 where
            that are all.
    """

    opcode: str
    left: Matrix
    right: Matrix
    added: Matrix
    result: Matrix
    clamp: bool = False
    combine: str = ""
    sparsity: Sparsity | None = None
    places: int = PLACES
    summed: int = 0

    @property
    def is_aligned(self) -> bool:
        """Whether the terms of its sums are aligned and cut, as those of all narrow floats."""
        return self.result.element in ("f32", "f16")

    @property
    def is_converted(self) -> bool:
        """Whether the compiler makes it of products of float16, as `mma` of 8-bit floats."""
        return self.left.element in packed_bytes.NUMBERS and self.places == PLACES

    @property
    def summed_as(self) -> str:
        """PTX's type that aligned sums are rounded to, before that of D."""
        return "f16" if self.added.element == self.result.element == "f16" else "f32"

    @property
    def passes(self) -> tuple[tuple[int, ...], ...]:
        """The stored elements of a row of A by the sums that they are added in, one after another.

        A product that is converted has two: the lower and the upper halves of each register.
        """
        depth = range(self.left.extents[1])
        if not self.is_converted:
            count = self.summed or len(depth)
            return tuple(tuple(depth[first : first + count]) for first in depth[::count])
        return tuple(tuple(k for k in depth if k % 4 // 2 == half) for half in (0, 1))

    @property
    def flop(self) -> int:
        """Operations per warp; an FMA counts as two. Those of integers do not count.

        Of a sparse A, the elements that are stored count.
        """
        (m, k), n = self.left.extents, self.right.extents[1]
        return 0 if self.result.element == "s32" else 2 * m * n * k

    @property
    def source_registers(self) -> int:
        """Registers per lane of A, B and C, and of what tells where the elements of A lie."""
        matrices = sum(matrix.registers for matrix in (self.left, self.right, self.added))
        return matrices + (0 if self.sparsity is None else 2)

    @property
    def word(self) -> str:
        """PTX's type of the registers."""
        return "f64" if self.result.element == "f64" else "b32"


OLDER_SUMS = ".before_sm_90"
"""Follows the opcode of a product that is summed as before Hopper."""
HOPPER = (9, 0)
"""Its compute capability."""


def with_older_sums(product: MatrixProduct) -> MatrixProduct:
    """A product of narrow floats, summed as Turing, Ampere and Ada do (see `aligned_sums`)."""
    element = product.left.element
    return replace(
        product,
        opcode=f"{product.opcode}{OLDER_SUMS}",
        places=PLACES_OF_BYTES if element in packed_bytes.NUMBERS else OLDER_PLACES,
        summed=OLDER_BYTES * 8 // stored_as(element).bits,
    )


def mma_products() -> Iterator[MatrixProduct]:
    """All `mma.sync`, as Hopper sums them."""
    for number, depths, sums in (
        ("tf32", (4, 8), ("f32",)),
        ("f16", (8, 16), ("f32", "f16")),
        ("bf16", (8, 16), ("f32",)),
    ):
        for depth, total in itertools.product(depths, sums):
            yield _mma(16, depth, number, number, total)
    for of_a, of_b, (rows, depth), end in itertools.product(
        ("s8", "u8"), ("s8", "u8"), ((8, 16), (16, 16), (16, 32)), ("", ".satfinite")
    ):
        yield _mma(rows, depth, of_a, of_b, "s32", end)
    for of_a, of_b, depth, total in itertools.product(
        packed_bytes.NUMBERS, packed_bytes.NUMBERS, (16, 32), ("f32", "f16")
    ):
        yield _mma(16, depth, of_a, of_b, total)
    for of_a, of_b, (rows, depth), end in itertools.product(
        ("s4", "u4"), ("s4", "u4"), ((8, 32), (16, 32), (16, 64)), ("", ".satfinite")
    ):
        yield _mma(rows, depth, of_a, of_b, "s32", end)
    for (rows, depth), combine in itertools.product(
        ((8, 128), (16, 128), (16, 256)), ("xor", "and")
    ):
        yield _mma(rows, depth, "b1", "b1", "s32", combine=combine)
    for rows, depth in ((8, 4), (16, 4), (16, 8), (16, 16)):
        yield _mma(rows, depth, "f64", "f64", "f64")
    for ordered in ("", "::ordered_metadata"):
        yield from _sparse_products(ordered)


def _sparse_products(ordered: str) -> Iterator[MatrixProduct]:
    """All `mma.sp.sync`; those with ordered metadata compute the same."""
    for factors, depth, sums, (chunk, index_bits, word_bits) in (
        (("tf32",), 8, ("f32",), (2, 4, 16)),
        (("f16",), 16, ("f32", "f16"), (4, 2, 16)),
        (("bf16",), 16, ("f32",), (4, 2, 16)),
        (("s8", "u8"), 32, ("s32",), (4, 2, 32)),
        (("s4", "u4"), 64, ("s32",), (8, 2, 32)),
        (packed_bytes.NUMBERS, 32, ("f32", "f16"), (4, 2, 32)),
    ):
        eights = factors == packed_bytes.NUMBERS
        for of_a, of_b, total, words, end in itertools.product(
            factors, factors, sums, (2,) if eights else (1, 2), ("", ".satfinite")
        ):
            if not end or total == "s32":
                sparsity = Sparsity(chunk, index_bits, word_bits, words)
                dense = _mma(16, words * depth, of_a, of_b, total, end)
                left = replace(dense.left, columns=dense.left.columns // 2)
                opcode = dense.opcode.replace("mma.sync", f"mma.sp{ordered}.sync")
                yield replace(dense, opcode=opcode, left=left, sparsity=sparsity)


def _mma(
    rows: int, depth: int, of_a: str, of_b: str, total: str, end: str = "", combine: str = ""
) -> MatrixProduct:
    step_a, step_b = (max(32 // stored_as(element).bits, 1) for element in (of_a, of_b))
    result, columns = Matrix(total, rows, 8, step=2), depth // (32 if of_a == "b1" else 1)
    last = f".{combine}.popc" if combine else ""
    return MatrixProduct(
        f"mma.sync.m{rows}n8k{depth}.row.col{end}.{total}.{of_a}.{of_b}.{total}{last}",
        Matrix(of_a, rows, columns, step_a),
        Matrix(of_b, 8, columns, step_b, crossed=True),
        result,
        result,
        bool(end),
        combine,
    )


# --- Rows of 16 bytes ------------------------------------------------------------------------

_TRANSPOSED = [8 * row + column for column in range(8) for row in range(8)]


def distribute_rows(count: str, trans: str, active: Value, *words: Value) -> tuple[Value, ...]:
    """`ldmatrix.m8n8.x<count>` after its loads: distributes rows of 16 bytes to the lanes.

    Lane 8 i + r has row r of matrix i, in four registers. Lane 4 r + j gets elements 2 j and
    2 j + 1 of row r of every matrix; of a transposed one, elements r of rows 2 j and 2 j + 1.
    """
    rows = concatenated(words)
    matrices = (
        shuffled(rows, (32 * word + 8 * number + row for row in range(8) for word in range(4)))
        for number in range(int(count))
    )
    return tuple(_transposed(matrix) if trans else matrix for matrix in matrices)


def gather_rows(trans: str, active: Value, *matrices: Value) -> tuple[Value, ...]:
    """`stmatrix.m8n8` before its stores: gathers rows of 16 bytes from the lanes that hold them.

    The inverse of `distribute_rows`, for four matrices.
    """
    rows = concatenated([_transposed(m) if trans else m for m in matrices])
    return tuple(shuffled(rows, range(word, 128, 4)) for word in range(4))


def transpose_fragment(active: Value, fragment: Value) -> Value:
    """`movmatrix.m8n8.trans`: transposes a matrix whose rows are held by four lanes each."""
    return _transposed(fragment)


def _transposed(matrix: Value) -> Value:
    """A matrix of 8 rows of 16 bytes, its rows held by four lanes each, transposed."""
    return shuffled(matrix.bits(U16), _TRANSPOSED).bits(matrix.type)


def concatenated(words: Sequence[Value]) -> Value:
    """The lanes of some vectors one behind another; their number is a power of two."""
    if len(words) == 1:
        return words[0]
    half = len(words) // 2
    first, second = concatenated(words[:half]), concatenated(words[half:])
    return shuffled(first, range(2 * first.lanes), second)
