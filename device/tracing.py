"""Follows one thread through a launch: the emulator runs its block, a recorder watches.

The recorder knows addresses and instructions. Here they get names: an address is an element of
an array, and a register stands for the element that was last loaded into it, so that a store to
shared memory says what it stages and a multiplication says what it multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from memlab.device.budget import Budget, OutOfTime
from memlab.device.compile import Compiled
from memlab.device.emulator import sampling
from memlab.device.emulator.counters import Tally
from memlab.device.emulator.parser import (
    TYPE_BYTES,
    Immediate,
    Operand,
    Register,
    Vector,
)
from memlab.device.emulator.program import Program, Step, destinations
from memlab.device.emulator.recording import RecordedAccess, Recorder, Stretch
from memlab.device.execution import Execution
from memlab.device.naming import Names
from memlab.device.properties import WARP_SIZE
from memlab.device.trace_records import (
    Access,
    ArrayUse,
    Element,
    Kind,
    Operation,
    ThreadTrace,
    Trace,
    Value,
)
from memlab.errors import UsageError
from memlab.kernels.launch import Dim3, Launch

SMALL_BLOCK = 16
"""Blocks of up to so many threads are followed whole: a table of more no one reads."""
WHOLE_GRID_LANE_INSTRUCTIONS = 20_000_000
"""Launches up to this size run whole, to count reads over the grid; about a second."""


def trace(
    launch: Launch,
    compiled: Compiled,
    block: Dim3,
    thread: Dim3,
    device: str,
    budget: Budget | None = None,
) -> Trace:
    """Follow one thread of one block.

    Args:
        launch: What to run.
        compiled: The launch, compiled.
        block: The block's index in the grid, x, y, z.
        thread: The thread's index in the block, x, y, z.
        device: The name of the device that it was compiled for.
        budget: The time and memory that it may take; None takes the defaults.

    Raises:
        UsageError: The block or the thread is outside the launch, or it needs more memory than is
            allowed.
        PtxError: The compiled kernel has an instruction that the emulator does not know.
        KernelFault: The kernel touched memory that is not its own.
        OutOfTime: The time was up before the thread was at its end.
    """
    _check_inside("block", block, launch.grid, "grid", "blocks")
    _check_inside("thread", thread, launch.block, "block", "threads")
    execution = Execution.of(launch, compiled, 0, budget)
    program = execution.program

    small = launch.threads_per_block <= SMALL_BLOCK
    wanted = _linear(thread, launch.block)
    lanes = np.arange(launch.threads_per_block) if small else np.array([wanted])
    recorder = Recorder(execution.memory, lanes)
    tally = execution.record(np.array([block], np.int64), recorder)
    names = Names(launch, execution)
    threads = tuple(
        _follow(program, recorder.stretches, column, names, index)
        for column, index in enumerate(_threads(launch.block) if small else [thread])
    )
    written = {each.name: execution.memory.elements_written(each.name) for each in launch.buffers}
    whole = _whole_grid(launch, execution, tally)
    stored, read = (_moved_bytes(program, tally, "shared", kind) for kind in ("store", "load"))
    return Trace(
        kernel=launch.kernel,
        parameters=dict(launch.parameters),
        device=device,
        grid=launch.grid,
        block=launch.block,
        block_index=block,
        followed=threads[wanted if small else 0],
        threads=threads,
        arrays=_uses(launch, recorder, written, whole and whole[0]),
        shared_reuse=read / stored if stored else None,
        staged_share=_staged_share(program, tally if whole is None else whole[1]),
    )


def _check_inside(what: str, index: Dim3, extent: Dim3, of: str, members: str) -> None:
    """Refuse an index outside its extent.

    Raises:
        UsageError: Names the extent, the value and the nearest index that is inside.
    """
    nearest = tuple(min(max(each, 0), size - 1) for each, size in zip(index, extent, strict=True))
    if nearest != index:
        used = 3 if extent[2] > 1 or index[2] else 2
        shown = ", ".join(map(str, index[:used]))
        raise UsageError(
            f"{what} ({shown}) is outside the {of} of {' x '.join(map(str, extent))} {members}: "
            f"use --{what}-index {','.join(map(str, nearest[:used]))}"
        )


def _linear(index: Dim3, extent: Dim3) -> int:
    return index[0] + extent[0] * (index[1] + extent[1] * index[2])


def _threads(extent: Dim3) -> list[Dim3]:
    x, y, _ = extent
    return [(each % x, each // x % y, each // (x * y)) for each in range(prod(extent))]


# --- One thread --------------------------------------------------------------------------------


class _Thread:
    """Walks along the instructions that one lane ran, and remembers what registers hold."""

    def __init__(self, names: Names) -> None:
        self.steps: list[Access | Operation] = []
        self.barriers = 0
        self._names = names
        self._origin: dict[str, Value] = {}
        self._phase = 0
        self._has_read = False

    def run(self, step: Step, access: tuple[str, int] | None) -> None:
        """Take one instruction; `access` is the space and address it touched, if it did."""
        kind, row = step.row.kind, step.row
        if kind == "barrier":
            self.barriers += 1
        elif kind in ("load", "store", "atomic", "reduce"):
            if access is not None:
                self._touch(step, *access)
        elif kind == "lanes" and row.flops:
            self._compute(step)
        elif kind == "lanes" and row.opcode.startswith(("mov.", "cvt.")):
            self._copy(step)
        else:
            self._forget(step)

    def _touch(self, step: Step, space: str, address: int) -> None:
        row, operands = step.row, step.instruction.operands
        if not self._names.knows(space):
            self._forget(step)
            return
        item_bytes = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        moved = operands[0 if row.kind == "load" else 1]
        items = moved.items if isinstance(moved, Vector) else (moved,)
        if space == "shared":
            self._enter_phase(stores=row.kind == "store")
        if row.kind == "load":
            self._forget(step)
        if row.kind in ("atomic", "reduce"):
            self._forget(step)
            self._note(step, "atomic", self._names.elements(space, address, item_bytes), None)
            return
        for number, item in enumerate(items):
            found = self._names.elements(space, address + number * item_bytes, item_bytes)
            if row.kind == "store":
                self._note(step, "store", found, self._value(item))
                continue
            self._note(step, "load", found, None)
            if isinstance(item, Register):
                self._origin[item.name] = found[0]

    def _enter_phase(self, stores: bool) -> None:
        if self._phase == 0 or (stores and self._has_read):
            self._phase += 1
            self._has_read = False
        self._has_read |= not stores

    def _note(self, step: Step, kind: Kind, elements: Sequence[Element], source: Value) -> None:
        line = step.instruction.source_line
        for element in elements:
            self.steps.append(Access(line, kind, element, self._phase, source))

    def _compute(self, step: Step) -> None:
        operands = tuple(self._value(each) for each in step.instruction.operands[1:])
        self._forget(step)
        if any(isinstance(each, Element) for each in operands):
            name = step.row.opcode.split(".")[0]
            line = step.instruction.source_line
            self.steps.append(Operation(line, name, operands, self._phase))

    def _copy(self, step: Step) -> None:
        value = self._value(step.instruction.operands[1])
        self._forget(step)
        target = step.instruction.operands[0]
        if isinstance(target, Register) and value is not None:
            self._origin[target.name] = value

    def _forget(self, step: Step) -> None:
        for each in destinations(step):
            if isinstance(each, Register):
                self._origin.pop(each.name, None)

    def _value(self, operand: Operand) -> Value:
        if isinstance(operand, Register):
            return self._origin.get(operand.name)
        if isinstance(operand, Immediate) and operand.kind in ("f32", "f64"):
            return float(np.array(operand.bits, np.uint64).view(np.float64))
        return None


def _follow(
    program: Program,
    stretches: Sequence[Stretch],
    column: int,
    names: Names,
    thread: Dim3,
) -> ThreadTrace:
    """Walk along one lane's way through the program."""
    walk = _Thread(names)
    for stretch in stretches:
        if stretch.active[column]:
            touched = {each.step: each for each in stretch.accesses if each.active[column]}
            for index in range(stretch.start, stretch.stop):
                walk.run(program.steps[index], _place(touched.get(index), column))
    return ThreadTrace(thread, tuple(walk.steps), walk.barriers)


def _place(access: RecordedAccess | None, column: int) -> tuple[str, int] | None:
    return None if access is None else (access.space, int(access.addresses[column]))


# --- Block and grid ----------------------------------------------------------------------------


def _whole_grid(
    launch: Launch, execution: Execution, tally: Tally
) -> tuple[Recorder, Tally] | None:
    """Count what the whole grid does, if it is small enough to be executed whole in time."""
    if sum(tally.warps) * WARP_SIZE * launch.blocks > WHOLE_GRID_LANE_INSTRUCTIONS:
        return None
    recorder = Recorder(execution.memory)
    execution.reset()  # the block has run once already
    try:
        return recorder, execution.record(sampling.WholeGrid(launch.grid), recorder)
    except OutOfTime:
        return None


def _uses(
    launch: Launch,
    block: Recorder,
    written: Mapping[str, NDArray[np.int64]],
    grid: Recorder | None,
) -> tuple[ArrayUse, ...]:
    return tuple(
        ArrayUse(
            array=each.name,
            shape=each.shape,
            block_reads=_histogram(block.reads(each.name)[1]),
            grid_reads=None if grid is None else _histogram(grid.reads(each.name)[1]),
            block_read=tuple(block.reads(each.name)[0].tolist()),
            block_written=tuple(written[each.name].tolist()),
        )
        for each in launch.buffers
    )


def _histogram(reads: NDArray[np.int64]) -> dict[int, int]:
    times, elements = np.unique(reads, return_counts=True)
    return dict(zip(times.tolist(), elements.tolist(), strict=True))


def _staged_share(program: Program, tally: Tally) -> float | None:
    read = _moved_bytes(program, tally, "global", "load")
    return _moved_bytes(program, tally, "shared", "store") / read if read else None


def _moved_bytes(program: Program, tally: Tally, space: str, kind: str) -> int:
    return sum(
        tally.bytes[index]
        for index, step in enumerate(program.steps)
        if (step.row.space, step.row.kind) == (space, kind)
    )
