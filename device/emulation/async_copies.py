"""What asynchronous copies of 16 bytes that bypass the L1 fetch and write, by their addresses.

The hardware fetches a sector from the L2 once for each aligned piece of 32 bytes of shared memory
that it goes to: twice where its halves lie in two of them. On an H200 copies to rows that begin at
odd multiples of 16 bytes read 24 sectors where their lines have 16 (docs/results/README.md,
"`cp.async`").

Each line of 128 bytes in shared memory that a line of global memory goes to takes a wavefront, and
a request to the L2. Of sectors whose halves lie in two pieces, all first halves are written at
once, then the second ones (docs/results/h200-copies.csv). Reads of a line by several
multiprocessors are not merged where the requests of a warp ask for different sectors of it: of four
multiprocessors, an H200 merged 0 to 6% of such, and 69 to 73% of others
(docs/results/h200-copied-rows.csv).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulation.execution import Execution
from memlab.device.emulation.representative_block import EnoughObservedError, observe_blocks
from memlab.device.emulator.isa.macros import is_async_copy_store
from memlab.device.emulator.machine.observer import ExecutionPolicy
from memlab.device.emulator.machine.tally import Tally
from memlab.device.emulator.models.address_streams import SECTORS_PER_LINE
from memlab.device.emulator.program.program import Program, bytes_moved
from memlab.device.properties import LINE_BYTES, SECTOR_BYTES, WARP_SIZE

if TYPE_CHECKING:
    from memlab.device.emulator.machine.access_watch import WatchedAccess
    from memlab.device.emulator.machine.machine import Chunk

_SPLIT_BYTES = 16
_MOST_COPIES = 256  # executions of copies that are looked at: 0.1 s


@dataclass(frozen=True)
class CopyCosts:
    """What copies of 16 bytes that bypass the L1 cost, as far as they were executed.

    Attributes:
        fetches_per_sector: Fetches for each sector that a copy reads, 1 to 2, by the position of
            its load in the program.
        unmerged_per_sector: Those among them that the L2's request coalescer does not merge with
            those of other multiprocessors, likewise.
        wavefronts: Wavefronts of shared memory for each request, by the position of its store.
    """

    fetches_per_sector: Mapping[int, float] = field(default_factory=dict)
    unmerged_per_sector: Mapping[int, float] = field(default_factory=dict)
    wavefronts: Mapping[int, float] = field(default_factory=dict)

    def with_wavefronts(self, tally: Tally) -> Tally:
        """The counts with the wavefronts of the copies' stores; the ideal ones stay.

        They do not belong into times: what a wavefront of a copy takes was not measured, and as a
        clock each they make `mma-half` and `mma-brain` 10 and 12% high.
        """
        wavefronts, excessive = list(tally.wavefronts), list(tally.excessive)
        for store, each in self.wavefronts.items():
            ideal = tally.wavefronts[store] - tally.excessive[store]
            wavefronts[store] = max(round(tally.requests[store] * each), ideal)
            excessive[store] = wavefronts[store] - ideal
        return replace(tally, wavefronts=wavefronts, excessive=excessive)


def observe_copies(execution: Execution, block: tuple[int, int, int]) -> CopyCosts:
    """Execute the first copies of a block; the outputs of the launch are lost.

    Args:
        execution: The launch.
        block: Coordinates of the block.
    """
    if not _copies(execution.program):
        return CopyCosts()
    log = _CopyLog()
    observe_blocks(execution, np.array([block]), log)
    read = {load: sectors for load, sectors in log.sectors.items() if sectors}  # else zeros alone
    return CopyCosts(
        {load: log.fetches[load] / sectors for load, sectors in read.items()},
        {load: log.unmerged[load] / sectors for load, sectors in read.items()},
        {store: log.wavefronts[store] / made for store, made in log.requests.items() if made},
    )


def _copies(program: Program) -> Mapping[int, int]:
    """The loads of copies of 16 bytes that bypass the L1, by the stores that follow them."""
    copies, load = {}, None
    for index, step in enumerate(program.steps):
        if step.row.kind == "load" and step.row.space == "global":
            load = index
        elif load is not None and is_async_copy_store(step.instruction):
            loading = program.steps[load]
            if loading.row.bypass_l1 and bytes_moved(loading.row) == _SPLIT_BYTES:
                copies[index] = load
    return copies


class _CopyLog(ExecutionPolicy):
    """Counts sectors and fetches by the copies' loads, requests and wavefronts by their stores.

    Of the fetches, those that are not merged with others are counted, too.

    Lanes that only write zeros have no address in global memory: no wavefront is counted for them.
    """

    is_trial: ClassVar[bool] = True

    def __init__(self) -> None:
        self.sectors: dict[int, int] = {}
        self.fetches: dict[int, int] = {}
        self.unmerged: dict[int, int] = {}
        self.requests: dict[int, int] = {}
        self.wavefronts: dict[int, int] = {}
        self._left = _MOST_COPIES

    def watched_instructions(self, program: Program) -> Collection[int]:
        """The loads and the stores of copies."""
        self._load_of = _copies(program)
        return {*self._load_of, *self._load_of.values()}

    def chunk_started(self, chunk: Chunk) -> None:
        """Begin without loaded lanes."""
        lanes = chunk.context["warps"] * WARP_SIZE
        self._from = np.full(lanes, -1)  # where each lane's last load read, until it is stored

    def memory_accessed(self, access: WatchedAccess) -> None:
        """A copy is about to load or to store."""
        index = access.instruction.index
        if index not in self._load_of:
            self._from[access.mask] = access.address[access.mask]
            return
        lanes = np.flatnonzero(access.mask & (self._from >= 0))
        warp, source, to = lanes // WARP_SIZE, self._from[lanes], access.address[lanes]
        is_split = (to - source) % SECTOR_BYTES != 0  # as wide as one of its halves
        half = np.where(is_split, source % SECTOR_BYTES // _SPLIT_BYTES, 0)
        load = self._load_of[index]
        sector, wavefront = source // SECTOR_BYTES, (source // LINE_BYTES, to // LINE_BYTES, half)
        for counts, at, columns in (
            (self.sectors, load, (sector,)),
            (self.fetches, load, (sector, to // SECTOR_BYTES)),
            (self.requests, index, ()),
            (self.wavefronts, index, wavefront),
        ):
            distinct = np.unique(np.stack([warp, *columns]), axis=1).shape[1]
            counts[at] = counts.get(at, 0) + distinct
        apart = _fetched_apart(np.stack([warp, *wavefront, sector]))
        self.unmerged[load] = self.unmerged.get(load, 0) + apart
        self._from[lanes] = -1
        self._left -= 1
        if not self._left:
            raise EnoughObservedError


def _fetched_apart(copies: NDArray[np.int64]) -> int:
    """How many sectors are fetched from lines of whose sectors the requests of a warp differ.

    Args:
        copies: The warp, the line, two numbers of the request, and the sector of each copy; shape
            (5, copies).
    """
    fetched = np.unique(copies, axis=1)
    requests, request = np.unique(fetched[:-1], axis=1, return_inverse=True)
    lines, line = np.unique(requests[:2], axis=1, return_inverse=True)
    request, line = request.reshape(-1), line.reshape(-1)  # NumPy 2.0 gives them another shape
    sectors = np.bincount(request, 1 << fetched[-1] % SECTORS_PER_LINE)
    least, most = np.full(lines.shape[1], np.inf), np.zeros(lines.shape[1])
    np.minimum.at(least, line, sectors)
    np.maximum.at(most, line, sectors)
    return int(np.count_nonzero((least < most)[line[request]]))
