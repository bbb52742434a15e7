"""Special functions in float64, for results that are rounded to float32 or fewer bits.

Each is wrong by about one unit in the last place of float64, so that the rounded result is the
correctly rounded one but for about one argument of 10^8. They are straight arithmetic on vectors:
an argument is reduced, and a polynomial follows. `tests/reference/polynomials.py` derives the
coefficients, ascending: polynomials through the Chebyshev nodes of the interval.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import pairwise

from memlab.device.emulator.isa.values import F64, S64, U32, U64, Value, fma, where

EXP2_MINUS_ONE = (
    0.6931471805599462,
    0.24022650695910075,
    0.05550410866465167,
    0.009618129107618665,
    0.0013333558200794592,
    0.00015403530424776529,
    1.5252672924850737e-05,
    1.3215451633221434e-06,
    1.0205905413765595e-07,
    7.070977866508138e-09,
)
"""`(2^x - 1) / x` on [-1/2, 1/2]."""

LOG2 = (
    2.885390081777927,
    0.9617966939243345,
    0.5770780172463286,
    0.4121984020482752,
    0.32061638813224547,
    0.2614442493522915,
    0.2429160853987535,
)
"""`log2((1 + s) / (1 - s)) / s` in `s^2`, for a logarithm on [sqrt(1/2), sqrt(2)]."""

SINE = (
    -0.16666666666666666,
    0.008333333333330948,
    -0.00019841269836758574,
    2.755731610255244e-06,
    -2.5051131845003624e-08,
    1.5918129294866608e-10,
)
"""`(sin(x)/x - 1) / x^2` in `x^2`, on [-pi/4, pi/4]."""

COSINE = (
    -0.49999999999999967,
    0.04166666666663093,
    -0.0013888888882127952,
    2.480158262335195e-05,
    -2.755585551192951e-07,
    2.066550487012274e-09,
)
"""`(cos(x) - 1) / x^2` in `x^2`, on [-pi/4, pi/4]."""

_FRACTION_BITS = 52  # of a float64
_ROUNDER = 1.5 * 2.0**52
"""Added to a float64 below 2^51, it leaves the nearest integer in the low bits."""


def exp2(x: Value) -> Value:
    """`2^x`; an exponent beyond 200 counts as 200."""
    x = where(x > 200, 200.0, where(x < -200, -200.0, x))
    power, part = _exp2_parts(x)
    return fma(part, power, power)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent, from `e^2x - 1`; beyond 20 it counts as 1."""
    size = abs(x)
    power, part = _exp2_parts(where(size > 20, 20.0, size) * (2 / math.log(2)))
    grown = fma(part, power, power - 1)
    return (grown / (grown + 2)).call("llvm.copysign", x)


def _exp2_parts(x: Value) -> tuple[Value, Value]:
    """`2^n` and `2^(x-n) - 1`, where `n` is the integer nearest to `x`."""
    rounded = x + _ROUNDER
    rest = x - (rounded - _ROUNDER)
    power = ((rounded.bits(S64) << _FRACTION_BITS) + _float_bits(1.0)).bits(F64)
    return power, rest * _polynomial(EXP2_MINUS_ONE, rest)


def log2(x: Value) -> Value:
    """The logarithm to base 2 of what is no subnormal float64."""
    bits = x.bits(S64)
    exponent = bits - _float_bits(math.sqrt(0.5)) >> _FRACTION_BITS
    number = (bits - (exponent << _FRACTION_BITS)).bits(F64)
    s = (number - 1) / (number + 1)
    whole = (exponent + _float_bits(_ROUNDER)).bits(F64) - _ROUNDER
    result = fma(s, _polynomial(LOG2, s * s), whole)
    outside = where(x == 0, -math.inf, where(x < 0, math.nan, x))
    return where((x > 0) & (x < math.inf), result, outside)


def inverse_root(x: Value) -> Value:
    """`1/sqrt(x)`, with a rounding of each."""
    return 1.0 / x.call("llvm.sqrt")


def sin(x: Value) -> Value:
    """The sine of a float32 given as float64."""
    quadrant, rest = _reduce(abs(x))
    return _sine_in_quadrant(quadrant + (x.bits(U64) >> 63 << 1), rest)


def cos(x: Value) -> Value:
    """The cosine of a float32 given as float64."""
    quadrant, rest = _reduce(abs(x))
    return _sine_in_quadrant(quadrant + 1, rest)


def _sine_in_quadrant(quadrant: Value, rest: Value) -> Value:
    square = rest * rest
    sine = fma(rest * square, _polynomial(SINE, square), rest)
    cosine = fma(square, _polynomial(COSINE, square), 1.0)
    result = where((quadrant & 1) != 0, cosine, sine)
    return where((quadrant & 2) != 0, -result, result)


_HUGE = 2.0**24
"""From here on a float32 is an even integer."""

_HALF_PI = float.fromhex("0x1.921FB54442D18"), float.fromhex("0x1.1A62633145C07p-54")
"""`pi/2` as a sum of two float64 (Cody and Waite, "Software manual", 1980)."""

_TWO_OVER_PI_WORDS = (
    0x517CC1B7, 0x27220A94, 0xFE13ABE8, 0xFA9A6EE0, 0x6DB14ACC, 0x9E21C820, 0xFF28B1D5,
)  # fmt: skip
"""`2/pi` in binary after one zero: the bit before the point, then those after it."""


def _reduce(x: Value) -> tuple[Value, Value]:
    """The multiple of `pi/2` nearest to a float32 that is not negative, modulo 4, and the rest."""
    rounded = fma(x, 2 / math.pi, _ROUNDER)
    whole = rounded - _ROUNDER
    rest = x
    for part in _HALF_PI:
        rest = fma(-whole, part, rest)
    quadrant, huge_rest = _reduce_huge(x.bits(U64))
    huge = (x >= _HUGE) & (x < math.inf)
    return where(huge, quadrant, rounded.bits(U64)), where(huge, huge_rest, rest)


def _reduce_huge(bits: Value) -> tuple[Value, Value]:
    """The same for a float32 from 2^24 on, given by the bits of a float64 (Payne and Hanek, 1983).

    The number is a 24-bit integer times a power of two. Of `2/pi`, the bits that the power makes
    multiples of 4 do not matter; the 96 that follow are multiplied.
    """
    number = bits >> (_FRACTION_BITS - 23) & 0x7F_FFFF | 0x80_0000
    start = (bits >> _FRACTION_BITS).to(U32) - (1023 + 24)  # first bit of 2/pi that matters
    words = [start.constant(word) for word in _TWO_OVER_PI_WORDS]
    for skipped in (2, 1):
        skip = (start & 32 * skipped) != 0
        words = [where(skip, b, a) for a, b in zip(words, words[skipped:], strict=False)]
    high, middle, low = (
        number * a.call("llvm.fshl", b, start & 31).to(U64) for a, b in pairwise(words)
    )
    turns = (high << 32) + middle + (low >> 32)  # quarters of a turn, 62 bits after the point
    part = (turns << 2).bits(S64)
    quadrant = (turns >> 62) + (part < 0).to(U64)
    rest = fma((low & 0xFFFF_FFFF).bits(S64).to(F64), 2.0**-94, part.to(F64) * 2.0**-64)
    return quadrant, rest * _HALF_PI[0]


def _polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """A polynomial by Horner's scheme."""
    *others, result = map(x.constant, coefficients)
    for coefficient in reversed(others):
        result = fma(result, x, coefficient)
    return result


def _float_bits(number: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", number))[0])
