"""Tensor copies: `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`, and their tensor maps.

A copy moves a *box* of a tensor in global memory to or from shared memory, where its rows lie one
behind the other, in pieces of 16 bytes that may be swizzled. Like other bulk copies, it becomes an
instruction that reads (`tensor.read`) and one that writes (`tensor.write`, or `tensor.reduce`),
and is executed at once. Before these, instructions load the tensor map, and compute the address of
the element at the box's coordinates and which part of the box lies inside the tensor. So the
samples of blocks follow them, as they follow any address and any comparison.

A tensor map is opaque in CUDA. Here it is a record (`WORDS`) in its 128 bytes, wherever these are.
The dimensions are in the order of coordinates, the fastest first.

With interleave, what a coordinate counts is a slice of 16 or 32 bytes of the channels of a pixel,
whatever the element type: the dimensions are W, H and D, as many as there are, then the slices of
the channels and the images, NC/8HWC8. A copy takes one slice of each pixel, whatever extent the box
has along them, and leaves no gaps in shared memory (an NVIDIA H200; the documents do not say it).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from memlab.device.emulator.isa.asynchronous.bulk_copies import complete, multicast
from memlab.device.emulator.isa.integers import divide_integers
from memlab.device.emulator.isa.macros import BULK_SOURCE, items_of, substitute
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.values import U64, Value, maximum, where
from memlab.device.emulator.ptx.parser import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
)
from memlab.kernels.tensor_maps import PIECE_BYTES

DIMENSIONS = 5
"""The most that a tensor has (PTX ISA, "Tensors")."""
SHARED_ALIGNMENT_BYTES = 128
"""Of a box in shared memory (PTX ISA, "cp.async.bulk.tensor")."""

WORDS = 16
"""64-bit words of a tensor map."""
STRIDES, EXTENTS, LAYOUT, STEPS, LOWER, UPPER, SHARED = 1, 6, 11, 12, 13, 14, 15
"""Where the words lie: the strides in bytes, that of elements or slices first, and for each
dimension the
tensor's extent, with that of the box above 32 bits; then the layout (`LAYOUT_*`), the steps, 8 bits
each, the corners of im2col, 16 bits each, and the bytes of shared memory that a box takes. Word 0
is the tensor's address."""
LAYOUT_RANK, LAYOUT_SWIZZLE, LAYOUT_INTERLEAVE, LAYOUT_NAN, LAYOUT_IM2COL = 32, 35, 37, 39, 40
LAYOUT_TYPE, LAYOUT_TF32, LAYOUT_MARK = 41, 45, 48
"""Where the layout has, behind the bytes of a box: the rank; the binary logarithm of the pieces
that are swizzled with each other; whether channels are interleaved, by 16 or 32 bytes; whether the
fill is NaN; whether it is for im2col; the position in `TYPES`; whether loads round to the precision
of tensor cores; and a mark."""
MARK = 0x7E4D
"""Tells a tensor map from other memory."""

TYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")
"""PTX's types of elements by their number in CUDA (CUtensorMapDataType)."""

REPLACED_TYPES = (*TYPES[:8], "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")
"""The types by their number in `tensormap.replace` (PTX ISA, "tensormap.replace", the table of
`new_val`); those of 4 and 6 bits are not for compute capability 9.0."""

REDUCTIONS = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("u32", "s32", "u64"),
    "or": ("u32", "s32", "u64"),
    "xor": ("u32", "s32", "u64"),
}
"""The types of elements that reductions take; of others an H200 has no such instruction."""

MAP_VIEW = "tensormap"
"""The `Row.view` of what loads a tensor map."""
MAP_READ, MAP_RELEASE = "tensor.map", "tensor.set.global.release"
"""The opcodes by which copies read a map, and by which `tensormap.cp_fenceproxy` writes one."""

SPAN_BITS = 12
"""Of each number of elements of a box in a packed word."""
OFFSETS = 2 * SPAN_BITS
"""Where a packed word of im2col has the offsets, behind the channels before the tensor and up to
its end."""
OFFSET_BITS = {3: 16, 4: 8, 5: 5}
"""Of each offset, by the rank (PTX ISA, "cp.async.bulk.tensor")."""

_FAULT_TEXTS = {
    "no map": "the address is not that of a tensor map: pass a const __grid_constant__ "
    "CUtensorMap, or a const CUtensorMap * of maps",
    "rank": "the tensor of the map has another number of dimensions than the instruction",
    "mode": "the map is for im2col and the instruction for tiles, or the reverse",
    "alignment": f"a box in shared memory begins at a multiple of {SHARED_ALIGNMENT_BYTES} bytes: "
    f"declare it alignas({SHARED_ALIGNMENT_BYTES})",
    "before": "a store of a box begins before its tensor: choose coordinates from 0 on",
    "start": f"a box begins at a multiple of {PIECE_BYTES} bytes in a row of its tensor: choose "
    "the first coordinate so",
    "type": "this reduction does not take the element type of the map",
    "pixel": "a copy of im2col begins outside the corners of its map: choose the coordinates of a "
    "pixel between them",
    "corners": "a store of im2col takes a map whose corners lie in its tensor: lower ones of at "
    "least 0, upper ones of at most 0",
    "layout": f"the tensor of the map lies at an address, or has strides, that are no multiples of "
    f"{PIECE_BYTES} bytes, or of {2 * PIECE_BYTES} with interleave32: replace them by such",
    "outside": "the tensor of the map lies outside its array",
}
FAULTS = {name: (1 << 61) + PIECE_BYTES * n for n, name in enumerate(_FAULT_TEXTS, 1)}
"""Addresses that stand for what is wrong with a copy; nothing is allocated there."""
FAULT_TEXTS = {FAULTS[name]: text for name, text in _FAULT_TEXTS.items()}
"""What messages say of these addresses."""


class MapFields(NamedTuple):
    """What a tensor map holds, the fastest dimension first.

    Attributes:
        address: Of the tensor's first element.
        strides: Bytes from an element, with interleave a slice, to the next along each dimension.
        extents: Elements of the tensor along each dimension.
        spans: Elements that the box spans along each dimension; of im2col, channels and pixels.
        steps: Of so many elements, one is copied.
        box_bytes: Bytes that a copy moves, and completes at its barrier.
        shared_bytes: Bytes of shared memory that the box takes: rows shorter than what a swizzle
            spans leave gaps.
        swizzle_pieces: Pieces that are swizzled with each other: 1, 2, 4 or 8.
        interleave: 0, or the bytes of a slice of channels over 16.
        fills_nan: Whether elements outside read as NaN.
        rounds: Whether loads round float32 elements to the precision of tensor cores.
        type: The position of the element type in `TYPES`.
        corners: The lower and the upper corner of im2col, if it is for that.
    """

    address: int
    strides: Sequence[int]
    extents: Sequence[int]
    spans: Sequence[int]
    steps: Sequence[int]
    box_bytes: int
    shared_bytes: int
    swizzle_pieces: int
    interleave: int
    fills_nan: bool
    rounds: bool
    type: int
    corners: tuple[Sequence[int], Sequence[int]] | None

    def words(self) -> list[int]:
        """The words of the map."""
        words = [self.address, *[0] * (WORDS - 1)]
        for number, stride in enumerate(self.strides):
            words[STRIDES + number] = stride
        for number, extent in enumerate(self.extents):
            words[EXTENTS + number] = extent
        for number, span in enumerate(self.spans):
            words[EXTENTS + number] |= span << 32
        words[LAYOUT] = (
            self.box_bytes
            | len(self.extents) << LAYOUT_RANK
            | (self.swizzle_pieces.bit_length() - 1) << LAYOUT_SWIZZLE
            | self.interleave << LAYOUT_INTERLEAVE
            | self.fills_nan << LAYOUT_NAN
            | (self.corners is not None) << LAYOUT_IM2COL
            | self.type << LAYOUT_TYPE
            | self.rounds << LAYOUT_TF32
            | MARK << LAYOUT_MARK
        )
        words[STEPS] = sum(step << 8 * number for number, step in enumerate(self.steps))
        words[SHARED] = self.shared_bytes
        for place, corner in zip((LOWER, UPPER), self.corners or (), strict=False):
            words[place] = sum((each & 0xFFFF) << 16 * axis for axis, each in enumerate(corner))
        return words


# --- Instructions in their place ------------------------------------------------------------------

REPLACED = {
    "global_address": (0, 0, 64),
    "global_stride": (STRIDES + 1, 0, 64),
    "global_dim": (EXTENTS, 0, 32),
    "box_dim": (EXTENTS, 32, 32),
    "element_stride": (STEPS, 0, 8),
    "rank": (LAYOUT, LAYOUT_RANK, 3),
    "interleave_layout": (LAYOUT, LAYOUT_INTERLEAVE, 2),
    "swizzle_mode": (LAYOUT, LAYOUT_SWIZZLE, 2),
    "fill_mode": (LAYOUT, LAYOUT_NAN, 1),
    "elemtype": (LAYOUT, LAYOUT_TYPE, 4),
}
"""Where the fields that `tensormap.replace` names lie: the word, that of the first dimension, the
first bit and the number of bits."""
_RESIZING = (
    *("box_dim", "element_stride", "rank", "swizzle_mode", "elemtype", "interleave_layout"),
)
"""The fields that the bytes of a box depend on."""

_WORDS = tuple(Register(f"%macro_tensor{number}") for number in range(LAYOUT + 1))
_PLACE, _FIRST, _END, _MORE, _STEP, _MAP = (
    Register(f"%macro_box_{name}") for name in ("place", "first", "end", "more", "step", "map")
)
_NEW, _STEPS_WORD = Register("%macro_box_new"), Register("%macro_box_steps")
_IM2COL = ".im2col"
_EXTENT, _SPAN = Register("%macro_box_extent"), Register("%macro_box_span")
_BYTES = Register("%macro_box_bytes")
_BEFORE = tuple(Register(f"%macro_before{number}") for number in range(DIMENSIONS))
_INSIDE = tuple(Register(f"%macro_inside{number}") for number in range(DIMENSIONS))
REGISTERS = {
    **{
        register.name: "b64"
        for register in (
            *(*_WORDS, _PLACE, _FIRST, _END, _MORE, _STEP, _MAP, _EXTENT, _SPAN),
            *(_NEW, _STEPS_WORD),
        )
    },
    **{register.name: "b64" for register in (*_BEFORE, *_INSIDE)},
    _BYTES.name: "b32",
}
"""The registers that the instructions in place of a tensor copy use, with their types."""

_ZERO = Immediate("int", 0)


def expand_load(rank: str, mode: str, instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.bulk.tensor [to], [map, {coordinates}], [barrier]{, {offsets}}{, ranks}`."""
    destination, source, barrier, *more = instruction.operands
    form, box = _form(rank, mode)
    offsets = items_of(more.pop(0)) if mode == _IM2COL else ()
    ranks = more.pop(0) if ".multicast::cluster" in instruction.opcode else None
    yield from _locate(int(rank[0]), mode, source, offsets, instruction)
    read = f"tensor.read.global.{form}"
    yield substitute(instruction, read, BULK_SOURCE, Address(_PLACE, 0), *box)
    write = f"tensor.write.shared.{form}"
    yield multicast(substitute(instruction, write, destination, BULK_SOURCE, *box), ranks)
    yield substitute(instruction, "cvt.u32.u64", _BYTES, _WORDS[LAYOUT])
    yield from complete(instruction, destination, barrier, _BYTES, ranks)


def expand_store(rank: str, mode: str, instruction: Instruction) -> Iterable[Instruction]:
    """`cp.async.bulk.tensor [map, {coordinates}], [of]`."""
    yield from _write("write", "", rank, mode, instruction)


def expand_reduction(
    rank: str, operation: str, mode: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`cp.reduce.async.bulk.tensor [map, {coordinates}], [of]`."""
    yield from _write("reduce", operation, rank, mode, instruction)


def _write(
    name: str, operation: str, rank: str, mode: str, instruction: Instruction
) -> Iterator[Instruction]:
    destination, source = instruction.operands[:2]
    form, box = _form(rank, mode)
    yield from _locate(int(rank[0]), mode, destination, (), instruction)
    yield substitute(instruction, f"tensor.read.shared.{form}", BULK_SOURCE, source, *box)
    opcode = f"tensor.{name}.global.{form}{operation}"
    yield substitute(instruction, opcode, Address(_PLACE, 0), BULK_SOURCE, *box)


def _form(rank: str, mode: str) -> tuple[str, tuple[Register, ...]]:
    """The end of the opcodes that access a box, and what they take of it."""
    if mode.startswith(_IM2COL):
        return f"{rank}{_IM2COL}", (_MAP, _FIRST, _END, _MORE)
    return rank, (_MAP, _FIRST, _END)


def _locate(
    rank: int, mode: str, operand: Operand, offsets: Sequence[Operand], instruction: Instruction
) -> Iterator[Instruction]:
    """Load the map of `[map, {coordinates}]`, and find the place of the box and its part inside.

    Raises:
        ValueError: There are other operands.
    """
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        raise ValueError(f"{instruction.opcode} has no [map, {{coordinates}}]")
    coordinates = items_of(operand.items[1])
    is_im2col = mode.startswith(_IM2COL)
    if len(coordinates) != rank or (mode == _IM2COL and len(offsets) != rank - 2):
        raise ValueError(f"{instruction.opcode} has {len(coordinates)} coordinates")

    def do(opcode: str, *operands: Operand) -> Instruction:
        return substitute(instruction, opcode, *operands)

    yield do("mov.b64", _MAP, operand.items[0])
    for first in range(0, LAYOUT, 2):
        yield do(MAP_READ, Vector(_WORDS[first : first + 2]), Address(_MAP, 8 * first))
    yield do("mov.b64", _PLACE, _WORDS[0])
    for number, coordinate in enumerate(coordinates):
        before, inside = _BEFORE[number], _INSIDE[number]
        extent = _WORDS[EXTENTS + number]
        yield do("cvt.s64.s32", _STEP, coordinate)
        yield do("mad.lo.s64", _PLACE, _STEP, _WORDS[STRIDES + number], _PLACE)
        if number and is_im2col:
            continue
        yield do("shr.u64", _SPAN, extent, Immediate("int", 32))
        yield do("and.b64", _EXTENT, extent, Immediate("int", 0xFFFFFFFF))
        # At an edge, the operands of min and max give the value that is the same for many blocks.
        yield do("neg.s64", before, _STEP)
        yield do("max.s64", before, _ZERO, before)
        yield do("min.s64", before, before, _SPAN)
        yield do("sub.s64", inside, _EXTENT, _STEP)
        yield do("min.s64", inside, inside, _SPAN)
        yield do("max.s64", inside, _ZERO, inside)
    if not is_im2col:
        yield do(f"tensor.pack.{rank}d", _FIRST, *_BEFORE[:rank])
        yield do(f"tensor.pack.{rank}d", _END, *_INSIDE[:rank])
        return
    moved = (*offsets, *[_ZERO] * (rank - 2 - len(offsets)))
    yield do(f"tensor.pack.{rank}d.im2col", _FIRST, _BEFORE[0], _INSIDE[0], *moved)
    points = (*coordinates[1:], *[_ZERO] * (DIMENSIONS - rank))
    yield do("tensor.point", _END, *points[:2])
    yield do("tensor.point", _MORE, *points[2:])


def expand_replace(
    field: str, space: str, ptx_type: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`tensormap.replace [map], {ordinal,} value`: writes a field, and the sizes that it changes.

    Raises:
        ValueError: There are other operands.
    """
    address, *ordinal, value = instruction.operands
    number = ordinal[0].bits if ordinal and isinstance(ordinal[0], Immediate) else 0
    if not isinstance(address, Address) or number >= DIMENSIONS or len(ordinal) > 1:
        raise ValueError(f"{instruction.opcode} has other operands")
    word, first, bits = REPLACED[field]
    if field == "element_stride":
        first += bits * number
    else:
        word += number

    def do(opcode: str, *operands: Operand) -> Instruction:
        return substitute(instruction, opcode, *operands)

    def at(place: int) -> Address:
        return Address(address.base, address.offset + 8 * place)

    def insert(place: int, first: int, bits: int) -> Iterator[Instruction]:
        yield do(f"tensor.word{space}", _STEP, at(place))
        yield do("bfi.b64", _STEP, _NEW, _STEP, Immediate("int", first), Immediate("int", bits))
        yield do(f"tensor.set{space}", at(place), _STEP)

    if field == "swizzle_mode" and not (isinstance(value, Immediate) and value.bits < 4):
        raise ValueError(f"{instruction.opcode} has no swizzle of compute capability 9.0")
    if field == "elemtype":
        name = _replaced_type(value, instruction)
        base, _, _ = name.replace("tf32", "f32").partition(".")
        yield do("mov.b64", _NEW, Immediate("int", int(name.startswith("tf32"))))
        yield from insert(LAYOUT, LAYOUT_TF32, 1)
        value = Immediate("int", TYPES.index(base))
    yield do(
        "mov.b64" if ptx_type == ".b64" or isinstance(value, Immediate) else "cvt.u64.u32",
        _NEW,
        value,
    )
    if field == "rank":
        yield do("add.s64", _NEW, _NEW, Immediate("int", 1))
    yield from insert(word, first, bits)
    if field == "rank":  # a kernel may make a map of zeros, which are then one
        yield do("mov.b64", _NEW, Immediate("int", MARK))
        yield from insert(LAYOUT, LAYOUT_MARK, 16)
    if field not in _RESIZING:
        return
    words = (*_WORDS[EXTENTS : LAYOUT + 1], _STEPS_WORD)
    places = (*range(EXTENTS, LAYOUT + 1), STEPS)
    for held, place in zip(words, places, strict=True):
        yield do(f"tensor.word{space}", held, at(place))
    for name, place in (("unit", STRIDES), ("box", LAYOUT), ("shared", SHARED)):
        yield do(f"tensor.sizes.{name}", _NEW, *words)
        yield from insert(place, 0, 32)


def _replaced_type(value: Operand, instruction: Instruction) -> str:
    """The element type that `tensormap.replace` gives a map."""
    number = value.bits if isinstance(value, Immediate) else len(REPLACED_TYPES)
    if number >= len(REPLACED_TYPES):
        raise ValueError(
            f"{instruction.opcode} has another element type than compute capability 9.0 knows"
        )
    return REPLACED_TYPES[number]


_TYPE_BYTES = tuple(int(name.lstrip("bfsu")) // 8 for name in TYPES)


def sizes(what: str, *words: Value) -> Value:
    """The bytes of what a coordinate counts, of a box, or those that it takes in shared memory.

    Args:
        what: `unit`, `box` or `shared`.
        words: The extents of 5 dimensions, the layout and the steps.
    """
    *extents, layout, steps = words
    rank, slices = layout >> LAYOUT_RANK & 7, layout >> LAYOUT_INTERLEAVE & 3
    unit = layout.constant(0, U64)
    for number, size in enumerate(_TYPE_BYTES):
        unit = where((layout >> LAYOUT_TYPE & 15) == number, size, unit)
    unit = where(slices > 0, slices * PIECE_BYTES, unit)
    if what == "unit":
        return unit
    counts = []
    for axis, extent in enumerate(extents):
        step = maximum(steps >> 8 * axis & 0xFF, 1)
        counts.append(divide_integers((extent >> 32) + step - 1, step))
    rows = layout.constant(1, U64)
    for axis, copied in enumerate(counts[1:], 1):
        is_slices = (slices > 0) & (rank == axis + 2)
        rows = rows * where((rank > axis) & ~is_slices, copied, 1)
    row = where(slices > 0, counts[0], extents[0] >> 32) * unit
    swizzles = layout >> LAYOUT_SWIZZLE & 3
    span = layout.constant(PIECE_BYTES, U64) << swizzles
    gap = where((swizzles > 0) & (slices == 0), maximum(row, span), row)
    return rows * (row if what == "box" else gap)


def expand_copy(instruction: Instruction) -> Iterable[Instruction]:
    """`tensormap.cp_fenceproxy [to], [of], 128`: a copy of a map, visible to tensor copies."""
    to, of, _ = instruction.operands
    if not isinstance(to, Address) or not isinstance(of, Address):
        raise ValueError(f"{instruction.opcode} has other operands")
    for word in range(WORDS):
        source, target = (Address(each.base, each.offset + 8 * word) for each in (of, to))
        yield substitute(instruction, "tensor.word.shared", _NEW, source)
        yield substitute(instruction, MAP_RELEASE, target, _NEW)
    yield substitute(instruction, "bar.warp.sync", Immediate("int", 0xFFFFFFFF))


def pack(*counts: Value) -> Value:
    """Numbers of elements along each dimension, in one word."""
    word = counts[0].constant(0, U64)
    for number, count in enumerate(counts):
        word = word | count.to(U64) << SPAN_BITS * number
    return word


def pack_pixel(rank: str, before: Value, inside: Value, *offsets: Value) -> Value:
    """The channels before the tensor and up to its end, and the offsets of im2col, in one word."""
    word = pack(before, inside)
    for number, offset in enumerate(offsets):
        place = OFFSETS + OFFSET_BITS[int(rank[0])] * number
        word = word | offset.to(U64) << place
    return word


def pack_point(first: Value, second: Value) -> Value:
    """Two coordinates in one word."""
    return first.to(U64) | second.to(U64) << 32


def is_tensor_access(row: Row) -> bool:
    """Whether an instruction reads or writes what a tensor copy moves."""
    return row.opcode.startswith(("tensor.read.", "tensor.write.", "tensor.reduce."))


def rank_of(row: Row) -> int:
    """The dimensions of the tensors that an instruction accesses."""
    return int(row.opcode.split(".")[3][0])


COUNTED_ALONE = 1 << 62
"""Among the demands of an instruction: it is counted, but moves nothing."""


def demands_of(row: Row) -> int:
    """What an instruction demands of its maps.

    That is the rank, in bit 7 whether they are for im2col, and above it a bit for each type.
    """
    taken = REDUCTIONS[operation_of(row)] if row.kind == "reduce" else TYPES
    types = sum(1 << 8 + number for number, name in enumerate(TYPES) if name in taken)
    return rank_of(row) | takes_pixels(row) << 7 | types


def takes_pixels(row: Row) -> bool:
    """Whether an instruction accesses boxes in the mode im2col."""
    return _IM2COL in row.opcode


def operation_of(row: Row) -> str:
    """The operation of a reduction, such as `add`."""
    return row.opcode.rpartition(".")[2]
