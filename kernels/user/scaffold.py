"""What `memlab init` writes: a `memlab.toml` that runs at once, for its user to correct.

Sizes are guesses, since no compiled kernel tells them. The guesses are safe for what most kernels
do with their whole numbers: the product of all of them, and of as many as the grid has axes, is at
most an array's elements.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.signature import LaunchBounds
from memlab.kernels.user.arguments import (
    MAX_FLOATS,
    NUMPY_DTYPES,
    structure_hint,
    unsupported_reason,
)
from memlab.kernels.user.project import SCHEMA_FILE

if TYPE_CHECKING:
    from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature
    from memlab.kernels.user.kernel import UserKernel

DEFAULT_ELEMENTS = 2**20
"""Of every array: 4 MiB of floats, which the emulator runs whole in a second."""
DEFAULT_BLOCKS = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
"""Threads of a block, by how many axes of it the kernel asks for its place on."""
INDEX_DTYPES = ("i32", "i64", "u32", "u64")
"""Types in which kernels keep indices: their arrays count, so that each lies in every array."""
MIN_SIZE_BITS = 32
"""Whole numbers of fewer bits are flags and the like, not sizes."""

SHARED_BYTES_PER_THREAD = 32
"""Of an array sized at launch: four doubles or eight floats. Of the largest block that is 32 KiB,
and every GPU has 48."""

_EXTERN_SHARED = re.compile(r"\bextern\b[^;{}()]*(?:\([^;{}()]*\)[^;{}()]*)*\b__shared__\b")
_HEADER = """\
#:schema ./{schema}
# Kernels of this folder for memlab: `memlab run {name}` here runs one, and analyze, check, trace,
# occupancy and roofline take the same name. Options on the command line go before what stands
# here. Paths are relative to this file.
"""
_NO_SHARED = "# shared = 0                    # dynamic shared memory of a block, bytes"
_OPTIONAL_KEYS = """\
# defines = ["TILE=32"]         # as after -D
# include = ["include"]         # as after -I
# std = "c++17"
# max-registers = 64
# tolerance = 1e-4
# What an output must hold; `--reference FILE.py:FUNCTION` takes a function in its place.
# expect = ["{output}=@{output}.npy"]
"""


def project_file_text(kernel: UserKernel, signatures: Sequence[Signature], source: str = "") -> str:
    """Write a `memlab.toml`.

    Args:
        kernel: The file, and how it is compiled.
        signatures: Its kernels, one or more.
        source: Its text, which tells how many axes a kernel works on.

    Raises:
        UsageError: Each takes what memlab cannot pass; where some do, these are left out.
    """
    written = kernel_tables(kernel, signatures, source)
    first = next(name for name, _ in written if name)
    head = _HEADER.format(schema=SCHEMA_FILE, name=first)
    return "\n".join([head, *(text for _, text in written)])


def kernel_tables(
    kernel: UserKernel,
    signatures: Sequence[Signature],
    source: str = "",
    present: Mapping[str, UserKernel] | None = None,
    folder: Path = Path(),
) -> list[tuple[str, str]]:
    """Write the tables of a file's kernels.

    Args:
        kernel: As for `document`.
        signatures: As for `document`.
        source: As for `document`.
        present: The kernels that have tables already, by name: those of this very file are left
            out, and the names of others are not taken.
        folder: Where the paths of all their sources begin.

    Returns:
        Each after its name; in place of one that memlab cannot pass, a comment that says why,
        after an empty name. None at all where the rest has tables already.

    Raises:
        UsageError: Each takes what memlab cannot pass.
    """
    present = present or {}
    file = _resolved(folder / kernel.source)
    there = {each.entry for each in present.values() if _resolved(folder / each.source) == file}
    times = Counter(each.name for each in signatures)
    written, refused = [], []
    for name, each in zip(table_names(signatures, present), signatures, strict=True):
        own = each.linkage_name if times[each.name] > 1 else each.name  # of overloads
        entry = kernel.entry or own
        if there & {entry, own, each.linkage_name} or ("" in there and len(signatures) == 1):
            continue
        try:
            written.append((name, _kernel_table(name, kernel, each, entry, source)))
        except UsageError as error:
            refused.append(error)
            written.append(("", f"# {error}\n"))
    if any(name for name, _ in written):
        return written
    if len(refused) == len(signatures):
        raise refused[0]
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
    """The names that stand for kernels: their own, as far as such names can hold them.

    Args:
        signatures: The kernels.
        taken: Names that stand for others.
    """
    names: list[str] = []
    for each in signatures:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", each.name).strip("-_") or "kernel"
        name = f"my-{name}" if name in CATALOG else name
        same = (f"{name}-{number}" for number in itertools.count(2))  # overloads share a name
        free = (n for n in itertools.chain([name], same) if n not in names and n not in taken)
        names.append(next(free))
    return names


def _kernel_table(
    name: str, kernel: UserKernel, signature: Signature, entry: str, source: str
) -> str:
    body = _kernel_source(source, signature)
    for each in signature.parameters:
        reason = unsupported_reason(each)
        if each.kind == "structure" and each.parts is None and not reason:
            reason = f"cannot be filled member by member: {structure_hint(each)}"
        if reason:
            raise UsageError(f"{signature.name}: {each.name} ({each.spelling}) {reason}")
    block = _default_block(_count_axes("threadIdx", body), signature.bounds)
    guess = "a guess" if signature.bounds == LaunchBounds() else "what the kernel is declared for"
    axes = max(len(block), _count_axes("blockIdx", body))
    scalars = [each.dtype for each in signature.parameters if each.kind == "scalar"]
    members = [one.dtype for each in signature.parameters for one in each.parts or ()]
    sizes = [dtype for dtype in (*scalars, *members) if _is_size(dtype)]
    size = 2 ** (int(math.log2(DEFAULT_ELEMENTS)) // max(len(sizes), axes))
    grid = [max(size // threads, 1) for threads in (*block, 1, 1)[:axes]]  # none beyond the arrays
    shared = list(_shared_memory_line(math.prod(block), body, source))
    return "\n".join(
        (
            f"[kernels.{name}]",
            f"source = {_toml_string(kernel.source)}",
            f"entry = {_toml_string(entry)}",
            f"grid = {_toml_extents(grid)}  # blocks in x, y, z: a guess",
            f"block = {_toml_extents(block)}  # threads of a block: {guess}",
            *shared,
            *_compile_option_lines(kernel),
            "# The arguments in the kernel's order; their sizes are a guess too: put yours.",
            "# in: is only read, out: only written, inout: read and overwritten.",
            "args = [",
            *_argument_lines(signature.parameters, size),
            "]",
            *_constants_line(signature.variables),
            *([] if shared else [_NO_SHARED]),
            _OPTIONAL_KEYS.format(output=_output_name(signature.parameters)),
        )
    )


def _kernel_source(source: str, signature: Signature) -> str:
    """The part of a source that a kernel seems to stand in: from its declaration to the next."""
    name = signature.name.partition("<")[0].rpartition("::")[2]
    parts = source.split("__global__")
    return next(
        (each for each in parts if re.match(rf"[^;{{}}]*\b{re.escape(name)}\s*\(", each)), source
    )


def _shared_memory_line(threads: int, body: str, source: str) -> Iterator[str]:
    """The shared memory that the launch sizes, where the kernel may have such an array.

    It stands in the kernel, or before the first one, for all of them.
    """
    if any(map(_EXTERN_SHARED.search, (body, source.partition("__global__")[0]))):
        size = threads * SHARED_BYTES_PER_THREAD
        yield f"shared = {size}  # dynamic shared memory of a block, bytes: a guess"


def _count_axes(index: str, body: str) -> int:
    """How many axes of `threadIdx` or `blockIdx` a kernel looks at."""
    return next((axes for axes, axis in ((3, "z"), (2, "y")) if f"{index}.{axis}" in body), 1)


def _default_block(axes: int, bounds: LaunchBounds) -> tuple[int, ...]:
    """The block that a kernel is declared for, else the usual one for so many axes."""
    if bounds.block:
        needed = max(
            axes, *(place for place, extent in enumerate(bounds.block, 1) if extent > 1), 1
        )
        return bounds.block[:needed]
    if axes == 1 and bounds.max_threads:
        return (bounds.max_threads,)  # who bounds a block launches it so
    block = list(DEFAULT_BLOCKS[axes])
    while math.prod(block) > (bounds.max_threads or math.inf):
        longest = max(range(axes), key=lambda axis: (block[axis], axis))
        block[longest] //= 2
    return tuple(block)


def _is_size(dtype: str) -> bool:
    """Whether a number of this type may say how many elements there are."""
    return (
        dtype != ""
        and dtype not in MAX_FLOATS
        and dtype != "bool"
        and int(dtype[1:]) >= MIN_SIZE_BITS
    )


def _argument_lines(parameters: Sequence[KernelParameter], size: int) -> Iterator[str]:
    for each in parameters:
        if each.kind == "pointer":
            text = f"{'in' if each.readonly else 'inout'}:{_array_type(each)}"
        elif each.kind == "scalar":
            text = f"{each.dtype}={_guess_value(each.dtype, size)}"
        else:
            values = ",".join(_guess_value(one.dtype, size) for one in each.parts or ())
            text = f"struct={values}" if values else "struct"
        comment = f"{each.name}: {each.spelling}"
        yield f"  {_toml_string(text) + ',':<28}  # {' '.join(comment.split())}"


def _guess_value(dtype: str, size: int) -> str:
    return str(size if _is_size(dtype) else 1)


def _array_type(parameter: KernelParameter) -> str:
    """Type and dimensions of an array; of structures, rows of their members or bytes."""
    if parameter.dtype in INDEX_DTYPES:
        return f"{parameter.dtype}[{DEFAULT_ELEMENTS}]=arange"
    if parameter.dtype:
        return f"{parameter.dtype}[{DEFAULT_ELEMENTS}]"
    if not parameter.element_bytes:
        return f"u8[{DEFAULT_ELEMENTS}]"
    if parameter.member_dtype:
        members = parameter.element_bytes // _dtype_bytes(parameter.member_dtype)
        return f"{parameter.member_dtype}[{DEFAULT_ELEMENTS},{members}]"
    return f"u8[{DEFAULT_ELEMENTS},{parameter.element_bytes}]=zeros"


def _dtype_bytes(dtype: str) -> int:
    bits = re.sub(r"\D", "", NUMPY_DTYPES[dtype])
    return int(bits or 8) // 8


def _constants_line(variables: Sequence[ModuleVariable]) -> Iterator[str]:
    """The `__constant__` arrays, which hold zeros unless they are filled."""
    names = [
        f"{each.name}=random"
        for each in variables
        if each.space == "const" and (each.dtype or each.member_dtype)
    ]
    if names:
        yield f"constants = [{', '.join(map(_toml_string, names))}]"


def _compile_option_lines(kernel: UserKernel) -> Iterator[str]:
    for key, texts in (("defines", kernel.defines), ("include", kernel.include)):
        if texts:
            yield f"{key} = [{', '.join(map(_toml_string, texts))}]"
    if kernel.std:
        yield f"std = {_toml_string(kernel.std)}"


def _output_name(parameters: Sequence[KernelParameter]) -> str:
    outputs = [each.name for each in parameters if each.kind == "pointer" and not each.readonly]
    name = outputs[0] if outputs else "y"
    return name if name.isidentifier() else "y"


def _toml_extents(extents: Sequence[int]) -> str:
    return str(extents[0]) if len(extents) == 1 else f"[{', '.join(map(str, extents))}]"


def _toml_string(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON.

    Raises:
        UsageError: It came from bytes that are no UTF-8, which TOML must be.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text!r} is not UTF-8, as TOML must be: rename it")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
