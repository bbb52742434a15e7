"""Rounding an exact value to a floating-point format, in each of PTX's four modes.

They are `rn`, `rz`, `rm` and `rp`: to nearest even, towards zero, towards minus and plus infinity
(PTX ISA 9.7.3).

An exact value is an unevaluated sum of two float64: a sum is its two terms, a float32 product is
exact in float64. Formats narrower than float64 are reached through a float64 rounded to odd,
which makes the second rounding harmless in every mode (Boldo and Melquiond, "Emulation of a FMA
and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

from memlab.device.emulator.isa import values
from memlab.device.emulator.isa.values import F32, F64, U16, U32, U64, Lowering, Value, where

_BF16_NAN = 0x7FFF


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """A sum of floats and its exact rounding error (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def fast_two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """As `two_sum`, by magnitude (Dekker): exact also where the terms are near overflow.

    A sum that overflows has an error that is infinite too, of the other sign.
    """
    first = abs(a) >= abs(b)
    larger, lesser = where(first, a, b), where(first, b, a)
    total = larger + lesser
    return total, lesser - (total - larger)


def round_to_odd(a: Value, b: Value) -> Value:
    """`a + b` of floats, rounded to odd where it is inexact."""
    return _make_odd(*two_sum(a, b))


def round_directed(nearest: Value, error: Value, mode: str) -> Value:
    """A value rounded in a mode, from its nearest float and the sign of the remaining error.

    Args:
        nearest: The nearest float; but for `rn`, one of the two next to the exact value. A zero has
            the sign of the exact value, if that is not zero.
        error: The exact value minus `nearest`, of any type of the same sign.
        mode: `rn`, `rz`, `rm` or `rp`.
    """
    if mode == "rn":
        return nearest
    bits = nearest.bits(nearest.type.signed)
    negative = bits >> (nearest.type.bits - 1)  # 0 or -1
    if mode == "rz":
        wrong, next_bits = where(bits < 0, error > 0, error < 0), bits - 1
    elif mode == "rm":
        wrong, next_bits = error < 0, bits + (~negative | 1)
    else:
        wrong, next_bits = error > 0, bits + (negative | 1)
    return where(wrong, next_bits, bits).bits(nearest.type)


def widened(value: Value, ptx_type: str) -> Value:
    """A value of a type up to float32 as float32, exactly; float64 as it is."""
    if ptx_type == "bf16":
        return (value.to(U32) << 16).bits(F32)
    return value if ptx_type == "f64" else value.to(F32)


def computed_in(
    wide: values.ElementType, function: Lowering, ptx_type: str, *sources: Value, mode: str = "rn"
) -> Value:
    """A function of a type up to float32, computed in a wider one and rounded once."""
    inputs = (widened(source, ptx_type).to(wide) for source in sources)
    return round_value(function(*inputs), ptx_type, mode)


def round_sum(high: Value, low: Value, ptx_type: str, mode: str = "rn") -> Value:
    """The exact value `high + low` as lanes of a floating-point type.

    Args:
        high: float64.
        low: float64; for a single value, a zero of its sign.
        ptx_type: `f16`, `bf16`, `f32` or `f64`.
        mode: `rn`, `rz`, `rm` or `rp`.
    """
    total, error = two_sum(high, low)
    if ptx_type == "f64":
        result = round_directed(total, error, mode)
    elif (ptx_type, mode) == ("f32", "rn"):
        result = _make_odd(total, error).to(F32)
    else:
        near = total.to(F32)  # or the float32 next to it is the nearest
        rest = total - near.to(F64) + error
        if ptx_type == "f32":
            result = round_directed(near, rest, mode)
        else:
            result = round_value(_make_odd(near, rest), ptx_type, mode)
    return signed_zero(result, high + low == 0, high, low) if mode == "rm" else result


def signed_zero(result: Value, zero: Value, *terms: Value) -> Value:
    """In `rm`, a sum that is exactly zero is -0 unless all terms are +0 (IEEE 754, 6.3).

    Args:
        result: The sum rounded.
        zero: Whether it is exactly zero.
        *terms: The terms.
    """
    for term in terms:
        result = where(zero & term.has_sign, result.constant(-0.0), result)
    return result


def round_value(value: Value, ptx_type: str, mode: str = "rn") -> Value:
    """An exact float of any type as lanes of a floating-point type."""
    if ptx_type == "bf16":
        return _round_bf16(_narrow_to_odd(value), mode)
    target = values.element_type(ptx_type)
    if ptx_type == "f16":
        odd = value.type == F64 and mode == "rn"
        value = _odd_in_24_bits(value).to(F32) if odd else _narrow_to_odd(value)
    nearest = value.to(target)
    if mode == "rn" or target.bits >= value.type.bits:
        return nearest
    return round_directed(nearest, value - nearest.to(value.type), mode)


def _make_odd(nearest: Value, error: Value) -> Value:
    """An exact value rounded to odd, from a float next to it and the error that remains."""
    unsigned = nearest.type.unsigned
    inexact = ((error < 0) | (error > 0)).to(unsigned)
    truncated = round_directed(nearest, error, "rz").bits(unsigned)
    return (truncated | inexact).bits(nearest.type)


def _narrow_to_odd(value: Value) -> Value:
    """A float64 as float32, rounded to odd; narrower types exactly."""
    nearest = value.to(F32)
    return _make_odd(nearest, value - nearest.to(F64)) if value.type == F64 else nearest


def _odd_in_24_bits(value: Value) -> Value:
    """A float64 rounded to odd in the precision of float32; it keeps its range.

    Faster than `_narrow_to_odd`. As float32 it is exact, or far below the least half.
    """
    bits, tail = value.bits(U64), (1 << 29) - 1
    odd = bits | ((bits & tail) + tail)  # carries into the last bit kept unless the tail is zero
    return (odd & ~tail).bits(F64)


def _round_bf16(value: Value, mode: str) -> Value:
    """The upper half of a float32."""
    bits = value.bits(U32)
    if mode == "rn":
        bits = bits + ((bits >> 16 & 1) + 0x7FFF)
    elif mode != "rz":
        away = value.has_sign if mode == "rm" else ~value.has_sign
        bits = where(away, bits + 0xFFFF, bits)
    return where(value.is_nan, _BF16_NAN, bits >> 16).to(U16)
