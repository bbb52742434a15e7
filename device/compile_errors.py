"""What a compiler's log means: the errors raised, and the next step for frequent ones."""

from __future__ import annotations

import re

from memlab.device import headers
from memlab.errors import UsageError

_HELP = (
    (
        r"uses too much shared data",
        "__shared__ arrays of fixed size may take 48 KiB a block: "
        "use a smaller tile, or extern __shared__ sized at launch",
    ),
    (
        r"not allowed in JIT mode",
        "NVRTC compiles device code alone: "
        "hide what only the host needs between #ifndef __CUDACC_RTC__ and #endif",
    ),
    (r'identifier "u?int\d+_t" is undefined', "put #include <cuda/std/cstdint> before it"),
    (r'identifier "(__)?half2?" is undefined', "put #include <cuda_fp16.h> before it"),
    (r'identifier "(__)?nv_bfloat16\d?" is undefined', "put #include <cuda_bf16.h> before it"),
)
"""What the log says, as a regular expression, and the next step then."""

_MISSING_HEADER = re.compile(r'open source file "([^"]+)"')
_NAME_MAP = re.compile(r"^__nv_name_map\(\d+\): (?:catastrophic )?error: (.+)$", re.M)
_ERROR = re.compile(r"^(?!__nv_name_map).*(?:: |^)(?:catastrophic )?error: ", re.M)


class CompileError(UsageError):
    """The source does not compile.

    Attributes:
        log: All that the compiler said, naming file and line.
    """

    def __init__(self, log: str, advice: str) -> None:
        super().__init__(f"{log}\n{advice}")
        self.log = log


class NameExpressionError(UsageError):
    """The source compiles, but a name expression names none of its kernels.

    Attributes:
        reason: What the compiler says of it.
    """

    def __init__(self, source_name: str, name_expression: str, reason: str) -> None:
        message = (
            f"{source_name} has no kernel {name_expression!r} ({reason}): name it as C++ would, "
            "such as saxpy, space::saxpy or sgemm<32>"
        )
        super().__init__(message)
        self.reason = reason


def explained(log: str, source_name: str, target: str, name_expression: str) -> UsageError:
    """Make an error of the compiler's log.

    Args:
        log: All that NVRTC said.
        source_name: The file name that it was given.
        target: The compiler and the architecture, for a message.
        name_expression: The name expression that it was given, or nothing.
    """
    reason = _NAME_MAP.search(log)
    if reason and not _ERROR.search(log):
        return NameExpressionError(source_name, name_expression, reason[1])
    # NVRTC puts the name expression into a file of its own making.
    log = log.replace("__nv_name_map", f"the name {name_expression!r}")
    header = _MISSING_HEADER.search(log)
    if header:
        return CompileError(log, headers.advice(header[1]))
    for pattern, advice in _HELP:
        if re.search(pattern, log):
            return CompileError(log, advice)
    return CompileError(log, f"could not compile {source_name} {target}: correct what it names")
