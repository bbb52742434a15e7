"""Ctrl-C that is not lost: where Python ignores the exception, the signal is remembered."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextmanager
def remembered_interrupts() -> Iterator[Callable[[], None]]:
    """Remember that Ctrl-C was pressed.

    Python ignores what is raised in finalizers and in what other modules do around a fork. A
    `KeyboardInterrupt` that comes there is lost.

    Yields:
        A function that raises `KeyboardInterrupt` if Ctrl-C was pressed.
    """
    seen = threading.Event()

    def check() -> None:
        if seen.is_set():
            raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or not callable(previous):  # Ctrl-C is not for this thread, or ignored
        yield check
        return
    handle = previous

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        handle(number, frame)

    signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, previous)
