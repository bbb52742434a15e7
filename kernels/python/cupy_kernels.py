"""Kernels of CuPy: raw ones, kernels in a `RawModule`, and those that CuPy generates.

They hold CUDA C++ and options of NVRTC, which CuPy compiles at the first launch, on a GPU. memlab
compiles the same text with its own NVRTC. CuPy itself completes the text of an `ElementwiseKernel`
and of a `ReductionKernel` for the arrays (`elementwise.py`, `reduction.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.python import elementwise, reduction
from memlab.kernels.python.cupy_options import header_folder, launch_options
from memlab.kernels.user.kernel import UserKernel, apply_launch_options

_GENERATED: dict[str, Any] = {"ElementwiseKernel": elementwise, "ReductionKernel": reduction}
"""The modules of the kernels whose text CuPy completes, by their type."""
_INCLUDES_CUPY = re.compile(r"^\s*#\s*include\s*[<\"](?:cupy/|cupy\b)", re.M)


def named(code: Any) -> UserKernel:
    """The user kernel of an object of CuPy; of a `RawModule`, without its entry.

    Raises:
        UsageError: The object is no kernel, or has options that memlab lacks.
    """
    kind = type(code).__name__
    if kind in _GENERATED:
        generated: UserKernel = _GENERATED[kind].named(code)
        return generated
    if kind not in ("RawKernel", "RawModule"):
        raise UsageError(
            f"a {kind} of CuPy is no kernel: give a RawKernel, an ElementwiseKernel, a "
            "ReductionKernel, or memlab.source(RAW_MODULE, 'NAME')"
        )
    entry = _entry(code) if kind == "RawKernel" else ""
    if code.file_path is not None:  # PTX or machine code
        return UserKernel(str(code.file_path), entry)
    name = re.sub(r"\W.*", "", getattr(code, "name", "")) or "module"
    kernel = UserKernel(f"{name}.cu", entry, code=code.code)
    options = launch_options(code.options)
    if _INCLUDES_CUPY.search(code.code):
        options["include"] = [*options["include"], header_folder()]
    return apply_launch_options(kernel, options)


def adapted(kernel: UserKernel, architecture: tuple[int, int]) -> UserKernel:
    """The kernel in CUDA C++, which one that CuPy generates is not yet.

    Raises:
        UsageError: CuPy refuses its arguments.
    """
    completed: UserKernel = _GENERATED[type(kernel.code).__name__].adapted(kernel)
    return completed


def with_own_options(
    kernel: UserKernel, options: Mapping[str, Any]
) -> tuple[UserKernel, Mapping[str, Any]]:
    """Take the options of a call that a `ReductionKernel` has."""
    if type(kernel.code).__name__ != "ReductionKernel":
        return kernel, options
    return reduction.with_own_options(kernel, options)


def _entry(code: Any) -> str:
    """The C++ name of a `RawKernel`; of an instance of a template, the expression that names it.

    Raises:
        UsageError: Several expressions may name it.
    """
    expressions: Sequence[str] = code.__getstate__().get("name_expressions") or ()
    if not code.name.startswith("_Z") or not expressions:
        return str(code.name)

    def base(expression: str) -> str:
        return expression.partition("<")[0].rpartition("::")[2].strip()

    fitting = [each for each in expressions if f"{len(base(each))}{base(each)}" in code.name]
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError(
        f"{code.name} is one of {', '.join(fitting or expressions)}: give "
        "memlab.source(RAW_MODULE, 'NAME') with the one that you mean"
    )


def of_module(code: Any, entry: str) -> UserKernel:
    """A kernel in a `RawModule`.

    Args:
        code: The module.
        entry: The kernel's C++ name.

    Raises:
        UsageError: As `named`.
    """
    return replace(named(code), entry=entry)
