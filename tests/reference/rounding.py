"""Rounding an exact value to a floating-point format, in each of PTX's four modes.

They are `rn`, `rz`, `rm` and `rp`: to nearest even, towards zero, towards minus and plus infinity
(PTX ISA 9.7.3).

An exact value is an unevaluated sum of two float64: a sum is its two terms, a float32 product is
exact in float64. Formats narrower than float64 are reached through a float64 rounded to odd,
which makes the second rounding harmless in every mode (Boldo and Melquiond, "Emulation of a FMA
and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

LaneValues: TypeAlias = Any
"""An array with an element per lane, or a NumPy scalar for all; its type is the instruction's."""


def two_sum(a: LaneValues, b: LaneValues) -> tuple[LaneValues, LaneValues]:
    """A float64 sum and its exact rounding error (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def round_to_odd(a: LaneValues, b: LaneValues) -> LaneValues:
    """`a + b` in float64, rounded to odd where it is inexact."""
    total, error = two_sum(a, b)
    bits = np.atleast_1d(total).view(np.int64)
    even = (bits & 1) == 0
    inexact = (error != 0) & np.isfinite(total)
    # Step one unit towards the exact sum; the neighbour of an even significand is odd.
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact & even, bits + away, bits).view(np.float64).reshape(np.shape(total))


def round_directed(nearest: LaneValues, error: LaneValues, mode: str) -> LaneValues:
    """A value rounded in a mode, from its nearest float and the sign of the remaining error."""
    if mode == "rn":
        return nearest
    if mode == "rz":
        wrong, towards = error * np.sign(nearest) < 0, 0.0
    elif mode == "rm":
        wrong, towards = error < 0, -np.inf
    else:
        wrong, towards = error > 0, np.inf
    return np.where(wrong, np.nextafter(nearest, nearest.dtype.type(towards)), nearest)


def to_float64(lanes: LaneValues, ptx_type: str) -> LaneValues:
    """Lanes of a floating-point type as float64, exactly."""
    if ptx_type == "bf16":
        return (lanes.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return lanes.astype(np.float64)


def round_sum(high: LaneValues, low: LaneValues, ptx_type: str, mode: str = "rn") -> LaneValues:
    """The exact value `high + low` as lanes of a floating-point type.

    Args:
        high: float64.
        low: float64; for a single value, a zero of its sign.
        ptx_type: `f16`, `bf16`, `f32` or `f64`.
        mode: `rn`, `rz`, `rm` or `rp`.
    """
    if ptx_type == "f64":
        result = round_directed(*two_sum(high, low), mode)
    elif ptx_type == "bf16":
        return _round_bf16(round_to_odd(high, low), mode)
    else:
        odd = round_to_odd(high, low)
        nearest = odd.astype(np.float16 if ptx_type == "f16" else np.float32)
        result = round_directed(nearest, odd - nearest, mode)
    if mode == "rm":  # a sum that is exactly zero is -0 unless both terms are +0 (IEEE 754, 6.3)
        zero = (high + low == 0) & (np.signbit(high) | np.signbit(low))
        result = np.where(zero, result.dtype.type(-0.0), result)
    return result


def round_value(value: LaneValues, ptx_type: str, mode: str = "rn") -> LaneValues:
    """An exact value that is one float64 as lanes of a floating-point type."""
    return round_sum(value, np.copysign(0.0, value), ptx_type, mode)


def _round_bf16(odd: LaneValues, mode: str) -> LaneValues:
    """The upper half of a float32; `odd` holds more bits than the float32 between."""
    nearest = odd.astype(np.float32)
    truncated = np.atleast_1d(round_directed(nearest, odd - nearest, "rz")).view(np.uint32)
    bits = truncated | (np.atleast_1d(nearest) != np.atleast_1d(odd)).astype(np.uint32)
    kept = bits >> np.uint32(16)
    away = np.zeros_like(kept)
    if mode == "rn":
        away = (bits + np.uint32(0x7FFF) + (kept & np.uint32(1)) >> np.uint32(16)) - kept
    elif mode != "rz":
        towards = np.uint32(mode == "rm")
        away = ((bits >> np.uint32(31) == towards) & (bits & np.uint32(0xFFFF) != 0)).astype("u4")
    rounded = np.where(np.isnan(np.atleast_1d(odd)), np.uint32(0x7FFF), kept + away)
    return rounded.astype(np.uint16).reshape(np.shape(odd))
