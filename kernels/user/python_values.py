"""What is given in Python: arguments as numbers, NumPy's arrays, tuples and None; expected arrays.

What has a type of its own keeps it; a plain number takes that of its parameter.
"""

from __future__ import annotations

import math
import operator
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels.launch import InMemoryArray
from memlab.kernels.user.arguments import (
    MAX_ELEMENTS,
    NUMPY_DTYPES,
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

_SHORT_DTYPES = {name: short for short, name in NUMPY_DTYPES.items()}
_ACCEPTED_FORMS = (
    "give a text such as 'f32[64]', a number, a NumPy array, a tuple for a structure, or None"
)


def convert_argument(value: Any) -> str | Specification:
    """Read one argument.

    Args:
        value: A specification as text; what `array` or `output` gave; a number for a scalar, a
            NumPy array for one that is only read, a tuple of numbers for a structure, None for a
            null pointer.

    Raises:
        UsageError: It is none of these, or an array that no kernel takes.
    """
    if isinstance(value, str | Specification):
        return value
    if value is None:
        return NullSpecification()
    if isinstance(value, bool | int | float):
        return ScalarSpecification("", value, _number_text(value))
    if isinstance(value, tuple):
        values = tuple(_flatten(value))
        text = f"struct={','.join(values)}" if values else "struct"
        return StructureSpecification(values, "", text)
    if not hasattr(value, "__array__"):
        raise UsageError(f"an argument cannot be {describe_type(value)}: {_ACCEPTED_FORMS}")
    elements = _as_array(value)
    if elements.ndim:
        return array_argument(elements, "in")
    real = elements.dtype.name in _SHORT_DTYPES and elements.dtype.kind not in "iub"
    return convert_argument(float(elements) if real else elements.item())


def array_argument(values: Any, role: Role) -> ArraySpecification:
    """An array that holds these values before the launch.

    Args:
        values: What NumPy takes for an array.
        role: `in` or `inout`.

    Raises:
        UsageError: It is empty, or its elements are of no type that kernels take here.
    """
    elements = _as_array(values)
    short, shape = _short_dtype(elements.dtype), _check_shape(elements.shape)
    elements = elements.astype(elements.dtype.newbyteorder("="), order="C", copy=False)
    prefix = "" if role == "in" else f"{role}:"
    # So that two runs with other values can be told apart in the store.
    digest = zlib.crc32(elements.view("u1").reshape(-1).data)
    text = f"{prefix}{short}[{_format_extents(shape)}]=array-{digest:08x}"
    return ArraySpecification(short, shape, role, InMemoryArray(elements), text)


def output_argument(shape: int | Sequence[int], dtype: Any) -> ArraySpecification:
    """An array that the kernel only writes.

    Args:
        shape: Elements in each dimension, row-major.
        dtype: NumPy's type or its name, or memlab's: `float32`, `f32`.

    Raises:
        UsageError: It would have no elements or too many, or there is no such type.
    """
    extents = _check_shape(tuple(shape) if isinstance(shape, Sequence) else (shape,))
    short = dtype if isinstance(dtype, str) and dtype in NUMPY_DTYPES else _short_dtype(dtype)
    return ArraySpecification(
        short, extents, "out", None, f"out:{short}[{_format_extents(extents)}]"
    )


def expected_output(which: Any, values: Any) -> str | ExpectedOutput:
    """What an output must hold.

    Args:
        which: Its name, or the number of the argument.
        values: What NumPy takes for an array; or `@FILE.npy`, a file's.

    Raises:
        UsageError: It is no such name, or no such array.
    """
    try:
        name = which if isinstance(which, str) else str(operator.index(which))
    except TypeError:
        raise UsageError(
            f"expect names outputs, got {describe_type(which)}: write {{'y': array}}, or the "
            "number of "
            "the argument"
        ) from None
    if isinstance(values, str):
        return f"{name}={values}"
    return ExpectedOutput(name, _as_array(values))


def _as_array(values: Any) -> NDArray[Any]:
    import numpy as np

    try:
        return np.asarray(values)
    except Exception as error:  # whatever the other library says, of memory on a GPU for one
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{describe_type(values)} is no NumPy array ({reason}): convert it"
        ) from None


def _short_dtype(dtype: Any) -> str:
    import numpy as np

    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in _SHORT_DTYPES:
        raise UsageError(
            f"arrays of {name[:40]} are not passed: use one of {', '.join(_SHORT_DTYPES)}; of "
            "complex "
            "numbers and structures, array.view() of their numbers or bytes"
        )
    return _SHORT_DTYPES[name]


def _check_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The extents of an array, checked."""
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


def _flatten(values: tuple[Any, ...]) -> Iterator[str]:
    """The numbers of a tuple of tuples of numbers, as they are written."""
    for each in values:
        if isinstance(each, tuple):
            yield from _flatten(each)
            continue
        read = convert_argument(each) if not isinstance(each, str) else each
        if not isinstance(read, ScalarSpecification):
            raise UsageError(
                f"a structure cannot hold {describe_type(each)}: give its numbers in order, "
                "(1.0, 2.0)"
            )
        yield read.text


def _number_text(value: float) -> str:
    """A number as it is written, truth values as 0 and 1."""
    try:
        return repr(int(value) if isinstance(value, int) else float(value))
    except ValueError:  # Python writes none of thousands of digits
        raise UsageError("an argument has thousands of digits: give a smaller number") from None


def describe_type(value: Any) -> str:
    """How messages name a value that they do not show."""
    return f"an object of type {type(value).__name__}"
