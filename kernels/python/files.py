"""Kernels in Python files that the command line names: a file is run, as `import` runs it."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.python.front_ends import FRONT_ENDS, front_end
from memlab.kernels.python.parameters import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from memlab.kernels.user.kernel import UserKernel


def find_kernel(file: str, name: str) -> UserKernel:
    """The kernel of a name in a Python file; the only one, if the name is empty.

    Raises:
        UsageError: There is no such file, running it fails, or it has no such kernel.
    """
    try:
        changed = os.stat(file).st_mtime_ns  # noqa: PTH116 - as the text that was given
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {file} ({reason}): check its name") from None
    defined = vars(_run_file(file, changed))
    kernels = {key: value for key, value in defined.items() if _is_kernel(value)}
    if not name and len(kernels) == 1:
        (name,) = kernels
    if not name:
        listed, example = ", ".join(kernels) or "no kernel", next(iter(kernels), "add")
        raise UsageError(f"{file} has {listed}: name one, as in {file}:{example}")
    if name not in defined:
        hint = suggest_nearest(name, kernels) if kernels else "it has no kernel"
        raise UsageError(f"{file} has no kernel {name!r}: {hint}")
    return front_end(defined[name]).named(defined[name])


def _is_kernel(value: Any) -> bool:
    if type(value).__module__.partition(".")[0] not in FRONT_ENDS:
        return False
    try:
        front_end(value).named(value)
    except UsageError:
        return False
    return True


@lru_cache(maxsize=8)
def _run_file(file: str, changed: int) -> ModuleType:
    """Run a file as a module; what it prints goes to stderr, since stdout holds the result.

    Raises:
        UsageError: It fails, or a package is missing.
    """
    name = os.path.basename(file).removesuffix(".py")  # noqa: PTH119
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file: name one with a kernel")
    module = module_from_spec(spec)
    sys.modules.setdefault(name, module)  # dataclasses look for the module of a class
    try:
        with _on_path(os.path.dirname(os.path.abspath(file))), redirect_stdout(sys.stderr):  # noqa: PTH100, PTH120
            spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        extra = f"memlab[{package}]" if package in ("numba", "triton") else package
        raise UsageError(
            f"{file} imports {package}, which is not installed: pip install '{extra}'"
        ) from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == module.__file__]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
        place = f" in line {line}" if line else ""
        reason = f"{type(error).__name__}: {one_line(error)}".rstrip(": ")
        raise UsageError(f"{file} failed{place} ({reason}): correct it") from error
    return module


@contextmanager
def _on_path(folder: str) -> Iterator[None]:
    """Have Python find modules in a folder first."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
