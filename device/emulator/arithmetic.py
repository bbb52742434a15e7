"""What ALU instructions compute, as functions over lanes.

Each function takes NumPy arrays (or scalars) of the types that the instruction names and
returns an array of its result type. IEEE 754 arithmetic of NumPy is that of the GPU for
add, subtract, multiply, divide and square root; what differs is written out here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]

_F32_TIE_BITS = np.int64(0x1FFF_FFFF)  # the 29 bits of a float64's fraction that a float32 lacks
_F32_TIE = np.int64(0x1000_0000)
_F32_LEAST_NORMAL = 2.0**-126


def fma_f32(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """`a*b + c` in float32 with one rounding.

    The product of two float32 is exact in float64. Rounding the float64 sum to float32 is a
    second rounding only where that sum is itself rounded and lies on a tie of float32, or
    where the result is subnormal; those lanes are rounded to odd first (Boldo and Melquiond,
    "Emulation of a FMA and correctly rounded sums", 2008), which makes the second harmless.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    suspicious = (total.view(np.int64) & _F32_TIE_BITS) == _F32_TIE
    suspicious |= np.abs(total) < _F32_LEAST_NORMAL
    if suspicious.any():
        total = np.where(suspicious, _round_to_odd(product, np.asarray(c, np.float64)), total)
    return total.astype(np.float32)


def _two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Sum and its exact rounding error (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _round_to_odd(a: Lanes, b: Lanes) -> Lanes:
    """`a + b` in float64, rounded to odd where it is inexact."""
    total, error = _two_sum(a, b)
    bits = np.atleast_1d(total).view(np.int64)
    even = (bits & 1) == 0
    inexact = (error != 0) & np.isfinite(total)
    # Step one unit towards the exact sum; the neighbour of an even significand is odd.
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact & even, bits + away, bits).view(np.float64).reshape(np.shape(total))


def shift_left(value: Lanes, amount: Lanes) -> Lanes:
    """Shift left; an amount of the width or more gives 0 (PTX ISA, `shl`)."""
    width = value.dtype.itemsize * 8
    shifted = value << (amount & np.uint32(width - 1)).astype(value.dtype)
    return np.where(amount >= width, value.dtype.type(0), shifted)


def shift_right(value: Lanes, amount: Lanes) -> Lanes:
    """Shift right; an amount of the width or more gives 0, or the sign of a signed value."""
    width = value.dtype.itemsize * 8
    clamped = np.minimum(amount, np.uint32(width - 1)).astype(value.dtype)
    shifted = value >> clamped
    if value.dtype.kind == "i":
        return shifted
    return np.where(amount >= width, value.dtype.type(0), shifted)
