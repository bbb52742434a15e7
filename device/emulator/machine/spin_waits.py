"""Detects spin waits: loops in which a group waits for another thread to write to memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.machine.memory import Mask, Segment
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.program.polling_loops import PolledLocation, PollingLoop
from memlab.device.properties import WARP_SIZE

_ITERATIONS_BETWEEN_CHECKS = 8


@dataclass
class _SpinState:
    """What is known of a loop's iterations.

    Attributes:
        asleep: Lanes whose iterations repeat themselves until a polled value changes, as a mask.
        iterations: How many have run.
        snapshot: The lanes of a group and the values of the registers that the loop writes, at the
            end of an earlier iteration.
    """

    asleep: Mask
    iterations: int = 0
    snapshot: tuple[NDArray[np.int64], list[NDArray[Any]]] | None = None


class SpinWaitDetector:
    """Detects groups that spin, and tells when they have a reason to run again.

    A loop can be a spin wait if it reads memory by an atomic or by a load that observes the writes
    of other threads. Three signs tell that a group spins in it:

    - The loop is a pure poll: it carries no value from one iteration to the next, so that all
      iterations are equal until a polled value changes.
    - An iteration has left all registers that the loop writes unchanged.
    - The loop has run `spin_limit` iterations, for loops that also count or sleep.

    In the first two cases the lanes sleep until a polled value changes: further iterations would
    change nothing but the counts.
    """

    def __init__(
        self,
        loops: Mapping[int, PollingLoop],
        operands: Operands,
        segments: Mapping[str, Segment],
    ) -> None:
        """Watch the loops of a program that poll memory; `segments` are state spaces by name."""
        self._operands, self._segments, self._loops = operands, segments, loops
        self._states = {
            head: _SpinState(np.zeros(operands.lanes, np.bool_)) for head in self._loops
        }

    def is_spin_iteration(self, head: int, lanes: Mask) -> bool:
        """Whether lanes that branch back to the first instruction of a loop are in a spin wait."""
        loop = self._loops.get(head)
        if loop is None:
            return False
        state = self._states[head]
        state.iterations += 1
        if loop.is_pure_poll or self._is_unchanged(loop, state, lanes):
            state.asleep |= lanes
            return True
        state.asleep &= ~lanes
        return state.iterations % loop.spin_limit == 0

    def lanes_to_resume(self, waiting: Mapping[int, Mask]) -> Mask:
        """Select the lanes of the warps for which a polled value has changed.

        Args:
            waiting: Deferred groups as masks, by the first instruction of their loop.

        Returns:
            These lanes. Where no value has changed, all: they wait for time to pass, or for a write
            that will not come.
        """
        resumed = np.zeros(self._operands.lanes, np.bool_)
        for head, lanes in waiting.items():
            loop = self._loops[head]
            selected = lanes
            if loop.polled_locations is not None:
                asleep = lanes & self._states[head].asleep
                selected = lanes & (self._warps_with_changes(loop, asleep) | ~asleep)
            resumed |= selected
        return resumed if resumed.any() else np.logical_or.reduce(list(waiting.values()))

    def _is_unchanged(self, loop: PollingLoop, state: _SpinState, lanes: Mask) -> bool:
        """Whether iterations left all registers unchanged; compares them only now and then."""
        register = self._operands.register
        if state.snapshot is not None:
            snapshot_lanes, snapshot_values = state.snapshot
            is_running = lanes[snapshot_lanes]
            if np.count_nonzero(is_running) == np.count_nonzero(lanes) and all(
                np.array_equal(register(name)[lanes], values[is_running])
                for name, values in zip(loop.written, snapshot_values, strict=True)
            ):
                return True
            state.snapshot = None
        if state.iterations % _ITERATIONS_BETWEEN_CHECKS == 0:
            values = [register(name)[lanes] for name in loop.written]
            state.snapshot = np.flatnonzero(lanes), values
        return False

    def _warps_with_changes(self, loop: PollingLoop, lanes: Mask) -> Mask:
        """The warps with a lane for which memory no longer holds the values that it read last."""
        indices, changed = np.flatnonzero(lanes), np.zeros_like(lanes)
        differs = np.zeros(len(indices), np.bool_)
        for location in loop.polled_locations or ():
            now = self._read_polled(location, indices)
            for register, values in zip(location.result_registers, now, strict=True):
                before = self._operands.register(register)[indices]
                differs |= before.astype(values.dtype) != values
        changed[indices] = differs
        return np.repeat(changed.reshape(-1, WARP_SIZE).any(axis=1), WARP_SIZE)

    def _read_polled(self, location: PolledLocation, lanes: NDArray[np.int64]) -> NDArray[Any]:
        """The elements at a polled location for some lanes, shape (elements, lanes)."""
        address = self._operands.register(location.base)[lanes].astype(np.int64) + location.offset
        if location.space != "generic":
            return self._read(location, self._segments[location.space], address, lanes)
        values = np.zeros((len(location.result_registers), len(lanes)), f"u{location.width}")
        for name, window, chosen in split_by_space(address, np.ones(len(lanes), np.bool_)):
            values[:, chosen] = self._read(
                location, self._segments[name], address[chosen] - window, lanes[chosen]
            )
        return values

    def _read(
        self,
        location: PolledLocation,
        segment: Segment,
        address: NDArray[np.int64],
        lanes: NDArray[np.int64],
    ) -> NDArray[Any]:
        """The elements at addresses in a state space, shape (elements, lanes)."""
        elements = segment.typed(np.dtype(f"u{location.width}"))
        first = segment.positions(address, lanes) // location.width
        # A lane that did not read may have any address.
        parts = range(len(location.result_registers))
        return np.stack([elements.take(first + part, mode="clip") for part in parts])
