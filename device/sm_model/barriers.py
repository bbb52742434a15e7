"""Barriers in shared memory (`mbarrier`) and named ones: which instruction makes which operation.

A warp's operations are known in order, with the line of the PTX. The instructions of the machine
code that come from a line are a *site*: whichever of them the warp issues makes the next operation
there. The path of the warp follows the order of all operations (`operation_order.py`).

A thread tests a barrier until it succeeds. ptxas often makes two instructions of it: a test that
the thread passes if the phase is complete, and another one out of line, where it tries again. The
model waits at the first one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from memlab.device.emulator.machine.barrier_log import BarrierOperation, BarrierOperations
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.sm_model.operation_order import Site
from memlab.device.sm_model.records import NONE
from memlab.device.sm_model.simulation import BarrierWork, Steps

Item: TypeAlias = tuple[int, int, int, int, int]
"""An `Operation` record."""
NO_OPERATION: Item = (NONE, 0, 0, 0, 0)
"""That of an instruction whose predicate is off."""

_TEST = "SYNCS.PHASECHK"
_ENDS = frozenset(("BRA", "BRX", "CALL", "EXIT", "RET"))
_BETWEEN = frozenset(("NOP", "YIELD", "NANOSLEEP"))


def sites_of(code: MachineCode, barriers: BarrierOperations) -> dict[int, int]:
    """The sites, by the position of each instruction that operates on a barrier."""
    number = {line: place for place, line in enumerate(_lines(barriers))}
    again = {retry for retries in _retries(code).values() for retry in retries}
    return {
        position: number[step.ptx_line]
        for position, step in enumerate(code.instructions)
        if step.ptx_line in number and position not in again
    }


def sites_in_order(code: MachineCode, steps: Steps, positions: Iterable[int]) -> tuple[Site, ...]:
    """The instructions among some that operate on barriers when they are issued.

    Args:
        code: The machine code.
        steps: Its instructions as records of the simulation.
        positions: The positions of the instructions.
    """
    return tuple(
        Site(position, int(steps[position]["site"]), bool(code.instructions[position].predicate))
        for position in sorted(positions)
        if steps[position]["site"] >= 0
    )


def warp_operations(
    code: MachineCode, barriers: BarrierOperations, warps: int
) -> tuple[tuple[tuple[int, Item], ...], ...]:
    """The operations of each warp of a block in order, with the site of each of them."""
    number = {line: place for place, line in enumerate(_lines(barriers))}
    retried = {code.instructions[first].ptx_line for first in _retries(code)}
    return tuple(
        tuple(
            (number[done.line], _item(done))
            for done in _without_retries(barriers.operations.get(warp, ()), retried)
        )
        for warp in range(warps)
    )


def _item(done: BarrierOperation) -> Item:
    return done.barrier, done.arrivals, done.transactions, done.phases or 0, int(done.is_far)


def barrier_work(
    barriers: BarrierOperations,
    operations: Sequence[Sequence[tuple[int, Item]]],
    idle: Sequence[Sequence[tuple[int, int]]],
) -> BarrierWork:
    """The operations of each warp of a block at each site.

    Args:
        barriers: The barriers.
        operations: The operations of each warp, with their sites.
        idle: The executions of sites by each warp that make no operation: the site, and how many
            operations it has made there before.
    """
    if not barriers.operations:
        return BarrierWork()
    sites, found = len(_lines(barriers)), []
    for of_warp, idle_ones in zip(operations, idle, strict=True):
        by_site: list[list[Item]] = [[] for _ in range(sites)]
        idle_times, made = Counter(idle_ones), Counter[int]()
        for site, item in of_warp:
            by_site[site] += [NO_OPERATION] * idle_times[site, made[site]] + [item]
            made[site] += 1
        found.append(tuple(map(tuple, by_site)))
    return BarrierWork(barriers.arrivals, tuple(found))


def _lines(barriers: BarrierOperations) -> list[int]:
    return sorted({done.line for of_warp in barriers.operations.values() for done in of_warp})


def _without_retries(
    operations: Sequence[BarrierOperation], retried: Collection[int]
) -> list[BarrierOperation]:
    """The operations with one for all tries of a test that is tried again out of line."""
    kept: list[BarrierOperation] = []
    for done in operations:
        again = done.phases is not None and done.line in retried
        if not (again and kept and kept[-1] == done):
            kept.append(done)
    return kept


def _retries(code: MachineCode) -> Mapping[int, list[int]]:
    """The tests out of line that another one goes on to where it fails, by that other one."""
    found: dict[int, list[int]] = {}
    steps = code.instructions
    for position, step in enumerate(steps):
        if not step.opcode.startswith(_TEST):
            continue
        branch = next((s for s in steps[position + 1 :] if s.name in _ENDS), None)
        if branch is None or branch.target is None or branch.target not in code.positions:
            continue
        at = code.positions[branch.target]
        while at < len(steps) and steps[at].name in _BETWEEN:
            at += 1
        other = steps[at] if at < len(steps) and at != position else None
        if other and other.opcode.startswith(_TEST) and other.ptx_line == step.ptx_line:
            found.setdefault(position, []).append(at)
    return found
