"""The runtime's costs: what the hardware counts for the addresses of a warp.

Costs are requests, sectors, wavefronts and distinct addresses. Addresses are relative to the first
active lane; an inactive lane repeats it.
"""

from __future__ import annotations

from llvmlite import ir

from memlab.device.emulator.codegen.flow import counted_loop
from memlab.device.emulator.codegen.layout import COUNTERS, element_pointer
from memlab.device.emulator.codegen.runtime_parts import (
    ADDRESS_LANES,
    I8,
    I32,
    I64,
    NARROW_LANES,
    begin,
    bits_of,
    call,
    choose,
    reduce,
    shuffle,
    splat,
    stack_room,
)
from memlab.device.emulator.isa.values import (
    S32,
    S64,
    U16,
    ElementType,
    Value,
    maximum,
    minimum,
    shaped,
    where,
)
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

COST_LANES = shaped(U16, len(COUNTERS))
"""A cost, see `COST`."""

_BANKS = 32  # banks of shared memory (CUDA C++ Programming Guide, "Shared Memory")
_HALF_WARP_WIDTH = 16  # bytes per lane at which half a warp is served at a time


def add_cost_functions(module: ir.Module) -> None:
    """`cost(relative, space, alignment, width)`: what the accesses of a warp cost.

    `relative` are addresses relative to the first active lane, inactive lanes repeat it; `space`
    is the number of the state space; `alignment` is the first lane's address modulo 128 for global
    memory, else modulo 4; `width` is the bytes per lane.
    """
    _add_shared_cost(module)
    _add_local_cost(module)
    b = begin(module, "cost", COST_LANES, NARROW_LANES, I64, I64, I64)
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
    b = begin(module, "far_cost", COST_LANES, ADDRESS_LANES, I64)
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


def _add_shared_cost(module: ir.Module) -> None:
    """`shared_cost(words, width)`: the passes that the 32 banks of 4 bytes need.

    Lanes that access the same word share it. Up to 8 bytes per lane, a warp is served as a whole.
    At 16 bytes per lane, half a warp is served at a time, so that even a broadcast takes two
    wavefronts (as counted on an NVIDIA H200). The ideal is the number of wavefronts that as many
    distinct words need without a conflict.
    """
    b = begin(module, "shared_cost", COST_LANES, NARROW_LANES, I32)
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
    b = begin(module, "local_cost", COST_LANES, NARROW_LANES, I32)
    words, width = b.function.args
    per_lane = _words_per_lane(b, width)

    def distinct(run: int) -> ir.Value:
        ordered = sorted_runs(Value(b, words, S32), run)
        return reduce(_new_words(ordered, run, per_lane), "add")

    sectors, lines = distinct(LINE_BYTES // SECTOR_BYTES * 2), distinct(WARP_SIZE)
    b.ret(_cost_vector(b, {"requests": I32(1), "sectors": sectors, "wavefronts": lines}))


def _cost_vector(b: ir.IRBuilder, counts: dict[str, ir.Value]) -> ir.Value:
    """Counts by the name of their column as a cost."""
    cost = ir.Constant(COST_LANES, None)
    for name, count in counts.items():
        cost = b.insert_element(cost, b.trunc(count, U16.ir), I32(COUNTERS.index(name)))
    return cost


def _words_per_lane(b: ir.IRBuilder, width: ir.Value) -> ir.Value:
    """Words of 4 bytes in an access; 1 at least."""
    words = b.lshr(width, I32(2))
    return b.select(b.icmp_signed("==", words, I32(0)), I32(1), words)


def _item(b: ir.IRBuilder, array: ir.Value, index: ir.Value) -> ir.Value:
    return b.zext(b.load(element_pointer(b, array, index, 4), typ=I32), I64)


# --- Sorted addresses -----------------------------------------------------------------------------


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
