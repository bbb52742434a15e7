"""Runs the compiler in a child process, which may crash or be stopped.

NVRTC crashes on some invalid sources (13.5: `template <foo T>`, and a name expression for it), and
a few lines of macros can keep it busy forever. A forked child costs a few milliseconds, since it
has the library loaded already. It also starts and limits nvcc and the programs that nvcc starts.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from memlab.errors import MemlabError

COMPILE_TIMEOUT_S = 120.0
"""The time limit of one compilation, seconds; all of CUDA's headers together take about two."""
COMPILE_MEMORY_LIMIT_BYTES = 8 << 30
"""The memory that a compilation may take besides what the process has already mapped."""
COMPILE_FILE_LIMIT_BYTES = 1 << 30
"""The size of each file that a compilation may write."""

Result = TypeVar("Result")


class ChildProcessLostError(MemlabError):
    """The child gave no result; the message says why.

    Attributes:
        crashed: Whether it crashed; otherwise it was stopped or could not be started.
    """

    def __init__(self, message: str, crashed: bool) -> None:
        super().__init__(message)
        self.crashed = crashed


def call_in_child(work: Callable[[], Result]) -> Result:
    """Call a function in a child process and return its result; the function must not raise.

    Raises:
        ChildProcessLostError: The child crashed, or took too much time or memory.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # The child runs the compiler and exits, so it needs no lock of another thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Python ignores exceptions in what modules do around a fork, that of Ctrl-C too, so the
        # signal waits until the child can be stopped.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            child = os.fork()
        except OSError as error:  # no memory, or too many processes
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
            os.close(reader)
            os.close(writer)
            raise ChildProcessLostError(
                f"could not be started ({error.strerror})", crashed=False
            ) from error
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        os.close(reader)  # or the child waits for itself to read, if the parent is killed
        _child_main(work, writer)
    os.close(writer)
    answer = None
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        answer = _read_pipe(reader)
    finally:
        os.close(reader)
        if answer is None:
            with suppress(ProcessLookupError):  # it has no process group of its own yet
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if answer is None:
        raise ChildProcessLostError(f"did not end within {COMPILE_TIMEOUT_S:g} s", crashed=False)
    try:
        result: Result = pickle.loads(answer)
    except (EOFError, pickle.UnpicklingError):
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no result"
        raise ChildProcessLostError(f"crashed ({how})", crashed=True) from None
    return result


def _child_main(work: Callable[[], object], writer: int) -> None:
    """Run the work in the child, write the pickled result to a pipe and exit."""
    try:
        os.setpgid(0, 0)  # the programs that it starts are stopped with it
        faulthandler.disable()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        _set_resource_limit(resource.RLIMIT_CORE, 0)
        # If the parent is killed, nothing else stops the child.
        _set_resource_limit(resource.RLIMIT_CPU, int(COMPILE_TIMEOUT_S) + 10)
        _set_resource_limit(resource.RLIMIT_FSIZE, COMPILE_FILE_LIMIT_BYTES)
        mapped_pages = int(Path("/proc/self/statm").read_text().split()[0])
        _set_resource_limit(
            resource.RLIMIT_AS, mapped_pages * resource.getpagesize() + COMPILE_MEMORY_LIMIT_BYTES
        )
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(work()))
    finally:
        os._exit(0)  # exit handlers belong to the parent


def _set_resource_limit(which: int, value: int) -> None:
    _, most = resource.getrlimit(which)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(which, (value, most))


def _read_pipe(reader: int) -> bytes | None:
    """Read a pipe until it is closed; None if that takes too long."""
    end = time.monotonic() + COMPILE_TIMEOUT_S
    parts: list[bytes] = []
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reader, 1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None
