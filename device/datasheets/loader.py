"""Reads the datasheets: one TOML file per GPU, in which every figure names its source."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from memlab.device.measurement import Provenance
from memlab.device.properties import DeviceProperties
from memlab.errors import UsageError, suggest_nearest

_FOLDER = resources.files("memlab.device.datasheets")
_SUFFIX = ".toml"


def datasheet_names() -> tuple[str, ...]:
    """The names of all datasheets, in alphabetical order."""
    files = (file.name for file in _FOLDER.iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


@cache
def load_datasheet(name: str) -> DeviceProperties:
    """Read a device's datasheet.

    Args:
        name: One of `datasheet_names()`, in any case.

    Returns:
        The device's figures, with the text of each figure's source.

    Raises:
        UsageError: There is no such datasheet, or it is malformed.
    """
    key = name.lower()
    if key not in datasheet_names():
        raise UsageError(f"no datasheet {name!r}: {suggest_nearest(key, datasheet_names())}")
    return parse_datasheet((_FOLDER / (key + _SUFFIX)).read_text(encoding="utf-8"), key + _SUFFIX)


def parse_datasheet(text: str, file: str) -> DeviceProperties:
    """Read the text of a datasheet.

    A datasheet holds `name`; a table `[sources]` of texts by short key, each beginning with a
    provenance and a colon; and a table `[figures]` with `field = { value = ..., source = "key" }`
    for fields of `DeviceProperties`.

    Args:
        text: The TOML text.
        file: The file's name for messages.

    Raises:
        UsageError: The text is not TOML, or a table, field, type or source is invalid.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    name, sources, figures = (document.pop(key, None) for key in ("name", "sources", "figures"))
    if document or not (
        isinstance(name, str) and isinstance(sources, dict) and isinstance(figures, dict)
    ):
        raise UsageError(
            f"{file} must hold name, [sources] and [figures] and nothing else"
            + "".join(f"; it holds {key!r}" for key in document)
        )
    _check_sources(sources, figures, file)
    if "compute_capability" not in figures:
        raise UsageError(f"{file}: [figures] lacks compute_capability, which code is compiled for")
    hints = get_type_hints(DeviceProperties)
    del hints["name"], hints["sources"]
    values = {field: _typed_value(field, entry, hints, file) for field, entry in figures.items()}
    texts = {field: sources[entry["source"]] for field, entry in figures.items()}
    return DeviceProperties(name=name, sources=texts, **values)


def _check_sources(sources: Mapping[str, Any], figures: Mapping[str, Any], file: str) -> None:
    for key, text in sources.items():
        word, colon, where = str(text).partition(":")
        if word not in get_args(Provenance) or not colon or not where.strip():
            raise UsageError(
                f"{file}: source {key!r} must start with a provenance and a colon, "
                f"as in 'datasheet: NVIDIA A100 datasheet', got {text!r}"
            )
    for field, entry in figures.items():
        if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
            raise UsageError(f'{file}: {field} must be {{ value = ..., source = "..." }}')
        if entry["source"] not in sources:
            raise UsageError(
                f"{file}: {field} names the source {entry['source']!r}: "
                f"{suggest_nearest(str(entry['source']), sources)}"
            )


def _typed_value(field: str, entry: Mapping[str, Any], hints: Mapping[str, Any], file: str) -> Any:
    """Convert a figure to its field's type: TOML has no tuples, and may write 1 for 1.0."""
    if field not in hints:
        raise UsageError(f"{file}: unknown figure {field!r}: {suggest_nearest(field, hints)}")
    value = entry["value"]
    kind = get_args(hints[field])[0] if isinstance(hints[field], UnionType) else hints[field]
    parts, numbers = get_args(kind), (int, float)
    if get_origin(kind) is tuple and isinstance(value, list):
        if tuple(type(item) for item in value) == parts:
            return tuple(value)
    elif get_origin(kind) is Mapping and isinstance(value, dict):
        if all(type(number) in numbers for number in value.values()):
            return {key: float(number) for key, number in value.items()}
    elif kind is float and type(value) in numbers:
        return float(value)
    elif kind is type(value):
        return value
    wanted = {tuple: f"a list of {len(parts)} int", Mapping: "a table of numbers"}
    spelled = wanted.get(get_origin(kind)) or kind.__name__
    raise UsageError(f"{file}: {field} must be {spelled}, got {value!r}")
