"""The program's own names: mangled symbols made readable, arrays divided as the source does it.

PTX knows a static `__shared__` array as a run of bytes under a mangled name. The name is in the
symbol (Itanium C++ ABI, section 5.1); the dimensions are known to the compiler alone, which tells a
debugger of them.
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

# NVRTC tells a debugger nothing of a `__shared__` variable inside a function. Without that word it
# is one more local variable, of which it tells; outside functions, one of the device. What is sized
# at launch must keep the word: what it stands for is that of CUDA's own crt/host_defines.h.
_SHARED_AS_LOCAL = "#undef __shared__\n#define __shared__\n"
_DYNAMIC_SHARED = re.compile(r"\bextern(\s+(?:\w+\s+){0,3})__shared__\b")
_KEPT_SHARED = r"extern\1__attribute__((shared))"

_LENGTH = re.compile(r"E(\d{1,9})")
_DUPLICATE_SUFFIX = r"__?\d+_?"  # ends the second and later ones of a name in a function
_SCALARIZED_SUFFIX = r"_\$_\d+"  # ends what is left of a structure that needs no address
_SYMBOL_SUFFIX = re.compile(rf"(?:{_DUPLICATE_SUFFIX}|{_SCALARIZED_SUFFIX})?")


def source_name(symbol: str) -> str:
    """Give the name that the source has for a variable: `M_tile` for `_ZZ5tiledE6M_tile`."""
    for length in _LENGTH.finditer(symbol) if symbol.startswith("_ZZ") else ():
        end = length.end() + int(length[1])
        if end <= len(symbol) and _SYMBOL_SUFFIX.fullmatch(symbol, end):
            return symbol[length.end() : end]
    return "local" if symbol.startswith("__local_depot") else symbol


def layouts(launch: Launch, architecture: Architecture) -> Mapping[str, tuple[VariableLayout, ...]]:
    """Ask the compiler how the variables of a launch's kernel are divided into elements.

    Args:
        launch: What is, or would be, launched.
        architecture: The compute capability to compile for.

    Returns:
        By the variable's symbol, the layouts of all in one function that have its name; empty
        where the compiler does not tell.
    """
    unit = TranslationUnit.of(launch, architecture)
    source = _DYNAMIC_SHARED.sub(_KEPT_SHARED, unit.source.removeprefix("\ufeff"))
    options = ("-default-device", *unit.options)
    unit = replace(unit, source=_SHARED_AS_LOCAL + source, options=options)
    try:
        return variable_layouts.read_layouts(compile_with_debug_info(unit).cubin)
    except MemlabError:  # Names are a convenience: without them there are addresses.
        return {}


def layout_of(
    symbol: str, size: int, known: Mapping[str, tuple[VariableLayout, ...]]
) -> VariableLayout | None:
    """Choose the layout of a variable.

    Args:
        symbol: Its name in the compiled code.
        size: Bytes.
        known: What `layouts` gives.

    Returns:
        The layout that fills its bytes; None where there is none, or more than one.
    """
    named = known.get(symbol) or known.get(re.sub(f"{_DUPLICATE_SUFFIX}$", "", symbol), ())
    fitting = {each.resized_to(size) for each in named} - {None}
    return fitting.pop() if len(fitting) == 1 else None
