"""What a parameter takes, in the words of messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memlab.kernels.signature import KernelParameter, StructureMember
from memlab.kernels.user.arguments import tensor_maps
from memlab.kernels.user.arguments.specifications import (
    MAX_FLOATS,
    MAX_LISTED_MEMBERS,
    NULL,
    POINTERS,
    STRUCTURE,
    ArraySpecification,
)


def describe_parameters(parameters: Sequence[KernelParameter]) -> str:
    """Describe a kernel's parameters in a message: `2 arguments (float * y, int n)`."""
    listed = ", ".join(f"{parameter.spelling} {parameter.name}".strip() for parameter in parameters)
    count = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}"
    return f"{count} ({listed})" if parameters else "no arguments"


def unsupported_reason(parameter: KernelParameter) -> str:
    """Say why memlab cannot pass a parameter and what to do instead; empty if it can."""
    if "(*" in parameter.spelling and parameter.kind == "structure":
        return (
            "is a function passed by value, which memlab cannot pass: call the function by its "
            "name in the kernel, or choose it with -D"
        )
    for member in parameter.parts or ():
        is_map = tensor_maps.takes_tensor_map(member)
        if not (member.dtype or member.pointer or is_map):
            return (
                f"is a structure whose member {member.name} ({member.spelling}) is no number, "
                "pointer to data or tensor map, and memlab passes only these: pass it as a "
                "separate argument"
            )
    return ""


def structure_hint(parameter: KernelParameter) -> str:
    """Say how to write a structure: `write struct=1.0,1 (x f32, n i32)`."""
    if parameter.parts is None:
        return f"write {STRUCTURE}=@FILE.npy, a file with its {parameter.nbytes} bytes as u8"
    if not parameter.parts:
        return f"write {STRUCTURE}, for it has no members"
    shown, hidden = parameter.parts[:MAX_LISTED_MEMBERS], parameter.parts[MAX_LISTED_MEMBERS:]
    example = ",".join(
        [*(example_member(member) for member in shown), *(["..."] if hidden else [])]
    )
    listed = ", ".join(f"{member.name} {member.dtype or member.spelling}" for member in shown)
    if hidden and has_pointers(parameter):
        return f"write {STRUCTURE}={example} ({listed}, and {len(hidden)} more)"
    if hidden:
        whole = f"{STRUCTURE}=@FILE.npy with its {parameter.nbytes} bytes as u8"
        return f"write {STRUCTURE}={example} ({listed}, and {len(hidden)} more), or {whole}"
    return f"write {STRUCTURE}={example} ({listed})"


def declared_name(part: StructureMember) -> str:
    """The name of a member as declared, without the subscripts of an element of an array."""
    return re.sub(r"\[\d+\]", "", part.name)


def has_pointers(parameter: KernelParameter) -> bool:
    """Whether it is a structure whose members include pointers or tensor maps."""
    return any(
        member.pointer is not None or tensor_maps.takes_tensor_map(member)
        for member in parameter.parts or ()
    )


def pointed(parameter: KernelParameter) -> str:
    """What a pointer points to, in a message."""
    if parameter.dtype:
        return parameter.dtype
    if parameter.target is not None:
        return "pointers"
    if parameter.structure is None:
        return "no structures whose members are all numbers or pointers"
    return "structures"


def example_array(parameter: KernelParameter, given: ArraySpecification | None = None) -> str:
    """An array that suits a pointer, for messages; its role and dimensions are those given."""
    role = given.role if given else "in" if parameter.readonly else "inout"
    extents = ",".join(map(str, given.shape)) if given else "N"
    if tensor_maps.points_to_tensor_maps(parameter):
        return tensor_maps.EXAMPLE
    if parameter.target is not None:
        return f"{POINTERS}[{extents}]={example_array(parameter.target)}"
    if parameter.structure is None or parameter.dtype:
        size = f",{parameter.element_bytes}" if parameter.element_bytes else ""
        whole = f"{parameter.dtype}[{extents}]" if parameter.dtype else f"u8[{extents}{size}]"
        return f"{role}:{whole}"
    if not parameter.structure.has_pointers:
        return f"{role}:{STRUCTURE}[{extents}]"
    if parameter.parts is None:  # too many pointers lead to it
        return NULL
    members = {declared_name(part): example_member(part) for part in parameter.parts}
    shown = [*members.values()][:MAX_LISTED_MEMBERS]
    more = ["..."] if len(members) > MAX_LISTED_MEMBERS else []
    return f"{STRUCTURE}[{extents}]={','.join(shown + more)}"


def example_member(member: StructureMember) -> str:
    """An example of a member of a structure, for messages."""
    if tensor_maps.takes_tensor_map(member):
        return tensor_maps.EXAMPLE
    if member.pointer is None:
        return example_value(member.dtype)
    return example_array(member.pointer)


def example_value(dtype: str) -> str:
    """An example of a value of a type, for messages."""
    return "2.0" if dtype in MAX_FLOATS else "1"
