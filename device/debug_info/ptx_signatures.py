"""The signatures of the kernels of a PTX text, which has sizes and few types.

A `.u64` may be a pointer or a number, and a `.b8` array any structure: such a parameter is
`untyped`, and its argument tells the type.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from memlab.device.compiler import ptx_text
from memlab.device.debug_info.kernel_signatures import name_parts
from memlab.errors import UsageError, suggest_nearest
from memlab.kernels.signature import KernelParameter, LaunchBounds, ModuleVariable, Signature

if TYPE_CHECKING:
    from memlab.device.compiler.ptx_text import PtxParameter

_SPACES: dict[str, Literal["const", "global"]] = {"const": "const", "global": "global"}
_MAX_LISTED = 10
_PLAIN_NAME = re.compile(r"_Z(\d{1,4})")


def read_signatures(ptx: str, name: str) -> tuple[Signature, ...]:
    """Read the signatures of all kernels of a module, in its order.

    Args:
        ptx: The module.
        name: The file's name, for messages.

    Raises:
        UsageError: It declares a parameter that cannot be read.
    """
    return tuple(_signature(ptx, entry, name) for entry in ptx_text.kernels(ptx))


def find_signature(ptx: str, entry: str, name: str) -> Signature:
    """Read the signature of one kernel.

    Args:
        ptx: The module.
        entry: The kernel's name in the PTX, or in C++ without parameters; empty for the only one.
        name: The file's name, for messages.

    Raises:
        UsageError: There is no such kernel, or several, or a parameter cannot be read.
    """
    return _signature(ptx, find_entry(ptx_text.kernels(ptx), entry, name), name)


def find_entry(known: Collection[str], entry: str, name: str) -> str:
    """The name in compiled code of the kernel that a user names; see `find_signature`.

    Args:
        known: The names of the kernels in the compiled code.
        entry: The name that the user gave; empty for the only kernel.
        name: The file's name, for messages.

    Raises:
        UsageError: There is no such kernel, or several.
    """
    if entry in known:
        return entry
    found = [
        each
        for each in known
        if not entry or entry in (plain_name(each), plain_name(each).rpartition("::")[2])
    ]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(map(repr, [*known][:_MAX_LISTED])) + (
        f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
    )
    if not known:
        raise UsageError(f"{name} has no kernel: in PTX, .visible .entry NAME declares one")
    if not entry:
        raise UsageError(
            f"{name} has {len(known)} kernels, {listed}: name one, as in {name}:{next(iter(known))}"
        )
    if found:
        raise UsageError(
            f"{name} has several kernels {entry!r}: give the compiled name of one, "
            + " or ".join(map(repr, found))
        )
    raise UsageError(f"{name} has no kernel {entry!r}: {suggest_nearest(entry, known)}")


def with_parameters(
    signature: Signature, parameters: tuple[KernelParameter, ...], name: str
) -> Signature:
    """The signature with the parameters that a front end declares.

    Raises:
        UsageError: Their number or a size differs.
    """
    found = signature.parameters
    if [each.nbytes for each in found] != [each.nbytes for each in parameters]:
        raise UsageError(
            f"{name}: the kernel {signature.name} has parameters of "
            f"{_sizes(found)} in PTX, and {_sizes(parameters)} are declared: declare these"
        )
    return replace(signature, parameters=parameters)


def _sizes(parameters: tuple[KernelParameter, ...]) -> str:
    return f"{', '.join(str(each.nbytes) for each in parameters) or 'no'} bytes"


def _signature(ptx: str, entry: str, name: str) -> Signature:
    kernel = ptx_text.kernels(ptx)[entry]
    try:
        parameters = ptx_text.parameters(kernel)
    except ValueError as error:
        raise UsageError(
            f"{name}({kernel.line}): the parameter {str(error)!r} of {entry} cannot be read: "
            "make the PTX again"
        ) from None
    most, block = ptx_text.block_limits(kernel)
    return Signature(
        plain_name(entry),
        entry,
        tuple(_parameter(each, entry) for each in parameters),
        tuple(_variables(ptx)),
        bounds=LaunchBounds(most, block, ptx_text.cluster_extents(kernel)),
        used=ptx_text.reachable_names(ptx, entry),
    )


def plain_name(entry: str) -> str:
    """The name in C++ without parameters or template arguments, if it is mangled."""
    if parts := name_parts(entry):
        return "::".join(parts)
    plain = _PLAIN_NAME.match(entry)  # `_Z`, the length, the name, and then the types
    return entry[plain.end() :][: int(plain[1])] if plain else entry


def _parameter(parameter: PtxParameter, entry: str) -> KernelParameter:
    name = parameter.name.removeprefix(f"{entry}_")
    spelling = f".{parameter.type}"
    if parameter.is_array:
        spelling = f".b8[{parameter.nbytes}]"
    if parameter.is_pointer:
        return KernelParameter(name, "pointer", "", f"{spelling} .ptr", parameter.nbytes)
    if parameter.type in ("f32", "f64") and not parameter.is_array:
        return KernelParameter(name, "scalar", parameter.type, spelling, parameter.nbytes)
    return KernelParameter(
        name,
        "untyped",
        "",
        spelling,
        parameter.nbytes,
        alignment_bytes=parameter.alignment_bytes,
    )


def _variables(ptx: str) -> Iterator[ModuleVariable]:
    """The variables that can be filled; the compiler's own, such as texts, begin with `$`."""
    for each in ptx_text.variables(ptx):
        if each.space in _SPACES and not each.is_extern and not each.name.startswith("$"):
            yield ModuleVariable(
                plain_name(each.name),
                each.name,
                _SPACES[each.space],
                _element_type(each.type),
                each.shape,
                each.nbytes,
                initialized=each.is_initialized,
            )


def _element_type(kind: str) -> str:
    """The type in memlab's short names; bits of unknown meaning count as unsigned."""
    letter, bits = kind[:1], kind[1:]
    if kind in ("f16", "f32", "f64", "bf16"):
        return kind
    if bits not in ("8", "16", "32", "64"):
        return ""
    return f"{'i' if letter == 's' else 'u'}{bits}" if letter in "bsu" else ""
