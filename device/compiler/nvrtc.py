"""NVRTC, NVIDIA's compiler library, through NVIDIA's bindings; it needs no GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from memlab.device.compiler.assembler_log import with_source_lines
from memlab.device.compiler.headers import HeaderChanges, IncludedHeaders
from memlab.device.compiler.host_libraries import replacements
from memlab.device.compiler.translation_unit import (
    Architecture,
    CompilerAnswer,
    CompilerOutput,
    TranslationUnit,
)
from memlab.errors import DeviceError

NVRTC_STEP = "pip install nvidia-cuda-nvrtc cuda-bindings"
"""What to do without NVRTC."""


@cache
def compiler_version() -> tuple[int, int]:
    """The major and minor version of NVRTC.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    major, minor = _call_nvrtc("nvrtcVersion")
    return major, minor


@cache
def supported_architectures() -> tuple[Architecture, ...]:
    """The compute capabilities that NVRTC compiles for, in rising order.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    (numbers,) = _call_nvrtc("nvrtcGetSupportedArchs")
    return tuple(divmod(number, 10) for number in sorted(numbers))


@cache
def package_version() -> str:
    """The version of NVRTC's pip package, which is more precise; empty without the package."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return ""


def compiler_identity() -> tuple[str, ...]:
    """The versions by which compilations are kept.

    The library is loaded only where it comes from no pip package: the bindings load that of the
    package before any other, and its version tells it apart.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    package = package_version()
    return (package,) if package else tuple(map(str, compiler_version()))


def run_nvrtc(
    unit: TranslationUnit, included: IncludedHeaders, changes: HeaderChanges
) -> CompilerAnswer:
    """Compile.

    Args:
        unit: The translation unit.
        included: The headers that it can include.
        changes: What differs from them.

    Returns:
        The output, the log of a failure, or the error if NVRTC cannot be used.
    """
    try:
        text = unit.source.encode(errors="replace")
        # These are found before any header in a folder.
        replaced = {**replacements(), **dict.fromkeys(changes.left_out, "")}
        changed = {name: path for name, path, _ in included.lookups if path in changes.texts}
        replaced |= {name: changes.texts[path] for name, path in changed.items()}
        names = [os.fsencode(name) for name in replaced]
        texts = [content.encode(errors="surrogateescape") for content in replaced.values()]
        (program,) = _call_nvrtc(
            "nvrtcCreateProgram", text, os.fsencode(unit.source_name), len(names), texts, names
        )
        expression = os.fsencode(unit.name_expression)
        if expression:
            _call_nvrtc("nvrtcAddNameExpression", program, expression)
        # NVRTC's own cache would initialize the GPU driver, which a forked child must not do.
        folders = [f"-I{Path(path).parent}" for path in changed.values()]  # for what they include
        arguments = ("--no-cache", *unit.arguments, *dict.fromkeys(folders))
        encoded = [os.fsencode(argument) for argument in arguments]
        result, *_ = _library().nvrtcCompileProgram(program, len(encoded), encoded)
        log = _with_paths(_program_text(program, "ProgramLog"), changed)
        if result != _library().nvrtcResult.NVRTC_SUCCESS:
            return _with_source_lines(program, log, unit.source_name) or str(result)
        lowered = _call_nvrtc("nvrtcGetLoweredName", program, expression)[0] if expression else b""
        return CompilerOutput(
            _program_text(program, "PTX"),
            _program_bytes(program, "CUBIN"),
            log,
            lowered.decode(),
            compiler=f"NVRTC {'.'.join(compiler_identity())}",
            left_out=changes.left_out,
        )
    except DeviceError as error:
        return error
    # The program is not destroyed, since the child process exits.


@cache
def _library() -> Any:  # the bindings have no types
    """Load the bindings and, through a first call, the library itself."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        message = f"the CUDA compiler NVRTC cannot be loaded ({reason}): {NVRTC_STEP}"
        raise DeviceError(message) from error
    return nvrtc


def _call_nvrtc(name: str, *arguments: object) -> tuple[Any, ...]:
    """Call a function of NVRTC and return its results without the result code."""
    result, *values = getattr(_library(), name)(*arguments)
    if result != _library().nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"{name} failed with {result.name}: reinstall nvidia-cuda-nvrtc")
    return tuple(values)


def _program_bytes(program: object, output: str) -> bytes:
    """An output of the program: NVRTC first returns its size, then fills a buffer."""
    (size,) = _call_nvrtc(f"nvrtcGet{output}Size", program)
    buffer = bytearray(size)
    if size:
        _call_nvrtc(f"nvrtcGet{output}", program, buffer)
    return bytes(buffer)


def _with_paths(log: str, changed: Mapping[str, str]) -> str:
    """The log with the paths of headers whose texts were given by name."""
    for name, path in changed.items():
        log = re.sub(
            rf"^{re.escape(name)}(?=\(\d+\): )", path.replace("\\", r"\\"), log, flags=re.M
        )
    return log


def _with_source_lines(program: object, log: str, source_name: str) -> str:
    """The log, in which messages of ptxas name lines of the source; NVRTC still has its PTX."""
    if "ptxas" not in log:
        return log
    return with_source_lines(log, _program_text(program, "PTX"), source_name)


def _program_text(program: object, output: str) -> str:
    return _program_bytes(program, output).rstrip(b"\0").decode(errors="replace").rstrip("\n")
