"""Runs a program over the lanes of a chunk of blocks, and counts.

A register is one NumPy array with a lane per thread; it holds raw bits, seen as the type that
the instruction names. Each instruction is bound once to the arrays it works on, so that running
it is one call. Nothing here knows an opcode: rows of the table say what to do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator import memory
from memlab.device.emulator.control import Mask, Schedule, warps
from memlab.device.emulator.counters import LINE_BYTES, SECTOR_BYTES, Patterns, Tally, Trace
from memlab.device.emulator.isa import NUMPY_TYPES, Row
from memlab.device.emulator.memory import AccessFault, GlobalMemory, Segment
from memlab.device.emulator.parser import (
    TYPE_BYTES,
    Address,
    Immediate,
    Negated,
    Operand,
    Pair,
    PtxError,
    Register,
    Symbol,
    Vector,
)
from memlab.device.emulator.program import Program, Step, address_registers
from memlab.device.emulator.recording import Recorder
from memlab.errors import MemlabError
from memlab.kernels.launch import Dim3

Lanes = NDArray[Any]
Action = Callable[["Mask | None"], None]
Source = Lanes | Callable[[], Lanes]

WARP = 32
_CLOCKS = frozenset(("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"))
_CLOCK_STEP = 64  # each read of a clock finds it this much later, so that waiting ends


@dataclass(frozen=True)
class Grid:
    """The launch geometry and what every block shares.

    Attributes:
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        dynamic_shared_bytes: Size of the `extern __shared__` array.
        parameters: The parameter space, as bytes.
    """

    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    parameters: bytes

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def padded_threads(self) -> int:
        """Lanes of a block: its threads, filled up to whole warps."""
        return -(-self.threads // WARP) * WARP


class KernelFault(MemlabError):
    """The kernel did something that a GPU would stop it for."""


@dataclass
class _Located:
    """Where a register's addresses lie in a segment; valid for one version of the register."""

    version: int
    position: Lanes
    low: int
    high: int
    misalignment: int
    pattern: int
    base: Lanes


class Chunk:
    """Some blocks of a grid, with the registers and memories of their lanes.

    Attributes:
        tally: What each instruction did.
        trace: Global accesses in order, where they were asked for.
    """

    def __init__(
        self,
        program: Program,
        grid: Grid,
        blocks: NDArray[np.int64],
        global_memory: GlobalMemory,
        patterns: Patterns,
        trace: Trace | None = None,
        source: Sequence[str] = (),
        recorder: Recorder | None = None,
    ) -> None:
        """Prepare blocks, given by their coordinates (shape (blocks, 3)), for running."""
        self.program, self.grid, self.blocks = program, grid, blocks
        self.lanes = len(blocks) * grid.padded_threads
        self.tally = Tally.zeros(len(program.steps))
        self.trace = trace
        self._recorder = recorder
        self._text = source
        self._patterns = patterns
        self._registers: dict[str, Lanes] = {}
        self._special = _special_registers(grid, blocks)
        self._clock = itertools.count(step=_CLOCK_STEP)
        self._segments = self._make_segments(global_memory)
        self._globals = {
            each.name: global_memory.find(each.name).address for each in program.globals
        }
        self._versions = dict.fromkeys(address_registers(program), 0)
        self._located: dict[tuple[str, str, int], _Located] = {}
        thread = np.arange(self.lanes) % grid.padded_threads
        self._alive: Mask = thread < grid.threads
        self._actions: list[Action | None] = [
            self._bind(index, step) for index, step in enumerate(program.steps)
        ]

    def run(self) -> Tally:
        """Run every lane to its end.

        Raises:
            KernelFault: An access outside memory or misaligned; names source line, block
                and thread.
        """
        with np.errstate(all="ignore"):
            self._run()
        return self.tally

    def _run(self) -> None:
        schedule = Schedule(self._alive)
        steps, actions, end = self.program.steps, self._actions, len(self.program.steps)
        lanes_change, warps_change = [0] * (end + 1), [0] * (end + 1)
        going = True
        while going:
            start, mask = schedule.counter, schedule.mask
            stop = min(schedule.limit, end)
            counter = start
            while counter < stop:
                action = actions[counter]
                if action is None:
                    break
                action(mask)
                counter += 1
            at_control = counter < stop
            lanes = self.lanes if mask is None else int(np.count_nonzero(mask))
            running = self.lanes // WARP if mask is None else int(np.count_nonzero(warps(mask)))
            lanes_change[start] += lanes
            warps_change[start] += running
            lanes_change[counter + at_control] -= lanes
            warps_change[counter + at_control] -= running
            if self.trace is not None and (mask is None or mask[:WARP].any()):
                self.trace.path.append((start, counter + at_control))
            if self._recorder is not None:
                self._recorder.stretch(start, counter + at_control, mask)
            schedule.counter = counter
            if not at_control:
                if counter >= end:
                    going = schedule.exit()
                else:
                    schedule.merge()
            else:
                going = self._transfer(schedule, steps[counter], counter, lanes)
        np_lanes = np.cumsum(lanes_change[:-1])
        np_warps = np.cumsum(warps_change[:-1])
        self.tally.lanes = [a + int(b) for a, b in zip(self.tally.lanes, np_lanes, strict=True)]
        self.tally.warps = [a + int(b) for a, b in zip(self.tally.warps, np_warps, strict=True)]

    def _transfer(self, schedule: Schedule, step: Step, counter: int, lanes: int) -> bool:
        """Carry out a branch, an exit or a barrier for the running group."""
        guard = step.instruction.guard
        if guard is not None:
            taken = self._register(guard)
            if step.instruction.guard_negated:
                taken = ~taken
            if schedule.mask is not None:
                taken = taken & schedule.mask
            count = int(np.count_nonzero(taken))
            if count == 0:
                schedule.jump(counter + 1)
                return True
            if count < lanes:
                if step.row.kind == "branch":
                    schedule.split(taken, step.target)
                    return True
                schedule.split(taken, counter)  # those taken come back here, all of them
                schedule.mask = taken
                schedule.counter = counter
        if step.row.kind == "branch":
            schedule.jump(step.target)
            return True
        return schedule.exit() if step.row.kind == "exit" else schedule.park()

    # --- Binding -----------------------------------------------------------------------------

    def _bind(self, index: int, step: Step) -> Action | None:
        kind = step.row.kind
        if kind in ("branch", "exit", "barrier"):
            return None
        if kind == "nothing":
            return _do_nothing
        bind = {
            "lanes": self._bind_lanes,
            "warp": self._bind_together,
            "block": self._bind_together,
            "trap": self._bind_trap,
            "load": self._bind_load,
            "store": self._bind_store,
            "atomic": self._bind_atomic,
            "reduce": self._bind_atomic,
        }[kind]
        return self._guarded(index, step, bind(index, step))

    def _guarded(self, index: int, step: Step, action: Action) -> Action:
        """Run an action only for the lanes whose guard predicate holds."""
        name = step.instruction.guard
        if name is None:
            return action
        guard, negated, tally = self._register(name), step.instruction.guard_negated, self.tally

        def run(mask: Mask | None) -> None:
            chosen = ~guard if negated else guard.copy()
            total = self.lanes
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

    def _bind_lanes(self, index: int, step: Step) -> Action:
        row, operands = step.row, step.instruction.operands
        sources = [self._source(o, t) for o, t in zip(operands[1:], row.of, strict=True)]
        return self._result(operands[0], row, sources, row.function)

    def _bind_together(self, index: int, step: Step) -> Action:
        """An instruction of whole warps, or of whole blocks: a row of lanes each."""
        row, operands = step.row, step.instruction.operands
        together = WARP if row.kind == "warp" else self.grid.padded_threads
        alive, function, shape = self._alive, row.function, (self.lanes // together, together)
        sources = [self._source(o, t) for o, t in zip(operands[1:], row.of, strict=True)]
        targets = self._destinations(operands[0], row.to)
        assert function is not None

        def run(mask: Mask | None) -> None:
            active = (alive if mask is None else mask).reshape(shape)
            given = (np.broadcast_to(_value(s), self.lanes).reshape(shape) for s in sources)
            results = function(active, *given)
            if len(row.to) == 1:
                results = (results,)
            for (write, _), result in zip(targets, results, strict=False):
                write(np.broadcast_to(result, shape).reshape(-1), mask)

        return run

    def _bind_trap(self, index: int, step: Step) -> Action:
        def run(mask: Mask | None) -> None:
            lane = int(np.flatnonzero(self._alive if mask is None else mask)[0])
            raise KernelFault(f"the kernel stopped itself (trap), {self._place(lane, step)}")

        return run

    def _result(
        self,
        operand: Operand,
        row: Row,
        sources: Sequence[Source],
        function: Callable[..., Any] | None,
    ) -> Action:
        """Compute lane by lane and write what comes out to the destination operand."""
        assert function is not None
        if isinstance(operand, Vector) and len(row.to) == 1:
            return self._unpack(operand, row, sources, function)
        targets = self._destinations(operand, row.to)
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
            value = function(*map(_value, sources))
            write(value if len(row.to) == 1 else value[0], mask)

        def run_pair(mask: Mask | None) -> None:
            values = function(*map(_value, sources))
            for (write, _), value in zip(targets, values, strict=True):
                write(value, mask)

        return run_direct if direct else run if len(targets) == 1 else run_pair

    def _unpack(
        self,
        operand: Vector,
        row: Row,
        sources: Sequence[Source],
        function: Callable[..., Any],
    ) -> Action:
        """Split one value over several registers, lowest bits first."""
        count = len(operand.items)
        part = np.dtype(f"u{NUMPY_TYPES[row.to[0]].itemsize // count}")
        writers = [self._writer(item, f"b{part.itemsize * 8}")[0] for item in operand.items]

        def run(mask: Mask | None) -> None:
            value = np.broadcast_to(function(*map(_value, sources)), self.lanes)
            parts = np.ascontiguousarray(value).view(part).reshape(-1, count)
            for number, write in enumerate(writers):
                write(parts[:, number], mask)

        return run

    # --- Memory ------------------------------------------------------------------------------

    def _bind_load(self, index: int, step: Step) -> Action:
        row, (to, source) = step.row, step.instruction.operands
        items = to.items if isinstance(to, Vector) else (to,)
        dtype = NUMPY_TYPES[row.to[0]]
        targets = [self._destinations(item, row.to[:1])[0] for item in items]
        assert isinstance(source, Address)
        access = self._accessor(index, step, source)

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                elements = segment.typed(dtype)
                for number, (write, target) in enumerate(targets):
                    window = elements[moved + number :]
                    if chosen is None and target is not None and position.ndim:
                        np.take(window, position, out=target, mode="clip")
                        write(None, None)
                    elif chosen is None or not position.ndim:
                        write(window[position], chosen)
                    else:
                        value = np.zeros(self.lanes, dtype)
                        value[chosen] = window[position]
                        write(value, chosen)

        return run

    def _bind_store(self, index: int, step: Step) -> Action:
        row, (destination, source) = step.row, step.instruction.operands
        items = source.items if isinstance(source, Vector) else (source,)
        dtype = NUMPY_TYPES[row.of[0]]
        sources = [self._source(item, row.of[0]) for item in items]
        assert isinstance(destination, Address)
        access = self._accessor(index, step, destination)
        stored_bytes = dtype.itemsize * row.vector

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                elements = segment.typed(dtype)
                position = position + moved
                for number, values in enumerate(map(_value, sources)):
                    value = values if chosen is None or not values.ndim else values[chosen]
                    elements[position + number] = value
                segment.written(position * dtype.itemsize, stored_bytes)

        return run

    def _bind_atomic(self, index: int, step: Step) -> Action:
        row, operands = step.row, step.instruction.operands
        has_result = row.kind == "atomic"
        source = operands[1 if has_result else 0]
        given = operands[2:] if has_result else operands[1:]
        dtype = NUMPY_TYPES[row.of[0]]
        sources = [self._source(o, t) for o, t in zip(given, row.of, strict=True)]
        write = self._destinations(operands[0], row.to)[0][0] if has_result else None
        function = row.function
        assert isinstance(source, Address)
        assert function is not None
        access = self._accessor(index, step, source)

        def run(mask: Mask | None) -> None:
            for segment, position, moved, chosen in access(mask):
                count = self.lanes if chosen is None else int(np.count_nonzero(chosen))
                where = np.broadcast_to(position + moved, count)
                values = [
                    np.broadcast_to(v if chosen is None or not v.ndim else v[chosen], count)
                    for v in map(_value, sources)
                ]
                old = _combine(segment.typed(dtype), where, values, function)
                segment.written(where * dtype.itemsize, dtype.itemsize)
                if write is not None:
                    value = np.zeros(self.lanes, dtype)
                    value[slice(None) if chosen is None else chosen] = old
                    write(value, chosen)

        return run

    def _accessor(
        self, index: int, step: Step, operand: Address
    ) -> Callable[[Mask | None], list[tuple[Segment, Lanes, int, Mask | None]]]:
        """How one memory instruction finds its elements; counts each time it does.

        The function it returns gives, for each segment touched: element positions (of the lanes
        that take part, in order), elements to add to them, and those lanes (None for all).
        """
        row, offset, tally = step.row, operand.offset, self.tally
        width = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        size, shift = width * row.vector, width.bit_length() - 1
        base = self._address_base(operand)
        name = operand.base.name if isinstance(operand.base, Register) else f"{int(base):#x}"

        def find(segment: Segment, window: int, mask: Mask | None) -> tuple[Lanes, int]:
            key = (name, segment.name, shift)
            version = self._versions.get(name, 0)
            located = None if mask is not None else self._located.get(key)
            if located is None or located.version != version:
                address = base - window if window else base
                located = self._locate(segment, address, shift, version, mask, name)
                if mask is None:
                    self._located[key] = located
            low, high = located.low + offset, located.high + offset + size
            if (located.misalignment | offset) & (size - 1) or not segment.check(low, high):
                self._fault(segment, base - window, offset, size, step, mask)
            self._count(index, step, segment, located, offset, mask)
            if self._recorder is not None:
                address = np.broadcast_to(base - window, self.lanes) + offset
                active = self._alive if mask is None else mask
                self._recorder.access(index, segment, address, size, active, row.kind != "store")
            lanes = self.lanes if mask is None else int(np.count_nonzero(mask))
            tally.bytes[index] += size * lanes
            moved = offset >> shift
            if moved < 0 or located.low < segment.origin:
                # A base before the memory's start would count from its end as an index.
                return located.position + moved, 0
            return located.position, moved

        if row.space != "generic":
            segment = self._segments[row.space]
            return lambda mask: [(segment, *find(segment, 0, mask), mask)]

        def access_generic(
            mask: Mask | None,
        ) -> list[tuple[Segment, Lanes, int, Mask | None]]:
            taking = self._alive if mask is None else mask
            address = np.broadcast_to(base, self.lanes) + offset
            found = []
            for space, window in memory.WINDOWS.items():
                inside = (address >= window) & (address < window + memory.WINDOW_BYTES)
                chosen: Mask | None = taking & inside
                if chosen is not None and chosen.any():
                    taking = taking & ~chosen
                    chosen = None if chosen.all() else chosen
                    segment = self._segments[space]
                    start = 0 if space == "global" else window
                    found.append((segment, *find(segment, start, chosen), chosen))
            if taking.any():
                self._fault(self._segments["global"], base, offset, size, step, taking)
            return found

        return access_generic

    def _locate(
        self,
        segment: Segment,
        address: Lanes,
        shift: int,
        version: int,
        mask: Mask | None,
        name: str,
    ) -> _Located:
        """Find where addresses lie in a segment, without the instruction's own offset."""
        if not address.ndim or segment.name in ("const", "param"):
            pattern, lane_0 = -1, address
        else:
            pattern, lane_0 = self._pattern(name, address, mask)
        taking = address if mask is None or not address.ndim else address[mask]
        low, high = int(taking.min()), int(taking.max())
        misalignment = int(np.bitwise_or.reduce(taking, axis=None))
        position = taking - segment.origin if segment.origin else taking
        if segment.lane_base is not None:
            lane_base = segment.lane_base if mask is None else segment.lane_base[mask]
            position = position + lane_base
        return _Located(version, position >> shift, low, high, misalignment, pattern, lane_0)

    def _pattern(self, site: str, address: Lanes, mask: Mask | None) -> tuple[int, Lanes]:
        """Intern the pattern of a warp's addresses; also give the sector where each starts."""
        rows = address.reshape(-1, WARP)
        if mask is None:
            active: Mask = np.ones(len(rows), np.bool_)
            first = rows[:, 0]
        else:
            lanes = mask.reshape(-1, WARP)
            active = np.asarray(lanes.any(axis=1))
            first = rows[np.arange(len(rows)), lanes.argmax(axis=1)]
            rows = np.where(lanes, rows, first[:, None])
        line = first & ~np.int64(LINE_BYTES - 1)
        relative = (rows - line[:, None]).astype(np.int64)
        if mask is not None:
            relative[~active] = 0
        sector = first & ~np.int64(SECTOR_BYTES - 1)
        return self._patterns.intern(site, relative, active), sector

    def _count(
        self,
        index: int,
        step: Step,
        segment: Segment,
        located: _Located,
        offset: int,
        mask: Mask | None,
    ) -> None:
        tally, counted = self.tally, step.counted_bytes
        if counted == 0 or segment.name in ("param", "param::func"):
            return
        if located.pattern < 0:  # one address for all lanes
            taking = self._alive if mask is None else mask
            address = np.broadcast_to(located.base, self.lanes)
            located.pattern, located.base = self._pattern("", address, taking)
        if segment.name == "shared":
            waves = self._patterns.wavefronts(located.pattern, offset, counted)
            tally.requests[index] += waves.instructions
            tally.wavefronts[index] += waves.wavefronts
            tally.excessive[index] += waves.wavefronts - waves.ideal
        elif segment.name == "global":
            sectors = self._patterns.sectors(located.pattern, offset)
            tally.requests[index] += sectors.requests
            tally.sectors[index] += sectors.sectors
            tally.wavefronts[index] += sectors.lines
            tally.used[index] += sectors.addresses * counted
            if self.trace is not None:
                self.trace.events.append((index, located.base, sectors))
        elif segment.name == "const":
            constants = self._patterns.sectors(located.pattern, offset)
            tally.requests[index] += constants.requests
            tally.wavefronts[index] += constants.addresses
        else:
            local = self._patterns.local(located.pattern, offset, step.counted_bytes)
            tally.requests[index] += local.requests
            tally.sectors[index] += local.sectors

    def _fault(
        self, segment: Segment, base: Lanes, offset: int, size: int, step: Step, mask: Mask | None
    ) -> None:
        """Stop at the first lane whose access is at fault, and say where it is."""
        taking = np.flatnonzero(self._alive if mask is None else mask)
        addresses = np.broadcast_to(base, self.lanes)[taking].astype(np.int64) + offset
        what = "read" if step.row.kind == "load" else "write"
        try:
            raise memory.find_fault(segment, addresses, size, what)
        except AccessFault as fault:
            lane = int(taking[fault.lane])
            raise KernelFault(f"{fault}, {self._place(lane, step)}") from None

    def _place(self, lane: int, step: Step) -> str:
        """Which thread a lane is, and which line it is at."""
        block = tuple(int(each) for each in self.blocks[lane // self.grid.padded_threads])
        thread = lane % self.grid.padded_threads
        x, y, _ = self.grid.block
        where = f"by block {block} thread ({thread % x}, {thread // x % y}, {thread // x // y})"
        line = step.instruction.source_line
        text = self._text[line - 1].strip() if 0 < line <= len(self._text) else ""
        return f"{where}, line {line}: {text}"

    # --- Operands ----------------------------------------------------------------------------

    def _register(self, name: str) -> Lanes:
        """A register's lanes as raw bits, made on first use."""
        if name not in self._registers:
            declared = self.program.registers.get(name)
            if declared is None:
                raise PtxError(f"register {name} is not declared")
            bits = "pred" if declared == "pred" else f"b{TYPE_BYTES[declared] * 8}"
            self._registers[name] = np.zeros(self.lanes, NUMPY_TYPES[bits])
        return self._registers[name]

    def _source(self, operand: Operand, ptx_type: str) -> Source:
        """An operand as lanes of a type.

        An array (0-dimensional for a constant), or where it must be computed a function that gives
        it anew each time.
        """
        dtype = NUMPY_TYPES[ptx_type]
        if isinstance(operand, Register):
            if operand.name in _CLOCKS:
                return lambda: np.array(next(self._clock), np.uint64).astype(dtype)
            special = self._special.get(operand.name)
            return _narrow(self._register(operand.name) if special is None else special, dtype)
        if isinstance(operand, Immediate):
            return _constant(operand, dtype)
        if isinstance(operand, Symbol):
            return _constant(Immediate("int", self._symbol(operand)), dtype)
        if isinstance(operand, Negated):
            register = self._register(operand.register.name)
            return lambda: ~register
        if isinstance(operand, Vector):
            part = f"b{dtype.itemsize * 8 // len(operand.items)}"
            parts = [self._source(item, part) for item in operand.items]
            return lambda: np.stack(
                [np.broadcast_to(_value(each), self.lanes) for each in parts], axis=1
            ).view(dtype)[:, 0]
        raise PtxError(f"operand {operand} cannot be read")

    def _destinations(
        self, operand: Operand, types: tuple[str, ...]
    ) -> list[tuple[Callable[[Any, Mask | None], None], Lanes | None]]:
        """For each destination, how to write a value and the array to compute into directly.

        The writer called with a value of None only notes that the array has changed.
        """
        items: tuple[Operand, ...]
        if isinstance(operand, Vector):
            items = operand.items
        elif isinstance(operand, Pair):
            items = (operand.first, operand.second)
        else:
            items = (operand,)
        return [self._writer(item, t) for item, t in zip(items, types, strict=False)]

    def _writer(
        self, operand: Operand, ptx_type: str
    ) -> tuple[Callable[[Any, Mask | None], None], Lanes | None]:
        if not isinstance(operand, Register):
            raise PtxError(f"operand {operand} cannot be written")
        name = operand.name
        if name == "_":
            return lambda value, mask: None, None
        register, dtype = self._register(name), NUMPY_TYPES[ptx_type]
        kind = dtype.kind if dtype.itemsize < register.itemsize and dtype.kind != "f" else None
        wide = np.dtype(f"{kind}{register.itemsize}") if kind else dtype
        view = register if ptx_type == "pred" else register.view(wide)
        target = view if wide == dtype else None
        versions, tracked = self._versions, name in self._versions

        def write(value: Any, mask: Mask | None) -> None:
            if value is not None:
                np.copyto(view, value, casting="unsafe", where=True if mask is None else mask)
            if tracked:
                versions[name] += 1

        return write, target

    def _symbol(self, symbol: Symbol) -> int:
        """The address of a variable in its own space."""
        program = self.program
        spaces = (program.shared, program.local, program.const, program.parameters)
        for places in (*spaces, program.arguments):
            if symbol.name in places:
                return places[symbol.name] + symbol.offset
        if symbol.name in self._globals:
            return self._globals[symbol.name] + symbol.offset
        raise PtxError(f"unknown symbol {symbol.name}")

    def _address_base(self, operand: Address) -> Lanes:
        """The lanes that an address starts from, signed."""
        if isinstance(operand.base, Register):
            register = self._register(operand.base.name)
            return register.view(f"i{register.itemsize}")
        return np.array(self._symbol(operand.base) if operand.base else 0, dtype=np.int64)

    def _make_segments(self, global_memory: GlobalMemory) -> dict[str, Segment]:
        program, grid = self.program, self.grid
        shared_start = -(-program.static_shared_bytes // 16) * 16
        shared_bytes = shared_start + grid.dynamic_shared_bytes
        padded = -(-shared_bytes // 16) * 16
        block_of_lane = np.arange(self.lanes, dtype=np.int64) // grid.padded_threads
        lane = np.arange(self.lanes, dtype=np.int64)
        parameters = np.frombuffer(grid.parameters.ljust(16, b"\0"), np.uint8)
        constants = np.frombuffer(program.const_image.ljust(16, b"\0"), np.uint8)
        return {
            "global": global_memory,
            "shared": Segment(
                "shared",
                np.zeros(padded * len(self.blocks) + 16, np.uint8),
                shared_bytes,
                block_of_lane * padded,
            ),
            "local": Segment(
                "local",
                np.zeros(program.local_bytes * self.lanes + 16, np.uint8),
                program.local_bytes,
                lane * program.local_bytes,
            ),
            "param::func": Segment(
                "param::func",
                np.zeros(program.argument_bytes * self.lanes + 16, np.uint8),
                program.argument_bytes,
                lane * program.argument_bytes,
            ),
            "const": Segment("const", constants, len(program.const_image)),
            "param": Segment("param", parameters, len(grid.parameters)),
        }


def _do_nothing(mask: Mask | None) -> None:
    return None


def _value(source: Source) -> Lanes:
    return source() if callable(source) else source


def _narrow(register: Lanes, dtype: np.dtype[Any]) -> Lanes:
    """See a register's lanes as a type of its width or less: the low bits of each."""
    if register.dtype in (dtype, np.bool_):
        return register
    if register.itemsize < dtype.itemsize:
        return register.astype(dtype)
    return register.view(dtype)[:: register.itemsize // dtype.itemsize]


def _constant(operand: Immediate, dtype: np.dtype[Any]) -> Lanes:
    """A literal as a 0-dimensional array of a type."""
    if dtype == np.bool_:
        return np.array(bool(operand.bits))
    if operand.kind == "f64" and dtype == np.float32:
        return np.array(operand.bits, np.uint64).view(np.float64).astype(np.float32)
    bits = operand.bits & ((1 << (dtype.itemsize * 8)) - 1)
    return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype)


def _special_registers(grid: Grid, blocks: NDArray[np.int64]) -> dict[str, Lanes]:
    """The special registers of a chunk's lanes (PTX ISA, chapter "Special Registers")."""
    count = len(blocks)
    thread = np.arange(grid.padded_threads, dtype=np.uint32)
    x, y, _ = grid.block
    lane = thread % WARP
    per_thread = {
        "%tid.x": thread % x,
        "%tid.y": thread // x % y,
        "%tid.z": thread // (x * y),
        "%laneid": lane,
        "%warpid": thread // WARP,
        "%lanemask_eq": np.uint32(1) << lane,
        "%lanemask_lt": (np.uint32(1) << lane) - np.uint32(1),
        "%lanemask_le": (np.uint32(2) << lane) - np.uint32(1),
        "%lanemask_gt": ~((np.uint32(2) << lane) - np.uint32(1)),
        "%lanemask_ge": ~((np.uint32(1) << lane) - np.uint32(1)),
    }
    lanes = {name: np.tile(values.astype(np.uint32), count) for name, values in per_thread.items()}
    for axis, name in enumerate("xyz"):
        lanes[f"%ctaid.{name}"] = np.repeat(blocks[:, axis].astype(np.uint32), grid.padded_threads)
        lanes[f"%ntid.{name}"] = np.array(grid.block[axis], np.uint32)
        lanes[f"%nctaid.{name}"] = np.array(grid.grid[axis], np.uint32)
    for name in ("%smid", "%gridid"):
        lanes[name] = np.array(0, np.uint32)
    lanes["%nsmid"] = np.array(1, np.uint32)
    lanes["%dynamic_smem_size"] = np.array(grid.dynamic_shared_bytes, np.uint32)
    lanes["%nwarpid"] = np.array(grid.padded_threads // WARP, np.uint32)
    return lanes


def _combine(
    elements: Lanes, where: Lanes, values: Sequence[Lanes], function: Callable[..., Any]
) -> Lanes:
    """Apply an atomic in lane order; gives what each lane found.

    Lanes at distinct addresses go at once, those at one address one after the other.
    """
    order = np.argsort(where, kind="stable")
    ordered = where[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff([*starts, len(ordered)]))
    old = np.empty(len(where), elements.dtype)
    by_rank = np.argsort(rank, kind="stable")
    for members in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]):
        lanes = order[members]
        found = elements[where[lanes]]
        old[lanes] = found
        elements[where[lanes]] = function(found, *(value[lanes] for value in values))
    return old
