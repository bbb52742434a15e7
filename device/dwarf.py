"""The debugger's information (DWARF) in a cubin: the kernels and variables as the source has them.

Tags, attributes and encodings are those of the DWARF standard, version 2, section 7; the address
classes are NVIDIA's (PTX Writer's Guide to Interoperability, Debug Information).
"""

from __future__ import annotations

import os
import re
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from elftools.elf.elffile import ELFFile

from memlab.device.headers import package_folders
from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

Die: TypeAlias = Any
"""A debugging information entry of pyelftools, which carries no types."""

POINTER_BYTES = 8

_SPACES: dict[int, Literal["const", "global"]] = {4: "const", 5: "global"}  # 8 is shared memory.
_QUALIFIERS = {"const_type": "const", "volatile_type": "volatile", "restrict_type": "__restrict__"}
_BOOLEAN, _FLOAT = 2, 4
_SIGNED = (5, 6)  # signed, signed_char
_UNSIGNED = (7, 8, 16)  # unsigned, unsigned_char, UTF
_HALVES = {"__half": "f16", "__nv_bfloat16": "bf16"}

_LENGTH = re.compile(r"L?(\d+)")  # An L marks what other files cannot see.
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")


def read(ptx: str, cubin: bytes) -> tuple[Signature, ...]:
    """Read what the kernels of a source take, in its order.

    Args:
        ptx: The PTX, which tells kernels from other functions.
        cubin: The machine code of the same compilation, with debug information (`-G`).
    """
    entries = set(_ENTRY.findall(ptx))
    # Relocations would give addresses, which are not asked for, and pyelftools has not all kinds.
    dwarf = ELFFile(BytesIO(cubin)).get_dwarf_info(relocate_dwarf_sections=False)
    top = [die for unit in dwarf.iter_CUs() for die in _of_the_source(dwarf, unit)]
    variables = tuple(_variable(die) for die in top if _can_be_filled(die))
    return tuple(
        Signature(_qualified_name(die), _linkage_name(die), _parameters(die), variables)
        for die in top
        if die.tag == "DW_TAG_subprogram" and _linkage_name(die) in entries
    )


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


def _parameters(function: Die) -> tuple[KernelParameter, ...]:
    dies = [die for die in function.iter_children() if die.tag == "DW_TAG_formal_parameter"]
    return tuple(
        _parameter(_text(die, "name") or f"argument {number}", _type(die))
        for number, die in enumerate(dies)
    )


def _parameter(name: str, kind: Die) -> KernelParameter:
    plain, _ = _unqualified(kind)
    spelling = _spelling(kind)
    if _tag(plain) in ("pointer_type", "reference_type", "rvalue_reference_type"):
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
    return KernelParameter(
        name,
        "scalar" if dtype else "structure",
        dtype,
        spelling,
        _nbytes(plain),
        member_dtype=_member_dtype(plain),
    )


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
    if _tag(plain) in ("pointer_type", "reference_type", "rvalue_reference_type"):
        return POINTER_BYTES
    return 0 if _tag(plain) == "void" else _value(plain, "byte_size") or 0


def _dtype(plain: Die) -> str:
    """The short name of a number's type; empty for what is none."""
    bits = 8 * _nbytes(plain)
    if _tag(plain) == "enumeration_type":
        values = [_value(child, "const_value") for child in plain.iter_children()]
        return f"{'i' if any(value < 0 for value in values if value is not None) else 'u'}{bits}"
    if _tag(plain) in ("structure_type", "class_type") and bits == 16:
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
    if _tag(plain) not in ("structure_type", "class_type") or _dtype(plain):
        return ""
    members = [_type(child) for child in plain.iter_children() if child.tag == "DW_TAG_member"]
    elements = [_element(member)[0] for member in members]
    dtypes = {_dtype(element) or _member_dtype(element) for element in elements}
    whole = sum(map(_nbytes, members)) == _nbytes(plain)
    return dtypes.pop() if len(dtypes) == 1 and whole else ""


def _spelling(die: Die, declarator: str = "") -> str:
    """A type as C++ writes it, around what stands for the name: `int (*)[8]`."""
    tag = _tag(die)
    if tag in ("pointer_type", "reference_type", "rvalue_reference_type"):
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
