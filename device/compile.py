"""CUDA C++ to PTX and cubin through NVRTC, NVIDIA's compiler as a library; it needs no GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device import compile_cache, compile_process, headers, host_code
from memlab.device import cubin as cubin_file
from memlab.device.compile_cache import Output
from memlab.device.compile_errors import CompileError, explained
from memlab.device.measurement import Resources
from memlab.device.properties import dotted
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.kernels.launch import Launch

Architecture: TypeAlias = tuple[int, int]
"""A compute capability: major and minor."""

_UNKNOWN_TO_DEBUGGING = "Error: unsupported operation"
"""All that NVRTC 13.5 says under `-G` of the dot products `__dp4a`, `__dp2a_lo` and `__dp2a_hi`
for compute capabilities before 10.0; without `-G` it compiles them."""


@dataclass(frozen=True)
class Compiled:
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


def compile_kernel(
    source: str,
    source_name: str,
    entry: str,
    architecture: Architecture,
    defines: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    name_expression: str = "",
) -> Compiled:
    """Compile one kernel to PTX and cubin.

    What was compiled before is taken from the cache (`compile_cache`).

    Args:
        source: The CUDA C++ text.
        source_name: The file name that the compiler's messages and line table carry, with the
            folder in which an `#include "..."` is looked up first.
        entry: The name of the `__global__` function in the compiled code: as in the source where
            that says `extern "C"`, else mangled.
        architecture: The compute capability to compile for.
        defines: Preprocessor definitions, name to value.
        options: More of NVRTC's options, such as `--maxrregcount=32` or `-IDIR`; `-arch=sm_90a`
            takes the place of plain sm_90, for instructions that later GPUs will not have.
        name_expression: The C++ expression that names the function (`sgemm<32>`), by which NVRTC
            instantiates a template.

    Raises:
        CompileError: The source does not compile.
        NameExpressionError: The name expression names no kernel of the source.
        UsageError: The source has no such kernel, is no text, or includes a file from elsewhere
            than the folders named.
        DeviceError: NVRTC is not installed, or does not know this architecture.
    """
    arguments = _arguments(defines, options)
    output = _compile(source, source_name, architecture, "sm", arguments, name_expression)
    resources = cubin_file.resources(output.cubin, entry)
    return Compiled(architecture, output.ptx, output.cubin, resources, output.log)


def compile_launch(launch: Launch, architecture: Architecture) -> Compiled:
    """Compile the kernel of a launch; errors as in `compile_kernel`."""
    return compile_kernel(
        launch.source,
        launch.source_name,
        launch.entry,
        architecture,
        launch.defines,
        options=launch.compile_options,
        name_expression=launch.name_expression,
    )


def compile_ptx(
    source: str,
    source_name: str,
    architecture: Architecture,
    defines: Mapping[str, str],
    *,
    options: Sequence[str] = (),
) -> str:
    """Compile to PTX alone; arguments and errors as in `compile_kernel`."""
    arguments = _arguments(defines, options)
    return _compile(source, source_name, architecture, "compute", arguments).ptx


def compile_cubin(
    source: str,
    source_name: str,
    architecture: Architecture,
    defines: Mapping[str, str],
    *,
    options: Sequence[str] = (),
) -> bytes:
    """Compile to a cubin for exactly this architecture; otherwise as in `compile_kernel`."""
    arguments = _arguments(defines, options)
    return _compile(source, source_name, architecture, "sm", arguments).cubin


def compile_debug(
    source: str,
    source_name: str,
    architecture: Architecture,
    defines: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    name_expression: str = "",
) -> Output:
    """Compile with the debugger's information (`-G`), which tells all names and types.

    Otherwise as `compile_kernel`.
    """
    arguments = ["-G", *_arguments(defines, options, lines=False)]
    try:
        return _compile(source, source_name, architecture, "sm", arguments, name_expression)
    except CompileError as error:
        if _UNKNOWN_TO_DEBUGGING not in error.log:
            raise
        # What the kernel takes does not depend on what these compute.
        absent = [f"-D{name}(a,b,c)=(c)" for name in ("__dp4a", "__dp2a_lo", "__dp2a_hi")]
        arguments = [*arguments, *absent]
        return _compile(source, source_name, architecture, "sm", arguments, name_expression)


@cache
def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version, major and minor.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    major, minor = _call("nvrtcVersion")
    return major, minor


@cache
def supported_architectures() -> tuple[Architecture, ...]:
    """The compute capabilities that NVRTC compiles for, in rising order.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    (numbers,) = _call("nvrtcGetSupportedArchs")
    return tuple(divmod(number, 10) for number in sorted(numbers))


def _arguments(
    defines: Mapping[str, str], options: Sequence[str], *, lines: bool = True
) -> list[str]:
    definitions = [f"-D{name}={value}" for name, value in defines.items()]
    # nvcc compiles __int128 wherever the compiler of the host does, NVRTC where it is told to.
    usual = ["--device-int128", *(["-lineinfo"] if lines else [])]
    if not any(option.startswith(("-std=", "--std=")) for option in options):
        usual.insert(0, "-std=c++17")
    return [*usual, *definitions, *options]


def _compile(
    source: str,
    source_name: str,
    architecture: Architecture,
    kind: str,
    arguments: Sequence[str],
    name_expression: str = "",
) -> Output:
    """Compile, or take what was compiled before from the same text by the same compiler.

    `kind` is `sm` for machine code and PTX, `compute` for PTX alone.
    """
    _check_architecture(architecture)
    _check_text(source, source_name, arguments, name_expression)
    if source_name.startswith("-"):  # else NVRTC takes it for an option
        source_name = f"./{source_name}"
    if not any(argument.startswith("-arch=") for argument in arguments):
        arguments = [f"-arch={kind}_{architecture[0]}{architecture[1]}", *arguments]
    # Some editors start a file with a byte order mark, which NVRTC takes for a part of C++.
    source = source.removeprefix("\ufeff")
    included = headers.find(source, source_name, arguments)
    arguments = [*arguments, *included.options]
    key = compile_cache.key(
        [dotted(nvrtc_version()), _nvrtc_package(), source, source_name, name_expression],
        arguments,
        included.packages,
        [each for header in included.own for each in header],
    )
    output = compile_cache.load(key)
    if output is None:
        own = [content.decode(errors="replace") for _, content in included.own]
        output = _run(source, source_name, architecture, arguments, name_expression, own)
        compile_cache.store(key, output)
    return output


def _run(
    source: str,
    source_name: str,
    architecture: Architecture,
    arguments: Sequence[str],
    name_expression: str,
    own_headers: Sequence[str] = (),
) -> Output:
    """Run NVRTC in a process of its own, and again without the host code that it cannot take."""
    text = source
    left_out: list[str] = []
    try:
        for _ in range(host_code.MOST_PASSES):
            answer = compile_process.call(
                partial(_answer, text, source_name, arguments, name_expression)
            )
            if not isinstance(answer, str):
                break
            before = text, arguments
            text, faults = host_code.without(text, source_name, answer, own_headers)
            left_out.extend(faults)
            if host_code.PLAIN_FUNCTION in answer:
                arguments = [*arguments, host_code.AS_OF_THE_DEVICE]
            if (text, arguments) == before:
                break
    except compile_process.Lost as lost:
        if name_expression and lost.crashed:
            # With what makes it crash left out it may say what is wrong.
            _run(source, source_name, architecture, arguments, "")
        advice = "leave out parts of the source to find what the compiler cannot take"
        raise CompileError(f"NVRTC {lost} while compiling {source_name}", advice) from None
    if isinstance(answer, str):
        target = f"with NVRTC {dotted(nvrtc_version())} for {dotted(architecture)}"
        raise explained(answer, source_name, target, name_expression, left_out)
    if isinstance(answer, DeviceError):
        raise answer
    return answer


def _answer(
    source: str, source_name: str, arguments: Sequence[str], name_expression: str
) -> Output | str | DeviceError:
    """What NVRTC gives: the output, the log of a failure, or that it cannot be used."""
    try:
        text = source.encode(errors="replace")
        (program,) = _call("nvrtcCreateProgram", text, os.fsencode(source_name), 0, [], [])
        expression = os.fsencode(name_expression)
        if expression:
            _call("nvrtcAddNameExpression", program, expression)
        # NVRTC's own cache would start the driver of a GPU, which a forked child must leave alone.
        encoded = [b"--no-cache", *(os.fsencode(argument) for argument in arguments)]
        result, *_ = _nvrtc().nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, "ProgramLog")
        if result != _nvrtc().nvrtcResult.NVRTC_SUCCESS:
            return log or str(result)
        lowered = _call("nvrtcGetLoweredName", program, expression)[0] if expression else b""
        return Output(_text(program, "PTX"), _bytes(program, "CUBIN"), log, lowered.decode())
    except DeviceError as error:
        return error
    # The program is not destroyed: the process ends with it.


def _check_text(
    source: str, source_name: str, arguments: Sequence[str], name_expression: str
) -> None:
    """See that C's end of a string is not met early, nor a line begun by a name."""
    if "\0" in source:
        line = source[: source.index("\0")].count("\n") + 1
        message = f"{source_name} holds a NUL byte in line {line}: save it as text in UTF-8"
        raise UsageError(message)
    if '"' in source_name:  # it ends the name in NVRTC's own PTX
        raise UsageError(f"{source_name} has a quotation mark in its name: rename it")
    for each in (source_name, *arguments, name_expression):
        if any(character in each for character in "\0\n\r"):
            raise UsageError(f"{each!r} holds a line break or a NUL byte: leave that out")
        try:
            os.fsencode(each)
        except UnicodeEncodeError:
            raise UsageError(f"{each!r} is no text that a file name could be: mend it") from None


def _check_architecture(architecture: Architecture) -> None:
    known = supported_architectures()
    if architecture in known:
        return
    closest = min(known, key=lambda each: abs(_number(each) - _number(architecture)))
    message = (
        f"NVRTC {dotted(nvrtc_version())} does not compile for compute capability "
        f"{dotted(architecture)}, it knows {', '.join(map(dotted, known))}: "
        f"choose a device of one of these, the nearest is {dotted(closest)}"
    )
    raise DeviceError(message)


def _number(architecture: Architecture) -> int:
    return 10 * architecture[0] + architecture[1]


@cache
def _nvrtc_package() -> str:
    """The package's version, which has one figure more than NVRTC itself tells."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return ""


@cache
def _nvrtc() -> Any:  # The bindings carry no types.
    """Load the bindings and, through a first call, the library itself."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        message = (
            f"the CUDA compiler NVRTC cannot be loaded ({reason}): "
            "pip install nvidia-cuda-nvrtc cuda-bindings"
        )
        raise DeviceError(message) from error
    return nvrtc


def _call(name: str, *arguments: object) -> tuple[Any, ...]:
    """Call one of NVRTC's functions and return what it gives besides the result code."""
    result, *values = getattr(_nvrtc(), name)(*arguments)
    if result != _nvrtc().nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(f"{name} failed with {result.name}: reinstall nvidia-cuda-nvrtc")
    return tuple(values)


def _bytes(program: object, what: str) -> bytes:
    """One of the program's outputs: NVRTC first says its size, then fills a buffer."""
    (size,) = _call(f"nvrtcGet{what}Size", program)
    buffer = bytearray(size)
    if size:
        _call(f"nvrtcGet{what}", program, buffer)
    return bytes(buffer)


def _text(program: object, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode(errors="replace").rstrip("\n")
