"""Headers of Thrust and CUB that only host code can use, and the texts that replace them.

NVRTC compiles device code only, and stops at these headers. Most are empty for it, like those of
the host's own libraries (`host_headers/`), and `host_code.py` then removes what uses them.
<cub/cub.cuh> holds the parts that device code can use, for blocks, warps and threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from memlab.device.compiler.headers import package_folders

THRUST_FOR_DEVICE_CODE = frozenset(
    {
        "addressof.h",
        "advance.h",
        "distance.h",
        "functional.h",
        "pair.h",
        "tuple.h",
        "version.h",
        "zip_function.h",
    }
)
"""The headers in Thrust's main folder that NVRTC compiles; found by compiling each one alone."""

_HOST_FOLDERS = ("thrust/mr", "thrust/random", "thrust/system/cpp", "thrust/system/omp")
_HOST_FILES = (
    *(f"thrust/iterator/{name}.h" for name in ("retag", "shuffle_iterator")),
    *(f"thrust/system/cuda/{name}.h" for name in ("error", "memory", "pointer", "vector")),
    "thrust/system/cuda/memory_resource.h",
    "cub/util_allocator.cuh",
)
_CUB_FOLDERS = ("cub/block", "cub/warp", "cub/thread", "cub/iterator", "cub/grid")
_HOST_ONLY = "// Host code only: device code must not use this header.\n"


@cache
def replacements() -> dict[str, str]:
    """The texts that replace headers, by the names that `#include` gives; none without CCCL."""
    roots = [Path(folder) for folder in package_folders() if (Path(folder) / "cub").is_dir()]
    if not roots:
        return {}
    root = roots[-1]
    main = (
        name
        for name in _names(root, "thrust", "h")
        if name.removeprefix("thrust/") not in THRUST_FOR_DEVICE_CODE
    )
    others = (name for folder in _HOST_FOLDERS for name in _names(root, folder, "h"))
    texts = dict.fromkeys((*main, *others, *_HOST_FILES), _HOST_ONLY)
    texts |= dict.fromkeys(_names(root, "cub/device", "cuh"), _HOST_ONLY)
    parts = (name for folder in _CUB_FOLDERS for name in _names(root, folder, "cuh"))
    texts["cub/cub.cuh"] = "#pragma once\n" + "".join(f"#include <{name}>\n" for name in parts)
    return texts


def _names(root: Path, folder: str, suffix: str) -> Iterator[str]:
    """The headers in a folder, as `#include` names them."""
    return (path.relative_to(root).as_posix() for path in sorted(root.glob(f"{folder}/*.{suffix}")))
