"""Recipes: what launches a run again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.roofline.run import Recipe

if TYPE_CHECKING:
    from memlab.kernels.user.kernel import UserKernel
    from memlab.launching import PreparedLaunch

NOT_RECORDED = ("source", "entry", "name", "reference", "compiled", "code", "objects", "layout")
"""Fields of a user kernel that are no options of its recipe. A reference is code, and a recipe is
data that a file may hold."""


def launch_recipe(prepared: PreparedLaunch) -> Recipe | None:
    """Write down how to launch a kernel again; None where it or an argument is in memory."""
    kernel = prepared.kernel
    if isinstance(kernel, str):
        return Recipe(kernel, dict(prepared.launch.parameters), prepared.seed)
    if kernel.compiled is not None or kernel.code is not None:
        return None
    if kernel.name and _is_as_in_project(kernel):
        return Recipe(kernel.name, {}, prepared.seed)
    options: dict[str, Any] = {}
    for option in fields(kernel):
        value = getattr(kernel, option.name)
        if option.name in NOT_RECORDED or value == option.default:
            continue
        if isinstance(value, tuple):
            if not all(isinstance(part, str | int) for part in value):
                return None
            value = tuple(map(str, value))
        options[option.name] = value
    try:
        target = ":".join(filter(None, (_inside(kernel.source), kernel.entry)))
        target.encode()
    except UnicodeEncodeError:
        return None
    return Recipe(target, options, prepared.seed)


def _is_as_in_project(kernel: UserKernel) -> bool:
    """Tell whether `memlab.toml` says the same of the kernel."""
    from memlab.kernels.user.project import find_user_kernel
    from memlab.kernels.user.symbols import evaluated

    with suppress(UsageError):
        found = find_user_kernel(kernel.name)
        return found is not None and evaluated(found) == kernel
    return False


def _inside(source: str) -> str:
    """Give the path relative to the current folder where it lies in it."""
    path = Path(source)
    with suppress(OSError, ValueError):
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    return source
