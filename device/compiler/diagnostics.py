"""Turns a compiler's log into an error, with advice for frequent mistakes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memlab.device.compiler import headers
from memlab.device.properties import version_text
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.device.compiler.translation_unit import TranslationUnit

_RTC_GUARD = "between #ifndef __CUDACC_RTC__ and #endif"
_ADVICE_BY_MESSAGE = (
    (
        r"uses too much shared data",
        "__shared__ arrays of fixed size may take 48 KiB per block: "
        "use a smaller tile, or extern __shared__ sized at launch",
    ),
    (
        r'cccl/thrust/\S+\(\d+\): error|"thrust(::\w+)?" has no member'
        r"|a class or namespace name\n.*\bthrust::",
        "of Thrust, device code may use only tuples, pairs, functors and iterators here: pass "
        f"plain pointers to kernels, and hide other uses {_RTC_GUARD}",
    ),
    (
        r'cccl/cub/\S+\(\d+\): .*#error|"cub" has no member',
        "NVRTC compiles only the parts of CUB for blocks, warps and threads, which "
        "<cub/cub.cuh> holds",
    ),
    (
        r"device-side kernel launch|identifier \"cuda[A-Z]|not allowed in JIT mode",
        f"NVRTC compiles only device code: hide host code {_RTC_GUARD}",
    ),
    (
        r'"std" has no member "(min|max|swap)"',
        "put #include <algorithm> before it, or call min and max without std::",
    ),
    (
        r'"std" has no member "\w*_t"',
        "put #include <cstdint>, <cstddef> or <type_traits> before it",
    ),
    (
        r'"std" has no member "numeric_limits"',
        "put #include <limits> before it",
    ),
    (
        r'"std" has no member',
        "put the #include that declares it before it (<cmath>, <type_traits>, <utility>), or use "
        f"libcu++, cuda::std in <cuda/std/...>; hide host code {_RTC_GUARD}",
    ),
    (r'identifier "u?int\w*\d+_t" is undefined', "put #include <cstdint> before it"),
    (
        r'identifier "(INFINITY|NAN|HUGE_VALF?|M_\w+)" is undefined',
        "put #include <math.h> before it",
    ),
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
_ERROR = re.compile(r"^(?!__nv_name_map).*(?:: |^)(?:catastrophic )?error: ", re.M)


class CompileError(UsageError):
    """The source does not compile.

    Attributes:
        log: The compiler's complete output, with files and lines.
    """

    def __init__(self, log: str, advice: str) -> None:
        super().__init__(f"{log}\n{advice}")
        self.log = log


class NameExpressionError(UsageError):
    """The source compiles, but a name expression names none of its kernels.

    Attributes:
        reason: The compiler's message.
    """

    def __init__(self, source_name: str, name_expression: str, reason: str) -> None:
        message = (
            f"{source_name} has no kernel {name_expression!r} ({reason}): name it as C++ would, "
            "such as saxpy, space::saxpy or sgemm<32>"
        )
        super().__init__(message)
        self.reason = reason


def error_from_log(
    log: str, unit: TranslationUnit, compiler: str, removed: Sequence[str]
) -> UsageError:
    """Make an error from the compiler's log.

    Args:
        log: The complete log.
        unit: The translation unit.
        compiler: The compiler's name and version.
        removed: The messages about host code that was removed before this compilation.
    """
    reason = _NAME_MAP.search(log)
    if reason and not _ERROR.search(log):
        return NameExpressionError(unit.source_name, unit.name_expression, reason[1])
    # NVRTC puts the name expression into a file of its own.
    log = log.replace("__nv_name_map", f"the name {unit.name_expression!r}")
    target = f"{unit.source_name} with {compiler} for {version_text(unit.architecture)}"
    advice = _advice(log) or f"could not compile {target}: correct the lines it names"
    if removed:
        log = "\n".join((log, "Removed before, as host code that NVRTC refuses:", *removed))
    return CompileError(log, advice)


def _advice(log: str) -> str:
    """The advice for a frequent error; empty for other errors."""
    header = _MISSING_HEADER.search(log)
    if header:
        return headers.missing_header_advice(header[1])
    return next((advice for pattern, advice in _ADVICE_BY_MESSAGE if re.search(pattern, log)), "")
