"""The conversions of `cvt` for every pair of types, lowered to LLVM (PTX ISA, `cvt`)."""

from __future__ import annotations

from memlab.device.emulator.isa import values
from memlab.device.emulator.isa.arithmetic import (
    canonicalize_nan,
    exact,
    flush,
    rectify,
    saturate,
)
from memlab.device.emulator.isa.rounding import round_sum, round_value, widened
from memlab.device.emulator.isa.values import F32, F64, U32, Value, clamp, element_type, where

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""LLVM's rounding to an integral value: nearest even, toward zero, down, up."""


def between_integers(sat: str, to: str, of: str, a: Value) -> Value:
    """Integer to integer: extended or cut to its low bits, or clamped to the range."""
    kind = element_type(to)
    return (clamp(a, kind.least, kind.most) if sat else a).to(kind)


def from_integer(mode: str, ftz: str, sat: str, to: str, of: str, a: Value) -> Value:
    """Integer to floating point; no float32 that is a whole number is subnormal."""
    return saturate(_rounded_integer(mode, to, a), sat)


def _rounded_integer(mode: str, to: str, a: Value) -> Value:
    if mode == "rn" and to in ("f32", "f64"):
        return a.to(element_type(to))
    if a.type.bits < 64:
        return round_value(a.to(F32 if a.type.bits < 32 else F64), to, mode)
    high = (a >> 32).to(F64) * 2.0**32  # 64 bits are two exact halves
    return round_sum(high, (a & 0xFFFF_FFFF).to(F64), to, mode)


def to_integer(rounding: str, ftz: str, sat: str, to: str, of: str, a: Value) -> Value:
    """Floating point to integer, clamped to its range even without `.sat`.

    A NaN gives 0, but the bit above the range's middle where either side has 64 bits.
    """
    kind, value = element_type(to), widened(flush(a, ftz), of)
    if rounding != "rzi":
        value = _integral(rounding, value)
    # What LLVM's conversion gives outside of the range is undefined, but not chosen.
    above = 2.0 ** (kind.bits - (kind.kind == "i"))
    result = where(value < above, value.to(kind), kind.most)
    result = where(value >= kind.least, result, kind.least)  # a NaN as the least
    nan = 1 << (kind.bits - 1) if of == "f64" or kind.bits == 64 else 0
    return result if nan == abs(kind.least) else where(value.is_nan, nan, result)


def to_integral(rounding: str, ftz: str, sat: str, ptx_type: str, a: Value) -> Value:
    """A float rounded to an integral value of its type: `rni`, `rzi`, `rmi` or `rpi`."""
    rounded = exact(lambda value: _integral(rounding, value), ptx_type, flush(a, ftz))
    return saturate(flush(rounded, ftz), sat)


def _integral(rounding: str, a: Value) -> Value:
    return a.call(f"llvm.{_INTEGRAL[rounding]}")


def between_floats(mode: str, ftz: str, sat: str, to: str, of: str, a: Value) -> Value:
    """Floating point to floating point; `mode` is empty where no rounding is needed.

    `.ftz` is for float32 alone, on either side; an NVIDIA H200 ignores it on the way to `f16`.
    """
    ftz = "" if to == "f16" else ftz
    value = widened(flush(a, ftz if of == "f32" else ""), of)
    result = round_value(value, to, mode.removeprefix(".") or "rn")
    if to != "bf16":
        result = saturate(canonicalize_nan(result), sat)
    return flush(result, ftz if to == "f32" else "")


def to_half(mode: str, relu: str, to: str, a: Value) -> Value:
    """Float32 to a half."""
    return rectify(between_floats(mode, "", "", to, "f32", a), relu, to)


def to_halves(mode: str, relu: str, to: str, upper: Value, lower: Value) -> Value:
    """Two float32 to a packed pair, the first in the upper half."""
    return values.combine(to_half(mode, relu, to, lower), to_half(mode, relu, to, upper))


def to_tf32(mode: str, a: Value) -> Value:
    """Float32 to its 10-bit significand: `rna` (nearest, ties away), `rn` or `rz`."""
    bits = a.bits(U32)
    half = (bits >> 13 & 1) + 0xFFF if mode == "rn" else bits.constant(0x1000 * (mode == "rna"))
    nan = bits if mode == "rna" else 0x7FFF_FFFF
    return where(a.is_nan, nan, bits + half) & 0xFFFF_E000


_LARGEST = {"f16": 65504.0, "bf16": 255 * 2.0**120, "tf32": 2047 * 2.0**117}
"""The largest finite numbers."""


def to_finite_halves(mode: str, relu: str, to: str, *sources: Value) -> Value:
    """One or two float32 to halves (`.satfinite`): those beyond the largest become that."""
    finite = [_finite(source, to) for source in sources]
    return (
        to_half(mode, relu, to, *finite) if len(finite) == 1 else to_halves(mode, relu, to, *finite)
    )


def to_finite_tf32(mode: str, a: Value) -> Value:
    """As `to_tf32`, with numbers beyond the largest made that."""
    return to_tf32(mode, _finite(a, "tf32"))


def _finite(a: Value, to: str) -> Value:
    most = _LARGEST[to]
    return where(a > most, most, where(a < -most, -most, a))


def pack_integers(kind: str, a: Value, b: Value, *third: Value) -> Value:
    """`cvt.pack.sat`: the second and the first source, clamped, from the lowest bits on.

    The bits above are filled with the low bits of the third source, where there is one.
    """
    bits = int(kind[1:])
    part = values.ElementType("i" if kind[0] == "s" else "u", bits)
    upper, lower = (
        clamp(value, part.least, part.most).to(U32) & part.unsigned.most for value in (a, b)
    )
    both = upper << bits | lower
    return third[0] << 2 * bits | both if third else both
