"""The `memlab.toml` that `memlab init` writes: it runs at once, and the user corrects it.

A compiled kernel does not tell sizes, so they are guesses. For most kernels the guesses stay within
the arrays: the product of all integer arguments, and of as many of them as the grid has axes, is at
most the number of elements of an array.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import dtype_bytes
from memlab.kernels.signature import LaunchBounds
from memlab.kernels.user.arguments.hints import declared_name, structure_hint, unsupported_reason
from memlab.kernels.user.arguments.specifications import MAX_FLOATS, POINTERS, STRUCTURE
from memlab.kernels.user.arguments.tensor_maps import (
    EXAMPLE,
    constant_example,
    points_to_tensor_maps,
    takes_tensor_map,
)
from memlab.kernels.user.arguments.views import example, view_kind
from memlab.kernels.user.kernel import is_compiled
from memlab.kernels.user.project import SCHEMA_FILE
from memlab.kernels.user.proposals import INDEX_DTYPES

if TYPE_CHECKING:
    from memlab.kernels.signature import (
        KernelParameter,
        ModuleVariable,
        Signature,
        StructureMember,
    )
    from memlab.kernels.user.kernel import UserKernel
    from memlab.kernels.user.proposals import ProposedLaunch

MAX_GUESSED_MEMBERS = 64
"""The most numbers of a structure that are written one by one."""
POINTED_ARRAYS = 4
"""The arrays in a guessed array of pointers."""
DEFAULT_ELEMENTS = 2**20
"""Elements of every array: 4 MiB of floats, which the emulator runs whole in a second."""
DEFAULT_BLOCKS = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
"""Threads of a block, by the number of axes of `threadIdx` that the kernel uses."""
WORD_BYTES = (1, 2, 4, 8)
"""Sizes of numbers, the last also of pointers."""
MIN_SIZE_BITS = 32
"""Integers of fewer bits are assumed to be flags, not sizes."""

SHARED_BYTES_PER_THREAD = 32
"""Bytes per thread of a dynamic shared array: four doubles or eight floats. The largest block then
takes 32 KiB, and every GPU has 48."""

_EXTERN_SHARED = re.compile(
    r"\bextern\b[^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\b__shared__\b|\.extern\s+\.shared\b"
)
_HEADER = """\
#:schema ./{schema}
# The kernels of this folder for memlab: `memlab run {name}` in this folder runs one; analyze,
# check, trace, sass, occupancy, roofline and sweep take the same name. Options on the command
# line take precedence over these. Paths are relative to this file.
"""
_NO_SHARED = "# shared = 0                    # dynamic shared memory of a block, bytes"
_OPTIONAL_KEYS = """\
# defines = ["TILE=32"]         # as after -D
# include = ["include"]         # as after -I
# root = "."                    # headers anywhere below may be read
# std = "c++17"
# max-registers = 64
# use-fast-math = true          # also ftz, prec-div, prec-sqrt, fmad; ptxas-options = ["-O1"]
# tolerance = 1e-4
# The expected values of an output; `--reference FILE.py:FUNCTION` takes a function instead.
# expect = ["{output}=@{output}.npy"]
"""


class KernelTable(NamedTuple):
    """The table of a kernel.

    Attributes:
        name: Its name; empty for a kernel whose arguments memlab cannot pass.
        text: The table; of such a kernel, a comment with the reason.
        is_told: Whether the launch is all the file's, without guesses and symbols.
    """

    name: str
    text: str
    is_told: bool = False


def project_file_text(tables: Sequence[KernelTable]) -> str:
    """The text of a new `memlab.toml`, with the tables of `kernel_tables`."""
    first = next(table.name for table in tables if table.name)
    head = _HEADER.format(schema=SCHEMA_FILE, name=first)
    return "\n".join([head, *(table.text for table in tables)])


def kernel_tables(
    kernel: UserKernel,
    signatures: Sequence[Signature],
    source: str = "",
    launches: Mapping[str, ProposedLaunch] | None = None,
    present: Mapping[str, UserKernel] | None = None,
    folder: Path = Path(),
) -> list[KernelTable]:
    """The tables of a file's kernels.

    Args:
        kernel: The source file and its compiler options.
        signatures: The file's kernels, one or more.
        source: The file's text, from which the number of axes that a kernel uses is read.
        launches: The launches that the file makes, by the kernels' names in the compiled code.
        present: The kernels that have tables already, by name: those of the same file are left
            out, and no name is used twice.
        folder: The folder to which the paths of all sources are relative.

    Returns:
        The tables; none if all other kernels have tables already.

    Raises:
        UsageError: memlab cannot pass the arguments of any of the kernels; if it can pass those
            of some, the others are comments.
    """
    present = present or {}
    file = _resolved(folder / kernel.source)
    present_entries = {
        other.entry for other in present.values() if _resolved(folder / other.source) == file
    }
    overloads = Counter(signature.name for signature in signatures)
    tables, errors = list[KernelTable](), []
    for name, signature in zip(table_names(signatures, present), signatures, strict=True):
        overloaded = overloads[signature.name] > 1
        unique_name = signature.linkage_name if overloaded else signature.name
        launch = (launches or {}).get(signature.linkage_name)
        entry = kernel.entry or (signature.name_expression if launch else "") or unique_name
        if present_entries & {entry, unique_name, signature.linkage_name} or (
            "" in present_entries and len(signatures) == 1
        ):
            continue
        try:
            text = _kernel_table(name, kernel, signature, entry, source, launch)
            tables.append(KernelTable(name, text, launch is not None and launch.is_told))
        except UsageError as error:
            errors.append(error)
            tables.append(KernelTable("", f"# {error}\n"))
    if any(table.name for table in tables):
        return tables
    if len(errors) == len(signatures):
        raise errors[0]
    return []


def _resolved(path: Path) -> Path:
    """Resolve a path to a source file.

    Raises:
        UsageError: No file can have such a path, for example because it holds a NUL character.
    """
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"cannot read {path} ({error}): check its name") from None


def table_names(signatures: Sequence[Signature], taken: Container[str] = ()) -> list[str]:
    """Unique names for the tables of kernels: the kernels' names without characters TOML excludes.

    Args:
        signatures: The kernels.
        taken: Names that are already in use.
    """
    names: list[str] = []
    for signature in signatures:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", signature.name).strip("-_") or "kernel"
        name = f"my-{name}" if name in CATALOG else name
        numbered = (f"{name}-{number}" for number in itertools.count(2))  # overloads share a name
        candidates = itertools.chain([name], numbered)
        names.append(next(n for n in candidates if n not in names and n not in taken))
    return names


def _kernel_table(
    name: str,
    kernel: UserKernel,
    signature: Signature,
    entry: str,
    source: str,
    launch: ProposedLaunch | None,
) -> str:
    for parameter in signature.parameters:
        reason = unsupported_reason(parameter)
        if _is_opaque(parameter) and not reason:
            reason = f"cannot be filled member by member: {structure_hint(parameter)}"
        if reason:
            raise UsageError(f"{signature.name}: {parameter.name} ({parameter.spelling}) {reason}")
    body = _kernel_source(source, signature)
    if launch is not None and -1 not in launch.gaps:
        shared = bool(launch.kernel.shared)
        lines = _launched_lines(signature, launch)
    else:
        shared = _has_dynamic_shared(body, source)
        lines = _guessed_lines(signature, body, shared, is_compiled(kernel))
    return "\n".join(
        (
            f"[kernels.{name}]",
            f"source = {_toml_string(kernel.source)}",
            f"entry = {_toml_string(entry)}",
            *_compile_option_lines(kernel),
            *lines,
            *([] if shared else [_NO_SHARED]),
            _OPTIONAL_KEYS.format(output=_output_name(signature.parameters)),
        )
    )


def _launched_lines(signature: Signature, launch: ProposedLaunch) -> Iterator[str]:
    """The launch that the file makes; what it does not tell is a symbol or a guess."""
    kernel = launch.kernel
    first = ", the first of a loop" if launch.in_loop else ""
    yield f"# The launch of {Path(launch.source_name).name}, line {launch.line}{first}."
    if launch.doubt:
        yield f"# {launch.doubt[0].upper()}{launch.doubt[1:]}: check that the sizes suit it."
    if launch.symbols:
        listed = ", ".join(f"{symbol} = 1024" for symbol in launch.symbols)
        given = " ".join(f"--set {symbol}=1024" for symbol in launch.symbols)
        yield "# The file does not tell these numbers: put yours and remove the first #, or"
        yield f"# give {given}."
        yield f"# symbols = {{ {listed} }}"
    yield f"grid = {_toml_extents(kernel.grid)}"
    yield f"block = {_toml_extents(kernel.block)}"
    if kernel.cluster:
        yield f"cluster = {_toml_extents(kernel.cluster)}  # blocks of a thread block cluster"
    if kernel.shared:
        yield f"shared = {_toml_value(kernel.shared)}  # dynamic shared memory of a block, bytes"
    yield "# in: is only read, out: only written, inout: read and overwritten. Arrays without a"
    yield "# fill, such as =zeros, hold random elements: the file does not tell theirs."
    yield "args = ["
    guesses = _guesses(signature.parameters, _guess_size(signature, len(kernel.grid)))
    for index, (parameter, guess) in enumerate(zip(signature.parameters, guesses, strict=True)):
        text = launch.args[index]
        yield _argument_line(parameter, guess if text is None else text, text is None)
    yield "]"
    texts = [constant for constant in kernel.constants if isinstance(constant, str)]
    if texts:
        yield f"constants = [{', '.join(map(_toml_string, texts))}]"
    else:
        yield from _constants_line(signature.variables)


def _guessed_lines(signature: Signature, body: str, shared: bool, compiled: bool) -> Iterator[str]:
    """A launch whose sizes suit each other, where the file makes none."""
    thread, group = ("%tid", "%ctaid") if compiled else ("threadIdx", "blockIdx")
    block = _default_block(_count_axes(thread, body), signature.bounds)
    guess = "a guess" if signature.bounds == LaunchBounds() else "what the kernel is declared for"
    axes = max(len(block), _count_axes(group, body))
    size = _guess_size(signature, axes)
    grid = [max(size // threads, 1) for threads in (*block, 1, 1)[:axes]]  # within the arrays
    yield f"grid = {_toml_extents(grid)}  # blocks in x, y, z: a guess"
    yield f"block = {_toml_extents(block)}  # threads of a block: {guess}"
    if shared:
        threads = math.prod(block)
        yield (
            f"shared = {threads * SHARED_BYTES_PER_THREAD}  # dynamic shared memory of a block, "
            "bytes: a guess"
        )
    yield "# The arguments in the kernel's order; their sizes are a guess too: put yours."
    yield "# in: is only read, out: only written, inout: read and overwritten."
    yield "args = ["
    for parameter, text in zip(
        signature.parameters, _guesses(signature.parameters, size), strict=True
    ):
        yield _argument_line(parameter, text)
    yield "]"
    yield from _constants_line(signature.variables)


def _guess_size(signature: Signature, axes: int) -> int:
    """The extent of each axis, so that the product of all sizes is that of an array."""
    scalars = [
        parameter.dtype or f"i{8 * parameter.nbytes}"
        for parameter in signature.parameters
        if parameter.kind == "scalar" or (parameter.kind == "untyped" and parameter.nbytes == 4)
    ]
    members = [
        member.dtype for parameter in signature.parameters for member in parameter.parts or ()
    ]
    sizes = [dtype for dtype in (*scalars, *members) if _is_size(dtype)]
    return int(2 ** (int(math.log2(DEFAULT_ELEMENTS)) // max(len(sizes), axes)))


def _kernel_source(source: str, signature: Signature) -> str:
    """The part of a source from a kernel's `__global__` to the next; all of it if not found.

    In PTX, that from its `.entry`.
    """
    if signature.linkage_name in source and "__global__" not in source:
        _, *kernels = re.split(r"\.entry\s+", source)
        named = re.compile(rf"{re.escape(signature.linkage_name)}\s*[({{]")
        return next((part for part in kernels if named.match(part)), source)
    name = signature.name.partition("<")[0].rpartition("::")[2]
    parts = source.split("__global__")
    return next(
        (part for part in parts if re.match(rf"[^;{{}}]*\b{re.escape(name)}\s*\(", part)), source
    )


def _has_dynamic_shared(body: str, source: str) -> bool:
    """Whether the kernel may have a dynamic shared array.

    The array is declared in the kernel, or before the first kernel for all of them.
    """
    return any(map(_EXTERN_SHARED.search, (body, re.split("__global__|[.]entry", source)[0])))


def _count_axes(index: str, body: str) -> int:
    """Count the axes of an index that a kernel uses: `threadIdx`, or `%tid` in PTX."""
    return next((axes for axes, axis in ((3, "z"), (2, "y")) if f"{index}.{axis}" in body), 1)


def _default_block(axes: int, bounds: LaunchBounds) -> tuple[int, ...]:
    """The block that a kernel is declared for, or else the default for the number of axes."""
    if bounds.block:
        needed = max(
            axes, *(place for place, extent in enumerate(bounds.block, 1) if extent > 1), 1
        )
        return bounds.block[:needed]
    if axes == 1 and bounds.max_threads:
        return (bounds.max_threads,)  # usually the bound is the block size of the launch
    block = list(DEFAULT_BLOCKS[axes])
    while math.prod(block) > (bounds.max_threads or math.inf):
        longest = max(range(axes), key=lambda axis: (block[axis], axis))
        block[longest] //= 2
    return tuple(block)


def _is_size(dtype: str) -> bool:
    """Whether a number of this type may be a number of elements."""
    return (
        dtype != ""
        and dtype not in MAX_FLOATS
        and dtype != "bool"
        and int(dtype[1:]) >= MIN_SIZE_BITS
    )


def _guesses(parameters: Sequence[KernelParameter], size: int) -> Iterator[str]:
    """An argument for each parameter, with guesses in place of what only the user knows."""
    for parameter in parameters:
        if parameter.kind == "pointer":
            yield _guess_array(parameter)
        elif kind := view_kind(parameter.spelling):
            yield example(kind)
        elif parameter.kind == "scalar":
            yield f"{parameter.dtype}={_guess_value(parameter.dtype, size)}"
        elif parameter.kind == "untyped":
            yield _guess_untyped(parameter, size)
        elif takes_tensor_map(parameter):
            yield EXAMPLE
        else:
            parts = parameter.parts or ()
            is_long = len(parts) > MAX_GUESSED_MEMBERS and all(part.dtype for part in parts)
            values = "ones" if is_long else ",".join(_guess_member(part, size) for part in parts)
            yield f"struct={values}" if values else "struct"


def _argument_line(parameter: KernelParameter, text: str, is_guess: bool = False) -> str:
    comment = " ".join(f"{parameter.name}: {parameter.spelling}".split())
    comment += "; a guess, for the file does not tell it" if is_guess else ""
    return f"  {_toml_string(text) + ',':<28}  # {comment}"


def _is_opaque(parameter: KernelParameter) -> bool:
    """Whether it has members, or types, that memlab cannot tell."""
    if parameter.kind == "untyped":
        return parameter.nbytes not in WORD_BYTES
    return parameter.kind == "structure" and parameter.parts is None


def _guess_untyped(parameter: KernelParameter, size: int) -> str:
    """An argument of which only the size is known: of eight bytes, most often a pointer."""
    if parameter.nbytes == max(WORD_BYTES):
        return f"inout:f32[{DEFAULT_ELEMENTS}]"
    dtype = f"i{8 * parameter.nbytes}"
    return f"{dtype}={_guess_value(dtype, size)}"


def _guess_member(member: StructureMember, size: int) -> str:
    if takes_tensor_map(member):
        return EXAMPLE
    if kind := view_kind(member.spelling):
        return example(kind)
    return _guess_array(member.pointer) if member.pointer else _guess_value(member.dtype, size)


def _guess_array(pointer: KernelParameter) -> str:
    structure = pointer.structure
    if points_to_tensor_maps(pointer):
        return EXAMPLE
    if pointer.target is not None:
        return f"{POINTERS}[{POINTED_ARRAYS}]={_guess_array(pointer.target)}"
    if structure is not None and structure.has_pointers:
        if pointer.parts is None:  # too many pointers lead to it
            return "null"
        members = {declared_name(each): _guess_member(each, 1) for each in pointer.parts}
        return f"{STRUCTURE}[{POINTED_ARRAYS}]={','.join(members.values())}"
    return f"{'in' if pointer.readonly else 'inout'}:{_array_type(pointer)}"


def _guess_value(dtype: str, size: int) -> str:
    return str(size if _is_size(dtype) else 1)


def _array_type(parameter: KernelParameter) -> str:
    """Type and dimensions of an array; structures are rows of their members or bytes."""
    if parameter.dtype in INDEX_DTYPES:
        return f"{parameter.dtype}[{DEFAULT_ELEMENTS}]=arange"
    if parameter.dtype:
        return f"{parameter.dtype}[{DEFAULT_ELEMENTS}]"
    if not parameter.element_bytes:  # a pointer to void, or of PTX
        return f"{'f32' if '.ptr' in parameter.spelling else 'u8'}[{DEFAULT_ELEMENTS}]"
    if parameter.member_dtype:
        members = parameter.element_bytes // dtype_bytes(parameter.member_dtype)
        return f"{parameter.member_dtype}[{DEFAULT_ELEMENTS},{members}]"
    if parameter.structure is not None:
        return f"{STRUCTURE}[{DEFAULT_ELEMENTS}]=zeros"
    return f"u8[{DEFAULT_ELEMENTS},{parameter.element_bytes}]=zeros"


def _constants_line(variables: Sequence[ModuleVariable]) -> Iterator[str]:
    """The line `constants = ...` for `__constant__` arrays, which otherwise hold zeros."""
    names = [
        f"{variable.name}={constant_example(variable) if variable.is_tensor_map else 'random'}"
        for variable in variables
        if variable.space == "const" and (variable.dtype or variable.member_dtype)
    ]
    if names:
        yield f"constants = [{', '.join(map(_toml_string, names))}]"


def _compile_option_lines(kernel: UserKernel) -> Iterator[str]:
    for key, texts in (("defines", kernel.defines), ("include", kernel.include)):
        if texts:
            yield f"{key} = [{', '.join(map(_toml_string, texts))}]"
    if kernel.root:
        yield f"root = {_toml_string(kernel.root)}"
    if kernel.std:
        yield f"std = {_toml_string(kernel.std)}"


def _output_name(parameters: Sequence[KernelParameter]) -> str:
    outputs = [
        parameter.name
        for parameter in parameters
        if parameter.kind == "pointer" and not parameter.readonly
    ]
    name = outputs[0] if outputs else "y"
    return name if name.isidentifier() else "y"


def _toml_extents(extents: Sequence[int | str]) -> str:
    texts = [_toml_value(extent) for extent in extents]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _toml_value(value: int | str) -> str:
    return _toml_string(value) if isinstance(value, str) else str(value)


def _toml_string(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON.

    Raises:
        UsageError: The text comes from bytes that are not UTF-8, which TOML must be.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text!r} is not UTF-8, as TOML must be: rename it")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
