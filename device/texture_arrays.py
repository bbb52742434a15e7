"""The arrays behind textures and surfaces: where their elements lie in emulated memory.

NVIDIA does not publish how CUDA arrays are laid out. The layout here is the block-linear one that
the display drivers of NVIDIA's GPUs share: groups (GOBs) of 64 bytes by 8 rows, in which each
32-byte sector holds 16 bytes of two rows (`drm_fourcc.h` of Linux,
DRM_FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D; Tegra X1 Technical Reference Manual, "Block Linear"). Arrays
of one dimension have one row. The sectors of 480 launches on an H200 are those of this layout
(docs/results/README.md, "Textures"). Which groups are neighbours in memory is assumed: they are in
row-major order, and each layer or slice follows the one before. `isa/textures.py` computes the same
addresses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memlab.kernels.launch import Buffer

GROUP_BYTES = 512
GROUP_WIDTH_BYTES = 64
GROUP_ROWS = 8


def pitches(buffer: Buffer) -> tuple[int, int]:
    """The bytes from a row of groups to the next, and from a slice or layer to the next."""
    assert buffer.view is not None
    _, height, width = buffer.view.extents(buffer.shape)
    row_bytes = width * buffer.view.channels * buffer.element_bytes
    row = -(-row_bytes // GROUP_WIDTH_BYTES) * GROUP_BYTES
    return row, -(-height // GROUP_ROWS) * row


def footprint_bytes(buffer: Buffer) -> int:
    """Bytes of an array in memory, with what pads the rows of a CUDA array."""
    if buffer.view is None or buffer.view.linear_memory:
        return buffer.nbytes
    return pitches(buffer)[1] * buffer.view.extents(buffer.shape)[0]


def element_places(buffer: Buffer) -> NDArray[np.int64]:
    """Where the numbers of an array lie in memory, counted in numbers, in the array's shape."""
    assert buffer.view is not None
    slices, height, width = buffer.view.extents(buffer.shape)
    row, slice_bytes = pitches(buffer)
    x = np.arange(width * buffer.view.channels) * buffer.element_bytes
    y = np.arange(height)[:, None]
    z = np.arange(slices)[:, None, None] * slice_bytes
    if not buffer.view.linear_memory:
        x = (x >> 6) * GROUP_BYTES + (x >> 5 & 1) * 256 + (x >> 4 & 1) * 32 + (x & 15)
        y = (y >> 3) * row + (y >> 1 & 3) * 64 + (y & 1) * 16
    places: NDArray[np.int64] = (x + y + z).reshape(buffer.shape) // buffer.element_bytes
    return places
