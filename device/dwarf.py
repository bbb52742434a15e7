"""The debugger's information (DWARF) in a cubin: the kernels and variables as the source has them.

Tags, attributes and encodings are those of the DWARF standard, version 2, section 7; the address
classes are NVIDIA's (PTX Writer's Guide to Interoperability, Debug Information).
"""

from __future__ import annotations

import itertools
import os
import re
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from elftools.elf.elffile import ELFFile

from memlab.device.cubin import launch_bounds
from memlab.device.headers import package_folders
from memlab.errors import UsageError
from memlab.kernels.signature import KernelParameter, ModuleVariable, Part, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

Die: TypeAlias = Any
"""A debugging information entry of pyelftools, which carries no types."""

POINTER_BYTES = 8

_SPACES: dict[int, Literal["const", "global"]] = {4: "const", 5: "global"}  # 8 is shared memory.
_QUALIFIERS = {"const_type": "const", "volatile_type": "volatile", "restrict_type": "__restrict__"}
_POINTERS = ("pointer_type", "reference_type", "rvalue_reference_type")
_STRUCTURES = ("structure_type", "class_type", "union_type")
_BOOLEAN, _FLOAT = 2, 4
_SIGNED = (5, 6)  # signed, signed_char
_UNSIGNED = (7, 8, 16)  # unsigned, unsigned_char, UTF
_HALVES = {"__half": "f16", "__nv_bfloat16": "bf16"}

_LENGTH = re.compile(r"L?(\d{1,9})")  # An L marks what other files cannot see.
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+))?")


@dataclass(frozen=True)
class Layout:
    """How a variable is divided into elements.

    Attributes:
        shape: Elements in each dimension, row-major; the first is 0 where it is sized at launch.
            Empty for a member that is no array.
        element_bytes: Bytes of one element.
        members: What an element holds where it is a structure. Neither this nor the type is
            compared: namesakes are told apart by their sizes.
        dtype: The short name of the elements' type, where it is a number's.
    """

    shape: tuple[int, ...]
    element_bytes: int
    members: tuple[Member, ...] = field(default=(), compare=False, repr=False)
    dtype: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.element_bytes

    def filling(self, size: int) -> Layout | None:
        """The layout with as many rows as so many bytes hold; None where it has other bytes."""
        row = prod(self.shape[1:]) * self.element_bytes
        if not row or size % row or self.shape[0] not in (0, size // row):
            return None
        return replace(self, shape=(size // row, *self.shape[1:]))


@dataclass(frozen=True)
class Member:
    """A member of a structure.

    Attributes:
        name: Its name; empty for a base class, or a structure or union that has none.
        start: Its first byte in the structure.
        layout: How it is divided itself.
    """

    name: str
    start: int
    layout: Layout


def read(ptx: str, cubin: bytes) -> tuple[Signature, ...]:
    """Read what the kernels of a source take, in its order.

    Args:
        ptx: The PTX, which tells kernels from other functions.
        cubin: The machine code of the same compilation, with debug information (`-G`).

    Raises:
        UsageError: Types or blocks lie too deep in one another.
    """
    entries = dict(_entries(ptx))
    with _within_reach():
        top = _top(cubin)
        variables = tuple(_variable(die) for die in top if _can_be_filled(die))
        return tuple(
            Signature(
                _qualified_name(die),
                name,
                _parameters(die, entries[name]),
                variables,
                bounds=launch_bounds(cubin, name),
            )
            for die in top
            if die.tag == "DW_TAG_subprogram" and (name := _linkage_name(die)) in entries
        )


def _entries(ptx: str) -> Iterator[tuple[str, list[int]]]:
    """The kernels, each with the alignment of its parameters, bytes, where PTX tells it; else 1."""
    for match in _ENTRY.finditer(ptx):
        listed = ptx[match.end() : ptx.find(")", match.end())]
        yield match[1], [int(each or 1) for each in _PARAMETER.findall(listed)]


def layouts(cubin: bytes) -> dict[str, tuple[Layout, ...]]:
    """Read how variables are divided into elements; what is no array is one of one element.

    Args:
        cubin: Machine code with debug information (`-G`).

    Returns:
        By symbol; of a function's variables, by that which a `static` one would have (Itanium C++
        ABI, section 5.1.6), the layouts of all that share a name there.

    Raises:
        UsageError: As of `read`.
    """
    found = defaultdict(list)
    with _within_reach():
        for die in _top(cubin):
            if die.tag == "DW_TAG_variable":
                found[_linkage_name(die)].append(_type(die))
            elif die.tag == "DW_TAG_subprogram":
                function = _linkage_name(die)
                scope = function[1:] if function.startswith("_Z") else f"Z{len(function)}{function}"
                for variable in _inside(die):
                    name = _text(variable, "name")
                    found[f"_Z{scope}E{len(name)}{name}"].append(_type(variable))
        return {
            symbol: tuple(layout for kind in kinds if (layout := _layout(kind)))
            for symbol, kinds in found.items()
        }


@contextmanager
def _within_reach() -> Iterator[None]:
    """Turn too deep a nesting, where pyelftools follows it or this module, into an error."""
    try:
        yield
    except RecursionError:
        message = "the source has blocks or types too deep in one another to follow: nest them less"
        raise UsageError(message) from None


def _top(cubin: bytes) -> list[Die]:
    """What the source declares outside functions, and they."""
    # Relocations would give addresses, which are not asked for, and pyelftools has not all kinds.
    dwarf = ELFFile(BytesIO(cubin)).get_dwarf_info(relocate_dwarf_sections=False)
    return [die for unit in dwarf.iter_CUs() for die in _of_the_source(dwarf, unit)]


def _inside(function: Die) -> Iterator[Die]:
    """A function's variables, in its blocks too."""
    waiting = [function]
    while waiting:
        for die in waiting.pop().iter_children():
            if die.tag == "DW_TAG_variable":
                yield die
            elif die.tag == "DW_TAG_lexical_block":
                waiting.append(die)


def _layout(kind: Die) -> Layout | None:
    element, _ = _element(kind)
    if not (nbytes := _nbytes(element)):
        return None
    return Layout(_shape(kind) or (1,), nbytes, _members(element, {}), _dtype(element))


def _members(whole: Die, known: dict[int, tuple[Member, ...]]) -> tuple[Member, ...]:
    """The members of a structure; none of another type. Each structure is read once."""
    if _tag(whole) not in _STRUCTURES or _dtype(whole):
        return ()
    if whole.offset not in known:
        known[whole.offset] = tuple(
            Member(
                _text(child, "name"),
                _start(child),
                Layout(
                    _shape(_type(child)),
                    _nbytes(element),
                    _members(element, known),
                    _dtype(element),
                ),
            )
            for child in whole.iter_children()
            if child.tag in ("DW_TAG_member", "DW_TAG_inheritance")
            and not _value(child, "external")  # what is static lies elsewhere
            for element, _ in [_element(_type(child))]
        )
    return known[whole.offset]


def _start(member: Die) -> int:
    """The first byte of a member in its structure; in a union all start at 0."""
    found = _value(member, "data_member_location")
    if isinstance(found, list):  # DW_OP_plus_uconst, and a number of seven bits a byte
        found = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[1:]))
    return found or 0


def _of_the_source(dwarf: Any, unit: Any) -> Iterator[Die]:
    """What a unit declares, but for the variables of CUDA's headers, hundreds of constants."""
    packages = package_folders()
    lines = dwarf.line_program_for_CU(unit).header
    folders = [os.fsdecode(folder) for folder in lines.include_directory]
    theirs = {
        number
        for number, file in enumerate(lines.file_entry, 1)
        if file.dir_index and folders[file.dir_index - 1].startswith(packages)
    }
    for die in unit.get_top_DIE().iter_children():
        if die.tag != "DW_TAG_variable" or _value(die, "decl_file") not in theirs:
            yield die


def _parameters(function: Die, alignments: list[int]) -> tuple[KernelParameter, ...]:
    dies = [die for die in function.iter_children() if die.tag == "DW_TAG_formal_parameter"]
    return tuple(
        _parameter(_text(die, "name") or f"argument {number}", _type(die), alignment_bytes)
        for number, (die, alignment_bytes) in enumerate(
            zip(dies, itertools.chain(alignments, itertools.repeat(1)), strict=False)
        )
    )


def _parameter(name: str, kind: Die, alignment_bytes: int) -> KernelParameter:
    plain, _ = _unqualified(kind)
    spelling = _spelling(kind)
    if _tag(plain) in _POINTERS:
        target, readonly = _element(_type(plain))
        if _tag(target) == "subroutine_type":
            return KernelParameter(name, "structure", "", spelling, POINTER_BYTES)
        return KernelParameter(
            name,
            "pointer",
            _dtype(target),
            spelling,
            POINTER_BYTES,
            _nbytes(target),
            readonly,
            _member_dtype(target),
        )
    dtype = _dtype(plain)
    if dtype:
        return KernelParameter(name, "scalar", dtype, spelling, _nbytes(plain))
    return KernelParameter(
        name,
        "structure",
        "",
        spelling,
        _nbytes(plain),
        member_dtype=_member_dtype(plain),
        parts=_parts(plain),
        alignment_bytes=alignment_bytes,
    )


def _parts(structure: Die) -> tuple[Part, ...] | None:
    """A structure taken apart into what it holds, however deep; None where parts share bytes."""
    if _tag(structure) not in _STRUCTURES:
        return None
    try:
        return tuple(_parts_of("", structure, 0))
    except _OverlapError:
        return None


class _OverlapError(Exception):
    """There is a union or a bit-field."""


def _parts_of(name: str, kind: Die, offset_bytes: int) -> Iterator[Part]:
    """What lies at a place of a structure.

    Raises:
        _OverlapError: Parts of it share bytes.
    """
    plain, _ = _unqualified(kind)
    if not _nbytes(plain):
        return
    dtype = _dtype(plain)
    if _tag(plain) == "array_type":
        element, _ = _element(plain)
        for number, index in enumerate(itertools.product(*map(range, _shape(plain)))):
            subscripts = "".join(f"[{each}]" for each in index)
            start = offset_bytes + number * _nbytes(element)
            yield from _parts_of(name + subscripts, element, start)
    elif dtype or _tag(plain) not in _STRUCTURES:
        yield Part(name, dtype, offset_bytes, _spelling(kind))
    elif _tag(plain) == "union_type":
        raise _OverlapError
    else:
        for child in plain.iter_children():
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
                continue
            if _value(child, "bit_size"):
                raise _OverlapError
            if _value(child, "data_member_location") is None:  # what is static lies elsewhere
                continue
            inner = ".".join(filter(None, (name, _text(child, "name"))))  # bases have no name
            yield from _parts_of(inner, _type(child), offset_bytes + _start(child))


def _variable(die: Die) -> ModuleVariable:
    kind = _type(die)
    element, _ = _element(kind)
    return ModuleVariable(
        name=_qualified_name(die),
        linkage_name=_linkage_name(die),
        space=_SPACES[_value(die, "address_class")],
        dtype=_dtype(element),
        shape=_shape(kind),
        nbytes=_nbytes(kind),
        member_dtype=_member_dtype(element),
    )


def _can_be_filled(die: Die) -> bool:
    """Whether it is a variable in constant or global memory, and not a constant of C++."""
    if die.tag != "DW_TAG_variable" or _value(die, "address_class") not in _SPACES:
        return False
    return not _element(_type(die))[1]


def _value(die: Die, attribute: str) -> Any:
    found = die.attributes.get(f"DW_AT_{attribute}")
    return None if found is None else found.value


def _text(die: Die, attribute: str) -> str:
    return (_value(die, attribute) or b"").decode(errors="replace")


def _tag(die: Die) -> str:
    """The kind of a type; `void` where there is none."""
    if die is None or die.tag == "DW_TAG_unspecified_type":
        return "void"
    return str(die.tag).removeprefix("DW_TAG_")


def _type(die: Die) -> Die:
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def _linkage_name(die: Die) -> str:
    return _text(die, "MIPS_linkage_name") or _text(die, "linkage_name") or _text(die, "name")


def _qualified_name(die: Die) -> str:
    """The name with those of its namespaces, which only the linkage name has."""
    name, linkage_name = _text(die, "name"), _linkage_name(die)
    parts = _name_parts(linkage_name)
    if not parts:
        return name
    # NVRTC gives variables and types in a namespace no other name than the mangled one.
    return "::".join([*parts[:-1], parts[-1] if name == linkage_name else name])


def _name_parts(mangled: str) -> list[str]:
    """The parts of a nested name, but for unnamed namespaces; none where it is not nested.

    Of the Itanium C++ ABI, section 5.1.4: it is `_ZN`, then each part after its length.
    """
    parts = []
    position = len("_ZN")
    while mangled.startswith("_ZN") and (length := _LENGTH.match(mangled, position)):
        position = length.end() + int(length[1])
        parts.append(mangled[length.end() : position])
    return [part for part in parts if not part.startswith(("_GLOBAL__N_", "_INTERNAL_"))]


def _unqualified(die: Die) -> tuple[Die, bool]:
    """A type without typedefs and qualifiers, and whether const was among them."""
    constant = False
    while _tag(die) == "typedef" or _tag(die) in _QUALIFIERS:
        constant |= _tag(die) == "const_type"
        die = _type(die)
    return die, constant


def _element(die: Die) -> tuple[Die, bool]:
    """The type of an array's elements, or a type itself, unqualified, and whether it is const."""
    plain, readonly = _unqualified(die)
    while _tag(plain) == "array_type":
        plain, constant = _unqualified(_type(plain))
        readonly |= constant
    return plain, readonly


def _shape(die: Die) -> tuple[int, ...]:
    """The extents of an array, of arrays of arrays all; empty for what is no array."""
    plain, _ = _unqualified(die)
    extents: list[int] = []
    while _tag(plain) == "array_type":
        for child in plain.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                count, last = _value(child, "count"), _value(child, "upper_bound")
                extents.append(count if count is not None else 0 if last is None else last + 1)
        plain, _ = _unqualified(_type(plain))
    return tuple(extents)


def _nbytes(die: Die) -> int:
    plain, _ = _unqualified(die)
    if _tag(plain) == "array_type":
        return prod(_shape(plain)) * _nbytes(_element(plain)[0])
    if _tag(plain) in _POINTERS:
        return POINTER_BYTES
    return 0 if _tag(plain) == "void" else _value(plain, "byte_size") or 0


def _dtype(plain: Die) -> str:
    """The short name of a number's type; empty for what is none."""
    bits = 8 * _nbytes(plain)
    if _tag(plain) == "enumeration_type":
        values = [_value(child, "const_value") for child in plain.iter_children()]
        return f"{'i' if any(value < 0 for value in values if value is not None) else 'u'}{bits}"
    if _tag(plain) in _STRUCTURES and bits == 16:
        return _HALVES.get(_text(plain, "name"), "")
    if _tag(plain) != "base_type":
        return ""
    encoding = _value(plain, "encoding")
    if encoding == _BOOLEAN:
        return "bool"
    if encoding == _FLOAT and bits in (16, 32, 64):
        return f"f{bits}"
    if encoding in _SIGNED and bits <= 64:
        return f"i{bits}"
    return f"u{bits}" if encoding in _UNSIGNED and bits <= 64 else ""


def _member_dtype(plain: Die) -> str:
    """The one type of all members of a structure that has no gaps; empty where there is none."""
    if _tag(plain) not in _STRUCTURES or _dtype(plain):
        return ""
    dtypes, seen, waiting = set(), set(), [plain]
    while waiting:  # Each structure once, of however many others it is a member.
        whole = waiting.pop()
        if whole.offset in seen:
            continue
        seen.add(whole.offset)
        members = [_type(child) for child in whole.iter_children() if child.tag == "DW_TAG_member"]
        if sum(map(_nbytes, members)) != _nbytes(whole):
            return ""
        for element, _ in map(_element, members):
            if _tag(element) in _STRUCTURES and not _dtype(element):
                waiting.append(element)
            else:
                dtypes.add(_dtype(element))
    return dtypes.pop() if len(dtypes) == 1 else ""


def _spelling(die: Die, declarator: str = "") -> str:
    """A type as C++ writes it, around what stands for the name: `int (*)[8]`."""
    tag = _tag(die)
    if tag in _POINTERS:
        sign = {"pointer_type": "*", "reference_type": "&"}.get(tag, "&&")
        target = _type(die)
        if _tag(target) in ("array_type", "subroutine_type"):
            return _spelling(target, f"({sign}{declarator})")
        return _spelling(target, f"{sign}{declarator}")
    if tag in _QUALIFIERS:
        target, word = _type(die), _QUALIFIERS[tag]
        if _tag(target) in ("pointer_type", "restrict_type"):
            return _spelling(target, f"{word} {declarator}".rstrip())
        return f"{word} {_spelling(target, declarator)}"
    if tag == "array_type":
        extents = "".join(f"[{extent}]" for extent in _shape(die))
        return _spelling(_type(die), f"{declarator}{extents}")
    if tag == "subroutine_type":
        formals = [one for one in die.iter_children() if one.tag == "DW_TAG_formal_parameter"]
        listed = ", ".join(_spelling(_type(one)) for one in formals)
        return _spelling(_type(die), f"{declarator}({listed})")
    name = _text(die, "name")
    if name.startswith("_Z"):
        name = "::".join(_name_parts(name))
    name = name or tag.removesuffix("_type")  # `structure`, where it has no name.
    return f"{name} {declarator}".rstrip()
