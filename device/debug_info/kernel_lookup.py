"""Finds the kernel that a user names in a source, and its parameters.

PTX tells only the size of a parameter; debug information has names and types.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.compiler.compile import compile_with_debug_info
from memlab.device.compiler.diagnostics import NameExpressionError
from memlab.device.compiler.headers import own_header_texts
from memlab.device.debug_info import cubin_signatures, kernel_signatures, ptx_signatures
from memlab.errors import UsageError, suggest_nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit
    from memlab.kernels.signature import Signature

_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)  # an unclosed one ends with the file
_KERNEL = re.compile(
    r"(?:(template\s*<[^;{}()]{0,500}>)\s*"
    r"(?:(?:static|inline|__launch_bounds__\s*\([^;{}]{0,500}\))\s*){0,3})?__global__\s+"
    r"(?:(?:void|static|inline|__\w+__(?:\s*\([^()]*\))?)\s+){0,8}(\w+)\s*\("
)


def signatures(unit: TranslationUnit) -> tuple[Signature, ...]:
    """Read the signatures of all kernels of a source, in the source's order.

    Templates are included if they are instantiated, in the source or by the name expression.

    Raises:
        MemlabError: As `compile.compile_unit`.
    """
    if unit.ptx:
        return ptx_signatures.read_signatures(unit.ptx, unit.source_name)
    if unit.cubin:
        return cubin_signatures.read_signatures(unit.cubin)
    return _signatures_from_output(compile_with_debug_info(unit))


def signature_of(unit: TranslationUnit, entry: str) -> Signature:
    """Read the signature of one kernel.

    Args:
        unit: The translation unit, without a name expression.
        entry: The kernel's C++ name (`saxpy`, `space::saxpy`, `sgemm<32>`) or its name in the
            compiled code; empty for the only kernel. Namespaces may be left out where only one
            kernel has the name.

    Raises:
        CompileError: The source does not compile.
        UsageError: There is no such kernel, or several, or it is a template without arguments; and
            as `compile.compile_unit`.
        DeviceError: As `compile.compile_unit`.
    """
    if unit.ptx:
        return ptx_signatures.find_signature(unit.ptx, entry, unit.source_name)
    if unit.cubin:
        return cubin_signatures.read_signature(unit.cubin, entry)
    declared, name = dict(declared_kernels(unit.source)), unit.source_name
    if not entry:
        kernels = signatures(unit)
        if len(kernels) == 1:
            return _require_stable_name(kernels[0], name)
        raise UsageError(_kernel_required_message(unit, kernels, declared))
    try:
        output = compile_with_debug_info(replace(unit, name_expression=entry))
    except NameExpressionError as error:
        qualified = _with_namespaces(unit, entry, error.reason)
        if qualified:
            return signature_of(unit, qualified)
        kernels = signatures(unit)
        for kernel in kernels:
            if kernel.linkage_name == entry:
                return kernel
        raise UsageError(_no_such_kernel_message(unit, entry, error, kernels, declared)) from error
    for kernel in _signatures_from_output(output):
        if kernel.linkage_name == output.lowered_name:
            return _require_stable_name(replace(kernel, name_expression=entry), name)
    raise UsageError(f"{name} has a variable {entry!r}, but no such kernel: name a kernel")


def _with_namespaces(unit: TranslationUnit, entry: str, reason: str) -> str:
    """The entry with the namespaces of the only kernel of this name; empty if there is none.

    Args:
        unit: The translation unit.
        entry: The entry, which the compiler does not know.
        reason: The compiler's message.
    """
    from memlab.kernels.host_code.preprocessor import preprocess
    from memlab.kernels.host_code.program import read_program

    base, bracket, arguments = entry.partition("<")
    base = base.strip()
    if f'"{base}" is undefined' not in reason and "name followed by" not in reason:
        return ""
    headers = own_header_texts(unit.source, unit.source_name, unit.options)
    program = read_program(preprocess(unit.source, unit.source_name, headers, unit.defines))
    found = program.kernels.get(base.rpartition("::")[2], ())
    names = {kernel.name for kernel in found if kernel.name.endswith(f"::{base}")}
    return f"{names.pop()}{bracket}{arguments}" if len(names) == 1 else ""


def _require_stable_name(signature: Signature, source_name: str) -> Signature:
    """Return a kernel, unless its name in the compiled code changes with every compilation.

    Raises:
        UsageError: It does, since the kernel is in an unnamed namespace of a file that defines
            nothing outside of it.
    """
    unnamed = re.search(r"(\d+)(_GLOBAL__N_\w+)", signature.linkage_name)
    if unnamed and re.search(r"_[0-9a-f]{8}_\d+$", unnamed[2][: int(unnamed[1])]):
        raise UsageError(
            f"{source_name}: {signature.name} is in an unnamed namespace, or its template "
            "arguments are, so its compiled name changes with every compilation: move it out"
        )
    return signature


def declared_kernels(source: str) -> Iterator[tuple[str, str]]:
    """The kernels that a source appears to declare, as (name, `template <...>`), for advice."""
    for template, name in _KERNEL.findall(_COMMENT.sub(" ", source)):
        yield name, " ".join(template.split())


def _instantiation(unit: TranslationUnit, name: str) -> str:
    """A template with the arguments of its launch in the file; `name<...>` if it has none."""
    from memlab.kernels.host_code.reading import read_host_code
    from memlab.kernels.user.proposals import launch_entry, template_symbols

    last = name.rpartition("::")[2]
    launches = read_host_code(unit.source, unit.source_name, {}, unit.defines).launches
    return next(
        (
            launch_entry(launch)
            for launch in launches
            if launch.template_arguments
            and launch.kernel.rpartition("::")[2] == last
            and not template_symbols(launch)
        ),
        f"{name}<...>",
    )


def _kernel_required_message(
    unit: TranslationUnit, kernels: Sequence[Signature], declared: Mapping[str, str]
) -> str:
    """The message for a missing kernel name."""
    source_name = unit.source_name
    names = _kernel_names(kernels, declared)
    if not names:
        return f"{source_name} has no kernel: define one, __global__ void name(...)"
    if not kernels:
        name = names[0]
        return (
            f"{source_name} has only templates, {_name_list(names)}: give the arguments of "
            f"{declared[name]}, {source_name}:'{_instantiation(unit, name)}'"
        )
    return (
        f"{source_name} has {len(names)} kernels, {_name_list(names)}: "
        f"name one, as in {source_name}:{names[0]}"
    )


def _no_such_kernel_message(
    unit: TranslationUnit,
    entry: str,
    error: NameExpressionError,
    kernels: Sequence[Signature],
    declared: Mapping[str, str],
) -> str:
    """The message for a missing kernel, from NVRTC's message about the name expression."""
    source_name, reason = unit.source_name, error.reason
    base = entry.partition("<")[0].strip()
    template = declared.get(base.rpartition("::")[2], "")
    if "overloaded function" in reason:
        overloads = [
            f"{kernel.linkage_name} ({', '.join(item.spelling for item in kernel.parameters)})"
            for kernel in kernels
            if kernel.name == base
        ]
        return (
            f"{source_name} has several kernels {entry!r}: give the compiled name of one, "
            + " or ".join(overloads)
        )
    if "function template" in reason:
        # `template` is the template's head, such as `template <int T>`.
        head = template or "a template"
        fault = f"does not fit {head}" if "<" in entry else f"is declared {head}"
        if error.left_out:
            fault += f", and {', '.join(error.left_out)} not found (name the folders with -I DIR)"
        return (
            f"{entry!r} {fault}: give its arguments, {source_name}:'{_instantiation(unit, base)}'"
        )
    if "non-__global__" in reason:
        return f"{entry!r} is a function of {source_name}, but not a kernel: declare it __global__"
    if f'"{base}" is undefined' not in reason and template:
        return f"{source_name} has {base!r}, but not {entry!r} ({reason}): correct its arguments"
    names = _kernel_names(kernels, declared)
    if not names:
        return f"{source_name} has no kernel at all: define {entry!r}, __global__ void"
    inside = [name for name in names if name.endswith(f"::{base}")]
    if inside:
        return f"{source_name} has no kernel {entry!r}: did you mean {_name_list(inside)}?"
    if template:
        return f"{source_name} has {base!r} in a namespace: name the namespace too, space::{entry}"
    return f"{source_name} has no kernel {entry!r}: {suggest_nearest(base, names)}"


def _kernel_names(kernels: Sequence[Signature], declared: Mapping[str, str]) -> list[str]:
    """The names of compiled kernels and of templates, without duplicates."""
    templates = (name for name, template in declared.items() if template)
    return list(dict.fromkeys([*(kernel.name for kernel in kernels), *templates]))


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _signatures_from_output(output: CompilerOutput) -> tuple[Signature, ...]:
    return kernel_signatures.read_signatures(output.ptx, output.cubin)
