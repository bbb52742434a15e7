"""CuPy's `ElementwiseKernel`: its text for the arrays of a call, written by CuPy's own generator.

CuPy passes an array as a structure `CArray` (`cupy/carray.cuh`): the pointer, the number of
elements, and the extents and strides in bytes; then the number and extents of all indices as a
`CIndexer`. Arrays of one shape are passed flat, as CuPy does for contiguous arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.launch import dtype_bytes
from memlab.kernels.python.cupy_options import header_folder, launch_options
from memlab.kernels.python.parameters import one_line, parsed_arguments
from memlab.kernels.user.argument_layout import ArgumentLayout
from memlab.kernels.user.arguments import (
    NUMPY_DTYPES,
    ArraySpecification,
    Specification,
    StructureSpecification,
)
from memlab.kernels.user.kernel import UserKernel, apply_launch_options, is_object

BLOCK_THREADS = 128
"""CuPy's default for `block_size` of a call."""

_SHORT_DTYPES = {name: short for short, name in NUMPY_DTYPES.items()}
_NDARRAY, _INDEXER, _SCALAR = 1, 2, 3  # of `_ArgKind` in cupy/_core/_kernel.pxd
_HEADERS = ("complex.cuh", "carray.cuh", "atomics.cuh", "math_constants.h")
_MOST_INDEX_BYTES = 1 << 31  # up to which indices have 32 bits


def named(code: Any) -> UserKernel:
    """The user kernel of an `ElementwiseKernel`.

    Raises:
        UsageError: It has options that memlab lacks.
    """
    kernel = UserKernel(f"{code.name}.cu", code.name, code=code)
    options = launch_options(code.kwargs.get("options", ()))
    options["include"] = [*options["include"], header_folder()]
    return apply_launch_options(kernel, options)


def adapted(kernel: UserKernel) -> UserKernel:
    """The kernel in CUDA C++ for its arguments; one that is text already stays as it is.

    Raises:
        UsageError: CuPy refuses the arguments' types, or their shapes differ.
    """
    if not is_object(kernel):
        return kernel
    code = kernel.code
    inputs, outputs = [p.name for p in code.in_params], [p.name for p in code.out_params]
    if len(kernel.args) == len(inputs):  # CuPy makes the outputs
        given = parsed_arguments(kernel, inputs)
        size, shape = _size(code, given)
        types, type_map = _types(code, given)
        for parameter in code.out_params:
            dtype = _SHORT_DTYPES[types[parameter.name].name]
            text = f"out:{dtype}[{','.join(map(str, shape))}]"
            given[parameter.name] = ArraySpecification(dtype, shape, "out", None, text)
    else:
        given = parsed_arguments(kernel, [*inputs, *outputs])
        size, _ = _size(code, given)
        types, type_map = _types(code, given)
    shapes = {
        parameter.name: value.shape if parameter.raw else (size,)
        for parameter in code.params[:-1]
        if isinstance(value := given[parameter.name], ArraySpecification)
    }
    layout = [
        _structure(value, shapes[name]) if isinstance(value, ArraySpecification) else value
        for name, value in given.items()
    ]
    raw = {parameter.name for parameter in code.params if parameter.raw}
    names = {f"{name if name in raw else f'_raw_{name}'}.data_": name for name in shapes}
    block = kernel.block or (min(BLOCK_THREADS, size),)
    threads = prod(map(int, block))
    return replace(
        kernel,
        code=_text(code, given, types, type_map, shapes),
        block=block,
        grid=kernel.grid or (-(-size // threads),),
        layout=ArgumentLayout((*layout, _indexer(size)), tuple(given), names),
    )


def _size(code: Any, given: dict[str, Specification]) -> tuple[int, tuple[int, ...]]:
    """The number of elements that the kernel goes through, and their shape.

    Raises:
        UsageError: The arrays have several shapes, or there is none that is not raw.
    """
    shapes = {
        name: value.shape
        for parameter in code.params
        if (name := parameter.name) in given and not parameter.raw
        if isinstance(value := given[name], ArraySpecification)
    }
    if not shapes:
        raise UsageError(
            f"{code.name} has no array that is not raw, so its size is not known: launch it as a "
            "RawKernel"
        )
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise UsageError(
            f"the arrays of {code.name} have several shapes ({listed}), and memlab passes one: "
            "broadcast them with numpy.broadcast_arrays"
        )
    shape = next(iter(shapes.values()))
    return prod(shape), shape


def _types(code: Any, given: dict[str, Specification]) -> tuple[dict[str, Any], Any]:
    """The NumPy types of the parameters by name, and CuPy's map of its one-letter types.

    Raises:
        UsageError: They do not fit together.
    """
    from cupy._core import _kernel

    def types(parameters: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_numpy_type(given[each.name]) for each in parameters if each.name in given)

    try:
        inputs, outputs, type_map = _kernel._decide_params_type(
            code.in_params, code.out_params, types(code.in_params), types(code.out_params)
        )
    except Exception as error:
        raise UsageError(
            f"CuPy refuses the types of {code.name} ({one_line(error)}): correct args"
        ) from None
    import numpy as np

    names = [parameter.name for parameter in (*code.in_params, *code.out_params)]
    return dict(zip(names, map(np.dtype, (*inputs, *outputs)), strict=True)), type_map


def _numpy_type(value: Specification) -> Any:
    """The type of an array's elements, as NumPy's class; None for a number."""
    if not isinstance(value, ArraySpecification):
        return None
    import numpy as np

    return np.dtype(NUMPY_DTYPES[value.dtype]).type


def _text(
    code: Any,
    given: dict[str, Specification],
    types: dict[str, Any],
    type_map: Any,
    shapes: dict[str, tuple[int, ...]],
) -> str:
    """The text that CuPy compiles.

    Raises:
        UsageError: CuPy has changed what writes it.
    """
    import cupy
    from cupy._core import _carray, _kernel

    try:
        described = []
        for name in given:
            kind, shape = types[name], shapes.get(name, ())
            narrow = prod(shape) * kind.itemsize <= _MOST_INDEX_BYTES
            described.append(
                _kernel._ArgInfo(_NDARRAY, cupy.ndarray, kind, len(shape), True, narrow)
                if shape
                else _kernel._ArgInfo(_SCALAR, object, kind, 0, True, True)
            )
        indexer = _kernel._ArgInfo(_INDEXER, _carray.Indexer, None, 1, True, True)
        extra = {key: value for key, value in code.kwargs.items() if key != "options"}
        text = _kernel._get_elementwise_kernel_code(
            (*described, indexer),
            type_map,
            code.params,
            code.operation,
            code.name,
            code.preamble,
            **extra,
        )
    except (AssertionError, AttributeError, TypeError) as error:
        raise UsageError(
            f"CuPy {cupy.__version__} writes {code.name} in another way than memlab knows "
            f"({one_line(error)}): give memlab.source(TEXT)"
        ) from None
    return "".join(f"#include <cupy/{header}>\n" for header in _HEADERS) + str(text)


def _structure(value: ArraySpecification, shape: tuple[int, ...]) -> StructureSpecification:
    """An array as a `CArray`."""
    stride, strides = dtype_bytes(value.dtype), []
    for extent in reversed(shape):
        strides.append(stride)
        stride *= extent
    numbers = (prod(shape), *shape, *reversed(strides))
    return StructureSpecification((value, *map(str, numbers)), "", f"CArray({value.text})")


def _indexer(size: int) -> StructureSpecification:
    """A `CIndexer` of one dimension."""
    return StructureSpecification((str(size), str(size), "0"), "", f"CIndexer({size})")
