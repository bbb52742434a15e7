"""Arguments of one's own kernels: from `inout:f32[4096]=ones` to what a launch passes.

A specification is data and stays so: it is taken apart here, checked against the parameter that it
is for, and nothing in it is evaluated; of a file at most the shape is looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Arange,
    Argument,
    Buffer,
    Fill,
    InMemoryArray,
    NpyFile,
    NullPointer,
    Scalar,
    SingleValue,
    Structure,
    Uniform,
)
from memlab.kernels.user import array_files

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memlab.kernels.signature import KernelParameter, StructureMember

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
"""NumPy's names of the types, by memlab's."""

MAX_FLOATS = {
    "f64": 1.7976931348623157e308,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "f16": 65504.0,
    "bf16": (2 - 2.0**-7) * 2.0**127,
}
"""The largest finite values: IEEE 754, table 3.5; bfloat16 has float's exponent and 8 bits."""

MAX_ELEMENTS = 2**63 - 1
"""What addresses of 64 bits reach, and more than the sum of all GPUs' memories."""

Role = Literal["in", "out", "inout"]
ROLES: dict[str, Role] = {"in": "in", "out": "out", "inout": "inout"}

_SPECIFICATION_PATTERN = re.compile(
    r"\s*(?:(?P<role>[A-Za-z]\w*):)?(?P<type>[A-Za-z]\w*)\s*(?:\[(?P<shape>[^\[\]]*)\])?"
    r"\s*(?:=(?P<value>.*))?",
    re.DOTALL,
)
_EXAMPLES = "write f32=2.0, i32[1024], inout:f32[64,64]=ones or f32[]=@x.npy"
_STRUCTURE, _NULL = "struct", "null"
_MAX_LISTED_MEMBERS = 8


@dataclass(frozen=True)
class ScalarSpecification:
    """A scalar as it was written: `f32=2.0`; given in Python it has no type yet, nor is it read."""

    dtype: str
    value: int | float
    text: str


@dataclass(frozen=True)
class ArraySpecification:
    """An array as it was written: `inout:f32[64,64]=ones`."""

    dtype: str
    shape: tuple[int, ...]
    role: Role
    fill: Fill | None
    text: str


@dataclass(frozen=True)
class StructureSpecification:
    """A structure as it was written: `struct=1,2.5,3`, or its bytes `struct=@FILE.npy`."""

    values: tuple[str, ...]
    path: str
    text: str


@dataclass(frozen=True)
class NullSpecification:
    """The pointer that was written `null`."""

    text: str = _NULL


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """What an output must hold, given in Python.

    Attributes:
        which: The output's name, or the number of the argument.
        values: Its values, in its shape or flat.
    """

    which: str
    values: NDArray[Any]


Specification: TypeAlias = (
    ScalarSpecification | ArraySpecification | StructureSpecification | NullSpecification
)
"""An argument, taken apart but not yet checked against a parameter."""


def bind_arguments(
    texts: Sequence[str | Specification], parameters: Sequence[KernelParameter]
) -> tuple[Argument, ...]:
    """Read the arguments of a kernel and check each against its parameter.

    Args:
        texts: A specification for each parameter, in the kernel's order; as text or, from Python,
            taken apart already.
        parameters: What the compiled kernel declares.

    Raises:
        UsageError: There are too many or too few, one is malformed, or does not suit its
            parameter; the message numbers arguments from 0.
    """
    if len(texts) != len(parameters):
        raise UsageError(
            f"the kernel takes {describe_parameters(parameters)}, got {len(texts)}: "
            "give one --arg for each, in this order"
        )
    return tuple(
        _bind_argument(text, parameter, _parameter_label(index, parameter))
        for index, (text, parameter) in enumerate(zip(texts, parameters, strict=True))
    )


def describe_parameters(parameters: Sequence[KernelParameter]) -> str:
    """How messages name what a kernel takes: `2 arguments (float * y, int n)`."""
    listed = ", ".join(f"{each.spelling} {each.name}".strip() for each in parameters)
    count = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
    return f"{count} ({listed})" if parameters else "no arguments"


def _parameter_label(index: int, parameter: KernelParameter) -> str:
    """How messages name a parameter: `argument 2 (y, float *)`."""
    number = f"argument {index}"
    names = [each for each in (parameter.name, parameter.spelling) if each != number]
    return f"{number} ({', '.join(names)})"


def unsupported_reason(parameter: KernelParameter) -> str:
    """Why memlab cannot pass a parameter, and what to do instead; empty where it can."""
    if "(*" in parameter.spelling and parameter.kind == "structure":
        return (
            "is a function passed by value, which memlab cannot pass: call the function by its "
            "name in the kernel, or choose it with -D"
        )
    for each in parameter.parts or ():
        if not each.dtype:
            return (
                f"is a structure whose member {each.name} ({each.spelling}) is no number, and "
                "memlab passes numbers alone: pass it as an argument of its own"
            )
    return ""


def structure_hint(parameter: KernelParameter) -> str:
    """How to write a structure: `write struct=1.0,1 (x f32, n i32)`."""
    if parameter.parts is None:
        return f"write {_STRUCTURE}=@FILE.npy, a file with its {parameter.nbytes} bytes as u8"
    if not parameter.parts:
        return f"write {_STRUCTURE}, for it has no members"
    told, more = parameter.parts[:_MAX_LISTED_MEMBERS], parameter.parts[_MAX_LISTED_MEMBERS:]
    example = ",".join([*(_example_value(each.dtype) for each in told), *(["..."] if more else [])])
    listed = ", ".join(f"{each.name} {each.dtype}" for each in told)
    if more:
        whole = f"{_STRUCTURE}=@FILE.npy with its {parameter.nbytes} bytes as u8"
        return f"write {_STRUCTURE}={example} ({listed}, and {len(more)} more), or {whole}"
    return f"write {_STRUCTURE}={example} ({listed})"


def parse_specification(text: str) -> Specification:
    """Take a specification apart.

    Raises:
        UsageError: It is malformed, its value is outside its type, or the file whose shape it
            takes cannot be read.
    """
    match = _SPECIFICATION_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no argument: {_EXAMPLES}")
    role, kind, shape, value = match.group("role", "type", "shape", "value")
    if text.strip() == _NULL:
        return NullSpecification(text)
    if kind == _STRUCTURE and role is None and shape is None:
        return _parse_structure(text, value)
    if kind == _STRUCTURE:
        raise UsageError(
            f"{text!r} is no {_STRUCTURE} passed by value: write its members, {_STRUCTURE}=1,2; an "
            "array of structures is one of their members, f32[N,3], or of bytes, u8[N,12]"
        )
    if kind not in NUMPY_DTYPES:
        known = [*NUMPY_DTYPES, _STRUCTURE, _NULL]
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


def parse_fill(dtype: str, text: str) -> Fill | None:
    """Read how an array is filled: `random`, `zeros`, `randint:0:10`, `@FILE.npy` and so on.

    Args:
        dtype: Of its elements, as `f32`.
        text: What stands behind the `=`.

    Returns:
        The filling, None for random elements.

    Raises:
        UsageError: There is no such filling, or not for this type.
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
        given = parse_specification(text) if isinstance(text, str) else text
    except UsageError as error:
        if parameter.kind == "structure" and _STRUCTURE not in str(text):  # `float3=1,2,3`, say
            hint = structure_hint(parameter)
            raise UsageError(f"{label} is a structure, got {text!r}: {hint}") from None
        raise UsageError(f"{label}: {error}") from None
    bound = {"scalar": _bind_scalar, "pointer": _bind_array, "structure": _bind_structure}
    return bound[parameter.kind](given, parameter, label)


def _bind_scalar(given: Specification, parameter: KernelParameter, label: str) -> Argument:
    dtype = parameter.dtype
    if not isinstance(given, ScalarSpecification):
        raise UsageError(
            f"{label} takes a scalar, got {given.text!r}: write {dtype}={_example_value(dtype)}"
        )
    value = given.value
    if not given.dtype:
        value = _parse_labelled_scalar(dtype, given.text, label)
    elif given.dtype != dtype:
        written = given.text.partition("=")[2].strip()
        raise UsageError(f"{label} is {dtype}, got {given.text!r}: write {dtype}={written}")
    return Scalar(parameter.name, NUMPY_DTYPES[dtype], value)


def _bind_structure(given: Specification, parameter: KernelParameter, label: str) -> Argument:
    hint = structure_hint(parameter)
    if not isinstance(given, StructureSpecification):
        raise UsageError(f"{label} is a structure passed by value, got {given.text!r}: {hint}")
    parts: tuple[StructureMember, ...] = parameter.parts or ()
    if parameter.parts is None and not given.path:
        raise UsageError(f"{label} has members that are no numbers or share their bytes: {hint}")
    if not given.path and len(given.values) != len(parts):
        raise UsageError(
            f"{label} is a structure of {len(parts)} numbers, got {given.text!r}: {hint}"
        )
    name, size, alignment = parameter.name, parameter.nbytes, parameter.alignment_bytes
    if given.path:
        return Structure(name, size, alignment, path=given.path)
    values = (
        _parse_labelled_scalar(each.dtype, value, f"{label}.{each.name}")
        for each, value in zip(parts, given.values, strict=True)
    )
    scalars = (
        Scalar(each.name, NUMPY_DTYPES[each.dtype], value)
        for each, value in zip(parts, values, strict=True)
    )
    offsets = (each.offset_bytes for each in parts)
    return Structure(name, size, alignment, tuple(zip(offsets, scalars, strict=True)))


def _parse_labelled_scalar(dtype: str, text: str, label: str) -> int | float:
    try:
        return _parse_scalar(dtype, text)
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None


def _bind_array(given: Specification, parameter: KernelParameter, label: str) -> Argument:
    role, dtype = "in" if parameter.readonly else "inout", parameter.dtype
    if isinstance(given, NullSpecification):
        return NullPointer(parameter.name)
    if not isinstance(given, ArraySpecification):
        example = dtype or (given.dtype if isinstance(given, ScalarSpecification) else "") or "u8"
        raise UsageError(
            f"{label} takes an array, got {given.text!r}: write {role}:{example}[N], or {_NULL}"
        )
    if parameter.readonly and given.role != "in":
        raise UsageError(
            f"{label} is a pointer to const, which no kernel writes through, "
            f"got {given.text!r}: write in: for {given.role}:"
        )
    if dtype and given.dtype != dtype:
        extents = ",".join(map(str, given.shape))
        cure = f"write {given.role}:{dtype}[{extents}]"
        if isinstance(given.fill, InMemoryArray):
            cure = f"convert it, array.astype({NUMPY_DTYPES[dtype]!r})"
        raise UsageError(f"{label} points to {dtype}, got {given.text!r}: {cure}")
    array = Buffer(parameter.name, given.shape, NUMPY_DTYPES[given.dtype], given.role, given.fill)
    if not dtype and parameter.element_bytes and array.nbytes % parameter.element_bytes:
        raise UsageError(
            f"{label} points to structures of {parameter.element_bytes} bytes, got {given.text!r} "
            f"of {array.nbytes} bytes: give a multiple of {parameter.element_bytes}"
        )
    return array


def _parse_structure(text: str, value: str | None) -> StructureSpecification:
    written = (value or "").strip()
    if written == "@":
        raise UsageError("@ names no file: write @FILE.npy")
    if written.startswith("@"):
        return StructureSpecification((), written[1:], text)
    values = tuple(each.strip() for each in written.split(",")) if written else ()
    return StructureSpecification(values, "", text)


def _parse_array(
    text: str, dtype: str, shape: str, role: Role, value: str | None
) -> ArraySpecification:
    filling = (value or "").strip()
    if not shape.strip() and role != "out" and filling[:1] == "@" and filling[1:]:
        extents = array_files.file_array_shape(filling[1:])
    else:
        extents = tuple(_parse_integer(part.strip()) or 0 for part in shape.split(","))
    if min(extents) < 1:
        raise UsageError(
            f"{text!r} has dimensions that are none: write whole numbers from 1 on, "
            f"as in {dtype}[1024] or {dtype}[64,64], or {dtype}[]=@FILE.npy for those of a file"
        )
    if math.prod(extents) > MAX_ELEMENTS:
        raise UsageError(f"{text!r} has more elements than any memory: use smaller dimensions")
    if role == "out" and value is not None:
        raise UsageError(
            f"{text!r} fills what out: leaves to the kernel, so that elements it never writes "
            f"are seen: leave out ={value}, or write inout:"
        )
    how = None if value is None else parse_fill(dtype, value.strip())
    return ArraySpecification(dtype, extents, role, how, text)


def _parse_scalar(dtype: str, text: str) -> int | float:
    """Read a scalar's value.

    Raises:
        UsageError: It is no number, or one that the type does not hold.
    """
    if dtype in MAX_FLOATS:
        most = MAX_FLOATS[dtype]
        number = _parse_float(text)
        if number is None:
            raise UsageError(
                f"{text!r} is no {dtype}: write a number, inf or nan, as in {dtype}=2.0"
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
        raise UsageError(f"{text!r} is no {dtype}: write a whole number from {low} to {high}")
    return whole


def _parse_uniform(dtype: str, name: str, bounds: str) -> Uniform:
    """Read the bounds of what is drawn: integers by `randint`, floats by `uniform`.

    Raises:
        UsageError: The type is of the other kind, or the bounds are none.
    """
    wanted = "uniform" if dtype in MAX_FLOATS else "randint"
    if dtype == "bool" or name != wanted:
        how = "random" if dtype == "bool" else f"{wanted}:LO:HI"
        raise UsageError(f"{name} does not fill {dtype} elements: use {how}")
    low, _, high = bounds.partition(":")
    if wanted == "randint":
        least, most = _integer_range(dtype)
        first, end = _parse_integer(low), _parse_integer(high)
        if first is None or end is None or not least <= first < end <= most + 1:
            raise UsageError(
                f"{bounds!r} is no range of {dtype}: write randint:LO:HI with whole numbers, "
                f"{least} <= LO < HI <= {most + 1}; HI is not drawn"
            )
        return Uniform(first, end)
    start, stop = _parse_float(low), _parse_float(high)
    reach = MAX_FLOATS[dtype] / 2  # so that the width, by which is multiplied, is finite
    if start is None or stop is None or not -reach <= start < stop <= reach:
        raise UsageError(
            f"{bounds!r} is no range of {dtype}: write uniform:LO:HI with LO < HI, "
            "as in uniform:-1:1"
        )
    return Uniform(start, stop)


def _integer_range(dtype: str) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype[0] == "i" else (0, 2**bits - 1)


def _parse_integer(text: str) -> int | None:
    """Read `1024`, `1_024` or `0x400`; None where it is none of these."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def _parse_float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _example_value(dtype: str) -> str:
    """An example of a value."""
    return "2.0" if dtype in MAX_FLOATS else "1"
