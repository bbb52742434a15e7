"""Which compiler compiles a source, and how: in a child process, without refused host code.

NVRTC is asked first: it is always there, and takes half the time. What it refuses, nvcc compiles
where it is installed. Both are asked again, without the host code that they refuse and without the
headers that do not exist, as long as that changes anything. Where both refuse, the error is nvcc's:
it does not complain of what only NVRTC lacks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from memlab.device.compiler import forked_process, host_code, nvcc, nvrtc
from memlab.device.compiler.diagnostics import (
    CompileError,
    NameExpressionError,
    error_from_log,
    missing_header,
)
from memlab.device.compiler.headers import HeaderChanges, IncludedHeaders, missing_packages
from memlab.device.compiler.reductions import Reduction, load_reduction, store_reduction
from memlab.device.compiler.translation_unit import (
    Architecture,
    CompilerAnswer,
    CompilerOutput,
    TranslationUnit,
)
from memlab.device.properties import version_text
from memlab.errors import DeviceError, MemlabError

_SPECIFIC_INSTRUCTION = re.compile(
    r"not supported on \.target '(?P<target>sm_(?:9|1\d)\d)'"
    r"|_is_not_supported_before(?P<targets>(_SM_\d+a)+)__"
)
"""What ptxas says of an instruction that later GPUs need not have, such as `wgmma`: it takes it for
`sm_90a`, but not for `sm_90` (PTX ISA, "PTX Module Directives: .target"). For other targets,
libcu++ calls a function that is nowhere and has such a name (`cuda::ptx`, CUDA 13.0)."""
_ERROR_PLACE = re.compile(r"^(.+?)\(\d+\): error: ", re.M)


@dataclass(frozen=True)
class _Compiler:
    """A compiler.

    Attributes:
        name: Its name and version, for messages.
        compile: Compiles a unit without some headers, in a child process.
        remedies: Finds the options that it lacks in its log: by the pattern of the message that
            asks for it, each option.
        is_nvcc: Whether it is nvcc, which needs no advice to ask nvcc, and whose output names those
            of the headers left out that it missed.
    """

    name: str
    compile: Callable[[TranslationUnit, IncludedHeaders, HeaderChanges], CompilerAnswer]
    remedies: Callable[[str], Mapping[str, str]] = lambda log: {}
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
    known = load_reduction(unit, included, nvrtc.compiler_identity())
    compiler = _compiler_of(known) if known is not None else None
    if known is not None and compiler is not None:
        # This kernel may need what another one was compiled without.
        with suppress(CompileError):
            return _output(compiler, unit, included, *_reduce(compiler, unit, included, known))
    compiler, reduction = _nvrtc(), Reduction(unit.source)
    try:
        answer, reduction = _reduce(compiler, unit, included, reduction)
        return _output(compiler, unit, included, answer, reduction)
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
        changes = replace(reduction.changes, left_out=(missed,))
        rest = replace(reduction, changes=changes)
        answer, reduction = _reduce(compiler, unit, included, rest, absent)
        try:
            return _output(compiler, unit, included, answer, reduction)
        except CompileError as error:
            refused = error
    if toolchain is None:
        raise refused
    compiler = _nvcc(toolchain)
    whole = Reduction(unit.source, changes=HeaderChanges(tuple(absent)), with_nvcc=True)
    answer, reduction = _reduce(compiler, unit, included, whole, absent)
    return _output(compiler, unit, included, answer, reduction)


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
    return _Compiler(name, compile_unit, host_code.remedies)


def _nvcc(toolchain: nvcc.Toolchain) -> _Compiler:
    def compile_unit(
        unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges
    ) -> CompilerAnswer:
        with TemporaryDirectory(prefix="memlab-nvcc-", ignore_cleanup_errors=True) as name:
            folder = Path(name).resolve()
            return forked_process.call_in_child(
                partial(nvcc.run_nvcc, unit, included, changes, toolchain, folder)
            )

    return _Compiler(toolchain.version, compile_unit, nvcc.remedies, is_nvcc=True)


def _nvcc_advice() -> str:
    """How to have nvcc compile a source."""
    try:
        toolchain = nvcc.find_toolchain()
    except DeviceError as error:
        return f"have nvcc compile it: {error}"
    return "" if toolchain else f"have nvcc compile it: {nvcc.INSTALL_ADVICE}"


def _compiler_of(reduction: Reduction) -> _Compiler | None:
    """The compiler that took a reduction; None if it is not there any more."""
    if not reduction.with_nvcc:
        return _nvrtc()
    try:
        toolchain = nvcc.find_toolchain()
    except DeviceError:
        return None
    return _nvcc(toolchain) if toolchain else None


def _reduce(
    compiler: _Compiler,
    unit: TranslationUnit,
    included: IncludedHeaders,
    start: Reduction,
    absent: Sequence[str] = (),
) -> tuple[CompilerAnswer, Reduction]:
    """Compile, again and again without the host code and the headers that are refused.

    Args:
        compiler: The compiler.
        unit: The translation unit.
        included: The headers that it can include.
        start: What it is compiled without from the start.
        absent: The headers that are nowhere, each of which is left out if it is missed.

    Returns:
        The last answer, and what the unit was compiled without then.

    Raises:
        CompileError: The compiler crashed, or takes too long.
    """
    current = start
    try:
        for _ in range(host_code.MAX_PASSES + len(absent)):
            answer = compiler.compile(current.applied(unit), included, current.changes)
            if not isinstance(answer, str):
                break
            reduced = _reduced(compiler, unit, included, current, absent, answer)
            if reduced == current:
                break
            current = reduced
    except forked_process.ChildProcessLostError as lost:
        if unit.name_expression and lost.crashed:
            # Without the name expression, the compiler may report an error instead of crashing.
            plain = replace(unit, name_expression="")
            _output(compiler, plain, included, *_reduce(compiler, plain, included, start, absent))
        advice = "remove parts of the source to find the one that the compiler cannot process"
        name = compiler.name.partition(" ")[0]
        raise CompileError(f"{name} {lost} while compiling {unit.source_name}", advice) from None
    return answer, current


def _output(
    compiler: _Compiler,
    unit: TranslationUnit,
    included: IncludedHeaders,
    answer: CompilerAnswer,
    reduction: Reduction,
) -> CompilerOutput:
    """The output in a compiler's last answer; what the source was reduced to is kept.

    Raises:
        As `compile_source`, where it is none.
    """
    identity = nvrtc.compiler_identity()
    if isinstance(answer, CompilerOutput):
        store_reduction(unit, included, identity, reduction)
        return answer
    if isinstance(answer, MemlabError):
        raise answer
    advice = "" if compiler.is_nvcc else _nvcc_advice()
    left_out = reduction.changes.left_out
    error = error_from_log(answer, unit, compiler.name, reduction.removed, left_out, advice)
    if isinstance(error, NameExpressionError):  # the source compiles
        store_reduction(unit, included, identity, reduction)
    raise error


def _reduced(
    compiler: _Compiler,
    unit: TranslationUnit,
    included: IncludedHeaders,
    before: Reduction,
    absent: Sequence[str],
    log: str,
) -> Reduction:
    """What a source is reduced to where a compiler refuses it; the same if nothing helps."""
    current, changes = before.applied(unit), before.changes
    missed = missing_header(log)
    if missed in absent and missed not in changes.left_out:
        changes = replace(changes, left_out=(*changes.left_out, missed))
    remedies = {
        pattern: option
        for pattern, option in {
            **compiler.remedies(log),
            **_specific_target(log, unit.architecture),
        }.items()
        if option not in current.options
    }
    more = dict.fromkeys(remedies.values())
    current, changes, errors = _without_host_code(current, included, changes, log, remedies)
    return replace(
        before,
        source=current.source,
        options=(*before.options, *more),
        changes=changes,
        removed=(*before.removed, *errors),
    )


def _specific_target(log: str, architecture: Architecture) -> dict[str, str]:
    """The option that compiles for one architecture alone, where a log asks for that.

    The code of other kernels stays as it is: they are compiled for `sm_90`.
    """
    found = _SPECIFIC_INSTRUCTION.search(log)
    if not found:
        return {}
    target = found["target"] or "sm_{}{}".format(*architecture)
    if found["targets"] and f"_{target.upper()}a" not in found["targets"]:
        return {}
    return {_SPECIFIC_INSTRUCTION.pattern: f"-arch={target}a"}


def _without_host_code(
    unit: TranslationUnit,
    included: IncludedHeaders,
    changes: HeaderChanges,
    log: str,
    remedied: Collection[str],
) -> tuple[TranslationUnit, HeaderChanges, list[str]]:
    """Remove the host code in which a log reports errors from the source and the user's headers.

    Args:
        unit: The translation unit.
        included: The headers that it can include.
        changes: The changes of headers so far.
        log: The log.
        remedied: The patterns of the errors that added options remedy; their lines stay.

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
        text, errors = host_code.remove_host_code(texts[path], name, log, texts.values(), remedied)
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
