"""Which groups only wait in a loop for what another thread will write, and when it was written."""

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
_SPIN_LIMIT_WITH_SLEEP, _SPIN_LIMIT = (
    64,
    4096,
)  # turns that are taken for waiting, with a sleep and without

_MUTABLE_SPACES = ("generic", "global", "shared", "local")


@dataclass(frozen=True)
class _PolledLocation:
    """What a loop asks memory.

    Attributes:
        space: As of a row.
        base: The register that the address starts from.
        offset: Bytes added to it.
        width: Bytes of an element.
        answers: The register that each element goes to.
    """

    space: str
    base: str
    offset: int
    width: int
    result_registers: tuple[str, ...]


@dataclass
class _SpinLoop:
    """A loop that asks memory.

    Attributes:
        written: The registers that it writes.
        questions: All that it asks; None where that is not followed.
        polls: Whether a turn depends on the answers alone.
        patience: How many turns are taken for waiting.
        asleep: Lanes whose turns stay alike until an answer changes.
        turns: How many were counted.
        seen: Some lanes' places and what `written` held for them at the end of a turn.
    """

    written: tuple[str, ...]
    polled_locations: tuple[_PolledLocation, ...] | None
    is_pure_poll: bool
    spin_limit: int
    asleep: Mask
    turns: int = 0
    seen: tuple[NDArray[np.int64], list[NDArray[Any]]] | None = None


class SpinWaitDetector:
    """Tells when a group waits in a loop for what another thread will write.

    Such a loop asks memory again and again, by an atomic or by a load that sees what others write.
    One that carries nothing from turn to turn *polls*: until memory answers something else, every
    turn is like the last. Of another loop, a turn that leaves all its registers as they were shows
    the same. Whoever waits so is left asleep till then, as more turns would only be counted. Where
    a loop also counts or sleeps, many turns are taken for waiting.
    """

    def __init__(
        self, program: Program, operands: Operands, segments: Mapping[str, Segment]
    ) -> None:
        """Look for such loops; `segments` are the state spaces by name."""
        self._operands, self._segments = operands, segments
        self._loops: dict[int, _SpinLoop] = {}  # by their heads
        branches: dict[int, list[int]] = {}
        for index, step in enumerate(program.steps):
            if 0 <= step.target <= index:
                branches.setdefault(step.target, []).append(index)
        for head, ends in branches.items():
            body = program.steps[head : max(ends) + 1]
            if any(map(_polls_memory, body)):
                written = [name for each in body for name in registers_written(each)]
                questions = _polled_locations(body, written)
                sleeps = any(each.row.opcode.startswith("nanosleep") for each in body)
                self._loops[head] = _SpinLoop(
                    tuple(set(written) & program.registers.keys()),
                    questions,
                    questions is not None and len(ends) == 1 and _is_pure_poll(body, written),
                    _SPIN_LIMIT_WITH_SLEEP if sleeps else _SPIN_LIMIT,
                    np.zeros(operands.lanes, np.bool_),
                )

    def is_spin_iteration(self, head: int, lanes: Mask) -> bool:
        """Lanes go back to the head of a loop: whether they only wait."""
        loop = self._loops.get(head)
        if loop is None:
            return False
        loop.turns += 1
        if loop.is_pure_poll or self._is_unchanged(loop, lanes):
            loop.asleep |= lanes
            return True
        loop.asleep &= ~lanes
        return loop.turns % loop.spin_limit == 0

    def warps_to_resume(self, waiting: Mapping[int, Mask]) -> dict[int, Mask]:
        """Of groups that wait at the heads of loops, the warps that have a reason to go on.

        Where none has, all of them: then they wait for what nobody will write, or for time.
        """
        woken = {}
        for head, lanes in waiting.items():
            loop = self._loops[head]
            found = lanes
            if loop.polled_locations is not None:
                asleep = lanes & loop.asleep
                found = lanes & (_whole_warps(self._lanes_with_changes(loop, asleep)) | ~asleep)
            if found.any():
                woken[head] = found
        return woken or dict(waiting)

    def _is_unchanged(self, loop: _SpinLoop, lanes: Mask) -> bool:
        """Whether a turn left all registers as they were before it; looks only now and then."""
        register = self._operands.register
        if loop.seen is not None:
            places, held = loop.seen
            among = lanes[places]
            if np.count_nonzero(among) == np.count_nonzero(lanes) and all(
                np.array_equal(register(name)[lanes], values[among])
                for name, values in zip(loop.written, held, strict=True)
            ):
                return True
            loop.seen = None
        if loop.turns % _ITERATIONS_BETWEEN_CHECKS == 0:
            loop.seen = np.flatnonzero(lanes), [register(each)[lanes] for each in loop.written]
        return False

    def _lanes_with_changes(self, loop: _SpinLoop, lanes: Mask) -> Mask:
        """The lanes for which memory no longer holds what it answered last."""
        places = np.flatnonzero(lanes)
        news = np.zeros(len(places), np.bool_)
        for question in loop.polled_locations or ():
            for answer, now in zip(
                question.result_registers, self._read_polled(question, places), strict=True
            ):
                before = self._operands.register(answer)[places]
                news |= before.astype(now.dtype) != now
        found = np.zeros(len(lanes), np.bool_)
        found[places[news]] = True
        return found

    def _read_polled(self, question: _PolledLocation, places: NDArray[np.int64]) -> NDArray[Any]:
        """What memory holds for some lanes, shape (elements, lanes)."""
        address = self._operands.register(question.base)[places].astype(np.int64) + question.offset
        found = np.zeros((len(question.result_registers), len(places)), f"u{question.width}")
        everyone = np.ones(len(places), np.bool_)
        spaces: Any = [(question.space, 0, everyone)]
        if question.space == "generic":
            spaces = split_by_space(address, everyone)
        for name, window, chosen in spaces:
            segment = self._segments[name]
            at = address[chosen] - window - segment.origin
            if segment.lane_base is not None:
                at += segment.lane_base[places[chosen]]
            elements = segment.typed(found.dtype)
            for number in range(len(found)):  # a lane that did not ask may have any address
                found[number, chosen] = elements.take(at // question.width + number, mode="clip")
        return found


def _polls_memory(step: DecodedInstruction) -> bool:
    words = step.instruction.opcode.split(".")
    strong = not {"volatile", "relaxed", "acquire", "mmio"}.isdisjoint(words)
    return step.row.kind == "atomic" or (step.row.kind == "load" and strong)


def _is_pure_poll(body: tuple[DecodedInstruction, ...], written: list[str]) -> bool:
    """Whether a turn depends on memory alone, and neither stores nor carries anything on."""
    *straight, last = body
    known: set[str] = set()
    for step in straight:
        read = set(registers_read(step))
        if (
            step.instruction.guard
            or step.row.kind not in ("lanes", "warp", "load", "atomic", "nothing")
            or not read & set(written) <= known
            or read & CLOCK_REGISTERS
        ):
            return False
        known |= set(registers_written(step))
    return last.instruction.guard in known


def _polled_locations(
    body: tuple[DecodedInstruction, ...], written: list[str]
) -> tuple[_PolledLocation, ...] | None:
    """What a loop asks; None where the registers do not keep what was asked and answered."""
    asking = [each for each in body if each.row.kind in ("load", "atomic")]
    found = tuple(_polled_location(each) for each in asking if each.row.space in _MUTABLE_SPACES)
    once = {name for name in written if written.count(name) == 1}
    questions = tuple(
        each
        for each in found
        if each is not None
        and once.issuperset(each.result_registers)
        and (each.base in once or each.base not in written)
    )
    return questions if len(questions) == len(found) else None


def _polled_location(step: DecodedInstruction) -> _PolledLocation | None:
    """What a load or an atomic asks; None where its address or its answer is in no register."""
    to, address, *_ = step.instruction.operands
    answers, width = tuple(registers_of(to)), TYPE_BYTES[step.row.to[0]]
    assert isinstance(address, Address)
    if not isinstance(address.base, Register) or width > 8 or "_" in answers:
        return None
    return _PolledLocation(step.row.space, address.base.name, address.offset, width, answers)


def _whole_warps(lanes: Mask) -> Mask:
    """All lanes of the warps that have some of these."""
    return np.asarray(np.repeat(active_warps(lanes), WARP_SIZE))
