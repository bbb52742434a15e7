"""Arguments of user kernels: texts such as `inout:f32[4096]=ones`, parsed and checked.

A specification is data: it is parsed and checked against its parameter, and nothing in it is
evaluated. Of a file only the shape is read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Arange,
    Argument,
    ArrayAlias,
    Buffer,
    Fill,
    InMemoryArray,
    Member,
    MemberFills,
    MemberType,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    StructureType,
    Uniform,
    View,
    array_arguments,
    dtype_bytes,
    nested_arguments,
)
from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user import array_files, expressions, views

if TYPE_CHECKING:
    from numpy.typing import NDArray


NUMPY_DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    **{
        f"{letter}{bits}": f"{word}{bits}"
        for letter, word in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
    "bool": "bool",
}
"""NumPy's names of the element types, by memlab's names."""

SHORT_DTYPES = {name: short for short, name in NUMPY_DTYPES.items()}
"""memlab's names of the element types, by NumPy's names."""

STRUCTURE = "struct"
"""The word for a structure, and for the element type of an array of structures."""

POINTERS = "ptr"
"""The word for an array of pointers."""

MAX_POINTED_ARRAYS = 4096
"""The most pointers in an array of pointers or of structures: each has memory of its own."""

MAX_FLOATS = {
    "f64": 1.7976931348623157e308,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "f16": 65504.0,
    "bf16": (2 - 2.0**-7) * 2.0**127,
}
"""The largest finite values: IEEE 754, table 3.5; bfloat16 has float's exponent and 8 bits."""

MAX_ELEMENTS = 2**63 - 1
"""The most elements of an array: the range of 64-bit addresses, more than any GPU's memory."""

Role = Literal["in", "out", "inout"]
ROLES: dict[str, Role] = {"in": "in", "out": "out", "inout": "inout"}

SPECIFICATION_PATTERN = re.compile(
    r"\s*(?:(?P<role>[A-Za-z]\w*):)?(?P<type>[A-Za-z]\w*)\s*(?:\[(?P<shape>[^\[\]]*)\])?"
    r"\s*(?:=(?P<value>.*))?",
    re.DOTALL,
)
_EXAMPLES = "write f32=2.0, i32[1024], inout:f32[64,64]=ones or f32[]=@x.npy"
_NULL = "null"
_POINTER_BYTES = 8
_MAX_LISTED_MEMBERS = 8
MAX_SHOWN_TEXT = 120
"""The characters of an argument that a message shows."""


@dataclass(frozen=True)
class ScalarSpecification:
    """A scalar: `f32=2.0`, or a Python number.

    Attributes:
        dtype: The type, for example `f32`; empty for a Python number, which takes its
            parameter's type.
        value: The value; for a Python number it is checked against the type later.
        text: The text that specifies it.
        numpy_dtype: The type of a NumPy scalar, which kernels in Python keep; empty for others.
    """

    dtype: str
    value: int | float
    text: str
    numpy_dtype: str = ""


@dataclass(frozen=True)
class ArraySpecification:
    """An array: `inout:f32[64,64]=ones`.

    Attributes:
        dtype: The type of its elements, for example `f32`; `struct` for structures, `ptr` for
            pointers.
        shape: Elements in each dimension, row-major.
        role: Whether the kernel reads it, writes it, or both.
        fill: How it is filled before the launch; None for random elements.
        text: The text that specifies it.
        member_fill: The fill of structures that are not from a file or from Python, as text: it is
            parsed for each member when their types are known. Of pointers, the list of arrays.
        view: The texture or surface object through which the kernel sees it, if any.
        elements: The pointers or structures one by one, from Python; empty for a text.
    """

    dtype: str
    shape: tuple[int, ...]
    role: Role
    fill: Fill | None
    text: str
    member_fill: str = ""
    view: View | None = None
    elements: tuple[str | Specification, ...] = ()


@dataclass(frozen=True)
class StructureSpecification:
    """A structure passed by value: `struct=1,2.5,f32[64]`, or its bytes, `struct=@FILE.npy`.

    Attributes:
        values: Its numbers and pointers in order, as texts or, from Python, already parsed.
        path: The file with its bytes, where it has no pointers; empty if there is none.
        text: The text that specifies it.
    """

    values: tuple[str | Specification, ...]
    path: str
    text: str


@dataclass(frozen=True)
class NullSpecification:
    """A null pointer: `null`."""

    text: str = _NULL


@dataclass(frozen=True)
class AliasSpecification:
    """A pointer to an array that another argument passes: `@x`.

    Attributes:
        array: The name of the array: that of its parameter, or `view.data` in a structure.
        text: The text that specifies it.
    """

    array: str
    text: str


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """The expected values of an output, passed from Python.

    Attributes:
        which: The output's name, or the number of the argument.
        values: The expected values, in the output's shape or flat.
    """

    which: str
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class ConstantValues:
    """The values of a `__constant__` or `__device__` variable, passed from Python.

    Attributes:
        name: The variable's name in the source.
        values: The values, in the variable's shape or flat.
        is_list: Whether they come from a list, whose numbers have no type of their own.
        text: The text that stands for them where a run is kept.
    """

    name: str
    values: NDArray[Any]
    is_list: bool
    text: str


Specification: TypeAlias = (
    ScalarSpecification
    | ArraySpecification
    | StructureSpecification
    | NullSpecification
    | AliasSpecification
)
"""A parsed argument that is not yet checked against its parameter."""


def bind_arguments(
    texts: Sequence[str | Specification], parameters: Sequence[KernelParameter]
) -> tuple[Argument, ...]:
    """Parse the arguments of a kernel and check each against its parameter.

    Args:
        texts: A specification for each parameter, in the kernel's order: a text or, from Python,
            an already parsed specification.
        parameters: The parameters that the compiled kernel declares.

    Raises:
        UsageError: There are too many or too few arguments, or one is malformed or does not suit
            its parameter; the message numbers arguments from 0.
    """
    if len(texts) != len(parameters):
        raise UsageError(
            f"the kernel takes {describe_parameters(parameters)}, got {len(texts)}: "
            "give one --arg for each, in this order"
        )
    arguments = tuple(
        _bind_argument(text, parameter, _parameter_label(index, parameter))
        for index, (text, parameter) in enumerate(zip(texts, parameters, strict=True))
    )
    _check_aliases(arguments)
    return arguments


def describe_parameters(parameters: Sequence[KernelParameter]) -> str:
    """Describe a kernel's parameters in a message: `2 arguments (float * y, int n)`."""
    listed = ", ".join(f"{parameter.spelling} {parameter.name}".strip() for parameter in parameters)
    count = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
    return f"{count} ({listed})" if parameters else "no arguments"


def _parameter_label(index: int, parameter: KernelParameter) -> str:
    """Name a parameter in a message: `argument 2 (y, float *)`."""
    number = f"argument {index}"
    names = [name for name in (parameter.name, parameter.spelling) if name != number]
    return f"{number} ({', '.join(names)})"


def unsupported_reason(parameter: KernelParameter) -> str:
    """Say why memlab cannot pass a parameter and what to do instead; empty if it can."""
    if "(*" in parameter.spelling and parameter.kind == "structure":
        return (
            "is a function passed by value, which memlab cannot pass: call the function by its "
            "name in the kernel, or choose it with -D"
        )
    for member in parameter.parts or ():
        if not member.dtype and member.pointer is None:
            return (
                f"is a structure whose member {member.name} ({member.spelling}) is neither a "
                "number nor a pointer to data, and memlab passes only these: pass it as a separate "
                "argument"
            )
    return ""


def structure_hint(parameter: KernelParameter) -> str:
    """Say how to write a structure: `write struct=1.0,1 (x f32, n i32)`."""
    if parameter.parts is None:
        return f"write {STRUCTURE}=@FILE.npy, a file with its {parameter.nbytes} bytes as u8"
    if not parameter.parts:
        return f"write {STRUCTURE}, for it has no members"
    shown, hidden = parameter.parts[:_MAX_LISTED_MEMBERS], parameter.parts[_MAX_LISTED_MEMBERS:]
    example = ",".join(
        [*(_example_member(member) for member in shown), *(["..."] if hidden else [])]
    )
    listed = ", ".join(f"{member.name} {member.dtype or member.spelling}" for member in shown)
    if hidden and _has_pointers(parameter):
        return f"write {STRUCTURE}={example} ({listed}, and {len(hidden)} more)"
    if hidden:
        whole = f"{STRUCTURE}=@FILE.npy with its {parameter.nbytes} bytes as u8"
        return f"write {STRUCTURE}={example} ({listed}, and {len(hidden)} more), or {whole}"
    return f"write {STRUCTURE}={example} ({listed})"


def parse_specification(text: str) -> Specification:
    """Parse a specification.

    Raises:
        UsageError: It is malformed, its value is outside the range of its type, or the file
            whose shape it takes cannot be read.
    """
    if is_number(text):  # its type is that of its parameter
        return ScalarSpecification("", _parse_float(text) or 0.0, text.strip())
    if text.strip().startswith("@"):
        return _parse_alias(text)
    match = SPECIFICATION_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not an argument: {_EXAMPLES}")
    role, kind, shape, value = match.group("role", "type", "shape", "value")
    if text.strip() == _NULL:
        return NullSpecification(text)
    if kind in views.VIEW_KINDS and shape is None and role is None:
        return _parse_view(text, kind, value)
    if kind == STRUCTURE and shape is None:
        if role is None:
            return _parse_structure(text, value)
        raise UsageError(
            f"{text!r} has no dimensions: write {role}:{STRUCTURE}[N] for N elements, or "
            f"{STRUCTURE}=1,2 for a structure passed by value"
        )
    if kind == POINTERS and shape is None:
        raise UsageError(
            f"{text!r} has no dimensions: write {POINTERS}[2]=in:f32[64],in:f32[32], an array for "
            "each pointer"
        )
    if kind not in (*NUMPY_DTYPES, STRUCTURE, POINTERS) and kind == text.strip():
        raise UsageError(
            f"{text!r} is neither a type nor a symbol: {_EXAMPLES}, or give the symbol with "
            f"--set {kind}=VALUE"
        )
    if kind not in (*NUMPY_DTYPES, STRUCTURE, POINTERS):
        known = [*NUMPY_DTYPES, STRUCTURE, POINTERS, *views.VIEW_KINDS, _NULL]
        raise UsageError(f"{text!r} has the unknown type {kind!r}: {suggest_nearest(kind, known)}")
    if role is not None and role not in ROLES:
        raise UsageError(f"{text!r} has the unknown prefix {role!r}: use in:, out: or inout:")
    if shape is not None:
        return _parse_array(text, kind, shape, ROLES[role or "in"], value)
    if role is not None:
        raise UsageError(f"{text!r} has no dimensions: write {role}:{kind}[N] for N elements")
    if value is None:
        raise UsageError(
            f"{text!r} has no value and no dimensions: write {kind}={_example_value(kind)} for "
            "a scalar, "
            f"{kind}[N] for an array"
        )
    return ScalarSpecification(kind, _parse_scalar(kind, value.strip()), text)


def is_number(text: str) -> bool:
    """Whether a text is a plain number, `true` or `false`: a scalar without a type."""
    plain = text.strip()
    return (
        _parse_integer(plain) is not None
        or _parse_float(plain) is not None
        or plain.lower() in ("true", "false")
    )


def parse_fill(dtype: str, text: str) -> Fill | None:
    """Parse the fill of an array: `random`, `zeros`, `randint:0:10`, `@FILE.npy` and so on.

    Args:
        dtype: The type of its elements, for example `f32`.
        text: The text after the `=`.

    Returns:
        The fill; None for random elements.

    Raises:
        UsageError: There is no such fill, or this type does not have it.
    """
    name, _, bounds = text.partition(":")
    if text.startswith("@"):
        if not text[1:]:
            raise UsageError("@ names no file: write @FILE.npy")
        return NpyFile(text[1:])
    if name in ("randint", "uniform"):
        return _parse_uniform(dtype, name, bounds)
    fills: dict[str, Fill | None] = {
        "random": None,
        "zeros": SingleValue(0),
        "ones": SingleValue(1),
        "arange": Arange(),
    }
    if text not in fills:
        if _parse_float(text) is not None or _parse_integer(text) is not None:
            return SingleValue(_parse_scalar(dtype, text))
        names = [*fills, "randint:LO:HI", "uniform:LO:HI", "@FILE.npy", "a number"]
        raise UsageError(f"an array cannot be filled with {text!r}: {suggest_nearest(text, names)}")
    return fills[text]


def _bind_argument(text: str | Specification, parameter: KernelParameter, label: str) -> Argument:
    if reason := unsupported_reason(parameter):
        raise UsageError(f"{label} {reason}")
    try:
        argument = parse_specification(text) if isinstance(text, str) else text
    except UsageError as error:
        if parameter.kind == "structure" and STRUCTURE not in str(text):  # such as `float3=1,2,3`
            hint = structure_hint(parameter)
            raise UsageError(f"{label} is a structure, got {text!r}: {hint}") from None
        raise UsageError(f"{label}: {error}") from None
    kind = _view_kind(parameter.spelling)
    if isinstance(argument, ArraySpecification) and argument.view is not None:
        return _bind_view(argument, parameter.name, _handle_spelling(parameter), label)
    if kind:
        raise UsageError(
            f"{label} takes a {kind}, got {argument.text!r}: write {views.example(kind)}"
        )
    bind_kind = {
        "scalar": _bind_scalar,
        "pointer": _bind_array,
        "structure": _bind_structure,
        "untyped": _bind_untyped,
    }
    return bind_kind[parameter.kind](argument, parameter, label)


def _view_kind(spelling: str) -> views.ViewKind | None:
    """What a parameter or member of a type is, if it is a texture or surface object."""
    words = {f"cuda{kind.capitalize()}Object_t": kind for kind in views.VIEW_KINDS}
    return next((kind for word, kind in words.items() if word in spelling), None)


def _handle_spelling(parameter: KernelParameter) -> str:
    """The type of a parameter that may be a handle; empty for one that is none."""
    is_handle = parameter.nbytes == _POINTER_BYTES and (
        parameter.kind == "untyped" or (parameter.kind == "scalar" and parameter.dtype == "u64")
    )
    return parameter.spelling if is_handle else ""


def _bind_view(argument: ArraySpecification, name: str, spelling: str, label: str) -> Buffer:
    """Bind a texture or surface; `spelling` is the type of its handle, empty if it is none."""
    view = argument.view
    assert view is not None
    kind = _view_kind(spelling)
    if not spelling or (kind and kind != view.kind):
        wanted = f"write {views.example(kind)}" if kind else "a pointer takes an array, f32[64,64]"
        raise UsageError(f"{label} takes no {view.kind}, got {argument.text!r}: {wanted}")
    dtype = NUMPY_DTYPES[argument.dtype]
    return Buffer(name, argument.shape, dtype, argument.role, argument.fill, view=view)


def _bind_scalar(argument: Specification, parameter: KernelParameter, label: str) -> Argument:
    dtype = parameter.dtype
    if not isinstance(argument, ScalarSpecification):
        raise UsageError(
            f"{label} takes a scalar, got {argument.text!r}: write {dtype}={_example_value(dtype)}"
        )
    value = argument.value
    if not argument.dtype:
        value = _parse_labelled_scalar(dtype, argument.text, label)
    elif argument.dtype != dtype:
        written = argument.text.partition("=")[2].strip()
        raise UsageError(f"{label} is {dtype}, got {argument.text!r}: write {dtype}={written}")
    return Scalar(parameter.name, NUMPY_DTYPES[dtype], value)


def _bind_untyped(argument: Specification, parameter: KernelParameter, label: str) -> Argument:
    """Bind a parameter of which only the size is known: the argument must have this size."""
    size = parameter.nbytes
    if isinstance(argument, StructureSpecification):
        return _bind_untyped_structure(argument, parameter, label)
    if not isinstance(argument, ScalarSpecification):
        if size != _POINTER_BYTES:
            raise UsageError(
                f"{label} has {size} bytes, and a pointer has {_POINTER_BYTES}, got "
                f"{argument.text!r}: {_untyped_hint(parameter)}"
            )
        return _bind_array(argument, replace(parameter, kind="pointer"), label)
    dtype = argument.dtype or _untyped_number(argument, parameter)
    if not dtype or dtype_bytes(dtype) != size:
        raise UsageError(
            f"{label} has {size} bytes, got {argument.text!r}: {_untyped_hint(parameter)}"
        )
    return _bind_scalar(argument, replace(parameter, kind="scalar", dtype=dtype), label)


def _bind_untyped_structure(
    argument: StructureSpecification, parameter: KernelParameter, label: str
) -> Argument:
    """Bind a structure whose members have the types and order of its values, as C++ lays it out."""
    whole = replace(parameter, kind="structure")
    if argument.path:
        return _bind_structure(argument, whole, label)
    members: list[StructureMember] = []
    values: list[str | Specification] = []
    end, alignment = 0, 1
    for number, text in enumerate(argument.values):
        name, value = f"m{number}", parse_specification(text) if isinstance(text, str) else text
        if isinstance(value, ScalarSpecification):
            if not value.dtype:
                raise UsageError(
                    f"{label}: PTX does not tell the types of members, got {value.text!r}: write "
                    f"them, {STRUCTURE}=f32=1.5,i32=2,in:f32[N], or {STRUCTURE}=@FILE.npy"
                )
            width, pointer = dtype_bytes(value.dtype), None
            values.append(value.text.partition("=")[2].strip())
        else:
            width = _POINTER_BYTES
            pointer = KernelParameter(name, "pointer", "", ".u64", width)
            values.append(value)
        start = -(-end // width) * width
        dtype = value.dtype if isinstance(value, ScalarSpecification) else ""
        members.append(StructureMember(name, dtype, start, dtype or ".u64", pointer))
        end, alignment = start + width, max(alignment, width)
    nbytes = -(-end // alignment) * alignment
    if nbytes != parameter.nbytes:
        raise UsageError(
            f"{label} has {parameter.nbytes} bytes, and {argument.text!r} takes {nbytes}: give all "
            f"members with their types, or {STRUCTURE}=@FILE.npy, its {parameter.nbytes} bytes"
        )
    return _bind_structure(
        replace(argument, values=tuple(values)), replace(whole, parts=tuple(members)), label
    )


def _untyped_number(argument: ScalarSpecification, parameter: KernelParameter) -> str:
    """The type of a number without one: the first type of the parameter's size that holds it.

    A `.u32` of PTX holds no float; four bytes of machine code may.
    """
    size, whole = parameter.nbytes, _parse_integer(argument.text.strip())
    if whole is None and not parameter.spelling.startswith((".u", ".s")):
        return {4: "f32", 8: "f64"}.get(size, "")
    for dtype in (f"i{8 * size}", f"u{8 * size}") if size in (1, 2, 4, 8) else ():
        low, high = _integer_range(dtype)
        if whole is not None and low <= whole <= high:
            return dtype
    return ""


def _untyped_hint(parameter: KernelParameter) -> str:
    """Say how to write an argument of which only the size is known."""
    size = parameter.nbytes
    forms = ["inout:f32[N]"] if size == _POINTER_BYTES else []
    forms += [
        f"{each}={_example_value(each)}" for each in NUMPY_DTYPES if dtype_bytes(each) == size
    ]
    whole = f"its members with their types, {STRUCTURE}=f32=1.5,i32=2"
    return f"write {', '.join(forms[:4])}" if forms else f"write {whole}"


def _bind_structure(argument: Specification, parameter: KernelParameter, label: str) -> Structure:
    hint = structure_hint(parameter)
    if not isinstance(argument, StructureSpecification):
        raise UsageError(f"{label} is a structure passed by value, got {argument.text!r}: {hint}")
    members: tuple[StructureMember, ...] = parameter.parts or ()
    name, size, alignment = parameter.name, parameter.nbytes, parameter.alignment_bytes
    if argument.path and not _has_pointers(parameter):
        return Structure(name, size, alignment, path=argument.path)
    if parameter.parts is None:
        raise UsageError(f"{label} has members that are not numbers or share their bytes: {hint}")
    given = argument.values
    if len(members) > 1 and given in (("zeros",), ("ones",)) and not _has_pointers(parameter):
        given = (str(int(given == ("ones",))),) * len(members)
    if len(given) != len(members):
        what = "values" if _has_pointers(parameter) else "numbers"
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
    kind = _view_kind(member.spelling)
    if kind or (member.dtype == "u64" and _is_view(value)):
        try:
            given = parse_specification(value) if isinstance(value, str) else value
        except UsageError as error:
            raise UsageError(f"{label} ({member.spelling}): {error}") from None
        label = f"{label} ({member.spelling})"
        if isinstance(given, ArraySpecification) and given.view is not None:
            return _bind_view(given, f"{structure}.{member.name}", member.spelling, label)
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


def _has_pointers(parameter: KernelParameter) -> bool:
    """Whether it is a structure whose members include pointers."""
    return any(member.pointer is not None for member in parameter.parts or ())


def _check_aliases(arguments: Sequence[Argument]) -> None:
    """Refuse a pointer to the array of another argument where none has this name and type."""
    arrays = {array.name: array for array in array_arguments(arguments)}
    for alias in nested_arguments(arguments):
        if not isinstance(alias, ArrayAlias):
            continue
        if alias.array not in arrays:
            hint = suggest_nearest(alias.array, arrays) if arrays else "no argument is an array"
            raise UsageError(
                f"{alias.name} is @{alias.array}, and no array argument has this name: {hint}; "
                f"for an array from a file write f32[]=@{alias.array}"
            )
        held = arrays[alias.array].dtype
        if alias.dtype not in ("", held):
            raise UsageError(
                f"{alias.name} points to {alias.dtype}, and @{alias.array} is an array of "
                f"{held}: name one of {alias.dtype}"
            )


def _parse_labelled_scalar(dtype: str, text: str, label: str) -> int | float:
    try:
        return _parse_scalar(dtype, text)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None


def _bind_array(
    argument: Specification, parameter: KernelParameter, label: str
) -> Buffer | NullPointer | ArrayAlias:
    role, dtype = "in" if parameter.readonly else "inout", parameter.dtype
    if isinstance(argument, NullSpecification):
        return NullPointer(parameter.name)
    if isinstance(argument, AliasSpecification):
        return ArrayAlias(parameter.name, argument.array, NUMPY_DTYPES.get(dtype, ""))
    if not isinstance(argument, ArraySpecification):
        example = (
            dtype or (argument.dtype if isinstance(argument, ScalarSpecification) else "") or "u8"
        )
        written = f"{role}:{example}[N]"
        if parameter.target is not None or parameter.structure is not None:
            written = _example_array(parameter)
        raise UsageError(
            f"{label} takes an array, got {argument.text!r}: write {written}, or {_NULL}"
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
            f"{label} points to pointers, got {argument.text!r}: write {_example_array(parameter)}"
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
    void = KernelParameter(parameter.name, "pointer", "", "void *", _POINTER_BYTES)
    target = parameter.target or (None if parameter.element_bytes else void)
    if target is None:
        raise UsageError(
            f"{label} points to {_pointed(parameter)}, got {argument.text!r}: write "
            f"{_example_array(parameter)}"
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
            number * _POINTER_BYTES,
            _bind_element(elements[number % len(elements)], target, f"{label}[{number}]", name),
        )
        for number, name in _element_names(parameter, argument)
    )
    return Buffer(parameter.name, argument.shape, "uint64", argument.role, SingleValue(0), members)


def _bind_element(
    given: str | Specification, pointer: KernelParameter, label: str, name: str
) -> Buffer | NullPointer | ArrayAlias:
    """Bind a pointer in an array of pointers or a structure."""
    try:
        parsed = parse_specification(_unwrapped(given)) if isinstance(given, str) else given
    except UsageError as error:
        raise UsageError(f"{label} ({pointer.spelling}): {error}") from None
    return _bind_array(parsed, replace(pointer, name=name), f"{label} ({pointer.spelling})")


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
            f"{label} points to {_pointed(parameter)}, got {argument.text!r}: write "
            f"{_example_array(parameter, argument)}{'' if is_plain else ', their bytes'}"
        )
    array = Buffer(
        parameter.name,
        argument.shape,
        structure_dtype(structure),
        argument.role,
        argument.fill,
        structure=structure,
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
    parts = parameter.parts or ()
    each = sum(part.pointer is not None for part in parts)
    count = _pointed_count(argument, max(each, 1), label)
    given = argument.elements or tuple(
        _parse_structure(text, _unwrapped(text))
        for text in expressions.split_list(argument.member_fill)
    )
    if len(given) not in (1, count):
        raise UsageError(
            f"{label} has {count} structures, got {argument.text!r} with {len(given)}: give one "
            "for each, or one for all"
        )
    members: list[tuple[int, Member]] = []
    whole = replace(parameter, kind="structure", nbytes=array.element_bytes)
    for number, name in _element_names(parameter, argument):
        structure = given[number % len(given)]
        assert not isinstance(structure, str)
        bound = _bind_structure(structure, replace(whole, name=name), f"{label}[{number}]")
        start = number * array.element_bytes
        members += [(start + offset, member) for offset, member in bound.members]
    return replace(array, fill=SingleValue(0), members=tuple(members))


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
            f"{_example_array(parameter, argument)}, a fill or an array for each member "
            f"({', '.join(names[:_MAX_LISTED_MEMBERS])})"
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


def declared_name(part: StructureMember) -> str:
    """The name of a member as declared, without the subscripts of an element of an array."""
    return re.sub(r"\[\d+\]", "", part.name)


def _pointed(parameter: KernelParameter) -> str:
    """What a pointer points to, in a message."""
    if parameter.dtype:
        return parameter.dtype
    if parameter.target is not None:
        return "pointers"
    if parameter.structure is None:
        return "no structures whose members are all numbers or pointers"
    return "structures"


def _example_array(parameter: KernelParameter, given: ArraySpecification | None = None) -> str:
    """An array that suits a pointer, for messages; its role and dimensions are those given."""
    role = given.role if given else "in" if parameter.readonly else "inout"
    extents = ",".join(map(str, given.shape)) if given else "N"
    if parameter.target is not None:
        return f"{POINTERS}[{extents}]={_example_array(parameter.target)}"
    if parameter.structure is None or parameter.dtype:
        size = f",{parameter.element_bytes}" if parameter.element_bytes else ""
        whole = f"{parameter.dtype}[{extents}]" if parameter.dtype else f"u8[{extents}{size}]"
        return f"{role}:{whole}"
    if not parameter.structure.has_pointers:
        return f"{role}:{STRUCTURE}[{extents}]"
    if parameter.parts is None:  # too many pointers lead to it
        return _NULL
    members = {declared_name(part): _example_member(part) for part in parameter.parts}
    shown = [*members.values()][:_MAX_LISTED_MEMBERS]
    more = ["..."] if len(members) > _MAX_LISTED_MEMBERS else []
    return f"{STRUCTURE}[{extents}]={','.join(shown + more)}"


def structure_dtype(structure: StructureType) -> str:
    """NumPy's name of the type of a structure: its bits."""
    return f"void{8 * structure.nbytes}"


def _parse_structure(text: str, value: str | None) -> StructureSpecification:
    written = (value or "").strip()
    if written == "@":
        raise UsageError("@ names no file: write @FILE.npy")
    values = tuple(expressions.split_list(written)) if written else ()
    path = written[1:] if written.startswith("@") else ""
    return StructureSpecification(values, path, text)


def _parse_view(text: str, kind: views.ViewKind, value: str | None) -> ArraySpecification:
    """Parse a texture or a surface: `texture=f32[64,64]:linear`, `surface=out:f32[64]`."""
    parts = views.split_view(text, kind, value)
    if parts.role and parts.role not in ROLES:
        raise UsageError(f"{text!r} has the unknown prefix {parts.role!r}: use in:, out: or inout:")
    role = ROLES[parts.role or "in"]
    if kind == "texture" and role != "in":
        raise UsageError(f"{text!r}: kernels only read textures: leave out {parts.role}:")
    array = _parse_array(text, parts.dtype, parts.shape, role, parts.fill)
    shape = array.shape
    if parts.channels > 1 and parts.shape.strip():
        shape = (*shape, parts.channels)
    elif parts.channels > 1 and (len(shape) < 2 or shape[-1] != parts.channels):
        raise UsageError(
            f"{text!r}: the file holds an array of {list(shape)}, whose last extent is not "
            f"{parts.channels}: declare as many channels as it has"
        )
    return view_specification(replace(array, shape=shape), kind, parts.channels, parts.options)


def view_specification(
    array: ArraySpecification, kind: views.ViewKind, channels: int, options: Sequence[str]
) -> ArraySpecification:
    """A texture or surface of an array, whose last extent counts the channels if there are several.

    Raises:
        UsageError: There is no such texture or surface.
    """
    text, extents = array.text, len(array.shape) - (channels > 1)
    view = views.make_view(text, kind, array.dtype, channels, options, extents)
    views.check_view(text, view, array.dtype, array.shape)
    return replace(array, view=view)


def _parse_alias(text: str) -> AliasSpecification:
    name = text.strip()[1:].strip()
    if not name:
        raise UsageError(f"{text!r} names no array: write @NAME, the name of another argument")
    return AliasSpecification(name, text)


def _parse_array(
    text: str, dtype: str, shape: str, role: Role, value: str | None
) -> ArraySpecification:
    fill_text = (value or "").strip()
    if dtype == POINTERS:
        return _parse_pointers(text, shape, role, fill_text)
    if not shape.strip() and role != "out" and fill_text[:1] == "@" and fill_text[1:]:
        extents = array_files.file_array_shape(fill_text[1:])
    else:
        extents = tuple(_parse_integer(part.strip()) or 0 for part in shape.split(","))
    if min(extents) < 1:
        raise UsageError(
            f"{text!r} has invalid dimensions: write whole numbers from 1 on, "
            f"as in {dtype}[1024] or {dtype}[64,64], or {dtype}[]=@FILE.npy for those of a file"
        )
    if math.prod(extents) > MAX_ELEMENTS:
        raise UsageError(f"{text!r} has more elements than any memory: use smaller dimensions")
    if role == "out" and value is not None:
        raise UsageError(
            f"{text!r} fills an array that only the kernel writes (out:), where elements that it "
            f"never writes are detected: leave out ={value}, or write inout:"
        )
    if dtype == STRUCTURE:
        return ArraySpecification(dtype, extents, role, None, text, fill_text)
    fill = None if value is None else parse_fill(dtype, value.strip())
    return ArraySpecification(dtype, extents, role, fill, text)


def _parse_pointers(text: str, shape: str, role: Role, listed: str) -> ArraySpecification:
    """Parse `ptr[2]=f32[64],@y`, whose arrays are parsed when their type is known."""
    parts = expressions.split_list(listed) if listed else []
    extents = tuple(
        _parse_integer(part.strip()) or 0 for part in (shape.strip() or str(len(parts))).split(",")
    )
    if not all(parts) or not parts:
        raise UsageError(
            f"{text!r} names no arrays: write {POINTERS}[2]=in:f32[64],in:f32[32], an array for "
            f"each pointer, or {POINTERS}[8]=in:f32[64], one as large for each"
        )
    if role == "out":
        raise UsageError(
            f"{text!r}: a kernel reads the pointers of an array: write {POINTERS}[...], and out: "
            f"at the arrays that it writes, {POINTERS}[2]=out:f32[64]"
        )
    if min(extents) < 1:
        raise UsageError(
            f"{text!r} has invalid dimensions: write a whole number from 1 on, as in "
            f"{POINTERS}[2]=in:f32[64],in:f32[32]"
        )
    return ArraySpecification(POINTERS, extents, role, None, text, listed)


def parse_member_fills(structure: StructureType, text: str) -> Fill | None:
    """Parse the fill of an array of structures: one for all numbers, or a list with one for each.

    Args:
        structure: The type of the structures.
        text: The text after the `=`: `zeros`, `arange,uniform:-1:1`, `@FILE.npy`.

    Returns:
        The fill; None for random elements.

    Raises:
        UsageError: The list has another length, or a type does not have its fill.
    """
    if text.startswith("@"):
        return parse_fill("u8", text)
    if text in ("", "random"):
        return None
    fills, numbers = expressions.split_list(text), structure.numbers
    if len(fills) not in (1, len(numbers)):
        listed = ", ".join(member_path(path) for path in numbers[:_MAX_LISTED_MEMBERS])
        raise UsageError(
            f"{text!r} has {len(fills)} fills for {len(numbers)} members ({listed}): give one for "
            "all, or one for each"
        )
    parsed = []
    for number, path in enumerate(numbers):
        dtype = SHORT_DTYPES[path[-1].dtype]
        try:
            fill = parse_fill(dtype, fills[number % len(fills)].strip())
        except UsageError as error:
            raise UsageError(f"{member_path(path)} ({dtype}): {error}") from None
        if isinstance(fill, NpyFile | InMemoryArray | MemberFills):
            raise UsageError(
                f"{member_path(path)} cannot be read from a file of its own: give one of whole "
                "structures, =@FILE.npy"
            )
        parsed.append(fill)
    return MemberFills(tuple(parsed))


def member_path(path: Sequence[MemberType]) -> str:
    """The name of a number in a structure: `corner.x`."""
    return ".".join(member.name for member in path)


def _parse_scalar(dtype: str, text: str) -> int | float:
    """Parse the value of a scalar.

    Raises:
        UsageError: It is not a number, or outside the range of the type.
    """
    if dtype in MAX_FLOATS:
        most = MAX_FLOATS[dtype]
        number = _parse_float(text)
        if number is None:
            raise UsageError(
                f"{text!r} is not of type {dtype}: write a number, inf or nan, as in {dtype}=2.0"
            )
        if math.isfinite(number) and abs(number) > most:
            raise UsageError(
                f"{text!r} is too large for {dtype}: use at most {most:.9g}, or {dtype}=inf"
            )
        return number
    if dtype == "bool" and text.lower() in ("true", "false"):
        return int(text.lower() == "true")
    low, high = _integer_range(dtype)
    whole = _parse_integer(text)
    if whole is None or not low <= whole <= high:
        raise UsageError(
            f"{text!r} is not of type {dtype}: write a whole number from {low} to {high}"
        )
    return whole


def _parse_uniform(dtype: str, name: str, bounds: str) -> Uniform:
    """Parse the bounds of random elements: integers by `randint`, floats by `uniform`.

    Raises:
        UsageError: `name` does not suit the type, or the bounds are malformed.
    """
    fill_name = "uniform" if dtype in MAX_FLOATS else "randint"
    if dtype == "bool" or name != fill_name:
        alternative = "random" if dtype == "bool" else f"{fill_name}:LO:HI"
        raise UsageError(f"{name} does not fill {dtype} elements: use {alternative}")
    low, _, high = bounds.partition(":")
    if fill_name == "randint":
        smallest, largest = _integer_range(dtype)
        first, end = _parse_integer(low), _parse_integer(high)
        if first is None or end is None or not smallest <= first < end <= largest + 1:
            raise UsageError(
                f"{bounds!r} is not a range of {dtype}: write randint:LO:HI with whole numbers, "
                f"{smallest} <= LO < HI <= {largest + 1}; HI itself is excluded"
            )
        return Uniform(first, end)
    start, stop = _parse_float(low), _parse_float(high)
    most = MAX_FLOATS[dtype] / 2  # keeps the width, a factor of the random numbers, finite
    if start is None or stop is None or not -most <= start < stop <= most:
        raise UsageError(
            f"{bounds!r} is not a range of {dtype}: write uniform:LO:HI with LO < HI, "
            "as in uniform:-1:1"
        )
    return Uniform(start, stop)


def _integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type or of `bool`."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype[0] == "i" else (0, 2**bits - 1)


def _parse_integer(text: str) -> int | None:
    """Parse `1024`, `1_024` or `0x400`; None for any other text."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _example_member(member: StructureMember) -> str:
    """An example of a member of a structure, for messages."""
    if member.pointer is None:
        return _example_value(member.dtype)
    return _example_array(member.pointer)


def _example_value(dtype: str) -> str:
    """An example of a value of a type, for messages."""
    return "2.0" if dtype in MAX_FLOATS else "1"
