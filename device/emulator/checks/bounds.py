"""memcheck: accesses that are out of bounds or misaligned, and writes to inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.pointer_origin import PointerOrigin
from memlab.device.emulator.isa.address_space import RANK_UNIT
from memlab.device.emulator.isa.asynchronous.bulk_copies import is_far_barrier
from memlab.device.emulator.machine.heap import ALLOCATED, FREED, Heap
from memlab.device.emulator.machine.memory import Segment

ArrayExtents: TypeAlias = Sequence[tuple[int, int]]
"""The start and end of each array of a state space, by rising address."""


class _Candidate(NamedTuple):
    """An array that an instruction may access: its start and end, and whether it permits that."""

    start: int
    end: int
    permits: bool


class BoundsCheck:
    """Decides which lanes may access the memory that they ask for."""

    def __init__(
        self,
        observations: Observations,
        extents: Mapping[str, ArrayExtents],
        origins: Mapping[int, PointerOrigin],
        inputs: Collection[int],
        heap: Heap | None = None,
    ) -> None:
        """Check a program.

        Args:
            observations: Receives the mistakes.
            extents: The starts and ends of the arrays, by state space.
            origins: The array that an instruction's addresses were computed from, by instruction.
            inputs: The arrays of global memory that the launch only reads, by their order.
            heap: What `malloc` has given, whose allocations are arrays of their own.
        """
        self._heap = heap
        self._observations, self._origins = observations, origins
        self._extents = extents
        self._read_only_arrays = frozenset(inputs)
        self._candidates: dict[tuple[str, int | None, bool], Sequence[_Candidate]] = {}

    def permitted_lanes(
        self,
        step: int,
        segment: Segment,
        address: Lanes,
        active: Lanes,
        threads: Lanes,
        size: int,
        load: bool,
        alignment: int = 0,
        sized: bool = True,
    ) -> Lanes:
        """The lanes whose access is in bounds, aligned and permitted; the others are reported.

        Args:
            step: The index of the instruction.
            segment: The memory that it accesses.
            address: Byte addresses in the segment, shape (lanes,).
            active: The lanes that execute the access, as a mask.
            threads: The lanes' threads, shape (lanes,).
            size: Bytes per lane.
            load: Whether the access only reads.
            alignment: Bytes of which addresses and the size must be multiples; 0 for the size.
            sized: Whether the size must, too.
        """
        candidates = self._candidate_arrays(step, segment, load)
        multiple = address | size if sized else address
        if self._heap is None or segment.name != "global":
            correct = multiple & ((alignment or size) - 1) == 0
            permitted = [_is_inside(address, each, size) for each in candidates if each.permits]
            correct &= np.logical_or.reduce(permitted)
            if not (active & ~correct).any():
                return active
        misaligned = active & ((multiple & ((alignment or size) - 1)) != 0)
        inside, read_only = np.zeros((2, len(address)), np.bool_)
        for each in candidates:
            in_array = _is_inside(address, each, size)
            inside |= in_array
            if not each.permits:
                read_only |= in_array
        read_only &= active & ~misaligned
        freed = np.zeros_like(active)
        if self._heap is not None and segment.name == "global":
            of_heap = active & self._heap.holds(address)
            states = self._heap.states(address, size) if of_heap.any() else np.zeros(len(address))
            freed = of_heap & ~misaligned & (states == FREED)
            inside &= ~of_heap | (states == ALLOCATED)
        outside = active & ~inside & ~misaligned & ~freed
        far = outside & (segment.name == "shared") & is_far_barrier(address)
        for kind, wrong in (
            ("misaligned", misaligned),
            ("use after free", freed),
            ("barrier in another block", far),
            ("out of bounds", outside & ~far),
            ("not writable", read_only),
        ):
            if wrong.any():
                self._observations.add(
                    "memcheck",
                    kind,
                    segment.name,
                    address[wrong] & (RANK_UNIT - 1) if wrong is far else address[wrong],
                    step,
                    threads[wrong],
                    array=self._origin(step, segment),
                )
        return np.asarray(active & inside & ~read_only & ~misaligned)

    def permitted_arrays(self, step: int, segment: Segment, load: bool) -> Lanes:
        """The starts and ends of the arrays that an instruction may access, shape (arrays, 2)."""
        permitted = [
            each[:2] for each in self._candidate_arrays(step, segment, load) if each.permits
        ]
        arrays = np.array(permitted, np.int64).reshape(-1, 2)
        if self._heap is not None and segment.name == "global":
            arrays = arrays[~self._heap.holds(arrays[:, 0])]  # its allocations come and go
        return arrays

    def permitted_frees(self, step: int, address: Lanes, active: Lanes, threads: Lanes) -> Lanes:
        """The lanes that free an allocation, or a null pointer; the others are reported.

        Args:
            step: The index of the call of `free`.
            address: What they free, shape (lanes,).
            active: The lanes that execute it, as a mask.
            threads: The lanes' threads, shape (lanes,).
        """
        heap, lanes = self._heap, np.flatnonzero(active & (address != 0))
        assert heap is not None
        first = np.zeros(len(lanes), np.bool_)
        first[np.unique(address[lanes], return_index=True)[1]] = True
        valid = heap.is_allocation(address[lanes])
        twice = (valid & ~first) | heap.was_freed(address[lanes])
        for kind, wrong in (
            ("double free", twice),
            ("invalid free", ~valid & ~twice),
        ):
            of = lanes[wrong]
            self._observations.add("memcheck", kind, "global", address[of], step, threads[of])
        permitted = active.copy()
        permitted[lanes[~(valid & first)]] = False
        return permitted

    def _candidate_arrays(self, step: int, segment: Segment, load: bool) -> Sequence[_Candidate]:
        """The arrays that an instruction may mean."""
        array = self._origin(step, segment)
        key = segment.name, array, load
        if key not in self._candidates:
            extents = self._extents.get(segment.name, ((0, segment.size),))
            numbers = range(len(extents)) if array is None else (array,)
            self._candidates[key] = [
                _Candidate(*extents[number], load or self._is_writable(segment, number))
                for number in numbers
            ]
        return self._candidates[key]

    def _origin(self, step: int, segment: Segment) -> int | None:
        """The array of a segment that an instruction's addresses were computed from, if known."""
        origin = self._origins.get(step)
        return origin[1] if origin is not None and origin[0] == segment.name else None

    def _is_writable(self, segment: Segment, array: int) -> bool:
        if segment.name == "global":
            return array not in self._read_only_arrays
        return bool(segment.data.flags.writeable)


def _is_inside(address: Lanes, array: _Candidate, size: int) -> Lanes:
    """Whether accesses of so many bytes lie in an array."""
    return np.asarray((address >= array.start) & (address <= array.end - size))
