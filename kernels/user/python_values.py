"""Python values as kernel arguments: numbers, NumPy arrays, tuples and None; expected arrays.

NumPy values keep their type; a plain Python number takes the type of its parameter.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.launch import InMemoryArray
from memlab.kernels.user.arguments import (
    MAX_ELEMENTS,
    NUMPY_DTYPES,
    SHORT_DTYPES,
    STRUCTURE,
    ArraySpecification,
    ExpectedOutput,
    NullSpecification,
    Role,
    ScalarSpecification,
    Specification,
    StructureSpecification,
)

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
            for a structure, nested structures as nested tuples; or None for a null pointer.

    Raises:
        UsageError: The value is none of these, or an array of an unsupported type or shape.
    """
    if isinstance(value, str | Specification):
        return value
    if value is None:
        return NullSpecification()
    if isinstance(value, bool | int | float):
        return ScalarSpecification("", value, _number_text(value))
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
        values: An array, or values that NumPy converts to one.
        role: `in` or `inout`.

    Raises:
        UsageError: The array is empty, or its elements have an unsupported type.
    """
    elements = _as_array(values)
    short, shape = _short_dtype(elements.dtype), _check_shape(elements.shape)
    elements = elements.astype(elements.dtype.newbyteorder("="), order="C", copy=False)
    prefix = "" if role == "in" else f"{role}:"
    # The digest tells runs with different values apart in the store.
    digest = zlib.crc32(elements.view("u1").reshape(-1).data)
    text = f"{prefix}{short}[{_format_extents(shape)}]=array-{digest:08x}"
    return ArraySpecification(short, shape, role, InMemoryArray(elements), text)


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
