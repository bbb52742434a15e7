"""A source as the compiler takes it, and what the compiler gives: the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from memlab.kernels.launch import Launch

Architecture: TypeAlias = tuple[int, int]
"""A compute capability: major and minor."""


@dataclass(frozen=True)
class TranslationUnit:
    """A translation unit: a source, and how it is compiled.

    Attributes:
        source: The CUDA C++ text.
        source_name: The file name that the compiler's messages and line table carry, with the
            folder in which an `#include "..."` is looked up first.
        architecture: The compute capability to compile for.
        defines: Preprocessor definitions, name to value.
        options: More of NVRTC's options, such as `--maxrregcount=32` or `-IDIR`. `-arch=sm_90a`
            takes the place of plain sm_90, for instructions that later GPUs will not have; `-G`,
            the debugger's information, that of the source's lines.
        name_expression: The C++ expression that names the function (`sgemm<32>`), by which NVRTC
            instantiates a template; empty for none.
    """

    source: str
    source_name: str
    architecture: Architecture
    defines: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    name_expression: str = ""

    @classmethod
    def of(cls, launch: Launch, architecture: Architecture) -> TranslationUnit:
        """The unit that has the kernel of a launch."""
        return cls(
            launch.source,
            launch.source_name,
            architecture,
            launch.defines,
            launch.compile_options,
            launch.name_expression,
        )

    @property
    def arguments(self) -> list[str]:
        """All of NVRTC's options."""
        major, minor = self.architecture
        # nvcc compiles __int128 wherever the compiler of the host does, NVRTC where it is told to.
        usual = ["--device-int128"]
        if "-G" not in self.options:
            usual.append("-lineinfo")
        if not any(option.startswith(("-std=", "--std=")) for option in self.options):
            usual.insert(0, "-std=c++17")
        if not any(option.startswith("-arch=") for option in self.options):
            usual.insert(0, f"-arch=sm_{major}{minor}")
        definitions = [f"-D{name}={value}" for name, value in self.defines.items()]
        return [*usual, *definitions, *self.options]


@dataclass(frozen=True)
class CompilerOutput:
    """What one run of the compiler gives.

    Attributes:
        ptx: The PTX.
        cubin: The machine code.
        log: The compiler's warnings.
        lowered_name: What the name expression is called in the compiled code; empty without one.
    """

    ptx: str
    cubin: bytes
    log: str
    lowered_name: str
