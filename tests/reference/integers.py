"""The integer and bit instructions in NumPy.

Each function takes NumPy arrays (0-dimensional for constants) of the types that the instruction
names. The definitions are those of the PTX ISA, chapters 9.7.1, 9.7.2 and 9.7.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

LaneValues: TypeAlias = Any
Function: TypeAlias = Callable[..., Any]


def _width(value: LaneValues) -> int:
    return int(value.dtype.itemsize) * 8


def _unsigned(value: LaneValues) -> LaneValues:
    return value.astype(f"u{value.dtype.itemsize}")


# --- Arithmetic ----------------------------------------------------------------------------


def multiply_high(a: LaneValues, b: LaneValues) -> LaneValues:
    """The upper half of the product."""
    width, kind = _width(a), a.dtype.kind
    if width < 64:
        wide = np.dtype(f"{kind}{width // 4}")
        return (np.multiply(a, b, dtype=wide) >> wide.type(width)).astype(a.dtype)
    x, y = _unsigned(a), _unsigned(b)
    mask, half = np.uint64(0xFFFF_FFFF), np.uint64(32)
    x_low, x_high, y_low, y_high = x & mask, x >> half, y & mask, y >> half
    middle = x_high * y_low + (x_low * y_low >> half)
    cross = x_low * y_high + (middle & mask)
    high = x_high * y_high + (middle >> half) + (cross >> half)
    if kind == "i":  # as unsigned numbers, negative ones are too large by 2**64
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def multiply_high_add(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """The upper half of the product, plus a third."""
    return multiply_high(a, b) + c


def multiply_high_add_saturated(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """The upper half of the product plus a third, clamped to the range of `s32`."""
    return add_saturated(multiply_high(a, b), c)


def multiply_24(a: LaneValues, b: LaneValues, half: str) -> LaneValues:
    """The low or high 32 of the 48 bits that the product of the low 24 bits has."""
    up = np.array(40, f"{a.dtype.kind}8")
    x, y = ((value.astype(up.dtype) << up) >> up for value in (a, b))
    return ((x * y) >> up.dtype.type(16 if half == "hi" else 0)).astype(a.dtype)


def absolute_difference(a: LaneValues, b: LaneValues) -> LaneValues:
    """`|a - b|`, as bits."""
    return np.where(a < b, b - a, a - b)


def divide_integers(a: LaneValues, b: LaneValues) -> LaneValues:
    """The quotient, rounded toward zero; all ones where the divisor is zero, as a GPU gives."""
    x, y = (_unsigned(np.abs(value)) if value.dtype.kind == "i" else value for value in (a, b))
    quotient = x // np.where(y == 0, y.dtype.type(1), y)
    if a.dtype.kind == "i":
        quotient = np.where((a < 0) != (b < 0), ~quotient + quotient.dtype.type(1), quotient)
    return np.where(b == 0, ~quotient.dtype.type(0), quotient).astype(a.dtype)


def remainder(a: LaneValues, b: LaneValues) -> LaneValues:
    """The remainder, of the dividend's sign; as a GPU gives it where the divisor is zero."""
    return np.where(b == 0, ~a.dtype.type(0), a - divide_integers(a, b) * b)


def add_saturated(a: LaneValues, b: LaneValues) -> LaneValues:
    """The sum of two `s32`, clamped to their range."""
    return np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32)


def subtract_saturated(a: LaneValues, b: LaneValues) -> LaneValues:
    """The difference of two `s32`, clamped to their range."""
    return np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32)


def add_carry(a: LaneValues, b: LaneValues, carry: LaneValues) -> tuple[LaneValues, LaneValues]:
    """Unsigned sum and carry out."""
    total = a + b
    whole = total + carry.astype(a.dtype)
    return whole, (total < a) | (whole < total)


def subtract_carry(
    a: LaneValues, b: LaneValues, carry: LaneValues
) -> tuple[LaneValues, LaneValues]:
    """Unsigned `a + ~b + carry` and carry out: set where nothing was borrowed.

    The PTX ISA calls the flag a borrow, which is the same to a chain of subtractions; what NVIDIA's
    compiler makes of a 128-bit division reads it by `addc`, where it is the adder's carry.
    """
    return add_carry(a, ~b, carry)


def multiply_add_carry(half: str) -> Function:
    """Low or high half of a product, plus a third and the carry."""
    multiply = multiply_high if half == "hi" else np.multiply

    def run(
        a: LaneValues, b: LaneValues, c: LaneValues, carry: LaneValues
    ) -> tuple[LaneValues, LaneValues]:
        total, out = add_carry(_unsigned(multiply(a, b)), _unsigned(c), carry)
        return total.astype(a.dtype), out

    return run


def without_carry_in(function: Function, carry: bool = False) -> Function:
    """A function of a carry, with always the same coming in."""
    return lambda *sources: function(*sources, np.array(carry))


def without_carry_out(function: Function) -> Function:
    """A function of a carry, whose own carry is dropped."""
    return lambda *sources: function(*sources)[0]


def dot_product(
    a: LaneValues, b: LaneValues, c: LaneValues, a_part: str, b_part: str, start: int = 0
) -> LaneValues:
    """`c` plus the products of the parts of `a` with the bytes of `b` from the `start`th on."""
    total = c.astype(np.int64)
    bits = np.dtype(a_part).itemsize * 8
    for index in range(32 // bits):
        x = (a >> a.dtype.type(index * bits)).astype(a_part).astype(np.int64)
        y = (b >> b.dtype.type((start + index) * 8)).astype(b_part).astype(np.int64)
        total = total + x * y
    return total.astype(c.dtype)


def packed_absolute_differences(add: str, parts: int) -> Function:
    """`vabsdiff2`, `vabsdiff4`: `|a - b|` of each half or byte; with `.add` their sum plus `c`."""
    bits = 32 // parts

    def run(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
        total = c if add else np.uint32(0)
        for place in range(parts):
            shift = np.uint32(bits * place)
            x, y = (value >> shift & np.uint32((1 << bits) - 1) for value in (a, b))
            total = total + (
                absolute_difference(x, y) if add else absolute_difference(x, y) << shift
            )
        return np.asarray(total)

    return run


def with_integer_relu(function: Function) -> Function:
    """`.relu`: negative results become 0."""
    return lambda a, b: np.maximum(function(a, b), 0)


# --- Bits ----------------------------------------------------------------------------------


def bit_mask(mode: str) -> Function:
    """`bmsk`: so many ones from a bit on; beyond 31 both are clamped to 32, or wrap."""

    def run(start: LaneValues, width: LaneValues) -> LaneValues:
        if mode == "wrap":
            start, width = start & np.uint32(31), width & np.uint32(31)
        ones = (np.uint64(1) << np.minimum(width, 32).astype(np.uint64)) - np.uint64(1)
        return (ones << np.minimum(start, 32).astype(np.uint64)).astype(np.uint32)

    return run


def extend_low_bits(mode: str, kind: str) -> Function:
    """`szext`: the low bits, as many as the second source says, with sign (`s32`) or without.

    Of 32 and more, all are kept (`clamp`), or the count is taken modulo 32 (`wrap`).
    """

    def run(value: LaneValues, count: LaneValues) -> LaneValues:
        places = count & np.uint32(31)
        above = ~np.uint32(0) << places
        if mode == "clamp":
            above = np.where(count >= 32, np.uint32(0), above)
        kept = value & ~above
        if kind == "s32":
            sign = value >> (places - np.uint32(1) & np.uint32(31)) & np.uint32(1)
            kept = np.where((places > 0) & (sign == 1), kept | above, kept)
        return np.asarray(kept).view("i4" if kind == "s32" else "u4")

    return run


def popcount(value: LaneValues) -> LaneValues:
    """How many bits are set."""
    one, two, four = (value.dtype.type(number) for number in (1, 2, 4))
    ones = ~value.dtype.type(0)
    x = value - ((value >> one) & (ones // value.dtype.type(3)))
    pairs = ones // value.dtype.type(5)
    x = (x & pairs) + ((x >> two) & pairs)
    x = (x + (x >> four)) & (ones // value.dtype.type(17))
    total = x * (ones // value.dtype.type(255))
    return (total >> value.dtype.type(_width(value) - 8)).astype(np.uint32)


def bit_length(value: LaneValues) -> LaneValues:
    """The place of the highest set bit, from 1; 0 where none is set."""
    low = np.frexp((value & value.dtype.type(0xFFFF_FFFF)).astype(np.float64))[1]
    if _width(value) == 32:
        return low.astype(np.uint32)
    high = np.frexp((value >> value.dtype.type(32)).astype(np.float64))[1]
    return np.where(high > 0, high + 32, low).astype(np.uint32)


def leading_zeros(value: LaneValues) -> LaneValues:
    """Zeros above the highest set bit."""
    return np.uint32(_width(value)) - bit_length(value)


def find_leading_bit(value: LaneValues) -> LaneValues:
    """The place of the highest bit that differs from the sign, from 0; all ones where none."""
    bits = np.where(value < 0, ~value, value) if value.dtype.kind == "i" else value
    return bit_length(_unsigned(bits)) - np.uint32(1)


def shift_to_leading(value: LaneValues) -> LaneValues:
    """How far left that bit could be shifted; all ones where there is none."""
    place = find_leading_bit(value)
    none = place == np.uint32(0xFFFF_FFFF)
    return np.where(none, place, np.uint32(_width(value) - 1) - place)


def reverse_bits(value: LaneValues) -> LaneValues:
    """The bits in reverse order."""
    width = _width(value)
    step = width // 2
    mask = ~value.dtype.type(0)
    while step:
        mask = mask ^ (mask << value.dtype.type(step))
        shift = value.dtype.type(step)
        value = ((value >> shift) & mask) | ((value & mask) << shift)
        step //= 2
    return value


def find_nth_set_bit(mask: LaneValues, base: LaneValues, offset: LaneValues) -> LaneValues:
    """`fns`: the place of the |offset|th set bit from `base` on, upwards or downwards."""
    mask, base, offset = np.broadcast_arrays(mask, base, offset)
    found = np.full(mask.shape, 0xFFFF_FFFF, np.uint32)
    count = np.zeros(mask.shape, np.int64)
    wanted = np.maximum(np.abs(offset.astype(np.int64)), 1)
    direction = np.where(offset < 0, -1, 1)
    for step in range(32):
        place = base.astype(np.int64) + step * direction
        inside = (place >= 0) & (place < 32) & (base < 32) & ((offset != 0) | (step == 0))
        is_set = inside & ((mask >> np.clip(place, 0, 31).astype(np.uint32)) & 1 == 1)
        count = count + is_set
        hit = is_set & (count == wanted) & (found == np.uint32(0xFFFF_FFFF))
        found = np.where(hit, place, found).astype(np.uint32)
    return found


def extract_bits(value: LaneValues, place: LaneValues, length: LaneValues) -> LaneValues:
    """`bfe`: a bit field, signed values extended from its highest bit (or the value's)."""
    width = _width(value)
    place, length = place & np.uint32(255), length & np.uint32(255)
    bits = _unsigned(value)
    field = shift_right(bits, place) & ~shift_left(~bits.dtype.type(0) + bits * 0, length)
    if value.dtype.kind == "u":
        return field
    highest = np.minimum(place + length - np.uint32(1), np.uint32(width - 1))
    negative = (length > 0) & (shift_right(bits, highest) & bits.dtype.type(1) == 1)
    kept = np.minimum(length, np.uint32(width) - np.minimum(place, np.uint32(width)))
    above = shift_left(~bits.dtype.type(0) + bits * 0, kept)
    return np.where(negative, field | above, field).astype(value.dtype)


def insert_bits(
    field: LaneValues, value: LaneValues, place: LaneValues, length: LaneValues
) -> LaneValues:
    """`bfi`: `value` with the low bits of `field` put in at a place."""
    place, length = place & np.uint32(255), length & np.uint32(255)
    ones = ~value.dtype.type(0) + value * 0
    mask = shift_left(~shift_left(ones, length), place)
    return (value & ~mask) | (shift_left(field + value * 0, place) & mask)


def permute_bytes(a: LaneValues, b: LaneValues, selector: LaneValues) -> LaneValues:
    """`prmt`: any four bytes of two registers; a selector's fourth bit spreads the sign."""
    both = b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)
    result: LaneValues = np.uint32(0)
    for index in range(4):
        chosen = selector >> np.uint32(4 * index)
        byte = both >> (np.uint64(8) * (chosen & np.uint32(7))) & np.uint64(255)
        spread = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
        byte = np.where(chosen & np.uint32(8), spread, byte)
        result = result | byte.astype(np.uint32) << np.uint32(8 * index)
    return np.asarray(result)


_PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""The selectors that `prmt`'s modes stand for (PTX ISA, `prmt`)."""
PERMUTE_MODES = tuple(_PERMUTE_MODES)


def permute_mode(a: LaneValues, b: LaneValues, control: LaneValues, mode: str) -> LaneValues:
    """`prmt` in one of its modes: the control's low two bits choose."""
    return permute_bytes(a, b, np.array(_PERMUTE_MODES[mode], np.uint32)[control & np.uint32(3)])


def bitwise_lookup(a: LaneValues, b: LaneValues, c: LaneValues, table: LaneValues) -> LaneValues:
    """`lop3`: any function of three bits; bit `4a + 2b + c` of the table is its value."""
    result: LaneValues = np.uint32(0)
    for index in range(8):
        term = a if index & 4 else ~a
        term = term & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        chosen = np.where(table >> np.uint32(index) & np.uint32(1), ~np.uint32(0), np.uint32(0))
        result = result | (term & chosen)
    return np.asarray(result)


def joined_lookup(join: str) -> Function:
    """`lop3` with a predicate: the word, and whether it is not 0, joined with another predicate."""

    def run(*sources: LaneValues) -> tuple[LaneValues, LaneValues]:
        word = bitwise_lookup(*sources[:4])
        joined = {"or": np.logical_or, "and": np.logical_and}[join]
        return word, joined(word != 0, sources[4])

    return run


# --- Shifts --------------------------------------------------------------------------------


def shift_left(value: LaneValues, amount: LaneValues) -> LaneValues:
    """Shift left; an amount of the width or more gives 0 (PTX ISA, `shl`)."""
    width = _width(value)
    shifted = value << (amount & np.uint32(width - 1)).astype(value.dtype)
    return np.where(amount >= width, value.dtype.type(0), shifted)


def shift_right(value: LaneValues, amount: LaneValues) -> LaneValues:
    """Shift right; an amount of the width or more gives 0, or the sign of a signed value."""
    width = _width(value)
    clamped = np.minimum(amount, np.uint32(width - 1)).astype(value.dtype)
    shifted = value >> clamped
    if value.dtype.kind == "i":
        return shifted
    return np.where(amount >= width, value.dtype.type(0), shifted)


def funnel_shift(direction: str, overshoot: str) -> Function:
    """`shf`: shift 64 bits and keep the upper half (`l`) or the lower one (`r`)."""

    def run(low: LaneValues, high: LaneValues, amount: LaneValues) -> LaneValues:
        clamp = overshoot == "clamp"
        shift = np.minimum(amount, np.uint32(32)) if clamp else amount & np.uint32(31)
        both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        if direction == "l":
            return (both << shift.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
        return (both >> shift.astype(np.uint64)).astype(np.uint32)

    return run


# --- Atomics -------------------------------------------------------------------------------


def increment(old: LaneValues, limit: LaneValues) -> LaneValues:
    """`atom.inc`: up by one, back to 0 from the limit."""
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def decrement(old: LaneValues, limit: LaneValues) -> LaneValues:
    """`atom.dec`: down by one, to the limit from 0 or from above it."""
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def compare_and_swap(old: LaneValues, expected: LaneValues, new: LaneValues) -> LaneValues:
    """`atom.cas`."""
    return np.where(old == expected, new, old)
