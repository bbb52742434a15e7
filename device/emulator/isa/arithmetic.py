"""The floating-point instructions as functions of values.

LLVM's add, subtract, multiply, divide, square root and fused multiply-add round to nearest even,
as those of the GPU do. The other modes start from that result: they ask on which side of it the
exact one lies. The payload of a NaN result is not defined, except where PTX defines it.

Modifiers are given as the opcode spells them, empty where it does not have them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, reduce

from memlab.device.emulator.isa import rounding, values
from memlab.device.emulator.isa.rounding import computed_in, round_to_odd, widened
from memlab.device.emulator.isa.values import F32, F64, S64, Lowering, Value, fma, outlined, where
from memlab.device.emulator.isa.values import maximum as integer_maximum

# --- The operations in every mode ----------------------------------------------------------

NEAREST: dict[str, Lowering] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "fma": fma,
    "div": operator.truediv,
    "rcp": lambda a: 1.0 / a,
    "sqrt": lambda a: a.call("llvm.sqrt"),
}


def operation(name: str, mode: str, ftz: str, sat: str, ptx_type: str, *sources: Value) -> Value:
    """An instruction that rounds.

    Args:
        name: `add`, `sub`, `mul`, `fma` or `mad`; for `f32` and `f64` also `div`, `rcp` or `sqrt`.
        mode: `.rz`, `.rm` or `.rp`; else it is to nearest, as always for `f16` and `bf16`.
        ftz: `.ftz`.
        sat: `.sat`.
        ptx_type: `f16`, `bf16`, `f32` or `f64`.
        *sources: Its sources.
    """
    name = "fma" if name == "mad" else name
    mode = mode.removeprefix(".") or "rn"
    sources = tuple(flush(source, ftz) for source in sources)
    function = _OF_HALVES.get((name, ptx_type))
    if function is None and mode == "rn":
        result: Value = NEAREST[name](*sources)
    else:
        if (name, ptx_type) == ("fma", "f32"):
            function = partial(_exact_fma, "f32", mode)
        function = function or partial(_directed, name, mode)
        kind = values.element_type(ptx_type)
        result = outlined(f"{name}.{mode}.{ptx_type}", kind, function, *sources)
    return saturate(flush(result, ftz), sat)


def mixed_operation(name: str, mode: str, sat: str, narrow: str, *sources: Value) -> Value:
    """An `add`, `sub` or `fma` of float32 whose sources but the last are `f16` or `bf16`."""
    *halves, last = sources
    wide = (widened(half, narrow) for half in halves)
    return operation(name, mode, "", sat, "f32", *wide, last)


def _exact_fma(ptx_type: str, mode: str, *sources: Value) -> Value:
    """`a*b + c` of types up to float32; the product is exact in float64."""
    a, b, c = (widened(source, ptx_type).to(F64) for source in sources)
    return rounding.round_sum(a * b, c, ptx_type, mode)


# A sum in float32 has more than twice the bits of a half-precision term, which makes the second
# rounding harmless (Figueroa, "When is double rounding innocuous?", 1995); a product is exact, but
# for one of bf16 that either rounding makes zero. So LLVM itself computes f16, but not its fma.
_OF_HALVES: dict[tuple[str, str], Lowering] = {
    ("fma", "f16"): partial(computed_in, F32, lambda a, b, c: round_to_odd(a * b, c), "f16"),
    ("add", "bf16"): partial(computed_in, F32, operator.add, "bf16"),
    ("sub", "bf16"): partial(computed_in, F32, operator.sub, "bf16"),
    ("mul", "bf16"): partial(computed_in, F32, operator.mul, "bf16"),
    ("fma", "bf16"): partial(_exact_fma, "bf16", "rn"),
}


def _directed(name: str, mode: str, *sources: Value) -> Value:
    """An operation of float32 or float64 towards zero, down or up."""
    nearest = NEAREST[name](*sources)
    finite = reduce(operator.and_, (source.is_finite for source in sources))
    error = where(finite, _ERRORS[name](nearest, *sources), 0.0)
    result = rounding.round_directed(nearest, error, mode)
    if mode == "rm" and name in _TERMS:
        zero = (nearest == 0) & (error == 0)
        return rounding.signed_zero(result, zero, *_TERMS[name](*sources))
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
    negative, positive = fma(a, b, c).has_sign, fma(-a, b, -c).has_sign
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
    terms = [fma(a, b, -high), high]
    for added in (c, -near):
        total, grown = added, []
        for term in terms:
            total, rest = rounding.two_sum(total, term)
            grown.append(rest)
        terms = [*grown, total]
    error = terms[0]
    for term in terms[1:]:  # the largest of them that is not zero
        error = where(term == 0, error, term)
    return where(result.is_finite, error, -result)


def _split(value: Value) -> tuple[Value, Value]:
    """A finite float64 as a number from 1 to 2, or zero, times a power of two: its exponent."""
    small = value.is_subnormal
    bits = where(small, value * 2.0**54, value).bits(S64)
    bias = where(small, bits.constant(_EXPONENT_BIAS + 54), _EXPONENT_BIAS)
    exponent = (bits >> _FRACTION_BITS & 0x7FF) - bias
    one_bits = _EXPONENT_BIAS << _FRACTION_BITS
    number = ((bits & ~(0x7FF << _FRACTION_BITS)) | one_bits).bits(F64)
    return where(value == 0, value, number), exponent


def _times_power(value: Value, exponent: Value) -> Value:
    """A float64 times a power of two between 2^-1000 and 2^1000."""
    exponent = values.clamp(exponent, -1000, 1000)
    return value * (exponent + _EXPONENT_BIAS << _FRACTION_BITS).bits(F64)


def _error_of_quotient(result: Value, a: Value | float, b: Value) -> Value:
    sign = b.constant(1).call("llvm.copysign", b)
    return where(b == 0, 0.0, sign * _sign_of_sum(-result, b, b.like(a)))


# What is missing from the nearest result `r` of finite sources; only its sign is right. A result
# that overflowed to infinity is too large.
_ERRORS: dict[str, Lowering] = {
    "add": lambda r, a, b: rounding.fast_two_sum(a, b)[1],
    "sub": lambda r, a, b: rounding.fast_two_sum(a, -b)[1],
    "mul": lambda r, a, b: _sign_of_sum(a, b, -r),
    "fma": _error_of_fma,
    "div": _error_of_quotient,
    "rcp": lambda r, a: _error_of_quotient(r, 1, a),
    "sqrt": lambda r, a: where(a > 0, _sign_of_sum(-r, r, a), 0.0),
}


# --- Modifiers -----------------------------------------------------------------------------


def flush(value: Value, ftz: str = ".ftz") -> Value:
    """Subnormal values to zeros of their sign (`.ftz`)."""
    if not ftz:
        return value
    return where(value.is_subnormal, value.constant(0).call("llvm.copysign", value), value)


def with_ftz(ftz: str, function: Lowering, *sources: Value) -> Value:
    """A function with subnormal sources and results flushed to zero where `ftz` is not empty."""
    return flush(function(*(flush(source, ftz) for source in sources)), ftz)


def saturate(value: Value, sat: str) -> Value:
    """A float clamped to [0, 1], NaN to +0 (`.sat`)."""
    return where(value > 0, where(value < 1, value, 1.0), 0.0) if sat else value


def rectify(value: Value, relu: str, ptx_type: str) -> Value:
    """A float with negative numbers made +0 (`.relu`)."""
    return where(widened(value, ptx_type) <= 0, 0, value) if relu else value


def rectified_fma(relu: str, ptx_type: str, *sources: Value) -> Value:
    """`fma.rn.relu`."""
    return rectify(operation("fma", "", "", "", ptx_type, *sources), relu, ptx_type)


# --- Minimum, maximum, sign ----------------------------------------------------------------


def exact(function: Lowering, ptx_type: str, *sources: Value) -> Value:
    """A function that picks or changes values without rounding them; halves through float32."""
    if ptx_type not in ("f16", "bf16"):
        return function(*sources)  # type: ignore[no-any-return]
    mode = "rn" if ptx_type == "f16" else "rz"  # the shortest code
    return computed_in(F32, function, ptx_type, *sources, mode=mode)


def canonicalize_nan(value: Value) -> Value:
    """Every NaN replaced by the canonical one (PTX ISA, "Floating Point Instructions")."""
    bits = {16: 0x7FFF, 32: 0x7FFF_FFFF, 64: 0x7FF8_0000_0000_0000}[value.type.bits]
    return where(value.is_nan, value.constant(bits, value.type.unsigned).bits(value.type), value)


def extreme(name: str, ftz: str, nan: str, ptx_type: str, *sources: Value) -> Value:
    """`min` or `max`; -0 is less than +0. A NaN yields the other value, or with `.NaN` itself."""
    intrinsic = f"llvm.{name}imum{'' if nan else 'num'}"
    choose = partial(exact, lambda a, b: canonicalize_nan(a.call(intrinsic, b)), ptx_type)
    return with_ftz(ftz, choose, *sources)


def change_sign(name: str, ftz: str, ptx_type: str, value: Value) -> Value:
    """`neg` or `abs`."""
    return with_ftz(ftz, partial(exact, abs if name == "abs" else operator.neg, ptx_type), value)


def has_property(name: str, ptx_type: str, value: Value) -> Value:
    """`testp`; a zero is normal there, as an NVIDIA H200 answers."""
    tests: dict[str, Callable[[], Value]] = {
        "finite": lambda: value.is_finite,
        "infinite": lambda: abs(value) == math.inf,
        "number": lambda: ~value.is_nan,
        "notanumber": lambda: value.is_nan,
        "normal": lambda: value.is_finite & ~value.is_subnormal,
        "subnormal": lambda: value.is_subnormal,
    }
    return tests[name]()


# --- Approximations ------------------------------------------------------------------------


def approximation(function: Lowering, ptx_type: str, value: Value) -> Value:
    """A special function, computed in float64 and rounded once.

    That is nearer than a GPU's own approximation, whose errors the PTX ISA bounds: 2^-23 (rcp,
    rsqrt, sqrt: relative), 2^-22.5 (ex2, relative), 2^-22 (lg2, absolute), 2^-20.5 (sin, cos on
    [-2pi, 2pi], absolute), 2^-11 (tanh, relative).
    """
    name, kind = f"{function.__name__}.{ptx_type}", values.element_type(ptx_type)
    return outlined(name, kind, partial(computed_in, F64, function, ptx_type), value)


def upper_half(function: Lowering, value: Value) -> Value:
    """A float64 approximation that gives the upper 32 bits of its result, the lower being 0.

    As `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`, which also flush subnormals.
    """
    return flush((function(flush(value)).bits(S64) & ~0xFFFF_FFFF).bits(F64))


def approximate_quotient(a: Value, b: Value) -> Value:
    """`div.approx`: a divisor above 2^126 counts as infinite (PTX ISA, `div`)."""
    infinite = b.constant(math.inf).call("llvm.copysign", b)
    return a / where(abs(b) > 2.0**126, infinite, b)
