"""One thread's way through a program, told in the program's own names.

The recorder knows addresses and instructions. Here an address is an element of an array, and a
register stands for the elements that were last loaded into it, so that a store to shared memory
says what it stages and a multiplication says what it multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from memlab.device.array_element import Element
from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulator.machine.recording import ExecutedRange, RecordedAccess
from memlab.device.emulator.program.program import DecodedInstruction, Program, destinations
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Immediate, Operand, Register, Vector
from memlab.device.tracing.mma_fragments import FragmentTracker, is_matrix_product
from memlab.device.tracing.phases import BarrierInterval, interval_after, is_barrier
from memlab.device.tracing.records import (
    AccessKind,
    ArrayPart,
    ElementAccess,
    Operation,
    ScalarArgument,
    ThreadTrace,
    TracedValue,
)
from memlab.kernels.launch import Dim3, Launch, Scalar, Structure

RegisterContents: TypeAlias = tuple[TracedValue, ...]
"""Where the parts of a register come from: of one that holds two halves, each. An `int` is bits of
which the type is not known yet."""

_COMPUTED: RegisterContents = (None,)
_ARITHMETIC = frozenset(("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max"))
"""What is told of integers and packed halves too; the rest is mostly addresses being made."""
_FLOAT_FORMATS = {"f16": "f2", "f32": "f4", "f64": "f8"}
"""NumPy's names of PTX's types."""
_MAX_PLAIN_INTEGER = 1 << 20
"""Bits up to this are a whole number: as a `float` they would be a denormal, or none."""


class _ThreadWalker:
    """Walks along the instructions that one lane ran, and remembers what registers hold."""

    def __init__(
        self,
        registers: Mapping[str, str],
        names: AddressNames,
        passed: Mapping[tuple[str, int], RegisterContents],
        fragments: FragmentTracker | None,
        rounds: Mapping[int, BarrierInterval],
    ) -> None:
        self.steps: list[ElementAccess | Operation] = []
        self.barriers = 0
        self._registers = registers
        self._names = names
        self._passed = dict(passed)  # arguments, of the kernel and of functions, by their place
        self._fragments = fragments
        self._origin: dict[str, RegisterContents] = {}
        self._rounds = rounds
        self._round = 0  # the number of this one
        self._touched: list[tuple[int, bool]] = []  # of this round: the step, and if it is a store
        self._told = 0  # steps of earlier rounds

    def run(self, step: DecodedInstruction, access: tuple[str, int] | None) -> None:
        """Take one instruction; `access` is the space and address it touched, if it did."""
        kind, row = step.row.kind, step.row
        if is_barrier(step):
            self.barriers += kind == "barrier"
            self.end_round()
            self._round = interval_after(step, self._round)
        elif kind in ("load", "store", "atomic", "reduce"):
            if access is not None:
                self._touch(step, *access)
        elif is_matrix_product(step):
            self._multiply(step)
        elif kind == "lanes" and (row.flops or _is_arithmetic(row.opcode)):
            self._compute(step)
        elif kind == "lanes" and row.opcode.startswith(("mov.", "cvt.")):
            self._copy(step)
        else:
            self._forget(step)

    def _touch(self, step: DecodedInstruction, space: str, address: int) -> None:
        row, operands = step.row, step.instruction.operands
        ptx_type = (row.to if row.kind == "load" else row.of)[0]
        size = TYPE_BYTES[ptx_type]
        if space == "shared":
            self._touched.append((len(self.steps), row.kind == "store"))
        if row.kind in ("atomic", "reduce"):
            given = operands[2 if row.kind == "atomic" else 1 :]
            self._forget(step)
            self._access(step, "atomic", space, address, (given[-1],), size, ptx_type)
            return
        kind: AccessKind = "load" if row.kind == "load" else "store"
        moved = operands[0 if kind == "load" else 1]
        items = moved.items if isinstance(moved, Vector) else (moved,)
        self._forget(step)
        self._access(step, kind, space, address, items, size, ptx_type)

    def _access(
        self,
        step: DecodedInstruction,
        kind: AccessKind,
        space: str,
        address: int,
        items: Sequence[Operand],
        size: int,
        ptx_type: str,
    ) -> None:
        """Take note of what is moved between memory and registers, `size` bytes each."""
        operation = _atomic_operation(step.row.opcode) if kind == "atomic" else ""
        line = step.instruction.source_line
        for number, item in enumerate(items):
            at = address + number * size
            if not self._names.knows(space):
                if kind == "load" and isinstance(item, Register):
                    self._origin[item.name] = self._passed.get((space, at), _COMPUTED)
                elif kind == "store":
                    self._passed[space, at] = self._contents(item, ptx_type)
                continue
            found = self._names.elements(space, at, size)
            sources: RegisterContents = _COMPUTED * len(found)
            if kind != "load":
                sources = _stored_sources(self._contents(item, ptx_type), len(found))
            elif isinstance(item, Register):
                self._origin[item.name] = found
            for element, held in zip(found, sources, strict=True):
                source = _typed_literal(
                    held, ptx_type if ptx_type in _FLOAT_FORMATS else element.dtype
                )
                self.steps.append(
                    ElementAccess(line, kind, element, source=source, operation=operation)
                )

    def end_round(self) -> None:
        """Say of the steps since the last barrier in which phase they lie."""
        this, start, end = self._rounds[self._round], self._told, len(self.steps)
        first = min((at for at, _ in self._touched), default=end)
        begins = end
        if this.begins:
            before = this.phase_entry([store for _, store in self._touched])
            if before < len(self._touched):
                begins, store = self._touched[before]
                begins = begins if store else start
            elif this.was_read and not self._touched:
                begins = start
        before_it = _loaded_shared_elements(self.steps[start:begins]) - _loaded_shared_elements(
            self.steps[begins:end]
        )
        for at in range(start, end):
            step = self.steps[at]
            entered = at >= begins and not _computes_with(step, before_it)
            phase = max(this.phase, at >= first) + entered
            if phase:
                self.steps[at] = replace(step, phase=phase)
        self._told = end
        self._touched.clear()

    def _multiply(self, step: DecodedInstruction) -> None:
        self._forget(step)
        operands = (None, None) if self._fragments is None else self._fragments.factors(step)
        name, line = step.row.opcode.split(".")[0], step.instruction.source_line
        self.steps.append(Operation(line, name, operands))

    def _compute(self, step: DecodedInstruction) -> None:
        given = zip(step.instruction.operands[1:], step.row.of, strict=False)
        operands = [self._contents(operand, ptx_type) for operand, ptx_type in given]
        self._forget(step)
        name, line = step.row.opcode.split(".")[0], step.instruction.source_line
        parts = max(map(len, operands)) if "x2" in step.row.opcode else 1
        for part in range(parts):
            values = tuple(
                _typed_literal(_register_part(each, part, parts), ptx_type)
                for each, ptx_type in zip(operands, step.row.of, strict=False)
            )
            if any(isinstance(each, Element) for each in values):
                self.steps.append(Operation(line, name, values))

    def _copy(self, step: DecodedInstruction) -> None:
        """Follow what is moved, converted, packed into one register or unpacked from it."""
        target, *sources = step.instruction.operands
        if len(sources) > 1:  # the second goes into the lower half (PTX ISA, `cvt`)
            sources.reverse()
        ptx_type = step.row.of[0]
        parts = [
            value
            for each in sources
            for item in (each.items if isinstance(each, Vector) else (each,))
            for value in self._contents(item, ptx_type)
        ]
        if len(sources) == 1:
            parts = list(_low_parts(parts, ptx_type, step.row.to[0]))
        self._forget(step)
        targets = target.items if isinstance(target, Vector) else (target,)
        each, rest = divmod(len(parts), len(targets))
        for number, item in enumerate(targets if each and not rest else ()):
            if isinstance(item, Register):
                self._origin[item.name] = tuple(parts[number * each : (number + 1) * each])

    def _forget(self, step: DecodedInstruction) -> None:
        for each in destinations(step):
            if isinstance(each, Register):
                self._origin.pop(each.name, None)

    def _contents(self, operand: Operand, ptx_type: str) -> RegisterContents:
        if isinstance(operand, Register):
            held = self._origin.get(operand.name, _COMPUTED)
            return _low_parts(held, self._registers.get(operand.name, ptx_type), ptx_type)
        return (_literal_value(operand),) if isinstance(operand, Immediate) else _COMPUTED


def _loaded_shared_elements(steps: Sequence[ElementAccess | Operation]) -> set[TracedValue]:
    """The elements of shared memory that are loaded."""
    loads = (each for each in steps if isinstance(each, ElementAccess) and each.kind == "load")
    return {each.element for each in loads if each.element.space == "shared"}


def _computes_with(step: ElementAccess | Operation, elements: set[TracedValue]) -> bool:
    """Whether it computes with some elements, however late after they were loaded."""
    return isinstance(step, Operation) and not elements.isdisjoint(step.operands)


def _register_part(contents: RegisterContents, number: int, parts: int) -> TracedValue:
    """One of the parts of a register; None where it has another number of them."""
    return contents[number] if len(contents) == parts else None


def _low_parts(contents: Sequence[TracedValue], of: str, wanted: str) -> RegisterContents:
    """What a narrower type takes of a register with many parts."""
    kept = len(contents) * TYPE_BYTES[wanted] // TYPE_BYTES[of]
    return tuple(contents[: min(max(kept, 1), len(contents))])


def _stored_sources(contents: RegisterContents, count: int) -> RegisterContents:
    """What a register holds as the sources of so many elements that are stored from it."""
    if len(contents) > count and len(contents) % count == 0:
        each = len(contents) // count
        return tuple(ArrayPart.of(contents[at : at + each]) for at in range(0, len(contents), each))
    shared = len(contents) == 1 and (contents == (0.0,) or isinstance(contents[0], Element))
    if len(contents) != count and not shared:
        return _COMPUTED * count
    return contents * (count // len(contents))


def _literal_value(literal: Immediate) -> float:
    """A literal: an `int` of bits that may be of any type, or a `float`."""
    return literal.bits if literal.kind == "int" else _bits_as_float(literal.bits, literal.kind)


def _typed_literal(value: TracedValue, kind: str) -> TracedValue:
    """What bits are as a value of a type, PTX's or a short name; None where neither tells."""
    if not isinstance(value, int):
        return value
    if kind in _FLOAT_FORMATS:
        return _bits_as_float(value, kind)
    whole = kind[:1] in ("i", "u", "s") or abs(value) <= _MAX_PLAIN_INTEGER
    return float(value) if whole else None


def _bits_as_float(bits: int, kind: str) -> float:
    size = TYPE_BYTES[kind]
    return float(np.array(bits % (1 << 8 * size), f"u{size}").view(_FLOAT_FORMATS[kind]))


def _is_arithmetic(opcode: str) -> bool:
    name, *rest = opcode.split(".")
    return name in _ARITHMETIC and "wide" not in rest


def _atomic_operation(opcode: str) -> str:
    known = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")
    return next((each for each in opcode.split(".") if each in known), "")


def scalar_arguments(launch: Launch, program: Program) -> dict[tuple[str, int], RegisterContents]:
    """The scalar arguments of the kernel, by their place in the parameter space."""
    found: dict[tuple[str, int], RegisterContents] = {}
    for argument, variable in zip(launch.arguments, program.parameter_variables, strict=True):
        start = program.parameters[variable.name]
        if isinstance(argument, Scalar):
            found["param", start] = (ScalarArgument(argument.name, argument.value),)
        elif isinstance(argument, Structure):
            for inside, member in argument.members:
                name = f"{argument.name}.{member.name}" if member.name else argument.name
                found["param", start + inside] = (ScalarArgument(name, member.value),)
    return found


def walk_thread(
    program: Program,
    stretches: Sequence[ExecutedRange],
    column: int,
    names: AddressNames,
    thread: Dim3,
    passed: Mapping[tuple[str, int], RegisterContents],
    fragments: FragmentTracker | None,
    rounds: Mapping[int, BarrierInterval],
) -> ThreadTrace:
    """Walk along one lane's way through the program.

    Args:
        program: What ran.
        stretches: What the recorded lanes did.
        column: The lane among them.
        names: The arrays.
        thread: The lane's index in the block, x, y, z.
        passed: From `passed`.
        fragments: Goes with the recorded lanes, a whole warp, where matrices are multiplied.
        rounds: What the block does between its barriers, by the numbers of the rounds.
    """
    walk = _ThreadWalker(program.registers, names, passed, fragments, rounds)
    for stretch in stretches:
        if not stretch.active[column] and fragments is None:
            continue
        touched = {each.step: each for each in stretch.accesses if each.active[column]}
        by_warp = {each.step: each for each in stretch.accesses}
        for index in range(stretch.start, stretch.stop):
            step = program.steps[index]
            if stretch.active[column]:
                walk.run(step, _access_address(touched.get(index), column))
            if fragments is not None:
                fragments.run(step, by_warp.get(index))
    walk.end_round()
    return ThreadTrace(thread, tuple(walk.steps), walk.barriers)


def _access_address(access: RecordedAccess | None, column: int) -> tuple[str, int] | None:
    return None if access is None else (access.space, int(access.addresses[column]))
