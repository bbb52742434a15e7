"""Arguments of parameters of which only the size is known, as in PTX."""

from __future__ import annotations

from dataclasses import replace

from memlab.errors import UsageError
from memlab.kernels.launch import Argument, dtype_bytes
from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user.arguments.fills import integer_range, parse_integer
from memlab.kernels.user.arguments.hints import example_value
from memlab.kernels.user.arguments.parsing import parse_specification
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    STRUCTURE,
    ScalarSpecification,
    Specification,
    StructureSpecification,
)
from memlab.kernels.user.arguments.typed_binding import (
    POINTER_BYTES,
    bind_array,
    bind_scalar,
    bind_structure,
)


def bind_untyped(argument: Specification, parameter: KernelParameter, label: str) -> Argument:
    """Bind a parameter of which only the size is known: the argument must have this size."""
    size = parameter.nbytes
    if isinstance(argument, StructureSpecification):
        return _bind_untyped_structure(argument, parameter, label)
    if not isinstance(argument, ScalarSpecification):
        if size != POINTER_BYTES:
            raise UsageError(
                f"{label} has {size} bytes, and a pointer has {POINTER_BYTES}, got "
                f"{argument.text!r}: {_untyped_hint(parameter)}"
            )
        return bind_array(argument, replace(parameter, kind="pointer"), label)
    dtype = argument.dtype or _untyped_number(argument, parameter)
    if not dtype or dtype_bytes(dtype) != size:
        raise UsageError(
            f"{label} has {size} bytes, got {argument.text!r}: {_untyped_hint(parameter)}"
        )
    return bind_scalar(argument, replace(parameter, kind="scalar", dtype=dtype), label)


def _bind_untyped_structure(
    argument: StructureSpecification, parameter: KernelParameter, label: str
) -> Argument:
    """Bind a structure whose members have the types and order of its values, as C++ lays it out."""
    whole = replace(parameter, kind="structure")
    if argument.path:
        return bind_structure(argument, whole, label)
    members: list[StructureMember] = []
    values: list[str | Specification] = []
    end, alignment = 0, 1
    for number, text in enumerate(argument.values):
        name, value = f"m{number}", parse_specification(text) if isinstance(text, str) else text
        if isinstance(value, ScalarSpecification):
            if not value.dtype:
                raise UsageError(
                    f"{label}: PTX does not tell the types of members, got {value.text!r}: write "
                    f"them, {STRUCTURE}=f32=1.5,i32=2,in:f32[N], or {STRUCTURE}=@FILE.npy"
                )
            width, pointer = dtype_bytes(value.dtype), None
            values.append(value.text.partition("=")[2].strip())
        else:
            width = POINTER_BYTES
            pointer = KernelParameter(name, "pointer", "", ".u64", width)
            values.append(value)
        start = -(-end // width) * width
        dtype = value.dtype if isinstance(value, ScalarSpecification) else ""
        members.append(StructureMember(name, dtype, start, dtype or ".u64", pointer))
        end, alignment = start + width, max(alignment, width)
    nbytes = -(-end // alignment) * alignment
    if nbytes != parameter.nbytes:
        raise UsageError(
            f"{label} has {parameter.nbytes} bytes, and {argument.text!r} takes {nbytes}: give all "
            f"members with their types, or {STRUCTURE}=@FILE.npy, its {parameter.nbytes} bytes"
        )
    return bind_structure(
        replace(argument, values=tuple(values)), replace(whole, parts=tuple(members)), label
    )


def _untyped_number(argument: ScalarSpecification, parameter: KernelParameter) -> str:
    """The type of a number without one: the first type of the parameter's size that holds it.

    A `.u32` of PTX holds no float; four bytes of machine code may.
    """
    size, whole = parameter.nbytes, parse_integer(argument.text.strip())
    if whole is None and not parameter.spelling.startswith((".u", ".s")):
        return {4: "f32", 8: "f64"}.get(size, "")
    for dtype in (f"i{8 * size}", f"u{8 * size}") if size in (1, 2, 4, 8) else ():
        low, high = integer_range(dtype)
        if whole is not None and low <= whole <= high:
            return dtype
    return ""


def _untyped_hint(parameter: KernelParameter) -> str:
    """Say how to write an argument of which only the size is known."""
    size = parameter.nbytes
    forms = ["inout:f32[N]"] if size == POINTER_BYTES else []
    forms += [f"{each}={example_value(each)}" for each in NUMPY_DTYPES if dtype_bytes(each) == size]
    whole = f"its members with their types, {STRUCTURE}=f32=1.5,i32=2"
    return f"write {', '.join(forms[:4])}" if forms else f"write {whole}"
