"""Writes the machine code of a stretch: one function that executes it for one warp.

The registers that a stretch uses are LLVM values while it runs. They are read from the warp's frame
when they are first needed. At the end, those that are needed later are written back, in the lanes
that execute the stretch. In between, the other lanes may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from memlab.device.emulator.codegen.bulk.box_reductions import reduce_box
from memlab.device.emulator.codegen.bulk.loops import bit_loop, count_loop
from memlab.device.emulator.codegen.bulk.moves import bulk_function
from memlab.device.emulator.codegen.frame import FrameLayout
from memlab.device.emulator.codegen.layout import ADDRESSES, Addresses, Context
from memlab.device.emulator.codegen.memory_code import MEMORY
from memlab.device.emulator.codegen.records import Pointer, Reference, building
from memlab.device.emulator.codegen.stretches import Stretch
from memlab.device.emulator.isa.address_space import map_to_rank
from memlab.device.emulator.isa.asynchronous.bulk_copies import (
    is_bulk_access,
    is_multicast,
)
from memlab.device.emulator.isa.asynchronous.tensor_copies import (
    COUNTED_ALONE,
    demands_of,
    is_tensor_access,
    takes_pixels,
)
from memlab.device.emulator.isa.rows import Row
from memlab.device.emulator.isa.slow_paths import slow_operands
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.isa.textures import CHANNELS
from memlab.device.emulator.isa.values import (
    PRED,
    S64,
    U32,
    U64,
    ElementType,
    Value,
    broadcast,
    element_type,
    internal_function,
    intrinsic,
    shaped,
    shared_stack_array,
    where,
)
from memlab.device.emulator.program.lowering import OPERAND_EXCEPTIONS, operand_error
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    is_fetch,
    reach_of,
)
from memlab.device.emulator.ptx.parser import (
    DestinationPair,
    Immediate,
    Negated,
    Operand,
    PtxError,
    Register,
    Symbol,
    Vector,
)
from memlab.device.properties import WARP_SIZE

BYTE, I1, I32, I64 = (ir.IntType(bits) for bits in (8, 1, 32, 64))
POINTER = ir.PointerType()
STRETCH_TYPE = ir.FunctionType(I32, [POINTER, POINTER, I32, I64, I64])
"""`context, frame, mask, warp, number`: executes the stretch with a number among the function's;
returns 0, or 1 where an access is at fault."""

_RUNTIME_TYPES = {function.name: function.type for function in MEMORY}
_WIDEST_ACCESS_BYTES = 32  # that a lane moves at once
_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class ProgramCode:
    """What the code of all stretches of a program has in common.

    Attributes:
        program: The program.
        layout: Where registers lie in a frame.
        sites: The number of each memory instruction among all, by its index.
        globals: The number of each variable in global memory among all, by its name.
    """

    program: Program
    layout: FrameLayout
    sites: Mapping[int, int]
    globals: Mapping[str, int]


def write_stretches(
    module: ir.Module,
    name: str,
    code: ProgramCode,
    stretches: Sequence[Stretch],
    source: Sequence[str] = (),
) -> None:
    """Add a function of some stretches to a module; `source` has the CUDA source's lines.

    Raises:
        PtxError: The operands of an instruction do not suit its opcode.
    """
    function = ir.Function(module, STRETCH_TYPE, name)
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    entry = function.append_basic_block("entry")
    starts, fields = [], dict[str, Pointer[Any]]()
    for stretch in stretches:
        start = function.append_basic_block(f"stretch{stretch.start}")
        writer = _StretchWriter(start, code, fields)
        with building(writer.builder):
            for index in range(stretch.start, stretch.stop):
                step = code.program.steps[index]
                try:
                    writer.write(index, step)
                except OPERAND_EXCEPTIONS as error:
                    raise operand_error(step.instruction, source) from error
            writer.finish(stretch.live)
        starts.append(start)
    chosen = ir.IRBuilder(entry).switch(function.args[4], starts[0])
    for number, start in enumerate(starts[1:], 1):
        chosen.add_case(number, start)


@dataclass(frozen=True)
class _Guard:
    """The lanes that execute an instruction with a guard.

    Attributes:
        holds: Where the guard holds; a lane that does not execute the stretch may hold anything.
        word: The bits of the lanes that execute the instruction, as `i32`.
        lanes_off: How many lanes execute the stretch but not the instruction, as `i64`.
    """

    holds: Value
    word: ir.Value
    lanes_off: ir.Value


@dataclass(frozen=True)
class _Access:
    """A load, a store or an atomic operation, with what it gets.

    Attributes:
        step: The instruction.
        addresses: Those of the lanes without its offset, `<32 x i64>`.
        site: Its record.
        sources: The types of the values that it takes from registers.
        moved: The type of an element in memory.
    """

    step: DecodedInstruction
    addresses: ir.Value
    site: ir.Value
    sources: Sequence[ElementType]
    moved: ElementType


class _StretchWriter:
    """A stretch under construction.

    Attributes:
        builder: Where its code is appended.
    """

    def __init__(self, start: ir.Block, code: ProgramCode, fields: dict[str, Pointer[Any]]) -> None:
        self._code, self._function = code, start.function
        self._context, self._frame, self._mask, self._warp, _ = self._function.args
        b = self._b = self.builder = ir.IRBuilder(start)
        self._active = Value(b, b.bitcast(self._mask, ir.VectorType(I1, WARP_SIZE)), PRED)
        self._registers: dict[str, ir.Value] = {}
        self._fields = fields
        self._guards: dict[tuple[str, bool], _Guard] = {}  # until their register is written
        self._written: set[str] = set()
        self._resolved: dict[tuple[str, str, int], ir.Value] = {}
        self._records = 0
        self._faulty: ir.Block | None = None

    # --- Instructions --------------------------------------------------------------------------

    def write(self, index: int, step: DecodedInstruction) -> None:
        """Append one instruction."""
        guard = self._guard(step)
        if guard is not None:
            self._count_switched_off(index, guard)
        match step.row.kind:
            case "lanes" | "warp":
                self._compute(index, step, guard)
            case "load" if is_fetch(step.row):
                self._fetch(index, step, guard)
            case "load" | "store" | "reduce" if is_bulk_access(step.row):
                self._copy_bulk(index, step, guard)
            case "atomic" if is_multicast(step.row):
                self._complete_in_ranks(index, step, guard)
            case "load" | "store" | "atomic" | "reduce":
                self._access(index, step, guard)
            case "nothing":
                pass
            case kind:
                raise AssertionError(f"{kind} is no part of a stretch")

    def finish(self, live: frozenset[str]) -> None:
        """Write the registers back that are needed later, and return."""
        b = self._b
        for name in sorted(self._written & live):
            place, value = self._place(name), self._registers[name]
            if self._code.layout.bits[name] == 1:
                word = b.bitcast(value, I32)
                before = b.load(place, typ=I32)
                kept = b.and_(before, b.not_(self._mask))
                b.store(b.or_(kept, b.and_(word, self._mask)), place)
            else:
                kinds = [value.type, POINTER, I32, self._active.ir.type]
                suffix = f"v{WARP_SIZE}i{self._code.layout.bits[name]}.p0"
                store = intrinsic(b, "llvm.masked.store", ir.VoidType(), kinds, suffix)
                b.call(store, [value, place, I32(_ALIGNMENT_BYTES), self._active.ir])
        b.ret(I32(0))
        if self._faulty is not None:
            ir.IRBuilder(self._faulty).ret(I32(1))

    def _compute(self, index: int, step: DecodedInstruction, guard: _Guard | None) -> None:
        """An instruction that computes registers from registers."""
        row, (to, *inputs) = step.row, step.instruction.operands
        sources = [self._source(o, t) for o, t in zip(inputs, row.of, strict=True)]
        if row.kind == "warp":
            active = self._active
            if guard is not None:
                active = Value(self._b, self._b.bitcast(guard.word, active.ir.type), PRED)
            sources.insert(0, active)
        is_slow = slow_operands(row.opcode)
        if is_slow is not None:
            self._count_slow(index, is_slow(*sources), guard)
        function = row.function
        assert function is not None
        if not sources:
            raise PtxError(f"{row.opcode} has no sources")
        results = function(*sources)
        if not isinstance(results, tuple):
            results = (results,)
        if isinstance(to, Vector) and len(row.to) == 1:
            self._unpack(to, results[0], row.opcode, guard)
            return
        for operand, ptx_type, result in zip(_items(to), row.to, results, strict=False):
            self._set(operand, result, ptx_type, guard)

    def _unpack(self, to: Vector, whole: Value, opcode: str, guard: _Guard | None) -> None:
        """Split a result over several registers, lowest bits first."""
        width, count = whole.type.bits, len(to.items)
        if width % (8 * count):
            raise PtxError(f"{opcode} cannot be split over {count} registers")
        part, raw = ElementType("u", width // count), whole.bits(whole.type.unsigned)
        for number, item in enumerate(to.items):
            value = (raw >> (number * part.bits) if number else raw).to(part)
            self._set(item, value, f"b{part.bits}", guard)

    # --- Memory --------------------------------------------------------------------------------

    def _access(self, index: int, step: DecodedInstruction, guard: _Guard | None) -> None:
        """A load, a store or an atomic operation."""
        b, row, operands = self._b, step.row, step.instruction.operands
        at = 1 if row.kind in ("load", "atomic") else 0
        moved = element_type((row.to if row.kind == "load" else row.of)[0])
        inputs = () if row.kind == "load" else operands[at + 1 :]
        outputs = operands[0] if at else None
        parts = [_elements(operand, row.opcode, row.vector) for operand in inputs]
        sources = [
            [self._source(operand, t) for operand in items]
            for items, t in zip(parts, row.of, strict=True)
        ]
        results = () if outputs is None else _elements(outputs, row.opcode, row.vector)
        for number, elements in enumerate(sources):
            for element, value in enumerate(elements):
                buffer = self._buffer(f"values{number}")
                place = _element(b, buffer, element, value.type.bits // 8)
                b.store(value.ir, place, align=_ALIGNMENT_BYTES if value.type.bits > 8 else 32)
        kinds = [elements[0].type for elements in sources]
        access = _Access(step, self._addresses(step), self._site(index), kinds, moved)
        buffer = self._buffer("values" if row.kind == "load" else "old")
        if row.request_lanes < WARP_SIZE:
            buffer = self._buffer("gathered")
            self._call_in_groups(access, guard, buffer, len(results) * moved.bits // 8)
        else:
            with self._lanes(guard) as lanes:
                self._call(access, lanes)
        for number, result in enumerate(results):
            place = _element(b, buffer, number, moved.bits // 8)
            loaded = b.load(
                place, typ=shaped(moved, WARP_SIZE), align=min(32 * moved.bits // 8, 64)
            )
            self._set(result, Value(b, loaded, moved), row.to[0], guard)

    def _fetch(self, index: int, step: DecodedInstruction, guard: _Guard | None) -> None:
        """The fetch of a texture."""
        b, row, (to, _, *inputs) = self._b, step.row, step.instruction.operands
        sources, results = self._buffer("fetched"), self._buffer("values")
        for number, (operand, ptx_type) in enumerate(zip(inputs, row.of, strict=True)):
            place = _element(b, sources, number, S64.bits // 8)
            b.store(self._source(operand, ptx_type).ir, place, align=_ALIGNMENT_BYTES)
        record, site = self._record("texels", self._addresses(step)), self._site(index)
        with self._lanes(guard) as lanes:
            self._call_runtime("fetch", record, site, lanes, self._warp, sources, results)
        for number, result in enumerate(_elements(to, row.opcode, CHANNELS)):
            place = _element(b, results, number, U32.bits // 8)
            loaded = b.load(place, typ=shaped(U32, WARP_SIZE), align=_ALIGNMENT_BYTES)
            self._set(result, Value(b, loaded, U32), row.to[0], guard)

    def _copy_bulk(self, index: int, step: DecodedInstruction, guard: _Guard | None) -> None:
        """One half of a bulk copy."""
        b, row, operands = self._b, step.row, step.instruction.operands
        reads = row.kind == "load"
        _, *inputs = operands[1:] if reads else operands
        names = [f"bulk{number}" for number in range(len(inputs))]
        buffers = [self._buffer(name) for name in names]
        values = [self._source(o, t) for o, t in zip(inputs, row.of, strict=True)]
        for buffer, value in zip(buffers, values, strict=True):
            b.store(value.ir, buffer, align=_ALIGNMENT_BYTES)
        place, site = self._addresses(step), self._site(index)
        record = self._record("bulk", place)
        result, lanes = self._buffer("places"), self._mask if guard is None else guard.word
        # A guard that holds for no lane leaves an empty mask, for which nothing happens.
        if reads:
            name, of_box = "read_bulk", [*buffers]
            arguments = [site, lanes, self._warp]
            if is_tensor_access(row):
                name, of_box = "read_box", _of_box(row, buffers)
                arguments.append(I64(demands_of(row)))
            arguments += [*of_box, result]
            self._call_runtime(name, record, *arguments)
            loaded = b.load(result, typ=shaped(U64, WARP_SIZE), align=_ALIGNMENT_BYTES)
            self._set(operands[0], Value(b, loaded, U64), row.to[0], guard)
        elif is_multicast(row):
            *buffers, _ = buffers
            receivers = self._field("receivers")
            with self._each_rank(lanes, values[-1], place) as (chosen, there):
                count = b.call(intrinsic(b, "llvm.ctpop", I32, [I32]), [chosen])
                receivers[index] += Value(b, count, U32).to(S64)
                Reference(record, Addresses).address = there
                for buffer, value in zip(buffers, values[:-1], strict=True):  # what the last took
                    b.store(value.ir, buffer, align=_ALIGNMENT_BYTES)
                self._write_bulk(row, record, site, chosen, buffers)
        else:
            self._write_bulk(row, record, site, lanes, buffers)

    def _write_bulk(
        self,
        row: Row,
        record: ir.Value,
        site: ir.Value,
        lanes: ir.Value,
        buffers: Sequence[ir.Value],
    ) -> None:
        """Write, or combine with what is there, what a bulk copy has read."""
        b, places = self._b, self._buffer("places")
        if is_tensor_access(row):
            moves = 0 if self._code.program.moves_boxes else COUNTED_ALONE
            demands, of_box = I64(demands_of(row) | moves), _of_box(row, buffers)
            self._call_runtime("write_box", record, site, lanes, self._warp, demands, *of_box)
            if row.kind == "reduce":
                reduce_box(b, row, self._context, record, site, lanes, self._warp, *of_box)
            return
        self._call_runtime("place_bulk", record, site, lanes, self._warp, *buffers, places)
        b.call(bulk_function(b, row), [lanes, places, *buffers])

    def _complete_in_ranks(
        self, index: int, step: DecodedInstruction, guard: _Guard | None
    ) -> None:
        """The completion of bytes at a barrier of each of several blocks."""
        b, row, (_, _, *inputs) = self._b, step.row, step.instruction.operands
        change, ranks = (self._source(o, t) for o, t in zip(inputs, row.of, strict=True))
        values, pointers, old = (self._buffer(name) for name in ("values0", "pointers", "old"))
        b.store(change.ir, values, align=_ALIGNMENT_BYTES)
        record, site = self._record("ranks"), self._site(index)
        lanes = self._mask if guard is None else guard.word
        place = self._addresses(step)
        with self._each_rank(lanes, ranks, place) as (chosen, there):
            Reference(record, Addresses).address = there
            b.call(self._runtime("resolve"), [self._context, record, site, chosen, self._warp])
            self._call_runtime("prepare_atomic", record, site, chosen, pointers)
            function = _atomic_function(b, row, U64, [U64])
            b.call(function, [chosen, pointers, old, values])

    @contextmanager
    def _each_rank(
        self, lanes: ir.Value, ranks: Value, place: ir.Value
    ) -> Iterator[tuple[ir.Value, Value]]:
        """A loop over the blocks of the cluster to whose shared memory some lanes write.

        Args:
            lanes: The lanes, as `i32`.
            ranks: A bit for the rank of each block, 16 bits per lane.
            place: The addresses in the own block, `<32 x i64>`.

        Yields:
            The lanes that write to a block, at least one; and the addresses there.
        """
        b = self._b
        with count_loop(b, I64(ranks.type.bits)) as number:
            shift = broadcast(Value(b, number, U64).to(ranks.type), WARP_SIZE)
            chosen = b.and_(lanes, b.bitcast((ranks >> shift & 1 != 0).ir, I32))
            with b.if_then(b.icmp_unsigned("!=", chosen, I32(0))):
                rank = broadcast(Value(b, number, U64).to(U32), WARP_SIZE)
                there = map_to_rank(Value(b, place, U64), rank)
                yield chosen, there.bits(S64)

    def _call_in_groups(
        self, access: _Access, guard: _Guard | None, gathered: ir.Value, width: int
    ) -> None:
        """Carry out an access for each group of lanes that makes a request.

        Of a load, `gathered` receives what all groups have loaded, so many bytes per lane.
        """
        b, values = self._b, self._buffer("values")
        lanes = self._mask if guard is None else guard.word
        words = [I64(8 * number) for number in range(width * WARP_SIZE // 8)]
        for word in words:
            b.store(I64(0), b.gep(gathered, [word], source_etype=BYTE))
        count = access.step.row.request_lanes
        for first in range(0, WARP_SIZE, count):
            part = b.and_(lanes, I32(((1 << count) - 1) << first))
            with b.if_then(b.icmp_unsigned("!=", part, I32(0))):
                self._call(access, part)
                for word in words:  # a load gives the other lanes 0
                    place = b.gep(gathered, [word], source_etype=BYTE)
                    loaded = b.load(b.gep(values, [word], source_etype=BYTE), typ=I64)
                    b.store(b.or_(b.load(place, typ=I64), loaded), place)

    def _call(self, access: _Access, mask: ir.Value) -> None:
        """Resolve the addresses and carry out the access for the lanes of a mask."""
        row, resolved = access.step.row, self._resolve(access, mask)
        if row.kind in ("load", "store"):
            values = self._buffer("values" if row.kind == "load" else "values0")
            self._call_runtime(row.kind, resolved, access.site, mask, values)
            return
        pointers, old = self._buffer("pointers"), self._buffer("old")
        self._call_runtime("prepare_atomic", resolved, access.site, mask, pointers)
        stored = [self._buffer(f"values{number}") for number in range(len(access.sources))]
        function = _atomic_function(self._b, row, access.moved, access.sources)
        self._b.call(function, [mask, pointers, old, *stored])

    @contextmanager
    def _lanes(self, guard: _Guard | None) -> Iterator[ir.Value]:
        """The lanes that execute an instruction; the body is skipped where there are none."""
        if guard is None:
            yield self._mask
            return
        with self._b.if_then(self._b.icmp_unsigned("!=", guard.word, I32(0))):
            yield guard.word

    def _site(self, index: int) -> ir.Value:
        """The record of a memory instruction."""
        return (self._field("sites") + self._code.sites[index]).start

    def _record(self, name: str, addresses: ir.Value | None = None) -> ir.Value:
        """Room for an `Addresses` record, with the addresses of the lanes."""
        record = shared_stack_array(self._b, name, BYTE, ADDRESSES.itemsize)
        if addresses is not None:
            Reference(record, Addresses).address = Value(self._b, addresses, S64)
        return record

    def _addresses(self, step: DecodedInstruction) -> ir.Value:
        """The addresses of an access without its offset, as `<32 x i64>`."""
        b, address = self._b, step.address
        if not isinstance(address.base, Register):
            base = I64(0) if address.base is None else self._symbol(address.base)
            return broadcast(Value(b, base, U64), WARP_SIZE).ir
        register = self._register(address.base.name)
        bits = self._code.layout.bits[address.base.name]
        if bits < 64 and step.row.space in ("generic", "global"):
            name = address.base.name
            raise PtxError(f"{step.row.opcode} takes an address of 64 bits, not {name}")
        return Value(b, register, ElementType("i", bits)).to(ElementType("i", 64)).ir

    def _resolve(self, access: _Access, mask: ir.Value) -> ir.Value:
        """The resolved addresses; those of one register serve all accesses of its space."""
        step = access.step
        named = step.address.base.name if step.address.base is not None else ""
        reach = reach_of(step) if self._code.program.in_cluster else 0
        key = named, step.row.space, reach
        known = self._resolved.get(key)
        is_whole = step.instruction.guard is None and step.row.request_lanes == WARP_SIZE
        if known is not None and is_whole:
            return known
        # One that holds some lanes alone is used once.
        if is_whole:
            self._records += 1
        number = self._records if is_whole else ""
        record = self._record(f"addresses{number}", access.addresses)
        arguments = [self._context, record, access.site, mask, self._warp]
        self._b.call(self._runtime("resolve"), arguments)
        if is_whole:
            self._resolved[key] = record
        return record

    def _call_runtime(self, name: str, *arguments: ir.Value) -> None:
        """Call a function of the runtime, and leave the stretch on a fault."""
        b = self._b
        result = b.call(self._runtime(name), [self._context, *arguments])
        if self._faulty is None:
            self._faulty = self._function.append_basic_block("fault")
        following = self._function.append_basic_block("access.done")
        b.cbranch(b.icmp_unsigned("!=", result, I32(0)), self._faulty, following)
        b.position_at_end(following)

    def _runtime(self, name: str) -> ir.Function:
        module = self._function.module
        return module.globals.get(name) or ir.Function(module, _RUNTIME_TYPES[name], name)

    # --- Operands ------------------------------------------------------------------------------

    def _source(self, operand: Operand, ptx_type: str) -> Value:
        """An operand read as a PTX type."""
        b, element = self._b, element_type(ptx_type)
        if isinstance(operand, Register):
            return self._read(operand.name, element)
        if isinstance(operand, Negated):
            return ~self._read(operand.register.name, PRED)
        if isinstance(operand, Immediate):
            return _constant(b, operand, element)
        if isinstance(operand, Symbol):
            place = Value(b, self._symbol(operand), U64).to(element.unsigned)
            return broadcast(place, WARP_SIZE).bits(element)
        if isinstance(operand, Vector):
            part = ElementType("u", element.bits // len(operand.items))
            raw = element.unsigned
            parts = [self._source(item, f"b{part.bits}").to(raw) for item in operand.items]
            whole = parts[0]
            for number, value in enumerate(parts[1:], 1):
                whole = whole | (value << (number * part.bits))
            return whole.bits(element)
        raise PtxError(f"operand {operand} cannot be read")

    def _read(self, name: str, element: ElementType) -> Value:
        """A register read as a type; a narrower register is extended by zeros."""
        b = self._b
        if name in CLOCK_REGISTERS:
            clock = Reference(self._context, Context).clock.to(U64)
            shifted = clock >> 32 if name.endswith("_hi") else clock
            return broadcast(shifted.to(element.unsigned), WARP_SIZE).bits(element)
        bits = self._bits(name)
        if (bits == 1) != (element == PRED):
            raise PtxError(f"register {name} cannot be read as {element.kind}{element.bits}")
        value = self._register(name)
        if bits == 1:
            return Value(b, value, PRED)
        return Value(b, value, ElementType("u", bits)).to(element.unsigned).bits(element)

    def _set(self, operand: Operand, value: Value, ptx_type: str, guard: _Guard | None) -> None:
        """Write a result; a wider register gets it extended by its sign."""
        if not isinstance(operand, Register):
            raise PtxError(f"operand {operand} cannot be written")
        name, element = operand.name, element_type(ptx_type)
        if name == "_":
            return
        bits = self._bits(name)
        assert value.type == element, f"{value.type} is no {ptx_type}"
        too_narrow = bits < element.bits or (bits > element.bits and element.kind == "f")
        if (bits == 1) != (element == PRED) or too_narrow:
            raise PtxError(f"register {name} cannot hold a result of type {ptx_type}")
        raw = value
        if bits > 1:
            whole = value.bits(element.unsigned) if element.kind == "f" else value
            raw = whole.to(ElementType(whole.type.kind, bits)).bits(ElementType("u", bits))
        if guard is not None:
            raw = where(guard.holds, raw, Value(self._b, self._register(name), raw.type))
        self._registers[name] = raw.ir
        self._written.add(name)
        for negated in (False, True):
            self._guards.pop((name, negated), None)
        for key in [key for key in self._resolved if key[0] == name]:
            del self._resolved[key]

    def _register(self, name: str) -> ir.Value:
        """The raw bits of a register."""
        known = self._registers.get(name)
        if known is None:
            b, bits = self._b, self._bits(name)
            if bits == 1:
                word = b.load(self._place(name), typ=I32)
                known = b.bitcast(word, ir.VectorType(I1, WARP_SIZE))
            else:
                kind = ir.VectorType(ir.IntType(bits), WARP_SIZE)
                known = b.load(self._place(name), typ=kind, align=min(WARP_SIZE * bits // 8, 64))
            self._registers[name] = known
        return known

    def _bits(self, name: str) -> int:
        bits = self._code.layout.bits.get(name)
        if bits is None:
            raise PtxError(f"register {name} is not declared")
        return bits

    def _place(self, name: str) -> ir.Value:
        """Where a register lies in the frame."""
        return self._b.gep(self._frame, [I64(self._code.layout.offsets[name])], source_etype=BYTE)

    def _guard(self, step: DecodedInstruction) -> _Guard | None:
        """The lanes that execute an instruction; None for all of the group."""
        name, negated = step.instruction.guard, step.instruction.guard_negated
        if name is None:
            return None
        known = self._guards.get((name, negated))
        if known is None:
            b, holds = self._b, self._read(name, PRED)
            word = b.and_(self._mask, b.bitcast(holds.ir, I32))
            other = b.xor(self._mask, word)
            if negated:
                holds, word, other = ~holds, other, word
            count = b.call(intrinsic(b, "llvm.ctpop", I32, [I32]), [other])
            known = _Guard(holds, word, b.zext(count, I64))
            self._guards[name, negated] = known
        return known

    def _count_switched_off(self, index: int, guard: _Guard) -> None:
        """Count the lanes whose guard does not hold."""
        counts = self._field("lanes_off")
        counts[index] += Value(self._b, guard.lanes_off, S64)

    def _count_slow(self, index: int, slow: Value, guard: _Guard | None) -> None:
        """Count the lanes whose operands take a slow path, and the warps with such lanes."""
        b, active = self._b, self._mask if guard is None else guard.word
        lanes = b.and_(active, b.bitcast(slow.ir, I32))
        count = b.call(intrinsic(b, "llvm.ctpop", I32, [I32]), [lanes])
        any_lane = b.icmp_unsigned("!=", lanes, I32(0))
        for name, counted in (("slow_lanes", count), ("slow_warps", any_lane)):
            counts = self._field(name)
            counts[index] += Value(b, b.zext(counted, I64), S64)

    def _field(self, name: str) -> Pointer[Any]:
        """A pointer in the context that stays as it is, read once."""
        if name not in self._fields:
            with self._b.goto_entry_block():
                self._fields[name] = getattr(Reference(self._context, Context), name)
        return self._fields[name]

    def _symbol(self, symbol: Symbol) -> ir.Value:
        """The address of a variable in its state space, as `i64`."""
        program = self._code.program
        spaces = (program.shared, program.local, program.const, program.parameters)
        for offsets in (*spaces, program.arguments):
            if symbol.name in offsets:
                return I64(offsets[symbol.name] + symbol.offset)
        number = self._code.globals.get(symbol.name)
        if number is None:
            raise PtxError(f"unknown symbol {symbol.name}")
        start: Value = self._field("variables")[number]
        return (start + symbol.offset).ir

    # --- Memory of the function ----------------------------------------------------------------

    def _buffer(self, name: str) -> ir.Value:
        """A buffer for what the lanes of one access move, by its name."""
        return shared_stack_array(self._b, name, BYTE, _WIDEST_ACCESS_BYTES * WARP_SIZE)


def _of_box(row: Row, buffers: Sequence[ir.Value]) -> list[ir.Value]:
    """What the runtime takes of a box: only im2col has the last of these words."""
    return [*buffers] if takes_pixels(row) else [*buffers, buffers[-1]]


def _element(b: ir.IRBuilder, buffer: ir.Value, number: int, width: int) -> ir.Value:
    """Where the lanes of an element of a vector lie in a buffer."""
    return b.gep(buffer, [I64(number * WARP_SIZE * width)], source_etype=BYTE)


def _atomic_function(
    b: ir.IRBuilder, row: Row, moved: ElementType, kinds: Sequence[ElementType]
) -> ir.Function:
    """`atomic.OPCODE(mask, pointers, old, sources...)`: an atomic operation, lane by lane.

    Args:
        b: A builder of the module.
        row: The operation.
        moved: The type of an element in memory.
        kinds: The types of the sources.
    """
    function, width = row.function, moved.bits // 8
    assert function is not None

    def write(
        b: ir.IRBuilder, mask: ir.Value, pointers: ir.Value, old: ir.Value, *sources: ir.Value
    ) -> None:
        for number in range(row.vector):
            with bit_loop(b, mask) as lane:
                start = b.load(b.gep(pointers, [lane], source_etype=I64), typ=POINTER)
                place = b.gep(start, [I64(number * width)], source_etype=BYTE)
                before = b.load(place, typ=moved.ir, align=width)
                inputs = []
                for source, kind in zip(sources, kinds, strict=True):
                    size = kind.bits // 8
                    items = _element(b, source, number, size)
                    item = b.gep(items, [lane], source_etype=ir.IntType(8 * size))
                    inputs.append(Value(b, b.load(item, typ=kind.ir, align=size), kind))
                new = function(Value(b, before, moved), *inputs)
                b.store(new.ir, place, align=width)
                if row.kind == "atomic":
                    results = _element(b, old, number, width)
                    result = b.gep(results, [lane], source_etype=ir.IntType(8 * width))
                    b.store(before, result, align=width)
        b.ret_void()

    arguments = [I32, *[POINTER] * (2 + len(kinds))]
    return internal_function(b, f"atomic.{row.opcode}", ir.VoidType(), arguments, write)


def _constant(b: ir.IRBuilder, operand: Immediate, element: ElementType) -> Value:
    """A literal in all lanes."""
    model = Value(b, ir.Constant(shaped(U32, WARP_SIZE), [0] * WARP_SIZE), U32)
    if element == PRED:
        return model.constant(bool(operand.bits), PRED)
    if operand.kind == "f64" and element == ElementType("f", 32):
        number = np.array(operand.bits, np.uint64).view(np.float64)
        bits = int(number.astype(np.float32).view(np.uint32))
    else:
        bits = operand.bits & ((1 << element.bits) - 1)
    return model.constant(bits, element.unsigned).bits(element)


def _items(operand: Operand) -> tuple[Operand, ...]:
    """The destinations of an instruction: one, a pair, or a vector."""
    if isinstance(operand, Vector):
        return operand.items
    if isinstance(operand, DestinationPair):
        return operand.first, operand.second
    return (operand,)


def _elements(operand: Operand, opcode: str, vector: int) -> tuple[Operand, ...]:
    """The registers of one value or of a vector, by element."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != vector:
        raise PtxError(f"{opcode} moves {vector} registers, not {len(items)}")
    return items
