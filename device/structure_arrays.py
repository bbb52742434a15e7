"""Arrays of structures in NumPy: their types, and the numbers of all structures as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memlab.kernels.launch import LaunchArray, MemberType, StructureType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def array_type(item: LaunchArray) -> np.dtype[Any]:
    """The NumPy type of an array's elements; that of structures has the compiler's offsets."""
    return element_type(item.dtype) if item.structure is None else structure_type(item.structure)


def element_type(name: str) -> np.dtype[Any]:
    """The NumPy type of a name, including `bfloat16`."""
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401 (registers it)
    return np.dtype(name)


def structure_type(structure: StructureType) -> np.dtype[Any]:
    """The NumPy type of a structure, with the names, offsets and size that the compiler chose.

    Pointers are left out, as if they were padding.
    """
    members = [member for member in structure.members if not member.is_pointer]
    formats: list[Any] = [
        (
            structure_type(member.structure) if member.structure else element_type(member.dtype),
            member.shape,
        )
        for member in members
    ]
    return np.dtype(
        {
            "names": [member.name for member in members],
            "formats": formats,
            "offsets": [member.offset_bytes for member in members],
            "itemsize": structure.nbytes,
        }
    )


def numbers_of(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Views of the members that are numbers, at any depth, in the order of declaration.

    Args:
        array: An array, shape S; of structures, or of numbers, which is its only view.

    Yields:
        The elements of a member, shape S and then the shapes of the members around it and its own.
    """
    if array.dtype.names is None:
        yield array
        return
    for name in array.dtype.names:
        yield from numbers_of(array[name])


def placed_numbers(structure: np.generic) -> list[tuple[int, Any]]:
    """The numbers of one structure with their offsets, bytes, each as a Python number."""
    whole = np.array(structure)
    start = whole.__array_interface__["data"][0]
    return [
        (number.__array_interface__["data"][0] - start, number.item())
        for part in numbers_of(whole)
        for number in (part[(*index, ...)] for index in np.ndindex(part.shape))
    ]


def number_names(dtype: np.dtype[Any]) -> list[str]:
    """The names of a structure's numbers, in the order of `numbers_of`: `corner.x`."""
    names = []
    for name in dtype.names or ():
        inner = number_names(dtype[name].base)
        names += [f"{name}.{rest}" for rest in inner] if inner else [name]
    return names


def padding_bytes(structure: StructureType) -> NDArray[np.bool_]:
    """Which bytes of a structure belong to no number, shape (bytes,)."""
    one = np.full(structure.nbytes, 1, np.uint8).view(structure_type(structure))
    for numbers in numbers_of(one):
        numbers[...] = 0
    unused: NDArray[np.bool_] = one.view(np.uint8) != 0
    return unused


def copy_structures(into: NDArray[Any], values: NDArray[Any]) -> None:
    """Copy the numbers of structures into those of another layout; padding stays."""
    for target, source in zip(numbers_of(into), numbers_of(values), strict=True):
        target[...] = source.reshape(target.shape)


def mismatch(given: np.dtype[Any], wanted: np.dtype[Any], *, converted: bool = False) -> str:
    """Say in what structures differ that must have the same numbers in the same order.

    Offsets may differ: NumPy has no padding unless asked for it. Names may differ where they are
    not the same ones in another order.

    Args:
        given: A type.
        wanted: The type of the structures.
        converted: Whether numbers of other types are taken, since only values are compared.

    Returns:
        What is wanted, for a message, as of `type_text`; empty if they fit.
    """
    names, wanted_names = number_names(given), number_names(wanted)
    parts, wanted_parts = _parts(given), _parts(wanted)
    shapes = [part.shape for part in parts], [part.shape for part in wanted_parts]
    same = shapes[0] == shapes[1] and all(
        part.dtype.kind in "fiubV" if converted else _same_type(part.dtype, wanted_part.dtype)
        for part, wanted_part in zip(parts, wanted_parts, strict=True)
    )
    reordered = names != wanted_names and sorted(names) == sorted(wanted_names)
    return "" if given.names and same and not reordered else type_text(wanted)


def type_text(dtype: np.dtype[Any]) -> str:
    """A type in a message: `float32`, or `structures of x float32, n int32`."""
    if dtype.names is None:
        return dtype.name
    return "structures of " + ", ".join(
        f"{name} {part.dtype.name}{list(part.shape) if part.shape else ''}"
        for name, part in zip(number_names(dtype), _parts(dtype), strict=True)
    )


def _same_type(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether two types of numbers are the same; files have no name for `bfloat16`."""
    return given == wanted or (wanted.name == "bfloat16" and given == np.dtype("V2"))


def _parts(dtype: np.dtype[Any]) -> list[NDArray[Any]]:
    """The numbers of one structure."""
    return list(numbers_of(np.zeros((), dtype))) if dtype.names else []


def place_of(structure: StructureType, number: int, position: int) -> str:
    """The name of one number in a structure: `.corner[1].x`.

    Args:
        structure: The type of the structure.
        number: The member's place in `StructureType.numbers`.
        position: The row-major position among the numbers that the member has in a structure.
    """
    path: Sequence[MemberType] = structure.numbers[number]
    shape = tuple(extent for member in path for extent in member.shape)
    subscripts = iter(np.unravel_index(position, shape) if shape else ())
    return "".join(
        f".{member.name}" + "".join(f"[{next(subscripts)}]" for _ in member.shape)
        for member in path
    )
