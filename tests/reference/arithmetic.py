"""The floating-point instructions as functions over lanes.

Each function takes NumPy arrays (0-dimensional for constants) of the types that the instruction
names and returns an array of its result type. NumPy's IEEE 754 arithmetic equals that of the GPU
for add, subtract, multiply, divide and square root, rounded to nearest; all other operations are
implemented here. The payload of a NaN result is not defined, except where PTX defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from tests.reference.rounding import (
    LaneValues,
    round_directed,
    round_sum,
    round_to_odd,
    round_value,
    to_float64,
    two_sum,
)

Function: TypeAlias = Callable[..., Any]

_F32_TIE_BITS = np.int64(0x1FFF_FFFF)  # the 29 bits of a float64's fraction that a float32 lacks
_F32_TIE = np.int64(0x1000_0000)
_F32_LEAST_NORMAL = 2.0**-126

NAN_BITS = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFF_FFFF, "f64": 0x7FF8_0000_0000_0000}
"""The canonical NaN of each type (PTX ISA, "Floating Point Instructions")."""


# --- Fused multiply-add --------------------------------------------------------------------


def fma_f32(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """`a*b + c` in float32 with one rounding.

    The product of two float32 is exact in float64. Rounding the float64 sum to float32 is a
    second rounding only where that sum is itself rounded and lies on a tie of float32, or
    where the result is subnormal; only those lanes need rounding to odd first.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = np.add(product, c, dtype=np.float64)
    suspicious = (total.view(np.int64) & _F32_TIE_BITS) == _F32_TIE
    suspicious |= np.abs(total) < _F32_LEAST_NORMAL
    if suspicious.any():
        total = np.where(suspicious, round_to_odd(product, np.asarray(c, np.float64)), total)
    return total.astype(np.float32)


_DEKKER_SPLIT = 2.0**27 + 1  # Veltkamp's constant for 53 bits
_SAFE_MINIMUM, _SAFE_MAXIMUM = 2.0**-800, 2.0**900  # between them no part of a product is lost


def fma_f64(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """`a*b + c` in float64 with one rounding (Boldo and Melquiond 2008, algorithm Fma).

    Where a part of the exact product could overflow or underflow, rational arithmetic decides.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = _two_product(a, b)
    middle, rest = two_sum(c, low)
    upper, lower = two_sum(high, middle)
    result = np.atleast_1d(upper + round_to_odd(lower, rest))
    size = np.abs(result)
    doubtful = np.flatnonzero(~((size > _SAFE_MINIMUM) & (size < _SAFE_MAXIMUM)))
    if len(doubtful):
        x, y, z = (np.atleast_1d(value)[doubtful] for value in (a, b, c))
        infinite = np.isinf(z) & np.isfinite(x) & np.isfinite(y)  # whatever the product
        simple = np.where(infinite, z, x * y + z)
        inexact = (x * y != 0) | ((x != 0) & (y != 0))
        for lane in np.flatnonzero(inexact & np.isfinite(x) & np.isfinite(y) & np.isfinite(z)):
            exact = Fraction(x[lane]) * Fraction(y[lane]) + Fraction(z[lane])
            if exact:
                simple[lane] = _nearest_f64(exact)
        result[doubtful] = simple
    return result.reshape(a.shape)


def _two_product(a: LaneValues, b: LaneValues) -> tuple[LaneValues, LaneValues]:
    """A float64 product and its exact rounding error (Dekker)."""
    product = a * b
    scaled = a * _DEKKER_SPLIT
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = b * _DEKKER_SPLIT
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, a_low * b_low - (
        ((product - a_high * b_high) - a_low * b_high) - a_high * b_low
    )


def _nearest_f64(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator  # Python divides integers correctly rounded
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


# --- The operations in every mode ----------------------------------------------------------

# Formats up to float32: an exact value as a pair of float64. A quotient or square root of
# 24-bit significands is never so near a float32 or a tie that rounding it to 53 bits reaches it.
_EXACT: dict[str, Function] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "mul": lambda a, b: _with_zero_low_part(a * b),
    "fma": lambda a, b, c: (a * b, c),
    "div": lambda a, b: _with_zero_low_part(a / b),
    "rcp": lambda a: _with_zero_low_part(1.0 / a),
    "sqrt": lambda a: _with_zero_low_part(np.sqrt(a)),
}

_NEAREST: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": fma_f64,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}

# What is missing from a float64 result: only its sign matters.
_ROUNDING_ERRORS: dict[str, Function] = {
    "add": lambda r, a, b: a + b - r,
    "sub": lambda r, a, b: a - b - r,
    "mul": lambda r, a, b: a * b - r,
    "fma": lambda r, a, b, c: a * b + c - r,
    "div": lambda r, a, b: (a - r * b) / b,
    "rcp": lambda r, a: (1 - r * a) / a,
    "sqrt": lambda r, a: a - r * r,
}


def _with_zero_low_part(value: LaneValues) -> tuple[LaneValues, LaneValues]:
    return value, np.copysign(0.0, value)


def rounded_operation(name: str, ptx_type: str, mode: str = "rn") -> Function:
    """An operation of a type in a rounding mode.

    Args:
        name: `add`, `sub`, `mul`, `fma`, `div`, `rcp` or `sqrt`.
        ptx_type: `f16`, `bf16`, `f32` or `f64`.
        mode: `rn`, `rz`, `rm` or `rp`.
    """
    if mode == "rn" and ptx_type in ("f32", "f64"):
        return fma_f32 if (name, ptx_type) == ("fma", "f32") else _NEAREST[name]
    if ptx_type == "f64":
        return lambda *sources: _directed_f64(name, mode, *sources)

    def run(*sources: LaneValues) -> LaneValues:
        high, low = _EXACT[name](*(to_float64(source, ptx_type) for source in sources))
        return round_sum(high, low, ptx_type, mode)

    return run


def _directed_f64(name: str, mode: str, *sources: LaneValues) -> LaneValues:
    """Rational arithmetic a lane: no library function rounds float64 so, so it is rare."""
    lanes = np.broadcast_arrays(*sources)
    nearest = np.atleast_1d(_NEAREST[name](*lanes))
    flat = [np.atleast_1d(values).ravel() for values in lanes]
    missing = np.zeros(nearest.size)
    finite = np.all([np.isfinite(values) for values in flat], axis=0) & ~np.isnan(nearest.ravel())
    for lane in np.flatnonzero(finite):
        value = nearest.flat[lane]
        if math.isinf(value):  # overflow; a division by zero is exact
            by_zero = name in ("div", "rcp") and flat[-1][lane] == 0
            missing[lane] = 0.0 if by_zero else -value
        else:
            exact = _ROUNDING_ERRORS[name](
                Fraction(value), *(Fraction(values[lane]) for values in flat)
            )
            missing[lane] = (exact > 0) - (exact < 0)
    result = round_directed(nearest, missing.reshape(nearest.shape), mode)
    if mode == "rm" and name in ("add", "sub", "fma"):
        negative = np.logical_or(*map(np.signbit, _EXACT[name](*lanes)))
        exact_zero = (nearest == 0) & (missing.reshape(nearest.shape) == 0)
        result = np.where(exact_zero & negative, -0.0, result)
    return result.reshape(lanes[0].shape)


def flush_subnormals(value: LaneValues) -> LaneValues:
    """Subnormal float32 or float16 values to zeros of their sign (`.ftz`)."""
    if value.dtype.kind != "f" or value.dtype == np.float64:
        return value
    least = np.finfo(value.dtype).smallest_normal
    return np.where(np.abs(value) < least, np.copysign(value.dtype.type(0), value), value)


def with_ftz(function: Function) -> Function:
    """A function with subnormal sources and results flushed to zero (`.ftz`)."""

    def run(*sources: LaneValues) -> Any:
        result = function(*map(flush_subnormals, sources))
        return flush_subnormals(result)

    return run


def with_saturation(function: Function) -> Function:
    """A function whose result is clamped to [0, 1], NaN to +0 (`.sat`)."""

    def run(*sources: LaneValues) -> LaneValues:
        result: LaneValues = function(*sources)
        one, zero = result.dtype.type(1), result.dtype.type(0)
        return np.where(result > 0, np.minimum(result, one), zero)

    return run


def with_modifiers(function: Function, ftz: str = "", sat: str = "") -> Function:
    """A function with `.ftz` and `.sat` where they are not empty."""
    if ftz:
        function = with_ftz(function)
    return with_saturation(function) if sat else function


# --- Minimum, maximum, sign ----------------------------------------------------------------


def canonicalize_nan(value: LaneValues, ptx_type: str) -> LaneValues:
    """Every NaN replaced by the canonical one."""
    nan = np.array(NAN_BITS[ptx_type], f"u{value.dtype.itemsize}").view(value.dtype)
    return np.where(np.isnan(value), nan, value)


def minimum(a: LaneValues, b: LaneValues, ptx_type: str = "f32", nan: bool = False) -> LaneValues:
    """The lesser; -0 is less than +0. A NaN yields the other value, or with `nan` itself."""
    least = np.where(a == b, np.where(np.signbit(a), a, b), (np.minimum if nan else np.fmin)(a, b))
    return canonicalize_nan(least, ptx_type)


def maximum(a: LaneValues, b: LaneValues, ptx_type: str = "f32", nan: bool = False) -> LaneValues:
    """The greater; as `minimum`."""
    most = np.where(a == b, np.where(np.signbit(a), b, a), (np.maximum if nan else np.fmax)(a, b))
    return canonicalize_nan(most, ptx_type)


TESTP_FUNCTIONS: dict[str, Function] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ~TESTP_FUNCTIONS["subnormal"](a),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).smallest_normal),
}
"""`testp`; a zero is normal there, as an NVIDIA H200 answers."""


# --- Approximations ------------------------------------------------------------------------


def rounded_from_float64(function: Function, ptx_type: str = "f32") -> Function:
    """A special function, computed in float64 and rounded once.

    That is nearer than a GPU's own approximation, whose errors the PTX ISA bounds: 2^-23 (rcp,
    rsqrt, sqrt: relative), 2^-22.5 (ex2, relative), 2^-22 (lg2, absolute), 2^-20.5 (sin, cos on
    [-2pi, 2pi], absolute), 2^-11 (tanh, relative).
    """
    return lambda *sources: round_value(
        function(*(to_float64(s, ptx_type) for s in sources)), ptx_type
    )


def upper_half(function: Function) -> Function:
    """A float64 approximation that gives the upper 32 bits of its result, the lower being 0.

    As `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`, which also flush subnormals.
    """

    def run(value: LaneValues) -> LaneValues:
        least = 2.0**-1022
        flat = np.where(np.abs(value) < least, np.copysign(0.0, value), value)
        bits = np.atleast_1d(function(flat)).view(np.uint64) & np.uint64(0xFFFF_FFFF_0000_0000)
        result = bits.view(np.float64).reshape(np.shape(value))
        return np.where(np.abs(result) < least, np.copysign(0.0, result), result)

    return run


def approximate_quotient(a: LaneValues, b: LaneValues) -> LaneValues:
    """`div.approx` in float64: a divisor above 2^126 counts as infinite (PTX ISA, `div`)."""
    return np.asarray(a / np.where(np.abs(b) > 2.0**126, np.copysign(np.inf, b), b))


def choose_by_sign(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """`slct`: `a` where `c` is not negative, else `b`."""
    return np.where(c >= 0, a, b)


def choose_by_flushed_sign(a: LaneValues, b: LaneValues, c: LaneValues) -> LaneValues:
    """`slct.ftz`: a subnormal `c` is zero."""
    return np.where(flush_subnormals(c) >= 0, a, b)


def inverse_root(value: LaneValues) -> LaneValues:
    """`1/sqrt(a)` in float64."""
    return np.asarray(1.0 / np.sqrt(value))


# --- Halves and pairs ----------------------------------------------------------------------


def on_widened_values(function: Function, ptx_type: str) -> Function:
    """A function of values, over lanes of bf16 bits seen as float32; other types as they are."""
    if ptx_type != "bf16":
        return function
    return lambda *sources: function(*(to_float64(s, "bf16").astype(np.float32) for s in sources))


def without_rounding(function: Function, ptx_type: str) -> Function:
    """A function that picks or changes values of a type without rounding them."""
    wide = on_widened_values(function, ptx_type)
    if ptx_type != "bf16":
        return wide
    return lambda *sources: round_value(wide(*sources).astype(np.float64), "bf16")


def over_packed_parts(function: Function, part: str) -> Function:
    """A function of a type applied to each part of lanes that pack two or four.

    Args:
        function: Over lanes of `part`.
        part: NumPy's name of the type of one part, such as `f2`.
    """
    dtype = np.dtype(part)

    def parts(lanes: LaneValues) -> list[LaneValues]:
        count = lanes.dtype.itemsize // dtype.itemsize
        seen = np.ascontiguousarray(lanes).reshape(*np.shape(lanes), 1).view(dtype)
        return [seen[..., index] for index in range(count)]

    def run(*sources: LaneValues) -> LaneValues:
        whole = sources[0].dtype
        lanes_of_parts = zip(*map(parts, sources), strict=True)
        results = np.broadcast_arrays(*(function(*lanes) for lanes in lanes_of_parts))
        together = np.stack(results, axis=-1).astype(dtype, copy=False)
        return np.ascontiguousarray(together).view(whole)[..., 0]

    return run
