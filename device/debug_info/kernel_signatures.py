"""What the kernels of a source take, from the debugger's information.

Address classes are NVIDIA's (PTX Writer's Guide to Interoperability, Debug Information).
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Literal

from memlab.device.compiler.cubin import launch_bounds
from memlab.device.debug_info import dwarf
from memlab.kernels.signature import KernelParameter, ModuleVariable, Part, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlab.device.debug_info.dwarf import Die

_SPACES: dict[int, Literal["const", "global"]] = {4: "const", 5: "global"}  # 8 is shared memory.

_LENGTH = re.compile(r"L?(\d{1,9})")  # An L marks what other files cannot see.
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+(\d+))?")


def read(ptx: str, cubin: bytes) -> tuple[Signature, ...]:
    """Read what the kernels of a source take, in its order.

    Args:
        ptx: The PTX, which tells kernels from other functions.
        cubin: The machine code of the same compilation, with debug information (`-G`).

    Raises:
        UsageError: Types or blocks lie too deep in one another.
    """
    entries = dict(_entries(ptx))
    with dwarf.within_reach():
        top = dwarf.declarations(cubin)
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
            if die.tag == "DW_TAG_subprogram" and (name := dwarf.linkage_name(die)) in entries
        )


def _entries(ptx: str) -> Iterator[tuple[str, list[int]]]:
    """The kernels, each with the alignment of its parameters, bytes, where PTX tells it; else 1."""
    for match in _ENTRY.finditer(ptx):
        listed = ptx[match.end() : ptx.find(")", match.end())]
        yield match[1], [int(each or 1) for each in _PARAMETER.findall(listed)]


def _parameters(function: Die, alignments: list[int]) -> tuple[KernelParameter, ...]:
    dies = dwarf.formal_parameters(function)
    found = itertools.zip_longest(dies, alignments[: len(dies)], fillvalue=1)
    return tuple(
        _parameter(dwarf.text(die, "name") or f"argument {number}", dwarf.type_of(die), alignment)
        for number, (die, alignment) in enumerate(found)
    )


def _parameter(name: str, kind: Die, alignment_bytes: int) -> KernelParameter:
    plain, _ = dwarf.unqualified(kind)
    spelling = _spelling(kind)
    if dwarf.tag(plain) in dwarf.POINTERS:
        target, readonly = dwarf.element(dwarf.type_of(plain))
        if dwarf.tag(target) == "subroutine_type":
            return KernelParameter(name, "structure", "", spelling, dwarf.POINTER_BYTES)
        return KernelParameter(
            name,
            "pointer",
            dwarf.dtype(target),
            spelling,
            dwarf.POINTER_BYTES,
            dwarf.nbytes(target),
            readonly,
            _member_dtype(target),
        )
    dtype = dwarf.dtype(plain)
    if dtype:
        return KernelParameter(name, "scalar", dtype, spelling, dwarf.nbytes(plain))
    return KernelParameter(
        name,
        "structure",
        "",
        spelling,
        dwarf.nbytes(plain),
        member_dtype=_member_dtype(plain),
        parts=_parts(plain),
        alignment_bytes=alignment_bytes,
    )


def _parts(structure: Die) -> tuple[Part, ...] | None:
    """A structure taken apart into what it holds, however deep; None where parts share bytes."""
    if not dwarf.is_structure(structure):
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
    plain, _ = dwarf.unqualified(kind)
    if not dwarf.nbytes(plain):
        return
    if dwarf.tag(plain) == "array_type":
        element, _ = dwarf.element(plain)
        for number, index in enumerate(itertools.product(*map(range, dwarf.shape(plain)))):
            subscripts = "".join(f"[{each}]" for each in index)
            start = offset_bytes + number * dwarf.nbytes(element)
            yield from _parts_of(name + subscripts, element, start)
    elif not dwarf.is_structure(plain):
        yield Part(name, dwarf.dtype(plain), offset_bytes, _spelling(kind))
    elif dwarf.tag(plain) == "union_type":
        raise _OverlapError
    else:
        for child in dwarf.members(plain):
            if dwarf.value(child, "bit_size"):
                raise _OverlapError
            inner = ".".join(filter(None, (name, dwarf.text(child, "name"))))  # bases have no name
            yield from _parts_of(inner, dwarf.type_of(child), offset_bytes + dwarf.start(child))


def _member_dtype(plain: Die) -> str:
    """The one type of all members of a structure that has no gaps; empty where there is none."""
    if not dwarf.is_structure(plain):
        return ""
    dtypes, seen, waiting = set(), set(), [plain]
    while waiting:  # Each structure once, of however many others it is a member.
        whole = waiting.pop()
        if whole.offset in seen:
            continue
        seen.add(whole.offset)
        members = [
            dwarf.type_of(child) for child in dwarf.members(whole) if child.tag == "DW_TAG_member"
        ]
        if sum(map(dwarf.nbytes, members)) != dwarf.nbytes(whole):
            return ""
        for element, _ in map(dwarf.element, members):
            if dwarf.is_structure(element):
                waiting.append(element)
            else:
                dtypes.add(dwarf.dtype(element))
    return dtypes.pop() if len(dtypes) == 1 else ""


def _variable(die: Die) -> ModuleVariable:
    kind = dwarf.type_of(die)
    element, _ = dwarf.element(kind)
    return ModuleVariable(
        name=_qualified_name(die),
        linkage_name=dwarf.linkage_name(die),
        space=_SPACES[dwarf.value(die, "address_class")],
        dtype=dwarf.dtype(element),
        shape=dwarf.shape(kind),
        nbytes=dwarf.nbytes(kind),
        member_dtype=_member_dtype(element),
    )


def _can_be_filled(die: Die) -> bool:
    """Whether it is a variable in constant or global memory, and not a constant of C++."""
    if die.tag != "DW_TAG_variable" or dwarf.value(die, "address_class") not in _SPACES:
        return False
    return not dwarf.element(dwarf.type_of(die))[1]


def _qualified_name(die: Die) -> str:
    """The name with those of its namespaces, which only the linkage name has."""
    name, linkage_name = dwarf.text(die, "name"), dwarf.linkage_name(die)
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


def _spelling(die: Die, declarator: str = "") -> str:
    """A type as C++ writes it, around what stands for the name: `int (*)[8]`."""
    tag = dwarf.tag(die)
    if tag in dwarf.POINTERS:
        sign = {"pointer_type": "*", "reference_type": "&"}.get(tag, "&&")
        target = dwarf.type_of(die)
        if dwarf.tag(target) in ("array_type", "subroutine_type"):
            return _spelling(target, f"({sign}{declarator})")
        return _spelling(target, f"{sign}{declarator}")
    if tag in dwarf.QUALIFIERS:
        target, word = dwarf.type_of(die), dwarf.QUALIFIERS[tag]
        if dwarf.tag(target) in ("pointer_type", "restrict_type"):
            return _spelling(target, f"{word} {declarator}".rstrip())
        return f"{word} {_spelling(target, declarator)}"
    if tag == "array_type":
        extents = "".join(f"[{extent}]" for extent in dwarf.shape(die))
        return _spelling(dwarf.type_of(die), f"{declarator}{extents}")
    if tag == "subroutine_type":
        formals = dwarf.formal_parameters(die)
        listed = ", ".join(_spelling(dwarf.type_of(one)) for one in formals)
        return _spelling(dwarf.type_of(die), f"{declarator}({listed})")
    name = dwarf.text(die, "name")
    if name.startswith("_Z"):
        name = "::".join(_name_parts(name))
    name = name or tag.removesuffix("_type")  # `structure`, where it has no name.
    return f"{name} {declarator}".rstrip()
