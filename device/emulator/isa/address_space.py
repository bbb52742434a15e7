"""Generic addresses: the window of each state space.

As on a GPU, the window in which a generic address lies tells its state space: shared, local,
constant and parameter memory have windows of their own, and everything else is global.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce
from typing import Any, TypeAlias

from numpy.typing import NDArray

from memlab.device.emulator.isa.values import Value

Lanes: TypeAlias = NDArray[Any]

GLOBAL_BASE = 0x7F00_0000_0000
SHARED_WINDOW = 0x7E00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
CONST_WINDOW = 0x7C00_0000_0000
PARAM_WINDOW = 0x7B00_0000_0000
WINDOW_BITS = 40
WINDOW_BYTES = 1 << WINDOW_BITS
"""The windows are aligned and lie far apart, so that a stray address is in none. The values are
this emulator's own: no GPU documents its own."""
WINDOWS = {
    "global": GLOBAL_BASE,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "const": CONST_WINDOW,
    "param": PARAM_WINDOW,
}
"""The first generic address of each state space."""


def is_in_space(space: str, address: Value) -> Value:
    """Whether generic addresses lie in a state space; an address in no window is global."""
    window = address >> WINDOW_BITS
    if space != "global":
        return window == WINDOWS[space] >> WINDOW_BITS
    others = (start >> WINDOW_BITS for name, start in WINDOWS.items() if name != "global")
    return reduce(operator.and_, (window != other for other in others))


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
