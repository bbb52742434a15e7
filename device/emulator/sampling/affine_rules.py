"""Rules for affine values: how an instruction turns the strides of its sources into its result's.

A stride is the amount by which a register changes per step of the block index. A rule applies where
a source has a stride. It gives the exact stride of the result, and restricts the decision range
(`decision_range`) to the blocks for which it holds: comparisons must come out the same, and values
must not wrap around where they are widened or divided. An instruction without a rule restricts the
range to blocks where its sources do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.address_space import WINDOWS
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS, is_special
from memlab.device.emulator.machine.context import Conditions, lanes_to_words
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.program import DecodedInstruction, registers_of
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Negated, Register, Vector
from memlab.device.emulator.sampling.data_dependence import is_bitwise
from memlab.device.emulator.sampling.decision_range import UNBOUNDED, DecisionRange, IntArray

Stride: TypeAlias = IntArray
"""Change of a register per step of the block index in x, y and z: shape (3, lanes), or (3, 1) where
it is the same for all lanes."""
StrideGetter: TypeAlias = Callable[[], "Stride | None"]
"""Returns the current stride of a register; None where it does not change."""
StrideRule: TypeAlias = Callable[["Computation"], "Stride | None"]
"""Returns the stride of an instruction's result; None where it does not change."""


class Computation:
    """One computing instruction: its rule, and its sources in the current execution.

    Attributes:
        step: The instruction.
        decision_range: The range that its rule restricts.
        strides: The stride of each source, None where it does not change.
        types: The PTX types of the sources.
    """

    def __init__(
        self,
        step: DecodedInstruction,
        operands: Operands,
        decision_range: DecisionRange,
        stride_getters: list[StrideGetter],
        by_sign: bool,
    ) -> None:
        """Prepare an instruction; with `by_sign`, its result is tested for its sign only."""
        self.decision_range, self.step, self.types = decision_range, step, step.row.of
        self.strides: list[Stride | None] = []
        self._rule = _stride_rule(step, by_sign)
        self._active: Mask = np.zeros(0, np.bool_)
        self._registers, self._lanes = operands, operands.lanes
        self._stride_getters = stride_getters
        self._operands = step.instruction.operands[1:]
        self._sources = [
            operands.source(operand, ptx_type)
            for operand, ptx_type in zip(self._operands, self.types, strict=False)
        ]
        self._lanes_matter = False
        self._exact: set[int] = set()  # sources whose values the result depends on
        self._kept: set[int] = set()  # sources that must only stay within their types

    def stride(self, active: Mask) -> Stride | None:
        """The stride of the result of an execution by some lanes, before it takes place."""
        self._active, self._lanes_matter = active, False
        self._exact.clear()
        self._kept.clear()
        self.strides = [getter() for getter in self._stride_getters]
        if all(stride is None for stride in self.strides):
            return None
        return self._rule(self)

    def is_fixed(self, whole: bool) -> bool:
        """Whether the same strides always have the same effect; `whole` if all lanes took part."""
        return not self._exact and not self._kept and (whole or not self._lanes_matter)

    def conditions(self) -> Conditions:
        """When the same strides have the same effect as in this execution."""
        lanes = self._active
        bounds = {}
        for source in self._exact | self._kept:
            operand = self._operands[source]
            name = next(registers_of(operand))
            if is_special(name):  # the same throughout
                continue
            raw = self._registers.register(name)
            width = TYPE_BYTES.get(self.types[source])
            if raw.dtype == np.bool_:
                words = lanes_to_words(raw)
                bounds[name] = words, words
            elif source in self._exact or width != raw.itemsize:
                bounds[name] = raw, np.zeros_like(raw)
            else:
                stride, (least, most) = self.strides[source], _type_range(self.types[source])
                assert stride is not None
                backward, forward = self.decision_range.change_bounds(stride, lanes.size)
                low, high = least - backward, most - forward
                lanes = lanes & (low <= high)
                bounds[name] = low.astype(raw.dtype), (high - low).astype(raw.dtype)
        return Conditions(lanes, bounds)

    @property
    def active(self) -> Mask:
        """The lanes that execute the instruction, as a mask."""
        self._lanes_matter = True
        return self._active

    def value(self, source: int) -> NDArray[np.int64]:
        """The values of a source in all lanes, as 64-bit integers."""
        if isinstance(self._operands[source], Register | Negated):
            self._exact.add(source)
        return self._value(source)

    def _value(self, source: int) -> NDArray[np.int64]:
        return np.broadcast_to(self._sources[source](), self._lanes).astype(np.int64)

    def keep(self, source: int) -> None:
        """Restrict the range to blocks where a source stays within its type, without wrapping."""
        stride = self.strides[source]
        if stride is not None:
            self._kept.add(source)
            value, (least, most) = self._value(source), _type_range(self.types[source])
            self.decision_range.restrict(stride, least - value, most - value, self.active)

    def require_unchanged(self) -> Stride | None:
        """Restrict the range to blocks where no source changes; so the result does not either."""
        for stride in self.strides:
            if stride is not None:
                self.decision_range.require_unchanged(stride, self.active)
        return None


# --- Rules -------------------------------------------------------------------------------------


def _unknown(sources: Computation) -> Stride | None:
    return sources.require_unchanged()


def _sign_only(sources: Computation) -> None:
    """A bitwise operation with a result tested for its sign only: the sources keep their signs."""
    half = min(1 << (8 * TYPE_BYTES[sources.types[0]] - 1), UNBOUNDED)
    for source, stride in enumerate(sources.strides):
        if stride is not None:
            value = sources.value(source)
            if half < UNBOUNDED:
                value = (value + half & 2 * half - 1) - half
            below = value < 0
            least, most = np.where(below, -half, 0), np.where(below, -1, half - 1)
            sources.decision_range.restrict(stride, least - value, most - value, sources.active)


def _copy_stride(sources: Computation) -> Stride | None:
    return sources.strides[0]


def _convert(sources: Computation) -> Stride | None:
    if TYPE_BYTES[sources.step.row.to[0]] > TYPE_BYTES[sources.types[0]]:
        sources.keep(0)
    return _wrap_stride(sources.strides[0], sources.step.row.to[0])


def _add(sources: Computation) -> Stride | None:
    return add_strides(sources.strides)


def _subtract(sources: Computation) -> Stride | None:
    return _subtract_strides(*sources.strides)


def _negate(sources: Computation) -> Stride | None:
    """`neg`, and `not`, which is the negated value less 1."""
    return _subtract_strides(None, sources.strides[0])


def _no_stride(sources: Computation) -> None:
    """`isspacep`: an address that moved into another state space would be at fault there."""


def _multiply(sources: Computation) -> Stride | None:
    """`mul` and `mad`, `.lo` or `.wide`."""
    if TYPE_BYTES[sources.step.row.to[0]] > TYPE_BYTES[sources.types[0]]:
        sources.keep(0)
        sources.keep(1)
    a, b, *added = sources.strides
    if a is not None and b is not None:  # their product is not linear
        sources.decision_range.require_unchanged(a, sources.active)
        a = None
    product = b * sources.value(0) if b is not None else None
    if a is not None:
        product = a * sources.value(1)
    return _wrap_stride(add_strides([product, *added]), sources.step.row.to[0])


def _shift_left(sources: Computation) -> Stride | None:
    stride, by = sources.strides
    if by is not None:
        return sources.require_unchanged()
    assert stride is not None
    return _wrap_stride(stride << np.clip(sources.value(1), 0, 63), sources.types[0])


def _shift_right(sources: Computation) -> Stride | None:
    if sources.strides[1] is not None:
        return sources.require_unchanged()
    return _quotient_stride(sources, np.int64(1) << np.clip(sources.value(1), 0, 62))[0]


def _divide(sources: Computation) -> Stride | None:
    divisor = sources.value(1)
    if sources.strides[1] is not None or (divisor <= 0)[sources.active].any():
        return sources.require_unchanged()
    quotient, remainder = _quotient_stride(sources, np.maximum(divisor, 1))
    return quotient if sources.step.row.opcode.startswith("div") else remainder


def _quotient_stride(
    sources: Computation, divisor: IntArray
) -> tuple[Stride | None, Stride | None]:
    """The strides of quotient and remainder.

    A stride that is a multiple of the divisor changes the quotient alone. Any other stride changes
    the remainder alone, as far as the quotient stays the same.
    """
    (stride, *_), value = sources.strides, sources.value(0)
    assert stride is not None
    sources.keep(0)
    truncates = not sources.step.row.opcode.startswith("shr")
    if truncates:  # towards 0: the value must keep its sign
        below = value < 0
        bounds = np.where(below, -UNBOUNDED, -value), np.where(below, -1 - value, UNBOUNDED)
        sources.decision_range.restrict(stride, *bounds, sources.active)
    if not (stride % divisor)[:, sources.active].any():
        return _collapse_uniform_lanes(stride // divisor), None
    if truncates and (value < 0)[sources.active].any():
        sources.require_unchanged()
        return None, None
    first = value // divisor * divisor
    sources.decision_range.restrict(
        stride, first - value, first + divisor - 1 - value, sources.active
    )
    return None, stride


def _and(sources: Computation) -> Stride | None:
    """A mask of the lowest bits, or of all but these, where the stride leaves these bits alone."""
    source, mask = (0, 1) if sources.strides[0] is not None else (1, 0)
    stride = sources.strides[source]
    if sources.strides[mask] is not None:
        return sources.require_unchanged()
    assert stride is not None
    unit, bits = _common_power_of_two(stride, sources.active), sources.value(mask)[sources.active]
    if ((bits >= 0) & (bits < unit)).all():
        return None
    if (bits | (unit - 1) == _type_range(sources.types[0])[1]).all() or (
        bits | (unit - 1) == -1
    ).all():
        return stride
    return sources.require_unchanged()


def _or(sources: Computation) -> Stride | None:
    """Equal to an addition where no bit is set in both sources."""
    source, other = (0, 1) if sources.strides[0] is not None else (1, 0)
    stride = sources.strides[source]
    if sources.strides[other] is not None:
        return sources.require_unchanged()
    assert stride is not None
    unit = _common_power_of_two(stride, sources.active)
    bits, value = sources.value(other)[sources.active], sources.value(source)[sources.active]
    if ((bits >= 0) & (bits < unit) & (bits & value == 0)).all():
        return stride
    return sources.require_unchanged()


def _compare(sources: Computation) -> None:
    """`setp`: the sign of the difference decides the result, or whether it is 0."""
    _fix_decision(sources, sources.step.row.opcode.split(".")[1])


def _min_max(sources: Computation) -> Stride | None:
    """`min` and `max`: the range is restricted to blocks that select the same source."""
    _fix_decision(sources, "lt")
    first = sources.value(0) < sources.value(1)
    return _selected_stride(sources, first if sources.step.row.opcode.startswith("min") else ~first)


def _select(sources: Computation) -> Stride | None:
    return _selected_stride(sources, sources.value(2) != 0)


def _fix_decision(sources: Computation, comparison: str) -> None:
    sources.keep(0)
    sources.keep(1)
    stride = _subtract_strides(*sources.strides[:2])
    if stride is None:
        return
    apart = sources.value(0) - sources.value(1)
    lowest, highest = np.full(apart.shape, -UNBOUNDED), np.full(apart.shape, UNBOUNDED)
    if comparison in ("le", "ls", "gt", "hi"):
        lowest, highest = np.where(apart > 0, 1, -UNBOUNDED), np.where(apart > 0, UNBOUNDED, 0)
    elif comparison in ("lt", "lo", "ge", "hs"):
        lowest, highest = np.where(apart < 0, -UNBOUNDED, 0), np.where(apart < 0, -1, UNBOUNDED)
    else:
        lowest = np.where(apart > 0, 1, np.where(apart < 0, -UNBOUNDED, 0))
        highest = np.where(apart > 0, UNBOUNDED, np.where(apart < 0, -1, 0))
    sources.decision_range.restrict(stride, lowest - apart, highest - apart, sources.active)


_INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "b16", "b32", "b64")
_RULES: dict[str, StrideRule] = {
    "mov": _copy_stride,
    "cvta": _copy_stride,
    "cvta.to": _copy_stride,
    "cvt": _convert,
    "add": _add,
    "sub": _subtract,
    "neg": _negate,
    "not": _negate,
    "isspacep": _no_stride,
    "mul.lo": _multiply,
    "mul.wide": _multiply,
    "mad.lo": _multiply,
    "mad.wide": _multiply,
    "shl": _shift_left,
    "shr": _shift_right,
    "div": _divide,
    "rem": _divide,
    "and": _and,
    "or": _or,
    "setp": _compare,
    "min": _min_max,
    "max": _min_max,
    "selp": _select,
}
"""Rules by opcode, without its types and state spaces."""


def gives_stride(step: DecodedInstruction, by_sign: bool) -> bool:
    """Whether the result of an instruction may have a stride; `by_sign` as for `Computation`."""
    return _stride_rule(step, by_sign) not in (_unknown, _sign_only, _no_stride, _compare)


def _stride_rule(step: DecodedInstruction, by_sign: bool) -> StrideRule:
    """The rule for an instruction; with `by_sign`, for a result tested for its sign only."""
    row, operands = step.row, step.instruction.operands
    if by_sign and is_bitwise(step) and row.to != ("pred",):
        return _sign_only
    names = {name for operand in operands[1:] for name in registers_of(operand)}
    if row.kind != "lanes" or row.carry or not CLOCK_REGISTERS.isdisjoint(names):
        return _unknown
    if any(isinstance(operand, Vector) for operand in operands):
        return _unknown
    types = [ptx_type for ptx_type in (*row.of, *row.to) if ptx_type != "pred"]
    if not all(ptx_type in _INTEGERS for ptx_type in types):
        return _unknown
    name, *rest = row.opcode.split(" ")[0].split(".")
    if name == "setp":
        return _compare
    qualifiers = [word for word in rest if word not in (*_INTEGERS, *WINDOWS)]
    return _RULES.get(".".join([name, *qualifiers]), _unknown)


# --- Strides -------------------------------------------------------------------------------------


def add_strides(strides: list[Stride | None]) -> Stride | None:
    """The stride of a sum."""
    changing = [stride for stride in strides if stride is not None]
    return sum(changing[1:], changing[0]) if changing else None


def _subtract_strides(a: Stride | None, b: Stride | None) -> Stride | None:
    return add_strides([a, None if b is None else -b])


def _selected_stride(sources: Computation, first: NDArray[np.bool_]) -> Stride | None:
    """The stride of a selection between the first two sources."""
    a, b = sources.strides[:2]
    taken = first[sources.active]
    if taken.all() or not taken.any():
        return a if taken.all() else b
    nothing = np.zeros((3, 1), np.int64)
    return np.where(first, nothing if a is None else a, nothing if b is None else b)


def _wrap_stride(stride: Stride | None, ptx_type: str) -> Stride | None:
    """A stride reduced to a register's width: of the equal ones the one nearest to 0."""
    bits = 8 * TYPE_BYTES[ptx_type]
    if stride is None:
        return None
    if bits < 64:
        half = 1 << (bits - 1)
        stride = ((stride + half) & (2 * half - 1)) - half
    return _collapse_uniform_lanes(stride)


def _collapse_uniform_lanes(stride: Stride) -> Stride:
    """The stride as one column, where it is the same for all lanes."""
    return stride[:, :1] if (stride == stride[:, :1]).all() else stride


def _common_power_of_two(stride: Stride, active: Mask) -> int:
    """The largest power of two that divides the strides of all active lanes; 0 if all are 0."""
    lanes = stride if stride.shape[1] == 1 else stride[:, active]
    combined = int(np.bitwise_or.reduce(lanes, axis=None))
    return combined & -combined


def _type_range(ptx_type: str) -> tuple[int, int]:
    """The least and the greatest value of a type; for 64 bits, such that differences fit."""
    bits = 8 * TYPE_BYTES[ptx_type]
    if bits == 64:
        return (-UNBOUNDED if ptx_type[0] == "s" else 0), UNBOUNDED
    if ptx_type[0] == "s":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1
