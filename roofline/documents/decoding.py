"""Records out of JSON: what it lost is restored, and what no run can hold is refused.

A document may come from anyone. What is of another type or beyond all bounds is refused here,
once, so that reports and pictures need not ask whether they may divide by a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from reprlib import repr as shown
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from memlab.errors import UsageError
from memlab.roofline.units import elide_middle

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)


@dataclass(frozen=True)
class FieldBounds:
    """What a field may hold, also where it is a collection: each part of that.

    Attributes:
        least: The least that a number may be, and
        most: The most.
        or_nan: Whether it may be no number at all.
        longest: Characters of a text.
    """

    least: float = 0
    most: float = 2**128
    nan_allowed: bool = False
    max_characters: int = 1000


DEFAULT_BOUNDS = FieldBounds()
"""No count comes near: the largest grid has 2^63 blocks, and a block's counts are far below 2^64.
What is computed from such numbers stays within what a float holds."""

FREE_TEXT_BOUNDS = FieldBounds(max_characters=2**20)
"""What people name, write and are told has no length of its own."""

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

FIELD_BOUNDS = {
    "Coverage.blocks_total": FieldBounds(least=1),  # divides
    "Coverage.not_counted": FREE_TEXT_BOUNDS,
    "Latency.clock_hz": FieldBounds(least=1),  # divides
    "LineCounters.text": FREE_TEXT_BOUNDS,
    "Measurement.kernel": FREE_TEXT_BOUNDS,
    "Measurement.parameters": FREE_TEXT_BOUNDS,
    "Measurement.tile": FieldBounds(most=INT32_MAX),  # frames hold it in 64 bits, a grid in these
    "Rate.value": FieldBounds(least=1),  # divides, and stands on a logarithmic axis
    "Run.advice": FREE_TEXT_BOUNDS,
    "Run.id": FieldBounds(most=INT64_MAX),  # as SQLite's
    "Time.median_s": FieldBounds(least=1e-15),  # divides; a clock takes 10^5 times that
    "Verification.relative_error": FieldBounds(
        most=math.inf, nan_allowed=True
    ),  # of outputs that are so
    "Verification.unverified": FREE_TEXT_BOUNDS,
    "Verification.worst": FREE_TEXT_BOUNDS,
}
"""Fields that are not as `USUAL` says, by class and name."""

MAX_ERROR_CHARACTERS = 200
"""Characters of what is wrong with a document that are told; Python quotes the whole value."""


def record_from_json(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """Make a dataclass from a JSON object, whatever else the object holds.

    Raises:
        TypeError: A field that has no default is missing.
        ValueError: A number is none.
        OverflowError: A number is larger than any float.
    """
    types = _field_types(kind)
    return kind(
        **{name: restore_json_floats(types[name], values[name]) for name in types if name in values}
    )


def restore_json_floats(expected: Any, value: Any) -> Any:
    """Restore what JSON lost: floats written as whole numbers or as a name."""
    if get_origin(expected) is dict and isinstance(value, dict):
        return {
            key: restore_json_floats(get_args(expected)[1], each) for key, each in value.items()
        }
    if value is not None and float in (expected, *get_args(expected)):
        return float(value)
    return value


def validated(value: Record) -> Record:
    """Give back a record of which every part is as its field declares, and within its bounds.

    Raises:
        ValueError: One is not; names the first.
    """
    fault = _validation_error(type(value), value, type(value).__name__, DEFAULT_BOUNDS)
    if fault:
        raise ValueError(fault)
    return value


def malformed_document_error(what: str, error: Exception) -> UsageError:
    """Give the error for a document that does not hold what it should.

    Args:
        what: It is a document of: `run`, `peaks`.
        error: What `record` or `checked` raised.
    """
    return UsageError(
        f"the {what} document is malformed: {elide_middle(str(error), MAX_ERROR_CHARACTERS)}"
    )


@cache
def _field_types(kind: type[DataclassInstance]) -> dict[str, Any]:
    return get_type_hints(kind)


def _validation_error(expected: Any, value: Any, place: str, bounds: FieldBounds) -> str:
    """What is wrong with the first part that is not as it must be; empty where all are."""
    origin, arguments = get_origin(expected), get_args(expected)
    another_type = f"{place} has a value of another type"
    if origin in (Union, UnionType):
        faults = [_validation_error(each, value, place, bounds) for each in arguments]
        told = (each for each in faults if each != another_type)
        return "" if "" in faults else next(told, another_type)
    if origin is Literal:
        return "" if value in arguments else another_type
    if not isinstance(value, origin or expected) or isinstance(value, bool) != (expected is bool):
        return another_type
    parts: list[tuple[Any, Any, str, FieldBounds]] = []
    if is_dataclass(expected):
        kind: type[DataclassInstance] = type(value)
        for name, declared in _field_types(kind).items():
            own = FIELD_BOUNDS.get(f"{kind.__name__}.{name}", DEFAULT_BOUNDS)
            parts.append((declared, getattr(value, name), f"{place}.{name}", own))
    elif origin is dict:
        parts = [(str, key, f"a name in {place}", DEFAULT_BOUNDS) for key in value]
        parts += [(arguments[1], each, f"{place}.{key}", bounds) for key, each in value.items()]
    elif origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            return another_type
        parts = [(kind, each, place, bounds) for kind, each in zip(kinds, value, strict=True)]
    else:
        return _bounds_error(value, place, bounds)
    return next(filter(None, (_validation_error(*part) for part in parts)), "")


def _bounds_error(value: Any, place: str, bounds: FieldBounds) -> str:
    """What is wrong with a text or a number of the right type."""
    if isinstance(value, str) and len(value) > bounds.max_characters:
        return f"{place} has {len(value)} characters, and must have {bounds.max_characters} at most"
    if not isinstance(value, int | float) or bounds.least <= value <= bounds.most:
        return ""
    if bounds.nan_allowed and math.isnan(value):
        return ""
    return f"{place} is {shown(value)}, and must be from {bounds.least:g} to {bounds.most:g}"
