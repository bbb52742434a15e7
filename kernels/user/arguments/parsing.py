"""Specifications of arguments: texts such as `inout:f32[4096]=ones`, parsed.

A specification is data, and nothing in it is evaluated. Of a file only the shape is read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.user import expressions
from memlab.kernels.user.arguments import array_files, tensor_maps, views
from memlab.kernels.user.arguments.fills import (
    is_number,
    parse_fill,
    parse_float,
    parse_integer,
    parse_scalar,
)
from memlab.kernels.user.arguments.hints import example_value
from memlab.kernels.user.arguments.specifications import (
    MAX_ELEMENTS,
    NULL,
    NUMPY_DTYPES,
    POINTERS,
    ROLES,
    SHORT_DTYPES,
    STRUCTURE,
    TENSOR_MAP,
    AliasSpecification,
    ArraySpecification,
    NullSpecification,
    Role,
    ScalarSpecification,
    Specification,
    StructureSpecification,
    TensorMapSpecification,
)

SPECIFICATION_PATTERN = re.compile(
    r"\s*(?:(?P<role>[A-Za-z]\w*):)?(?P<type>[A-Za-z]\w*)\s*"
    r"(?:\[(?P<shape>[^\[\]]*)\]\s*(?:\+(?P<start>[^=]*))?)?(?:=(?P<value>.*))?",
    re.DOTALL,
)
_OBJECT_PATTERN = re.compile(
    r"\s*(?P<word>(?:(?P<texture>tex|cudaTexture)|(?P<surface>surf|cudaSurface)"
    r"|(?P<tensormap>tensor_?map|CUtensorMap|tma))\w*)\s*(?P<mark>[:=])(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)
"""A texture, surface or tensor map, maybe by another word or behind a colon."""
_C_TYPES = {"half": "f16", "float": "f32", "double": "f64", "int": "i32", "unsigned": "u32"}
_OTHER_NAMES = {**SHORT_DTYPES, **_C_TYPES}
"""Types by their names in NumPy and C."""
_EXAMPLES = "write f32=2.0, i32[1024], inout:f32[64,64]=ones or f32[]=@x.npy"


def parse_specification(text: str) -> Specification:
    """Parse a specification.

    Raises:
        UsageError: It is malformed, its value is outside the range of its type, or the file
            whose shape it takes cannot be read.
    """
    if is_number(text):  # its type is that of its parameter
        return ScalarSpecification("", parse_float(text) or 0.0, text.strip())
    if text.strip().startswith("@"):
        return _parse_alias(text)
    _check_object_word(text)
    match = SPECIFICATION_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not an argument: {_EXAMPLES}; 'memlab help arguments' has all forms"
        )
    role, kind, shape, start, value = match.group("role", "type", "shape", "start", "value")
    if text.strip() == NULL:
        return NullSpecification(text)
    if kind in views.VIEW_KINDS and shape is None and role is None:
        return _parse_view(text, kind, value)
    if kind == TENSOR_MAP and shape is None and role is None:
        return _parse_tensor_map(text, value)
    if kind == TENSOR_MAP and role is None:
        return _parse_tensor_maps(text, shape or "", value)
    if kind == STRUCTURE and shape is None:
        if role is None:
            return parse_structure(text, value)
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
        known = [*NUMPY_DTYPES, STRUCTURE, POINTERS, *views.VIEW_KINDS, TENSOR_MAP, NULL]
        named = f"leave out {kind}=, arguments are given without names, in the kernel's order"
        hint = suggest_nearest(kind, known, "" if value is None else named)
        if kind in _OTHER_NAMES:
            hint = f"write {_OTHER_NAMES[kind]} for it"
        raise UsageError(f"{text!r} has the unknown type {kind!r}: {hint}")
    if role is not None and role not in ROLES:
        raise UsageError(f"{text!r} has the unknown prefix {role!r}: use in:, out: or inout:")
    if shape is not None:
        array = _parse_array(text, kind, shape, ROLES[role or "in"], value)
        return array if start is None else _with_start(array, start)
    if role is not None:
        raise UsageError(f"{text!r} has no dimensions: write {role}:{kind}[N] for N elements")
    if value is None:
        raise UsageError(
            f"{text!r} has no value and no dimensions: write {kind}={example_value(kind)} for "
            "a scalar, "
            f"{kind}[N] for an array"
        )
    return ScalarSpecification(kind, parse_scalar(kind, value.strip()), text)


def _check_object_word(text: str) -> None:
    """Refuse a texture, surface or tensor map that does not start as `texture=` does.

    Raises:
        UsageError: It has another word, such as `tex2d`, or a colon in place of `=`.
    """
    match = _OBJECT_PATTERN.fullmatch(text)
    if match is None:
        return
    kind = next(kind for kind in (*views.VIEW_KINDS, TENSOR_MAP) if match[kind])
    if (match["word"], match["mark"]) == (kind, "="):
        return
    example = tensor_maps.EXAMPLE if kind == TENSOR_MAP else views.example(kind)
    rest = match["rest"].strip() or example.partition("=")[2]
    more = "" if kind == TENSOR_MAP else "; the extents tell its dimensions"
    name = "tensor map" if kind == TENSOR_MAP else kind
    raise UsageError(
        f"{text!r} starts with {match['word'] + match['mark']!r}: write {kind}={rest} for a "
        f"{name}{more}"
    )


def parse_structure(text: str, value: str | None) -> StructureSpecification:
    """Parse a structure passed by value.

    Args:
        text: The whole specification, `struct=1,2.5`.
        value: What is behind the `=`; None if there is none.

    Raises:
        UsageError: It names no file after an `@`.
    """
    written = (value or "").strip()
    if written == "@":
        raise UsageError("@ names no file: write @FILE.npy")
    values = tuple(expressions.split_list(written)) if written else ()
    path = written[1:] if written.startswith("@") else ""
    return StructureSpecification(values, path, text)


def _parse_view(text: str, kind: views.ViewKind, value: str | None) -> ArraySpecification:
    """Parse a texture or a surface: `texture=f32[64,64]:linear`, `surface=out:f32[64]`."""
    parts = views.split_view(text, kind, value)
    if parts.role not in ("", *ROLES) and kind == "texture":
        raise UsageError(
            f"{text!r} has the unknown prefix {parts.role!r}: leave it out; the extents of a "
            "texture tell its dimensions"
        )
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


def _parse_tensor_map(text: str, value: str | None) -> TensorMapSpecification:
    """Parse a tensor map: `tensormap=f16[64,64]:box[8,64]`, `tensormap=@x:box[8,64]`."""
    parts = tensor_maps.split_tensor_map(text, value)
    if parts.alias:
        start = _parse_start(text, parts.start) if parts.start else 0
        alias = AliasSpecification(parts.alias, text, start)
        shape = tensor_maps.parse_shape(text, parts.shape)
        return tensor_maps.make_specification(text, alias, shape, parts.options)
    if parts.role and parts.role not in ROLES:
        raise UsageError(f"{text!r} has the unknown prefix {parts.role!r}: use in:, out: or inout:")
    if parts.dtype not in NUMPY_DTYPES:
        hint = suggest_nearest(parts.dtype, NUMPY_DTYPES)
        raise UsageError(f"{text!r} has the unknown type {parts.dtype!r}: {hint}")
    role = ROLES[parts.role or "in"]
    array = _parse_array(text, parts.dtype, parts.shape or "", role, parts.fill)
    return tensor_maps.make_specification(text, array, (), parts.options)


def _parse_tensor_maps(text: str, shape: str, value: str | None) -> ArraySpecification:
    """Parse an array of tensor maps: `tensormap[2]=f16[64,64]:box[8,64],@x:box[8,64]`."""
    parts = expressions.split_list(value or "")
    count = parse_integer(shape.strip()) if shape.strip() else len(parts)
    if not count or count < 1 or not all(parts):
        raise UsageError(
            f"{text!r} is no array of tensor maps: write {TENSOR_MAP}[2]=f16[64,64]:box[8,64],"
            "@x:box[8,64], one for each, or one for all"
        )
    maps = tuple(_parse_tensor_map(f"{TENSOR_MAP}={part}", part) for part in parts)
    return ArraySpecification(TENSOR_MAP, (count,), "in", None, text, elements=maps)


def _parse_alias(text: str) -> AliasSpecification:
    name, plus, start = (part.strip() for part in text.strip()[1:].partition("+"))
    if not name:
        raise UsageError(f"{text!r} names no array: write @NAME, the name of another argument")
    return AliasSpecification(name, text, _parse_start(text, start) if plus else 0)


def _with_start(array: ArraySpecification, start: str) -> ArraySpecification:
    """An array whose pointer points to an element of it: `f32[1030]+3`."""
    return start_specification(array, _parse_start(array.text, start))


def start_specification(array: ArraySpecification, start: int) -> ArraySpecification:
    """An array whose pointer points to an element of it.

    Raises:
        UsageError: It has no such element.
    """
    count = math.prod(array.shape)
    if not 0 <= start < count:
        raise UsageError(
            f"{array.text!r} points to element {start} of {count}: use 0 to {count - 1}"
        )
    return replace(array, start=start)


def _parse_start(text: str, start: str) -> int:
    """Parse the number of the element behind a `+`."""
    number = parse_integer(start.strip())
    if number is None or number < 0:
        raise UsageError(
            f"{text!r} points to no element: write a whole number from 0 on, as in f32[1030]+3 or "
            "@x+3"
        )
    return number


def _parse_array(
    text: str, dtype: str, shape: str, role: Role, value: str | None
) -> ArraySpecification:
    fill_text = (value or "").strip()
    if dtype == POINTERS:
        return _parse_pointers(text, shape, role, fill_text)
    if not shape.strip() and role != "out" and fill_text[:1] == "@" and fill_text[1:]:
        extents = array_files.file_array_shape(fill_text[1:])
    else:
        extents = tuple(parse_integer(part.strip()) or 0 for part in shape.split(","))
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
        parse_integer(part.strip()) or 0 for part in (shape.strip() or str(len(parts))).split(",")
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
