"""What `memlab init` writes: a `memlab.toml` that runs at once, for its user to correct.

Sizes are guesses, since no compiled kernel tells them. The guesses are safe for what most kernels
do with their whole numbers: the product of all of them is at most an array's elements, and there
are as many threads.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from memlab.errors import UsageError
from memlab.kernels.arguments import DTYPES, LARGEST_FLOATS
from memlab.kernels.catalog import CATALOG
from memlab.kernels.project import SCHEMA_FILE

if TYPE_CHECKING:
    from memlab.kernels.own import OwnKernel
    from memlab.kernels.signature import KernelParameter, ModuleVariable, Signature

ELEMENTS = 2**20
"""Of every array: 4 MiB of floats, which the emulator runs whole in a second."""
BLOCKS = {1: (256,), 2: (16, 16), 3: (16, 16)}
"""Threads of a block, by how many whole numbers the kernel takes."""
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


def document(kernel: OwnKernel, signatures: Sequence[Signature]) -> str:
    """Write a `memlab.toml`.

    Args:
        kernel: The file, and how it is compiled.
        signatures: Its kernels, one or more.

    Raises:
        UsageError: Each takes a structure by value; where some do, these are left out.
    """
    tables, refused, names = [], [], table_names(signatures)
    for name, each in zip(names, signatures, strict=True):
        try:
            tables.append(_table(name, kernel, each))
        except UsageError as error:
            refused.append(error)
            tables.append(f"# {error}\n")
    if len(refused) == len(tables):
        raise refused[0]
    return "\n".join([_HEAD.format(schema=SCHEMA_FILE, name=names[0]), *tables])


def table_names(signatures: Sequence[Signature]) -> list[str]:
    """The names that stand for kernels: their own, as far as such names can hold them."""
    names: list[str] = []
    for each in signatures:
        name = re.sub(r"[^A-Za-z0-9_]+", "-", each.name).strip("-_") or "kernel"
        name = f"my-{name}" if name in CATALOG else name
        same = (f"{name}-{number}" for number in itertools.count(2))  # overloads share a name
        names.append(name if name not in names else next(n for n in same if n not in names))
    return names


def _table(name: str, kernel: OwnKernel, signature: Signature) -> str:
    for each in signature.parameters:
        if each.kind == "structure":
            raise UsageError(
                f"{signature.name} takes {each.name} ({each.spelling}) by value, which memlab "
                "cannot pass: pass its members one by one, or a pointer to it"
            )
    sizes = [each for each in signature.parameters if _is_size(each)]
    size = 2 ** (int(math.log2(ELEMENTS)) // max(len(sizes), 1))
    block = BLOCKS[min(max(len(sizes), 1), 3)]
    grid = [-(-size // each) for each in block]
    return "\n".join(
        (
            f"[kernels.{name}]",
            f"source = {_quoted(kernel.source)}",
            f"entry = {_quoted(kernel.entry or signature.name)}",
            f"grid = {_extents(grid)}  # blocks in x, y, z",
            f"block = {_extents(block)}  # threads of a block",
            *_compiled_with(kernel),
            "# The arguments in the kernel's order. The sizes are a guess: put yours.",
            "# in: is only read, out: only written, inout: read and overwritten.",
            "args = [",
            *_arguments(signature.parameters, size),
            "]",
            *_constants(signature.variables),
            _OPTIONAL.format(output=_an_output(signature.parameters)),
        )
    )


def _is_size(parameter: KernelParameter) -> bool:
    kind = parameter.dtype
    return (
        parameter.kind == "scalar"
        and kind not in LARGEST_FLOATS
        and kind != "bool"
        and int(kind[1:]) >= SMALLEST_SIZE_BITS
    )


def _arguments(parameters: Sequence[KernelParameter], size: int) -> Iterator[str]:
    for each in parameters:
        if each.kind == "pointer":
            text = f"{'in' if each.readonly else 'inout'}:{_elements(each)}"
        else:
            text = f"{each.dtype}={size if _is_size(each) else 1}"
        comment = f"{each.name}: {each.spelling}"
        yield f"  {_quoted(text) + ',':<28}  # {' '.join(comment.split())}"


def _elements(parameter: KernelParameter) -> str:
    """Type and dimensions of an array; of structures, rows of their members or bytes."""
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
