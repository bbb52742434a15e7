"""The comparisons of `setp` and `set` (PTX ISA, chapters 9.7.6 and 9.7.7)."""

from __future__ import annotations

import numpy as np

from tests.reference.arithmetic import Function, flush_subnormals, on_widened_values
from tests.reference.rounding import LaneValues

ORDERED: dict[str, Function] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
"""Comparisons that are false where either operand is a NaN."""

UNORDERED: dict[str, Function] = {
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
"""Comparisons that are true where either operand is a NaN, and the tests for one."""


_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINERS: dict[str, Function] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def comparison(name: str, ftz: str, ptx_type: str) -> Function:
    """A comparison of a type, such as `ltu` of `f32`."""
    name = _UNSIGNED.get(name, name)
    function = (ORDERED if name in ORDERED else UNORDERED)[name]
    if ptx_type[0] in "bsu" and ptx_type != "bf16" and name == "ne":
        function = np.not_equal
    function = on_widened_values(function, ptx_type)
    return (lambda a, b: function(flush_subnormals(a), flush_subnormals(b))) if ftz else function


def comparison_and_opposite(name: str, ftz: str, ptx_type: str) -> Function:
    """A comparison, and its negation as a second result."""
    compare = comparison(name, ftz, ptx_type)

    def run(a: LaneValues, b: LaneValues) -> tuple[LaneValues, LaneValues]:
        holds = compare(a, b)
        return holds, ~holds

    return run


def joined_comparison(name: str, join: str, ftz: str, ptx_type: str) -> Function:
    """A comparison joined with a third source by `and`, `or` or `xor`."""
    compare = comparison(name, ftz, ptx_type)
    return lambda a, b, c: _COMBINERS[join](compare(a, b), c)


def joined_comparison_and_opposite(name: str, join: str, ftz: str, ptx_type: str) -> Function:
    """That, and the comparison's negation joined likewise."""
    compare = comparison(name, ftz, ptx_type)

    def run(a: LaneValues, b: LaneValues, c: LaneValues) -> tuple[LaneValues, LaneValues]:
        holds = compare(a, b)
        return _COMBINERS[join](holds, c), _COMBINERS[join](~holds, c)

    return run


def comparison_of_pair(name: str, ftz: str, ptx_type: str) -> Function:
    """A comparison of packed halves: of the lower ones, and of the upper ones."""
    compare = comparison(name, ftz, ptx_type)
    return lambda a, b: tuple(map(compare, _halves(a, ptx_type), _halves(b, ptx_type)))


def set_lanes(name: str, ftz: str, to: str, of: str) -> Function:
    """`set`: a comparison as 1.0 in a floating-point type, all ones in an integer."""
    compare = comparison(name, ftz, of)
    yes = {"f32": 0x3F80_0000, "f16": 0x3C00, "bf16": 0x3F80}.get(to)
    bits = np.dtype("u2" if to.endswith("16") else "u4")
    truth = bits.type(~bits.type(0) if yes is None else yes)
    seen = bits if to == "bf16" else np.dtype(f"{'i' if to[0] == 's' else to[0]}{bits.itemsize}")
    if to == "f16":
        return lambda a, b: np.where(compare(a, b), np.float16(1), np.float16(0))
    return lambda a, b: np.where(compare(a, b), truth.view(seen), seen.type(0))


def set_pair(name: str, ftz: str, to: str, ptx_type: str) -> Function:
    """`set` of packed halves to a packed pair: 1.0, or for `u32` all ones in a half."""
    compare = comparison(name, ftz, ptx_type)
    truth = np.uint32({"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(to, 0xFFFF))

    def run(a: LaneValues, b: LaneValues) -> LaneValues:
        low, high = map(compare, _halves(a, ptx_type), _halves(b, ptx_type))
        return np.where(low, truth, np.uint32(0)) | np.where(high, truth << np.uint32(16), 0)

    return run


def _halves(lanes: LaneValues, ptx_type: str) -> list[LaneValues]:
    """The lower and the upper halves of packed pairs."""
    parts = (lanes.astype(np.uint16), (lanes >> np.uint32(16)).astype(np.uint16))
    return [np.asarray(part).view(np.float16 if ptx_type == "f16" else np.uint16) for part in parts]
