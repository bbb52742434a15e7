"""Tells observers which instructions lanes execute, range by range, and where they go."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.codegen.stretches import CONTROL_KINDS
from memlab.device.emulator.machine.context import ChunkContext, words_to_lanes
from memlab.device.emulator.machine.memory import Mask
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.scheduler import Scheduler


class FlowObservation:
    """Follows a chunk stretch by stretch.

    Attributes:
        is_needed: Whether an observer asks for it; else the machine code runs on by itself.
    """

    def __init__(
        self,
        native: NativeProgram,
        context: ChunkContext,
        scheduler: Scheduler,
        observers: Sequence[Observer],
    ) -> None:
        self._native, self._context, self._scheduler = native, context, scheduler
        self._observers = [observer for observer in observers if observer.observes_flow]
        self.is_needed = bool(self._observers)
        self._range: tuple[int, int, Mask] | None = None

    def advanced(self) -> None:
        """The running group executed the stretch at its slot, or is about to go on from there."""
        if not self.is_needed:
            return
        steps, counter = self._native.program.steps, self._scheduler.counter
        is_control = counter == len(steps) or steps[counter].row.kind in CONTROL_KINDS
        if counter < len(steps) and (is_control or not self._context.interrupts):
            self.executed_here(ends=is_control)
        if is_control:
            self.control_reached(self._observers)

    def executed_here(self, *, ends: bool = False) -> None:
        """The running group executed what lies at its slot; `ends` if it does not simply go on."""
        if not self.is_needed:
            return
        counter, slot = self._scheduler.counter, self._native.slots[self._context["slot"]]
        joins = int(slot["next"]) == self._context["limit"]
        self.executed(counter, max(int(slot["stop"]), counter + 1), ends=ends or joins)

    def control_reached(self, observers: Collection[Observer]) -> None:
        """The running group is at an instruction of control, or at the program's end."""
        context, steps, counter = self._context, self._native.program.steps, self._scheduler.counter
        if counter == len(steps):
            mask = self._scheduler.running
            for observer in observers:
                observer.control_transferred(counter, mask)
            return
        step, slot = steps[counter], self._native.slots[context["slot"]]
        if step.instruction.guard is not None:
            mask = self._scheduler.running
            for observer in observers:
                observer.guard_read(step.instruction.guard, mask)
        taken = context.call("evaluate_guard")
        leaves = step.row.kind == "exit" or (step.row.kind == "branch" and not slot["polls"])
        if taken and leaves:  # a loop that polls is told of where it may spin
            mask = words_to_lanes(context.taken)
            for observer in observers:
                observer.control_transferred(counter, mask)

    def executed(self, start: int, stop: int, *, ends: bool) -> None:
        """The running group executed instructions; `ends` if it does not simply go on behind."""
        if not self.is_needed:
            return
        if self._range is None:
            self._range = start, stop, self._scheduler.running
        else:
            self._range = self._range[0], stop, self._range[2]
        if ends:
            for observer in self._observers:
                observer.range_executed(*self._range)
            self._range = None
