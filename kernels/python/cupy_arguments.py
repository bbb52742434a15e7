"""The arguments of the kernels that CuPy generates: bound, typed, and shown to its generators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from memlab.errors import UsageError
from memlab.kernels.python.carray import HEADERS, View, view_of
from memlab.kernels.python.cupy_options import header_folder, launch_options
from memlab.kernels.python.parameters import one_line, parsed_arguments
from memlab.kernels.user.arguments.specifications import (
    NUMPY_DTYPES,
    SHORT_DTYPES,
    AliasSpecification,
    ArraySpecification,
    ScalarSpecification,
    Specification,
)
from memlab.kernels.user.kernel import UserKernel, apply_launch_options

_NDARRAY, _INDEXER, _SCALAR = 1, 2, 3  # of `_ArgKind` in cupy/_core/_kernel.pxd


def named(code: Any, options: Sequence[str]) -> UserKernel:
    """The user kernel of a kernel that CuPy generates.

    Args:
        code: An `ElementwiseKernel` or `ReductionKernel`.
        options: Its options of NVRTC.

    Raises:
        UsageError: It has options that memlab lacks.
    """
    kernel = UserKernel(f"{code.name}.cu", code.name, code=code)
    taken = launch_options(options)
    taken["include"] = [*taken["include"], header_folder()]
    return apply_launch_options(kernel, taken)


def given_arguments(kernel: UserKernel) -> dict[str, Specification]:
    """The arguments by the names of their parameters; without outputs, where CuPy makes these.

    Raises:
        UsageError: There are too many or too few, or CuPy takes no such argument.
    """
    code = kernel.code
    inputs, outputs = [p.name for p in code.in_params], [p.name for p in code.out_params]
    all_given = len(kernel.args) != len(inputs)
    given = parsed_arguments(kernel, [*inputs, *outputs] if all_given else inputs)
    for name, value in given.items():
        if isinstance(value, ArraySpecification):
            continue
        if isinstance(value, AliasSpecification):
            raise UsageError(
                f"argument {name}: {code.name} takes no {value.text}: pass each array once, and "
                "for an output that is read too inout(array)"
            )
        if not isinstance(value, ScalarSpecification) or name in outputs:
            wanted = "an array" if name in outputs else "an array or a number"
            raise UsageError(
                f"argument {name}: {code.name} takes {wanted}, got {value.text!r}: pass one"
            )
    return given


def index_shape(code: Any, given: dict[str, Specification]) -> tuple[int, ...]:
    """The shape that a kernel goes through: that of its arrays, repeated as NumPy does.

    Args:
        code: The kernel.
        given: The arguments that count.

    Raises:
        UsageError: They do not fit together, or there is no array that is not raw.
    """
    import numpy as np

    shapes = {name: array.shape for name, array in plain_arrays(code, given).items()}
    if not shapes:
        raise UsageError(
            f"{code.name} has no array that is not raw, so its size is not known: launch it as a "
            "RawKernel"
        )
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        raise UsageError(
            f"the arrays of {code.name} have shapes that do not fit together ({listed}): correct "
            "args"
        ) from None


def plain_arrays(code: Any, given: dict[str, Specification]) -> dict[str, ArraySpecification]:
    """The arguments that are arrays and not raw, by name."""
    raw = {each.name for each in (*code.in_params, *code.out_params) if each.raw}
    return {
        name: value
        for name, value in given.items()
        if isinstance(value, ArraySpecification) and name not in raw
    }


def raw_views(code: Any, given: dict[str, Specification]) -> dict[str, View]:
    """The views of the raw arrays, by name: as they were given."""
    plain = plain_arrays(code, given)
    return {
        name: view_of(value)
        for name, value in given.items()
        if isinstance(value, ArraySpecification) and name not in plain
    }


def array_names(code: Any, names: Iterable[str]) -> dict[str, str]:
    """The names of arrays by those that they have in the generated text, `_raw_x.data_`."""
    raw = {each.name for each in (*code.in_params, *code.out_params) if each.raw}
    return {f"{name if name in raw else f'_raw_{name}'}.data_": name for name in names}


def types(code: Any, given: dict[str, Specification]) -> tuple[dict[str, Any], Any]:
    """The NumPy types of the parameters by name, and CuPy's map of its one-letter types.

    Raises:
        UsageError: They do not fit together.
    """
    import numpy as np
    from cupy._core import _kernel

    def kinds(parameters: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(_numpy_type(given[each.name]) for each in parameters if each.name in given)

    try:
        inputs, outputs, type_map = _kernel._decide_params_type(
            code.in_params, code.out_params, kinds(code.in_params), kinds(code.out_params)
        )
    except Exception as error:
        reason = one_line(error)
        if isinstance(error, KeyError):  # a letter that no array tells
            reason = f"no array tells the type {reason}"
        raise UsageError(
            f"CuPy refuses the types of {code.name} ({reason}): correct args"
        ) from None
    names = [parameter.name for parameter in (*code.in_params, *code.out_params)]
    return dict(zip(names, map(np.dtype, (*inputs, *outputs)), strict=True)), type_map


def with_outputs(
    code: Any, given: dict[str, Specification], dtypes: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Specification]:
    """The arguments with the outputs that CuPy makes; one of no dimensions has one element.

    Raises:
        UsageError: A given output has another shape, or a raw one is not given.
    """
    extents = shape or (1,)
    every = dict(given)
    for parameter in code.out_params:
        name, value = parameter.name, given.get(parameter.name)
        if value is None and parameter.raw:
            raise UsageError(
                f"the output {name} of {code.name} is raw, so its size is not known: pass "
                "memlab.out(shape, dtype)"
            )
        if value is None:
            dtype = SHORT_DTYPES[dtypes[name].name]
            text = f"out:{dtype}[{','.join(map(str, extents))}]"
            every[name] = ArraySpecification(dtype, extents, "out", None, text)
        elif isinstance(value, ArraySpecification) and not parameter.raw and value.shape != extents:
            raise UsageError(
                f"the output {name} of {code.name} has the shape {list(value.shape)}, and the "
                f"inputs give {list(extents)}: pass memlab.out({extents}, dtype)"
            )
    return every


def generated_text(
    code: Any,
    views: dict[str, View],
    dtypes: dict[str, Any],
    generate: Callable[[tuple[Any, ...]], str],
    indexers: Sequence[tuple[int, ...]],
) -> str:
    """The text that CuPy compiles.

    Args:
        code: The kernel.
        views: The views of its arrays, by name.
        dtypes: The NumPy types of its parameters, by name.
        generate: CuPy's generator, called with its descriptions of the arguments.
        indexers: The shapes of the indexers, which follow the arguments.

    Raises:
        UsageError: CuPy has changed what writes it.
    """
    import cupy
    from cupy._core import _carray, _kernel

    def described(name: str) -> Any:
        view, dtype = views.get(name), dtypes[name].type
        if view is None:
            return _kernel._ArgInfo(_SCALAR, object, dtype, 0, True, True)
        return _kernel._ArgInfo(
            _NDARRAY,
            cupy.ndarray,
            dtype,
            len(view.shape),
            view.is_contiguous,
            view.has_narrow_indices,
        )

    def indexer(shape: tuple[int, ...]) -> Any:
        narrow = View(shape, shape, 1).has_narrow_indices
        return _kernel._ArgInfo(_INDEXER, _carray.Indexer, None, len(shape), True, narrow)

    try:
        text = generate((*map(described, dtypes), *map(indexer, indexers)))
    except (AssertionError, AttributeError, TypeError) as error:
        raise UsageError(
            f"CuPy {cupy.__version__} writes {code.name} in another way than memlab knows "
            f"({one_line(error)}): give memlab.source(TEXT)"
        ) from None
    return HEADERS + str(text)


def scalar_info(dtype: Any) -> Any:
    """CuPy's description of a number that its own code adds."""
    from cupy._core import _kernel

    return _kernel._ArgInfo(_SCALAR, object, dtype, 0, True, True)


def _numpy_type(value: Specification) -> Any:
    """The type of an array's elements, as NumPy's class; None for a number."""
    if not isinstance(value, ArraySpecification):
        return None
    import numpy as np

    return np.dtype(NUMPY_DTYPES[value.dtype]).type
