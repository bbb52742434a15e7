"""CuPy's `ReductionKernel`: its text for the arrays and axes of a call, written by CuPy itself.

This is the kernel that CuPy launches without CUB (`CUPY_ACCELERATORS=""`), and in any case where
there are several arrays, or where other axes than the last are reduced. Its parameters are a
`CArray` for each array, a `CIndexer` of the inputs' indices, reduced axes first, one of the
outputs', and the number of outputs that a block computes at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.python import cupy_arguments
from memlab.kernels.python.carray import (
    View,
    carray,
    cindexer,
    contiguous,
    merge_dimensions,
    view_of,
)
from memlab.kernels.python.parameters import with_macros
from memlab.kernels.user.arguments.layout import ArgumentLayout
from memlab.kernels.user.arguments.specifications import ArraySpecification
from memlab.kernels.user.kernel import UserKernel, parse_defines

OWN_OPTIONS = ("axis", "keepdims")
"""The options of a call, which are macros here."""

WITHOUT_OPTIONS = "".join(f"#undef {name}\n" for name in OWN_OPTIONS)
"""What keeps these macros, which are recorded with a run, out of the kernel's text."""

_BLOCK_THREADS = 512
"""CuPy's threads of a block."""
_MOST_BLOCK_THREADS = 1024
_WIDEST_COUNT = 0x7FFFFFFF
"""The most elements of one output that CuPy counts with 32 bits."""


def named(code: Any) -> UserKernel:
    """The user kernel of a `ReductionKernel`.

    Raises:
        UsageError: It has options that memlab lacks.
    """
    return cupy_arguments.named(code, code.options)


def with_own_options(
    kernel: UserKernel, options: Mapping[str, Any]
) -> tuple[UserKernel, Mapping[str, Any]]:
    """Take `axis` and `keepdims`, as a call has them; of a sweep, lists of them."""

    def text(value: Any) -> Any:
        return [text(each) for each in value] if isinstance(value, list) else repr(value)

    own = {name: text(options[name]) for name in OWN_OPTIONS if name in options}
    others = {name: value for name, value in options.items() if name not in own}
    return kernel, with_macros(others, own)


def adapted(kernel: UserKernel) -> UserKernel:
    """The kernel in CUDA C++ for its arguments and axes.

    Raises:
        UsageError: CuPy refuses the arguments or the axes, or the block is no power of two.
    """
    from cupy._core import _reduction

    code = kernel.code
    given = cupy_arguments.given_arguments(kernel)
    inputs = {each.name: given[each.name] for each in code.in_params}
    shape = cupy_arguments.index_shape(code, inputs)
    reduced, kept, output_shape = _axes(kernel, shape)
    dtypes, type_map = cupy_arguments.types(code, given)
    given = cupy_arguments.with_outputs(code, given, dtypes, output_shape)
    raw, order = cupy_arguments.raw_views(code, given), (*reduced, *kept)
    if any(name in inputs for name in raw) and list(order) != sorted(order):
        raise UsageError(
            f"{code.name} has a raw input, and CuPy reduces only the first axes then: give "
            f"axis={tuple(range(len(reduced)))}"
        )
    views, outputs = {}, {}
    for name, array in cupy_arguments.plain_arrays(code, given).items():
        if name in inputs:
            views[name] = view_of(array).broadcast(shape).transpose(order)
        else:
            outputs[name] = contiguous(output_shape, view_of(array).item_bytes)
    if code.reduce_dims:
        views, outputs = merge_dimensions(views), merge_dimensions(outputs)
    indices = next(iter(views.values())).shape
    results = next((view.shape for view in outputs.values()), output_shape)
    size, count = prod(shape), prod(output_shape)
    threads, stride, blocks = _reduction._get_block_specs(
        size, count, _neighbours(views.values(), results), _block_threads(kernel)
    )

    def generate(arguments: tuple[Any, ...]) -> Any:
        import numpy as np
        from cupy._core import _kernel

        index = "int64" if size // count > _WIDEST_COUNT else "int32"
        return _reduction._ReductionKernel_get_cached_function_code(
            code.nin,
            code.nout,
            code._params,
            (*arguments, cupy_arguments.scalar_info(np.int32)),
            _kernel._TypeMap((*type_map._pairs, ("IndexT", index))),
            code.name,
            threads,
            code.reduce_type,
            code.identity,
            code.map_expr,
            code.reduce_expr,
            code.post_map_expr,
            code.preamble,
            tuple(code.options),
        )

    views |= outputs | raw
    layout = [
        carray(value, views[name]) if isinstance(value, ArraySpecification) else value
        for name, value in given.items()
    ]
    return replace(
        kernel,
        code=WITHOUT_OPTIONS
        + cupy_arguments.generated_text(code, views, dtypes, generate, [indices, results]),
        block=(threads,),
        grid=kernel.grid or (blocks,),
        layout=ArgumentLayout(
            (*layout, cindexer(indices), cindexer(results), f"i32={stride}"),
            tuple(given),
            cupy_arguments.array_names(code, views),
        ),
    )


def _axes(
    kernel: UserKernel, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The reduced axes, the others, and the shape of the outputs.

    Raises:
        UsageError: `axis` names no axes, or `keepdims` is neither True nor False.
    """
    from cupy._core import _reduction

    given: dict[str, Any] = {"axis": None, "keepdims": False}
    for name, text in parse_defines(kernel).items():
        if name in OWN_OPTIONS:
            try:
                given[name] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                given[name] = text
    axis, keepdims = given["axis"], given["keepdims"]
    if keepdims not in (False, True):
        raise UsageError(f"keepdims is True or False, got {keepdims!r}: write one of these")
    try:
        reduced, kept = _reduction._get_axis(axis, len(shape))
    except (TypeError, ValueError):
        raise UsageError(
            f"axis={axis!r} names no axes of the shape {list(shape)}: give None, or whole numbers "
            f"from {-len(shape)} to {len(shape) - 1}, each axis once"
        ) from None
    outputs = _reduction._get_out_shape(shape, reduced, kept, bool(keepdims))
    return reduced, kept, tuple(outputs)


def _block_threads(kernel: UserKernel) -> int:
    """The threads of a block, which the text holds.

    Raises:
        UsageError: They are no power of two.
    """
    if not kernel.block:
        return _BLOCK_THREADS
    threads = prod(map(int, kernel.block))
    if threads not in (1 << power for power in range(_MOST_BLOCK_THREADS.bit_length())):
        raise UsageError(
            f"a reduction of CuPy halves its block, so block is a power of two up to "
            f"{_MOST_BLOCK_THREADS}, got {threads}: write 256, or leave it out"
        )
    return threads


def _neighbours(views: Iterable[View], outputs: tuple[int, ...]) -> int:
    """The most neighbouring outputs whose inputs are neighbours too."""
    most = 1
    for view in views:
        count = 1
        for extent, stride in zip(reversed(outputs), reversed(view.strides), strict=False):
            if stride != count * view.item_bytes:
                break
            count *= extent
        most = max(most, count)
    return most
