"""Records out of JSON: what it lost is restored, and a value of another type is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

LARGEST_INTEGER = 2**256
"""No count comes near, and figures that are made of it stay within what a float holds."""


def record(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """Make a dataclass from a JSON object, whatever else the object holds.

    Raises:
        TypeError: A field that has no default is missing.
        ValueError: A number is none.
        OverflowError: A number is larger than any float.
    """
    types = _field_types(kind)
    return kind(**{name: restored(types[name], values[name]) for name in types if name in values})


def restored(expected: Any, value: Any) -> Any:
    """Restore what JSON lost: floats written as whole numbers or as a name."""
    if get_origin(expected) is dict and isinstance(value, dict):
        return {key: restored(get_args(expected)[1], each) for key, each in value.items()}
    if value is not None and float in (expected, *get_args(expected)):
        return float(value)
    return value


def checked(value: Record) -> Record:
    """Give back a record of which every part has the type that its field declares.

    Raises:
        TypeError: One has not; names the first.
    """
    place = _misfit(type(value), value, type(value).__name__)
    if place:
        raise TypeError(f"{place} has a value of another type")
    return value


@cache
def _field_types(kind: type[DataclassInstance]) -> dict[str, Any]:
    return get_type_hints(kind)


def _misfit(expected: Any, value: Any, place: str) -> str:
    """The place of the first part that is not of its type; empty where all are."""
    origin, arguments = get_origin(expected), get_args(expected)
    parts: list[tuple[Any, Any, str]]
    if origin in (Union, UnionType):
        return "" if any(not _misfit(each, value, place) for each in arguments) else place
    if origin is Literal:
        return "" if value in arguments else place
    if not isinstance(value, origin or expected) or isinstance(value, bool) != (expected is bool):
        return place
    if is_dataclass(expected):
        kind: type[DataclassInstance] = type(value)
        types = _field_types(kind)
        parts = [(types[name], getattr(value, name), f"{place}.{name}") for name in types]
    elif origin is dict:
        parts = [(arguments[1], each, f"{place}.{key}") for key, each in value.items()]
    elif origin is tuple:
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            return place
        parts = [(kind, each, place) for kind, each in zip(kinds, value, strict=True)]
    else:
        too_large = isinstance(value, int) and abs(value) > LARGEST_INTEGER
        return place if too_large else ""
    return next(filter(None, (_misfit(*part) for part in parts)), "")
