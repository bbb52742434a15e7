"""synccheck: what a shuffle reads from a lane that takes no part in it, and who uses that.

Such a value is undefined (PTX ISA, "shfl.sync"). Reading it is no mistake: in a sum over half a
warp, the upper lanes read beyond the half, and nobody asks what they get. So each register carries,
a lane each, from which shuffle it has such a value; it is reported when that is stored, or decides
an address or a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.barriers import BarrierCheck
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.isa import warp
from memlab.device.emulator.machine.binding import Action
from memlab.device.emulator.machine.operands import Operands, Source, value_of
from memlab.device.emulator.machine.threads import Threads
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    registers_of,
    registers_read,
    registers_written,
)
from memlab.device.emulator.ptx.parser import Address, Operand
from memlab.device.properties import WARP_SIZE

UndefinedMarks: TypeAlias = Lanes
"""For each lane the shuffle, the lane that read and the lane that it read from, as one number; the
least where there are several; `_DEFINED` where the value is defined."""

_DEFINED = np.int64(1 << 62)
_STORE_KINDS = ("store", "atomic", "reduce")
_VISIBLE_SPACES = ("global", "shared", "generic")


def is_shuffle(step: DecodedInstruction) -> bool:
    """Whether it is one of `__shfl_sync` and its kin."""
    return step.row.opcode.startswith("shfl.sync.")


class UndefinedShuffleValues:
    """The undefined values in the registers of a chunk of blocks."""

    def __init__(
        self,
        observations: Observations,
        threads: Threads,
        numbers: Lanes,
        operands: Operands,
        barriers: BarrierCheck,
    ) -> None:
        """Watch a chunk; `numbers` are its lanes' threads."""
        self._observations, self._barriers = observations, barriers
        self._threads, self._numbers, self._operands = threads, numbers, operands
        self._lanes = threads.lanes
        self._marks: dict[str, UndefinedMarks] = {}
        self._shuffle_inputs: dict[int, Collection[str]] = {}  # the registers that shuffles read
        self._reconverged_groups: Mapping[
            int, Lanes
        ] = {}  # groups, and what all of them held as they met
        self._held: UndefinedMarks | None = None
        self._reported = np.full(self._lanes, _DEFINED)  # the last mark of each that was reported

    def follow(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """The action of an instruction, and what it does to undefined values."""
        if is_shuffle(step):
            return self._shuffle_action(index, step, action)
        targets = tuple(registers_written(step))
        marks_of = self._propagation_rule(step)
        used = self._used(step)

        def run(mask: Lanes | None) -> None:
            if not self._marks:
                action(mask)
                return
            if used:
                self.use(used, mask)
            marks = marks_of()
            action(mask)
            for name in targets:
                self._set(name, marks, mask)

        return run

    def use(self, registers: Collection[str], mask: Lanes | None) -> None:
        """Lanes, None for all, do with registers what others see: report undefined values."""
        marks = self._of(registers)
        if marks is None:
            return
        lanes = self._threads.alive if mask is None else mask
        users = np.flatnonzero(lanes & (marks != _DEFINED) & (marks != self._reported))
        self._reported[users] = marks[users]
        readings, source = np.divmod(marks[users], WARP_SIZE)
        steps, reader = np.divmod(readings, self._lanes)
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

    # --- How values go on --------------------------------------------------------------------

    def _shuffle_action(self, index: int, step: DecodedInstruction, action: Action) -> Action:
        """A shuffle moves marks as it moves values, and makes new ones."""
        to, value, *given = step.instruction.operands
        b, c, members = (self._operands.source(each, "u32") for each in given)
        mode, shape = step.row.opcode.split(".")[2], (-1, WARP_SIZE)
        names, decides = tuple(registers_of(value)), [n for o in given for n in registers_of(o)]
        result, *rest = registers_of(to)
        place = np.arange(self._lanes).reshape(shape)
        self._shuffle_inputs[index] = names

        def lanes_of(source: Source) -> Lanes:
            return np.broadcast_to(value_of(source), self._lanes).reshape(shape)

        def run(mask: Lanes | None) -> None:
            company = self._barriers.company
            active = company.active(self._threads.alive if mask is None else mask).reshape(shape)
            where = [lanes_of(each) for each in company.given[1:] or (b, c, members)]
            source, _ = warp.source_lanes(mode, where[0], where[1])
            part = warp.is_source_participating(active, source, where[2])
            if decides:
                self.use(decides, mask)
            held = self._reconverged_marks() if company.groups else self._of(names)
            action(mask)
            marks = None
            if held is not None:
                marks = np.take_along_axis(held.reshape(shape), source, axis=1)
            if not part[active].all():
                at = np.take_along_axis(place, source, axis=1)
                excused = self._barriers.faulty[at]
                new = (index * self._lanes + place) * WARP_SIZE + source
                old = _DEFINED if marks is None else marks
                marks = np.where(part, old, np.where(excused, _DEFINED, new))
            self._set(result, None if marks is None else marks.reshape(-1), mask)
            for name in rest:
                self._set(name, None, mask)

        return run

    def _reconverged_marks(self) -> UndefinedMarks | None:
        """The marks of what lanes give to a shuffle that they carry out in several places."""
        groups = self._barriers.company.groups
        if self._reconverged_groups is not groups:  # the first of them: none has its result yet
            self._reconverged_groups, self._held = groups, None
            for index, lanes in groups.items():
                marks = self._of(self._shuffle_inputs[index])
                if marks is not None:
                    before = _DEFINED if self._held is None else self._held
                    self._held = np.where(lanes, marks, before)
        return self._held

    def _propagation_rule(self, step: DecodedInstruction) -> Callable[[], UndefinedMarks | None]:
        """Whence the result of an instruction has undefined values."""
        given = step.instruction.operands[1:]
        opcode, row = step.row.opcode, step.row
        if row.kind != "lanes":  # of what is loaded, or voted on, nothing is known
            return lambda: None
        if opcode.startswith("selp."):
            return self._select_rule(given, row.of)
        names = [tuple(registers_of(each)) for each in given]
        joins = next((each for each in opcode.split(".") if each in ("and", "or")), "")
        if joins:  # of a comparison joined to a predicate, the third operand
            settling = range(2 if opcode.startswith("setp.") else 0, len(given))
            sources = {each: self._operands.source(given[each], row.of[each]) for each in settling}
            return self._bitwise_rule(names, sources, every_bit=joins == "or")
        together = tuple(each for some in names for each in some)
        return lambda: self._of(together)

    def _select_rule(
        self, given: Sequence[Operand], types: Sequence[str]
    ) -> Callable[[], UndefinedMarks | None]:
        """Of `selp`: only the operand that is chosen counts."""
        one, other, chosen = (tuple(registers_of(each)) for each in given)
        predicate = self._operands.source(given[2], types[2])

        def rule() -> UndefinedMarks | None:
            marks = [self._of(each) for each in (one, other, chosen)]
            if all(each is None for each in marks):
                return None
            a, b, decides = (_DEFINED if each is None else each for each in marks)
            return np.asarray(np.minimum(np.where(value_of(predicate), a, b), decides))

        return rule

    def _bitwise_rule(
        self, names: Sequence[Collection[str]], sources: Mapping[int, Source], every_bit: bool
    ) -> Callable[[], UndefinedMarks | None]:
        """Of `and` and `or`: an operand without any bit, or with every one, settles the result."""

        def rule() -> UndefinedMarks | None:
            marks = self._of({name for each in names for name in each})
            if marks is None:
                return None
            for number, source in sources.items():
                value, own = value_of(source), self._of(names[number])
                none = np.zeros((), value.dtype)
                settles = value == (~none if every_bit else none)
                if own is not None:
                    settles = settles & (own == _DEFINED)
                marks = np.where(settles, _DEFINED, marks)
            return marks

        return rule

    def _used(self, step: DecodedInstruction) -> tuple[str, ...]:
        """The registers that an instruction uses for what others see."""
        if step.row.kind in _STORE_KINDS and step.row.space in _VISIBLE_SPACES:
            return tuple(registers_read(step))
        guard = step.instruction.guard
        addresses = [each for each in step.instruction.operands if isinstance(each, Address)]
        places = [name for each in addresses for name in registers_of(each)]
        return tuple([guard] if guard else []) + tuple(places)

    # --- Marks -------------------------------------------------------------------------------

    def _of(self, registers: Collection[str]) -> UndefinedMarks | None:
        """The marks of some registers; None where all of their values are defined."""
        found = [self._marks[each] for each in registers if each in self._marks]
        return None if not found else found[0] if len(found) == 1 else np.minimum.reduce(found)

    def _set(self, name: str, marks: UndefinedMarks | None, mask: Lanes | None) -> None:
        """Note what a register holds from now on, in the lanes of a mask."""
        old = self._marks.pop(name, None)
        if marks is None and old is None:
            return
        lanes = self._threads.alive if mask is None else mask
        new = _DEFINED if marks is None else marks
        now = np.where(lanes, new, _DEFINED if old is None else old)
        if (now != _DEFINED).any():
            self._marks[name] = now
