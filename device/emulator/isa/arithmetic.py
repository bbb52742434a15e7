"""The floating-point instructions as functions of values.

LLVM's add, subtract, multiply, divide, square root and fused multiply-add round to nearest even,
as those of the GPU do. The other modes start from that result: they ask on which side of it the
exact one lies. The payload of a NaN result is not defined, except where PTX defines it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce

from memlab.device.emulator.isa.rounding import (
    fast_two_sum,
    round_directed,
    round_sum,
    round_to_odd,
    round_value,
    signed_zero,
    to_float32,
    to_float64,
    two_sum,
)
from memlab.device.emulator.isa.values import (
    F64,
    S64,
    Lowering,
    Value,
    absolute,
    copy_sign,
    element_type,
    fused_multiply_add,
    is_finite,
    is_nan,
    is_subnormal,
    outlined,
    sign_bit,
    square_root,
    where,
)
from memlab.device.emulator.isa.values import maximum as integer_maximum
from memlab.device.emulator.isa.values import minimum as integer_minimum

_NAN_BITS = {16: 0x7FFF, 32: 0x7FFF_FFFF, 64: 0x7FF8_0000_0000_0000}
"""The canonical NaN by the bits of its type (PTX ISA, "Floating Point Instructions")."""


# --- The operations in every mode ----------------------------------------------------------

_NEAREST: dict[str, Lowering] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "fma": fused_multiply_add,
    "div": operator.truediv,
    "rcp": lambda a: 1.0 / a,
    "sqrt": square_root,
}


def rounded_operation(name: str, ptx_type: str, mode: str = "rn") -> Lowering:
    """An operation of a type in a rounding mode.

    Args:
        name: `add`, `sub`, `mul` or `fma`; for `f32` and `f64` also `div`, `rcp` or `sqrt`.
        ptx_type: `f16`, `bf16`, `f32` or `f64`.
        mode: `rn`, `rz`, `rm` or `rp`; for `f16` and `bf16`, `rn`.
    """
    if (name, ptx_type) in _OF_HALVES:
        function = _OF_HALVES[name, ptx_type]
    elif mode == "rn":
        return _NEAREST[name]
    elif (name, ptx_type) == ("fma", "f32"):
        function = _exact_fma("f32", mode)
    else:
        function = partial(_directed, name, mode)
    return outlined(function, f"{name}.{mode}.{ptx_type}", element_type(ptx_type))


def _through(
    widen: Callable[[Value, str], Value], operation: Lowering, ptx_type: str, mode: str = "rn"
) -> Lowering:
    """An operation on widened values of a type, rounded to it once."""
    return lambda *sources: round_value(
        operation(*(widen(source, ptx_type) for source in sources)), ptx_type, mode
    )


def _exact_fma(ptx_type: str, mode: str = "rn") -> Lowering:
    """`a*b + c` of types up to float32; the product is exact in float64."""

    def run(*sources: Value) -> Value:
        a, b, c = (to_float64(source, ptx_type) for source in sources)
        return round_sum(a * b, c, ptx_type, mode)

    return run


# A sum in float32 has more than twice the bits of a half-precision term, which makes the second
# rounding harmless (Figueroa, "When is double rounding innocuous?", 1995); a product is exact, but
# for one of bf16 that either rounding makes zero. So LLVM itself computes f16, but not its fma.
_OF_HALVES: dict[tuple[str, str], Lowering] = {
    ("fma", "f16"): _through(to_float32, lambda a, b, c: round_to_odd(a * b, c), "f16"),
    ("add", "bf16"): _through(to_float32, operator.add, "bf16"),
    ("sub", "bf16"): _through(to_float32, operator.sub, "bf16"),
    ("mul", "bf16"): _through(to_float32, operator.mul, "bf16"),
    ("fma", "bf16"): _exact_fma("bf16"),
}


def _directed(name: str, mode: str, *sources: Value) -> Value:
    """An operation of float32 or float64 towards zero, down or up."""
    nearest = _NEAREST[name](*sources)
    error = where(
        reduce(operator.and_, map(is_finite, sources)), _ERRORS[name](nearest, *sources), 0.0
    )
    result = round_directed(nearest, error, mode)
    if mode == "rm" and name in _TERMS:
        return signed_zero(result, (nearest == 0) & (error == 0), *_TERMS[name](*sources))
    return result


_TERMS: dict[str, Lowering] = {
    "add": lambda a, b: (a, b),
    "sub": lambda a, b: (a, -b),
    "fma": lambda a, b, c: (a * b, c),
}
"""The terms of the operations that add."""


def _sign_of_sum(a: Value, b: Value, c: Value) -> Value:
    """The sign of the exact `a*b + c`: -1, 0 or 1.

    A result too small for the format is a zero of its sign; that of an exact zero is +0.
    """
    negative = sign_bit(fused_multiply_add(a, b, c))
    positive = sign_bit(fused_multiply_add(-a, b, -c))
    return where(negative, a.constant(-1), where(positive, a.constant(1), 0))


_FRACTION_BITS, _EXPONENT_BIAS = 52, 1023  # of a float64
_FAR = 300
"""Powers of two between two terms beyond which only the sign of the lesser one matters."""


def _error_of_fma(result: Value, a: Value, b: Value, c: Value) -> Value:
    """A float64 of the sign of `a*b + c - result`, for finite sources.

    The terms are scaled by one power of two so that none overflows or underflows, and added up
    exactly (Shewchuk, "Adaptive precision floating-point arithmetic", 1997, `GROW-EXPANSION`).
    """
    (a, a_exponent), (b, b_exponent) = _split(a), _split(b)
    (c, c_exponent), (near, near_exponent) = _split(c), _split(result)
    high = a * b
    # The product stays as it is, but where `c` is far larger; there `result` equals `c`.
    exponent = where(high == 0, c_exponent, a_exponent + b_exponent)
    scale = integer_maximum(exponent, c_exponent - _FAR)
    c = _times_power(c, integer_maximum(c_exponent - scale, -_FAR))
    near = _times_power(near, near_exponent - scale)
    terms = [fused_multiply_add(a, b, -high), high]
    for added in (c, -near):
        total, grown = added, []
        for term in terms:
            total, rest = two_sum(total, term)
            grown.append(rest)
        terms = [*grown, total]
    error = terms[0]
    for term in terms[1:]:  # the largest of them that is not zero
        error = where(term == 0, error, term)
    return where(is_finite(result), error, -result)


def _split(value: Value) -> tuple[Value, Value]:
    """A finite float64 as a number from 1 to 2, or zero, times a power of two: its exponent."""
    small = is_subnormal(value)
    normal = where(small, value * 2.0**54, value)
    bits = normal.bits(S64)
    exponent = (bits >> _FRACTION_BITS & 0x7FF) - where(
        small, bits.constant(_EXPONENT_BIAS + 54), _EXPONENT_BIAS
    )
    one_bits = _EXPONENT_BIAS << _FRACTION_BITS
    number = ((bits & ~(0x7FF << _FRACTION_BITS)) | one_bits).bits(F64)
    return where(value == 0, value, number), exponent


def _times_power(value: Value, exponent: Value) -> Value:
    """A float64 times a power of two between 2^-1000 and 2^1000."""
    exponent = integer_maximum(integer_minimum(exponent, 1000), -1000)
    return value * (exponent + _EXPONENT_BIAS << _FRACTION_BITS).bits(F64)


# What is missing from the nearest result `r` of finite sources; only its sign is right. A result
# that overflowed to infinity is too large.
_ERRORS: dict[str, Lowering] = {
    "add": lambda r, a, b: fast_two_sum(a, b)[1],
    "sub": lambda r, a, b: fast_two_sum(a, -b)[1],
    "mul": lambda r, a, b: _sign_of_sum(a, b, -r),
    "fma": _error_of_fma,
    "div": lambda r, a, b: where(b == 0, 0.0, copy_sign(a.constant(1), b) * _sign_of_sum(-r, b, a)),
    "rcp": lambda r, a: _ERRORS["div"](r, a.constant(1), a),
    "sqrt": lambda r, a: where(a > 0, _sign_of_sum(-r, r, a), 0.0),
}


# --- Modifiers -----------------------------------------------------------------------------


def flush_subnormals(value: Value) -> Value:
    """Subnormal float32 or float16 values to zeros of their sign (`.ftz`)."""
    if value.type.kind != "f" or value.type == F64:
        return value
    return _flush(value)


def _flush(value: Value) -> Value:
    return where(is_subnormal(value), copy_sign(value.constant(0), value), value)


def with_ftz(function: Lowering) -> Lowering:
    """A function with subnormal sources and results flushed to zero (`.ftz`)."""
    return lambda *sources: flush_subnormals(function(*map(flush_subnormals, sources)))


def with_saturation(function: Lowering) -> Lowering:
    """A function whose result is clamped to [0, 1], NaN to +0 (`.sat`)."""

    def run(*sources: Value) -> Value:
        result: Value = function(*sources)
        return where(result > 0, where(result < 1, result, 1.0), 0.0)

    return run


def with_modifiers(function: Lowering, ftz: str = "", sat: str = "") -> Lowering:
    """A function with `.ftz` and `.sat` where they are not empty."""
    if ftz:
        function = with_ftz(function)
    return with_saturation(function) if sat else function


# --- Minimum, maximum, sign ----------------------------------------------------------------


def canonicalize_nan(value: Value) -> Value:
    """Every NaN replaced by the canonical one."""
    nan = value.constant(_NAN_BITS[value.type.bits], value.type.unsigned).bits(value.type)
    return where(is_nan(value), nan, value)


def minimum(a: Value, b: Value, nan: bool = False) -> Value:
    """The lesser; -0 is less than +0. A NaN yields the other value, or with `nan` itself."""
    return canonicalize_nan(a.call("llvm.minimum" if nan else "llvm.minimumnum", b))


def maximum(a: Value, b: Value, nan: bool = False) -> Value:
    """The greater; as `minimum`."""
    return canonicalize_nan(a.call("llvm.maximum" if nan else "llvm.maximumnum", b))


TESTP_FUNCTIONS: dict[str, Lowering] = {
    "finite": is_finite,
    "infinite": lambda a: absolute(a) == float("inf"),
    "number": lambda a: ~is_nan(a),
    "notanumber": is_nan,
    "normal": lambda a: is_finite(a) & ~is_subnormal(a),
    "subnormal": is_subnormal,
}
"""`testp`; a zero is normal there, as an NVIDIA H200 answers."""


# --- Approximations ------------------------------------------------------------------------


def rounded_from_float64(function: Lowering, ptx_type: str = "f32") -> Lowering:
    """A function computed in float64 and rounded once."""
    return _through(to_float64, function, ptx_type)


def approximation(function: Lowering, ptx_type: str = "f32") -> Lowering:
    """A special function, computed in float64 and rounded once.

    That is nearer than a GPU's own approximation, whose errors the PTX ISA bounds: 2^-23 (rcp,
    rsqrt, sqrt: relative), 2^-22.5 (ex2, relative), 2^-22 (lg2, absolute), 2^-20.5 (sin, cos on
    [-2pi, 2pi], absolute), 2^-11 (tanh, relative).
    """
    rounded = rounded_from_float64(function, ptx_type)
    return outlined(rounded, f"{function.__name__}.{ptx_type}", element_type(ptx_type))


def upper_half(function: Lowering) -> Lowering:
    """A float64 approximation that gives the upper 32 bits of its result, the lower being 0.

    As `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`, which also flush subnormals.
    """

    def run(value: Value) -> Value:
        bits = function(_flush(value)).bits(S64) & ~0xFFFF_FFFF
        return _flush(bits.bits(F64))

    return run


def approximate_quotient(a: Value, b: Value) -> Value:
    """`div.approx`: a divisor above 2^126 counts as infinite (PTX ISA, `div`)."""
    infinite = copy_sign(b.constant(float("inf")), b)
    return a / where(absolute(b) > 2.0**126, infinite, b)


# --- Halves and pairs ----------------------------------------------------------------------


def without_rounding(function: Lowering, ptx_type: str) -> Lowering:
    """A function that picks or changes values without rounding them; halves through float32."""
    if ptx_type not in ("f16", "bf16"):
        return function
    mode = "rn" if ptx_type == "f16" else "rz"  # the shortest code
    return _through(to_float32, function, ptx_type, mode)
