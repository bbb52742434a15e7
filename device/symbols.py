"""The program's own names: mangled symbols made readable, dimensions read from declarations.

PTX knows a static `__shared__` array as a run of bytes under a mangled name. The name is in the
symbol (Itanium C++ ABI, section 5.1); the dimensions are only in the source.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from math import prod

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DECLARATION = re.compile(
    r"__(?:shared|constant)__\s+(?:__align__\s*\([^)]*\)\s*)?[\w\s]*?((?:\b\w+\s*(?:\[[^\]]*\]\s*)+,?\s*)+)[;=]"
)
_DECLARATOR = re.compile(r"(\w+)\s*((?:\[[^\]]*\]\s*)+)")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+)$", re.M)
_CONSTANTS = re.compile(r"\bconst(?:expr)?\s+(?:int|unsigned|size_t)\s+([^;]+);")
_CONSTANT = re.compile(r"(\w+)\s*=\s*([^,]+)")
_TERNARY = re.compile(r"^(.+?)\?(.+):(.+)$", re.S)
_CAST = re.compile(r"\(\s*(?:int|unsigned|size_t)\s*\)")

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_DEEPEST = 20  # constants that refer to constants; more is a circle


def source_name(symbol: str) -> str:
    """Give the name that the source has for a variable: `M_tile` for `_ZZ5tiledE6M_tile`."""
    local = re.match(r"_ZZ.*E(\d+)(\w+)$", symbol)
    if local:
        length = int(local[1])
        return local[2][:length]
    return "local" if symbol.startswith("__local_depot") else symbol


def dimensions(source: str, defines: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """Read the dimensions of the `__shared__` and `__constant__` arrays that a source declares.

    Args:
        source: The CUDA C++ text.
        defines: Preprocessor definitions from outside, name to value.

    Returns:
        Extents by the array's name. One that is sized at launch, or by an expression that is
        more than integers and named constants, is missing.
    """
    text = _COMMENT.sub("", source)
    constants = dict(_MACRO.findall(text))
    for group in _CONSTANTS.findall(text):
        constants.update(_CONSTANT.findall(group))
    constants |= defines
    found = {}
    for declaration in _DECLARATION.findall(text):
        for name, extents in _DECLARATOR.findall(declaration):
            values = [_value(each, constants) for each in re.findall(r"\[([^\]]*)\]", extents)]
            known = tuple(value for value in values if value is not None)
            if len(known) == len(values) and prod(known) > 0:
                found[name] = known
    return found


def _value(text: str, constants: Mapping[str, str], depth: int = 0) -> int | None:
    """Compute an integer expression of C++; None where it is more than this understands."""
    choice = _TERNARY.match(text)
    if choice:
        condition, yes, no = (_value(each, constants, depth) for each in choice.groups())
        return None if condition is None else yes if condition else no
    try:
        tree = ast.parse(_CAST.sub("", text).strip(), mode="eval")
        return _compute(tree.body, constants, depth)
    except (SyntaxError, ValueError, ZeroDivisionError, KeyError, TypeError):
        return None


def _compute(node: ast.expr, constants: Mapping[str, str], depth: int) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.Name) and depth < _DEEPEST:
        value = _value(constants[node.id], constants, depth + 1)
        if value is not None:
            return value
    if isinstance(node, ast.BinOp):
        left, right = (_compute(each, constants, depth) for each in (node.left, node.right))
        return int(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left = _compute(node.left, constants, depth)
        right = _compute(node.comparators[0], constants, depth)
        return int(_OPERATORS[type(node.ops[0])](left, right))
    raise ValueError(ast.dump(node))
