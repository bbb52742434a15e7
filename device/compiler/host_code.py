"""Removes host code that NVRTC refuses from a source.

NVRTC compiles device code only. With an option, it takes plain functions for device functions; many
of them compile, and nvcc too lets device code use constexpr functions. NVRTC refuses host
variables, kernel launches and uses of the host's libraries. It names their lines, and the
declarations there are replaced by blanks unless they hold device code. Device code is never
changed: in a file that nvcc accepts, no kernel uses the removed code.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from memlab.device.compiler.headers import HOST_HEADERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

UNANNOTATED_FUNCTION_MESSAGE = "A function without execution space annotations"
"""NVRTC's message about a plain function without the option below."""

_MATH_MESSAGE = r'identifier "(INFINITY|NAN|HUGE_VALF?|M_\w+)" is undefined'

_REMEDIES = {
    UNANNOTATED_FUNCTION_MESSAGE: "-default-device",
    # nvcc includes <math.h> in each source.
    _MATH_MESSAGE: f"--pre-include={HOST_HEADERS / 'math.h'}",
}
"""NVRTC's options, by the patterns of the messages that ask for them; the first makes plain
functions device functions."""

_STD_MESSAGE = r'"std" has no member "{}"'
_STD_MEMBER = re.compile(
    r"^using (?:cuda::std)?::(\w+);|^__host__ __device__ constexpr [\w& ]+?(\w+)\(", re.M
)

MAX_PASSES = 40
"""Compilations at most: other host code may use the removed code, which the next pass reports. Of
names before `::` that are unknown, the compilers report one at a time."""

_TOKEN = re.compile(
    r"""(?P<comment>//(?:[^\\\n]|\\.)*+|/\*.*?(?:\*/|\Z))
    |(?P<directive>^[ \t]*+\#(?:[^\\\n/]|\\.|/(?!\*)|/\*.*?(?:\*/|\Z))*+)
    |(?P<string>R"(?P<end>[^\s()\\]{0,16})\(.*?(?:\)(?P=end)"|\Z)|"(?:[^"\\\n]|\\.)*+"?
        |'(?:[^'\\\n]|\\.)*+'?)
    |(?P<word>[A-Za-z_]\w*+)
    |(?P<number>\d(?:[\w.]|'\w)*+)
    |(?P<mark>[^\s\w])""",
    re.S | re.M | re.X,
)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\\\n]|\\\r?\n|\\.)*)", re.M)
_CODE_TOKEN_KINDS = frozenset({"string", "word", "number", "mark"})
_DEVICE_ANNOTATIONS = frozenset(
    f"__{name}__" for name in ("global", "device", "constant", "shared", "managed")
)
_CLASS_KEYWORDS = frozenset({"struct", "class", "union"})
_SCOPE_KEYWORDS = _CLASS_KEYWORDS | {"namespace", "enum"}
_NON_FUNCTION_WORDS = frozenset(
    {"__align__", "alignas", "__attribute__", "decltype", "noexcept", "requires"}
)
"""Words before parentheses that hold no parameters."""

_ACCESS_SPECIFIERS = frozenset({"public", "private", "protected"})
_CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


@dataclass(slots=True)
class _DeclarationScope:
    """A declaration while it is read, in the file, a namespace or a class.

    Attributes:
        owner: The start of the class; None outside classes.
        start: The start of the declaration; None between two declarations.
        first: The first token of the declaration.
        before: Its last token so far, without parentheses.
        keywords: The keywords that tell what its braces hold.
        has_parameters: Whether it looks like a function.
    """

    owner: int | None = None
    start: int | None = None
    first: str = ""
    before: str = ""
    keywords: set[str] = field(default_factory=set)
    has_parameters: bool = False

    def clear(self) -> None:
        """Prepare for the next declaration."""
        self.start, self.first, self.before = None, "", ""
        self.keywords, self.has_parameters = set(), False


def remedies(log: str) -> dict[str, str]:
    """NVRTC's options that a log asks for, by the pattern of the message that asks for each.

    The headers of the host's C++ library include each other, so that a source may use
    `std::enable_if` where it includes <algorithm>. The header that declares it is included then.
    """
    found = {pattern: option for pattern, option in _REMEDIES.items() if re.search(pattern, log)}
    for name in dict.fromkeys(re.findall(_STD_MESSAGE.format(r"(\w+)"), log)):
        header = _std_headers().get(name)
        if header is not None:
            found[_STD_MESSAGE.format(name)] = f"--pre-include={header}"
    return found


@cache
def _std_headers() -> dict[str, Path]:
    """The headers in `HOST_HEADERS` by what they declare in the namespace std."""
    found: dict[str, Path] = {}
    for path in sorted(each for each in HOST_HEADERS.iterdir() if each.is_file()):
        for names in _STD_MEMBER.findall(path.read_text("utf-8")):
            found.setdefault("".join(names), path)
    return found


def remove_host_code(
    source: str,
    source_name: str,
    log: str,
    headers: Iterable[str],
    remedied: Collection[str] = (),
) -> tuple[str, tuple[str, ...]]:
    """Blank out the declarations in which a compiler's log reports errors, except device code.

    Args:
        source: The CUDA C++ text.
        source_name: Its file name, as in the log.
        log: The compiler's log.
        headers: The texts of the user's headers, whose macros may stand for `__device__`.
        remedied: The patterns of errors that the compiler will not report again; in their lines
            other errors may follow from them.

    Returns:
        The text with blanks in place of these declarations, with unchanged lines, and the first
        error of each declaration; the same text and an empty tuple if there is none.
    """
    errors: dict[int, str] = {}
    pattern = rf"^{re.escape(source_name)}\((\d+)\): error: (?!{UNANNOTATED_FUNCTION_MESSAGE}).*"
    for error in re.finditer(pattern, log, re.M):
        errors.setdefault(int(error[1]), error[0])
    waiting = "|".join(remedied)
    if waiting:
        errors = {line: text for line, text in errors.items() if not re.search(waiting, text)}
    if not errors:
        return source, ()
    tokens = [
        _Token(match.lastgroup or "", match[0], match.start(), match.end())
        for match in _TOKEN.finditer(source)
    ]
    annotations = _device_annotations([source, *headers])
    breaks = [match.start() for match in re.finditer("\n", source)]
    starts = [token.start for token in tokens]
    code = [token for token in tokens if token.kind in _CODE_TOKEN_KINDS]
    # Shortest first: of a class and its function, the function is removed.
    spans = sorted(_declaration_spans(code), key=lambda span: span[1] - span[0])
    declarations = [
        (bisect_left(breaks, start) + 1, bisect_left(breaks, end) + 1, start, end)
        for start, end in spans
    ]
    removed: dict[tuple[int, int], str] = {}
    for line in sorted(errors):
        for first, last, start, end in declarations:
            if not first <= line <= last:
                continue
            inside = tokens[bisect_left(starts, start) : bisect_left(starts, end)]
            if annotations.isdisjoint(token.text for token in inside):
                removed.setdefault((start, end), errors[line])
                break
    characters = list(source)
    for start, end in removed:
        for token in tokens[bisect_left(starts, start) : bisect_left(starts, end)]:
            if token.kind != "directive":  # it may be the #else of an #if before the declaration
                characters[token.start : token.end] = re.sub(r"[^\n]", " ", token.text)
    return "".join(characters), tuple(removed.values())


def _device_annotations(texts: Sequence[str]) -> frozenset[str]:
    """The words that mark device code, and the macros that stand for them."""
    macros = [
        (name, set(re.findall(r"\w+", body)))
        for text in texts
        for name, body in _DEFINITION.findall(text)
    ]
    annotations = set(_DEVICE_ANNOTATIONS)
    for _ in range(MAX_PASSES):  # macros of macros
        more = {name for name, body in macros if not annotations.isdisjoint(body)}
        if more <= annotations:
            break
        annotations |= more
    return frozenset(annotations)


def _declaration_spans(tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """The start and end of declarations that can be removed as a whole.

    These are the declarations of the file and its namespaces, and functions defined in classes. A
    class without one of its variables would have another layout.
    """
    partner = _matching_brackets(tokens)
    scopes = [_DeclarationScope()]
    index = 0
    while index < len(tokens):
        token, scope = tokens[index], scopes[-1]
        following = tokens[index + 1].text if index + 1 < len(tokens) else ""
        index += 1
        if token.text == "}":
            if len(scopes) == 1:
                return  # unbalanced: an #if hides some
            scopes.pop()
            if scope.owner is None:
                scopes[-1].clear()
            continue
        if scope.start is None:
            if token.text == ";":
                continue
            if token.text in _ACCESS_SPECIFIERS and following == ":":
                index += 1
                continue
            scope.start, scope.first = token.start, token.text
        before, scope.before = scope.before, token.text
        if token.text in _SCOPE_KEYWORDS:
            scope.keywords.add(token.text)
        if token.text == ";":
            if scope.owner is None and scope.first != "static_assert":
                yield scope.start, token.end
            scope.clear()
        elif token.text in _CLOSING_BRACKETS:
            end = partner.get(index - 1)
            if end is None:
                return
            if token.text == "(":
                names = re.fullmatch(r"\w+|\W", before) and before not in _NON_FUNCTION_WORDS
                scope.has_parameters |= bool(names) and before not in ("", "<", ",", "=")
            elif token.text == "{" and _opens_scope(scope, before):
                is_class = not _CLASS_KEYWORDS.isdisjoint(scope.keywords)
                scopes.append(_DeclarationScope(owner=scope.start if is_class else None))
                continue
            index = end + 1
            after = tokens[index].text if index < len(tokens) else ""
            is_body = token.text == "{" and scope.has_parameters and before != "="
            if is_body and after not in ("{", ","):  # otherwise a constructor's initializers
                yield scope.start, tokens[end].end
                scope.clear()


def _opens_scope(scope: _DeclarationScope, before: str) -> bool:
    """Whether a brace opens a namespace, a class or `extern "C"`."""
    if scope.has_parameters or before == "=" or "enum" in scope.keywords:
        return False
    return bool(scope.keywords) or (scope.first == "extern" and before.startswith('"'))


def _matching_brackets(tokens: Sequence[_Token]) -> dict[int, int]:
    """The index of the closing bracket, by the index of the opening one."""
    partner: dict[int, int] = {}
    unclosed: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _CLOSING_BRACKETS:
            unclosed.append(index)
        elif token.text in _CLOSING_BRACKETS.values():
            if not unclosed or _CLOSING_BRACKETS[tokens[unclosed[-1]].text] != token.text:
                break
            partner[unclosed.pop()] = index
    return partner
