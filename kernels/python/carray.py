"""CuPy's arrays in its generated kernels: how a kernel goes through them, and their structures.

A `CArray` (`cupy/carray.cuh`) holds a pointer, the number of elements, and the extents and strides
in bytes; a `CIndexer` the number of indices, their extents, and room for one index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from memlab.kernels.launch import dtype_bytes
from memlab.kernels.user.arguments.specifications import ArraySpecification, StructureSpecification

_MOST_INDEX_BYTES = 1 << 31
"""Up to which indices have 32 bits."""

HEADERS = "".join(
    f"#include <cupy/{header}>\n"
    for header in ("complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h")
)
"""What CuPy writes before each kernel that it generates."""


@dataclass(frozen=True)
class View:
    """How a kernel goes through an array.

    Attributes:
        shape: Elements in each dimension.
        strides: Bytes from one index of a dimension to the next; 0 where an element is repeated.
        item_bytes: Bytes of an element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def size(self) -> int:
        """The number of elements, repetitions included."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one behind the other, in row-major order."""
        dense = contiguous(self.shape, self.item_bytes).strides
        return all(
            extent == 1 or stride == other
            for extent, stride, other in zip(self.shape, self.strides, dense, strict=True)
        )

    @property
    def has_narrow_indices(self) -> bool:
        """Whether CuPy computes addresses in it with 32 bits."""
        return self.size * self.item_bytes <= _MOST_INDEX_BYTES

    def broadcast(self, shape: tuple[int, ...]) -> View:
        """The view in a shape, with elements repeated as NumPy does."""
        missing = len(shape) - len(self.shape)
        strides = tuple(
            stride if own == extent else 0
            for own, stride, extent in zip(self.shape, self.strides, shape[missing:], strict=True)
        )
        return View(shape, (0,) * missing + strides, self.item_bytes)

    def transpose(self, axes: tuple[int, ...]) -> View:
        """The view with its dimensions in another order."""
        return View(
            tuple(self.shape[axis] for axis in axes),
            tuple(self.strides[axis] for axis in axes),
            self.item_bytes,
        )


def contiguous(shape: tuple[int, ...], item_bytes: int) -> View:
    """The view of a whole array, row-major."""
    strides = tuple(item_bytes * prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return View(shape, strides, item_bytes)


def view_of(array: ArraySpecification) -> View:
    """The view of an array as it was given."""
    return contiguous(array.shape, dtype_bytes(array.dtype))


def merge_dimensions(views: Mapping[str, View]) -> dict[str, View]:
    """Views of one shape, with as few dimensions as CuPy makes of them.

    Neighbouring dimensions become one where every array goes through both as through one. CuPy
    leaves two dimensions as they are unless all arrays are contiguous.
    """
    shape = next((view.shape for view in views.values()), ())
    loose = [view for view in views.values() if not view.is_contiguous]
    if len(shape) <= 1 or (loose and len(shape) == 2):
        return dict(views)
    if not loose:
        return {name: contiguous((view.size,), view.item_bytes) for name, view in views.items()}
    groups: list[list[int]] = []
    for axis in (axis for axis, extent in enumerate(shape) if extent != 1):
        if groups and all(
            view.strides[groups[-1][-1]] == view.strides[axis] * shape[axis] for view in loose
        ):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    merged = tuple(prod(shape[axis] for axis in group) for group in groups)
    return {
        name: View(merged, tuple(view.strides[group[-1]] for group in groups), view.item_bytes)
        for name, view in views.items()
    }


def carray(array: ArraySpecification, view: View) -> StructureSpecification:
    """An array as a `CArray`."""
    numbers = (view.size, *view.shape, *view.strides)
    return StructureSpecification((array, *map(str, numbers)), "", f"CArray({array.text})")


def cindexer(shape: tuple[int, ...]) -> StructureSpecification:
    """The indices of a shape as a `CIndexer`."""
    numbers = (prod(shape), *shape, *(0 for _ in shape))
    extents = ",".join(map(str, shape))
    return StructureSpecification(tuple(map(str, numbers)), "", f"CIndexer({extents})")
