"""The options of CuPy's kernels, which are NVRTC's, as launch options; and CuPy's headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memlab.errors import UsageError

_SWITCHES = {"ftz": "ftz", "prec-div": "prec_div", "prec-sqrt": "prec_sqrt", "fmad": "fmad"}
_FAST_MATH = ("-use_fast_math", "--use_fast_math")
_WITHOUT_EFFECT = re.compile(
    r"--?(?:lineinfo|generate-line-info|device-int128|w|disable-warnings|restrict|"
    r"(?:gpu-architecture|arch)=\S+)"
)
"""Options that memlab sets itself, or that change neither the code nor its meaning."""


def header_folder() -> str:
    """The folder of CuPy's own headers, such as `cupy/carray.cuh`.

    Raises:
        UsageError: It is not there.
    """
    spec = find_spec("cupy")
    folder = Path(spec.origin if spec and spec.origin else "").parent / "_core" / "include"
    if not folder.is_dir():
        raise UsageError(f"CuPy has no headers in {folder}: install it again")
    return str(folder)


def launch_options(options: Sequence[str]) -> dict[str, Any]:
    """The options of NVRTC as memlab's launch options.

    Raises:
        UsageError: memlab has no such option.
    """
    found: dict[str, Any] = {"defines": [], "include": []}
    words = iter(options)
    for word in words:
        name, _, value = word.lstrip("-").partition("=")
        if word[:2] in ("-D", "-I"):
            found["defines" if word[1] == "D" else "include"].append(word[2:] or next(words, ""))
        elif name in ("define-macro", "include-path"):
            found["defines" if name[0] == "d" else "include"].append(value or next(words, ""))
        elif name == "std":
            found["std"] = value
        elif name == "maxrregcount":
            found["max_registers"] = value
        elif word in _FAST_MATH:
            found["use_fast_math"] = True
        elif name in _SWITCHES:
            found[_SWITCHES[name]] = value
        elif not _WITHOUT_EFFECT.fullmatch(word):
            raise UsageError(
                f"memlab has no option {word!r}, which this kernel of CuPy is compiled with: leave "
                "it out"
            )
    return found
