"""Which compiler compiles a source, and how: in a child process, without refused host code.

NVRTC is asked first: it is always there, and takes half the time. What it refuses, nvcc compiles
where it is installed. Both are asked again, without the host code that they refuse and without the
headers that do not exist, as long as that changes anything. Where both refuse, the error is nvcc's:
it does not complain of what only NVRTC lacks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.device.compiler import forked_process, host_code, nvcc, nvrtc
from memlab.device.compiler.diagnostics import CompileError, error_from_log, missing_header
from memlab.device.compiler.headers import HeaderChanges, IncludedHeaders, missing_packages
from memlab.device.compiler.translation_unit import (
    Architecture,
    CompilerAnswer,
    CompilerOutput,
    TranslationUnit,
)
from memlab.device.properties import version_text
from memlab.errors import DeviceError, MemlabError

_ERROR_PLACE = re.compile(r"^(.+?)\(\d+\): error: ", re.M)


@dataclass(frozen=True)
class _Compiler:
    """A compiler.

    Attributes:
        name: Its name and version, for messages.
        compile: Compiles a unit without some headers, in a child process.
        remedies: Options that it lacks, by the pattern of the message that asks for each.
        is_nvcc: Whether it is nvcc, which needs no advice to ask nvcc, and whose output names those
            of the headers left out that it missed.
    """

    name: str
    compile: Callable[[TranslationUnit, IncludedHeaders, HeaderChanges], CompilerAnswer]
    remedies: Mapping[str, str] = field(default_factory=dict)
    is_nvcc: bool = False


def compile_source(unit: TranslationUnit, included: IncludedHeaders) -> CompilerOutput:
    """Compile a source that is text.

    Args:
        unit: The translation unit.
        included: The headers that it can include.

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        UsageError: The source includes a file outside the named folders.
        DeviceError: NVRTC is not installed.
    """
    try:
        return _compile_without_host_code(_nvrtc(), unit, included)
    except CompileError as error:
        refused = error
    try:
        toolchain = nvcc.find_toolchain()
    except DeviceError:
        toolchain = None
    system = toolchain.folders if toolchain else ()
    absent = [
        name
        for name in included.absent
        # Where CUDA's headers are not installed, they are missed, not those of the host.
        if not missing_packages() and not any((path / name).is_file() for path in system)
    ]
    missed = missing_header(refused.log)
    if missed in absent:
        try:
            return _compile_without_host_code(_nvrtc(), unit, included, absent, (missed,))
        except CompileError as error:
            refused = error
    if toolchain is None:
        raise refused
    return _compile_without_host_code(_nvcc(toolchain), unit, included, absent, absent)


def check_architecture(architecture: Architecture) -> None:
    """Refuse a compute capability that NVRTC does not compile for.

    Raises:
        DeviceError: It does not; the message names the nearest. Or NVRTC is not installed.
    """
    supported = nvrtc.supported_architectures()
    if architecture in supported:
        return
    number = _architecture_number(architecture)
    closest = min(supported, key=lambda version: abs(_architecture_number(version) - number))
    message = (
        f"NVRTC {version_text(nvrtc.compiler_version())} does not compile for compute capability "
        f"{version_text(architecture)}, but for {', '.join(map(version_text, supported))}: "
        f"choose a device with one of these; the nearest is {version_text(closest)}"
    )
    raise DeviceError(message)


def _nvrtc() -> _Compiler:
    def compile_unit(
        unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges
    ) -> CompilerAnswer:
        return forked_process.call_in_child(partial(nvrtc.run_nvrtc, unit, included, changes))

    name = f"NVRTC {version_text(nvrtc.compiler_version())}"
    return _Compiler(name, compile_unit, host_code.REMEDIES)


def _nvcc(toolchain: nvcc.Toolchain) -> _Compiler:
    def compile_unit(
        unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges
    ) -> CompilerAnswer:
        with TemporaryDirectory(prefix="memlab-nvcc-", ignore_cleanup_errors=True) as name:
            folder = Path(name).resolve()
            return forked_process.call_in_child(
                partial(nvcc.run_nvcc, unit, included, changes, toolchain, folder)
            )

    return _Compiler(toolchain.version, compile_unit, is_nvcc=True)


def _nvcc_advice() -> str:
    """How to have nvcc compile a source."""
    try:
        toolchain = nvcc.find_toolchain()
    except DeviceError as error:
        return f"have nvcc compile it: {error}"
    return "" if toolchain else f"have nvcc compile it: {nvcc.INSTALL_ADVICE}"


def _compile_without_host_code(
    compiler: _Compiler,
    unit: TranslationUnit,
    included: IncludedHeaders,
    absent: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> CompilerOutput:
    """Compile, again and again without the host code and the headers that are refused.

    Args:
        compiler: The compiler.
        unit: The translation unit.
        included: The headers that it can include.
        absent: The headers that are nowhere, each of which is left out if it is missed.
        left_out: Those of them that are left out from the start.

    Raises:
        As `compile_source`.
    """
    current = unit
    changes = HeaderChanges(left_out=tuple(left_out))
    removed: list[str] = []
    try:
        for _ in range(host_code.MAX_PASSES + len(absent)):
            answer = compiler.compile(current, included, changes)
            if not isinstance(answer, str):
                break
            before = current, changes
            missed = missing_header(answer)
            if missed in absent and missed not in changes.left_out:
                changes = replace(changes, left_out=(*changes.left_out, missed))
            current, changes, errors = _without_host_code(current, included, changes, answer)
            removed.extend(errors)
            more = (
                option
                for pattern, option in compiler.remedies.items()
                if re.search(pattern, answer) and option not in current.options
            )
            current = replace(current, options=(*current.options, *more))
            if (current, changes) == before:
                break
    except forked_process.ChildProcessLostError as lost:
        if unit.name_expression and lost.crashed:
            # Without the name expression, the compiler may report an error instead of crashing.
            _compile_without_host_code(
                compiler, replace(unit, name_expression=""), included, absent, left_out
            )
        advice = "remove parts of the source to find the one that the compiler cannot process"
        name = compiler.name.partition(" ")[0]
        raise CompileError(f"{name} {lost} while compiling {unit.source_name}", advice) from None
    if isinstance(answer, str):
        nvcc_advice = "" if compiler.is_nvcc else _nvcc_advice()
        raise error_from_log(answer, unit, compiler.name, removed, changes.left_out, nvcc_advice)
    if isinstance(answer, MemlabError):
        raise answer
    return answer


def _without_host_code(
    unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges, log: str
) -> tuple[TranslationUnit, HeaderChanges, list[str]]:
    """Remove the host code in which a log reports errors from the source and the user's headers.

    Returns:
        The unit and the changes of headers without this code, and the errors.
    """
    contents = dict(included.own)
    texts = {
        path: contents[real].decode(errors="surrogateescape") for _, path, real in included.lookups
    }
    texts |= {**changes.texts, unit.source_name: unit.source}
    paths = {os.path.normpath(path): path for path in texts}  # the compilers keep ./ and the like
    removed: list[str] = []
    changed: dict[str, str] = {}
    for name in dict.fromkeys(_ERROR_PLACE.findall(log)):
        path = paths.get(os.path.normpath(name))
        if path is None:
            continue
        text, errors = host_code.remove_host_code(texts[path], name, log, texts.values())
        if errors:
            changed[path] = text
            removed.extend(errors)
    source = changed.pop(unit.source_name, unit.source)
    return (
        replace(unit, source=source),
        replace(changes, texts={**changes.texts, **changed}),
        removed,
    )


def _architecture_number(architecture: Architecture) -> int:
    return 10 * architecture[0] + architecture[1]
