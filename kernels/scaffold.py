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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.kernels.arguments import DTYPES, LARGEST_FLOATS, obstacle, structure_hint
from memlab.kernels.catalog import CATALOG
from memlab.kernels.project import SCHEMA_FILE
from memlab.kernels.signature import LaunchBounds

if TYPE_CHECKING:
    from memlab.kernels.own import OwnKernel
    from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature

ELEMENTS = 2**20
"""Of every array: 4 MiB of floats, which the emulator runs whole in a second."""
BLOCKS = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
"""Threads of a block, by how many axes of it the kernel asks for its place on."""
INDICES = ("i32", "i64", "u32", "u64")
"""Types in which kernels keep indices: their arrays count, so that each lies in every array."""
SMALLEST_SIZE_BITS = 32
"""Whole numbers of fewer bits are flags and the like, not sizes."""

_HEAD = """\
#:schema ./{schema}
# Kernels of this folder for memlab: `memlab run {name}` here runs one, and analyze, check, trace,
# occupancy and roofline take the same name. Options on the command line go before what stands
# here. Paths are relative to this file.
"""
_OPTIONAL = """\
# shared = 0                    # dynamic shared memory of a block, bytes
# defines = ["TILE=32"]         # as after -D
# include = ["include"]         # as after -I
# std = "c++17"
# max-registers = 64
# tolerance = 1e-4
# What an output must hold; `--reference FILE.py:FUNCTION` takes a function in its place.
# expect = ["{output}=@{output}.npy"]
"""


def document(kernel: OwnKernel, signatures: Sequence[Signature], source: str = "") -> str:
    """Write a `memlab.toml`.

    Args:
        kernel: The file, and how it is compiled.
        signatures: Its kernels, one or more.
        source: Its text, which tells how many axes a kernel works on.

    Raises:
        UsageError: Each takes what memlab cannot pass; where some do, these are left out.
    """
    tables, refused, written = [], [], []
    shared = {
        name for name, times in Counter(each.name for each in signatures).items() if times > 1
    }
    for name, each in zip(table_names(signatures), signatures, strict=True):
        entry = each.linkage_name if each.name in shared else each.name  # of overloads
        try:
            tables.append(_table(name, kernel, each, kernel.entry or entry, _body(source, each)))
            written.append(name)
        except UsageError as error:
            refused.append(error)
            tables.append(f"# {error}\n")
    if not written:
        raise refused[0]
    return "\n".join([_HEAD.format(schema=SCHEMA_FILE, name=written[0]), *tables])


def table_names(signatures: Sequence[Signature]) -> list[str]:
    """The names that stand for kernels: their own, as far as such names can hold them."""
    names: list[str] = []
    for each in signatures:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", each.name).strip("-_") or "kernel"
        name = f"my-{name}" if name in CATALOG else name
        same = (f"{name}-{number}" for number in itertools.count(2))  # overloads share a name
        names.append(name if name not in names else next(n for n in same if n not in names))
    return names


def _table(name: str, kernel: OwnKernel, signature: Signature, entry: str, body: str) -> str:
    for each in signature.parameters:
        reason = obstacle(each)
        if each.kind == "structure" and each.parts is None and not reason:
            reason = f"cannot be filled member by member: {structure_hint(each)}"
        if reason:
            raise UsageError(f"{signature.name}: {each.name} ({each.spelling}) {reason}")
    block = _block(_axes("threadIdx", body), signature.bounds)
    guess = "a guess" if signature.bounds == LaunchBounds() else "what the kernel is declared for"
    axes = max(len(block), _axes("blockIdx", body))
    scalars = [each.dtype for each in signature.parameters if each.kind == "scalar"]
    members = [one.dtype for each in signature.parameters for one in each.parts or ()]
    sizes = [dtype for dtype in (*scalars, *members) if _is_size(dtype)]
    size = 2 ** (int(math.log2(ELEMENTS)) // max(len(sizes), axes))
    grid = [max(size // threads, 1) for threads in (*block, 1, 1)[:axes]]  # none beyond the arrays
    return "\n".join(
        (
            f"[kernels.{name}]",
            f"source = {_quoted(kernel.source)}",
            f"entry = {_quoted(entry)}",
            f"grid = {_extents(grid)}  # blocks in x, y, z: a guess",
            f"block = {_extents(block)}  # threads of a block: {guess}",
            *_compiled_with(kernel),
            "# The arguments in the kernel's order; their sizes are a guess too: put yours.",
            "# in: is only read, out: only written, inout: read and overwritten.",
            "args = [",
            *_arguments(signature.parameters, size),
            "]",
            *_constants(signature.variables),
            _OPTIONAL.format(output=_an_output(signature.parameters)),
        )
    )


def _body(source: str, signature: Signature) -> str:
    """The part of a source that a kernel seems to stand in: from its declaration to the next."""
    name = signature.name.partition("<")[0].rpartition("::")[2]
    parts = source.split("__global__")
    return next(
        (each for each in parts if re.match(rf"[^;{{}}]*\b{re.escape(name)}\s*\(", each)), source
    )


def _axes(index: str, body: str) -> int:
    """How many axes of `threadIdx` or `blockIdx` a kernel looks at."""
    return next((axes for axes, axis in ((3, "z"), (2, "y")) if f"{index}.{axis}" in body), 1)


def _block(axes: int, bounds: LaunchBounds) -> tuple[int, ...]:
    """The block that a kernel is declared for, else the usual one for so many axes."""
    if bounds.block:
        needed = max(
            axes, *(place for place, extent in enumerate(bounds.block, 1) if extent > 1), 1
        )
        return bounds.block[:needed]
    if axes == 1 and bounds.most_threads:
        return (bounds.most_threads,)  # who bounds a block launches it so
    block = list(BLOCKS[axes])
    while math.prod(block) > (bounds.most_threads or math.inf):
        longest = max(range(axes), key=lambda axis: (block[axis], axis))
        block[longest] //= 2
    return tuple(block)


def _is_size(dtype: str) -> bool:
    """Whether a number of this type may say how many elements there are."""
    return (
        dtype != ""
        and dtype not in LARGEST_FLOATS
        and dtype != "bool"
        and int(dtype[1:]) >= SMALLEST_SIZE_BITS
    )


def _arguments(parameters: Sequence[KernelParameter], size: int) -> Iterator[str]:
    for each in parameters:
        if each.kind == "pointer":
            text = f"{'in' if each.readonly else 'inout'}:{_elements(each)}"
        elif each.kind == "scalar":
            text = f"{each.dtype}={_value(each.dtype, size)}"
        else:
            values = ",".join(_value(one.dtype, size) for one in each.parts or ())
            text = f"struct={values}" if values else "struct"
        comment = f"{each.name}: {each.spelling}"
        yield f"  {_quoted(text) + ',':<28}  # {' '.join(comment.split())}"


def _value(dtype: str, size: int) -> str:
    return str(size if _is_size(dtype) else 1)


def _elements(parameter: KernelParameter) -> str:
    """Type and dimensions of an array; of structures, rows of their members or bytes."""
    if parameter.dtype in INDICES:
        return f"{parameter.dtype}[{ELEMENTS}]=arange"
    if parameter.dtype:
        return f"{parameter.dtype}[{ELEMENTS}]"
    if not parameter.element_bytes:
        return f"u8[{ELEMENTS}]"
    if parameter.member_dtype:
        members = parameter.element_bytes // _nbytes(parameter.member_dtype)
        return f"{parameter.member_dtype}[{ELEMENTS},{members}]"
    return f"u8[{ELEMENTS},{parameter.element_bytes}]=zeros"


def _nbytes(dtype: str) -> int:
    bits = re.sub(r"\D", "", DTYPES[dtype])
    return int(bits or 8) // 8


def _constants(variables: Sequence[ModuleVariable]) -> Iterator[str]:
    """The `__constant__` arrays, which hold zeros unless they are filled."""
    names = [
        f"{each.name}=random"
        for each in variables
        if each.space == "const" and (each.dtype or each.member_dtype)
    ]
    if names:
        yield f"constants = [{', '.join(map(_quoted, names))}]"


def _compiled_with(kernel: OwnKernel) -> Iterator[str]:
    for key, texts in (("defines", kernel.defines), ("include", kernel.include)):
        if texts:
            yield f"{key} = [{', '.join(map(_quoted, texts))}]"
    if kernel.std:
        yield f"std = {_quoted(kernel.std)}"


def _an_output(parameters: Sequence[KernelParameter]) -> str:
    outputs = [each.name for each in parameters if each.kind == "pointer" and not each.readonly]
    name = outputs[0] if outputs else "y"
    return name if name.isidentifier() else "y"


def _extents(extents: Sequence[int]) -> str:
    return str(extents[0]) if len(extents) == 1 else f"[{', '.join(map(str, extents))}]"


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON.

    Raises:
        UsageError: It came from bytes that are no UTF-8, which TOML must be.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text!r} is not UTF-8, as TOML must be: rename it")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
