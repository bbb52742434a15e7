"""The source's names of variables: demangled symbols, and the layouts of arrays.

In PTX, a static `__shared__` array is a run of bytes with a mangled name. The source's name is in
this symbol (Itanium C++ ABI, section 5.1). The dimensions are only in the compiler's debug
information.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.compiler.compile import compile_with_debug_info
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info import variable_layouts
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memlab.device.compiler.translation_unit import Architecture
    from memlab.device.debug_info.variable_layouts import VariableLayout
    from memlab.kernels.launch import Launch

# NVRTC writes no debug information about a `__shared__` variable in a function. Without that word,
# it is a local variable, which debug information has; outside functions, it is a device variable.
# An array sized at launch must keep the word, as defined in CUDA's own crt/host_defines.h.
_SHARED_AS_LOCAL = "#undef __shared__\n#define __shared__\n"
_DYNAMIC_SHARED = re.compile(r"\bextern(\s+(?:\w+\s+){0,3})__shared__\b")
_KEPT_SHARED = r"extern\1__attribute__((shared))"

_LENGTH = re.compile(r"E(\d{1,9})")
_DUPLICATE_SUFFIX = r"__?\d+_?"  # of the second and later variables of a name in a function
_SCALARIZED_SUFFIX = r"_\$_\d+"  # of the parts of a structure that needs no address
_SYMBOL_SUFFIX = re.compile(rf"(?:{_DUPLICATE_SUFFIX}|{_SCALARIZED_SUFFIX})?")


def source_name(symbol: str) -> str:
    """Return a variable's name in the source: `M_tile` for `_ZZ5tiledE6M_tile`."""
    for length in _LENGTH.finditer(symbol) if symbol.startswith("_ZZ") else ():
        end = length.end() + int(length[1])
        if end <= len(symbol) and _SYMBOL_SUFFIX.fullmatch(symbol, end):
            return symbol[length.end() : end]
    return "local" if symbol.startswith("__local_depot") else symbol


def layouts(launch: Launch, architecture: Architecture) -> Mapping[str, tuple[VariableLayout, ...]]:
    """Read the layouts of the variables of a launch's kernel, by compiling it again.

    Args:
        launch: The launch.
        architecture: The compute capability to compile for.

    Returns:
        By symbol, the layouts of all variables of this name in the function; empty if the
        compilation fails, or the kernel comes compiled.
    """
    if launch.ptx:
        return {}
    unit = TranslationUnit.of(launch, architecture)
    source = _DYNAMIC_SHARED.sub(_KEPT_SHARED, unit.source.removeprefix("\ufeff"))
    options = ("-default-device", *unit.options)
    unit = replace(unit, source=_SHARED_AS_LOCAL + source, options=options)
    try:
        return variable_layouts.read_layouts(compile_with_debug_info(unit).cubin)
    except MemlabError:  # without names, addresses are shown
        return {}


def layout_of(
    symbol: str, size: int, known: Mapping[str, tuple[VariableLayout, ...]]
) -> VariableLayout | None:
    """Choose the layout of a variable.

    Args:
        symbol: The variable's name in the compiled code.
        size: The variable's bytes.
        known: The result of `layouts`.

    Returns:
        The layout that fits the size; None if there is none, or more than one.
    """
    candidates = known.get(symbol) or known.get(re.sub(f"{_DUPLICATE_SUFFIX}$", "", symbol), ())
    fitting = {layout.resized_to(size) for layout in candidates} - {None}
    return fitting.pop() if len(fitting) == 1 else None
