"""`wgmma`: products that the four warps of a warpgroup make from matrices in shared memory.

Each warp computes 16 rows of D, from 16 rows of A and all of B (PTX ISA, "Asynchronous Warpgroup
Level Matrix Instructions"). So the instruction becomes, for each warp, loads of *units* of 16 bytes
from shared memory and a product. It is executed at once, as it may complete at any time before
`wgmma.wait_group`. The loads are not counted: the tensor cores make them, not the load/store units
(see `read_bytes`).

A descriptor tells where a matrix lies: groups of 8 rows of units, whose places are swizzled (ibid.,
"Shared Memory Matrix Layout"). The rows are those of M or N (*K-major*: K is contiguous in memory),
or else those of K (*MN-major*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from memlab.device.emulator.isa import packed_bytes
from memlab.device.emulator.isa.macros import items_of, substitute
from memlab.device.emulator.isa.matrices.aligned_sums import PLACES, PLACES_OF_BYTES
from memlab.device.emulator.isa.matrices.matrix_product import multiply_matrices
from memlab.device.emulator.isa.tensor import Matrix, MatrixProduct, stored_as
from memlab.device.emulator.isa.values import U32, Value, where
from memlab.device.emulator.ptx.parser import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
    registers_of,
)

LAYOUTS = "r.k,r.mn,k.k,k.mn,mn.k,mn.mn"
"""How A and B lie: in registers (`r`, A alone), K-major or MN-major."""

_ROWS = 16  # of A and of D that a warp has
WARPGROUP_WARPS = 4
"""Warps that make a product together."""
_WARPGROUP_ROWS = WARPGROUP_WARPS * _ROWS
_UNIT_BYTES, _UNITS = 16, 2  # of A or B along K
_LOADED_WORDS = 4  # registers of a unit
_BITS_OF_WORD = 32  # single bits that count as one element
_ADDRESS = Register("%macro_unit")
_WORDS = tuple(Register(f"%macro_matrix{number}") for number in range(4 + 256 // _ROWS * 4))
REGISTERS = {_ADDRESS.name: "b32", **{word.name: "b32" for word in _WORDS}}
"""The registers that the instructions in place of a `wgmma.mma_async` use, with their types."""

_COLUMNS = ",".join(str(n) for n in range(8, 257, 8))
_INTEGER_COLUMNS = ",".join(str(n) for n in (8, 16, 24, *range(32, 257, 16)))
_TRANSPOSABLE = ("f16", "bf16")


def type_patterns() -> Iterator[str]:
    """Shape and types of all dense `wgmma.mma_async`."""
    for columns, depth, types in (
        (_COLUMNS, 16, "{f32,f16}.{f16}.{f16}{}"),
        (_COLUMNS, 16, "{f32}.{bf16}.{bf16}{}"),
        (_COLUMNS, 8, "{f32}.{tf32}.{tf32}{}"),
        (_COLUMNS, 32, "{f32,f16}.{e4m3,e5m2}.{e4m3,e5m2}{}"),
        (_INTEGER_COLUMNS, 32, "{s32}.{s8,u8}.{s8,u8}{,.satfinite}"),
        (_INTEGER_COLUMNS, 256, "{s32}.{b1}.{b1}{.and.popc}"),
    ):
        yield f"m64n{{{columns}}}k{{{depth}}}.{types}"


@cache
def product_of(
    columns: str, depth: str, total: str, of_a: str, of_b: str, end: str, layouts: str
) -> MatrixProduct:
    """The product of one warp; the arguments are the parts of its opcode."""
    in_a, in_b = layouts.split(".")
    result = Matrix(total, _ROWS, int(columns), step=2)
    k = int(depth) // (_BITS_OF_WORD if of_a == "b1" else 1)
    return MatrixProduct(
        f"wgmma.m64n{columns}k{depth}.{total}.{of_a}.{of_b}{end}.{layouts}",
        _factor(of_a, _ROWS, k, in_a, crossed=in_a == "mn"),
        _factor(of_b, int(columns), k, in_b, crossed=in_b == "k"),
        result,
        result,
        end == ".satfinite",
        "and" if end == ".and.popc" else "",
        places=PLACES_OF_BYTES if of_a in packed_bytes.NUMBERS else PLACES,
    )


def _factor(element: str, rows: int, depth: int, layout: str, crossed: bool) -> Matrix:
    """A or B, as the registers of a warp hold it; `rows` are those along M or N."""
    if layout == "r":
        return Matrix(element, rows, depth, max(32 // stored_as(element).bits, 1))
    step = 8 * _UNIT_BYTES // stored_as(element).bits
    in_memory = (depth, rows) if layout == "mn" else (rows, depth)
    return Matrix(element, *in_memory, step, lanes=_UNITS, crossed=crossed)


def expand_product(instruction: Instruction) -> Iterator[Instruction]:
    """`wgmma.mma_async`: loads of the units of A and B, and the product.

    Raises:
        ValueError: The instruction has other operands.
    """
    opcode = instruction.opcode.replace(".aligned", "").replace("wgmma.mma_async.sync.", "")
    shape, total, of_a, *_ = opcode.split(".")
    columns = int(shape.removeprefix("m64n").partition("k")[0])
    to, a, b, scale, *immediates = instruction.operands
    numbers = [operand.bits for operand in immediates if isinstance(operand, Immediate)]
    in_registers = isinstance(a, Vector)
    signs = 0 if total == "s32" else 2
    transposed = (1 if in_registers else 2) if of_a in _TRANSPOSABLE else 0
    if len(numbers) != len(immediates) or len(numbers) != signs + transposed:
        raise ValueError(f"{instruction.opcode} has other immediates")
    majors = ["mn" if number else "k" for number in numbers[signs:]] or ["k", "k"]
    left, right = _WORDS[:4], _WORDS[4 : 4 + 4 * -(-columns // _ROWS)]
    if in_registers:
        sources: Sequence[Operand] = items_of(a)
        in_a = "r"
    else:
        sources, in_a = left, majors[0]
        warp = Register("%warpid")
        yield from _load_units(instruction, f"a.{in_a}", a, warp, left)
    in_b = majors[-1]
    for number in range(0, len(right), _LOADED_WORDS):
        block = number // _LOADED_WORDS
        words = right[number : number + _LOADED_WORDS]
        is_half = (block + 1) * _ROWS > columns
        place = Immediate("int", block)
        yield from _load_units(instruction, f"b.{in_b}", b, place, words, is_half)
    is_negated = [number < 0 for number in numbers[:signs]].count(True) == 1
    opcode = f"wgmma.product.{opcode}.{in_a}.{in_b}{'.neg' if is_negated else ''}"
    yield substitute(instruction, opcode, to, scale, *sources, *right, *items_of(to))


def is_product(opcode: str) -> bool:
    """Whether an instruction is the product of one warp."""
    return opcode.startswith("wgmma.product.")


def is_factor_load(opcode: str) -> bool:
    """Whether an instruction loads units of A or B for a product, through the async proxy."""
    return opcode == "wgmma.load"


def read_bytes(opcode: str) -> int:
    """Bytes of shared memory that a warpgroup reads for a product, given that of one warp.

    The tensor cores read each factor there once for all four warps. An H200 counted the bytes over
    128 as wavefronts, without and with each swizzle: no layout that a descriptor can name has bank
    conflicts, because the 8 rows of a group lie in different banks (docs/results/README.md,
    "Hopper's instructions").
    """
    columns = int(opcode.partition("m64n")[2].partition("k")[0])
    in_registers = opcode.removesuffix(".neg").split(".")[-2] == "r"
    return (columns + (0 if in_registers else _WARPGROUP_ROWS)) * _UNITS * _UNIT_BYTES


def product_registers(instruction: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The registers of D, and those of A if it lies in registers."""
    to, _, *sources = instruction.operands
    factors = {name for operand in sources[:4] for name in registers_of(operand)}
    return frozenset(registers_of(to)), frozenset(factors - REGISTERS.keys())


def _load_units(
    of: Instruction,
    matrix: str,
    descriptor: Operand,
    place: Operand,
    words: Sequence[Register],
    is_half: bool = False,
) -> Iterator[Instruction]:
    """Load a unit per lane: two units of each of 16 rows."""
    operands = descriptor, Register("%laneid"), place, Immediate("int", is_half)
    yield substitute(of, f"wgmma.address.{matrix}", _ADDRESS, *operands)
    yield substitute(of, "wgmma.load", Vector(tuple(words)), Address(_ADDRESS, 0))


def address_of_unit(
    matrix: str, major: str, descriptor: Value, lane: Value, place: Value, is_half: Value
) -> Value:
    """The address of a lane's unit in shared memory.

    Args:
        matrix: `a` or `b`.
        major: `k` or `mn`.
        descriptor: The matrix descriptor.
        lane: The number of the lane: two lanes share a row.
        place: Of A, the number of the warp; of B, which 16 rows along N.
        is_half: Whether only 8 of these rows exist; then pairs of lanes load the same.
    """
    low, high = descriptor.to(U32), (descriptor >> 32).to(U32)
    start, leading, stride = ((field & 0x3FFF) << 4 for field in (low, low >> 16, high))
    phase, mode = high >> 17 & 7, high >> 30
    swizzles = mode != 0
    # The binary logarithm of the units that are swizzled with each other: 8, 4, 2 in modes 1 to 3.
    bits = where(swizzles, 4 - mode, 0)
    block = (place & 3 if matrix == "a" else place) << 4  # the first row along M or N
    row, unit = lane >> 1, lane & 1
    if major == "k":
        row = block + where(is_half != 0, row & 7, row)
        group, between = stride, where(swizzles, 16, leading)
        offset = unit * between
    else:
        unit = (block >> 3) + where(is_half != 0, 0, unit)
        group = where(swizzles, stride, leading)
        units = lane.constant(1) << bits
        offset = ((unit & units - 1) << 4) + (unit >> bits) * where(swizzles, leading, stride)
    address = start + offset + ((row & 7) << bits + 4) + (row >> 3) * group
    swizzled = ((address >> 7) - phase & (lane.constant(1) << bits) - 1) << 4
    return address ^ swizzled


def multiply(*arguments: str | Value) -> tuple[Value, ...]:
    """The product of one warp: the parts of its opcode, then its lanes and sources."""
    *parts, negated = (part for part in arguments if isinstance(part, str))
    active, scale, *sources = (value for value in arguments if isinstance(value, Value))
    product = product_of(*parts)
    if negated:
        sign = _sign_bits(product.left)
        registers = product.left.registers
        sources[:registers] = [word ^ sign for word in sources[:registers]]
    behind = -product.added.registers
    sources[behind:] = [where(scale, word, 0) for word in sources[behind:]]
    return multiply_matrices(product, active, *sources)


def _sign_bits(matrix: Matrix) -> int:
    """The bits that negate the elements in a register."""
    bits = matrix.stored_as.bits
    return sum(1 << bit for bit in range(bits - 1, 32, bits))
