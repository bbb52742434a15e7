"""For which operands ptxas's code for divisions and square roots calls a function.

A division, reciprocal or square root that rounds to nearest takes a short way in the machine code
for most operands, and calls a function of ptxas for the others, such as zeros. A quotient or
remainder of 64-bit integers takes a short way where both are below 2**32. The conditions are those
that the machine code of compute capability 9.0 computes (NVRTC 13.5).
"""

from __future__ import annotations

from memlab.device.emulator.isa.values import F32, S32, U32, U64, Lowering, Value


def slow_operands(opcode: str) -> Lowering | None:
    """What tells, of an instruction's sources, which lanes take the slow path; None if none do."""
    return _RULES.get(opcode.replace(".ftz", ""))


def _quotient(a: Value, b: Value) -> Value:
    """What the instruction FCHK tests: exponents of operands and quotient near the ends.

    Measured on an H200 for all pairs of exponents.
    """
    dividend, divisor = ((v.bits(U32) >> 23 & 0xFF).to(S32) for v in (a, b))
    quotient = dividend - divisor
    return (
        (dividend <= 24)
        | (dividend == 255)
        | (divisor <= 1)
        | (divisor >= 252)
        | (quotient <= -125)
        | (quotient >= 127)
    )


def _reciprocal(a: Value) -> Value:
    """`(a + 0x1800000 & 0x7f800000) > 0x1ffffff` is fast, on the bits."""
    return (a.bits(U32) + 0x0180_0000 & 0x7F80_0000) <= 0x01FF_FFFF


def _square_root(a: Value) -> Value:
    """`a - 0xd000000 > 0x727fffff`, on the bits without sign."""
    return (a.bits(U32) + (2**32 - 0x0D00_0000)) > 0x727F_FFFF


def _upper(a: Value) -> Value:
    """The upper half of numbers of 64 bits, as integers."""
    return (a.bits(U64) >> 32).to(U32)


def _long_quotient(a: Value, b: Value) -> Value:
    """Whether one of two integers of 64 bits has a bit in its upper half."""
    return (_upper(a) | _upper(b)) != 0


def _double_quotient(a: Value, b: Value) -> Value:
    """The upper halves of the dividend and of the quotient are compared as float32s."""
    dividend, quotient = (abs(_upper(v).bits(F32)) for v in (a, a / b))
    divisor_is_finite = _upper(b).bits(F32).is_finite
    return ~((dividend >= _LEAST_DIVIDEND) & (quotient > _LEAST_QUOTIENT) & divisor_is_finite)


_LEAST_DIVIDEND = 6.5827683646048100446e-37
_LEAST_QUOTIENT = 1.469367938527859385e-39


def _double_reciprocal(a: Value) -> Value:
    """The upper half, and 0x300402 more, is compared as a float32."""
    return abs((_upper(a) + 0x0030_0402).bits(F32)) < 5.8789094863358348022e-39


def _double_root(a: Value) -> Value:
    """`a - 0x3500000 >= 0x7ca00000`, on the bits of the upper half."""
    return (_upper(a) + (2**32 - 0x0350_0000)) >= 0x7CA0_0000


_RULES: dict[str, Lowering] = {
    "div.rn.f32": _quotient,
    "rcp.rn.f32": _reciprocal,
    "sqrt.rn.f32": _square_root,
    "div.rn.f64": _double_quotient,
    "rcp.rn.f64": _double_reciprocal,
    "sqrt.rn.f64": _double_root,
    **dict.fromkeys(("div.u64", "div.s64", "rem.u64", "rem.s64"), _long_quotient),
}
