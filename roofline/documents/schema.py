"""The JSON Schema of a run's document, made of the records that the document holds.

Types come from the records' hints, as the codec reads them, and descriptions from their docstrings;
those of counters from the glossary.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from memlab.device.access_counts import AccessCounts, NamedCounters
from memlab.device.measurement import DeviceSummary, Measurement
from memlab.roofline.documents.codec import recorded_fields
from memlab.roofline.documents.runs import DOCUMENT_KEYS, LAUNCH_KEYS, SCHEMA_VERSION
from memlab.roofline.glossary import terms
from memlab.roofline.run import Run

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_SIMPLE_TYPES = {str: "string", bool: "boolean", int: "integer", NoneType: "null"}
_NUMBER = {
    "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
    "description": "A number; JSON has none for infinity and NaN, which are texts.",
}
_ATTRIBUTE = re.compile(r"^(\w+): (.*(?:\n(?: {4,}.*))*)", re.M)


def run_schema() -> dict[str, Any]:
    """Make the schema of the document that `memlab run --json` prints.

    A document may have further keys, which newer versions add.
    """
    definitions: dict[str, Any] = {"number": _NUMBER}
    parts = {**_properties(Run, definitions), **_properties(Measurement, definitions)}
    parts |= {
        "schema_version": {"const": SCHEMA_VERSION},
        "launch": {
            "type": "object",
            "description": "The launch: blocks of the grid, threads of a block, shared memory.",
            "required": list(LAUNCH_KEYS),
            "properties": {key: parts[key] for key in LAUNCH_KEYS},
        },
        "roofline": parts["placement"],
    }
    return {
        "$schema": DRAFT,
        "title": "A run of memlab",
        "description": "The document of 'memlab run --json', in base units.",
        "type": "object",
        "required": list(DOCUMENT_KEYS),
        "properties": {key: parts[key] for key in DOCUMENT_KEYS},
        "$defs": dict(sorted(definitions.items())),
    }


def _properties(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schemas of a record's fields, by name; those of inner records go to the definitions."""
    types, told = get_type_hints(kind), _descriptions(kind)
    names = [field.name for field in recorded_fields(kind)]
    if issubclass(kind, NamedCounters):
        names = list(kind.names())
        told = {name: _counter_description(kind, name) for name in names if name not in told} | told
    found = {}
    for name in names:
        text = {"description": told[name]} if name in told else {}
        found[name] = {**_type_schema(types.get(name, int), definitions), **text}
    return found


def _counter_description(kind: type[NamedCounters], name: str) -> str:
    """The glossary's text of a counter, or what its figure means for all accesses."""
    if name in terms():
        return terms()[name].paragraphs[0]
    count = getattr(kind, name)
    what = count.key if isinstance(count.key, str) else " ".join(count.key)
    return f"Of {what} accesses: {_descriptions(AccessCounts)[count.figure]}"


def _type_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a value of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SIMPLE_TYPES:
        return {"type": _SIMPLE_TYPES[kind]}
    if kind is float:
        return {"$ref": "#/$defs/number"}
    if origin in (Union, UnionType):
        return {"anyOf": [_type_schema(one, definitions) for one in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _type_schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_type_schema(one, definitions) for one in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type_schema(arguments[1], definitions)}
    if is_dataclass(kind):
        return _record_schema(kind, definitions)
    raise TypeError(f"{kind!r} has no schema")


def _record_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a record may hold another of its class
        properties = _properties(kind, definitions)
        if kind is DeviceSummary:
            version = properties["compute_capability"]
            properties["compute_capability"] = {
                "type": "string",
                "pattern": r"^\d+\.\d+$",
                "description": version["description"],
            }
        definitions[name] = {
            "type": "object",
            "description": (inspect.getdoc(kind) or name).partition("\n")[0],
            "required": list(properties),
            "properties": properties,
        }
    return {"$ref": f"#/$defs/{name}"}


def _descriptions(kind: Any) -> dict[str, str]:
    """The descriptions of a record's fields, from its docstring."""
    _, _, attributes = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    listed = inspect.cleandoc("\n" + attributes)
    return {
        name: re.sub(r"\bNone\b", "null", " ".join(text.split()))
        for name, text in _ATTRIBUTE.findall(listed)
    }
