"""Empty caches for the machine code that fills them (`cache_code`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memlab.device.emulator.codegen.records import dtype_of
from memlab.device.emulator.codegen.trace_code import L1_SETS
from memlab.device.emulator.models.cache_records import HASH_BITS, L1, NONE, WAYS, Cache, Line
from memlab.device.properties import LINE_BYTES

_CACHE, _L1, _LINE = map(dtype_of, (Cache, L1, Line))
_L1_SPARE_LINES = 56
"""So many lines of an H200's L1 are never filled (docs/results/h200-replaced-lines.csv, `full`)."""


class EmptyCaches:
    """Makes empty caches, and keeps the memory that they point to.

    Attributes:
        lines: Their `Line` records, for each call an array of shape (caches, lines).
    """

    def __init__(self) -> None:
        """Without any cache."""
        self.lines: list[NDArray[np.void]] = []
        self._heads: list[NDArray[np.int32]] = []

    def add(self, count: int, lines: int) -> NDArray[np.void]:
        """Some caches of so many lines each, that can be anywhere in them; one line at least."""
        lines = max(lines, 1)
        bits = max((2 * lines - 1).bit_length(), 1)
        caches = self._caches(_CACHE, count, lines, 1 << bits)
        caches["hash_shift"], caches["capacity"] = HASH_BITS - bits, lines
        caches["newest"] = caches["oldest"] = NONE
        return caches

    def add_l1s(self, count: int, l1_bytes: int, factor: int) -> NDArray[np.void]:
        """Some L1s of so many bytes, of whose sets one in `factor` is there, a power of two."""
        sets = max(L1_SETS // factor, 1)
        caches = self._caches(_L1, count, sets * WAYS, sets)
        lines = round((l1_bytes / LINE_BYTES - _L1_SPARE_LINES) / factor)
        caches["capacity"], caches["sets"] = max(lines, 1), sets
        return caches

    def _caches(
        self, kind: np.dtype[np.void], count: int, lines: int, chains: int
    ) -> NDArray[np.void]:
        caches = np.zeros(count, kind)
        held, heads = np.zeros((count, lines), _LINE), np.full((count, chains), NONE, np.int32)
        held["number"] = NONE
        self.lines.append(held)
        self._heads.append(heads)
        caches["lines"] = held.ctypes.data + np.arange(count) * held.strides[0]
        caches["heads"] = heads.ctypes.data + np.arange(count) * heads.strides[0]
        return caches
