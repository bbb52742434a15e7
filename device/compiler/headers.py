"""The header files of a source: CUDA's own, from pip packages, and the user's.

NVRTC brings no header files, and a CUDA toolkit need not be there: the packages hold the same
files. The user's are looked up here as the compiler will look them up, for two ends: what was
compiled from them before is worth nothing once they change, and a source from a stranger shall
read nothing but what lies in the folders named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEADER_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
"""What NVIDIA publishes its headers as: `cuda_fp16.h` and the like; what these include in turn;
libcu++ and CUB."""

MAX_HEADER_BYTES = 16 << 20
"""No header is longer; what is, is data that was named by mistake."""

HOST_HEADERS = Path(__file__).parent / "host_headers"
"""Stand-ins for headers of the host, which sources include as they are: with the types, macros and
small functions of them that device code may use, most with nothing. They are searched last."""

MAX_INCLUDES = 10_000
"""No source and its own headers have more `#include` lines; each is looked up in every folder."""

# Possessive, or a line of comments would be taken apart in exponentially many ways.
_WHITESPACE = r"(?:[ \t\f\v\r]|/\*[^\n]{0,200}?\*/)*+"
_INCLUDE = re.compile(
    rf"(?:(?P<directive>(?:\#|%:){_WHITESPACE}include(?:_next)?\b)|__has_include(?:_next)?{_WHITESPACE}\()"
    rf"{_WHITESPACE}(?:\"(?P<quoted>[^\"\n\0]+)\"|<(?P<angled>[^>\n\0]+)>)?"
    rf"|(?P<hidden>(?:\#|%:){_WHITESPACE}/\*)"
)
_LINE_SPLICE = re.compile(r"\\\r?\n")


@dataclass(frozen=True)
class IncludedHeaders:
    """What a source's `#include` lines need.

    Attributes:
        options: NVRTC's options that let it find these headers; none where nothing is included.
        packages: The versions of CUDA's headers, `name==version`.
        own: The other headers that the source can reach, the user's above all: path and content.
    """

    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, bytes], ...] = ()


def find_headers(source: str, source_name: str, options: Sequence[str]) -> IncludedHeaders:
    """Find what a source includes, directly or through its own headers.

    A name in quotes is looked up beside the file that includes it, then, as one in angle brackets
    is, in the folders of `-I`, then among CUDA's headers and last among `HOST_HEADERS`. Branches
    that the preprocessor would skip are followed too.

    Args:
        source: The CUDA C++ text.
        source_name: Its file name, by whose folder it lies in.
        options: NVRTC's options, from which `-I` is read.

    Raises:
        UsageError: A header lies outside the source's folder and those of `-I`, is no regular
            file, is too long, or is named by a macro, so that nobody could tell.
    """
    if not any(_included_names(source, Path(source_name))):
        return IncludedHeaders()
    folders = _include_folders(options)
    return IncludedHeaders(
        options=tuple(f"-I{folder}" for folder in (*package_folders(), HOST_HEADERS)),
        packages=_package_versions(),
        own=tuple(_user_headers(source, source_name, folders).items()),
    )


@cache
def package_folders() -> tuple[str, ...]:
    """The folders of CUDA's headers among the installed packages; empty without them."""
    for name in HEADER_PACKAGES:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        root = Path(str(package.locate_file("nvidia")))
        major = package.version.partition(".")[0]
        # All packages of a major version share one folder; earlier each had its own.
        include = root / f"cu{major}" / "include"
        if include.is_dir():
            return tuple(str(each) for each in (include, include / "cccl") if each.is_dir())
    return ()


def missing_packages() -> tuple[str, ...]:
    """Which of `PACKAGES` are not installed."""
    installed = {version.partition("==")[0] for version in _package_versions()}
    return tuple(name for name in HEADER_PACKAGES if name not in installed)


def missing_header_advice(name: str) -> str:
    """Say what to do about a header that the compiler did not find, by the name it includes."""
    of_the_host = "." not in name and "/" not in name
    if any((Path(folder) / "cuda/std" / name).is_file() for folder in package_folders()):
        return (
            f"NVRTC compiles device code alone, without the host's <{name}>: include "
            f"<cuda/std/{name}> in its place, or hide it with #ifndef __CUDACC_RTC__"
        )
    if of_the_host:
        return (
            f"NVRTC compiles device code alone, without the host's <{name}> (printf, assert and "
            "mathematics are built in): remove it, or hide it with #ifndef __CUDACC_RTC__"
        )
    if name.startswith("curand"):
        return f"{name} comes with `pip install nvidia-curand`"
    missing = missing_packages()
    if missing:
        return (
            f"CUDA's headers come with `pip install {' '.join(missing)}`, "
            "one of your own is found with -I DIR"
        )
    return (
        f"name the folder that {name} lies in with -I DIR, "
        "or hide what only host code needs with #ifndef __CUDACC_RTC__"
    )


@cache
def _package_versions() -> tuple[str, ...]:
    versions = []
    for name in HEADER_PACKAGES:
        try:
            versions.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(versions)


def _spliced_texts(text: str) -> Iterator[str]:
    """The text with lines joined that end in a backslash, as the compiler reads it.

    What C++11 and 14 take for trigraphs later dialects do not: then both readings are given.
    """
    yield _LINE_SPLICE.sub("", text)
    if "??=" in text or "??/" in text:
        yield _LINE_SPLICE.sub("", text.replace("??=", "#").replace("??/", "\\"))


def _include_folders(options: Sequence[str]) -> list[str]:
    """The folders of `-IDIR` and `--include-path=DIR`."""
    prefixes = ("-I", "--include-path=")
    return [
        option.removeprefix(prefix) or "."
        for option in options
        for prefix in prefixes
        if option.startswith(prefix)
    ]


def _user_headers(source: str, source_name: str, folders: Sequence[str]) -> dict[str, bytes]:
    """Path and content of every header that does not belong to the packages."""
    mine = [Path(folder) for folder in folders]
    theirs = [Path(folder) for folder in package_folders()]
    readable = (Path(source_name).parent, *mine, HOST_HEADERS)
    allowed = [real for folder in readable if (real := _resolved_path(folder))]
    packages = [real for folder in theirs if (real := _resolved_path(folder))]
    found: dict[str, bytes] = {}
    waiting, names = [(source, Path(source_name))], 0
    while waiting:
        text, includer = waiting.pop()
        for name, quoted in _included_names(text, includer):
            names += 1
            if names > MAX_INCLUDES:
                raise UsageError(
                    f"{source_name} and its headers have more than {MAX_INCLUDES} #include lines: "
                    "remove those that repeat"
                )
            beside = [includer.parent] if quoted else []
            for folder in (*beside, *mine, *theirs, HOST_HEADERS):
                path = folder / name  # An absolute name stays what it is.
                real = _resolved_path(path)
                if real is None or real.is_dir() or str(real) in found:
                    continue
                if any(map(real.is_relative_to, packages)):
                    break
                if not real.is_file():
                    message = f"{includer} includes {name}, which is no regular file: remove that"
                    raise UsageError(message)
                if not any(map(real.is_relative_to, allowed)):
                    message = (
                        f"{includer} includes {name}, which lies outside the folder of "
                        f"{source_name} and those named: add -I {real.parent}"
                    )
                    raise UsageError(message)
                content = found[str(real)] = _read_header(real, f"{includer} includes {name}")
                waiting.append((content.decode(errors="surrogateescape"), path))
    return found


def _included_names(text: str, includer: Path) -> Iterator[tuple[str, bool]]:
    """The names in a text's `#include` lines, and whether they stand in quotes."""
    for reading in _spliced_texts(text):
        for match in _INCLUDE.finditer(reading):
            name = match["quoted"] or match["angled"]
            if name is not None:
                yield name, match["quoted"] is not None
            elif _is_at_line_start(reading, match.start()) and (
                match["directive"] or match["hidden"]
            ):
                where = (
                    "whose file is named by a macro" if match["directive"] else "behind comments"
                )
                message = (
                    f"{includer} has an #include {where}, which is not followed: write the "
                    "file's name behind it in quotes or angle brackets"
                )
                raise UsageError(message)


def _is_at_line_start(text: str, position: int) -> bool:
    """Whether nothing but space and comments stand before a position, else it is prose."""
    before = text[max(0, position - 200) : position].rpartition("\n")[2].strip()
    return not before or before.endswith("*/")


def _resolved_path(path: Path) -> Path | None:
    """The path free of links; None where none is there, or can be."""
    try:
        real = path.resolve()
        return real if real.exists() else None
    except (OSError, RuntimeError, ValueError):  # Too long a name; a link to itself; a NUL.
        return None


def _read_header(path: Path, what: str) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_HEADER_BYTES:
            message = f"{what}, of {size} bytes: a header has at most {MAX_HEADER_BYTES}"
            raise UsageError(message)
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what}, which cannot be read: {error.strerror}") from error
