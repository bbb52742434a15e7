"""Kernels that come compiled: the module of a file that fits, and the source of its lines."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device.compiler import ptx_text
from memlab.device.debug_info.ptx_signatures import find_entry
from memlab.device.properties import version_text
from memlab.errors import MemlabWarning, UsageError
from memlab.kernels.launch import source_lines
from memlab.kernels.user.compiled_source import CompiledSource
from memlab.kernels.user.kernel import MAX_SOURCE_BYTES, is_compiled, read_source

if TYPE_CHECKING:
    from memlab.device.compiler.translation_unit import Architecture
    from memlab.kernels.user.kernel import UserKernel

KNOWN_VERSIONS = ((6, 0), (9, 5))
"""The oldest and the newest version of the PTX ISA that the emulator was tried on: 6.0 brought the
shuffles and votes that name their lanes."""

SOURCE_SUFFIXES = frozenset(
    (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".py", ".rs", ".jl", ".mojo")
)
"""The files that are read as the source of PTX: it may name any file of this machine."""


def compiled_source(kernel: UserKernel, architecture: Architecture) -> CompiledSource | None:
    """The compiled kernel that a user names, with its entry, and the source of its lines.

    Args:
        kernel: The kernel.
        architecture: The compute capability of the device.

    Returns:
        The kernel; None where its source is to be compiled.

    Raises:
        UsageError: The file is no PTX, or has no such kernel.
    """
    if not is_compiled(kernel):
        return None
    given = kernel.compiled or CompiledSource("", kernel.entry, source_name=kernel.source)
    text = given.ptx or read_source(kernel)
    name = given.source_name or kernel.source
    if not ptx_text.is_ptx(text):
        raise UsageError(f"{name} is no PTX: there is no .version directive; name a file with one")
    entry = find_entry(text, given.entry, name)
    module = _fitting_module(ptx_text.split_modules(text), entry, architecture)
    _warn_of_version(module, name)
    found = replace(given, ptx=module, entry=entry, source_name=name)
    if given.source:
        return found
    path, source = _named_source(module, entry, Path(kernel.source).parent)
    return replace(found, source=source or module, source_name=path or name)


def _fitting_module(modules: list[str], entry: str, architecture: Architecture) -> str:
    """The module with a kernel, for the latest architecture that the device can execute."""
    number = 10 * architecture[0] + architecture[1]

    def rank(module: str) -> tuple[bool, int]:
        target = ptx_text.target(module)
        made_for = target.number if target else 0
        return made_for <= number, made_for

    holding = [module for module in modules if entry in ptx_text.kernels(module)]
    return max(holding, key=rank)


def _warn_of_version(module: str, name: str) -> None:
    version, (oldest, newest) = ptx_text.version(module), KNOWN_VERSIONS
    if version is None or oldest <= version <= newest:
        return
    age = "newer" if version > newest else "older"
    limit = newest if version > newest else oldest
    warnings.warn(
        f"{name} is PTX {version_text(version)}, {age} than memlab was tried on "
        f"({version_text(limit)}): what it does not know, it refuses",
        MemlabWarning,
        stacklevel=6,  # the caller of `memlab.run`
    )


def _named_source(module: str, entry: str, folder: Path) -> tuple[str, str]:
    """The path and the text of the file that a kernel's lines refer to; empty if it is not here."""
    written, last = ptx_text.source_lines(module, entry)
    path = folder / written
    try:
        if path.suffix.lower() not in SOURCE_SUFFIXES or not path.is_file():
            return "", ""
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return "", ""
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return "", ""
    return (str(path), text) if last <= len(source_lines(text)) else ("", "")
