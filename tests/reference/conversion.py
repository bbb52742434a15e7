"""The conversions of `cvt` in NumPy, for every pair of types (PTX ISA, `cvt`)."""

from __future__ import annotations

import numpy as np

from tests.reference.arithmetic import (
    Function,
    canonicalize_nan,
    flush_subnormals,
    over_packed_parts,
    with_modifiers,
)
from tests.reference.rounding import LaneValues, round_sum, round_value, to_float64

TO_INTEGRAL: dict[str, Function] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
"""Rounding to an integral value: nearest even, toward zero, down, up."""


def between_integers(to: str, saturate: bool) -> Function:
    """Integer to integer: extended or cut to its low bits, or clamped to the range."""
    dtype = np.dtype(f"{to[0].replace('s', 'i')}{int(to[1:]) // 8}")
    if not saturate:
        return lambda a: a.astype(dtype)

    def run(a: LaneValues) -> LaneValues:
        low = max(np.iinfo(dtype).min, np.iinfo(a.dtype).min)
        high = min(np.iinfo(dtype).max, np.iinfo(a.dtype).max)
        return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)

    return run


def from_integer(to: str, mode: str) -> Function:
    """Integer to floating point; 64 bits are two exact halves."""

    def run(a: LaneValues) -> LaneValues:
        if a.dtype.itemsize < 8:
            return round_value(a.astype(np.float64), to, mode)
        high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
        low = (a & a.dtype.type(0xFFFF_FFFF)).astype(np.float64)
        return round_sum(high, low, to, mode)

    return run


def to_integer(to: str, of: str, rounding: str, ftz: str = "") -> Function:
    """Floating point to integer, clamped to its range.

    A NaN gives 0, but the bit above the range's middle where either side has 64 bits.
    """
    bits = int(to[1:])
    dtype = np.dtype(f"{to[0].replace('s', 'i')}{bits // 8}")
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    nan = np.array(1 << (bits - 1), f"u{bits // 8}") if of == "f64" or bits == 64 else np.array(0)
    nan = nan.astype(dtype)
    integral = TO_INTEGRAL[rounding]
    above = float(most) if bits < 64 else 2.0 ** (bits - (to[0] == "s"))

    def run(a: LaneValues) -> LaneValues:
        value = integral(to_float64(flush_subnormals(a) if ftz else a, of))
        over, under = value >= above, value <= float(least)
        inside = np.where(over | under | np.isnan(value), 0.0, value).astype(dtype)
        clamped = np.where(over, dtype.type(most), np.where(under, dtype.type(least), inside))
        return np.where(np.isnan(value), nan, clamped)

    return run


def between_floats(to: str, of: str, mode: str) -> Function:
    """Floating point to floating point; `mode` is `""` where no rounding is needed."""

    def run(a: LaneValues) -> LaneValues:
        result = round_value(to_float64(a, of), to, mode or "rn")
        return result if to == "bf16" else canonicalize_nan(result, to)

    return run


def with_relu(function: Function, ptx_type: str) -> Function:
    """`.relu`: negative results become +0."""

    def run(*sources: LaneValues) -> LaneValues:
        result = function(*sources)
        value = to_float64(result, ptx_type)
        return np.where(value <= 0, result.dtype.type(0), result)

    return run


def with_finite_sources(function: Function, ptx_type: str) -> Function:
    """`.satfinite`: sources beyond the largest number of a type become that."""
    largest = {"f16": "477fe000", "bf16": "7f7f0000", "tf32": "7f7fe000"}[ptx_type]
    most = np.array(int(largest, 16), "u4").view("f4")

    def run(a: LaneValues) -> LaneValues:
        return function(np.where(np.abs(a) > most, np.copysign(most, a), a).astype("f4"))

    return run


def convert_pair(function: Function) -> Function:
    """Two float32 to a packed pair, the first in the upper half."""

    def run(upper: LaneValues, lower: LaneValues) -> LaneValues:
        halves = [np.atleast_1d(function(value)).view(np.uint16) for value in (upper, lower)]
        word = halves[0].astype(np.uint32) << np.uint32(16) | halves[1]
        return word.reshape(np.broadcast_shapes(np.shape(upper), np.shape(lower)))

    return run


def to_tf32(mode: str) -> Function:
    """Float32 to its 10-bit significand: `rna` (nearest, ties away), `rn` or `rz`."""

    def run(a: LaneValues) -> LaneValues:
        bits = np.atleast_1d(a).view(np.uint32)
        tie = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
        half: LaneValues = {"rna": np.uint32(0x1000), "rn": tie, "rz": np.uint32(0)}[mode]
        kept = (bits + half) & np.uint32(0xFFFF_E000)
        nan = bits & np.uint32(0xFFFF_E000) if mode == "rna" else np.uint32(0x7FFF_E000)
        kept = np.where(np.isnan(np.atleast_1d(a)), nan, kept)
        return kept.reshape(np.shape(a))

    return run


def over_packed_halves(function: Function, ptx_type: str) -> Function:
    """A function of `f16` or `bf16` lanes over packed pairs."""
    return over_packed_parts(function, "f2" if ptx_type == "f16" else "u2")


# --- The same by the choices of an opcode's braces ------------------------------------------


def from_integer_with(mode: str, ftz: str, sat: str, to: str, of: str) -> Function:
    """`cvt.MODE{.ftz}{.sat}.FLOAT.INTEGER`; no float32 that is a whole number is subnormal."""
    return with_modifiers(from_integer(to, mode), sat=sat)


def to_integer_with(rounding: str, ftz: str, sat: str, to: str, of: str) -> Function:
    """`cvt.ROUNDING{.ftz}{.sat}.INTEGER.FLOAT`; it is clamped even without `.sat`."""
    return to_integer(to, of, rounding, ftz)


def to_integral(rounding: str, ftz: str, sat: str) -> Function:
    """`cvt.ROUNDING{.ftz}{.sat}.FLOAT.FLOAT` of one type."""
    return with_modifiers(TO_INTEGRAL[rounding], ftz, sat)


def between_floats_with(to: str, of: str, mode: str, ftz: str, sat: str) -> Function:
    """`cvt{.MODE}{.ftz}{.sat}.FLOAT.FLOAT`.

    `.ftz` is for float32 alone, on either side; an NVIDIA H200 ignores it on the way to `f16`.
    """
    convert = with_modifiers(between_floats(to, of, mode[1:]), sat=sat)
    if not ftz or to == "f16":
        return convert

    def run(a: LaneValues) -> LaneValues:
        result = convert(flush_subnormals(a) if of == "f32" else a)
        return flush_subnormals(result) if to == "f32" else result

    return run


def packed_integers(kind: str) -> Function:
    """`cvt.pack.sat`: the second and the first source, clamped, from the lowest bits on.

    The bits above are filled with the low bits of the third source, where there is one.
    """
    bits = int(kind[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)

    def run(a: LaneValues, b: LaneValues, *third: LaneValues) -> LaneValues:
        upper, lower = (
            np.clip(value.astype(np.int64), low, high) & (2**bits - 1) for value in (a, b)
        )
        both = upper << bits | lower
        above = third[0].astype(np.int64) << 2 * bits if third else 0
        return np.asarray(above | both).astype(np.uint32)

    return run
