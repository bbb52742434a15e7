"""Structures and classes of host code: sizes as the Itanium C++ ABI lays them out, and constants.

Sources: CUDA C++ Programming Guide, "Built-in Vector Types", for the alignments of vectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlab.kernels.host_code.machine import MAX_DEPTH, Frame, Machine, formula_of
from memlab.kernels.host_code.program import (
    declared,
    node_type,
    parse_expression,
    spelled_type,
    split_template,
    text_of,
)
from memlab.kernels.host_code.values import Cell, CType, Unresolved, Value

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD_SIZES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t", "uchar", "byte", "__nv_fp8_e4m3"), 1),
    **dict.fromkeys(("short", "ushort", "int16_t", "uint16_t", "half", "__half"), 2),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), 2),
    **dict.fromkeys(("int", "uint", "unsigned", "float", "int32_t", "uint32_t", "half2"), 4),
    **dict.fromkeys(("__half2", "__nv_bfloat162", "wchar_t"), 4),
    **dict.fromkeys(("long", "ulong", "double", "int64_t", "uint64_t", "size_t", "ssize_t"), 8),
    **dict.fromkeys(("longlong", "ulonglong", "ptrdiff_t", "intptr_t", "uintptr_t", "clock_t"), 8),
    **dict.fromkeys(("cuComplex", "cuFloatComplex", "cufftComplex", "cudaStream_t"), 8),
    **dict.fromkeys(("cuDoubleComplex", "cufftDoubleComplex"), 16),
}
_LAYOUTS = {
    **{name: (size, size) for name, size in _WORD_SIZES.items()},
    **dict.fromkeys(("curandState", "curandState_t", "curandStateXORWOW"), (48, 8)),
    "dim3": (12, 4),
}
"""Size and alignment, bytes."""
_VECTOR = re.compile(
    r"(u?(?:char|short|int|long|longlong)|float|double)([1-4])"  # float4, uchar3
)
_MAX_ALIGNMENT = 16
"""The largest alignment of the built-in vectors, such as double4."""
_UNKNOWN = None, 1


def size_of(machine: Machine, kind: CType) -> int | None:
    """The size of a type, bytes; None if it is not known."""
    return _layout(machine, kind)[0]


def class_constant(machine: Machine, name: str) -> Value | None:
    """The value of a static member such as `Tile::width`; None if it is none."""
    owner, separator, member = name.rpartition("::")
    if not separator:
        return None
    kind = machine.resolve(CType(owner)) or CType(owner)
    with _inside(machine, kind) as body:
        cell = machine.frame.scopes[-1].get(member) if body is not None else None
        return None if cell is None else cell.value


@contextmanager
def _inside(machine: Machine, kind: CType) -> Iterator[Node | None]:
    """The body of a structure, with its template's arguments and static constants in scope."""
    name, arguments = split_template(kind.name)
    program = machine.program
    last = name.rpartition("::")[2]
    body = program.structures.get(re.sub(r"\s", "", kind.name), program.structures.get(last))
    if body is None or len(machine.frames) > MAX_DEPTH:
        yield None
        return
    is_local = _is_local(body)
    frame = Frame(machine.frame.function, [*(machine.frame.scopes if is_local else ()), {}])
    for index, parameter in enumerate(program.class_templates.get(last, ())):
        text = arguments[index] if index < len(arguments) else text_of(parameter.default)
        if parameter.type is None:
            given = spelled_type(text) or CType("")
            frame.types[parameter.name] = machine.resolve(given) or given
        else:
            node = parse_expression(text) if text else None
            value: Value = Unresolved(parameter.name)
            if node is not None:
                value = machine.evaluate(machine, node)
            frame.scopes[-1][parameter.name] = Cell(parameter.name, value, parameter.type)
    machine.frames.append(frame)
    try:
        for member in body.named_children:
            default = member.child_by_field_name("default_value")
            if member.type == "field_declaration" and _is_static(member) and default is not None:
                base = node_type(member.child_by_field_name("type"))
                found = declared(member.child_by_field_name("declarator"), base)
                if found is not None:
                    value = machine.evaluate(machine, default)
                    frame.scopes[-1][found.name] = Cell(found.name, value, found.type)
        yield body
    finally:
        machine.frames.pop()


def _is_local(node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        parent = parent.parent
    return parent is not None


def _is_static(member: Node) -> bool:
    return any(text_of(child) == "static" for child in member.children)


def _layout(machine: Machine, kind: CType) -> tuple[int | None, int]:
    """The size and alignment of a type."""
    machine.step()
    kind = machine.resolve(kind) or kind
    if kind.pointers:
        return 8, 8
    if kind.name in _LAYOUTS:
        return _LAYOUTS[kind.name]
    if match := _VECTOR.fullmatch(kind.name):
        word, lanes = _WORD_SIZES[match[1]], int(match[2])
        return word * lanes, min(word * (lanes if lanes != 3 else 1), _MAX_ALIGNMENT)
    with _inside(machine, kind) as body:
        if body is None:
            return _UNKNOWN
        frame = machine.frame
        numbers = (formula_of(cell.value) for cell in frame.scopes[-1].values())
        key = (body, tuple(frame.types.values()), tuple(numbers))
        layouts = machine.program.layouts
        if key not in layouts:
            layouts[key] = _UNKNOWN  # what holds itself has no size
            layouts[key] = _structure_layout(machine, body)
        return layouts[key]


def _structure_layout(machine: Machine, body: Node) -> tuple[int | None, int]:
    specifier = body.parent
    header = specifier.children if specifier is not None else ()
    end, widest = 0, 1
    for child in header:
        if child.type == "alignas_qualifier":
            value = machine.evaluate(machine, child.named_children[0])
            formula = formula_of(value)
            if formula is None or formula.whole is None:
                return _UNKNOWN
            widest = max(widest, formula.whole)
        elif child.type in ("base_class_clause", "attribute_specifier"):
            return _UNKNOWN  # bases may share their padding, and attributes pack
    is_union = specifier is not None and specifier.type == "union_specifier"
    for member in body.named_children:
        if any(text_of(child) == "virtual" for child in member.children):
            return _UNKNOWN
        if member.type != "field_declaration" or _is_static(member):
            continue
        for size, alignment in _member_layouts(machine, member):
            if size is None:
                return _UNKNOWN
            widest = max(widest, alignment)
            start = 0 if is_union else -(-end // alignment) * alignment
            end = max(end, start + size)
    return max(-(-end // widest) * widest, 1), widest


def _member_layouts(machine: Machine, member: Node) -> Iterator[tuple[int | None, int]]:
    """The sizes and alignments of what a declaration in a structure declares."""
    if any(child.type == "bitfield_clause" for child in member.children):
        yield _UNKNOWN
        return
    type_node = member.child_by_field_name("type")
    inner = type_node.child_by_field_name("body") if type_node is not None else None
    name = type_node.child_by_field_name("name") if type_node is not None else None
    is_structure = type_node is not None and type_node.type != "enum_specifier"
    own = _structure_layout(machine, inner) if inner is not None and is_structure else None
    declarators = member.children_by_field_name("declarator")
    if own is not None and name is None and not declarators:
        yield own
    base = node_type(type_node)
    for declarator in declarators:
        found = declared(declarator, base)
        if found is None or (found.arguments is not None and "*" in text_of(declarator)):
            yield _UNKNOWN  # such as a pointer to a function
            continue
        if found.arguments is not None:
            continue
        kind = CType(base.name, 1) if found.is_reference else found.type
        is_enum = not is_structure and not base.name
        size, alignment = (4, 4) if is_enum else _layout(machine, kind)
        if own is not None and not found.type.pointers:
            size, alignment = own
        for extent in found.extents:
            formula = formula_of(machine.evaluate(machine, extent))
            count = None if formula is None else formula.whole
            size = None if size is None or count is None else size * count
        yield size, alignment
