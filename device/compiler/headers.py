"""Finds the header files of a source: CUDA's, from pip packages or a toolkit, and the user's.

NVRTC has no header files, and a CUDA toolkit may not be installed: the packages hold the same
files. What they lack (cuRAND's) comes from a toolkit, if there is one. The user's headers are
looked up here in the same way as by the compiler, for two reasons: a cached compilation is invalid
once one of them changes, and an untrusted source must not read files outside the named folders.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from memlab.device.compiler import cuda_tools
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HEADER_PACKAGES = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
"""The packages of NVIDIA's headers: `cuda_fp16.h` and others; the headers that these include;
libcu++ and CUB."""

MAX_HEADER_BYTES = 16 << 20
"""The limit of a header's size; a longer file is data that was included by mistake."""

HOST_HEADERS = Path(__file__).parent / "host_headers"
"""Replacements for headers of the host that sources include: with the types, macros and small
functions that device code may use; most are empty. They are searched last."""

MAX_PROJECT_FILES = 200_000
"""The limit of files below the project's folder, in which headers are looked for."""

_FEWEST_PROJECT_PARTS = 2
"""A folder directly below / is no project's."""

MAX_INCLUDES = 10_000
"""The limit of `#include` lines in a source and its headers; each is looked up in every folder."""

# The quantifiers are possessive: otherwise comments could be split in exponentially many ways.
_WHITESPACE = r"(?:[ \t\f\v\r]|/\*[^\n]{0,200}?\*/)*+"
_INCLUDE = re.compile(
    rf"(?:(?P<directive>(?:\#|%:){_WHITESPACE}include(?:_next)?\b)|__has_include(?:_next)?{_WHITESPACE}\()"
    rf"{_WHITESPACE}(?:\"(?P<quoted>[^\"\n\0]+)\"|<(?P<angled>[^>\n\0]+)>)?"
    rf"|(?P<hidden>(?:\#|%:){_WHITESPACE}/\*)"
)
_LINE_SPLICE = re.compile(r"\\\r?\n")


@dataclass(frozen=True)
class IncludedHeaders:
    """The headers that a source can include.

    Attributes:
        options: NVRTC's options to find these headers; empty if nothing is included.
        packages: The versions of CUDA's headers, `name==version`.
        own: The other headers, mainly the user's: path and content.
        lookups: How the own headers are reached: the name in the `#include`, the path at which it
            was looked up, and the path without links, as in `own`.
        absent: The names of headers that are in none of these folders.
    """

    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    own: tuple[tuple[str, bytes], ...] = ()
    lookups: tuple[tuple[str, str, str], ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeaderChanges:
    """What differs between the headers of a source and those that the compiler gets.

    Attributes:
        left_out: The names of headers that are replaced by empty ones.
        texts: Other texts of the user's headers, by the path at which they are looked up.
    """

    left_out: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


def own_header_texts(source: str, source_name: str, options: Sequence[str]) -> dict[str, str]:
    """The texts of the user's headers that a source includes, by path.

    Arguments are those of `find_headers`; there are none where that refuses one.
    """
    try:
        found = find_headers(source, source_name, options)
    except UsageError:
        return {}  # the compilation says what is wrong
    return {
        path: content.decode(errors="replace")
        for path, content in found.own
        if not path.startswith(str(HOST_HEADERS))
    }


def find_headers(source: str, source_name: str, options: Sequence[str]) -> IncludedHeaders:
    """Find the headers that a source includes, directly or through its own headers.

    A name in quotes is looked up in the folder of the file that includes it. Then, like a name in
    angle brackets, it is looked up in the folders of `-I`, among CUDA's headers, in
    `HOST_HEADERS` and in a toolkit. What is found nowhere is looked for below the project's folder:
    that of `--root`, else the Git repository of the source. Branches that the preprocessor would
    skip are followed too.

    Args:
        source: The CUDA C++ text.
        source_name: Its file name, with its folder.
        options: NVRTC's options, from which `-I` is read, and `--root`.

    Raises:
        UsageError: A header lies outside the source's folder, those of `-I` and the project's,
            is not a regular file, is too long, or is named by a macro, which is not resolved.
    """
    if not any(_included_names(source, Path(source_name))):
        return IncludedHeaders()
    folders = include_folders(options)
    named = next((option[7:] for option in options if option.startswith("--root=")), "")
    root = named or _repository_folder(Path(source_name))
    found: list[str] = []
    while True:
        own, lookups, absent = _user_headers(source, source_name, [*folders, *found], root)
        files = _header_files(root) if root and absent else {}
        if files is None and named:
            raise UsageError(
                f"--root {root} has more than {MAX_PROJECT_FILES} files below it: name a folder "
                "further down, or the headers' own with -I DIR"
            )
        more = _folders_below(files or {}, Path(source_name).parent, absent)
        more = [folder for folder in more if folder not in found]
        if not more:
            break
        found += more  # what is found includes further headers
    searched = (*found, *package_folders(), str(HOST_HEADERS), *toolkit_folders())
    return IncludedHeaders(
        options=tuple(f"-I{folder}" for folder in dict.fromkeys(searched)),
        packages=(*_package_versions(), *_toolkit_state()),
        own=tuple(own.items()),
        lookups=lookups,
        absent=absent,
    )


@cache
def package_folders() -> tuple[str, ...]:
    """The folders of CUDA's headers: of the installed packages, else of a toolkit."""
    for name in HEADER_PACKAGES:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        root = Path(str(package.locate_file("nvidia")))
        major = package.version.partition(".")[0]
        # The packages of a major version share one folder; earlier packages had one each.
        include = root / f"cu{major}" / "include"
        if include.is_dir():
            folders = (include, include / "cccl")
            return tuple(str(folder) for folder in folders if folder.is_dir())
    return toolkit_folders()


def toolkit_folders() -> tuple[str, ...]:
    """The folders of the headers of an installed CUDA toolkit; empty without one."""
    for toolkit in cuda_tools.toolkit_folders():
        include = toolkit / "include"
        if (include / "cuda_runtime.h").is_file():
            folders = (include, include / "cccl")
            return tuple(str(folder) for folder in folders if folder.is_dir())
    return ()


def missing_packages() -> tuple[str, ...]:
    """The packages of `HEADER_PACKAGES` that are not installed; none if a toolkit stands in."""
    if toolkit_folders():
        return ()
    installed = {version.partition("==")[0] for version in _package_versions()}
    return tuple(name for name in HEADER_PACKAGES if name not in installed)


def missing_header_advice(name: str) -> str:
    """The next step for a header that the compiler did not find, by the included name."""
    if name.startswith("curand"):
        return f"{name} comes with pip install nvidia-curand (77 MB), or a CUDA toolkit"
    missing = missing_packages()
    if missing:
        return (
            f"CUDA's headers come with `pip install {' '.join(missing)}`, "
            "your own are found with -I DIR"
        )
    return f"name the folder of {name} with -I DIR, or the project's folder with --root DIR"


def _toolkit_state() -> tuple[str, ...]:
    """What tells the headers of one toolkit from those of another."""
    folders = toolkit_folders()
    if not folders:
        return ()
    header = Path(folders[0], "cuda_runtime.h").resolve()
    state = header.stat()
    return (str(header), str(state.st_size), str(state.st_mtime_ns))


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
    """The text with continued lines joined, as the compiler reads it.

    Trigraphs exist in C++11 and 14, but not later; if there are any, both readings are returned.
    """
    yield _LINE_SPLICE.sub("", text)
    if "??=" in text or "??/" in text:
        yield _LINE_SPLICE.sub("", text.replace("??=", "#").replace("??/", "\\"))


def include_folders(options: Sequence[str]) -> list[str]:
    """The folders of the options `-IDIR` and `--include-path=DIR`."""
    prefixes = ("-I", "--include-path=")
    return [
        option.removeprefix(prefix)
        for option in options
        for prefix in prefixes
        if option.startswith(prefix)
    ]


def _user_headers(
    source: str, source_name: str, folders: Sequence[str], root: str
) -> tuple[dict[str, bytes], tuple[tuple[str, str, str], ...], tuple[str, ...]]:
    """The headers outside the packages: contents by path, lookups, and the names of no file."""
    user_folders = [Path(folder) for folder in folders]
    cuda_folders = [Path(folder) for folder in package_folders()]
    last_folders = [HOST_HEADERS, *map(Path, toolkit_folders())]
    readable = (
        Path(source_name).parent,
        *user_folders,
        *([Path(root)] if root else []),
        HOST_HEADERS,
    )
    allowed = [real for folder in readable if (real := _resolved_path(folder))]
    trusted = (*cuda_folders, *last_folders[1:])
    packages = [real for folder in trusted if (real := _resolved_path(folder))]
    contents: dict[str, bytes] = {}
    lookups: dict[tuple[str, str, str], None] = {}
    absent: dict[str, None] = {}
    tested: set[str] = set()
    waiting, names = [(source, Path(source_name))], 0
    while waiting:
        text, includer = waiting.pop()
        for name, quoted, is_tested in _included_names(text, includer):
            names += 1
            found = False
            tested |= {name} if is_tested else set()
            if names > MAX_INCLUDES:
                raise UsageError(
                    f"{source_name} and its headers have more than {MAX_INCLUDES} #include lines: "
                    "remove repeated ones"
                )
            same_folder = [includer.parent] if quoted else []
            for folder in (*same_folder, *user_folders, *cuda_folders, *last_folders):
                path = folder / name  # an absolute name replaces the folder
                real = _resolved_path(path)
                if real is None or real.is_dir():
                    continue
                found = True
                if str(real) in contents:
                    lookups[name, str(path), str(real)] = None
                    continue
                if any(map(real.is_relative_to, packages)):
                    break
                if not real.is_file():
                    message = f"{includer} includes {name}, which is not a regular file: remove it"
                    raise UsageError(message)
                if not any(map(real.is_relative_to, allowed)):
                    message = (
                        f"{includer} includes {name}, which lies outside the folder of "
                        f"{source_name} and those named: add {_access_option(real, source_name)}"
                    )
                    raise UsageError(message)
                content = contents[str(real)] = _read_header(real, f"{includer} includes {name}")
                lookups[name, str(path), str(real)] = None
                waiting.append((content.decode(errors="surrogateescape"), path))
            if not found:
                absent[name] = None
    # A header that a source asks for before it is included is not missed.
    return contents, tuple(lookups), tuple(name for name in absent if name not in tested)


def _included_names(text: str, includer: Path) -> Iterator[tuple[str, bool, bool]]:
    """The names in a text's `#include` lines, whether they are quoted, or in `__has_include`."""
    for reading in _spliced_texts(text):
        for match in _INCLUDE.finditer(reading):
            name = match["quoted"] or match["angled"]
            if name is not None:
                yield name, match["quoted"] is not None, match["directive"] is None
            elif _is_at_line_start(reading, match.start()) and (
                match["directive"] or match["hidden"]
            ):
                where = (
                    "whose file is named by a macro" if match["directive"] else "behind comments"
                )
                message = (
                    f"{includer} has an #include {where}, which is not followed: write the "
                    "file's name directly after it in quotes or angle brackets"
                )
                raise UsageError(message)


def _access_option(header: Path, source_name: str) -> str:
    """The option with which a header may be read."""
    common = Path(os.path.commonpath((header.parent, Path(source_name).resolve().parent)))
    if len(common.parts) <= _FEWEST_PROJECT_PARTS:
        return f"-I {header.parent}"
    return f"-I {header.parent}, or --root {common} for all below it"


def _repository_folder(source: Path) -> str:
    """The folder of the Git repository that holds a source; empty without one.

    A repository that holds the user's home folder is no project's.
    """
    home = Path.home().resolve()
    for folder in source.resolve().parents:
        if home.is_relative_to(folder):
            return ""
        if (folder / ".git").exists():
            return str(folder)
    return ""


def _folders_below(
    files: Mapping[str, Sequence[Path]], beside: Path, names: Sequence[str]
) -> list[str]:
    """The folders below a project's folder from which missing headers are found.

    Of several that have a header, the one nearest to the source is taken; where two are as near,
    none is.

    Args:
        files: The project's files, by their name.
        beside: The folder of the source.
        names: The headers, as they are included.
    """
    folders: dict[str, None] = {}
    for name in names:
        parts = PurePath(name).parts
        if ".." in parts or PurePath(name).is_absolute():
            continue
        candidates = [
            path.parents[len(parts) - 1]
            for path in files.get(parts[-1], ())
            if path.parts[-len(parts) :] == parts
        ]
        distances = [len(Path(os.path.relpath(path, beside)).parts) for path in candidates]
        if distances and distances.count(min(distances)) == 1:
            folders[str(candidates[distances.index(min(distances))])] = None
    return list(folders)


def _header_files(root: str) -> dict[str, list[Path]] | None:
    """The files below a folder, by their name; None if there are too many.

    Links to folders are not followed. Hidden folders and virtual environments are left out: their
    headers are not the project's.
    """
    files: dict[str, list[Path]] = {}
    count = 0
    for folder, below, names in os.walk(root):
        if "pyvenv.cfg" in names:
            below.clear()
            continue
        below[:] = [name for name in below if not name.startswith(".")]
        count += len(names)
        if count > MAX_PROJECT_FILES:
            return None
        for name in names:
            files.setdefault(name, []).append(Path(folder, name))
    return files


def _is_at_line_start(text: str, position: int) -> bool:
    """Whether only space and comments precede a position on its line; otherwise it is prose."""
    before = text[max(0, position - 200) : position].rpartition("\n")[2].strip()
    return not before or before.endswith("*/")


def _resolved_path(path: Path) -> Path | None:
    """The path without links; None if there is no such file, or the path is invalid."""
    try:
        real = path.resolve()
        return real if real.exists() else None
    except (OSError, RuntimeError, ValueError):  # name too long; link to itself; NUL
        return None


def _read_header(path: Path, subject: str) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_HEADER_BYTES:
            message = f"{subject}, of {size} bytes: a header has at most {MAX_HEADER_BYTES}"
            raise UsageError(message)
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{subject}, which cannot be read: {error.strerror}") from error
