"""Binds an instruction that computes to the arrays it works on, so that running it is one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.isa.table import NUMPY_TYPES, Row
from memlab.device.emulator.machine.access_costs import Tally
from memlab.device.emulator.machine.operands import Operands, Source, value_of
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.machine.warp_synchronization import ParticipatingLanes
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import PtxError, Vector

Action: TypeAlias = Callable[["Mask | None"], None]
"""Runs an instruction for the lanes of a mask; None for all."""


def bind_lanewise(operands: Operands, step: DecodedInstruction) -> Action:
    """An instruction that computes each lane from its own sources."""
    row, (to, *given) = step.row, step.instruction.operands
    sources = [operands.source(o, t) for o, t in zip(given, row.of, strict=True)]
    function = row.function
    assert function is not None
    if isinstance(to, Vector) and len(row.to) == 1:
        return _unpack(operands, to, row, sources)
    targets = operands.destinations(to, row.to)
    write, target = targets[0]
    fixed = [each for each in sources if not callable(each)]
    direct = (
        isinstance(function, np.ufunc)
        and len(fixed) == len(sources) == function.nin
        and target is not None
        and any(each.ndim for each in fixed)
    )

    def run_direct(mask: Mask | None) -> None:
        if mask is None:
            function(*fixed, out=target)
            write(None, None)
        else:
            write(function(*fixed), mask)

    def run(mask: Mask | None) -> None:
        value = function(*map(value_of, sources))
        write(value if len(row.to) == 1 else value[0], mask)

    def run_pair(mask: Mask | None) -> None:
        values = function(*map(value_of, sources))
        for (write, _), value in zip(targets, values, strict=True):
            write(value, mask)

    return run_direct if direct else run if len(targets) == 1 else run_pair


def bind_collective(
    operands: Operands,
    step: DecodedInstruction,
    alive: Mask,
    size: int,
    company: ParticipatingLanes,
) -> Action:
    """An instruction of whole warps, or of whole blocks.

    Args:
        operands: The chunk's.
        step: The instruction.
        alive: Lanes that are threads.
        size: Lanes that compute together: a warp's or a block's.
        company: Whom the lanes that run it have met.
    """
    row, (to, *given) = step.row, step.instruction.operands
    lanes, shape = operands.lanes, (operands.lanes // size, size)
    sources = [operands.source(o, t) for o, t in zip(given, row.of, strict=True)]
    targets = operands.destinations(to, row.to)
    function = row.function
    assert function is not None

    def run(mask: Mask | None) -> None:
        active = company.active(alive if mask is None else mask).reshape(shape)
        values = company.given or map(value_of, sources)
        given = (np.broadcast_to(each, lanes).reshape(shape) for each in values)
        results = function(active, *given)
        if len(row.to) == 1:
            results = (results,)
        for (write, _), result in zip(targets, results, strict=False):
            write(np.broadcast_to(result, shape).reshape(-1), mask)

    return run


def _unpack(operands: Operands, to: Vector, row: Row, sources: Sequence[Source]) -> Action:
    """Split one value over several registers, lowest bits first."""
    count, lanes, function = len(to.items), operands.lanes, row.function
    whole = NUMPY_TYPES[row.to[0]]
    if whole.itemsize % count:
        raise PtxError(f"{row.opcode} cannot be split over {count} registers")
    part = np.dtype(f"u{whole.itemsize // count}")
    writers = [operands.destination(item, f"b{part.itemsize * 8}")[0] for item in to.items]
    assert function is not None

    def run(mask: Mask | None) -> None:
        value = np.broadcast_to(function(*map(value_of, sources)), lanes)
        parts = np.ascontiguousarray(value).view(part).reshape(-1, count)
        for number, write in enumerate(writers):
            write(parts[:, number], mask)

    return run


def with_guard(
    operands: Operands, index: int, step: DecodedInstruction, action: Action, tally: Tally
) -> Action:
    """Run an action only for the lanes whose guard predicate holds."""
    name, negated = step.instruction.guard, step.instruction.guard_negated
    if name is None:
        return action
    guard, lanes = operands.register(name), operands.lanes

    def run(mask: Mask | None) -> None:
        chosen = ~guard if negated else guard.copy()
        total = lanes
        if mask is not None:
            chosen &= mask
            total = int(np.count_nonzero(mask))
        count = int(np.count_nonzero(chosen))
        tally.lanes[index] -= total - count
        if count == total:
            action(mask)
        elif count:
            action(chosen)

    return run
