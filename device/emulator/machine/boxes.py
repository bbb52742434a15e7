"""The boxes of tensor copies as observers see them: the ranges of memory that lanes access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.isa.asynchronous import tensor_copies as tensors
from memlab.device.emulator.machine.memory import Lanes, Mask, Segment

_SPAN = (1 << tensors.SPAN_BITS) - 1
_MAP_BYTES = 8 * tensors.WORDS


@dataclass(frozen=True)
class BoxPart:
    """What some lanes access of boxes that lie alike.

    Attributes:
        mask: The lanes.
        rows: Where each range begins, relative to the address of a lane, shape (ranges,).
        size: Bytes of a range; 0 where nothing lies inside the tensor.
        alignment: Bytes of which the address of a lane must be a multiple.
    """

    mask: Mask
    rows: Lanes
    size: int
    alignment: int


def parts_of(
    space: str, maps: Lanes, firsts: Lanes, ends: Lanes, mask: Mask, segments: Mapping[str, Segment]
) -> Iterator[BoxPart]:
    """The parts of an access by lanes.

    Args:
        space: The state space that is accessed.
        maps: Generic addresses of the tensor maps, shape (lanes,).
        firsts: As `box_code.begin_rows` takes them, shape (lanes,).
        ends: Likewise.
        mask: The lanes.
        segments: The state spaces.
    """
    boxes = np.stack([maps, firsts, ends], axis=1)[mask]
    for address, first, end in np.unique(boxes, axis=0).tolist():
        lanes = mask & (maps == address) & (firsts == first) & (ends == end)
        words = _map_words(address, segments)
        if words is None:  # the machine code finds the fault
            yield BoxPart(lanes, np.zeros(1, np.int64), 0, 1)
        elif space == "shared":
            rows = np.zeros(1, np.int64)
            size = words[tensors.SHARED]
            yield BoxPart(lanes, rows, size, tensors.SHARED_ALIGNMENT_BYTES)
        else:
            yield BoxPart(lanes, *_rows(words, first, end), tensors.PIECE_BYTES)


def _map_words(address: int, segments: Mapping[str, Segment]) -> list[int] | None:
    """The words of the tensor map at a generic address; None where there is none."""
    places = np.array([address])
    for space, window, _ in split_by_space(places, np.ones(1, np.bool_)):
        segment = segments[space]
        place = address - window
        if place % 64 or not segment.check(place, place + _MAP_BYTES):
            return None
        start = place - segment.origin
        words = segment.data[start : start + _MAP_BYTES].view(np.uint64).tolist()
        if words[tensors.LAYOUT] >> tensors.LAYOUT_MARK == tensors.MARK:
            return [int(word) for word in words]
    return None


def _rows(words: list[int], first: int, end: int) -> tuple[Lanes, int]:
    """The rows inside the tensor of a tile; those that follow one another are one range."""
    layout, width = words[tensors.LAYOUT], words[tensors.STRIDES]
    before, inside = first & _SPAN, end & _SPAN
    rows, size = np.array([before * width]), (inside - before) * width
    for axis in range(1, layout >> tensors.LAYOUT_RANK & 7):
        shift, step = tensors.SPAN_BITS * axis, words[tensors.STEPS] >> 8 * axis & 0xFF
        low, high = first >> shift & _SPAN, end >> shift & _SPAN
        numbers = np.arange(-(-low // step), -(-high // step)) * step
        stride = words[tensors.STRIDES + axis]
        if len(rows) == 1 and len(numbers) and step == 1 and stride == size:
            rows, size = rows + numbers[0] * stride, size * len(numbers)
        else:
            rows = (numbers[:, None] * stride + rows).reshape(-1)
    if not len(rows) or size <= 0:
        return np.zeros(1, np.int64), 0
    return rows, size
