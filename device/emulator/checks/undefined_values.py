"""Values in registers that are undefined, and their use.

A value that a shuffle reads from a lane which does not execute it is undefined (PTX ISA,
"shfl.sync"), and so is one that is loaded from memory before anything was written there. Reading it
is no mistake by itself. In a sum over half a warp, the upper lanes read beyond the half, and their
result is not used. A load that the compiler moved above the branch that needs it (an *early load*)
is also executed by threads that do not need it. So registers carry, per lane, the instruction from
which they hold an undefined value. It is reported when the value is stored, or decides an address
or a branch: for shuffles by synccheck, for early loads by initcheck.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.barriers import BarrierCheck
from memlab.device.emulator.checks.initialisation import InitializationCheck, UnwrittenRead
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.program_analysis import is_shuffle
from memlab.device.emulator.isa import warp
from memlab.device.emulator.machine.observer import Action
from memlab.device.emulator.machine.operands import Operands, Source
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import WRITING_KINDS, DecodedInstruction, destinations
from memlab.device.emulator.ptx.parser import Address, Operand, Register, registers_of
from memlab.device.properties import WARP_SIZE

UndefinedMarks: TypeAlias = Lanes
"""Per lane, the instruction, the reading lane and the source lane as one number; the smallest of
several; `_DEFINED` if the value is defined. Of a load, the element stands for the source lane."""

_DEFINED = np.int64(1 << 62)
_VISIBLE_SPACES = ("global", "shared", "generic")


@dataclass(frozen=True)
class UndefinedSources:
    """Where undefined values may come from.

    Attributes:
        shuffles: Whether they come from shuffles.
        loads: The early loads that they come from.
        initialisation: Tells what such loads read; None where there are none.
    """

    shuffles: bool
    loads: Collection[int] = ()
    initialisation: InitializationCheck | None = None


class UndefinedValues:
    """The undefined values in the registers of a chunk of blocks."""

    def __init__(
        self,
        observations: Observations,
        threads: Threads,
        numbers: Lanes,
        operands: Operands,
        barriers: BarrierCheck,
        sources: UndefinedSources,
    ) -> None:
        """Follow a chunk; `numbers` are its lanes' threads."""
        self._sources = sources
        # By early load: the state space, and what was unwritten: addresses by element and lane.
        self._reads: dict[int, tuple[str, Lanes]] = {}
        self._observations, self._barriers = observations, barriers
        self._threads, self._numbers, self._operands = threads, numbers, operands
        self._lanes = threads.lanes
        self._marks: dict[str, UndefinedMarks] = {}
        # The groups that last reconverged at a shuffle, and the marks of the values they brought.
        self._reconverged_groups: Mapping[int, Lanes] = {}
        self._held: UndefinedMarks | None = None
        self._reported = np.full(self._lanes, _DEFINED)  # per lane, the last mark reported

    @property
    def has_marks(self) -> bool:
        """Whether a register holds an undefined value."""
        return bool(self._marks)

    def follow(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Extend the action of an instruction by its effect on undefined values."""
        if is_shuffle(step):
            return self._shuffle_action(index, step, action)
        if index in self._sources.loads:
            return self._load_action(index, step, action)
        targets = step.registers_written
        marks_of = self._propagation_rule(step)
        used = self._used(step)
        # What a load has read is not followed into memory, nor into what a warp computes together.
        consumed = () if step.row.kind == "lanes" else step.registers_read

        def run(mask: Lanes) -> None:
            if not self._marks:
                action(mask)
                return
            if used:
                self.use(used, mask)
            if consumed and self._reads:
                self.use(consumed, mask, of_loads=True)
            marks = marks_of()
            action(mask)
            for name in targets:
                self._set(name, marks, mask)

        return run

    def use(self, registers: Collection[str], mask: Lanes, of_loads: bool = False) -> None:
        """Report undefined values in registers that lanes, as a mask, use visibly.

        Args:
            registers: The registers.
            mask: The lanes.
            of_loads: Whether only values that were loaded count.
        """
        marks = self._marks_of(registers)
        if marks is None:
            return
        users = np.flatnonzero(mask & (marks != _DEFINED) & (marks != self._reported))
        reads, source = np.divmod(marks[users], WARP_SIZE)
        steps, reader = np.divmod(reads, self._lanes)
        loaded = np.isin(steps, list(self._reads))
        self._report_reads(steps[loaded], reader[loaded], source[loaded])
        if of_loads:
            self._reported[users[loaded]] = marks[users[loaded]]
            return
        self._reported[users] = marks[users]
        steps, reader, source = steps[~loaded], reader[~loaded], source[~loaded]
        source += reader // WARP_SIZE * WARP_SIZE
        is_thread = self._threads.alive[source]
        self._report(steps[~is_thread], reader[~is_thread], None)
        self._report(steps[is_thread], reader[is_thread], source[is_thread])

    def _report(self, steps: Lanes, reader: Lanes, source: Lanes | None) -> None:
        if steps.size:
            self._observations.add(
                "synccheck",
                "inactive source lane",
                "",
                np.zeros(steps.size, np.int64),
                steps,
                self._numbers[reader],
                None if source is None else self._barriers.exit_steps(source, steps),
                None if source is None else self._numbers[source],
            )

    def _report_reads(self, steps: Lanes, reader: Lanes, elements: Lanes) -> None:
        """Report what early loads read, at the loads."""
        for step in np.unique(steps).tolist():
            space, addresses = self._reads[step]
            lanes, of = reader[steps == step], elements[steps == step]
            self._observations.add(
                "initcheck",
                "uninitialized read",
                space,
                addresses[of, lanes],
                step,
                self._numbers[lanes],
            )

    # --- Propagation -------------------------------------------------------------------------

    def _load_action(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Extend an early load: what it reads of unwritten memory is undefined."""
        initialisation = self._sources.initialisation
        assert initialisation is not None
        targets = [to.name if isinstance(to, Register) else "" for to in destinations(step)]
        used = self._used(step)

        def run(mask: Lanes) -> None:
            if used and self._marks:
                self.use(used, mask)
            action(mask)
            marks: list[UndefinedMarks | None] = [None] * len(targets)
            for read in initialisation.take_early_reads():
                self._note(index, read, marks)
            for name, now in zip(targets, marks, strict=True):
                if name:
                    self._set(name, now, mask)

        return run

    def _note(self, index: int, read: UnwrittenRead, marks: list[UndefinedMarks | None]) -> None:
        """Mark what lanes have read of unwritten memory, for each element of a load."""
        shape = len(marks), self._lanes
        _, addresses = self._reads.setdefault(index, (read.space, np.zeros(shape, np.int64)))
        addresses[read.elements, read.lanes] = read.addresses
        new = np.full(shape, _DEFINED)
        new[read.elements, read.lanes] = (
            index * self._lanes + read.lanes
        ) * WARP_SIZE + read.elements
        for number, own in enumerate(new):
            held = marks[number]
            marks[number] = own if held is None else np.minimum(held, own)
        self._reported[read.lanes] = _DEFINED  # each execution of the load counts

    def _shuffle_action(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """Extend a shuffle: it moves marks as it moves values, and makes new ones."""
        to, value, *control = step.instruction.operands
        b, c, members = (self._operands.source(operand, "u32") for operand in control)
        mode, shape = step.row.opcode.split(".")[2], (-1, WARP_SIZE)
        names, decides = tuple(registers_of(value)), _register_names(control)
        result, *rest = registers_of(to)
        lanes = np.arange(self._lanes).reshape(shape)

        def lanes_of(values: Lanes) -> Lanes:
            return np.broadcast_to(values, self._lanes).reshape(shape)

        def run(mask: Lanes) -> None:
            participating = self._barriers.participants
            active = participating.active(mask).reshape(shape)
            controls = participating.sources[1:] or [read() for read in (b, c, members)]
            source, takes_part = _shuffle_sources(mode, active, *map(lanes_of, controls))
            if decides:
                self.use(decides, mask)
            held = self._reconverged_marks() if participating.groups else self._marks_of(names)
            action(mask)
            marks = None
            if held is not None:
                marks = np.take_along_axis(held.reshape(shape), source, axis=1)
            if self._sources.shuffles and not takes_part[active].all():
                source_lanes = np.take_along_axis(lanes, source, axis=1)
                excused = self._barriers.faulty[source_lanes]
                new = (index * self._lanes + lanes) * WARP_SIZE + source
                old = _DEFINED if marks is None else marks
                marks = np.where(takes_part, old, np.where(excused, _DEFINED, new))
            self._set(result, None if marks is None else marks.reshape(-1), mask)
            for name in rest:
                self._set(name, None, mask)

        return run

    def _reconverged_marks(self) -> UndefinedMarks | None:
        """The marks of the values that lanes bring to a shuffle, which is in several places."""
        groups = self._barriers.participants.groups
        # At the first of the groups, the marks are not yet changed by a result.
        if self._reconverged_groups is not groups:
            self._reconverged_groups, self._held = groups, None
            for index, lanes in groups.items():
                value = self._operands.program.steps[index].instruction.operands[1]
                marks = self._marks_of(tuple(registers_of(value)))
                if marks is not None:
                    before = _DEFINED if self._held is None else self._held
                    self._held = np.where(lanes, marks, before)
        return self._held

    def _propagation_rule(self, step: DecodedInstruction) -> Callable[[], UndefinedMarks | None]:
        """The rule for the marks of an instruction's result."""
        operands = step.instruction.operands[1:]
        opcode, row = step.row.opcode, step.row
        if row.kind != "lanes":  # values that are loaded or voted on count as defined
            return lambda: None
        if opcode.startswith("selp."):
            return self._select_rule(operands, row.of)
        names = [tuple(registers_of(operand)) for operand in operands]
        bitwise = next((word for word in opcode.split(".") if word in ("and", "or")), "")
        if bitwise:  # a comparison combines its result with its third operand
            first = 2 if opcode.startswith("setp.") else 0
            sources = {
                number: self._operands.source(operands[number], row.of[number])
                for number in range(first, len(operands))
            }
            return self._bitwise_rule(names, sources, is_or=bitwise == "or")
        all_names = tuple(_register_names(operands))
        return lambda: self._marks_of(all_names)

    def _select_rule(
        self, operands: Sequence[Operand], types: Sequence[str]
    ) -> Callable[[], UndefinedMarks | None]:
        """The rule of `selp`: the operand that is not chosen does not count."""
        registers = [tuple(registers_of(operand)) for operand in operands]
        predicate = self._operands.source(operands[2], types[2])

        def rule() -> UndefinedMarks | None:
            marks = [self._marks_of(names) for names in registers]
            if all(mark is None for mark in marks):
                return None
            first, second, decides = (_DEFINED if mark is None else mark for mark in marks)
            chosen = np.where(predicate(), first, second)
            return np.asarray(np.minimum(chosen, decides))

        return rule

    def _bitwise_rule(
        self, names: Sequence[Collection[str]], sources: Mapping[int, Source], is_or: bool
    ) -> Callable[[], UndefinedMarks | None]:
        """The rule of `and` and `or`: a defined operand of only 0s, or only 1s, decides alone."""

        def rule() -> UndefinedMarks | None:
            marks = self._marks_of({name for operand in names for name in operand})
            if marks is None:
                return None
            for number, source in sources.items():
                value, own_marks = source(), self._marks_of(names[number])
                zero = np.zeros((), value.dtype)
                decides = value == (~zero if is_or else zero)
                if own_marks is not None:
                    decides = decides & (own_marks == _DEFINED)
                marks = np.where(decides, _DEFINED, marks)
            return marks

        return rule

    def _used(self, step: DecodedInstruction) -> tuple[str, ...]:
        """The registers that an instruction uses visibly: stored values, addresses, its guard."""
        if step.row.kind in WRITING_KINDS and step.row.space in _VISIBLE_SPACES:
            return step.registers_read
        guard = step.instruction.guard
        operands = step.instruction.operands
        addresses = [operand for operand in operands if isinstance(operand, Address)]
        return tuple([guard] if guard else []) + tuple(_register_names(addresses))

    # --- Marks -------------------------------------------------------------------------------

    def _marks_of(self, registers: Collection[str]) -> UndefinedMarks | None:
        """The marks of some registers; None if all of their values are defined."""
        marks = [self._marks[name] for name in registers if name in self._marks]
        return np.minimum.reduce(marks) if marks else None

    def _set(self, name: str, marks: UndefinedMarks | None, mask: Lanes) -> None:
        """Set a register's marks in the lanes of a mask."""
        old = self._marks.pop(name, None)
        if marks is None and old is None:
            return
        new = _DEFINED if marks is None else marks
        now = np.where(mask, new, _DEFINED if old is None else old)
        if (now != _DEFINED).any():
            self._marks[name] = now


def _register_names(operands: Iterable[Operand]) -> list[str]:
    return [name for operand in operands for name in registers_of(operand)]


def _shuffle_sources(
    mode: str, active: Lanes, b: Lanes, c: Lanes, members: Lanes
) -> tuple[Lanes, Lanes]:
    """The lane that each lane reads in a shuffle, and whether that lane takes part in it.

    It does if the reader's member mask names it, and also if both lanes have the same mask.

    Args:
        mode: Such as `bfly`.
        active: The lanes that execute the shuffle, shape (warps, 32), as all others.
        b: The operand that tells the lane or the distance.
        c: The operand with the bounds.
        members: The member masks.
    """
    lane = np.arange(WARP_SIZE)
    read, in_range = warp.source_lane(mode, lane, b.astype(np.int64), c.astype(np.int64))
    source = np.where(in_range, read, lane)
    together = members.astype(np.int64) >> source & 1 == 1
    together |= np.take_along_axis(members, source, axis=1) == members
    return source, together & np.take_along_axis(active, source, axis=1) | (source == lane)
