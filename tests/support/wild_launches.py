"""Launches a `WildProgram` with wild addresses, and compares all that it does with the model.

`python -m tests.support.wild_launches SEED COUNT` makes so many launches of a program, and prints
the number of each before it begins: a crash ends this process alone. A launch faults if, and only
if, an access of one of its lanes is at fault; it changes the bytes that lanes store to, and loads
what the model says. Every array has margins around it that no launch may change. A quarter of the
launches is checked as by `memlab check`: there a fault is a finding, and the run goes on.
"""

from __future__ import annotations

import faulthandler
import random
import re
import sys
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.checking.findings import TOOLS
from memlab.device.emulator.checks.checker import Checker
from memlab.device.emulator.isa.address_space import WINDOW_BYTES, WINDOWS
from memlab.device.emulator.machine import machine
from memlab.device.emulator.machine.context import Workspace
from memlab.device.emulator.machine.machine import Chunk
from memlab.device.emulator.machine.memory import (
    GlobalMemory,
    KernelFault,
    Segment,
    build_segments,
)
from memlab.device.emulator.machine.observer import Observer
from memlab.device.emulator.machine.threads import Grid, Threads
from memlab.device.emulator.program.program import Program, load_program
from memlab.device.emulator.ptx.parser import parse_ptx
from tests.support.ptx import fill_memory, parameter_space
from tests.support.wild_model import READ_ONLY, Inputs, Model, Space
from tests.support.wild_programs import (
    ACCESSES,
    MOST_THREADS,
    PARAMETERS,
    SLOT_BYTES,
    TURNS,
    Access,
    WildProgram,
    wild_program,
)

_BLOCKS = ((32, 1), (64, 2), (33, 2), (7, 1), (1, 3), (31, 4), (128, 1), (32, 3), (96, 1))
"""Threads of a block, and blocks."""
_CANARY, _MARGIN_BYTES = 0xC7, 4096
_PARAMETER_BYTES = 8 * len(PARAMETERS) + 4


class Margins:
    """Arrays with bytes around them that nothing may change."""

    def __init__(self) -> None:
        self._rooms: list[NDArray[np.uint8]] = []

    def around(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy of an array in the midst of such bytes."""
        size = -(-array.nbytes // 64) * 64
        room = np.full(size + 2 * _MARGIN_BYTES + 64, _CANARY, np.uint8)
        start = _MARGIN_BYTES - (room.ctypes.data + _MARGIN_BYTES) % 64 + 64
        inner = room[start : start + array.nbytes]
        inner[:] = array.reshape(-1).view(np.uint8)
        self._rooms += [room[:start], room[start + array.nbytes :]]
        return inner.view(array.dtype).reshape(array.shape)

    def check(self) -> None:
        """Raise an AssertionError if one has changed."""
        assert all((room == _CANARY).all() for room in self._rooms), "bytes outside changed"


class Launch:
    """One launch."""

    def __init__(self, wild: WildProgram, program: Program, seed: str, checked: bool) -> None:
        """Draw its threads, memory and addresses."""
        self._wild, self._program, self._checked = wild, program, checked
        self._random = draw = random.Random(seed)
        self._numbers = np.random.default_rng(draw.getrandbits(64))
        self._threads, self._blocks = draw.choice(_BLOCKS)
        self._lanes = self._threads * self._blocks
        self._is_tame = draw.randrange(2) == 0
        dynamic = draw.choice((0, 0, 48))
        shared = wild.sizes["shared"]
        self._sizes = wild.sizes | {"param": _PARAMETER_BYTES}
        self._sizes["shared"] = -(-shared // 16) * 16 + dynamic if dynamic else shared
        if not checked:  # a thread has whole 16 bytes of local memory
            self._sizes["local"] = program.local_bytes
        self._margins = Margins()
        self._memory = self._global_memory()
        self._inputs = self._draw_inputs()
        arrays = dict.fromkeys(PARAMETERS)
        bits = np.uint32(sum(1 << number for number in self._inputs.chosen))
        parameters = parameter_space(program, self._memory, arrays, [bits])
        self._grid = Grid((self._blocks, 1, 1), (self._threads, 1, 1), dynamic, parameters)
        self._memory.bytes_of("table")[:] = self._table_bytes()
        words = np.zeros((MOST_THREADS, 4), np.uint32)
        given = self._inputs
        for column, values in enumerate((given.guards, given.skips, given.trips)):
            words[: self._lanes, column] = values
        self._memory.bytes_of("words")[:] = words.reshape(-1).view(np.uint8)

    def _global_memory(self) -> GlobalMemory:
        """Arrays of random bytes or zeros, with random bytes in the gaps."""
        draw, wild = self._random, self._wild
        dtype = draw.choice((np.uint8, np.uint8, np.uint16, np.uint32))
        arrays: dict[str, Any] = {
            name: np.zeros(draw.choice((1, 4, 25, 64, 1024)), dtype) for name in "xyz"
        }
        arrays["table"] = np.zeros((TURNS, wild.columns, MOST_THREADS), np.uint64)
        arrays["words"] = np.zeros((MOST_THREADS, 4), np.uint32)
        arrays["out"] = np.zeros(TURNS * ACCESSES * MOST_THREADS * SLOT_BYTES // 4, np.uint32)
        memory = fill_memory(self._program, arrays)
        memory.data[:] = self._numbers.integers(0, 256, memory.data.size, np.uint8)
        for name in draw.sample("xyzg", 2):
            memory.bytes_of(name)[:] = 0
        memory.data = self._margins.around(memory.data)
        memory.units_written = self._margins.around(memory.units_written)
        return memory

    # --- Addresses -----------------------------------------------------------------------------

    def _draw_inputs(self) -> Inputs:
        """Addresses, and which lanes execute what; a tame launch leaves out what would fault."""
        draw, lanes, clusters = self._random, self._lanes, self._wild.clusters
        some = draw.choice((4, 6, 10))
        chosen = frozenset(n for n in range(len(clusters)) if draw.randrange(some) == 0)
        has_collective = any(a.is_collective for n in chosen for a in clusters[n])
        trips = [TURNS] * lanes
        if not has_collective and draw.randrange(3) == 0:
            trips = [draw.randrange(1, TURNS + 1) for _ in range(lanes)]
        skips = [draw.choice((0, 0, draw.getrandbits(32))) for _ in range(lanes)]
        if draw.randrange(2):
            skips = [0] * lanes
        inputs = frozenset[int]()
        if self._checked and draw.randrange(3) == 0:
            inputs = frozenset([self._memory.find("x").address])
        guards = [draw.getrandbits(32) | draw.getrandbits(32) for _ in range(lanes)]
        table = [[[0] * lanes for _ in range(self._wild.columns)] for _ in range(TURNS)]
        given = Inputs(self._threads, lanes, chosen, table, guards, skips, trips, inputs)
        self._model = Model(self._wild, self._spaces({}), given, 0)
        for turn in range(TURNS):
            for number in sorted(chosen):
                cluster = clusters[number]
                for column, access in {c: a for a in reversed(cluster) for c in a.columns}.items():
                    table[turn][column] = self._addresses(access, column)
                self._spare_private_arrays(cluster, table[turn])
        if self._is_tame:
            tame = frozenset(n for n in chosen if not self._may_fault(clusters[n]))
            given = Inputs(self._threads, lanes, tame, table, guards, skips, trips, inputs)
        return given

    def _may_fault(self, cluster: tuple[Access, ...]) -> bool:
        return any(
            self._model.problem(*place, size, load)
            for turn in range(TURNS)
            for access in cluster
            for _, load, size, places in self._model.parts(access, turn, range(self._lanes))
            for place in places.values()
        )

    def _spare_private_arrays(self, cluster: tuple[Access, ...], columns: list[list[int]]) -> None:
        """Put null in place of addresses in the arrays of the test itself."""
        low = self._memory.find("table").address - SLOT_BYTES
        out = self._memory.find("out")
        for access in cluster:
            for column in access.columns:
                space = "global" if column == access.source_column else ""
                for lane, value in enumerate(columns[column]):
                    if low <= self._model.address(access, value, space) < out.address + out.size:
                        columns[column][lane] = 0

    def _addresses(self, access: Access, column: int) -> list[int]:
        """What the table has for an address register: a value for each lane."""
        draw = self._random
        is_source = column == access.source_column
        space = "global" if is_source else access.space
        back = 0 if is_source else access.shift + access.offset
        places = self._places(space, access)
        wild_lanes = 0 if self._is_tame else draw.choice((0, 0, 0, 0, 1, 1, 8, self._lanes))
        values = [place - back for place in places]
        if wild_lanes == self._lanes and draw.randrange(2):  # all around one address
            around, step = self._wild_address(space, access.size), draw.choice((1, 1, 2, -1))
            first = draw.randrange(33) * draw.choice((1, -1))
            return [
                (around + (first + step * (lane % 32)) * access.size - back) % 2**64
                for lane in range(self._lanes)
            ]
        shared_wild = self._wild_address(space, access.size)
        for lane in draw.sample(range(self._lanes), min(wild_lanes, self._lanes)):
            wild = shared_wild if draw.randrange(2) else self._wild_address(space, access.size)
            values[lane] = wild - back
        return [value % 2**64 for value in values]

    def _places(self, space: str, access: Access) -> list[int]:
        """Addresses of elements inside a state space, for each lane, where it has any."""
        draw, size = self._random, access.size
        reads_only = access.is_load or (not self._is_tame and draw.randrange(4) == 0)
        areas = [area for area in self._areas(space, reads_only) if area[1] >= size]
        if not areas:
            return [0] * self._lanes
        area = draw.choice(areas)
        several = draw.randrange(6) == 0
        step = draw.choice((0, 1, 1, 1, 1, 2, 3, 5, -1, 32, 33))
        first = draw.randrange(64)
        kind = draw.choice(("lanes", "lanes", "warps", "pairs", "random"))
        places = []
        for lane in range(self._lanes):
            start, length = draw.choice(areas) if several else area
            number = {"warps": lane % 32, "pairs": lane // 2}.get(kind, lane)
            distance = draw.randrange(length) if kind == "random" else first + step * number
            places.append(start + distance % (length // size) * size)
        return places

    def _areas(self, space: str, load: bool = True) -> list[tuple[int, int]]:
        """The start and size of the memory that accesses of a state space may reach."""
        memory = self._memory
        arrays = [(array.address, array.size) for array in map(memory.find, "xyzg")]
        if space == "global":
            return arrays
        if space != "generic":
            return [(0, self._sizes[space])]
        others = [
            (WINDOWS[name], size)
            for name, size in self._sizes.items()
            if load or name not in READ_ONLY
        ]
        return [*arrays, *others, *others]

    def _wild_address(self, space: str, size: int) -> int:
        """An address near the bounds of some memory, or just any."""
        draw = self._random
        start, length = draw.choice(self._areas(space))
        host = int(self._memory.data.ctypes.data)
        kind = draw.randrange(8)
        if kind == 0:
            near = draw.choice((0, 1, -1, size, -size))
            return near + draw.choice((0, 2**31, 2**32, 2**62, 2**63, -(2**63), -(2**31)))
        if kind == 1:
            return draw.getrandbits(64) // size * size
        if kind == 2:  # addresses of the host process, or what would lead to them
            there = draw.choice((host, id(self), id(None), int(self._numbers_address())))
            return there if draw.randrange(2) else start + there - host
        if kind == 3:
            far = draw.choice((2**12, 2**16, 2**20, 2**30, 2**31, 2**32, 2**40, 2**63))
            return start + draw.choice((far, -far)) + draw.choice((0, length, length - size))
        if kind == 4 and space == "generic":
            window = draw.choice(list(WINDOWS.values()))
            return window + draw.choice((-1, -size, WINDOW_BYTES - size, WINDOW_BYTES))
        ends = (-size, -1, length - size + 1, length, length + size, length - 1, 1, length - size)
        return start + draw.choice(ends)

    def _numbers_address(self) -> int:
        return int(self._memory.units_written.ctypes.data)

    def _table_bytes(self) -> NDArray[np.uint8]:
        table = np.zeros((TURNS, self._wild.columns, MOST_THREADS), np.uint64)
        if self._wild.columns:
            table[:, :, : self._lanes] = self._inputs.table
        return table.reshape(-1).view(np.uint8)

    # --- The run -------------------------------------------------------------------------------

    def _spaces(self, segments: dict[str, Segment]) -> dict[str, Space]:
        """The state spaces of the model, with the bytes that they have now."""
        memory = self._memory
        padded = -(-self._threads // 32) * 32
        shared, local = -(-self._sizes["shared"] // 16) * 16, self._program.local_bytes

        def hardware_lane(lane: int) -> int:
            return lane // self._threads * padded + lane % self._threads

        positions = {
            "shared": lambda lane: lane // self._threads * shared,
            "local": lambda lane: hardware_lane(lane) * local,
            "const": lambda lane: 0,
            "param": lambda lane: 0,
            "global": lambda lane: -memory.origin,
        }
        ranges = {name: [(0, size)] for name, size in self._sizes.items()}
        ranges["global"] = [(a.address, a.address + a.size) for a in memory.allocations]
        return {
            name: Space(
                bytearray(segments[name].data.tobytes() if name in segments else b""),
                ranges[name],
                position,
            )
            for name, position in positions.items()
        }

    def _segments(
        self, program: Program, threads: Threads, memory: GlobalMemory
    ) -> dict[str, Segment]:
        """The state spaces as the chunk gets them: with margins, and filled."""
        segments = build_segments(program, threads, memory)
        for name, segment in segments.items():
            if name != "global":
                segment.data = self._margins.around(segment.data)
            if name in ("shared", "local"):
                size = segment.data.size
                segment.data[:] = self._numbers.integers(0, 256, size, np.uint8)
            segment.data.flags.writeable = name not in READ_ONLY
        self._found = segments
        return segments

    def run(self, workspace: Workspace) -> bool:
        """Launch, and compare; whether it faulted.

        Raises:
            AssertionError: The launch did not do what it should.
        """
        observers: list[Observer] = []
        checker = self._checker() if self._checked else None
        if checker is not None:
            observers.append(checker)
        blocks = np.array([(x, 0, 0) for x in range(self._blocks)])
        machine.build_segments = self._segments  # type: ignore[attr-defined]
        chunk = Chunk(
            self._program,
            self._grid,
            blocks,
            self._memory,
            workspace,
            writers=self._random.choice((None, None, (3, 2))),  # as if other blocks ran too
            observers=observers,
        )
        out = self._memory.find("out").address
        spaces = self._spaces(self._found)
        model = Model(self._wild, spaces, self._inputs, out)
        model.run(self._checked)
        message = ""
        try:
            chunk.execute()
        except KernelFault as fault:
            message = str(fault)
        self._margins.check()
        self._compare_fault(model, message)
        for name, space in spaces.items():
            data = self._found[name].data
            known = np.frombuffer(space.known, np.bool_)
            wrong = np.flatnonzero((data != np.frombuffer(space.data, np.uint8)) & known)
            assert not wrong.size, f"{name} memory differs at {wrong[:8].tolist()}"
        if checker is not None:
            self._compare_findings(model, checker)
        elif not message:
            self._compare_marks(model)
        return bool(message)

    def _checker(self) -> Checker:
        draw = self._random
        ranges = {name: [(0, size)] for name, size in self._sizes.items() if name != "param"}
        arrays = [(a.address, a.address + a.size) for a in self._memory.allocations]
        tools = draw.choice((TOOLS, TOOLS, ("memcheck",), ("memcheck", "initcheck")))
        read = ["x"] if self._inputs.inputs else []
        return Checker(
            self._program, self._grid, self._memory, {"global": arrays, **ranges}, read, (), tools
        )

    def _compare_fault(self, model: Model, message: str) -> None:
        fault = model.fault
        if fault is None or not message:
            assert (fault is None) == (not message), (
                f"expected {fault}, but: {message or 'no fault'}"
            )
            return
        pattern = r"(\w+) address: (.*?) at .*block \((\d+), .*thread \((\d+), .*line (\d+):"
        found = re.search(pattern, message, re.DOTALL)
        assert found, message
        kind, what, block, thread, line = found.groups()
        lane = int(block) * self._threads + int(thread)
        said = (int(line) - 1, fault.kinds.get(lane), what)
        assert said == (fault.number, kind, fault.what), f"expected {fault}, but: {message}"

    def _compare_findings(self, model: Model, checker: Checker) -> None:
        found: Counter[tuple[int, str, str]] = Counter()
        for seen in checker.observations():
            if seen.tool == "memcheck":
                line = checker.place(seen.at)[0]
                found[line - 1, seen.space, seen.kind] += seen.count
        assert found == model.mistakes, f"findings: {found - model.mistakes} too many, " + (
            f"{model.mistakes - found} missing"
        )

    def _compare_marks(self, model: Model) -> None:
        """Compare which units of global memory were marked as written."""
        memory = self._memory
        expected = np.zeros(memory.units_written.size, np.bool_)
        for address, size in model.stored:
            start = address - memory.origin
            end = start + size - 1
            expected[start // memory.unit_bytes : end // memory.unit_bytes + 1] = True
        wrong = np.flatnonzero((memory.units_written != 0) != expected)
        assert not wrong.size, f"marks of written memory differ at units {wrong[:8].tolist()}"


def main(seed: int, count: int) -> None:
    """Make the launches; the last line says which was the last, or how many faulted."""
    faulthandler.enable()
    wild = wild_program(seed)
    program, workspace = load_program(parse_ptx(wild.text), "k"), Workspace()
    ends: Counter[str] = Counter()
    for number in range(count):
        print(f"program {seed}, launch {number}", flush=True)
        checked = number % 4 == 3
        faulted = Launch(wild, program, f"{seed} {number}", checked).run(workspace)
        ends["checked" if checked else "faulted" if faulted else "completed"] += 1
    print(", ".join(f"{ends[name]} {name}" for name in ("completed", "faulted", "checked")))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
