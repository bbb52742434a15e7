"""Arguments as the user gives them: their types, and a record for each kind of specification.

`parsing` makes them of texts, `python_values` of Python's values; `binding` checks them against the
parameters of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from memlab.kernels.launch import Fill, TensorBox, View

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

NULL = "null"
"""The word for a null pointer."""

TENSOR_MAP = "tensormap"
"""The word for a tensor map."""

MAX_FLOATS = {
    "f64": 1.7976931348623157e308,
    "f32": (2 - 2.0**-23) * 2.0**127,
    "f16": 65504.0,
    "bf16": (2 - 2.0**-7) * 2.0**127,
}
"""The largest finite values: IEEE 754, table 3.5; bfloat16 has float's exponent and 8 bits."""

MAX_ELEMENTS = 2**63 - 1
"""The most elements of an array: the range of 64-bit addresses, more than any GPU's memory."""

MAX_LISTED_MEMBERS = 8
"""The members of a structure that a message names."""

Role = Literal["in", "out", "inout"]

ROLES: dict[str, Role] = {"in": "in", "out": "out", "inout": "inout"}


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
        start: The element that the pointer points to, row-major: 3 for `f32[1030]+3`.
    """

    dtype: str
    shape: tuple[int, ...]
    role: Role
    fill: Fill | None
    text: str
    member_fill: str = ""
    view: View | None = None
    elements: tuple[str | Specification, ...] = ()
    start: int = 0


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

    text: str = NULL


@dataclass(frozen=True)
class AliasSpecification:
    """A pointer to an array that another argument passes: `@x`.

    Attributes:
        array: The name of the array: that of its parameter, or `view.data` in a structure.
        text: The text that specifies it.
        start: The element of the array that the pointer points to, row-major: 3 for `@x+3`.
    """

    array: str
    text: str
    start: int = 0


@dataclass(frozen=True)
class TensorMapSpecification:
    """A tensor map: `tensormap=f16[4096,4096]:box[128,64]:swizzle128`.

    Attributes:
        array: The array, or that of another argument.
        shape: The tensor's extents, the slowest dimension first; empty for those of the array.
        box: What a copy moves.
        strides_bytes: As in `TensorMap`.
        conversion: As in `TensorMap`.
        text: The text that specifies it.
    """

    array: ArraySpecification | AliasSpecification
    shape: tuple[int, ...]
    box: TensorBox
    strides_bytes: tuple[int, ...]
    conversion: Literal["", "tf32", "ftz", "tf32-ftz"]
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


@dataclass(frozen=True, eq=False)
class ConstantMaps:
    """The tensor maps of a `__constant__` variable, passed from Python.

    Attributes:
        name: The variable's name in the source.
        maps: The map, or the list of maps of an array.
        text: The text that stands for them where a run is kept.
    """

    name: str
    maps: TensorMapSpecification | ArraySpecification
    text: str


GivenConstant: TypeAlias = ConstantValues | ConstantMaps
"""What a `__constant__` or `__device__` variable gets from Python, besides text."""

Specification: TypeAlias = (
    ScalarSpecification
    | ArraySpecification
    | StructureSpecification
    | NullSpecification
    | AliasSpecification
    | TensorMapSpecification
)
"""A parsed argument that is not yet checked against its parameter."""
