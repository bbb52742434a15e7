"""The runtime's fetches of textures: finds the elements of a warp's lanes, and counts them.

The instruction before a fetch has computed the address of the first element, the bytes to the
others, and a recipe: see `isa/textures.py`.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, set_bits, unlikely
from memlab.device.emulator.codegen.cost_code import cost_of
from memlab.device.emulator.codegen.lane_code import GLOBAL, find_array, note_fault
from memlab.device.emulator.codegen.lanes import fill_bytes, lowest_bit
from memlab.device.emulator.codegen.layout import Addresses, Context, Cost, Site
from memlab.device.emulator.codegen.pattern_code import add_cost
from memlab.device.emulator.codegen.records import Int32, Pointer, Word, field_pointer, room
from memlab.device.emulator.codegen.textures.element_code import (
    element_bytes,
    is_valid,
    read_element,
)
from memlab.device.emulator.codegen.trace_code import trace_sectors
from memlab.device.emulator.codegen.use_code import note_use
from memlab.device.emulator.isa.textures import CHANNELS, RECIPE_AXES
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_AXES = 3
_CORNERS = 1 << _AXES
_SECTOR_SHIFT = SECTOR_BYTES.bit_length() - 1
_LINE_SECTORS = LINE_BYTES // SECTOR_BYTES
_GAPS = (132, 57, 23, 10, 4, 1)  # of Shell's sort (Ciura 2001)


@compiled(exported=True)
def fetch(
    context: Context,
    record: Addresses,
    site: Site,
    mask: Word,
    warp: int,
    sources: Pointer[int],
    results: Pointer[Word],
) -> Int32:
    """Fetch the elements of a texture for the lanes of a mask, which is not 0.

    Args:
        context: The running blocks.
        record: Its `address` holds that of each lane's first element.
        site: The instruction.
        mask: The lanes.
        warp: Their warp.
        sources: The bytes to the second element along x, y and z, and the recipes, shape (4, 32).
        results: The channels, as bits, shape (4, 32); those of other lanes become 0.

    Returns:
        0; on a fault, which is noted in the context, 1.
    """
    fill_bytes(results, 4 * CHANNELS * WARP_SIZE)
    places = field_pointer(record, "address", int)
    addresses, offsets = room(int, _CORNERS * WARP_SIZE), room(int, _CORNERS)
    found, moved, size = 0, 0, 0
    for lane in set_bits(mask):
        recipe, first = sources[_AXES * WARP_SIZE + lane], places[lane]
        index = find_array(context, first)
        if index < 0:
            note_fault(context, site, GLOBAL, 1 << lane, places, warp)
            return 1
        note_use(context, site, index)
        size = element_bytes(recipe)
        corners = 1 << (recipe >> RECIPE_AXES & 3)
        for corner in range(corners):
            offset = 0
            for axis in (0, 1, 2):
                if corner >> axis & 1:
                    offset += sources[axis * WARP_SIZE + lane]
            offsets[corner] = offset
            address = first + offset
            array = context.arrays[index]
            if address < array.start or address + size > array.end or address & (size - 1):
                places[lane] = address if address < array.start else array.end
                note_fault(context, site, GLOBAL, 1 << lane, places, warp)
                return 1
            if is_valid(recipe, corner):
                addresses[found] = address
                found += 1
                moved += size
        start = context.segments[GLOBAL].base + first
        read_element(start, offsets, recipe, corners, results + lane)
    # A warp whose lanes fetch from textures of several types is rare: the last size stands for all.
    distinct = sort_distinct(addresses, found)
    for number in range(distinct):
        addresses[number] = addresses[number] >> _SECTOR_SHIFT
    used, first = distinct * size, places[lowest_bit(mask)]
    count_fetch(context, site, warp, addresses, distinct, moved, used, first)
    return 0


@compiled(inline=False)
def count_fetch(
    context: Context,
    site: Site,
    warp: int,
    sectors: Pointer[int],
    found: int,
    moved: int,
    used: int,
    first: int,
) -> None:
    """Count a fetch by its distinct sectors, and record them.

    `sectors` are ascending; `moved` are the bytes of all lanes, `used` those of distinct elements;
    `first` is the address of the first active lane.
    """
    distinct = keep_distinct(sectors, found)
    lines, line = 0, -1
    for number in range(distinct):
        if sectors[number] // _LINE_SECTORS != line:
            line = sectors[number] // _LINE_SECTORS
            lines += 1
    add_cost(context, site, fetch_cost(distinct, lines, moved, used))
    if unlikely(context.events):
        trace_sectors(context, site, warp, first, sectors, distinct)


@compiled
def fetch_cost(distinct: int, lines: int, moved: int, used: int) -> Cost:
    """The counts of a fetch."""
    return cost_of(requests=1, sectors=distinct, wavefronts=lines, bytes=moved, used=used)


@compiled(inline=False)
def sort_distinct(values: Pointer[int], count: int) -> int:
    """Sort integers in place, by Shell's method; returns how many distinct ones come first."""
    for gap in _GAPS:
        for number in range(gap, count):
            value, place = values[number], number
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
    return keep_distinct(values, count)


@compiled
def keep_distinct(values: Pointer[int], count: int) -> int:
    """Move the distinct ones of ascending integers to the front; returns how many there are."""
    distinct = 0
    for number in range(count):
        value = values[number]
        if distinct == 0 or value != values[distinct - 1]:
            values[distinct] = value
            distinct += 1
    return distinct
