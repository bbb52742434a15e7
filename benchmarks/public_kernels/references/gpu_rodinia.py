"""References of the kernels of gpu-rodinia."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
THREADS = 256
LIFTING = (
    ("even", -0.4435068522),
    ("odd", -0.8829110762),
    ("even", 0.05298011854),
    ("odd", 1.586134342),
)
SCALE = 1.23017410491400


def kernel2(mask: Array, updating: Array, visited: Array, over: Array, count: int) -> None:
    """Move the marks of new nodes to the frontier, and say whether there were any."""
    found = updating[:count].astype(bool)
    mask[:count][found] = True
    visited[:count][found] = True
    over[0] |= found.any()
    updating[:count][found] = False


def copy_source(component: Array, source: Array, pixels: int) -> None:
    """Map bytes to numbers from -0.5 to 0.5."""
    component[:pixels] = source[:pixels] / 255.0 - 0.5


def _inverse(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert the transform along the first axis, whose rows alternate between the bands."""
    rows = image.copy()
    rows[0::2] *= SCALE
    rows[1::2] /= SCALE
    for parity, factor in LIFTING:
        mirrored = np.concatenate([rows[1:2], rows, rows[-2:-1]])
        sums = factor * (mirrored[:-2] + mirrored[2:])
        start = 0 if parity == "even" else 1
        rows[start::2] += sums[start::2]
    return rows


def inverse_wavelet(bands: Array, out: Array, width: int, height: int, _steps: int) -> None:
    """Interleave four bands, and transform rows and columns."""
    image = np.zeros((height, width))
    parts = bands.ravel()[: width * height].astype(float).reshape(4, height // 2, width // 2)
    for number, part in enumerate(parts):
        image[number // 2 :: 2, number % 2 :: 2] = part
    out.ravel()[:] = _inverse(_inverse(image.T).T).ravel()


def huffman(
    data: Array,
    codes: Array,
    lengths: Array,
    _codes_out: Array,
    _lengths_out: Array,
    _indices_out: Array,
    out: Array,
    sizes: Array,
) -> None:
    """Join the codes of each block's bytes to a string of bits, from the highest byte of a word."""
    for number, block in enumerate(data.reshape(-1, THREADS)):
        symbols = np.frombuffer(block.astype(">u4").tobytes(), np.uint8)
        counts = lengths[symbols].astype(np.int64)
        owners = np.repeat(np.arange(len(symbols)), counts)
        within = np.arange(counts.sum()) - (np.cumsum(counts) - counts)[owners]
        bits = (codes[symbols][owners] >> (counts[owners] - 1 - within).astype(np.uint32)) & 1
        words = len(bits) // 32 + 1
        packed = np.packbits(np.pad(bits.astype(np.uint8), (0, 32 * words - len(bits))))
        first = number * THREADS
        out[first : first + min(words, THREADS)] = packed.view(">u4")[:THREADS]
        sizes[number] = len(bits)


def forces(par: Any, _dim: Any, _boxes: Any, positions: Array, charges: Array, out: Array) -> None:
    """Add the forces between all pairs of one box."""
    place = positions.view(np.float64).reshape(-1, 4)
    alpha = 0.5
    dots = place[:, 1:] @ place[:, 1:].T
    weight = np.exp(-2 * alpha**2 * (place[:, None, 0] + place[None, :, 0] - dots))
    steps = place[:, None, 1:] - place[None, :, 1:]
    total = out.view(np.float64).reshape(-1, 4)
    total[:, 0] += (charges * weight).sum(1)
    total[:, 1:] += (2 * (charges * weight)[..., None] * steps).sum(1)
