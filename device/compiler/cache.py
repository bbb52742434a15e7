"""The cache of compilations: files that are named by a hash of all inputs of a compilation.

A file holds data only: a line of JSON with the sizes and the checksum of the parts, then the parts.
A damaged file counts as absent. The cache only saves time: if it fails in any way, the source is
compiled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit

if TYPE_CHECKING:
    from memlab.device.compiler.headers import IncludedHeaders

CACHE_VARIABLE = "MEMLAB_CACHE"
"""The environment variable that names the cache folder, or is `off`."""

MAX_CACHE_BYTES = 256 << 20
"""The limit of all files together; the least recently used are removed first."""

_LOOKS_PER_CACHE = 16
"""How often a process that fills the whole cache looks at the files that are there."""

_FORMAT = "memlab 1"
_SUFFIX = ".memlab-compiled"


def cache_folder() -> Path | None:
    """The folder of the cache: `MEMLAB_CACHE`, or the user's cache; None if that is `off`."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    return platformdirs.user_cache_path("memlab", appauthor=False) / "compiled"


def cache_key(unit: TranslationUnit, included: IncludedHeaders, compiler: Sequence[str]) -> str:
    """The SHA-256 of everything that an output depends on, in hexadecimal.

    Args:
        unit: The translation unit.
        included: The headers that it can include.
        compiler: The compiler's versions.
    """
    groups: tuple[Sequence[str | bytes], ...] = (
        (*compiler, unit.source, unit.source_name, unit.name_expression),
        unit.arguments,
        included.packages,
        [part for header in included.own for part in header],
    )
    return hash_groups(groups)


def hash_groups(groups: Sequence[Sequence[str | bytes]]) -> str:
    """The SHA-256 of groups of texts and bytes, in hexadecimal."""
    digest = hashlib.sha256(_FORMAT.encode())
    for group in groups:
        digest.update(len(group).to_bytes(8, "little"))
        for part in group:
            data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
            # The length before each part keeps different parts from making the same bytes.
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def load_output(name: str) -> CompilerOutput | None:
    """Read the output of a key.

    Returns:
        None if there is none, if it is damaged or unreadable, or if a file of the system that the
        compiler read has changed since.
    """
    parts = load_parts(name)
    if parts is None:
        return None
    try:
        ptx, cubin, log, lowered_name, compiler, left_out, files = parts
        output = CompilerOutput(
            ptx.decode(),
            cubin,
            log.decode(),
            lowered_name.decode(),
            compiler.decode(),
            tuple(json.loads(left_out)),
            tuple((path, size, time) for path, size, time in json.loads(files)),
        )
    except (ValueError, TypeError):
        return None
    return output if all(file_state(Path(file[0])) == file for file in output.files) else None


def store_output(name: str, output: CompilerOutput) -> None:
    """Store an output under a key, completely or not at all; a failure is ignored."""
    fields = (getattr(output, each.name) for each in dataclasses.fields(output))
    texts = (json.dumps(each) if isinstance(each, tuple) else each for each in fields)
    store_parts(name, [p.encode() if isinstance(p, str) else p for p in texts])


def file_state(path: Path) -> tuple[str, int, int] | None:
    """A file's path, its size in bytes and the time of its last change in nanoseconds, or None."""
    try:
        state = path.stat()
    except OSError:
        return None
    return str(path), state.st_size, state.st_mtime_ns


def load_parts(name: str) -> list[bytes] | None:
    """Read what was stored under a key; None if there is nothing, or it is damaged."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / (name + _SUFFIX)
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        sizes = header["sizes"]
        if header["sha256"] != hashlib.sha256(body).hexdigest() or sum(sizes) != len(body):
            return None
        parts = [body[sum(sizes[:index]) :][:size] for index, size in enumerate(sizes)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    with suppress(OSError):
        os.utime(path)  # marks it as used now
    return parts


def store_parts(name: str, parts: Sequence[bytes]) -> None:
    """Store data under a key, completely or not at all; a failure is ignored."""
    folder = cache_folder()
    if folder is None:
        return
    body = b"".join(parts)
    head = {"sizes": [len(part) for part in parts], "sha256": hashlib.sha256(body).hexdigest()}
    data = json.dumps(head).encode() + b"\n" + body
    with suppress(OSError, ValueError):  # ValueError: a NUL in the folder's name
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder, len(data))
        handle, temporary = tempfile.mkstemp(_SUFFIX, "unfinished-", folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(folder / (name + _SUFFIX))
        except OSError:
            Path(temporary).unlink()


_room_bytes: dict[Path, int] = {}
"""What this process may still store in a folder before it looks at the files there."""


def _make_room(folder: Path, nbytes: int) -> None:
    """Keep the folder within its limit when `nbytes` more are stored; a large one is slow to read.

    Several processes that fill it at once may pass the limit by what each may store unseen.
    """
    _room_bytes[folder] = _room_bytes.get(folder, 0) - nbytes
    if _room_bytes[folder] < 0:
        unseen = MAX_CACHE_BYTES // _LOOKS_PER_CACHE
        _evict_oldest(folder, nbytes + unseen)
        _room_bytes[folder] = unseen


def _evict_oldest(folder: Path, nbytes: int) -> None:
    """Remove the least recently used files until there is room for `nbytes` more.

    This also removes the unfinished files of processes that were killed.
    """
    files = []
    for path in folder.glob("*" + _SUFFIX):
        with suppress(OSError):  # another process may have removed it
            files.append((path.stat().st_mtime, path.stat().st_size, path))
    total = nbytes + sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MAX_CACHE_BYTES:
            break
        with suppress(OSError):
            path.unlink()
        total -= size
