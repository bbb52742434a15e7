"""Compiles CUDA C++ to PTX and machine code: finds headers, removes host code, uses the cache."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from memlab.device.compiler import cache, forked_process, headers, host_code, nvrtc
from memlab.device.compiler import cubin as cubin_file
from memlab.device.compiler.diagnostics import CompileError, error_from_log
from memlab.device.compiler.translation_unit import Architecture, CompilerOutput, TranslationUnit
from memlab.device.measurement import Resources
from memlab.device.properties import version_text
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlab.kernels.launch import Launch

_DEBUG_UNSUPPORTED_MESSAGE = "Error: unsupported operation"
"""The only message of NVRTC 13.5 with `-G` for the dot products `__dp4a`, `__dp2a_lo` and
`__dp2a_hi` on compute capabilities before 10.0; without `-G` it compiles them."""


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel.

    Attributes:
        architecture: The compute capability it was compiled for.
        ptx: The PTX, for the emulator.
        cubin: The machine code, for a GPU: an ELF file.
        resources: The registers and memory that the kernel needs.
        log: The compiler's warnings; empty if there were none.
    """

    architecture: Architecture
    ptx: str
    cubin: bytes
    resources: Resources
    log: str


def compile_unit(unit: TranslationUnit) -> CompilerOutput:
    """Compile a source to PTX and cubin, or take both from the cache (`cache.py`).

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        UsageError: The source is not text, or includes a file outside the named folders.
        DeviceError: NVRTC is not installed, or does not know this architecture.
    """
    _check_source_text(unit)
    if unit.source_name.startswith("-"):  # NVRTC would take it for an option
        unit = replace(unit, source_name=f"./{unit.source_name}")
    # Some editors start a file with a byte order mark, which NVRTC takes for C++.
    unit = replace(unit, source=unit.source.removeprefix("\ufeff"))
    included = headers.find_headers(unit.source, unit.source_name, unit.options)
    unit = replace(unit, options=(*unit.options, *included.options))
    key = cache.cache_key(unit, included, nvrtc.compiler_identity())
    output = cache.load_output(key)
    if output is None:
        _check_architecture(unit.architecture)
        output = _compile_without_host_code(
            unit, [content.decode(errors="replace") for _, content in included.own]
        )
        cache.store_output(key, output)
    return output


def compile_kernel(unit: TranslationUnit, entry: str) -> CompiledKernel:
    """Compile a source, and read the resources of one kernel.

    Args:
        unit: The translation unit.
        entry: The name of the `__global__` function in the compiled code: as in the source if it
            is declared `extern "C"`, otherwise mangled.

    Raises:
        UsageError: The source has no such kernel; and as `compile_unit`.
        DeviceError: As `compile_unit`.
    """
    output = compile_unit(unit)
    resources = cubin_file.kernel_resources(output.cubin, entry)
    return CompiledKernel(unit.architecture, output.ptx, output.cubin, resources, output.log)


def compile_launch(launch: Launch, architecture: Architecture) -> CompiledKernel:
    """Compile the kernel of a launch; errors as in `compile_kernel`."""
    return compile_kernel(TranslationUnit.of(launch, architecture), launch.entry)


def compile_with_debug_info(unit: TranslationUnit) -> CompilerOutput:
    """Compile with debug information (`-G`), which has all names and types.

    Otherwise as `compile_unit`.
    """
    unit = replace(unit, options=("-G", *unit.options))
    try:
        return compile_unit(unit)
    except CompileError as error:
        if _DEBUG_UNSUPPORTED_MESSAGE not in error.log:
            raise
        # The kernel's parameters do not depend on the results of these functions.
        absent = {f"{name}(a,b,c)": "(c)" for name in ("__dp4a", "__dp2a_lo", "__dp2a_hi")}
        return compile_unit(replace(unit, defines={**unit.defines, **absent}))


def _compile_without_host_code(unit: TranslationUnit, own_headers: Sequence[str]) -> CompilerOutput:
    """Run NVRTC in a child process, and again without the host code that it refuses."""
    current = unit
    removed: list[str] = []
    try:
        for _ in range(host_code.MAX_PASSES):
            answer = forked_process.call_in_child(partial(nvrtc.run_nvrtc, current))
            if not isinstance(answer, str):
                break
            before = current
            text, errors = host_code.remove_host_code(
                before.source, unit.source_name, answer, own_headers
            )
            removed.extend(errors)
            current = replace(before, source=text)
            if host_code.UNANNOTATED_FUNCTION_MESSAGE in answer:
                options = (*current.options, host_code.DEFAULT_DEVICE_OPTION)
                current = replace(current, options=options)
            if current == before:
                break
    except forked_process.ChildProcessLostError as lost:
        if unit.name_expression and lost.crashed:
            # Without the name expression, NVRTC may report an error instead of crashing.
            _compile_without_host_code(replace(unit, name_expression=""), own_headers)
        advice = "remove parts of the source to find the one that the compiler cannot process"
        raise CompileError(f"NVRTC {lost} while compiling {unit.source_name}", advice) from None
    if isinstance(answer, str):
        raise error_from_log(
            answer, unit, f"NVRTC {version_text(nvrtc.compiler_version())}", removed
        )
    if isinstance(answer, DeviceError):
        raise answer
    return answer


def _check_source_text(unit: TranslationUnit) -> None:
    """Refuse NUL bytes, which end a C string, and names that would begin a new line."""
    before, nul, _ = unit.source.partition("\0")
    if nul:
        line = before.count("\n") + 1
        message = f"{unit.source_name} holds a NUL byte in line {line}: save it as text in UTF-8"
        raise UsageError(message)
    if '"' in unit.source_name:  # it would end the name in NVRTC's PTX
        raise UsageError(f"{unit.source_name} has a quotation mark in its name: rename it")
    for text in (unit.source_name, *unit.arguments, unit.name_expression):
        if any(character in text for character in "\0\n\r"):
            raise UsageError(f"{text!r} holds a line break or a NUL byte: remove it")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise UsageError(f"{text!r} cannot be encoded as a file name: correct it") from None


def _check_architecture(architecture: Architecture) -> None:
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


def _architecture_number(architecture: Architecture) -> int:
    return 10 * architecture[0] + architecture[1]
