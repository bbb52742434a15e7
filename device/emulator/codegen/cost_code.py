"""The runtime's costs: what the hardware counts for the addresses of a warp.

Costs are requests, sectors, wavefronts and distinct addresses. Addresses are relative to the first
active lane; an inactive lane repeats it.
"""

from __future__ import annotations

from typing import Annotated

from llvmlite import ir

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.lanes import (
    bits_of,
    count_bits,
    lanes_of,
    per_lane,
    reduce,
    shuffle,
    splat,
)
from memlab.device.emulator.codegen.layout import COUNTERS, L1_CLOCK_PARTS, SPACES, Cost, Site
from memlab.device.emulator.codegen.records import (
    Byte,
    Int32,
    Lanes,
    NarrowLanes,
    Number,
    Pointer,
    Word,
    builder,
    raw_value,
    room,
)
from memlab.device.emulator.isa.values import (
    PRED,
    S32,
    U8,
    U16,
    Value,
    maximum,
    minimum,
    shaped,
    where,
)
from memlab.device.properties import (
    LINE_BYTES,
    SECTOR_BYTES,
    SHARED_BANK_BYTES,
    SHARED_BANKS,
    WARP_SIZE,
)

_GLOBAL, _SHARED, _LOCAL = map(SPACES.index, ("global", "shared", "local"))
_BankLoads = Annotated[Value, (U8, SHARED_BANKS)]
_RETURNED_BYTES = 128  # of lanes that are served at once, unless pairs of them share their words
_WIDEST_BYTES = 16  # of a lane's access to shared memory in one instruction of the machine code
_NO_WORD = 1 << 30  # stands for the words of inactive lanes; relative addresses end before
_LANES_PER_SECTOR = 8  # whose words of local memory share a sector
_TAG_BANK_BITS = (0b11_1010_1011_0101, 0b01_0101_1101_1010)
"""Bits of the number of a line of which the parities are those of the number of its bank of tags.

They explain the passes of the tags of all patterns of loads of `benchmarks/line_loads.cu`
(`l1tex__t_output_wavefronts`) on an H100, and no others do, up to which bank has which number."""
TAG_BYTES = LINE_BYTES << 14
"""After so many bytes the banks of tags repeat, as far as they are known."""
_FEW_LINES = 8
_PLACE_LINES = 603
"""Lines from a place to the next one: of all steps, that whose means of 16 places are nearest to
those of all 1024, for lines up to 120 apart."""
_SECTOR_SHIFT, _LINE_SHIFT = SECTOR_BYTES.bit_length() - 1, LINE_BYTES.bit_length() - 1


@compiled
def cost(
    relative: NarrowLanes, mask: Word, site: Site, space: int, alignment: int, places: int
) -> Cost:
    """What the accesses of a warp cost.

    `relative` are addresses relative to the first active lane, inactive lanes repeat it; `mask` are
    the active lanes; `space` is the number of the state space; `alignment` is the first lane's
    address modulo 128 for global memory, else modulo 4. In global memory the cost is the mean of so
    many `places` that an access may have: where there is one, `alignment` is modulo `TAG_BYTES`.
    """
    width = site.counted_bytes
    address = relative + splat(alignment, S32)
    if space == _GLOBAL:
        ordered = sorted_runs(address, WARP_SIZE)
        lines = ordered >> _LINE_SHIFT
        return _global_cost(ordered, _l1_clocks(address, lines, mask, width, places))
    if space == _SHARED:
        return shared_cost(address >> 2, mask, width, site.lanes_in_turn)
    if space == _LOCAL:
        return local_cost(address >> 2, width)
    return cost_of(requests=1, wavefronts=_count_distinct(sorted_runs(address, WARP_SIZE)))


@compiled
def far_cost(relative: Lanes, mask: Word, site: Site, alignment: int) -> Cost:
    """The same of lanes that lie far apart, which they do in global memory alone."""
    address = relative + splat(alignment)
    ordered = sorted_runs(address, WARP_SIZE)
    lines = (ordered >> _LINE_SHIFT).to(S32)
    clocks = _l1_clocks(address.to(S32), lines, mask, site.counted_bytes, 1)
    return _global_cost(ordered, clocks)


def count_sectors(address: Value) -> int:
    """The distinct sectors of addresses; inactive lanes repeat one."""
    return _count_distinct(sorted_runs(address >> _SECTOR_SHIFT, WARP_SIZE))


def _global_cost(ordered: Value, clocks: int) -> Value:
    """The cost of sorted addresses, for which the L1 takes some clocks."""
    return cost_of(
        requests=1,
        sectors=_count_distinct(ordered >> _SECTOR_SHIFT),
        wavefronts=_count_distinct(ordered >> _LINE_SHIFT),
        addresses=_count_distinct(ordered),
        words=clocks,
    )


@compiled
def _l1_clocks(
    address: NarrowLanes, lines: NarrowLanes, mask: Word, width: int, places: int
) -> int:
    """The clocks of the L1 for a load that hits, in units of 1 / `L1_CLOCK_PARTS`.

    They are the wavefronts of the data or, where these are more, the most lines of a bank of tags;
    `lines` are sorted. An H100 took as many (docs/results/h100-line-loads.csv). Of many
    lines the place makes little difference, and one stands for all.
    """
    different = last_of_equals(lines)
    if different & different - 1 == 0 and width <= SHARED_BANK_BYTES:
        return L1_CLOCK_PARTS
    if count_bits(different) > _FEW_LINES:
        places = 1
    wavefronts, clocks, place = _wavefronts(address, mask, width), 0, 0
    while place < places:
        moved = lines + splat(place * _PLACE_LINES, S32)
        first, second = _odd_lines(moved, 0), _odd_lines(moved, 1)
        most = max(count_bits(different & first & second), count_bits(different & first & ~second))
        most = max(most, count_bits(different & second & ~first))
        most = max(most, count_bits(different & ~first & ~second))
        clocks += max(most, wavefronts)
        place += 1
    return clocks * (L1_CLOCK_PARTS // places)


def _odd_lines(lines: Value, place: int) -> int:
    """The lanes whose lines' bank of tags has a bit set, as a mask."""
    bits = (lines & splat(_TAG_BANK_BITS[place], S32)).call("llvm.ctpop")
    return bits_of((bits & splat(1, S32)) != splat(0, S32))


@compiled
def _wavefronts(address: NarrowLanes, mask: Word, width: int) -> int:
    """The wavefronts of the data of the L1: the most words of a bank.

    Of 32 lanes up to 4 bytes per lane, of 16 at 8 bytes, of 8 at 16 bytes, one run after the other.
    """
    firsts, counts, loads = room(NarrowLanes), room(NarrowLanes), room(Byte, SHARED_BANKS)
    run = min(_RETURNED_BYTES // min(width, _WIDEST_BYTES), WARP_SIZE)
    words = address >> 2 & splat(_NO_WORD - 1, S32)
    _find_words(words, mask, run, max(width >> 2, 1), firsts, counts)
    wavefronts, start = 0, 0
    while start < WARP_SIZE:
        _load_banks(loads, firsts.to(Int32), counts.to(Int32), start, run)
        wavefronts += reduce(loads.to(_BankLoads)[0], "umax")
        start += run
    return wavefronts


@compiled
def shared_cost(words: NarrowLanes, mask: Word, width: int, lanes_in_turn: Int32) -> Cost:
    """The passes that the 32 banks of 4 bytes need.

    Lanes that are served at once (`_lanes_at_once`) share the words that several of them access,
    unless they take turns; where none is active, no pass is needed. The ideal is the number of
    wavefronts that as many distinct words need without a conflict, but at most what the bytes of
    all active lanes need: so an H200 counted `bitonic-block`, to the unit, where about half of the
    lanes store 8 bytes (docs/results/README.md, "Shared memory").
    """
    firsts, counts, loads = room(NarrowLanes), room(NarrowLanes), room(Byte, SHARED_BANKS)
    run, width_words = _lanes_at_once(words, mask, width), max(width >> 2, 1)
    _find_words(words, mask, run, width_words, firsts, counts)
    first = firsts.to(Int32)
    wavefronts, ideal, start = 0, 0, 0
    while start < WARP_SIZE:
        _load_banks(loads, first, counts.to(Int32), start, run)
        load = loads.to(_BankLoads)[0]
        ideal += (reduce(load.to(U16), "add") + SHARED_BANKS - 1) // SHARED_BANKS
        if lanes_in_turn:
            loads.to(_BankLoads)[0] = splat(0, U8, SHARED_BANKS)
            for lane in range(start, start + run):
                if first[lane] != _NO_WORD:
                    for word in range(first[lane], first[lane] + width_words):
                        loads[word & (SHARED_BANKS - 1)] += 1
            load = loads.to(_BankLoads)[0]
        wavefronts += reduce(load, "umax")
        start += run
    words_used = reduce(counts[0], "add")
    needed = (count_bits(mask) * width_words + SHARED_BANKS - 1) // SHARED_BANKS
    ideal = ideal if ideal < needed else needed
    return cost_of(
        requests=1, wavefronts=wavefronts, excessive=wavefronts - ideal, words=words_used
    )


@compiled
def _find_words(
    words: NarrowLanes,
    mask: Word,
    run: int,
    width_words: int,
    firsts: Pointer[NarrowLanes],
    counts: Pointer[NarrowLanes],
) -> None:
    """Find the words that each run of active lanes accesses, as `_distinct_words` does.

    An inactive lane has none, and `_NO_WORD` as its first.
    """
    accessed = where(lanes_of(mask), words, splat(_NO_WORD, S32))
    if run == WARP_SIZE:
        firsts[0], counts[0] = _distinct_words(accessed, WARP_SIZE, width_words)
    elif run == WARP_SIZE // 2:
        firsts[0], counts[0] = _distinct_words(accessed, WARP_SIZE // 2, width_words)
    else:
        firsts[0], counts[0] = _distinct_words(accessed, WARP_SIZE // 4, width_words)
    counts[0] = where(firsts[0] == splat(_NO_WORD, S32), 0, counts[0])


@compiled
def _load_banks(
    loads: Pointer[Byte], first: Pointer[Int32], count: Pointer[Int32], start: int, run: int
) -> None:
    """Count the words of each bank that a run of lanes accesses."""
    loads.to(_BankLoads)[0] = splat(0, U8, SHARED_BANKS)
    for lane in range(start, start + run):
        for word in range(first[lane], first[lane] + count[lane]):
            loads[word & (SHARED_BANKS - 1)] += 1


@compiled
def _lanes_at_once(words: NarrowLanes, mask: Word, width: int) -> int:
    """The lanes that are served at once: 32 up to 4 bytes per lane, 16 at 8 bytes, 8 at 16 bytes.

    Twice as many are where all active lanes access what lane n ^ 1 accesses, or all what lane n ^ 2
    does, since memory returns 128 bytes a clock, in which such pairs need one place (G. Smith of
    NVIDIA, forums.developer.nvidia.com/t/77228). An H200 counted so: quarters of a warp whose rows
    conflict, halves that read the same words, 16 bytes by one lane, and 2 wavefronts of a broadcast
    (docs/results/README.md, "Shared memory").
    """
    run = min(_RETURNED_BYTES // min(width, _WIDEST_BYTES), WARP_SIZE)
    if run < WARP_SIZE:
        unlike_next = bits_of(words != shuffle(words, lambda lane: lane ^ 1))
        unlike_second = bits_of(words != shuffle(words, lambda lane: lane ^ 2))
        with_next = mask & ((mask >> 1 & 0x5555_5555) | (mask & 0x5555_5555) << 1)
        with_second = mask & ((mask >> 2 & 0x3333_3333) | (mask & 0x3333_3333) << 2)
        if (unlike_next & with_next) == 0 or (unlike_second & with_second) == 0:
            run *= 2
    return run


@compiled
def local_cost(words: NarrowLanes, width: int) -> Cost:
    """The sectors of local memory, which is interleaved by word.

    The same word of a warp's 32 lanes is one 128-byte line (CUDA C++ Programming Guide, "Local
    Memory"), so that 8 neighbouring lanes share a sector of it. An inactive lane counts as if it
    accessed the word of the first active one.
    """
    width_words = max(width >> 2, 1)
    sectors = _distinct_words(words, _LANES_PER_SECTOR, width_words)[1]
    lines = _distinct_words(words, WARP_SIZE, width_words)[1]
    return cost_of(requests=1, sectors=reduce(sectors, "add"), wavefronts=reduce(lines, "add"))


def cost_of(**counts: int) -> Value:
    """Counts by the name of their column as a cost."""
    cost = ir.Constant(shaped(U16, len(COUNTERS)), None)
    for name, count in counts.items():
        place = ir.IntType(32)(COUNTERS.index(name))
        cost = builder().insert_element(cost, raw_value(Number(U16), count), place)
    return Value(builder(), cost, U16)


# --- Sorted addresses -----------------------------------------------------------------------------


def sorted_runs(values: Value, run: int) -> Value:
    """Sort each run of so many lanes, a power of two, in ascending order.

    A bitonic sorting network (Batcher 1968) whose merges begin with a mirrored exchange, so that
    all runs ascend.
    """

    def exchange(values: Value, flip: int) -> Value:
        other = shuffle(values, lambda lane: lane ^ flip)
        lower = per_lane(lambda lane: lane < lane ^ flip, PRED)
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


def _following(values: Value) -> Value:
    """The value of the next lane; for the last lane, its own."""
    return shuffle(values, lambda lane: min(lane + 1, WARP_SIZE - 1))


def last_of_equals(ordered: Value) -> int:
    """The lanes that hold each of some sorted values last, as a mask."""
    return bits_of(ordered != _following(ordered)) | 1 << (WARP_SIZE - 1)


def _count_distinct(ordered: Value) -> int:
    return count_bits(last_of_equals(ordered))


def _distinct_words(words: Value, run: int, width: int) -> tuple[Value, Value]:
    """The words that each run of lanes accesses, `width` of them from the first one of a lane on.

    Returns:
        The first words, sorted; and how many from there on no later lane of the run accesses.
    """
    ordered = sorted_runs(words, run)
    every = splat(width, S32)
    is_last = per_lane(lambda lane: lane % run == run - 1, PRED)
    return ordered, where(is_last, every, minimum(_following(ordered) - ordered, every))
