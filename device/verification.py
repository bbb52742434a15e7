"""Comparing what a kernel wrote with its float64 references."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.measurement import Verification
from memlab.kernels.launch import Arrays, Buffer, Launch, Reference

REFERENCE_FLOP = 2e10
"""Up to so much work the reference is computed whole, in a second or so on a CPU; of larger
outputs, random rows are compared, and all elements are scanned for being written at all."""
PIECE_ELEMENTS = 2**16
"""So many elements are compared at once: half a MiB of float64."""
REFERENCE_ELEMENTS = 2**25
"""And up to so many elements, for memory's sake: the reference is in float64."""


UNVERIFIED = Verification("skipped", None, None, 0, 0)
"""Where there is no reference."""


@dataclass(frozen=True)
class Found:
    """What was found of one output.

    Attributes:
        index: Row-major positions of the elements to compare, in rising order.
        values: What the output holds there.
        unwritten: Elements, compared or not, that were never written.
    """

    index: NDArray[np.int64]
    values: NDArray[Any]
    unwritten: int = 0


def verify(launch: Launch, inputs: Arrays, found: Mapping[str, Found]) -> Verification:
    """Compare output elements with the references.

    The relative error of an element is |output - reference| / |reference|, or the absolute
    error where the reference is 0; for the scale `rms`, the reference's root mean square stands
    in where it is larger. An element that was never written (outputs are poisoned with NaN
    before the launch) has an infinite one, and so has an output of which nothing was found.

    Args:
        launch: What ran.
        inputs: Its input arrays by name, as they were before.
        found: Its outputs by name; those without a reference are passed over.

    Returns:
        The worst of all outputs, with all elements counted.
    """
    checks = [
        _compare(launch, buffer, found[buffer.name], launch.references[buffer.name], inputs)
        for buffer in launch.outputs
        if buffer.name in launch.references
    ]
    if not checks:
        return UNVERIFIED
    worst = max(checks, key=lambda check: (check.status == "failed", check.relative_error or 0.0))
    return replace(
        worst,
        checked=sum(check.checked for check in checks),
        total=sum(check.total for check in checks),
    )


def _compare(
    launch: Launch, output: Buffer, found: Found, reference: Reference, inputs: Arrays
) -> Verification:
    error, worst = float("inf"), ""
    if found.unwritten:
        worst = f"{found.unwritten} of {output.elements} elements of {output.name} never written"
    elif found.index.size:
        expected = reference(inputs, found.index)
        least = _root_mean_square(expected) if launch.error_scale == "rms" else 0.0
        error, at = max(
            _largest_error(found.values, expected, least, piece) for piece in _pieces(expected.size)
        )
        place = ", ".join(str(each) for each in np.unravel_index(found.index[at], output.shape))
        value = float(found.values[at])
        worst = f"{output.name}[{place}] is {value:.9g}, must be {expected[at]:.9g}"
        if np.isnan(expected[at]):  # computed from what was never written, most likely
            worst = f"{output.name}[{place}] has no reference but NaN"
    tolerance = launch.tolerances.get(output.name, launch.tolerance)
    return Verification(
        status="passed" if error <= tolerance else "failed",
        relative_error=error,
        tolerance=tolerance,
        checked=int(found.index.size),
        total=output.elements,
        worst=worst,
    )


def _largest_error(
    found: NDArray[Any], expected: NDArray[np.float64], least: float, piece: slice
) -> tuple[float, int]:
    """The largest error among some elements, relative to `least` or more, and its position."""
    values, right = found[piece].astype(np.float64), expected[piece]
    scale = np.maximum(np.abs(right), least)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(values - right) / np.where(scale == 0, 1.0, scale)
    errors[values == right] = 0.0  # infinities that are meant
    errors[np.isnan(errors)] = np.inf
    at = int(errors.argmax())
    return float(errors[at]), piece.start + at


def _root_mean_square(values: NDArray[np.float64]) -> float:
    """The root mean square of the values that are finite; one infinity must not hide all errors."""
    largest, total, count = 0.0, 0.0, 0
    for piece in _pieces(values.size):
        largest = max(largest, float(np.abs(_finite(values[piece])).max(initial=0.0)))
    if not largest:
        return 0.0
    for piece in _pieces(values.size):
        finite = _finite(values[piece]) / largest  # so that no square overflows
        total += float(finite @ finite)
        count += finite.size
    return largest * math.sqrt(total / count)


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[np.isfinite(values)]


def _pieces(size: int) -> Iterator[slice]:
    """Cut up a large array, so that intermediate results stay in the CPU's cache."""
    for start in range(0, size, PIECE_ELEMENTS):
        yield slice(start, min(start + PIECE_ELEMENTS, size))


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
