"""The runtime's patterns: which addresses a warp accesses, and counting by their costs.

The addresses of a warp relative to its first active lane form a *pattern*. Kernels repeat few
patterns many times, so patterns are kept in a table, and each cost of one is computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from memlab.device.emulator.codegen.cost_code import COST_LANES, add_cost_functions
from memlab.device.emulator.codegen.layout import (
    ADDRESSES,
    CONTEXT,
    COST,
    COSTS,
    COUNTERS,
    FIRST_COST,
    IRREGULAR,
    MOST_PATTERNS,
    PATTERN,
    SITE,
    SPACES,
    element_pointer,
    field_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.runtime_parts import (
    ALL_LANES,
    I1,
    I8,
    I32,
    I64,
    NARROW_LANES,
    POINTER,
    begin,
    bits_of,
    call,
    constant_vector,
    fill_bytes,
    lanes_of,
    load_lanes,
    reduce,
    splat,
)
from memlab.device.emulator.isa.values import (
    S32,
    S64,
    Value,
    where,
)
from memlab.device.properties import LINE_BYTES, WARP_SIZE

_ROW = ir.VectorType(I64, len(COUNTERS))
_REACH = 1 << 30  # a pattern holds relative addresses in [-reach, reach), and no segment is longer
_CONST = SPACES.index("const")
_HASH = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)


def add_pattern_functions(module: ir.Module) -> None:
    """Add the functions that find patterns and count accesses to the runtime's module."""
    add_cost_functions(module)
    _add_find_cost(module)
    _add_find_pattern(module)


# --- Relative addresses ---------------------------------------------------------------------------


def relative_to_first(b: ir.IRBuilder, record: ir.Value, mask: ir.Value) -> tuple[ir.Value, Value]:
    """The address of the first active lane, and those of all relative to it; 0 if inactive."""
    held = field_pointer(b, record, ADDRESSES, "address")
    lane = b.zext(b.cttz(mask, I1(1)), I64)
    first = b.load(element_pointer(b, held, lane, 8), typ=I64)
    return first, where(lanes_of(b, mask), load_lanes(b, held) - splat(b, first), 0)


def narrow_addresses(b: ir.IRBuilder, pattern: ir.Value) -> Value:
    """The relative addresses of a pattern, in 32 bits."""
    place = field_pointer(b, pattern, PATTERN, "relative")
    return Value(b, b.load(place, typ=NARROW_LANES, align=4), S32)


def relative_addresses(b: ir.IRBuilder, pattern: ir.Value) -> Value:
    """The relative addresses of a pattern."""
    return narrow_addresses(b, pattern).to(S64)


# --- Counting -------------------------------------------------------------------------------------


def count_by_pattern(
    b: ir.IRBuilder,
    context: ir.Value,
    site: ir.Value,
    record: ir.Value,
    pattern: ir.Value,
) -> None:
    """Count an access to resolved addresses by the cost of their pattern."""
    space = load_field(b, record, ADDRESSES, "space")
    with b.if_then(_is_counted(b, site, space), likely=True):
        first = load_field(b, record, ADDRESSES, "first")
        alignment = _alignment(b, site, space, first)
        width = b.zext(load_field(b, site, SITE, "counted_bytes"), I64)
        number = b.add(alignment, _first_cost(b, space, width))
        known = b.gep(field_pointer(b, pattern, PATTERN, "known"), [number], source_etype=I8)
        costs = field_pointer(b, pattern, PATTERN, "costs")
        cost = element_pointer(b, costs, number, COST.itemsize)
        with b.if_then(b.icmp_unsigned("==", b.load(known, typ=I8), I8(0)), likely=False):
            call(b, "find_cost", pattern, number, space, alignment, width)
        _add_cost_to_counters(b, context, site, b.load(cost, typ=COST_LANES, align=2))
        with _if_traced(b, context, space):
            call(b, "trace_pattern", context, site, record, pattern)


def _add_find_cost(module: ir.Module) -> None:
    """`find_cost(pattern, number, space, alignment, width)`: compute a cost of a pattern."""
    types = (POINTER, I64, I64, I64, I64)
    b = begin(module, "find_cost", ir.VoidType(), *types, seldom=True)
    pattern, number, space, alignment, width = b.function.args
    relative = narrow_addresses(b, pattern).ir
    place = element_pointer(b, field_pointer(b, pattern, PATTERN, "costs"), number, COST.itemsize)
    b.store(call(b, "cost", relative, space, alignment, width), place, align=2)
    known = field_pointer(b, pattern, PATTERN, "known")
    b.store(I8(1), b.gep(known, [number], source_etype=I8))
    b.ret_void()


def count_directly(
    b: ir.IRBuilder,
    context: ir.Value,
    site: ir.Value,
    space: ir.Value,
    warp: ir.Value,
    first: ir.Value,
    relative: Value,
) -> None:
    """Count an access whose addresses have no pattern.

    `first` is the first active lane's address without the offset; `relative` is as `cost` takes it.
    """
    with b.if_then(_is_counted(b, site, space)):
        width = b.zext(load_field(b, site, SITE, "counted_bytes"), I64)
        alignment = _alignment(b, site, space, first)
        with b.if_else(_is_near(relative)) as (then, otherwise):
            with then:
                narrow = relative.to(S32).ir
                cost = call(b, "cost", narrow, space, alignment, width)
                _add_cost_to_counters(b, context, site, cost)
            with otherwise:
                cost = call(b, "far_cost", relative.ir, alignment)
                _add_cost_to_counters(b, context, site, cost)
        with _if_traced(b, context, space):
            call(b, "trace", context, site, warp, first, relative.ir)


def _is_counted(b: ir.IRBuilder, site: ir.Value, space: ir.Value) -> ir.Value:
    """Whether an access is counted: it is not merged into another, nor an access to parameters."""
    counted = b.icmp_signed("!=", load_field(b, site, SITE, "counted_bytes"), I32(0))
    return b.and_(counted, b.icmp_unsigned("<=", space, I64(_CONST)))


def _alignment(b: ir.IRBuilder, site: ir.Value, space: ir.Value, first: ir.Value) -> ir.Value:
    """The part of the first lane's address, with the offset, that decides the cost."""
    address = b.add(first, load_field(b, site, SITE, "offset"))
    bits = b.select(_is(b, space, "global"), I64(LINE_BYTES - 1), I64(3))
    return b.and_(address, b.select(_is(b, space, "const"), I64(0), bits))


def _first_cost(b: ir.IRBuilder, space: ir.Value, width: ir.Value) -> ir.Value:
    """Where the costs of a state space and a width begin, see `FIRST_COST`."""
    by_width = b.shl(b.cttz(width, I1(0)), I64(2))
    number = I64(FIRST_COST["global"])
    for name in ("shared", "local", "const"):
        first = I64(FIRST_COST[name])
        number = b.select(
            _is(b, space, name), first if name == "const" else b.add(by_width, first), number
        )
    return number


def _is(b: ir.IRBuilder, space: ir.Value, name: str) -> ir.Value:
    return b.icmp_signed("==", space, I64(SPACES.index(name)))


def _add_cost_to_counters(
    b: ir.IRBuilder, context: ir.Value, site: ir.Value, cost: ir.Value
) -> None:
    index = load_field(b, site, SITE, "index")
    counters = load_field(b, context, CONTEXT, "counters")
    row = element_pointer(b, counters, index, 8 * len(COUNTERS))
    b.store(b.add(b.load(row, typ=_ROW, align=8), b.zext(cost, _ROW)), row, align=8)


@contextmanager
def _if_traced(b: ir.IRBuilder, context: ir.Value, space: ir.Value) -> Iterator[None]:
    events = b.ptrtoint(load_field(b, context, CONTEXT, "events"), I64)
    with b.if_then(b.and_(b.icmp_signed("!=", events, I64(0)), _is(b, space, "global")), False):
        yield


# --- The table of patterns ------------------------------------------------------------------------


def same_pattern(b: ir.IRBuilder, pattern: ir.Value, relative: Value, mask: ir.Value) -> ir.Value:
    """Whether a pattern holds these relative addresses and this mask."""
    same_mask = b.icmp_signed("==", load_field(b, pattern, PATTERN, "mask"), mask)
    differs = relative_addresses(b, pattern) != relative
    return b.and_(same_mask, b.icmp_signed("==", bits_of(differs), I32(0)))


def _is_near(relative: Value) -> ir.Value:
    """Whether a pattern can hold relative addresses."""
    b, beyond = relative.builder, (relative >= _REACH) | (relative < -_REACH)
    return b.icmp_signed("==", bits_of(beyond), I32(0))


def _add_find_pattern(module: ir.Module) -> None:
    """`find_pattern(context, addresses*, mask)`: their pattern, made if it is not known.

    It is null where the addresses are too far apart for a pattern.
    """
    b = begin(module, "find_pattern", POINTER, POINTER, POINTER, I32, seldom=True)
    context, record, mask = b.function.args
    relative = relative_to_first(b, record, mask)[1]
    with b.if_then(b.not_(_is_near(relative)), likely=False):
        b.ret(ir.Constant(POINTER, None))
    narrow = relative.to(S32)
    patterns, place = load_field(b, context, CONTEXT, "patterns"), _place(b, narrow, mask)
    pair = [
        element_pointer(b, patterns, b.xor(place, I64(other)), PATTERN.itemsize) for other in (0, 1)
    ]
    for known in pair:
        with b.if_then(same_pattern(b, known, relative, mask)):
            b.ret(known)
    # The older one of the two that have this hash is replaced.
    versions = [load_field(b, known, PATTERN, "version") for known in pair]
    entry = b.select(b.icmp_signed("<=", *versions), *pair)
    b.store(narrow.ir, field_pointer(b, entry, PATTERN, "relative"), align=4)
    version = b.add(load_field(b, context, CONTEXT, "version"), I64(1))
    store_field(b, version, context, CONTEXT, "version")
    fields = {
        "mask": mask,
        "ored": reduce(narrow, "or"),
        "version": version,
        "low": b.sext(reduce(narrow, "smin"), I64),
        "high": b.sext(reduce(narrow, "smax"), I64),
        "stride": _stride(b, entry, narrow, mask),
    }
    for name, value in fields.items():
        store_field(b, value, entry, PATTERN, name)
    fill_bytes(b, field_pointer(b, entry, PATTERN, "known"), I64(COSTS))
    b.ret(entry)


def _place(b: ir.IRBuilder, relative: Value, mask: ir.Value) -> ir.Value:
    """The place in the table: a multiplicative hash of relative addresses and mask."""
    factors = [I32((_HASH * (2 * lane + 1) >> 24 | 1) & ALL_LANES) for lane in range(WARP_SIZE)]
    products = relative * Value(b, constant_vector(factors), S32)
    mixed = b.add(b.zext(reduce(products, "add"), I64), b.shl(b.zext(mask, I64), I64(32)))
    mixed = b.mul(b.xor(mixed, b.lshr(mixed, I64(29))), I64(_HASH))
    return b.lshr(mixed, I64(64 - (MOST_PATTERNS.bit_length() - 1)))


def _stride(b: ir.IRBuilder, pattern: ir.Value, relative: Value, mask: ir.Value) -> ir.Value:
    """The bytes between neighbouring lanes, see `PATTERN`; the pattern holds the addresses."""
    first = b.cttz(mask, I1(1))
    others = b.and_(mask, b.sub(mask, I32(1)))
    alone = b.icmp_signed("==", others, I32(0))
    second = b.select(alone, first, b.cttz(others, I1(0)))
    distance = b.select(alone, I32(1), b.sub(second, first))
    addresses = field_pointer(b, pattern, PATTERN, "relative")
    there = b.load(element_pointer(b, addresses, b.zext(second, I64), 4), typ=I32)
    stride = b.sdiv(there, distance)
    lanes = Value(b, constant_vector([I32(i) for i in range(WARP_SIZE)]), S32)
    expected = (lanes - splat(b, first)) * splat(b, stride)
    regular = ~(relative != expected) | ~lanes_of(b, mask)
    is_regular = b.icmp_signed("==", bits_of(regular), I32(-1))
    return b.select(is_regular, b.sext(stride, I64), I64(IRREGULAR))
