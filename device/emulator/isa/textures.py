"""Textures and surfaces: the objects in memory, and the instructions that read and write them.

An object is a record (`WORDS`) in the parameter space, behind the kernel's arguments; its handle
(`handle`) holds the offset. A fetch becomes three instructions: one loads the record, one maps the
coordinates into the array ("place"), and a load reads the texels. So the address of a fetch is a
register like that of any other load. A surface is read and written by plain loads and stores.

The rules are those of the CUDA C++ Programming Guide, "Texture Fetching", and of the PTX ISA,
"Texture Instructions". What these leave open is as on an H200 (docs/results/README.md, "Textures"):
normalized coordinates are rounded down to 2^-21 before they are scaled; for a linear filter, places
are rounded to the nearest 1/256 of an element; a layer is an unsigned number.

A place that no element has, such as that of an object of another kind, is one of `FAULTS`: an
address where nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from memlab.device.emulator.isa import macros
from memlab.device.emulator.isa.values import F64, PRED, S64, U32, U64, Value, where
from memlab.device.emulator.ptx.parser import (
    Address,
    Immediate,
    Instruction,
    Operand,
    PtxError,
    Register,
    Vector,
)

WORDS = 6
"""64-bit words of an object: `ObjectFields.words`."""
CHANNELS = 4
"""Results of a fetch; those of channels that an element lacks are 0."""
OBJECT_BYTES = 8 * WORDS

_HANDLE_TAG = 0x7E << 56
_MARK = 0x7E97  # in an object, to tell it from other parameters

_FAULT_BASE = 0x7E97_0000_0000  # below every array, and far from them and from a null pointer

FAULTS = {
    "not an object": _FAULT_BASE + 16,
    "wrong kind": _FAULT_BASE + 32,
    "wrong shape": _FAULT_BASE + 48,
    "wrong type": _FAULT_BASE + 64,
    "outside": _FAULT_BASE + 80,
    "linear memory": _FAULT_BASE + 96,
    "CUDA array": _FAULT_BASE + 112,
}
"""Addresses that stand for a reason why there is no element; nothing is allocated there."""
FAULT_TEXTS = {
    FAULTS["not an object"]: "the handle is no texture or surface object",
    FAULTS["wrong kind"]: "a surface is used as a texture, or a texture as a surface",
    FAULTS[
        "wrong shape"
    ]: "the object's array has other dimensions or layers than the kernel reads",
    FAULTS["linear memory"]: "the object is linear memory, which tex1Dfetch alone reads: add an "
    "option, such as :point, for a CUDA array",
    FAULTS["CUDA array"]: "the object is a CUDA array, which tex1Dfetch does not read: leave out "
    "the options of the texture for linear memory",
    FAULTS["wrong type"]: "the kernel reads the texture as another type than its elements have: "
    "integers are read as floats only with :normalized-float",
    FAULTS["outside"]: "outside the surface, which cudaBoundaryModeTrap does not allow",
}
"""What messages say of these addresses."""


def handle(offset: int) -> int:
    """The handle of an object that lies at an offset of the parameter space."""
    return _HANDLE_TAG | offset


class ObjectFields(NamedTuple):
    """What an object holds.

    Attributes:
        address: Of the array's first byte.
        slices: Depth or layers.
        height: Rows.
        width: Elements of a row.
        row_bytes: Bytes from a row of groups to the next (`device/texture_arrays.py`).
        slice_bytes: Bytes from a slice or layer to the next.
        number_bytes: Bytes of a number: 1, 2 or 4.
        kind: Of a number: 0 unsigned, 1 signed, 2 floating point.
        channels: Numbers of an element: 1, 2 or 4.
        dimensions: 1, 2 or 3.
        address_modes: For x, y and z: 0 clamp, 1 wrap, 2 mirror, 3 border.
        is_surface: Whether it is a surface.
        layered: Whether slices are layers.
        linear: Whether fetches interpolate.
        normalized: Whether coordinates are.
        normalized_float: Whether integers are read as floats up to 1.
        linear_memory: Whether elements are not in groups.
    """

    address: int
    slices: int
    height: int
    width: int
    row_bytes: int
    slice_bytes: int
    number_bytes: int
    kind: int
    channels: int
    dimensions: int
    address_modes: Sequence[int]
    is_surface: bool
    layered: bool
    linear: bool
    normalized: bool
    normalized_float: bool
    linear_memory: bool

    def words(self) -> list[int]:
        """The words of the object."""
        flags = (
            self.number_bytes.bit_length() - 1
            | self.channels << _CHANNELS
            | self.kind << _KIND
            | self.normalized_float << _NORMALIZED_FLOAT
            | self.linear << _LINEAR
            | self.normalized << _NORMALIZED
            | self.dimensions << _DIMENSIONS
            | self.layered << _LAYERED
            | self.is_surface << _SURFACE
            | self.linear_memory << _LINEAR_MEMORY
        )
        for axis, mode in enumerate(self.address_modes):
            flags |= mode << _MODES + 2 * axis
        extents = self.width | self.height << 32
        return [
            self.address,
            extents,
            self.slices,
            self.row_bytes,
            self.slice_bytes,
            flags | _MARK << 32,
        ]


_CHANNELS, _KIND, _NORMALIZED_FLOAT, _LINEAR, _NORMALIZED, _MODES = 2, 5, 7, 8, 9, 10
_DIMENSIONS, _LAYERED, _SURFACE, _LINEAR_MEMORY = 16, 18, 19, 20
_CLAMP, _WRAP, _MIRROR, _BORDER = range(4)
_COORDINATE_UNIT = 2.0**-21
"""To a multiple of this, normalized coordinates are rounded down."""

# --- The recipe of a fetch ------------------------------------------------------------------------

RECIPE_WEIGHTS, RECIPE_VALID, RECIPE_AXES, RECIPE_FORMAT, RECIPE_GATHER = 0, 24, 30, 32, 40
RECIPE_LINEAR_MEMORY = 43
"""Where a recipe holds, from its lowest bit on: for x, y and z, the weight of the second element in
1/256 (8 bits each), and whether the first and the second element exist (2 bits each); the axes that
are interpolated; the lowest 8 bits of the object's flags; the channel that is gathered, from 1; and
whether the array is linear memory."""
FORMAT_CHANNELS, FORMAT_KIND, FORMAT_NORMALIZED_FLOAT = _CHANNELS, _KIND, _NORMALIZED_FLOAT
"""Where the format has the channels, the kind of numbers and the read mode; the binary logarithm of
a number's bytes is in its 2 lowest bits."""

# --- Places ---------------------------------------------------------------------------------------


class _Object:
    """The words of an object in the lanes of a warp, as values."""

    def __init__(self, words: Sequence[Value]) -> None:
        self.address, extents, self.slices, self.row_bytes, self.slice_bytes, self.flags = words
        self.width, self.height = extents & 0xFFFFFFFF, extents >> 32

    def flag(self, place: int, bits: int = 1) -> Value:
        return self.flags >> place & ((1 << bits) - 1)

    def has(self, place: int) -> Value:
        return self.flag(place) == 1

    @property
    def element_shift(self) -> Value:
        """The binary logarithm of an element's bytes: 1, 2 or 4 channels are 0, 1 or 2 more."""
        return self.flag(0, 2) + (self.flag(_CHANNELS, 3) >> 1)

    @property
    def extents(self) -> tuple[Value, Value, Value]:
        """For x, y and z."""
        return tuple(each.to(S64) for each in (self.width, self.height, self.slices))  # type: ignore[return-value]

    def distances(self, x_bytes: Value, y: Value, z: Value) -> tuple[Value, Value, Value]:
        """Bytes from the array's start that each coordinate gives: `device/texture_arrays.py`."""
        grouped = self.flag(_LINEAR_MEMORY) == 0
        x = (x_bytes >> 6) * 512 + ((x_bytes >> 5 & 1) << 8) + ((x_bytes >> 4 & 1) << 5)
        row = (y >> 3) * self.row_bytes.to(S64) + ((y >> 1 & 3) << 6) + ((y & 1) << 4)
        return (
            where(grouped, x + (x_bytes & 15), x_bytes),
            where(grouped, row, 0),
            z * self.slice_bytes.to(S64),
        )

    def fault(self, dimensions: int, layered: bool, surface: bool, is_right_type: Value) -> Value:
        """The address that stands for what is wrong with the object; 0 if nothing is."""
        has_shape = (self.flag(_DIMENSIONS, 2) == dimensions) & (
            self.flag(_LAYERED) == int(layered)
        )
        fault = where(is_right_type, self.address.constant(0), FAULTS["wrong type"])
        fault = where(has_shape, fault, FAULTS["wrong shape"])
        fault = where(self.flag(_SURFACE) == int(surface), fault, FAULTS["wrong kind"])
        return where(self.flags >> 32 == _MARK, fault, FAULTS["not an object"])


class _AxisPlace(NamedTuple):
    """Where a fetch reads along an axis: the first element, the second, their weights in 1/256."""

    first: Value
    second: Value
    weight: Value
    is_first_valid: Value
    is_second_valid: Value


def _clamped(value: Value, extent: Value) -> Value:
    value = where(value < 0, 0, value)
    return where(value < extent, value, extent - 1)


def _place_on_axis(
    item: _Object, axis: int, coordinate: Value, extent: Value, interpolates: Value
) -> _AxisPlace:
    """Apply the filter and the address mode to a floating-point coordinate."""
    mode, normalized = item.flag(_MODES + 2 * axis, 2), item.has(_NORMALIZED)
    given = coordinate.to(F64)
    given = where(given.is_nan, 0.0, given)
    # Wrapping and mirroring need normalized coordinates; without, these modes clamp.
    folds = normalized & ((mode == _WRAP) | (mode == _MIRROR))
    period = (given * 0.5).call("llvm.floor") * 2.0  # two copies, of which one is mirrored
    given = where(folds, given - period, given)
    given = where(given.is_nan, 0.0, given)  # of infinite coordinates
    stepped = (given * (1 / _COORDINATE_UNIT)).call("llvm.floor") * _COORDINATE_UNIT
    size = extent.to(F64)
    scaled = where(normalized, stepped * size, given)
    scaled = where(scaled < -4.0, -4.0, scaled)
    most = size * 2.0 + 4.0
    scaled = where(scaled > most, most, scaled)
    rounded = ((scaled - 0.5) * 256.0 + 0.5).call("llvm.floor").to(S64)
    nearest = scaled.call("llvm.floor").to(S64)
    first = where(interpolates, rounded >> 8, nearest)
    weight = where(interpolates, rounded & 255, 0)

    def element(number: Value) -> tuple[Value, Value]:
        """An element's number in the array, and whether it exists."""
        exists = (mode != _BORDER) | (number >= 0) & (number < extent)
        twice = extent + extent
        inside = where(number < 0, number + twice, number)
        inside = where(inside < twice, inside, inside - twice)
        wrapped = where(inside < extent, inside, inside - extent)
        mirrored = where(inside < extent, inside, twice - 1 - inside)
        folded = where(mode == _WRAP, wrapped, mirrored)
        return _clamped(where(folds, folded, number), extent), exists

    (one, has_one), (two, has_two) = element(first), element(first + 1)
    return _AxisPlace(one, two, weight, has_one, has_two)


def _place_of_integer(coordinate: Value, extent: Value) -> _AxisPlace:
    """The place in linear memory, which reads 0 outside (`tex1Dfetch`)."""
    number = coordinate.to(S64)
    exists = (number >= 0) & (number < extent)
    place = _clamped(number, extent)
    return _AxisPlace(place, place, place.constant(0), exists, exists)


def _layer(layer: Value, layers: Value) -> _AxisPlace:
    """The place of a layer, an unsigned number: the last one takes the place of those behind it."""
    place = _clamped(layer.to(U32).to(S64), layers)
    always = place.constant(True, PRED)
    return _AxisPlace(place, place, place.constant(0), always, always)


def place_texels(shape: str, of: str, channel: str, to: str, *sources: Value) -> tuple[Value, ...]:
    """The address of the first element of a fetch, the bytes to the next ones, and the recipe.

    Args:
        shape: A key of `SHAPES`.
        of: The type of the coordinates: `f32`, or `s32` for linear memory.
        channel: The channel that is gathered, one of `rgba`; `all` for a fetch.
        to: The type of the result: `f32`, `s32` or `u32`.
        *sources: The object's words, the layer if there is one, and the coordinates.

    Returns:
        The address; the bytes to the second element along x, y and z; and the recipe.
    """
    dimensions, layered = SHAPES[shape]
    gathered = "rgba".find(channel) + 1 if channel != "all" else 0
    item = _Object(sources[:WORDS])
    rest = list(sources[WORDS:])
    layer = rest.pop(0) if layered else None
    as_float = (item.flag(_KIND, 2) == 2) | item.has(_NORMALIZED_FLOAT)
    is_right_type = as_float if to == "f32" else ~as_float
    if of == "s32":
        interpolates = as_float.constant(False)
        places = [_place_of_integer(rest[0], item.extents[0])]
    else:
        interpolates = as_float.constant(True) if gathered else item.has(_LINEAR)
        places = [
            _place_on_axis(item, axis, coordinate, item.extents[axis], interpolates)
            for axis, coordinate in enumerate(rest)
        ]
    if layer is not None:
        places += [_layer(item.address.constant(0), item.extents[1])] * (2 - dimensions)
        places.append(_layer(layer, item.extents[2]))
    none = _layer(item.address.constant(0), item.extents[0])
    places += [none] * (3 - len(places))
    shift = item.element_shift.to(S64)
    x, y, z = places
    first = item.distances(x.first << shift, y.first, z.first)
    second = item.distances(x.second << shift, y.second, z.second)
    fault = item.fault(dimensions, layered, False, is_right_type)
    is_linear = item.flag(_LINEAR_MEMORY)
    unreadable = is_linear == 0 if of == "s32" else is_linear != 0
    reason = FAULTS["CUDA array" if of == "s32" else "linear memory"]
    fault = where((fault == 0) & unreadable, reason, fault)
    address = item.address + (first[0] + first[1] + first[2]).to(U64)
    recipe = (
        is_linear << RECIPE_LINEAR_MEMORY
        | (item.flags & 0xFF) << RECIPE_FORMAT
        | where(interpolates, item.flags.constant(dimensions), 0) << RECIPE_AXES
    )
    for axis, place in enumerate(places):
        recipe = recipe | place.weight.to(U64) << RECIPE_WEIGHTS + 8 * axis
        # A fetch does not read what has no weight; a gather does.
        has_second = place.is_second_valid
        if not gathered:
            has_second = has_second & (place.weight != 0)
        for number, exists in enumerate((place.is_first_valid, has_second)):
            recipe = recipe | exists.to(U64) << RECIPE_VALID + 2 * axis + number
    recipe = recipe | (gathered << RECIPE_GATHER)
    steps = (after - before for before, after in zip(first, second, strict=True))
    return where(fault == 0, address, fault), *steps, recipe


def place_surface_element(shape: str, size: str, mode: str, *sources: Value) -> tuple[Value, Value]:
    """The address of bytes of a surface, and whether they are accessed.

    Args:
        shape: A key of `SHAPES`.
        size: Bytes of the access.
        mode: Outside the surface, `trap` is a fault, `clamp` takes the nearest element, and `zero`
            reads zeros and writes nothing.
        *sources: The object's words, the layer if there is one, and the coordinates; that in x
            counts bytes.
    """
    dimensions, layered = SHAPES[shape]
    item = _Object(sources[:WORDS])
    rest = list(sources[WORDS:])
    layer = [rest.pop(0)] if layered else []
    x, *others = (coordinate.to(S64) for coordinate in rest)
    wide, tall, deep = item.extents
    # The last element begins so many bytes before the end of its row.
    last = (wide << item.element_shift.to(S64)) - int(size)
    is_inside = (x >= 0) & (x <= last)
    x = where(x < 0, 0, where(x > last, last, x))
    limits = (tall, deep)
    placed = []
    for coordinate, limit in zip(others, limits, strict=False):
        is_inside = is_inside & (coordinate >= 0) & (coordinate < limit)
        placed.append(_clamped(coordinate, limit))
    zero = x.constant(0)
    y = placed[0] if placed else zero
    z = placed[1] if len(placed) > 1 else zero
    for number in layer:
        chosen = number.to(S64)
        is_inside = is_inside & (chosen >= 0) & (chosen < deep)
        z = _clamped(chosen, deep)
    always = is_inside.constant(True)
    fault = item.fault(dimensions, layered, True, always)
    distance = item.distances(x, y, z)
    address = item.address + (distance[0] + distance[1] + distance[2]).to(U64)
    if mode == "trap":
        address = where(is_inside, address, FAULTS["outside"])
    is_accessed = is_inside if mode == "zero" else always
    return where(fault == 0, address, fault), (is_accessed | (fault != 0)).to(U32)


def query_object(attribute: str, *words: Value) -> Value:
    """A property of an object: `txq` and `suq`."""
    item = _Object(words)
    depth = where(item.has(_LAYERED), 1, item.slices)
    layers = where(item.has(_LAYERED), item.slices, 1)
    values = {
        "width": item.width,
        "height": item.height,
        "depth": depth,
        "array_size": layers,
        "normalized_coords": item.flag(_NORMALIZED),
    }
    return values[attribute].to(U32)


QUERIES = "width,height,depth,array_size,normalized_coords"
"""The properties."""

# --- Macros ---------------------------------------------------------------------------------------

_WORDS = tuple(Register(f"%macro_object{number}") for number in range(WORDS))
_PLACE, *_STEPS, _RECIPE = (Register(f"%macro_texel{number}") for number in range(5))
_ACCESSED, _OFFSET = Register("%macro_accessed"), Register("%macro_object")
REGISTERS = {
    **{register.name: "b64" for register in (*_WORDS, _PLACE, *_STEPS, _RECIPE, _OFFSET)},
    _ACCESSED.name: "b32",
}
"""The registers that these macros use, with their types."""

SHAPES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a1d": (1, True), "a2d": (2, True)}
"""The dimensions, and whether there are layers, by PTX's names."""
_OPERAND_ERROR = "PTX line {}: not understood: {}"


def _load_object(instruction: Instruction, object_handle: Operand) -> Iterator[Instruction]:
    tag = Immediate("int", _HANDLE_TAG)
    yield macros.substitute(instruction, "xor.b64", _OFFSET, object_handle, tag)
    for first in range(0, WORDS, 2):
        pair = Vector(_WORDS[first : first + 2])
        yield macros.substitute(instruction, "texture.object", pair, Address(_OFFSET, 8 * first))


def _split_place(
    operand: Operand, shape: str, instruction: Instruction
) -> tuple[Operand, Sequence[Operand]]:
    """The handle and the coordinates of `[handle, {x, y}]`; three are padded to four."""
    if not isinstance(operand, Vector) or len(operand.items) != 2:
        raise PtxError(_OPERAND_ERROR.format(instruction.ptx_line, instruction.opcode))
    return operand.items[0], macros.items_of(operand.items[1])[: sum(SHAPES[shape])]


def expand_fetch(
    shape: str, of: str, channel: str, to: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`tex`, for all channels, and `tld4`."""
    target, operand, *_ = instruction.operands
    item, coordinates = _split_place(operand, shape, instruction)
    yield from _load_object(instruction, item)
    opcode = f"texture.place.{shape}.{of}.{channel}.{to}"
    results = Vector((_PLACE, *_STEPS, _RECIPE))
    yield macros.substitute(instruction, opcode, results, *_WORDS, *coordinates)
    place = Address(_PLACE, 0)
    yield macros.substitute(instruction, "texture.fetch", target, place, *_STEPS, _RECIPE)


SURFACE_REQUEST_LANES = {"": 8, "3d": 4}
"""Lanes that make a request, by dimensions of the surface: docs/results/README.md, "Textures"."""


def expand_surface_access(
    name: str, shape: str, vector: str, bits: str, mode: str, instruction: Instruction
) -> Iterable[Instruction]:
    """`suld.b` and `sust.b`: a plain load or store of the bytes that the instruction moves."""
    loads = name == "suld"
    operand, data = instruction.operands[::-1] if loads else instruction.operands
    item, coordinates = _split_place(operand, shape, instruction)
    items = macros.items_of(data)
    yield from _load_object(instruction, item)
    opcode = f"surface.place.{shape}.{len(items) * int(bits[1:]) // 8}.{mode}"
    results = Vector((_PLACE, _ACCESSED))
    yield macros.substitute(instruction, opcode, results, *_WORDS, *coordinates)
    moved: Operand = Vector(items) if vector else items[0]
    operands = (moved, Address(_PLACE, 0)) if loads else (Address(_PLACE, 0), moved)
    cubic = ".3d" if shape == "3d" else ""
    opcode = f"surface.{'load' if loads else 'store'}{cubic}{vector}.{bits}"
    access = macros.substitute(instruction, opcode, *operands)
    if mode != "zero":
        yield access
        return
    for register in items if loads else ():
        move = f"mov.{bits if bits != 'b8' else 'b16'}"
        yield macros.substitute(instruction, move, register, Immediate("int", 0))
    yield from macros.execute_where("ne", _ACCESSED, 0, access)


def expand_query(attribute: str, instruction: Instruction) -> Iterable[Instruction]:
    """`txq` and `suq`."""
    target, place = instruction.operands
    if not isinstance(place, Address) or place.base is None:
        raise PtxError(_OPERAND_ERROR.format(instruction.ptx_line, instruction.opcode))
    yield from _load_object(instruction, place.base)
    yield macros.substitute(instruction, f"texture.query.{attribute}", target, *_WORDS)
