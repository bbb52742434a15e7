"""What the references of launches (`tests/data/truth`), which compute by NumPy, have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def doubles(array: ArrayLike) -> NDArray[np.float64]:
    """The numbers in float64."""
    return np.asarray(array, np.float64)


def in_pieces(function: Callable[..., NDArray[Any]], *arrays: NDArray[Any]) -> NDArray[Any]:
    """What a function gives for all rows, of some at a time: its temporaries stay in the caches.

    Args:
        function: Gives a row for each row of its arguments.
        *arrays: Of one length.
    """
    rows = len(arrays[0])
    step = max(1, (rows << 15) // arrays[0].size)
    for start in range(0, rows, step):
        piece = slice(start, start + step)
        part = function(*(array[piece] for array in arrays))
        if start == 0:
            result = np.empty_like(part, shape=(rows, *part.shape[1:]))
        result[piece] = part
    return result
