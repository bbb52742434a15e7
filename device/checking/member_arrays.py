"""Makes subscripts of array members of structures pass their index on, in a copy of the source.

Compiled code shows an address, but not which member a subscript was of. In the copy, an array
member `float a[32];` is a class with the same layout, whose subscript names member and index by an
instruction that changes nothing (`emulator/checks/member_bounds.py`). A member that becomes a
pointer first, as in `float *p = tile.a`, is not followed: people step through whole structures so.
Neither is a member of one element, which may stand for as many as follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_MEMBERS = 256  # numbers that an instruction can name

_NOT_CODE = re.compile(
    r"""//(?:[^\\\n]|\\.)*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'"""
    r"""|^[ \t]*\#(?:[^\\\n]|\\.)*""",
    re.S | re.M,
)
_KEYWORD = re.compile(r"\b(?:struct|class|union)\b")
_STRUCTURE = re.compile(rf"{_KEYWORD.pattern}([^;{{}}()=<>]*)\{{")
_DECLARATOR = r"\w+[ \t]*\[[^\[\]{};]+\](?:[ \t]*\[[^\[\]{};]+\])?"
_MEMBERS = re.compile(
    rf"(?<![\w:])(?P<type>(?:[A-Za-z_][\w:]*\s+)*[A-Za-z_][\w:]*)\s+(?P<names>{_DECLARATOR}"
    rf"(?:\s*,\s*{_DECLARATOR})*)\s*;"
)
_BRACE = re.compile(r"[{}]")
_NAME = re.compile(r"(\w+)\s*\[([^\[\]]+)\](?:\s*\[([^\[\]]+)\])?")
_NO_TYPE = frozenset(
    re.findall(
        r"\w+",
        "static extern using typedef friend return mutable constexpr inline delete goto new "
        "struct class union enum __shared__ __device__ __constant__ __managed__",
    )
)
"""Words of declarations that are not rewritten."""

_CLASSES = """
namespace memlab_checked {
template <class T, int ID>
__device__ inline T *place(T *items, long long index, long long elements) {
  unsigned long long to, from = (unsigned long long)items + index * (long long)sizeof(T);
  if (elements < 2 || elements >> 20 || sizeof(T) >> 12) return (T *)from;
  long long least = -0x80000000ll, most = 0x7fffffff;
  long long narrow = index < least ? least : index > most ? most : index;
  asm("bfi.b64 %0, %1, %2, %3, 0;"
      : "=l"(to)
      : "l"((unsigned long long)sizeof(T) << 52 | elements << 32 | (unsigned)narrow), "l"(from),
        "n"(ID));
  return (T *)to;
}
template <class T, long long N, int ID> struct array {
  T items[N];
  template <class I> __device__ T &operator[](I i) { return *place<T, ID>(items, i, N); }
  template <class I> __device__ const T &operator[](I i) const {
    return *place<const T, ID>(items, i, N);
  }
  __device__ operator T *() { return items; }
  __device__ operator const T *() const { return items; }
};
template <class T, long long C, int ID> struct row {
  T *items;
  long long first, elements;
  template <class I> __device__ T &operator[](I i) {
    return *place<T, ID>(items, first + (long long)i, elements);
  }
  __device__ operator T *() { return items + first; }
};
template <class T, long long R, long long C, int ID> struct table {
  T items[R][C];
  template <class I> __device__ row<T, C, ID> operator[](I i) {
    return {&items[0][0], (long long)i * C, R * C};
  }
  template <class I> __device__ row<const T, C, ID> operator[](I i) const {
    return {&items[0][0], (long long)i * C, R * C};
  }
};
}
"""


@dataclass(frozen=True)
class ArrayMember:
    """An array member of a structure.

    Attributes:
        structure: The structure's name; empty if it has none.
        name: The member's name.
    """

    structure: str
    name: str


def with_checked_members(source: str, source_name: str) -> tuple[str, list[ArrayMember]]:
    """The source with array members whose subscripts pass their index on, and these members.

    The lines keep their numbers. A declaration that is not of the plain form `TYPE name[N], ...;`
    stays as it is.
    """
    members: list[ArrayMember] = []
    if not _KEYWORD.search(source):
        return source, members
    code = _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    parts, end = [], 0
    for structure, start, stop in sorted(_own_code(code), key=lambda own: own[1]):
        for found in _MEMBERS.finditer(code, start, stop):
            names = list(_NAME.finditer(found["names"]))
            words = set(found["type"].split())
            if words & _NO_TYPE or len(members) + len(names) > MAX_MEMBERS:
                continue
            text = ""
            for name in names:
                text += _declaration(found["type"], name, len(members))
                members.append(ArrayMember(structure, name[1]))
            parts += [source[end : found.start()], text, "\n" * found[0].count("\n")]
            end = found.end()
    head = f'{_CLASSES}#line 1 "{source_name}"\n'
    return head + "".join(parts) + source[end:], members


def _declaration(element_type: str, name: re.Match[str], number: int) -> str:
    """The declaration of a member as an array or a table that names its subscripts."""
    element = " ".join(element_type.split())
    kind, sizes = "array", f"({name[2].strip()})"
    if name[3]:
        kind, sizes = "table", f"{sizes}, ({name[3].strip()})"
    return f"::memlab_checked::{kind}<{element}, {sizes}, {number}> {name[1]}; "


def _own_code(code: str) -> Iterator[tuple[str, int, int]]:
    """Where declarations of members may lie: name of the structure, start and end.

    Code in nested braces is left out: functions, and structures, which come by themselves.
    """
    for found in _STRUCTURE.finditer(code):
        words = re.findall(r"\w+", found[1].partition(":")[0])
        name, depth, start = words[-1] if words else "", 1, found.end()
        for mark in _BRACE.finditer(code, found.end()):
            closes = mark[0] == "}"
            if depth == 1:
                yield name, start, mark.start()
            depth += -1 if closes else 1
            start = mark.end()
            if depth == 0:
                break
