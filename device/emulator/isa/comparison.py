"""The comparisons of `setp` and `set` and the selections, lowered to LLVM.

The definitions are those of the PTX ISA, chapters 9.7.6 and 9.7.7.
"""

from __future__ import annotations

import operator

from memlab.device.emulator.isa.arithmetic import flush_subnormals
from memlab.device.emulator.isa.values import (
    F16,
    F32,
    PRED,
    U16,
    U32,
    ElementType,
    Lowering,
    Value,
    element_type,
    over_packed_parts,
    where,
)

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge", "num")
"""Comparisons that are false where either operand is a NaN, and the test for none."""
UNORDERED = ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")
"""Comparisons that are true where either operand is a NaN, and the test for one."""

_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_RELATIONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # of unsigned integers
_RELATIONS |= {f"{name}u": _RELATIONS[name] for name in ORDERED[:6]}
_RELATIONS |= {"num": "ord", "nan": "uno"}

_COMBINERS: dict[str, Lowering] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def comparison(name: str, ftz: str, ptx_type: str) -> Lowering:
    """A comparison of a type, such as `ltu` of `f32`."""

    def run(a: Value, b: Value) -> Value:
        x, y = (_compared(value, ftz, ptx_type) for value in (a, b))
        if x.type.kind == "f":
            compare = a.builder.fcmp_unordered if name in UNORDERED else a.builder.fcmp_ordered
        else:
            compare = a.builder.icmp_signed if x.type.kind == "i" else a.builder.icmp_unsigned
        return Value(a.builder, compare(_RELATIONS[name], x.ir, y.ir), PRED)

    return run


def _compared(value: Value, ftz: str, ptx_type: str) -> Value:
    """A number of 16 bits as float32, which is compared alike; subnormals as zeros with `.ftz`."""
    if ptx_type == "bf16":
        return (value.to(U32) << 16).bits(F32)
    return flush_subnormals(value) if ftz else value


def comparison_and_opposite(name: str, ftz: str, ptx_type: str) -> Lowering:
    """A comparison, and its negation as a second result."""
    compare = comparison(name, ftz, ptx_type)

    def run(a: Value, b: Value) -> tuple[Value, Value]:
        holds = compare(a, b)
        return holds, ~holds

    return run


def joined_comparison(name: str, join: str, ftz: str, ptx_type: str) -> Lowering:
    """A comparison joined with a third source."""
    compare = comparison(name, ftz, ptx_type)
    return lambda a, b, c: _COMBINERS[join](compare(a, b), c)


def joined_comparison_and_opposite(name: str, join: str, ftz: str, ptx_type: str) -> Lowering:
    """That, and the comparison's negation joined likewise."""
    compare = comparison(name, ftz, ptx_type)

    def run(a: Value, b: Value, c: Value) -> tuple[Value, Value]:
        holds = compare(a, b)
        return _COMBINERS[join](holds, c), _COMBINERS[join](~holds, c)

    return run


def comparison_of_pair(name: str, ftz: str, ptx_type: str) -> Lowering:
    """A comparison of packed halves: of the lower ones, and of the upper ones."""
    compare = comparison(name, ftz, ptx_type)

    def run(a: Value, b: Value) -> tuple[Value, Value]:
        low, high = (
            compare(*((value >> shift).to(U16).bits(_half(ptx_type)) for value in (a, b)))
            for shift in (0, 16)
        )
        return low, high

    return run


def set_lanes(name: str, ftz: str, to: str, of: str) -> Lowering:
    """`set`: a comparison as 1.0 in a floating-point type, all ones in an integer."""
    compare, element = comparison(name, ftz, of), element_type(to)
    yes = 0x3F80 if to == "bf16" else 1 if element.kind == "f" else -1
    return lambda a, b: where(compare(a, b), a.constant(yes, element), 0)


def set_pair(name: str, ftz: str, to: str, ptx_type: str) -> Lowering:
    """`set` of packed halves to a packed pair: 1.0, or for `u32` all ones in a half."""
    truth = "u16" if to == "u32" else ptx_type
    function = set_lanes(name, ftz, truth, ptx_type)
    return over_packed_parts(lambda a, b: function(a, b).bits(U16), _half(ptx_type))


def _half(ptx_type: str) -> ElementType:
    """The type of one of a pair."""
    return F16 if ptx_type == "f16" else U16


def select(a: Value, b: Value, chosen: Value) -> Value:
    """`selp`: `a` where a predicate holds, else `b`."""
    return where(chosen, a, b)


def choose_by_sign(a: Value, b: Value, c: Value) -> Value:
    """`slct`: `a` where `c` is not negative, else `b`."""
    return where(c >= 0, a, b)


def choose_by_flushed_sign(a: Value, b: Value, c: Value) -> Value:
    """`slct.ftz`: a subnormal `c` is zero."""
    return choose_by_sign(a, b, flush_subnormals(c))
