"""What the preprocessor does to host code: conditions, macros, and the user's own headers.

Lines keep their numbers: what a condition leaves out, and every directive, becomes a blank line.
Macros are not expanded in the text. They are kept beside it, for the names of sizes are macros;
one that the file undefines or defines again is expanded where it was defined.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

MAX_HEADERS = 200
"""The most headers that are read into a file."""
MAX_EXPANSION = 20_000
"""The longest text to which macros are expanded, characters."""
MAX_EXPANSIONS = 10 * MAX_EXPANSION
"""The longest text of all functions that macros define in a file, characters."""

PREDEFINED = {
    "__CUDACC__": "1",
    "__NVCC__": "1",
    "__cplusplus": "201703",
    "__linux__": "1",
    "__x86_64__": "1",
    "CUDART_VERSION": "13000",
    "CUDA_VERSION": "13000",
    "__CUDACC_VER_MAJOR__": "13",
}
"""The macros that nvcc defines for the host code of a file on Linux."""

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.S)
_STRINGIZED = re.compile(r"(?<!#)#[ \t]*\w+")
_PASTE = re.compile(r"\s*##\s*")
_SEPARATOR = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[](){}[,]")
_FUNCTION = re.compile(  # type, name(parameters) {
    r"\s*(?!(?:do|if|for|while|switch|else|return)\b)"
    r"[A-Za-z_][\w:<>,&*#\s]*[\s&*][\w:#]+\s*\([^{};]*\)\s*\{"
)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(.*)", re.S)
_DEFINE = re.compile(r"(\w+)(?:\(([^()]*)\))?(.*)", re.S)
_INCLUDE = re.compile(r"[\"<]([^\">]+)[\">]")
_DEFINED = re.compile(r"\bdefined\b\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}


@dataclass(frozen=True)
class Macro:
    """A macro: its parameters, None for one without parentheses, and its text."""

    parameters: tuple[str, ...] | None
    text: str


@dataclass(frozen=True)
class SourceText:
    """One file's text without directives and comments.

    Attributes:
        name: The file's name.
        text: The text, with the file's line numbers.
    """

    name: str
    text: str


@dataclass
class Preprocessed:
    """A source and its own headers, headers first.

    Attributes:
        texts: The texts.
        macros: The macros that are defined at the end, by name.
    """

    texts: list[SourceText] = field(default_factory=list)
    macros: dict[str, Macro] = field(default_factory=dict)


def preprocess(
    source: str, source_name: str, headers: Mapping[str, str], defines: Mapping[str, str]
) -> Preprocessed:
    """Apply the directives of a source and of the headers that it includes.

    Args:
        source: The source.
        source_name: Its file name.
        headers: The texts of the user's headers, by path.
        defines: The values of macros that the compiler is given.
    """
    result = Preprocessed()
    for name, text in {**PREDEFINED, **defines}.items():
        result.macros[name] = Macro(None, text)
    _read(source, source_name, headers, result, set())
    return result


def without_comments(source: str) -> str:
    """Replace comments by blanks; lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        return re.sub(r"[^\n]", " ", text) if text.startswith("/") else text

    return _COMMENT.sub(blank, source)


def with_names_replaced(text: str, value_of: Callable[[str], str | None]) -> str | None:
    """Replace names in a text.

    Args:
        text: The text.
        value_of: Gives what stands for a name; None leaves it.

    Returns:
        The text; None where it would be longer than `MAX_EXPANSION`.
    """
    pieces: list[str] = []
    length, end = 0, 0
    for match in _NAME.finditer(text):
        value = value_of(match[0])
        if value is None:
            continue
        pieces += [text[end : match.start()], value]
        length += len(pieces[-2]) + len(value)
        end = match.end()
        if length > MAX_EXPANSION:
            return None
    pieces.append(text[end:])
    return "".join(pieces) if length + len(pieces[-1]) <= MAX_EXPANSION else None


def expand(macro: Macro, arguments: Sequence[str]) -> str | None:
    """The text of a macro with arguments; None where it would be too long."""
    parameters = [name for name in macro.parameters or () if name]
    values = dict(zip(parameters, arguments, strict=False))
    if parameters and parameters[-1].endswith("..."):
        values["__VA_ARGS__"] = ", ".join(arguments[len(parameters) - 1 :])
    text = _STRINGIZED.sub('""', macro.text)
    replaced = with_names_replaced(text, values.get)
    return None if replaced is None else _PASTE.sub("", replaced)


def _with_functions(text: str, macros: Mapping[str, Macro]) -> str:
    """Expand the macros that define functions; lines keep their numbers."""
    names = [
        name
        for name, macro in macros.items()
        if macro.parameters is not None and _FUNCTION.match(macro.text)
    ]
    if not names:
        return text
    pattern = re.compile(rf"^[ \t]*({'|'.join(map(re.escape, names))})[ \t]*\(", re.M)
    return _with_expansions(text, pattern, macros)


def _with_macro(text: str, name: str, macro: Macro) -> str:
    """Expand a macro that has another meaning, or none, behind a text; lines keep their numbers."""
    call = r"[ \t]*\(" if macro.parameters is not None else ""
    pattern = re.compile(rf"\"(?:[^\"\\\n]|\\.)*\"|(?<![\w#])({re.escape(name)})\b{call}")
    return _with_expansions(text, pattern, {name: macro})


def _with_expansions(text: str, pattern: re.Pattern[str], macros: Mapping[str, Macro]) -> str:
    """Expand the macros that a pattern finds, whose first group is the name; nothing is for none.

    The match of a macro with arguments ends with its parenthesis.
    """
    pieces: list[str] = []
    end = length = 0
    for match in pattern.finditer(text):
        if not match[1] or match.start() < end:
            continue
        macro, stop = macros[match[1]], match.end()
        arguments: list[str] = []
        if macro.parameters is not None:
            arguments, stop = _arguments(text, stop)
        expanded = expand(macro, arguments)
        if expanded is None or length + len(expanded) > MAX_EXPANSIONS:
            continue
        length += len(expanded)
        pieces += [
            text[end : match.start()],
            expanded,
            "\n" * text.count("\n", match.start(), stop),
        ]
        end = stop
    return "".join([*pieces, text[end:]])


def _arguments(text: str, start: int) -> tuple[list[str], int]:
    """The arguments of a macro, from behind its parenthesis, and where the text goes on."""
    depth, found, first = 0, [], start
    for match in _SEPARATOR.finditer(text, start, start + MAX_EXPANSION):
        mark = match[0]
        if depth == 0 and mark in ",)":
            found.append(text[first : match.start()].strip())
            first = match.end()
            if mark == ")":
                break
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
    return found, first


def _read(
    source: str, name: str, headers: Mapping[str, str], result: Preprocessed, seen: set[str]
) -> None:
    kept: list[str] = []
    starts: dict[str, int] = {}  # where in `kept` the macros of this file are defined
    # For each open #if: whether its text counts now, and whether a branch was taken already.
    conditions: list[tuple[bool, bool]] = []
    lines = iter(without_comments(source).split("\n"))
    for line in lines:
        whole, blanks = line, 1
        while whole.endswith("\\") and _DIRECTIVE.match(line):
            whole = whole[:-1] + " " + next(lines, "")
            blanks += 1
        active = all(counts for counts, _ in conditions)
        match = _DIRECTIVE.match(whole)
        if match is None:
            kept.append(line if active else "")
            continue
        kept.extend([""] * blanks)
        word, rest = match[1], match[2].strip()
        if word in ("if", "ifdef", "ifndef"):
            holds = active and _holds(word, rest, result.macros)
            conditions.append((holds, holds))
        elif word in ("elif", "else") and conditions:
            taken = conditions.pop()[1]
            outer = all(counts for counts, _ in conditions)
            holds = outer and not taken and (word == "else" or _holds("if", rest, result.macros))
            conditions.append((holds, taken or holds))
        elif word == "endif" and conditions:
            conditions.pop()
        elif not active:
            continue
        elif word == "define" and (definition := _DEFINE.match(rest)):
            parameters = definition[2]
            listed = None if parameters is None else tuple(map(str.strip, parameters.split(",")))
            _forget_macro(definition[1], kept, starts, result.macros)
            result.macros[definition[1]] = Macro(listed, definition[3].strip())
            starts[definition[1]] = len(kept)
        elif word == "undef":
            _forget_macro(rest, kept, starts, result.macros)
        elif word == "include" and (included := _INCLUDE.match(rest)):
            path = _header_path(included[1], headers)
            if path is not None and path not in seen and len(seen) < MAX_HEADERS:
                seen.add(path)
                _read(headers[path], path, headers, result, seen)
    text = _with_functions("\n".join(kept), result.macros)
    result.texts.append(SourceText(name, text))


def _forget_macro(
    name: str, kept: list[str], starts: dict[str, int], macros: dict[str, Macro]
) -> None:
    """Take back a macro, and expand it, and those that use it, where they stand before."""
    if name in starts:
        names = [name]
        for each in names:  # grows
            word = re.compile(rf"\b{re.escape(each)}\b")
            names += [
                other
                for other in starts
                if other not in names and other in macros and word.search(macros[other].text)
            ]
        for each in reversed(names):
            start = starts[each]
            kept[start:] = _with_macro("\n".join(kept[start:]), each, macros[each]).split("\n")
            starts[each] = len(kept)
    macros.pop(name, None)
    starts.pop(name, None)


def _header_path(name: str, headers: Mapping[str, str]) -> str | None:
    """The header that an #include names: the one whose path ends like it."""
    parts = tuple(part for part in PurePath(name).parts if part not in (".", ".."))
    return next((path for path in headers if PurePath(path).parts[-len(parts) :] == parts), None)


def _holds(word: str, condition: str, macros: Mapping[str, Macro]) -> bool:
    if word != "if":
        name = condition.split(maxsplit=1)[0] if condition else ""
        return (name in macros) == (word == "ifdef")
    return bool(_value(condition, macros))


def _value(condition: str, macros: Mapping[str, Macro]) -> int:
    """The value of a condition after #if; as in C++, unknown names are 0."""
    text = _DEFINED.sub(lambda match: str(int((match[1] or match[2]) in macros)), condition)
    for _ in range(10):  # macros of macros
        expanded = with_names_replaced(text, lambda name: _plain_value(name, macros))
        if expanded is None:
            return 0
        text = expanded
    text = _SUFFIX.sub(r"\1", text).replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        return _number(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def _plain_value(name: str, macros: Mapping[str, Macro]) -> str | None:
    macro = macros.get(name)
    return f"({macro.text or 0})" if macro is not None and macro.parameters is None else None


def _number(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.BoolOp(op=ast.And(), values=parts):
            return int(all(_number(part) for part in parts))
        case ast.BoolOp(values=parts):
            return int(any(_number(part) for part in parts))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _number(operand))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _COMPARISONS:
            return int(_COMPARISONS[type(sign)](_number(left), _number(right)))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            value = _OPERATORS[type(sign)](_number(left), _number(right))
            return (value + 2**63) % 2**64 - 2**63  # intmax_t, as in C++
    return 0
