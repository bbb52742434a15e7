"""Kernels that come compiled, as PTX: from a file, or from a front end such as Numba or Triton."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.kernels.signature import KernelParameter

BINARY_SUFFIXES = (".cubin", ".fatbin", ".o", ".a", ".so", ".exe", ".out")
"""Suffixes of files that hold PTX or machine code, besides `.ptx`; programs often have none."""

_BINARY_MAGIC = (b"\x7fELF", b"\x50\xed\x55\xba", b"!<arch>\n", b"MZ")
"""The first bytes of ELF files, fat binaries, archives, and programs of Windows."""
_SHARED_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")


@dataclass(frozen=True)
class CompiledSource:
    """A compiled kernel, and the source that its lines refer to.

    Attributes:
        ptx: The PTX; of several modules, the one with the kernel that suits the device is taken.
            Empty for machine code alone, which only a GPU executes.
        entry: The kernel's name in the PTX, or in C++ without parameters; empty for the only one.
        source: The text that the `.loc` lines of the PTX refer to; empty for the lines of the PTX
            itself.
        source_name: The name of the source, or of the PTX, in messages and reports.
        parameters: The parameters, in the order of the PTX, where the front end knows their names
            and types; None for what the PTX tells.
        cubin: The machine code that the front end made, for the device's architecture; empty for
            ptxas to make it.
        cubin_compiler: Who made that machine code, with the version; empty if unknown.
    """

    ptx: str
    entry: str = ""
    source: str = ""
    source_name: str = ""
    parameters: tuple[KernelParameter, ...] | None = None
    cubin: bytes = b""
    cubin_compiler: str = ""


def is_compiled_file(path: str) -> bool:
    """Whether a path names a file with compiled kernels."""
    return path.lower().endswith(".ptx") or is_binary_file(path)


def is_binary_file(path: str) -> bool:
    """Whether a path names a file with machine code, by its suffix or its first bytes."""
    name = path.lower()
    if name.endswith(BINARY_SUFFIXES) or _SHARED_LIBRARY.search(name):
        return True
    try:
        if Path(path).suffix or not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(8).startswith(_BINARY_MAGIC)
    except (OSError, ValueError):
        return False
