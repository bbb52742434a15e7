"""Python values as kernel arguments: numbers, NumPy arrays, tuples and None; expected arrays.

NumPy values keep their type; a plain Python number takes the type of its parameter.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.launch import InMemoryArray
from memlab.kernels.user.arguments import tensor_maps
from memlab.kernels.user.arguments.parsing import (
    parse_specification,
    start_specification,
    view_specification,
)
from memlab.kernels.user.arguments.specifications import (
    MAX_ELEMENTS,
    NUMPY_DTYPES,
    POINTERS,
    SHORT_DTYPES,
    STRUCTURE,
    TENSOR_MAP,
    ArraySpecification,
    ConstantMaps,
    ConstantValues,
    ExpectedOutput,
    GivenConstant,
    NullSpecification,
    Role,
    ScalarSpecification,
    Specification,
    StructureSpecification,
    TensorMapSpecification,
)
from memlab.kernels.user.arguments.views import FILTERS, ViewKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ACCEPTED_FORMS = (
    "give a text such as 'f32[64]', a number, an array, a tuple for a structure, or None"
)


_ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__")
"""What an array has: NumPy's protocols, that of arrays on a GPU, and that of array libraries."""


def convert_argument(value: Any) -> str | Specification:
    """Convert one argument.

    Args:
        value: A specification as text; the result of `array_argument` or `output_argument`; a
            number for a scalar; a NumPy array for an array that is only read; a tuple of all these
            for a structure, nested structures as nested tuples; a list of arrays for an array of
            pointers; a list of tuples for an array of structures; or None for a null pointer.

    Raises:
        UsageError: The value is none of these, or an array of an unsupported type or shape.
    """
    if isinstance(value, str | Specification):
        return value
    if value is None:
        return NullSpecification()
    if isinstance(value, bool | int | float):
        return ScalarSpecification("", value, _number_text(value))
    if isinstance(value, list):
        return list_argument(value, "in")
    if isinstance(value, tuple):
        values = tuple(_flatten(value))
        texts = (value if isinstance(value, str) else value.text for value in values)
        text = f"struct={','.join(texts)}" if values else "struct"
        return StructureSpecification(values, "", text)
    if not any(hasattr(value, name) for name in _ARRAY_PROTOCOLS):
        raise UsageError(f"an argument cannot be {describe_type(value)}: {_ACCEPTED_FORMS}")
    elements = _as_array(value)
    if elements.ndim:
        return array_argument(elements, "in")
    short = SHORT_DTYPES.get(elements.dtype.name, "")
    scalar = convert_argument(
        float(elements) if short and elements.dtype.kind not in "iub" else elements.item()
    )
    return replace(scalar, numpy_dtype=short) if isinstance(scalar, ScalarSpecification) else scalar


def array_argument(values: Any, role: Role) -> ArraySpecification:
    """An array that holds these values before the launch.

    Args:
        values: An array, values that NumPy converts to one, or a list of tuples that hold arrays.
        role: `in` or `inout`.

    Raises:
        UsageError: The array is empty, or its elements have an unsupported type.
    """
    if isinstance(values, list) and any(map(_holds_arrays, values)):
        return list_argument(values, role)
    elements = _as_array(values)
    short, shape = _short_dtype(elements.dtype), _check_shape(elements.shape)
    elements = _native(elements)
    prefix = "" if role == "in" else f"{role}:"
    # The digest tells runs with different values apart in the store.
    digest = zlib.crc32(elements.view("u1").reshape(-1).data)
    text = f"{prefix}{short}[{_format_extents(shape)}]=array-{digest:08x}"
    return ArraySpecification(short, shape, role, InMemoryArray(elements), text)


def list_argument(values: list[Any], role: Role) -> ArraySpecification:
    """An array of pointers, structures or tensor maps, from a list of arrays, tuples or maps.

    Args:
        values: Arrays, None for null pointers, and what else `convert_argument` takes for a
            pointer; or tuples.
        role: Whether the kernel reads the pointers or structures themselves, or overwrites them.

    Raises:
        UsageError: The list is empty, or holds anything else.
    """
    elements = tuple(map(convert_argument, values))
    are_structures = all(isinstance(each, StructureSpecification) for each in elements)
    are_maps = all(isinstance(each, TensorMapSpecification) for each in elements)
    if not elements or not (are_structures or are_maps or all(map(_is_pointer, elements))):
        raise UsageError(
            "a list holds arrays, for a pointer to pointers, tuples, for structures with "
            f"pointers, or tensor maps, got {_describe_list(values)}: give numbers as "
            "numpy.array(list)"
        )
    kind = STRUCTURE if are_structures else TENSOR_MAP if are_maps else POINTERS
    texts = (each if isinstance(each, str) else each.text for each in elements)
    if are_structures:
        texts = (f"({text.partition('=')[2]})" for text in texts)
    elif are_maps:
        texts = (text.partition("=")[2] for text in texts)
    prefix = "" if role == "in" else f"{role}:"
    text = f"{prefix}{kind}[{len(elements)}]={','.join(texts)}"
    return ArraySpecification(kind, (len(elements),), role, None, text, elements=elements)


def _holds_arrays(value: Any) -> bool:
    """Whether an element of a list is a structure with pointers."""
    return isinstance(value, tuple) and any(
        member is None or hasattr(member, "__array__") or isinstance(member, str | Specification)
        for member in value
    )


def _is_pointer(element: str | Specification) -> bool:
    return not isinstance(element, ScalarSpecification | StructureSpecification)


def _describe_list(values: list[Any]) -> str:
    """Describe what a list holds, in a message."""
    kinds = sorted({type(value).__name__ for value in values})
    return f"one of {' and '.join(kinds)}" if kinds else "an empty one"


def output_argument(shape: int | Sequence[int], dtype: Any) -> ArraySpecification:
    """An array that the kernel only writes.

    Args:
        shape: Elements in each dimension, row-major.
        dtype: A NumPy type or its name, or memlab's name: `float32`, `f32`, `struct`.

    Raises:
        UsageError: The shape has no elements or too many, or the type is not supported.
    """
    extents = _check_shape(tuple(shape) if isinstance(shape, Sequence) else (shape,))
    known = isinstance(dtype, str) and dtype in (*NUMPY_DTYPES, STRUCTURE)
    short = dtype if known else _short_dtype(dtype)
    return ArraySpecification(
        short, extents, "out", None, f"out:{short}[{_format_extents(extents)}]"
    )


def offset_argument(array: Any, start: Any) -> ArraySpecification:
    """An array whose pointer points to an element of it: see `memlab.offset`.

    Raises:
        UsageError: It is no array, or has no such element.
    """
    given = array if isinstance(array, ArraySpecification) else array_argument(array, "in")
    if given.view is not None or given.start:
        raise UsageError(
            f"offset takes an array, got {given.text!r}: give an array, inout(array) or out(shape, "
            "dtype)"
        )
    try:
        number = operator.index(start)
    except TypeError:
        raise UsageError(
            f"offset counts elements, got {describe_type(start)}: give a whole number"
        ) from None
    head, bracket, end = given.text.partition("]")
    return replace(start_specification(given, number), text=f"{head}{bracket}+{number}{end}")


def texture_argument(
    array: Any,
    *,
    filter: str | None,  # noqa: A002 - CUDA's word
    address: str | Sequence[str] | None,
    normalized: bool,
    normalized_float: bool,
    layered: bool,
    channels: int,
) -> ArraySpecification:
    """A texture of an array: see `memlab.texture`.

    Raises:
        UsageError: There is no such texture.
    """
    if filter not in (None, *FILTERS):
        raise UsageError(f"filter is {filter!r}: use {' or '.join(FILTERS)}")
    modes = address if address is None or isinstance(address, str) else ",".join(map(str, address))
    flags = {"normalized": normalized, "normalized-float": normalized_float, "layered": layered}
    options = [word for word in (filter, modes) if word is not None]
    options += [word for word, is_set in flags.items() if is_set]
    return _view_argument(array_argument(array, "in"), "texture", channels, options)


def tensor_map_argument(
    array: Any,
    box: Sequence[int],
    *,
    role: Role,
    shape: Sequence[int] | None,
    options: Mapping[str, Sequence[int] | None],
    words: Sequence[str],
) -> TensorMapSpecification:
    """A tensor map of an array: see `memlab.tensor_map`.

    Args:
        array: The array, or `@NAME`.
        box: What a copy moves.
        role: What the kernel does with the elements of an array.
        shape: The tensor's extents; None for those of the array.
        options: The lists of numbers by their words; None for those that are left out.
        words: Other options, such as `swizzle128`.

    Raises:
        UsageError: There is no such map.
    """
    extents = None if shape is None else _format_extents(_check_shape(tuple(shape)))
    lists = {"box": box, **options}
    try:
        texts = [
            f"{word}[{_format_extents(tuple(map(operator.index, numbers)))}]"
            for word, numbers in lists.items()
            if numbers is not None
        ]
    except TypeError:
        raise UsageError(
            "tensor_map takes lists of whole numbers, such as box=(128, 64): write them so"
        ) from None
    texts += words
    end = "".join(f":{text}" for text in texts)
    if isinstance(array, str):
        head = "" if extents is None else f"[{extents}]"
        parsed = parse_specification(f"{TENSOR_MAP}={array.strip()}{head}{end}")
        assert isinstance(parsed, TensorMapSpecification)
        return parsed
    given = array if isinstance(array, ArraySpecification) else array_argument(array, role)
    if given.view is not None or given.start or given.dtype not in NUMPY_DTYPES:
        raise UsageError(
            f"tensor_map takes an array of numbers, got {given.text!r}: give an array, "
            "inout(array), out(shape, dtype) or '@NAME'"
        )
    head, bracket, fill = given.text.partition("]")
    text = f"{TENSOR_MAP}={head}{bracket}{end}{fill}"
    return tensor_maps.make_specification(text, given, () if shape is None else tuple(shape), texts)


def surface_argument(array: Any, role: Role, *, layered: bool, channels: int) -> ArraySpecification:
    """A surface of an array: see `memlab.surface`.

    Args:
        array: An array, or the result of `output_argument` or `array_argument`.
        role: What the kernel does with the elements of an array.
        layered: Whether its first extent counts layers.
        channels: Numbers of an element, the last extent if there are several.

    Raises:
        UsageError: There is no such surface.
    """
    given = array if isinstance(array, ArraySpecification) else array_argument(array, role)
    return _view_argument(given, "surface", channels, ["layered"] if layered else [])


def _view_argument(
    array: ArraySpecification, kind: ViewKind, channels: int, options: Sequence[str]
) -> ArraySpecification:
    """An array seen through an object, with the text that would give it on the command line."""
    if array.start:
        raise UsageError(f"a {kind} shows a whole array, got {array.text!r}: leave out offset")
    if channels > 1 and array.shape[-1] != channels:
        raise UsageError(
            f"a {kind} of {channels} channels needs them as the last extent of its array, got the "
            f"shape {array.shape}: reshape it"
        )
    spatial = array.shape if channels == 1 else array.shape[:-1]
    role = "" if array.role == "in" else f"{array.role}:"
    number = array.dtype if channels == 1 else f"{array.dtype}x{channels}"
    end = "".join(f":{word}" for word in options)
    fill = array.text.partition("=")[2]
    text = f"{kind}={role}{number}[{_format_extents(spatial)}]{end}{f'={fill}' if fill else ''}"
    return view_specification(replace(array, text=text), kind, channels, options)


def expected_output(which: Any, values: Any) -> str | ExpectedOutput:
    """The expected values of an output.

    Args:
        which: The output's name, or the number of the argument.
        values: An array, values that NumPy converts to one, or `@FILE.npy`.

    Raises:
        UsageError: `which` is neither a name nor a number, or NumPy cannot convert the values.
    """
    try:
        name = which if isinstance(which, str) else str(operator.index(which))
    except TypeError:
        raise UsageError(
            f"expect names outputs, got {describe_type(which)}: write {{'y': array}}, or the "
            "number of the argument"
        ) from None
    if isinstance(values, str):
        return f"{name}={values}"
    return ExpectedOutput(name, _as_array(values))


def constant_values(name: Any, values: Any) -> str | GivenConstant:
    """The values of a `__constant__` or `__device__` variable.

    Args:
        name: The variable's name.
        values: A fill as text, a number, a tuple of numbers for a structure, an array, a list, or
            a tensor map or a list of these.

    Raises:
        UsageError: `name` is not a name, or NumPy cannot convert the values.
    """
    if not isinstance(name, str):
        raise UsageError(
            f"constants names variables, got {describe_type(name)}: write {{'w': array}}"
        )
    if isinstance(values, str):
        return f"{name}={values}"
    if isinstance(values, bool | int | float):
        return f"{name}={_number_text(values)}"
    if isinstance(values, list) and any(isinstance(v, TensorMapSpecification) for v in values):
        values = list_argument(values, "in")
    if isinstance(values, TensorMapSpecification | ArraySpecification):
        if not tensor_maps.listed_maps(values):
            raise UsageError(
                f"constants[{name!r}] is {values.text!r}, and a variable has no role and no start: "
                "give the array itself"
            )
        return ConstantMaps(name, values, f"{name}={values.text}")
    if isinstance(values, tuple):
        members = [
            member if isinstance(member, str) else member.text for member in _flatten(values)
        ]
        return f"{name}={','.join(members)}"
    if values is None:
        raise UsageError(f"constants[{name!r}] is None: write 'zeros', or leave it out")
    elements = _native(_as_array(values))
    if elements.dtype.hasobject:
        raise UsageError(
            f"constants[{name!r}] cannot be {describe_type(values)}: give a text, a number, an "
            "array, a list of numbers, a tuple for a structure, or tensor maps"
        )
    digest = zlib.crc32(elements.reshape(-1).view("u1").data)
    text = f"{name}=array-{digest:08x}"
    return ConstantValues(name, elements, isinstance(values, list), text)


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """An array with the byte order and the row-major layout of this machine."""
    return values.astype(values.dtype.newbyteorder("="), order="C", copy=False)


def _as_array(values: Any) -> NDArray[Any]:
    import numpy as np

    try:
        values = _on_host(values)
        if not hasattr(values, "__array__") and hasattr(values, "__dlpack__"):
            return np.from_dlpack(values)
        return np.asarray(values)
    except Exception as error:  # other libraries raise any type, such as for arrays on a GPU
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{describe_type(values)} is not a NumPy array ({reason}): convert it"
        ) from None


def _on_host(values: Any) -> Any:
    """An array of another library in the host's memory, as an object that NumPy converts.

    PyTorch, CuPy and Numba copy an array from a GPU when asked to, each by its own method.
    """
    if hasattr(values, "detach") and hasattr(values, "cpu"):  # PyTorch
        values = values.detach().cpu()
        if str(values.dtype) != "torch.bfloat16":  # which NumPy does not know
            return values
        import ml_dtypes

        return values.view(dtype=_torch_type(values, "int16")).numpy().view(ml_dtypes.bfloat16)
    if hasattr(values, "__cuda_array_interface__"):
        for copy in ("get", "copy_to_host"):  # CuPy, Numba
            if hasattr(values, copy):
                return getattr(values, copy)()
    return values


def _torch_type(tensor: Any, name: str) -> Any:
    from importlib import import_module

    return getattr(import_module(type(tensor).__module__.partition(".")[0]), name)


def _short_dtype(dtype: Any) -> str:
    import numpy as np

    try:
        known = np.dtype(dtype)
        name = known.name
    except TypeError:
        known, name = None, str(dtype)
    if known is not None and known.names:
        return STRUCTURE
    if name not in SHORT_DTYPES:
        raise UsageError(
            f"arrays of {name[:40]} cannot be passed: use one of {', '.join(SHORT_DTYPES)}, or "
            "structures of these; for complex numbers, pass array.view() of their numbers"
        )
    return SHORT_DTYPES[name]


def _check_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Check the extents of an array and return them."""
    try:
        extents = tuple(map(operator.index, shape))
    except TypeError:
        extents = ()
    if not extents or min(extents) < 1 or math.prod(extents) > MAX_ELEMENTS:
        listed = ", ".join(map(repr, shape))[:40]
        raise UsageError(f"an array cannot have the shape ({listed}): use whole numbers from 1 on")
    return extents


def _format_extents(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _flatten(values: tuple[Any, ...]) -> Iterator[str | Specification]:
    """The members in a nested tuple, in order: numbers as texts, pointers as specifications."""
    for element in values:
        if isinstance(element, tuple):
            yield from _flatten(element)
            continue
        argument = convert_argument(element)
        yield argument.text if isinstance(argument, ScalarSpecification) else argument


def _number_text(value: float) -> str:
    """The text of a number; Booleans are 0 and 1."""
    try:
        return repr(int(value) if isinstance(value, int) else float(value))
    except ValueError:  # Python refuses to print thousands of digits
        raise UsageError("an argument has thousands of digits: give a smaller number") from None


def describe_type(value: Any) -> str:
    """Describe a value in a message that does not show it."""
    return f"an object of type {type(value).__name__}"
