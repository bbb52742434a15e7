"""The front ends: which Python package made a kernel object, and what memlab launches of it.

A front end is a module with two functions. `named(code)` gives the user kernel that an object
stands for, before anything is compiled. `adapted(kernel, architecture)` makes of it a kernel in
CUDA C++ or PTX, with its arguments as the package lays them out. Two more are optional:
`with_own_options` and `swept_options`, documented at the functions here that call them. A package
is imported only by its own front end, which is found by the module in which an object's type is
defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from memlab.errors import UsageError
from memlab.kernels.user.kernel import is_object

if TYPE_CHECKING:
    from memlab.kernels.user.kernel import UserKernel

FRONT_ENDS = {"cupy": "cupy_kernels", "numba": "numba_kernels", "triton": "triton_kernels"}
"""The modules of the front ends, by the package whose kernels they read."""


class FrontEnd(Protocol):
    """The functions of a front end."""

    def named(self, code: Any) -> UserKernel:
        """The user kernel that an object stands for; the object is its `code`.

        Raises:
            UsageError: The object is of the package, but no kernel.
        """
        ...

    def adapted(self, kernel: UserKernel, architecture: tuple[int, int]) -> UserKernel:
        """The kernel in CUDA C++ (`code` is its text) or PTX (`compiled`), to be launched.

        Args:
            kernel: A kernel that `named` made, with its launch options, expressions computed.
            architecture: The compute capability of the device.

        Raises:
            UsageError: The package refuses the kernel or its arguments, or is not installed whole.
        """
        ...


def front_end(code: Any) -> FrontEnd:
    """Find the front end of an object.

    Raises:
        UsageError: No known package made it.
    """
    for kind in type(code).__mro__:
        module = FRONT_ENDS.get(kind.__module__.partition(".")[0])
        if module is not None:
            found: Any = import_module(f"{__package__}.{module}")
            return found  # type: ignore[no-any-return]
    raise UsageError(
        f"a kernel cannot be an object of type {type(code).__name__}: give a name of the catalog "
        "such as 'tiled', 'FILE.cu:ENTRY', memlab.source(TEXT), or a kernel of Numba, CuPy or "
        "Triton"
    )


def adapted_kernel(kernel: UserKernel, architecture: tuple[int, int]) -> UserKernel:
    """The kernel to compile for a device; the same one where no package made it.

    Args:
        kernel: The kernel, with its expressions computed.
        architecture: The compute capability of the device.

    Raises:
        UsageError: As `FrontEnd.adapted`.
    """
    if not is_object(kernel):
        return kernel
    return front_end(kernel.code).adapted(kernel, architecture)


def with_own_options(
    kernel: UserKernel, options: Mapping[str, Any]
) -> tuple[UserKernel, Mapping[str, Any]]:
    """Give a kernel the options that only its package has.

    Args:
        kernel: The kernel.
        options: The options of a launch, by name.

    Returns:
        The kernel, and the options that are left for `apply_launch_options`.

    Raises:
        UsageError: An option is wrong.
    """
    taken: tuple[UserKernel, Mapping[str, Any]] = _call_if_there(
        "with_own_options", kernel, options, (kernel, options)
    )
    return taken


def swept_options(kernel: UserKernel, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a sweep, with what its package varies if nothing else is said."""
    swept: Mapping[str, Any] = _call_if_there("swept_options", kernel, options, options)
    return swept


def _call_if_there(
    name: str, kernel: UserKernel, options: Mapping[str, Any], otherwise: Any
) -> Any:
    """Call a function that not every front end has."""
    if not is_object(kernel):
        return otherwise
    function = getattr(front_end(kernel.code), name, None)
    return function(kernel, options) if function else otherwise
