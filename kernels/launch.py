"""A launch: one kernel with its sizes, arguments and expected result, for any device.

A `Launch` holds everything that a device needs to compile, run and verify a kernel, and everything
that the roofline needs to know of its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Dim3: TypeAlias = tuple[int, int, int]
"""Extent in x, y, z, as CUDA's `dim3`."""

NO_CLUSTER: Dim3 = (1, 1, 1)
"""The extents of the cluster of a launch without clusters: a block by itself."""

Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"
"""Array arguments by name."""

Reference: TypeAlias = "Callable[[Arrays, NDArray[np.int64]], NDArray[Any] | None]"
"""`reference(inputs, flat_index)`: the expected values of an output at row-major positions.

They are computed from the input arrays, which include constants. Integers are compared exactly;
other values are float64. None means that the output is not verified."""


def block_count(elements: int, per_block: int) -> int:
    """The number of blocks that cover so many elements; the last one may be partly used."""
    return -(-elements // per_block)


def dtype_bytes(dtype: str) -> int:
    """Bytes of a type by its name, NumPy's or memlab's: it ends in the bits, except `bool`."""
    return int(dtype.lstrip(ascii_lowercase) or 8) // 8


@dataclass(frozen=True)
class Uniform:
    """An array of uniformly distributed random elements in [low, high)."""

    low: float
    high: float


@dataclass(frozen=True)
class SingleValue:
    """An array whose elements all have the same value."""

    value: float


@dataclass(frozen=True)
class Arange:
    """An array of 0, 1, 2 and so on, in row-major order."""


@dataclass(frozen=True)
class NpyFile:
    """An array read from a file in NumPy's format, with the same shape and type."""

    path: str


@dataclass(frozen=True, eq=False)
class InMemoryArray:
    """An array passed from Python, with the same shape and type."""

    array: NDArray[Any]


@dataclass(frozen=True)
class MemberFills:
    """An array of structures, filled number by number; None for random elements.

    They are in the order of `StructureType.numbers`.
    """

    fills: tuple[Uniform | SingleValue | Arange | None, ...]


Fill: TypeAlias = Uniform | SingleValue | Arange | NpyFile | InMemoryArray | MemberFills
"""How an array is filled before a launch."""


@dataclass(frozen=True)
class MemberType:
    """A member of a structure: a number, a pointer, a structure, or an array of these.

    Attributes:
        name: Its name in the source.
        offset_bytes: Its offset in the structure, bytes.
        shape: Elements in each dimension; empty if it is no array.
        dtype: NumPy's name of its type, for a pointer `uint64`; empty for a structure.
        structure: The type of its elements, if they are structures.
        is_pointer: Whether its elements are pointers, which count as padding among numbers.
    """

    name: str
    offset_bytes: int
    shape: tuple[int, ...]
    dtype: str
    structure: StructureType | None = None
    is_pointer: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.structure.nbytes if self.structure else dtype_bytes(self.dtype)


@dataclass(frozen=True)
class StructureType:
    """The type of a structure whose members are numbers and pointers, at any depth.

    Attributes:
        nbytes: Its size with padding, bytes.
        members: Its members in the order of declaration; those of base classes and of members
            without a name are its own.
    """

    nbytes: int
    members: tuple[MemberType, ...]

    @property
    def numbers(self) -> tuple[tuple[MemberType, ...], ...]:
        """The members that are numbers, each with the members around it, outermost first."""
        return tuple(
            (member, *inner)
            for member in self.members
            if not member.is_pointer
            for inner in (member.structure.numbers if member.structure else ((),))
        )

    @cached_property  # members may share a structure, at many depths
    def has_pointers(self) -> bool:
        """Whether a member is a pointer, at any depth."""
        return any(
            member.is_pointer or (member.structure is not None and member.structure.has_pointers)
            for member in self.members
        )


AddressMode: TypeAlias = Literal["clamp", "wrap", "mirror", "border"]
"""What a texture reads outside its array: see the CUDA C++ Programming Guide, "Texture Memory"."""

ADDRESS_MODES: tuple[AddressMode, ...] = ("clamp", "wrap", "mirror", "border")
"""The address modes; a texture object of the emulator holds their positions."""


@dataclass(frozen=True)
class View:
    """How a texture or surface object shows an array, as `cudaTextureDesc` does.

    The array has the shape (height, width), with the layers or the depth before and the channels
    behind, where there are any.

    Attributes:
        kind: Whether a `cudaTextureObject_t` or a `cudaSurfaceObject_t`.
        dimensions: 1, 2 or 3, layers and channels not among them.
        layered: Whether the first extent of the array counts layers.
        channels: Numbers of an element: 1, 2 or 4.
        linear: Whether a fetch interpolates; otherwise it reads the nearest element.
        address_modes: For x, y and z.
        normalized: Whether coordinates go from 0 to 1 instead of from 0 to the extent.
        normalized_float: Whether integers are read as floats, from 0 or -1 to 1.
        linear_memory: Whether a texture shows linear memory, which `tex1Dfetch` reads; otherwise
            the elements are in a CUDA array.
    """

    kind: Literal["texture", "surface"]
    dimensions: int
    layered: bool = False
    channels: int = 1
    linear: bool = False
    address_modes: tuple[AddressMode, AddressMode, AddressMode] = ("clamp", "clamp", "clamp")
    normalized: bool = False
    normalized_float: bool = False
    linear_memory: bool = False

    def extents(self, shape: tuple[int, ...]) -> Dim3:
        """The slices (depth or layers), height and width of an array; 1 where it has none."""
        spatial = shape if self.channels == 1 else shape[:-1]
        slices = spatial[0] if self.layered or self.dimensions == 3 else 1
        return slices, spatial[-2] if self.dimensions > 1 else 1, spatial[-1]


@dataclass(frozen=True)
class LaunchArray:
    """An array in the device's memory.

    Attributes:
        name: The name of the parameter or variable in the kernel's source.
        shape: Elements in each dimension, row-major.
        dtype: NumPy's name of the element type: `float32`, or `void96` for a structure of 12 bytes.
        structure: The type of the elements, if they are structures.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    structure: StructureType | None = field(default=None, kw_only=True)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return dtype_bytes(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * self.element_bytes


@dataclass(frozen=True)
class Buffer(LaunchArray):
    """An array argument in global memory.

    Attributes:
        role: Whether the kernel reads it (`in`), writes it (`out`), or reads and overwrites it.
        fill: How it is filled before the launch if the kernel reads it; None for random
            elements: floats in [0, 1), integers over their whole range.
        view: The texture or surface object that the kernel gets in place of a pointer, if any.
        members: What it holds besides its fill: pointers and numbers, as pairs of their offset in
            the array, bytes, and value.
        start: The element that the pointer points to, row-major; the array begins before it.
    """

    role: Literal["in", "out", "inout"]
    fill: Fill | None = None
    view: View | None = field(default=None, kw_only=True)
    members: tuple[tuple[int, Member], ...] = ()
    start: int = field(default=0, kw_only=True)

    @property
    def offset_bytes(self) -> int:
        """The distance of the pointer from the start of the array, bytes."""
        return self.start * self.element_bytes


@dataclass(frozen=True)
class Constant(LaunchArray):
    """A `__constant__` or `__device__` array.

    Attributes:
        fill: How it is filled before the launch, as for a `Buffer`.
        members: The tensor maps that it holds, by their offset.
    """

    fill: Fill | None = None
    members: tuple[tuple[int, TensorMap], ...] = ()


@dataclass(frozen=True)
class Scalar:
    """A scalar argument, passed by value.

    Attributes:
        name: The parameter's name in the kernel's source.
        dtype: NumPy's name of its type.
        value: Its value.
        bits: For a bit-field of a structure, its first bit in the byte at its offset, the lowest
            first, and its width; None for others.
    """

    name: str
    dtype: str
    value: int | float
    bits: tuple[int, int] | None = None


@dataclass(frozen=True)
class NullPointer:
    """A null pointer, passed for an array that is left out.

    Attributes:
        name: The parameter's name in the kernel's source.
    """

    name: str


@dataclass(frozen=True)
class ArrayAlias:
    """A pointer to an array that another argument passes.

    Attributes:
        name: The parameter's name in the kernel's source.
        array: The name of the array.
        dtype: NumPy's name of the type that the pointer points to; empty if it is no number.
        start: The element of the array that the pointer points to, row-major.
        element_bytes: Bytes of an element of the array; unused where `start` is 0.
    """

    name: str
    array: str
    dtype: str
    start: int = 0
    element_bytes: int = 0

    @property
    def offset_bytes(self) -> int:
        """The distance of the pointer from the start of the array, bytes."""
        return self.start * self.element_bytes


@dataclass(frozen=True)
class Structure:
    """A structure passed by value.

    Attributes:
        name: The parameter's name in the kernel's source.
        nbytes: Its size, bytes.
        alignment_bytes: The alignment of its offset among the arguments, bytes.
        members: Its numbers and pointers as pairs of their offset, bytes, and value; other bytes
            are zero. Arrays are named as the whole launch names them, `view.data`.
        path: A file in NumPy's format that holds its bytes instead; empty for none.
    """

    name: str
    nbytes: int
    alignment_bytes: int
    members: tuple[tuple[int, Member], ...] = ()
    path: str = ""


@dataclass(frozen=True)
class TensorBox:
    """What a tensor copy moves at once, and how it lies in shared memory.

    Tuples are in the order of NumPy's shape, the slowest dimension first; the coordinates in a
    kernel are in the opposite order.

    Attributes:
        extents: Elements of the tensor that the box spans in each dimension, with interleave
            slices; where there are `corners`, the pixels and the channels of a copy.
        steps: Of so many elements along each dimension, one is copied; empty for all.
        swizzle_bytes: Within spans of 32, 64 or 128 bytes of shared memory, pieces of 16 bytes are
            exchanged; 0 for none.
        interleave_bytes: Channels lie in slices of 16 or 32 bytes, and a slice is what the map's
            extents, strides and coordinates count: NC/8HWC8 has the dimensions N, C/8, H and W; 0
            for none.
        promotion_bytes: What the L2 fetches at least, 64, 128 or 256; 0 for no more than needed.
        fill: What elements outside the tensor read as.
        corners: In the mode im2col, the lower and the upper corner of the pixels that are visited,
            relative to the tensor's; None for tiles.
    """

    extents: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle_bytes: int = 0
    interleave_bytes: int = 0
    promotion_bytes: int = 0
    fill: Literal["zeros", "nan"] = "zeros"
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def step(self, dimension: int) -> int:
        """The step along a dimension."""
        return self.steps[dimension] if self.steps else 1


TENSOR_MAP_BYTES = 128
"""Of a `CUtensorMap`, which is aligned to as many (`cuda.h`)."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: a `const __grid_constant__ CUtensorMap`, or one in memory.

    Attributes:
        name: The parameter's name in the kernel's source.
        array: The array in global memory, or that of another argument.
        dtype: NumPy's name of the tensor's element type.
        shape: The tensor's extents, the slowest dimension first; with interleave, in slices.
        box: What a copy moves.
        strides_bytes: The bytes from an element to the next along each dimension but the last;
            empty where nothing lies between the elements.
        conversion: What becomes of float32 elements: `tf32` rounds them to the precision of tensor
            cores, `ftz` makes denormal ones 0, `tf32-ftz` does both; empty for nothing.
    """

    name: str
    array: Buffer | ArrayAlias
    dtype: str
    shape: tuple[int, ...]
    box: TensorBox
    strides_bytes: tuple[int, ...] = ()
    conversion: Literal["", "tf32", "ftz", "tf32-ftz"] = ""

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the tensor."""
        return dtype_bytes(self.dtype)

    @property
    def unit_bytes(self) -> int:
        """Bytes of what a coordinate counts: an element, with interleave a slice of channels."""
        return self.box.interleave_bytes or self.element_bytes

    @property
    def pitches_bytes(self) -> tuple[int, ...]:
        """The bytes from an element or slice to the next along each dimension but the last."""
        if self.strides_bytes:
            return self.strides_bytes
        inner = (prod(self.shape[number:]) for number in range(1, len(self.shape)))
        return tuple(units * self.unit_bytes for units in inner)

    @property
    def copied(self) -> tuple[int, ...]:
        """The elements or slices of a copy along each dimension; of im2col, pixels and channels.

        With interleave, it has one slice of each pixel, whatever the box says (an NVIDIA H200).
        """
        box, slices = self.box, self.box.interleave_bytes > 0
        if box.corners is not None:
            pixels, channels = box.extents
            return pixels, 1 if slices else channels
        extents = box.extents if not slices else (box.extents[0], 1, *box.extents[2:])
        return tuple(-(-each // box.step(axis)) for axis, each in enumerate(extents))

    @property
    def box_bytes(self) -> int:
        """Bytes that a copy moves."""
        return prod(self.copied) * self.unit_bytes

    @property
    def members(self) -> tuple[tuple[int, Member], ...]:
        """What it holds, as `Structure.members`: its array."""
        return ((0, self.array),)


Member: TypeAlias = Scalar | Buffer | NullPointer | ArrayAlias | TensorMap
"""A number, pointer or tensor map in a structure, or in an array of structures or pointers."""

Argument: TypeAlias = Member | Structure
"""The value of one parameter."""


def nested_arguments(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Arguments in their order, each followed by the members that it holds, at any depth."""
    for argument in arguments:
        yield argument
        if isinstance(argument, Structure | Buffer | TensorMap):
            yield from nested_arguments(member for _, member in argument.members)


def array_arguments(arguments: Iterable[Argument]) -> Iterator[Buffer]:
    """The arrays that arguments pass, in their order, each followed by those it points to."""
    for argument in nested_arguments(arguments):
        if isinstance(argument, Buffer):
            yield argument


@dataclass(frozen=True)
class Launch:
    """A kernel with everything that one launch of it needs.

    Attributes:
        kernel: The kernel's name in the catalog or, for a user kernel, on the command line.
        parameters: The parameters of the run, with defaults filled in.
        source: The CUDA C++ text.
        source_name: The file name in compiler messages and counters.
        entry: The name of the `__global__` function in the compiled code: the name in the source
            if it is `extern "C"`, otherwise the mangled name.
        defines: Preprocessor definitions, values by name.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        dynamic_shared_bytes: Size of the `extern __shared__` array, bytes.
        arguments: The arguments in the kernel's order.
        flop: Floating-point operations of the algorithm (an FMA is two); None if only an
            execution can tell.
        compulsory_bytes: Bytes if each input is read once and each output is written once.
        references: Functions that compute the expected outputs, by the outputs' names; an output
            without one is not verified.
        tolerance: The largest relative error that is attributed to rounding.
        tolerances: Tolerances of single outputs that differ from `tolerance`, by name.
        error_scale: The denominator of a relative error: the `element` itself, or at least the
            `rms` (root mean square) of the output's elements, for sums of mixed signs that may
            cancel.
        tile: Edge of the staged tile or of the square block, for plots by tile width.
        constants: The `__constant__` and `__device__` arrays that are filled.
        compile_options: Further options of NVRTC, such as `--maxrregcount=32`.
        library: The vendor library that computes the same result from the same arguments
            (`cublas`); empty for none.
        name_expression: The C++ expression that names the function (`sgemm<32>`), from which
            NVRTC instantiates a template; empty if `entry` suffices.
        ptx: The PTX, where the kernel comes compiled; empty where `source` is compiled. `source` is
            then what its lines refer to, which may be the PTX itself.
        cubin: The machine code that came with it, for the device's architecture; empty for none.
        cubin_compiler: Who made that machine code, with the version; empty if unknown.
        given: The arguments as the user gave them, where a front end makes more parameters of them;
            empty where they are `arguments`.
        cluster: Blocks of a thread block cluster in x, y, z; a single one where blocks form none.
    """

    kernel: str
    parameters: Mapping[str, int | str]
    source: str
    source_name: str
    entry: str
    defines: Mapping[str, str]
    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    arguments: tuple[Argument, ...]
    flop: int | None
    compulsory_bytes: int
    references: Mapping[str, Reference]
    tolerance: float
    tile: int | None = None
    constants: tuple[Constant, ...] = ()
    compile_options: tuple[str, ...] = ()
    library: str = ""
    name_expression: str = ""
    error_scale: Literal["element", "rms"] = "element"
    tolerances: Mapping[str, float] = field(default_factory=dict)
    ptx: str = ""
    cubin: bytes = b""
    cubin_compiler: str = ""
    given: tuple[Argument, ...] = ()
    cluster: Dim3 = NO_CLUSTER

    @property
    def user_arguments(self) -> tuple[Argument, ...]:
        """The arguments as the user gave them, in order."""
        return self.given or self.arguments

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The array arguments, in the kernel's order, with those in structures.

        Those of the tensor maps in `__constant__` memory come behind them.
        """
        maps = (item for constant in self.constants for _, item in constant.members)
        return tuple(array_arguments((*self.arguments, *maps)))

    @cached_property
    def outputs(self) -> tuple[Buffer, ...]:
        """The arrays that the kernel writes, in the order of its arguments."""
        return tuple(buffer for buffer in self.buffers if buffer.role != "in")

    @property
    def inputs(self) -> tuple[Buffer | Constant, ...]:
        """The arrays that are filled before the launch: arguments, then constants."""
        return (*(buffer for buffer in self.buffers if buffer.role != "out"), *self.constants)

    @property
    def blocks(self) -> int:
        """The number of blocks in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        """The number of threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_blocks(self) -> int:
        """The number of blocks of a cluster; 1 where blocks form none."""
        return prod(self.cluster)


def source_lines(source: str) -> list[str]:
    """The lines of a source as compilers count them: only a line feed ends a line."""
    return source.removesuffix("\n").split("\n")
