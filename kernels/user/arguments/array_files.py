"""Arrays in files of NumPy's format, read without executing any code in them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def open_array(path: str) -> NDArray[Any]:
    """Open the array in a file; it is mapped into memory, so only the used parts are read.

    Raises:
        UsageError: There is no such file, or it does not hold an array of plain elements.
    """
    import numpy as np

    array: NDArray[Any]
    try:
        if Path(path).exists() and not Path(path).is_file():  # reading a pipe could block
            raise UsageError(f"{path} is not a file: name one that numpy.save wrote")
        with warnings.catch_warnings(action="ignore"):
            array = np.lib.format.open_memmap(path, mode="r")  # refuses pickles, which run code
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(
            f"cannot read {path} ({error.strerror or error}): check the name"
        ) from None
    except Exception as error:  # NumPy's parser raises many types on a damaged file
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{path} is not an array in NumPy's format ({reason}): write it with numpy.save"
        ) from None
    return array


def file_array_shape(path: str) -> tuple[int, ...]:
    """The shape of the array in a file; a number without dimensions counts as one element.

    Raises:
        UsageError: The file cannot be opened (see `open_array`), or the array has no elements.
    """
    extents = tuple(open_array(path).shape) or (1,)
    if min(extents) < 1:
        raise UsageError(f"{path} has the shape {list(extents)}, no elements: write a larger one")
    return extents
