"""The memory that a chunk of blocks shares with its machine code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from mmap import mmap
from typing import Any
from weakref import ReferenceType

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import (
    CONTEXT,
    MOST_PATTERNS,
    PATTERN,
    SPACES,
    STRETCH_KINDS,
)
from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.machine.memory import READ_ONLY, GlobalMemory, Segment
from memlab.device.emulator.machine.tally import Counts
from memlab.device.emulator.machine.threads import Threads, cluster_peers
from memlab.device.emulator.program.call_stack import STACK_POINTER
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
        # Pages of the system are zeros without being touched: a launch uses few of 3 MB.
        pages = mmap(-1, MOST_PATTERNS * PATTERN.itemsize)
        self.patterns: NDArray[np.void] = np.frombuffer(pages, PATTERN)
        self._buffer = np.zeros(0, np.uint8)
        self._chunks = 0

    def first_version(self) -> int:
        """The number behind which the versions of a further chunk's patterns begin."""
        self._chunks += 1
        return self._chunks << _VERSION_BITS

    def frames(self, warps: int, size: int) -> NDArray[np.uint8]:
        """Frames of some bytes each, which begin at a cache line, with any contents.

        Memory that was used before is much faster than new one.
        """
        if self._buffer.size < warps * size + _ALIGNMENT_BYTES:
            self._buffer = np.empty(warps * size + _ALIGNMENT_BYTES, np.uint8)
        start = -self._buffer.ctypes.data % _ALIGNMENT_BYTES
        return self._buffer[start : start + warps * size].reshape(warps, size)


class ChunkContext:
    """The `CONTEXT` record of a chunk, and the arrays that it points to.

    Attributes:
        record: The record, shape ().
        address: Its host address.
        layout: Where registers lie in a frame.
        frames: The frames of the warps, shape (warps, bytes).
        counts: What the machine code counts.
        warp_work: The instructions that each warp has executed since it began, but for control.
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
    ) -> None:
        """Make the arrays for a chunk; its blocks begin by `begin`."""
        self._kept: list[Any] = [workspace, segments]
        self._native, self.layout = native, native.layout
        warps, steps = threads.lanes // WARP_SIZE, len(native.program.steps)
        self.record = np.zeros((), CONTEXT)
        self.address = self.record.ctypes.data
        self.frames = self.point("frames", workspace.frames(warps, self.layout.size))
        self.frames[:, : self.layout.registers_size] = 0
        offsets, view = self.layout.offsets, self.layout.view
        for name, value in threads.grid.registers.items():
            if name in offsets:
                view(self.frames, name)[...] = value
        for name, values in threads.thread_registers(offsets).items():
            by_block = view(self.frames, name).reshape(len(threads.blocks), -1, WARP_SIZE)
            by_block[...] = values.reshape(-1, WARP_SIZE)
        loops = len(native.program.loop_heads)
        self.counts = counts = Counts.of(steps, loops)
        for name in ("counters", "lanes_off", "lanes_change", "warps_change", "receivers", "rests"):
            self.point(name, getattr(counts, name))
        self._point_each(("trip_lanes", "trip_warps"), counts.trips)
        self._point_each(("remote_requests", "remote_sectors"), counts.remote)
        self._point_each(("slow_lanes", "slow_warps"), counts.slow)
        self._point_each(("taken_lanes", "taken_warps", "parted_warps"), counts.branches)
        self.warp_work = self.point("warp_work", np.zeros(warps, np.int64))
        self.point("trips", np.zeros(loops, np.int64))
        self._begun_loops = np.zeros((2, loops), np.int64)
        self._point_each(("parted", "next_trips"), self._begun_loops)
        self._left_at = self.point("left_at", np.zeros((loops, warps), np.uint32))
        cluster_blocks = threads.grid.cluster_blocks
        self._peers = self.point("peers", cluster_peers(threads.blocks, threads.grid.cluster))
        self._alive = lanes_to_words(threads.alive)
        self.mask = self.point("mask", np.zeros(warps, np.uint32))
        self.live = self.point("live", np.zeros(warps, np.uint32))
        self.taken = self.point("taken", np.zeros(warps, np.uint32))
        self.sites = self.point("sites", native.sites.copy())
        self._slots = self.point("stretches", native.slots.copy())
        self.point("order_starts", native.order_starts)
        self.point("patterns", workspace.patterns)
        self.arrays = self.point("arrays", memory.arrays.copy())
        self.point("units_written", memory.units_written)
        variables = [memory.find(v.name).address for v in native.program.globals]
        self.point("variables", np.array(variables, np.int64))
        starts = [stretch.start for stretch in native.stretches]
        self.ready = _Groups(self.record["ready"], starts, warps)
        self.parked = _Groups(self.record["parked"], starts, warps)
        for name, value in (
            ("frame_bytes", self.layout.size),
            ("warps", warps),
            ("warps_per_block", threads.grid.padded_threads // WARP_SIZE),
            ("cluster_blocks", cluster_blocks),
            ("steps", steps),
            ("loops", loops),
            ("array_count", len(memory.allocations)),
            ("unit_shift", memory.unit_bytes.bit_length() - 1),
            ("version", workspace.first_version()),
            ("order_count", len(native.order_starts)),
            ("depth", self.layout.offsets.get(STACK_POINTER, -1)),
        ):
            self[name] = value
        self.record["fault"]["index"] = -1
        for number, space in enumerate(SPACES[:-1]):
            self._set_segment(number, segments[space], threads)

    def begin(self, threads: Threads, writers: tuple[int, int]) -> None:
        """Let blocks begin, no more than the arrays were made for.

        At first, or after all lanes have exited; then the workspace must not have been used by
        others since. The counters go on.
        """
        blocks, per_block = threads.blocks, self["warps_per_block"]
        warps = len(blocks) * per_block
        for part in self._native.zeroed:
            self.frames[:, part] = 0
        for name, values in threads.block_registers(self.layout.offsets).items():
            register = self.layout.view(self.frames[:warps], name)
            register[...] = np.repeat(values, per_block)[:, None]
        if self["cluster_blocks"] > 1:
            self._peers[: len(blocks)] = cluster_peers(blocks, threads.grid.cluster)
        self.mask[:warps] = self.live[:warps] = self._alive[:warps]
        self.mask[warps:] = 0
        self.warp_work[:] = 0
        self.arrays["loaded"] = self.arrays["stored"] = 0
        self._begun_loops[:] = 0
        self._left_at[:] = 0
        self["slot"], self["limit"], self["clock"] = 0, -1, 0
        self["warps_running"] = warps
        self["lanes_running"] = self["lanes_live"] = len(blocks) * threads.grid.threads
        self["writer"], self["first_writer"] = writers

    def __getitem__(self, name: str) -> int:
        """A field of the record."""
        return int(self.record[name])

    def __setitem__(self, name: str, value: int) -> None:
        self.record[name] = value

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the runtime on this context; gives its result."""
        result: int = self._native.call(name, self.address, *arguments)
        return result

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

    def _point_each(self, names: Sequence[str], arrays: NDArray[Any]) -> None:
        for name, array in zip(names, arrays, strict=True):
            self.point(name, array)

    def point(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Let a field of the record point to an array, which is kept; returns it."""
        self.record[name] = array.ctypes.data
        self._kept.append(array)
        return array

    def _set_segment(self, number: int, segment: Segment, threads: Threads) -> None:
        base, per_block, per_lane = segment.data.ctypes.data - segment.origin, 0, 0
        if segment.name == "shared":
            per_block = (segment.data.size - 16) // len(threads.blocks)
        elif segment.lane_base is not None:
            per_lane = (segment.data.size - 16) // threads.lanes
        bounds = base % 2**64, segment.size, per_block, per_lane, segment.name in READ_ONLY
        self.record["segments"][number] = bounds


class _Groups:
    """Groups of lanes that do not run, at most one per slot, as `layout.GROUPS` holds them."""

    def __init__(self, record: NDArray[np.void], starts: Sequence[int], warps: int) -> None:
        self._record, self._starts = record, starts  # a view: what is set here is set there
        # Few slots ever hold a group: memory that is not touched costs nothing.
        self._masks = np.zeros((len(starts), warps), np.uint32)
        self._present, self._slots = np.zeros((2, len(starts)), np.int64)
        record["masks"] = self._masks.ctypes.data
        record["present"] = self._present.ctypes.data
        record["slots"] = self._slots.ctypes.data

    def __len__(self) -> int:
        return int(self._record["count"])

    def masks(self) -> dict[int, NDArray[np.bool_]]:
        """The lanes of each group, by its program counter, ascending."""
        slots = sorted(self._slots[: len(self)].tolist())
        return {self._starts[slot]: words_to_lanes(self._masks[slot]) for slot in slots}

    def take(self) -> dict[int, NDArray[np.bool_]]:
        """Remove all groups; returns their `masks`."""
        groups = self.masks()
        self._present[self._slots[: len(self)]] = 0
        self._record["count"] = 0
        return groups


def lanes_to_words(lanes: NDArray[np.bool_]) -> Words:
    """A mask, shape (lanes,), as a word per warp."""
    return np.packbits(lanes, bitorder="little").view(np.uint32)


def words_to_lanes(words: Words) -> NDArray[np.bool_]:
    """A word per warp as a mask, shape (lanes,)."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)
