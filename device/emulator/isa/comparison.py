"""The comparisons of `setp` and `set` and the selections, lowered to LLVM.

The definitions are those of the PTX ISA, chapters 9.7.6 and 9.7.7.
"""

from __future__ import annotations

import operator

from memlab.device.emulator.isa.arithmetic import flush
from memlab.device.emulator.isa.rounding import widened
from memlab.device.emulator.isa.values import U16, Lowering, Value, element_type, where

_RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INTEGER_COMPARISONS = tuple(_RELATIONS)
ORDERED = (*_RELATIONS, "num")
"""Comparisons that are false where either operand is a NaN, and the test for none."""
UNORDERED = (*(f"{name}u" for name in _RELATIONS), "nan")
"""Comparisons that are true where either operand is a NaN, and the test for one."""
_RELATIONS |= {f"{name}u": relation for name, relation in _RELATIONS.items()}
_RELATIONS |= {"num": "ord", "nan": "uno"}
_RELATIONS |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # of unsigned integers

_JOINS: dict[str, Lowering] = {".and": operator.and_, ".or": operator.or_, ".xor": operator.xor}


def compare(name: str, ftz: str, ptx_type: str, *sources: Value) -> Value:
    """A comparison of two values of a type, such as `ltu` of `f32`."""
    a, b = (flush(value, ftz) for value in sources)
    if ptx_type == "bf16":
        a, b = widened(a, ptx_type), widened(b, ptx_type)
    return a.compare(_RELATIONS[name], b, name in UNORDERED)


def set_predicate(
    name: str, join: str, ftz: str, ptx_type: str, pair: str, a: Value, b: Value, *third: Value
) -> Value | tuple[Value, ...]:
    """`setp`: a comparison, which may be joined with a third source.

    Where there is a pair of results, the second is that of the comparison's negation.
    """
    holds = compare(name, ftz, ptx_type, a, b)
    results = (holds, ~holds) if pair else (holds,)
    if join:
        results = tuple(_JOINS[join](result, *third) for result in results)
    return results if pair else results[0]


def set_predicates(name: str, ftz: str, ptx_type: str, *sources: Value) -> tuple[Value, ...]:
    """`setp` of packed halves: of the lower ones, and of the upper ones."""
    kind = element_type(ptx_type)
    return tuple(
        compare(name, ftz, ptx_type, *((a >> shift).to(U16).bits(kind) for a in sources))
        for shift in (0, 16)
    )


def set_lanes(name: str, ftz: str, to: str, of: str, a: Value, b: Value) -> Value:
    """`set`: a comparison as 1.0 in a floating-point type, all ones in an integer."""
    kind = element_type(to)
    yes = 0x3F80 if to == "bf16" else 1 if kind.kind == "f" else -1
    return where(compare(name, ftz, of, a, b), a.constant(yes, kind), 0)


def set_parts(name: str, ftz: str, to: str, of: str, a: Value, b: Value) -> Value:
    """`set` of packed halves to a packed pair: 1.0, or for `u32` all ones in a half."""
    return set_lanes(name, ftz, "u16" if to == "u32" else of, of, a, b).bits(U16)


def choose_by_sign(ftz: str, a: Value, b: Value, c: Value) -> Value:
    """`slct`: `a` where `c` is not negative, else `b`."""
    return where(flush(c, ftz) >= 0, a, b)
