"""memcheck: accesses outside their array, off their alignment, or writes to what is only read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.checks.pointer_origin import PointerOrigin
from memlab.device.emulator.machine.memory import Segment

ArrayExtents: TypeAlias = Sequence[tuple[int, int]]
"""Where each array of a state space starts and ends, by rising address."""

AddressSpan: TypeAlias = tuple[int, int, int]
"""Of some addresses the lowest, the highest, and all of them joined by a bitwise or."""


class BoundsCheck:
    """Says which lanes may touch what they ask for."""

    def __init__(
        self,
        observations: Observations,
        extents: Mapping[str, ArrayExtents],
        meant: Mapping[int, PointerOrigin],
        inputs: Collection[int],
    ) -> None:
        """Check a program.

        Args:
            observations: Where mistakes are noted.
            extents: By state space, where its arrays start and end.
            meant: The array that a step's addresses were computed from.
            inputs: The arrays of global memory that the launch says are only read, by their order.
        """
        self._observations, self._origins = observations, meant
        self._extents = {
            space: np.array(each, np.int64).reshape(-1, 2).T for space, each in extents.items()
        }
        self._read_only_arrays = frozenset(inputs)
        self._known: dict[tuple[int, str], tuple[Lanes, Lanes, Lanes]] = {}

    def permitted_lanes(
        self,
        step: int,
        segment: Segment,
        address: Lanes,
        active: Lanes,
        threads: Lanes,
        size: int,
        load: bool,
    ) -> Lanes:
        """Find the lanes whose access is inside and aligned, and take note of the others.

        Args:
            step: The instruction.
            segment: What it touches.
            address: Each lane's byte address there.
            active: Lanes that take part.
            threads: Each lane's thread.
            size: Bytes that a lane moves.
            load: Whether it only reads.
        """
        taken = address[active]
        if not taken.size or self.is_permitted(step, segment, address_span(taken), size, load):
            return active
        space, array = self._origins.get(step, ("", -1))
        starts, ends, permits = self._places(step, segment, load)
        misaligned = active & ((address & (size - 1)) != 0)
        inside, kept = np.zeros((2, len(address)), np.bool_)
        for start, end, permitted in zip(starts, ends, permits, strict=True):
            here = (address >= start) & (address <= end - size)
            inside |= here
            if not permitted:
                kept |= here
        kept &= active & ~misaligned
        outside = active & ~inside & ~misaligned
        for kind, wrong in (
            ("misaligned", misaligned),
            ("out of bounds", outside),
            ("not writable", kept),
        ):
            if wrong.any():
                self._observations.add(
                    "memcheck",
                    kind,
                    segment.name,
                    address[wrong],
                    step,
                    threads[wrong],
                    array=array if space == segment.name else None,
                )
        return np.asarray(active & inside & ~kept & ~misaligned)

    def is_permitted(
        self, step: int, segment: Segment, span: AddressSpan, size: int, load: bool
    ) -> bool:
        """Whether addresses are aligned, and all inside one array that takes this access.

        Args:
            step: The instruction.
            segment: What it touches.
            span: Of the addresses.
            size: Bytes that each lane moves.
            load: Whether it only reads.
        """
        low, high, bits = span
        if bits & (size - 1):
            return False
        starts, ends, permits = self._places(step, segment, load)
        return bool(((starts <= low) & (high + size <= ends) & permits).any())

    def _places(self, step: int, segment: Segment, load: bool) -> tuple[Lanes, Lanes, Lanes]:
        """The arrays that an instruction may mean: starts, ends, and whether it may do this."""
        key = (step, segment.name)
        if key not in self._known:
            starts, ends = self._extents.get(segment.name, np.array([[0], [segment.size]]))
            numbers = np.arange(len(starts))
            space, array = self._origins.get(step, ("", -1))
            if space == segment.name:
                numbers = np.array([array])
            takes = [load or self._is_writable(segment, each) for each in numbers.tolist()]
            self._known[key] = starts[numbers], ends[numbers], np.array(takes, np.bool_)
        return self._known[key]

    def _is_writable(self, segment: Segment, array: int) -> bool:
        if segment.name == "global":
            return array not in self._read_only_arrays
        return bool(segment.data.flags.writeable)


def address_span(addresses: Lanes) -> AddressSpan:
    """The span of addresses, of which there are some."""
    return int(addresses.min()), int(addresses.max()), int(np.bitwise_or.reduce(addresses))
