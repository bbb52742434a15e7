"""CuPy's `ElementwiseKernel`: its text for the arrays of a call, written by CuPy's own generator.

Its parameters are a `CArray` for each array, and a `CIndexer` of all indices.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from memlab.kernels.python import cupy_arguments
from memlab.kernels.python.carray import carray, cindexer, merge_dimensions, view_of
from memlab.kernels.user.arguments.layout import ArgumentLayout
from memlab.kernels.user.arguments.specifications import ArraySpecification
from memlab.kernels.user.kernel import UserKernel

BLOCK_THREADS = 128
"""CuPy's default for `block_size` of a call."""


def named(code: Any) -> UserKernel:
    """The user kernel of an `ElementwiseKernel`.

    Raises:
        UsageError: It has options that memlab lacks.
    """
    return cupy_arguments.named(code, code.kwargs.get("options", ()))


def adapted(kernel: UserKernel) -> UserKernel:
    """The kernel in CUDA C++ for its arguments.

    Raises:
        UsageError: CuPy refuses the arguments' types, or their shapes do not fit together.
    """
    code = kernel.code
    given = cupy_arguments.given_arguments(kernel)
    shape = cupy_arguments.index_shape(code, given)
    dtypes, type_map = cupy_arguments.types(code, given)
    given = cupy_arguments.with_outputs(code, given, dtypes, shape)
    views = {
        name: view_of(array).broadcast(shape)
        for name, array in cupy_arguments.plain_arrays(code, given).items()
    }
    if code.reduce_dims:
        views = merge_dimensions(views)
    indices = next(iter(views.values())).shape
    views |= cupy_arguments.raw_views(code, given)
    settings = {key: value for key, value in code.kwargs.items() if key != "options"}

    def generate(arguments: tuple[Any, ...]) -> Any:
        from cupy._core import _kernel

        return _kernel._get_elementwise_kernel_code(
            arguments,
            type_map,
            code.params,
            code.operation,
            code.name,
            code.preamble,
            **settings,
        )

    layout = [
        carray(value, views[name]) if isinstance(value, ArraySpecification) else value
        for name, value in given.items()
    ]
    size = prod(shape)
    block = kernel.block or (min(BLOCK_THREADS, size),)
    threads = prod(map(int, block))
    return replace(
        kernel,
        code=cupy_arguments.generated_text(code, views, dtypes, generate, [indices]),
        block=block,
        grid=kernel.grid or (-(-size // threads),),
        layout=ArgumentLayout(
            (*layout, cindexer(indices)),
            tuple(given),
            cupy_arguments.array_names(code, views),
        ),
    )
