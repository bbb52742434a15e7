"""Turns a compiler's log into an error, with advice for frequent mistakes."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from memlab.device.compiler import headers
from memlab.device.properties import architecture_name
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.compiler.translation_unit import TranslationUnit

_RTC_GUARD = "hide host code between #ifndef __CUDACC_RTC__ and #endif"
_NVRTC_LIMITS = (
    r'cccl/thrust/\S+\(\d+\): error|"thrust(::\w+)?" has no member'
    r"|a class or namespace name\n.*\bthrust::",
    r'cccl/cub/\S+\(\d+\): .*#error|"cub" has no member',
    r"device-side kernel launch|requires separate compilation mode",
    r"identifier \"cuda[A-Z]|not allowed in JIT mode",
    r'"std" has no member|namespace "std" has no',
    r"Unresolved extern function",
)
"""Regular expressions for messages about what NVRTC lacks and nvcc has."""

_ADVICE_BY_MESSAGE = (
    (
        r"uses too much shared data",
        "__shared__ arrays of fixed size may take 48 KiB per block: "
        "use a smaller tile, or extern __shared__ sized at launch",
    ),
    (
        r'identifier "__shfl(_up|_down|_xor)?" is undefined',
        "CUDA has removed __shfl and its variants without _sync: call __shfl_sync and the like, "
        "with 0xffffffff before the other arguments for all lanes of a warp",
    ),
    (
        r'identifier "(\w+)" is undefined\n.*\btex[123]D\w*\(\s*\1\b|\btexture is not a template',
        "CUDA 12 removed texture references, texture<...>: give the kernel a cudaTextureObject_t "
        "in place of each",
    ),
    (
        r'"std" has no member',
        "put the #include that declares it before it, or use libcu++, cuda::std in <cuda/std/...>",
    ),
    (r'identifier "u?int\w*\d+_t" is undefined', "put #include <cstdint> before it"),
    (r'identifier "(FLT|DBL)_\w+" is undefined', "put #include <float.h> before it"),
    (
        r'identifier "(CHAR_BIT|U?(INT|CHAR|SHRT|LONG|LLONG)_(MIN|MAX))" is undefined',
        "put #include <limits.h> before it",
    ),
    (
        r'identifier "(uint|ushort|ulong)" is undefined',
        "put #include <sys/types.h> before it, as these are not C++ types",
    ),
    (r'identifier "(__)?half2?" is undefined', "put #include <cuda_fp16.h> before it"),
    (r'identifier "(__)?nv_bfloat16\d?" is undefined', "put #include <cuda_bf16.h> before it"),
)
"""Regular expressions for messages in the log, and the advice for each."""

_MISSING_HEADER = re.compile(r'open source file "([^"]+)"')
_NAME_MAP = re.compile(r"^__nv_name_map\(\d+\): (?:catastrophic )?error: (.+)$", re.M)
_ERROR = re.compile(r"^(?!__nv_name_map).*(?:: |^)(?:ptxas |catastrophic )?error: ", re.M)
_MESSAGE = re.compile(
    r"^\S.*: (?:ptxas |catastrophic )?(?:error|warning|remark)\b|^ptxas .*; info\b"
    r"|^\d+ (?:catastrophic )?errors? detected"
)
_WARNING = re.compile(r"^\S.*?: (?:ptxas )?(?:warning|remark)\b|^ptxas .*; info\b")


class CompileError(UsageError):
    """The source does not compile.

    Attributes:
        log: The compiler's errors, with files and lines.
    """

    def __init__(self, log: str, advice: str) -> None:
        super().__init__(f"{log}\n{advice}")
        self.log = log


class NameExpressionError(UsageError):
    """The source compiles, but a name expression names none of its kernels.

    Attributes:
        reason: The compiler's message.
        left_out: The headers that were not found, and without which the source compiles.
    """

    def __init__(
        self, source_name: str, name_expression: str, reason: str, left_out: Sequence[str] = ()
    ) -> None:
        message = (
            f"{source_name} has no kernel {name_expression!r} ({reason}): name it as C++ would, "
            "such as saxpy, space::saxpy or sgemm<32>"
        )
        super().__init__(message)
        self.reason = reason
        self.left_out = tuple(left_out)


def error_from_log(
    log: str,
    unit: TranslationUnit,
    compiler: str,
    removed: Sequence[str],
    left_out: Sequence[str] = (),
    nvcc_advice: str = "",
) -> UsageError:
    """Make an error from the compiler's log.

    Args:
        log: The complete log.
        unit: The translation unit.
        compiler: The compiler's name and version.
        removed: The messages about host code that was removed before this compilation.
        left_out: The headers that were not found, and that were left out of this compilation.
        nvcc_advice: How to have nvcc compile the source; empty if it did.
    """
    reason = _NAME_MAP.search(log)
    if reason and not _ERROR.search(log):
        return NameExpressionError(unit.source_name, unit.name_expression, reason[1], left_out)
    # The compiler reads the name expression from a file of its own.
    log = log.replace("__nv_name_map", f"the name {unit.name_expression!r}")
    log = _errors_first(log, unit.source_name)
    target = f"{unit.source_name} with {compiler} for {architecture_name(unit.architecture)}"
    advice = _advice(log, left_out, nvcc_advice)
    advice = advice or f"could not compile {target}: correct the lines it names"
    first = "\n".join(_messages(log)[0]) if log else ""
    library = next((name for name in left_out if advice.startswith(f"{name} comes with")), "")
    if library and PurePath(library).stem.partition("_")[0] in first:  # others follow from it
        return UsageError(f"{unit.source_name} needs a header that is not installed: {advice}")
    if left_out:
        log = "\n".join((log, f"Left out, since not found: {', '.join(left_out)}"))
    if removed:
        log = "\n".join((log, "Removed before, as host code that the compiler refuses:", *removed))
    return CompileError(log, advice)


def missing_header(log: str) -> str:
    """The header that the compiler did not find, as it was included; empty if it found all."""
    found = _MISSING_HEADER.search(log)
    return found[1] if found else ""


def _messages(log: str) -> list[list[str]]:
    """The messages of a log, each as its lines."""
    messages: list[list[str]] = []
    for line in log.splitlines():
        if _MESSAGE.match(line) or not messages:
            messages.append([])
        messages[-1].append(line)
    return messages


def _errors_first(log: str, source_name: str) -> str:
    """The errors of a log without its warnings, those in the user's file first.

    A message is a line that names its place, with the lines up to the next one.
    """
    messages = _messages(log)
    errors = [each for each in messages if not _WARNING.match(each[0])]
    if not any(_ERROR.match(each[0]) for each in errors):
        return log
    # A parameter of an unknown type makes a kernel look like a variable of type void.
    errors.sort(
        key=lambda each: (not each[0].startswith(f"{source_name}("), 'type "void"' in each[0])
    )
    return "\n".join(line for each in errors for line in each).strip()


def _advice(log: str, left_out: Sequence[str], nvcc_advice: str) -> str:
    """The advice for a frequent error; empty for other errors."""
    header = missing_header(log)
    if header:
        return headers.missing_header_advice(header)
    # Others are often consequences of the first one.
    first = "\n".join(_messages(log)[0]) if log else ""
    advice = next((text for pattern, text in _ADVICE_BY_MESSAGE if re.search(pattern, first)), "")
    if left_out and not advice:
        # The types and functions of a library are often named after its header.
        stems = {name: PurePath(name).stem for name in left_out}
        named = next(
            (name for name in left_out if len(stems[name]) > 3 and stems[name] in first), ""
        )
        if named or len(left_out) == 1:
            return headers.missing_header_advice(named or left_out[0])
        return (
            "name the folders of the headers that device code needs with -I DIR, or the project's "
            "folder with --root DIR"
        )
    if nvcc_advice and any(re.search(pattern, log) for pattern in _NVRTC_LIMITS):
        return f"NVRTC compiles only device code: {advice or _RTC_GUARD}, or {nvcc_advice}"
    return advice
