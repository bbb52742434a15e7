"""Compilation by NVRTC: in a child process, and again without the host code that it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from memlab.device.compiler import forked_process, host_code, nvrtc
from memlab.device.compiler.diagnostics import CompileError, error_from_log
from memlab.device.compiler.translation_unit import Architecture, CompilerOutput, TranslationUnit
from memlab.device.properties import version_text
from memlab.errors import DeviceError


def compile_without_host_code(unit: TranslationUnit, own_headers: Sequence[str]) -> CompilerOutput:
    """Compile a source that is text.

    Args:
        unit: The translation unit.
        own_headers: The texts of the user's headers that it can include.

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        DeviceError: NVRTC is not installed.
    """
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
            compile_without_host_code(replace(unit, name_expression=""), own_headers)
        advice = "remove parts of the source to find the one that the compiler cannot process"
        raise CompileError(f"NVRTC {lost} while compiling {unit.source_name}", advice) from None
    if isinstance(answer, str):
        raise error_from_log(
            answer, unit, f"NVRTC {version_text(nvrtc.compiler_version())}", removed
        )
    if isinstance(answer, DeviceError):
        raise answer
    return answer


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


def _architecture_number(architecture: Architecture) -> int:
    return 10 * architecture[0] + architecture[1]
