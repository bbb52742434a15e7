"""initcheck: reads of memory that was never written, and output elements that were not written.

The state of memory is kept per unit: the bytes of the program's narrowest access to that state
space. A read is at fault if all units of an element are unwritten, since copying a structure also
reads its padding. The reads of early loads, which the compiler may have moved above the branch that
needs them, are handed on: only the use of what they read is at fault (`undefined_values`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.checks.access import MemoryAccess
from memlab.device.emulator.checks.observations import Lanes, Observations
from memlab.device.emulator.isa.address_space import GLOBAL_BASE
from memlab.device.emulator.machine.memory import GlobalMemory, Segment


@dataclass(frozen=True)
class UnwrittenRead:
    """Elements that an early load has read before anything was written there.

    Attributes:
        space: The state space.
        lanes: The lane of each element, shape (n,).
        elements: Which element of the load it is, by order, shape (n,).
        addresses: Byte addresses, shape (n,).
    """

    space: str
    lanes: Lanes
    elements: Lanes
    addresses: Lanes


class InitializationCheck:
    """The units of memory that are not yet written."""

    def __init__(
        self,
        observations: Observations,
        memory: GlobalMemory,
        outputs: Mapping[str, int],
        unit_bytes: Mapping[str, int],
        early_loads: Collection[int] = (),
    ) -> None:
        """Begin with the output arrays in global memory unwritten.

        `outputs` maps each output to the bytes of its widest store of elements wider than a byte;
        1 if there is no such store, or none is known. `early_loads` are instructions.
        """
        self._early_loads = early_loads
        self._early_reads: list[UnwrittenRead] = []
        self._observations, self._memory, self._unit_bytes = observations, memory, unit_bytes
        self._widest_store_bytes = outputs
        unit = unit_bytes["global"]
        self._unwritten: dict[str, Lanes] = {"global": np.zeros(memory.data.size // unit, np.bool_)}
        for name in outputs:
            self._array_units(name)[:] = True

    def begin(self, segments: Mapping[str, Segment]) -> None:
        """Take the shared and local memory of the next blocks, all of it unwritten."""
        for space in ("shared", "local"):
            units = segments[space].data.size // self._unit_bytes[space]
            self._unwritten[space] = np.ones(units, np.bool_)

    def unwritten(self, space: str) -> Lanes:
        """Whether each unit of a state space was not yet written."""
        return self._unwritten[space]

    def access(self, access: MemoryAccess) -> None:
        """Check the reads of an access, and mark its writes."""
        empty = self._unwritten[access.space]
        unwritten = empty[access.units]
        if access.kind != "store" and unwritten.any():
            missing = access.units_of_whole_elements(unwritten)
            lanes = access.lanes_of_units(missing)
            if access.step in self._early_loads and access.space != "global":
                self._note_early(access, missing)
                return
            if access.width > 1:
                missing = missing[np.diff(lanes, prepend=-1) != 0]  # the first unit of each lane
            self._observations.add(
                "initcheck",
                "uninitialized read",
                access.space,
                access.addresses(missing),
                access.step,
                access.threads[access.lanes_of_units(missing)],
            )
        if access.kind != "load":
            empty[access.units] = False

    def take_early_reads(self) -> list[UnwrittenRead]:
        """What early loads have read of unwritten memory since the last call."""
        taken, self._early_reads = self._early_reads, []
        return taken

    def _note_early(self, access: MemoryAccess, missing: Lanes) -> None:
        per_element = access.element_bytes // access.unit_bytes
        first = missing[missing % per_element == 0]  # the first unit of each element
        lanes = access.lanes[access.lanes_of_units(first)]
        elements = first % access.width // per_element
        self._early_reads.append(
            UnwrittenRead(access.space, lanes, elements, access.addresses(first))
        )

    def never_written(
        self, name: str, padding: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """Row-major positions of an output's elements that were not written.

        If the elements are bytes, gaps that may be padding of structures are left out.

        Args:
            name: The output.
            padding: Which bytes of an element need not be written; None for none.
        """
        array = self._memory.find(name)
        unwritten = np.repeat(self._array_units(name), self._unit_bytes["global"])[: array.size]
        if array.element_bytes == 1:
            unwritten &= ~_possible_padding(unwritten, self._widest_store_bytes[name])
        by_element = unwritten.reshape(-1, array.element_bytes)
        if padding is not None:
            by_element = by_element[:, ~padding]
        return np.flatnonzero(by_element.any(axis=1))

    def _array_units(self, name: str) -> Lanes:
        array, unit = self._memory.find(name), self._unit_bytes["global"]
        start = (array.address - GLOBAL_BASE) // unit
        return self._unwritten["global"][start : start - (-array.size // unit)]


def _possible_padding(empty: Lanes, widest: int) -> Lanes:
    """The unwritten bytes of an array that may be padding of structures, as a mask.

    Padding ends at the alignment of the next member, which follows C++'s rules, and is shorter than
    this alignment. No member is aligned to more than the widest access.
    """
    edges = np.flatnonzero(np.diff(empty.astype(np.int8), prepend=0, append=0))
    starts, ends = edges[::2], edges[1::2]
    aligned = 1 << np.ceil(np.log2(ends - starts + 1)).astype(np.int64)  # wider than the gap
    fits = (aligned <= widest) & (ends % aligned == 0)
    steps = np.zeros(len(empty) + 1, np.int8)
    steps[starts[fits]], steps[ends[fits]] = 1, -1
    return np.asarray(np.cumsum(steps[:-1], dtype=np.int8) != 0)
