"""What was compiled before, in files named by all that it was compiled from.

A file is data alone: a line of JSON that says how long each part is and what they sum up to, then
the parts. One that does not add up is as good as none. The cache is there to save time: whatever
goes wrong with it, the source is compiled.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit

if TYPE_CHECKING:
    from memlab.device.compiler.headers import IncludedHeaders

CACHE_VARIABLE = "MEMLAB_CACHE"
"""In the environment: the folder for what was compiled, or `off`."""

MAX_CACHE_BYTES = 256 << 20
"""What all files may take together; those that were used longest ago go first."""

_FORMAT = "memlab 1"
_SUFFIX = ".memlab-compiled"


def cache_folder() -> Path | None:
    """Where the files lie: `MEMLAB_CACHE`, else the user's cache; None where that says `off`."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    return platformdirs.user_cache_path("memlab", appauthor=False) / "compiled"


def cache_key(unit: TranslationUnit, included: IncludedHeaders, compiler: Sequence[str]) -> str:
    """The SHA-256 of all that an output depends on, in hexadecimal.

    Args:
        unit: What is compiled.
        included: The headers that it can reach.
        compiler: The compiler's versions.
    """
    groups: tuple[Sequence[str | bytes], ...] = (
        (*compiler, unit.source, unit.source_name, unit.name_expression),
        unit.arguments,
        included.packages,
        [each for header in included.own for each in header],
    )
    digest = hashlib.sha256(_FORMAT.encode())
    for group in groups:
        digest.update(len(group).to_bytes(8, "little"))
        for part in group:
            data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
            # With its length before it, no part can pass for the end of another.
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def load_output(name: str) -> CompilerOutput | None:
    """Read what is kept under a key; None where that is nothing, damaged or unreadable."""
    place = cache_folder()
    if place is None:
        return None
    path = place / (name + _SUFFIX)
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        said = json.loads(head)
        sizes = said["sizes"]
        if said["sha256"] != hashlib.sha256(body).hexdigest() or sum(sizes) != len(body):
            return None
        parts = [body[sum(sizes[:index]) :][:size] for index, size in enumerate(sizes)]
        ptx, cubin, log, lowered_name = parts
        output = CompilerOutput(ptx.decode(), cubin, log.decode(), lowered_name.decode())
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    with suppress(OSError):
        os.utime(path)  # It was used now.
    return output


def store_output(name: str, output: CompilerOutput) -> None:
    """Keep an output under a key, whole or not at all; nothing happens where that cannot be."""
    place = cache_folder()
    if place is None:
        return
    parts = [part.encode() if isinstance(part, str) else part for part in astuple(output)]
    body = b"".join(parts)
    head = {"sizes": [len(part) for part in parts], "sha256": hashlib.sha256(body).hexdigest()}
    data = json.dumps(head).encode() + b"\n" + body
    with suppress(OSError, ValueError):  # A ValueError: a NUL in the folder's name.
        place.mkdir(parents=True, exist_ok=True)
        _evict_oldest(place, len(data))
        handle, temporary = tempfile.mkstemp(_SUFFIX, "unfinished-", place)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(place / (name + _SUFFIX))
        except OSError:
            Path(temporary).unlink()


def _evict_oldest(place: Path, nbytes: int) -> None:
    """Remove the files used longest ago until so many more bytes find room.

    Files of writers that were killed are among them.
    """
    files = []
    for path in place.glob("*" + _SUFFIX):
        with suppress(OSError):  # Another process may have removed it.
            files.append((path.stat().st_mtime, path.stat().st_size, path))
    total = nbytes + sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MAX_CACHE_BYTES:
            break
        with suppress(OSError):
            path.unlink()
        total -= size
