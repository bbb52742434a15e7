"""Arguments bound to a kernel's parameters: each specification is checked against its parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.launch import (
    Argument,
    ArrayAlias,
    Buffer,
    Structure,
    TensorMap,
    array_arguments,
)
from memlab.kernels.signature import KernelParameter
from memlab.kernels.user.arguments import tensor_maps, views
from memlab.kernels.user.arguments.hints import (
    describe_parameters,
    structure_hint,
    unsupported_reason,
)
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import (
    STRUCTURE,
    ArraySpecification,
    Specification,
    TensorMapSpecification,
)
from memlab.kernels.user.arguments.typed_binding import (
    bind_array,
    bind_scalar,
    bind_structure,
    bind_view,
    handle_spelling,
)
from memlab.kernels.user.arguments.untyped_binding import bind_untyped

AnyArgument = TypeVar("AnyArgument", bound=Argument)


def bind_arguments(
    texts: Sequence[str | Specification], parameters: Sequence[KernelParameter]
) -> tuple[Argument, ...]:
    """Parse the arguments of a kernel and check each against its parameter.

    Args:
        texts: A specification for each parameter, in the kernel's order: a text or, from Python,
            an already parsed specification.
        parameters: The parameters that the compiled kernel declares.

    Raises:
        UsageError: There are too many or too few arguments, or one is malformed or does not suit
            its parameter; the message numbers arguments from 0.
    """
    if len(texts) != len(parameters):
        raise UsageError(
            f"the kernel takes {describe_parameters(parameters)}, got {len(texts)}: "
            "give one --arg for each, in this order"
        )
    arguments = tuple(
        _bind_argument(text, parameter, _parameter_label(index, parameter))
        for index, (text, parameter) in enumerate(zip(texts, parameters, strict=True))
    )
    return _with_aliases(arguments)


def _parameter_label(index: int, parameter: KernelParameter) -> str:
    """Name a parameter in a message: `argument 2 (y, float *)`."""
    number = f"argument {index}"
    names = [name for name in (parameter.name, parameter.spelling) if name != number]
    return f"{number} ({', '.join(names)})"


def _bind_argument(text: str | Specification, parameter: KernelParameter, label: str) -> Argument:
    if reason := unsupported_reason(parameter):
        raise UsageError(f"{label} {reason}")
    try:
        argument = parse_specification(text) if isinstance(text, str) else text
    except UsageError as error:
        is_map = tensor_maps.takes_tensor_map(parameter)
        if parameter.kind == "structure" and not is_map and STRUCTURE not in str(text):
            hint = structure_hint(parameter)  # of a text such as `float3=1,2,3`
            raise UsageError(f"{label} is a structure, got {text!r}: {hint}") from None
        raise UsageError(f"{label}: {error}") from None
    if isinstance(argument, ArraySpecification | TensorMapSpecification):
        maps = tensor_maps.listed_maps(argument)
        if maps and tensor_maps.takes_listed_maps(parameter):
            return tensor_maps.bind_tensor_maps(argument, maps, parameter, label)
    if isinstance(argument, TensorMapSpecification):
        return tensor_maps.bind_tensor_map(argument, parameter, label)
    if tensor_maps.takes_tensor_map(parameter):
        raise UsageError(
            f"{label} takes a tensor map, got {argument.text!r}: write {tensor_maps.EXAMPLE}"
        )
    kind = views.view_kind(parameter.spelling)
    if isinstance(argument, ArraySpecification) and argument.view is not None:
        return bind_view(argument, parameter.name, handle_spelling(parameter), label)
    if kind:
        raise UsageError(
            f"{label} takes a {kind}, got {argument.text!r}: write {views.example(kind)}"
        )
    bind_kind = {
        "scalar": bind_scalar,
        "pointer": bind_array,
        "structure": bind_structure,
        "untyped": bind_untyped,
    }
    return bind_kind[parameter.kind](argument, parameter, label)


def _with_aliases(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """The arguments, in which each pointer to the array of another one knows its elements.

    Raises:
        UsageError: There is no array of this name and type, or it has no such element.
    """
    arrays = {array.name: array for array in array_arguments(arguments)}
    return tuple(_resolved(argument, arrays) for argument in arguments)


def with_arrays(maps: Sequence[TensorMap], arguments: Sequence[Argument]) -> tuple[TensorMap, ...]:
    """Tensor maps outside the arguments, each with the array that it is of.

    Raises:
        UsageError: There is no array of this name, or the driver refuses such a map.
    """
    arrays = {array.name: array for array in array_arguments((*arguments, *maps))}
    return tuple(_resolved(each, arrays) for each in maps)


def _resolved(argument: AnyArgument, arrays: Mapping[str, Buffer]) -> AnyArgument:
    if isinstance(argument, ArrayAlias):
        array = _aliased_array(argument, arrays)
        return replace(argument, element_bytes=array.element_bytes) if argument.start else argument
    if isinstance(argument, TensorMap):
        pointer = _resolved(argument.array, arrays)
        return tensor_maps.with_array(argument, pointer, arrays)
    if isinstance(argument, Structure | Buffer) and argument.members:
        members = tuple((offset, _resolved(each, arrays)) for offset, each in argument.members)
        return replace(argument, members=members)
    return argument


def _aliased_array(alias: ArrayAlias, arrays: Mapping[str, Buffer]) -> Buffer:
    """The array of another argument that a pointer points to."""
    if alias.array not in arrays:
        hint = suggest_nearest(alias.array, arrays) if arrays else "no argument is an array"
        raise UsageError(
            f"{alias.name} is @{alias.array}, and no array argument has this name: {hint}; "
            f"for an array from a file write f32[]=@{alias.array}"
        )
    array = arrays[alias.array]
    if alias.dtype not in ("", array.dtype):
        raise UsageError(
            f"{alias.name} points to {alias.dtype}, and @{alias.array} is an array of "
            f"{array.dtype}: name one of {alias.dtype}"
        )
    if alias.start >= array.elements:
        raise UsageError(
            f"{alias.name} is @{alias.array}+{alias.start}, and the array has {array.elements} "
            f"elements: use at most +{array.elements - 1}"
        )
    return array
