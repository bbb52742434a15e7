"""The compiler's input for user kernels: their file, or the module that fits of a compiled one."""

from __future__ import annotations

import struct
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.device.compiler import cubin as cubin_file
from memlab.device.compiler import fat_binary, ptx_text
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.ptx_signatures import find_entry
from memlab.device.properties import version_text
from memlab.errors import MemlabWarning, UsageError
from memlab.kernels.launch import source_lines
from memlab.kernels.user.compiled_source import CompiledSource, is_binary_file
from memlab.kernels.user.kernel import (
    MAX_SOURCE_BYTES,
    compile_options,
    is_compiled,
    parse_defines,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.compiler.translation_unit import Architecture
    from memlab.kernels.user.kernel import UserKernel

KNOWN_VERSIONS = ((6, 0), (9, 5))
"""The oldest and the newest version of the PTX ISA that the emulator was tried on: 6.0 brought the
shuffles and votes that name their lanes."""

SOURCE_SUFFIXES = frozenset(
    (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inl", ".py", ".rs", ".jl", ".mojo")
)
"""The files that are read as the source of PTX: it may name any file of this machine."""


def compilation_unit(
    kernel: UserKernel, architecture: Architecture, compiled: CompiledSource | None
) -> TranslationUnit:
    """Make the compiler's input from the file of a user kernel, or from the compiled kernel.

    Raises:
        UsageError: There is no such file or folder, or a definition is malformed.
    """
    return TranslationUnit(
        compiled.source if compiled else read_source(kernel),
        compiled.source_name if compiled else kernel.source,
        architecture,
        parse_defines(kernel),
        compile_options(kernel),
        ptx=compiled.ptx if compiled else "",
        cubin=compiled.cubin if compiled else b"",
    )


def compiled_source(kernel: UserKernel, architecture: Architecture) -> CompiledSource | None:
    """The compiled kernel that a user names, with its entry, and the source of its lines.

    Args:
        kernel: The kernel.
        architecture: The compute capability of the device.

    Returns:
        The kernel; None where its source is to be compiled.

    Raises:
        UsageError: The file has no compiled code, no such kernel, or none for the device.
        DeviceError: There is no program that reads the file.
    """
    if not is_compiled(kernel):
        return None
    given = kernel.compiled or CompiledSource("", kernel.entry, source_name=kernel.source)
    name = given.source_name or kernel.source
    modules = _modules(kernel, given, name)
    known = dict.fromkeys(entry for module in modules for entry in ptx_text.kernels(module))
    if not known:
        return _machine_code(kernel, given, architecture, name)
    entry = find_entry(known, given.entry, name)
    module = _fitting_module(modules, entry, architecture)
    _warn_of_version(module, name)
    found = replace(given, ptx=module, entry=entry, source_name=name)
    if given.source:
        return found
    path, source = _named_source(module, entry, Path(kernel.source).parent)
    return replace(found, source=source or module, source_name=path or name)


def _modules(kernel: UserKernel, given: CompiledSource, name: str) -> Sequence[str]:
    """The PTX modules of a kernel that comes compiled; none where it is machine code alone."""
    if given.cubin and not given.ptx:
        return ()
    if not given.ptx and is_binary_file(kernel.source):
        return fat_binary.ptx_modules(*fat_binary.state_of(kernel.source))
    text = given.ptx or read_source(kernel)
    if not ptx_text.is_ptx(text):
        raise UsageError(f"{name} is no PTX: there is no .version directive; name a file with one")
    modules = ptx_text.split_modules(text)
    if not any(map(ptx_text.kernels, modules)):
        raise UsageError(f"{name} has no kernel: in PTX, .visible .entry NAME declares one")
    return modules


def _machine_code(
    kernel: UserKernel, given: CompiledSource, architecture: Architecture, name: str
) -> CompiledSource:
    """The machine code with a kernel that a GPU of an architecture executes.

    Raises:
        UsageError: There is no such kernel, or it is for other architectures.
    """
    if given.cubin:
        entry = find_entry(cubin_file.kernel_names(given.cubin), given.entry, name)
        return replace(given, entry=entry, source_name=name)
    found = fat_binary.cubins(*fat_binary.state_of(kernel.source))
    known = dict.fromkeys(entry for each in found for entry in cubin_file.kernel_names(each.code))
    entry = find_entry(known, given.entry, name)
    holding = [each for each in found if entry in cubin_file.kernel_names(each.code)]
    fitting = [each for each in holding if each.target.runs_as_machine_code(architecture)]
    if not fitting:
        targets = ", ".join(dict.fromkeys(str(each.target) for each in holding))
        raise UsageError(
            f"{name} has no PTX, only machine code for {targets}, which such a GPU alone executes: "
            "name one, as in --device 0, or a file with PTX"
        )
    best = max(fitting, key=lambda each: each.target.number)
    try:
        cubin_file.kernel_resources(best.code, entry)
        cubin_file.parameter_sizes(best.code, entry)
    except (LookupError, ValueError, struct.error):
        raise UsageError(f"{name}: the machine code of {entry} is damaged: make it again") from None
    return replace(given, cubin=best.code, entry=entry, source_name=name)


def _fitting_module(modules: Sequence[str], entry: str, architecture: Architecture) -> str:
    """The module with a kernel, for the latest architecture that the device can execute."""

    def rank(module: str) -> tuple[bool, int]:
        target = ptx_text.target(module)
        return (target.runs_as_ptx(architecture), target.number) if target else (False, 0)

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
