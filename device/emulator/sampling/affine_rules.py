"""Rules for affine values: how an instruction turns the strides of its sources into its result's.

A stride is the amount by which a register changes per step of the block index. A rule applies where
a source has a stride. It gives the exact stride of the result, and restricts the decision range
(`decision_range`) to the blocks for which it holds: comparisons must come out the same, and values
must not wrap around where they are widened or divided. An instruction without a rule restricts the
range to blocks where its sources do not change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.address_space import WINDOWS
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS, is_special
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.operands import Operands, Source
from memlab.device.emulator.program.program import ACCESS_KINDS, DecodedInstruction
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Operand, Vector, registers_of
from memlab.device.emulator.sampling.data_dependence import is_bitwise
from memlab.device.emulator.sampling.decision_range import UNBOUNDED, DecisionRange, IntArray

Stride: TypeAlias = IntArray
"""Change of a register per step of the block index in x, y and z: shape (3, lanes), or (3, 1) where
it is the same for all lanes."""
StrideRule: TypeAlias = Callable[["Computation"], Stride]
"""Returns the stride of an instruction's result."""

NO_STRIDE: Stride = np.zeros((3, 1), np.int64)
"""Of a value that is the same for all blocks."""


class Computation:
    """An instruction in a chunk: its rule, and its sources in the current execution.

    Attributes:
        opcode: The opcode.
        decision_range: The range that its rule restricts.
        strides: The stride of each source.
        types: The PTX types of the sources of a computing instruction.
        decides: Whether a branch or an address depends on its result.
    """

    def __init__(
        self,
        step: DecodedInstruction,
        sources: Sequence[Operand],
        operands: Operands,
        decision_range: DecisionRange,
        by_sign: bool,
        decides: bool,
    ) -> None:
        """Prepare an instruction; with `by_sign`, its result is tested for its sign only."""
        self.decision_range, self.decides = decision_range, decides
        self.opcode, self.types, self._to = step.row.opcode, step.row.of, step.row.to
        self.strides: list[Stride] = []
        self._rule = _stride_rule(step, by_sign)
        self._widens = (
            self._rule in _RULES.values() and TYPE_BYTES[self._to[0]] > TYPE_BYTES[self.types[0]]
        )
        self._names = [name for source in sources for name in list(registers_of(source)) or [""]]
        self._registers, self._operands = operands, sources
        self._active: Mask = np.zeros(0, np.bool_)
        self._values: dict[int, IntArray] = {}  # of sources
        self._lanes_matter = self._values_matter = False

    def stride(self, strides: Mapping[str, Stride], active: Mask) -> Stride:
        """The stride of the result of an execution by some lanes, before it takes place.

        Args:
            strides: The strides of registers that have one.
            active: The lanes.
        """
        self._active, self._lanes_matter, self._values_matter = active, False, False
        self._values.clear()
        self.strides = [strides.get(name, NO_STRIDE) for name in self._names]
        if not any(map(_changes, self.strides)):
            return NO_STRIDE
        if self._widens:
            for source, ptx_type in enumerate(self.types):
                if ptx_type == self.types[0]:
                    self.keep(source)
        stride = self._rule(self)
        return uniform(wrapped(stride, self._to[0]) if self._to else stride)

    def is_fixed(self, whole: bool) -> bool:
        """Whether the same strides always have the same effect; `whole` if all lanes took part."""
        return not self._values_matter and (whole or not self._lanes_matter)

    @property
    def active(self) -> Mask:
        """The lanes that execute the instruction, as a mask."""
        self._lanes_matter = True
        return self._active

    @cached_property
    def _readers(self) -> list[Source]:
        sources = zip(self._operands, self.types, strict=False)
        return [self._registers.source(operand, ptx_type) for operand, ptx_type in sources]

    def value(self, source: int) -> IntArray:
        """The values of a source in all lanes, as 64-bit integers."""
        if source not in self._values:
            name, raw = self._names[source], self._readers[source]()
            if name and (name in CLOCK_REGISTERS or not is_special(name)):
                self._values_matter = True
            lanes = raw.astype(np.int64)
            self._values[source] = lanes if lanes.ndim else np.full(self._active.shape, lanes)
        return self._values[source]

    def keep(self, source: int) -> None:
        """Restrict the range to blocks where a source stays within its type, without wrapping."""
        stride = self.strides[source]
        if _changes(stride):
            least, most = _type_range(self.types[source])
            self.stay(stride, self.value(source), least, most + 1)

    def stay(self, stride: Stride, value: IntArray, *edges: int) -> None:
        """Restrict the range to blocks where a value stays between the same two of some edges.

        Args:
            stride: The stride of the value.
            value: The value in each lane.
            edges: The least values of each interval, ascending, and the end of the last one.
        """
        inner = edges[1:-1]
        if stride.shape[1] == 1:  # mostly all lanes lie far from the edges
            first, last = int(value.min()), int(value.max())
            place = bisect_right(inner, first)
            below, above = edges[place] - first, edges[place + 1] - 1 - last
            if bisect_right(inner, last) == place and self.decision_range.holds(
                stride, below, above
            ):
                return
        ends = np.array(edges)
        interval = np.searchsorted(inner, value, "right")
        bounds = ends[interval] - value, ends[interval + 1] - 1 - value
        self.decision_range.restrict(stride, *bounds, self.active)

    def require_unchanged(self) -> Stride:
        """Restrict the range to blocks where no source changes; so the result does not either."""
        for stride in self.strides:
            if _changes(stride):
                self.decision_range.require_unchanged(stride, self.active)
        return NO_STRIDE


# --- Rules -------------------------------------------------------------------------------------


def _access(c: Computation) -> Stride:
    """A memory access, of an address and of registers stored that may decide something later.

    A loaded value that decides something must be the same for all blocks of the range, and so must
    be its address, and a value that may be loaded later.
    """
    address, *stored = c.strides
    if _changes(address):
        c.decision_range.record_addresses(address, None if address.shape[1] == 1 else c.active)
    if not c.decides:
        c.strides = stored
    return c.require_unchanged()


def _sign_only(c: Computation) -> Stride:
    """A bitwise operation with a result tested for its sign only: the sources keep their signs."""
    half = min(1 << (8 * TYPE_BYTES[c.types[0]] - 1), UNBOUNDED)
    for source, stride in enumerate(c.strides):
        if _changes(stride):
            c.stay(stride, wrapped(c.value(source), c.types[0]), -half, 0, half)
    return NO_STRIDE


def _multiply(c: Computation) -> Stride:
    """`mul` and `mad`, `.lo` or `.wide`."""
    a, b, *added = c.strides
    if _changes(a) and _changes(b):  # their product is not linear
        c.decision_range.require_unchanged(a, c.active)
        a = NO_STRIDE
    product = a * c.value(1) if _changes(a) else b * c.value(0) if _changes(b) else NO_STRIDE
    return sum(added, product)


def _shift_left(c: Computation) -> Stride:
    stride, by = c.strides
    return c.require_unchanged() if _changes(by) else stride << np.clip(c.value(1), 0, 63)


def _divide(c: Computation) -> Stride:
    """`div`, `rem`, and `shr`, which divides by a power of two.

    A stride that is a multiple of the divisor changes the quotient alone. Any other stride changes
    the remainder alone, as far as the quotient stays the same.
    """
    (stride, by_stride), by, remains = c.strides, c.value(1), c.opcode.startswith("rem")
    truncates = not c.opcode.startswith("shr")
    divisor = by if truncates else np.int64(1) << np.clip(by, 0, 62)
    if _changes(by_stride) or (divisor <= 0)[c.active].any():
        return c.require_unchanged()
    divisor, value = np.maximum(divisor, 1), c.value(0)
    c.keep(0)
    if truncates:  # towards 0: the value must keep its sign
        c.stay(stride, value, -UNBOUNDED, 0, UNBOUNDED)
    if not (stride % divisor)[:, c.active].any():
        return NO_STRIDE if remains else stride // divisor
    if truncates and (value < 0)[c.active].any():
        return c.require_unchanged()
    inside = value % divisor
    c.decision_range.restrict(stride, -inside, divisor - 1 - inside, c.active)
    return stride if remains else NO_STRIDE


def _mask(c: Computation) -> Stride:
    """`and` with the lowest bits, or with all but these, where the stride leaves these bits alone.

    An `or` equals an addition where no bit is set in both sources.
    """
    source = 0 if _changes(c.strides[0]) else 1
    stride, other = c.strides[source], c.strides[1 - source]
    if _changes(other):
        return c.require_unchanged()
    unit = _common_power_of_two(stride if stride.shape[1] == 1 else stride[:, c.active])
    bits, value = (c.value(number)[c.active] for number in (1 - source, source))
    is_low = bool(((bits >= 0) & (bits < unit)).all())
    if c.opcode.startswith("and"):
        if is_low:
            return NO_STRIDE
        if (wrapped(bits | (unit - 1), c.types[0]) == -1).all():
            return stride
    elif is_low and not (bits & value).any():
        return stride
    return c.require_unchanged()


def _compare(c: Computation) -> Stride:
    """`setp`: the sign of the difference decides the result, or whether it is 0."""
    _fix_decision(c, c.opcode.split(".")[1])
    return NO_STRIDE


def _min_max(c: Computation) -> Stride:
    """`min` and `max`: the range is restricted to blocks that select the same source."""
    _fix_decision(c, "lt")
    return _selected(c, (c.value(0) < c.value(1)) ^ c.opcode.startswith("max"))


def _select(c: Computation) -> Stride:
    return _selected(c, c.value(2) != 0)


def _selected(c: Computation, first: NDArray[np.bool_]) -> Stride:
    """The stride of a selection between the first two sources."""
    a, b = c.strides[:2]
    taken = first[c.active]
    return a if taken.all() else np.where(first, a, b) if taken.any() else b


_CUTS = {"le": [1], "ls": [1], "gt": [1], "hi": [1], "lt": [0], "lo": [0], "ge": [0], "hs": [0]}
"""The differences at which the result of a comparison changes; `eq` and `ne` have both."""


def _fix_decision(c: Computation, comparison: str) -> None:
    c.keep(0)
    c.keep(1)
    difference = c.value(0) - c.value(1)
    cuts = _CUTS.get(comparison, [0, 1])
    c.stay(c.strides[0] - c.strides[1], difference, -UNBOUNDED, *cuts, UNBOUNDED)


_INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "b16", "b32", "b64")
_RULES: dict[str, StrideRule] = {
    **dict.fromkeys(("mov", "cvta", "cvta.to", "cvt"), lambda c: c.strides[0]),
    "add": lambda c: c.strides[0] + c.strides[1],
    "sub": lambda c: c.strides[0] - c.strides[1],
    # `not` is the negated value less 1.
    **dict.fromkeys(("neg", "not"), lambda c: -c.strides[0]),
    **dict.fromkeys(("mul.lo", "mul.wide", "mad.lo", "mad.wide"), _multiply),
    "shl": _shift_left,
    **dict.fromkeys(("shr", "div", "rem"), _divide),
    **dict.fromkeys(("and", "or"), _mask),
    **dict.fromkeys(("min", "max"), _min_max),
    "selp": _select,
    "setp": _compare,
    # An address that moved into another state space would be at fault there.
    **dict.fromkeys(("isspacep", "isspacep.own"), lambda c: NO_STRIDE),
}
"""Rules by opcode, without its types and state spaces. Sources that are widened are kept."""


def gives_stride(step: DecodedInstruction, by_sign: bool) -> bool:
    """Whether the result of an instruction may have a stride; `by_sign` as for `Computation`."""
    return _stride_rule(step, by_sign) in _RULES.values() and step.row.to != ("pred",)


def _stride_rule(step: DecodedInstruction, by_sign: bool) -> StrideRule:
    """The rule for an instruction; with `by_sign`, for a result tested for its sign only."""
    row, operands = step.row, step.instruction.operands
    if row.kind in ACCESS_KINDS:
        return _access
    if by_sign and is_bitwise(step) and row.to != ("pred",):
        return _sign_only
    names = {name for operand in operands[1:] for name in registers_of(operand)}
    has_vector = any(isinstance(operand, Vector) for operand in operands)
    types = {ptx_type for ptx_type in (*row.of, *row.to) if ptx_type != "pred"}
    if (
        row.kind != "lanes"
        or row.carry
        or has_vector
        or not CLOCK_REGISTERS.isdisjoint(names)
        or not types.issubset(_INTEGERS)
    ):
        return Computation.require_unchanged
    name, *rest = row.opcode.split(" ")[0].split(".")
    if name == "setp":
        return _compare
    qualifiers = [word for word in rest if word not in (*_INTEGERS, *WINDOWS)]
    return _RULES.get(".".join([name, *qualifiers]), Computation.require_unchanged)


# --- Strides -------------------------------------------------------------------------------------


def _changes(stride: Stride) -> bool:
    """Whether a value of this stride differs between blocks."""
    return stride is not NO_STRIDE and bool(stride.any())


def wrapped(value: IntArray, ptx_type: str) -> IntArray:
    """Values reduced to a register's width: of those that are equal, the nearest ones to 0."""
    half = 1 << (8 * TYPE_BYTES[ptx_type] - 1)
    return value if half >= 1 << 63 else ((value + half) & (2 * half - 1)) - half


def uniform(stride: Stride) -> Stride:
    """The stride as one column, where it is the same for all lanes."""
    return stride[:, :1] if (stride == stride[:, :1]).all() else stride


def _common_power_of_two(strides: Stride) -> int:
    """The largest power of two that divides all strides; 0 if all are 0."""
    combined = int(np.bitwise_or.reduce(strides, axis=None))
    return combined & -combined


def _type_range(ptx_type: str) -> tuple[int, int]:
    """The least and the greatest value of a type; for 64 bits, such that differences fit."""
    bits = 8 * TYPE_BYTES[ptx_type]
    if bits == 64:
        return (-UNBOUNDED if ptx_type[0] == "s" else 0), UNBOUNDED
    if ptx_type[0] == "s":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1
