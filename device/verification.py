"""Comparing what a kernel wrote with its float64 reference."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.measurement import Verification
from memlab.kernels.launch import Arrays, Launch

REFERENCE_FLOP = 2e10
"""Up to so much work the reference is computed whole, in a second or so on a CPU; of larger
outputs, random rows are compared, and all elements are scanned for being written at all."""
REFERENCE_ELEMENTS = 2**25
"""And up to so many elements, for memory's sake: the reference is in float64."""


def verify(
    launch: Launch, inputs: Arrays, output: NDArray[Any], index: NDArray[np.int64]
) -> Verification:
    """Compare output elements with the reference.

    The relative error of an element is |output - reference| / |reference|, or the absolute
    error where the reference is 0; an element that was never written (the output is poisoned
    with NaN before the launch) has an infinite one.

    Args:
        launch: What ran.
        inputs: Its input arrays by name.
        output: The output array, any shape.
        index: Row-major positions to compare.
    """
    found = output.reshape(-1)[index]
    expected = launch.reference(inputs, index) if index.size else np.zeros(0)
    return compare(launch, found, expected, output.size)


def compare(
    launch: Launch,
    found: NDArray[Any],
    expected: NDArray[np.float64],
    total: int,
    unwritten: int = 0,
) -> Verification:
    """Compare output elements with what the reference gives for them; errors as in `verify`.

    Args:
        launch: What ran.
        found: Elements of the output.
        expected: What they must be, in the same shape.
        total: Elements of the whole output.
        unwritten: How many of these, compared or not, were never written: one fails it.
    """
    error = float("inf")
    if found.size and not unwritten:
        values = found.astype(np.float64)
        scale = np.where(expected == 0, 1.0, np.abs(expected))
        errors = np.abs(values - expected) / scale
        error = float(np.where(np.isnan(errors), np.inf, errors).max())
    return Verification(
        status="passed" if error <= launch.tolerance else "failed",
        relative_error=error,
        tolerance=launch.tolerance,
        checked=int(found.size),
        total=total,
    )


def checked_positions(launch: Launch, shape: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    """Choose the output elements to compare: all, or the first, the last and random rows.

    Args:
        launch: What runs; its FLOPs say how dear an element is.
        shape: Of the output.
        seed: Of the choice.

    Returns:
        Row-major positions in ascending order.
    """
    size = prod(shape)
    affordable = REFERENCE_ELEMENTS
    if launch.flop:
        affordable = min(affordable, int(REFERENCE_FLOP * size / launch.flop))
    if size <= affordable:
        return np.arange(size)
    width = shape[-1] if len(shape) > 1 else 1
    rows = size // width
    drawn = np.random.default_rng(seed).integers(rows, size=max(affordable // width, 2))
    chosen = np.unique(np.concatenate(([0, rows - 1], drawn)))
    return (chosen[:, None] * width + np.arange(width)).reshape(-1)
