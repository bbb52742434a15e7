"""The runtime's elements of textures: reads, conversion and interpolation.

The interpolation is that of the CUDA C++ Programming Guide, "Linear Filtering". Weights are
multiples of 1/256, also those of elements in 2 and 3 dimensions; sums are in double precision.
Recipes are those of `isa/textures.py`.
"""

from __future__ import annotations

from typing import Annotated

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.records import Byte, Half, Pointer, Word, pointer_to
from memlab.device.emulator.isa.textures import (
    FORMAT_CHANNELS,
    FORMAT_KIND,
    FORMAT_NORMALIZED_FLOAT,
    RECIPE_FORMAT,
    RECIPE_GATHER,
    RECIPE_VALID,
    RECIPE_WEIGHTS,
)
from memlab.device.emulator.isa.values import F16, F32
from memlab.device.properties import WARP_SIZE

_WEIGHT_UNIT = 2.0**-8
_UNSIGNED, _SIGNED, _FLOAT = range(3)

HalfFloat, Single = Annotated[float, F16], Annotated[float, F32]


@compiled
def element_bytes(recipe: int) -> int:
    """Bytes of an element."""
    form = recipe >> RECIPE_FORMAT
    return (form >> FORMAT_CHANNELS & 7) << (form & 3)


@compiled(inline=True)
def is_valid(recipe: int, corner: int) -> bool:
    """Whether an element exists: it does not lie in the border."""
    valid = 1
    for axis in (0, 1, 2):
        valid = valid & recipe >> RECIPE_VALID + 2 * axis + (corner >> axis & 1)
    return valid != 0


@compiled(inline=False)
def read_element(
    start: int, offsets: Pointer[int], recipe: int, corners: int, results: Pointer[Word]
) -> None:
    """Write the channels of one lane, 32 words apart; elements begin at `start` plus offsets."""
    form, gathered = recipe >> RECIPE_FORMAT, recipe >> RECIPE_GATHER & 7
    kind, channels = form >> FORMAT_KIND & 3, form >> FORMAT_CHANNELS & 7
    number_bytes = 1 << (form & 3)
    is_float = (form >> FORMAT_NORMALIZED_FLOAT & 1) != 0 or kind == _FLOAT
    if kind == _FLOAT and number_bytes == 4 and (corners == 1 or gathered != 0):
        is_float = False  # the bits of a float32 are copied, those of a NaN too
    if gathered != 0:
        for place, corner in ((0, 2), (1, 3), (2, 1), (3, 0)):
            if gathered <= channels and is_valid(recipe, corner):
                number = start + offsets[corner] + (gathered - 1) * number_bytes
                if is_float:
                    results.to(Single)[place * WARP_SIZE] = float_at(number, form)
                else:
                    results[place * WARP_SIZE] = integer_at(number, form)
        return
    for channel in range(channels):
        number = start + channel * number_bytes
        if is_float:
            total = 0.0
            for corner in range(corners):
                if is_valid(recipe, corner):
                    value = float_at(number + offsets[corner], form)
                    total += corner_weight(recipe, corner) * value
            results.to(Single)[channel * WARP_SIZE] = total
        elif is_valid(recipe, 0):
            results[channel * WARP_SIZE] = integer_at(number, form)


@compiled
def corner_weight(recipe: int, corner: int) -> float:
    """The weight of an element.

    A weight of 256 is split along z, x and y, rounded to whole numbers each time. In 1 and 2
    dimensions this gives the weights of an H200; in 3 it differs by 1/256 in a tenth of the
    fetches there (docs/results/README.md, "Textures").
    """
    x, y, z = axis_weight(recipe, 0), axis_weight(recipe, 1), axis_weight(recipe, 2)
    slice_weight = z if corner >> 2 & 1 else 256 - z
    right = slice_weight * x + 128 >> 8
    column = right if corner & 1 else slice_weight - right
    above = column * y + (128 if corner & 1 else 127) >> 8
    return float(above if corner >> 1 & 1 else column - above) * _WEIGHT_UNIT


def axis_weight(recipe: int, axis: int) -> int:
    """The weight of the second element along an axis, in 1/256."""
    return recipe >> RECIPE_WEIGHTS + 8 * axis & 255


@compiled
def integer_at(address: int, form: int) -> int:
    """An integer of a texture, extended."""
    is_signed, shift = (form >> FORMAT_KIND & 3) == _SIGNED, form & 3
    number: int = pointer_to(address, Byte)[0]
    if shift == 1:
        number = pointer_to(address, Half)[0]
    elif shift == 2:
        number = pointer_to(address, Word)[0]
    bits = 8 << shift
    if is_signed and number >> bits - 1 != 0:
        number -= 1 << bits
    return number


@compiled
def float_at(address: int, form: int) -> float:
    """A number of a texture as a float; integers are scaled to [0, 1] or [-1, 1]."""
    if (form >> FORMAT_KIND & 3) == _FLOAT:
        number = 0.0
        if (form & 3) == 1:
            number = float(pointer_to(address, HalfFloat)[0])
        else:
            number = float(pointer_to(address, Single)[0])
        return number
    bits = 8 << (form & 3)
    if (form >> FORMAT_KIND & 3) == _UNSIGNED:
        return float(integer_at(address, form)) / float((1 << bits) - 1)
    value = float(integer_at(address, form)) / float((1 << bits - 1) - 1)
    return value if value > -1.0 else -1.0
