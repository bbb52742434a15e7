"""The threads of NumPy's BLAS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")
"""Around the names of OpenBLAS's functions: NumPy's wheels rename them."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy compute products on one thread.

    OpenBLAS also divides products that take a millisecond, and its threads wait for each other by
    spinning: where other processes use the cores, such a product takes 100 ms (measured: 32 x 4096
    by 4096 x 32). Another BLAS than OpenBLAS is left as it is.
    """
    functions = _functions()
    if functions is None:
        yield
        return
    threads, set_threads = functions
    before = threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], Any]] | None:
    """OpenBLAS's functions that get and set its number of threads; None for another BLAS."""
    from numpy.linalg import _umath_linalg  # linked with the BLAS

    library = ctypes.CDLL(_umath_linalg.__file__)
    for prefix in _PREFIXES:
        for suffix in _SUFFIXES:
            names = [f"{prefix}{verb}_num_threads{suffix}" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                get, put = (getattr(library, name) for name in names)
                return get, put
    return None
