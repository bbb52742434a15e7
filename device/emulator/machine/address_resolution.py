"""Where the addresses of a memory instruction lie in a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memlab.device.emulator.machine.access_costs import Pattern
from memlab.device.emulator.machine.memory import Lanes, Segment
from memlab.device.emulator.machine.operands import Source
from memlab.device.emulator.machine.scheduler import Mask
from memlab.device.emulator.program.program import DecodedInstruction
from memlab.device.emulator.ptx.parser import TYPE_BYTES


@dataclass(frozen=True)
class MemoryInstruction:
    """A memory instruction of a program.

    Attributes:
        index: Its position in the program.
        step: The instruction.
        kind: `load`, `store` or `atomic`, which includes reductions.
        size: Bytes that a lane moves.
        element_bytes: Bytes of each of the elements, one or more, that a lane moves.
        sources: The values that a store stores, an entry per element; else empty.
    """

    index: int
    step: DecodedInstruction
    kind: Literal["load", "store", "atomic"]
    size: int
    element_bytes: int
    sources: Sequence[Source] = ()

    @classmethod
    def of(
        cls, index: int, step: DecodedInstruction, sources: Sequence[Source] = ()
    ) -> MemoryInstruction:
        """Describe the instruction at an index."""
        row = step.row
        width = TYPE_BYTES[(row.to if row.kind == "load" else row.of)[0]]
        kind: Literal["load", "store", "atomic"] = (
            "load" if row.kind == "load" else "store" if row.kind == "store" else "atomic"
        )
        return cls(index, step, kind, width * row.vector, width, sources)


@dataclass
class ResolvedAddresses:
    """The addresses that a register holds, without the offset of the instruction that uses it.

    Attributes:
        segment: The state space that they lie in.
        base_name: The register, or the constant address.
        version: How often the register had been written; None where the addresses include an
            instruction's offset, so that they serve no other instruction.
        address: Byte addresses in the state space, shape (lanes,), or () where one address serves
            all lanes. Inactive lanes may hold anything.
        position: Element positions in the segment's data of the active lanes, shape (active,), or
            () as above.
        low: The lowest address of an active lane.
        high: The highest one.
        misalignment: Bitwise or of the active lanes' addresses.
        pattern: Their interned pattern, once it is needed.
        warp_bases: With the pattern: address of each warp's first active lane, rounded down to
            its sector.
    """

    segment: Segment
    base_name: str
    version: int | None
    address: Lanes
    position: Lanes
    low: int
    high: int
    misalignment: int
    pattern: Pattern | None = None
    warp_bases: Lanes | None = None


def resolve_addresses(
    segment: Segment,
    base_name: str,
    version: int | None,
    address: Lanes,
    element_shift: int,
    mask: Mask | None,
) -> ResolvedAddresses:
    """Find where addresses lie in a segment.

    Args:
        segment: The segment.
        base_name: See `ResolvedAddresses`.
        version: See `ResolvedAddresses`.
        address: See `ResolvedAddresses`.
        element_shift: Binary logarithm of the bytes of an element.
        mask: The active lanes; None for all.
    """
    active = address if mask is None or not address.ndim else address[mask]
    low, high = int(active.min()), int(active.max())
    misalignment = int(np.bitwise_or.reduce(active, axis=None))
    position = active - segment.origin if segment.origin else active
    if segment.lane_base is not None:
        lane_base = segment.lane_base if mask is None else segment.lane_base[mask]
        position = position + lane_base
    return ResolvedAddresses(
        segment, base_name, version, address, position >> element_shift, low, high, misalignment
    )
