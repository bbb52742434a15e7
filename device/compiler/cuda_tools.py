"""Finds the programs of CUDA's toolkit: `nvcc`, `ptxas`, `nvdisasm` and others.

They come from NVIDIA's pip packages or from an installed toolkit. One order holds for all of them,
so that programs that read each other's files are of one release: the pip packages beside memlab,
the toolkit that `CUDA_HOME` or `CUDA_PATH` names, the PATH, and `/usr/local/cuda`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib import metadata, util
from pathlib import Path

TOOLKIT_VARIABLES = ("CUDA_HOME", "CUDA_PATH")
"""The environment variables that name a toolkit's folder."""

DEFAULT_TOOLKIT = Path("/usr/local/cuda")
"""Where NVIDIA's installers put a toolkit, or a link to it."""


def find_cuda_tool(name: str) -> Path | None:
    """The path of a program of CUDA's toolkit; None if there is none.

    Args:
        name: The program's name, such as `nvcc`.
    """
    folders = [*_package_folders(), *(toolkit / "bin" for toolkit in _named_toolkits())]
    candidates = [folder / name for folder in folders]
    on_path = shutil.which(name)
    if on_path is not None:
        candidates.append(Path(on_path))
    candidates.append(DEFAULT_TOOLKIT / "bin" / name)
    return next((path for path in candidates if os.access(path, os.X_OK) and path.is_file()), None)


def tool_version(path: Path, package: str) -> str:
    """What tells one release of a program from another: its package's version, or its digest.

    Args:
        path: The program's path.
        package: The pip package that it may come from.
    """
    if any(path.is_relative_to(folder) for folder in _package_folders()):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return _digest(path, path.stat().st_mtime_ns)


def toolkit_folders() -> Iterator[Path]:
    """The folders of installed toolkits, those that the environment names first."""
    yield from _named_toolkits()
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        yield Path(nvcc).resolve().parent.parent
    yield DEFAULT_TOOLKIT


def _named_toolkits() -> list[Path]:
    named = (os.environ.get(variable) for variable in TOOLKIT_VARIABLES)
    return [Path(folder) for folder in named if folder]


@cache
def _package_folders() -> tuple[Path, ...]:
    """The folders of programs in NVIDIA's pip packages; one for each major version of CUDA."""
    nvidia = util.find_spec("nvidia")
    roots = nvidia.submodule_search_locations or () if nvidia else ()
    return tuple(path for root in roots for path in sorted(Path(root).glob("cu*/bin")))


@cache
def _digest(path: Path, _modified_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
