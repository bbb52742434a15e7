"""Recorded results of the emulator: how they are digested, stored and compared.

A record is what one case gave, as JSON: texts, numbers and digests by name. The records of
`tests/data/recorded` were made by one version of the emulator; any other must give the same, bit
for bit. `python -m tests.recorded` makes them again and says in words what differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from paths import DATA

FOLDER = DATA / "recorded"

Record = dict[str, Any]

_EXPONENT_BITS = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0 << 48}
"""The bits of infinity, above which the absolute value of a floating-point number is a NaN."""


@dataclass(frozen=True)
class Case:
    """Something of which the results are recorded.

    Attributes:
        name: Its name, unique among all cases.
        file: The file of its record, without the suffix.
        record: Gives its results as they are today.
        slow: Whether the test of it is left to `make test-all`.
    """

    name: str
    file: str
    record: Callable[[], Record]
    slow: bool = False


# --- Digests -----------------------------------------------------------------------------------


def digest(data: bytes | str) -> str:
    """The first 12 digits of the SHA-256 of some bytes, or of a text."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:12]


def digest_array(array: NDArray[Any], floats: str = "") -> str:
    """The digest of the bytes of an array; all NaNs count as equal.

    Args:
        array: The array.
        floats: `f16`, `bf16`, `f32` or `f64` if its bytes are of such numbers, also packed.
    """
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if floats:
        bits = raw.view("u2" if floats == "bf16" else f"u{int(floats[1:]) // 8}")
        sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
        is_nan = (bits & ~sign) > bits.dtype.type(_EXPONENT_BITS[floats])
        raw = np.where(is_nan, ~sign, bits)
    return digest(raw.tobytes())


# --- Files -------------------------------------------------------------------------------------


def load(file: str) -> dict[str, Record]:
    """The records of a file by the names of their cases; none where there is no file."""
    path = _path(file)
    return json.loads(path.read_text()) if path.exists() else {}


@cache
def recorded(file: str) -> Mapping[str, Record]:
    """The records of a file, read once."""
    return load(file)


def save(file: str, records: Mapping[str, Record]) -> None:
    """Write a file of records, a line for each case."""
    lines = (f"{json.dumps(name)}: {json.dumps(records[name])}" for name in sorted(records))
    FOLDER.mkdir(exist_ok=True)
    _path(file).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _path(file: str) -> Path:
    return FOLDER / f"{file}.json"


# --- Comparison --------------------------------------------------------------------------------


_RESULTS = ("source", "message", "coverage", "verification", "arrays", "printed", "findings")
"""What a record holds that does not depend on the instructions that a compiler chose."""


def compare(before: Record, now: Record) -> list[str]:
    """Tell in words what differs between a record and what a case gives now.

    NVRTC compiles some sources otherwise where the repository lies in another folder: then the
    results are compared, but no counts.

    Raises:
        OtherCompiler: Another version of NVRTC compiled the kernel, and otherwise.
    """
    if before.get("ptx") != now.get("ptx"):
        versions = before.get("compiler"), now.get("compiler")
        if versions[0] != versions[1]:
            raise OtherCompiler(
                "compiled by NVRTC {1}, and otherwise than by {0}".format(*versions)
            )
        before, now = (
            {name: part for name, part in record.items() if name in _RESULTS}
            for record in (before, now)
        )
    return list(_differences(before | {"compiler": None}, now | {"compiler": None}))


class OtherCompiler(Exception):
    """A record says nothing about this program, which another compiler made."""


def _differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            place = f"{where} > {key}" if where else key
            if key not in now:
                yield f"{place}: {_short(before[key])} recorded, now missing"
            elif key not in before:
                yield f"{place}: not recorded, now {_short(now[key])}"
            else:
                yield from _differences(before[key], now[key], place)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from _differences(one, other, f"{where}[{number}]")
    elif before != now:
        yield f"{where}: {_short(before)} recorded, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def as_json(record: Record) -> Record:
    """A record as it comes back from its file."""
    result: Record = json.loads(json.dumps(record))
    return result
