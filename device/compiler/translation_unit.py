"""The compiler's input and output: a translation unit, and its PTX and machine code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.kernels.launch import Launch

Architecture: TypeAlias = tuple[int, int]
"""A compute capability: major and minor."""

_SPECIFIC = "--specific-arch="


@dataclass(frozen=True)
class TranslationUnit:
    """A translation unit: a source and its compiler options.

    Attributes:
        source: The CUDA C++ text.
        source_name: The file name for the compiler's messages and line table. An
            `#include "..."` is first looked up in its folder.
        architecture: The compute capability to compile for.
        defines: Preprocessor definitions, name to value.
        options: Further options of NVRTC, such as `--maxrregcount=32` or `-IDIR`. `-arch=sm_90a`
            replaces plain sm_90, for instructions that later GPUs do not have. `-G` (debug
            information) replaces line information. Two are memlab's own: `--root=DIR`, the folder
            below which headers may be read and are looked for, and `--specific-arch=sm_90a`, which
            counts on devices of that compute capability alone.
        name_expression: The C++ expression that names the function (`sgemm<32>`), by which NVRTC
            instantiates a template; empty for none.
        ptx: The PTX, where the kernel comes compiled; empty where `source` is compiled.
        cubin: The machine code that came with it; empty for none.
        cubin_compiler: Who made that machine code, with the version; empty if unknown.
    """

    source: str
    source_name: str
    architecture: Architecture
    defines: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    name_expression: str = ""
    ptx: str = ""
    cubin: bytes = b""
    cubin_compiler: str = ""

    @classmethod
    def of(cls, launch: Launch, architecture: Architecture) -> TranslationUnit:
        """The translation unit of a launch's kernel."""
        return cls(
            launch.source,
            launch.source_name,
            architecture,
            launch.defines,
            launch.compile_options,
            launch.name_expression,
            launch.ptx,
            launch.cubin,
            launch.cubin_compiler,
        )

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel comes compiled, as PTX or machine code."""
        return bool(self.ptx or self.cubin)

    @property
    def arguments(self) -> list[str]:
        """All options of NVRTC."""
        major, minor = self.architecture
        # nvcc supports __int128 if the host compiler does, NVRTC only with this option.
        defaults = ["--device-int128"]
        if "-G" not in self.options:
            defaults.append("-lineinfo")
        if not any(option.startswith(("-std=", "--std=")) for option in self.options):
            defaults.insert(0, "-std=c++17")
        if not any(option.startswith("-arch=") for option in self.options):
            architecture = f"sm_{major}{minor}"
            specific = (option.removeprefix(_SPECIFIC) for option in self.options)
            fitting = (each for each in specific if each[:-1] == architecture)
            defaults.insert(0, f"-arch={next(fitting, architecture)}")
        definitions = [f"-D{name}={value}" for name, value in self.defines.items()]
        options = (each for each in self.options if not each.startswith(("--root=", _SPECIFIC)))
        return [*defaults, *definitions, *options]


@dataclass(frozen=True)
class CompilerOutput:
    """The output of one compilation.

    Attributes:
        ptx: The PTX.
        cubin: The machine code; empty where there is none, for the reason that `log` gives.
        log: The compiler's warnings.
        lowered_name: The name expression's name in the compiled code; empty without one.
        compiler: Who made the machine code, with the version: `NVRTC 13.0.88`; empty if unknown.
        left_out: The headers that were not found, and without which the source compiled.
        files: The files besides the user's that were read: path, size in bytes, time of the last
            change in nanoseconds. Only nvcc reads such.
    """

    ptx: str
    cubin: bytes
    log: str
    lowered_name: str
    compiler: str = ""
    left_out: tuple[str, ...] = ()
    files: tuple[tuple[str, int, int], ...] = ()


CompilerAnswer: TypeAlias = CompilerOutput | str | MemlabError
"""What a compiler returns: its output, the log of a failure, or the error if it cannot be used."""
