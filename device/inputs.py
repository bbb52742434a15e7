"""What a kernel finds in memory: the same random inputs and poisoned outputs on every device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlab.errors import UsageError
from memlab.kernels.launch import Launch, Uniform

POISON_BYTE = 0xFF  # a NaN in every float format, so that an element never written is seen


def random_inputs(
    launch: Launch, seed: int, into: Mapping[str, NDArray[Any]] | None = None
) -> dict[str, NDArray[Any]]:
    """Make the inputs of a launch: arguments and `__constant__` arrays.

    Args:
        launch: What will run.
        seed: The same seed gives the same arrays on every device.
        into: Arrays by name to fill in place; those that are not there are made.

    Returns:
        Arrays by name, in the inputs' shapes and types.

    Raises:
        UsageError: The seed is negative.
    """
    if seed < 0:
        raise UsageError(f"seed must be 0 or more, got {seed}: use 0")
    arrays = {}
    for number, each in enumerate(launch.inputs):
        given = (into or {}).get(each.name)
        arrays[each.name] = np.empty(each.shape, each.dtype) if given is None else given
        _draw(arrays[each.name], each.fill, np.random.default_rng([seed, number]))
    return arrays


def _draw(array: NDArray[Any], how: Uniform | None, generator: np.random.Generator) -> None:
    """Fill an array in place: floats uniform in [0, 1), integers over their range, or as told.

    Never zeros: these hide wrong indexing, and a GPU draws less power on them.
    """
    if array.dtype.kind == "f":
        generator.random(out=array, dtype=array.dtype)
        if how is not None:
            array *= how.high - how.low
            array += how.low
        return
    info = np.iinfo(array.dtype)
    low, high = (info.min, info.max + 1) if how is None else (int(how.low), int(how.high))
    array[...] = generator.integers(low, high, array.shape, array.dtype)


def unwritten(output: NDArray[Any]) -> int:
    """Count the elements of an output that still hold nothing but poison."""
    raw = np.ascontiguousarray(output).reshape(-1).view(f"u{output.dtype.itemsize}")
    return int(np.count_nonzero(raw == np.iinfo(raw.dtype).max))
