"""Tells observers which instructions lanes execute, range by range, and where they go."""

from __future__ import annotations

from collections.abc import Sequence

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
        context, steps = self._context, self._native.program.steps
        counter, slot = self._scheduler.counter, self._native.slots[context["slot"]]
        if counter == len(steps):
            self._tell_transfer(counter, self._scheduler.running)
            return
        step = steps[counter]
        is_control = step.row.kind in CONTROL_KINDS
        joins = int(slot["next"]) == context["limit"]
        self.executed(counter, max(int(slot["stop"]), counter + 1), ends=is_control or joins)
        if not is_control:
            return
        if step.instruction.guard is not None:
            mask = self._scheduler.running
            for observer in self._observers:
                observer.guard_read(step.instruction.guard, mask)
        taken = context.call("evaluate_guard")
        # Lanes that exit go on here together, apart from the others; a polling loop tells itself.
        whole = taken == context["lanes_running"]
        branches = step.row.kind == "branch" and taken and not slot["polls"]
        if branches or (step.row.kind == "exit" and whole):
            self._tell_transfer(counter, words_to_lanes(context.taken))

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

    def _tell_transfer(self, index: int, mask: Mask) -> None:
        for observer in self._observers:
            observer.control_transferred(index, mask)
