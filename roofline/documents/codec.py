"""Records as JSON values and back, by their type hints.

A document may come from anyone. A value of another type or beyond all bounds is refused here,
once, so that reports and pictures need not ask whether they may divide by a time.

JSON has no number for infinity or NaN (the error of an output that holds one): they are written
as the strings `"Infinity"`, `"-Infinity"` and `"NaN"`, as in protobuf's JSON mapping.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from reprlib import repr as shortened
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from memlab.device.access_counts import NamedCounters
from memlab.device.measurement import DeviceSummary
from memlab.device.properties import version_text
from memlab.errors import UsageError
from memlab.roofline.units import elide_middle

Record = TypeVar("Record")


@dataclass(frozen=True)
class FieldBounds:
    """The bounds of a field, or of each value in a field that is a collection.

    Attributes:
        least: The least that a number may be.
        most: The most that a number may be.
        nan_allowed: Whether a number may be NaN.
        max_characters: The most characters that a text may have.
    """

    least: float = 0
    most: float = 2**128
    nan_allowed: bool = False
    max_characters: int = 1000


DEFAULT_BOUNDS = FieldBounds()
"""No count comes near: the largest grid has 2^63 blocks, and a block's counts are far below 2^64.
Figures computed from such numbers stay within the range of a float."""

FREE_TEXT_BOUNDS = FieldBounds(max_characters=2**20)
"""Names and texts of people have no natural length."""

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

FIELD_BOUNDS = {
    "Code.compiler": FREE_TEXT_BOUNDS,
    "Code.options": FREE_TEXT_BOUNDS,
    "Code.source_name": FREE_TEXT_BOUNDS,
    "Coverage.blocks_total": FieldBounds(least=1),  # a divisor
    "Coverage.not_counted": FREE_TEXT_BOUNDS,
    "InstructionCounters.reason": FREE_TEXT_BOUNDS,
    "Latency.clock_hz": FieldBounds(least=1),  # a divisor
    "LineCounters.text": FREE_TEXT_BOUNDS,
    "Measurement.kernel": FREE_TEXT_BOUNDS,
    "Measurement.parameters": FREE_TEXT_BOUNDS,
    "Measurement.tile": FieldBounds(most=INT32_MAX),  # a frame holds it in 64 bits, a grid in 32
    "Rate.value": FieldBounds(least=1),  # a divisor, drawn on a logarithmic axis
    "Recipe.kernel": FREE_TEXT_BOUNDS,
    "Recipe.options": FREE_TEXT_BOUNDS,
    "Run.advice": FREE_TEXT_BOUNDS,
    "Run.id": FieldBounds(most=INT64_MAX),  # as in SQLite
    "RunIdentity.label": FREE_TEXT_BOUNDS,
    "RunIdentity.note": FREE_TEXT_BOUNDS,
    "RunIdentity.sweep": FREE_TEXT_BOUNDS,
    "Time.median_s": FieldBounds(least=1e-15),  # a divisor; a clock cycle takes 10^5 times that
    "Verification.relative_error": FieldBounds(most=math.inf, nan_allowed=True),
    "Verification.unverified": FREE_TEXT_BOUNDS,
    "Verification.worst": FREE_TEXT_BOUNDS,
}
"""The fields whose bounds are not `DEFAULT_BOUNDS`, by class and name."""

MAX_ERROR_CHARACTERS = 200
"""The longest description of a fault; Python's messages quote whole values."""


def encode(value: object) -> Any:
    """Turn records, collections and numbers, NumPy's too, into what strict JSON has.

    Raises:
        TypeError: A value is neither text, number, record nor a collection of these.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, NamedCounters):
        return encode(value.by_name())
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if is_dataclass(value):
        values = {
            field.name: encode(getattr(value, field.name)) for field in recorded_fields(value)
        }
        if isinstance(value, DeviceSummary):
            values["compute_capability"] = version_text(value.compute_capability)
        return values
    raise TypeError(f"{type(value).__name__} has no place in a document")


def read_document(
    kind: type[Record],
    document: Mapping[str, Any],
    schema_version: int,
    values: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda document: document,
) -> Record:
    """Read the record that a document holds.

    Keys without a field are ignored. A field with a default may be missing: an older version
    wrote the document.

    Args:
        kind: The record's class.
        document: The document.
        schema_version: The version of its keys that the record has.
        values: Gives the record's values by field out of the document.

    Raises:
        UsageError: The document has another version, or does not hold such a record.
    """
    name = kind.__name__.lower()
    if not isinstance(document, Mapping):
        raise UsageError(f"the {name} document is malformed: it is not an object")
    version = document.get("schema_version")
    if version != schema_version:
        raise UsageError(
            f"the {name} document has schema_version {shortened(version)}; "
            f"this memlab reads {schema_version}"
        )
    try:
        record: Record = _decode(kind, values(document), kind.__name__, DEFAULT_BOUNDS)
    except KeyError as missing:
        raise UsageError(f"the {name} document has no {missing}") from missing
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        fault = elide_middle(str(error), MAX_ERROR_CHARACTERS)
        raise UsageError(f"the {name} document is malformed: {fault}") from error
    return record


class _TypeMismatch(ValueError):
    """A value has another type than its field."""


def _decode(expected: Any, value: Any, place: str, bounds: FieldBounds) -> Any:
    """Turn a JSON value into one of the expected type.

    Raises:
        ValueError: It has another type or is out of bounds; the message names its place.
    """
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        return _decode_union(arguments, value, place, bounds)
    if is_dataclass(expected) and isinstance(value, Mapping):
        return _decode_record(expected, value, place)
    if origin is dict and isinstance(value, Mapping):
        return {
            _decode(str, key, f"a name in {place}", DEFAULT_BOUNDS): _decode(
                arguments[1], item, f"{place}.{key}", bounds
            )
            for key, item in value.items()
        }
    if expected == tuple[float, ...] and isinstance(value, list) and _plain_floats(value, bounds):
        return tuple(value)  # the samples of a time: item by item they would take milliseconds
    if origin is tuple and isinstance(value, list | tuple):
        types = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(types) == len(value):
            return tuple(
                _decode(kind, item, place, bounds) for kind, item in zip(types, value, strict=True)
            )
    if expected is float and (type(value) is int or value in ("NaN", "Infinity", "-Infinity")):
        value = float(value)
    if value in arguments if origin is Literal else type(value) is expected:
        return _within_bounds(value, place, bounds)
    raise _TypeMismatch(f"{place} has a value of another type")


def _plain_floats(values: list[Any], bounds: FieldBounds) -> bool:
    """Whether all values are floats within their bounds."""
    return all(type(value) is float and bounds.least <= value <= bounds.most for value in values)


def _decode_union(types: tuple[Any, ...], value: Any, place: str, bounds: FieldBounds) -> Any:
    """Decode a value as the first type that it has."""
    fault: ValueError | None = None
    for kind in types:
        try:
            return _decode(kind, value, place, bounds)
        except ValueError as error:
            if fault is None or isinstance(fault, _TypeMismatch):
                fault = error
    raise fault or _TypeMismatch(place)


def _decode_record(kind: Any, values: Mapping[str, Any], place: str) -> Any:
    """Decode a record's fields, by the names that its document has."""
    if kind is DeviceSummary and isinstance(version := values.get("compute_capability"), str):
        values = {**values, "compute_capability": [int(part) for part in version.split(".")]}
    decoded = {}
    for name, (expected, required) in _document_fields(kind).items():
        if name in values:
            bounds = FIELD_BOUNDS.get(f"{kind.__name__}.{name}", DEFAULT_BOUNDS)
            decoded[name] = _decode(expected, values[name], f"{place}.{name}", bounds)
        elif required:
            raise ValueError(f"{place} has no {name!r}")
    return kind.from_names(**decoded) if issubclass(kind, NamedCounters) else kind(**decoded)


@cache
def _document_fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The type of each field of a record in a document, and whether it must be there."""
    types = get_type_hints(kind)
    if issubclass(kind, NamedCounters):
        return {name: (types.get(name, int), False) for name in kind.names()}
    return {
        field.name: (types[field.name], field.default is field.default_factory is MISSING)
        for field in recorded_fields(kind)
    }


def recorded_fields(record: Any) -> list[Field[Any]]:
    """The fields of a record, or of its class, that documents have."""
    return [field for field in fields(record) if field.metadata.get("recorded", True)]


def _within_bounds(value: Any, place: str, bounds: FieldBounds) -> Any:
    """Give back a text or a number that is within its bounds."""
    if isinstance(value, str) and len(value) > bounds.max_characters:
        raise ValueError(
            f"{place} has {len(value)} characters, and must have {bounds.max_characters} at most"
        )
    if not isinstance(value, int | float) or bounds.least <= value <= bounds.most:
        return value
    if bounds.nan_allowed and math.isnan(value):
        return value
    limits = f"from {bounds.least:g} to {bounds.most:g}"
    raise ValueError(f"{place} is {shortened(value)}, and must be {limits}")
