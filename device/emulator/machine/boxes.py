"""The boxes of tensor copies as observers see them: the ranges of memory that lanes access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from memlab.device.emulator.isa.address_space import split_by_space
from memlab.device.emulator.isa.asynchronous import tensor_copies as tensors
from memlab.device.emulator.machine.memory import Lanes, Mask, Segment
from memlab.kernels.tensor_maps import PIECE_BYTES

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
    space: str, boxes: Lanes, addresses: Lanes, mask: Mask, segments: Mapping[str, Segment]
) -> Iterator[BoxPart]:
    """The parts of an access by lanes.

    Args:
        space: The state space that is accessed.
        boxes: For each lane, the generic address of its tensor map, and what `box_code.begin_rows`
            takes of its box, shape (lanes, 3); of im2col, shape (lanes, 4).
        addresses: The addresses of the lanes, shape (lanes,).
        mask: The lanes.
        segments: The state spaces.
    """
    boxes = np.column_stack((boxes, addresses))  # with interleave, they tell a coordinate
    for box in np.unique(boxes[mask], axis=0):
        address, first, end, *others, place = box.tolist()
        lanes = mask & (boxes == box).all(axis=1)
        words = _map_words(address, segments)
        if words is None:  # the machine code finds the fault
            yield BoxPart(lanes, np.zeros(1, np.int64), 0, 1)
        elif space == "shared":
            rows = np.zeros(1, np.int64)
            size = words[tensors.SHARED]
            yield BoxPart(lanes, rows, size, tensors.SHARED_ALIGNMENT_BYTES)
        else:
            if others:
                ranges = _pixels(words, place, first, end, *others)
            else:
                ranges = _rows(words, first, end)
            yield BoxPart(lanes, *ranges, PIECE_BYTES)


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
    rank, slices = layout >> tensors.LAYOUT_RANK & 7, layout >> tensors.LAYOUT_INTERLEAVE & 3
    before, inside, innermost = first & _SPAN, end & _SPAN, 1
    rows, size = np.array([before * width]), (inside - before) * width
    if slices and words[tensors.STEPS] & 0xFF > 1:  # each slice is a row
        rows, size, innermost = np.array([0]), width, 0
    for axis in range(innermost, rank):
        shift, step = tensors.SPAN_BITS * axis, words[tensors.STEPS] >> 8 * axis & 0xFF
        low, high = first >> shift & _SPAN, end >> shift & _SPAN
        if slices and axis == rank - 2:  # a copy takes one slice of each pixel
            low, high, step = min(low, 1), min(high, 1), 1
        numbers = np.arange(-(-low // step), -(-high // step)) * step
        stride = words[tensors.STRIDES + axis]
        if len(rows) == 1 and len(numbers) and step == 1 and stride == size:
            rows, size = rows + numbers[0] * stride, size * len(numbers)
        else:
            rows = (numbers[:, None] * stride + rows).reshape(-1)
    if not len(rows) or size <= 0:
        return np.zeros(1, np.int64), 0
    return rows, size


def _pixels(words: list[int], place: int, first: int, end: int, other: int) -> tuple[Lanes, int]:
    """The channels inside the tensor, of the pixels of im2col that lie there."""
    layout, width = words[tensors.LAYOUT], words[tensors.STRIDES]
    rank, slices = layout >> tensors.LAYOUT_RANK & 7, layout >> tensors.LAYOUT_INTERLEAVE & 3
    before, inside = first & _SPAN, first >> tensors.SPAN_BITS & _SPAN
    strides = np.array(words[tensors.STRIDES : tensors.STRIDES + rank])
    points = np.array([0, *np.array([end, other]).view(np.int32)[: rank - 1]])
    dimensions = words[tensors.EXTENTS : tensors.EXTENTS + rank]
    extents = np.array([word & 0xFFFFFFFF for word in dimensions])
    steps = [words[tensors.STEPS] >> 8 * axis & 0xFF for axis in range(rank)]
    corners = np.array([words[tensors.LOWER], words[tensors.UPPER]], np.uint64).view(np.int16)
    lower, upper = corners.reshape(2, 4).tolist()
    innermost = 1
    if slices:  # the first coordinate is one of the pixel too
        before, inside, innermost = 0, 1, 0
        points[0] = (place - words[0] - int(points @ strides)) // width
    bits = tensors.OFFSET_BITS[rank]
    offsets = np.zeros(rank, np.int64)
    crossed = range(innermost, rank - 2 + innermost)
    for number, axis in enumerate(crossed):
        offsets[axis] = first >> tensors.OFFSETS + bits * number & (1 << bits) - 1
    pixel, rows = points.tolist(), []
    for _ in range(dimensions[1] >> 32):
        here = np.array(pixel) + offsets
        if ((here >= 0) & (here < extents))[innermost:].all():
            rows.append(before * width + int((here - points) @ strides))
        for number, axis in enumerate(crossed):
            pixel[axis] += steps[axis]
            if pixel[axis] < extents[axis] + upper[number]:
                break
            pixel[axis] = lower[number]
        else:
            pixel[-1] += steps[-1]
    if not rows or inside <= before:
        return np.zeros(1, np.int64), 0
    return np.array(rows), (inside - before) * width
