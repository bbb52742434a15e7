"""The runtime's patterns: which addresses a warp accesses, what they cost, and their trace.

The addresses of a warp relative to its first active lane form a *pattern*. Kernels repeat few
patterns many times, so patterns are kept in a table, and each cost of one is computed once. The
costs are those that the hardware counts: requests, sectors, wavefronts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from memlab.device.emulator.codegen.flow import counted_loop
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
from memlab.device.emulator.isa.values import (
    PRED,
    S32,
    S64,
    U16,
    ElementType,
    Value,
    broadcast,
    intrinsic,
    maximum,
    minimum,
    shaped,
    where,
)
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
POINTER = ir.PointerType()
ADDRESS_LANES = shaped(S64, WARP_SIZE)
"""An address for each lane of a warp."""
NARROW_LANES = shaped(S32, WARP_SIZE)
"""The same where 32 bits are enough: relative to another address."""
ALL_LANES = (1 << WARP_SIZE) - 1

_COST = shaped(U16, len(COUNTERS))
_ROW = ir.VectorType(I64, len(COUNTERS))
_REACH = 1 << 30  # a pattern holds relative addresses in [-reach, reach), and no segment is longer
_CONST = SPACES.index("const")
_BANKS = 32  # banks of shared memory (CUDA C++ Programming Guide, "Shared Memory")
_HALF_WARP_WIDTH = 16  # bytes per lane at which half a warp is served at a time
_HASH = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio (Knuth, TAOCP 3, 6.4)


def add_pattern_functions(module: ir.Module) -> None:
    """Add the functions that find patterns and count accesses to the runtime's module."""
    _add_cost(module)
    _add_find_cost(module)
    _add_find_pattern(module)


def begin(
    module: ir.Module, name: str, result: ir.Type, *arguments: ir.Type, seldom: bool = False
) -> ir.IRBuilder:
    """Begin an internal function of the runtime.

    Args:
        module: The runtime's module.
        name: Its name.
        result: Its result type.
        *arguments: The types of its arguments.
        seldom: Whether it is called in uncommon cases only. It is then not inlined, and keeps the
            caller's registers, so that the common case need not save them.
    """
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    if seldom:
        function.attributes.add("noinline")
        function.calling_convention = "preserve_mostcc"
    return ir.IRBuilder(function.append_basic_block("entry"))


def stack_room(b: ir.IRBuilder, kind: ir.Type) -> ir.Value:
    """A pointer to memory on the stack, which holds anything."""
    room = b.alloca(kind)
    room.type = POINTER  # llvmlite gives it a typed one, which LLVM no longer has
    return room


def call(b: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Call another function of the runtime."""
    return b.call(b.module.globals[name], arguments)


def lanes_of(b: ir.IRBuilder, mask: ir.Value) -> Value:
    """The bits of a mask as a predicate of 32 lanes."""
    return Value(b, b.bitcast(mask, shaped(PRED, WARP_SIZE)), PRED)


def bits_of(predicate: Value) -> ir.Value:
    """A predicate of lanes as a mask."""
    return predicate.builder.bitcast(predicate.ir, ir.IntType(predicate.lanes))


def splat(b: ir.IRBuilder, number: ir.Value, lanes: int = WARP_SIZE) -> Value:
    """A signed integer in all lanes."""
    return broadcast(Value(b, number, ElementType("i", number.type.width)), lanes)


def load_lanes(b: ir.IRBuilder, pointer: ir.Value) -> Value:
    """An array of 32 signed integers of 64 bits."""
    return Value(b, b.load(pointer, typ=ADDRESS_LANES, align=8), S64)


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


def reduce(values: Value, operation: str) -> ir.Value:
    """All lanes combined by `add`, `or`, `smin`, `smax`, `umin` or `umax`."""
    b, kind = values.builder, values.ir.type
    name = f"llvm.vector.reduce.{operation}"
    suffix = f"v{kind.count}i{kind.element.width}"
    return b.call(intrinsic(b, name, kind.element, [kind], suffix), [values.ir])


def shuffle(values: Value, places: Callable[[int], int]) -> Value:
    """Lane i gets the value of lane `places(i)`."""
    b = values.builder
    order = [I32(places(lane)) for lane in range(values.lanes)]
    picked = b.shuffle_vector(values.ir, values.ir, constant_vector(order))
    return Value(b, picked, values.type)


def constant_vector(items: Sequence[ir.Constant]) -> ir.Constant:
    """A constant vector of these elements."""
    return ir.Constant(ir.VectorType(items[0].type, len(items)), items)


def choose(b: ir.IRBuilder, condition: Callable[[int], bool]) -> Value:
    """A constant predicate of 32 lanes."""
    lanes = [I1(int(condition(lane))) for lane in range(WARP_SIZE)]
    return Value(b, constant_vector(lanes), PRED)


def sorted_runs(values: Value, run: int) -> Value:
    """Sort each run of so many lanes, a power of two, in ascending order.

    A bitonic sorting network (Batcher 1968) whose merges begin with a mirrored exchange, so that
    all runs ascend.
    """

    def exchange(values: Value, flip: int) -> Value:
        other = shuffle(values, lambda lane: lane ^ flip)
        lower = choose(values.builder, lambda lane: lane < lane ^ flip)
        return where(lower, minimum(values, other), maximum(values, other))

    length = 2
    while length <= run:
        values = exchange(values, length - 1)
        distance = length // 4
        while distance:
            values = exchange(values, distance)
            distance //= 2
        length *= 2
    return values


def _new_words(words: Value, run: int, width: ir.Value) -> Value:
    """How many words, of `width` from each sorted first word on, no later lane of the run has."""
    b = words.builder
    last = choose(b, lambda lane: lane % run == run - 1)
    gap = shuffle(words, lambda lane: min(lane + 1, WARP_SIZE - 1)) - words
    every = splat(b, width)
    return where(last, every, minimum(gap, every))


def _count_distinct(ordered: Value, shift: int) -> ir.Value:
    """How many distinct units of 2^shift bytes sorted addresses lie in."""
    b, units = ordered.builder, ordered >> shift
    following = shuffle(units, lambda lane: min(lane + 1, WARP_SIZE - 1))
    return b.add(b.ctpop(bits_of(units != following)), I32(1))


# --- Costs ----------------------------------------------------------------------------------------


def _add_cost(module: ir.Module) -> None:
    """`cost(relative, space, alignment, width)`: what the accesses of a warp cost.

    `relative` are addresses relative to the first active lane, inactive lanes repeat it; `space`
    is the number of the state space; `alignment` is the first lane's address modulo 128 for global
    memory, else modulo 4; `width` is the bytes per lane.
    """
    _add_shared_cost(module)
    _add_local_cost(module)
    b = begin(module, "cost", _COST, NARROW_LANES, I64, I64, I64)
    relative, space, alignment, width = b.function.args
    address = Value(b, relative, S32) + splat(b, b.trunc(alignment, I32))
    width = b.trunc(width, I32)
    blocks = [b.append_basic_block(name) for name in ("global", "shared", "local", "const")]
    switch = b.switch(space, blocks[3])
    for number, block in enumerate(blocks[:3]):
        switch.add_case(I64(number), block)
    b.position_at_end(blocks[0])
    b.ret(_global_cost(address))
    for block, name in zip(blocks[1:3], ("shared_cost", "local_cost"), strict=True):
        b.position_at_end(block)
        b.ret(call(b, name, (address >> 2).ir, width))
    b.position_at_end(blocks[3])
    ordered = sorted_runs(address, WARP_SIZE)
    b.ret(_cost_vector(b, {"requests": I32(1), "wavefronts": _count_distinct(ordered, 0)}))
    # Lanes may lie far apart in global memory alone.
    b = begin(module, "far_cost", _COST, ADDRESS_LANES, I64)
    relative, alignment = b.function.args
    b.ret(_global_cost(Value(b, relative, S64) + splat(b, alignment)))


def _global_cost(address: Value) -> ir.Value:
    """The cost of an access to global memory."""
    ordered = sorted_runs(address, WARP_SIZE)
    counts = {
        "requests": I32(1),
        "sectors": _count_distinct(ordered, SECTOR_BYTES.bit_length() - 1),
        "wavefronts": _count_distinct(ordered, LINE_BYTES.bit_length() - 1),
        "addresses": _count_distinct(ordered, 0),
    }
    return _cost_vector(address.builder, counts)


def _cost_vector(b: ir.IRBuilder, counts: dict[str, ir.Value]) -> ir.Value:
    """Counts by the name of their column as a cost."""
    cost = ir.Constant(_COST, None)
    for name, count in counts.items():
        cost = b.insert_element(cost, b.trunc(count, U16.ir), I32(COUNTERS.index(name)))
    return cost


def _add_shared_cost(module: ir.Module) -> None:
    """`shared_cost(words, width)`: the passes that the 32 banks of 4 bytes need.

    Lanes that access the same word share it. Up to 8 bytes per lane, a warp is served as a whole.
    At 16 bytes per lane, half a warp is served at a time, so that even a broadcast takes two
    wavefronts (as counted on an NVIDIA H200). The ideal is the number of wavefronts that as many
    distinct words need without a conflict.
    """
    b = begin(module, "shared_cost", _COST, NARROW_LANES, I32)
    words, width = b.function.args
    held = {name: stack_room(b, NARROW_LANES) for name in ("words", "counts")}
    bank_loads = ir.VectorType(I8, _BANKS)
    load = stack_room(b, bank_loads)
    per_lane = _words_per_lane(b, width)
    halves, whole = b.append_basic_block("halves"), b.append_basic_block("whole")
    b.cbranch(b.icmp_signed("==", width, I32(_HALF_WARP_WIDTH)), halves, whole)
    for block, run in ((halves, WARP_SIZE // 2), (whole, WARP_SIZE)):
        b.position_at_end(block)
        ordered = sorted_runs(Value(b, words, S32), run)
        new = _new_words(ordered, run, per_lane)
        b.store(ordered.ir, held["words"])
        b.store(new.ir, held["counts"])
        wavefronts, ideal = I32(0), I32(0)
        for start in range(0, WARP_SIZE, run):
            b.store(ir.Constant(bank_loads, None), load)
            with counted_loop(b, I64(run)) as place:
                lane = b.add(place, I64(start))
                first = _item(b, held["words"], lane)
                with counted_loop(b, _item(b, held["counts"], lane)) as step:
                    bank = b.and_(b.add(first, step), I64(_BANKS - 1))
                    pointer = b.gep(load, [bank], source_etype=I8)
                    b.store(b.add(b.load(pointer, typ=I8), I8(1)), pointer)
            loads = Value(b, b.load(load, typ=bank_loads), ElementType("u", 8))
            wavefronts = b.add(wavefronts, b.zext(reduce(loads, "umax"), I32))
            total = b.zext(reduce(loads.to(U16), "add"), I32)
            ideal = b.add(ideal, b.lshr(b.add(total, I32(_BANKS - 1)), I32(5)))
        excessive = b.sub(wavefronts, ideal)
        counts = {"requests": I32(1), "wavefronts": wavefronts, "excessive": excessive}
        b.ret(_cost_vector(b, counts))


def _add_local_cost(module: ir.Module) -> None:
    """`local_cost(words, width)`: the sectors of local memory, which is interleaved by word.

    The same word of a warp's 32 lanes is one 128-byte line (CUDA C++ Programming Guide, "Local
    Memory"), so that 8 neighbouring lanes share a sector of it. An inactive lane counts as if it
    accessed the word of the first active one.
    """
    b = begin(module, "local_cost", _COST, NARROW_LANES, I32)
    words, width = b.function.args
    per_lane = _words_per_lane(b, width)

    def distinct(run: int) -> ir.Value:
        ordered = sorted_runs(Value(b, words, S32), run)
        return reduce(_new_words(ordered, run, per_lane), "add")

    sectors, lines = distinct(LINE_BYTES // SECTOR_BYTES * 2), distinct(WARP_SIZE)
    b.ret(_cost_vector(b, {"requests": I32(1), "sectors": sectors, "wavefronts": lines}))


def _words_per_lane(b: ir.IRBuilder, width: ir.Value) -> ir.Value:
    """Words of 4 bytes in an access; 1 at least."""
    words = b.lshr(width, I32(2))
    return b.select(b.icmp_signed("==", words, I32(0)), I32(1), words)


def _item(b: ir.IRBuilder, array: ir.Value, index: ir.Value) -> ir.Value:
    return b.zext(b.load(element_pointer(b, array, index, 4), typ=I32), I64)


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
        _add_cost_to_counters(b, context, site, b.load(cost, typ=_COST, align=2))
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


def fill_bytes(b: ir.IRBuilder, start: ir.Value, count: ir.Value, value: int = 0) -> None:
    """Set bytes to a value."""
    fill = intrinsic(b, "llvm.memset", ir.VoidType(), [POINTER, I8, I64, I1], "p0.i64")
    b.call(fill, [start, I8(value), count, I1(0)])


# --- The trace ------------------------------------------------------------------------------------


@contextmanager
def _if_traced(b: ir.IRBuilder, context: ir.Value, space: ir.Value) -> Iterator[None]:
    events = b.ptrtoint(load_field(b, context, CONTEXT, "events"), I64)
    with b.if_then(b.and_(b.icmp_signed("!=", events, I64(0)), _is(b, space, "global")), False):
        yield
