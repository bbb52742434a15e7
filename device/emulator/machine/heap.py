"""The heap of a kernel: `malloc`, `free`, `new` and `delete`, in an array of global memory.

Lanes allocate in their order, and blocks that use the heap run in lockstep (`block_parts`). So the
addresses do not depend on the number of threads. They are those of this emulator: no GPU documents
how it places allocations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from memlab.device.emulator.ptx.parser import Register

if TYPE_CHECKING:
    from memlab.device.emulator.machine.memory import DeviceArray, Lanes, Mask
    from memlab.device.emulator.machine.operands import Operands
    from memlab.device.emulator.program.program import DecodedInstruction

OUTSIDE, ALLOCATED, FREED = range(3)
"""What lies at an address of the heap."""
_ALIGNMENT_BYTES = (
    16  # of allocations (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation")
)
_HEADER_BYTES = 16  # behind each allocation, so that an access that runs over its end is found


class Heap:
    """The allocations in an array of global memory."""

    def __init__(self, array: DeviceArray) -> None:
        self._first, self._end = array.address, array.address + array.size
        self.clear()

    def clear(self) -> None:
        """Forget all allocations."""
        self._sizes: dict[int, int] = {}  # bytes asked for, by address
        self._freed: dict[int, int] = {}  # the same of allocations whose place is free again
        self._holes: dict[int, list[int]] = {}  # a heap of addresses, by their bytes with header
        self._top = self._first
        self._changed()

    @property
    def allocations(self) -> int:
        """How many allocations are not freed."""
        return len(self._sizes)

    @property
    def allocated_bytes(self) -> int:
        """Their bytes."""
        return sum(self._sizes.values())

    def allocate(self, size: int) -> int:
        """The address of new memory; 0 where there is no room, or nothing is asked for."""
        whole = -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES + _HEADER_BYTES
        if not 0 < size <= self._end - self._first:
            return 0
        place = self._hole(whole) or self._at_top(whole)
        if not place:
            self._merge()
            sizes = [size for size in self._holes if size >= whole]
            place = self._hole(min(sizes), whole) if sizes else self._at_top(whole)
        if place:
            self._sizes[place] = size
            self._freed.pop(place, None)
            self._changed()
        return place

    def free(self, address: int) -> bool:
        """Free an allocation; gives whether there is one at this address."""
        size = self._sizes.pop(address, None)
        if size is None:
            return False
        whole = -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES + _HEADER_BYTES
        heappush(self._holes.setdefault(whole, []), address)
        self._freed[address] = size
        self._changed()
        return True

    def states(self, addresses: Lanes, size: int) -> Lanes:
        """What lies in `size` bytes from each address: `OUTSIDE` where no allocation holds them.

        `OUTSIDE` also where an address is none of the heap.
        """
        starts, ends, kinds = self._table
        if not len(starts):
            return np.full(len(addresses), OUTSIDE)
        place = np.maximum(np.searchsorted(starts, addresses, "right") - 1, 0)
        inside = (addresses >= starts[place]) & (addresses + size <= ends[place])
        return np.where(inside, kinds[place], OUTSIDE)

    def holds(self, addresses: Lanes) -> Lanes:
        """Whether addresses are those of the heap."""
        return np.asarray((addresses >= self._first) & (addresses < self._end))

    def is_allocation(self, addresses: Lanes) -> Lanes:
        """Whether an allocation begins at each address."""
        return np.array([address in self._sizes for address in addresses.tolist()], np.bool_)

    def was_freed(self, addresses: Lanes) -> Lanes:
        """Whether one has begun there that was freed."""
        begun = [address in self._freed for address in addresses.tolist()]
        return np.asarray(np.array(begun, np.bool_) & (self.states(addresses, 1) == FREED))

    @cached_property
    def _table(self) -> tuple[Lanes, Lanes, Lanes]:
        """The starts, ends and states of all places, by ascending start.

        What was freed is left out where a later allocation overlaps it.
        """
        places = [(a, a + n, ALLOCATED) for a, n in self._sizes.items()]
        places += [(a, a + n, FREED) for a, n in self._freed.items()]
        table = np.array(sorted(places), np.int64).reshape(-1, 3)
        held = table[table[:, 2] == ALLOCATED]
        first = np.searchsorted(held[:, 1], table[:, 0], "right")  # may end behind the start
        starts = np.append(held[:, 0], self._end)[first]
        table = table[(table[:, 2] == ALLOCATED) | (starts >= table[:, 1])]
        return table[:, 0], table[:, 1], table[:, 2]

    def _changed(self) -> None:
        self.__dict__.pop("_table", None)

    def _at_top(self, whole: int) -> int:
        """Take so many bytes behind all that was ever allocated; or 0."""
        if self._top + whole > self._end:
            return 0
        place, self._top = self._top, self._top + whole
        return place

    def _hole(self, size: int, whole: int = 0) -> int:
        """Take the first hole of a size, or so many bytes of it; or 0."""
        places = self._holes.get(size)
        if places is None:
            return 0
        address = heappop(places)
        if not places:
            del self._holes[size]
        if 0 < whole < size:
            heappush(self._holes.setdefault(size - whole, []), address + whole)
        return address

    def _merge(self) -> None:
        """Join holes that lie side by side, and the last one with what is behind it."""
        joined: list[list[int]] = []
        for address, size in sorted((a, size) for size, of in self._holes.items() for a in of):
            if joined and sum(joined[-1]) == address:
                joined[-1][1] += size
            else:
                joined.append([address, size])
        if joined and sum(joined[-1]) == self._top:
            self._top = joined.pop()[0]
        self._holes = {}
        for address, size in joined:
            self._holes.setdefault(size, []).append(address)
        for places in self._holes.values():
            heapify(places)


def heap_action(
    step: DecodedInstruction, operands: Operands, heap: Heap | None, fail: Callable[[Mask], None]
) -> Callable[[Mask], None]:
    """What executes a call of `malloc` or `free`.

    Args:
        step: The instruction.
        operands: The registers.
        heap: The heap.
        fail: Is called with a lane that frees what is no allocation.
    """
    assert heap is not None
    *to, source = step.instruction.operands

    def read(mask: Mask) -> list[int]:
        values = np.broadcast_to(operands.read(source, "u64"), operands.lanes)
        return [int(value) for value in values[mask]]

    def allocate(mask: Mask) -> None:
        addresses = np.zeros(operands.lanes, np.uint64)
        addresses[mask] = [heap.allocate(size) for size in read(mask)]
        (register,) = to
        assert isinstance(register, Register)
        operands.write(register.name, addresses, mask)

    def free(mask: Mask) -> None:
        for lane, address in zip(np.flatnonzero(mask), read(mask), strict=True):
            if address and not heap.free(address):
                wrong = np.zeros_like(mask)
                wrong[lane] = True
                fail(wrong)

    return allocate if to else free
