"""Kernels that come compiled, as PTX: from a file, or from a front end such as Numba or Triton."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.kernels.signature import KernelParameter

PTX_SUFFIX = ".ptx"


@dataclass(frozen=True)
class CompiledSource:
    """A compiled kernel, and the source that its lines refer to.

    Attributes:
        ptx: The PTX, one module for one architecture.
        entry: The kernel's name in the PTX, or in C++ without parameters; empty for the only one.
        source: The text that the `.loc` lines of the PTX refer to; empty for the lines of the PTX
            itself.
        source_name: The name of the source, or of the PTX, in messages and reports.
        parameters: The parameters, in the order of the PTX, where the front end knows their names
            and types; None for what the PTX tells.
        cubin: The machine code that the front end made, for the device's architecture; empty for
            ptxas to make it.
    """

    ptx: str
    entry: str = ""
    source: str = ""
    source_name: str = ""
    parameters: tuple[KernelParameter, ...] | None = None
    cubin: bytes = b""


def is_compiled_file(path: str) -> bool:
    """Whether a path names a file with compiled kernels, by its suffix."""
    return Path(path).suffix.lower() == PTX_SUFFIX
