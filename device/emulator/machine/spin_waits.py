"""Detects spin waits: loops in which a group waits for another thread to write to memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.machine.memory import Segment
from memlab.device.emulator.machine.operands import Operands
from memlab.device.emulator.machine.scheduler import Mask, active_warps
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
    registers_of,
    registers_read,
    registers_written,
)
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Address, Register
from memlab.device.properties import WARP_SIZE

_ITERATIONS_BETWEEN_CHECKS = 8
_SPIN_LIMIT_WITH_SLEEP, _SPIN_LIMIT = 64, 4096
"""Iterations after which a loop counts as a spin wait, with a `nanosleep` in it and without."""

_MUTABLE_SPACES = ("generic", "global", "shared", "local")


@dataclass(frozen=True)
class _PolledLocation:
    """A memory location that a loop reads in each iteration.

    Attributes:
        space: Its state space, or `generic`.
        base: The register that holds the address, without the offset.
        offset: Bytes added to it.
        width: Bytes of an element.
        result_registers: The register that each element is loaded into.
    """

    space: str
    base: str
    offset: int
    width: int
    result_registers: tuple[str, ...]


@dataclass
class _SpinLoop:
    """A loop that polls memory.

    Attributes:
        written: The registers that it writes.
        polled_locations: All memory locations that it reads; None where they cannot be tracked.
        is_pure_poll: Whether an iteration depends on the polled values alone.
        spin_limit: Iterations after which the loop counts as a spin wait in any case.
        asleep: Lanes whose iterations repeat themselves until a polled value changes, as a mask.
        iterations: How many have run.
        snapshot: The lanes of a group and the values of `written` in them, at the end of an
            earlier iteration.
    """

    written: tuple[str, ...]
    polled_locations: tuple[_PolledLocation, ...] | None
    is_pure_poll: bool
    spin_limit: int
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
        self, program: Program, operands: Operands, segments: Mapping[str, Segment]
    ) -> None:
        """Find the loops of a program that poll memory; `segments` are the state spaces by name."""
        self._operands, self._segments = operands, segments
        self._loops: dict[int, _SpinLoop] = {}  # by their first instruction
        branches: dict[int, list[int]] = {}
        for index, step in enumerate(program.steps):
            if 0 <= step.target <= index:
                branches.setdefault(step.target, []).append(index)
        for head, ends in branches.items():
            body = program.steps[head : max(ends) + 1]
            if any(map(_polls_memory, body)):
                written = [name for step in body for name in registers_written(step)]
                locations = _polled_locations(body, written)
                sleeps = any(step.row.opcode.startswith("nanosleep") for step in body)
                self._loops[head] = _SpinLoop(
                    tuple(set(written) & program.registers.keys()),
                    locations,
                    locations is not None and len(ends) == 1 and _is_pure_poll(body, written),
                    _SPIN_LIMIT_WITH_SLEEP if sleeps else _SPIN_LIMIT,
                    np.zeros(operands.lanes, np.bool_),
                )

    def is_spin_iteration(self, head: int, lanes: Mask) -> bool:
        """Whether lanes that branch back to the first instruction of a loop are in a spin wait."""
        loop = self._loops.get(head)
        if loop is None:
            return False
        loop.iterations += 1
        if loop.is_pure_poll or self._is_unchanged(loop, lanes):
            loop.asleep |= lanes
            return True
        loop.asleep &= ~lanes
        return loop.iterations % loop.spin_limit == 0

    def warps_to_resume(self, waiting: Mapping[int, Mask]) -> dict[int, Mask]:
        """Select the warps for which a polled value has changed.

        Args:
            waiting: Deferred groups as masks, by the first instruction of their loop.

        Returns:
            Their lanes in the same form. Where no value has changed, all groups: they wait for
            time to pass, or for a write that will not come.
        """
        resumed = {}
        for head, lanes in waiting.items():
            loop = self._loops[head]
            selected = lanes
            if loop.polled_locations is not None:
                asleep = lanes & loop.asleep
                selected = lanes & (_whole_warps(self._lanes_with_changes(loop, asleep)) | ~asleep)
            if selected.any():
                resumed[head] = selected
        return resumed or dict(waiting)

    def _is_unchanged(self, loop: _SpinLoop, lanes: Mask) -> bool:
        """Whether iterations left all registers unchanged; compares them only now and then."""
        register = self._operands.register
        if loop.snapshot is not None:
            snapshot_lanes, snapshot_values = loop.snapshot
            is_running = lanes[snapshot_lanes]
            if np.count_nonzero(is_running) == np.count_nonzero(lanes) and all(
                np.array_equal(register(name)[lanes], values[is_running])
                for name, values in zip(loop.written, snapshot_values, strict=True)
            ):
                return True
            loop.snapshot = None
        if loop.iterations % _ITERATIONS_BETWEEN_CHECKS == 0:
            values = [register(name)[lanes] for name in loop.written]
            loop.snapshot = np.flatnonzero(lanes), values
        return False

    def _lanes_with_changes(self, loop: _SpinLoop, lanes: Mask) -> Mask:
        """The lanes for which memory no longer holds the values that they read last, as a mask."""
        indices = np.flatnonzero(lanes)
        changed = np.zeros(len(indices), np.bool_)
        for location in loop.polled_locations or ():
            for register, now in zip(
                location.result_registers, self._read_polled(location, indices), strict=True
            ):
                before = self._operands.register(register)[indices]
                changed |= before.astype(now.dtype) != now
        with_changes = np.zeros(len(lanes), np.bool_)
        with_changes[indices[changed]] = True
        return with_changes

    def _read_polled(self, location: _PolledLocation, lanes: NDArray[np.int64]) -> NDArray[Any]:
        """The elements at a polled location for some lanes, shape (elements, lanes)."""
        address = self._operands.register(location.base)[lanes].astype(np.int64) + location.offset
        values = np.zeros((len(location.result_registers), len(lanes)), f"u{location.width}")
        all_lanes = np.ones(len(lanes), np.bool_)
        spaces: Any = [(location.space, 0, all_lanes)]
        if location.space == "generic":
            spaces = split_by_space(address, all_lanes)
        for name, window, chosen in spaces:
            segment = self._segments[name]
            position = address[chosen] - window - segment.origin
            if segment.lane_base is not None:
                position += segment.lane_base[lanes[chosen]]
            elements = segment.typed(values.dtype)
            first = position // location.width
            for number in range(len(values)):  # a lane that did not read may have any address
                values[number, chosen] = elements.take(first + number, mode="clip")
        return values


def _polls_memory(step: DecodedInstruction) -> bool:
    """Whether an instruction reads memory so that it observes the writes of other threads."""
    words = step.instruction.opcode.split(".")
    strong = not {"volatile", "relaxed", "acquire", "mmio"}.isdisjoint(words)
    return step.row.kind == "atomic" or (step.row.kind == "load" and strong)


def _is_pure_poll(body: tuple[DecodedInstruction, ...], written: list[str]) -> bool:
    """Whether an iteration depends on memory alone, stores nothing and carries no value on."""
    *before_branch, branch = body
    computed: set[str] = set()  # in this iteration
    for step in before_branch:
        read = set(registers_read(step))
        if (
            step.instruction.guard
            or step.row.kind not in ("lanes", "warp", "load", "atomic", "nothing")
            or not read & set(written) <= computed
            or read & CLOCK_REGISTERS
        ):
            return False
        computed |= set(registers_written(step))
    return branch.instruction.guard in computed


def _polled_locations(
    body: tuple[DecodedInstruction, ...], written: list[str]
) -> tuple[_PolledLocation, ...] | None:
    """The locations that a loop polls; None where no register keeps an address or a result."""
    reads = [step for step in body if step.row.kind in ("load", "atomic")]
    locations = [_polled_location(step) for step in reads if step.row.space in _MUTABLE_SPACES]
    written_once = {name for name in written if written.count(name) == 1}
    tracked = tuple(
        location
        for location in locations
        if location is not None
        and written_once.issuperset(location.result_registers)
        and (location.base in written_once or location.base not in written)
    )
    return tracked if len(tracked) == len(locations) else None


def _polled_location(step: DecodedInstruction) -> _PolledLocation | None:
    """The location that a load or atomic reads; None where address or result is in no register."""
    to, address, *_ = step.instruction.operands
    results, width = tuple(registers_of(to)), TYPE_BYTES[step.row.to[0]]
    assert isinstance(address, Address)
    if not isinstance(address.base, Register) or width > 8 or "_" in results:
        return None
    return _PolledLocation(step.row.space, address.base.name, address.offset, width, results)


def _whole_warps(lanes: Mask) -> Mask:
    """All lanes of the warps that have one of these lanes, as a mask."""
    return np.asarray(np.repeat(active_warps(lanes), WARP_SIZE))
