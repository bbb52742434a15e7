"""What runs at the same time as something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def beside(action: Callable[[], T]) -> Iterator[Future[T]]:
    """Call a function on a thread of its own while the block runs, which ends when both have ended.

    That saves time where most of the function is array operations, BLAS or the emulator's machine
    code, which let other threads run. Neither may change what the other one reads.

    Args:
        action: The function; its result, or what it raised, is the future's.
    """
    with ThreadPoolExecutor(1, "memlab-beside") as pool:
        yield pool.submit(action)
