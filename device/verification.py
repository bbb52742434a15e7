"""Comparing what a kernel wrote with its references: whole numbers exactly, others in float64."""

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
from memlab.text import plural

MAX_REFERENCE_FLOP = 2e10
"""Up to so much work the reference is computed whole, in a second or so on a CPU; of larger
outputs, random rows are compared, and all elements are scanned for being written at all."""
PIECE_ELEMENTS = 2**16
"""So many elements are compared at once: half a MiB of float64."""
MAX_REFERENCE_ELEMENTS = 2**25
"""And up to so many elements, for memory's sake: the reference is in float64."""


UNVERIFIED = Verification("skipped", None, None, 0, 0)
"""Where there is no reference."""


@dataclass(frozen=True)
class ActualOutput:
    """What was found of one output.

    Attributes:
        index: Row-major positions of the elements to compare, in rising order.
        values: What the output holds there.
        unwritten: Elements, compared or not, that were never written.
    """

    index: NDArray[np.int64]
    values: NDArray[Any]
    unwritten: int = 0


def verify(launch: Launch, inputs: Arrays, found: Mapping[str, ActualOutput]) -> Verification:
    """Compare output elements with the references.

    The relative error of an element is |output - reference| / |reference|, or the absolute
    error where the reference is 0; for the scale `rms`, the reference's root mean square stands
    in where it is larger. Whole numbers, where the reference has such too, have no error only where
    they are equal, however large they are. An element that was never written (outputs are poisoned
    with NaN before the launch) has an infinite one, and so has an output of which nothing was
    found.

    Args:
        launch: What ran.
        inputs: Its input arrays by name, as they were before.
        found: Its outputs by name; those without a reference are named as unverified.

    Returns:
        The worst of all outputs, with all elements counted.
    """
    checks, unverified = [], []
    for buffer in launch.outputs:
        reference = launch.references.get(buffer.name)
        check = reference and _compare_output(launch, buffer, found[buffer.name], reference, inputs)
        if check:
            checks.append(check)
        else:
            unverified.append(buffer.name)
    names = ", ".join(unverified)
    if not checks:
        reason = f"no reference says anything of {names}" if launch.references else ""
        return replace(UNVERIFIED, worst=reason, unverified=names)
    worst = max(checks, key=lambda check: (check.status == "failed", check.relative_error or 0.0))
    return replace(
        worst,
        checked=sum(check.checked for check in checks),
        total=sum(check.total for check in checks),
        wrong=sum(check.wrong for check in checks),
        unverified=names,
    )


def _compare_output(
    launch: Launch, output: Buffer, found: ActualOutput, reference: Reference, inputs: Arrays
) -> Verification | None:
    """Compare one output; None where the reference says nothing of it."""
    expected = reference(inputs, found.index)
    if expected is None:
        return None
    tolerance = launch.tolerances.get(output.name, launch.tolerance)
    error, wrong, worst = float("inf"), found.unwritten, ""
    if found.index.size:
        least = _root_mean_square(expected) if launch.error_scale == "rms" else 0.0
        pieces = [
            _largest_error(found.values, expected, least, tolerance, piece)
            for piece in _pieces(expected.size)
        ]
        error, at, _ = max(pieces)
        wrong = max(sum(count for _, _, count in pieces), found.unwritten)
        place = ", ".join(str(each) for each in np.unravel_index(found.index[at], output.shape))
        value, right = _element_text(found.values, at), _element_text(expected, at)
        worst = f"{output.name}[{place}] is {value}, must be {right}"
        if np.isnan(expected[at]):  # computed from what was never written, most likely
            worst = f"{output.name}[{place}] has no reference but NaN"
    if found.unwritten:
        error = float("inf")
        elements = f"{output.elements} {plural(output.elements, 'element')}"
        worst = f"{found.unwritten} of {elements} of {output.name} never written"
    return Verification(
        status="passed" if error <= tolerance else "failed",
        relative_error=error,
        tolerance=tolerance,
        checked=int(found.index.size),
        total=output.elements,
        worst=worst,
        wrong=wrong,
    )


def _largest_error(
    found: NDArray[Any], expected: NDArray[Any], least: float, tolerance: float, piece: slice
) -> tuple[float, int, int]:
    """The largest error among some elements, its position, and how many are beyond the tolerance.

    Errors are relative to `least` or more.
    """
    values, right = found[piece].astype(np.float64), expected[piece].astype(np.float64)
    equal = values == right  # infinities that are meant, too
    exact = _are_integers(found) and _are_integers(expected)
    if exact:  # float64 has not all of them; NumPy compares signed with unsigned by value
        equal = found[piece] == expected[piece]
    scale = np.maximum(np.abs(right), least)
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(values - right)
        if exact:
            differences = np.maximum(differences, 1.0)
        errors = differences / np.where(scale == 0, 1.0, scale)
    errors[equal] = 0.0
    errors[np.isnan(errors)] = np.inf
    at = int(errors.argmax())
    return float(errors[at]), piece.start + at, int(np.count_nonzero(errors > tolerance))


def _are_integers(values: NDArray[Any]) -> bool:
    """Whether these are integers or truth values."""
    return values.dtype.kind in "iub"


def _element_text(values: NDArray[Any], at: int) -> str:
    """An element in words: of whole numbers every digit."""
    return str(int(values[at])) if _are_integers(values) else f"{float(values[at]):.9g}"


def _root_mean_square(values: NDArray[Any]) -> float:
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


def _finite(values: NDArray[Any]) -> NDArray[np.float64]:
    real = values.astype(np.float64)
    return real[np.isfinite(real)]


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
    affordable = MAX_REFERENCE_ELEMENTS
    if launch.flop:
        affordable = min(affordable, int(MAX_REFERENCE_FLOP * size / launch.flop))
    if size <= affordable:
        return np.arange(size)
    width = shape[-1] if len(shape) > 1 else 1
    rows = size // width
    drawn = np.random.default_rng(seed).integers(rows, size=max(affordable // width, 2))
    chosen = np.unique(np.concatenate(([0, rows - 1], drawn)))
    return (chosen[:, None] * width + np.arange(width)).reshape(-1)
