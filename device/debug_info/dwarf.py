"""The debugger's information (DWARF) in a cubin: what a source declares, and its types.

Tags, attributes and encodings are those of the DWARF standard, version 2, section 7.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from elftools.elf.elffile import ELFFile

from memlab.device.compiler.headers import package_folders
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Die: TypeAlias = Any
"""A debugging information entry of pyelftools, which carries no types."""

POINTER_BYTES = 8
POINTER_TAGS = ("pointer_type", "reference_type", "rvalue_reference_type")
"""Tags of what is a pointer in the compiled code."""
QUALIFIERS = {"const_type": "const", "volatile_type": "volatile", "restrict_type": "__restrict__"}
"""Tags of qualifiers, and how C++ writes them."""

_STRUCTURE_TAGS = ("structure_type", "class_type", "union_type")
_BOOLEAN_ENCODING, _FLOAT_ENCODING = 2, 4
_SIGNED_ENCODINGS = (5, 6)  # signed, signed_char
_UNSIGNED_ENCODINGS = (7, 8, 16)  # unsigned, unsigned_char, UTF
_HALF_TYPES = {"__half": "f16", "__nv_bfloat16": "bf16"}


@contextmanager
def recursion_guard() -> Iterator[None]:
    """Turn too deep a nesting, where pyelftools follows it or who reads here, into an error.

    Raises:
        UsageError: Types or blocks lie too deep in one another.
    """
    try:
        yield
    except RecursionError:
        message = "the source has blocks or types too deep in one another to follow: nest them less"
        raise UsageError(message) from None


def declarations(cubin: bytes) -> list[Die]:
    """What the source declares outside functions, and they."""
    # Relocations would give addresses, which are not asked for, and pyelftools has not all kinds.
    dwarf = ELFFile(BytesIO(cubin)).get_dwarf_info(relocate_dwarf_sections=False)
    return [die for unit in dwarf.iter_CUs() for die in _source_declarations(dwarf, unit)]


def _source_declarations(dwarf: Any, unit: Any) -> Iterator[Die]:
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
        if die.tag != "DW_TAG_variable" or attribute_value(die, "decl_file") not in theirs:
            yield die


def attribute_value(die: Die, attribute: str) -> Any:
    """An attribute without its `DW_AT_`; None where an entry has none such."""
    found = die.attributes.get(f"DW_AT_{attribute}")
    return None if found is None else found.value


def attribute_text(die: Die, attribute: str) -> str:
    """An attribute that is a text; empty where an entry has none such."""
    return (attribute_value(die, attribute) or b"").decode(errors="replace")


def type_tag(die: Die) -> str:
    """The kind of a type; `void` where there is none."""
    if die is None or die.tag == "DW_TAG_unspecified_type":
        return "void"
    return str(die.tag).removeprefix("DW_TAG_")


def referenced_type(die: Die) -> Die:
    """The type of a variable, or what a pointer points to and the like; None stands for void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def linkage_name(die: Die) -> str:
    """The name in the compiled code."""
    return (
        attribute_text(die, "MIPS_linkage_name")
        or attribute_text(die, "linkage_name")
        or attribute_text(die, "name")
    )


def formal_parameters(function: Die) -> list[Die]:
    """The parameters of a function or of its type, in order."""
    return [die for die in function.iter_children() if die.tag == "DW_TAG_formal_parameter"]


def strip_qualifiers(die: Die) -> tuple[Die, bool]:
    """A type without typedefs and qualifiers, and whether const was among them."""
    constant = False
    while type_tag(die) == "typedef" or type_tag(die) in QUALIFIERS:
        constant |= type_tag(die) == "const_type"
        die = referenced_type(die)
    return die, constant


def array_element_type(die: Die) -> tuple[Die, bool]:
    """The type of an array's elements, or a type itself, unqualified, and whether it is const."""
    plain, readonly = strip_qualifiers(die)
    while type_tag(plain) == "array_type":
        plain, constant = strip_qualifiers(referenced_type(plain))
        readonly |= constant
    return plain, readonly


def array_shape(die: Die) -> tuple[int, ...]:
    """The extents of an array, of arrays of arrays all; empty for what is no array."""
    plain, _ = strip_qualifiers(die)
    extents: list[int] = []
    while type_tag(plain) == "array_type":
        for child in plain.iter_children():
            if child.tag == "DW_TAG_subrange_type":
                count, last = attribute_value(child, "count"), attribute_value(child, "upper_bound")
                extents.append(count if count is not None else 0 if last is None else last + 1)
        plain, _ = strip_qualifiers(referenced_type(plain))
    return tuple(extents)


def type_bytes(die: Die) -> int:
    """Bytes of a type; 0 of void, and of what is declared alone."""
    plain, _ = strip_qualifiers(die)
    if type_tag(plain) == "array_type":
        return prod(array_shape(plain)) * type_bytes(array_element_type(plain)[0])
    if type_tag(plain) in POINTER_TAGS:
        return POINTER_BYTES
    return 0 if type_tag(plain) == "void" else attribute_value(plain, "byte_size") or 0


def dtype_name(plain: Die) -> str:
    """The short name of a number's type; empty for what is none."""
    bits = 8 * type_bytes(plain)
    if type_tag(plain) == "enumeration_type":
        values = [attribute_value(child, "const_value") for child in plain.iter_children()]
        return f"{'i' if any(each < 0 for each in values if each is not None) else 'u'}{bits}"
    if type_tag(plain) in _STRUCTURE_TAGS and bits == 16:
        return _HALF_TYPES.get(attribute_text(plain, "name"), "")
    if type_tag(plain) != "base_type":
        return ""
    encoding = attribute_value(plain, "encoding")
    if encoding == _BOOLEAN_ENCODING:
        return "bool"
    if encoding == _FLOAT_ENCODING and bits in (16, 32, 64):
        return f"f{bits}"
    if encoding in _SIGNED_ENCODINGS and bits <= 64:
        return f"i{bits}"
    return f"u{bits}" if encoding in _UNSIGNED_ENCODINGS and bits <= 64 else ""


def is_structure(plain: Die) -> bool:
    """Whether a type has members, and is no number that is written as such, as `__half` is."""
    return type_tag(plain) in _STRUCTURE_TAGS and not dtype_name(plain)


def data_members(structure: Die) -> list[Die]:
    """The members and bases of a structure that lie in it: what is static lies elsewhere."""
    return [
        child
        for child in structure.iter_children()
        if child.tag in ("DW_TAG_member", "DW_TAG_inheritance")
        and not attribute_value(child, "external")
    ]


def member_offset(member: Die) -> int:
    """The first byte of a member in its structure; in a union all start at 0."""
    found = attribute_value(member, "data_member_location")
    if isinstance(found, list):  # DW_OP_plus_uconst, and a number of seven bits a byte
        found = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[1:]))
    return found or 0
