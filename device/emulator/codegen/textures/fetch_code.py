"""The runtime's fetches of textures: finds the elements of a warp's lanes, and counts them.

The instruction before a fetch has computed the address of the first element, the bytes to the
others, and a recipe: see `isa/textures.py`.

A warp makes a request for every 4 lanes, or for every 8 where it reads elements of at most 8 bytes
from linear memory. The sectors of a request are counted once, at least one; a linear filter in 3
dimensions counts them for every 2 lanes. A wavefront is a line of 128 bytes. So counts Nsight
Compute on an H200 (docs/results/README.md, "Textures").
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
from memlab.device.emulator.isa.textures import CHANNELS, RECIPE_AXES, RECIPE_LINEAR_MEMORY
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
    sectors = room(int, _CORNERS * WARP_SIZE)
    # A warp whose lanes fetch from textures of several kinds is rare: the first one's kind tells
    # which lanes share a request, and the size of the elements that are used.
    recipe, first = sources[_AXES * WARP_SIZE + lowest_bit(mask)], places[lowest_bit(mask)]
    used_size, run = element_bytes(recipe), sharing_lanes(recipe)
    found, moved, total, lines, start = 0, 0, 0, 0, 0
    while start < WARP_SIZE:
        part = mask & (((1 << run) - 1) << start)
        begin = found
        for lane in set_bits(part):
            recipe = sources[_AXES * WARP_SIZE + lane]
            index = find_array(context, places[lane])
            if index < 0:
                note_fault(context, site, GLOBAL, 1 << lane, places, warp)
                return 1
            note_use(context, site, index)
            corners, size = 1 << (recipe >> RECIPE_AXES & 3), element_bytes(recipe)
            for corner in range(corners):
                offset = 0
                for axis in (0, 1, 2):
                    if corner >> axis & 1:
                        offset += sources[axis * WARP_SIZE + lane]
                offsets[corner] = offset
                address = places[lane] + offset
                array = context.arrays[index]
                if address < array.start or address + size > array.end or address & (size - 1):
                    places[lane] = address if address < array.start else array.end
                    note_fault(context, site, GLOBAL, 1 << lane, places, warp)
                    return 1
                if is_valid(recipe, corner):
                    addresses[found] = address
                    sectors[found - begin] = address >> _SECTOR_SHIFT
                    found += 1
                    moved += size
            base = context.segments[GLOBAL].base + places[lane]
            read_element(base, offsets, recipe, corners, results + lane)
        if found > begin:
            distinct = sort_distinct(sectors, found - begin)
            total += distinct
            lines += count_lines(sectors, distinct)
            if unlikely(context.events):
                trace_sectors(context, site, warp, first, sectors, distinct)
        start += run
    requests = count_requests(mask, 4 if run == 2 else run)
    total = max(total, requests)
    used = sort_distinct(addresses, found) * used_size
    add_cost(context, site, fetch_cost(requests, total, lines, moved, used))
    return 0


@compiled
def sharing_lanes(recipe: int) -> int:
    """The neighbouring lanes whose sectors are counted once."""
    if recipe >> RECIPE_LINEAR_MEMORY & 1 and element_bytes(recipe) <= 8:
        return 8
    return 2 if recipe >> RECIPE_AXES & 3 == _AXES else 4


@compiled
def count_requests(mask: int, lanes: int) -> int:
    """The requests of a mask, one for each group of lanes with an active one."""
    requests, start = 0, 0
    while start < WARP_SIZE:
        if mask >> start & ((1 << lanes) - 1):
            requests += 1
        start += lanes
    return requests


@compiled(inline=False)
def count_lines(sectors: Pointer[int], count: int) -> int:
    """The lines of ascending sectors."""
    lines, line = 0, -1
    for number in range(count):
        if sectors[number] // _LINE_SECTORS != line:
            line = sectors[number] // _LINE_SECTORS
            lines += 1
    return lines


@compiled
def fetch_cost(requests: int, sectors: int, lines: int, moved: int, used: int) -> Cost:
    """The counts of a fetch."""
    return cost_of(requests=requests, sectors=sectors, wavefronts=lines, bytes=moved, used=used)


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
