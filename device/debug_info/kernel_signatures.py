"""Reads the signatures of a source's kernels from debug information.

Address classes are NVIDIA's (PTX Writer's Guide to Interoperability, Debug Information).
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from memlab.device.compiler.cubin import launch_bounds
from memlab.device.compiler.ptx_text import reachable_names
from memlab.device.debug_info import dwarf
from memlab.kernels.launch import MemberType, StructureType
from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature, StructureMember
from memlab.kernels.user.arguments.specifications import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from memlab.device.debug_info.dwarf import Die

_SPACES: dict[int, Literal["const", "global"]] = {4: "const", 5: "global"}  # 8: shared memory

_TENSOR_MAP = "CUtensorMap_st"
"""The name of `CUtensorMap` (`cuda.h`), which is opaque."""
MAX_POINTER_DEPTH = 3
"""How many pointers are followed from a parameter: a list's nodes point to nodes without end."""

_LENGTH = re.compile(r"L?(\d{1,9})")  # L marks internal linkage
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+))?")
_INITIALIZED = re.compile(r"^(?:\.\w+\s+)*\.const\b[^;=]*?([\w$]+)(?:\[\d*\])*\s*=", re.M)


@lru_cache(maxsize=32)
def read_signatures(ptx: str, cubin: bytes) -> tuple[Signature, ...]:
    """Read the signatures of a source's kernels, in its order.

    Args:
        ptx: The PTX, which tells kernels from other functions.
        cubin: The machine code of the same compilation, with debug information (`-G`).

    Raises:
        UsageError: Types or blocks are nested too deeply.
    """
    entries = dict(_kernel_entries(ptx))
    with dwarf.recursion_guard():
        top = dwarf.declarations(cubin)
        initialized = frozenset(_INITIALIZED.findall(ptx))
        variables = tuple(_module_variable(die, initialized) for die in top if _is_fillable(die))
        return tuple(
            Signature(
                _qualified_name(die),
                name,
                _parameters(die, entries[name]),
                variables,
                bounds=launch_bounds(cubin, name),
                used=reachable_names(ptx, name),
            )
            for die in top
            if die.tag == "DW_TAG_subprogram" and (name := dwarf.linkage_name(die)) in entries
        )


def _kernel_entries(ptx: str) -> Iterator[tuple[str, list[int]]]:
    """The kernels, with the alignment of each parameter in bytes; 1 where PTX does not tell it."""
    for match in _ENTRY.finditer(ptx):
        listed = ptx[match.end() : ptx.find(")", match.end())]
        yield match[1], [int(alignment or 1) for alignment in _PARAMETER.findall(listed)]


def _parameters(function: Die, alignments: list[int]) -> tuple[KernelParameter, ...]:
    dies = dwarf.formal_parameters(function)
    pairs = itertools.zip_longest(dies, alignments[: len(dies)], fillvalue=1)
    return tuple(
        _parameter(
            dwarf.attribute_text(die, "name") or f"argument {number}",
            dwarf.referenced_type(die),
            alignment,
        )
        for number, (die, alignment) in enumerate(pairs)
    )


def _parameter(name: str, kind: Die, alignment_bytes: int, depth: int = 0) -> KernelParameter:
    """Describe a parameter, or a pointer that is reached through so many other pointers."""
    plain, _ = dwarf.strip_qualifiers(kind)
    spelling = _type_spelling(kind)
    if dwarf.type_tag(plain) in dwarf.POINTER_TAGS:
        target, readonly = dwarf.array_element_type(dwarf.referenced_type(plain))
        if dwarf.type_tag(target) == "subroutine_type":
            return KernelParameter(name, "structure", "", spelling, dwarf.POINTER_BYTES)
        structure, is_followed = _structure_type(target), depth < MAX_POINTER_DEPTH
        pointed = is_followed and dwarf.type_tag(target) in dwarf.POINTER_TAGS
        has_pointers = is_followed and structure is not None and structure.has_pointers
        return KernelParameter(
            name,
            "pointer",
            dwarf.dtype_name(target),
            spelling,
            dwarf.POINTER_BYTES,
            dwarf.type_bytes(target),
            readonly,
            _member_dtype(target),
            parts=_structure_parts(target, depth + 1) if has_pointers else None,
            structure=structure,
            target=_parameter(name, target, 1, depth + 1) if pointed else None,
        )
    dtype = dwarf.dtype_name(plain)
    if dtype:
        return KernelParameter(name, "scalar", dtype, spelling, dwarf.type_bytes(plain))
    return KernelParameter(
        name,
        "structure",
        "",
        spelling,
        dwarf.type_bytes(plain),
        member_dtype=_member_dtype(plain),
        parts=_structure_parts(plain),
        alignment_bytes=alignment_bytes,
    )


def _structure_parts(structure: Die, depth: int = 0) -> tuple[StructureMember, ...] | None:
    """The innermost members of a structure, of a union the first; None for other types."""
    if not dwarf.is_structure(structure):
        return None
    return tuple(_parts_at_offset("", structure, 0, depth))


def _parts_at_offset(
    name: str, kind: Die, offset_bytes: int, depth: int
) -> Iterator[StructureMember]:
    """The innermost members of a type, as part of a structure from a byte on."""
    plain, _ = dwarf.strip_qualifiers(kind)
    if not dwarf.type_bytes(plain):
        return
    if dwarf.type_tag(plain) == "array_type":
        element, _ = dwarf.array_element_type(plain)
        for number, index in enumerate(itertools.product(*map(range, dwarf.array_shape(plain)))):
            subscripts = "".join(f"[{subscript}]" for subscript in index)
            start = offset_bytes + number * dwarf.type_bytes(element)
            yield from _parts_at_offset(name + subscripts, element, start, depth)
    elif name and dwarf.attribute_text(plain, "name") == _TENSOR_MAP:
        yield StructureMember(name, "", offset_bytes, _type_spelling(kind))
    elif not dwarf.is_structure(plain):
        member = _parameter(name, kind, 1, depth)
        pointer = member if member.kind == "pointer" else None
        yield StructureMember(name, dwarf.dtype_name(plain), offset_bytes, member.spelling, pointer)
    else:
        members = dwarf.data_members(plain)
        if dwarf.type_tag(plain) == "union_type":
            members = members[:1]  # which braces initialize in C++
        for child in members:
            inner = ".".join(filter(None, (name, dwarf.member_name(child))))
            start = offset_bytes + dwarf.member_offset(child)
            if dwarf.attribute_value(child, "bit_size"):
                yield _bit_field(inner, child, start)
                continue
            yield from _parts_at_offset(inner, dwarf.referenced_type(child), start, depth)


def _bit_field(name: str, member: Die, offset_bytes: int) -> StructureMember:
    """A bit-field of a structure, with the first byte of its storage unit."""
    kind = dwarf.referenced_type(member)
    plain, _ = dwarf.strip_qualifiers(kind)
    width = dwarf.attribute_value(member, "bit_size")
    first, bit = divmod(dwarf.first_bit(member), 8)
    spelling = f"{_type_spelling(kind)} : {width}"
    dtype = dwarf.dtype_name(plain)
    return StructureMember(name, dtype, offset_bytes + first, spelling, bits=(bit, width))


def _structure_type(
    plain: Die, known: dict[int, StructureType | None] | None = None
) -> StructureType | None:
    """The type of a structure; None if it is none, or has members besides numbers and pointers.

    Args:
        plain: The type.
        known: Structures that were read already, by their offsets: nested ones are read once.
    """
    known = {} if known is None else known
    if not dwarf.is_structure(plain):
        return None
    if plain.offset not in known:
        members = _member_types(plain, 0, known)
        names = {member.name for member in members or ()}
        is_usable = members and len(names) == len(members)  # no member hides that of a base class
        known[plain.offset] = (
            StructureType(dwarf.type_bytes(plain), tuple(members or ())) if is_usable else None
        )
    return known[plain.offset]


def _member_types(
    structure: Die, offset_bytes: int, known: dict[int, StructureType | None]
) -> list[MemberType] | None:
    """The members of a part of a structure from a byte on; None if one shares its bytes."""
    if dwarf.type_tag(structure) == "union_type":
        return None
    members: list[MemberType] = []
    for child in dwarf.data_members(structure):
        kind, name = dwarf.referenced_type(child), dwarf.member_name(child)
        element, _ = dwarf.array_element_type(kind)
        start = offset_bytes + dwarf.member_offset(child)
        if not dwarf.type_bytes(kind) or (not name and not dwarf.data_members(element)):
            continue  # an empty base class
        if dwarf.attribute_value(child, "bit_size"):
            return None
        dtype = dwarf.dtype_name(element)
        if not name:  # a base class, or a structure without a name
            inner = _member_types(element, start, known)
            if inner is None:
                return None
            members += inner
            continue
        whole = _structure_type(element, known)
        is_pointer = dwarf.type_tag(element) in dwarf.POINTER_TAGS
        if not dtype and whole is None and not is_pointer:
            return None
        shape = dwarf.array_shape(kind)
        numpy_name = "uint64" if is_pointer else NUMPY_DTYPES.get(dtype, "")
        members.append(MemberType(name, start, shape, numpy_name, whole, is_pointer))
    return members


def _member_dtype(plain: Die) -> str:
    """The one type of all members of a structure without gaps; empty if there is none."""
    if not dwarf.is_structure(plain):
        return ""
    dtypes, seen, waiting = set(), set(), [plain]
    while waiting:  # every structure is read once
        whole = waiting.pop()
        if whole.offset in seen:
            continue
        seen.add(whole.offset)
        members = [
            dwarf.referenced_type(child)
            for child in dwarf.data_members(whole)
            if not dwarf.is_base(child)
        ]
        if sum(map(dwarf.type_bytes, members)) != dwarf.type_bytes(whole):
            return ""
        for element, _ in map(dwarf.array_element_type, members):
            if dwarf.is_structure(element):
                waiting.append(element)
            else:
                dtypes.add(dwarf.dtype_name(element))
    return dtypes.pop() if len(dtypes) == 1 else ""


def _module_variable(die: Die, initialized: Collection[str]) -> ModuleVariable:
    kind = dwarf.referenced_type(die)
    element, _ = dwarf.array_element_type(kind)
    return ModuleVariable(
        name=_qualified_name(die),
        linkage_name=dwarf.linkage_name(die),
        space=_SPACES[dwarf.attribute_value(die, "address_class")],
        dtype=dwarf.dtype_name(element),
        shape=dwarf.array_shape(kind),
        nbytes=dwarf.type_bytes(kind),
        member_dtype=_member_dtype(element),
        initialized=dwarf.linkage_name(die) in initialized,
        is_tensor_map="CUtensorMap" in _type_spelling(element),
        structure=_structure_type(element),
    )


def _is_fillable(die: Die) -> bool:
    """Whether it is a variable in constant or global memory, and not `const` in C++."""
    if die.tag != "DW_TAG_variable" or dwarf.attribute_value(die, "address_class") not in _SPACES:
        return False
    return not dwarf.array_element_type(dwarf.referenced_type(die))[1]


def _qualified_name(die: Die) -> str:
    """The name with its namespaces, which only the linkage name has."""
    name, linkage_name = dwarf.attribute_text(die, "name"), dwarf.linkage_name(die)
    parts = name_parts(linkage_name)
    if not parts:
        return name
    # In a namespace, NVRTC gives variables and types only their mangled names.
    return "::".join([*parts[:-1], parts[-1] if name == linkage_name else name])


def name_parts(mangled: str) -> list[str]:
    """The parts of a nested mangled name, without unnamed namespaces; empty for other names.

    Itanium C++ ABI, section 5.1.4: `_ZN`, then each part after its length.
    """
    parts = []
    position = len("_ZN")
    while mangled.startswith("_ZN") and (length := _LENGTH.match(mangled, position)):
        position = length.end() + int(length[1])
        parts.append(mangled[length.end() : position])
    return [part for part in parts if not part.startswith(("_GLOBAL__N_", "_INTERNAL_"))]


def _type_spelling(die: Die, declarator: str = "") -> str:
    """A type as C++ writes it around a declarator: `int (*)[8]`."""
    tag = dwarf.type_tag(die)
    if tag in dwarf.POINTER_TAGS:
        sign = {"pointer_type": "*", "reference_type": "&"}.get(tag, "&&")
        target = dwarf.referenced_type(die)
        if dwarf.type_tag(target) in ("array_type", "subroutine_type"):
            return _type_spelling(target, f"({sign}{declarator})")
        return _type_spelling(target, f"{sign}{declarator}")
    if tag in dwarf.QUALIFIERS:
        target, word = dwarf.referenced_type(die), dwarf.QUALIFIERS[tag]
        if dwarf.type_tag(target) in ("pointer_type", "restrict_type"):
            return _type_spelling(target, f"{word} {declarator}".rstrip())
        return f"{word} {_type_spelling(target, declarator)}"
    if tag == "array_type":
        extents = "".join(f"[{extent}]" for extent in dwarf.array_shape(die))
        return _type_spelling(dwarf.referenced_type(die), f"{declarator}{extents}")
    if tag == "subroutine_type":
        formals = dwarf.formal_parameters(die)
        listed = ", ".join(_type_spelling(dwarf.referenced_type(formal)) for formal in formals)
        return _type_spelling(dwarf.referenced_type(die), f"{declarator}({listed})")
    name = dwarf.attribute_text(die, "name")
    if name.startswith("_Z"):
        name = "::".join(name_parts(name))
    name = name or tag.removesuffix("_type")  # `structure`, if it has no name
    return f"{name} {declarator}".rstrip()
