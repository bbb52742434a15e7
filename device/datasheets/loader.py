"""Reads datasheets: one TOML file per GPU, in which every figure names its source.

Those of memlab are read by name, those of users (written by hand, or by `memlab calibrate`) by the
path of their file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from memlab.device.datasheets.plausibility import check_figure
from memlab.device.measurement import Provenance
from memlab.device.properties import (
    MACHINE_FIGURES,
    DeviceProperties,
    known_figures,
    peak_bandwidth_bytes_per_s,
)
from memlab.errors import UsageError, suggest_nearest

_FOLDER = resources.files("memlab.device.datasheets")
_SUFFIX = ".toml"
_LARGEST_FILE_BYTES = 2**20
"""A datasheet has some 10 kB; what is larger is another file."""

REQUIRED_FIGURES = {
    "multiprocessor_count": "work is spread over",
    "clock_rate_hz": "rates per clock are turned into times by",
    "l2_cache_bytes": "the cache model needs",
    "l1_cache_bytes_per_sm": "the cache model needs",
    "max_threads_per_block": "limits a block",
    "max_threads_per_multiprocessor": "limits occupancy",
    "max_blocks_per_multiprocessor": "limits occupancy",
    "max_registers_per_block": "limits occupancy",
    "max_registers_per_multiprocessor": "limits occupancy",
    "max_shared_memory_per_block_bytes": "limits a block",
    "max_shared_memory_per_multiprocessor_bytes": "limits occupancy",
}
"""Figures without which no kernel can be emulated and timed, and what they are for."""

GUIDE = "docs/datasheets.md"
"""The page that tells how a datasheet is written."""


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


def is_datasheet_path(name: str) -> bool:
    """Whether the name of a device is the path of a datasheet's file: it ends in `.toml`."""
    return name.lower().endswith(_SUFFIX)


def read_datasheet(path: str) -> DeviceProperties:
    """Read a datasheet that a user wrote, or `memlab calibrate`.

    Args:
        path: The file.

    Returns:
        As `load_datasheet`.

    Raises:
        UsageError: The file cannot be read, is malformed, or lacks a figure that every emulation
            needs.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(_LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read the datasheet {path} ({error.strerror or error}): give a file that "
            f"'memlab calibrate -o {Path(path).name}' writes, or a name: "
            + ", ".join(datasheet_names())
        ) from error
    if len(content) > _LARGEST_FILE_BYTES:
        raise UsageError(f"{path} has more than {_LARGEST_FILE_BYTES} bytes: it is no datasheet")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason}): save it as UTF-8") from error
    properties = parse_datasheet(text, path)
    for name, purpose in REQUIRED_FIGURES.items():
        if getattr(properties, name) is None:
            raise UsageError(
                f"{path}: [figures] lacks {name}, which {purpose}: add it, or name a datasheet "
                f"that it is like with based_on (see {GUIDE})"
            )
    if peak_bandwidth_bytes_per_s(properties) is None:
        raise UsageError(
            f"{path}: [figures] lacks the bandwidth of the memory: add "
            "peak_memory_bandwidth_bytes_per_s"
        )
    return properties


def parse_datasheet(text: str, file: str) -> DeviceProperties:
    """Read the text of a datasheet.

    A datasheet holds `name`; a table `[sources]` of texts by short key, each beginning with a
    provenance and a colon; and a table `[figures]` with `field = { value = ..., source = "key" }`
    for fields of `DeviceProperties`. With `based_on = "h100"`, figures that it does not give are
    assumed to be those of that datasheet, and their sources say so.

    Args:
        text: The TOML text.
        file: The file's name for messages.

    Raises:
        UsageError: The text is not TOML, or a table, field, type, unit or source is invalid.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    name, sources, figures, base = (
        document.pop(key, None) for key in ("name", "sources", "figures", "based_on")
    )
    if document or not (
        isinstance(name, str) and isinstance(sources, dict) and isinstance(figures, dict)
    ):
        parts = {"name, a text": (name, str), "[sources]": (sources, dict)}
        parts["[figures]"] = (figures, dict)
        lacking = (part for part, (value, kind) in parts.items() if not isinstance(value, kind))
        raise UsageError(
            f"{file} must hold name, [sources] and [figures], perhaps based_on, and nothing else"
            + "".join(f"; it lacks {part}" for part in lacking)
            + "".join(f"; it holds {key!r}" for key in document)
        )
    _check_sources(sources, figures, file)
    if "compute_capability" not in figures:
        raise UsageError(f"{file}: [figures] lacks compute_capability, which code is compiled for")
    hints = get_type_hints(DeviceProperties)
    del hints["name"], hints["sources"]
    values = {field: _typed_value(field, entry, hints, file) for field, entry in figures.items()}
    for field, value in values.items():
        check_figure(field, value, file)
    texts = {field: sources[entry["source"]] for field, entry in figures.items()}
    properties = DeviceProperties(name=name, sources=texts, **values)
    return properties if base is None else _based_on(properties, base, file)


def _based_on(properties: DeviceProperties, base: object, file: str) -> DeviceProperties:
    """Fill the unknown figures from another datasheet."""
    if not isinstance(base, str) or base.lower() not in datasheet_names():
        raise UsageError(
            f"{file}: based_on must name a datasheet, got {base!r}: "
            + suggest_nearest(str(base), datasheet_names())
        )
    other = load_datasheet(base)
    lent: dict[str, Any] = {
        name: value
        for name, value in known_figures(other).items()
        if name in other.sources.keys() - MACHINE_FIGURES and name not in properties.sources
    }
    texts = dict.fromkeys(lent, f"analytic: assumed to be that of the {other.name}")
    return replace(properties, sources={**texts, **properties.sources}, **lent)


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
    """Convert a figure to its field's type: TOML has no tuples, and 1 may be 1.0."""
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
    elif kind is int and type(value) is float and value.is_integer():
        return int(value)  # 1.98e9 is a clock in Hz
    elif kind is type(value):
        return value
    wanted = {tuple: f"a list of {len(parts)} int", Mapping: "a table of numbers"}
    spelled = wanted.get(get_origin(kind)) or kind.__name__
    raise UsageError(f"{file}: {field} must be {spelled}, got {value!r}")
