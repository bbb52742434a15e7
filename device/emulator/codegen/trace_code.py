"""The runtime's trace: which sectors of global memory each warp accesses, in the order of events.

An *event* is one execution of an instruction by a group of lanes. Events are numbered as they
begin: by ascending run, and within a run (of a stretch, warp after warp) by the first warp that
takes part. Each access of a warp is recorded with its event. The sectors that it accesses are
recorded once for all accesses in succession that lie alike.
"""

from __future__ import annotations

from llvmlite import ir

from memlab.device.emulator.codegen.cost_code import sorted_runs
from memlab.device.emulator.codegen.flow import bit_loop
from memlab.device.emulator.codegen.layout import (
    ACCESS,
    ADDRESSES,
    CONTEXT,
    EVENT,
    LAST_ACCESS,
    PATTERN,
    SITE,
    element_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.pattern_code import relative_addresses
from memlab.device.emulator.codegen.runtime_parts import (
    ADDRESS_LANES,
    I32,
    I64,
    POINTER,
    begin,
    bits_of,
    call,
    shuffle,
    splat,
)
from memlab.device.emulator.isa.values import S32, S64, Value
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

_U16 = ir.IntType(16)
_NO_VERSION = 0  # of addresses without a pattern


def add_trace_functions(module: ir.Module) -> None:
    """Add the functions to the runtime's module; those that count accesses call them."""
    _add_begin_event(module)
    _add_record_sectors(module)
    _add_record_access(module)
    for name in ("trace", "trace_pattern"):
        _add_trace(module, name)


def _add_trace(module: ir.Module, name: str) -> None:
    """`trace` or `trace_pattern`: record an access of a warp to global memory.

    - `trace(context, site, warp, first, relative)` gets the first active lane's address without the
      site's offset, and relative addresses as `cost` takes them.
    - `trace_pattern(context, site, addresses*, pattern)` gets resolved addresses.
    """
    by_pattern = name == "trace_pattern"
    kinds = (POINTER, POINTER) if by_pattern else (I64, I64, ADDRESS_LANES)
    b = begin(module, name, ir.VoidType(), POINTER, POINTER, *kinds, seldom=by_pattern)
    context, site, *arguments = b.function.args
    if by_pattern:
        record, pattern = arguments
        warp, address = (load_field(b, record, ADDRESSES, field) for field in ("warp", "first"))
        version = load_field(b, pattern, PATTERN, "version")
    else:
        warp, address, relative = arguments
        version = I64(_NO_VERSION)
    # An offset that is no multiple of the bytes that a lane accesses counts as part of the address.
    offset = load_field(b, site, SITE, "offset")
    size = b.zext(load_field(b, site, SITE, "size"), I64)
    aligned = b.icmp_signed("==", b.and_(offset, b.sub(size, I64(1))), I64(0))
    first = b.select(aligned, address, b.add(address, offset))
    moved = b.add(b.and_(first, I64(LINE_BYTES - 1)), b.select(aligned, offset, I64(0)))
    index = load_field(b, site, SITE, "index")
    last = element_pointer(
        b, load_field(b, context, CONTEXT, "last_accesses"), index, LAST_ACCESS.itemsize
    )
    run = load_field(b, context, CONTEXT, "run")
    with b.if_then(b.icmp_signed("!=", run, load_field(b, last, LAST_ACCESS, "run"))):
        call(b, "begin_event", context, last, index)
    alike = b.and_(
        b.icmp_signed("==", version, load_field(b, last, LAST_ACCESS, "version")),
        b.icmp_signed("==", moved, load_field(b, last, LAST_ACCESS, "moved")),
    )
    with b.if_then(b.not_(b.and_(alike, b.icmp_signed("!=", version, I64(_NO_VERSION))))):
        if by_pattern:
            relative = relative_addresses(b, pattern).ir
        call(b, "record_sectors", context, last, relative, moved)
        store_field(b, version, last, LAST_ACCESS, "version")
        store_field(b, moved, last, LAST_ACCESS, "moved")
    call(b, "record_access", context, last, warp, b.and_(first, I64(-SECTOR_BYTES)))
    b.ret_void()


def _add_begin_event(module: ir.Module) -> None:
    """`begin_event(context, last, index)`: begin the event of an instruction in the current run."""
    b = begin(module, "begin_event", ir.VoidType(), POINTER, POINTER, I64)
    context, last, index = b.function.args
    run = load_field(b, context, CONTEXT, "run")
    count = load_field(b, context, CONTEXT, "event_count")
    store_field(b, b.add(count, I64(1)), context, CONTEXT, "event_count")
    store_field(b, run, last, LAST_ACCESS, "run")
    store_field(b, count, last, LAST_ACCESS, "event")
    fits = b.icmp_signed("<", count, load_field(b, context, CONTEXT, "event_limit"))
    with b.if_else(fits) as (then, otherwise):
        with then:
            events = load_field(b, context, CONTEXT, "events")
            event = element_pointer(b, events, count, EVENT.itemsize)
            store_field(b, run, event, EVENT, "run")
            store_field(b, index, event, EVENT, "index")
        with otherwise:
            _stop(b, context)
    b.ret_void()


def _add_record_sectors(module: ir.Module) -> None:
    """`record_sectors(context, last, relative, moved)`: the distinct sectors of an access."""
    b = begin(module, "record_sectors", ir.VoidType(), POINTER, POINTER, ADDRESS_LANES, I64)
    b.function.attributes.add("noinline")
    context, last, relative, moved = b.function.args
    ordered = sorted_runs(Value(b, relative, S64) + splat(b, moved), WARP_SIZE)
    sectors = (ordered >> SECTOR_BYTES.bit_length() - 1).to(S32)
    before = shuffle(sectors, lambda lane: max(lane - 1, 0))
    new = b.or_(bits_of(sectors != before), I32(1))
    count = b.zext(b.ctpop(new), I64)
    start = load_field(b, context, CONTEXT, "sector_count")
    after = b.add(start, count)
    store_field(b, start, last, LAST_ACCESS, "sectors")
    store_field(b, count, last, LAST_ACCESS, "count")
    fits = b.icmp_signed("<=", after, load_field(b, context, CONTEXT, "sector_limit"))
    with b.if_else(fits) as (then, otherwise):
        with then:
            store_field(b, after, context, CONTEXT, "sector_count")
            end = element_pointer(b, load_field(b, context, CONTEXT, "sectors"), start, 4)
            with bit_loop(b, new) as lane:
                # As many as there are set bits below this one have been stored.
                below = b.and_(new, b.sub(b.shl(I32(1), b.trunc(lane, I32)), I32(1)))
                place = element_pointer(b, end, b.zext(b.ctpop(below), I64), 4)
                b.store(b.extract_element(sectors.ir, lane), place)
        with otherwise:
            _stop(b, context)
    b.ret_void()


def _add_record_access(module: ir.Module) -> None:
    """`record_access(context, last, warp, base)`: an access with the sectors of the last one."""
    b = begin(module, "record_access", ir.VoidType(), POINTER, POINTER, I64, I64)
    context, last, warp, base = b.function.args
    number = load_field(b, context, CONTEXT, "access_count")
    fits = b.icmp_signed("<", number, load_field(b, context, CONTEXT, "access_limit"))
    with b.if_else(fits) as (then, otherwise):
        with then:
            accesses = load_field(b, context, CONTEXT, "accesses")
            access = element_pointer(b, accesses, number, ACCESS.itemsize)
            store_field(b, base, access, ACCESS, "base")
            for name in ("event", "sectors"):
                value = load_field(b, last, LAST_ACCESS, name)
                store_field(b, b.trunc(value, I32), access, ACCESS, name)
            count = load_field(b, last, LAST_ACCESS, "count")
            for name, value in (("warp", warp), ("count", count)):
                store_field(b, b.trunc(value, _U16), access, ACCESS, name)
            store_field(b, b.add(number, I64(1)), context, CONTEXT, "access_count")
        with otherwise:
            _stop(b, context)
    b.ret_void()


def _stop(b: ir.IRBuilder, context: ir.Value) -> None:
    """Record no access any more: what is recorded has no gap."""
    store_field(b, I64(0), context, CONTEXT, "access_limit")
