"""How a Python package lays out the arguments of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memlab.kernels.user.arguments.specifications import Specification


@dataclass(frozen=True)
class ArgumentLayout:
    """The parameters of a compiled kernel, made of the arguments of a kernel in Python.

    A package passes more than the user writes: Numba, for example, passes an array as its pointer
    with its length, shape and strides.

    Attributes:
        arguments: A specification for each parameter of the compiled kernel, in its order.
        given: The names of the parameters or arrays that stand for the user's arguments, in the
            user's order.
        names: The names that arrays get instead of their own, such as `x` for `_raw_x.data_`.
    """

    arguments: tuple[str | Specification, ...]
    given: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict, hash=False)
