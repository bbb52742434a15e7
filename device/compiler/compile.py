"""CUDA C++ to PTX and machine code: one compilation, whatever the source holds, and only once."""

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
"""All that NVRTC 13.5 says under `-G` of the dot products `__dp4a`, `__dp2a_lo` and `__dp2a_hi`
for compute capabilities before 10.0; without `-G` it compiles them."""


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel in both forms, from one run of the compiler.

    Attributes:
        architecture: The compute capability it was compiled for.
        ptx: What the emulator runs.
        cubin: What a GPU runs: an ELF file.
        resources: What the kernel needs of the multiprocessor.
        log: The compiler's warnings, empty where it had none.
    """

    architecture: Architecture
    ptx: str
    cubin: bytes
    resources: Resources
    log: str


def compile_unit(unit: TranslationUnit) -> CompilerOutput:
    """Compile a source to PTX and cubin.

    What was compiled before is taken from the cache (`compile_cache`).

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        UsageError: The source is no text, or includes a file from elsewhere than the folders named.
        DeviceError: NVRTC is not installed, or does not know this architecture.
    """
    _check_architecture(unit.architecture)
    _check_source_text(unit)
    if unit.source_name.startswith("-"):  # else NVRTC takes it for an option
        unit = replace(unit, source_name=f"./{unit.source_name}")
    # Some editors start a file with a byte order mark, which NVRTC takes for a part of C++.
    unit = replace(unit, source=unit.source.removeprefix("\ufeff"))
    included = headers.find_headers(unit.source, unit.source_name, unit.options)
    unit = replace(unit, options=(*unit.options, *included.options))
    key = cache.cache_key(
        unit, included, (version_text(nvrtc.compiler_version()), nvrtc.package_version())
    )
    output = cache.load_output(key)
    if output is None:
        output = _compile_without_host_code(
            unit, [content.decode(errors="replace") for _, content in included.own]
        )
        cache.store_output(key, output)
    return output


def compile_kernel(unit: TranslationUnit, entry: str) -> CompiledKernel:
    """Compile, and read what one kernel needs.

    Args:
        unit: What is compiled.
        entry: The name of the `__global__` function in the compiled code: as in the source where
            that says `extern "C"`, else mangled.

    Raises:
        UsageError: The source has no such kernel; and what `compile_unit` raises.
        DeviceError: As of `compile_unit`.
    """
    output = compile_unit(unit)
    resources = cubin_file.kernel_resources(output.cubin, entry)
    return CompiledKernel(unit.architecture, output.ptx, output.cubin, resources, output.log)


def compile_launch(launch: Launch, architecture: Architecture) -> CompiledKernel:
    """Compile the kernel of a launch; errors as in `compile_kernel`."""
    return compile_kernel(TranslationUnit.of(launch, architecture), launch.entry)


def compile_with_debug_info(unit: TranslationUnit) -> CompilerOutput:
    """Compile with the debugger's information (`-G`), which tells all names and types.

    Otherwise as `compile_unit`.
    """
    unit = replace(unit, options=("-G", *unit.options))
    try:
        return compile_unit(unit)
    except CompileError as error:
        if _DEBUG_UNSUPPORTED_MESSAGE not in error.log:
            raise
        # What the kernel takes does not depend on what these compute.
        absent = {f"{name}(a,b,c)": "(c)" for name in ("__dp4a", "__dp2a_lo", "__dp2a_hi")}
        return compile_unit(replace(unit, defines={**unit.defines, **absent}))


def _compile_without_host_code(unit: TranslationUnit, own_headers: Sequence[str]) -> CompilerOutput:
    """Run NVRTC in a process of its own, and again without the host code that it cannot take."""
    tried = unit
    left_out: list[str] = []
    try:
        for _ in range(host_code.MAX_PASSES):
            answer = forked_process.call_in_child(partial(nvrtc.run_nvrtc, tried))
            if not isinstance(answer, str):
                break
            before = tried
            text, faults = host_code.remove_host_code(
                before.source, unit.source_name, answer, own_headers
            )
            left_out.extend(faults)
            tried = replace(before, source=text)
            if host_code.UNANNOTATED_FUNCTION_MESSAGE in answer:
                tried = replace(tried, options=(*tried.options, host_code.DEFAULT_DEVICE_OPTION))
            if tried == before:
                break
    except forked_process.ChildProcessLostError as lost:
        if unit.name_expression and lost.crashed:
            # With what makes it crash left out it may say what is wrong.
            _compile_without_host_code(replace(unit, name_expression=""), own_headers)
        advice = "leave out parts of the source to find what the compiler cannot take"
        raise CompileError(f"NVRTC {lost} while compiling {unit.source_name}", advice) from None
    if isinstance(answer, str):
        raise error_from_log(
            answer, unit, f"NVRTC {version_text(nvrtc.compiler_version())}", left_out
        )
    if isinstance(answer, DeviceError):
        raise answer
    return answer


def _check_source_text(unit: TranslationUnit) -> None:
    """See that C's end of a string is not met early, nor a line begun by a name."""
    before, nul, _ = unit.source.partition("\0")
    if nul:
        line = before.count("\n") + 1
        message = f"{unit.source_name} holds a NUL byte in line {line}: save it as text in UTF-8"
        raise UsageError(message)
    if '"' in unit.source_name:  # it ends the name in NVRTC's own PTX
        raise UsageError(f"{unit.source_name} has a quotation mark in its name: rename it")
    for each in (unit.source_name, *unit.arguments, unit.name_expression):
        if any(character in each for character in "\0\n\r"):
            raise UsageError(f"{each!r} holds a line break or a NUL byte: leave that out")
        try:
            os.fsencode(each)
        except UnicodeEncodeError:
            raise UsageError(f"{each!r} is no text that a file name could be: mend it") from None


def _check_architecture(architecture: Architecture) -> None:
    known = nvrtc.supported_architectures()
    if architecture in known:
        return
    closest = min(
        known, key=lambda each: abs(_architecture_number(each) - _architecture_number(architecture))
    )
    message = (
        f"NVRTC {version_text(nvrtc.compiler_version())} does not compile for compute capability "
        f"{version_text(architecture)}, it knows {', '.join(map(version_text, known))}: "
        f"choose a device of one of these, the nearest is {version_text(closest)}"
    )
    raise DeviceError(message)


def _architecture_number(architecture: Architecture) -> int:
    return 10 * architecture[0] + architecture[1]
