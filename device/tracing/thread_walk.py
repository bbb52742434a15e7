"""Follows one thread through a program, and names what it accesses and computes.

The recorder gives addresses and instructions. The walk turns an address into an element of an
array, and notes for each register the elements that it was loaded from, so that a store to shared
memory names the element it stages, and a multiplication its factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from memlab.device.array_element import Element
from memlab.device.emulation.address_names import AddressNames
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_bulk_access
from memlab.device.emulator.program.program import (
    ACCESS_KINDS,
    DecodedInstruction,
    Program,
    destinations,
)
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Immediate, Operand, Register, Vector
from memlab.device.tracing.mma_fragments import FragmentTracker, is_matrix_product
from memlab.device.tracing.phases import OWN, PhaseRecorder, RecordedAccess, is_barrier
from memlab.device.tracing.records import (
    ArrayPart,
    ElementAccess,
    Operation,
    Step,
    ThreadTrace,
    TracedValue,
)
from memlab.kernels.launch import Dim3, Launch, Scalar, Structure

RegisterContents: TypeAlias = tuple[TracedValue, ...]
"""The origins of a register's equal parts, such as two halves, the lowest first. An `int` is the
bits of a literal whose type is not known yet."""

_COMPUTED: RegisterContents = (None,)
_ARITHMETIC = ("add", "sub", "mul", "mad", "fma", "div", "rem", "min", "max")
"""Integer operations that are shown too; most others compute addresses."""
_ATOMICS = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")
_FLOAT_FORMATS = {"f16": "f2", "f32": "f4", "f64": "f8"}
"""NumPy's formats of PTX's types."""
_MAX_PLAIN_INTEGER = 1 << 20
"""Bits up to this are an integer: as an `f32` they would be denormal."""


def scalar_arguments(launch: Launch, program: Program) -> dict[tuple[str, int], RegisterContents]:
    """The scalar arguments of the kernel, by space and address of the parameter space."""
    found: dict[tuple[str, int], RegisterContents] = {}
    for argument, variable in zip(launch.arguments, program.parameter_variables, strict=True):
        start = program.parameters[variable.name]
        if isinstance(argument, Scalar):
            found["param", start] = (argument,)
        elif isinstance(argument, Structure):
            for offset, member in argument.members:
                if isinstance(member, Scalar) and member.bits is None:
                    name = f"{argument.name}.{member.name}" if member.name else argument.name
                    found["param", start + offset] = (replace(member, name=name),)
    return found


def walk_thread(
    program: Program,
    recorder: PhaseRecorder,
    lane: int,
    thread: Dim3,
    names: AddressNames,
    arguments: Mapping[tuple[str, int], RegisterContents],
) -> ThreadTrace:
    """Follow one thread through a program.

    Args:
        program: The program that ran.
        recorder: The recorder that followed the thread's warp.
        lane: The thread's lane in the warp.
        thread: The thread's index in the block, x, y, z.
        names: Names of addresses.
        arguments: From `scalar_arguments`.
    """
    walker = _ThreadWalker(program, lane, names, arguments)
    multiplies = any(is_matrix_product(step) for step in program.steps)
    for stretch in recorder.ranges:
        active = bool(stretch.active[lane])
        if not active and not multiplies:
            continue
        accesses: dict[int, list[RecordedAccess]] = {}
        for access in stretch.accesses:  # of a tensor copy, one for each of its ranges
            accesses.setdefault(access.step, []).append(access)
        for index in range(stretch.start, stretch.stop):
            if active:
                if index in stretch.phases:
                    walker.phase = int(stretch.phases[index][lane])
                walker.run(program.steps[index], accesses.get(index, ()))
            if multiplies:
                last = accesses.get(index, [None])[-1]
                walker.fragments.run(program.steps[index], last)
    return ThreadTrace(thread, tuple(walker.steps), walker.barriers)


class _ThreadWalker:
    """Follows the instructions of one lane, and notes the contents of its registers."""

    def __init__(
        self,
        program: Program,
        lane: int,
        names: AddressNames,
        arguments: Mapping[tuple[str, int], RegisterContents],
    ) -> None:
        self.steps: list[Step] = []
        self.barriers = 0
        self.phase = 0
        self.fragments = FragmentTracker(names)
        self._types = program.registers
        self._lane = lane
        self._names = names
        self._passed = dict(arguments)  # arguments of called functions too
        self._contents: dict[str, RegisterContents] = {}
        self._loaded: dict[TracedValue, int] = {}  # phases of loads since the last barrier

    def run(self, step: DecodedInstruction, accesses: Sequence[RecordedAccess]) -> None:
        """Follow one instruction.

        Args:
            step: The instruction.
            accesses: The warp's accesses to memory by it.
        """
        row = step.row
        contents: Sequence[RegisterContents] = ()
        if is_barrier(step):
            self.barriers += row.kind == "barrier"
            self._loaded.clear()
        elif row.kind in ACCESS_KINDS:
            own = [self._access(step, each) for each in accesses if each.active[self._lane]]
            if not own:
                return
            contents = own[0] if len(own) == 1 else ()
        elif is_matrix_product(step):
            self._add_operation(step, self.fragments.factors(step))
        elif row.kind == "lanes":
            words = row.opcode.split(".")
            if row.flops or (words[0] in _ARITHMETIC and "wide" not in words):
                self._compute(step)
            elif words[0] in ("mov", "cvt"):
                contents = self._copied(step)
        for target, content in zip_longest(destinations(step), contents, fillvalue=_COMPUTED):
            if isinstance(target, Register):
                self._contents[target.name] = content

    def _access(
        self, step: DecodedInstruction, access: RecordedAccess
    ) -> Sequence[RegisterContents]:
        """Note an access to memory; the contents that it loads into registers."""
        row, operands = step.row, step.instruction.operands
        space, address = access.space, int(access.addresses[self._lane])
        kind = row.kind if row.kind in ("load", "store") else "atomic"
        operation = next((word for word in row.opcode.split(".") if word in _ATOMICS), "")
        ptx_type = (row.to if kind == "load" else row.of)[0]
        size = access.size if is_bulk_access(row) else TYPE_BYTES[ptx_type]
        loaded = []
        for number, operand in enumerate(_items(operands[{"load": 0, "store": 1}.get(kind, -1)])):
            at, held = address + number * size, self._read(operand, ptx_type)
            if not self._names.knows(space):  # arguments
                if kind == "store":
                    self._passed[space, at] = held
                loaded.append(self._passed.get((space, at), _COMPUTED))
                continue
            elements = self._names.elements(space, at, size)
            if access.ranks is not None and (rank := int(access.ranks[self._lane])) != OWN:
                elements = tuple(replace(element, rank=rank) for element in elements)
            sources = _stored_sources(_COMPUTED if kind == "load" else held, len(elements))
            for element, source in zip(elements, sources, strict=True):
                self.steps.append(
                    ElementAccess(
                        step.instruction.source_line,
                        kind,
                        element,
                        self.phase,
                        source=_typed(source, element.dtype),
                        operation=operation if kind == "atomic" else "",
                    )
                )
            loaded.append(elements)
            if kind == "load":
                self._loaded.update(dict.fromkeys(elements, self.phase))
        return loaded if kind == "load" else ()

    def _compute(self, step: DecodedInstruction) -> None:
        """Note an operation; one on packed values as one operation per part."""
        types = step.row.of
        operands = [
            self._read(operand, ptx_type)
            for operand, ptx_type in zip(step.instruction.operands[1:], types, strict=False)
        ]
        parts = max(map(len, operands)) if "x2" in step.row.opcode else 1
        for part in range(parts):
            values = tuple(
                _typed(contents[part], ptx_type) if len(contents) == parts else None
                for contents, ptx_type in zip(operands, types, strict=False)
            )
            if any(isinstance(value, Element) for value in values):
                self._add_operation(step, values)

    def _add_operation(self, step: DecodedInstruction, operands: tuple[TracedValue, ...]) -> None:
        """Note an operation, in the phase in which its elements were loaded.

        The compiler may have moved it behind the store with which the next phase begins.
        """
        name, line = step.row.opcode.split(".")[0], step.instruction.source_line
        phases = [self._loaded[operand] for operand in operands if operand in self._loaded]
        self.steps.append(Operation(line, name, operands, max(phases, default=self.phase)))

    def _copied(self, step: DecodedInstruction) -> Sequence[RegisterContents]:
        """The contents that are moved, converted, packed into a register or unpacked from it."""
        targets, sources = destinations(step), step.instruction.operands[1:]
        # `cvt` puts its second source into the lower half (PTX ISA, "cvt").
        operands = [item for source in reversed(sources) for item in _items(source)]
        ptx_type = step.row.of[0]
        parts = [value for operand in operands for value in self._read(operand, ptx_type)]
        if len(sources) == 1:
            parts = list(_low_parts(tuple(parts), ptx_type, step.row.to[0]))
        size, rest = divmod(len(parts), len(targets))
        if rest or not size:
            return ()
        return [tuple(parts[start : start + size]) for start in range(0, len(parts), size)]

    def _read(self, operand: Operand, ptx_type: str) -> RegisterContents:
        """The contents of an operand that is read as a type."""
        if isinstance(operand, Immediate):
            bits, kind = operand.bits, operand.kind
            return (bits if kind == "int" else _float_of_bits(bits, kind),)
        if not isinstance(operand, Register):
            return _COMPUTED
        contents = self._contents.get(operand.name, _COMPUTED)
        return _low_parts(contents, self._types.get(operand.name, ptx_type), ptx_type)


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _low_parts(contents: RegisterContents, held: str, wanted: str) -> RegisterContents:
    """The parts of a register of one type that a narrower type takes."""
    return contents[: max(len(contents) * TYPE_BYTES[wanted] // TYPE_BYTES[held], 1)]


def _stored_sources(contents: RegisterContents, count: int) -> RegisterContents:
    """The origins of so many elements that are stored from one register."""
    if contents == (0.0,) or (len(contents) == 1 and isinstance(contents[0], Element)):
        return contents * count
    size, rest = divmod(len(contents), count)
    if rest or not size:
        return _COMPUTED * count
    if size == 1:
        return contents
    return tuple(ArrayPart.of(contents[at : at + size]) for at in range(0, len(contents), size))


def _typed(value: TracedValue, kind: str) -> TracedValue:
    """Bits as a value of a type, PTX's or a short name; None where the type is not known."""
    if not isinstance(value, int):
        return value
    if kind in _FLOAT_FORMATS:
        return _float_of_bits(value, kind)
    return float(value) if kind[:1] in ("i", "u", "s") or abs(value) <= _MAX_PLAIN_INTEGER else None


def _float_of_bits(bits: int, kind: str) -> float:
    size = TYPE_BYTES[kind]
    return float(np.array(bits % (1 << 8 * size), f"u{size}").view(_FLOAT_FORMATS[kind]))
