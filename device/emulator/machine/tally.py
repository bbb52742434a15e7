"""The counts of a chunk, instruction by instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from memlab.device.emulator.codegen.layout import COUNTERS
from memlab.device.emulator.codegen.program_code import NativeProgram
from memlab.device.emulator.machine.context import ChunkContext
from memlab.device.emulator.program.program import counts_itself


@dataclass
class Tally:
    """Counts of each instruction of a program: lists indexed by its position.

    Attributes:
        lanes: Lanes that executed it and were not predicated off.
        warps: Warps that executed it.
        requests: Warp-level memory instructions, after merging by ptxas.
        sectors: Sectors of global and local accesses.
        wavefronts: Wavefronts of shared accesses; 128-byte lines of global and local accesses;
            distinct addresses, which are served in sequence, of constant accesses.
        excessive: Wavefronts beyond the ideal.
        bytes: Bytes that the lanes requested.
        used: Bytes of global memory that the warps requested; bytes that several lanes of a warp
            request count once.
        words: Words of shared memory that the warps accessed; a word that several lanes of a warp
            access counts once.
        remote_requests: Accesses of warps to shared memory of other blocks; the counts above have
            none of these.
        remote_sectors: Sectors of these.
        receivers: Blocks to which copies to several blocks were written, of all lanes.
    """

    lanes: list[int]
    warps: list[int]
    requests: list[int]
    sectors: list[int]
    wavefronts: list[int]
    excessive: list[int]
    bytes: list[int]
    used: list[int]
    words: list[int]
    remote_requests: list[int]
    remote_sectors: list[int]
    receivers: list[int]

    @classmethod
    def zeros(cls, instructions: int) -> Tally:
        """A tally of zeros."""
        return cls(*([0] * instructions for _ in fields(cls)))

    @classmethod
    def sum(cls, tallies: Sequence[Tally]) -> Tally:
        """The sum of tallies of one program; at least one."""
        columns = ([getattr(t, field.name) for t in tallies] for field in fields(cls))
        return cls(*(np.sum(column, axis=0).tolist() for column in columns))

    def add(self, other: Tally, times: int = 1, over: int = 1) -> None:
        """Add another tally, scaled by `times / over` and rounded to whole counts."""
        for counter in fields(self):
            totals, added = getattr(self, counter.name), getattr(other, counter.name)
            for index, value in enumerate(added):
                totals[index] += value if times == over else round(value * times / over)


def tally_of(native: NativeProgram, context: ChunkContext) -> Tally:
    """The counts that a chunk's machine code has made so far."""
    lanes = np.cumsum(context.lanes_change[:-1]) - context.lanes_off
    warps = np.cumsum(context.warps_change[:-1])
    counts = {name: context.counters[:, number] for number, name in enumerate(COUNTERS)}
    requested, used = np.zeros_like(lanes), np.zeros_like(lanes)
    at = native.sites["index"]
    requested[at] = lanes[at] * native.sites["size"]
    rows = {index: native.program.steps[index].row for index in at}
    requested[[index for index in at if not rows[index].counted]] = 0
    counted = [index for index in at if counts_itself(rows[index])]
    requested[counted] = counts["bytes"][counted]
    used[at] = counts["addresses"][at] * native.sites["counted_bytes"]
    used[counted] = counts["used"][counted]
    names = ("requests", "sectors", "wavefronts", "excessive")
    columns = [lanes, warps, *(counts[name] for name in names), requested, used, counts["words"]]
    columns.extend([*context.remote, context.receivers])
    return Tally(*(column.tolist() for column in columns))
