"""`memlab.toml`: user kernels by name, in the folder of their source files.

The file is untrusted data: it is checked against the schema that editors also use, it may not name
files outside its folder, and nothing in it is executed but the kernel.
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
"""The file's name in the current folder."""
SCHEMA_FILE = "memlab.schema.json"
MAX_PROJECT_FILE_BYTES = 1 << 20
"""The longest file that is read."""

_MAX_SHOWN_CHARACTERS = 60
"""The longest text of a value that a message shows."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def schema_text() -> str:
    """The text of the JSON schema of `memlab.toml`, which `memlab init` writes next to the file."""
    return resources.files(__package__).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


PYTHON_SUFFIX = ".py"


@cache
def schema() -> Mapping[str, Any]:
    """The JSON schema of `memlab.toml`."""
    document: Mapping[str, Any] = json.loads(schema_text())
    return document


def find_user_kernel(target: str) -> UserKernel | None:
    """Find the user kernel that a target names: `FILE.cu:ENTRY` or a name in `memlab.toml`.

    A Python file, `FILE.py:NAME`, is run, and has to define a kernel of that name.

    Returns:
        The kernel, with the options from `memlab.toml` if it is named there; None if the target
        is neither.

    Raises:
        UsageError: The `memlab.toml` of the current folder cannot be used, or the Python file has
            no such kernel.
    """
    place = split_target(target)
    if place and place[0].endswith(PYTHON_SUFFIX):
        from memlab.kernels.python.files import find_kernel

        return find_kernel(*place)
    return UserKernel(*place) if place else read_user_kernels().get(target)


def read_user_kernels(path: Path = Path(PROJECT_FILE)) -> dict[str, UserKernel]:
    """Read the kernels of a `memlab.toml`, by name; empty if there is no such file.

    Raises:
        UsageError: The file cannot be read, is not valid TOML, or has a key or value that is not
            allowed; the message names the file and the key.
    """
    document = _read_document(path)
    if document is None:
        return {}
    try:
        _validate(document, path)
    except ValueError:  # Python reads hexadecimal numbers of any length but does not print them
        raise UsageError(f"{path}: a number has thousands of digits: write a smaller one") from None
    kernels = {}
    for name, table in document.get("kernels", {}).items():
        if name in CATALOG:
            raise UsageError(
                f"{path}: kernels.{name} has the name of a kernel of the catalog: "
                f"choose another name, such as my-{name}"
            )
        try:
            kernels[name] = _user_kernel(name, table)
        except UsageError as error:
            raise UsageError(f"{path}: kernels.{name}: {error}") from None
        for key, file in _referenced_files(table):
            _check_inside_folder(file, f"{path}: kernels.{name}.{key}", path.parent)
    return kernels


def _user_kernel(name: str, table: Mapping[str, Any]) -> UserKernel:
    options = {key.replace("-", "_"): value for key, value in table.items()}
    kernel = UserKernel(options.pop("source"), options.pop("entry", ""), name)
    return apply_launch_options(kernel, options)


def _read_document(path: Path) -> Mapping[str, Any] | None:
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > MAX_PROJECT_FILE_BYTES:
            raise UsageError(
                f"{path} is not a file of at most {MAX_PROJECT_FILE_BYTES} bytes: move it away"
            )
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # accepts a byte order mark
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): check its permissions") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8, as TOML must be: save it as UTF-8") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply: see 'memlab init --help'") from None
    except (ValueError, OverflowError) as error:  # from tomllib, or for thousands of digits
        raise UsageError(f"{path} is not valid TOML: {error}: correct that line") from None


def _validate(document: Mapping[str, Any], path: Path) -> None:
    """Check a document against the schema.

    Raises:
        UsageError: It violates the schema; the message names the key, its value and an example.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema()).iter_errors(document))
    if error is None:
        return
    while error.parent is not None:  # for alternative types, report their common parent
        error = error.parent
    place = ".".join(
        str(key) if _PLAIN_KEY.fullmatch(str(key)) else json.dumps(str(key))
        for key in error.absolute_path
    )
    raise UsageError(f"{path}: {_validation_message(error, place)}")


def _validation_message(error: ValidationError, place: str) -> str:
    """Describe a validation error in one line, with the next step."""
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
        return f"{where}{_toml_key(value)} is not a kernel name: use letters, digits, - and _"
    key = next((str(part) for part in reversed(error.absolute_path) if isinstance(part, str)), "")
    description = str(rule.get("description", "")).rstrip(".") or _description(key)
    return f"{place or 'it'} = {_toml_value(value)} is not accepted. {description}: {_example(key)}"


def _toml_value(value: object) -> str:
    """Write a value as in TOML, on one line; texts keep their quotes."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 1] + "…"


def _toml_key(name: str) -> str:
    """Write a key as in TOML, on one line."""
    plain = _PLAIN_KEY.fullmatch(name) and len(name) < _MAX_SHOWN_CHARACTERS
    return name if plain else _toml_value(name)


def _property_schema(key: str) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = schema()["$defs"]["kernel"]["properties"].get(key, {})
    return properties


def _description(key: str) -> str:
    return str(_property_schema(key).get("description", "It is a table")).rstrip(".")


def _example(key: str) -> str:
    examples = _property_schema(key).get("examples")
    if not examples:
        return "write [kernels.NAME] and below it its keys"
    return f"write {key} = {json.dumps(examples[0])}"


def _referenced_files(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """List the files and folders that a table names, with their keys."""
    yield "source", table["source"]
    for folder in table.get("include", ()):
        yield "include", folder
    if "root" in table:
        yield "root", table["root"]
    for key in ("args", "constants", "expect"):
        for text in table.get(key, ()):
            value = text.partition("=")[2].strip()
            if value.startswith("@"):
                yield key, value[1:]


def _check_inside_folder(file: str, place: str, folder: Path) -> None:
    """Refuse a path outside the folder of the file; links are followed.

    Raises:
        UsageError: The path is outside; the message names the key and the path.
    """
    try:
        home = folder.resolve()
        inside = not Path(file).is_absolute() and (home / file).resolve().is_relative_to(home)
    except (OSError, ValueError, RuntimeError):  # too long, a NUL character, a cycle of links
        inside = False
    if not inside or ".." in Path(file).parts:
        raise UsageError(
            f"{place} = {_toml_value(file)} leaves the folder of {PROJECT_FILE}: "
            "name a file in it, or give the path on the command line"
        )
