"""The integer and bit instructions, lowered to LLVM.

The definitions are those of the PTX ISA, chapters 9.7.1, 9.7.2 and 9.7.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from memlab.device.emulator.isa import values
from memlab.device.emulator.isa.values import PRED, S32, U8, U32, Value, maximum, minimum, where
from memlab.device.emulator.ptx.parser import PtxError

# --- Arithmetic ----------------------------------------------------------------------------


def multiply_wide(a: Value, b: Value) -> Value:
    """The whole product, of twice the width."""
    wide = values.ElementType(a.type.kind, 2 * a.type.bits)
    return a.to(wide) * b.to(wide)


def multiply_high(a: Value, b: Value) -> Value:
    """The upper half of the product."""
    return (multiply_wide(a, b) >> a.type.bits).to(a.type)


def multiply_24(half: str, kind: str, a: Value, b: Value, *added: Value) -> Value:
    """`mul24`, `mad24`: the low or high 32 of the 48 bits of the product of the low 24 bits."""
    x, y = ((value << 8) >> 8 for value in (a, b))
    product = x * y if half == "lo" else (multiply_wide(x, y) >> 16).to(a.type)
    return sum(added, product)


def absolute_difference(a: Value, b: Value) -> Value:
    """`|a - b|`, as bits."""
    return maximum(a, b) - minimum(a, b)


def divide_integers(a: Value, b: Value) -> Value:
    """The quotient, rounded toward zero; all ones where the divisor is zero, as a GPU gives.

    No CPU divides vectors of integers, but floats. The quotient x/y of integers of 32 bits in
    float64 (16 bits in float32) is not rounded up to the next integer, from which it is at least
    1/y away, whereas the error of rounding is at most x/y * 2^-53 < 1/y.
    """
    x, y = (abs(value).to(value.type.unsigned) for value in (a, b))
    y = where(y == 0, 1, y)
    if a.type.bits < 64:
        real = values.F64 if a.type.bits == 32 else values.F32
        quotient = (x.to(real) / y.to(real)).to(x.type).to(a.type)
    else:
        quotient = Value(a.builder, a.builder.udiv(x.ir, y.ir), a.type)
    if a.type.kind == "i":
        quotient = where((a ^ b) < 0, -quotient, quotient)
    return where(b == 0, -1, quotient)


def remainder(a: Value, b: Value) -> Value:
    """The remainder, of the dividend's sign; as a GPU gives it where the divisor is zero."""
    return where(b == 0, -1, a - divide_integers(a, b) * b)


def add_carry(name: str, cc: str, ptx_type: str, *sources: Value) -> Value | tuple[Value, Value]:
    """`add`, `addc`, `sub` and `subc`: an unsigned sum, and with `.cc` its carry.

    A difference is `a + ~b + carry`; its carry is set where nothing was borrowed. The PTX ISA calls
    the flag a borrow, which is the same to a chain of subtractions; what NVIDIA's compiler makes of
    a 128-bit division reads it by `addc`, where it is the adder's carry.
    """
    a, b, *given = sources
    carry = given[0] if given else a.constant(name == "sub", PRED)
    total = a + (~b if name.startswith("sub") else b)
    whole = total + carry.to(a.type)
    return (whole, (total < a) | (whole < total)) if cc else whole


def multiply_add_carry(
    name: str, half: str, cc: str, ptx_type: str, a: Value, b: Value, c: Value, *carry: Value
) -> Value | tuple[Value, Value]:
    """`mad` and `madc`: low or high half of a product, plus a third and the carry."""
    product = multiply_high(a, b) if half == "hi" else a * b
    terms = (value.bits(a.type.unsigned) for value in (product, c))
    return add_carry(name, cc, ptx_type, *terms, *carry)


def dot_product(
    size: int, half: str, of_a: str, of_b: str, a: Value, b: Value, total: Value
) -> Value:
    """`dp4a`, `dp2a`: the sum of products of the parts of `a` with bytes of `b`, added to a total.

    Args:
        size: The bits of a part of `a`.
        half: Of `b`, where it has more bytes than `a` has parts: `lo` or `hi`.
        of_a: `s32` or `u32`, whose sign the parts have.
        of_b: The same for `b`.
        a: The parts.
        b: The bytes.
        total: The total.
    """
    count, start = 32 // size, 2 * (half == "hi")
    a_part, b_part = values.element_type(f"{of_a[0]}{size}"), values.element_type(f"{of_b[0]}8")
    for index in range(count):
        x = (a >> index * size).to(a_part).to(total.type)
        y = (b >> (start + index) * 8).to(b_part).to(total.type)
        total = total + x * y
    return total


def packed_absolute_differences(
    part: values.ElementType, add: str, a: Value, b: Value, total: Value
) -> Value:
    """`vabsdiff2`, `vabsdiff4`: `|a - b|` of each part; with `.add` their sum plus `total`."""
    differences = absolute_difference(a.bits(part), b.bits(part)).bits(a.type)
    if not add:
        return differences
    for place in range(0, 32, part.bits):
        total = total + ((differences >> place) & part.most)
    return total


# --- Bits ----------------------------------------------------------------------------------


def bit_mask(mode: str, start: Value, width: Value) -> Value:
    """`bmsk`: so many ones from a bit on; beyond 31 both are clamped to 32, or wrap."""
    if mode == "wrap":
        start, width = start & 31, width & 31
    return shift_left(~shift_left(start.constant(-1), width), start)


def extend_low_bits(mode: str, kind: str, value: Value, count: Value) -> Value:
    """`szext`: the low bits, as many as the second source says, with sign (`s32`) or without.

    Of 32 and more, all are kept (`clamp`), or the count is taken modulo 32 (`wrap`).
    """
    return extend_field(
        value.to(values.element_type(kind)), count & 31 if mode == "wrap" else count
    )


def extend_field(value: Value, count: Value) -> Value:
    """The low bits, as many as `count` says, extended by the highest of them or by zeros."""
    width = value.type.bits
    above = (width - minimum(count, width)).to(value.type)  # `width` only for no bits
    return where(count == 0, 0, (value << above) >> above)


def joined_lookup(join: str, *sources: Value) -> tuple[Value, Value]:
    """`lop3` with a predicate: whether the result is not 0, joined with another one by `join`."""
    *words, other = sources
    result = bitwise_lookup(*words)
    found = result != 0
    return result, found | other if join == "or" else found & other


def popcount(value: Value) -> Value:
    """How many bits are set."""
    return value.call("llvm.ctpop").to(U32)


def leading_zeros(value: Value) -> Value:
    """Zeros above the highest set bit."""
    return value.call("llvm.ctlz", flag=False).to(U32)


def _leading_copies(value: Value) -> Value:
    """How many bits above the highest that differs from the sign, or is set if unsigned."""
    bits = value ^ (value >> value.type.bits - 1) if value.type.kind == "i" else value
    return leading_zeros(bits.to(value.type.unsigned))


def find_leading_bit(value: Value) -> Value:
    """The place of the highest bit that differs from the sign, from 0; all ones where none."""
    return value.type.bits - 1 - _leading_copies(value)


def shift_to_leading(value: Value) -> Value:
    """How far left that bit could be shifted; all ones where there is none."""
    above = _leading_copies(value)
    return where(above == value.type.bits, -1, above)


def find_nth_set_bit(mask: Value, base: Value, offset: Value) -> Value:
    """`fns`: the place of the |offset|th set bit from `base` on, upwards or downwards.

    Downwards is upwards in the reversed mask. The place is searched by counting the bits in halves.
    An offset of 0 asks whether the bit at `base` itself is set.
    """
    down = offset < 0
    bits = where(down, mask.call("llvm.bitreverse"), mask)
    start = where(down, 31 - base, base)
    bits = where(base < 32, bits & (start.constant(-1) << (start & 31)), 0)
    wanted = maximum(abs(offset).to(U32), 1)
    missing = wanted > popcount(bits)
    place = bits.constant(0)
    for half in (16, 8, 4, 2, 1):
        count = popcount((bits >> place) & ((1 << half) - 1))
        beyond = wanted > count
        wanted = where(beyond, wanted - count, wanted)
        place = where(beyond, place + half, place)
    missing = missing | ((offset == 0) & (place != base))
    return where(missing, -1, where(down, 31 - place, place))


def extract_bits(value: Value, place: Value, length: Value) -> Value:
    """`bfe`: a bit field, signed values extended from its highest bit (or the value's)."""
    return extend_field(shift_right(value, place & 255), length & 255)


def insert_bits(field: Value, value: Value, place: Value, length: Value) -> Value:
    """`bfi`: `value` with the low bits of `field` put in at a place."""
    place, length = place & 255, length & 255
    mask = shift_left(~shift_left(value.constant(-1), length), place)
    return (value & ~mask) | (shift_left(field, place) & mask)


def permute_bytes(a: Value, b: Value, selector: Value) -> Value:
    """`prmt`: any four bytes of two registers; a selector's fourth bit spreads the sign."""
    if selector.known is not None and not selector.known & 0x8888:
        return _shuffle_bytes(a, b, selector.known)
    result = a.constant(0)
    for index in range(4):
        chosen = selector >> 4 * index
        word = where((chosen & 4) == 0, a, b)
        byte = ((word >> ((chosen & 3) << 3)) << 24).to(S32)
        byte = where((chosen & 8) == 0, byte, byte >> 31).to(U32)
        result = result | byte >> 24 << 8 * index
    return result


def _shuffle_bytes(a: Value, b: Value, selector: int) -> Value:
    """`prmt` by a constant: LLVM numbers the bytes of all lanes of `a`, then those of `b`."""
    places = [
        4 * lane + (digit & 3) + (digit & 4) * a.lanes
        for lane in range(a.lanes)
        for digit in (selector >> 4 * index & 7 for index in range(4))
    ]
    return values.shuffled(a.bits(U8), places, b.bits(U8)).bits(U32)


PERMUTE_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
"""The selectors that `prmt`'s modes stand for (PTX ISA, `prmt`)."""


def permute_mode(mode: str, a: Value, b: Value, control: Value) -> Value:
    """`prmt` in one of its modes: the control's low two bits choose."""
    selector = control.constant(0)
    for number, of_number in enumerate(PERMUTE_MODES[mode]):
        selector = where((control & 3) == number, of_number, selector)
    return permute_bytes(a, b, selector)


def bitwise_lookup(a: Value, b: Value, c: Value, table: Value) -> Value:
    """`lop3`: any function of three bits; bit `4a + 2b + c` of the table is its value.

    Raises:
        PtxError: The table is no constant.
    """
    if table.known is None:
        raise PtxError("lop3 needs a constant table")
    return _lookup(table.known & 0xFF, (a, b, c))


def _lookup(table: int, sources: Sequence[Value]) -> Value:
    """The function whose value is bit `4a + 2b + c` of a table, or `2b + c` of two sources'."""
    first, *others = sources
    half = 1 << len(others)  # so many bits of the table are for a 0 of the first source
    ones = (1 << half) - 1
    zero, one = table & ones, table >> half
    if zero == one:
        return _lookup(zero, others) if others else first.constant(-zero)
    if not others:
        return ~first if zero else first
    if zero == one ^ ones:
        return first ^ _lookup(zero, others)
    if zero in (0, ones):
        chosen = _lookup(one, others)
        return first & chosen if zero == 0 else ~first | chosen
    chosen = _lookup(zero, others)
    if one in (0, ones):
        return ~first & chosen if one == 0 else first | chosen
    return chosen ^ (first & _lookup(zero ^ one, others))


# --- Shifts --------------------------------------------------------------------------------


def shift_left(value: Value, amount: Value) -> Value:
    """Shift left; an amount of the width or more gives 0 (PTX ISA, `shl`)."""
    known, width = amount.known, value.type.bits
    if known is not None:
        return value << known if known < width else value.constant(0)
    return where(amount < width, value << amount.to(value.type), 0)


def shift_right(value: Value, amount: Value) -> Value:
    """Shift right; an amount of the width or more gives 0, or the sign of a signed value."""
    known, width = amount.known, value.type.bits
    signed = value.type.kind == "i"
    if known is not None:
        return value >> min(known, width - 1) if signed or known < width else value.constant(0)
    if signed:
        return value >> minimum(amount, width - 1).to(value.type)
    return where(amount < width, value >> amount.to(value.type), 0)


def funnel_shift(direction: str, beyond: str, low: Value, high: Value, amount: Value) -> Value:
    """`shf`: shift 64 bits and keep the upper half (`l`) or the lower one (`r`)."""
    shifted = high.call(f"llvm.fsh{direction}", low, amount)  # takes it modulo 32
    if beyond == "wrap":
        return shifted
    return where(amount < 32, shifted, low if direction == "l" else high)


# --- Atomics -------------------------------------------------------------------------------


def increment(old: Value, limit: Value) -> Value:
    """`atom.inc`: up by one, back to 0 from the limit."""
    return where(old >= limit, 0, old + 1)


def decrement(old: Value, limit: Value) -> Value:
    """`atom.dec`: down by one, to the limit from 0 or from above it."""
    return where((old == 0) | (old > limit), limit, old - 1)
