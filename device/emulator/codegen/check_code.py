"""Writes the machine code that checks watched instructions of a launch before they are executed.

It knows the common case only: that the tools of `checks` have nothing to report. Then it notes the
access in the shadow memory, as they do, and the machine code goes on. All else is left to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from memlab.device.emulator.codegen.check_layout import (
    CHECK,
    CHECK_KINDS,
    CHECK_STATE,
    CHECKED_SPACE,
    FOOTPRINT,
    PENDING_COPY_BIT,
    STRONG,
    THREAD_BITS,
    THREAD_MASK,
    TIME_SHIFT,
    VOLATILE,
    WARP_BITS,
)
from memlab.device.emulator.codegen.compiled import compiled
from memlab.device.emulator.codegen.flow import bit_loop, counted_loop
from memlab.device.emulator.codegen.layout import CONTEXT, Context, field_pointer
from memlab.device.emulator.codegen.records import Pointer, Word
from memlab.device.emulator.codegen.runtime_parts import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    bits_of,
    call,
    lanes_of,
    reduce,
    splat,
    stack_room,
)
from memlab.device.emulator.isa.values import PRED, S32, S64, Value, intrinsic, shaped, where
from memlab.device.properties import WARP_SIZE

_RECORDS = {
    "context": CONTEXT,
    "check": CHECK,
    "state": CHECK_STATE,
    "space": CHECKED_SPACE,
    "footprint": FOOTPRINT,
}
_LOAD, _STORE, _ATOMIC, _BARRIER, _WARP_BARRIER, _COLLECTIVE, _OTHER = range(len(CHECK_KINDS))
_LANES = ir.VectorType(I64, WARP_SIZE)
_EVERY_LANE = I32(0xFFFF_FFFF)
_WORD_BYTES, _NUMBER_BYTES = 4, 8
_FARTHEST_BYTES = 2**31 - 1  # from the first lane's address, in a footprint


def add_check_functions(module: ir.Module) -> None:
    """Add the functions to the runtime's module.

    `i64 must_report(context*, check*, mask*)` checks an instruction that lanes are about to
    execute; it returns 0 where the tools have nothing to do.
    """
    _add_addresses(module)
    _add_first_address(module)
    _add_find_span(module)
    _add_is_permitted(module)
    _add_is_similar(module)
    _add_find_footprint(module)
    _add_note_lanes(module)
    _add_list_units(module)
    _add_make_footprint(module)
    _add_has_unwritten(module)
    _add_is_known(module)
    _add_may_conflict(module)
    _add_may_race(module)
    _add_note_in_history(module)
    _add_note_access(module)
    _add_check_access(module)
    _add_check_barrier(module)
    _add_check_collective(module)
    _add_must_report(module)


class _Function:
    """A function of the checks under construction; its numbers are of 64 bits.

    The arguments that point to records have the names of `_RECORDS`.
    """

    def __init__(self, module: ir.Module, name: str, *arguments: str) -> None:
        kinds = [I64 if argument.startswith("#") else POINTER for argument in arguments]
        function = ir.Function(module, ir.FunctionType(I64, kinds), name)
        function.attributes.add("nounwind")
        function.linkage = "external" if name in CHECK_FUNCTIONS else "internal"
        self.b = ir.IRBuilder(function.append_basic_block())
        self.of = {
            name.lstrip("#"): value for name, value in zip(arguments, function.args, strict=True)
        }

    def number(self, name: str) -> Value:
        """An argument that is a number."""
        return Value(self.b, self.of[name], S64)

    def get(self, record: str, field: str, number: int = 0) -> Value:
        """A number in a record; of an array, one item."""
        return Value(self.b, self.b.load(self._place(record, field, number), typ=I64), S64)

    def pointer(self, record: str, field: str, number: int = 0) -> ir.Value:
        """A pointer in a record."""
        return self.b.load(self._place(record, field, number), typ=POINTER)

    def follow(self, record: str, field: str, to: str) -> None:
        """Give a record that another one points to a name."""
        self.of[to] = self.pointer(record, field)

    def put(self, record: str, field: str, value: Value | ir.Value) -> None:
        stored = value.ir if isinstance(value, Value) else value
        self.b.store(stored, self._place(record, field, 0))

    def _place(self, record: str, field: str, number: int) -> ir.Value:
        place = field_pointer(self.b, self.of[record], _RECORDS[record], field)
        return self.at(place, number, _NUMBER_BYTES) if number else place

    def at(self, array: ir.Value, index: Value | int, item_bytes: int) -> ir.Value:
        """A pointer to an item of an array."""
        number = I64(index) if isinstance(index, int) else index.ir
        return self.b.gep(array, [number], source_etype=ir.IntType(8 * item_bytes))

    def item(self, array: ir.Value, index: Value | int, item_bytes: int) -> Value:
        """An integer in an array, extended by its sign."""
        kind = ir.IntType(8 * item_bytes)
        raw = self.b.load(self.at(array, index, item_bytes), typ=kind)
        return Value(self.b, raw if kind == I64 else self.b.sext(raw, I64), S64)

    def room(self, kind: ir.Type) -> ir.Value:
        """Memory on the stack."""
        with self.b.goto_entry_block():
            return stack_room(self.b, kind)

    @contextmanager
    def over(self, count: Value) -> Iterator[Value]:
        """A loop over 0 <= i < count."""
        with counted_loop(self.b, count.ir) as index:
            yield Value(self.b, index, S64)

    @contextmanager
    def over_warps(self, words: str = "mask") -> Iterator[tuple[Value, ir.Value]]:
        """A loop over the warps with lanes; gives these as a word."""
        with self.over(self.get("context", "warps")) as warp:
            word = self.b.load(self.at(self.of[words], warp, _WORD_BYTES), typ=I32)
            with self.b.if_then(self.b.icmp_unsigned("!=", word, I32(0))):
                yield warp, word

    def is_null(self, pointer: ir.Value) -> Value:
        address = Value(self.b, self.b.ptrtoint(pointer, I64), S64)
        return address == 0

    def call(self, name: str, *arguments: str | Value | ir.Value) -> Value:
        """Call another function of the checks."""
        values = [
            self.of[a] if isinstance(a, str) else a.ir if isinstance(a, Value) else a
            for a in arguments
        ]
        return Value(self.b, call(self.b, name, *values), S64)

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        with self.b.if_then(condition.ir, likely):
            yield

    def ret(self, value: Value | int) -> None:
        self.b.ret(I64(value) if isinstance(value, int) else value.ir)

    def ret_if(self, condition: Value, value: int = 1) -> None:
        """Return a number where a condition holds, which is rare."""
        with self.when(condition, likely=False):
            self.ret(value)


# --- Addresses ------------------------------------------------------------------------------------


def _frame(f: _Function, warp: Value) -> ir.Value:
    """Where the address register of a warp lies."""
    start = warp * f.get("context", "frame_bytes") + f.get("check", "register")
    return f.at(f.pointer("context", "frames"), start, 1)


def _add_addresses(module: ir.Module) -> None:
    """`addresses(context*, check*, warp, out*)`: the address register of a warp, without offset."""
    f = _Function(module, "addresses", "context", "check", "#warp", "out")
    b = f.b
    with f.when(f.get("check", "register") < 0):
        b.store(ir.Constant(_LANES, None), f.of["out"], align=8)
        f.ret(0)
    place = _frame(f, f.number("warp"))
    with f.when(f.get("check", "bits") == 32):
        narrow = Value(b, b.load(place, typ=shaped(S32, WARP_SIZE), align=_WORD_BYTES), S32)
        b.store(narrow.to(S64).ir, f.of["out"], align=8)
        f.ret(0)
    b.store(b.load(place, typ=_LANES, align=8), f.of["out"], align=8)
    f.ret(0)


def _lanes(f: _Function, warp: Value, room: ir.Value) -> Value:
    """The address register of a warp."""
    f.call("addresses", "context", "check", warp, room)
    return Value(f.b, f.b.load(room, typ=_LANES, align=8), S64)


def _add_first_address(module: ir.Module) -> None:
    """`first_address(context*, check*, mask*, out*)`: whether there are lanes; sets the address."""
    f = _Function(module, "first_address", "context", "check", "mask", "out")
    room = f.room(_LANES)
    with f.over_warps() as (warp, word):
        f.call("addresses", "context", "check", warp, room)
        lane = Value(f.b, f.b.zext(f.b.cttz(word, I1(1)), I64), S64)
        f.b.store(f.item(room, lane, _NUMBER_BYTES).ir, f.of["out"])
        f.ret(1)
    f.ret(0)


def _add_find_span(module: ir.Module) -> None:
    """`find_span(context*, check*, mask*, first, out*)`: as in a footprint: low, high and or."""
    f = _Function(module, "find_span", "context", "check", "mask", "#first", "out")
    b = f.b
    room = f.room(_LANES)
    operations = ("smin", "smax", "or")
    spans = [f.room(_LANES) for _ in operations]
    for span in spans:
        b.store(ir.Constant(_LANES, None), span)
    with f.over_warps() as (warp, word):
        first = splat(b, f.of["first"])
        relative = where(lanes_of(b, word), _lanes(f, warp, room) - first, 0)
        low, high, ored = (Value(b, b.load(span, typ=_LANES), S64) for span in spans)
        for span, value in zip(
            spans,
            (
                where(relative < low, relative, low),
                where(relative > high, relative, high),
                ored | relative,
            ),
            strict=True,
        ):
            b.store(value.ir, span)
    for number, (span, operation) in enumerate(zip(spans, operations, strict=True)):
        total = reduce(Value(b, b.load(span, typ=_LANES), S64), operation)
        b.store(total, f.at(f.of["out"], number, _NUMBER_BYTES))
    f.ret(0)


def _add_is_permitted(module: ir.Module) -> None:
    """`is_permitted(check*, low, high, ored)`: as `BoundsCheck.is_permitted`, of full addresses."""
    f = _Function(module, "is_permitted", "check", "#low", "#high", "#ored")
    size, arrays = f.get("check", "size"), f.pointer("check", "arrays")
    f.ret_if(f.number("low") > f.number("high"), 0)  # the span wraps around
    f.ret_if((f.number("ored") & (size - 1)) != 0, 0)
    with f.over(f.get("check", "array_count")) as number:
        start = f.item(arrays, number * 2, _NUMBER_BYTES)
        end = f.item(arrays, number * 2 + 1, _NUMBER_BYTES)
        with f.when((start <= f.number("low")) & (f.number("high") <= end - size)):
            f.ret(1)
    f.ret(0)


# --- Footprints -----------------------------------------------------------------------------------


def _add_is_similar(module: ir.Module) -> None:
    """`is_similar(context*, check*, footprint*, mask*, first)`: whether it is that of an access."""
    f = _Function(module, "is_similar", "context", "check", "footprint", "mask", "#first")
    b = f.b
    for record in ("check", "footprint"):
        f.of[f"{record}.space"] = f.pointer(record, "space")
    same = b.icmp_unsigned("==", f.of["check.space"], f.of["footprint.space"])
    f.ret_if(f.get("check", "size") != f.get("footprint", "size"), 0)
    with b.if_then(b.not_(same)):
        f.ret(0)
    masks, relative = f.pointer("footprint", "mask"), f.pointer("footprint", "relative")
    room = f.room(_LANES)
    with f.over(f.get("context", "warps")) as warp:
        word = b.load(f.at(f.of["mask"], warp, _WORD_BYTES), typ=I32)
        other = b.load(f.at(masks, warp, _WORD_BYTES), typ=I32)
        with b.if_then(b.icmp_unsigned("!=", word, other), likely=False):
            f.ret(0)
        with b.if_then(b.icmp_unsigned("!=", word, I32(0))):
            place = f.at(relative, warp * WARP_SIZE, _WORD_BYTES)
            known = Value(b, b.load(place, typ=shaped(S32, WARP_SIZE), align=_WORD_BYTES), S32)
            differs = _lanes(f, warp, room) - splat(b, f.of["first"]) != known.to(S64)
            active = b.and_(bits_of(differs), word)
            with b.if_then(b.icmp_unsigned("!=", active, I32(0)), likely=False):
                f.ret(0)
    f.ret(1)


def _add_find_footprint(module: ir.Module) -> None:
    """`find_footprint(context*, check*, state*, mask*, first)`: sets `found`, if there is one."""
    f = _Function(module, "find_footprint", "context", "check", "state", "mask", "#first")

    def compare(footprint: ir.Value) -> None:
        similar = f.call("is_similar", "context", "check", footprint, "mask", "first")
        with f.when(similar != 0):
            f.put("check", "footprint", footprint)
            f.put("state", "found", footprint)
            f.ret(1)

    last, records = f.pointer("check", "footprint"), f.pointer("state", "footprints")
    with f.when(~f.is_null(last)):
        compare(last)
    with f.over(f.get("state", "footprint_count")) as number:
        compare(f.at(records, number * FOOTPRINT.itemsize, 1))
    f.ret(0)


def _add_make_footprint(module: ir.Module) -> None:
    """`make_footprint(context*, check*, state*, mask*, first, span*)`: that of a permitted access.

    It takes the place of the oldest one, and is set as `found`.
    """
    arguments = ("context", "check", "state", "mask", "#first", "span")
    f = _Function(module, "make_footprint", *arguments)
    records, oldest = f.pointer("state", "footprints"), f.get("state", "oldest")
    f.of["footprint"] = f.at(records, oldest * FOOTPRINT.itemsize, 1)
    f.follow("check", "space", "space")
    following = oldest + 1
    f.put("state", "oldest", where(following == f.get("state", "footprint_count"), 0, following))
    f.put("footprint", "version", f.get("footprint", "version") + 1)
    f.put("footprint", "space", f.of["space"])
    f.put("footprint", "size", f.get("check", "size"))
    for number, name in enumerate(("low", "high", "ored")):
        f.put("footprint", name, f.item(f.of["span"], number, _NUMBER_BYTES))
    start = f.number("first") + f.get("check", "offset") - f.get("space", "origin")
    f.call("note_lanes", "context", "check", "footprint", "space", "mask", "first", start)
    f.call("list_units", "context", "footprint", "space", start)
    f.put("check", "footprint", f.of["footprint"])
    f.put("state", "found", f.of["footprint"])
    f.ret(0)


def _start(f: _Function, warp: Value) -> Value:
    """Where the accesses of a warp would begin, were they those of the first lane."""
    block = Value(f.b, f.b.sdiv(warp.ir, f.get("context", "warps_per_block").ir), S64)
    return f.number("start") + block * f.get("space", "block_bytes")


def _first_unit(f: _Function, start: Value, lane: Value) -> Value:
    """The first unit that a lane of a footprint touches; `start` is that of its warp."""
    relative = f.item(f.pointer("footprint", "relative"), lane, _WORD_BYTES)
    position = start + lane * f.get("space", "lane_bytes") + relative
    return Value(f.b, f.b.ashr(position.ir, f.get("space", "unit_shift").ir), S64)


def _width(f: _Function) -> Value:
    """Units per lane of a footprint."""
    size, shift = f.get("footprint", "size"), f.get("space", "unit_shift")
    return Value(f.b, f.b.ashr(size.ir, shift.ir), S64)


def _add_note_lanes(module: ir.Module) -> None:
    """`note_lanes(context*, check*, footprint*, space*, mask*, first, start)`.

    Writes the addresses to a footprint, and to the scratch memory the last lane at each unit.
    """
    arguments = ("context", "check", "footprint", "space", "mask", "#first", "#start")
    f = _Function(module, "note_lanes", *arguments)
    b, room = f.b, f.room(_LANES)
    masks, relative = f.pointer("footprint", "mask"), f.pointer("footprint", "relative")
    scratch, width = f.pointer("space", "scratch"), _width(f)
    with f.over(f.get("context", "warps")) as warp:
        word = b.load(f.at(f.of["mask"], warp, _WORD_BYTES), typ=I32)
        b.store(word, f.at(masks, warp, _WORD_BYTES))
        with b.if_then(b.icmp_unsigned("!=", word, I32(0))):
            distances = _lanes(f, warp, room) - splat(b, f.of["first"])
            place = f.at(relative, warp * WARP_SIZE, _WORD_BYTES)
            b.store(distances.to(S32).ir, place, align=_WORD_BYTES)
            start = _start(f, warp)
            with bit_loop(b, word) as bit:
                lane = warp * WARP_SIZE + Value(b, bit, S64)
                unit, narrow = _first_unit(f, start, lane), b.trunc(lane.ir, I32)
                with f.over(width) as part:
                    b.store(narrow, f.at(scratch, unit + part, _WORD_BYTES))
    f.ret(0)


def _add_list_units(module: ir.Module) -> None:
    """`list_units(context*, footprint*, space*, start)`: as `gather_touched_units`.

    From the last lane to the first: a unit is listed by its last lane, which `note_lanes` left in
    the scratch memory. There it gets the complement of its place in the list.
    """
    f = _Function(module, "list_units", "context", "footprint", "space", "#start")
    b, warps, width = f.b, f.get("context", "warps"), _width(f)
    masks, scratch = f.pointer("footprint", "mask"), f.pointer("space", "scratch")
    base = Value(b, b.ashr(f.of["start"], f.get("space", "unit_shift").ir), S64)
    count, contended = f.room(I64), f.room(I64)
    for place in (count, contended):
        b.store(I64(0), place)
    units, lasts = f.pointer("footprint", "units"), f.pointer("footprint", "lanes")
    others = [f.pointer("footprint", name) for name in ("others", "warps")]
    with f.over(warps) as number:
        warp = warps - 1 - number
        word = b.load(f.at(masks, warp, _WORD_BYTES), typ=I32)
        start = _start(f, warp)
        reverse = b.call(intrinsic(b, "llvm.bitreverse", I32, [I32]), [word])
        with bit_loop(b, reverse) as bit:
            lane = warp * WARP_SIZE + (WARP_SIZE - 1) - Value(b, bit, S64)
            unit, narrow = _first_unit(f, start, lane), b.trunc(lane.ir, I32)
            with f.over(width) as part:
                entry = f.item(scratch, unit + part, _WORD_BYTES)
                with b.if_else((entry >= 0).ir) as (is_last, is_lost):
                    with is_last:
                        place = Value(b, b.load(count, typ=I64), S64)
                        b.store((place + 1).ir, count)
                        complement = b.trunc((~place).ir, I32)
                        b.store(complement, f.at(scratch, unit + part, _WORD_BYTES))
                        distance = b.trunc((unit + part - base).ir, I32)
                        b.store(distance, f.at(units, place, _WORD_BYTES))
                        b.store(narrow, f.at(lasts, place, _WORD_BYTES))
                        for array in others:
                            b.store(I32(-1), f.at(array, place, _WORD_BYTES))
                    with is_lost:
                        b.store(I64(1), contended)
                        b.store(narrow, f.at(others[0], ~entry, _WORD_BYTES))
                        last = f.item(lasts, ~entry, _WORD_BYTES)
                        with f.when((last ^ lane) >> WARP_BITS != 0):
                            b.store(narrow, f.at(others[1], ~entry, _WORD_BYTES))
    f.put("footprint", "count", b.load(count, typ=I64))
    f.put("footprint", "is_contended", b.load(contended, typ=I64))
    f.ret(0)


# --- Units ----------------------------------------------------------------------------------------


@contextmanager
def _over_units(f: _Function) -> Iterator[tuple[Value, Value]]:
    """A loop over the units of a footprint; gives their numbers, and their places in it."""
    units = f.pointer("footprint", "units")
    with f.over(f.get("footprint", "count")) as number:
        yield f.number("base") + f.item(units, number, _WORD_BYTES), number


def _add_has_unwritten(module: ir.Module) -> None:
    """`has_unwritten(footprint*, space*, base)`."""
    f = _Function(module, "has_unwritten", "footprint", "space", "#base")
    unwritten = f.pointer("space", "unwritten")
    with _over_units(f) as (unit, _):
        f.ret_if(f.item(unwritten, unit, 1) != 0)
    f.ret(0)


def _add_may_conflict(module: ir.Module) -> None:
    """`may_conflict(check*, state*, footprint*, space*, base, entries*)`.

    As `RaceCheck` decides it, of the last lane at each unit. Where others touch it too, it is left
    to `RaceCheck`.
    """
    arguments = ("check", "state", "footprint", "space", "#base", "entries")
    f = _Function(module, "may_conflict", *arguments)
    lanes, others = f.pointer("footprint", "lanes"), f.pointer("footprint", "others")
    clocks, threads = f.pointer("state", "clocks"), f.pointer("state", "threads")
    among_blocks = f.get("space", "is_shared_by_blocks") != 0
    with _over_units(f) as (unit, number):
        entry = f.item(f.of["entries"], unit, _NUMBER_BYTES)
        with f.when(entry != 0):
            lane = f.item(lanes, number, _WORD_BYTES)
            known = f.item(clocks, lane, _NUMBER_BYTES) << TIME_SHIFT | THREAD_MASK
            thread = f.item(threads, lane, _NUMBER_BYTES)
            differing = (entry ^ thread) & THREAD_MASK
            contended = f.item(others, number, _WORD_BYTES) >= 0
            in_other_block = differing >> THREAD_BITS != 0
            concurrent = (entry > known) | (among_blocks & (in_other_block | contended))
            apart = (differing != 0) | contended | (entry >= PENDING_COPY_BIT)
            with f.when(concurrent & apart, likely=False):
                level = f.get("check", "level")
                time = (entry & ~PENDING_COPY_BIT) >> TIME_SHIFT
                before = f.item(f.pointer("state", "levels"), time, 1)
                either = (before == STRONG) | (level == STRONG)
                orders = either & (before >= VOLATILE) & (level >= VOLATILE)
                with f.when(~orders):
                    f.ret_if(contended | in_other_block)
                    other = lane + (entry & THREAD_MASK) - thread
                    f.ret_if(f.call("is_known", "state", lane, other, entry >> TIME_SHIFT) == 0)
    f.ret(0)


def _add_is_known(module: ir.Module) -> None:
    """`is_known(state*, lane, other, time)`: by `HappensBefore.pairwise_clock`, in one block."""
    f = _Function(module, "is_known", "state", "#lane", "#other", "#time")
    b, size = f.b, f.get("state", "group")
    f.ret_if(size == 0, 0)
    lane, other = f.number("lane"), f.number("other")
    group = Value(b, b.sdiv(lane.ir, size.ir), S64)
    f.ret_if(group != Value(b, b.sdiv(other.ir, size.ir), S64), 0)
    with f.when(
        f.number("time") <= f.item(f.pointer("state", "group_clocks"), group, _NUMBER_BYTES)
    ):
        f.ret(1)
    start = group * size
    pair = lane * size + (other - start)  # all groups before have size * size entries
    known = f.item(f.pointer("state", "pair_clocks"), pair, _WORD_BYTES)
    f.ret((f.number("time") <= known).to(S64) & 1)


def _add_may_race(module: ir.Module) -> None:
    """`may_race(check*, state*, footprint*, space*, base)`."""
    f = _Function(module, "may_race", "check", "state", "footprint", "space", "#base")
    among_blocks, least = f.get("space", "is_shared_by_blocks"), f.get("state", "least_clock")

    def compare(last: str, entries: str, count: int) -> None:
        """Compare with earlier accesses, unless every thread knows all of them."""
        latest = f.get("space", last)
        is_known = (latest == 0) | ((among_blocks == 0) & (latest <= least))
        with f.when(~is_known):
            for number in range(count):
                array = f.pointer("space", entries, number)
                with f.when(~f.is_null(array)):
                    arguments = ("check", "state", "footprint", "space", "base")
                    f.ret_if(f.call("may_conflict", *arguments, array) != 0)

    compare("last_write", "written", 1)
    compare("last_update", "updates", 3)
    with f.when(f.get("check", "kind") != _LOAD):
        compare("last_read", "reads", 3)
    f.ret(0)


def _add_note_in_history(module: ir.Module) -> None:
    """`note_in_history(state*, footprint*, base, last*, others*, other_warps*)`.

    As `AccessHistory.add`.
    """
    names = ("last", "others", "other_warps")
    f = _Function(module, "note_in_history", "state", "footprint", "#base", *names)
    b, threads = f.b, f.pointer("state", "threads")
    now = f.item(f.pointer("state", "time"), 0, _NUMBER_BYTES) << TIME_SHIFT
    lanes = f.pointer("footprint", "lanes")
    others = [f.pointer("footprint", name) for name in ("others", "warps")]
    histories = [(names[1], Value(b, I1(1), PRED), 0)]
    histories.append((names[2], ~f.is_null(f.of[names[2]]), WARP_BITS))
    with _over_units(f) as (unit, number):
        entry = now | f.item(threads, f.item(lanes, number, _WORD_BYTES), _NUMBER_BYTES)
        before = f.item(f.of["last"], unit, _NUMBER_BYTES)
        b.store(entry.ir, f.at(f.of["last"], unit, _NUMBER_BYTES))
        differing = (before ^ entry) & THREAD_MASK
        for (name, exists, bits), first in zip(histories, others, strict=True):
            lane = f.item(first, number, _WORD_BYTES)
            with f.when(exists):
                place = f.at(f.of[name], unit, _NUMBER_BYTES)
                with f.when(differing >> bits != 0):
                    b.store(before.ir, place)
                with f.when(lane >= 0):
                    b.store((now | f.item(threads, lane, _NUMBER_BYTES)).ir, place)
    f.ret(0)


def _add_note_access(module: ir.Module) -> None:
    """`note_access(check*, state*, footprint*, space*, base)`: as `RaceCheck.access`."""
    arguments = ("check", "state", "footprint", "space", "#base")
    f = _Function(module, "note_access", *arguments)
    b, kind = f.b, f.get("check", "kind")
    clock = f.pointer("state", "time")
    time = f.item(clock, 0, _NUMBER_BYTES) + 1
    b.store(time.ir, clock)
    index, level = f.get("check", "index"), f.get("check", "level")
    b.store(b.trunc(index.ir, I32), f.at(f.pointer("state", "steps"), time, _WORD_BYTES))
    b.store(b.trunc(level.ir, I8), f.at(f.pointer("state", "levels"), time, 1))

    def add(entries: str, last: str) -> None:
        f.put("space", last, time)
        history = [f.pointer("space", entries, number) for number in range(3)]
        f.call("note_in_history", "state", "footprint", "base", *history)
        f.ret(0)

    with f.when(kind == _LOAD):
        add("reads", "last_read")
    with f.when(kind == _ATOMIC):
        add("updates", "last_update")
    f.put("space", "last_write", time)
    lanes, threads = f.pointer("footprint", "lanes"), f.pointer("state", "threads")
    written, stores = f.pointer("space", "written"), f.pointer("state", "store_times")
    with _over_units(f) as (unit, number):
        lane = f.item(lanes, number, _WORD_BYTES)
        entry = time << TIME_SHIFT | f.item(threads, lane, _NUMBER_BYTES)
        b.store(entry.ir, f.at(written, unit, _NUMBER_BYTES))
        with f.when(~f.is_null(stores)):
            b.store(time.ir, f.at(stores, lane, _NUMBER_BYTES))
    f.ret(0)


# --- Instructions ---------------------------------------------------------------------------------


def _add_check_access(module: ir.Module) -> None:
    """`check_access(context*, check*, state*, mask*)`."""
    f = _Function(module, "check_access", "context", "check", "state", "mask")
    b, kind = f.b, f.get("check", "kind")
    place = f.room(I64)
    f.ret_if(f.call("first_address", "context", "check", "mask", place) == 0, 0)
    first = Value(b, b.load(place, typ=I64), S64)
    start = first + f.get("check", "offset")
    needs_written, may_race = (f.get("check", name) != 0 for name in ("needs_written", "may_race"))
    with f.when(~(needs_written | may_race)):
        span = f.room(ir.ArrayType(I64, 3))
        f.call("find_span", "context", "check", "mask", first, span)
        low, high, ored = (f.item(span, number, _NUMBER_BYTES) for number in range(3))
        permitted = f.call("is_permitted", "check", start + low, start + high, start | ored)
        f.ret((permitted == 0).to(S64) & 1)
    found = f.call("find_footprint", "context", "check", "state", "mask", first)
    with f.when(found == 0, likely=False):
        span = f.room(ir.ArrayType(I64, 3))
        f.call("find_span", "context", "check", "mask", first, span)
        low, high, ored = (f.item(span, number, _NUMBER_BYTES) for number in range(3))
        f.ret_if((low < -_FARTHEST_BYTES) | (high > _FARTHEST_BYTES))
        f.ret_if(f.call("is_permitted", "check", start + low, start + high, start | ored) == 0)
        f.call("make_footprint", "context", "check", "state", "mask", first, span)
    f.follow("state", "found", "footprint")
    f.follow("check", "space", "space")
    low, high, ored = (f.get("footprint", name) for name in ("low", "high", "ored"))
    f.ret_if(f.call("is_permitted", "check", start + low, start + high, start | ored) == 0)
    shift = f.get("space", "unit_shift")
    base = Value(b, b.ashr((start - f.get("space", "origin")).ir, shift.ir), S64)
    with f.when(needs_written & (kind != _STORE)):
        f.ret_if(f.call("has_unwritten", "footprint", "space", base) != 0)
    with f.when(may_race):
        # Several lanes that store to one unit may store different values.
        f.ret_if((kind == _STORE) & (f.get("footprint", "is_contended") != 0))
        f.ret_if((kind == _ATOMIC) & f.is_null(f.pointer("space", "updates")))
        time = f.item(f.pointer("state", "time"), 0, _NUMBER_BYTES)
        f.ret_if(time + 1 >= f.get("state", "times"))
        arguments = ("check", "state", "footprint", "space", base)
        f.ret_if(f.call("may_race", *arguments) != 0)
        f.call("note_access", *arguments)
    with f.when(needs_written & (kind != _LOAD)):
        unwritten = f.pointer("space", "unwritten")
        f.of["base"] = base.ir
        with _over_units(f) as (unit, _):
            b.store(I8(0), f.at(unwritten, unit, 1))
    f.ret(0)


def _add_check_barrier(module: ir.Module) -> None:
    """`check_barrier(context*, check*, state*)`: whether threads are missing at a barrier."""
    f = _Function(module, "check_barrier", "context", "check", "state")
    f.ret_if(f.get("context", "lanes_running") != f.get("state", "lanes"))
    time = f.item(f.pointer("state", "time"), 0, _NUMBER_BYTES)
    f.put("state", "least_clock", time)
    for array, number in (("clocks", time), ("places", f.get("check", "index"))):
        place, numbers = f.pointer("state", array), splat(f.b, number.ir)
        with f.over(f.get("context", "warps")) as warp:
            f.b.store(numbers.ir, f.at(place, warp * WARP_SIZE, _NUMBER_BYTES), align=_NUMBER_BYTES)
    f.ret(0)


def _add_check_collective(module: ir.Module) -> None:
    """`check_collective(context*, check*, state*, mask*)`: whether a warp lacks lanes.

    Also of a barrier of warps.
    """
    f = _Function(module, "check_collective", "context", "check", "state", "mask")
    b = f.b
    with f.over_warps() as (_, word), b.if_then(b.icmp_unsigned("!=", word, _EVERY_LANE)):
        f.ret(1)
    index, orders = splat(b, f.get("check", "index").ir), f.get("check", "kind") == _WARP_BARRIER
    time = f.item(f.pointer("state", "time"), 0, _NUMBER_BYTES)
    with f.over_warps() as (warp, _):
        place = f.at(f.pointer("state", "places"), warp * WARP_SIZE, _NUMBER_BYTES)
        b.store(index.ir, place, align=_NUMBER_BYTES)
        with f.when(orders):
            b.store(time.ir, f.at(f.pointer("state", "group_clocks"), warp, _NUMBER_BYTES))
    f.ret(0)


def _add_must_report(module: ir.Module) -> None:
    f = _Function(module, "must_report", "context", "check", "mask")
    kind = f.get("check", "kind")
    f.follow("check", "state", "state")
    f.put("state", "found", ir.Constant(POINTER, None))
    f.ret_if((f.get("check", "uses_marks") != 0) & (f.get("state", "has_marks") != 0))
    with f.when(kind == _OTHER):
        f.ret(0)
    with f.when(kind == _BARRIER):
        f.ret(f.call("check_barrier", "context", "check", "state"))
    with f.when((kind == _COLLECTIVE) | (kind == _WARP_BARRIER)):
        f.ret(f.call("check_collective", "context", "check", "state", "mask"))
    f.ret(f.call("check_access", "context", "check", "state", "mask"))


CHECK_FUNCTIONS = ("must_report",)
"""The functions that other code calls."""


@compiled
def must_report(context: Context, check: Pointer[Any], mask: Pointer[Word]) -> int:
    """Whether the tools must look at an instruction that lanes are about to execute."""
    raise NotImplementedError("its code is written by `add_check_functions`")
