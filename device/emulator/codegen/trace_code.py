"""The runtime's trace: which sectors of global memory each warp accesses, in the order of events.

An *event* is one execution of an instruction by a group of lanes. Events are numbered as they
begin: by ascending run, and within a run (of a stretch, warp after warp) by the first warp that
takes part. Each access of a warp is recorded with its event. The sectors that it accesses are
recorded once for all accesses in succession that lie alike.
"""

from __future__ import annotations

from memlab.device.emulator.codegen.compiled import compiled, set_bits
from memlab.device.emulator.codegen.cost_code import last_of_equals, sorted_runs
from memlab.device.emulator.codegen.lanes import count_bits, splat
from memlab.device.emulator.codegen.layout import Addresses, Context, LastAccess, Pattern, Site
from memlab.device.emulator.codegen.records import Int32, Lanes, NarrowLanes, room
from memlab.device.emulator.isa.values import S32, S64
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_NO_VERSION = 0  # of addresses without a pattern


@compiled
def trace(context: Context, site: Site, warp: int, address: int, relative: Lanes) -> None:
    """Record an access of a warp to global memory.

    `address` is the first active lane's without the site's offset; `relative` are addresses as
    `cost` takes them.
    """
    last = context.last_accesses[site.index]
    last.version, last.moved = _NO_VERSION, moved_from_line(site, address)
    record_sectors(context, last, relative)
    record_access(context, site, warp, address)


@compiled(seldom=True)
def trace_pattern(context: Context, site: Site, record: Addresses, pattern: Pattern) -> None:
    """The same of resolved addresses."""
    last, moved = context.last_accesses[site.index], moved_from_line(site, record.first)
    if last.version != pattern.version or last.moved != moved:
        last.version, last.moved = pattern.version, moved
        record_sectors(context, last, pattern.relative.to(S64))
    record_access(context, site, record.warp, record.first)


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
def record_sectors(context: Context, last: LastAccess, relative: Lanes) -> None:
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
    access.base = address + unaligned_offset(site) & -SECTOR_BYTES
    access.event, access.warp = last.event, warp
    access.sectors, access.count = last.sectors, last.count


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
