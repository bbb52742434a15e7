"""Compiles CUDA C++ to PTX and machine code, or takes both from the cache."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memlab.device.compiler import assembly, cache, headers, nvrtc, ptx_text
from memlab.device.compiler import cubin as cubin_file
from memlab.device.compiler.diagnostics import CompileError
from memlab.device.compiler.translation_unit import Architecture, CompilerOutput, TranslationUnit
from memlab.device.measurement import Code, Resources
from memlab.errors import UsageError

if TYPE_CHECKING:
    from memlab.kernels.launch import Launch

_DEBUG_UNSUPPORTED = "__dp4a", "__dp2a_lo", "__dp2a_hi"
_DEBUG_UNSUPPORTED_MESSAGE = "Error: unsupported operation"
"""The only message of NVRTC 13.5 with `-G` for these dot products on compute capabilities before
10.0; without `-G` it compiles them."""


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel.

    Attributes:
        architecture: The compute capability it was compiled for.
        ptx: The PTX, for the emulator.
        cubin: The machine code, for a GPU: an ELF file; empty where nothing made it.
        resources: The registers and memory that the kernel needs.
        log: The compiler's warnings, or why there is no machine code; empty if there were none.
        compiler: Who made the machine code, with the version; empty if unknown.
        left_out: The headers that were not found, and without which the source compiled.
    """

    architecture: Architecture
    ptx: str
    cubin: bytes
    resources: Resources
    log: str
    compiler: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def loadable(self) -> bytes:
        """What a GPU's driver loads: the machine code, or PTX that it assembles itself."""
        return self.cubin or self.ptx.encode() + b"\0"


def compile_unit(unit: TranslationUnit) -> CompilerOutput:
    """Compile a source to PTX and cubin, or take both from the cache (`cache.py`).

    Of a kernel that comes compiled, only the machine code is made (`assembly.py`).

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        UsageError: The source is not text, or includes a file outside the named folders.
        DeviceError: NVRTC is not installed, or does not know this architecture.
    """
    if unit.is_compiled:
        return assembly.assemble(unit)
    unit, included, key = _with_key(unit)
    output = cache.load_output(key)
    if output is None:
        from memlab.device.compiler import compilation  # takes time to import, and is rarely needed

        compilation.check_architecture(unit.architecture)
        output = compilation.compile_source(unit, included)
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
    if output.cubin:
        resources = cubin_file.kernel_resources(output.cubin, entry)
    else:
        resources = Resources(None, ptx_text.static_shared_bytes(output.ptx, entry), None)
    return CompiledKernel(
        unit.architecture,
        output.ptx,
        output.cubin,
        resources,
        output.log,
        output.compiler,
        output.left_out,
    )


def code_record(launch: Launch, compiled: CompiledKernel) -> Code:
    """Record which code a launch executes."""
    return Code(
        source_name=launch.source_name,
        source_sha256=hashlib.sha256(launch.source.encode()).hexdigest(),
        machine_code_sha256=cubin_file.machine_code_sha256(compiled.cubin, launch.entry)
        if compiled.cubin
        else "",
        compiler=compiled.compiler,
        options=launch.compile_options,
        left_out=compiled.left_out,
    )


def compile_launch(launch: Launch, architecture: Architecture) -> CompiledKernel:
    """Compile the kernel of a launch; errors as in `compile_kernel`."""
    return compile_kernel(TranslationUnit.of(launch, architecture), launch.entry)


def compile_with_debug_info(unit: TranslationUnit) -> CompilerOutput:
    """Compile with debug information (`-G`), which has all names and types.

    Otherwise as `compile_unit`.
    """
    # ptxas optimizes no code that has debug information.
    kept = (option for option in unit.options if not option.startswith("--ptxas-options"))
    unit = replace(unit, options=("-G", *kept))
    # The kernel's parameters do not depend on the results of these functions.
    absent = {f"{name}(a,b,c)": "(c)" for name in _DEBUG_UNSUPPORTED}
    without = replace(unit, defines={**unit.defines, **absent})
    if any(name in unit.source for name in _DEBUG_UNSUPPORTED):
        known = cache.load_output(_with_key(without)[2])
        if known is not None:
            return known
    try:
        return compile_unit(unit)
    except CompileError as error:
        if _DEBUG_UNSUPPORTED_MESSAGE not in error.log:
            raise
        return compile_unit(without)


def _with_key(unit: TranslationUnit) -> tuple[TranslationUnit, headers.IncludedHeaders, str]:
    """A unit as it is compiled, the headers that it can include, and its key in the cache."""
    _check_source_text(unit)
    if unit.source_name.startswith("-"):  # NVRTC would take it for an option
        unit = replace(unit, source_name=f"./{unit.source_name}")
    # Some editors start a file with a byte order mark, which NVRTC takes for C++.
    unit = replace(unit, source=unit.source.removeprefix("\ufeff"))
    included = headers.find_headers(unit.source, unit.source_name, unit.options)
    unit = replace(unit, options=(*unit.options, *included.options))
    return unit, included, cache.cache_key(unit, included, nvrtc.compiler_identity())


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
