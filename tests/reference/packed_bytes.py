"""Floating-point numbers of 8 bits in NumPy: PTX's `e4m3` and `e5m2`.

`e4m3` has no infinity and one NaN of each sign; `e5m2` is the upper half of a float16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.arithmetic import Function

FP8_FORMATS = ("e4m3", "e5m2")
_NAN = np.uint8(0x7F)


def _decode_table(number: str) -> NDArray[np.float64]:
    """The values of the codes 0 to 127."""
    codes = np.arange(128)
    if number == "e5m2":
        return (codes.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float64)
    exponent, fraction = codes >> 3, codes & 7
    scale = 2.0 ** (np.maximum(exponent, 1) - 10)
    values: NDArray[np.float64] = np.where(exponent, 8 + fraction, fraction) * scale
    values[127] = np.nan
    return values


def _nearest_code(number: str, relu: bool) -> Function:
    """Values to their nearest codes, ties to even; larger values to the largest number."""
    finite = _decode_table(number)
    finite = finite[np.isfinite(finite)]
    middles = (finite[:-1] + finite[1:]) / 2

    def run(value: Any) -> Any:
        wide = np.asarray(value).astype(np.float64)
        if relu:
            wide = np.where(wide < 0, 0.0, wide)
        size = np.abs(wide)
        low, high = (np.searchsorted(middles, size, side) for side in ("left", "right"))
        code = np.where(low % 2 == 0, low, high).astype(np.uint8)
        sign = np.signbit(wide).astype(np.uint8) << np.uint8(7)
        return np.where(np.isnan(wide), _NAN, code | sign)

    return run


def encode_fp8_pair(number: str, relu: bool) -> Function:
    """Two float32 to a pair of codes, the first in the upper byte."""
    code = _nearest_code(number, relu)

    def run(upper: Any, lower: Any) -> Any:
        return code(upper).astype(np.uint16) << np.uint16(8) | code(lower).astype(np.uint16)

    return run


def encode_from_halves(encode: Function) -> Function:
    """A packed pair of float16 to a pair of codes."""

    def run(pair: Any) -> Any:
        parts = [(pair >> np.uint32(shift)).astype(np.uint16) for shift in (16, 0)]
        return encode(*(np.asarray(part).view(np.float16) for part in parts))

    return run


def decode_fp8_pair(number: str, relu: bool) -> Function:
    """A pair of codes to a packed pair of float16, which holds each exactly."""
    values = np.concatenate([_decode_table(number), -_decode_table(number)])
    if relu:
        values = np.where(values < 0, 0.0, values)
    halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    halves[np.isnan(values)] = 0x7FFF

    def run(pair: Any) -> Any:
        upper, lower = halves[pair >> np.uint16(8)], halves[pair & np.uint16(255)]
        return upper << np.uint32(16) | lower

    return run
