"""Writes a datasheet as the TOML text that the loader reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from memlab.device.properties import known_figures

if TYPE_CHECKING:
    from memlab.device.properties import DeviceProperties


def datasheet_text(properties: DeviceProperties) -> str:
    """Write a datasheet.

    Args:
        properties: The device; only figures with a source are written.

    Returns:
        TOML text, for which `loader.parse_datasheet` gives the same properties.
    """
    figures = {
        name: value
        for name, value in known_figures(properties).items()
        if name in properties.sources or name == "compute_capability"
    }
    texts = [properties.sources.get(name, "queried: the driver") for name in figures]
    keys = {text: f"source{number}" for number, text in enumerate(dict.fromkeys(texts), 1)}
    lines = [f"# {properties.name}, written by memlab.", "", f"name = {_toml(properties.name)}"]
    lines += ["", "[sources]", *(f"{key} = {_toml(text)}" for text, key in keys.items())]
    lines += ["", "[figures]"]
    for (name, value), text in zip(figures.items(), texts, strict=True):
        lines.append(f'{name} = {{ value = {_toml(value)}, source = "{keys[text]}" }}')
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A value in TOML: JSON's texts, numbers and truth values are TOML's too."""
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))} = {_toml(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
