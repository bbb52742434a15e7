"""Which parameter of a launch in host code passes each array, and which point into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from memlab.kernels.host_code.formulas import number
from memlab.kernels.host_code.values import Allocation, Container, Pointer, Value
from memlab.kernels.launch import dtype_bytes

if TYPE_CHECKING:
    from memlab.kernels.host_code.formulas import Formula
    from memlab.kernels.signature import KernelParameter


@dataclass(frozen=True)
class PointerUse:
    """Whether a kernel writes and reads through a pointer, or may."""

    is_written: bool
    is_read: bool

    def joined(self, other: PointerUse | None) -> PointerUse:
        """What a kernel does through one of two pointers; None for no other one."""
        if other is None:
            return self
        return PointerUse(self.is_written or other.is_written, self.is_read or other.is_read)


@dataclass(frozen=True)
class SharedArray:
    """An array and the parameter that passes it; others point into it by its name.

    Attributes:
        parameter: The parameter.
        origin: Where the array begins, as its distance from the start of the memory, bytes.
        is_sized: Whether the size of the memory is known.
        use: Whether the kernel writes and reads through one of the pointers.
        is_partial: Whether a pointer does not point to its start.
    """

    parameter: KernelParameter
    origin: Formula
    is_sized: bool
    use: PointerUse
    is_partial: bool

    def start_of(self, parameter: KernelParameter, offset: Formula) -> Formula | None:
        """The element to which a pointer points that is passed for a parameter.

        Args:
            parameter: The parameter.
            offset: The distance from the start of the memory, bytes.

        Returns:
            The number of the element; None if the array has elements of another type, or it is
            not known whether the pointer points to one of them.
        """
        if parameter.dtype and parameter.dtype != (self.parameter.dtype or _number(self.parameter)):
            return None
        start = (offset - self.origin).scaled(Fraction(1, _element_bytes(self.parameter)))
        is_whole = all(coefficient.denominator == 1 for _, coefficient in start.terms)
        if start.constant is None:
            return start if is_whole and self.is_sized else None
        return start if is_whole and start.constant >= 0 else None


def find_shared_arrays(
    parameters: Sequence[KernelParameter],
    values: Sequence[Value],
    uses: Sequence[PointerUse],
) -> dict[Allocation, SharedArray]:
    """Find the parameter that passes each array.

    It is the first through which the kernel writes: an array that a pointer to const passes can be
    no output.

    Args:
        parameters: The parameters of the kernel.
        values: What the launch passes.
        uses: What the kernel does with each parameter.
    """
    groups: dict[Allocation, list[_Pointer]] = {}
    for parameter, value, use in zip(parameters, values, uses, strict=False):
        if parameter.kind != "pointer" or not parameter.name.isidentifier():
            continue
        if isinstance(value, Pointer | Container):
            offset = value.offset if isinstance(value, Pointer) else number(0)
            pointer = _Pointer(parameter, offset, use)
            groups.setdefault(value.allocation, []).append(pointer)
    return {allocation: _shared(allocation, pointers) for allocation, pointers in groups.items()}


class _Pointer(NamedTuple):
    """A parameter, where it points to, and what the kernel does with it."""

    parameter: KernelParameter
    offset: Formula
    use: PointerUse


def _shared(allocation: Allocation, pointers: Sequence[_Pointer]) -> SharedArray:
    first = min(pointers, key=lambda each: (each.parameter.readonly, not each.use.is_written))
    owner = first.parameter
    is_sized = allocation.nbytes is not None
    origin = number(0) if is_sized or first.offset.constant is not None else first.offset
    whole = SharedArray(owner, origin, is_sized, first.use, False)
    same = [each for each in pointers if whole.start_of(each.parameter, each.offset) is not None]
    return replace(
        whole,
        use=PointerUse(
            any(each.use.is_written for each in same), any(each.use.is_read for each in same)
        ),
        is_partial=any(each.offset != whole.origin for each in same),
    )


def _number(parameter: KernelParameter) -> str:
    """The type of the numbers of a vector type such as `float4`; empty for others."""
    return parameter.member_dtype if parameter.element_bytes else ""


def _element_bytes(parameter: KernelParameter) -> int:
    """Bytes of an element of the array that stands for a parameter."""
    if parameter.dtype or _number(parameter):
        return dtype_bytes(parameter.dtype or _number(parameter))
    return parameter.element_bytes if parameter.structure is not None else 1
