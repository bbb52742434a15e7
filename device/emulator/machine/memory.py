"""State spaces as flat byte arrays: their bounds, and the arrays of global memory."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.layout import ARRAY
from memlab.device.emulator.codegen.use_code import NO_OTHER_WRITERS
from memlab.device.emulator.isa.address_space import (
    GLOBAL_BASE,
    RANK_SHIFT,
    RANK_UNIT,
    UNREACHABLE,
)
from memlab.device.emulator.isa.asynchronous import tensor_copies
from memlab.device.emulator.isa.asynchronous.bulk_copies import (
    FAR_BARRIER,
    FAR_BARRIER_TEXT,
    FAULT_TEXT,
    SIZE_FAULT,
    is_far_barrier,
)
from memlab.device.emulator.isa.textures import FAULT_TEXTS
from memlab.device.emulator.machine.heap import Heap
from memlab.device.emulator.program.program import HEAP
from memlab.errors import MemlabError
from memlab.text import plural

if TYPE_CHECKING:
    from memlab.device.emulator.machine.threads import Threads
    from memlab.device.emulator.program.program import Program

Lanes = NDArray[Any]
Mask = NDArray[np.bool_]
"""Some lanes of a chunk: a bool for each, shape (lanes,)."""

NULL_PAGE_BYTES, NULL_REACH_BYTES = 4096, 2**32
"""Nothing is allocated below these addresses: they come from a null pointer, or from an index
applied to one."""


def describe_wild_address(address: int) -> str:
    """Describe a global address that is far from every array, for a message."""
    where = "where nothing is allocated"
    if address in FAULT_TEXTS:
        return FAULT_TEXTS[address]
    if 0 <= address < NULL_REACH_BYTES:
        where = "a null pointer" if address < NULL_PAGE_BYTES else "an index from a null pointer"
    return f"global address {address:#x}, {where}"


READ_ONLY = ("const", "param")
"""State spaces that a kernel can address but not store to."""
_SPACE_CONTENTS = {"const": "__constant__ memory", "param": "the kernel's arguments"}
_ALIGNMENT_BYTES = 512
"""Alignment of every allocation, as of cuMemAlloc (CUDA driver API)."""
_GUARD_BYTES = 4096  # unmapped bytes behind each allocation, which reveal an overrun


_PIECE_UNITS = 1 << 16  # units of write tracking that are cleared at once
_SPARE_UNITS = 32  # behind the last array: marks are set 32 at a time


class KernelFault(MemlabError):
    """The kernel failed as it would on a GPU: by an illegal access, a trap or an assertion."""


@dataclass(frozen=True)
class DeviceArray:
    """An array in global memory.

    Attributes:
        name: The name of the argument or variable.
        address: Its first byte's address.
        size: Its size in bytes.
        element_bytes: Bytes per element.
    """

    name: str
    address: int
    size: int
    element_bytes: int


class Segment:
    """A state space as the lanes of a chunk see it.

    Attributes:
        name: The state space.
        data: Its bytes, for all lanes.
        size: Bytes that a lane may access.
        lane_base: Position in `data` where each lane's own part starts, shape (lanes,); None where
            all lanes share the memory.
        origin: The address of the first byte of `data`.
    """

    origin = 0

    def __init__(
        self, name: str, data: NDArray[np.uint8], size: int, lane_base: Lanes | None = None
    ) -> None:
        self.name = name
        self.data = data
        self.size = size
        self.lane_base = lane_base

    def typed(self, dtype: np.dtype[Any]) -> Lanes:
        """The bytes as an array of elements; trailing bytes of no whole element are left out."""
        usable = self.data.size - self.data.size % dtype.itemsize
        return self.data[:usable].view(dtype)

    def positions(self, address: Lanes, lanes: Lanes, has_rank: bool = True) -> Lanes:
        """Positions in `data` of the addresses of some lanes, given by number; both (n,).

        `has_rank` tells whether addresses in shared memory name the block.
        """
        places = address - self.origin
        return places if self.lane_base is None else places + self.lane_base[lanes]

    def check(self, low: int, high: int) -> bool:
        """Whether all bytes from `low` up to, not including, `high` may be accessed."""
        return low >= 0 and high <= self.size

    def describe(self, address: int) -> str:
        """Describe an address for a message."""
        return f"{self.name} offset {address} of {self.size} bytes"


class SharedMemory(Segment):
    """Shared memory: each lane's own block's, and that of the other blocks of its cluster.

    `check` and `describe` take the places of `lane_code.place_in_cluster`.

    Attributes:
        cluster_blocks: Blocks of a cluster.
    """

    def __init__(
        self, data: NDArray[np.uint8], size: int, block_bytes: int, owner: Lanes, peers: Lanes
    ) -> None:
        """Describe the shared memory of some blocks.

        Args:
            data: The bytes of all blocks, `block_bytes` each.
            size: Bytes that a block may access.
            block_bytes: The distance of the parts of two blocks.
            owner: The number of each lane's block.
            peers: The numbers of the blocks of each block's cluster, by their ranks.
        """
        super().__init__("shared", data, size, owner * block_bytes)
        self.cluster_blocks = peers.shape[1]
        self._block_bytes, self._owner, self._peers = block_bytes, owner, peers

    def positions(self, address: Lanes, lanes: Lanes, has_rank: bool = True) -> Lanes:
        """Positions in `data`; where an address has the rank of no block, in the own one's part."""
        if self.cluster_blocks == 1 or not has_rank:
            return super().positions(address, lanes)
        rank, own = address >> RANK_SHIFT, self._owner[lanes]
        is_known = (rank >= 0) & (rank < self.cluster_blocks)
        block = np.where(is_known, self._peers[own, np.where(is_known, rank, 0)], own)
        positions: Lanes = block * self._block_bytes + (address & (RANK_UNIT - 1))
        return positions

    def check(self, low: int, high: int) -> bool:
        """Whether all bytes from `low` up to, not including, `high` lie in one block's part."""
        start = low & -RANK_UNIT
        return 0 <= start >> RANK_SHIFT <= self.cluster_blocks and high - start <= self.size

    def describe(self, address: int) -> str:
        """Describe an address for a message."""
        if not self.size:
            return f"shared offset {address}, and the launch has none: add --shared BYTES"
        if address < RANK_UNIT:
            return super().describe(address)
        is_barred = self.cluster_blocks > 1 and UNREACHABLE <= address < 2 * UNREACHABLE
        place = address - UNREACHABLE if is_barred else address
        rank = (place >> RANK_SHIFT) - 1
        of_rank = f"shared offset {place % RANK_UNIT} of {self.size} bytes of the block of "
        text = f"{of_rank}rank {rank} in a cluster of {self.cluster_blocks}"
        return f"{text}, which .shared::cluster alone reaches" if is_barred else text


class GlobalMemory(Segment):
    """Global memory: arrays with guard bytes between them.

    Attributes:
        allocations: The arrays, by ascending address.
        unit_bytes: Bytes of the units by which stores are tracked.
        units_written: The writer of each unit, from the first array on; 0 where there is none.
        arrays: An `ARRAY` record for each array: what was loaded from and stored to.
        heap: What `malloc` has given; None for a kernel that does not call it.
        printed: How many calls of `printf` the launch has made.
        printed_characters: How many characters they have printed.
    """

    origin = GLOBAL_BASE
    printed = 0
    printed_characters = 0

    def __init__(self, arrays: dict[str, tuple[int, int]]) -> None:
        """Allocate arrays; `arrays` maps their names to (bytes, bytes per element)."""
        self.allocations: list[DeviceArray] = []
        end = 0
        for name, (size, element_bytes) in arrays.items():
            self.allocations.append(DeviceArray(name, GLOBAL_BASE + end, size, element_bytes))
            end += -(-(size + _GUARD_BYTES) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        super().__init__("global", np.zeros(end + 16, np.uint8), end)
        self._starts = [array.address for array in self.allocations]
        self._by_name = {array.name: array for array in self.allocations}
        self.unit_bytes = write_tracking_bytes(
            element_bytes for _, element_bytes in arrays.values()
        )
        self.units_written = np.zeros(end // self.unit_bytes + _SPARE_UNITS, np.uint16)
        bounds = [(array.address, array.address + array.size, 0, 0) for array in self.allocations]
        self.arrays = np.array(bounds, ARRAY)
        self._writers = 0
        self.heap = Heap(self.find(HEAP.name)) if HEAP.name in arrays else None

    def find(self, name: str) -> DeviceArray:
        """The array of this name."""
        return self._by_name[name]

    def array_number(self, address: int) -> int | None:
        """The number of the array that holds the byte at an address; None if none does."""
        index = bisect.bisect_right(self._starts, address) - 1
        inside = index >= 0 and address < self._starts[index] + self.allocations[index].size
        return index if inside else None

    def bytes_of(self, name: str) -> NDArray[np.uint8]:
        """The bytes of an array, as a view."""
        array = self.find(name)
        start = array.address - GLOBAL_BASE
        return self.data[start : start + array.size]

    def elements_written(self, name: str) -> NDArray[np.int64]:
        """Row-major positions of the elements that were stored to."""
        array = self.find(name)
        per_element = max(array.element_bytes // self.unit_bytes, 1)
        units = self._units_of(array)[: array.size // array.element_bytes * per_element]
        step = _PIECE_UNITS - _PIECE_UNITS % per_element
        found = [np.zeros(0, np.int64)]
        for start in range(0, len(units), step):  # most of a large array was never touched
            piece = units[start : start + step]
            if piece.any():
                written = piece.reshape(-1, per_element).any(axis=1)
                found.append(np.flatnonzero(written) + start // per_element)
        return np.concatenate(found)

    def written_pieces(self, name: str) -> Iterator[slice]:
        """The parts of an array's bytes, each of some KiB, in which there were stores."""
        units = self._units_of(self.find(name))
        for start in range(0, len(units), _PIECE_UNITS):
            if units[start : start + _PIECE_UNITS].any():
                yield slice(start * self.unit_bytes, (start + _PIECE_UNITS) * self.unit_bytes)

    def _units_of(self, array: DeviceArray) -> NDArray[np.uint16]:
        start = (array.address - GLOBAL_BASE) // self.unit_bytes
        return self.units_written[start : start - (-array.size // self.unit_bytes)]

    def forget_writes(self) -> None:
        """Forget which elements were stored to; memory that was never touched stays so."""
        for start in range(0, self.units_written.size, _PIECE_UNITS):
            piece = self.units_written[start : start + _PIECE_UNITS]
            if piece.any():
                piece[:] = 0

    def new_writers(self, count: int) -> int:
        """Numbers for blocks that store to memory: the first one of so many that follow it."""
        if self._writers + count >= NO_OTHER_WRITERS:
            np.minimum(self.units_written, 1, out=self.units_written)
            self._writers = 1
        first = self._writers + 1
        self._writers += count
        return first

    def check(self, low: int, high: int) -> bool:
        """Whether all bytes from `low` up to, not including, `high` lie in one array."""
        index = bisect.bisect_right(self._starts, low) - 1
        return index >= 0 and high <= self._starts[index] + self.allocations[index].size

    def describe(self, address: int) -> str:
        """Describe an address as an element of the nearest array below it.

        Variables of the compiler, such as `$str` of an assertion's text, and those with mangled
        names, as of a library, are left out, unless the address lies right behind them.
        """
        named = [
            array
            for array in self.allocations
            if not array.name.startswith(("$", "_Z", "__unnamed_"))
            or address < array.address + array.size + _GUARD_BYTES
        ]
        if not named:
            return describe_wild_address(address)
        index = bisect.bisect_right(named, address, key=lambda array: array.address)
        nearest = named[max(index - 1, 0)]
        element = (address - nearest.address) // nearest.element_bytes
        count = nearest.size // nearest.element_bytes
        if abs(element) > 1 << 40:
            return describe_wild_address(address)
        return f"{nearest.name}[{element}] of {count} {plural(count, 'element')}"


def write_tracking_bytes(element_bytes: Iterable[int]) -> int:
    """Bytes of the units by which stores are tracked: the largest that divide 4 and elements."""
    return math.gcd(4, *element_bytes)


def find_fault(segment: Segment, addresses: Lanes, size: int, what: str) -> tuple[str, int]:
    """Find the first access out of bounds or misaligned; there must be one.

    Args:
        segment: The memory.
        addresses: The address of each access, shape (accesses,).
        size: Bytes of each access.
        what: `read` or `write`.

    Returns:
        A message, and the number of the access.
    """
    for number, address in enumerate(addresses.tolist()):
        if address == SIZE_FAULT:
            return f"illegal {what}: {FAULT_TEXT}", number
        if segment.name == "shared" and is_far_barrier(address):
            where = segment.describe(address - FAR_BARRIER)
            return f"illegal {what} of an mbarrier at {where}: {FAR_BARRIER_TEXT}", number
        if address in tensor_copies.FAULT_TEXTS:
            return f"illegal {what} of a tensor copy: {tensor_copies.FAULT_TEXTS[address]}", number
        if segment.name == "global" and address in FAULT_TEXTS:
            return f"illegal {what} of a texture or surface: {FAULT_TEXTS[address]}", number
        where = f"{what} of {size} bytes at {segment.describe(address)}"
        if what == "write" and segment.name in READ_ONLY:
            contents = _SPACE_CONTENTS[segment.name]
            return f"illegal address: {where}: {contents} can only be read", number
        if address % size:
            reason = f"the address must be a multiple of {size}"
            return f"misaligned address: {where}; {reason}", number
        if not segment.check(address, address + size):
            return f"illegal address: {where}", number
    raise AssertionError("a fault was expected")


def build_segments(
    program: Program, threads: Threads, global_memory: GlobalMemory
) -> dict[str, Segment]:
    """The state spaces of a chunk by name: global memory, and those that its lanes do not share."""
    grid, lanes = threads.grid, np.arange(threads.lanes, dtype=np.int64)
    shared_bytes = program.static_shared_bytes  # the padding behind them belongs to no array
    if grid.dynamic_shared_bytes:
        shared_bytes = program.dynamic_shared_start + grid.dynamic_shared_bytes
    segments: dict[str, Segment] = {"global": global_memory}
    blocks = lanes // grid.padded_threads
    for name, size, distance, owner in (
        ("shared", shared_bytes, -(-shared_bytes // 16) * 16, blocks),
        ("local", program.local_bytes, program.local_bytes, lanes),
        ("param::func", program.argument_bytes, program.argument_bytes, lanes),
    ):
        count = len(threads.blocks) if name == "shared" else threads.lanes
        data = np.zeros(distance * count + 16, np.uint8)
        segments[name] = (
            SharedMemory(data, size, distance, owner, threads.cluster_peers())
            if name == "shared"
            else Segment(name, data, size, owner * distance)
        )
    for name, contents in (("const", program.const_image), ("param", grid.parameters)):
        data = np.frombuffer(contents.ljust(16, b"\0"), np.uint8)
        segments[name] = Segment(name, data, len(contents))
    return segments
