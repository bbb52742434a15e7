"""Arguments of parameters whose types are known: numbers, arrays, structures, textures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memlab.errors import UsageError
from memlab.kernels.launch import (
    Argument,
    ArrayAlias,
    Buffer,
    InMemoryArray,
    Member,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    StructureType,
)
from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user import expressions
from memlab.kernels.user.arguments import views
from memlab.kernels.user.arguments.fills import parse_member_fills, parse_scalar
from memlab.kernels.user.arguments.hints import (
    declared_name,
    example_array,
    example_value,
    has_pointers,
    pointed,
    structure_hint,
)
from memlab.kernels.user.arguments.parsing import parse_specification, parse_structure
from memlab.kernels.user.arguments.specifications import (
    MAX_LISTED_MEMBERS,
    NULL,
    NUMPY_DTYPES,
    POINTERS,
    SHORT_DTYPES,
    STRUCTURE,
    AliasSpecification,
    ArraySpecification,
    NullSpecification,
    ScalarSpecification,
    Specification,
    StructureSpecification,
    TensorMapSpecification,
)
from memlab.kernels.user.arguments.tensor_maps import EXAMPLE, takes_tensor_map, tensor_map

POINTER_BYTES = 8

MAX_POINTED_ARRAYS = 4096
"""The most pointers in an array of pointers or of structures: each has memory of its own."""

MAX_SHOWN_TEXT = 120
"""The characters of an argument that a message shows."""


def handle_spelling(parameter: KernelParameter) -> str:
    """The type of a parameter that may be a handle; empty for one that is none."""
    is_handle = parameter.nbytes == POINTER_BYTES and (
        parameter.kind == "untyped" or (parameter.kind == "scalar" and parameter.dtype == "u64")
    )
    return parameter.spelling if is_handle else ""


def bind_view(argument: ArraySpecification, name: str, spelling: str, label: str) -> Buffer:
    """Bind a texture or surface; `spelling` is the type of its handle, empty if it is none."""
    view = argument.view
    assert view is not None
    kind = views.view_kind(spelling)
    if not spelling or (kind and kind != view.kind):
        wanted = f"write {views.example(kind)}" if kind else "a pointer takes an array, f32[64,64]"
        raise UsageError(f"{label} takes no {view.kind}, got {argument.text!r}: {wanted}")
    dtype = NUMPY_DTYPES[argument.dtype]
    return Buffer(name, argument.shape, dtype, argument.role, argument.fill, view=view)


def bind_scalar(argument: Specification, parameter: KernelParameter, label: str) -> Argument:
    """Bind a number to a parameter that is one.

    Raises:
        UsageError: It is no number, or not one of the parameter's type; `label` names the place.
    """
    dtype = parameter.dtype
    if not isinstance(argument, ScalarSpecification):
        raise UsageError(
            f"{label} takes a scalar, got {argument.text!r}: write {dtype}={example_value(dtype)}"
        )
    value = argument.value
    if not argument.dtype:
        value = _parse_labelled_scalar(dtype, argument.text, label)
    elif argument.dtype != dtype:
        written = argument.text.partition("=")[2].strip()
        raise UsageError(f"{label} is {dtype}, got {argument.text!r}: write {dtype}={written}")
    return Scalar(parameter.name, NUMPY_DTYPES[dtype], value)


def _parse_labelled_scalar(dtype: str, text: str, label: str) -> int | float:
    try:
        return parse_scalar(dtype, text)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None


def bind_structure(argument: Specification, parameter: KernelParameter, label: str) -> Structure:
    """Bind a structure passed by value.

    Raises:
        UsageError: It is none, or its values do not suit the members; `label` names the place.
    """
    hint = structure_hint(parameter)
    if not isinstance(argument, StructureSpecification):
        raise UsageError(f"{label} is a structure passed by value, got {argument.text!r}: {hint}")
    members: tuple[StructureMember, ...] = parameter.parts or ()
    name, size, alignment = parameter.name, parameter.nbytes, parameter.alignment_bytes
    if argument.path and not has_pointers(parameter):
        return Structure(name, size, alignment, path=argument.path)
    if parameter.parts is None:
        raise UsageError(f"{label} has members that are not numbers or share their bytes: {hint}")
    given = argument.values
    if len(members) > 1 and given in (("zeros",), ("ones",)) and not has_pointers(parameter):
        given = (str(int(given == ("ones",))),) * len(members)
    if len(given) != len(members):
        what = "values" if has_pointers(parameter) else "numbers"
        raise UsageError(
            f"{label} is a structure of {len(members)} {what}, got {_shortened(argument.text)!r}: "
            f"{hint}"
        )
    values = (
        _bind_member(value, member, name, label)
        for member, value in zip(members, given, strict=True)
    )
    offsets = (member.offset_bytes for member in members)
    return Structure(name, size, alignment, tuple(zip(offsets, values, strict=True)))


def _shortened(text: str) -> str:
    """A text in a message, without the end of a long one."""
    return text if len(text) <= MAX_SHOWN_TEXT else f"{text[:MAX_SHOWN_TEXT]}..."


def _bind_member(
    value: str | Specification, member: StructureMember, structure: str, label: str
) -> Member:
    """Bind a number or a pointer in a structure, which is named `structure`."""
    label = f"{label}.{member.name}"
    if member.pointer is not None:
        return _bind_element(value, member.pointer, label, f"{structure}.{member.name}")
    if takes_tensor_map(member):
        try:
            given = parse_specification(value) if isinstance(value, str) else value
        except UsageError as error:
            raise UsageError(f"{label} ({member.spelling}): {error}") from None
        if isinstance(given, TensorMapSpecification):
            return tensor_map(given, f"{structure}.{member.name}")
        raise UsageError(
            f"{label} ({member.spelling}) takes a tensor map, got {given.text!r}: write {EXAMPLE}"
        )
    kind = views.view_kind(member.spelling)
    if kind or (member.dtype == "u64" and _is_view(value)):
        try:
            given = parse_specification(value) if isinstance(value, str) else value
        except UsageError as error:
            raise UsageError(f"{label} ({member.spelling}): {error}") from None
        label = f"{label} ({member.spelling})"
        if isinstance(given, ArraySpecification) and given.view is not None:
            return bind_view(given, f"{structure}.{member.name}", member.spelling, label)
        raise UsageError(
            f"{label} takes a {kind}, got {given.text!r}: write {views.example(kind or 'texture')}"
        )
    if not isinstance(value, str):
        raise UsageError(
            f"{label} is a number, {member.dtype}, got {value.text!r}: give a number, or a tuple "
            "of numbers for an array that the structure holds itself"
        )
    number = _parse_labelled_scalar(member.dtype, value, label)
    if member.bits is not None:
        _check_bits(member, number, value, label)
    return Scalar(member.name, NUMPY_DTYPES[member.dtype], number, member.bits)


def _check_bits(member: StructureMember, number: float, text: str, label: str) -> None:
    """Refuse a value that a bit-field cannot hold.

    Raises:
        UsageError: It is outside its range.
    """
    width = member.bits[1] if member.bits else 0
    low, high = 0, 2**width - 1
    if member.dtype.startswith("i"):
        low, high = -(2 ** (width - 1)), 2 ** (width - 1) - 1
    if not low <= number <= high:
        raise UsageError(
            f"{label} ({member.spelling}) has {width} bits, got {text!r}: write a whole number "
            f"from {low} to {high}"
        )


def _is_view(value: str | Specification) -> bool:
    """Whether a value in a structure is written as a texture or surface."""
    if isinstance(value, str):
        return value.strip().startswith(tuple(f"{kind}=" for kind in views.VIEW_KINDS))
    return isinstance(value, ArraySpecification) and value.view is not None


def bind_array(
    argument: Specification, parameter: KernelParameter, label: str
) -> Buffer | NullPointer | ArrayAlias:
    """Bind an array, a null pointer or the array of another argument to a pointer.

    Raises:
        UsageError: It is none of these, or does not suit what the pointer points to; `label` names
            the place.
    """
    role, dtype = "in" if parameter.readonly else "inout", parameter.dtype
    if isinstance(argument, NullSpecification):
        return NullPointer(parameter.name)
    if isinstance(argument, AliasSpecification):
        return ArrayAlias(
            parameter.name, argument.array, NUMPY_DTYPES.get(dtype, ""), argument.start
        )
    if not isinstance(argument, ArraySpecification):
        example = (
            dtype or (argument.dtype if isinstance(argument, ScalarSpecification) else "") or "u8"
        )
        written = f"{role}:{example}[N]"
        if parameter.target is not None or parameter.structure is not None:
            written = example_array(parameter)
        raise UsageError(
            f"{label} takes an array, got {argument.text!r}: write {written}, or {NULL}"
        )
    if parameter.readonly and argument.role != "in":
        raise UsageError(
            f"{label} is a pointer to const, through which no kernel writes, "
            f"got {argument.text!r}: write in: instead of {argument.role}:"
        )
    if argument.dtype == STRUCTURE:
        return _bind_structures(argument, parameter, label)
    if argument.dtype == POINTERS:
        return _bind_pointers(argument, parameter, label)
    if parameter.target is not None and argument.dtype != "u64":
        raise UsageError(
            f"{label} points to pointers, got {argument.text!r}: write {example_array(parameter)}"
            ", an array for each pointer"
        )
    if dtype and argument.dtype != dtype:
        extents = ",".join(map(str, argument.shape))
        cure = f"write {argument.role}:{dtype}[{extents}]"
        if isinstance(argument.fill, InMemoryArray):
            cure = f"convert it, array.astype({NUMPY_DTYPES[dtype]!r})"
        raise UsageError(f"{label} points to {dtype}, got {argument.text!r}: {cure}")
    array = Buffer(
        parameter.name,
        argument.shape,
        NUMPY_DTYPES[argument.dtype],
        argument.role,
        argument.fill,
        start=argument.start,
    )
    if not dtype and parameter.element_bytes and array.nbytes % parameter.element_bytes:
        raise UsageError(
            f"{label} points to structures of {parameter.element_bytes} bytes, got "
            f"{argument.text!r} of {array.nbytes} bytes: give a multiple of "
            f"{parameter.element_bytes}"
        )
    return array


def _bind_pointers(argument: ArraySpecification, parameter: KernelParameter, label: str) -> Buffer:
    """Bind an array of pointers."""
    void = KernelParameter(parameter.name, "pointer", "", "void *", POINTER_BYTES)
    target = parameter.target or (None if parameter.element_bytes else void)
    if target is None:
        raise UsageError(
            f"{label} points to {pointed(parameter)}, got {argument.text!r}: write "
            f"{example_array(parameter)}"
        )
    count = _pointed_count(argument, 1, label)
    elements = argument.elements or tuple(expressions.split_list(argument.member_fill))
    if len(elements) not in (1, count):
        raise UsageError(
            f"{label} has {count} pointers, got {argument.text!r} with {len(elements)} arrays: "
            "give one array for each, or one for all"
        )
    members = tuple(
        (
            number * POINTER_BYTES,
            _bind_element(elements[number % len(elements)], target, f"{label}[{number}]", name),
        )
        for number, name in _element_names(parameter, argument)
    )
    return Buffer(
        parameter.name,
        argument.shape,
        "uint64",
        argument.role,
        SingleValue(0),
        members=members,
        start=argument.start,
    )


def _bind_element(
    given: str | Specification, pointer: KernelParameter, label: str, name: str
) -> Buffer | NullPointer | ArrayAlias:
    """Bind a pointer in an array of pointers or a structure."""
    try:
        parsed = parse_specification(_unwrapped(given)) if isinstance(given, str) else given
    except UsageError as error:
        raise UsageError(f"{label} ({pointer.spelling}): {error}") from None
    return bind_array(parsed, replace(pointer, name=name), f"{label} ({pointer.spelling})")


def _element_names(
    parameter: KernelParameter, argument: ArraySpecification
) -> Iterator[tuple[int, str]]:
    """The elements of an array: their row-major positions and names."""
    for number in range(math.prod(argument.shape)):
        yield number, f"{parameter.name}[{number}]"


def _pointed_count(argument: ArraySpecification, each: int, label: str) -> int:
    """The number of elements, each of which has so many pointers.

    Raises:
        UsageError: There are too many.
    """
    count = math.prod(argument.shape)
    if count * each > MAX_POINTED_ARRAYS:
        raise UsageError(
            f"{label} has {count * each} pointers, got {argument.text[:60]!r}, and memlab gives "
            f"memory to at most {MAX_POINTED_ARRAYS}: use fewer elements"
        )
    return count


def _unwrapped(text: str) -> str:
    """A text without the parentheses around all of it."""
    text = text.strip()
    return text[1:-1] if _is_wrapped(text) else text


def _is_wrapped(text: str) -> bool:
    return text.startswith("(") and text.endswith(")")


def _bind_structures(
    argument: ArraySpecification, parameter: KernelParameter, label: str
) -> Buffer:
    """Bind an array of structures."""
    structure = parameter.structure
    if structure is None or (structure.has_pointers and parameter.parts is None):
        is_plain = parameter.dtype or parameter.target or structure
        raise UsageError(
            f"{label} points to {pointed(parameter)}, got {argument.text!r}: write "
            f"{example_array(parameter, argument)}{'' if is_plain else ', their bytes'}"
        )
    array = Buffer(
        parameter.name,
        argument.shape,
        structure_dtype(structure),
        argument.role,
        argument.fill,
        structure=structure,
        start=argument.start,
    )
    texts = expressions.split_list(argument.member_fill) if argument.member_fill else []
    if argument.elements or (texts and all(map(_is_wrapped, texts))):
        return _with_structures(array, argument, parameter, label)
    if structure.has_pointers and argument.role != "out":
        return _with_pointers(array, argument, parameter, label, texts)
    if argument.member_fill:
        try:
            return replace(array, fill=parse_member_fills(structure, argument.member_fill))
        except UsageError as error:
            raise UsageError(f"{label}: {error}") from None
    return array


def _with_structures(
    array: Buffer, argument: ArraySpecification, parameter: KernelParameter, label: str
) -> Buffer:
    """An array with structures that are given one by one: `struct[2]=(1,f32[8]),(2,null)`."""
    parts = parameter.parts
    if parts is None and array.structure is not None:
        parts = tuple(_number_parts(array.structure))
    each = sum(part.pointer is not None for part in parts or ())
    count = _pointed_count(argument, max(each, 1), label)
    given = argument.elements or tuple(
        parse_structure(text, _unwrapped(text))
        for text in expressions.split_list(argument.member_fill)
    )
    if len(given) not in (1, count):
        raise UsageError(
            f"{label} has {count} structures, got {argument.text!r} with {len(given)}: give one "
            "for each, or one for all"
        )
    members: list[tuple[int, Member]] = []
    whole = replace(parameter, kind="structure", nbytes=array.element_bytes, parts=parts)
    for number, name in _element_names(parameter, argument):
        structure = given[number % len(given)]
        assert not isinstance(structure, str)
        bound = bind_structure(structure, replace(whole, name=name), f"{label}[{number}]")
        start = number * array.element_bytes
        members += [(start + offset, member) for offset, member in bound.members]
    return replace(array, fill=SingleValue(0), members=tuple(members))


def _number_parts(
    structure: StructureType, prefix: str = "", offset_bytes: int = 0
) -> Iterator[StructureMember]:
    """The numbers of a structure without pointers, at any depth, in the order of declaration."""
    for member in structure.members:
        places = itertools.product(*map(range, member.shape))
        for number, place in enumerate(places):
            name = f"{prefix}{member.name}" + "".join(f"[{index}]" for index in place)
            offset = offset_bytes + member.offset_bytes + number * member.element_bytes
            if member.structure is not None:
                yield from _number_parts(member.structure, f"{name}.", offset)
            else:
                yield StructureMember(name, SHORT_DTYPES[member.dtype], offset, member.dtype)


def _with_pointers(
    array: Buffer,
    argument: ArraySpecification,
    parameter: KernelParameter,
    label: str,
    texts: Sequence[str],
) -> Buffer:
    """An array of structures with pointers, given member by member: `struct[8]=f32[64],arange`."""
    structure, parts = array.structure, parameter.parts or ()
    names = list(dict.fromkeys(map(declared_name, parts)))
    if structure is None or argument.fill is not None or len(texts) != len(names):
        raise UsageError(
            f"{label} has structures with pointers, got {argument.text!r}: write "
            f"{example_array(parameter, argument)}, a fill or an array for each member "
            f"({', '.join(names[:MAX_LISTED_MEMBERS])})"
        )
    _pointed_count(argument, sum(part.pointer is not None for part in parts), label)
    values = dict(zip(names, texts, strict=True))
    pointers = [(part, part.pointer) for part in parts if part.pointer is not None]
    members = tuple(
        (
            number * array.element_bytes + part.offset_bytes,
            _bind_element(
                values[declared_name(part)],
                pointer,
                f"{label}[{number}].{part.name}",
                f"{name}.{part.name}",
            ),
        )
        for number, name in _element_names(parameter, argument)
        for part, pointer in pointers
    )
    pointed = {declared_name(part) for part, _ in pointers}
    fills = [value for name, value in values.items() if name not in pointed]
    try:
        fill = parse_member_fills(structure, ",".join(fills)) if fills else None
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None
    return replace(array, fill=fill, members=members)


def structure_dtype(structure: StructureType) -> str:
    """NumPy's name of the type of a structure: its bits."""
    return f"void{8 * structure.nbytes}"
