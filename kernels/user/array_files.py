"""Arrays in files of NumPy's format: opened, never run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def open_array(path: str) -> NDArray[Any]:
    """Open the array in a file; it is mapped, so that of a large one only what is used is read.

    Raises:
        UsageError: There is no such file, or it holds no array of plain elements.
    """
    import numpy as np

    array: NDArray[Any]
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would have us wait
            raise UsageError(f"{path} is no file: name one that numpy.save wrote")
        with warnings.catch_warnings(action="ignore"):
            array = np.lib.format.open_memmap(path, mode="r")  # pickles could run code: never
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(
            f"cannot read {path} ({error.strerror or error}): check the name"
        ) from None
    except Exception as error:  # whatever NumPy's parser meets in a damaged file
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{path} is not an array in NumPy's format ({reason}): write it with numpy.save"
        ) from None
    return array


def file_array_shape(path: str) -> tuple[int, ...]:
    """The shape of the array in a file; a number without dimensions is one element.

    Raises:
        UsageError: As `opened`, or it has no elements.
    """
    extents = tuple(open_array(path).shape) or (1,)
    if min(extents) < 1:
        raise UsageError(f"{path} has the shape {list(extents)}, no elements: write a larger one")
    return extents
