"""The execution trace of some blocks, for the cache and time models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import (
    ACCESS,
    CONSTANT_ACCESS,
    EVENT,
    LAST_ACCESS,
    RANGE,
    REST_COLUMNS,
    SPACES,
    TRIP_COLUMNS,
)
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.tally import rests_of, rounds_of
from memlab.device.properties import WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.machine import Chunk

_MOST_EVENTS = 200_000
_LARGEST_TRACE = 10_000_000  # warps and their sectors; the models take seconds for so many
_MOST_RANGES = 2**20  # of a block's path, 24 bytes each
_SPACES_WITH_GLOBAL = [SPACES.index(name) for name in ("global", "generic")]
_SECTOR = np.dtype(np.int32)
_MOST_CONSTANTS = 2**20  # accesses of a block to lines of constant memory
LONGEST_PATH = 200_000
"""Instructions of a path that are followed; the rest is taken to be like them."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class GlobalAccesses:
    """The accesses of a chunk's warps to global memory.

    An *event* is one execution of an instruction by a group of lanes. Each array has an item per
    event, or per access: the part of a warp in an event. Accesses are in no particular order.

    Attributes:
        warps: Warps of the chunk.
        seen: How many events there were; the first ones are kept only, if they are very many.
        index: The instruction of each event, in the order of execution; shape (events,).
        run: The run of straight code, warp after warp, in which each event was; shape (events,).
        event: The event of each access, shape (accesses,).
        warp: Its warp.
        base: The address of its first active lane, without the instruction's offset.
        phase: The byte of its first active lane in its sector.
        count: How many distinct sectors it touches.
        start: Where these begin in `offsets`.
        passes: The passes that the L2 needs for it if it is an atomic, over its sectors; else 0.
        offsets: Distinct sectors, counted from the line of the first active lane's address.
    """

    warps: int
    seen: int
    index: IntArray
    run: IntArray
    event: IntArray
    warp: IntArray
    base: IntArray
    phase: IntArray
    count: IntArray
    start: IntArray
    passes: IntArray
    offsets: IntArray

    def of_blocks(self, chosen: Sequence[int], blocks: int) -> GlobalAccesses:
        """The accesses of some blocks of a chunk, as if it had these alone.

        Args:
            chosen: Their numbers among the blocks of the chunk; one may be chosen several times.
            blocks: How many blocks the chunk has.
        """
        per_block = self.warps // blocks
        places = [np.flatnonzero(self.warp // per_block == number) for number in chosen]
        kept = np.concatenate(places)
        owner = np.repeat(np.arange(len(chosen)), [len(each) for each in places])
        return replace(
            self,
            warps=per_block * len(chosen),
            event=self.event[kept],
            warp=owner * per_block + self.warp[kept] % per_block,
            base=self.base[kept],
            phase=self.phase[kept],
            count=self.count[kept],
            start=self.start[kept],
            passes=self.passes[kept],
        )


@dataclass(frozen=True)
class ConstantAccesses:
    """The accesses of a block's warps to constant memory, those of each warp in their order.

    Each array has an item for each line of 64 bytes that an access of a warp reads.

    Attributes:
        index: The instruction.
        warp: The warp of the block.
        line: The number of the line.
        begins: Whether it is the first line of the access.
    """

    index: IntArray
    warp: IntArray
    line: IntArray
    begins: NDArray[np.bool_]


@dataclass(frozen=True)
class WarpPath:
    """The instructions that a warp executed.

    Attributes:
        ranges: Ranges of instructions (start, stop), in order. Those beyond the first 200,000
            instructions may be missing.
        instructions: How many instructions it executed in all.
    """

    ranges: tuple[tuple[int, int], ...]
    instructions: int

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> WarpPath:
        """The path of some ranges alone."""
        kept = tuple(ranges)
        return cls(kept, sum(stop - start for start, stop in kept))


@dataclass(frozen=True)
class WarpExecutions:
    """How often each warp of a block executed each instruction.

    Attributes:
        warps: Executions, shape (warps, instructions).
        lanes: The sum of the lanes over them, guards aside; the same shape.
        rounds: How often each warp entered and repeated loops, as in `Tally.rounds`, shape (warps,
            2, loops, 2, unrollings).
        rests: What remained behind the rounds, as in `Tally.rests`, shape (warps, loops,
            unrollings, unrollings).
    """

    warps: IntArray
    lanes: IntArray
    rounds: IntArray
    rests: IntArray


class PathTrace(ExecutionPolicy):
    """The instructions that the warps of one block of a chunk execute.

    The blocks run as a trial: see `ExecutionPolicy.is_trial`.

    Attributes:
        block: The number of the block in the chunk.
    """

    is_trial: ClassVar[bool] = True

    def __init__(self, block: int = 0) -> None:
        self.block = block

    def chunk_started(self, chunk: Chunk) -> None:
        """Let the machine code record the block, until an array is full."""
        context = self._context = chunk.context
        self._recorded: dict[str, NDArray[Any]] = {}
        self._record("path", "path_limit", _MOST_RANGES, RANGE)
        per_block = context["warps_per_block"]
        context["path_first"] = self.block * per_block
        self._lengths = context.point("path_lengths", np.zeros(per_block, np.int64))
        changes = per_block, context["steps"] + 1
        self._warps = context.point("path_warps", np.zeros(changes, np.int64))
        self._lanes = context.point("path_lanes", np.zeros(changes, np.int64))
        trips = per_block, context["loops"], TRIP_COLUMNS
        self._trip_lanes = context.point("path_trip_lanes", np.zeros(trips, np.int64))
        self._trip_warps = context.point("path_trip_warps", np.zeros(trips, np.int64))
        rests = per_block, context["loops"], REST_COLUMNS
        self._rests = context.point("path_rests", np.zeros(rests, np.int64))

    def _record(self, name: str, limit: str, count: int, kind: np.dtype[Any]) -> None:
        """Give the machine code room to record so many items in a field of the context."""
        self._recorded[name] = self._context.point(name, np.empty(count, kind))
        self._context[limit] = count

    def path(self) -> WarpPath:
        """The path of the block's warp that executed most: the block's end waits for it.

        A range that a fault or a trap cuts short is left out.
        """
        ranges, lengths = self._recorded["path"][: self._context["path_count"]], self._lengths
        if self._context["lanes_live"] and self._context["path_continues"] and len(ranges):
            cut = ranges[-1]
            ran = cut["warps"] >> np.arange(len(lengths)) & 1
            ranges, lengths = ranges[:-1], lengths - ran * (cut["stop"] - cut["start"])
        longest = int(lengths.argmax())
        ran = ranges[ranges["warps"] >> longest & 1 == 1]
        ends = np.cumsum(ran["stop"] - ran["start"])
        followed = ran[: int(np.searchsorted(ends, LONGEST_PATH, "right")) + 1]
        pairs = zip(followed["start"].tolist(), followed["stop"].tolist(), strict=True)
        return WarpPath(tuple(pairs), int(lengths[longest]))

    def executions(self) -> WarpExecutions:
        """How often the block's warps executed each instruction."""
        warps, lanes = (np.cumsum(c, axis=1)[:, :-1] for c in (self._warps, self._lanes))
        trips = np.stack((self._trip_lanes, self._trip_warps), axis=1)
        return WarpExecutions(warps, lanes, rounds_of(trips), rests_of(self._rests))


class ExecutionTrace(PathTrace):
    """The path of the first block of a chunk, and the global accesses of all of its blocks."""

    def chunk_started(self, chunk: Chunk) -> None:
        """Let the machine code record the chunk, until an array is full.

        The arrays have room for all that is kept and for another run (of a stretch, warp after
        warp), so that the events that are kept are complete. Memory that is not touched costs
        nothing.
        """
        super().chunk_started(chunk)
        context = self._context
        warps = context["warps"]
        sites = int(np.isin(context.sites["space"], _SPACES_WITH_GLOBAL).sum())
        # Each access touches a sector.
        self._record("events", "event_limit", _MOST_EVENTS + sites, EVENT)
        self._record("accesses", "access_limit", _LARGEST_TRACE // 2 + sites * warps, ACCESS)
        sectors = _LARGEST_TRACE + sites * warps * WARP_SIZE
        self._record("sectors", "sector_limit", sectors, _SECTOR)
        context.point("last_accesses", np.zeros(context["steps"], LAST_ACCESS))
        self._record("constants", "constant_limit", _MOST_CONSTANTS, CONSTANT_ACCESS)

    def constants(self) -> ConstantAccesses:
        """The first block's accesses to constant memory, as far as they are kept."""
        kept = self._recorded["constants"][: self._context["constant_count"]]
        index, warp, line = (kept[name].astype(np.int64) for name in ("index", "warp", "line"))
        return ConstantAccesses(index, warp, line, kept["begins"] > 0)

    def accesses(self) -> GlobalAccesses:
        """The accesses to global memory, as far as they are kept."""
        context, seen = self._context, self._context["event_count"]
        events = self._recorded["events"][: min(seen, len(self._recorded["events"]))]
        accesses = self._recorded["accesses"][: context["access_count"]]
        # Within a run, events are numbered as they begin; the first warps may leave some out.
        order = np.lexsort((events["index"], events["run"]))
        events = events[order]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        event = rank[accesses["event"]]
        count = accesses["count"].astype(np.int64)
        sizes = context["warps"] + np.bincount(event, count, len(events)).astype(np.int64)
        kept = min(int(np.searchsorted(np.cumsum(sizes), _LARGEST_TRACE)), _MOST_EVENTS)
        fault = int(context.record["fault"]["index"])
        if fault >= 0:  # warps may have gone on behind the instruction at fault
            late = (events["run"] == context["run"]) & (events["index"] >= fault)
            kept, seen = min(kept, int((~late).sum())), seen - int(late.sum())
        if kept < len(events):
            chosen = event < kept
            accesses, event, count = accesses[chosen], event[chosen], count[chosen]
        return GlobalAccesses(
            warps=context["warps"],
            seen=seen,
            index=events["index"][:kept],
            run=events["run"][:kept].astype(np.int64),
            event=event,
            warp=accesses["warp"].astype(np.int64),
            base=accesses["base"],
            phase=accesses["phase"].astype(np.int64),
            count=count,
            start=accesses["sectors"].astype(np.int64),
            passes=accesses["passes"].astype(np.int64),
            offsets=self._recorded["sectors"][: context["sector_count"]],
        )
