"""An L1 as machine code: sets of lines that replace each other as those of an H200 do.

A set keeps its lines in an order: first those that an access has found again, two at most, then the
others; in both cases the one used last is before. A new line comes behind those that are kept, and
the last line of a full set makes room for it. A third line that is found again lets the one go that
was found before the other two, and the line found last lets the other one go if it is at once found
again. Accesses that say that there is no other one (`.cs`) put their line behind those that are
kept, and it is replaced before all others. Where all sets together have as many lines as the shared
memory leaves room for, the sets lose one in turn. All of it was found by what one warp finds again
(docs/results/h200-replaced-lines.csv, `benchmarks/replaced_lines.cu`).
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.layout import LOCAL_LINES
from memlab.device.emulator.codegen.records import Byte, Pointer
from memlab.device.emulator.codegen.trace_code import set_of_line
from memlab.device.emulator.models.cache_records import L1, NONE, WAYS, Line

_SECTORS = 4  # of a line


@compiled(exported=True)
def find_sets(lines: Pointer[int], count: int, sets: Pointer[int]) -> int:
    """Write the set of each line in an L1."""
    for number in range(count):
        sets[number] = set_of_line(lines[number])
    return 0


@compiled(exported=True)
def find_l1_misses(
    cache: L1,
    windows: Pointer[int],
    units: Pointer[int],
    again: Pointer[Byte],
    count: int,
    missed: Pointer[Byte],
) -> int:
    """Mark the accesses to sectors that miss an L1.

    Those to one line in one window are one, or two where the line is used again there.
    """
    for number in range(count):
        line, sectors = units[number] // _SECTORS, 1 << units[number] % _SECTORS
        held = found_in_l1(cache, line)
        if held == NONE or cache.lines[held].time != windows[number]:
            place = use_l1(cache, line, 0)
            place.time = windows[number]
            if again[number] != 0 and place.kept == 0:
                use_l1(cache, line, 0)
            held = found_in_l1(cache, line)
        if cache.lines[held].valid & sectors == 0:
            missed[number] = 1
        cache.lines[held].valid |= sectors
    return 0


@compiled
def use_l1(cache: L1, line: int, once: int) -> Line:
    """The line, which is without sectors if the L1 did not have it.

    Args:
        cache: The L1.
        line: The line's number.
        once: 1 for an access that says that there is no other one.
    """
    chain = set_in(cache, line)
    first = cache.heads[chain]
    number = taken_out(cache, chain, line)
    if number == NONE:
        number = free_place(cache, chain)
        if number == NONE:
            number = lose_last(cache, chain)
        elif cache.count >= cache.capacity:
            lose_any(cache)
            number = free_place(cache, chain)
        cache.count += 1
        place = cache.lines[number]
        place.number, place.valid, place.time = line, 0, -1
        place.asked, place.coming, place.once, place.kept = -1, 0, once, 0
    elif once == 1:
        cache.lines[number].once, cache.lines[number].kept = 1, 0
    else:
        cache.lines[number].once = 0
        keep(cache, chain, number, first)
    put_in_order(cache, chain, number)
    return cache.lines[number]


@compiled
def set_in(cache: L1, line: int) -> int:
    """The set of a line; those of local memory are spread evenly, as they are numbered in turn."""
    number = set_of_line(line)
    if line >= LOCAL_LINES:
        number = line
    return number % cache.sets


@compiled
def found_in_l1(cache: L1, line: int) -> int:
    """The number of a line that a cache of sets has; -1 if it has not."""
    number = cache.heads[set_in(cache, line)]
    while number != NONE and cache.lines[number].number != line:
        number = cache.lines[number].chained
    return number


@compiled
def taken_out(cache: L1, chain: int, line: int) -> int:
    """The number of a line that is taken out of its chain; -1 if the cache does not have it."""
    before, number = NONE, cache.heads[chain]
    while number != NONE and cache.lines[number].number != line:
        before, number = number, cache.lines[number].chained
    if number != NONE:
        follow(cache, chain, before, cache.lines[number].chained)
    return number


@compiled
def keep(cache: L1, chain: int, number: int, first: int) -> None:
    """Keep a line that was found again and taken out of its chain, and let others go.

    A third line lets the one go that was found before the other two. The line that was found last,
    the first of the chain, lets the other one go if it is found at once again.
    """
    place, other = cache.lines[number], cache.heads[chain]
    if place.kept == 0 and other != NONE and cache.lines[other].kept == 1:
        other = cache.lines[other].chained
    elif first != number:
        other = NONE
    if other != NONE:
        cache.lines[other].kept = 0
    place.kept = 1


@compiled
def put_in_order(cache: L1, chain: int, number: int) -> None:
    """Put a line into its chain: in front, or behind those that are kept."""
    place = cache.lines[number]
    before, after = NONE, cache.heads[chain]
    while after != NONE and place.kept == 0 and cache.lines[after].kept == 1:
        before, after = after, cache.lines[after].chained
    place.chained = after
    follow(cache, chain, before, number)


@compiled
def follow(cache: L1, chain: int, before: int, number: int) -> None:
    """Let a line be the next one behind another, or the first of its chain."""
    if before == NONE:
        cache.heads[chain] = number
    else:
        cache.lines[before].chained = number


@compiled
def lose_last(cache: L1, chain: int) -> int:
    """Remove the line of a set that makes room, and return its number."""
    last, number = cache.heads[chain], cache.heads[chain]
    while number != NONE:
        if cache.lines[number].once >= cache.lines[last].once:
            last = number
        number = cache.lines[number].chained
    return lose(cache, chain, cache.lines[last].number)


@compiled
def lose(cache: L1, chain: int, line: int) -> int:
    """Remove a line from a set, and return its number; -1 if the set does not have it."""
    number = taken_out(cache, chain, line)
    if number != NONE:
        cache.lines[number].number = NONE
        cache.count -= 1
    return number


@compiled
def forget(cache: L1, line: int) -> None:
    """Remove a line from a cache of sets, if it is there."""
    lose(cache, set_in(cache, line), line)


@compiled
def lose_any(cache: L1) -> None:
    """Remove a line of the next set in turn that has some."""
    while cache.heads[cache.hand] == NONE:
        cache.hand = (cache.hand + 1) % cache.sets
    lose_last(cache, cache.hand)
    cache.hand = (cache.hand + 1) % cache.sets


@compiled
def free_place(cache: L1, chain: int) -> int:
    """A place of a set that has no line; -1 if all have one."""
    free = NONE
    for number in range(chain * WAYS, (chain + 1) * WAYS):
        if cache.lines[number].number == NONE:
            free = number
    return free
