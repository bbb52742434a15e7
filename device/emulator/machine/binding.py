"""Binds computing instructions to the arrays that they work on, so that running one is one call."""

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
"""Runs an instruction for the lanes of a mask; None stands for all lanes."""


def bind_lanewise(operands: Operands, step: DecodedInstruction) -> Action:
    """Bind an instruction that computes each lane's result from that lane's sources."""
    row, (to, *inputs) = step.row, step.instruction.operands
    sources = [operands.source(o, t) for o, t in zip(inputs, row.of, strict=True)]
    function = row.function
    assert function is not None
    if isinstance(to, Vector) and len(row.to) == 1:
        return _unpack(operands, to, row, sources)
    targets = operands.destinations(to, row.to)
    write, target = targets[0]
    arrays = [source for source in sources if not callable(source)]
    direct = (
        isinstance(function, np.ufunc)
        and len(arrays) == len(sources) == function.nin
        and target is not None
        and any(array.ndim for array in arrays)
    )

    def run_direct(mask: Mask | None) -> None:
        if mask is None:
            function(*arrays, out=target)
            write(None, None)
        else:
            write(function(*arrays), mask)

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
    participants: ParticipatingLanes,
) -> Action:
    """Bind an instruction that the lanes of a warp, or of a block, execute together.

    Args:
        operands: The registers.
        step: The instruction.
        alive: The lanes that are threads, as a mask.
        size: Lanes of a warp, or of a block.
        participants: The groups that execute the instruction together with the running one.
    """
    row, (to, *inputs) = step.row, step.instruction.operands
    lanes, shape = operands.lanes, (operands.lanes // size, size)
    sources = [operands.source(o, t) for o, t in zip(inputs, row.of, strict=True)]
    targets = operands.destinations(to, row.to)
    function = row.function
    assert function is not None

    def run(mask: Mask | None) -> None:
        active = participants.active(alive if mask is None else mask).reshape(shape)
        values = participants.sources or map(value_of, sources)
        results = function(active, *(np.broadcast_to(v, lanes).reshape(shape) for v in values))
        if len(row.to) == 1:
            results = (results,)
        for (write, _), result in zip(targets, results, strict=False):
            write(np.broadcast_to(result, shape).reshape(-1), mask)

    return run


def _unpack(operands: Operands, to: Vector, row: Row, sources: Sequence[Source]) -> Action:
    """Bind an instruction whose result is split over several registers, lowest bits first."""
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
    """Restrict an action to the lanes whose guard predicate holds, and correct the tally."""
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
