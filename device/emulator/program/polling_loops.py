"""Loops that poll memory: in them, a thread may wait for another one to write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memlab.device.emulator.isa import mbarrier
from memlab.device.emulator.isa.special_registers import CLOCK_REGISTERS
from memlab.device.emulator.program.code_layout import loop_branches
from memlab.device.emulator.program.program import (
    DecodedInstruction,
    Program,
)
from memlab.device.emulator.ptx.parser import TYPE_BYTES, Register, registers_of

_SPIN_LIMIT_WITH_SLEEP, _SPIN_LIMIT = 64, 4096
"""Iterations after which a loop counts as a spin wait, with a `nanosleep` in it and without."""

_MUTABLE_SPACES = ("generic", "global", "shared", "local")


@dataclass(frozen=True)
class PolledLocation:
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


@dataclass(frozen=True)
class PollingLoop:
    """A loop that reads memory so that it observes the writes of other threads.

    Attributes:
        head: Its first instruction.
        written: The registers that it writes.
        polled_locations: All memory locations that it reads; None where they cannot be tracked.
        is_pure_poll: Whether an iteration depends on the polled values alone.
        spin_limit: Iterations after which the loop counts as a spin wait in any case.
    """

    head: int
    written: tuple[str, ...]
    polled_locations: tuple[PolledLocation, ...] | None
    is_pure_poll: bool
    spin_limit: int


def find_polling_loops(program: Program) -> Mapping[int, PollingLoop]:
    """The loops of a program that poll memory, by their first instruction.

    A loop that only contains waits for mbarriers is none: each is a loop of its own, and whoever
    leaves it has read that a phase is complete, whatever was read before.
    """
    loops, waits = {}, set[int]()
    inner_first = sorted(loop_branches(program.steps).items(), reverse=True)
    for head, ends in inner_first:
        body = program.steps[head : ends[-1] + 1]
        polls = {head + number for number, step in enumerate(body) if _polls_memory(step)}
        if not polls <= waits:
            written = [name for step in body for name in step.registers_written]
            locations = _polled_locations(body, written)
            sleeps = any(step.row.opcode.startswith("nanosleep") for step in body)
            loops[head] = PollingLoop(
                head,
                tuple(dict.fromkeys(name for name in written if name in program.registers)),
                locations,
                locations is not None and len(ends) == 1 and _is_pure_poll(body, written),
                _SPIN_LIMIT_WITH_SLEEP if sleeps else _SPIN_LIMIT,
            )
            if loops[head].is_pure_poll and all(
                mbarrier.is_test(program.steps[index].instruction) for index in polls
            ):
                waits |= polls
    return loops


def _polls_memory(step: DecodedInstruction) -> bool:
    """Whether an instruction reads memory so that it observes the writes of other threads.

    An arrival at an mbarrier reads nothing where its thread does not take the token.
    """
    if mbarrier.is_change(step.instruction) and step.instruction.operands[0] == Register("_"):
        return False
    words = step.instruction.opcode.split(".")
    strong = not {"volatile", "relaxed", "acquire", "mmio"}.isdisjoint(words)
    return step.row.kind == "atomic" or (step.row.kind == "load" and strong)


def _is_pure_poll(body: tuple[DecodedInstruction, ...], written: list[str]) -> bool:
    """Whether an iteration depends on memory alone, stores nothing and carries no value on."""
    *before_branch, branch = body
    computed: set[str] = set()  # in this iteration
    for step in before_branch:
        read = set(step.registers_read)
        if (
            step.instruction.guard
            or step.row.kind not in ("lanes", "warp", "load", "atomic", "nothing")
            or not read & set(written) <= computed
            or read & CLOCK_REGISTERS
        ):
            return False
        computed |= set(step.registers_written)
    return branch.instruction.guard in computed


def _polled_locations(
    body: tuple[DecodedInstruction, ...], written: list[str]
) -> tuple[PolledLocation, ...] | None:
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


def _polled_location(step: DecodedInstruction) -> PolledLocation | None:
    """The location that a load or atomic reads; None where address or result is in no register."""
    address, width = step.address, TYPE_BYTES[step.row.to[0]]
    results = tuple(registers_of(step.instruction.operands[0]))
    if not isinstance(address.base, Register) or width > 8 or "_" in results:
        return None
    return PolledLocation(step.row.space, address.base.name, address.offset, width, results)
