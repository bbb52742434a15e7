"""The signature of a compiled kernel: its parameters and the variables of its module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memlab.kernels.launch import Dim3, StructureType


@dataclass(frozen=True)
class StructureMember:
    """A scalar member of a structure, at any depth: a number, or for example a pointer.

    Attributes:
        name: Its C++ expression relative to the structure: `x`, `corner.y`, `weights[2]`.
        dtype: Its type in memlab's short names; empty if it is not a number.
        offset_bytes: Its offset in the structure, bytes.
        spelling: Its type in C++.
        pointer: What it points to, described as for a parameter that is a pointer to data; None
            if it is no such pointer.
        bits: For a bit-field, its first bit in the byte at its offset, and its width; else None.
    """

    name: str
    dtype: str
    offset_bytes: int
    spelling: str
    pointer: KernelParameter | None = None
    bits: tuple[int, int] | None = None


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel.

    Attributes:
        name: Its name in the source; `argument 0`, by its position, if it has none.
        kind: `scalar` for numbers, `pointer` for pointers and references to data, `structure` for
            the rest: structures by value, pointers to functions. `untyped` where only the size is
            known: the argument tells the type.
        dtype: The type in memlab's short names (f32 f64 f16 bf16 i8 u8 i16 u16 i32 u32 i64 u64
            bool); for a pointer, the type of its elements. Empty for void and structures.
        spelling: The type in C++: `const float *`.
        nbytes: Its size among the arguments, bytes.
        element_bytes: Bytes of one element of a pointer; 0 for void, for a structure whose
            members the kernel never uses, and if it is not a pointer.
        readonly: Whether it is a pointer to const.
        member_dtype: The type of the members, if the type or the pointer's element type is a
            structure whose members all have one type, without gaps (`float4`, a complex number).
        parts: The scalar members of a structure by value, or of the structures that a pointer
            points to if they have pointers, in the order of declaration, base classes first, of a
            union the first; None if it cannot be split up.
        alignment_bytes: The alignment of a structure by value among the arguments, bytes.
        structure: The type of a pointer's elements, if they are structures of numbers and
            pointers; None for others, such as structures with unions or bit-fields.
        target: What the elements of a pointer to pointers point to, described as a parameter that
            is a pointer.
    """

    name: str
    kind: Literal["scalar", "pointer", "structure", "untyped"]
    dtype: str
    spelling: str
    nbytes: int
    element_bytes: int = 0
    readonly: bool = False
    member_dtype: str = ""
    parts: tuple[StructureMember, ...] | None = None
    alignment_bytes: int = 1
    structure: StructureType | None = field(default=None, compare=False, repr=False)
    target: KernelParameter | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ModuleVariable:
    """A `__constant__` or `__device__` variable, which can be filled before a launch.

    Attributes:
        name: Its name in the source with its namespaces: `physics::table`.
        linkage_name: Its name in the compiled code.
        space: Its memory space: `const` for `__constant__`, `global` for `__device__`.
        dtype: The type of an element in memlab's short names; empty for structures and pointers.
        shape: Elements in each dimension, row-major; empty for a single element.
        nbytes: Bytes of all elements.
        member_dtype: As in `KernelParameter`.
        initialized: Whether it has initial values other than zeros.
        structure: As in `KernelParameter`.
        is_tensor_map: Whether an element is a `CUtensorMap`.
    """

    name: str
    linkage_name: str
    space: Literal["const", "global"]
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    member_dtype: str = ""
    initialized: bool = False
    is_tensor_map: bool = False
    structure: StructureType | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class LaunchBounds:
    """The block sizes that a kernel may be launched with.

    Attributes:
        max_threads: The most threads of a block, from `__launch_bounds__`; 0 if not declared.
        block: The threads of a block in x, y and z, from `__block_size__`; None if not declared.
        cluster: The blocks of a cluster in x, y and z, from `__cluster_dims__`; None if not
            declared.
    """

    max_threads: int = 0
    block: Dim3 | None = None
    cluster: Dim3 | None = None


@dataclass(frozen=True)
class Signature:
    """The signature of a compiled kernel.

    Attributes:
        name: Its name in the source, with namespaces and template arguments: `ns::sgemm<32>`.
        linkage_name: Its name in the compiled code: the `entry` of a launch.
        parameters: Its parameters, in order.
        variables: The variables of its module.
        name_expression: The expression that NVRTC needs to compile the kernel at all, mainly for
            templates; empty if none is needed.
        bounds: The block sizes that it may be launched with.
        used: The names in its compiled code, those of the variables that it uses among them.
    """

    name: str
    linkage_name: str
    parameters: tuple[KernelParameter, ...]
    variables: tuple[ModuleVariable, ...]
    name_expression: str = ""
    bounds: LaunchBounds = LaunchBounds()
    used: frozenset[str] = frozenset()
