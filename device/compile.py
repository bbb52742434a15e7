"""CUDA C++ to PTX and cubin through NVRTC, NVIDIA's compiler as a library; it needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device import cubin as cubin_file
from memlab.device.measurement import Resources
from memlab.device.properties import dotted
from memlab.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlab.kernels.launch import Launch

Architecture: TypeAlias = tuple[int, int]
"""A compute capability: major and minor."""

_HELP = {
    "open source file": "NVRTC compiles device code alone and brings no header files: "
    "remove the #include, or add the folder it lies in with -I",
    "uses too much shared data": "__shared__ arrays of fixed size may take 48 KiB a block: "
    "use a smaller tile, or extern __shared__ sized at launch",
}
"""What the log says, and the next step then."""


class CompileError(UsageError):
    """The source does not compile.

    Attributes:
        log: All that the compiler said, naming file and line.
    """

    def __init__(self, log: str, advice: str) -> None:
        super().__init__(f"{log}\n{advice}")
        self.log = log


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
) -> Compiled:
    """Compile one kernel to PTX and cubin.

    Args:
        source: The CUDA C++ text.
        source_name: The file name that the compiler's messages and line table carry.
        entry: The `extern "C"` name of the `__global__` function.
        architecture: The compute capability to compile for.
        defines: Preprocessor definitions, name to value.
        options: More of NVRTC's options, such as `--maxrregcount=32`; `-arch=sm_90a` takes the
            place of plain sm_90, for instructions that later GPUs will not have.

    Raises:
        CompileError: The source does not compile.
        UsageError: The source has no such kernel.
        DeviceError: NVRTC is not installed, or does not know this architecture.
    """
    output = _compile(source, source_name, architecture, "sm", _arguments(defines, options))
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


def _arguments(defines: Mapping[str, str], options: Sequence[str]) -> list[str]:
    definitions = [f"-D{name}={value}" for name, value in defines.items()]
    return ["-std=c++17", "-lineinfo", *definitions, *options]


@dataclass(frozen=True)
class _Output:
    ptx: str
    cubin: bytes  # Empty where the architecture is a virtual one, `compute_XY`.
    log: str


def _compile(
    source: str,
    source_name: str,
    architecture: Architecture,
    kind: str,
    arguments: Sequence[str],
) -> _Output:
    """Run NVRTC; `kind` is `sm` for machine code and PTX, `compute` for PTX alone."""
    _check_architecture(architecture)
    if not any(argument.startswith("-arch=") for argument in arguments):
        arguments = [f"-arch={kind}_{architecture[0]}{architecture[1]}", *arguments]
    encoded = [argument.encode() for argument in arguments]
    (program,) = _call("nvrtcCreateProgram", source.encode(), source_name.encode(), 0, [], [])
    try:
        result, *_ = _nvrtc().nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(program, "ProgramLog")
        if result != _nvrtc().nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(log or str(result), _advice(log, source_name, architecture))
        return _Output(_text(program, "PTX"), _bytes(program, "CUBIN"), log)
    finally:
        _call("nvrtcDestroyProgram", program)


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


def _advice(log: str, source_name: str, architecture: Architecture) -> str:
    for phrase, advice in _HELP.items():
        if phrase in log:
            return advice
    compiler = f"NVRTC {dotted(nvrtc_version())}"
    target = f"compute capability {dotted(architecture)}"
    return f"{compiler} could not compile {source_name} for {target}: correct what it names above"


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
