"""The conversions of `cvt` for every pair of types, lowered to LLVM (PTX ISA, `cvt`)."""

from __future__ import annotations

from memlab.device.emulator.isa.arithmetic import (
    canonicalize_nan,
    flush_subnormals,
    with_modifiers,
)
from memlab.device.emulator.isa.rounding import round_sum, round_value, to_float32
from memlab.device.emulator.isa.values import (
    F16,
    F32,
    F64,
    U16,
    U32,
    ElementType,
    Lowering,
    Value,
    clamp,
    combine,
    element_type,
    is_nan,
    to_integer_clamped,
    where,
)

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
"""LLVM's rounding to an integral value: nearest even, toward zero, down, up."""


def between_integers(to: str, saturate: bool) -> Lowering:
    """Integer to integer: extended or cut to its low bits, or clamped to the range."""
    element = element_type(to)
    if not saturate:
        return lambda a: a.to(element)
    return lambda a: clamp(a, element.least, element.most).to(element)


def from_integer(to: str, mode: str) -> Lowering:
    """Integer to floating point; 64 bits are two exact halves."""

    def run(a: Value) -> Value:
        if mode == "rn" and to in ("f32", "f64"):
            return a.to(element_type(to))
        if a.type.bits < 64:
            return round_value(a.to(F32 if a.type.bits < 32 else F64), to, mode)
        high = (a >> 32).to(F64) * 2.0**32
        return round_sum(high, (a & 0xFFFF_FFFF).to(F64), to, mode)

    return run


def to_integer(to: str, of: str, rounding: str, ftz: str = "") -> Lowering:
    """Floating point to integer, clamped to its range.

    A NaN gives 0, but the bit above the range's middle where either side has 64 bits.
    """
    element = element_type(to)
    nan = 1 << (element.bits - 1) if of == "f64" or element.bits == 64 else 0

    def run(a: Value) -> Value:
        value = to_float32(flush_subnormals(a) if ftz else a, of)
        if rounding != "rzi":
            value = round_to_integral(rounding)(value)
        result = to_integer_clamped(value, element)
        return result if nan == abs(element.least) else where(is_nan(value), nan, result)

    return run


def round_to_integral(rounding: str) -> Lowering:
    """A float rounded to an integral value of its type: `rni`, `rzi`, `rmi` or `rpi`."""

    def run(a: Value) -> Value:
        wide = a.to(F32) if a.type == F16 else a
        return wide.call(f"llvm.{_INTEGRAL[rounding]}").to(a.type)

    return run


def between_floats(to: str, of: str, mode: str) -> Lowering:
    """Floating point to floating point; `mode` is `""` where no rounding is needed."""

    def run(a: Value) -> Value:
        result = round_value(to_float32(a, of), to, mode or "rn")
        return result if to == "bf16" else canonicalize_nan(result)

    return run


def with_relu(function: Lowering, ptx_type: str) -> Lowering:
    """`.relu`: negative results become +0."""

    def run(*sources: Value) -> Value:
        result: Value = function(*sources)
        return where(to_float32(result, ptx_type) <= 0, 0, result)

    return run


def convert_pair(function: Lowering) -> Lowering:
    """Two float32 to a packed pair, the first in the upper half."""
    return lambda upper, lower: combine(function(lower).bits(U16), function(upper).bits(U16))


def to_tf32(mode: str) -> Lowering:
    """Float32 to its 10-bit significand: `rna` (nearest, ties away), `rn` or `rz`."""

    def run(a: Value) -> Value:
        bits = a.bits(U32)
        half = (bits >> 13 & 1) + 0xFFF if mode == "rn" else bits.constant(0x1000 * (mode == "rna"))
        nan = bits if mode == "rna" else 0x7FFF_FFFF
        return where(is_nan(a), nan, bits + half) & 0xFFFF_E000

    return run


# --- The same by the choices of an opcode's braces ------------------------------------------


def from_integer_with(mode: str, ftz: str, sat: str, to: str, of: str) -> Lowering:
    """`cvt.MODE{.ftz}{.sat}.FLOAT.INTEGER`; no float32 that is a whole number is subnormal."""
    return with_modifiers(from_integer(to, mode), sat=sat)


def to_integer_with(rounding: str, ftz: str, sat: str, to: str, of: str) -> Lowering:
    """`cvt.ROUNDING{.ftz}{.sat}.INTEGER.FLOAT`; it is clamped even without `.sat`."""
    return to_integer(to, of, rounding, ftz)


def to_integral(rounding: str, ftz: str, sat: str) -> Lowering:
    """`cvt.ROUNDING{.ftz}{.sat}.FLOAT.FLOAT` of one type."""
    return with_modifiers(round_to_integral(rounding), ftz, sat)


def between_floats_with(to: str, of: str, mode: str, ftz: str, sat: str) -> Lowering:
    """`cvt{.MODE}{.ftz}{.sat}.FLOAT.FLOAT`.

    `.ftz` is for float32 alone, on either side; an NVIDIA H200 ignores it on the way to `f16`.
    """
    convert = with_modifiers(between_floats(to, of, mode[1:]), sat=sat)
    if not ftz or to == "f16":
        return convert

    def run(a: Value) -> Value:
        result: Value = convert(flush_subnormals(a) if of == "f32" else a)
        return flush_subnormals(result) if to == "f32" else result

    return run


def packed_integers(kind: str) -> Lowering:
    """`cvt.pack.sat`: the second and the first source, clamped, from the lowest bits on.

    The bits above are filled with the low bits of the third source, where there is one.
    """
    bits = int(kind[1:])
    part = ElementType("i" if kind[0] == "s" else "u", bits)

    def run(a: Value, b: Value, *third: Value) -> Value:
        upper, lower = (
            clamp(value, part.least, part.most).to(U32) & part.unsigned.most for value in (a, b)
        )
        both = upper << bits | lower
        return third[0] << 2 * bits | both if third else both

    return run
