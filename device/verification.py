"""Verifies a kernel's outputs against references: integers exactly, other numbers in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.device.measurement import Verification
from memlab.device.structure_arrays import numbers_of, place_of
from memlab.kernels.launch import Arrays, Buffer, Launch, Reference
from memlab.text import plural

MAX_REFERENCE_FLOP = 2e10
"""The reference is computed whole up to this work, which takes about a second on a CPU. Of larger
outputs, random rows are compared, and all elements are checked for being written."""
PIECE_ELEMENTS = 2**16
"""Elements that are compared at once: half a MiB of float64."""
MAX_REFERENCE_ELEMENTS = 2**25
"""The largest number of elements computed by a reference, which is in float64 in memory."""
UNCHANGED_SAMPLES = 2**16
"""Positions at which an array that a kernel left unchanged is compared with the reference."""


UNVERIFIED = Verification("skipped", None, None, 0, 0)
"""The verification of a launch without references."""


@dataclass(frozen=True)
class ActualOutput:
    """The elements of one output to compare.

    Attributes:
        index: Row-major positions of the elements, in rising order.
        values: The values of these elements.
        unwritten: The number of elements, compared or not, that were never written.
    """

    index: NDArray[np.int64]
    values: NDArray[Any]
    unwritten: int = 0


def verify(launch: Launch, inputs: Arrays, outputs: Mapping[str, ActualOutput]) -> Verification:
    """Compare output elements with the references.

    The relative error of an element is |output - reference| / |reference|, or the absolute error if
    the reference is 0. With the error scale `rms`, the root mean square of the reference replaces
    |reference| where it is larger. Integers, if the reference has integers too, have no error only
    if they are equal, however large they are. An element that was never written has an infinite
    error (outputs are poisoned with NaN before the launch), and so has an output without elements
    to compare. An array that a kernel may overwrite (`inout`), and of which no element was written,
    must be unchanged in the reference, too.

    Args:
        launch: The launch that was executed.
        inputs: The input arrays by name, as before the launch.
        outputs: The outputs by name; those without a reference may be left out, and are reported as
            unverified.

    Returns:
        The verification of the worst output, with the elements of all outputs counted.
    """
    checks, unverified = [], []
    for buffer in launch.outputs:
        reference = launch.references.get(buffer.name)
        check = reference and _compare_output(
            launch, buffer, outputs[buffer.name], reference, inputs
        )
        if check:
            checks.append(check)
        else:
            unverified.append(buffer.name)
    names = ", ".join(unverified)
    if not checks:
        reason = f"there is no reference for {names}" if launch.references else ""
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
    launch: Launch, output: Buffer, actual: ActualOutput, reference: Reference, inputs: Arrays
) -> Verification | None:
    """Compare one output; None if the reference does not cover it."""
    if output.role == "inout" and not actual.index.size and not actual.unwritten:
        # The blocks that ran wrote none of it: nothing to compare, if the reference keeps it too.
        index = np.linspace(0, output.elements - 1, UNCHANGED_SAMPLES).astype(np.int64)
        actual = ActualOutput(index, inputs[output.name].reshape(-1)[index])
    expected = reference(inputs, actual.index)
    if expected is None:
        return None
    error, tolerance = float("inf"), launch.tolerances.get(output.name, launch.tolerance)
    failed, wrong, worst, per_element = True, actual.unwritten, "", 1
    if actual.index.size:
        differences = list(_differences(launch, output, actual, expected))
        first = max(differences, key=lambda each: (each.error > each.tolerance, each.error))
        error, tolerance, worst = first.error, first.tolerance, first.worst
        failed = not error <= tolerance
        wrong = max(sum(each.wrong for each in differences), actual.unwritten)
        per_element = sum(each.compared for each in differences) // actual.index.size
    if actual.unwritten:
        error, failed = float("inf"), True
        elements = f"{output.elements} {plural(output.elements, 'element')}"
        worst = f"{actual.unwritten} of {elements} of {output.name} never written"
    return Verification(
        status="failed" if failed else "passed",
        relative_error=error,
        tolerance=tolerance,
        checked=int(actual.index.size) * per_element,
        total=output.elements * per_element,
        worst=worst,
        wrong=wrong,
    )


@dataclass(frozen=True)
class _Difference:
    """How the numbers of an output, or of one member of its structures, differ from the reference.

    Attributes:
        error: The largest relative error.
        tolerance: The largest error that rounding explains.
        compared: How many numbers were compared.
        wrong: How many of them differ by more.
        worst: The place of the largest error, and its values.
    """

    error: float
    tolerance: float
    compared: int
    wrong: int
    worst: str


def _differences(
    launch: Launch, output: Buffer, actual: ActualOutput, expected: NDArray[Any]
) -> Iterator[_Difference]:
    """Compare the elements of an output; of structures, the numbers of each member on their own."""
    pairs = zip(numbers_of(actual.values), numbers_of(expected), strict=True)
    for number, (values, right) in enumerate(pairs):
        values, right = values.reshape(-1), right.reshape(-1)
        name, structure = output.name, output.structure
        if structure is not None:
            path = structure.numbers[number]
            name += "".join(f".{member.name}" for member in path)
        tolerance = launch.tolerances.get(name, launch.tolerance)
        least = _root_mean_square(right) if launch.error_scale == "rms" else 0.0
        pieces = [
            _largest_error(values, right, least, tolerance, piece) for piece in _pieces(right.size)
        ]
        error, at, _ = max(pieces)
        element, inner = divmod(at, right.size // actual.index.size)
        subscripts = np.unravel_index(actual.index[element], output.shape)
        place = f"{output.name}[{', '.join(str(subscript) for subscript in subscripts)}]"
        if structure is not None:
            place += place_of(structure, number, inner)
        worst = f"{place} is {_element_text(values, at)}, must be {_element_text(right, at)}"
        if np.isnan(right[at]):  # probably computed from unwritten data
            worst = f"{place} has no reference but NaN"
        wrong = sum(count for _, _, count in pieces)
        yield _Difference(error, tolerance, right.size, wrong, worst)


def _largest_error(
    actual: NDArray[Any], expected: NDArray[Any], least: float, tolerance: float, piece: slice
) -> tuple[float, int, int]:
    """The largest error in a piece, its position, and the number of errors over the tolerance.

    Errors are relative to the reference, or to `least` where that is larger.
    """
    values, right = actual[piece].astype(np.float64), expected[piece].astype(np.float64)
    equal = values == right  # includes expected infinities
    exact = _are_integers(actual) and _are_integers(expected)
    if exact:  # float64 cannot hold all integers; NumPy compares mixed signs by value
        equal = actual[piece] == expected[piece]
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
    """Whether the values are integers or booleans."""
    return values.dtype.kind in "iub"


def _element_text(values: NDArray[Any], at: int) -> str:
    """An element as text; an integer with all digits."""
    return str(int(values[at])) if _are_integers(values) else f"{float(values[at]):.9g}"


def _root_mean_square(values: NDArray[Any]) -> float:
    """The root mean square of the finite values; an infinity must not hide all errors."""
    largest, total, count = 0.0, 0.0, 0
    for piece in _pieces(values.size):
        largest = max(largest, float(np.abs(_finite(values[piece])).max(initial=0.0)))
    if not largest:
        return 0.0
    for piece in _pieces(values.size):
        finite = _finite(values[piece]) / largest  # keeps squares from overflowing
        total += float(finite @ finite)
        count += finite.size
    return largest * math.sqrt(total / count)


def _finite(values: NDArray[Any]) -> NDArray[np.float64]:
    real = values.astype(np.float64)
    return real[np.isfinite(real)]


def _pieces(size: int) -> Iterator[slice]:
    """Cut a large array into pieces, so that intermediate results stay in the CPU's cache."""
    for start in range(0, size, PIECE_ELEMENTS):
        yield slice(start, min(start + PIECE_ELEMENTS, size))


def checked_positions(launch: Launch, shape: tuple[int, ...], seed: int) -> NDArray[np.int64]:
    """Choose the output elements to compare: all, or the first, the last and random rows.

    Args:
        launch: The launch; its FLOPs give the cost of an element.
        shape: The shape of the output.
        seed: The seed of the random rows.

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
