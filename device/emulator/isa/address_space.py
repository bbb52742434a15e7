"""Generic addresses: the window of each state space.

As on a GPU, the window in which a generic address lies tells its state space: shared, local,
constant and parameter memory have windows of their own, and everything else is global.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Lanes: TypeAlias = NDArray[Any]

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
CONST_WINDOW = 0x7C00_0000_0000
PARAM_WINDOW = 0x7B00_0000_0000
WINDOW_BYTES = 1 << 40
"""The windows lie far apart, so that a stray address is in none. The values are this emulator's
own: no GPU documents its own."""
WINDOWS = {
    "global": GLOBAL_BASE,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "const": CONST_WINDOW,
    "param": PARAM_WINDOW,
}
"""The first generic address of each state space."""


def is_in_space(space: str, address: Lanes) -> Lanes:
    """Whether generic addresses lie in a state space; an address in no window is global."""
    inside = {
        name: (address >= np.uint64(start)) & (address < np.uint64(start + WINDOW_BYTES))
        for name, start in WINDOWS.items()
        if name != "global"
    }
    if space == "global":
        return np.asarray(~np.logical_or.reduce(list(inside.values())))
    return inside[space]


def split_by_space(address: Lanes, lanes: Lanes) -> Iterator[tuple[str, int, Lanes]]:
    """Split lanes by the state space of their generic addresses.

    Args:
        address: Generic addresses, shape (lanes,).
        lanes: The lanes to split, as a mask of the same shape.

    Yields:
        A state space, the generic address of its first byte (0 for global memory), and its lanes
        as a mask: `lanes` itself where all lie in it. An address in no window is global.
    """
    for name, window in WINDOWS.items():
        inside = lanes & (address >= window) & (address < window + WINDOW_BYTES)
        if inside.any():
            rest = lanes & ~inside
            more = bool(rest.any())
            yield name, 0 if name == "global" else window, inside if more else lanes
            if not more:
                return
            lanes = rest
    if lanes.any():
        yield "global", 0, lanes
