"""Floating-point numbers of 8 bits: PTX's `e4m3` and `e5m2`.

`e4m3` has no infinity and one NaN of each sign; `e5m2` is the upper half of a float16.
"""

from __future__ import annotations

from memlab.device.emulator.isa.values import F16, F32, U8, U16, U32, Value, combine, where

# Bits of the fraction, the exponent of the least number that is not subnormal, the largest number.
_FORMATS = {"e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}
NUMBERS = tuple(_FORMATS)
_NAN, _HALF_NAN = 0x7F, 0x7FFF
_FRACTION_BITS, _BIAS = 23, 127  # of a float32


def _nearest_code(relu: str, number: str, value: Value) -> Value:
    """Float32 to their nearest codes, ties to even; larger values to the largest number."""
    fraction, exponent, largest = _FORMATS[number]
    cut = _FRACTION_BITS - fraction
    coarse = exponent + cut  # from 2^coarse on float32 have the step of the format's subnormals
    coarse_bits = (_BIAS + coarse) << _FRACTION_BITS
    if relu:
        value = where(value < 0, 0.0, value)
    size = abs(value)
    size = where(size > largest, largest, size)
    bits = size.bits(U32)
    rounded = (bits + (bits >> cut & 1) + ((1 << cut - 1) - 1)) >> cut
    normal = rounded - (_BIAS + exponent - 1 << fraction)
    subnormal = (size + 2.0**coarse).bits(U32) - coarse_bits
    code = where(size < 2.0**exponent, subnormal, normal) | (value.bits(U32) >> 24 & 0x80)
    return where(value.is_nan, _NAN, code).to(U8)


def encode_pair(relu: str, number: str, upper: Value, lower: Value) -> Value:
    """Two float32 to a pair of codes, the first in the upper byte."""
    return combine(_nearest_code(relu, number, lower), _nearest_code(relu, number, upper))


def encode_halves(relu: str, number: str, pair: Value) -> Value:
    """A packed pair of float16 to a pair of codes."""
    return _nearest_code(relu, number, pair.bits(F16).to(F32)).bits(U16)


def decode_pair(relu: str, number: str, pair: Value) -> Value:
    """A pair of codes to a packed pair of float16."""
    half = decode(number, pair.bits(U8))
    if relu:
        half = where(half < 0, 0.0, half)
    return half.bits(U32)


def decode(number: str, codes: Value) -> Value:
    """Codes of 8 bits to float16, which holds each exactly.

    The exponents of `e4m3` begin at -6, those of a float16 at -14.
    """
    code = codes.to(U16)
    size = code & 0x7F
    if number == "e5m2":
        half, nan = (code << 8).bits(F16), size > 0x7C
    else:
        half, nan = ((code & 0x80) << 8 | size << 7).bits(F16) * 256, size == _NAN
    return where(nan, _HALF_NAN, half.bits(U16)).bits(F16)
