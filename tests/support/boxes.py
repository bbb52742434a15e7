"""Tensor copies in NumPy: what a box of a tensor is, and where it lies in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).with_suffix(".cu")
SHARED_BYTES = 32768
NAN = bytes([0xF7, 0x7F])
"""What an NVIDIA H200 fills in, again and again."""


@dataclass(frozen=True)
class Box:
    """A copy of one box; tuples are in the order of NumPy's shape.

    Attributes:
        dtype: NumPy's name of the element type.
        shape: The tensor.
        extents: The elements that the box spans.
        at: The coordinates of its first element.
        offset: Where it lies in shared memory, bytes.
        interleave: The bytes of a slice of channels, which then is what all these count.
    """

    dtype: str
    shape: tuple[int, ...]
    extents: tuple[int, ...]
    at: tuple[int, ...]
    swizzle: int = 0
    steps: tuple[int, ...] = ()
    fill: str = "zeros"
    offset: int = 0
    padding: int = 0  # bytes behind each row
    interleave: int = 0
    pitches: tuple[int, ...] = ()  # in place of the strides of rows with padding

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype)).itemsize

    @property
    def unit(self) -> int:
        """Bytes of what a coordinate counts."""
        return self.interleave or self.width

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each dimension but the last."""
        row = self.shape[-1] * self.unit + self.padding
        rows = tuple(row * prod(self.shape[n:-1]) for n in range(1, len(self.shape)))
        return self.pitches or rows

    @property
    def tensor_bytes(self) -> int:
        """The bytes of the whole tensor."""
        extents = zip(self.shape, (*self.strides, self.unit), strict=True)
        return sum((extent - 1) * stride for extent, stride in extents) + self.unit + self.padding

    @property
    def copied(self) -> tuple[int, ...]:
        """Elements that are copied along each dimension; of interleaved channels, one slice."""
        steps = self.steps or (1,) * len(self.shape)
        counts = [-(-e // step) for e, step in zip(self.extents, steps, strict=True)]
        if self.interleave:
            counts[1] = 1
        return tuple(counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the box in shared memory."""
        return prod(self.copied) * self.unit

    def places(self) -> Iterator[tuple[int, int | None]]:
        """For each element, its place in shared memory, and in the tensor if it lies there."""
        steps, strides = self.steps or (1,) * len(self.shape), (*self.strides, self.unit)
        row, pieces = self.copied[-1] * self.unit, max(self.swizzle // 16, 1)
        pitch = row if self.interleave else max(row, self.swizzle)
        for number, index in enumerate(product(*map(range, self.copied))):
            first, behind = divmod(number * self.unit, row)
            where = [a + i * s for a, i, s in zip(self.at, index, steps, strict=True)]
            inside = all(0 <= w < extent for w, extent in zip(where, self.shape, strict=True))
            source = sum(w * s for w, s in zip(where, strides, strict=True))
            for part in range(0, self.unit, self.width):
                linear = self.offset + first * pitch + behind + part
                place = linear ^ ((linear >> 7) % pieces) << 4
                yield place, source + part if inside else None

    def loaded(self, tensor: NDArray[np.uint8], shared: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Shared memory after a load."""
        return _loaded(self, tensor, shared)

    def stored(self, tensor: NDArray[np.uint8], shared: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The tensor after a store, which writes pieces of 16 bytes as a whole."""
        result, whole = tensor.copy(), self
        if not self.interleave:
            inner = -(-self.shape[-1] * self.width // 16) * 16
            behind = inner - self.shape[-1] * self.width
            shape = (*self.shape[:-1], inner // self.width)
            whole = replace(self, shape=shape, padding=self.padding - behind)
        for place, target in whole.places():
            if target is not None:
                end = min(target + self.width, len(result))
                result[target:end] = shared[place : place + end - target]
        return result

    def arguments(self) -> dict[str, Any]:
        """What `memlab.tensor_map` takes besides the array."""
        return {
            "box": self.extents,
            "shape": self.shape,
            "strides": self.strides or None,
            "step": self.steps or None,
            "swizzle": self.swizzle,
            "interleave": self.interleave,
            "fill": self.fill,
        }

    def numbers(self) -> NDArray[np.int32]:
        """The array `at` of the kernels."""
        at = (*self.at[::-1], *[0] * (5 - len(self.at)))
        return np.array([*at, self.offset, self.nbytes, 0, 0, 0], np.int32)


def _loaded(
    box: Box | Im2colBox, tensor: NDArray[np.uint8], shared: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    result = shared.copy()
    outside = NAN * (box.width // 2) if box.fill == "nan" else bytes(box.width)
    for place, source in box.places():
        new = tensor[source : source + box.width] if source is not None else list(outside)
        result[place : place + box.width] = new
    return result


def random_box(rng: np.random.Generator) -> Box:
    """A box of any rank, which may lie partly outside its tensor."""
    dtype = str(
        rng.choice(["uint8", "float16", "bfloat16", "int32", "float32", "float64", "int64"])
    )
    width = np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize
    rank = int(rng.integers(1, 6))
    swizzle = int(rng.choice([0, 0, 32, 64, 128]))
    least = 16 // width
    row = least * int(rng.integers(1, swizzle // 16 + 1 if swizzle else 8))
    row = min(row, 256 // least * least)
    outer = [int(rng.integers(1, (10, 6, 4, 3)[n])) for n in range(rank - 1)]
    steps = tuple(int(rng.integers(1, 4)) for _ in outer) if rng.random() < 0.4 else ()
    while prod(outer) * max(row * width, swizzle) > SHARED_BYTES // 2:
        outer[int(np.argmax(outer))] //= 2
    shape = tuple(int(rng.integers(1, 2 * extent + 3)) for extent in outer)
    inner = int(rng.integers(1, 2 * row + 1))
    padding = -inner * width % 16 + 16 * int(rng.integers(0, 3))
    at = tuple(
        int(rng.integers(-extent - 1, size + 2)) for extent, size in zip(outer, shape, strict=True)
    )
    pieces = int(rng.integers(-row // least - 1, inner // least + 2))
    return Box(
        dtype,
        (*shape, inner),
        (*outer, row),
        (*at, pieces * least),
        swizzle,
        (*steps, 1) if steps else (),
        "nan" if "float" in dtype and rng.random() < 0.3 else "zeros",
        128 * int(rng.integers(0, 8)),
        padding,
    )


@dataclass(frozen=True)
class Im2colBox:
    """A copy in the mode im2col; tuples are in the order of NumPy's shape: images to channels.

    Attributes:
        dtype: NumPy's name of the element type.
        shape: The tensor; with interleave images, slices of channels, then the other dimensions.
        extents: Pixels and channels of a copy.
        at: The coordinates of its first element.
        lower: The lower corner.
        upper: The upper corner.
        offsets: Added to the place of each pixel.
        steps: As of a `Box`.
        swizzle: As of a `Box`.
        interleave: As of a `Box`.
    """

    dtype: str
    shape: tuple[int, ...]
    extents: tuple[int, int]
    at: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    offsets: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    offset: int = 0
    interleave: int = 0
    fill: str = "zeros"
    pitches: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype)).itemsize

    @property
    def unit(self) -> int:
        """Bytes of what a coordinate counts."""
        return self.interleave or self.width

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from an element to the next along each dimension but the last."""
        rows = (prod(self.shape[n:]) * self.unit for n in range(1, len(self.shape)))
        return self.pitches or tuple(rows)

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel of a copy: its channels, or one slice of them."""
        return self.interleave or self.extents[1] * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of the box in shared memory."""
        return self.extents[0] * self.pixel_bytes

    @property
    def axes(self) -> range:
        """The dimensions between the images and the channels."""
        return range(2, len(self.shape)) if self.interleave else range(1, len(self.shape) - 1)

    def pixels(self) -> Iterator[tuple[int, ...]]:
        """The coordinates of the pixels, without the offsets."""
        steps = self.steps or (1,) * len(self.shape)
        pixel = list(self.at)
        for _ in range(self.extents[0]):
            yield tuple(pixel)
            for number, axis in reversed(list(enumerate(self.axes))):
                pixel[axis] += steps[axis]
                if pixel[axis] < self.shape[axis] + self.upper[number]:
                    break
                pixel[axis] = self.lower[number]
            else:
                pixel[0] += steps[0]

    def places(self) -> Iterator[tuple[int, int | None]]:
        """As of a `Box`."""
        strides, pieces = (*self.strides, self.unit), max(self.swizzle // 16, 1)
        pitch = self.pixel_bytes if self.interleave else max(self.pixel_bytes, self.swizzle)
        for number, pixel in enumerate(self.pixels()):
            for place in range(0, self.pixel_bytes, self.width):
                where = [*pixel]
                for each, axis in zip(self.offsets, self.axes, strict=True):
                    where[axis] += each
                part = place if self.interleave else 0
                if not self.interleave:
                    where[-1] += place // self.width
                inside = all(0 <= w < extent for w, extent in zip(where, self.shape, strict=True))
                source = sum(w * s for w, s in zip(where, strides, strict=True)) + part
                linear = self.offset + number * pitch + place
                yield linear ^ ((linear >> 7) % pieces) << 4, source if inside else None

    def loaded(self, tensor: NDArray[np.uint8], shared: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Shared memory after a load."""
        return _loaded(self, tensor, shared)

    def stored(self, tensor: NDArray[np.uint8], shared: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The tensor after a store."""
        result = tensor.copy()
        for place, target in self.places():
            if target is not None:
                result[target : target + self.width] = shared[place : place + self.width]
        return result

    @property
    def tensor_bytes(self) -> int:
        """The bytes of the whole tensor."""
        extents = zip(self.shape, (*self.strides, self.unit), strict=True)
        return sum((extent - 1) * stride for extent, stride in extents) + self.unit

    def arguments(self) -> dict[str, Any]:
        """What `memlab.tensor_map` takes besides the array."""
        return {
            "box": self.extents,
            "shape": self.shape,
            "strides": self.strides,
            "step": self.steps or None,
            "swizzle": self.swizzle,
            "interleave": self.interleave,
            "fill": self.fill,
            "lower": self.lower,
            "upper": self.upper,
        }

    def numbers(self) -> NDArray[np.int32]:
        """The array `at` of the kernels."""
        at = (*self.at[::-1], *[0] * (5 - len(self.at)))
        offsets = (*self.offsets[::-1], *[0] * (3 - len(self.offsets)))
        return np.array([*at, self.offset, self.nbytes, *offsets], np.int32)


def random_pixels(rng: np.random.Generator) -> Im2colBox:
    """A copy in the mode im2col of float16."""
    count = int(rng.integers(1, 4))
    sizes = tuple(int(rng.integers(4, 8)) for _ in range(count))
    lower = tuple(int(rng.integers(-2, 2)) for _ in range(count))
    upper = tuple(int(rng.integers(-2, 2)) for _ in range(count))
    images, swizzle = int(rng.integers(1, 4)), int(rng.choice([0, 128]))
    at = (
        int(rng.integers(0, images)),
        *(
            int(rng.integers(low, max(size + high, low + 1)))
            for size, low, high in zip(sizes, lower, upper, strict=True)
        ),
        8 * int(rng.integers(0, 2)),
    )
    steps = (1, *(int(rng.integers(1, 3)) for _ in range(count)), 1)
    return Im2colBox(
        "float16",
        (images, *sizes, 8 * int(rng.integers(1, 5))),
        (int(rng.integers(1, 40)), 8 * int(rng.integers(1, 9))),
        at,
        lower,
        upper,
        tuple(int(rng.integers(0, 3)) for _ in range(count)),
        steps if rng.random() < 0.5 else (),
        swizzle,
    )


def random_interleaved_box(rng: np.random.Generator) -> Box:
    """A box of slices of interleaved channels, which may lie partly outside its tensor."""
    dtype = str(rng.choice(["uint8", "float16", "int32", "float64"]))
    width = np.dtype(dtype).itemsize
    rank, interleave = int(rng.integers(3, 6)), int(rng.choice([16, 32]))
    row = 16 // width * int(rng.integers(1, 4))
    extents = (*(int(rng.integers(1, 4)) for _ in range(rank - 1)), row)
    shape = tuple(int(rng.integers(1, 2 * extent + 2)) for extent in extents)
    at = [int(rng.integers(-extent, size + 1)) for extent, size in zip(extents, shape, strict=True)]
    if rng.random() < 0.6:
        at[1] = int(rng.integers(0, shape[1]))  # one slice of each pixel is copied
    return Box(
        dtype,
        shape,
        extents,
        tuple(at),
        32 if interleave == 32 else int(rng.choice([0, 32, 64, 128])),
        tuple(int(rng.integers(1, 3)) for _ in extents),
        "nan" if "float" in dtype and rng.random() < 0.3 else "zeros",
        128 * int(rng.integers(0, 8)),
        32 * int(rng.integers(0, 3)),
        interleave,
    )
