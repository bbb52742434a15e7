"""The machine code of the tensor cores' products.

Products are exact. Those of narrow floats are summed as the tensor cores of the architecture do:
see `aligned_sums`. On Hopper `mma` of 8-bit floats becomes products of float16 (machine code of
NVRTC 13.5): of the lower, then of the upper halves of the registers, and C is added at the end.
Products of float64 are fused with their addition, in the order of k. Integers are exact in 32 bits
up to the addition of the accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from llvmlite import ir

from memlab.device.emulator.isa import packed_bytes, values
from memlab.device.emulator.isa.integers import popcount
from memlab.device.emulator.isa.matrices.aligned_sums import AlignedSums, exponents_of, with_one_nan
from memlab.device.emulator.isa.rounding import round_value, widened
from memlab.device.emulator.isa.tensor import INTEGERS, Matrix, MatrixProduct, concatenated
from memlab.device.emulator.isa.values import (
    F32,
    F64,
    PRED,
    S16,
    S32,
    U32,
    Value,
    element_type,
    shaped,
    shuffled,
    stack_array,
    where,
)

_TF32_BITS = 0xFFFF_E000  # sign, 8 bits of exponent, 10 of fraction; the rest is ignored
_ALIGNMENT_BYTES = 64
_COLUMNS = 64  # of D whose sums are in vector registers at once
_MOST_UNROLLED = 4  # blocks; more compile too slowly
_I32 = ir.IntType(32)


@dataclass(frozen=True)
class _Array:
    """Numbers of one type in memory."""

    builder: ir.IRBuilder
    address: ir.Value
    element: values.ElementType

    def load(self, at: int | ir.Value, lanes: int) -> Value:
        """Contiguous numbers from an index on, which is a multiple of their count; 0 for one."""
        place, kind = self._place(at), shaped(self.element, lanes)
        loaded = self.builder.load(place, typ=kind, align=self._alignment(lanes))
        return Value(self.builder, loaded, self.element)

    def store(self, at: int | ir.Value, value: Value) -> None:
        """Store contiguous numbers."""
        self.builder.store(value.ir, self._place(at), align=self._alignment(value.lanes))

    def start_at(self, index: ir.Value) -> _Array:
        """The numbers from an index on."""
        return _Array(self.builder, self._place(index), self.element)

    def _place(self, at: int | ir.Value) -> ir.Value:
        index = _I32(at) if isinstance(at, int) else at
        return self.builder.gep(self.address, [index], source_etype=self.element.ir)

    def _alignment(self, lanes: int) -> int:
        return min(self.element.bits // 8 * max(lanes, 1), _ALIGNMENT_BYTES)


@dataclass(frozen=True)
class _Factor:
    """The elements of A or B, exact, and if they are aligned their exponents."""

    numbers: _Array
    exponents: _Array | None = None

    def start_at(self, index: ir.Value) -> _Factor:
        """The elements from an index on."""
        exponents = None if self.exponents is None else self.exponents.start_at(index)
        return _Factor(self.numbers.start_at(index), exponents)


@dataclass(frozen=True)
class _Operands:
    """Where a row of a product begins.

    Attributes:
        left: A.
        right: B.
        added: C.
        total: D.
        depths: The rows of B that the stored elements of A are multiplied with, if it is sparse.
    """

    left: _Factor
    right: _Factor
    added: _Array
    total: _Array
    depths: list[ir.Value] | None


def multiply_matrices(product: MatrixProduct, active: Value, *sources: Value) -> tuple[Value, ...]:
    """From the registers of A, B and C to those of D.

    A module holds the code of a product once. Registers pass by way of the stack.
    """
    b, register = active.builder, sources[0].type
    count = 32 * max(len(sources), product.result.registers)
    memory = values.shared_stack_array(b, product.opcode, register.ir, count)
    registers = _Array(b, memory, register)
    for number, source in enumerate(sources):
        registers.store(32 * number, source)
    write = partial(_write_product, product)
    code = values.internal_function(b, product.opcode, ir.VoidType(), [ir.PointerType()], write)
    b.call(code, [memory])
    return tuple(registers.load(32 * number, 32) for number in range(product.result.registers))


def _write_product(product: MatrixProduct, b: ir.IRBuilder, memory: ir.Value) -> None:
    """The code of a product: from registers in memory to those of the result in their place."""
    registers = _Array(b, memory, F64 if product.word == "f64" else values.U32)
    of_right = product.left.registers
    of_added = of_right + product.right.registers
    exact = S32 if product.result.element == "s32" else F32 if product.is_aligned else F64
    left = _stored(registers, 0, product.left, exact, _exponent_type(product, product.left))
    right = _stored(
        registers, of_right, product.right, exact, _exponent_type(product, product.right)
    )
    added = _stored(registers, of_added, product.added, exact).numbers
    rows, columns = product.result.extents
    element = product.result.stored_as
    total = _Array(b, stack_array(b, element.ir, rows * columns), element)
    metadata = registers.start_at(_I32(32 * (product.source_registers - 2)))

    def write(row: ir.Value) -> None:
        depths = None if product.sparsity is None else _depths(product, row, metadata)
        _write_row(product, row, _Operands(left, right, added, total, depths))

    _repeat(b, rows, write)
    _move_to_registers(total, product.result, registers)
    b.ret_void()


def _repeat(b: ir.IRBuilder, count: int, write: Callable[[ir.Value], None]) -> None:
    """Code that runs so many times, at least once; it gets the number of each."""
    start, loop, end = b.block, b.append_basic_block("loop"), b.append_basic_block("end")
    b.branch(loop)
    b.position_at_end(loop)
    number = b.phi(_I32)
    number.add_incoming(_I32(0), start)
    write(number)
    following = b.add(number, _I32(1))
    number.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, _I32(count)), loop, end)
    b.position_at_end(end)


def _depths(product: MatrixProduct, row: ir.Value, metadata: _Array) -> list[ir.Value]:
    """The rows of B that the stored elements of a row of A are multiplied with."""
    b, sparsity = metadata.builder, product.sparsity
    assert sparsity is not None
    upper = b.lshr(row, _I32(3))  # the other row of a group of threads
    selector = metadata.load(32, 0).ir
    first = b.mul(selector, _I32(sparsity.threads)) if sparsity.threads < 4 else _I32(0)
    first = b.add(b.shl(b.and_(row, _I32(7)), _I32(2)), first)
    shift: ir.Value = _I32(0)
    if sparsity.word_bits == 16:
        shift = b.shl(upper, _I32(4))
    else:
        first = b.add(first, upper)
    distance = sparsity.threads // sparsity.words
    words = [
        b.lshr(metadata.load(b.add(first, _I32(distance * word)), 0).ir, shift)
        for word in range(sparsity.words)
    ]
    depths = []
    for number in range(product.left.extents[1]):
        index, part = divmod(number, sparsity.elements)
        word, bit = divmod(index * sparsity.index_bits, sparsity.word_bits)
        place = b.and_(b.lshr(words[word], _I32(bit)), _I32(3))
        if sparsity.chunk == 2:  # an index of 4 bits counts halves of an element
            place = b.lshr(place, _I32(1))
        start = number * 2 // sparsity.chunk * sparsity.chunk + part
        depths.append(b.add(b.mul(place, _I32(sparsity.elements)), _I32(start)))
    return depths


def _write_row(
    product: MatrixProduct,
    row: ir.Value,
    operands: _Operands,
) -> None:
    """A row of D; where it is long, in parts that the same code computes."""
    b = operands.added.builder
    at = _row_position(b, product.result, row)
    of_row = replace(
        operands,
        left=operands.left.start_at(_row_position(b, product.left, row)),
        added=operands.added.start_at(at),
        total=operands.total.start_at(at),
    )
    write = _write_aligned_columns if product.is_aligned else _write_columns
    _in_parts(product, product.result.extents[1], _COLUMNS, write, of_row)


def _in_parts(
    product: MatrixProduct,
    columns: int,
    most: int,
    write: Callable[[MatrixProduct, int, _Operands], object],
    operands: _Operands,
) -> None:
    """Some columns of a row of D, at most so many at once, which the same code computes."""
    b = operands.added.builder
    in_right, in_row = (m.position(0, most) for m in (product.right, product.result))

    def write_part(number: ir.Value, count: int = most) -> None:
        at = b.mul(number, _I32(in_row))
        part = replace(
            operands,
            right=operands.right.start_at(b.mul(number, _I32(in_right))),
            added=operands.added.start_at(at),
            total=operands.total.start_at(at),
        )
        write(product, count, part)

    whole, rest = divmod(columns, most)
    if whole:
        _repeat(b, whole, write_part)
    if rest:
        write_part(_I32(whole), rest)


def _write_columns(
    product: MatrixProduct,
    columns: int,
    operands: _Operands,
) -> None:
    """The first columns of a row of D, in vectors along the rows of B.

    Its rows are `depths`, if A is sparse; then there are as many columns as a block has.
    """
    left, right = operands.left.numbers, operands.right.numbers
    added, total, depths = operands.added, operands.total, operands.depths
    b, exact = left.builder, left.element
    width = min(product.right.block[1], 8)  # numbers that are contiguous; 8 float64 fill 64 bytes
    starts = range(0, columns, width)
    sums = [Value(b, ir.Constant(shaped(exact, width), None), exact) for _ in starts]
    for k in range(product.left.extents[1]):
        factor = values.broadcast(left.load(product.left.position(0, k), 0), width)
        for number, column in enumerate(starts):
            at: int | ir.Value = product.right.position(k, column)
            if depths is not None:
                at = b.mul(depths[k], _I32(width))
            other = right.load(at, width)
            if product.combine:
                bits = factor ^ other if product.combine == "xor" else factor & other
                sums[number] += popcount(bits.bits(U32)).bits(S32)
            elif exact == F64:
                sums[number] = values.fma(factor, other, sums[number])
            else:
                sums[number] += factor * other
    for products, column in zip(sums, starts, strict=True):
        at = product.result.position(0, column)
        if product.clamp:
            result = products.call("llvm.sadd.sat", added.load(at, width))
        else:
            result = products + added.load(at, width)
        if exact == F64:
            result = round_value(result, product.result.element)
        total.store(at, result)


def _write_aligned_columns(
    product: MatrixProduct,
    columns: int,
    operands: _Operands,
) -> None:
    """The same of sums whose terms are aligned; where the fast arithmetic is unfit, once more."""
    is_unfit = _sum_aligned(product, columns, operands, wide=False)
    with operands.added.builder.if_then(is_unfit, likely=False):
        most = max(product.right.block[1], product.result.block[1])
        _in_parts(product, columns, most, partial(_sum_aligned, wide=True), operands)


def _sum_aligned(
    product: MatrixProduct,
    columns: int,
    operands: _Operands,
    wide: bool,
) -> ir.Value:
    """Sums of the first columns (see `aligned_sums`).

    Returns:
        Whether some need the wide arithmetic, if this is not it; they are no numbers.
    """
    left, right, added, depths = operands.left, operands.right, operands.added, operands.depths
    b, element, result = added.builder, product.summed_as, product.result
    exact = F64 if wide else F32

    def place(k: int, column: int) -> int | ir.Value:
        if depths is None:
            return product.right.position(k, column)
        return b.mul(depths[k], _I32(product.right.block[1]))

    groups = _groups(columns, min(product.right.block[1], 8 if wide else 16))
    addends = [_load_row(added, result, column, count) for column, count in groups]
    sums = [one.constant(0.0) for one in addends] if product.is_converted else addends
    unfit = [one.constant(False, PRED) for one in addends]
    for numbers in product.passes:
        largest = _largest_exponents(product, columns, groups, left, right, numbers, place)
        aligned = [
            AlignedSums(
                values.maximum(largest[column], exponents_of(_in_type(one, element), element)),
                product.places,
                wide,
            )
            for (column, _), one in zip(groups, sums, strict=True)
        ]
        for k in numbers:
            factor = left.numbers.load(product.left.position(0, k), 0).to(exact)
            for (column, count), one in zip(groups, aligned, strict=True):
                other = right.numbers.load(place(k, column), count).to(exact)
                one.add(values.broadcast(factor, count), other)
        sums = [
            one.rounded(addend.to(exact), element).to(F32)
            for one, addend in zip(aligned, sums, strict=True)
        ]
        # What follows an unfit sum is no number, and tells nothing.
        unfit = [where(old, old, one.is_unfit) for one, old in zip(aligned, unfit, strict=True)]
    for (column, count), total_sum, addend in zip(groups, sums, addends, strict=True):
        rounded = _in_type(total_sum, result.element)
        if product.is_converted:
            rounded = with_one_nan(rounded + _in_type(addend, result.element))
        _store_row(operands.total, result, column, count, rounded)
    return _any(unfit)


def _largest_exponents(
    product: MatrixProduct,
    columns: int,
    groups: list[tuple[int, int]],
    left: _Factor,
    right: _Factor,
    numbers: Sequence[int],
    place: Callable[[int, int], int | ir.Value],
) -> dict[int, Value]:
    """The largest exponents of some products, by the first columns of the groups."""
    assert left.exponents is not None
    assert right.exponents is not None
    largest: dict[int, Value] = {}
    for column, count in _groups(columns, min(product.right.block[1], 32)):
        found: Value | None = None
        for k in numbers:
            of_a = left.exponents.load(product.left.position(0, k), 0)
            exponents = right.exponents.load(place(k, column), count)
            exponents += values.broadcast(of_a, count)
            found = exponents if found is None else values.maximum(found, exponents)
        assert found is not None
        largest |= {
            start: shuffled(found, range(start - column, start - column + lanes))
            for start, lanes in groups
            if column <= start < column + count
        }
    return largest


def _in_type(value: Value, element: str) -> Value:
    return value.to(element_type(element))


def _any(conditions: Sequence[Value]) -> ir.Value:
    """Whether a condition holds in a lane."""
    b, found = conditions[0].builder, _I32(0)
    for one in conditions:
        bits = b.bitcast(one.ir, ir.IntType(one.lanes))
        found = b.or_(found, b.zext(bits, _I32))
    return b.icmp_unsigned("!=", found, _I32(0))


def _groups(columns: int, most: int) -> list[tuple[int, int]]:
    """First columns and numbers of columns, powers of two, that make up some columns."""
    groups, column = [], 0
    while column < columns:
        count = most
        while column + count > columns:
            count //= 2
        groups.append((column, count))
        column += count
    return groups


def _load_row(array: _Array, matrix: Matrix, column: int, count: int) -> Value:
    """Neighbours in a row, of several blocks."""
    part = min(count, matrix.block[1])
    starts = range(column, column + count, part)
    return concatenated([array.load(matrix.position(0, start), part) for start in starts])


def _store_row(array: _Array, matrix: Matrix, column: int, count: int, row: Value) -> None:
    part = min(count, matrix.block[1])
    for start in range(0, count, part):
        place = matrix.position(0, column + start)
        array.store(place, shuffled(row, range(start, start + part)))


def _row_position(b: ir.IRBuilder, matrix: Matrix, row: ir.Value) -> ir.Value:
    """`matrix.position(row, 0)` of a row that the code computes."""
    rows, columns = matrix.block
    block = b.mul(b.udiv(row, _I32(rows)), _I32(matrix.position(rows, 0)))
    return b.add(block, b.mul(b.urem(row, _I32(rows)), _I32(columns)))


def _exponent_type(product: MatrixProduct, factor: Matrix) -> str:
    """The PTX type whose exponents a factor's elements have in aligned sums; empty for others."""
    if not product.is_aligned:
        return ""
    return "f16" if product.is_converted else factor.element


def _stored(
    registers: _Array,
    first: int,
    matrix: Matrix,
    exact: values.ElementType,
    exponent_type: str = "",
) -> _Factor:
    """A matrix in a type that holds it exactly, its elements at `matrix.position`, on the stack.

    Args:
        registers: The registers in memory.
        first: The number of the matrix's first one.
        matrix: The matrix.
        exact: The type.
        exponent_type: The PTX type whose exponents the elements have; empty where none are needed.
    """
    b, (rows, columns), count = registers.builder, matrix.block, matrix.block_registers
    length = len(matrix.blocks) * rows * columns
    numbers = _Array(b, stack_array(b, exact.ir, length), exact)
    exponents = _Array(b, stack_array(b, S16.ir, length), S16) if exponent_type else None

    def store(number: ir.Value) -> None:
        held = registers.start_at(b.mul(number, _I32(32 * count)))
        places = (32 * (first + part) for part in range(count))
        block = concatenated([held.load(at, 32).bits(matrix.stored_as) for at in places])
        if count > 1:
            parts = block.lanes // (32 * count)  # elements per register
            block = shuffled(
                block,
                (
                    (32 * register + lane) * parts + part
                    for lane in range(32)
                    for register in range(count)
                    for part in range(parts)
                ),
            )
        if matrix.crossed:
            order = (column * rows + row for row in range(rows) for column in range(columns))
            block = shuffled(block, order)
        start = b.mul(number, _I32(rows * columns))
        numbers.store(start, _widened(block, matrix.element).to(exact))
        if exponents is not None:
            if exponent_type != matrix.element:
                block = packed_bytes.decode(matrix.element, block)
            exponents.store(start, exponents_of(block, exponent_type))

    _for_each_block(b, matrix, store)
    return _Factor(numbers, exponents)


def _widened(value: Value, element: str) -> Value:
    """Elements of a PTX type as float32, float64 or s32, exactly."""
    if element in INTEGERS:
        return value.to(S32)
    if element == "tf32":
        return (value & _TF32_BITS).bits(F32)
    if element in packed_bytes.NUMBERS:
        return packed_bytes.decode(element, value).to(F32)
    return widened(value, element)


def _move_to_registers(total: _Array, matrix: Matrix, registers: _Array) -> None:
    b, count = total.builder, matrix.block_registers

    def move(number: ir.Value) -> None:
        block = total.load(b.mul(number, _I32(64)), 64)
        held = registers.start_at(b.mul(number, _I32(32 * count)))
        for part in range(count):
            held.store(32 * part, shuffled(block, range(part, 64, 2)) if count == 2 else block)

    _for_each_block(b, matrix, move)


def _for_each_block(b: ir.IRBuilder, matrix: Matrix, write: Callable[[ir.Value], None]) -> None:
    """Code for each block of a matrix, which gets its number: a loop where there are many."""
    count = len(matrix.blocks)
    if count > _MOST_UNROLLED:
        _repeat(b, count, write)
    else:
        for number in range(count):
            write(_I32(number))
