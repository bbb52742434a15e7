"""Debug information (DWARF) in a cubin: the declarations of a source, and their types.

Tags, attributes and encodings are those of the DWARF standard, version 2, section 7.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from memlab.device.compiler.headers import package_folders
from memlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

Die: TypeAlias = Any
"""A debugging information entry of pyelftools, which has no types."""

POINTER_BYTES = 8
POINTER_TAGS = ("pointer_type", "reference_type", "rvalue_reference_type")
"""Tags of types that are pointers in the compiled code."""
QUALIFIERS = {"const_type": "const", "volatile_type": "volatile", "restrict_type": "__restrict__"}
"""Tags of qualifiers, and how C++ writes them."""

_STRUCTURE_TAGS = ("structure_type", "class_type", "union_type")
_BOOLEAN_ENCODING, _FLOAT_ENCODING = 2, 4
_SIGNED_ENCODINGS = (5, 6)  # signed, signed_char
_UNSIGNED_ENCODINGS = (7, 8, 16)  # unsigned, unsigned_char, UTF
_BASE_IN_C = re.compile(r"__b_\d")
_HALF_TYPES = {"__half": "f16", "__nv_bfloat16": "bf16"}


@contextmanager
def recursion_guard() -> Iterator[None]:
    """Turn a recursion error, in pyelftools or in the caller, into a usage error.

    Raises:
        UsageError: Types or blocks are nested too deeply.
    """
    try:
        yield
    except RecursionError:
        message = "the source nests blocks or types too deeply to be analysed: nest them less"
        raise UsageError(message) from None


def declarations(cubin: bytes) -> list[Die]:
    """The declarations of the source at file scope: functions, types and variables."""
    from elftools.elf.elffile import ELFFile  # rarely needed, and slow to import

    # Relocations would only give addresses, and pyelftools does not know all their kinds.
    dwarf = ELFFile(BytesIO(cubin)).get_dwarf_info(relocate_dwarf_sections=False)
    return [die for unit in dwarf.iter_CUs() for die in _source_declarations(dwarf, unit)]


def _source_declarations(dwarf: Any, unit: Any) -> Iterator[Die]:
    """The declarations of a unit without the variables of CUDA's headers, hundreds of constants."""
    packages = package_folders()
    lines = dwarf.line_program_for_CU(unit).header
    folders = [os.fsdecode(folder) for folder in lines.include_directory]
    cuda_files = {
        number
        for number, file in enumerate(lines.file_entry, 1)
        if file.dir_index and folders[file.dir_index - 1].startswith(packages)
    }
    for die in unit.get_top_DIE().iter_children():
        if die.tag != "DW_TAG_variable" or attribute_value(die, "decl_file") not in cuda_files:
            yield die


def attribute_value(die: Die, attribute: str) -> Any:
    """The value of an attribute, named without `DW_AT_`; None if the entry does not have it."""
    entry = die.attributes.get(f"DW_AT_{attribute}")
    return None if entry is None else entry.value


def attribute_text(die: Die, attribute: str) -> str:
    """The text of an attribute; empty if the entry does not have it."""
    return (attribute_value(die, attribute) or b"").decode(errors="replace")


def type_tag(die: Die) -> str:
    """The tag of a type without `DW_TAG_`; `void` for no type."""
    if die is None or die.tag == "DW_TAG_unspecified_type":
        return "void"
    return str(die.tag).removeprefix("DW_TAG_")


def referenced_type(die: Die) -> Die:
    """The type of a variable, or the type that a pointer or typedef refers to; None for void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def linkage_name(die: Die) -> str:
    """The name of a function or variable in the compiled code."""
    return (
        attribute_text(die, "MIPS_linkage_name")
        or attribute_text(die, "linkage_name")
        or attribute_text(die, "name")
    )


def formal_parameters(function: Die) -> list[Die]:
    """The parameters of a function or function type, in order."""
    return [die for die in function.iter_children() if die.tag == "DW_TAG_formal_parameter"]


def strip_qualifiers(die: Die) -> tuple[Die, bool]:
    """A type without typedefs and qualifiers, and whether one of these was const."""
    constant = False
    while type_tag(die) == "typedef" or type_tag(die) in QUALIFIERS:
        constant |= type_tag(die) == "const_type"
        die = referenced_type(die)
    return die, constant


def array_element_type(die: Die) -> tuple[Die, bool]:
    """The unqualified type of an array's elements, or the type itself; and whether it is const."""
    plain, readonly = strip_qualifiers(die)
    while type_tag(plain) == "array_type":
        plain, constant = strip_qualifiers(referenced_type(plain))
        readonly |= constant
    return plain, readonly


def array_shape(die: Die) -> tuple[int, ...]:
    """The extents of an array and of nested arrays; empty for other types."""
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
    """The bytes of a type; 0 for void and for types that are only declared."""
    plain, _ = strip_qualifiers(die)
    if type_tag(plain) == "array_type":
        return prod(array_shape(plain)) * type_bytes(array_element_type(plain)[0])
    if type_tag(plain) in POINTER_TAGS:
        return POINTER_BYTES
    return 0 if type_tag(plain) == "void" else attribute_value(plain, "byte_size") or 0


def dtype_name(plain: Die) -> str:
    """The short name of a number's type; empty for other types."""
    bits = 8 * type_bytes(plain)
    if type_tag(plain) == "enumeration_type":
        values = [attribute_value(child, "const_value") for child in plain.iter_children()]
        signed = any(value < 0 for value in values if value is not None)
        return f"{'i' if signed else 'u'}{bits}"
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
    """Whether a type has members and is not a number with members, such as `__half`."""
    return type_tag(plain) in _STRUCTURE_TAGS and not dtype_name(plain)


def data_members(structure: Die) -> list[Die]:
    """The members and bases in a structure's bytes; static members lie elsewhere."""
    return [
        child
        for child in structure.iter_children()
        if child.tag in ("DW_TAG_member", "DW_TAG_inheritance")
        and not attribute_value(child, "external")
    ]


def is_base(member: Die) -> bool:
    """Whether a member is a base class.

    NVRTC of CUDA 13.0 lists it as a member, by the name that it has in C: `__b_4Base`.
    """
    return member.tag == "DW_TAG_inheritance" or bool(
        _BASE_IN_C.match(attribute_text(member, "name"))
    )


def member_name(member: Die) -> str:
    """The name of a member; empty for a base class or a structure without a name."""
    return "" if is_base(member) else attribute_text(member, "name")


def member_offset(member: Die) -> int:
    """The first byte of a member in its structure; 0 for all members of a union."""
    location = attribute_value(member, "data_member_location")
    if isinstance(location, list):  # DW_OP_plus_uconst, and a number of seven bits per byte
        location = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(location[1:]))
    return location or 0


def first_bit(member: Die) -> int:
    """The lowest bit of a bit-field, from the lowest bit of its storage unit at `member_offset`.

    DWARF 2, section 5.5.4, counts from the highest bit of the unit to the highest of the field;
    DWARF 4, section 5.5.6, from the beginning of the structure to the lowest bit of the field.
    """
    from_start: int | None = attribute_value(member, "data_bit_offset")
    if from_start is not None:
        return from_start - 8 * member_offset(member)
    unit = 8 * (attribute_value(member, "byte_size") or type_bytes(referenced_type(member)))
    above: int = attribute_value(member, "bit_offset") or 0
    width: int = attribute_value(member, "bit_size")
    return unit - above - width
