"""What instructions do to moves: by how much a result changes from block to block.

A rule is asked where a source moves. It gives the result's move, exactly, within bounds that it
sets to how far the blocks may lie (`reach.py`): a comparison must come out alike, a value must not
wrap around where it is widened or divided. What has no rule keeps the sources as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.address_space import WINDOWS
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.operands import Operands, value_of
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.program.program import DecodedInstruction, registers_of
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Vector
from memlab.device.emulator.sampling.data_dependence import is_bitwise
from memlab.device.emulator.sampling.decision_range import UNBOUNDED, DecisionRange, IntArray

Stride: TypeAlias = IntArray
"""By what a register's lanes change for a step in x, y, z: shape (3, 1) or (3, lanes)."""
StrideGetter: TypeAlias = Callable[[], "Stride | None"]
"""Gives a register's move, now; None where it does not move."""
StrideRule: TypeAlias = Callable[["SourceOperands"], "Stride | None"]
"""Gives the move of an instruction's result."""


class SourceOperands:
    """The sources of one instruction, each time it runs.

    Attributes:
        moves: What each source moves by, None where it does not.
        active: The lanes that run.
        types: The sources' PTX types.
    """

    def __init__(
        self,
        step: DecodedInstruction,
        operands: Operands,
        reach: DecisionRange,
        movers: list[StrideGetter],
    ) -> None:
        self.reach, self.step, self.types = reach, step, step.row.of
        self.moves: list[Stride | None] = []
        self.active: Mask = np.zeros(0, np.bool_)
        self._lanes, self._movers = operands.lanes, movers
        self._sources = [
            operands.source(each, ptx_type)
            for each, ptx_type in zip(step.instruction.operands[1:], self.types, strict=False)
        ]

    def begin(self, active: Mask) -> bool:
        """Look at the sources; False where none moves."""
        self.active = active
        self.moves = [mover() for mover in self._movers]
        return any(move is not None for move in self.moves)

    def value(self, source: int) -> NDArray[np.int64]:
        """The lanes of a source, of 64 bits."""
        lanes = value_of(self._sources[source])
        return np.broadcast_to(lanes, self._lanes).astype(np.int64)

    def keep(self, source: int) -> None:
        """Keep a source within its type: beyond, it would wrap around."""
        move = self.moves[source]
        if move is not None:
            value, (least, most) = self.value(source), _type_range(self.types[source])
            self.reach.restrict(move, least - value, most - value, self.active)

    def confine(self) -> Stride | None:
        """Keep all sources as they are, so that the result does not move."""
        for move in self.moves:
            if move is not None:
                self.reach.confine(move, self.active)
        return None


# --- Rules -------------------------------------------------------------------------------------


def _unknown(read: SourceOperands) -> Stride | None:
    return read.confine()


def _sign_only(read: SourceOperands) -> None:
    """A bitwise operation of whose result only the sign is asked: it stays while theirs do."""
    half = min(1 << (8 * TYPE_BYTES[read.types[0]] - 1), UNBOUNDED)
    for source, move in enumerate(read.moves):
        if move is not None:
            value = read.value(source)
            if half < UNBOUNDED:
                value = (value + half & 2 * half - 1) - half
            below = value < 0
            least, most = np.where(below, -half, 0), np.where(below, -1, half - 1)
            read.reach.restrict(move, least - value, most - value, read.active)


def _copy_stride(read: SourceOperands) -> Stride | None:
    return read.moves[0]


def _convert(read: SourceOperands) -> Stride | None:
    if TYPE_BYTES[read.step.row.to[0]] > TYPE_BYTES[read.types[0]]:
        read.keep(0)
    return _wrap_stride(read.moves[0], read.step.row.to[0])


def _add(read: SourceOperands) -> Stride | None:
    return add_strides(read.moves)


def _subtract(read: SourceOperands) -> Stride | None:
    return _subtract_strides(*read.moves)


def _negate(read: SourceOperands) -> Stride | None:
    """`neg`, and `not`, which is that less 1."""
    return _subtract_strides(None, read.moves[0])


def _no_stride(read: SourceOperands) -> None:
    """`isspacep`: an address that went into another space would be at fault there."""


def _multiply(read: SourceOperands) -> Stride | None:
    """`mul` and `mad`, `.lo` or `.wide`."""
    if TYPE_BYTES[read.step.row.to[0]] > TYPE_BYTES[read.types[0]]:
        read.keep(0)
        read.keep(1)
    a, b, *added = read.moves
    if a is not None and b is not None:  # their product is no longer linear
        read.reach.confine(a, read.active)
        a = None
    product = b * read.value(0) if b is not None else None
    if a is not None:
        product = a * read.value(1)
    return _wrap_stride(add_strides([product, *added]), read.step.row.to[0])


def _shift_left(read: SourceOperands) -> Stride | None:
    move, by = read.moves
    if move is None or by is not None:
        return read.confine()
    return _wrap_stride(move << np.clip(read.value(1), 0, 63), read.types[0])


def _shift_right(read: SourceOperands) -> Stride | None:
    if read.moves[0] is None or read.moves[1] is not None:
        return read.confine()
    return _quotient_stride(read, np.int64(1) << np.clip(read.value(1), 0, 62))[0]


def _divide(read: SourceOperands) -> Stride | None:
    divisor = read.value(1)
    if read.moves[0] is None or read.moves[1] is not None or (divisor <= 0)[read.active].any():
        return read.confine()
    quotient, remainder = _quotient_stride(read, np.maximum(divisor, 1))
    return quotient if read.step.row.opcode.startswith("div") else remainder


def _quotient_stride(
    read: SourceOperands, divisor: IntArray
) -> tuple[Stride | None, Stride | None]:
    """What quotient and remainder move by: whole multiples move the quotient alone.

    Else they move the remainder alone, as far as the quotient stays.
    """
    (move, *_), value = read.moves, read.value(0)
    assert move is not None
    read.keep(0)
    truncates = not read.step.row.opcode.startswith("shr")
    if truncates:  # towards 0, so on each side of it in another way
        below = value < 0
        bounds = np.where(below, -UNBOUNDED, -value), np.where(below, -1 - value, UNBOUNDED)
        read.reach.restrict(move, *bounds, read.active)
    if not (move % divisor)[:, read.active].any():
        return _collapse_uniform_lanes(move // divisor), None
    if truncates and (value < 0)[read.active].any():
        read.confine()
        return None, None
    first = value // divisor * divisor
    read.reach.restrict(move, first - value, first + divisor - 1 - value, read.active)
    return None, move


def _and(read: SourceOperands) -> Stride | None:
    """A mask of the lowest bits, or of all but these, where a step leaves the lowest bits."""
    source, mask = (0, 1) if read.moves[0] is not None else (1, 0)
    move = read.moves[source]
    if move is None or read.moves[mask] is not None or read.types[0] == "pred":
        return read.confine()
    unit, bits = _common_power_of_two(move, read.active), read.value(mask)[read.active]
    if ((bits >= 0) & (bits < unit)).all():
        return None
    if (bits | (unit - 1) == _type_range(read.types[0])[1]).all() or (
        bits | (unit - 1) == -1
    ).all():
        return move
    return read.confine()


def _or(read: SourceOperands) -> Stride | None:
    """An addition, where the bits are of one source or of the other."""
    source, other = (0, 1) if read.moves[0] is not None else (1, 0)
    move = read.moves[source]
    if move is None or read.moves[other] is not None or read.types[0] == "pred":
        return read.confine()
    unit = _common_power_of_two(move, read.active)
    bits, value = read.value(other)[read.active], read.value(source)[read.active]
    if ((bits >= 0) & (bits < unit) & (bits & value == 0)).all():
        return move
    return read.confine()


def _compare(read: SourceOperands) -> None:
    """`setp`: the sign of the difference decides, and whether it is 0."""
    _fix_decision(read, read.step.row.opcode.split(".")[1])


def _min_max(read: SourceOperands) -> Stride | None:
    """`min` and `max`: what they choose is chosen within the bounds."""
    _fix_decision(read, "lt")
    first = read.value(0) < read.value(1)
    return _selected_stride(read, first if read.step.row.opcode.startswith("min") else ~first)


def _select(read: SourceOperands) -> Stride | None:
    return _selected_stride(read, read.value(2) != 0)


def _fix_decision(read: SourceOperands, comparison: str) -> None:
    read.keep(0)
    read.keep(1)
    move = _subtract_strides(*read.moves[:2])
    if move is None:
        return
    apart = read.value(0) - read.value(1)
    lowest, highest = np.full(apart.shape, -UNBOUNDED), np.full(apart.shape, UNBOUNDED)
    if comparison in ("le", "ls", "gt", "hi"):
        lowest, highest = np.where(apart > 0, 1, -UNBOUNDED), np.where(apart > 0, UNBOUNDED, 0)
    elif comparison in ("lt", "lo", "ge", "hs"):
        lowest, highest = np.where(apart < 0, -UNBOUNDED, 0), np.where(apart < 0, -1, UNBOUNDED)
    else:
        lowest = np.where(apart > 0, 1, np.where(apart < 0, -UNBOUNDED, 0))
        highest = np.where(apart > 0, UNBOUNDED, np.where(apart < 0, -1, 0))
    read.reach.restrict(move, lowest - apart, highest - apart, read.active)


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
"""By the opcode without its types and, of `setp`, what it compares and joins."""


def stride_rule(step: DecodedInstruction, by_sign: bool) -> StrideRule:
    """The rule for an instruction, and for its sign where that is all that is asked of it."""
    row, operands = step.row, step.instruction.operands
    if by_sign and is_bitwise(step) and row.to != ("pred",):
        return _sign_only
    names = {name for each in operands[1:] for name in registers_of(each)}
    if row.kind != "lanes" or row.carry or not CLOCK_REGISTERS.isdisjoint(names):
        return _unknown
    if any(isinstance(each, Vector) for each in operands):
        return _unknown
    types = [each for each in row.of if each != "pred"]
    if not all(each in _INTEGERS for each in (*types, *(t for t in row.to if t != "pred"))):
        return _unknown
    name, *rest = row.opcode.split(" ")[0].split(".")
    if name == "setp":
        return _compare
    qualifiers = [each for each in rest if each not in (*_INTEGERS, *WINDOWS)]
    return _RULES.get(".".join([name, *qualifiers]), _unknown)


# --- Moves -------------------------------------------------------------------------------------


def add_strides(moves: list[Stride | None]) -> Stride | None:
    """What a sum moves by."""
    moving = [each for each in moves if each is not None]
    return sum(moving[1:], moving[0]) if moving else None


def _subtract_strides(a: Stride | None, b: Stride | None) -> Stride | None:
    return add_strides([a, None if b is None else -b])


def _selected_stride(read: SourceOperands, first: NDArray[np.bool_]) -> Stride | None:
    """What a choice between the first two sources moves by."""
    a, b = read.moves[:2]
    taken = first[read.active]
    if taken.all() or not taken.any():
        return a if taken.all() else b
    nothing = np.zeros((3, 1), np.int64)
    return np.where(first, nothing if a is None else a, nothing if b is None else b)


def _wrap_stride(move: Stride | None, ptx_type: str) -> Stride | None:
    """A move of a register of fewer than 64 bits, the shorter way round."""
    bits = 8 * TYPE_BYTES[ptx_type]
    if move is None:
        return None
    if bits < 64:
        half = 1 << (bits - 1)
        move = ((move + half) & (2 * half - 1)) - half
    return _collapse_uniform_lanes(move)


def _collapse_uniform_lanes(move: Stride) -> Stride:
    """One column for all lanes where these move alike."""
    return move[:, :1] if (move == move[:, :1]).all() else move


def _common_power_of_two(move: Stride, active: Mask) -> int:
    """The largest power of two that each step moves a value by a multiple of."""
    lanes = move if move.shape[1] == 1 else move[:, active]
    joined = int(np.bitwise_or.reduce(lanes, axis=None))
    return joined & -joined if joined else 1 << 62


def _type_range(ptx_type: str) -> tuple[int, int]:
    """What a type holds; of 64 bits, as far as their differences do not overflow."""
    bits = 8 * TYPE_BYTES[ptx_type]
    if bits == 64:
        return (-UNBOUNDED if ptx_type[0] == "s" else 0), UNBOUNDED
    if ptx_type[0] == "s":
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1
