"""What a kernel of a source takes, and which kernel a person means by a name.

PTX tells the size of a parameter alone; what a debugger is told has names and types.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.compiler.compile import compile_with_debug_info
from memlab.device.compiler.diagnostics import NameExpressionError
from memlab.device.debug_info import kernel_signatures
from memlab.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit
    from memlab.kernels.signature import Signature

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)  # An unclosed one: to the end.
_KERNEL = re.compile(
    r"(?:(template\s*<[^;{}()]{0,500}>)\s*(?:(?:static|inline)\s+)*)?__global__\s+"
    r"(?:(?:void|static|inline|__\w+__(?:\s*\([^()]*\))?)\s+){0,8}(\w+)\s*\("
)


def signatures(unit: TranslationUnit) -> tuple[Signature, ...]:
    """Read what each kernel of a source takes, in the source's order.

    Templates are among them where they are instantiated: in the source, or by the name
    expression. Errors are those of `compile.compile_unit`.
    """
    return _signatures_from_output(compile_with_debug_info(unit))


def signature_of(unit: TranslationUnit, entry: str) -> Signature:
    """Read what one kernel takes.

    Args:
        unit: The source and how it is compiled, without a name expression.
        entry: The kernel as C++ names it (`saxpy`, `space::saxpy`, `sgemm<32>`) or by its name in
            the compiled code; empty for the only one there is.

    Raises:
        CompileError: The source does not compile.
        UsageError: There is no such kernel, it is not the only one of that name, or it is a
            template without its arguments; and what `compile.compile_unit` raises.
        DeviceError: As of `compile.compile_unit`.
    """
    declared, name = dict(_declared_kernels(unit.source)), unit.source_name
    if not entry:
        there = signatures(unit)
        if len(there) == 1:
            return _require_stable_name(there[0], name)
        raise UsageError(_kernel_required_message(name, there, declared))
    try:
        output = compile_with_debug_info(replace(unit, name_expression=entry))
    except NameExpressionError as error:
        there = signatures(unit)
        for each in there:
            if each.linkage_name == entry:
                return each
        raise UsageError(
            _no_such_kernel_message(name, entry, error.reason, there, declared)
        ) from error
    for each in _signatures_from_output(output):
        if each.linkage_name == output.lowered_name:
            return _require_stable_name(replace(each, name_expression=entry), name)
    raise UsageError(f"{name} has a variable {entry!r}, but no such kernel: name a kernel")


def _require_stable_name(signature: Signature, source_name: str) -> Signature:
    """A kernel, unless its name in the compiled code is another one each time.

    Raises:
        UsageError: So it is in an unnamed namespace of a file that defines nothing outside one.
    """
    unnamed = re.search(r"(\d+)(_GLOBAL__N_\w+)", signature.linkage_name)
    if unnamed and re.search(r"_[0-9a-f]{8}_\d+$", unnamed[2][: int(unnamed[1])]):
        raise UsageError(
            f"{source_name}: {signature.name} is in an unnamed namespace, or its template "
            "arguments are, and so is called otherwise whenever it is compiled: move it out"
        )
    return signature


def _declared_kernels(source: str) -> Iterator[tuple[str, str]]:
    """The kernels that a text seems to declare, for advice alone: name, and `template <...>`."""
    for template, name in _KERNEL.findall(_COMMENT.sub(" ", source)):
        yield name, " ".join(template.split())


def _kernel_required_message(
    source_name: str, there: Sequence[Signature], declared: Mapping[str, str]
) -> str:
    """Say that a kernel must be named, where none was."""
    names = _kernel_names(there, declared)
    if not names:
        return f"{source_name} has no kernel: define one, __global__ void name(...)"
    if not there:
        name = names[0]
        return (
            f"{source_name} has templates alone, {_name_list(names)}: give the arguments of "
            f"{declared[name]}, {source_name}:'{name}<...>'"
        )
    return (
        f"{source_name} has {len(names)} kernels, {_name_list(names)}: "
        f"say which, as in {source_name}:{names[0]}"
    )


def _no_such_kernel_message(
    source_name: str,
    entry: str,
    reason: str,
    there: Sequence[Signature],
    declared: Mapping[str, str],
) -> str:
    """Say why there is no such kernel, from what NVRTC says of the name expression."""
    base = entry.partition("<")[0].strip()
    template = declared.get(base.rpartition("::")[2], "")
    if "overloaded function" in reason:
        choices = [
            f"{each.linkage_name} ({', '.join(one.spelling for one in each.parameters)})"
            for each in there
            if each.name == base
        ]
        return (
            f"{source_name} has several kernels {entry!r}: name one as it is compiled, "
            + " or ".join(choices)
        )
    if "function template" in reason:
        # What was read of the source is the template's head, such as `template <int T>`.
        head = template or "a template"
        fault = f"does not fit {head}" if "<" in entry else f"is declared {head}"
        return f"{entry!r} {fault}: give its arguments, {source_name}:'{base}<...>'"
    if "non-__global__" in reason:
        return f"{entry!r} is a function of {source_name}, but no kernel: declare it __global__"
    if f'"{base}" is undefined' not in reason and template:
        return f"{source_name} has {base!r}, but not {entry!r} ({reason}): mend its arguments"
    names = _kernel_names(there, declared)
    if not names:
        return f"{source_name} has no kernel {entry!r}, nor any: define one, __global__ void"
    inside = [name for name in names if name.endswith(f"::{base}")]
    if inside:
        return f"{source_name} has no kernel {entry!r}: did you mean {_name_list(inside)}?"
    if template:
        return f"{source_name} has {base!r} in a namespace: write that before it, space::{entry}"
    return f"{source_name} has no kernel {entry!r}: {suggest_nearest(base, names)}"


def _kernel_names(there: Sequence[Signature], declared: Mapping[str, str]) -> list[str]:
    """The kernels there are and the templates of more, each name once."""
    templates = (name for name, template in declared.items() if template)
    return list(dict.fromkeys([*(each.name for each in there), *templates]))


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _signatures_from_output(output: CompilerOutput) -> tuple[Signature, ...]:
    return kernel_signatures.read_signatures(output.ptx, output.cubin)
