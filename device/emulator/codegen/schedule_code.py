"""Writes the machine code that schedules the groups of lanes of a chunk of blocks.

Lanes that diverge at a branch form groups, one per *slot*: a place in the program where a stretch
or an instruction of control begins. The group with the lowest program counter runs first. So lanes
reconverge where their paths join, because compilers mostly lay out code so that the join lies
behind both arms of a branch; where they do not, `program.code_layout` provides the order of the
basic blocks. A group runs until it reaches a slot where another one waits, and joins it there.

A group that reaches a barrier is parked. When no group can run, all barriers open.

The machine code decides what nearly all kernels do. It returns to Python where an instruction is
rare, where lanes spin or wait for each other, and now and then, so that a time limit is kept.
"""

from __future__ import annotations

from enum import IntEnum

from llvmlite import ir

from memlab.device.emulator.codegen.flow import counted_loop
from memlab.device.emulator.codegen.layout import (
    BOUNDS,
    CONDITIONS,
    CONTEXT,
    GROUPS,
    RANGE,
    STRETCH,
    STRETCH_KINDS,
    element_pointer,
    field_pointer,
    load_field,
    store_field,
)
from memlab.device.emulator.codegen.stretch_code import POINTER, STRETCH_TYPE
from memlab.device.emulator.isa.values import intrinsic
from memlab.device.properties import WARP_SIZE

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WORD_BYTES, _SLOT_BYTES = 4, 8
_NO_SLOT = -1
_REGISTER_BYTES = (1, 2, 4, 8)
_STRETCH_COST = 8  # what a stretch costs besides its warps, in warps


class Status(IntEnum):
    """Why the machine code returns."""

    RUNNING = 0
    """There is more to do."""
    DONE = 1
    """No lane is left."""
    FAULT = 2
    """An access was at fault."""
    WAITING = 3
    """No group can run, and only Python knows which goes on."""
    AT_PYTHON = 4
    """The group is at an instruction that Python executes."""
    INCOMPLETE = 5
    """The group is at a collective, and lanes of its warps are elsewhere."""
    POLLS = 6
    """Lanes, those of `taken`, branch back to the head of a loop that polls memory."""
    PAUSED = 7
    """`work_left` is used up."""


class _Schedule:
    """A function of the schedule under construction."""

    def __init__(self, module: ir.Module, name: str, *more: ir.Type) -> None:
        kind = ir.FunctionType(_I64, [POINTER, *more])
        self.function = ir.Function(module, kind, name)
        self.b = ir.IRBuilder(self.function.append_basic_block())
        self.context, *self.arguments = self.function.args

    def get(self, name: str) -> ir.Value:
        """A field of the context."""
        return load_field(self.b, self.context, CONTEXT, name)

    def put(self, name: str, value: ir.Value | int) -> None:
        """Set a field of the context."""
        number = _I64(value) if isinstance(value, int) else value
        store_field(self.b, number, self.context, CONTEXT, name)

    def add(self, name: str, value: ir.Value | int) -> ir.Value:
        """Add to a field of the context; gives the new value."""
        number = _I64(value) if isinstance(value, int) else value
        total = self.b.add(self.get(name), number)
        self.put(name, total)
        return total

    def groups(self, name: str) -> ir.Value:
        """A pointer to the groups that are `ready` or `parked`."""
        return field_pointer(self.b, self.context, CONTEXT, name)

    def stretch(self, slot: ir.Value) -> ir.Value:
        """A pointer to the record of a slot."""
        return element_pointer(self.b, self.get("stretches"), slot, STRETCH.itemsize)

    def word(self, words: ir.Value, warp: ir.Value) -> ir.Value:
        """A pointer to the lanes of a warp."""
        return element_pointer(self.b, words, warp, _WORD_BYTES)

    def is_zero(self, value: ir.Value) -> ir.Value:
        return self.b.icmp_signed("==", value, value.type(0))

    def not_zero(self, value: ir.Value) -> ir.Value:
        return self.b.icmp_signed("!=", value, value.type(0))

    def variable(self, start: int = 0) -> ir.Value:
        """A number in memory, for loops."""
        place = self.b.alloca(_I64)
        self.b.store(_I64(start), place)
        return place

    def increase(self, variable: ir.Value, by: ir.Value) -> None:
        self.b.store(self.b.add(self.b.load(variable, typ=_I64), by), variable)

    def count_bits(self, word: ir.Value) -> ir.Value:
        bits = self.b.call(intrinsic(self.b, "llvm.ctpop", _I32, [_I32]), [word])
        return self.b.zext(bits, _I64)

    def call(self, name: str, *arguments: ir.Value | int) -> ir.Value:
        """Call another function of the schedule."""
        values = [_I64(a) if isinstance(a, int) else a for a in arguments]
        return self.b.call(self.function.module.globals[name], [self.context, *values])

    def ret(self, value: ir.Value | int) -> None:
        self.b.ret(_I64(int(value)) if isinstance(value, int) else value)


def add_schedule_functions(module: ir.Module) -> None:
    """Add the functions of the schedule to a module.

    They take the context, and return a `Status`:

    - `enqueue(slot, mask)` adds lanes to the ready groups.
    - `dequeue()` chooses the ready group that runs next.
    - `proceed()` lets the running group go on behind its slot.
    - `jump(slot)` sends the running group to another slot.
    - `split(target, next)` sends the lanes in `taken` to one slot and the others to another.
    - `next_group()` runs another group, after the running one has exited or waits.
    - `park(slot)` holds the running group at a barrier; it goes on at a slot.
    - `leave()` ends the running group.
    - `evaluate_guard()` sets `taken` at a guarded instruction; returns how many lanes these are.
    - `count_range(start, stop)` counts instructions that the running group executes.
    - `conditions_hold()`: whether the instruction at the running group's slot needs no look.
    - `advance()` executes the stretch at the running group's slot.
    - `transfer()` executes what lies there besides code, and decides where the group goes on.
    - `run()` does both until it must return to Python.
    """
    _write_enqueue(module)
    _write_dequeue(module)
    _write_proceed(module)
    _write_jump(module)
    _write_split(module)
    _write_next_group(module)
    _write_park(module)
    _write_leave(module)
    _write_evaluate_guard(module)
    _write_count_range(module)
    _write_execute(module)
    _write_advance(module)
    _write_conditions_hold(module)
    _write_transfer(module)
    _write_run(module)


def _write_enqueue(module: ir.Module) -> None:
    """`enqueue(slot, mask)`; a mask without lanes adds a group without lanes."""
    for name in ("ready", "parked"):
        f = _Schedule(module, "enqueue" if name == "ready" else "enqueue_parked", _I64, POINTER)
        b, (slot, mask), groups = f.b, f.arguments, f.groups(name)
        warps = f.get("warps")
        row = b.mul(slot, warps)
        words = f.word(load_field(b, groups, GROUPS, "masks"), row)
        present = element_pointer(b, load_field(b, groups, GROUPS, "present"), slot, _SLOT_BYTES)
        with b.if_else(f.not_zero(b.load(present, typ=_I64))) as (waits, new):
            with waits, counted_loop(b, warps) as warp:
                place = f.word(words, warp)
                more = b.load(f.word(mask, warp), typ=_I32)
                b.store(b.or_(b.load(place, typ=_I32), more), place)
            with new:
                b.store(_I64(1), present)
                count = load_field(b, groups, GROUPS, "count")
                slots = load_field(b, groups, GROUPS, "slots")
                b.store(slot, element_pointer(b, slots, count, _SLOT_BYTES))
                store_field(b, b.add(count, _I64(1)), groups, GROUPS, "count")
                with counted_loop(b, warps) as warp:
                    b.store(b.load(f.word(mask, warp), typ=_I32), f.word(words, warp))
        f.ret(0)


def _write_dequeue(module: ir.Module) -> None:
    """`dequeue()`; there must be a ready group."""
    f = _Schedule(module, "dequeue")
    b, groups = f.b, f.groups("ready")
    slots = load_field(b, groups, GROUPS, "slots")
    place, best = f.variable(), f.variable()

    def find_first() -> None:
        """Find the group that comes first in the order: its place in the list, and its slot."""
        b.store(_I64(0), place)
        b.store(_I64(_NO_SLOT), best)
        least = f.variable()
        b.store(_I64(2**62), least)
        with counted_loop(b, load_field(b, groups, GROUPS, "count")) as number:
            slot = b.load(element_pointer(b, slots, number, _SLOT_BYTES), typ=_I64)
            order = load_field(b, f.stretch(slot), STRETCH, "order")
            with b.if_then(b.icmp_signed("<", order, b.load(least, typ=_I64))):
                b.store(order, least)
                b.store(number, place)
                b.store(slot, best)

    find_first()
    slot = b.load(best, typ=_I64)
    f.put("slot", slot)
    last = b.sub(load_field(b, groups, GROUPS, "count"), _I64(1))
    store_field(b, last, groups, GROUPS, "count")
    moved = b.load(element_pointer(b, slots, last, _SLOT_BYTES), typ=_I64)
    b.store(moved, element_pointer(b, slots, b.load(place, typ=_I64), _SLOT_BYTES))
    present = element_pointer(b, load_field(b, groups, GROUPS, "present"), slot, _SLOT_BYTES)
    b.store(_I64(0), present)
    warps = f.get("warps")
    words = f.word(load_field(b, groups, GROUPS, "masks"), b.mul(slot, warps))
    mask, lanes, running = f.get("mask"), f.variable(), f.variable()
    with counted_loop(b, warps) as warp:
        word = b.load(f.word(words, warp), typ=_I32)
        b.store(word, f.word(mask, warp))
        f.increase(lanes, f.count_bits(word))
        f.increase(running, b.zext(f.not_zero(word), _I64))
    f.put("lanes_running", b.load(lanes, typ=_I64))
    f.put("warps_running", b.load(running, typ=_I64))
    find_first()
    f.put("limit", b.load(best, typ=_I64))
    blocks = f.get("order_count")
    waits = b.icmp_signed(">=", b.load(best, typ=_I64), _I64(0))
    with b.if_then(b.and_(waits, f.not_zero(blocks))):
        _limit_by_order(f, slot, b.load(best, typ=_I64), blocks)
    f.put("path_continues", 0)
    f.ret(0)


def _limit_by_order(f: _Schedule, running: ir.Value, waiting: ir.Value, blocks: ir.Value) -> None:
    """Set the limit where basic blocks run in another order: as `BasicBlockOrder.limit`."""
    b = f.b
    order = load_field(b, f.stretch(waiting), STRETCH, "order")
    found = f.variable()
    with counted_loop(b, blocks) as number:
        end = b.load(element_pointer(b, f.get("order_starts"), number, _SLOT_BYTES), typ=_I64)
        behind = b.icmp_signed(">", end, running)
        with b.if_then(b.and_(behind, f.is_zero(b.load(found, typ=_I64)))):
            inside = b.and_(b.icmp_signed("<", running, waiting), b.icmp_signed("<", waiting, end))
            later = b.icmp_signed(">=", load_field(b, f.stretch(end), STRETCH, "order"), order)
            with b.if_then(b.or_(inside, later)):
                f.put("limit", b.select(inside, waiting, end))
                b.store(_I64(1), found)


def _write_proceed(module: ir.Module) -> None:
    f = _Schedule(module, "proceed")
    following = load_field(f.b, f.stretch(f.get("slot")), STRETCH, "next")
    f.put("slot", following)
    with f.b.if_then(f.b.icmp_signed("==", following, f.get("limit"))):
        f.call("enqueue", following, f.get("mask"))
        f.call("dequeue")
    f.ret(Status.RUNNING)


def _write_jump(module: ir.Module) -> None:
    f = _Schedule(module, "jump", _I64)
    (slot,) = f.arguments
    f.put("slot", slot)
    f.put("path_continues", 0)
    count = load_field(f.b, f.groups("ready"), GROUPS, "count")
    with f.b.if_then(f.not_zero(count)):
        f.call("enqueue", slot, f.get("mask"))
        f.call("dequeue")
    f.ret(Status.RUNNING)


def _write_split(module: ir.Module) -> None:
    f = _Schedule(module, "split", _I64, _I64)
    b, (target, following) = f.b, f.arguments
    mask, taken = f.get("mask"), f.get("taken")
    with counted_loop(b, f.get("warps")) as warp:
        place = f.word(mask, warp)
        others = b.and_(b.load(place, typ=_I32), b.not_(b.load(f.word(taken, warp), typ=_I32)))
        b.store(others, place)
    f.call("enqueue", target, taken)
    f.call("enqueue", following, mask)
    f.call("dequeue")
    f.ret(Status.RUNNING)


def _write_next_group(module: ir.Module) -> None:
    f = _Schedule(module, "next_group")
    b, ready, parked = f.b, f.groups("ready"), f.groups("parked")
    with b.if_then(f.is_zero(load_field(b, ready, GROUPS, "count"))):
        count = load_field(b, parked, GROUPS, "count")
        undecided = b.and_(f.not_zero(count), f.is_zero(f.get("opens_barriers")))
        with b.if_then(b.or_(undecided, f.not_zero(f.get("others_wait")))):
            f.ret(Status.WAITING)
        with b.if_then(f.is_zero(count)):
            f.ret(Status.DONE)
        masks, warps = load_field(b, parked, GROUPS, "masks"), f.get("warps")
        with counted_loop(b, count) as number:
            slots = load_field(b, parked, GROUPS, "slots")
            slot = b.load(element_pointer(b, slots, number, _SLOT_BYTES), typ=_I64)
            present = load_field(b, parked, GROUPS, "present")
            b.store(_I64(0), element_pointer(b, present, slot, _SLOT_BYTES))
            f.call("enqueue", slot, f.word(masks, b.mul(slot, warps)))
        store_field(b, _I64(0), parked, GROUPS, "count")
    f.call("dequeue")
    f.ret(Status.RUNNING)


def _write_park(module: ir.Module) -> None:
    f = _Schedule(module, "park", _I64)
    b, (slot,) = f.b, f.arguments
    waiting = b.add(
        load_field(b, f.groups("ready"), GROUPS, "count"),
        load_field(b, f.groups("parked"), GROUPS, "count"),
    )
    alone = b.and_(f.is_zero(waiting), f.not_zero(f.get("opens_barriers")))
    together = b.icmp_signed("==", f.get("lanes_running"), f.get("lanes_live"))
    with b.if_then(b.and_(alone, together)):
        f.put("slot", slot)
        f.put("path_continues", 0)
        f.ret(Status.RUNNING)
    f.call("enqueue_parked", slot, f.get("mask"))
    f.ret(f.call("next_group"))


def _write_leave(module: ir.Module) -> None:
    f = _Schedule(module, "leave")
    b, live, mask = f.b, f.get("live"), f.get("mask")
    with counted_loop(b, f.get("warps")) as warp:
        place = f.word(live, warp)
        left = b.and_(b.load(place, typ=_I32), b.not_(b.load(f.word(mask, warp), typ=_I32)))
        b.store(left, place)
    f.put("lanes_live", b.sub(f.get("lanes_live"), f.get("lanes_running")))
    f.ret(f.call("next_group"))


def _write_evaluate_guard(module: ir.Module) -> None:
    f = _Schedule(module, "evaluate_guard")
    b, record = f.b, f.stretch(f.get("slot"))
    guard = load_field(b, record, STRETCH, "guard")
    flip = b.trunc(b.sub(_I64(0), load_field(b, record, STRETCH, "negated")), _I32)
    frames, size = f.get("frames"), f.get("frame_bytes")
    mask, taken, count = f.get("mask"), f.get("taken"), f.variable()
    with counted_loop(b, f.get("warps")) as warp:
        word = b.load(f.word(mask, warp), typ=_I32)
        kept = f.word(taken, warp)
        b.store(word, kept)
        with b.if_then(b.icmp_signed(">=", guard, _I64(0))):
            place = b.add(b.mul(warp, size), guard)
            holds = b.load(element_pointer(b, frames, place, 1), typ=_I32)
            b.store(b.and_(word, b.xor(holds, flip)), kept)
        f.increase(count, f.count_bits(b.load(kept, typ=_I32)))
    f.ret(b.load(count, typ=_I64))


def _write_count_range(module: ir.Module) -> None:
    f = _Schedule(module, "count_range", _I64, _I64)
    b, (start, stop) = f.b, f.arguments
    for name, amount in (("lanes_change", "lanes_running"), ("warps_change", "warps_running")):
        changes, more = f.get(name), f.get(amount)
        for index, by in ((start, more), (stop, b.neg(more))):
            place = element_pointer(b, changes, index, 8)
            b.store(b.add(b.load(place, typ=_I64), by), place)
    with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(f.get("path"), _I64), _I64(0))):
        _extend_path(f, start, stop)
    f.ret(Status.RUNNING)


def _extend_path(f: _Schedule, start: ir.Value, stop: ir.Value) -> None:
    """Record instructions in the path of the first block's warps."""
    b, bits, mask, lengths = f.b, f.variable(), f.get("mask"), f.get("path_lengths")
    length = b.sub(stop, start)
    with counted_loop(b, f.get("warps_per_block")) as warp:
        runs = b.zext(f.not_zero(b.load(f.word(mask, warp), typ=_I32)), _I64)
        b.store(b.or_(b.load(bits, typ=_I64), b.shl(runs, warp)), bits)
        place = element_pointer(b, lengths, warp, 8)
        b.store(b.add(b.load(place, typ=_I64), b.mul(runs, length)), place)
    warps = b.load(bits, typ=_I64)
    with b.if_then(f.is_zero(warps)):
        f.ret(Status.RUNNING)
    path, count = f.get("path"), f.get("path_count")
    with b.if_then(f.not_zero(f.get("path_continues"))):
        last = element_pointer(b, path, b.sub(count, _I64(1)), RANGE.itemsize)
        store_field(b, stop, last, RANGE, "stop")
        f.ret(Status.RUNNING)
    with b.if_then(b.icmp_signed("<", count, f.get("path_limit"))):
        entry = element_pointer(b, path, count, RANGE.itemsize)
        for name, value in (("start", start), ("stop", stop), ("warps", warps)):
            store_field(b, value, entry, RANGE, name)
        f.put("path_count", b.add(count, _I64(1)))
        f.put("path_continues", 1)


def _write_advance(module: ir.Module) -> None:
    f = _Schedule(module, "advance")
    b = f.b
    record = f.stretch(f.get("slot"))
    code, kind = (load_field(b, record, STRETCH, name) for name in ("code", "kind"))
    mask, warps = f.get("mask"), f.get("warps")
    start, stop = (load_field(b, record, STRETCH, name) for name in ("start", "stop"))
    with b.if_then(b.icmp_signed("==", kind, _kind("code"))):
        waits = load_field(b, record, STRETCH, "waits")
        with b.if_then(b.and_(f.not_zero(waits), f.is_zero(f.get("has_arrived")))):
            live, missing = f.get("live"), f.variable()
            with counted_loop(b, warps) as warp:
                word = b.load(f.word(mask, warp), typ=_I32)
                away = b.and_(b.load(f.word(live, warp), typ=_I32), b.not_(word))
                lacks = b.and_(f.not_zero(word), f.not_zero(away))
                b.store(b.or_(b.load(missing, typ=_I64), b.zext(lacks, _I64)), missing)
            with b.if_then(f.not_zero(b.load(missing, typ=_I64))):
                f.ret(Status.INCOMPLETE)
        f.put("has_arrived", 0)
        check = load_field(b, record, STRETCH, "check")
        with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(check, _I64), _I64(0))):
            guarded = f.not_zero(b.add(load_field(b, record, STRETCH, "guard"), _I64(1)))
            with b.if_then(guarded):
                f.call("evaluate_guard")
            executing = b.select(guarded, f.get("taken"), mask)
            f.put("asks_python", f.call("must_report", check, executing))
            with b.if_then(f.not_zero(f.get("asks_python"))):
                f.ret(f.call("count_range", start, stop))
        f.add("run", 1)
        faults = f.call("execute", code, mask)
        f.add("clock", load_field(b, record, STRETCH, "clock"))
        with b.if_then(f.not_zero(faults)):
            f.ret(Status.FAULT)
    with b.if_then(b.icmp_signed("!=", kind, _kind("end"))):
        one = b.select(b.icmp_signed("==", start, stop), b.add(start, _I64(1)), stop)
        f.call("count_range", start, one)
    f.ret(Status.RUNNING)


def _write_execute(module: ir.Module) -> None:
    """`execute(code, mask)`: call a stretch for each warp with lanes; returns its faults."""
    f = _Schedule(module, "execute", POINTER, POINTER)
    b, (code, mask) = f.b, f.arguments
    frames, size, faults = f.get("frames"), f.get("frame_bytes"), f.variable()
    with counted_loop(b, f.get("warps")) as warp:
        word = b.load(f.word(mask, warp), typ=_I32)
        with b.if_then(f.not_zero(word)):
            frame = element_pointer(b, frames, b.mul(warp, size), 1)
            result = _call_pointer(b, code, [f.context, frame, word, warp])
            b.store(b.or_(b.load(faults, typ=_I64), b.zext(result, _I64)), faults)
    f.ret(b.load(faults, typ=_I64))


def _call_pointer(b: ir.IRBuilder, code: ir.Value, arguments: list[ir.Value]) -> ir.Value:
    """Call the stretch that a pointer points to."""
    typed = b.bitcast(code, ir.PointerType())
    return b.call(_FunctionPointer(typed), arguments)


class _FunctionPointer:
    """A pointer with the type of the function that it points to, as `IRBuilder.call` wants it."""

    def __init__(self, value: ir.Value) -> None:
        self._value = value
        self.function_type = self.ftype = STRETCH_TYPE
        self.type = STRETCH_TYPE.as_pointer()

    def get_reference(self) -> str:
        return str(self._value.get_reference())


def _kind(name: str) -> ir.Constant:
    return _I64(STRETCH_KINDS.index(name))


def _write_conditions_hold(module: ir.Module) -> None:
    f = _Schedule(module, "conditions_hold")
    b = f.b
    conditions = load_field(b, f.stretch(f.get("slot")), STRETCH, "conditions")
    with b.if_then(b.icmp_unsigned("==", b.ptrtoint(conditions, _I64), _I64(0))):
        f.ret(0)
    f.call("evaluate_guard")
    taken, lanes = f.get("taken"), load_field(b, conditions, CONDITIONS, "lanes")
    failing = b.alloca(_I32)
    b.store(_I32(0), failing)

    def fail(some: ir.Value) -> None:
        """Note that some of the lanes of a warp fail."""
        b.store(b.or_(b.load(failing, typ=_I32), some), failing)

    with counted_loop(b, f.get("warps")) as warp:
        others = b.not_(b.load(f.word(lanes, warp), typ=_I32))
        fail(b.and_(b.load(f.word(taken, warp), typ=_I32), others))
    with counted_loop(b, load_field(b, conditions, CONDITIONS, "count")) as number:
        first = load_field(b, conditions, CONDITIONS, "bounds")
        bounds = element_pointer(b, first, number, BOUNDS.itemsize)
        names = ("register", "low", "span", "bytes")
        register, low, span, width = (load_field(b, bounds, BOUNDS, name) for name in names)
        with counted_loop(b, f.get("warps")) as warp:
            word = b.load(f.word(taken, warp), typ=_I32)
            place = b.add(b.mul(warp, f.get("frame_bytes")), register)
            values = element_pointer(b, f.get("frames"), place, 1)
            with b.if_then(f.is_zero(width)):
                expected = b.load(f.word(low, warp), typ=_I32)
                fail(b.and_(b.xor(b.load(values, typ=_I32), expected), word))
            for size in _REGISTER_BYTES:
                with b.if_then(b.icmp_signed("==", width, _I64(size))):
                    kind = ir.VectorType(ir.IntType(8 * size), WARP_SIZE)
                    value, least, most = (
                        b.load(array, typ=kind, align=size)
                        for array in (
                            values,
                            element_pointer(b, low, warp, WARP_SIZE * size),
                            element_pointer(b, span, warp, WARP_SIZE * size),
                        )
                    )
                    beyond = b.icmp_unsigned(">", b.sub(value, least), most)
                    fail(b.and_(b.bitcast(beyond, _I32), word))
    f.ret(b.zext(f.is_zero(b.load(failing, typ=_I32)), _I64))


def _write_transfer(module: ir.Module) -> None:
    f = _Schedule(module, "transfer")
    b = f.b
    slot = f.get("slot")
    record = f.stretch(slot)
    mask = f.get("mask")
    following = load_field(b, record, STRETCH, "next")
    target = load_field(b, record, STRETCH, "target")
    kind = load_field(b, record, STRETCH, "kind")
    with b.if_then(f.not_zero(f.get("asks_python"))):
        f.put("asks_python", 0)
        f.ret(Status.AT_PYTHON)
    with b.if_then(b.icmp_signed("==", kind, _kind("code"))):
        f.ret(f.call("proceed"))
    with b.if_then(b.icmp_signed("==", kind, _kind("end"))):
        f.ret(f.call("leave"))
    with b.if_then(b.icmp_signed("==", kind, _kind("python"))):
        with b.if_then(f.is_zero(f.call("conditions_hold"))):
            f.ret(Status.AT_PYTHON)
        faults = f.call("execute", load_field(b, record, STRETCH, "code"), f.get("mask"))
        f.add("clock", load_field(b, record, STRETCH, "clock"))
        with b.if_then(f.not_zero(faults)):
            f.ret(Status.FAULT)
        f.ret(f.call("proceed"))
    guarded = b.icmp_signed(">=", load_field(b, record, STRETCH, "guard"), _I64(0))
    is_branch = b.icmp_signed("==", kind, _kind("branch"))
    polls = f.not_zero(load_field(b, record, STRETCH, "polls"))
    with b.if_then(b.or_(guarded, polls)):
        count = f.call("evaluate_guard")
        with b.if_then(f.is_zero(count)):
            f.ret(f.call("jump", following))
        with b.if_then(polls):
            f.ret(Status.POLLS)
        with b.if_then(b.icmp_signed("<", count, f.get("lanes_running"))):
            with b.if_then(is_branch):
                f.ret(f.call("split", target, following))
            # Lanes that exit or wait lie lowest: they go on here, and the others behind.
            f.call("split", slot, following)
    with b.if_then(is_branch):
        f.ret(f.call("jump", target))
    with b.if_then(b.icmp_signed("==", kind, _kind("exit"))):
        f.ret(f.call("leave"))
    check = load_field(b, record, STRETCH, "check")
    is_checked = b.icmp_unsigned("!=", b.ptrtoint(check, _I64), _I64(0))
    with b.if_then(is_checked), b.if_then(f.is_zero(f.call("must_report", check, mask))):
        f.ret(f.call("jump", following))
    f.ret(f.call("park", following))


def _write_run(module: ir.Module) -> None:
    f = _Schedule(module, "run")
    b = f.b
    head = f.function.append_basic_block("next")
    b.branch(head)
    b.position_at_end(head)
    cost = b.add(f.get("warps_running"), _I64(_STRETCH_COST))
    left = f.add("work_left", b.neg(cost))
    with b.if_then(b.icmp_signed("<", left, _I64(0))):
        f.ret(Status.PAUSED)
    for step in ("advance", "transfer"):
        status = f.call(step)
        with b.if_then(f.not_zero(status)):
            f.ret(status)
    b.branch(head)


SCHEDULE_FUNCTIONS = (
    "enqueue",
    "enqueue_parked",
    "dequeue",
    "proceed",
    "jump",
    "split",
    "next_group",
    "park",
    "leave",
    "evaluate_guard",
    "count_range",
    "execute",
    "advance",
    "conditions_hold",
    "transfer",
    "run",
)
"""The functions by name."""
