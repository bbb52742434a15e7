"""The frame of a warp: the bytes that hold its registers between stretches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.isa.special_registers import (
    CLOCK_REGISTERS,
    EXPLICIT_CLUSTER,
    is_special,
)
from memlab.device.emulator.program.program import Program
from memlab.device.emulator.ptx.parser import TYPE_BYTES
from memlab.device.properties import WARP_SIZE

_ALIGNMENT_BYTES = 64  # a cache line, and the widest vector of a CPU
PREDICATE_BYTES = 4
"""The lanes of a predicate are the bits of one word."""


@dataclass(frozen=True)
class FrameLayout:
    """Where the registers lie in a frame.

    Attributes:
        offsets: Byte offset of each register, by name. The special registers that the program reads
            are among them, but for clocks.
        bits: Width of each register; 1 for a predicate.
        registers_size: Bytes of the registers without the special ones, which follow them.
        size: Bytes of a frame.
    """

    offsets: Mapping[str, int]
    bits: Mapping[str, int]
    registers_size: int
    size: int

    def view(self, frames: NDArray[np.uint8], name: str) -> NDArray[Any]:
        """A register in all frames, as raw bits.

        Args:
            frames: The frames, shape (warps, size).
            name: The register.

        Returns:
            A view of shape (warps, 32); for a predicate (warps, 1), a bit per lane.
        """
        start, bits = self.offsets[name], self.bits[name]
        count = PREDICATE_BYTES if bits == 1 else bits // 8 * WARP_SIZE
        kind = "V16" if bits == 128 else f"u{PREDICATE_BYTES if bits == 1 else bits // 8}"
        return frames[:, start : start + count].view(kind)

    def parts(self, names: Collection[str]) -> list[slice]:
        """The bytes of some registers in a frame; neighbours are one part."""
        parts: list[slice] = []
        bounds = pairwise([*self.offsets.values(), self.size])
        for name, (start, end) in zip(self.offsets, bounds, strict=True):
            if name in names:
                begins = parts.pop().start if parts and parts[-1].stop == start else start
                parts.append(slice(begins, end))
        return parts


def lay_out_frame(program: Program) -> FrameLayout:
    """Lay out the registers of a program, in the order of their declaration."""
    named = {name for step in program.steps for name in step.registers_read}
    special = sorted(name for name in named if is_special(name) and name not in CLOCK_REGISTERS)
    bits = {
        name: 1 if ptx_type == "pred" else 8 * TYPE_BYTES[ptx_type]
        for name, ptx_type in program.registers.items()
    } | {name: 1 if name == EXPLICIT_CLUSTER else 32 for name in special}
    offsets, end = {}, 0
    for name, width in bits.items():
        offsets[name] = end
        end += _ALIGNMENT_BYTES if width == 1 else max(width // 8 * WARP_SIZE, _ALIGNMENT_BYTES)
    # A size that is no multiple of 4 KiB keeps one register of all warps out of the same cache set.
    first_special = min((offsets[name] for name in special), default=end)
    return FrameLayout(offsets, bits, first_special, end + _ALIGNMENT_BYTES)
