"""The machine code of the tensor cores' products.

Products are exact; they are summed in float64, from zero in the order of k, and the accumulator is
added; the sum is rounded once, to nearest. Products of float64 are fused with their addition.
Integers are exact in 32 bits up to the addition of the accumulator. Tensor cores also keep products
exact, but truncate when they align and sum them, in an unpublished order (Fasi, Higham, Mikaitis,
Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7, 2021). So the last
bits differ from the hardware's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from memlab.device.emulator.isa import packed_bytes, values
from memlab.device.emulator.isa.rounding import round_value, widened
from memlab.device.emulator.isa.tensor import Matrix, MatrixProduct
from memlab.device.emulator.isa.values import F32, F64, S32, Value, shaped, shuffled, stack_array

_TF32_BITS = 0xFFFF_E000  # sign, 8 bits of exponent, 10 of fraction; the rest is ignored
_ALIGNMENT_BYTES = 64
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
    start, loop, end = b.block, b.append_basic_block("rows"), b.append_basic_block("end")
    b.branch(loop)
    b.position_at_end(loop)
    row = b.phi(_I32)
    row.add_incoming(_I32(0), start)
    _write_row(product, row, left, right, added, total)
    following = b.add(row, _I32(1))
    row.add_incoming(following, loop)
    b.cbranch(b.icmp_unsigned("<", following, _I32(rows)), loop, end)
    b.position_at_end(end)
    _move_to_registers(total, product.result, registers)
    b.ret_void()


def _write_row(
    product: MatrixProduct, row: ir.Value, left: _Array, right: _Array, added: _Array, total: _Array
) -> None:
    """A row of D, in vectors along the rows of B."""
    b, exact = left.builder, left.element
    width = min(product.right.block[1], 8)  # numbers that are contiguous; 8 float64 fill 64 bytes
    depth, columns = product.right.extents
    starts = range(0, columns, width)
    sums = [Value(b, ir.Constant(shaped(exact, width), None), exact) for _ in starts]
    in_row = left.start_at(_row_position(b, product.left, row))
    for k in range(depth):
        factor = values.broadcast(in_row.load(product.left.position(0, k), 0), width)
        for number, column in enumerate(starts):
            other = right.load(product.right.position(k, column), width)
            if exact == F64:
                sums[number] = values.fma(factor, other, sums[number])
            else:
                sums[number] += factor * other
    row_position = _row_position(b, product.result, row)
    for products, column in zip(sums, starts, strict=True):
        at = b.add(row_position, _I32(product.result.position(0, column)))
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
    b, integers = registers.builder, matrix.element in ("s8", "u8", "s32")
    exact, (rows, columns) = S32 if integers else F64, matrix.block
    count = matrix.block_registers
    array = _Array(b, stack_array(b, exact.ir, len(matrix.blocks) * rows * columns), exact)
    for number in range(len(matrix.blocks)):
        places = (32 * (first + number * count + part) for part in range(count))
        block, *others = (registers.load(at, 32).bits(matrix.stored_as) for at in places)
        if others:
            block = shuffled(block, (32 * (n % 2) + n // 2 for n in range(64)), *others)
        if matrix.crossed:
            order = (column * rows + row for row in range(rows) for column in range(columns))
            block = shuffled(block, order)
        array.store(number * rows * columns, _widened(block, matrix.element))
    return array


def _widened(value: Value, element: str) -> Value:
    """Elements of a PTX type as float64 or s32, exactly."""
    if element in ("s8", "u8", "s32"):
        return value.to(S32)
    if element == "tf32":
        return (value & _TF32_BITS).bits(F32).to(F64)
    if element in packed_bytes.NUMBERS:
        return packed_bytes.decode(element, value).to(F64)
    return widened(value, element).to(F64)


def _move_to_registers(total: _Array, matrix: Matrix, registers: _Array) -> None:
    count = matrix.block_registers
    for number in range(len(matrix.blocks)):
        block = total.load(64 * number, 64)
        for part in range(count):
            value = shuffled(block, range(part, 64, 2)) if count == 2 else block
            registers.store(32 * (number * count + part), value)
