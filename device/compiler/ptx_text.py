"""What the text of a PTX file declares: its modules, kernels, parameters and shared memory.

The file may come from any compiler, and its instructions are not looked at: a GPU executes what
the emulator does not know. The grammar is that of NVIDIA's *PTX ISA*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.device.compiler.translation_unit import Architecture

_COMMENT_OR_STRING = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_DUMP_HEAD = re.compile(r"^Fatbin \w+ code:\n=+\n(?:[^\n]+\n)*", re.M)
_VERSION = re.compile(r"^[ \t]*\.version[ \t]+(\d{1,4})\.(\d{1,4})\b", re.M)
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+sm_(\d{1,4})([af]?)\b", re.M)
_TARGET_NAME = re.compile(r"sm_(\d{1,4})([af]?)")
_ADDRESS_SIZE = re.compile(r"^[ \t]*\.address_size[ \t]+(\d{1,4})\b", re.M)
_HEADER = re.compile(
    r"\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$%]+)\s*(?:\(([^)]*)\))?([^;{}]*)([;{])"
)
_PARAMETER = re.compile(
    r"\s*\.param\s+(?:\.align\s+(\d{1,4})\s+)?\.(\w+)\s+"
    r"(\.ptr\s+(?:\.(?:global|const|shared|local|param)\s+)?(?:\.align\s+\d+\s+)?)?"
    r"([\w$%]+)\s*(?:\[\s*(\d{1,9})\s*\])?\s*"
)
_VARIABLE = re.compile(
    r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(shared|const|global)\s+"
    r"(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+\d+\s+)?(?:\.v([24])\s+)?\.(\w+)\s+"
    r"([\w$%]+)\s*((?:\[\s*\d*\s*\]\s*)*)(=?)"
)
_BITS = re.compile(r"(?:[busf]|bf)(8|16|32|64|128)")
_BLOCK = re.compile(r"\.(maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_CLUSTER = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_GRID_WORKSPACE = re.compile(r"\bmov\.[bu]32\s+(%\w+),\s*%envreg[12]\b")
"""A read of the address of a `grid_workspace`, which only a cooperative launch has."""
_BRACE, _WORD = re.compile(r"[{}]"), re.compile(r"[\w$%]+")
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"\n]*)"', re.M)
_PLACE = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d{1,9})", re.M)


@dataclass(frozen=True)
class PtxTarget:
    """The architecture that a module is made for.

    Attributes:
        number: The compute capability times ten: 90 for `sm_90`.
        suffix: `a` for one architecture only, `f` for its family, or empty.
    """

    number: int
    suffix: str

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def runs_as_ptx(self, architecture: Architecture) -> bool:
        """Whether a GPU of an architecture takes PTX for this one: the same, or a later one."""
        number = 10 * architecture[0] + architecture[1]
        is_family = number // 10 == self.number // 10 and number >= self.number
        return {"": number >= self.number, "a": number == self.number, "f": is_family}[self.suffix]

    def runs_as_machine_code(self, architecture: Architecture) -> bool:
        """Whether a GPU of an architecture executes machine code for this one: of its major."""
        number = 10 * architecture[0] + architecture[1]
        if self.suffix == "a":
            return number == self.number
        return number // 10 == self.number // 10 and number >= self.number


@dataclass(frozen=True)
class PtxParameter:
    """A parameter of a kernel.

    Attributes:
        name: Its name.
        type: Its type without the dot, `u64`; that of an element, if it is an array.
        nbytes: Its size, bytes; 0 for a type without one, such as a texture reference.
        alignment_bytes: The alignment of its offset, bytes.
        is_pointer: Whether it is declared a pointer, by `.ptr`.
        is_array: Whether it is an array, as structures are passed.
    """

    name: str
    type: str
    nbytes: int
    alignment_bytes: int
    is_pointer: bool
    is_array: bool


@dataclass(frozen=True)
class PtxFunction:
    """A kernel, or a function with a body.

    Attributes:
        name: Its name.
        is_kernel: Whether it is an `.entry`.
        parameters: The text of its parameters.
        directives: The text between the parameters and the body, such as `.maxntid 256`.
        body: The text of its body.
        line: The line of its header, from 1.
    """

    name: str
    is_kernel: bool
    parameters: str
    directives: str
    body: str
    line: int


@dataclass(frozen=True)
class PtxVariable:
    """A variable in shared, constant or global memory.

    Attributes:
        name: Its name.
        space: `shared`, `const` or `global`.
        type: The type of an element without the dot.
        shape: Elements in each dimension; empty for a single one.
        nbytes: Bytes of all elements.
        is_extern: Whether another module defines it, or the launch its size.
        is_initialized: Whether it has initial values.
    """

    name: str
    space: str
    type: str
    shape: tuple[int, ...]
    nbytes: int
    is_extern: bool
    is_initialized: bool


def is_ptx(text: str) -> bool:
    """Whether a text has the directive with which PTX begins."""
    return _VERSION.search(without_comments(text)) is not None


def split_modules(text: str) -> list[str]:
    """The modules of a file, each from its `.version` on; what cuobjdump prints is left out.

    The first module begins with the file: its lines are the file's.
    """
    text = _DUMP_HEAD.sub(_line_ends, text)
    code = without_comments(text)
    starts = [found.start() for found in _VERSION.finditer(code)]
    if not starts:
        return []
    if code[: starts[0]].strip():  # no comment, and no PTX
        text = _line_ends(text[: starts[0]]) + text[starts[0] :]
        return split_modules(text)
    return [text[start:end] for start, end in pairwise([0, *starts[1:], len(text)])]


def _line_ends(found: str | re.Match[str]) -> str:
    text = found if isinstance(found, str) else found[0]
    return "\n" * text.count("\n")


def version(ptx: str) -> tuple[int, int] | None:
    """The version of the PTX ISA that a module declares; None if it declares none."""
    found = _VERSION.search(without_comments(ptx))
    return (int(found[1]), int(found[2])) if found else None


def target(ptx: str) -> PtxTarget | None:
    """The architecture that a module is made for; None if it declares none."""
    found = _TARGET.search(without_comments(ptx))
    return PtxTarget(int(found[1]), found[2]) if found else None


def read_target(name: str) -> PtxTarget:
    """An architecture by its name, such as `sm_90a`.

    Raises:
        ValueError: It is no such name.
    """
    found = _TARGET_NAME.fullmatch(name)
    if found is None:
        raise ValueError(name)
    return PtxTarget(int(found[1]), found[2])


def address_bits(ptx: str) -> int | None:
    """The size of a module's addresses, bits; None if it declares none."""
    found = _ADDRESS_SIZE.search(without_comments(ptx))
    return int(found[1]) if found else None


@lru_cache(maxsize=8)
def without_comments(ptx: str) -> str:
    """The text with blanks in place of comments: positions and lines stay the same."""

    def blank(found: re.Match[str]) -> str:
        text = found[0]
        return text if text[0] == '"' else re.sub(r"[^\n]", " ", text)

    return _COMMENT_OR_STRING.sub(blank, ptx)


@lru_cache(maxsize=8)
def functions(ptx: str) -> Mapping[str, PtxFunction]:
    """The kernels and functions that have a body, by name, in the order of the text."""
    text = without_comments(ptx)
    found = {}
    position, line, counted = 0, 1, 0
    while header := _HEADER.search(text, position):
        position = header.end()
        line += text.count("\n", counted, header.start())
        counted = header.start()
        if header[5] != "{":
            continue  # a declaration
        end = _end_of_body(text, position)
        found[header[2]] = PtxFunction(
            header[2],
            header[1] == "entry",
            header[3] or "",
            header[4],
            text[position:end],
            line,
        )
        position = end
    return found


def kernels(ptx: str) -> Mapping[str, PtxFunction]:
    """The kernels of a module, by name, in the order of the text."""
    return {name: each for name, each in functions(ptx).items() if each.is_kernel}


def parameters(kernel: PtxFunction) -> tuple[PtxParameter, ...]:
    """The parameters of a kernel.

    Raises:
        ValueError: A declaration cannot be read; the message quotes it.
    """
    found = []
    for text in kernel.parameters.split(",") if kernel.parameters.strip() else ():
        match = _PARAMETER.fullmatch(text)
        if match is None:
            raise ValueError(" ".join(text.split())[:60])
        align, kind, pointer, name, extent = match.groups()
        element = _type_bytes(kind)
        found.append(
            PtxParameter(
                name,
                kind,
                element * int(extent or 1),
                int(align or 0) or element or 1,
                pointer is not None,
                extent is not None,
            )
        )
    return tuple(found)


@lru_cache(maxsize=8)
def variables(ptx: str) -> tuple[PtxVariable, ...]:
    """The variables of a module, with the shared variables in its functions."""
    found = []
    for linking, space, vector, kind, name, extents, equals in _VARIABLE.findall(
        without_comments(ptx)
    ):
        shape = tuple(int(extent or 0) for extent in re.findall(r"\[\s*(\d*)\s*\]", extents))
        shape += (int(vector),) if vector else ()
        found.append(
            PtxVariable(
                name,
                space,
                kind,
                shape,
                prod(shape) * _type_bytes(kind),
                "extern" in linking,
                bool(equals),
            )
        )
    return tuple(found)


@lru_cache(maxsize=32)
def reachable_names(ptx: str, entry: str) -> frozenset[str]:
    """The names in the code of a kernel and of the functions that it calls, at any depth."""
    known = functions(ptx)
    found: frozenset[str] = frozenset()
    waiting = frozenset((entry,))
    while waiting:
        named = frozenset[str]().union(
            *(_WORD.findall(known[name].body) for name in waiting if name in known)
        )
        waiting = named - found
        found |= named
    return found


def waits_for_grid(ptx: str, entry: str) -> bool:
    """Whether a kernel's blocks wait for all blocks of the grid, as by `this_grid().sync()`.

    `this_grid()` reads the barrier's address in any case, and only a barrier uses it.
    """
    known = functions(ptx)
    names = reachable_names(ptx, entry) | {entry}
    bodies = [known[name].body for name in names if name in known]
    return any(
        len(re.findall(rf"{register}\b", body)) > 1
        for body in bodies
        for register in _GRID_WORKSPACE.findall(body)
    )


def static_shared_bytes(ptx: str, entry: str) -> int:
    """The bytes of the shared variables of fixed size that a kernel uses."""
    used = reachable_names(ptx, entry)
    return sum(
        each.nbytes for each in variables(ptx) if each.space == "shared" and each.name in used
    )


def block_limits(kernel: PtxFunction) -> tuple[int, tuple[int, int, int] | None]:
    """The most threads of a block, 0 if not declared; and its extents, None if not declared."""
    most, demanded = 0, None
    for which, *extents in _BLOCK.findall(kernel.directives):
        x, y, z = (int(extent or 1) for extent in extents)
        if which == "reqntid":
            demanded = (x, y, z)
        most = x * y * z
    return most, demanded


def cluster_extents(kernel: PtxFunction) -> tuple[int, int, int] | None:
    """The blocks of a cluster in x, y and z that a kernel demands; None if it demands none."""
    found = _CLUSTER.search(kernel.directives)
    if found is None:
        return None
    x, y, z = (int(extent or 1) for extent in found.groups())
    return x, y, z


def source_lines(ptx: str, entry: str) -> tuple[str, int]:
    """The file that the lines of a kernel refer to, and the last of these lines.

    Returns:
        The file's name as the compiler wrote it, and the greatest line; an empty name where the
        module names no file.
    """
    kernel = kernels(ptx).get(entry)
    places = _PLACE.findall(kernel.body) if kernel else []
    if not places:
        return "", 0
    number = places[0][0]  # an inlined function of a header has another
    names = dict(_FILE.findall(without_comments(ptx)))
    return names.get(number, ""), max(int(line) for file, line in places if file == number)


def _end_of_body(text: str, position: int) -> int:
    """The position of the brace that ends a body; the text's end where there is none."""
    depth = 1
    for brace in _brace_positions(text, position):
        depth += 1 if text[brace] == "{" else -1
        if depth == 0:
            return brace
    return len(text)


def _brace_positions(text: str, position: int) -> Iterator[int]:
    return (found.start() for found in _BRACE.finditer(text, position))


def _type_bytes(kind: str) -> int:
    bits = _BITS.fullmatch(kind)
    return int(bits[1]) // 8 if bits else 0
