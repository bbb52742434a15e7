"""What a compiled kernel takes: its parameters and the variables of its module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memlab.kernels.launch import Dim3


@dataclass(frozen=True)
class StructureMember:
    """A number in a structure, however deep; what is no number, such as a pointer, is one too.

    Attributes:
        name: How C++ reaches it from the structure: `x`, `corner.y`, `weights[2]`.
        dtype: Its type in memlab's short names; empty for what is no number.
        offset_bytes: Where it starts in the structure.
        spelling: Its type as C++ writes it.
    """

    name: str
    dtype: str
    offset_bytes: int
    spelling: str


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel.

    Attributes:
        name: Its name in the source; `argument 0`, its place, where it has none there.
        kind: `scalar` for numbers, `pointer` for pointers and references to data, `structure` for
            all else: structures by value, pointers to functions.
        dtype: The type in memlab's short names (f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64
            bool); of a pointer, that of what it points to. Empty for void and structures.
        spelling: The type as C++ writes it: `const float *`.
        nbytes: Bytes that it takes among the arguments.
        element_bytes: Bytes of one element that a pointer points to; 0 for void, for a structure
            that the kernel never looks into, and for what is no pointer.
        readonly: Whether it is a pointer to const.
        member_dtype: Where the type, or what is pointed to, is a structure of members that are
            all of one type without gaps (`float4`, a complex number), that type.
        parts: Of a structure by value, its numbers in the order of their declaration, those of
            its bases first, none of an empty one; None for what cannot be taken apart so: unions,
            bit-fields, pointers to functions.
        alignment_bytes: Of a structure by value, what its address among the arguments is a
            multiple of.
    """

    name: str
    kind: Literal["scalar", "pointer", "structure"]
    dtype: str
    spelling: str
    nbytes: int
    element_bytes: int = 0
    readonly: bool = False
    member_dtype: str = ""
    parts: tuple[StructureMember, ...] | None = None
    alignment_bytes: int = 1


@dataclass(frozen=True)
class ModuleVariable:
    """A `__constant__` or `__device__` variable, which can be filled before a launch.

    Attributes:
        name: Its name in the source, after those of its namespaces: `physics::table`.
        linkage_name: Its name in the compiled code.
        space: The memory it lies in: `const` of `__constant__`, `global` of `__device__`.
        dtype: The type of an element in memlab's short names; empty for structures and pointers.
        shape: Elements in each dimension, row-major; empty for a single one.
        nbytes: Bytes of all elements.
        member_dtype: As of a `KernelParameter`.
    """

    name: str
    linkage_name: str
    space: Literal["const", "global"]
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    member_dtype: str = ""


@dataclass(frozen=True)
class LaunchBounds:
    """Which blocks a kernel may be launched with.

    Attributes:
        most_threads: The most threads of a block, as `__launch_bounds__` says; 0 where it does not.
        block: The threads of a block in x, y and z, as `__block_size__` says; None where any do.
    """

    max_threads: int = 0
    block: Dim3 | None = None


@dataclass(frozen=True)
class Signature:
    """A kernel as the compiler sees it.

    Attributes:
        name: Its name in the source, with namespaces and template arguments: `ns::sgemm<32>`.
        linkage_name: Its name in the compiled code: the `entry` of a launch.
        parameters: What it takes, in order.
        variables: The variables of its module.
        name_expression: What the compiler must be told so that the kernel is there at all, a
            template above all; empty where it is there anyhow.
        bounds: Which blocks it may be launched with.
    """

    name: str
    linkage_name: str
    parameters: tuple[KernelParameter, ...]
    variables: tuple[ModuleVariable, ...]
    name_expression: str = ""
    bounds: LaunchBounds = LaunchBounds()
