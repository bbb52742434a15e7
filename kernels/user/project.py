"""`memlab.toml`: kernels of one's own by name, kept beside their files.

The file is data from whoever wrote it: it is checked against the schema that editors use too, it
names no file outside its folder, and nothing in it is run but the kernel.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.catalog import CATALOG
from memlab.kernels.user.kernel import UserKernel, apply_launch_options, split_target

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

PROJECT_FILE = "memlab.toml"
"""Looked for in the current folder."""
SCHEMA_FILE = "memlab.schema.json"
MAX_PROJECT_FILE_BYTES = 1 << 20
"""No such file is longer."""

_MAX_SHOWN_CHARACTERS = 60
"""Of a value in a message."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def schema_text() -> str:
    """The JSON schema of `memlab.toml`, as it is written beside one."""
    return resources.files(__package__).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


@cache
def schema() -> Mapping[str, Any]:
    """The JSON schema of `memlab.toml`."""
    found: Mapping[str, Any] = json.loads(schema_text())
    return found


def find_user_kernel(target: str) -> UserKernel | None:
    """Give the kernel of one's own that a target names: `FILE.cu:ENTRY`, or in `memlab.toml`.

    Returns:
        The kernel with what the file says of it; None where the target is neither.

    Raises:
        UsageError: The current folder's `memlab.toml` cannot be used.
    """
    place = split_target(target)
    return UserKernel(*place) if place else read_user_kernels().get(target)


def read_user_kernels(path: Path = Path(PROJECT_FILE)) -> dict[str, UserKernel]:
    """Read the kernels of a `memlab.toml`, by name; none where there is no such file.

    Raises:
        UsageError: It cannot be read, is no TOML, or says what it may not; names file and key.
    """
    document = _read_document(path)
    if document is None:
        return {}
    try:
        _validate(document, path)
    except ValueError:  # Python reads hexadecimal numbers of any length, but prints none such
        raise UsageError(f"{path}: a number has thousands of digits: write a smaller") from None
    found = {}
    for name, table in document.get("kernels", {}).items():
        if name in CATALOG:
            raise UsageError(
                f"{path}: kernels.{name} has the name of a kernel of the catalog: "
                f"call it something else, such as my-{name}"
            )
        try:
            found[name] = _user_kernel(name, table)
        except UsageError as error:
            raise UsageError(f"{path}: kernels.{name}: {error}") from None
        for key, file in _referenced_files(table):
            _check_inside_folder(file, f"{path}: kernels.{name}.{key}", path.parent)
    return found


def _user_kernel(name: str, table: Mapping[str, Any]) -> UserKernel:
    choices = {key.replace("-", "_"): value for key, value in table.items()}
    kernel = UserKernel(choices.pop("source"), choices.pop("entry", ""), name)
    return apply_launch_options(kernel, choices)


def _read_document(path: Path) -> Mapping[str, Any] | None:
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > MAX_PROJECT_FILE_BYTES:
            raise UsageError(
                f"{path} is no file of at most {MAX_PROJECT_FILE_BYTES} bytes: move it away"
            )
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin with a mark
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): check its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8, as TOML must be: save it as UTF-8") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply: see 'memlab init --help'") from None
    except (ValueError, OverflowError) as error:  # tomllib's, and numbers of thousands of digits
        raise UsageError(f"{path} is no TOML: {error}: correct that line") from None


def _validate(document: Mapping[str, Any], path: Path) -> None:
    """Check a document against the schema.

    Raises:
        UsageError: Names the key, its value and how to write it.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema()).iter_errors(document))
    if error is None:
        return
    while error.parent is not None:  # of a choice of types, what was chosen from
        error = error.parent
    place = ".".join(
        str(key) if _PLAIN_KEY.fullmatch(str(key)) else json.dumps(str(key))
        for key in error.absolute_path
    )
    raise UsageError(f"{path}: {_validation_message(error, place)}")


def _validation_message(error: ValidationError, place: str) -> str:
    """What the schema's library found, in one line with the next step."""
    where = f"{place}." if place else ""
    rule: Any = error.schema
    value: Any = error.instance
    if error.validator == "additionalProperties":
        known = rule["properties"]
        unknown = next(key for key in value if key not in known)
        if unknown == "reference":
            return (
                f"{where}reference would run code, and this file is data: give it on the "
                "command line, with --reference FILE.py:FUNCTION"
            )
        return f"{where}{_toml_key(unknown)} is unknown: {suggest_nearest(unknown, known)}"
    if error.validator == "required":
        missing = next(key for key in rule["required"] if key not in value)
        return f"{where}{missing} is missing: {_example(missing)}"
    if error.validator in ("pattern", "not") and "propertyNames" in error.absolute_schema_path:
        return f"{where}{_toml_key(value)} is no name for a kernel: use letters, digits, - and _"
    key = next((str(each) for each in reversed(error.absolute_path) if isinstance(each, str)), "")
    description = str(rule.get("description", "")).rstrip(".") or _description(key)
    return f"{place or 'it'} = {_toml_value(value)} is not accepted. {description}: {_example(key)}"


def _toml_value(value: object) -> str:
    """A value as TOML would have it, on one line; of a text, the quotes show that it is one."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def _toml_key(name: str) -> str:
    """A key as TOML would have it, on one line."""
    plain = _PLAIN_KEY.fullmatch(name) and len(name) < _MAX_SHOWN_CHARACTERS
    return name if plain else _toml_value(name)


def _property_schema(key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema()["$defs"]["kernel"]["properties"].get(key, {})
    return found


def _description(key: str) -> str:
    return str(_property_schema(key).get("description", "It is a table")).rstrip(".")


def _example(key: str) -> str:
    examples = _property_schema(key).get("examples")
    if not examples:
        return "write [kernels.NAME] and below it its keys"
    return f"write {key} = {json.dumps(examples[0])}"


def _referenced_files(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys that name files or folders, and what they name."""
    yield "source", table["source"]
    for folder in table.get("include", ()):
        yield "include", folder
    for key in ("args", "constants", "expect"):
        for text in table.get(key, ()):
            value = text.partition("=")[2].strip()
            if value.startswith("@"):
                yield key, value[1:]


def _check_inside_folder(file: str, place: str, folder: Path) -> None:
    """Refuse what lies outside the folder of the file, links followed.

    Raises:
        UsageError: Names the key and the path.
    """
    try:
        home = folder.resolve()
        inside = not Path(file).is_absolute() and (home / file).resolve().is_relative_to(home)
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a circle of links
        inside = False
    if not inside or ".." in Path(file).parts:
        raise UsageError(
            f"{place} = {_toml_value(file)} leaves the folder of {PROJECT_FILE}: "
            "name a file in it, or give the path on the command line"
        )
