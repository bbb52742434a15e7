"""The machine code of the tensor cores' products.

Products are exact; they are summed in float64, from zero in the order of k, and the accumulator is
added; the sum is rounded once, to nearest. Products of float64 are fused with their addition.
Integers are exact in 32 bits up to the addition of the accumulator. Tensor cores also keep products
exact, but truncate when they align and sum them, in an unpublished order (Fasi, Higham, Mikaitis,
Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7, 2021). So the last
bits differ from the hardware's: by up to 1.2e-6 of the root mean square of the sums for FP16, BF16
and TF32, and by 2.9e-3 for `wgmma` of FP8, whose sums keep fewer bits (random factors, an H200).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from memlab.device.emulator.isa import packed_bytes, values
from memlab.device.emulator.isa.integers import popcount
from memlab.device.emulator.isa.rounding import round_value, widened
from memlab.device.emulator.isa.tensor import INTEGERS, Matrix, MatrixProduct, concatenated
from memlab.device.emulator.isa.values import (
    F32,
    F64,
    S32,
    U32,
    Value,
    shaped,
    shuffled,
    stack_array,
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
    left = _stored(registers, 0, product.left)
    right = _stored(registers, of_right, product.right)
    added = _stored(registers, of_added, product.added)
    rows, columns = product.result.extents
    element = product.result.stored_as
    total = _Array(b, stack_array(b, element.ir, rows * columns), element)
    metadata = registers.start_at(_I32(32 * (product.source_registers - 2)))

    def write(row: ir.Value) -> None:
        depths = None if product.sparsity is None else _depths(product, row, metadata)
        _write_row(product, row, left, right, added, total, depths)

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
    left: _Array,
    right: _Array,
    added: _Array,
    total: _Array,
    depths: list[ir.Value] | None = None,
) -> None:
    """A row of D; where it is long, in parts that the same code computes."""
    b, columns = left.builder, product.result.extents[1]
    in_right, in_row = (m.position(0, _COLUMNS) for m in (product.right, product.result))
    row_position = _row_position(b, product.result, row)
    factors = left.start_at(_row_position(b, product.left, row))

    def write(number: ir.Value, count: int = _COLUMNS) -> None:
        at = b.add(row_position, b.mul(number, _I32(in_row)))
        others = right.start_at(b.mul(number, _I32(in_right)))
        parts = added.start_at(at), total.start_at(at)
        _write_columns(product, count, factors, others, *parts, depths)

    whole, rest = divmod(columns, _COLUMNS)
    if whole:
        _repeat(b, whole, write)
    if rest:
        write(_I32(whole), rest)


def _write_columns(
    product: MatrixProduct,
    columns: int,
    left: _Array,
    right: _Array,
    added: _Array,
    total: _Array,
    depths: list[ir.Value] | None = None,
) -> None:
    """The first columns of a row of D, in vectors along the rows of B.

    Its rows are `depths`, if A is sparse; then there are as many columns as a block has.
    """
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


def _row_position(b: ir.IRBuilder, matrix: Matrix, row: ir.Value) -> ir.Value:
    """`matrix.position(row, 0)` of a row that the code computes."""
    rows, columns = matrix.block
    block = b.mul(b.udiv(row, _I32(rows)), _I32(matrix.position(rows, 0)))
    return b.add(block, b.mul(b.urem(row, _I32(rows)), _I32(columns)))


def _stored(registers: _Array, first: int, matrix: Matrix) -> _Array:
    """A matrix as float64 or s32 on the stack, with its elements at `matrix.position`.

    Args:
        registers: The registers in memory.
        first: The number of the matrix's first one.
        matrix: The matrix.
    """
    b, integers = registers.builder, matrix.element in INTEGERS
    exact, (rows, columns) = S32 if integers else F64, matrix.block
    count = matrix.block_registers
    array = _Array(b, stack_array(b, exact.ir, len(matrix.blocks) * rows * columns), exact)

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
        array.store(b.mul(number, _I32(rows * columns)), _widened(block, matrix.element))

    _for_each_block(b, matrix, store)
    return array


def _widened(value: Value, element: str) -> Value:
    """Elements of a PTX type as float64 or s32, exactly."""
    if element in INTEGERS:
        return value.to(S32)
    if element == "tf32":
        return (value & _TF32_BITS).bits(F32).to(F64)
    if element in packed_bytes.NUMBERS:
        return packed_bytes.decode(element, value).to(F64)
    return widened(value, element).to(F64)


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
