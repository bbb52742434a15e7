"""Structures and classes of host code: sizes as the Itanium C++ ABI lays them out, and constants.

Sources: CUDA C++ Programming Guide, "Built-in Vector Types", for the alignments of vectors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlab.kernels.host_code.formulas import number
from memlab.kernels.host_code.machine import MAX_DEPTH, Frame, Machine, formula_of
from memlab.kernels.host_code.program import (
    TemplateParameter,
    declared,
    node_type,
    parse_expression,
    spelled_type,
    split_member,
    split_template,
    text_of,
)
from memlab.kernels.host_code.values import (
    INTEGER_TYPES,
    Cell,
    CType,
    Number,
    Unresolved,
    Value,
)
from memlab.kernels.launch import TENSOR_MAP_BYTES

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD_SIZES = {
    **dict.fromkeys(("char", "bool", "int8_t", "uint8_t", "uchar", "byte", "__nv_fp8_e4m3"), 1),
    **dict.fromkeys(("short", "ushort", "int16_t", "uint16_t", "half", "__half"), 2),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), 2),
    **dict.fromkeys(("int", "uint", "unsigned", "float", "int32_t", "uint32_t", "half2"), 4),
    **dict.fromkeys(("__half2", "__nv_bfloat162", "wchar_t", "cuuint32_t"), 4),
    **dict.fromkeys(("long", "ulong", "double", "int64_t", "uint64_t", "size_t", "ssize_t"), 8),
    **dict.fromkeys(("longlong", "ulonglong", "ptrdiff_t", "intptr_t", "uintptr_t", "clock_t"), 8),
    "cuuint64_t": 8,
    **dict.fromkeys(("cuComplex", "cuFloatComplex", "cufftComplex", "cudaStream_t"), 8),
    **dict.fromkeys(("cuDoubleComplex", "cufftDoubleComplex"), 16),
}
_LAYOUTS = {
    **{name: (size, size) for name, size in _WORD_SIZES.items()},
    **dict.fromkeys(("curandState", "curandState_t", "curandStateXORWOW"), (48, 8)),
    "dim3": (12, 4),
    "CUtensorMap": (TENSOR_MAP_BYTES, TENSOR_MAP_BYTES),
}
"""Size and alignment, bytes."""
_VECTOR = re.compile(
    r"(u?(?:char|short|int|long|longlong)|float|double)([1-4])"  # float4, uchar3
)
_MAX_ALIGNMENT = 16
"""The largest alignment of the built-in vectors, such as double4."""
_UNKNOWN = None, 1
_TRAITS: dict[str, Callable[[Sequence[CType]], bool]] = {
    "is_same": lambda kinds: len(kinds) == 2 and kinds[0] == kinds[1],
    "is_pointer": lambda kinds: kinds[0].pointers > 0,
    "is_floating_point": lambda kinds: kinds[0] in (CType("float"), CType("double")),
    "is_integral": lambda kinds: (
        not kinds[0].pointers and kinds[0].name in ("bool", *INTEGER_TYPES)
    ),
}
"""Traits of the standard library, by name."""


def size_of(machine: Machine, kind: CType) -> int | None:
    """The size of a type, bytes; None if it is not known."""
    return _layout(machine, kind)[0]


def class_constant(machine: Machine, name: str) -> Value | None:
    """The value of a static member such as `Tile::width`; None if it is none."""
    owner, member = split_member(name)
    if not owner:
        return None
    if member == "value" and (trait := _TRAITS.get(split_template(owner)[0].rpartition("::")[2])):
        given = [spelled_type(each) or CType("") for each in split_template(owner)[1]]
        kinds = [machine.resolve(each) or each for each in given]
        return Number(number(int(trait(kinds))), "bool")
    kind = machine.resolve(CType(owner)) or CType(owner)
    with inside(machine, kind) as body:
        cell = machine.frame.scopes[-1].get(member) if body is not None else None
        return None if cell is None else cell.value


def dependent_type(machine: Machine, kind: CType) -> CType | None:
    """The type that a name such as `Traits<T>::type` or `Pair<T, N>` stands for.

    Returns:
        The type, with the values of the names in its template's arguments; None where the program
        does not define it.
    """
    owner, member = split_member(kind.name)
    if owner:
        outer = machine.resolve(CType(owner)) or CType(owner)
        with inside(machine, outer) as body:
            found = machine.frame.types.get(member) if body is not None else None
        return None if found is None else CType(found.name, found.pointers + kind.pointers)
    name, bracket, arguments = kind.name.partition("<")
    node = parse_expression(f"memlab_template{bracket}{arguments}()") if bracket else None
    function = node.child_by_field_name("function") if node is not None else None
    if function is None or name.rpartition("::")[2].strip() not in machine.program.structures:
        return None
    texts = machine.template_texts(machine, function.child_by_field_name("arguments"))
    return CType(f"{name.strip()}<{', '.join(texts)}>", kind.pointers)


@contextmanager
def inside(machine: Machine, kind: CType) -> Iterator[Node | None]:
    """The body of a structure, with its template's arguments and static constants in scope."""
    found = class_frame(machine, kind)
    if found is None:
        yield None
        return
    body, frame = found
    machine.frames.append(frame)
    try:
        yield body
    finally:
        machine.frames.pop()


def class_frame(machine: Machine, kind: CType) -> tuple[Node, Frame] | None:
    """The body of a structure, and a call with the names that it declares for its methods.

    These are its template's arguments, its aliases of types and its static constants.
    """
    found = _specialization(machine, kind)
    if found is None or len(machine.frames) > MAX_DEPTH:
        return None
    body, parameters, given = found
    is_local = _is_local(body)
    frame = Frame(machine.frame.function, [*(machine.frame.scopes if is_local else ()), {}])
    for parameter in parameters:
        text = given.get(parameter.name) or text_of(parameter.default)
        if parameter.type is None:
            argument = spelled_type(text) or CType("")
            frame.types[parameter.name] = machine.resolve(argument) or argument
        else:
            node = parse_expression(text) if text else None
            value: Value = Unresolved(parameter.name)
            if node is not None:
                value = machine.evaluate(machine, node)
            frame.scopes[-1][parameter.name] = Cell(parameter.name, value, parameter.type)
    machine.frames.append(frame)
    try:
        for member in body.named_children:
            _declare_member(machine, member)
    finally:
        machine.frames.pop()
    return body, frame


def _declare_member(machine: Machine, member: Node) -> None:
    """Declare an alias or a static constant of a structure."""
    type_node = member.child_by_field_name("type")
    if member.type == "alias_declaration":
        kind = node_type(type_node)
        name = text_of(member.child_by_field_name("name"))
        machine.frame.types[name] = machine.resolve(kind) or kind
        return
    found = declared(member.child_by_field_name("declarator"), node_type(type_node))
    default = member.child_by_field_name("default_value")
    if found is None:
        return
    if member.type == "type_definition":
        machine.frame.types[found.name] = machine.resolve(found.type) or found.type
    elif member.type == "field_declaration" and _is_static(member) and default is not None:
        value = machine.evaluate(machine, default)
        machine.frame.scopes[-1][found.name] = Cell(found.name, value, found.type)


def _specialization(
    machine: Machine, kind: CType
) -> tuple[Node, Sequence[TemplateParameter], Mapping[str, str]] | None:
    """A structure's body, and the parameters of its template with their arguments, as texts."""
    program = machine.program
    name, arguments = split_template(kind.name)
    last = name.rpartition("::")[2]
    listed = [re.sub(r"\s", "", each) for each in arguments]
    for key, body in program.structures.items() if listed else ():
        base, patterns = split_template(key)
        if base != last or len(patterns) != len(listed):
            continue
        parameters = program.class_templates.get(key, ())
        given: dict[str, str] = {}
        names = {parameter.name for parameter in parameters}
        if all(_fits(*each, names, given) for each in zip(patterns, listed, strict=True)):
            return body, parameters, given
    spelled = (*machine.spellings(kind.name), *machine.spellings(name), last)
    found = next((each for each in spelled if each in program.structures), None)
    if found is None:
        return None
    whole, parameters = program.structures[found], program.class_templates.get(found, ())
    named = zip((each.name for each in parameters), arguments, strict=False)
    return whole, parameters, dict(named)


def _fits(pattern: str, argument: str, names: Collection[str], given: dict[str, str]) -> bool:
    """Whether an argument of a template is that of a specialization, such as `T*`."""
    stem = pattern.rstrip("*")
    stars = pattern[len(stem) :]
    if stem not in names:
        return spelled_type(pattern) == spelled_type(argument)
    if not argument.endswith(stars):
        return False
    found = argument.removesuffix(stars)
    return given.setdefault(stem, found) == found


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
    if kind.extents:
        size, alignment = _layout(machine, CType(kind.name, kind.pointers))
        return None if size is None else size * math.prod(kind.extents), alignment
    if kind.pointers:
        return 8, 8
    if kind.name in _LAYOUTS:
        return _LAYOUTS[kind.name]
    if match := _VECTOR.fullmatch(kind.name):
        word, lanes = _WORD_SIZES[match[1]], int(match[2])
        return word * lanes, min(word * (lanes if lanes != 3 else 1), _MAX_ALIGNMENT)
    base, arguments = split_template(kind.name)
    if base.rpartition("::")[2] == "array" and len(arguments) == 2:
        return _array_layout(machine, *arguments)
    with inside(machine, kind) as body:
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


def _array_layout(machine: Machine, element: str, extent: str) -> tuple[int | None, int]:
    """The size and alignment of a `std::array`."""
    size, alignment = _layout(machine, spelled_type(element) or CType(""))
    node = parse_expression(extent)
    count = None if node is None else formula_of(machine.evaluate(machine, node))
    known = size is not None and count is not None and count.whole is not None
    return size * count.whole if known and size and count and count.whole else None, alignment


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
