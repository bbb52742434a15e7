"""What is launched: one kernel with its sizes, arguments and expected result.

A `Launch` is all that a device needs to compile, run and verify a kernel, and all
that the roofline needs to know of the work it asked for. It knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Dim3: TypeAlias = tuple[int, int, int]
"""Extent in x, y, z, as CUDA's `dim3`."""

Arrays: TypeAlias = "Mapping[str, NDArray[np.generic]]"
"""Array arguments by name."""

Reference: TypeAlias = "Callable[[Arrays, NDArray[np.int64]], NDArray[Any] | None]"
"""`reference(inputs, flat_index)`: the values that the output must hold at these row-major
positions, computed from the input arrays alone (constants are among them): of whole numbers
integers, which are compared exactly, else float64. None where nothing is said of this output."""


@dataclass(frozen=True)
class Uniform:
    """How an input is drawn: uniformly, `low` included, `high` not."""

    low: float
    high: float


@dataclass(frozen=True)
class SingleValue:
    """An array whose elements are all alike."""

    value: float


@dataclass(frozen=True)
class Arange:
    """An array of 0, 1, 2 and so on, in row-major order."""


@dataclass(frozen=True)
class NpyFile:
    """An array read from a file in NumPy's format, of the very shape and type."""

    path: str


@dataclass(frozen=True, eq=False)
class InMemoryArray:
    """An array given in Python, of the very shape and type."""

    array: NDArray[Any]


Fill: TypeAlias = Uniform | SingleValue | Arange | NpyFile | InMemoryArray
"""Where the elements of an array come from."""


@dataclass(frozen=True)
class Buffer:
    """An array argument in global memory.

    Attributes:
        name: The parameter's name in the kernel's source.
        shape: Elements in each dimension, row-major.
        dtype: NumPy's name of the element type.
        role: Whether the kernel reads it, writes it, or reads what it then overwrites.
        fill: What it holds before the launch, where the kernel reads it; None for random
            elements, floats in [0, 1) and integers over their range.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"]
    fill: Fill | None = None

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element: NumPy's names of types end in their bits, but for `bool`."""
        return int(self.dtype.lstrip(ascii_lowercase) or 8) // 8

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.elements * self.element_bytes


@dataclass(frozen=True)
class Constant:
    """A `__constant__` or `__device__` array, filled before the launch.

    Attributes:
        name: The symbol in the kernel's source.
        shape: Elements in each dimension, row-major.
        dtype: NumPy's name of the element type.
        fill: As of a `Buffer`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: Fill | None = None


@dataclass(frozen=True)
class Scalar:
    """A scalar argument, passed by value.

    Attributes:
        name: The parameter's name in the kernel's source.
        dtype: NumPy's name of its type.
        value: What is passed.
    """

    name: str
    dtype: str
    value: int | float


@dataclass(frozen=True)
class Structure:
    """A structure passed by value.

    Attributes:
        name: The parameter's name in the kernel's source.
        nbytes: Its size.
        alignment_bytes: What its place among the arguments is a multiple of.
        members: Its numbers, each after the byte at which it starts; the rest is zeros.
        path: The file in NumPy's format that holds its bytes instead; empty for none.
    """

    name: str
    nbytes: int
    alignment_bytes: int
    members: tuple[tuple[int, Scalar], ...] = ()
    path: str = ""


@dataclass(frozen=True)
class NullPointer:
    """A null pointer, for an array that is left out.

    Attributes:
        name: The parameter's name in the kernel's source.
    """

    name: str


Argument: TypeAlias = Buffer | Scalar | Structure | NullPointer
"""What is passed for one parameter."""


@dataclass(frozen=True)
class Launch:
    """A kernel with everything that one launch of it needs.

    Attributes:
        kernel: Its name in the catalog, or what stands for it on the command line.
        parameters: What the user chose, with defaults filled in.
        source: The CUDA C++ text.
        source_name: The file name that compiler messages and counters carry.
        entry: The name of the `__global__` function in the compiled code: as in the source
            where that says `extern "C"`, else mangled.
        defines: Preprocessor definitions, name to value.
        grid: Blocks in x, y, z.
        block: Threads of a block in x, y, z.
        dynamic_shared_bytes: Size of the `extern __shared__` array, bytes.
        arguments: The arguments in the kernel's order.
        flop: Floating-point operations of the algorithm (an FMA is two); None where only
            executing the kernel tells.
        compulsory_bytes: Each input read once and each output written once, bytes.
        references: What the outputs must hold, by their names; those that are missing are not
            verified.
        tolerance: Largest relative error that rounding can explain.
        tolerances: The same for single outputs, by name, where theirs are others.
        error_scale: What an error is relative to: each `element`, or at least the `rms` (root
            mean square) of the output's elements, where sums of mixed signs may cancel.
        tile: Edge of the tile that is staged or of the square block, for plots by tile width.
        constants: What the source's `__constant__` and `__device__` arrays hold.
        compile_options: More of NVRTC's options, such as `--maxrregcount=32`.
        library: The vendor's library that computes the same from the same arguments (`cublas`),
            or nothing.
        name_expression: The C++ expression that names the function (`sgemm<32>`), by which
            NVRTC instantiates a template; empty where `entry` says it all.
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

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The array arguments, in the kernel's order."""
        return tuple(each for each in self.arguments if isinstance(each, Buffer))

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The arrays that the kernel writes, in its order."""
        return tuple(each for each in self.buffers if each.role != "in")

    @property
    def inputs(self) -> tuple[Buffer | Constant, ...]:
        """All that is filled: what the kernel reads of the arguments, then the constants."""
        return (*(each for each in self.buffers if each.role != "out"), *self.constants)

    @property
    def blocks(self) -> int:
        """Blocks in the whole grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads_per_block(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]


def source_lines(source: str) -> list[str]:
    """The lines of a source as compilers count them: other breaks, such as form feeds, end none."""
    return source.removesuffix("\n").split("\n")
