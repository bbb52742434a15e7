"""The memory that a chunk of blocks shares with its machine code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from weakref import ReferenceType

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.frame import FrameLayout
from memlab.device.emulator.codegen.layout import (
    CONTEXT,
    COUNTERS,
    GROUPS,
    MOST_PATTERNS,
    PATTERN,
    SPACES,
    STRETCH_KINDS,
)
from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.machine.memory import READ_ONLY, GlobalMemory, Segment
from memlab.device.emulator.machine.threads import Threads
from memlab.device.properties import WARP_SIZE

Words = NDArray[np.uint32]
"""Lanes as bits: a word per warp, shape (warps,)."""

_ALIGNMENT_BYTES = 64
_VERSION_BITS = 40  # a chunk meets far fewer patterns in its time
_AT_PYTHON = STRETCH_KINDS.index("python")


class Workspace:
    """Memory that chunks use one after the other.

    Attributes:
        patterns: The address patterns met so far, with their costs.
        chunk: The chunk that used it last, if its lanes have ended.
    """

    def __init__(self) -> None:
        self.chunk: ReferenceType[Any] | None = None
        self.patterns: NDArray[np.void] = np.zeros(MOST_PATTERNS, PATTERN)
        self._buffers: dict[str, NDArray[np.uint8]] = {}
        self._chunks = 0

    def first_version(self) -> int:
        """The number behind which the versions of a further chunk's patterns begin."""
        self._chunks += 1
        return self._chunks << _VERSION_BITS

    def zeros(self, name: str, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
        """An array of zeros that begins at a cache line; it is used again under its name.

        Memory that was used before is much faster than new one.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size + _ALIGNMENT_BYTES:
            buffer = self._buffers[name] = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
        start = -buffer.ctypes.data % _ALIGNMENT_BYTES
        array = buffer[start : start + size]
        array[:] = 0
        typed: NDArray[Any] = array.view(dtype).reshape(shape)
        return typed


class ChunkContext:
    """The `CONTEXT` record of a chunk, and the arrays that it points to.

    Attributes:
        record: The record, shape ().
        address: Its host address.
        layout: Where registers lie in a frame.
        frames: The frames of the warps, shape (warps, bytes).
        counters: The counters of memory instructions: `layout.COUNTERS` by instruction.
        lanes_off: By instruction, the lanes that its guard switched off.
        lanes_change: By instruction, how many lanes more execute it than the one before.
        warps_change: The same of warps.
        mask: The lanes of the running group.
        live: The lanes that have not exited.
        taken: Lanes whose guard holds at the current branch.
        arrays: An `ARRAY` record per array of global memory.
    """

    def __init__(
        self,
        native: NativeProgram,
        threads: Threads,
        segments: Mapping[str, Segment],
        memory: GlobalMemory,
        workspace: Workspace,
        writers: tuple[int, int],
    ) -> None:
        """Allocate the arrays of a chunk, with all its threads in one group at the first slot."""
        self._kept: list[Any] = [workspace, segments]
        self._native, layout = native, native.layout
        self.layout = layout
        warps, steps = threads.lanes // WARP_SIZE, len(native.program.steps)
        self.record = np.zeros((), CONTEXT)
        self.address = self.record.ctypes.data
        self.frames = workspace.zeros("frames", (warps, layout.size))
        _fill_special_registers(self.frames, layout, threads)
        self.counters = self._point("counters", np.zeros((steps, len(COUNTERS)), np.int64))
        self.lanes_off = self._point("lanes_off", np.zeros(steps, np.int64))
        self.lanes_change = self._point("lanes_change", np.zeros(steps + 1, np.int64))
        self.warps_change = self._point("warps_change", np.zeros(steps + 1, np.int64))
        self._alive = lanes_to_words(threads.alive)
        self.mask = self._point("mask", self._alive.copy())
        self.live = self._point("live", self._alive.copy())
        self.taken = self._point("taken", np.zeros(warps, np.uint32))
        self.sites = self._point("sites", native.sites.copy())
        self._slots = self._point("stretches", native.slots.copy())
        self._point("order_starts", native.order_starts)
        self._point("frames", self.frames)
        self._point("patterns", workspace.patterns)
        self.arrays = self._point("arrays", memory.arrays.copy())
        self._point("units_written", memory.units_written)
        variables = [memory.find(v.name).address for v in native.program.globals]
        self._point("variables", np.array(variables, np.int64))
        self.ready = _Groups(self, "ready", len(native.slots), warps)
        self.parked = _Groups(self, "parked", len(native.slots), warps)
        for name, value in (
            ("frame_bytes", layout.size),
            ("warps", warps),
            ("warps_per_block", threads.grid.padded_threads // WARP_SIZE),
            ("steps", steps),
            ("array_count", len(memory.allocations)),
            ("unit_shift", memory.unit_bytes.bit_length() - 1),
            ("version", workspace.first_version()),
            ("writer", writers[0]),
            ("first_writer", writers[1]),
            ("order_count", len(native.order_starts)),
        ):
            self.record[name] = value
        self._begin(warps, int(np.count_nonzero(threads.alive)))
        self.record["fault"]["index"] = -1
        for number, space in enumerate(SPACES[:-1]):
            self._set_segment(number, segments[space], threads)

    def restart(self, threads: Threads, memory: GlobalMemory, writers: tuple[int, int]) -> None:
        """Begin again with other blocks, no more than at first, after all lanes have exited.

        The counters go on. The workspace must not have been used by others since.
        """
        layout, blocks = self.layout, threads.blocks
        warps = len(blocks) * self["warps_per_block"]
        self.frames[:, : layout.registers_size] = 0
        for axis, name in enumerate("xyz"):
            if f"%ctaid.{name}" in layout.offsets:
                indices = np.repeat(blocks[:, axis], self["warps_per_block"])
                layout.view(self.frames[:warps], f"%ctaid.{name}")[...] = indices[:, None]
        self.mask[:warps] = self.live[:warps] = self._alive[:warps]
        self.mask[warps:] = 0
        self.arrays["loaded"] = self.arrays["stored"] = 0
        self._begin(warps, len(blocks) * threads.grid.threads)
        self.record["writer"], self.record["first_writer"] = writers
        self.record["units_written"] = memory.units_written.ctypes.data

    def _begin(self, warps: int, lanes: int) -> None:
        """Let so many lanes begin at the first slot."""
        record = self.record
        record["slot"], record["limit"], record["clock"] = 0, -1, 0
        record["warps_running"], record["lanes_running"], record["lanes_live"] = warps, lanes, lanes

    def forget_counts(self) -> None:
        """Set the counters to 0."""
        for counts in (self.counters, self.lanes_off, self.lanes_change, self.warps_change):
            counts[:] = 0

    def __getitem__(self, name: str) -> int:
        """A field of the record."""
        return int(self.record[name])

    def __setitem__(self, name: str, value: int) -> None:
        self.record[name] = value

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the runtime on this context; gives its result."""
        result: int = self._native.call(name, self.address, *arguments)
        return result

    @property
    def interrupts(self) -> bool:
        """Whether the machine code returns before it executes what lies at the running slot."""
        return int(self._slots[self["slot"]]["kind"]) == _AT_PYTHON

    def interrupt_at(self, indices: Iterable[int]) -> None:
        """Let the machine code return before it executes some instructions.

        Each must be a stretch of its own, or one of control.
        """
        for index in indices:
            self._slots[self._native.slot_at[index]]["kind"] = _AT_PYTHON

    def resume_at(self, index: int) -> None:
        """Let the machine code execute an instruction again that it returned at."""
        number = self._native.slot_at[index]
        self._slots[number]["kind"] = self._native.slots[number]["kind"]

    def check_first(self, indices: Sequence[int], checks: NDArray[np.uint64]) -> None:
        """Let the machine code execute watched instructions that their checks pass.

        Args:
            indices: The instructions.
            checks: The host addresses of their `check_layout.CHECK` records.
        """
        slots = self._native.slot_at[indices]
        self._slots[slots] = self._native.slots[slots]
        self._slots["check"][slots] = checks

    def transfer_here(self) -> int:
        """Execute the instruction of control, at the running group's slot, that has interrupted."""
        slot = self["slot"]
        self._slots[slot]["kind"] = self._native.slots[slot]["kind"]
        status = self.call("transfer")
        self._slots[slot]["kind"] = _AT_PYTHON
        return status

    def point(self, name: str, array: NDArray[Any]) -> None:
        """Let a field of the record point to an array, which is kept."""
        self._point(name, array)

    def _point(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        self.record[name] = array.ctypes.data
        self._kept.append(array)
        return array

    def _set_segment(self, number: int, segment: Segment, threads: Threads) -> None:
        base = segment.data.ctypes.data - segment.origin
        blocks, lane = len(threads.blocks), segment.lane_base
        per_block = per_lane = 0
        if segment.name == "shared":
            per_block = (segment.data.size - 16) // blocks
        elif lane is not None:
            per_lane = (segment.data.size - 16) // threads.lanes
        read_only = segment.name in READ_ONLY
        self.record["segments"][number] = (
            base % 2**64,
            segment.size,
            per_block,
            per_lane,
            read_only,
        )


class _Groups:
    """Groups of lanes that do not run, at most one per slot, as `layout.GROUPS` holds them."""

    def __init__(self, context: ChunkContext, name: str, slots: int, warps: int) -> None:
        self._record = context.record[name]  # a view: what is set here is set there
        # Few slots ever hold a group: memory that is not touched costs nothing.
        self._masks = np.zeros((slots, warps), np.uint32)
        self._present = np.zeros(slots, np.int64)
        self._slots = np.zeros(slots, np.int64)
        assert GROUPS.names is not None
        self._record["masks"] = self._masks.ctypes.data
        self._record["present"] = self._present.ctypes.data
        self._record["slots"] = self._slots.ctypes.data

    def __len__(self) -> int:
        return int(self._record["count"])

    def items(self) -> list[tuple[int, Words]]:
        """The slots with a group, ascending, and the lanes of each."""
        slots = sorted(self._slots[: len(self)].tolist())
        return [(slot, self._masks[slot]) for slot in slots]

    def take(self) -> list[tuple[int, Words]]:
        """Remove all groups and return them."""
        groups = [(slot, mask.copy()) for slot, mask in self.items()]
        self._present[self._slots[: len(self)]] = 0
        self._record["count"] = 0
        return groups


def lanes_to_words(lanes: NDArray[np.bool_]) -> Words:
    """A mask, shape (lanes,), as a word per warp."""
    return np.packbits(lanes, bitorder="little").view(np.uint32)


def words_to_lanes(words: Words) -> NDArray[np.bool_]:
    """A word per warp as a mask, shape (lanes,)."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


def _fill_special_registers(
    frames: NDArray[np.uint8], layout: FrameLayout, threads: Threads
) -> None:
    for name, values in threads.special_registers().items():
        if name in layout.offsets:
            lanes = np.broadcast_to(values, threads.lanes)
            layout.view(frames, name)[...] = lanes.reshape(-1, WARP_SIZE)
