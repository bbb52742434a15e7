"""What a source has for the host alone, left out where the compiler cannot take it.

NVRTC compiles device code. Told so, it takes plain functions for device functions, as which many
compile, and nvcc lets device code use those that are constexpr. The host's variables, and what
launches a kernel or needs the host's libraries, it refuses: it names the lines, and what stands
there outside of device code is left out. Device code stays as it is: in a file that nvcc accepts no
kernel uses what was left out.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

UNANNOTATED_FUNCTION_MESSAGE = "A function without execution space annotations"
"""What the compiler says of a plain function, unless told the following."""

DEFAULT_DEVICE_OPTION = "-default-device"
"""NVRTC's option by which plain functions are the device's."""

MAX_PASSES = 10
"""What is left out may be used by other host code, of which the compiler then tells."""

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
    f"__{each}__" for each in ("global", "device", "constant", "shared", "managed")
)
_CLASS_KEYWORDS = frozenset({"struct", "class", "union"})
_SCOPE_KEYWORDS = _CLASS_KEYWORDS | {"namespace", "enum"}
_NON_FUNCTION_WORDS = frozenset(
    {"__align__", "alignas", "__attribute__", "decltype", "noexcept", "requires"}
)
"""Words that parentheses follow which are no parameters."""

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
    """A declaration in the making, in the file, a namespace or a class.

    Attributes:
        owner: Where the class begins; None outside classes.
        start: Where the declaration begins; None between two.
        first: Its first token.
        before: Its last token so far, parentheses skipped.
        keywords: Those that say what its braces hold.
        has_parameters: Whether it looks like a function.
    """

    owner: int | None = None
    start: int | None = None
    first: str = ""
    before: str = ""
    keywords: set[str] = field(default_factory=set)
    has_parameters: bool = False

    def clear(self) -> None:
        """Wait for the next declaration."""
        self.start, self.first, self.before = None, "", ""
        self.keywords, self.has_parameters = set(), False


def remove_host_code(
    source: str, source_name: str, log: str, headers: Iterable[str]
) -> tuple[str, tuple[str, ...]]:
    """Leave out what a compiler's log finds fault with, of what is no device code.

    Args:
        source: The CUDA C++ text.
        source_name: Its file name, as in the log.
        log: What the compiler said.
        headers: The texts of the user's headers, in which macros may stand for `__device__`.

    Returns:
        The text with blanks in place of each such declaration, lines as they were, and the first
        error of each; the same text and nothing where there is none.
    """
    said: dict[int, str] = {}
    faults = rf"^{re.escape(source_name)}\((\d+)\): error: (?!{UNANNOTATED_FUNCTION_MESSAGE}).*"
    for error in re.finditer(faults, log, re.M):
        said.setdefault(int(error[1]), error[0])
    if not said:
        return source, ()
    tokens = [
        _Token(each.lastgroup or "", each[0], each.start(), each.end())
        for each in _TOKEN.finditer(source)
    ]
    annotations = _device_annotations([source, *headers])
    breaks = [each.start() for each in re.finditer("\n", source)]
    starts = [each.start for each in tokens]
    declarations = [
        # From the shortest: of a class and its function, the function.
        (bisect_left(breaks, start) + 1, bisect_left(breaks, end) + 1, start, end)
        for start, end in sorted(
            _declaration_spans([each for each in tokens if each.kind in _CODE_TOKEN_KINDS]),
            key=lambda each: each[1] - each[0],
        )
    ]
    left_out: dict[tuple[int, int], str] = {}
    for line in sorted(said):
        for first, last, start, end in declarations:
            if not first <= line <= last:
                continue
            inside = tokens[bisect_left(starts, start) : bisect_left(starts, end)]
            if annotations.isdisjoint(each.text for each in inside):
                left_out.setdefault((start, end), said[line])
                break
    characters = list(source)
    for start, end in left_out:
        for each in tokens[bisect_left(starts, start) : bisect_left(starts, end)]:
            if each.kind != "directive":  # the #else of an #if before it
                characters[each.start : each.end] = re.sub(r"[^\n]", " ", each.text)
    return "".join(characters), tuple(left_out.values())


def _device_annotations(texts: Sequence[str]) -> frozenset[str]:
    """The words that make device code, with the macros that stand for them."""
    macros = [
        (name, set(re.findall(r"\w+", body)))
        for text in texts
        for name, body in _DEFINITION.findall(text)
    ]
    found = set(_DEVICE_ANNOTATIONS)
    for _ in range(MAX_PASSES):  # macros of macros
        more = {name for name, body in macros if not found.isdisjoint(body)}
        if more <= found:
            break
        found |= more
    return frozenset(found)


def _declaration_spans(tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Where declarations begin and end that could be left out as a whole.

    Those in the file and its namespaces, and functions defined in classes: without one of its
    variables a class would have another layout.
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
                return  # more of them than were opened: an #if hides some
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
            if is_body and after not in ("{", ","):  # else the braces of a constructor's members
                yield scope.start, tokens[end].end
                scope.clear()


def _opens_scope(scope: _DeclarationScope, before: str) -> bool:
    """Whether a brace opens a namespace, a class or `extern "C"`."""
    if scope.has_parameters or before == "=" or "enum" in scope.keywords:
        return False
    return bool(scope.keywords) or (scope.first == "extern" and before.startswith('"'))


def _matching_brackets(tokens: Sequence[_Token]) -> dict[int, int]:
    """For each opening bracket the place of the closing one."""
    partner: dict[int, int] = {}
    open_ones: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _CLOSING_BRACKETS:
            open_ones.append(index)
        elif token.text in _CLOSING_BRACKETS.values():
            if not open_ones or _CLOSING_BRACKETS[tokens[open_ones[-1]].text] != token.text:
                break
            partner[open_ones.pop()] = index
    return partner
