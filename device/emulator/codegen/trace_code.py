"""The runtime's traces: which sectors, or which lines, each warp accesses, in order.

**Sectors of global memory.** An *event* is one execution of an instruction by a group of lanes.
Events are numbered as they begin: by ascending run, and within a run (of a stretch, warp after
warp) by the first warp that takes part. Each access of a warp is recorded with its event. The
sectors that it accesses are recorded once for all accesses in succession that lie alike.

**Lines of global and local memory.** Each access of a warp to a line whose hash is in the sample is
recorded by itself, with its sectors and its run. Sampling by lines keeps all reuse of those that
are in the sample (SHARDS: Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015).
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, set_bits
from memlab.device.emulator.codegen.cost_code import last_of_equals, sorted_runs
from memlab.device.emulator.codegen.lanes import count_bits, splat
from memlab.device.emulator.codegen.layout import (
    CONSTANT_LINE_BYTES,
    LOCAL_LINES,
    SITE_KINDS,
    SPACES,
    Addresses,
    Context,
    LastAccess,
    Pattern,
    Site,
)
from memlab.device.emulator.codegen.records import Int32, Lanes, NarrowLanes, Pointer, room
from memlab.device.emulator.isa.address_space import WINDOW_BYTES
from memlab.device.emulator.isa.values import S32, S64
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_NO_VERSION = 0  # of addresses without a pattern
_GLOBAL, _LOCAL, _CONST = map(SPACES.index, ("global", "local", "const"))
_ATOMIC = SITE_KINDS.index("atomic")
_LINE_SECTORS = LINE_BYTES // SECTOR_BYTES
_SECTOR_SHIFT, _WORD_SHIFT = SECTOR_BYTES.bit_length() - 1, 2
_WHOLE_LINE = (1 << _LINE_SECTORS) - 1
_HASH_FACTORS = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53  # of MurmurHash3's finalizer (A. Appleby)
_SET_BITS = 9
L1_SETS = 1 << _SET_BITS
"""Sets of the L1 of an H200, which is assumed for other GPUs."""
_SET_TURNED = (113, 27, 374, 329, 57, 481, 477, 238, 404, 141, 428, 244, 303, 130, 240, 277, 508)
"""Bits of a set's number that a line's bits from 9 to 25 turn, so that lines which replace each
other in an H200 are of one set (docs/results/h200-replaced-lines.csv, `lines`). Higher bits were
not measured."""
_SET_FACTORS = 0x1D5, 0x0B3, 0x14B  # odd, so that no two numbers become one
_HASH_BITS = 31
_ALL_BITS = (1 << 64) - 1


# --- Sectors of global memory ---------------------------------------------------------------------


@compiled
def trace(
    context: Context, site: Site, space: int, warp: int, address: int, relative: Lanes, lanes: int
) -> None:
    """Record an access of a warp.

    `address` is the first active lane's without the site's offset; `relative` are addresses as
    `cost` takes them; `lanes` are the active ones.
    """
    if context.lines:
        trace_lines(context, site, space, warp, address, relative)
        return
    if space == _CONST:
        record_constants(context, site, warp, address, relative)
    if space != _GLOBAL:
        return
    last = context.last_accesses[site.index]
    last.version, last.moved = _NO_VERSION, moved_from_line(site, address)
    record_sectors(context, site, last, relative, lanes)
    record_access(context, site, warp, address)


@compiled(seldom=True)
def trace_pattern(context: Context, site: Site, record: Addresses, pattern: Pattern) -> None:
    """The same of resolved addresses."""
    if context.lines:
        relative = pattern.relative.to(S64)
        trace_lines(context, site, record.space, record.warp, record.first, relative)
        return
    if record.space == _CONST:
        record_constants(context, site, record.warp, record.first, pattern.relative.to(S64))
    if record.space != _GLOBAL:
        return
    last, moved = context.last_accesses[site.index], moved_from_line(site, record.first)
    if last.version != pattern.version or last.moved != moved:
        last.version, last.moved = pattern.version, moved
        record_sectors(context, site, last, pattern.relative.to(S64), pattern.mask)
    record_access(context, site, record.warp, record.first)


@compiled(seldom=True)
def trace_sectors(
    context: Context, site: Site, warp: int, address: int, sectors: Pointer[int], count: int
) -> None:
    """Record an access to distinct sectors of global memory, by ascending number.

    `address` is that of the first active lane; the site has no offset.
    """
    if context.lines:
        context.last_runs[warp] = context.run
        start = 0
        while start < count:
            line, bits = sectors[start] // _LINE_SECTORS, 0
            while start < count and sectors[start] // _LINE_SECTORS == line:
                bits |= 1 << (sectors[start] & _LINE_SECTORS - 1)
                start += 1
            keep_line(context, site, warp, line, bits, hash_of_line(line))
        return
    last, number = context.last_accesses[site.index], context.sector_count
    last.version, last.sectors, last.count, last.passes = _NO_VERSION, number, count, 0
    if number + count > context.sector_limit:
        stop(context)
        return
    context.sector_count = number + count
    first = address // LINE_BYTES * _LINE_SECTORS
    for place in range(count):
        context.sectors[number + place] = sectors[place] - first
    record_access(context, site, warp, address)


@compiled
def unaligned_offset(site: Site) -> int:
    """The offset where it is no multiple of the bytes that a lane accesses, else 0.

    It counts as part of the address.
    """
    return site.offset if site.offset & (site.size - 1) else 0


@compiled
def moved_from_line(site: Site, address: int) -> int:
    """The `moved` of a `LastAccess`."""
    unaligned = unaligned_offset(site)
    return (address + unaligned & LINE_BYTES - 1) + site.offset - unaligned


@compiled(inline=False)
def record_sectors(
    context: Context, site: Site, last: LastAccess, relative: Lanes, lanes: int
) -> None:
    """Record the distinct sectors of an access."""
    ordered = sorted_runs(relative + splat(last.moved), WARP_SIZE)
    sectors = (ordered >> SECTOR_BYTES.bit_length() - 1).to(S32)
    distinct, number = last_of_equals(sectors), context.sector_count
    last.sectors, last.count = number, count_bits(distinct)
    if number + last.count > context.sector_limit:
        stop(context)
        return
    context.sector_count = number + last.count
    held = room(NarrowLanes)
    held[0] = sectors
    for lane in set_bits(distinct):
        context.sectors[number] = held.to(Int32)[lane]
        number += 1
    last.passes = 0
    if site.kind == _ATOMIC:
        last.passes = sector_passes(ordered, last.moved, WARP_SIZE - count_bits(lanes))


@compiled(inline=False)
def sector_passes(ordered: Lanes, repeated: int, inactive: int) -> int:
    """The passes that the L2 needs for an atomic, added up over its sectors.

    In a pass it adds to each word of a sector for one lane, so that a sector takes as many passes
    as lanes have the same address (measured: `docs/results/h200-atomics.csv`). `ordered` are the
    addresses, sorted; so many inactive lanes repeat one.
    """
    held = room(Lanes)
    held[0] = ordered
    address = held.to(int)
    passes, most, sector, before = 0, 0, 0, -1
    for lane in set_bits(last_of_equals(ordered)):
        equal = lane - before
        before = lane
        if address[lane] == repeated:
            equal -= inactive
        if most == 0 or address[lane] >> _SECTOR_SHIFT != sector:
            passes += most
            most, sector = 0, address[lane] >> _SECTOR_SHIFT
        most = most if most > equal else equal
    return passes + most


@compiled
def record_access(context: Context, site: Site, warp: int, address: int) -> None:
    """Record an access with the sectors of the last one."""
    last, number = context.last_accesses[site.index], context.access_count
    if last.run != context.run:
        begin_event(context, last, site.index)
    if number >= context.access_limit:
        stop(context)
        return
    context.access_count = number + 1
    access = context.accesses[number]
    access.base = address + unaligned_offset(site)
    access.phase = address + site.offset & SECTOR_BYTES - 1
    access.event, access.warp = last.event, warp
    access.sectors, access.count, access.passes = last.sectors, last.count, last.passes


@compiled
def begin_event(context: Context, last: LastAccess, index: int) -> None:
    """Begin the event of an instruction in the current run."""
    number = context.event_count
    context.event_count = number + 1
    last.run, last.event = context.run, number
    if number < context.event_limit:
        event = context.events[number]
        event.run, event.index = context.run, index
    else:
        stop(context)


@compiled
def stop(context: Context) -> None:
    """Record no access any more: what is recorded has no gap."""
    context.access_limit = 0


# --- Lines of constant memory ---------------------------------------------------------------------


@compiled(inline=False)
def record_constants(
    context: Context, site: Site, warp: int, address: int, relative: Lanes
) -> None:
    """Record the lines of constant memory that a warp of the first block accesses."""
    if warp >= context.warps_per_block:
        return
    shift = splat(CONSTANT_LINE_BYTES.bit_length() - 1)
    place = address + site.offset & WINDOW_BYTES - 1
    units = sorted_runs(relative + splat(place), WARP_SIZE) >> shift
    held, begins = room(Lanes), 1
    held[0] = units
    unit = held.to(int)
    for lane in set_bits(last_of_equals(units)):
        number = context.constant_count
        if number < context.constant_limit:
            context.constant_count = number + 1
            access = context.constants[number]
            access.line, access.index, access.warp, access.begins = (
                unit[lane],
                site.index,
                warp,
                begins,
            )
        begins = 0


# --- Lines of global and local memory -------------------------------------------------------------


@compiled(inline=False)
def trace_lines(
    context: Context, site: Site, space: int, warp: int, address: int, relative: Lanes
) -> None:
    """Record the lines of an access that are in the sample."""
    is_traced = space in (_GLOBAL, _LOCAL)
    if not is_traced:
        return
    context.last_runs[warp] = context.run
    shift = _SECTOR_SHIFT if space == _GLOBAL else _WORD_SHIFT
    units = sorted_runs(relative + splat(address + site.offset), WARP_SIZE) >> splat(shift)
    held = room(Lanes)
    held[0] = units
    unit = held.to(int)
    if space == _LOCAL:
        of_block = warp % context.warps_per_block << _HASH_BITS  # the same in every block
        for lane in set_bits(last_of_equals(units)):
            for word in range(unit[lane], unit[lane] + (site.size + 3 >> _WORD_SHIFT)):
                line = LOCAL_LINES + word
                keep_line(context, site, warp, line, _WHOLE_LINE, hash_of_line(line + of_block))
        return
    line, sectors = unit[0] // _LINE_SECTORS, 0
    for lane in set_bits(last_of_equals(units)):
        if unit[lane] // _LINE_SECTORS != line:
            keep_line(context, site, warp, line, sectors, hash_of_line(line))
            line, sectors = unit[lane] // _LINE_SECTORS, 0
        sectors |= 1 << (unit[lane] & _LINE_SECTORS - 1)
    keep_line(context, site, warp, line, sectors, hash_of_line(line))


@compiled(inline=True)
def keep_line(
    context: Context, site: Site, warp: int, line: int, sectors: int, hashed: int
) -> None:
    """Record an access to a line if it is in the sample."""
    if hashed >= context.line_share:
        return
    number = context.line_count
    if number >= context.line_limit:
        context.lines_lost += 1
        return
    context.line_count = number + 1
    access = context.lines[number]
    access.place = line << _LINE_SECTORS | sectors
    access.run, access.index, access.warp = context.run, site.index, warp


@compiled(inline=True)
def hash_of_line(line: int) -> int:
    """A number of 31 bits: a sample of one line in `2**n` has all lines of one set in `2**n`."""
    rest = _HASH_BITS - _SET_BITS
    return set_of_line(line) << rest | scattered(line) & (1 << rest) - 1


@compiled(inline=True)
def set_of_line(line: int) -> int:
    """The number of a line's set in an L1, of which an H200 has the same lines.

    The numbers themselves are others: any stride scatters lines over the first ones as over all.
    """
    number, above = line & L1_SETS - 1, line >> _SET_BITS
    for turned in _SET_TURNED:
        number = number ^ turned * (above & 1)
        above = above >> 1
    number = number ^ scattered(above) & L1_SETS - 1
    for factor in _SET_FACTORS:
        number = number * factor & L1_SETS - 1
        number = number ^ number >> _SET_BITS // 2
    return number


@compiled(inline=True)
def scattered(number: int) -> int:
    """A number of 31 bits that any stride of numbers scatters evenly."""
    mixed = number
    for factor in _HASH_FACTORS:
        mixed = (mixed ^ mixed >> 33 & _ALL_BITS >> 33) * factor
    return mixed >> 33 & (1 << _HASH_BITS) - 1
