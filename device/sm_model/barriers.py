"""Barriers in shared memory (`mbarrier`) and named ones: which instruction makes which operation.

A warp's operations are known by the line of the PTX, in order. The instructions of the machine code
that come from a line are a *site*: whichever of them the warp issues makes the next operation.

A thread tests a barrier until it succeeds. ptxas often makes two instructions of it: a test that
the thread passes if the phase is complete, and another one out of line, where it tries again. The
model waits at the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memlab.device.emulator.machine.barrier_log import BarrierOperation, BarrierOperations
from memlab.device.machine_code.instructions import MachineCode
from memlab.device.sm_model.simulation import BarrierWork

_TEST = "SYNCS.PHASECHK"
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


def barrier_work(code: MachineCode, barriers: BarrierOperations, warps: int) -> BarrierWork:
    """The operations of each warp of a block at each site."""
    if not barriers.operations:
        return BarrierWork()
    retried = {code.instructions[first].ptx_line for first in _retries(code)}
    return BarrierWork(
        barriers.arrivals,
        tuple(
            tuple(
                _at_site(barriers.operations.get((warp, line), ()), line in retried)
                for line in _lines(barriers)
            )
            for warp in range(warps)
        ),
    )


def _lines(barriers: BarrierOperations) -> list[int]:
    return sorted({line for _, line in barriers.operations})


def _at_site(
    operations: Sequence[BarrierOperation], retried: bool
) -> tuple[tuple[int, int, int, int], ...]:
    """The operations as the simulation has them; with `retried`, one for all tries of a test."""
    items: list[tuple[int, int, int, int]] = []
    for done in operations:
        item = (done.barrier, done.arrivals, done.transactions, done.phases or 0)
        if not (retried and done.phases is not None and items and items[-1] == item):
            items.append(item)
    return tuple(items)


def _retries(code: MachineCode) -> Mapping[int, list[int]]:
    """The tests out of line that another one goes on to where it fails, by that other one."""
    found: dict[int, list[int]] = {}
    steps = code.instructions
    for position, step in enumerate(steps):
        if not step.opcode.startswith(_TEST):
            continue
        branch = next((s for s in steps[position + 1 : position + 8] if s.name == "BRA"), None)
        if branch is None or branch.target is None or branch.target not in code.positions:
            continue
        at = code.positions[branch.target]
        while at < len(steps) and steps[at].name in _BETWEEN:
            at += 1
        other = steps[at] if at < len(steps) and at != position else None
        if other and other.opcode.startswith(_TEST) and other.ptx_line == step.ptx_line:
            found.setdefault(position, []).append(at)
    return found
