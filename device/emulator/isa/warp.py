"""The instructions that a warp executes together: shuffles, votes, matches and reductions.

Sources and results are values of 32 lanes. `active` marks the lanes that execute the instruction;
the results of other lanes mean nothing. The member mask of a lane names the lanes that take part
with it (PTX ISA, chapters 9.7.8 and 9.7.13). It is the same constant for all lanes in nearly all
code, which then needs no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from memlab.device.emulator.isa import values
from memlab.device.emulator.isa.values import PRED, S32, U32, ElementType, Value, broadcast, where

LANES = range(32)
_I32 = ir.IntType(32)

UNDEFINED = 0xFFFF_FFFF
"""The value that a shuffle reads from a lane that takes no part, which PTX leaves undefined. It is
a NaN in every floating-point width, so that it shows in results."""


# --- Masks and lanes -------------------------------------------------------------------------


def _is_set(mask: Value, lane: Value) -> Value:
    return mask >> lane.to(U32) & 1 != 0


def _lowest(bits: Value) -> Value:
    """The number of the lowest bit that is set in a single number; 0 for none."""
    return bits.call("llvm.cttz", flag=False) & 31


# --- Shuffles --------------------------------------------------------------------------------


def _source_lanes(mode: str, b: Value, c: Value) -> tuple[Value, Value]:
    """The lane that each lane reads, and whether it was in range; constants if `b` and `c` are."""
    lane = _constant(b, LANES, S32)
    steps, bounds = b.numbers, c.numbers
    if steps is None or bounds is None:
        source, in_range = source_lane(mode, lane, b.to(S32), c.to(S32))
        return where(in_range, source, lane), in_range
    pairs = [source_lane(mode, *numbers) for numbers in zip(LANES, steps, bounds, strict=True)]
    read = [source if valid else own for own, (source, valid) in zip(LANES, pairs, strict=True)]
    return _constant(b, read, S32), _constant(b, [valid for _, valid in pairs], PRED)


def source_lane(mode: str, lane: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """The lane that a lane reads in a `shfl.sync`, and whether it is in range.

    All are signed: numbers of one lane, or values or NumPy arrays of many. A lane whose source is
    out of range reads itself.
    """
    step, clamp, segment = b & 31, c & 31, c >> 8 & 31
    bound = lane & segment | clamp & ~segment
    if mode == "up":
        return lane - step, lane - step >= bound
    if mode == "down":
        source = lane + step
    elif mode == "bfly":
        source = lane ^ step
    else:
        source = lane & segment | step & ~segment
    return source, source <= bound


def _constant(of: Value, numbers: Sequence[int], element: ElementType) -> Value:
    kind = values.shaped(element, len(numbers))
    lanes = [ir.Constant(element.ir, int(number)) for number in numbers]
    return Value(of.builder, ir.Constant(kind, lanes), element)


def _is_source_participating(active: Value, source: Value, mask: Value) -> Value:
    """Whether the lane that each active lane reads takes part in the shuffle with it.

    It does if the reader's mask names it, and also if both lanes have the same mask.
    """
    executes = _is_set(broadcast(active.bits(U32), 32), source)
    if mask.known is not None:
        return executes
    return executes & (_is_set(mask, source) | (permuted(mask, source) == mask))


def permuted(value: Value, source: Value) -> Value:
    """A value of 32 bits from the lane that each lane names."""
    if source.numbers is not None:
        return values.shuffled(value, source.numbers)
    return values.outlined("permute_lanes", value.type, _permuted_by_memory, value, source)


def _permuted_by_memory(value: Value, source: Value) -> Value:
    # LLVM has no instruction for it. Loads one by one are faster than `llvm.masked.gather`.
    b, kind = value.builder, value.ir.type
    memory = b.alloca(kind)
    b.store(value.ir, memory)
    result: ir.Value = ir.Constant(kind, ir.Undefined)
    for lane in map(_I32, LANES):
        place = b.gep(memory, [b.extract_element(source.ir, lane)], source_etype=_I32)
        result = b.insert_element(result, b.load(place, typ=_I32), lane)
    return Value(b, result, value.type)


def shuffle(
    mode: str, pair: str, active: Value, value: Value, b: Value, c: Value, mask: Value
) -> Value | tuple[Value, Value]:
    """`shfl.sync` in mode `up`, `down`, `bfly` or `idx`.

    Returns:
        The value; for a pair of results, also whether the lane that was read was in range.
    """
    source, in_range = _source_lanes(mode, b, c)
    takes_part = _is_source_participating(active, source, mask)
    result = where(takes_part, permuted(value, source), UNDEFINED)
    return (result, in_range) if pair else result


# --- Over the members ------------------------------------------------------------------------


def _for_each_group(
    active: Value, mask: Value, element: ElementType, function: Callable[[Value, Value], Value]
) -> Value:
    """A number for each group of active lanes with one member mask, in all lanes of the group.

    Args:
        active: The active lanes.
        mask: The member masks.
        element: The type of the number.
        function: From the bits of the group's lanes and their mask to the number of the group; all
            are single numbers.
    """
    b, active_bits = active.builder, active.bits(U32)
    named = mask.known
    if named is not None:
        return broadcast(function(active_bits, active_bits.constant(named)), 32)
    start, loop, end = b.block, b.append_basic_block("groups"), b.append_basic_block("grouped")
    b.branch(loop)
    b.position_at_end(loop)
    kind = values.shaped(element, 32)
    remaining, result = Value(b, b.phi(_I32), U32), Value(b, b.phi(kind), element)
    first = mask.lane(_lowest(remaining))
    lanes = (mask == broadcast(first, 32)).bits(U32) & remaining
    found = where(lanes.bits(PRED), broadcast(function(lanes, first), 32), result)
    others = remaining ^ lanes
    remaining.ir.add_incoming(active_bits.ir, start)
    remaining.ir.add_incoming(others.ir, loop)
    result.ir.add_incoming(ir.Constant(kind, None), start)
    result.ir.add_incoming(found.ir, loop)
    b.cbranch((others != 0).ir, loop, end)
    b.position_at_end(end)
    return found


def vote(kind: str, _type: str, active: Value, p: Value, mask: Value) -> Value:
    """`vote.sync`: `all`, `any`, `uni` or `ballot`."""
    over: dict[str, Callable[[Value, Value], Value]] = {
        "all": lambda true, members: true == members,
        "any": lambda true, members: true != 0,
        "uni": lambda true, members: (true == members) | (true == 0),
        "ballot": lambda true, members: true,
    }
    true = p.bits(U32)
    return _for_each_group(
        active,
        mask,
        U32 if kind == "ballot" else PRED,
        lambda lanes, named: over[kind](true & lanes & named, lanes & named),
    )


def active_mask(active: Value) -> Value:
    """`activemask`."""
    return broadcast(active.bits(U32), 32)


def match_any(active: Value, value: Value, mask: Value) -> Value:
    """`match.any.sync`: the members that hold the same value as each lane."""
    alike = values.outlined("lanes_alike", U32, _lanes_alike, value)
    found = alike & mask & broadcast(active.bits(U32), 32)
    if mask.known is not None:
        return found
    return found & values.outlined("lanes_alike", U32, _lanes_alike, mask)


def _lanes_alike(value: Value) -> Value:
    """The bits of the lanes that hold the same number as each lane."""
    result = value.constant(0, U32)
    for lane in LANES:
        alike = value == values.shuffled(value, [lane] * 32)
        result = where(alike, result | 1 << lane, result)
    return result


def match_all(
    _type: str, pair: str, active: Value, value: Value, mask: Value
) -> Value | tuple[Value, Value]:
    """`match.all.sync`: the members where all hold one value, else 0; and whether they do."""

    def members_if_same(lanes: Value, named: Value) -> Value:
        members = lanes & named
        first = value.lane(_lowest(members))
        same = (value == broadcast(first, 32)).bits(U32)
        return where((members & ~same) == 0, members, 0)

    result = _for_each_group(active, mask, U32, members_if_same)
    return (result, result != 0) if pair else result


def reduce_members(name: str, _type: str, active: Value, value: Value, mask: Value) -> Value:
    """`redux.sync`: all members' values combined."""
    kind = value.type
    identity = {"min": kind.most, "max": kind.least, "and": -1}.get(name, 0)
    if name in ("min", "max"):
        name = f"{'s' if kind.kind == 'i' else 'u'}{name}"
    b, source = value.builder, value.ir.type
    reduce = values.intrinsic(b, f"llvm.vector.reduce.{name}", _I32, [source], "v32i32")

    def combined(lanes: Value, named: Value) -> Value:
        taken = where((lanes & named).bits(PRED), value, identity)
        return Value(b, b.call(reduce, [taken.ir]), kind)

    return _for_each_group(active, mask, kind, combined)


def elect(active: Value, mask: Value) -> tuple[Value, Value]:
    """`elect.sync`: the lowest member, and whether the lane is it."""
    leader = _for_each_group(active, mask, U32, lambda lanes, named: _lowest(lanes & named))
    return leader, leader == _constant(leader, LANES, U32)


# --- Blocks ----------------------------------------------------------------------------------


def block_vote(kind: str, _type: str, active: NDArray[np.bool_], p: NDArray[np.bool_]) -> Any:
    """`bar.red` after its barrier: a reduction over each block, of arrays (blocks, threads)."""
    if kind == "popc":
        return (p & active).sum(axis=1, dtype=np.uint32, keepdims=True)
    if kind == "and":
        return (p | ~active).all(axis=1, keepdims=True)
    return (p & active).any(axis=1, keepdims=True)
